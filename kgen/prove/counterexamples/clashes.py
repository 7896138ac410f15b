"""Small legal calls at which stores meet, leave a gap, or reach what another program reads.

In: what places.py could not show. Out: an `Example`, or None. As in search.py, what is found is true.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kgen.diagnostics import Example
from kgen.lang.typed import Axes, Group, Load, Store, Tensor, Value
from kgen.prove.contexts import contexts
from kgen.prove.counterexamples.search import example, worlds
from kgen.prove.counterexamples.world import ImpossibleError, OutsideError, Point, World
from kgen.prove.obligations import obligations

_ROUNDS = ((1, 40), (2, 120), (3, 120))
_POINTS = 200  # of one store in one world


@dataclass(frozen=True, slots=True)
class _Clash:
    """What goes wrong in a world, and the values that say so, each at its point."""

    text: str
    values: tuple[tuple[Value, Point], ...]


def meeting(group: Group, a: Store, b: Store) -> Example | None:
    """Two points at which two stores, or one, store to one place."""

    def find(world: World) -> _Clash | None:
        seen: dict[tuple[int, ...], Point] = {}
        for place, point in _places(world, a):
            if place in seen and a is b:
                return _met(a, b, place, seen[place], point)
            seen[place] = point
        for place, point in _places(world, b) if a is not b else ():
            if place in seen:
                return _met(a, b, place, seen[place], point)
        return None

    return _first(group, find)


def _met(a: Store, b: Store, place: tuple[int, ...], one: Point, two: Point) -> _Clash:
    values = [(v, p) for s, p in ((a, one), (b, two)) for v in (*s.items, *_when(s))]
    both = [_at(one), _at(two)] if a is b else [f"by `{s.target_text}`" for s in (a, b)]
    return _Clash(
        f"`{_shown(a.tensor, place)}` is stored to {both[0]} and {both[1]}", tuple(values)
    )


def gap(group: Group, tensor: Tensor) -> Example | None:
    """An element of a tensor that no store reaches."""

    def find(world: World) -> _Clash | None:
        dims = world.dims(tensor)
        if math.prod(dims) > _POINTS:
            raise ImpossibleError
        stores = [store for store in group.stores if store.tensor == tensor.name]
        filled = {place for store in stores for place, _ in _places(world, store)}
        for place in itertools.product(*(range(dim) for dim in dims)):
            if place not in filled:
                values: list[tuple[Value, Point]] = [(dim, {}) for dim in tensor.dims]
                for store in stores:  # the conditions that keep them from it
                    for point in _points(world, store.axes):
                        if tuple(world.at(item, point) for item in store.items) == place:
                            values += [(cond, point) for cond in _when(store)]
                return _Clash(f"nothing stores to `{_shown(tensor.name, place)}`", tuple(values))
        return None

    return _first(group, find)


def race(group: Group, store: Store, programs: Axes) -> Example | None:
    """A place that one program stores to and another reads."""
    loads = [
        each
        for each in obligations(group, contexts(group))
        if isinstance(each.value, Load) and each.kind == "load" and each.whole
        if each.value.tensor == store.tensor
    ]

    def find(world: World) -> _Clash | None:
        stored = dict(_places(world, store))
        for each in loads:
            assert isinstance(each.value, Load)
            axes = sorted(store.axes & programs & each.axes)
            for point in _points(world, each.axes):
                if all(
                    bool(world.at(cond, point)) == positive for cond, positive in each.conditions
                ):
                    place = tuple(world.at(item, point) for item in each.value.items)
                    owner = stored.get(place)
                    if owner is not None and any(owner[axis] != point[axis] for axis in axes):
                        read, mine = ({axis: at[axis] for axis in axes} for at in (point, owner))
                        what = f"`{_shown(store.tensor, place)}` is stored to {_at(mine)}"
                        text = f"{what} and read {_at(read)}"
                        values = [(item, point) for item in each.value.items]
                        values += [(item, owner) for item in store.items]
                        return _Clash(text, tuple(values))
        return None

    return _first(group, find)


def _first(group: Group, find: Callable[[World], _Clash | None]) -> Example | None:
    """The simplest world among those of one size in which something is found."""
    for top, tries in _ROUNDS:
        best: tuple[int, Example] | None = None
        for world in worlds(group, top, tries):
            try:
                clash = find(world)
            except (ImpossibleError, OutsideError):
                continue
            if clash is None:
                continue
            world.forget()
            for value, point in clash.values:
                world.at(value, point)
                for index in point:
                    world.at(group.extents[index], {})
            weight = sum(map(abs, [*world.params.values(), *world.read.values()]))
            if best is None or weight < best[0]:
                best = weight, example(world, {}, clash.text)
        if best is not None:
            return best[1]
    return None


def _places(world: World, store: Store) -> Iterator[tuple[tuple[int, ...], Point]]:
    """The places that a store stores to, each with its point."""
    for point in _points(world, store.axes):
        if all(world.at(cond, point) for cond in _when(store)):
            place = tuple(world.at(item, point) for item in store.items)
            if world.inside(store.tensor, place):
                yield place, point


def _points(world: World, axes: Axes) -> Iterable[Point]:
    names = [index for index in world.group.extents if index in axes]
    counts = [world.at(world.group.extents[index], {}) for index in names]
    if math.prod(max(count, 0) for count in counts) > _POINTS:
        raise ImpossibleError
    for numbers in itertools.product(*(range(count) for count in counts)):
        yield dict(zip(names, numbers, strict=True))


def _when(store: Store) -> tuple[Value, ...]:
    return (store.when,) if store.when is not None else ()


def _at(point: Point) -> str:
    return (
        f"at {', '.join(f'{name} = {number}' for name, number in point.items())}"
        if point
        else "once"
    )


def _shown(name: str, place: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, place))}]"
