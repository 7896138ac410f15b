"""The memory of a run: tensors whose every access is checked, and who has loaded and stored each element.

In: the loads and stores of warps, a block of lanes each. Out: elements, or an error where a lane is outside
its tensor, or where what is loaded or left depends on the order of programs and warps. Whether there is
such an error does not depend on the order in which the accesses come.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from kgen.kernel.faults import (
    CallError,
    DoubleStoreError,
    MissingError,
    OutsideError,
    RaceError,
    RunError,
    Where,
    called,
)
from kgen.kernel.ir import Load, Store
from kgen.kernel.values import HELD, Array, Env, row

Tensors: TypeAlias = Mapping[str, Array | Sequence[Array] | None]

_NOBODY, _MANY = -1, -2
# Who accessed an element last: number of the program, warp, statement, and how many barriers it had passed.
_MARK = np.dtype([("program", "i8"), ("warp", "O"), ("stmt", "O"), ("epoch", "i8")])


@dataclass(slots=True, eq=False)
class Warp:
    """A warp of a program.

    `number`: of the program, among those of all roles; `share`: which part of each store is the warp's;
    `crew`: all warps of the program; `state`: going, waiting or done; `epoch`: how many barriers it passed.
    """

    env: Env
    role: int
    program: int
    number: int
    share: int
    crew: list[Warp]
    turns: Iterator[bool] = field(init=False)
    state: str = "going"
    epoch: int = 0

    def where(self, tensor: str, index: Sequence[int], lane: dict[str, int]) -> Where:
        """Where it accesses a tensor."""
        return Where(self.env.called(), tensor, tuple(index), self.role, self.program, lane)


@dataclass(slots=True, eq=False)
class Place:
    """A tensor: its elements in a row, and the marks of who has loaded and stored each of them.

    `free`: where a race is not an error.
    """

    name: str
    array: Array
    written: bool
    free: Array
    flat: Any = field(init=False)
    loads: Array = field(init=False)
    stores: Array = field(init=False)

    def __post_init__(self) -> None:
        array = self.array
        self.flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
        self.loads, self.stores = np.zeros((2, array.size if self.written else 0), _MARK)
        self.loads["program"] = self.stores["program"] = _NOBODY


@dataclass(slots=True)
class Lanes:
    """The active lanes of a load or store that a warp makes, as places in a block of `shape`."""

    of: Load | Store
    warp: Warp
    shape: tuple[int, ...]
    at: Array

    def part(self, value: Any) -> Any:
        """A value at these lanes; a scalar stays one."""
        if getattr(value, "ndim", 0) == 0:
            return value
        return row(value, self.shape)[self.at]

    def fail(
        self, kind: type[RunError], name: str, index: Sequence[int], what: str, wrong: Array
    ) -> RunError:
        """What is wrong with some of the lanes; `index`: what the first of these accesses."""
        first, more = int(wrong.argmax()), int(wrong.sum()) - 1
        verb = "loads" if isinstance(self.of, Load) else "stores to"
        text = f"{verb} {name}[{', '.join(map(str, index))}], {what}"
        if more > 0:
            text += f"; so {'does' if more == 1 else 'do'} {more} more of {len(wrong)} active lanes"
        parts = map(int, np.unravel_index(self.at[first], self.shape))
        named = zip(self.warp.env.order, parts, strict=True)
        lane = {axis: at for axis, at in named if axis in self.of.axes}
        return kind(text, self.warp.where(self.of.tensor, index, lane))


@dataclass(slots=True)
class Access:
    """Elements of a tensor, in the row of all of them, that some lanes access."""

    place: Place
    flat: Array
    lanes: Lanes

    def mark(self, marks: Array, program: Any) -> None:
        """Say who accesses the elements."""
        warp = self.lanes.warp
        marks[self.flat] = (0, warp, warp.env.stmt, warp.epoch)
        marks["program"][self.flat] = program

    def refuse(
        self, kind: type[RunError], wrong: Array, what: str, marks: Array | None = None
    ) -> None:
        """Raise an error if lanes are wrong where it matters; `marks`: of those whom they meet there."""
        if not wrong.any():
            return
        wrong = wrong & ~self.place.free[self.flat]
        if not wrong.any():
            return
        first = int(self.flat[wrong.argmax()])
        if marks is not None:
            what = what.format(self._who(marks[first]))
        index = [int(each) for each in np.unravel_index(first, self.place.array.shape)]
        raise self.lanes.fail(kind, self.place.name, index, what, wrong)

    def _who(self, mark: Any) -> str:
        if mark["program"] == _MANY:
            return "more than one program"
        other, warp = mark["warp"], self.lanes.warp
        same = other.number == warp.number
        who = "the same program" if same else f"program {other.program} of role {other.role}"
        return f"{who} in `{called(mark['stmt'])}`"


@dataclass(slots=True)
class Memory:
    """The tensors that a kernel is run on.

    `accesses`: all loads and stores of the kernel; `undefined`: which elements of some tensors may be raced
    for; `watched`: whether races are errors.
    """

    accesses: Sequence[Load | Store]
    given: Tensors
    undefined: Tensors
    watched: bool
    tensors: dict[str, list[Place]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        written = {each.tensor for each in self.accesses if isinstance(each, Store)}
        for each in self.accesses:
            name = each.tensor
            if name not in self.tensors and self.given.get(name) is not None:
                given, free = self.given[name], self.undefined.get(name)
                self.tensors[name] = _places(each, given, free, written=name in written)
        places = [place for each in self.tensors.values() for place in each]
        for one, two in itertools.combinations(places, 2):
            if (one.written or two.written) and np.shares_memory(one.array, two.array):
                raise CallError(f"{one.name} and {two.name} share memory")

    def stored(self) -> dict[str, list[Array]]:
        """Which elements were stored to, of each tensor that the kernel stores to."""
        return {
            name: [(each.stores["program"] >= 0).reshape(each.array.shape) for each in places]
            for name, places in self.tensors.items()
            if any(place.written for place in places)
        }

    def load(self, warp: Warp, load: Load) -> Any:
        """The elements where the mask holds, 0 elsewhere."""
        lanes = _active(load, warp)
        block = np.zeros(lanes.shape, HELD[load.dtype])
        for access in self._accesses(lanes):
            if self.watched and access.place.written:
                _watch_load(access)
            block.reshape(-1)[access.lanes.at] = access.place.flat[access.flat]
        return block if load.axes else block.reshape(-1)[0]

    def store(self, warp: Warp, store: Store) -> None:
        """Store at the warp's share of the lanes where the mask holds."""
        lanes = _active(store, warp)
        lanes.at = lanes.at[lanes.at % len(warp.crew) == warp.share]
        for access in self._accesses(lanes):
            if self.watched:
                _watch_store(access)
            access.mark(access.place.stores, warp.number)
            access.place.flat[access.flat] = access.lanes.part(warp.env.value(store.value))

    def _accesses(self, lanes: Lanes) -> Iterator[Access]:
        """What lanes access, an access for each tensor of a list."""
        of, env = lanes.of, lanes.warp.env
        places = self.tensors.get(of.tensor)
        if places is None:
            raise MissingError(f"{of.tensor} is not given", lanes.warp.where(of.tensor, (), {}))
        if not len(lanes.at):
            return
        items = [env.value(item) for item in of.items]
        if of.chosen is None:
            yield Access(places[0], _elements(places[0], items, lanes), lanes)
            return
        numbers = np.broadcast_to(lanes.part(env.value(of.chosen)), len(lanes.at))
        missing = (numbers < 0) | (numbers >= len(places))
        if missing.any():
            index, what = [int(numbers[missing.argmax()])], f"but there are {len(places)} tensors"
            raise lanes.fail(OutsideError, of.tensor, index, what, missing)
        for number in np.unique(numbers):
            own = Lanes(of, lanes.warp, lanes.shape, lanes.at[numbers == number])
            yield Access(places[number], _elements(places[number], items, own), own)


