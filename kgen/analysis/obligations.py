"""What has to be shown of a group before it may run: each index in bounds, each number in its type.

In: a typed group. Out: `Obligation` values, in the order in which a reader meets them. Each is to hold at
every legal call, at every point of the indices, where its guards hold. Nothing is proved here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from kgen.diagnostics import Span
from kgen.lang.dtypes import LIMITS
from kgen.lang.typed import (
    NO_AXES,
    NOWHERE,
    Axes,
    Cast,
    Group,
    Index,
    Load,
    Op,
    Reduce,
    Ref,
    Scan,
    Select,
    Value,
    children,
)

# A condition, and whether it holds.
Guard = tuple[Value, bool]
Kind = Literal["load", "store", "number", "extent"]

_ARITHMETIC = ("add", "sub", "mul", "neg", "abs", "floordiv")


@dataclass(frozen=True, slots=True)
class Obligation:
    """One thing to be shown.

    `load`, `store`: the items of `value`, a load or a place as one, are in bounds. `number`: the result
    of `value` is in its type's range without being cut. `extent`: `value` is not negative.

    `axes` are the indices at whose points it is to hold. `whole` says that `guards` are all that guard it:
    a guard is left out where an inner reduction reuses the name of its index.
    """

    kind: Kind
    value: Value
    guards: tuple[Guard, ...]
    axes: Axes
    whole: bool
    span: Span


def obligations(group: Group) -> tuple[Obligation, ...]:
    """Everything that has to be shown of a group, each thing once."""
    return tuple(dict.fromkeys(_Walk(group).all()))


@dataclass(slots=True)
class _Walk:
    group: Group
    seen: set[tuple[str, tuple[Guard, ...], Axes, bool]] = field(default_factory=set)

    def all(self) -> Iterator[Obligation]:
        group = self.group
        launch = () if group.when is None else _split(group, group.when, positive=True)
        for name, extent in group.extents.items():
            if name not in group.twins:
                yield Obligation("extent", extent, launch, NO_AXES, True, group.extent_spans[name])
        for store in group.stores:
            axes, guards = store.axes, launch
            if store.when is not None:
                yield from self._value(store.when, guards, axes, True, store.span)
                guards = _joined(guards, _split(group, store.when, positive=True))
            for item in store.items:
                yield from self._value(item, guards, axes, True, store.span)
            place = Load(store.tensor, store.items, store.value.dtype, axes)
            yield Obligation("store", place, guards, axes, True, store.span)
            yield from self._value(store.value, guards, axes, True, store.value_span)

    def _value(
        self, value: Value, guards: tuple[Guard, ...], axes: Axes, whole: bool, span: Span
    ) -> Iterator[Obligation]:
        """What has to be shown of a value and of all that it is made of, innermost first."""
        group = self.group
        match value:
            case Ref(name):
                key = (name, guards, axes, whole)
                if key not in self.seen:
                    self.seen.add(key)
                    let = group.lets[name]
                    yield from self._value(let.value, guards, axes, whole, let.span)
                return
            case Select(cond, then, other):
                yield from self._value(cond, guards, axes, whole, span)
                for branch, positive in ((then, True), (other, False)):
                    inner = _joined(guards, _split(group, cond, positive=positive))
                    yield from self._value(branch, inner, axes, whole, span)
                return
            case Reduce(_, index, arg, none):
                # Within it the index takes each of its values, whatever it is outside.
                kept = tuple(guard for guard in guards if index not in guard[0].axes)
                alone = whole and len(kept) == len(guards)
                yield from self._value(arg, kept, axes | {index}, alone, span)
                if none is not None:
                    yield from self._value(none, guards, axes, whole, span)
            case Scan(_, index, arg):
                kept = tuple(guard for guard in guards if index not in guard[0].axes)
                yield from self._value(arg, kept, axes, whole and len(kept) == len(guards), span)
            case _:
                for child in children(value):
                    yield from self._value(child, guards, axes, whole, span)
        own = getattr(value, "span", NOWHERE)
        span = own if own != NOWHERE else span
        if isinstance(value, Load):
            yield Obligation("load", value, guards, axes, whole, span)
        elif _may_leave(value):
            yield Obligation("number", value, guards, axes, whole, span)


def room(load: Value, group: Group) -> tuple[tuple[Value, Value], ...]:
    """The items of a load or place, each with the extent of its dimension."""
    assert isinstance(load, Load)
    tensor = group.tensors[load.tensor]
    dims = tensor.dims if tensor.length is None else (tensor.length, *tensor.dims)
    return tuple(zip(load.items, dims, strict=True))


def evaluated(obligation: Obligation, group: Group) -> Iterator[Load]:
    """The loads that happen wherever an obligation is to hold: none in a branch or a reduction.

    Each of them is to be shown by itself, so that what it needs may be relied on here.
    """
    todo = [*children(obligation.value), *(cond for cond, _ in obligation.guards)]
    while todo:
        match todo.pop():
            case Ref(name):
                todo.append(group.lets[name].value)
            case Select(cond):
                todo.append(cond)
            case Load() as load:
                yield load
                todo += load.items
            case Op() | Cast() as value:
                todo += children(value)


def _may_leave(value: Value) -> bool:
    """Whether a value is one of the sorts that may leave its integer type, and is not meant to."""
    match value:
        case Op(op, _, dtype, _, wraps):
            return op in _ARITHMETIC and dtype in ("u8", "i32", "i64") and not wraps
        case Cast(arg, dtype, _, wraps):
            if arg.dtype in ("int", "bool") or wraps or dtype not in ("u8", "i32", "i64"):
                return False
            least, most = LIMITS[dtype]
            low, high = LIMITS.get(arg.dtype, (0, 0))
            return low < least or most < high
        case Reduce("sum", _, _, _, "i64") | Scan("cumsum"):
            return True
    return False


def _split(group: Group, cond: Value, *, positive: bool) -> tuple[Guard, ...]:
    """A condition as the conditions that it is joined of."""
    match cond:
        case Ref(name):
            return _split(group, group.lets[name].value, positive=positive)
        case Op("not", (arg,)):
            return _split(group, arg, positive=not positive)
        case Op("and" | "or" as op, (a, b)) if (op == "and") == positive:
            return _joined(_split(group, a, positive=positive), _split(group, b, positive=positive))
    return ((cond, positive),)


def _joined(a: tuple[Guard, ...], b: tuple[Guard, ...]) -> tuple[Guard, ...]:
    return tuple(dict.fromkeys((*a, *b)))


def plain(value: Value, group: Group) -> Value:
    """A value with lets written out and kgen's own indices by the names that they stand beside."""
    match value:
        case Ref(name):
            return plain(group.lets[name].value, group)
        case Index(name) if name in group.twins:
            own = group.twins[name]
            return Index(own, frozenset((own,)))
        case Load(_, items) | Op(_, items):
            inner = tuple(plain(item, group) for item in items)
            axes = NO_AXES.union(*(item.axes for item in inner))
            if isinstance(value, Load):
                return replace(value, items=inner, axes=axes)
            return replace(value, args=inner, axes=axes)
        case Cast(arg):
            arg = plain(arg, group)
            return replace(value, arg=arg, axes=arg.axes)
        case Select(cond, then, other):
            cond, then, other = (plain(each, group) for each in (cond, then, other))
            axes = cond.axes | then.axes | other.axes
            return replace(value, cond=cond, then=then, other=other, axes=axes)
    return value
