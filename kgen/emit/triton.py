"""The Triton kernel of a plan.

In: a `Plan`. Out: the text of one `@triton.jit` function and the facts that a launch needs. Prints
what the plan says; proves nothing. Shares only the typed tree with the torch emitter.

Shape of a kernel: for each role its program axes, then every load, then a barrier where a tensor is
both read and written, then every store. All loads and reductions get names of their own, so that a
store's line holds arithmetic only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kgen.analysis.ranges import Ranges
from kgen.emit.helpers import HELPERS
from kgen.emit.lanes import LaneCode, Lanes
from kgen.emit.layout import wrap
from kgen.emit.names import Names
from kgen.lang.text import Code, call, infix, method, number, prefix, ternary
from kgen.lang.typed import (
    Cast,
    Const,
    Given,
    Group,
    Index,
    Load,
    Op,
    Param,
    Reduce,
    Ref,
    Scan,
    Select,
    Store,
    Tensor,
    Value,
    walk,
)
from kgen.lang.types import FLOATS, LIMITS, LITERALS, NARROW_FLOATS, DType
from kgen.plan.plan import Axis, Plan, Role

TL_TYPES: dict[DType, str] = {
    "f16": "tl.float16",
    "bf16": "tl.bfloat16",
    "f32": "tl.float32",
    "int": "tl.int64",
    "float": "tl.float32",
    "bool": "tl.int1",
    "u8": "tl.uint8",
    "i32": "tl.int32",
    "i64": "tl.int64",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel, in order.

    `kind`: pointer, address, stride, size, scalar, given, static or block. `element` is the place in
    a list.
    """

    name: str
    kind: str
    type: str
    source: str
    dim: int = 0
    element: int | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """The text of a kernel and what its launch passes."""

    name: str
    text: str
    parameters: tuple[Parameter, ...]
    helpers: frozenset[str]
    programs: Code


def parameters(plan: Plan) -> tuple[Parameter, ...]:
    """The kernel's parameters: pointers, strides, sizes, scalars, then compile-time ones."""
    group = plan.group
    used = {name for role in plan.roles for name in role.reads | role.writes}
    tensors = [tensor for tensor in group.tensors.values() if tensor.name in used]
    found: list[Parameter] = []
    for tensor in tensors:
        if tensor.length is None:
            found.append(Parameter(f"{tensor.name}_ptr", "pointer", tensor.dtype, tensor.name))
        for at in range(list_limit(group, tensor)):
            found.append(
                Parameter(f"{tensor.name}_{at}", "address", "i64", tensor.name, element=at)
            )
    for tensor in tensors:
        for dim in _indexed(plan, tensor):
            name = f"{tensor.name}_stride_{dim}"
            if tensor.length is None:
                found.append(Parameter(name, "stride", "i64", tensor.name, dim))
            for at in range(list_limit(group, tensor)):
                found.append(Parameter(f"{name}_{at}", "stride", "i64", tensor.name, dim, at))
    found += [Parameter(name, "size", "i32", name) for name in plan.size_names]
    found += [
        Parameter(name, "scalar", group.scalars[name].dtype, name) for name in plan.scalar_names
    ]
    found += [Parameter(f"HAS_{name}", "given", "constexpr", name) for name in plan.given]
    found += [Parameter(name, "static", "constexpr", name) for name in plan.static_names]
    found += [
        Parameter(name, "block", "constexpr", axis.index) for name, axis in plan.blocks.items()
    ]
    return tuple(found)


def list_limit(group: Group, tensor: Tensor) -> int:
    """How many tensors a list may have: a kernel has an address for each; 0 if it is no list."""
    return int(Ranges(group).of(tensor.length)[1]) if tensor.length is not None else 0


def _indexed(plan: Plan, tensor: Tensor) -> list[int]:
    """The dimensions whose stride an address needs: the caller's to choose, and not always at 0."""
    skip = 0 if tensor.length is None else 1
    needed: set[int] = set()
    for role in plan.roles:
        for store in (*role.stores, *role.once):
            places = [store.items] if store.tensor == tensor.name else []
            roots = (*store.items, store.value, *((store.when,) if store.when is not None else ()))
            for root in roots:
                for each in walk(root, plan.lets):
                    if isinstance(each, Load) and each.tensor == tensor.name:
                        places.append(each.items)
            for items in places:
                needed |= {dim for dim, item in enumerate(items[skip:]) if not _is_zero(item)}
    return sorted(dim for dim in needed if _strided(tensor, dim))


