"""Where each part of a group is evaluated: under which conditions, and at which indices.

In: a typed group. Out: guards, and for each let the few sets of them that cover all its uses. A let is one
node however often it is used: two uses under a condition and under its opposite are one use under neither,
and a use under fewer guards covers those under more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kgen.diagnostics import Span
from kgen.lang.typed import (
    NOWHERE,
    Group,
    Op,
    Reduce,
    Ref,
    Scan,
    Select,
    Store,
    Value,
    children,
    walk,
)

_MOST = 16  # sets of guards of one let; beyond them it is evaluated where all of them agree


@dataclass(frozen=True, slots=True)
class Exists:
    """That an index has a value, so that its extent is at least 1."""

    index: str


# A condition, and whether it holds.
Guard: TypeAlias = tuple[Value | Exists, bool]
Guards: TypeAlias = tuple[Guard, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A part of the spec where it is evaluated. `whole`: `guards` are all that guard it."""

    value: Value
    guards: Guards
    whole: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Contexts:
    """`variants`: for each let the guards that it is evaluated under, and whether these are all.

    What comes later among guards may be evaluated only where what comes before holds, so that a variant is
    always the beginning of the guards of some use.
    """

    variants: dict[str, tuple[tuple[Guards, bool], ...]]

    def variant(self, name: str, guards: Guards) -> Guards:
        """The guards of a let's variant that serves a use under `guards`."""
        have = set(guards)
        return next(known for known, _ in self.variants[name] if have.issuperset(known))


def split(group: Group, cond: Value, *, positive: bool) -> Guards:
    """A condition as the conditions that it is joined of; a let that is one is named."""
    match cond:
        case Ref(name):
            value = group.lets[name].value
            parts = split(group, value, positive=positive)
            return ((cond, positive),) if parts == ((value, positive),) else parts
        case Op("not", (arg,)):
            return split(group, arg, positive=not positive)
        case Op("and" | "or" as op, (a, b)) if (op == "and") == positive:
            return joined(split(group, a, positive=positive), split(group, b, positive=positive))
    return ((cond, positive),)


def joined(*several: Guards) -> Guards:
    """All of some guards, each once."""
    return tuple(dict.fromkeys(guard for guards in several for guard in guards))


def launched(group: Group) -> Guards:
    """What holds whenever a group is launched."""
    return () if group.when is None else split(group, group.when, positive=True)


def guards_of(group: Group, store: Store, *, inside: bool) -> Guards:
    """What a store's points have in common; `inside`: where its `when` holds."""
    exist = tuple((Exists(index), True) for index in group.extents if index in store.axes)
    when = split(group, store.when, positive=True) if inside and store.when is not None else ()
    return joined(launched(group), exist, when)


def roots(group: Group, store: Store) -> Iterator[Place]:
    """The values of a store: its condition, its place, what is stored."""
    outer, inner = guards_of(group, store, inside=False), guards_of(group, store, inside=True)
    if store.when is not None:
        yield Place(store.when, outer, True, store.span)
    for item in store.items:
        yield Place(item, inner, True, store.span)
    yield Place(store.value, inner, True, store.value_span)


def parts(group: Group, place: Place) -> Iterator[Place]:
    """Everything that a value is made of, itself last; a let's use, not what it is made of."""
    value, guards, whole = place.value, place.guards, place.whole
    own = getattr(value, "span", NOWHERE)
    span = own if own != NOWHERE else place.span
    match value:
        case Select(cond, then, other):
            yield from parts(group, Place(cond, guards, whole, place.span))
            for branch, positive in ((then, True), (other, False)):
                inner = joined(guards, split(group, cond, positive=positive))
                yield from parts(group, Place(branch, inner, whole, place.span))
        case Reduce(_, index, arg, none):
            kept = within(guards, index)
            alone = whole and len(kept) == len(guards)
            inner = joined(kept, ((Exists(index), True),))
            yield from parts(group, Place(arg, inner, alone, place.span))
            if none is not None:
                yield from parts(group, Place(none, guards, whole, place.span))
        case Scan(_, index, arg):
            kept = within(guards, index)
            yield from parts(
                group, Place(arg, kept, whole and len(kept) == len(guards), place.span)
            )
        case _:
            for child in children(value):
                yield from parts(group, Place(child, guards, whole, place.span))
    yield Place(value, guards, whole, span)


def within(guards: Guards, index: str) -> Guards:
    """What of some guards holds for all values of an index, which is bound within them."""
    return tuple(
        guard for guard in guards if isinstance(guard[0], Exists) or index not in guard[0].axes
    )


def contexts(group: Group) -> Contexts:
    """Where the lets of a group are evaluated."""
    uses: dict[str, list[tuple[Guards, bool]]] = {name: [] for name in group.lets}

    def note(place: Place) -> None:
        for part in parts(group, place):
            if isinstance(part.value, Ref):
                uses[part.value.name].append((part.guards, part.whole))

    for store in group.stores:
        for root in roots(group, store):
            note(root)
    found: dict[str, tuple[tuple[Guards, bool], ...]] = {}
    for name, let in reversed(group.lets.items()):  # each after all that use it
        found[name] = _merged(uses[name])
        for guards, whole in found[name]:
            note(Place(let.value, guards, whole, let.span))
    return Contexts(found)


def _merged(uses: list[tuple[Guards, bool]]) -> tuple[tuple[Guards, bool], ...]:
    """Few sets of guards, one of them within each of `uses`."""
    known: dict[Guards, bool] = {}
    for guards, whole in uses:
        known[guards] = known.get(guards, False) or whole
    changed = True
    while changed:
        changed = False
        for guards in [*known]:
            if guards not in known or any(set(other) < set(guards) for other in known):
                known.pop(guards, None)
                continue
            last = (*guards[:-1], (guards[-1][0], not guards[-1][1])) if guards else ()
            if guards and last in known:
                known[guards[:-1]] = known.pop(guards) and known.pop(last)
                changed = True
    if len(known) > _MOST:
        several = [*known]
        length = next(
            (
                n
                for n in range(len(several[0]))
                if any(g[: n + 1] != several[0][: n + 1] for g in several)
            ),
            len(several[0]),
        )
        return ((several[0][:length], False),)
    return tuple(known.items())


def reachable(group: Group, values: Iterator[Value] | tuple[Value, ...]) -> tuple[str, ...]:
    """The lets that some values are made of, each after those that it is made of."""
    found = {
        each.name for value in values for each in walk(value, group.lets) if isinstance(each, Ref)
    }
    return tuple(name for name in group.lets if name in found)
