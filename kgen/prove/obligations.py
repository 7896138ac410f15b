"""What has to be shown of a group before it may run: each index in bounds, each number in its type.

In: a typed group. Out: `Obligation` values, in the order in which a reader meets them. Each is to hold at
every legal call, at every point of the indices, where its guards hold. Nothing is proved here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kgen.diagnostics import Span
from kgen.lang.dtypes import INTEGERS, LIMITS
from kgen.lang.operators import OPERATORS
from kgen.lang.typed import (
    Axes,
    Cast,
    Group,
    Index,
    Load,
    Op,
    Reduce,
    Ref,
    Scan,
    Value,
    children,
    index_of,
    rebuilt,
)
from kgen.prove.contexts import (
    Contexts,
    Exists,
    Guards,
    Place,
    guards_of,
    launched,
    parts,
    reachable,
    roots,
)

Kind = Literal["load", "store", "number", "extent"]


@dataclass(frozen=True, slots=True)
class Obligation:
    """One thing to be shown.

    `load`, `store`: the items of `value`, a load or a place as one, are in bounds. `number`: the result
    of `value` is in its type's range without being cut. `extent`: `value` is not negative.

    `whole` says that `guards` are all that guard it: a guard is left out where an inner reduction reuses
    the name of its index, or where a let is evaluated for several uses at once.
    """

    kind: Kind
    value: Value
    guards: Guards
    whole: bool
    span: Span

    @property
    def axes(self) -> Axes:
        """The indices at whose points it is to hold."""
        exist = (cond.index for cond, _ in self.guards if isinstance(cond, Exists))
        return self.value.axes | frozenset(exist)

    @property
    def conditions(self) -> tuple[tuple[Value, bool], ...]:
        """The guards that are conditions."""
        return tuple((c, positive) for c, positive in self.guards if not isinstance(c, Exists))


def obligations(group: Group, contexts: Contexts) -> tuple[Obligation, ...]:
    """Everything that has to be shown of a group, each thing once."""
    return tuple(dict.fromkeys(_all(group, contexts)))


def _all(group: Group, contexts: Contexts) -> Iterator[Obligation]:
    for name, extent in group.extents.items():
        if name not in group.twins:
            yield Obligation("extent", extent, launched(group), True, group.extent_spans[name])
    seen: set[str] = set()
    for store in group.stores:
        places = list(roots(group, store))
        for place in places:
            for name in reachable(group, (place.value,)):
                if name not in seen:
                    seen.add(name)
                    let = group.lets[name]
                    for guards, whole in contexts.variants[name]:
                        yield from _of(group, Place(let.value, guards, whole, let.span))
            if place is places[-1]:  # what is stored, after where
                inner = guards_of(group, store, inside=True)
                yield Obligation("store", store.place, inner, True, store.span)
            yield from _of(group, place)


def _of(group: Group, place: Place) -> Iterator[Obligation]:
    for part in parts(group, place):
        if isinstance(part.value, Load):
            yield Obligation("load", part.value, part.guards, part.whole, part.span)
        elif _may_leave(part.value):
            yield Obligation("number", part.value, part.guards, part.whole, part.span)


def _may_leave(value: Value) -> bool:
    """Whether a value is one of the sorts that may leave its integer type, and is not meant to."""
    match value:
        case Op(op, _, dtype, _, wraps):
            return OPERATORS[op].leaves and dtype in INTEGERS and not wraps
        case Cast(arg, dtype, _, wraps):
            if arg.dtype in ("int", "bool") or wraps or dtype not in INTEGERS:
                return False
            least, most = LIMITS[dtype]
            low, high = LIMITS.get(arg.dtype, (0, 0))
            return low < least or most < high
        case Reduce("sum", _, _, _, "i64") | Scan("cumsum"):
            return True
    return False


def plain(value: Value, group: Group) -> Value:
    """A value with lets written out and kgen's own indices by the names that they stand beside."""
    match value:
        case Ref(name):
            return plain(group.lets[name].value, group)
        case Index(name):
            return index_of(group.twins.get(name, name))
        case Reduce() | Scan():
            return value
    return rebuilt(value, tuple(plain(each, group) for each in children(value)))
