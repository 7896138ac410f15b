"""From what is proved of a group to a plan: which programs there are, and what each computes.

In: a `Proved`. Out: a `Plan`; or diagnostics for a schedule that can't be had. Proves nothing.

A *role* is a set of stores that one kind of program does. The run-time indices of a store are its
program axes; static indices are lanes of a program; an index that a reduction or scan runs over is
lanes if static, a loop if not. Stores with the same program axes share a role. No role reads what
another one stores: such roles become one, over the program axes that they share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from kgen.diagnostics import Report, listed
from kgen.lang.typed import (
    Axes,
    Group,
    Load,
    Reduce,
    Scan,
    Store,
    walk,
    walk_bound,
)
from kgen.prove.prove import Proved

TILE = 1024  # elements of a wide tile: 8 for each of the 128 threads of 4 warps
NARROW_TILE = 512  # the same where a program has several rows of them
LOOP_TILE = 8192  # of one turn of a loop: few turns, since each waits for its loads
LEAST_TILE = 128  # of either, however few values there are
ELEMENTS = 4096  # of a program that has several rows
WIDEST = 2048  # elements of a program; outer static indices are spread over programs beyond it
MANY = 1024  # programs, beyond which each takes several rows: there are enough to fill a GPU
MOST_LANES = 2**20  # of a program at once, beyond which Triton takes none
COMBINED = 256  # lanes that are combined across; a program has one row of more
ROW_TILE = 128  # rows of a program whose rows have no inner axis

Kind = Literal["row", "tile", "lanes", "loop"]
_NAMES: dict[Kind, str] = {"row": "TILE", "tile": "TILE", "lanes": "LANES", "loop": "LOOP"}


@dataclass(frozen=True, slots=True)
class Axis:
    """How a role covers an index.

    `row`: one value a program; `tile`: a block of values a program; `lanes`: all values in each
    program; `loop`: all values in each program, a block at a time. A block of the last two is as wide as
    the extent asks for, from `least` to `tile` lanes (`rows` where a program has several rows of them), and
    `budget` for it and each product of `beside`.
    """

    index: str
    kind: Kind
    tile: int | None
    least: int | None = None
    rows: int = 0
    budget: int = 0
    beside: tuple[tuple[str, ...], ...] = ()

    @property
    def block(self) -> str:
        """The kernel's compile-time name for how many lanes the axis has."""
        return f"{_NAMES[self.kind]}_{self.index}"


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of program: its stores and how it covers each index that they involve.

    `once` says that its stores do not vary with the program, so that the first program does them.
    """

    stores: tuple[Store, ...]
    once: tuple[Store, ...]
    axes: dict[str, Axis]

    @property
    def program(self) -> tuple[Axis, ...]:
        """The axes that programs are laid over, the last one fastest."""
        return tuple(axis for axis in self.axes.values() if axis.kind in ("row", "tile"))

    def loops(self, group: Group, store: Store) -> tuple[str, ...]:
        """The loops around a store, one that a scan runs along innermost."""
        scanned = scanned_by(group, store)
        loops = [i for i, axis in self.axes.items() if axis.kind == "loop" and i in store.axes]
        return tuple(sorted(loops, key=lambda i: i in scanned))


@dataclass(frozen=True, slots=True)
class Plan:
    """A group, what is proved of it, and how it runs."""

    proved: Proved
    roles: tuple[Role, ...]

    @property
    def group(self) -> Group:
        """The group."""
        return self.proved.group

    @property
    def blocks(self) -> dict[str, Axis]:
        """Each compile-time block size, with an axis that it belongs to, after those beside it."""
        every = [axis for role in self.roles for axis in role.axes.values() if axis.kind != "row"]
        every.sort(key=lambda axis: (max(map(len, axis.beside), default=0), axis.block))
        found: dict[str, Axis] = {}
        while every:
            left = {axis.block for axis in every}
            axis = next(axis for axis in every if left.isdisjoint(chain(*axis.beside)))
            found[axis.block] = axis
            every.remove(axis)
        return found

    @property
    def stored(self) -> tuple[tuple[str, ...], ...]:
        """The blocks that the widest values have that a program stores: one of these products."""
        return _largest(self._held(combines=False))

    @property
    def combined(self) -> tuple[tuple[str, ...], ...]:
        """Likewise of those in programs that combine many lanes."""
        return _largest(self._held(combines=True))

    def _held(self, *, combines: bool) -> Iterator[frozenset[str]]:
        for role in self.roles:
            loops = any(axis.kind == "loop" for axis in role.axes.values())
            if combines == (loops or combines_many(self.proved, role)):
                yield from _held(self.group, role)


def make_plan(proved: Proved, report: Report) -> Plan | None:
    """The plan of a group; None after reporting what its schedule asks for in vain."""
    before = len(report.diagnostics)
    planner = _Planner(proved)
    found = planner.roles()
    _check_schedule(proved.group, found, report)
    for role in found:
        for store in (*role.stores, *role.once):
            _check_scans(proved.group, store, role, report)
        _check_loops(proved, role, report)
        _check_lanes(proved.group, role, report)
    if len(report.diagnostics) > before:
        return None
    return Plan(proved, found)


def combines_many(proved: Proved, role: Role) -> bool:
    """Whether a role's programs combine many lanes at once."""
    stores = [*role.stores, *role.once]
    static = {i for store in stores for i in bound(proved.group, store)}
    counts = (proved.ends[i][1] for i in static if proved.group.static_extent(i))
    return max(counts, default=0) > COMBINED


