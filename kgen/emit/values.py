"""Values as Triton text: loads, operators, conversions, choices.

In: typed values of a role's plan. Out: pieces of text with their lanes; what must be computed first
becomes lines of the body that can hold it. Proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kgen.emit.helpers import HELPERS
from kgen.emit.lanes import LaneCode, Lanes
from kgen.emit.names import Names
from kgen.emit.parameters import (
    TL_TYPES,
    indexed,
    is_zero,
    list_limit,
    plain,
    strided,
)
from kgen.lang.code import Code, call, infix, method, number, prefix
from kgen.lang.dtypes import FLOATS, LITERALS, NARROW_FLOATS, DType
from kgen.lang.operators import OPERATORS
from kgen.lang.typed import (
    Cast,
    Const,
    Given,
    Index,
    Load,
    Op,
    Param,
    Reduce,
    Ref,
    Scan,
    Select,
    Tensor,
    Value,
    walk,
)
from kgen.plan.plan import Axis, Plan, Role


@dataclass(slots=True)
class Body:
    """Lines of one nesting level: the program, the body of a loop, or a compile-time `branch`."""

    parent: Body | None
    loops: tuple[str, ...]
    branch: bool = False
    lines: list[str] = field(default_factory=list)
    known: dict[tuple[Value, str], LaneCode] = field(default_factory=dict)


@dataclass(slots=True)
class ValuePrinter:
    """Prints the values of one role. `number` is the role's place among its kernel's."""

    plan: Plan
    role: Role
    names: Names
    number: int
    helpers: set[str]
    shared_launch: bool
    lanes: Lanes = field(init=False)
    first: Code = field(init=False)
    unguarded: set[str] = field(default_factory=set)
    chosen: set[str] = field(default_factory=set)
    parts: dict[str, tuple[LaneCode, ...]] = field(default_factory=dict)

    def local(self, name: str) -> str:
        """A name that no other role of the kernel has: branches may not share one of two types."""
        return self.names.fixed((f"role {self.number}", name), name)

    def _inside(self, index: str) -> str:
        return self.local(f"{index}_in")

    def _axis_mask(self, index: str) -> LaneCode:
        return LaneCode(Code(self._inside(index)), (index,))

    def _all(self, masks: list[LaneCode]) -> LaneCode | None:
        if not masks:
            return None
        total = masks[0]
        for mask in masks[1:]:
            total = self._logic("and", total, mask)
        return total

    def _logic(self, op: str, a: LaneCode, b: LaneCode) -> LaneCode:
        """`a and b` or `a or b`; the interpreter makes numbers of a scalar condition beside a block."""
        lanes = self.lanes.union(a, b)
        if a.lanes and not b.lanes:
            a, b = b, a
        if lanes and not a.lanes:
            arms = (b.code, "False") if op == "and" else ("True", b.code)
            return LaneCode(call("tl.where", a.code, *arms), lanes)
        return LaneCode(infix("&" if op == "and" else "|", a.at(lanes), b.at(lanes)), lanes)

    def _filled(self, pointer: LaneCode, lanes: tuple[str, ...]) -> LaneCode:
        """A pointer with all the lanes of its load or store."""
        if set(pointer.lanes) >= set(lanes):
            return pointer
        zeros = call("tl.zeros", self.lanes.shape(lanes), "tl.int32")
        return LaneCode(infix("+", pointer.at(lanes), zeros), lanes)

    def _filled_mask(self, mask: LaneCode, lanes: tuple[str, ...]) -> Code:
        """A mask for a block is a block itself: the interpreter refuses a scalar one."""
        if not mask.lanes and lanes:
            ones = LaneCode(call("tl.full", self.lanes.shape(lanes), "1", "tl.int1"), lanes)
            return self._logic("and", mask, ones).code
        return mask.at(lanes)

    def _pointer(
        self, tensor: str, values: tuple[Value, ...], items: list[LaneCode], body: Body
    ) -> LaneCode:
        declared = self.plan.group.tensors[tensor]
        code, strides = Code(f"{tensor}_ptr"), f"{tensor}_stride_"
        if declared.length is not None:
            code, strides = self._chosen(declared, items[0], body)
            values, items = values[1:], items[1:]
        lanes = self.lanes.union(*items)
        for dim, (value, item) in enumerate(zip(values, items, strict=True)):
            if is_zero(value):
                continue
            offset = item.at(lanes)
            if strided(declared, dim):
                offset = infix("*", offset, Code(f"{strides}{dim}"))
            code = infix("+", code, offset)
        return LaneCode(code, lanes)

    def _chosen(self, tensor: Tensor, item: LaneCode, body: Body) -> tuple[Code, str]:
        """The pointer to one tensor of a list and the prefix of its strides' names."""
        while body.parent is not None:
            body = body.parent
        prefix_ = self.names.fixed(
            (f"list {self.number}", f"{tensor.name} {item.code}"), f"{tensor.name}_chosen"
        )
        pointer = f"{prefix_}_ptr"
        if pointer not in self.chosen:
            self.chosen.add(pointer)
            limit = list_limit(self.plan.group, tensor)
            self.helpers.add(f"pick_{limit}")
            names = [("", "_address")]
            names += [(f"stride_{d}_", f"_stride_{d}") for d in indexed(self.plan, tensor)]
            for inner, outer in names:
                each = [f"{tensor.name}_{inner}{at}" for at in range(limit)]
                body.lines.append(f"{prefix_}{outer} = {call(f'pick_{limit}', item.code, *each)}")
            kind = f"tl.pointer_type({TL_TYPES[tensor.dtype]})"
            body.lines.append(f"{pointer} = {prefix_}_address.to(tl.int64).to({kind})")
        return Code(pointer), f"{prefix_}_stride_"

    # Values.

    def code(self, value: Value, body: Body, guard: LaneCode | None) -> LaneCode:
        """The text of a value, its loads and reductions emitted before it."""
        match value:
            case Const(literal, dtype) if dtype in NARROW_FLOATS:
                return self._constant(number(literal), dtype)
            case Const(literal):
                return LaneCode(number(literal), ())
            case Param(name, dtype):
                if name in self.plan.group.sizes and dtype == "i64":
                    return LaneCode(method(Code(name), "to", "tl.int64"), ())
                return LaneCode(Code(name), ())
            case Given(tensor):
                return LaneCode(Code(f"HAS_{tensor}"), ())
            case Index(name):
                return self._index(name)
            case Ref(name):
                let = self.plan.lets[name]
                idle = guard is None or name in self.unguarded or not self._needs_guard(let.value)
                return self._let(name, body, None if idle else guard)
            case Load() | Reduce() | Scan():
                return self._named(value, _hint(value), body, guard)
            case Cast(arg, dtype):
                inner = self.code(arg, body, guard)
                if _compile_time(arg):
                    return self._constant(inner.code, dtype)
                return LaneCode(self._convert(inner.code, arg.dtype, dtype), inner.lanes)
            case Select(cond, then, other):
                return self._select(cond, then, other, body, guard)
            case Op(op, args):
                return self._operate(op, args, body, guard)

    def _index(self, name: str) -> LaneCode:
        axis = self.role.axes[name]
        return LaneCode(Code(self.local(name)), () if axis.kind == "row" else (name,))

    def _let(self, name: str, body: Body, guard: LaneCode | None) -> LaneCode:
        let = self.plan.lets[name]
        home = self._home(let.value, body, guard)
        key = (Ref(name, let.value.dtype, let.value.axes), guard.code.text if guard else "")
        if key in home.known:
            return home.known[key]
        value = self._typed(let.value, home, guard, hint=name)
        target = self.local(name) if guard is None else self.names.fresh(name)
        if value.code.text != target:
            home.lines += [f"# {name}: {let.text}", f"{target} = {value.code}"]
        home.known[key] = LaneCode(Code(target), value.lanes)
        return home.known[key]

    def _typed(self, value: Value, body: Body, guard: LaneCode | None, hint: str = "") -> LaneCode:
        """A value that has its type even where its text is a bare literal or an index."""
        if isinstance(value, Const):
            return self._constant(number(value.value), value.dtype)
        if value.dtype in LITERALS:
            return self._constant(self.code(value, body, guard).code, value.dtype)
        if value.dtype == "bool" and _compile_time(value):
            return LaneCode(
                call("tl.full", "()", self.code(value, body, guard).code, "tl.int1"), ()
            )
        if isinstance(value, Index) and self.role.axes[value.name].kind != "row":
            return LaneCode(method(Code(self.local(value.name)), "to", "tl.int64"), (value.name,))
        if isinstance(value, Load) and hint:
            return self._load(value, body, guard)
        return self.code(value, body, guard)

    def _constant(self, literal: Code, dtype: DType) -> LaneCode:
        """A compile-time number as a run-time value of its type."""
        if dtype in NARROW_FLOATS:
            wide = call("tl.full", "()", literal, "tl.float32")
            return LaneCode(self._convert(wide, "f32", dtype), ())
        return LaneCode(call("tl.full", "()", literal, TL_TYPES[dtype]), ())

    def _convert(self, code: Code, source: DType, target: DType) -> Code:
        """A conversion between run-time types, as torch makes it; bf16 by way of f32."""
        if source == target:
            return code
        if source == "bf16":
            self.helpers.add("bf16_to_f32")
            return self._convert(call("bf16_to_f32", code), "f32", target)
        if target == "bf16":
            self.helpers.add("f32_to_bf16")
            return call("f32_to_bf16", self._convert(code, source, "f32"))
        return method(code, "to", TL_TYPES[target])

    def _named(self, value: Value, hint: str, body: Body, guard: LaneCode | None) -> LaneCode:
        """A variable that holds `value`, emitted once in the outermost body that can hold it."""
        if guard is not None and not self._needs_guard(value):
            guard = None
        if isinstance(value, Reduce) and value.none is not None:
            return self._found(value, hint, body, guard)
        if isinstance(value, Reduce | Scan):
            guard = self._outside(guard, value.index)
        home = self._home(value, body, guard)
        key = (value, guard.code.text if guard else "")
        if key in home.known:
            return home.known[key]
        if isinstance(value, Ref):
            return self.code(value, body, guard)
        if isinstance(value, Load):
            code = self._load(value, home, guard)
        elif isinstance(value, Reduce):
            code = self._reduce(value, home, guard, hint)
        elif isinstance(value, Scan):
            code = self._scan(value, home, guard, hint)
        else:
            code = self.code(value, home, guard)
        name = self.names.fresh(hint)
        home.lines.append(f"{name} = {code.code}")
        home.known[key] = LaneCode(Code(name), code.lanes)
        return home.known[key]

    def _home(self, value: Value, body: Body, guard: LaneCode | None) -> Body:
        """The outermost body that can hold a value."""
        axes = value.axes | set(guard.lanes if guard is not None else ())
        while body.parent is not None:
            if body.branch and self._reads_optional(value):
                break
            # Not past the loop that binds an index: the same index may be looped over outside too.
            if not body.branch and body.loops[-1] in axes:
                break
            body = body.parent
        return body

    def _needs_guard(self, value: Value) -> bool:
        """Whether a value loads what may be out of bounds where its branch is not taken."""
        reads = walk(value, self.plan.lets)
        return any(isinstance(each, Load) and not each.safe for each in reads)

    def _reads_optional(self, value: Value) -> bool:
        tensors = self.plan.group.tensors
        return any(
            isinstance(each, Load) and tensors[each.tensor].optional
            for each in walk(value, self.plan.lets)
        )

    def _load(self, load: Load, body: Body, guard: LaneCode | None) -> LaneCode:
        if not self._needs_guard(load):
            guard = None
        items = [self.code(item, body, guard) for item in load.items]
        masks = [self._axis_mask(i) for i in self.lanes.order if any(i in c.lanes for c in items)]
        if guard is not None:
            # A guarded index may be anything where the guard is false; it must not leave the tensor.
            items = [
                item
                if isinstance(value, Index | Const)
                else LaneCode(call("tl.where", guard.at(u), item.at(u), "0"), u)
                for value, item in zip(load.items, items, strict=True)
                for u in (self.lanes.union(item, guard),)
            ]
            masks.append(guard)
        pointer = self._pointer(load.tensor, load.items, items, body)
        mask = self._all(masks)
        lanes = self.lanes.union(pointer, *([mask] if mask else []))
        pointer = self._filled(pointer, lanes)
        args = [pointer.code.text]
        if mask is not None:
            other = "0.0" if load.dtype in FLOATS else "0"
            args += [f"mask={self._filled_mask(mask, lanes)}", f"other={other}"]
        return LaneCode(Code(f"tl.load({', '.join(args)})"), lanes)

    def _select(
        self,
        cond: Value,
        then: Value,
        other: Value,
        body: Body,
        guard: LaneCode | None,
    ) -> LaneCode:
        loads = self._needs_guard(then) or self._needs_guard(other)
        if _compile_time(cond):
            return self._choose(cond, then, other, body, guard)
        test = self._named(cond, "cond", body, guard) if loads else self.code(cond, body, guard)
        inner = outer = guard
        if loads:
            self.parts[test.code.text] = tuple(
                self.code(part, body, guard) for part in conjuncts(cond)
            )
            inner = self._and(guard, test)
            if self._needs_guard(other):
                negated = LaneCode(prefix("~", test.code), test.lanes)
                outer = self._and(guard, negated)
        a, b = self._typed(then, body, inner), self._typed(other, body, outer)
        if isinstance(then, Const) and not isinstance(other, Const):
            a = self.code(then, body, inner)
        if isinstance(other, Const) and not isinstance(then, Const):
            b = self.code(other, body, outer)
        lanes = self.lanes.union(test, a, b)
        return LaneCode(call("tl.where", test.at(lanes), a.at(lanes), b.at(lanes)), lanes)

    def _choose(
        self, cond: Value, then: Value, other: Value, body: Body, guard: LaneCode | None
    ) -> LaneCode:
        """A choice at compile time: only the branch taken is in the compiled kernel."""
        key = (Select(cond, then, other, then.dtype, then.axes), guard.code.text if guard else "")
        if key in body.known:
            return body.known[key]
        name = self.names.fresh("chosen")
        lines: list[str] = []
        lanes: tuple[str, ...] = ()
        for head, arm in ((f"if {plain(cond)}:", then), ("else:", other)):
            inner = Body(body, body.loops, branch=True)
            code = self._typed(arm, inner, guard)
            lanes = self.lanes.union(LaneCode(code.code, lanes), code)
            lines += [head, *(f"    {line}" for line in (*inner.lines, f"{name} = {code.code}"))]
        body.lines += lines
        body.known[key] = LaneCode(Code(name), lanes)
        return body.known[key]

    def _and(self, guard: LaneCode | None, more: LaneCode) -> LaneCode:
        if guard is None:
            return more
        both = self._logic("and", guard, more)
        known = [self.parts.get(each.code.text, (each,)) for each in (guard, more)]
        self.parts[both.code.text] = (*known[0], *known[1])
        return both

    def _outside(self, guard: LaneCode | None, index: str) -> LaneCode | None:
        """What of a guard holds for all values of an index: the index is bound within it."""
        if guard is None or index not in guard.lanes:
            return guard
        left: LaneCode | None = None
        for part in self.parts.get(guard.code.text, ()):
            if index not in part.lanes:
                left = self._and(left, part)
        return left

    def _operate(
        self, op: str, args: tuple[Value, ...], body: Body, guard: LaneCode | None
    ) -> LaneCode:
        static = all(_compile_time(arg) for arg in args)
        if static and op not in ("and", "or", "not"):
            return LaneCode(plain(Op(op, args, "int", frozenset())), ())
        dtype = next((arg.dtype for arg in args if not _compile_time(arg)), args[0].dtype)
        codes = [self._operand(arg, args, body, guard) for arg in args]
        lanes = self.lanes.union(*codes)
        given = [each.at(lanes) for each in codes]
        if dtype in FLOATS:
            wide = [
                code if _compile_time(arg) else self._convert(code, arg.dtype, "f32")
                for arg, code in zip(args, given, strict=True)
            ]
            if op == "truediv":
                wide = [
                    call("tl.full", "()", code, "tl.float32") if _compile_time(arg) else code
                    for arg, code in zip(args, wide, strict=True)
                ]
            code = self._operate_floats(op, wide)
            narrow = dtype if not OPERATORS[op].compares else "f32"
            return LaneCode(self._convert(code, "f32", narrow), lanes)
        match op:
            case "not":
                return LaneCode(infix("==", given[0], number(0)), lanes)
            case "and" | "or":
                return self._logic(op, *codes)
            case "floordiv" | "mod":
                helper = "floor_div" if op == "floordiv" else "floor_mod"
                self.helpers.add(helper)
                return LaneCode(call(helper, *given), lanes)
            case "truncdiv" | "truncmod":
                return LaneCode(infix("//" if op == "truncdiv" else "%", *given), lanes)
            case _:
                return LaneCode(OPERATORS[op].triton(*given), lanes)

    def _operate_floats(self, op: str, given: list[Code]) -> Code:
        """An operator on f32, rounded as IEEE says; Triton's own `/`, sqrt and minus are not."""
        code = OPERATORS[op].triton_floats(*given)
        self.helpers |= {name for name in HELPERS if code.text.startswith(f"{name}(")}
        return code

    def _operand(
        self, arg: Value, args: tuple[Value, ...], body: Body, guard: LaneCode | None
    ) -> LaneCode:
        """An operand with the type of the others; Triton itself widens i32 beside i64."""
        if isinstance(arg, Const):
            return LaneCode(number(arg.value), ())
        if _compile_time(arg):
            return self.code(arg, body, guard)
        if isinstance(arg, Cast) and arg.arg.dtype == "i32" and arg.dtype == "i64":
            others = [each for each in args if each is not arg]
            if any(each.dtype == "i64" and not isinstance(each, Const | Cast) for each in others):
                return self.code(arg.arg, body, guard)
        return self._typed(arg, body, guard)

    # Reductions and scans.

    def _reduce(self, value: Reduce, body: Body, guard: LaneCode | None, hint: str) -> LaneCode:
        raise NotImplementedError

    def _found(self, value: Reduce, hint: str, body: Body, guard: LaneCode | None) -> LaneCode:
        raise NotImplementedError

    def _scan(self, value: Scan, body: Body, guard: LaneCode | None, hint: str) -> LaneCode:
        raise NotImplementedError

    def _loop_head(self, index: str, inner: Body) -> str:
        raise NotImplementedError

    def _start(self, index: str) -> str:
        raise NotImplementedError

    def _lane_axis(self, axis: Axis, start: Code | None, body: Body) -> None:
        raise NotImplementedError


def _hint(value: Load | Reduce | Scan) -> str:
    match value:
        case Load(tensor):
            return f"{tensor}_value"
        case Reduce(kind, index) | Scan(kind, index):
            return f"{kind}_{index}"


def conjuncts(cond: Value) -> tuple[Value, ...]:
    """The conditions that `and` joins."""
    if isinstance(cond, Op) and cond.op == "and":
        return tuple(part for arg in cond.args for part in conjuncts(arg))
    return (cond,)


def _compile_time(value: Value) -> bool:
    """Whether a value is known when the kernel is compiled."""
    match value:
        case Const() | Given():
            return True
        case Param(_, dtype):
            return dtype in LITERALS
        case Op(_, args):
            return all(_compile_time(arg) for arg in args)
    return False