def _is_zero(item: Value) -> bool:
    return isinstance(item, Const) and item.value == 0


def _strided(tensor: Tensor, dim: int) -> bool:
    """Whether a dimension's stride is the caller's to choose."""
    return tensor.layout == "any" or dim < len(tensor.dims) - 1


def emit(plan: Plan) -> Kernel:
    """The kernel of a plan."""
    helpers: set[str] = set()
    params = parameters(plan)
    counts = [_programs(plan.group, role) for role in plan.roles]
    bodies = [
        _Role(plan, role, _names(plan, params), helpers, len(plan.roles) > 1).lines(number_)
        for number_, role in enumerate(plan.roles)
    ]
    name = f"{plan.group.name}_kernel"
    frozen = [p.name for p in params if p.kind in ("address", "stride", "size", "scalar")]
    aligned = [p.name for p in params if p.kind == "pointer"]
    lines = ["@triton.jit("]
    if frozen:
        lines.append(f"    do_not_specialize={frozen!r},".replace("'", '"'))
    lines.append(f"    do_not_specialize_on_alignment={aligned!r},".replace("'", '"'))
    lines += [")", f"def {name}("]
    for param in params:
        kind = "" if param.kind == "pointer" else f": {_annotation(param)}"
        lines.append(f"    {param.name}{kind},")
    lines += ["):", f'    """{plan.group.summary}"""']
    if len(bodies) == 1:
        lines += [f"    {line}" if line else "" for line in bodies[0]]
    else:
        lines.append("    pid = tl.program_id(0)")
        for at, count in enumerate(counts[:-1]):
            start = f"end_{at - 1} + " if at else ""
            lines.append(f"    end_{at} = {start}{count.at(8) if at else count}")
        for at, body in enumerate(bodies):
            head = "else:" if at == len(bodies) - 1 else f"{'el' if at else ''}if pid < end_{at}:"
            lines.append(f"    {head}")
            lines += [f"        {line}" if line else "" for line in body]
    programs = counts[0]
    for count in counts[1:]:
        programs = infix("add", programs, count)
    return Kernel(name, wrap("\n".join(lines)) + "\n", params, frozenset(helpers), programs)


def _annotation(param: Parameter) -> str:
    return "tl.constexpr" if param.type == "constexpr" else TL_TYPES[param.type]  # type: ignore[index]


def _names(plan: Plan, params: tuple[Parameter, ...]) -> Names:
    names = Names({"pid", "tl", "triton", *HELPERS})
    for name in (*plan.group.extents, *plan.group.lets, *(param.name for param in params)):
        names.take(name)
    return names


def _programs(group: Group, role: Role) -> Code:
    """How many programs a role has: text for the kernel and, with `tl.cdiv` read as cdiv, the host."""
    total: Code | None = None
    for axis in role.program:
        count = _plain(group.extents[axis.index])
        if axis.kind == "tile":
            count = call("tl.cdiv", count, axis.block)
        total = count if total is None else infix("mul", total, count)
    return total if total is not None else number(1)


def _plain(value: Value) -> Code:
    """A size expression on kernel arguments or compile-time numbers."""
    match value:
        case Const(literal):
            return number(literal)
        case Param(name):
            return Code(name)
        case Given(tensor):
            return Code(f"HAS_{tensor}")
        case Cast(arg):
            return _plain(arg)
        case Select(cond, then, other):
            return ternary(_plain(cond), _plain(then), _plain(other))
        case Op(op, args):
            codes = [_plain(arg) for arg in args]
            if op in ("min", "max"):
                smaller = infix("lt" if op == "min" else "gt", codes[0], codes[1])
                return ternary(smaller, codes[0], codes[1])
            if op in ("neg", "not"):
                return prefix("-" if op == "neg" else "not", codes[0])
            if op == "abs":
                return ternary(infix("lt", codes[0], number(0)), prefix("-", codes[0]), codes[0])
            return infix(
                {"truncdiv": "floordiv", "truncmod": "mod"}.get(op, op), codes[0], codes[1]
            )
    raise AssertionError(f"{value} is not a size expression")


