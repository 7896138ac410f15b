"""The typed tree and the typed group: what every later phase reads.

A value knows its element type and its axes: the indices that it varies with. Trees are finite and
shared through `Ref`, a use of a let, whose own tree stands in `Group.lets`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from kgen.diagnostics import Span
from kgen.lang.dtypes import DType

Axes: TypeAlias = frozenset[str]
NO_AXES: Axes = frozenset()
NOWHERE = Span("", 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Const:
    """A number; of type `int` or `float` until an operand or a cast gives it another."""

    value: float
    dtype: DType
    axes: Axes = NO_AXES
    sign: str = field(init=False, repr=False)  # 0.0 == -0.0, but they are two numbers

    def __post_init__(self) -> None:
        object.__setattr__(self, "sign", sign_of(self.value))


def sign_of(value: float) -> str:
    """`-` for -0.0, and nothing for any other number."""
    return "-" if value == 0 and math.copysign(1, value) < 0 else ""


@dataclass(frozen=True, slots=True)
class Param:
    """A size or a scalar; `static` ones are compile-time numbers of type `int`."""

    name: str
    dtype: DType
    axes: Axes = NO_AXES


@dataclass(frozen=True, slots=True)
class Given:
    """Whether the caller gives an optional tensor; known at compile time."""

    tensor: str
    dtype: DType = "bool"
    axes: Axes = NO_AXES


@dataclass(frozen=True, slots=True)
class Index:
    """The value of an index, from 0 to its extent less one."""

    name: str
    axes: Axes
    dtype: DType = "i64"


@dataclass(frozen=True, slots=True)
class Ref:
    """A use of a let or a mask."""

    name: str
    dtype: DType
    axes: Axes


@dataclass(frozen=True, slots=True)
class Load:
    """An element of a tensor, as it was before the group."""

    tensor: str
    items: tuple[Value, ...]
    dtype: DType
    axes: Axes
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Op:
    """An operator on operands of one type (a compile-time number counts as any).

    `wraps`: it is meant to wrap around past the type's ends.
    """

    op: str
    args: tuple[Value, ...]
    dtype: DType
    axes: Axes
    wraps: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    divisor_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """torch's conversion to another element type. `wraps`: it is meant to drop high bits."""

    arg: Value
    dtype: DType
    axes: Axes
    wraps: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Select:
    """`then if cond else other`; loads in a branch happen only where it is taken."""

    cond: Value
    then: Value
    other: Value
    dtype: DType
    axes: Axes


@dataclass(frozen=True, slots=True)
class Reduce:
    """`sum`, `count`, `min`, `max`, `any`, `all` or `first` over an index, which it binds.

    Over nothing a sum and a count are 0, `any` is false, `all` true, `min` the type's largest value,
    `max` its smallest, and `first` is `none`. `before`: the index of a `prefix` that this was.
    """

    kind: str
    index: str
    arg: Value
    none: Value | None
    dtype: DType
    axes: Axes
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    before: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Scan:
    """`cumsum` or `cumprod`, inclusive, along an index, which stays free."""

    kind: str
    index: str
    arg: Value
    dtype: DType
    axes: Axes
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Value: TypeAlias = Const | Param | Given | Index | Ref | Load | Op | Cast | Select | Reduce | Scan


@dataclass(frozen=True, slots=True)
class Size:
    """A size: run-time, static, or derived from others (`derived`)."""

    name: str
    static: bool
    low: Value | None
    high: Value | None
    derived: Value | None
    text: str
    span: Span
    range_span: Span | None = None


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number of the caller; a static one has type `int`."""

    name: str
    dtype: DType
    low: Value | None
    high: Value | None
    default: Value | None
    text: str
    doc: str
    span: Span
    range_span: Span | None = None
    default_span: Span | None = None

    @property
    def static(self) -> bool:
        """Whether it is a compile-time number."""
        return self.dtype == "int"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the caller, or a list of `length` tensors, which is indexed first.

    `low` and `high` are promised; `expected` is only looked at in debug mode. `distinct`: no value
    twice, but for `repeats` if that is given. `dims` are those of one tensor.
    """

    name: str
    dtype: DType
    dims: tuple[Value, ...]
    mode: Literal["in", "out", "inout"]
    low: Value | None
    high: Value | None
    expected: tuple[Value | None, Value | None]
    distinct: bool
    repeats: Value | None
    layout: Literal["contiguous", "rows", "any"]
    length: Value | None
    optional: bool
    type_text: str
    values_text: str
    expected_text: str
    doc: str
    span: Span
    range_span: Span | None = None

    @property
    def text(self) -> str:
        """The declared type, for a person."""
        return f"list of {self.type_text}" if self.length is not None else self.type_text

    @property
    def shape(self) -> tuple[Value, ...]:
        """Its dimensions, of a list its length first."""
        return self.dims if self.length is None else (self.length, *self.dims)

    @property
    def written(self) -> bool:
        """Whether the group may store to it."""
        return self.mode != "in"


@dataclass(frozen=True, slots=True)
class Let:
    """A named value, its text in the spec and its place there."""

    name: str
    value: Value
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Store:
    """`tensor[items] = value` at every point of `axes` where `when` holds.

    `decided`: indices whose colliding points `when` has sorted out. `trusted`: why the rest is apart.
    """

    tensor: str
    items: tuple[Value, ...]
    value: Value
    when: Value | None
    axes: Axes
    decided: Axes
    trusted: str
    target_text: str
    value_text: str
    span: Span
    value_span: Span

    @property
    def place(self) -> Load:
        """Where it stores, as a load of the value's type."""
        return Load(self.tensor, self.items, self.value.dtype, self.axes)

    @property
    def values(self) -> tuple[Value, ...]:
        """The values that it is made of: its place, what is stored, its condition."""
        return (*self.items, self.value, *((self.when,) if self.when is not None else ()))

    def changed(self, change: Callable[[Value], Value]) -> Store:
        """The same store, each of its values changed."""
        items, value = tuple(map(change, self.items)), change(self.value)
        when = change(self.when) if self.when is not None else None
        return replace(self, items=items, value=value, when=when)


