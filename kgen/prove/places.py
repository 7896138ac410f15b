"""Which places of a tensor a group stores to: each once, all of them, and read by nobody else.

In: a group's reading. Out: diagnostics (`collision`, `partly-stored`, `race`); for each store the indices
that programs may be laid over, and the places whose contents are undefined because their owner may repeat.
What polynomials can't show is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.diagnostics import Report, listed
from kgen.lang.text import spec_text
from kgen.lang.typed import (
    NO_AXES,
    Axes,
    Cast,
    Group,
    Load,
    Op,
    Ref,
    Store,
    Tensor,
    Value,
    children,
    walk_bound,
)
from kgen.prove.atoms import (
    ONE,
    ZERO,
    Monomial,
    Poly,
    add,
    const,
    equal,
    multiply,
    negated,
)
from kgen.prove.contexts import Exists, guards_of
from kgen.prove.counterexamples import clashes
from kgen.prove.numbers import Facts
from kgen.prove.reading import Reading


@dataclass(frozen=True, slots=True)
class Undefined:
    """What several points may own: a store's place as the spec writes it, where `load` is `repeats`."""

    target: str
    load: Load
    repeats: Value


@dataclass(slots=True)
class Places:
    """What the places of one group tell."""

    reading: Reading

    @property
    def group(self) -> Group:
        """The group."""
        return self.reading.group

    # One store.

    def facts(self, store: Store) -> Facts:
        """What holds wherever a store is done."""
        guards = guards_of(self.group, store, inside=True)
        conditions = [self.reading.holds(guard) for guard in guards]
        conditions += self.reading.declared(
            tuple(c for c, _ in guards if not isinstance(c, Exists))
        )
        conditions += [self.reading.last(index) for index in sorted(store.axes)]
        return self.reading.numbers.facts((condition, None) for condition in conditions)

    def determined(self, items: tuple[Poly, ...], facts: Facts | None = None) -> Axes:
        """The indices that a place gives away, where some facts hold."""
        known, grown = NO_AXES, True
        while grown:
            grown = False
            for poly in items:
                new = self._solved(poly, known, facts) - known
                if new:
                    known, grown = known | new, True
        return known

    def _solved(self, poly: Poly, known: Axes, facts: Facts | None) -> Axes:
        """The indices that follow from a number, others being known."""
        numbers = self.reading.numbers
        open_ = {m: c for m, c in poly.items() if numbers.axes({m: c}) - known}
        if not open_:
            return NO_AXES
        if len(open_) == 1 and {1, -1} & set(open_.values()):
            (only,) = open_
            given = self._given_away(only[0], known, facts) if len(only) == 1 else NO_AXES
            if given:
                return given
        for unit in self._units(open_, known):
            # unit * whole + rest: both follow where the rest is less than a unit and nothing wraps around.
            one = dict((unit,))
            whole = {m: q for m, c in open_.items() if (q := _divided(m, c, unit)) is not None}
            whole = {_without(m, unit[0]): q for m, q in whole.items()}
            low, high = numbers.interval(multiply(whole, one))
            fits = high - low + numbers.interval(one)[1] <= 2**64
            rest = add(open_, multiply(whole, one), -1)
            if whole and fits and self._within(rest, poly, ZERO, add(one, ONE, -1), facts):
                return self._solved(whole, known, facts) | self._solved(rest, known, facts)
        for monomial, coefficient in open_.items():
            atom = numbers.atoms[monomial[0]]
            running = atom.kind in ("prefix", "cumsum") and len(monomial) == coefficient == 1
            index = numbers.axes(atom.parts[1]) if running else NO_AXES
            if running and atom.axes - known == index:
                # Of each value its own numbers: so many as is added to the sum there.
                rest, own = add(open_, {monomial: 1}, -1), add(atom.parts[0], ONE, -1)
                ends = (ZERO, own) if atom.kind == "prefix" else (negated(own), ZERO)
                if self._within(rest, poly, *ends, facts):
                    return index
        return NO_AXES

    def _units(self, open_: Poly, known: Axes) -> list[tuple[Monomial, int]]:
        """What parts of a number may be multiples of: what its terms have beside what varies."""
        atoms = self.reading.numbers.atoms
        same = [
            (tuple(a for a in m if not atoms[a].axes - known), abs(c)) for m, c in open_.items()
        ]
        return [unit for unit in dict.fromkeys(same) if unit != ((), 1)]

    def _within(self, rest: Poly, place: Poly, low: Poly, high: Poly, facts: Facts | None) -> bool:
        """Whether a part of a place is between two numbers, but for an offset that is always the same."""
        numbers = self.reading.numbers
        for offset in dict.fromkeys((0, place.get((), 0), -numbers.least(rest))):
            moved = add(rest, const(offset))
            sides = (add(moved, low, -1), add(high, moved, -1))
            if all(numbers.shows(side, facts) is not None for side in sides):
                return True
        return False

    def _given_away(self, at: int, known: Axes, facts: Facts | None) -> Axes:
        """The indices that follow from an index, or from an element of a tensor that is `distinct`."""
        atom = self.reading.numbers.atoms[at]
        if atom.kind == "index":
            return atom.axes
        if atom.kind == "element" and self.group.tensors[str(atom.what)].distinct:
            there = self.determined(atom.items, facts)
            return atom.axes if atom.axes - known <= there else NO_AXES
        return NO_AXES

    def _width(self, poly: Poly) -> Poly | None:
        """How many numbers indices in mixed radix make, `r * Q + j` with j < Q; None: not of that form."""
        numbers, factors = self.reading.numbers, dict[int, Poly]()
        for monomial, coefficient in poly.items():
            varying = [at for at in monomial if numbers.atoms[at].axes]
            if varying:
                if len(varying) > 1 or numbers.atoms[varying[0]].kind != "index":
                    return None
                factor = factors.get(varying[0], ZERO)
                rest = _without(monomial, (varying[0],))
                factors[varying[0]] = add(factor, {rest: coefficient})
        width = ONE
        while factors:
            at = next((at for at, factor in factors.items() if factor == width), None)
            if at is None:
                return None
            del factors[at]
            width = multiply(width, self.reading.extent(str(numbers.atoms[at].what)))
        return width

    def covers(self, store: Store) -> list[tuple[Poly, Poly]] | None:
        """For each dimension the half-open range of places that an unconditional store fills."""
        if store.when is not None:
            return None
        numbers, used = self.reading.numbers, NO_AXES
        spans: list[tuple[Poly, Poly]] = []
        for item in store.items:
            poly = self.reading.place(item)
            axes = numbers.axes(poly)
            width = self._width(poly)
            if axes & used or width is None:
                return None
            used |= axes
            start = {m: c for m, c in poly.items() if not numbers.axes({m: c})}
            spans.append((start, add(start, width)))
        return spans

    def apart(self, a: Store, b: Store) -> bool:
        """Whether no place of one store is a place of the other."""
        for x, y in zip(a.items, b.items, strict=True):
            # The indices of one store are not those of the other, whatever their names.
            one, two = self.reading.poly(x), self.reading.poly(y)
            for low, high in ((one, two), (two, one)):
                gap = add(self._end(high, upper=False), self._end(low, upper=True), -1)
                if self.reading.numbers.shows(add(gap, ONE, -1)) is not None:
                    return True
        return False

    def _end(self, poly: Poly, *, upper: bool) -> Poly:
        """A bound on a polynomial that varies with no index."""
        numbers, total = self.reading.numbers, ZERO
        for monomial, coefficient in poly.items():
            part = {monomial: coefficient}
            atom = numbers.atoms[monomial[0]] if len(monomial) == 1 else None
            if not numbers.axes(part):
                total = add(total, part)
            elif atom is not None and atom.kind == "index":
                if (coefficient > 0) == upper:
                    total = add(total, multiply(atom.highs[0], const(coefficient)))
            else:
                total = add(total, const(numbers.interval(part)[upper]))
        return total

    # What is read of what is written.

    def shared(self, store: Store, load: Load) -> Axes:
        """The indices in whose values a point that stores and one that reads the same element agree."""
        pairs = zip(
            map(self.reading.place, store.items), map(self.reading.place, load.items), strict=True
        )
        return self.determined(tuple(one for one, other in pairs if one == other))


