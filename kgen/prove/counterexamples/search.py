"""A small legal call at which something that had to be shown does not hold.

In: an obligation. Out: an `Example`, found by trying small worlds in an order that is the same everywhere,
or None. What it finds is true, since the world is walked through; finding nothing proves nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kgen.diagnostics import Example
from kgen.lang.dtypes import FLOATS, LIMITS
from kgen.lang.typed import Group, Load, Param, Scalar, Size, Tensor, Value, walk
from kgen.prove.counterexamples.world import ImpossibleError, OutsideError, Point, World
from kgen.prove.obligations import Obligation

# How large the sizes are at most, and how many worlds are tried. 0: as large as they may be.
_ROUNDS = ((1, 60), (2, 120), (4, 200), (12, 120), (0, 300))
_SHRINKS = 400
_FEW = 32  # elements, each of which is made smaller


@dataclass(slots=True)
class _Dice:
    """Numbers that only look random, the same with every Python."""

    state: int

    def below(self, count: int) -> int:
        """A number from 0 to count - 1."""
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % count

    def among(self, low: int, high: int, more: Iterable[int], top: int) -> int:
        """A number of a range: near its ends, near 0 or one of `more`; at most `top` if it can be."""
        if top and high > max(low, top):
            high = max(low, top)
        picks = [low, high, high, low + 1, high - 1, 0, 1, -1, 2, *more]
        picks = [min(max(pick, low), high) for pick in picks]
        picks.append(low + self.below(min(high - low, 2**31) + 1))
        return picks[self.below(len(picks))]


@dataclass(frozen=True, slots=True)
class Fault:
    """Where an obligation fails: the world, the point, and what happens there."""

    world: World
    point: Point
    text: str


def search(group: Group, obligation: Obligation) -> Example | None:
    """The simplest call found at which the obligation does not hold."""
    if not obligation.whole:
        return None
    for top, tries in _ROUNDS:
        dice = _Dice(top + 1)
        found: list[Fault] = []
        for _ in range(tries):
            fault = _try(group, obligation, dice, top)
            if fault is not None:
                found.append(fault)
        if found:
            fault = _shrunk(obligation, min(found, key=_weight))
            return example(fault.world, fault.point, fault.text)
    return None


def _try(group: Group, obligation: Obligation, dice: _Dice, top: int) -> Fault | None:
    world = _world(group, dice, top)
    if world is None:
        return None
    try:
        point = {}
        for index in group.extents:
            if index not in obligation.axes:
                continue
            extent = world.at(group.extents[index], {})
            if extent < 1:
                return None
            point[index] = (0, extent - 1, dice.below(extent))[dice.below(3)]
        return broken(obligation, world, point)
    except ImpossibleError:
        return None


def worlds(group: Group, top: int, tries: int) -> Iterator[World]:
    """Legal worlds at which the group is launched, with sizes of at most `top` where they can be."""
    dice = _Dice(top + 1)
    for _ in range(tries):
        world = _world(group, dice, top)
        if world is not None and (group.when is None or world.at(group.when, {})):
            yield world


def _world(group: Group, dice: _Dice, top: int) -> World | None:
    """A legal call; its elements are chosen when they are read."""
    params = _params(group, dice, top)
    if params is None:
        return None
    sizes = [params[name] for name in group.sizes]
    style = dice.below(6)

    def draw(_: Tensor, low: int, high: int, taken: set[int]) -> int:
        more = [number + step for number in sizes for step in (-1, 0, 1)]
        if style < 2 and not taken:  # all of them at one end, for what adds them up
            return (low, high)[style]
        for _attempt in range(8):
            number = dice.among(low, high, more, 0)
            if number not in taken:
                return number
        raise ImpossibleError

    given = {t.name: bool(dice.below(2)) for t in group.tensors.values() if t.optional}
    world = World(group, params, given, draw)
    try:
        return world if world.legal() else None
    except ImpossibleError:
        return None


def _params(group: Group, dice: _Dice, top: int) -> dict[str, int] | None:
    """A legal value for each size and scalar."""
    world = World(group, {}, {}, lambda *_: 0)
    waiting = param_order(group)
    for name in waiting:
        try:
            low, high = world.param_ends(name)
        except ImpossibleError:
            return None
        is_size = name in group.sizes
        # A scalar may be as large as it likes; a size makes a tensor.
        world.params[name] = dice.among(low, high, (3, 4), top if is_size or dice.below(2) else 0)
    return world.params


def param_order(group: Group) -> list[str]:
    """Sizes and scalars, each after those that its range is made of; floats left out."""
    needs: dict[str, set[str]] = {}
    declared: list[Size | Scalar] = [*group.sizes.values(), *group.scalars.values()]
    for each in declared:
        if each.name in group.scalars and group.scalars[each.name].dtype in FLOATS:
            continue
        ends: list[Value | None] = [each.low, each.high]
        ends += [group.sizes[each.name].derived] if each.name in group.sizes else []
        found = {v.name for end in ends if end for v in walk(end, {}) if isinstance(v, Param)}
        needs[each.name] = found
    order: list[str] = []
    while len(order) < len(needs):
        order += [n for n, need in needs.items() if n not in order and need <= set(order)]
    return order


def broken(obligation: Obligation, world: World, point: Point) -> Fault | None:
    """The fault at a point of a legal world; None if the obligation holds there or is not asked for."""
    group = world.group
    world.forget()
    extents = {index: world.at(group.extents[index], {}) for index in obligation.axes}
    if any(not 0 <= point[index] < extent for index, extent in extents.items()):
        return None
    try:
        for cond, positive in obligation.conditions:
            if bool(world.at(cond, point)) != positive:
                return None
        text = _fault(obligation, world, point)
    except OutsideError:
        return None  # another obligation's fault
    return Fault(world, point, text) if text else None


def _fault(obligation: Obligation, world: World, point: Point) -> str:
    value = obligation.value
    match obligation.kind:
        case "load" | "store":
            assert isinstance(value, Load)
            place = tuple(world.at(item, point) for item in value.items)
            if world.inside(value.tensor, place):
                return ""
            done = "read" if obligation.kind == "load" else "stored to"
            return _shape(world, value.tensor, place, done)
        case "extent":
            number = world.at(value, point)
            return f"the index would take {number} values" if number < 0 else ""
        case _:
            number = world.exact(value, point)
            low, high = LIMITS[value.dtype]
            end = f"{value.dtype} ends at {high if number > high else low}"
            return "" if low <= number <= high else f"the result is {number}, but {end}"


def _shape(world: World, name: str, place: tuple[int, ...], done: str) -> str:
    """What is done to a place that a tensor does not have."""
    dims, shown = world.dims(world.group.tensors[name]), name
    if world.group.tensors[name].length is not None:
        if not 0 <= place[0] < dims[0]:
            count = f"{dims[0]} tensor{'' if dims[0] == 1 else 's'}"
            return f"`{name}[{place[0]}]` is {done}, but the list has {count}"
        shown, place, dims = f"{name}[{place[0]}]", place[1:], dims[1:]
    held = f"is {' x '.join(map(str, dims))}"
    if len(dims) == 1:
        held = f"has {dims[0]} element{'' if dims[0] == 1 else 's'}"
    return f"`{shown}[{', '.join(map(str, place))}]` is {done}, but it {held}"


def _weight(fault: Fault) -> tuple[int, int]:
    read = fault.world.read.values()
    numbers = [*fault.world.params.values(), *fault.point.values(), *read]
    return sum(min(abs(number), 1000) for number in numbers), sum(map(abs, numbers))


def _shrunk(obligation: Obligation, fault: Fault) -> Fault:
    """The same fault with smaller numbers, as far as one number at a time gets."""
    left = _SHRINKS
    smaller = True
    while smaller and left > 0:
        smaller = False
        for world, point in _simpler(fault):
            left -= 1
            try:
                found = broken(obligation, world, point) if world.legal() else None
            except ImpossibleError:
                continue
            if found is not None and _weight(found) < _weight(fault):
                fault, smaller = found, True
                break
    return fault


def _simpler(fault: Fault) -> Iterator[tuple[World, Point]]:
    """Worlds and points that differ from a fault's in one smaller number."""
    world, point = fault.world, fault.point
    read = world.read
    for name, number in world.params.items():
        for less in _less(number):
            other = World(world.group, world.params | {name: less}, world.given, simplest)
            with contextlib.suppress(ImpossibleError):
                for derived in param_order(world.group):
                    size = world.group.sizes.get(derived)
                    if size is not None and size.derived is not None:
                        other.params[derived] = other.at(size.derived, {})
                other.elements.update({k: v for k, v in read.items() if other.allows(*k, v)})
                yield other, point
    for place, number in read.items() if len(read) <= _FEW else ():
        for less in _less(number):
            elements = {**read, place: less}
            yield World(world.group, world.params, world.given, simplest, elements), point
    for index, number in point.items():
        for less in _less(number):
            same = World(world.group, world.params, world.given, simplest, dict(read))
            yield same, point | {index: less}