def _active(of: Load | Store, warp: Warp) -> Lanes:
    """The lanes where the mask of an access holds."""
    shape = warp.env.shape(of.axes)
    return Lanes(of, warp, shape, row(warp.env.mask(of.mask), shape).nonzero()[0])


def _elements(place: Place, items: Sequence[Any], lanes: Lanes) -> Array:
    """The elements of a tensor that lanes access, in the row of all of them."""
    parts = [lanes.part(item) for item in items]
    extents = place.array.shape
    try:
        flat = np.ravel_multi_index(parts, extents)
    except (ValueError, TypeError, OverflowError):
        outside = np.zeros(len(lanes.at), bool)
        for part, extent in zip(parts, extents, strict=True):
            outside |= (part < 0) | (part >= extent)
        first = outside.argmax()
        index = [int(part[first] if np.ndim(part) else part) for part in parts]
        what = f"but it is {' x '.join(map(str, extents))}"
        raise lanes.fail(OutsideError, place.name, index, what, outside) from None
    return flat if np.ndim(flat) else np.full(len(lanes.at), flat)


def _watch_load(access: Access) -> None:
    """Refuse a load of what has been stored to; remember who loads."""
    place, number = access.place, access.lanes.warp.number
    stored = place.stores["program"][access.flat] != _NOBODY
    access.refuse(RaceError, stored, "to which {} has stored", place.stores)
    reader = place.loads["program"][access.flat]
    others = (reader != _NOBODY) & (reader != number)
    access.mark(place.loads, np.where(others, _MANY, number))