@dataclass(frozen=True, slots=True)
class Read:
    """That a store's values read what another store of the group stores, or it itself.

    `stored`, `reader`: the numbers of the two stores. `shared`: the indices in whose values the point that
    stores an element and the one that reads it agree; `bound`: those that a reduction around the load runs
    over, whose values a reader has none of.
    """

    stored: int
    reader: int
    load: Load
    shared: Axes
    bound: Axes


@dataclass(frozen=True, slots=True)
class Laid:
    """`over`: for each store of a group the indices that programs may be laid over, as far as reads go."""

    over: tuple[Axes, ...]
    reads: tuple[Read, ...]


def check_places(reading: Reading, report: Report) -> tuple[Undefined, ...]:
    """Report collisions and gaps; return the places that several rows may own."""
    places, group = Places(reading), reading.group
    undefined: list[Undefined] = []
    for number, store in enumerate(group.stores):
        known = places.determined(tuple(map(reading.place, store.items)), places.facts(store))
        missing = sorted(store.axes - known - store.decided)
        if missing and not store.trusted:
            report.add(
                "collision",
                store.span,
                f"`{store.target_text}` may be one place for several values of " + listed(missing),
                "store at an index that only they have; if a tensor gives the place, declare it "
                "`distinct`; or say who wins (`collide: first k`), or why it can't happen (`trusted: "
                "reason`)",
                example=clashes.meeting(group, store, store),
            )
        undefined += _undefined(places, store)
        for other in group.stores[:number]:
            if store.trusted and other.trusted:
                continue
            if other.tensor == store.tensor and not places.apart(other, store):
                report.add(
                    "collision",
                    store.span,
                    f"`{store.target_text}` and `{other.target_text}` may be one place",
                    "one store for each place: join them with `a if condition else b`",
                    ((other.span, "the other store"),),
                    clashes.meeting(group, other, store),
                )
    for tensor in group.tensors.values():
        if tensor.mode == "out":
            _check_covered(places, tensor, report)
    return tuple(dict.fromkeys(undefined))


