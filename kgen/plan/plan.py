"""From a checked group to a plan: which programs there are, and what each computes.

In: a typed group. Out: a `Plan`, whose fields are what the Triton emitter prints; or diagnostics.

A *role* is a set of stores that one kind of program does. The run-time indices of a store are its
program axes; static indices are lanes of a program; an index that a reduction or scan runs over is
lanes if static, a loop if not. Stores with the same program axes share a role. No role reads what
another one stores: such roles become one, over the program axes that they share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from kgen.analysis.bounds import Bounds
from kgen.analysis.places import (
    Algebra,
    Undefined,
    bound_indices,
    check_places,
    check_races,
    loads_of,
)
from kgen.analysis.prove import Proof
from kgen.analysis.ranges import Ranges, check_ranges
from kgen.diagnostics import Report
from kgen.lang.typed import Given, Group, Let, Load, Param, Reduce, Scan, Store, Value, walk

TILE = 1024  # elements of a wide tile: 8 for each of the 128 threads of 4 warps
LOOP_TILE = 4096  # of one turn of a loop: few turns, since each waits for its loads
WIDEST = 2048  # elements of a program; outer static indices are spread over programs beyond it
ROW_TILE = 128  # rows of a program whose rows have no inner axis

Kind = Literal["row", "tile", "lanes", "loop"]


@dataclass(frozen=True, slots=True)
class Axis:
    """How a role covers an index.

    `row`: one value a program; `tile`: a block of values a program; `lanes`: all values in each
    program; `loop`: all values in each program, a block at a time.
    """

    index: str
    kind: Kind
    tile: int | None

    @property
    def block(self) -> str:
        """The kernel's compile-time name for how many lanes the axis has."""
        return f"{'LANES' if self.kind == 'lanes' else 'TILE'}_{self.index}"


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of program: its stores and how it covers each index that they involve.

    `once` says that its stores do not vary with the program, so that the first program does them.
    """

    stores: tuple[Store, ...]
    once: tuple[Store, ...]
    axes: dict[str, Axis]
    reads: frozenset[str]
    writes: frozenset[str]

    @property
    def program(self) -> tuple[Axis, ...]:
        """The axes that programs are laid over, the last one fastest."""
        return tuple(axis for axis in self.axes.values() if axis.kind in ("row", "tile"))

    @property
    def shared(self) -> frozenset[str]:
        """Tensors read and written: all loads must come before the stores."""
        return self.reads & self.writes


@dataclass(frozen=True, slots=True)
class Plan:
    """A group and how it runs. `lets` and the stores have their cheap quotients marked.

    `proofs`: why each load and store is inside its tensor, once that is shown.
    """

    group: Group
    roles: tuple[Role, ...]
    lets: dict[str, Let]
    undefined: tuple[Undefined, ...]
    warps: int
    size_names: tuple[str, ...]
    scalar_names: tuple[str, ...]
    static_names: tuple[str, ...]
    given: tuple[str, ...]
    proofs: tuple[Proof, ...] = ()

    @property
    def blocks(self) -> dict[str, Axis]:
        """Each compile-time block size of the kernel, with an axis that it belongs to."""
        found: dict[str, Axis] = {}
        for role in self.roles:
            for axis in role.axes.values():
                if axis.kind != "row":
                    found.setdefault(axis.block, axis)
        return dict(sorted(found.items()))


def make_plan(group: Group, report: Report) -> Plan | None:
    """The plan of a group; None after reporting what cannot be run safely."""
    before = len(report.diagnostics)
    check_ranges(group, report)
    undefined = check_places(group, report)
    if len(report.diagnostics) > before:
        return None
    ranges = Ranges(group)
    ranges.inside = Bounds(Algebra(group, Ranges(group), strict=True)).inside
    lets = {name: replace(let, value=ranges.mark(let.value)) for name, let in group.lets.items()}
    stores = [
        replace(
            store,
            items=tuple(ranges.mark(item) for item in store.items),
            value=ranges.mark(store.value),
            when=store.when and ranges.mark(store.when),
            safe=ranges.inside(Load(store.tensor, store.items, store.value.dtype, store.axes)),
        )
        for store in group.stores
    ]
    extents = {index: ranges.mark(value) for index, value in group.extents.items()}
    group = replace(group, extents=extents)
    roles = _roles(replace(group, lets=lets), stores, report)
    _check_schedule(group, roles, report)
    every = tuple(store for role in roles for store in (*role.stores, *role.once))
    for role in roles:
        programs = frozenset(axis.index for axis in role.program)
        for store in (*role.stores, *role.once):
            check_races(group, store, programs, every, report)
    if len(report.diagnostics) > before:
        return None
    values = [
        each
        for role in roles
        for store in (*role.stores, *role.once)
        for root in _roots(store)
        for each in walk(root, lets)
    ]
    used = {each.name for each in values if isinstance(each, Param)}
    for role in roles:
        for axis in role.axes.values():
            used |= {
                each.name for each in walk(group.extents[axis.index], {}) if isinstance(each, Param)
            }
    statics = group.static_names
    return Plan(
        group=group,
        roles=roles,
        lets=lets,
        undefined=undefined,
        warps=group.warps or max(_warps(group, role) for role in roles),
        size_names=tuple(n for n, s in group.sizes.items() if n in used and not s.static),
        scalar_names=tuple(n for n, s in group.scalars.items() if n in used and not s.static),
        static_names=tuple(name for name in statics if name in used),
        given=tuple(sorted({v.tensor for v in values if isinstance(v, Given)})),
    )


def _check_schedule(group: Group, roles: tuple[Role, ...], report: Report) -> None:
    """What a schedule asks for in vain."""
    kinds = {(axis.index, axis.kind) for role in roles for axis in role.axes.values()}
    for index in group.tile:
        if not {(index, "row"), (index, "tile"), (index, "loop")} & kinds:
            lanes = (index, "lanes") in kinds
            report.add(
                "bad-schedule",
                group.scheduled[f"tile.{index}"],
                f"a tile of `{index}` has no effect: "
                + ("each program has all of its values" if lanes else "no store runs over it"),
                "leave it out",
            )
    for index in group.program or ():
        if not {(index, "row"), (index, "tile")} & kinds:
            report.add(
                "bad-schedule",
                group.scheduled[f"program.{index}"],
                f"no programs can be laid over `{index}`",
                "a store's programs are laid over indices that its place varies with, and that no "
                "reduction or scan of it runs over",
            )


def _roots(store: Store) -> tuple[Value, ...]:
    return (*store.items, store.value, *((store.when,) if store.when is not None else ()))


def _roles(group: Group, stores: list[Store], report: Report) -> tuple[Role, ...]:
    keyed: list[tuple[frozenset[str], list[Store]]] = []
    for store in stores:
        _place(keyed, _program_axes(group, store), [store])
    merged = True
    while merged:
        merged = False
        for a in keyed:
            for b in keyed:
                if a is not b and _conflict(group, a[1], b[1]):
                    keyed.remove(a)
                    keyed.remove(b)
                    _place(keyed, a[0] & b[0], [*a[1], *b[1]])
                    merged = True
                    break
            if merged:
                break
    # Stores that vary with no program are done by the first program of a role that has one for sure.
    once = next((s for key, s in keyed if not key), [])
    keyed = [(key, s) for key, s in keyed if key]
    roles = []
    alone = {i for store in once for root in _roots(store) for i in bound_indices(group, root)}
    alone |= {index for store in once for index in store.axes}
    for key, members in keyed:
        if once and _launched(group, key) and not alone & key:
            roles.append(_role(group, key, members, once, report))
            once = []
        else:
            roles.append(_role(group, key, members, [], report))
    if once:
        roles.append(_role(group, frozenset(), once, [], report))
    return tuple(roles)


def _program_axes(group: Group, store: Store) -> frozenset[str]:
    """The indices that a store's programs are laid over.

    Run-time ones, the one that chooses from a list, and outer static ones while a program would have
    more than `WIDEST` elements; none that a reduction or scan of the store runs over.
    """
    bound = {i for root in _roots(store) for i in bound_indices(group, root)}
    every = [index for index in group.extents if index in store.axes]
    free = [index for index in every if index not in bound]
    if group.program is not None:
        return frozenset(index for index in free if index in group.program)
    chosen = _choosers(group, store)
    axes = [i for i in free if i in chosen or not group.static_extent(i)]
    tiled = len(axes) > 1 and axes[-1] == free[-1] and not group.static_extent(free[-1])
    elements = TILE if tiled else 1
    inner = [index for index in free if index not in axes]
    for index in every:
        if index in axes:
            continue
        elements *= _lanes(Ranges(group).of(group.extents[index])[1])
    for index in inner:
        if elements > WIDEST and (tiled or index != every[-1]):
            axes.append(index)
            elements //= _lanes(Ranges(group).of(group.extents[index])[1])
    return frozenset(axes)


def _lanes(extent: float) -> int:
    return 1 << max(int(extent) - 1, 0).bit_length()


def _choosers(group: Group, store: Store) -> set[str]:
    """The indices that choose a tensor of a list."""
    lists = {name for name, tensor in group.tensors.items() if tensor.length is not None}
    found = set(store.items[0].axes) if store.tensor in lists else set()
    for root in _roots(store):
        for each in walk(root, group.lets):
            if isinstance(each, Load) and each.tensor in lists:
                found |= each.items[0].axes
    return found


def _place(
    keyed: list[tuple[frozenset[str], list[Store]]], key: frozenset[str], stores: list[Store]
) -> None:
    for known, members in keyed:
        if known == key:
            members.extend(stores)
            return
    keyed.append((key, stores))


def _reads(group: Group, stores: list[Store]) -> frozenset[str]:
    roots = [root for store in stores for root in _roots(store)]
    return frozenset().union(*(loads_of(group, root) for root in roots)) if roots else frozenset()


def _conflict(group: Group, a: list[Store], b: list[Store]) -> bool:
    written = ({store.tensor for store in a}, {store.tensor for store in b})
    return bool(written[0] & _reads(group, b) or written[1] & _reads(group, a))


def _launched(group: Group, key: frozenset[str]) -> bool:
    """Whether a role over these axes has a program whenever the group is launched at all."""
    for index in key:
        extent = group.extents[index]
        names = {each.name for each in walk(extent, {}) if isinstance(each, Param)}
        least = Ranges(group).of(extent)[0]
        unlaunched = (
            group.when is not None
            and len(names) == 1
            and Ranges(group, dict.fromkeys(names, (0, 0))).of(group.when) == (0, 0)
            and isinstance(extent, Param)
        )
        if least < 1 and not unlaunched:
            return False
    return True


def _role(
    group: Group, key: frozenset[str], stores: list[Store], once: list[Store], report: Report
) -> Role:
    involved: set[str] = set()
    for store in (*stores, *once):
        involved |= store.axes
        for root in _roots(store):
            involved |= bound_indices(group, root)
    ordered = [index for index in group.extents if index in involved]
    program = [index for index in ordered if index in key]
    inner = [index for index in ordered if index not in key]
    free = [index for index in ordered if any(index in s.axes for s in (*stores, *once))]
    reads, writes = _reads(group, [*stores, *once]), frozenset(s.tensor for s in (*stores, *once))
    last = free[-1] if free else None
    wide = last in program and last is not None and not group.static_extent(last)
    tiled = last if wide and (len(program) > 1 or not inner) else None
    axes: dict[str, Axis] = {}
    for index in ordered:
        asked = group.tile.get(index)
        if index in program:
            if asked is not None:
                tile: int | None = asked
            elif index == tiled:
                tile = TILE if len(program) > 1 else ROW_TILE
            else:
                tile = 1
            axes[index] = Axis(index, "row" if tile == 1 else "tile", tile)
        elif group.static_extent(index):
            axes[index] = Axis(index, "lanes", None)
        else:
            axes[index] = Axis(index, "loop", asked or LOOP_TILE)
    _narrow(group, [*stores, *once], axes)
    for store in (*stores, *once):
        for root in _roots(store):
            _check_scans(group, root, store, axes, report)
    role = Role(tuple(stores), tuple(once), axes, reads, writes)
    _check_loops(role, report)
    return role


def _elements(group: Group, stores: list[Store], axes: dict[str, Axis]) -> int:
    """Lanes of the widest block of a role; a static axis that may be large counts as 64."""

    def lanes(index: str) -> int:
        axis = axes[index]
        if axis.kind == "lanes":
            return min(_lanes(Ranges(group).of(group.extents[index])[1]), 64)
        return axis.tile or 1

    widest = 1
    for store in stores:
        free = math.prod(lanes(index) for index in store.axes)
        bound = {i for root in _roots(store) for i in bound_indices(group, root)} - store.axes
        looped = [index for index in bound if axes[index].kind == "loop"]
        widest = max(widest, free * math.prod(lanes(index) for index in looped))
    return widest


def _narrow(group: Group, stores: list[Store], axes: dict[str, Axis]) -> None:
    """Halve the widest tiles that nobody asked for until the blocks are small enough."""
    free = {i for i, a in axes.items() if a.tile is not None and a.tile > 1 and i not in group.tile}
    while _elements(group, stores, axes) > 2 * LOOP_TILE:
        wide = [axes[index] for index in free if (axes[index].tile or 0) > 1]
        if not wide:
            return
        widest = max(wide, key=lambda axis: (axis.tile or 0, axis.index))
        axes[widest.index] = replace(widest, tile=(widest.tile or 2) // 2)


def _check_loops(role: Role, report: Report) -> None:
    """A loop's stores must not reach what a later turn of a loop, or anything else, still reads."""
    for store in role.stores:
        looped = [i for i in store.axes if role.axes[i].kind == "loop"]
        if looped and store.tensor in role.reads:
            report.add(
                "race",
                store.span,
                f"`{store.tensor}` is read and stored to in a loop over `{looped[0]}`: a later turn "
                "would read what an earlier one stored",
                f"make `{looped[0]}` a static size, or store to another tensor",
            )


def _check_scans(
    group: Group, root: Value, store: Store, axes: dict[str, Axis], report: Report
) -> None:
    """A running total over a loop can't be kept through the turns of a loop inside it."""
    loops = {index for index, axis in axes.items() if axis.kind == "loop"}
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


def _warps(group: Group, role: Role) -> int:
    elements = _elements(group, [*role.stores, *role.once], role.axes)
    return 8 if elements >= 4096 else 4 if elements >= 1024 else 2 if elements >= 512 else 1