def _held(group: Group, role: Role) -> Iterator[frozenset[str]]:
    """The blocks that values of a role have at once: what is stored, and what is combined."""
    for store in (*role.stores, *role.once):
        every = [store.axes]
        for root in store.values:
            for each in walk(root, group.lets):
                every += [each.arg.axes | {each.index}] if isinstance(each, Reduce | Scan) else []
        for axes in every:
            here = (role.axes[index] for index in axes if index in role.axes)
            yield frozenset(axis.block for axis in here if axis.kind != "row")


def _largest(every: Iterable[frozenset[str]]) -> tuple[tuple[str, ...], ...]:
    """Sets of blocks, those left out that are within another."""
    found = {*every}
    return tuple(sorted(tuple(sorted(each)) for each in found if not any(each < o for o in found)))


def bound(group: Group, store: Store) -> Axes:
    """The indices that reductions and scans in a store run over."""
    values = (each for root in store.values for each in walk(root, group.lets))
    return frozenset(each.index for each in values if isinstance(each, Reduce | Scan))


@dataclass(frozen=True, slots=True)
class _Planner:
    proved: Proved

    def roles(self) -> tuple[Role, ...]:
        group = self.proved.group
        keyed: dict[Axes, list[int]] = {}
        for at in range(len(group.stores)):
            keyed.setdefault(self._program_axes(at), []).append(at)
        for read in self.proved.laid.reads:  # one program stores what it reads
            pair = (read.stored, read.reader)
            one, two = (next(key for key, held in keyed.items() if at in held) for at in pair)
            moved = [*keyed.pop(one), *(keyed.pop(two) if one != two else [])]
            keyed.setdefault(one & two & (read.shared - read.bound), []).extend(moved)
        # Stores that vary with no program are done by the first program of a role that has one for sure.
        once = [group.stores[at] for at in sorted(keyed.pop(frozenset(), []))]
        apart = {i for store in once for i in (*bound(group, store), *store.axes)}
        found = []
        for key, held in sorted(keyed.items(), key=lambda each: min(each[1])):
            stores = [group.stores[at] for at in sorted(held)]
            taken = once if key <= self.proved.launched and not apart & key else []
            found.append(self._role(key, stores, taken))
            once = once if not taken else []
        found += [self._role(frozenset(), [], once)] if once else []
        return self._fitted(found)

    def _fitted(self, found: list[Role]) -> tuple[Role, ...]:
        """The roles with the widths of their tiles; a block has one width in all of them.

        A block makes room for those that were given their width before it: lanes, then tiles of run-time
        indices, loops, tiles of static ones.
        """
        group = self.proved.group
        order = {"lanes": 0, "tile": 1, "loop": 2}
        every = [axis for role in found for axis in role.axes.values() if axis.kind != "row"]
        every.sort(key=lambda axis: (self._spread(axis), order[axis.kind], axis.index))
        blocks = list(dict.fromkeys(axis.block for axis in every))
        spread = {axis.block for axis in every if self._spread(axis)}
        held = [each for role in found for each in _held(group, role)]
        for at, block in enumerate(blocks):
            rows = 0
            same = [axis for axis in every if axis.block == block]
            kind, index, tile = same[0].kind, same[0].index, max(axis.tile or 0 for axis in same)
            if (
                kind == "lanes"
                or index in group.schedule.tile
                or (kind == "tile" and tile == ROW_TILE)
            ):
                continue
            met = [each for each in held if block in each]
            beside = _largest(each & {*blocks[:at]} for each in met)
            if block in spread:
                inner = any(name.startswith("TILE") for each in beside for name in each)
                budget, least = ELEMENTS if inner else WIDEST, 1
                tile = min(tile, budget)
            elif kind == "loop":
                tile, least, budget = LOOP_TILE, LEAST_TILE, LOOP_TILE
                if any(self._widest(found, each) * LEAST_TILE > MOST_LANES for each in beside):
                    least = 1  # `MOST_LANES` beside the others, which a launch knows
            else:
                tile, least, budget = TILE, LEAST_TILE, ELEMENTS
                rows = NARROW_TILE if any(each & spread for each in met) else 0
            for role in found:
                if any(axis.block == block and axis.kind == kind for axis in role.axes.values()):
                    sized = replace(role.axes[index], tile=tile, least=least, rows=rows)
                    role.axes[index] = replace(sized, budget=budget, beside=beside)
        return tuple(found)

    def _widest(self, found: list[Role], blocks: Iterable[str]) -> int:
        """How many lanes some blocks have together at most."""
        every = {axis.block: axis for role in found for axis in role.axes.values()}
        axes = [every[block] for block in blocks]
        ends = [axis.tile or max(self.proved.ends[axis.index][1], 1) for axis in axes]
        return math.prod(1 << (end - 1).bit_length() for end in ends)

    def _spread(self, axis: Axis) -> bool:
        """Whether an axis has the values of a static index, some of them in each program."""
        return axis.kind == "tile" and self.proved.group.static_extent(axis.index)

    def _program_axes(self, at: int) -> Axes:
        """The indices that a store's programs are laid over.

        Run-time ones, the one that chooses from a list, and outer static ones while a program would have
        more than `WIDEST` elements; none that a reduction or scan of the store runs over, and none along
        which a program may read what another stores.
        """
        group, store = self.proved.group, self.proved.group.stores[at]
        every = [index for index in group.extents if index in store.axes]
        free = [i for i in every if i in self.proved.laid.over[at] - bound(group, store)]
        if group.schedule.program is not None:
            return frozenset(index for index in free if index in group.schedule.program)
        chosen = self._choosers(store)
        axes = [i for i in free if i in chosen or not group.static_extent(i)]
        tiled = len(axes) > 1 and axes[-1] == free[-1] and not group.static_extent(free[-1])
        inner = [index for index in every if index not in axes]
        elements = (TILE if tiled else 1) * math.prod(self._lanes(index) for index in inner)
        for index in inner:
            if index in free and elements > WIDEST and (tiled or index != every[-1]):
                axes.append(index)
                elements //= self._lanes(index)
        return frozenset(axes)

    def _lanes(self, index: str) -> int:
        return 1 << max(self.proved.ends[index][1] - 1, 0).bit_length()

    def _choosers(self, store: Store) -> Axes:
        """The indices that choose a tensor of a list."""
        lists = self.proved.lengths
        found = set(store.items[0].axes) if store.tensor in lists else set()
        for root in store.values:
            for each in walk(root, self.proved.group.lets):
                if isinstance(each, Load) and each.tensor in lists:
                    found |= each.items[0].axes
        return frozenset(found)

    def _role(self, key: Axes, stores: list[Store], once: list[Store]) -> Role:
        group, both = self.proved.group, [*stores, *once]
        involved = {i for store in both for i in (*store.axes, *bound(group, store))}
        ordered = [index for index in group.extents if index in involved]
        program = [index for index in ordered if index in key]
        inner = [index for index in ordered if index not in key]
        free = [index for index in ordered if any(index in store.axes for store in both)]
        last = free[-1] if free else ""
        wide = last in program and not group.static_extent(last)
        tiled = last if wide and (len(program) > 1 or not inner) else None
        chosen = frozenset[str]().union(*map(self._choosers, both))
        spread = {i for i in program if group.static_extent(i)} - chosen
        if group.schedule.program is not None or combines_many(
            self.proved, Role(tuple(stores), tuple(once), {})
        ):
            spread = set()
        axes: dict[str, Axis] = {}
        for index in ordered:
            asked = group.schedule.tile.get(index)
            if index in program:
                usual = (TILE if len(program) > 1 else ROW_TILE) if index == tiled else 1
                if index in spread:
                    usual = self._lanes(index)
                tile = asked if asked is not None else usual
                axes[index] = Axis(index, "row" if tile == 1 else "tile", tile)
            elif group.static_extent(index):
                axes[index] = Axis(index, "lanes", None)
            else:
                axes[index] = Axis(index, "loop", asked or LOOP_TILE)
        return Role(tuple(stores), tuple(once), axes)