def _undefined(places: Places, store: Store) -> list[Undefined]:
    """The places of a store that its points with a repeated owner share, where they store at all."""
    reading, group, found = places.reading, places.group, list[Undefined]()
    numbers, items = reading.numbers, tuple(map(reading.place, store.items))
    for dim, item in enumerate(store.items):
        load = _owner(group, item)
        # Owners that the other dimensions tell apart share nothing.
        if load is not None and load.axes - places.determined(items[:dim] + items[dim + 1 :]):
            repeats = group.tensors[load.tensor].repeats
            assert repeats is not None
            known = [(reading.holds(guard), None) for guard in guards_of(group, store, inside=True)]
            repeated = equal(reading.poly(load), reading.poly(repeats))
            if numbers.shows(const(-1), numbers.facts([*known, (repeated, None)])) is None:
                found.append(Undefined(store.target_text, load, repeats))
    return found


def _owner(group: Group, value: Value) -> Load | None:
    """The element that gives a place and may repeat, if there is one."""
    match value:
        case Ref(name):
            return _owner(group, group.lets[name].value)
        case Load(name) if group.tensors[name].distinct and group.tensors[name].repeats is not None:
            return value
        case Load() | Op() | Cast():
            return next((o for child in children(value) if (o := _owner(group, child))), None)
    return None


