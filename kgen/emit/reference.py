"""The torch reference of a group.

In: a typed group. Out: the text of one function that computes the group in torch, vectorized, on any
device: the second reading of the spec. It knows nothing of plans or of proved facts; every gather and
store checks its bounds, so that a reference which disagrees with the spec's ranges fails loudly.

Every value is a tensor with one dimension for each index of the group, of size 1 where the value does
not vary with it; torch's broadcasting does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kgen.emit.layout import wrap
from kgen.emit.names import Names
from kgen.lang.code import COMPARE, Code, call, infix, method, number, prefix, ternary
from kgen.lang.dtypes import FLOATS, LITERALS, DType
from kgen.lang.operators import OPERATORS
from kgen.lang.typed import (
    Axes,
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

TORCH_TYPES: dict[DType, str] = {
    "bool": "torch.bool",
    "u8": "torch.uint8",
    "i32": "torch.int32",
    "i64": "torch.int64",
    "f16": "torch.float16",
    "bf16": "torch.bfloat16",
    "f32": "torch.float32",
    "int": "torch.int64",
    "float": "torch.float32",
}


@dataclass(frozen=True, slots=True)
class Reference:
    """The text of a reference function, and the sizes that it takes beside the group's arguments."""

    text: str
    sizes: tuple[str, ...]


def emit(group: Group) -> Reference:
    """The reference function of a group: tensors, scalars and sizes by keyword, outputs in place."""
    return _Reference(group).emit()