def _check_lanes(group: Group, role: Role, report: Report) -> None:
    """Tiles that together are more lanes than a program may have."""
    for blocks in _largest(_held(group, role)):
        axes = [axis for axis in role.axes.values() if axis.block in blocks]
        asked = [axis.index for axis in axes if axis.index in group.schedule.tile]
        lanes = math.prod(axis.least or axis.tile or 1 for axis in axes)
        if asked and lanes > MOST_LANES:
            report.add(
                "bad-schedule",
                group.schedule.spans[f"tile.{asked[-1]}"],
                f"with the tiles of {listed(asked)} a program has {lanes} lanes at once, and Triton takes "
                "2**20 at most",
                "make them smaller, or leave one out",
            )
            return


def _check_schedule(group: Group, found: tuple[Role, ...], report: Report) -> None:
    """What a schedule asks for in vain."""
    kinds = {(axis.index, axis.kind) for role in found for axis in role.axes.values()}
    for index in group.schedule.tile:
        if not {(index, "row"), (index, "tile"), (index, "loop")} & kinds:
            lanes = (index, "lanes") in kinds
            report.add(
                "bad-schedule",
                group.schedule.spans[f"tile.{index}"],
                f"a tile of `{index}` has no effect: "
                + ("each program has all of its values" if lanes else "no store runs over it"),
                "leave it out",
            )
    for index in group.schedule.program or ():
        if not {(index, "row"), (index, "tile")} & kinds:
            report.add(
                "bad-schedule",
                group.schedule.spans[f"program.{index}"],
                f"no programs can be laid over `{index}`",
                "a store's programs are laid over indices that its place varies with, that no reduction or "
                "scan of it runs over, and along which nothing is read that another program stores",
            )