@dataclass(frozen=True, slots=True)
class Trusted:
    """What the spec asks kgen to believe: that a load or place is in bounds, or a number fits.

    `value` is the load, the place as a load, or the arithmetic; `reason` says why it is right.
    """

    value: Value
    reason: str
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Chain:
    """A function of eager.py, and the optional tensors that it is not given."""

    name: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """What the spec says of how a group runs. `spans`: where it names an index, `tile.c` or `program.r`."""

    program: tuple[str, ...] | None = None
    tile: dict[str, int] = field(default_factory=dict)
    warps: int | None = None
    spans: dict[str, Span] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """One checked group. `extents` maps each index, in order, to how many values it takes.

    `eager` are the functions of eager.py that it replaces, one after the other.
    `twins` maps each index that kgen made itself to the one that it runs beside.
    """

    name: str
    summary: str
    eager: tuple[Chain, ...]
    eager_ulps: int
    when: Value | None
    when_text: str
    sizes: dict[str, Size]
    scalars: dict[str, Scalar]
    tensors: dict[str, Tensor]
    extents: dict[str, Value]
    extent_texts: dict[str, str]
    extent_spans: dict[str, Span]
    lets: dict[str, Let]
    stores: tuple[Store, ...]
    trusted: tuple[Trusted, ...]
    twins: dict[str, str]
    schedule: Schedule
    file: str
    sha256: str
    span: Span

    @property
    def static_names(self) -> tuple[str, ...]:
        """The compile-time sizes and scalars, in order of declaration."""
        sizes = tuple(size.name for size in self.sizes.values() if size.static)
        return sizes + tuple(scalar.name for scalar in self.scalars.values() if scalar.static)

    @property
    def values(self) -> list[Value]:
        """The values of all lets and stores."""
        found = [let.value for let in self.lets.values()]
        return found + [value for store in self.stores for value in store.values]

    def static_extent(self, index: str) -> bool:
        """Whether the number of values of an index is known at compile time."""
        return self.extents[index].dtype == "int"


def children(value: Value) -> tuple[Value, ...]:
    """The values that a value is made of, a let's own tree not among them."""
    return _CHILDREN[type(value)](value)


# A table, since trees are walked all the time.
_CHILDREN: dict[type, Callable[[Any], tuple[Value, ...]]] = {
    **dict.fromkeys((Const, Param, Given, Index, Ref), lambda _: ()),
    Load: lambda value: value.items,
    Op: lambda value: value.args,
    Cast: lambda value: (value.arg,),
    Select: lambda value: (value.cond, value.then, value.other),
    Reduce: lambda value: (value.arg,) if value.none is None else (value.arg, value.none),
    Scan: lambda value: (value.arg,),
}


def index_of(name: str) -> Index:
    """The value of an index."""
    return Index(name, frozenset((name,)))


def axes_of(*values: Value) -> Axes:
    """The indices that some values vary with."""
    return NO_AXES.union(*(value.axes for value in values))


def truth(op: str, *args: Value) -> Op:
    """A comparison, or conditions joined: a truth value."""
    return Op(op, args, "bool", axes_of(*args))


def rebuilt(value: Value, parts: tuple[Value, ...]) -> Value:
    """`value` made of other parts in the order of `children`; its indices follow from them."""
    axes = axes_of(*parts)
    match value:
        case Const() | Param() | Given() | Index() | Ref():
            return value
        case Load():
            return replace(value, items=parts, axes=axes)
        case Op():
            return replace(value, args=parts, axes=axes)
        case Cast():
            return replace(value, arg=parts[0], axes=axes)
        case Select():
            cond, then, other = parts
            return replace(value, cond=cond, then=then, other=other, axes=axes)
        case Reduce(_, index):
            none = parts[1] if len(parts) > 1 else None
            free = (parts[0].axes - {index}) | axes_of(*parts[1:])
            return replace(value, arg=parts[0], none=none, axes=free)
        case Scan(_, index):
            return replace(value, arg=parts[0], axes=axes | {index})


def walk(value: Value, lets: dict[str, Let]) -> Iterator[Value]:
    """`value` and everything that it is made of, through lets, each let once."""
    seen: set[str] = set()
    todo = [value]
    while todo:
        each = todo.pop()
        yield each
        if isinstance(each, Ref) and each.name in lets and each.name not in seen:
            seen.add(each.name)
            todo.append(lets[each.name].value)
        todo.extend(children(each))


def walk_bound(roots: Iterable[Value], lets: dict[str, Let]) -> Iterator[tuple[Value, Axes]]:
    """All that some values are made of, through lets, with the indices of the reductions around it."""
    seen: set[tuple[str, Axes]] = set()
    todo = [(root, NO_AXES) for root in roots]
    while todo:
        value, bound = todo.pop()
        yield value, bound
        match value:
            case Ref(name):
                if (name, bound) not in seen:
                    seen.add((name, bound))
                    todo.append((lets[name].value, bound))
            case Reduce(_, index, arg, none):
                todo.append((arg, bound | {index}))
                todo += [(none, bound)] if none is not None else []
            case _:
                todo += [(child, bound) for child in children(value)]


def is_host(value: Value) -> bool:
    """Whether a value is known before the launch: it has sizes, scalars and numbers only."""
    return all(
        isinstance(each, Const | Param | Given | Op | Cast | Select) for each in walk(value, {})
    )
