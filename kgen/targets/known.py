"""What can be said of a group's values by themselves, before any text is made of them.

In: a typed group. Out: `Values`, which says what Python knows before the launch and what torch computes.
Each let is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import fields, replace
from typing import TypeVar

from kgen.lang.dtypes import FLOATS, INTEGERS, LIMITS, LITERALS, DType, own_type, widens
from kgen.lang.operators import OPERATORS, Interval
from kgen.lang.typed import (
    NO_AXES,
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
    Value,
    children,
    rebuilt,
    walk,
)

Node = TypeVar("Node", bound=Hashable)


def bare(item: Value) -> Value:
    """An index of a tensor without casts that keep its value."""
    while isinstance(item, Cast) and {item.dtype, item.arg.dtype} <= INTEGERS:
        if not widens(item.arg.dtype, item.dtype):
            break
        item = item.arg
    return item


def ordered(roots: Iterable[Node], needs: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """`roots` and all that they need, what is needed before what needs it."""
    done: dict[Node, None] = {}
    todo = [(root, False) for root in roots][::-1]
    while todo:
        key, ready = todo.pop()
        if ready:
            done[key] = None
        elif key not in done:
            todo.append((key, True))
            todo += [(each, False) for each in needs(key)][::-1]
    return list(done)


def shared(group: Group) -> Group:
    """The same group, in which a load, reduction or condition that is a let too is a use of that let."""
    known: dict[Value, Value] = {}
    lets = dict(group.lets)

    def named(value: Value) -> Value:
        parts = map(named, children(value))
        if isinstance(value, Load):
            parts = map(bare, parts)
        value = rebuilt(value, tuple(parts))
        return known.get(value, value)

    for name in in_order(group):
        value = named(lets[name].value)
        lets[name] = replace(lets[name], value=value)
        if isinstance(value, Load | Reduce | Scan) or (value.dtype == "bool" and children(value)):
            known[value] = Ref(name, value.dtype, value.axes)
    stores = [store.changed(named) for store in group.stores]
    stores = [replace(store, items=tuple(map(bare, store.items))) for store in stores]
    trusted = tuple(replace(each, value=named(each.value)) for each in group.trusted)
    return replace(group, lets=lets, stores=tuple(stores), trusted=trusted)


def in_order(group: Group) -> list[str]:
    """The names of the lets, each after those that it is made of."""
    refs = {
        name: [each.name for each in walk(let.value, {}) if isinstance(each, Ref)]
        for name, let in group.lets.items()
    }
    return ordered(group.lets, refs.__getitem__)


class Values:
    """What can be said of values by themselves."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._numbers: dict[str, Interval] = {}
        self._spans: dict[str, Axes] = {}
        self._partial: set[str] = set()
        self._same: dict[Hashable, int] = {}
        self._trusted = {
            self._alike(each.value) for each in group.trusted if not isinstance(each.value, Load)
        }
        for name in in_order(group):
            value = group.lets[name].value
            self._spans[name] = self.spans(value)
            if self.partial(value):
                self._partial.add(name)
            if self.number(value):
                self._numbers[name] = self.ends(value)

    def number(self, value: Value) -> bool:
        """Whether it is known before the launch, and Python computes it as torch would."""
        match value:
            case Const() | Param() | Given():
                return True
            case Ref(name):
                return name in self._numbers
            case Cast(arg, dtype) if self.number(arg):
                if arg.dtype in LITERALS and dtype == "f32":
                    return True
                return {own_type(arg.dtype), dtype} <= INTEGERS and self._fits(value, dtype)
            case Select():
                return all(map(self.number, children(value)))
            case Op(_, args, dtype) if all(map(self.number, args)):
                if any(arg.dtype in FLOATS - LITERALS for arg in args) or self.divides(value):
                    return False
                return dtype in (*LITERALS, "bool") or self._fits(value, dtype)
        return False

    def _fits(self, value: Value, dtype: DType) -> bool:
        low, high = self.ends(value)
        return dtype in LIMITS and LIMITS[dtype][0] <= low <= high <= LIMITS[dtype][1]

    def ends(self, value: Value) -> Interval:
        """The least and the greatest value of a whole number, as Python computes it."""
        least, most = LIMITS.get(own_type(value.dtype), (0, 0))
        match value:
            case Const(literal):
                return int(literal), int(literal)
            case Ref(name):
                return self._numbers[name]
            case Cast(arg):
                return self.ends(arg)
            case Select(_, then, other):
                arms = (*self.ends(then), *self.ends(other))
                return min(arms), max(arms)
            case Op(op, args) if (interval := OPERATORS[op].interval) is not None:
                return interval(*map(self.ends, args))
            case Param(name):  # each call is checked against its declared ends
                sizes = self.group.sizes
                least, most = (0, 2**31 - 1) if name in sizes else (least, most)
                declared = sizes.get(name) or self.group.scalars[name]
                if isinstance(declared.low, Const):
                    least = max(least, int(declared.low.value))
                if isinstance(declared.high, Const):
                    most = min(most, int(declared.high.value))
        return least, most

    def spans(self, value: Value) -> Axes:
        """The indices that its tensor has a dimension for, whatever Python chooses."""
        match value:
            case Index(_, axes):
                return axes
            case Ref(name):
                return self._spans[name]
            case Select(cond, then, other) if self.number(cond):
                return self.spans(then) & self.spans(other)
            case Reduce(_, index, arg, none):
                return (self.spans(arg) - {index}) | (self.spans(none) if none else NO_AXES)
            case Scan(_, index, arg):
                return self.spans(arg) | {index}
        return NO_AXES.union(*map(self.spans, children(value)))

    def partial(self, value: Value) -> bool:
        """Whether it has no value everywhere: there is a load in it, or a divisor."""
        return any(
            isinstance(each, Load)
            or (isinstance(each, Ref) and each.name in self._partial)
            or self.divides(each)
            or self.trusts(each)
            for each in walk(value, {})
        )

    def trusts(self, value: Value) -> bool:
        """Whether it is a whole number that the spec trusts to fit its type."""
        return bool(self._trusted) and self._alike(value) in self._trusted

    def _alike(self, value: Value) -> int:
        """A number that values share which are the same with all lets written out."""
        if value not in self._same:
            own: Value = value
            if isinstance(value, Ref):
                own = self.group.lets[value.name].value
            elif isinstance(value, Index):
                own = replace(value, name=self.group.twins.get(value.name, value.name))
            inner = children(own)
            plain = [getattr(own, each.name) for each in fields(own) if each.name != "axes"]
            plain = [each for each in plain if each not in inner and each != inner]
            key = (type(own), *plain, *map(self._alike, inner))
            self._same[value] = self._same.setdefault(key, len(self._same))
        return self._same[value]

    def divides(self, value: Value) -> bool:
        """Whether it is a quotient or remainder by what may be 0."""
        match value:
            case Op("floordiv" | "mod", (_, divisor), dtype) if dtype not in LITERALS:
                low, high = self.ends(divisor) if self.number(divisor) else (0, 0)
                return low <= 0 <= high
        return False

    def sure(self, value: Value) -> bool:
        """Whether its text is a tensor even where a number will do."""
        match self.outward(value):
            case Select(cond, then, other) if self.number(cond):
                return self.sure(then) and self.sure(other)
        return not self.number(value)

    def outward(self, value: Value) -> Value:
        """A cast of what Python chooses as a choice of casts."""
        match value:
            case Cast(Select(cond, then, other, kind), dtype, axes) if (
                kind != "bool" and self.number(cond)
            ):
                one, two = (replace(value, arg=arm, axes=arm.axes) for arm in (then, other))
                return Select(cond, one, two, dtype, axes)
        return value