def scanned_by(group: Group, store: Store) -> Axes:
    """The indices that scans in a store run along, but those within a reduction over the same index."""
    every = walk_bound(store.values, group.lets)
    return frozenset(
        v.index for v, inside in every if isinstance(v, Scan) and v.index not in inside
    )


def _check_loops(proved: Proved, role: Role, report: Report) -> None:
    """What a loop stores to must not be read in a later turn, nor in another loop.

    A turn may read the places that it stores to itself; and what a reduction reads, all of it before the
    only loop of a store.
    """
    group = proved.group
    for read in proved.laid.reads:
        stored, reader = group.stores[read.stored], group.stores[read.reader]
        loops = role.loops(group, stored)
        if not loops or stored not in (*role.stores, *role.once):
            continue
        own = role.loops(group, reader) == loops and not set(loops) - read.shared
        early = len(loops) == 1 if own else not role.loops(group, reader)
        if (own and not read.bound & set(loops)) or early:
            continue
        report.add(
            "race",
            stored.span,
            f"`{stored.tensor}` is read and stored to in a loop over `{loops[0]}`: a later turn would "
            "read what an earlier one stored",
            f"make `{loops[0]}` a static size, or store to another tensor",
            ((read.load.span, "the read"),),
        )
        return


def _check_scans(group: Group, store: Store, role: Role, report: Report) -> None:
    """A running total over a loop can't be kept through the turns of a loop inside it."""
    loops = {index for index, axis in role.axes.items() if axis.kind == "loop"}
    scanned = scanned_by(group, store)
    one, *others = [index for index in role.axes if index in scanned & loops] or [""]
    if others:
        report.add(
            "scan-in-loop",
            store.value_span,
            f"one scan runs along `{one}` and another along `{others[0]}`; both are loops here, and one of "
            "them is inside the other",
            f"make `{one}` or `{others[0]}` a static size",
        )
        return
    for root in store.values:
        for outer in walk(root, group.lets):
            if not isinstance(outer, Reduce) or outer.index not in loops:
                continue
            for inner in walk(outer.arg, group.lets):
                if isinstance(inner, Scan) and inner.index in outer.axes & loops:
                    report.add(
                        "scan-in-loop",
                        store.value_span,
                        f"`{inner.kind}[{inner.index}]` runs inside `{outer.kind}[{outer.index}]`, and "
                        f"`{inner.index}` goes on outside of it; both are loops here",
                        f"make `{inner.index}` or `{outer.index}` a static size",
                    )
                    return