@dataclass(slots=True)
class _Body:
    """Lines of one nesting level: the program, the body of a loop, or a compile-time `branch`."""

    parent: _Body | None
    loops: tuple[str, ...]
    branch: bool = False
    lines: list[str] = field(default_factory=list)
    known: dict[tuple[Value, str], LaneCode] = field(default_factory=dict)


@dataclass(slots=True)
class _Role:
    """Prints one role."""

    plan: Plan
    role: Role
    names: Names
    helpers: set[str]
    shared_launch: bool
    lanes: Lanes = field(init=False)
    first: Code = field(init=False)
    unguarded: set[str] = field(default_factory=set)
    chosen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        order = [axis.index for axis in self.role.axes.values() if axis.kind != "row"]
        blocks = {axis.index: axis.block for axis in self.role.axes.values()}
        self.lanes = Lanes(tuple(order), blocks)
        for store in (*self.role.stores, *self.role.once):
            if store.when is None:
                for root in (*store.items, store.value):
                    self._find_unguarded(root)
            else:
                self._find_unguarded(store.when)

    def _find_unguarded(self, value: Value) -> None:
        """Collect the lets that are evaluated everywhere, so that a guard on them is idle."""
        match value:
            case Ref(name):
                if name not in self.unguarded:
                    self.unguarded.add(name)
                    self._find_unguarded(self.plan.lets[name].value)
            case Select(cond):
                self._find_unguarded(cond)
            case Load(_, args) | Op(_, args):
                for arg in args:
                    self._find_unguarded(arg)
            case Cast(arg) | Scan(_, _, arg):
                self._find_unguarded(arg)
            case Reduce(_, _, arg, none):
                self._find_unguarded(arg)
                if none is not None:
                    self._find_unguarded(none)
            case Const() | Param() | Given() | Index():
                pass

    # The role.

    def lines(self, number_: int) -> list[str]:
        body = _Body(None, ())
        self._program(body, number_)
        plain = [s for s in self.role.stores if not self._loops(s)]
        stores = [self._store(store, body, first=False) for store in plain]
        stores += [self._store(store, body, first=True) for store in self.role.once]
        looped: dict[tuple[str, ...], list[Store]] = {}
        for store in self.role.stores:
            if self._loops(store):
                looped.setdefault(self._loops(store), []).append(store)
        loops = [
            line for over, group in looped.items() for line in self._store_loop(over, group, body)
        ]
        written = {s.tensor for s in (*plain, *self.role.once)}
        barrier: list[str] = []
        if written & self.role.reads:
            names = ", ".join(sorted(written & self.role.reads))
            barrier = [
                f"# {names}: no thread may store before every thread has loaded.",
                "tl.debug_barrier()",
            ]
        return [*body.lines, *loops, *barrier, *(line for lines in stores for line in lines)]

    def _loops(self, store: Store) -> tuple[str, ...]:
        return tuple(
            i for i, axis in self.role.axes.items() if axis.kind == "loop" and i in store.axes
        )

    def _program(self, body: _Body, number_: int) -> None:
        program = self.role.program
        pid = Code("tl.program_id(0)")
        if self.shared_launch:
            pid = Code("pid") if number_ == 0 else Code(f"(pid - end_{number_ - 1})")
        if len(program) > 1:
            body.lines.append(
                f"program = {pid.text.removeprefix('(').removesuffix(')')}"
                if pid.text.startswith("(")
                else f"program = {pid}"
            )
            pid = Code("program")
        self.first = Code(f"{pid} == 0", 4)
        for at, axis in reversed(list(enumerate(program))):
            count = _programs(
                self.plan.group, Role((), (), {axis.index: axis}, frozenset(), frozenset())
            )
            here = pid
            if at > 0:
                here = infix("mod", pid, count)
                pid = infix("floordiv", pid, count)
            if axis.kind == "row":
                body.lines.append(f"{axis.index} = {method(here, 'to', 'tl.int64')}")
            else:
                start = infix("mul", here, Code(axis.block))
                self._lane_axis(axis, start, body)
        for axis in self.role.axes.values():
            if axis.kind == "lanes":
                self._lane_axis(axis, None, body)

    def _lane_axis(self, axis: Axis, start: Code | None, body: _Body) -> None:
        lanes = call("tl.arange", "0", axis.block)
        code = lanes if start is None else infix("add", start, lanes)
        body.lines.append(f"{axis.index} = {code}")
        extent = _plain(self.plan.group.extents[axis.index])
        inside = infix("lt", Code(axis.index), extent)
        body.lines.append(f"{self._inside(axis.index)} = {inside}")

    def _inside(self, index: str) -> str:
        return self.names.fixed(("inside", index), f"{index}_in")

    # Stores.

    def _store(self, store: Store, body: _Body, *, first: bool) -> list[str]:
        guard = None
        if store.when is not None:
            guard = self._named(store.when, f"{store.tensor}_when", body, None)
        value = self.code(store.value, body, guard)
        items = [self.code(item, body, guard) for item in store.items]
        pointer = self._pointer(store.tensor, store.items, items, body)
        masks = [self._axis_mask(index) for index in self.lanes.order if index in store.axes]
        if guard is not None:
            masks.append(guard)
        if first and self.role.program:
            masks.append(LaneCode(self.first, ()))
        mask = self._all(masks)
        lanes = self.lanes.union(pointer, value, *([mask] if mask else []))
        pointer = self._filled(pointer, lanes)
        args = [pointer.at(lanes).text, value.at(lanes).text]
        if mask is not None:
            args.append(f"mask={self._filled_mask(mask, lanes, plain=guard is None and not first)}")
        comment = f"# {store.target_text}: {store.value_text}"
        return [comment, f"tl.store({', '.join(args)})"]

    def _store_loop(self, over: tuple[str, ...], stores: list[Store], body: _Body) -> list[str]:
        if not over:
            return [line for store in stores for line in self._store(store, body, first=False)]
        inner = _Body(body, (*body.loops, over[0]))
        head = self._loop_head(over[0], inner)
        lines = self._store_loop(over[1:], stores, inner)
        return [head, *(f"    {line}" for line in (*inner.lines, *lines))]

    def _loop_head(self, index: str, inner: _Body) -> str:
        axis = self.role.axes[index]
        start = self.names.fixed(("start", index), f"{index}_start")
        self._lane_axis(axis, Code(start), inner)
        extent = _plain(self.plan.group.extents[index])
        return f"for {start} in range(0, {extent}, {axis.block}):"

    # Masks and pointers.

    def _axis_mask(self, index: str) -> LaneCode:
        return LaneCode(Code(self._inside(index)), (index,))

    def _all(self, masks: list[LaneCode]) -> LaneCode | None:
        if not masks:
            return None
        lanes = self.lanes.union(*masks)
        total = masks[0].at(lanes)
        for mask in masks[1:]:
            total = infix("bitand", total, mask.at(lanes))
        return LaneCode(total, lanes)

    def _filled(self, pointer: LaneCode, lanes: tuple[str, ...]) -> LaneCode:
        """A pointer with all the lanes of its load or store."""
        if set(pointer.lanes) >= set(lanes):
            return pointer
        zeros = call("tl.zeros", self.lanes.shape(lanes), "tl.int32")
        return LaneCode(infix("add", pointer.at(lanes), zeros), lanes)

    def _filled_mask(self, mask: LaneCode, lanes: tuple[str, ...], *, plain: bool) -> Code:
        """The mask of a load or store; `plain` if it says only which lanes are inside.

        For a block it is a block itself, and of bool: in the interpreter a scalar condition makes
        int32 of a block's, which it then refuses.
        """
        if plain or not lanes:
            return mask.at(lanes)
        code = mask.at(lanes)
        if not mask.lanes:
            code = infix("bitand", code, call("tl.full", self.lanes.shape(lanes), "1", "tl.int1"))
        return infix("ne", code, number(0))

    def _pointer(
        self, tensor: str, values: tuple[Value, ...], items: list[LaneCode], body: _Body
    ) -> LaneCode:
        declared = self.plan.group.tensors[tensor]
        code, strides = Code(f"{tensor}_ptr"), f"{tensor}_stride_"
        if declared.length is not None:
            code, strides = self._chosen(declared, items[0], body)
            values, items = values[1:], items[1:]
        lanes = self.lanes.union(*items)
        for dim, (value, item) in enumerate(zip(values, items, strict=True)):
            if _is_zero(value):
                continue
            offset = item.at(lanes)
            if _strided(declared, dim):
                offset = infix("mul", offset, Code(f"{strides}{dim}"))
            code = infix("add", code, offset)
        return LaneCode(code, lanes)

    def _chosen(self, tensor: Tensor, item: LaneCode, body: _Body) -> tuple[Code, str]:
        """The pointer to one tensor of a list and the prefix of its strides' names."""
        while body.parent is not None:
            body = body.parent
        prefix_ = self.names.fixed(("list", f"{tensor.name} {item.code}"), f"{tensor.name}_chosen")
        pointer = f"{prefix_}_ptr"
        if pointer not in self.chosen:
            self.chosen.add(pointer)
            limit = list_limit(self.plan.group, tensor)
            self.helpers.add(f"pick_{limit}")
            names = [("", "_address")]
            names += [(f"stride_{d}_", f"_stride_{d}") for d in _indexed(self.plan, tensor)]
            for inner, outer in names:
                each = [f"{tensor.name}_{inner}{at}" for at in range(limit)]
                body.lines.append(f"{prefix_}{outer} = {call(f'pick_{limit}', item.code, *each)}")
            kind = f"tl.pointer_type({TL_TYPES[tensor.dtype]})"
            body.lines.append(f"{pointer} = {prefix_}_address.to({kind})")
        return Code(pointer), f"{prefix_}_stride_"

    # Values.

    def code(self, value: Value, body: _Body, guard: LaneCode | None) -> LaneCode:
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
        return LaneCode(Code(name), () if axis.kind == "row" else (name,))

    def _let(self, name: str, body: _Body, guard: LaneCode | None) -> LaneCode:
        let = self.plan.lets[name]
        home = self._home(let.value, body)
        key = (Ref(name, let.value.dtype, let.value.axes), guard.code.text if guard else "")
        if key in home.known:
            return home.known[key]
        value = self._typed(let.value, home, guard, hint=name)
        target = name if guard is None else self.names.fresh(name)
        if value.code.text != target:
            home.lines += [f"# {name}: {let.text}", f"{target} = {value.code}"]
        home.known[key] = LaneCode(Code(target), value.lanes)
        return home.known[key]

    def _typed(self, value: Value, body: _Body, guard: LaneCode | None, hint: str = "") -> LaneCode:
        """A value that has its type even where its text is a bare literal or an index."""
        if isinstance(value, Const):
            return self._constant(number(value.value), value.dtype)
        if value.dtype in LITERALS:
            return self._constant(self.code(value, body, guard).code, value.dtype)
        if isinstance(value, Index) and self.role.axes[value.name].kind != "row":
            return LaneCode(method(Code(value.name), "to", "tl.int64"), (value.name,))
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

    def _named(self, value: Value, hint: str, body: _Body, guard: LaneCode | None) -> LaneCode:
        """A variable that holds `value`, emitted once in the outermost body that can hold it."""
        home = self._home(value, body)
        if guard is not None and not self._needs_guard(value):
            guard = None
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

    def _home(self, value: Value, body: _Body) -> _Body:
        needed = {i for i in value.axes if self.role.axes[i].kind == "loop"}
        while body.parent is not None and needed <= set(body.parent.loops):
            if body.branch and self._reads_optional(value):
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

    def _load(self, load: Load, body: _Body, guard: LaneCode | None) -> LaneCode:
        if load.safe:
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
            plain = guard is None
            args += [f"mask={self._filled_mask(mask, lanes, plain=plain)}", f"other={other}"]
        return LaneCode(Code(f"tl.load({', '.join(args)})"), lanes)

    def _select(
        self,
        cond: Value,
        then: Value,
        other: Value,
        body: _Body,
        guard: LaneCode | None,
    ) -> LaneCode:
        loads = self._needs_guard(then) or self._needs_guard(other)
        if _compile_time(cond):
            return self._choose(cond, then, other, body, guard)
        test = self._named(cond, "cond", body, guard) if loads else self.code(cond, body, guard)
        inner = outer = guard
        if loads:
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
        self, cond: Value, then: Value, other: Value, body: _Body, guard: LaneCode | None
    ) -> LaneCode:
        """A choice at compile time: only the branch taken is in the compiled kernel."""
        key = (Select(cond, then, other, then.dtype, then.axes), guard.code.text if guard else "")
        if key in body.known:
            return body.known[key]
        name = self.names.fresh("chosen")
        lines: list[str] = []
        lanes: tuple[str, ...] = ()
        for head, arm in ((f"if {_plain(cond)}:", then), ("else:", other)):
            inner = _Body(body, body.loops, branch=True)
            code = self._typed(arm, inner, guard)
            lanes = self.lanes.union(LaneCode(code.code, lanes), code)
            lines += [head, *(f"    {line}" for line in (*inner.lines, f"{name} = {code.code}"))]
        body.lines += lines
        body.known[key] = LaneCode(Code(name), lanes)
        return body.known[key]

    def _and(self, guard: LaneCode | None, more: LaneCode) -> LaneCode:
        if guard is None:
            return more
        lanes = self.lanes.union(guard, more)
        return LaneCode(infix("bitand", guard.at(lanes), more.at(lanes)), lanes)

    def _operate(
        self, op: str, args: tuple[Value, ...], body: _Body, guard: LaneCode | None
    ) -> LaneCode:
        static = all(_compile_time(arg) for arg in args)
        if static and op not in ("and", "or", "not"):
            return LaneCode(_plain(Op(op, args, "i64", frozenset())), ())
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
            narrow = dtype if op not in _COMPARISONS else "f32"
            return LaneCode(self._convert(code, "f32", narrow), lanes)
        match op:
            case "min" | "max":
                return LaneCode(call(f"tl.{op}imum", *given), lanes)
            case "abs":
                return LaneCode(call("tl.abs", *given), lanes)
            case "neg":
                return LaneCode(prefix("-", given[0]), lanes)
            case "not":
                return LaneCode(infix("eq", given[0], number(0)), lanes)
            case "and" | "or":
                return LaneCode(infix(f"bit{op}", *given), lanes)
            case "floordiv" | "mod":
                helper = "floor_div" if op == "floordiv" else "floor_mod"
                self.helpers.add(helper)
                return LaneCode(call(helper, *given), lanes)
            case "truncdiv" | "truncmod":
                return LaneCode(infix("floordiv" if op == "truncdiv" else "mod", *given), lanes)
            case _:
                return LaneCode(infix(op, *given), lanes)

    def _operate_floats(self, op: str, given: list[Code]) -> Code:
        """An operator on f32, rounded as IEEE says; Triton's own `/`, sqrt and minus are not."""
        match op:
            case "truediv":
                return call("tl.math.div_rn", *given)
            case "sqrt":
                return call("tl.sqrt_rn", *given)
            case "rsqrt" | "abs":
                return call(f"tl.{op}", *given)
            case "neg":
                return infix("mul", given[0], number(-1.0))
            case "min" | "max" | "exp":
                helper = {"min": "smaller", "max": "larger"}.get(op, op)
                self.helpers.add(helper)
                return call(helper, *given)
            case _:
                return infix(op, *given)

    def _operand(
        self, arg: Value, args: tuple[Value, ...], body: _Body, guard: LaneCode | None
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

    def _reduce(self, value: Reduce, body: _Body, guard: LaneCode | None, hint: str) -> LaneCode:
        index, kind = value.index, value.kind
        axis = self.role.axes[index]
        neutral = _neutral(kind, value.arg.dtype)
        if axis.kind == "loop":
            name = self.names.fresh(hint)
            inner = _Body(body, (*body.loops, index))
            head = self._loop_head(index, inner)
            each, lanes = self._masked(value, inner, guard, neutral)
            shape = self.lanes.shape(lanes)
            dtype = "tl.int32" if kind in ("any", "all") else TL_TYPES[value.dtype]
            body.lines.append(f"{name} = {call('tl.full', shape, neutral, dtype)}")
            inner.lines.append(f"{name} = {_combine(kind, Code(name), each)}")
            body.lines += [head, *(f"    {line}" for line in inner.lines)]
            each = Code(name)
        else:
            each, lanes = self._masked(value, body, guard, neutral)
        at = lanes.index(index)
        left = tuple(lane for lane in lanes if lane != index)
        if kind == "sum" and value.dtype == "f32":
            return LaneCode(self._tree_sum(each, lanes, index), left)
        reduced = call(f"tl.{_reducer(kind)}", each, f"axis={at}")
        if kind in ("any", "all"):
            name = self.names.fresh(f"{hint}_bit")
            body.lines.append(f"{name} = {reduced}")
            return LaneCode(infix("ne", Code(name), number(0)), left)
        if kind == "first" and value.none is not None:
            name = self.names.fresh(f"{hint}_at")
            body.lines.append(f"{name} = {reduced}")
            none = self.code(value.none, body, guard)
            lanes = self.lanes.union(LaneCode(Code(name), left), none)
            found = LaneCode(Code(name), left).at(lanes)
            missing = infix("eq", found, neutral)
            return LaneCode(call("tl.where", missing, none.at(lanes), found), lanes)
        return LaneCode(reduced, left)

    def _tree_sum(self, each: Code, lanes: tuple[str, ...], index: str) -> Code:
        """The float sum of one order: the axis last, the others as rows."""
        block, left = self.lanes.blocks[index], [lane for lane in lanes if lane != index]
        if not left:
            self.helpers.add("tree_sum")
            return call("tree_sum", each, block)
        self.helpers.add("tree_sum_rows")
        if lanes[-1] != index:
            order = [lanes.index(lane) for lane in (*left, index)]
            each = call("tl.permute", each, f"({', '.join(map(str, order))})")
        rows = " * ".join(self.lanes.blocks[lane] for lane in left)
        if len(left) == 1:
            return call("tree_sum_rows", each, rows, block)
        flat = call("tl.reshape", each, f"({rows}, {block})")
        summed = call("tree_sum_rows", flat, rows, block)
        return call("tl.reshape", summed, self.lanes.shape(tuple(left)))

    def _masked(
        self, value: Reduce, body: _Body, guard: LaneCode | None, neutral: Code
    ) -> tuple[Code, tuple[str, ...]]:
        """What a reduction combines, neutral where the index is past its end; and its lanes."""
        arg = self._typed(value.arg, body, guard)
        inside = self._axis_mask(value.index)
        lanes = self.lanes.union(arg, inside)
        taken, code = inside.at(lanes), arg.at(lanes)
        if value.kind == "first":
            wide = LaneCode(method(Code(value.index), "to", "tl.int64"), (value.index,))
            taken, code = infix("bitand", taken, code), wide.at(lanes)
        elif value.kind in ("any", "all"):
            code = method(code, "to", "tl.int32")
        return call("tl.where", taken, code, neutral), lanes

    def _scan(self, value: Scan, body: _Body, guard: LaneCode | None, hint: str) -> LaneCode:
        arg = self._typed(value.arg, body, guard)
        inside = self._axis_mask(value.index)
        lanes = self.lanes.union(arg, inside)
        neutral = number(0 if value.kind == "cumsum" else 1)
        at = lanes.index(value.index)
        code = call("tl.where", inside.at(lanes), arg.at(lanes), neutral)
        scanned = call(f"tl.{value.kind}", code, f"axis={at}")
        if self.role.axes[value.index].kind != "loop":
            return LaneCode(scanned, lanes)
        # The running total enters each turn of the loop and leaves it with the turn's own added.
        assert body.parent is not None
        left = tuple(lane for lane in lanes if lane != value.index)
        total = self.names.fresh(f"{hint}_total")
        full = call("tl.full", self.lanes.shape(left), neutral, "tl.int64")
        body.parent.lines.append(f"{total} = {full}")
        op = "add" if value.kind == "cumsum" else "mul"
        part = self.names.fresh(f"{hint}_part")
        body.lines.append(f"{part} = {infix(op, LaneCode(Code(total), left).at(lanes), scanned)}")
        if value.kind == "cumsum":
            turn = call("tl.sum", code, f"axis={at}")
        else:
            turn = call("tl.reduce", code, str(at), "multiply")
            self.helpers.add("multiply")
        body.lines.append(f"{total} = {infix(op, Code(total), turn)}")
        return LaneCode(Code(part), lanes)


def _hint(value: Load | Reduce | Scan) -> str:
    match value:
        case Load(tensor):
            return f"{tensor}_value"
        case Reduce(kind, index) | Scan(kind, index):
            return f"{kind}_{index}"


_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


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


def _neutral(kind: str, dtype: DType) -> Code:
    if dtype == "f32":
        return number(0.0)
    low, high = LIMITS[dtype]
    values = {"sum": 0, "any": 0, "all": 1, "min": high, "max": low, "first": LIMITS["i64"][1]}
    return number(values[kind])


def _combine(kind: str, total: Code, each: Code) -> Code:
    match kind:
        case "sum":
            return infix("add", total, each)
        case "min" | "all" | "first":
            return call("tl.minimum", total, each)
    return call("tl.maximum", total, each)


def _reducer(kind: str) -> str:
    return {"sum": "sum", "any": "max", "max": "max"}.get(kind, "min")