def _less(number: int) -> list[int]:
    """Numbers nearer to 0, the nearest first."""
    size, sign = abs(number), 1 if number > 0 else -1
    cuts = [size // 2, *(size - size // 2**bits for bits in (2, 4, 8, 16, 24)), size - 1]
    smaller = (0, 1, -1, *(sign * cut for cut in cuts))
    return [less for less in dict.fromkeys(smaller) if abs(less) < size]


def simplest(_: Tensor, low: int, high: int, taken: set[int]) -> int:
    """The free number that is nearest to 0."""
    near = min(max(0, low), high)
    for step in range(len(taken) + 1):
        for number in (near + step, near - step):
            if low <= number <= high and number not in taken:
                return number
    raise ImpossibleError


def example(world: World, point: Point, text: str) -> Example:
    """What happens in a world, as a diagnostic shows it: what was looked at last is what matters."""
    shown = [name for name in world.params if name in world.used]
    ordered = [*world.group.sizes, *world.group.scalars]
    return Example(
        params=tuple((name, world.params[name]) for name in ordered if name in world.params),
        given=tuple(world.given.items()),
        point=tuple(point.items()),
        elements=tuple((name, place, number) for (name, place), number in world.read.items()),
        shown=tuple(name for name in ordered if name in shown),
        fault=text,
    )