def _watch_store(access: Access) -> None:
    """Refuse a second store, and one to what is loaded by those who could see a difference."""
    place, flat, warp = access.place, access.flat, access.lanes.warp
    twice = np.ones(len(flat), bool)
    twice[np.unique(flat, return_index=True)[1]] = False
    access.refuse(DoubleStoreError, twice, "and so does another lane")
    again = place.stores["program"][flat] != _NOBODY
    access.refuse(DoubleStoreError, again, "to which {} has stored", place.stores)
    reader = place.loads["program"][flat]
    others = (reader != _NOBODY) & (reader != warp.number)
    access.refuse(RaceError, others, "which {} loads", place.loads)
    if len(warp.crew) > 1:
        late = (reader == warp.number) & (place.loads["epoch"][flat] == warp.epoch)
        what = "which {} loads with no barrier between, so that a warp may see either value"
        access.refuse(RaceError, late, what, place.loads)


def _places(of: Load | Store, given: Any, undefined: Any, *, written: bool) -> list[Place]:
    """The tensors that an argument is."""
    name, listed = of.tensor, of.chosen is not None
    if listed == isinstance(given, np.ndarray):
        wanted = "a list of arrays" if listed else "an array"
        raise CallError(f"{name} is {type(given).__name__}, not {wanted}")
    arrays = given if listed else [given]
    masks = undefined if listed and undefined is not None else [undefined] * len(arrays)
    places = []
    for number, (array, mask) in enumerate(zip(arrays, masks, strict=True)):
        label = f"{name}[{number}]" if listed else name
        _check_array(label, array, of, written=written)
        free = np.broadcast_to(mask is not None and mask, array.shape).reshape(-1)
        places.append(Place(label, array, written, free))
    return places


def _check_array(label: str, array: Any, of: Load | Store, *, written: bool) -> None:
    """That an array is one that an access takes."""
    if not isinstance(array, np.ndarray):
        raise CallError(f"{label} is {type(array).__name__}, not an array")
    dtype = of.dtype if isinstance(of, Load) else of.value.dtype
    wanted = np.dtype(HELD[dtype])
    if array.dtype != wanted:
        raise CallError(f"{label} is {array.dtype}, but {dtype} is held as {wanted}")
    if array.ndim != len(of.items):
        raise CallError(f"{label} has {array.ndim} dimensions, not {len(of.items)}")
    if written and not array.flags.writeable:
        raise CallError(f"{label} is stored to, but is read-only")