def _check_covered(places: Places, tensor: Tensor, report: Report) -> None:
    reading, group = places.reading, places.group
    stores = [store for store in group.stores if store.tensor == tensor.name]
    if not stores:
        return
    dims = [reading.place(dim) for dim in tensor.shape]
    filled = [spans for store in stores if (spans := places.covers(store)) is not None]
    left = ""
    for along in range(len(dims)):
        whole = [
            spans
            for spans in filled
            if all(spans[dim] == (ZERO, dims[dim]) for dim in range(len(dims)) if dim != along)
        ]
        reached: Poly = ZERO
        for _ in whole:
            reached = next((s[along][1] for s in whole if s[along][0] == reached), reached)
        if reached == dims[along]:
            return
        if whole:
            where = f" in dimension {along}" if len(dims) > 1 else ""
            shown = _text(reading, reached)
            left = (
                f"they fill the first {shown} of {spec_text(tensor.shape[along])} places{where}"
                if reached
                else f"nothing is stored at place 0{where}"
            )
    guarded = [store for store in stores if store.when is not None]
    if not left and guarded:
        left = f"`{guarded[0].target_text}` is stored only where its condition holds"
    elif not left and not filled:
        left = f"kgen can't read off which places `{stores[0].target_text}` goes through"
    report.add(
        "partly-stored",
        tensor.span,
        f"the stores to the `out` tensor `{tensor.name}` are not shown to fill it: "
        + (left or "each leaves a part of more than one dimension"),
        f"store at every index of {tensor.text}, without `when`; or declare it with mode: inout "
        "if the rest shall keep what it held",
        tuple((store.span, "a store") for store in stores),
        clashes.gap(group, tensor),
    )


def _divided(monomial: Monomial, coefficient: int, unit: tuple[Monomial, int]) -> int | None:
    """How often a term is a multiple of another one, apart from what varies; None if it is none."""
    factors, number = unit
    fits = all(monomial.count(at) >= factors.count(at) for at in factors)
    return coefficient // number if fits and coefficient % number == 0 else None


def _without(monomial: Monomial, factors: Monomial) -> Monomial:
    left = list(monomial)
    for at in factors:
        left.remove(at)
    return tuple(left)


def _text(reading: Reading, poly: Poly) -> str:
    """A polynomial over sizes in the language of the specs."""
    names = {at: str(atom.what) for at, atom in enumerate(reading.numbers.atoms)}
    terms = sorted(
        ((tuple(sorted(names[at] for at in m)), c) for m, c in poly.items()),
        key=lambda each: (-len(each[0]), each[0]),
    )
    text = ""
    for factors, coefficient in terms:
        number = [str(abs(coefficient))] if abs(coefficient) != 1 or not factors else []
        sign = (" - " if text else "-") if coefficient < 0 else (" + " if text else "")
        text += sign + " * ".join([*number, *factors])
    return text or "0"


# What is read of what is written.


def check_races(reading: Reading, report: Report) -> Laid:
    """Report places that one program stores to and another may read: no order holds between them.

    Programs may be laid over an index only if what a point reads of a written tensor was stored by a point
    of the same value of it. A run-time index that they can't be laid over is a loop, whose turns must not
    read what an earlier one has stored; a static one is lanes, all of whose values one program has.
    """
    group, places = reading.group, Places(reading)
    loads = [_occurrences(group, store) for store in group.stores]
    over = [store.axes for store in group.stores]
    reads: list[Read] = []
    for at, store in enumerate(group.stores):
        before = len(reads)
        for other, found in enumerate(loads):
            for load, bound in found:
                if load.tensor == store.tensor:
                    shared = places.shared(store, load)
                    reads.append(Read(at, other, load, shared, bound))
                    over[at] &= shared - bound
                    over[other] &= shared - bound
        if not any(each.span == store.span for each in report.diagnostics):
            _check_race(group, store, reads[before:], report)
    return Laid(tuple(over), tuple(reads))


def _check_race(group: Group, store: Store, reads: list[Read], report: Report) -> None:
    running = frozenset(i for i in store.axes if not group.static_extent(i))
    for read in reads:
        if not running <= read.shared:
            report.add(
                "race",
                store.span,
                f"`{store.tensor}` is read at another place than `{store.target_text}`: another "
                "program may store there first",
                "read it at the index that it is stored at, or store to another tensor",
                ((read.load.span, "the read"),),
                clashes.race(group, store, running),
            )
            return


def _occurrences(group: Group, store: Store) -> list[tuple[Load, Axes]]:
    """The loads that a store's values are made of, each with the indices that are bound around it."""
    every = walk_bound(store.values, group.lets)
    found = dict.fromkeys((value, bound) for value, bound in every if isinstance(value, Load))
    return sorted(found, key=lambda each: (str(each[0]), sorted(each[1])))