@dataclass(slots=True)
class _Reference:
    group: Group
    lines: list[str] = field(default_factory=list)
    names: Names = field(init=False)
    known: dict[tuple[str, str], Code] = field(default_factory=dict)
    parts: dict[str, tuple[tuple[Code, Axes], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        group = self.group
        taken = {*group.sizes, *group.scalars, *group.tensors, *group.extents, *group.lets}
        self.names = Names({"torch", "device", "index_shape"} | taken)

    def emit(self) -> Reference:
        group = self.group
        sizes = self._sizes()
        args = [f"{name}: {python_type(tensor)}" for name, tensor in group.tensors.items()]
        args += [f"{name}: {_number_type(s.dtype)}" for name, s in group.scalars.items()]
        args += [f"{name}: int" for name in sizes]
        head = [f"def {group.name}(", "    *,"] + [f"    {arg}," for arg in args] + [") -> None:"]
        head.append(f'    """{group.summary}"""')
        body = self.lines
        if group.when is not None:
            body += [
                f"# when: {group.when_text}",
                f"if {prefix('not', self._host(group.when))}:",
                "    return",
            ]
        first = next(t for t in group.tensors.values() if not t.optional)
        body.append(f"device = {first.name}{'[0]' if first.length is not None else ''}.device")
        for scalar in group.scalars.values():
            if not scalar.static and self._used(scalar.name):
                body.append(f"{scalar.name}_ = {self._number(scalar.name, scalar.dtype)}")
        for size in group.sizes.values():
            if not size.static and self._used(size.name):
                body.append(f"{size.name}_ = {self._number(size.name, 'i64')}")
        for at, (index, extent) in enumerate(group.extents.items()):
            shape = ", ".join("-1" if i == at else "1" for i in range(len(group.extents)))
            if len(group.extents) > 1:
                body.append(
                    f"{index} = torch.arange({self._host(extent)}, device=device).view({shape})"
                )
            else:
                body.append(f"{index} = torch.arange({self._host(extent)}, device=device)")
        writes = [self._store(store) for store in group.stores]
        body += ["# Every load came before; now the stores.", *writes]
        text = "\n".join([*head, *(f"    {line}" for line in body)]) + "\n"
        return Reference(wrap(text), sizes)

    def _roots(self) -> list[Value]:
        roots = [let.value for let in self.group.lets.values()]
        for store in self.group.stores:
            roots += [*store.items, store.value, *([store.when] if store.when is not None else [])]
        return roots

    def _sizes(self) -> tuple[str, ...]:
        roots = [*self._roots(), *self.group.extents.values()]
        roots += [self.group.when] if self.group.when is not None else []
        used = {v.name for root in roots for v in walk(root, {}) if isinstance(v, Param)}
        return tuple(name for name in self.group.sizes if name in used)

    def _used(self, name: str) -> bool:
        """Whether a size or scalar is used as a number in some value."""
        roots = self._roots()
        return any(
            isinstance(v, Param) and v.name == name for root in roots for v in walk(root, {})
        )

    def _number(self, name: str, dtype: DType) -> Code:
        shape = "1, " * len(self.group.extents)
        shape = f"({shape.rstrip()})" if len(self.group.extents) == 1 else f"({shape[:-2]})"
        if not self.group.extents:
            shape = "()"
        return call("torch.full", shape, name, f"dtype={TORCH_TYPES[dtype]}", "device=device")

    def _dim(self, index: str) -> int:
        return list(self.group.extents).index(index)

    def _host(self, value: Value) -> Code:
        """A size expression on Python's numbers."""
        match value:
            case Const(literal):
                return number(literal)
            case Param(name):
                return Code(name)
            case Given(tensor):
                return Code(f"{tensor} is not None", COMPARE)
            case Cast(arg):
                return self._host(arg)
            case Select(cond, then, other):
                return ternary(self._host(cond), self._host(then), self._host(other))
            case Op(op, args):
                return OPERATORS[op].spec(*(self._host(arg) for arg in args))
        raise AssertionError(f"{value} is not a size expression")

    def _store(self, store: Store) -> str:
        comment = f"{store.target_text}: {store.value_text}"
        mask = None
        if store.when is not None:
            mask = self._held(self._tensor(store.when, None), f"{store.tensor}_when")
            self.parts[mask.text] = self._pieces(store.when, None)
        value = self.code(store.value, mask)
        if _compile_time(store.value):
            value = call(
                "_full", value, TORCH_TYPES[self.group.tensors[store.tensor].dtype], "device"
            )
        name = self.names.fresh(f"{store.tensor}_new")
        self.lines.append(f"# {comment}")
        self.lines.append(f"{name} = {value}")
        items = []
        for item in store.items:
            code = self.code(item, mask)
            if not isinstance(item, Index | Ref | Const):
                at = self.names.fresh(f"{store.tensor}_at")
                self.lines.append(f"{at} = {code}")
                code = Code(at)
            items.append(code)
        places = ", ".join(str(item) for item in items) + ("," if len(items) == 1 else "")
        args = [store.tensor, f"({places})", name]
        if mask is not None:
            args.append(f"where={mask}")
        return f"_store({', '.join(args)})"

    def code(self, value: Value, guard: Code | None) -> Code:
        """The text of a value; lets, loads and reductions become variables first."""
        match value:
            case Const(literal):
                return number(literal)
            case Param(name, dtype):
                return Code(name if dtype in LITERALS else f"{name}_")
            case Given():
                return self._host(value)
            case Index(name):
                return Code(name)
            case Ref(name):
                return self._let(name, guard)
            case Load(tensor, items):
                args = [tensor, *(str(self.code(item, guard)) for item in items)]
                if guard is not None:
                    args.append(f"where={guard}")
                load = call("_load", *args)
                optional = self._reads_optional(value)
                return load if optional else self._held(load, f"{tensor}_value")
            case Cast(arg, dtype):
                inner = self.code(arg, guard)
                if _compile_time(arg):
                    return call("_full", inner, TORCH_TYPES[dtype], "device")
                return method(inner, "to", TORCH_TYPES[dtype])
            case Select(cond, then, other):
                return self._select(cond, then, other, guard)
            case Reduce(kind, index):
                return self._held(self._reduce(value, guard), f"{kind}_{index}")
            case Scan(kind, index, arg):
                along = self._along(arg, index, self._outside(guard, index))
                dim = self._dim(index)
                return call(f"torch.{kind}", along, f"dim={dim}")
            case Op(op, args):
                return self._operate(op, args, guard)

    def _let(self, name: str, guard: Code | None) -> Code:
        """A let's variable; one of its own under a guard, if loads depend on it."""
        value = self.group.lets[name].value
        if self._reads_optional(value):  # only where it is asked for
            return self._tensor(value, guard)
        if not any(isinstance(each, Load) for each in walk(value, self.group.lets)):
            guard = None
        key = (name, guard.text if guard else "")
        if key not in self.known:
            code = self._tensor(value, guard)
            target = name if guard is None else self.names.fresh(name)
            self.lines.append(f"{target} = {code}")
            self.known[key] = Code(target)
        return self.known[key]

    def _reads_optional(self, value: Value) -> bool:
        tensors = self.group.tensors
        reads = walk(value, self.group.lets)
        return any(isinstance(each, Load) and tensors[each.tensor].optional for each in reads)

    def _held(self, code: Code, hint: str) -> Code:
        """A variable that holds the value of some text."""
        key = (code.text, "")
        if key not in self.known:
            name = self.names.fresh(hint)
            self.lines.append(f"{name} = {code}")
            self.known[key] = Code(name)
        return self.known[key]

    def _variable(self, value: Value, hint: str, guard: Code | None) -> Code:
        return self._held(self.code(value, guard), hint)

    def _tensor(self, value: Value, guard: Code | None) -> Code:
        code = self.code(value, guard)
        return (
            call("_full", code, TORCH_TYPES[value.dtype], "device")
            if _compile_time(value)
            else code
        )

    def _extent(self, index: str) -> Code:
        return self._host(self.group.extents[index])

    def _select(self, cond: Value, then: Value, other: Value, guard: Code | None) -> Code:
        if _compile_time(cond) and (self._reads_optional(then) or self._reads_optional(other)):
            arms = (self._tensor(then, guard), self._tensor(other, guard))
            return self._held(ternary(self._host(cond), *arms), "chosen")
        test = self._held(self._tensor(cond, guard), "cond")
        missed = prefix("~", test)
        self.parts[test.text] = self._pieces(cond, guard)
        self.parts[missed.text] = ((missed, cond.axes),)
        taken, passed = self._and(guard, test), self._and(guard, missed)
        return call("torch.where", test, self._tensor(then, taken), self._tensor(other, passed))

    def _pieces(self, cond: Value, guard: Code | None) -> tuple[tuple[Code, Axes], ...]:
        """The conditions that `and` joins, and what each varies with."""
        if isinstance(cond, Op) and cond.op == "and":
            return tuple(piece for arg in cond.args for piece in self._pieces(arg, guard))
        return ((self._tensor(cond, guard), cond.axes),)

    def _and(self, guard: Code | None, more: Code) -> Code:
        if guard is None:
            return more
        both = infix("&", guard, more)
        self.parts[both.text] = (*self.parts[guard.text], *self.parts[more.text])
        return both

    def _outside(self, guard: Code | None, index: str) -> Code | None:
        """What of a guard holds for all values of an index: the index is bound within it."""
        if guard is None or not any(index in axes for _, axes in self.parts[guard.text]):
            return guard
        left: Code | None = None
        for part, axes in self.parts[guard.text]:
            if index not in axes:
                self.parts.setdefault(part.text, ((part, axes),))
                left = self._and(left, part)
        return left

    def _along(self, value: Value, index: str, guard: Code | None) -> Code:
        rank = str(len(self.group.extents))
        dim, extent = str(self._dim(index)), self._extent(index)
        each = self._held(self._tensor(value, guard), f"each_{index}")
        return call("_along", each, dim, extent, rank)

    def _operate(self, op: str, args: tuple[Value, ...], guard: Code | None) -> Code:
        codes = [self.code(arg, guard) for arg in args]
        if all(_compile_time(arg) for arg in args):
            return OPERATORS[op].spec(*codes)
        row = OPERATORS[op]
        floats = any(arg.dtype in FLOATS for arg in args)
        return (row.torch_floats if floats else row.torch)(*codes)

    def _reduce(self, value: Reduce, guard: Code | None) -> Code:
        dim = self._dim(value.index)
        arg = self._along(value.arg, value.index, self._outside(guard, value.index))
        match value.kind:
            case "sum" if value.dtype == "f32":
                return call("_tree_sum", arg, f"dim={dim}")
            case "sum" | "any" | "all":
                return method(arg, value.kind, f"dim={dim}", "keepdim=True")
            case "min" | "max":
                return call(f"_{value.kind}", arg, f"dim={dim}")
        assert value.none is not None
        return call("_first", arg, self.code(value.none, guard), f"dim={dim}")


def python_type(tensor: Tensor) -> str:
    """The annotation of a tensor parameter."""
    kind = "list[Tensor]" if tensor.length is not None else "Tensor"
    return f"{kind} | None" if tensor.optional else kind


def _number_type(dtype: DType) -> str:
    return "float" if dtype == "f32" else "int"


def _compile_time(value: Value) -> bool:
    if isinstance(value, Const | Given) or value.dtype in LITERALS:
        return True
    return isinstance(value, Op) and all(_compile_time(arg) for arg in value.args)
