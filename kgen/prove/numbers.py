"""Whole numbers as polynomials over atoms, and what can be shown of them.

In: what a reader of some form says: names, indices, elements, operators. Out: polynomials and conditions,
each part of them made once; and `shows`: whether a polynomial is never negative where some facts hold, and
which of the facts that takes. Integers of any length, no floats. Sound, not complete; every question has a
bound that is a count. Knows neither specs nor kernels.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kgen.lang.operators import OPERATORS

Monomial: TypeAlias = tuple[int, ...]  # the numbers of its atoms, sorted
Poly: TypeAlias = dict[Monomial, int]  # never changed once it is made
Key: TypeAlias = frozenset[tuple[Monomial, int]]
Interval: TypeAlias = tuple[int, int]
Axes: TypeAlias = frozenset[str]
Tag: TypeAlias = Hashable  # what a fact comes from
Kind: TypeAlias = Literal[
    "name",
    "index",
    "element",
    "min",
    "max",
    "floordiv",
    "mod",
    "choice",
    "truth",
    "first",
    "wrapped",
    "prefix",
    "cumsum",
    "opaque",
]

ZERO: Poly = {}
ONE: Poly = {(): 1}
_STEPS = 800  # of one question
_DEPTH = 20  # of parts replaced one after the other
_CASES = 5  # conditions that are assumed one after the other
_TERMS = 40  # monomials beyond which a polynomial is an atom by itself
_DEGREE = 6  # likewise atoms of a monomial


def const(number: int) -> Poly:
    """A number."""
    return {(): number} if number else ZERO


def add(a: Poly, b: Poly, sign: int = 1) -> Poly:
    """A + sign * b."""
    total = dict(a)
    for monomial, coefficient in b.items():
        number = total.get(monomial, 0) + sign * coefficient
        if number:
            total[monomial] = number
        else:
            total.pop(monomial, None)
    return total


def multiply(a: Poly, b: Poly) -> Poly:
    """A * b."""
    total: Poly = {}
    for x, p in a.items():
        for y, q in b.items():
            monomial = tuple(sorted((*x, *y))) if x and y else x or y
            number = total.get(monomial, 0) + p * q
            if number:
                total[monomial] = number
            else:
                total.pop(monomial, None)
    return total


def negated(a: Poly) -> Poly:
    """-a."""
    return {monomial: -coefficient for monomial, coefficient in a.items()}


def number_of(a: Poly) -> int | None:
    """The number that a polynomial is; None if it has atoms."""
    return a.get((), 0) if all(monomial == () for monomial in a) else None


@dataclass(frozen=True, slots=True)
class Holds:
    """A condition: `poly` is not negative."""

    poly: Key


@dataclass(frozen=True, slots=True)
class Flag:
    """A condition of which nothing is known but what it is."""

    what: Hashable
    axes: Axes = frozenset()


@dataclass(frozen=True, slots=True)
class All:
    """Every one of some conditions; of none of them it is true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """One of some conditions at least; of none of them it is false."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a flag."""

    part: Flag


Condition: TypeAlias = Holds | Flag | All | Some | Not

TRUE, FALSE = All(()), Some(())


def at_least(a: Poly, b: Poly = ZERO) -> Condition:
    """A >= b."""
    gap = add(a, b, -1)
    known = number_of(gap)
    if known is not None:
        return TRUE if known >= 0 else FALSE
    return Holds(frozenset(gap.items()))


def equal(a: Poly, b: Poly) -> Condition:
    """A == b."""
    return both(at_least(a, b), at_least(b, a))


def both(*parts: Condition) -> Condition:
    """All of some conditions."""
    return _joined(All, parts)


def either(*parts: Condition) -> Condition:
    """One of some conditions at least."""
    return _joined(Some, parts)


def _joined(kind: type[All | Some], parts: Iterable[Condition]) -> Condition:
    neutral, decides = (TRUE, FALSE) if kind is All else (FALSE, TRUE)
    found: dict[Condition, None] = {}
    for part in parts:
        if part == decides:
            return decides
        inner = part.parts if isinstance(part, kind) else (part,)
        found |= dict.fromkeys(each for each in inner if each != neutral)
    return next(iter(found)) if len(found) == 1 else kind(tuple(found))


def opposite(condition: Condition) -> Condition:
    """The condition that holds where this one does not."""
    match condition:
        case Holds(poly):
            return at_least(add(negated(dict(poly)), ONE, -1))
        case Flag():
            return Not(condition)
        case Not(part):
            return part
        case All(parts):
            return either(*map(opposite, parts))
        case Some(parts):
            return both(*map(opposite, parts))


@dataclass(slots=True)
class Atom:
    """A part of a polynomial.

    `low`, `high`: its interval. `lows`, `highs`: polynomials that bound it, each of them. `parts`: the
    polynomials that it is made of; of a `prefix` or `cumsum` what is added at each value of an index, which
    is never negative, and that index. `condition`: that of a choice or a truth, of an element that its
    place exists. `rank`: above those of all atoms that bound it or are parts of it. `items`: an element's
    place.
    """

    kind: Kind
    what: Hashable
    low: int
    high: int
    axes: Axes
    rank: int
    lows: tuple[Poly, ...] = ()
    highs: tuple[Poly, ...] = ()
    parts: tuple[Poly, ...] = ()
    condition: Condition = TRUE
    items: tuple[Poly, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """A polynomial that is not negative, and what it is known from."""

    poly: Key
    tag: Tag


@dataclass(slots=True)
class Facts:
    """What holds in one place.

    `flags`: whether each holds, `told` what each is known from. `cases`: of each of which one condition
    holds. `impossible`: from what it follows that nothing is ever there. `depth`: how many conditions are
    assumed beside what is known; from fact number `new` on they are the last one's. `tried`: goals that
    failed, with little effort and with more.
    """

    known: tuple[Fact, ...] = ()
    flags: dict[Flag, bool] = field(default_factory=dict)
    told: dict[Flag, Tag] = field(default_factory=dict)
    cases: tuple[tuple[Some, Tag], ...] = ()
    impossible: frozenset[Tag] | None = None
    depth: int = 0
    tried: tuple[dict[Key, int], dict[Key, int]] = field(default_factory=lambda: ({}, {}))
    shown: dict[Key, frozenset[Tag]] = field(default_factory=dict)
    assumed: dict[Condition, Facts] = field(default_factory=dict)
    new: int = 0


@dataclass(slots=True)
class Numbers:
    """The atoms of one group or kernel. `defined`: what some flags stand for."""

    atoms: list[Atom] = field(default_factory=list)
    known: dict[tuple[object, ...], int] = field(default_factory=dict)
    defined: dict[Flag, Condition] = field(default_factory=dict)
    numbered: dict[Hashable, int] = field(default_factory=dict)
    steps: int = 0
    hard: bool = False

    # Making polynomials.

    def atom(
        self,
        kind: Kind,
        what: Hashable,
        interval: Interval,
        axes: Axes = frozenset(),
        *,
        lows: Iterable[Poly] = (),
        highs: Iterable[Poly] = (),
        parts: tuple[Poly, ...] = (),
        condition: Condition = TRUE,
        items: tuple[Poly, ...] = (),
    ) -> Poly:
        """The atom of this kind and these parts, made once; `what` tells apart those of equal parts."""
        key = (kind, what, condition, *(frozenset(part.items()) for part in (*parts, *items)))
        if key not in self.known:
            low, high = interval
            if low == high and kind != "index":
                return const(low)
            lows, highs = tuple(lows), tuple(highs)
            below = [*lows, *highs, *parts]
            below += _polys(condition) if kind != "element" else ()
            rank = 1 + max((self.rank(poly) for poly in below), default=0)
            self.known[key] = len(self.atoms)
            made = Atom(kind, what, low, high, axes, rank, lows, highs, parts, condition, items)
            self.atoms.append(made)
        return {(self.known[key],): 1}

    def number(self, what: Hashable) -> int:
        """A number that stands for something in keys, so that no key is longer than its parts."""
        return self.numbered.setdefault(what, len(self.numbered))

    def rank(self, poly: Poly) -> int:
        """The highest rank of a polynomial's atoms."""
        return max((self.atoms[atom].rank for monomial in poly for atom in monomial), default=0)

    def axes(self, poly: Poly) -> Axes:
        """The indices that a polynomial varies with."""
        return frozenset().union(*(self.atoms[at].axes for monomial in poly for at in monomial))

    def condition_axes(self, condition: Condition) -> Axes:
        """The indices that a condition varies with."""
        match condition:
            case Holds(poly):
                return self.axes(dict(poly))
            case Flag(_, axes):
                return axes
            case Not(part):
                return part.axes
            case All(parts) | Some(parts):
                return frozenset().union(*map(self.condition_axes, parts))

    def index(self, name: str, extent: Poly) -> Poly:
        """An index, from 0 to its extent less one."""
        last = add(extent, ONE, -1)
        high = max(self.interval(last)[1], 0)
        return self.atom("index", name, (0, high), frozenset((name,)), highs=[last])

    def extreme(self, op: Literal["min", "max"], a: Poly, b: Poly) -> Poly:
        """The smaller or the larger one."""
        for one, other in ((a, b), (b, a)):
            gap = add(one, other, -1) if op == "max" else add(other, one, -1)
            if self.least(gap) >= 0:
                return one
        a, b = sorted((a, b), key=lambda each: sorted(each.items()))
        (low_a, high_a), (low_b, high_b) = self.interval(a), self.interval(b)
        pick = min if op == "min" else max
        ends = (pick(low_a, low_b), pick(high_a, high_b))
        return self.atom(op, "", ends, self.axes(a) | self.axes(b), parts=(a, b))

    def quotient(self, a: Poly, b: Poly) -> Poly:
        """A // b, rounded down; b is not 0."""
        divisor = number_of(b)
        if divisor and all(coefficient % divisor == 0 for coefficient in a.values()):
            return {monomial: coefficient // divisor for monomial, coefficient in a.items()}
        ends = self._operated("floordiv", a, b)
        return self.atom("floordiv", "", ends, self.axes(a) | self.axes(b), parts=(a, b))

    def remainder(self, a: Poly, b: Poly) -> Poly:
        """A % b, with the sign of b."""
        divisor = number_of(b)
        if divisor and all(coefficient % divisor == 0 for coefficient in a.values()):
            return ZERO
        if divisor and divisor > 0 and self.least(a) >= 0 and self.interval(a)[1] < divisor:
            return a
        ends = self._operated("mod", a, b)
        highs: list[Poly] = []
        if self.interval(b)[0] > 0:
            highs = [add(b, ONE, -1), *([a] if self.least(a) >= 0 else [])]
        axes = self.axes(a) | self.axes(b)
        return self.atom(
            "mod", "", ends, axes, lows=[ZERO] * bool(highs), highs=highs, parts=(a, b)
        )

    def _operated(self, op: str, a: Poly, b: Poly) -> Interval:
        row = OPERATORS[op]
        assert row.interval is not None
        return row.interval(self.interval(a), self.interval(b))

    def choice(self, condition: Condition, a: Poly, b: Poly) -> Poly:
        """A where the condition holds, else b."""
        if a == b or condition == TRUE:
            return a
        if condition == FALSE:
            return b
        (low_a, high_a), (low_b, high_b) = self.interval(a), self.interval(b)
        axes = self.axes(a) | self.axes(b) | self.condition_axes(condition)
        ends = (min(low_a, low_b), max(high_a, high_b))
        lows, highs = (self._shared(condition, a, b, sign) for sign in (1, -1))
        return self.atom(
            "choice", "", ends, axes, parts=(a, b), condition=condition, lows=lows, highs=highs
        )

    def _shared(self, condition: Condition, a: Poly, b: Poly, sign: int) -> list[Poly]:
        """The bounds of one branch of a choice that bound the other one, too: from below or from above."""
        found: list[Poly] = []
        sides = ((a, condition), (b, opposite(condition)))
        for poly, (other, where) in zip((a, b), reversed(sides), strict=True):
            ((monomial, number),) = poly.items() if len(poly) == 1 else (((), 0),)
            bounds = [poly]
            if number == 1 and len(monomial) == 1:
                atom = self.atoms[monomial[0]]
                bounds += atom.lows if sign > 0 else atom.highs
            bounds = [each for each in bounds if self._of_names(each)]
            facts = self.facts([(where, None)]) if bounds else Facts()
            for bound in bounds:
                gap = add(other, bound, -1) if sign > 0 else add(bound, other, -1)
                if bound not in found and self.shows(gap, facts, hard=False) is not None:
                    found.append(bound)
        return found

    def _of_names(self, poly: Poly) -> bool:
        """Whether a polynomial is made of sizes and scalars, whose own bounds hold everywhere."""
        made_of = {self.atoms[at].kind for monomial in poly for at in monomial}
        return made_of == {"name"}

    def truth(self, condition: Condition) -> Poly:
        """1 where the condition holds, else 0."""
        if condition in (TRUE, FALSE):
            return ONE if condition == TRUE else ZERO
        return self.atom("truth", "", (0, 1), self.condition_axes(condition), condition=condition)

    def bounded(self, poly: Poly) -> bool:
        """Whether a polynomial is small enough to be worked with."""
        return len(poly) <= _TERMS and all(len(monomial) <= _DEGREE for monomial in poly)

    # Bounds by intervals.

    def interval(self, poly: Poly) -> Interval:
        """The least and the greatest value that the atoms' intervals allow."""
        low = high = 0
        for monomial, coefficient in poly.items():
            a, b = self._product(monomial)
            low += min(coefficient * a, coefficient * b)
            high += max(coefficient * a, coefficient * b)
        return low, high

    def _product(self, monomial: Monomial) -> Interval:
        low = high = 1
        for at in monomial:
            atom = self.atoms[at]
            ends = (low * atom.low, low * atom.high, high * atom.low, high * atom.high)
            low, high = min(ends), max(ends)
        return low, high

    def least(self, poly: Poly) -> int:
        """A lower bound, each index at the end of its range that makes the polynomial smallest."""
        bound = poly
        for monomial, coefficient in poly.items():
            if coefficient < 0 and len(monomial) == 1:
                atom = self.atoms[monomial[0]]
                if atom.kind == "index":
                    bound = add(bound, {monomial: -coefficient})
                    bound = add(bound, atom.highs[0], coefficient)
        return self.interval(bound)[0]

    # Facts.

    def facts(
        self, known: Iterable[tuple[Condition, Tag]], base: Facts | None = None, deeper: int = 0
    ) -> Facts:
        """What some conditions say, each with what it comes from, beside what is known already."""
        start = base or Facts()
        polys = dict.fromkeys(start.known)
        flags, told, cases = dict(start.flags), dict(start.told), dict.fromkeys(start.cases)
        impossible = start.impossible
        todo = list(known)[::-1]
        while todo:
            condition, tag = todo.pop()
            match condition:
                case Holds(poly):
                    polys[Fact(poly, tag)] = None
                case Flag() | Not():
                    value = isinstance(condition, Flag)
                    flag = condition if isinstance(condition, Flag) else condition.part
                    if flag not in flags and flag in self.defined:
                        meant = self.defined[flag]
                        todo.append((meant if value else opposite(meant), tag))
                    known_from = told.setdefault(flag, tag)
                    if flags.setdefault(flag, value) != value:
                        impossible = impossible or frozenset((known_from, tag))
                case All(parts):
                    todo += [(part, tag) for part in reversed(parts)]
                case Some(()):
                    impossible = impossible or frozenset((tag,))
                case Some():
                    cases[condition, tag] = None
        same = len(polys) == len(start.known) and len(cases) == len(start.cases)
        if base is not None and same and flags == start.flags and impossible == start.impossible:
            return base
        found = Facts(tuple(polys), flags, told, tuple(cases), impossible, start.depth + deeper)
        found.new = len(start.known) if deeper else 0
        return found

    # Showing.

    def shows(
        self, goal: Poly, facts: Facts | None = None, *, hard: bool = True
    ) -> frozenset[Tag] | None:
        """The tags of facts from which it follows that `goal` is never negative; None if not shown.

        Not `hard`: without looking into the conditions of choices and at facts that contradict each other.
        """
        facts = facts if facts is not None else Facts()
        if facts.impossible is not None:
            return facts.impossible
        self.steps, self.hard = 0, False
        found = self._show(goal, facts, _DEPTH)
        if found is None and hard:
            self.steps, self.hard = 0, True
            found = self._show(goal, facts, _DEPTH)
            if found is None:
                found = self._contradicted(facts)
            if found is None:
                found = self._by_cases(goal, facts)
        if self.steps > _STEPS:
            for each in facts.tried:
                each.clear()  # another question may have more steps left for them
            facts.assumed.clear()
        return found

    def _contradicted(self, facts: Facts) -> frozenset[Tag] | None:
        """Whether the facts can't hold together, those of the last condition with the others."""
        for fact in facts.known[facts.new :]:
            found = self._show(add(negated(dict(fact.poly)), ONE, -1), facts, _DEPTH // 2)
            if found is not None:
                return found | {fact.tag}
        return None

    def _by_cases(self, goal: Poly, facts: Facts) -> frozenset[Tag] | None:
        """Whether the goal follows in each case of some fact."""
        if facts.depth >= _CASES:
            return None
        for case, tag in facts.cases:
            used: frozenset[Tag] = frozenset((tag,))
            rest = tuple(each for each in facts.cases if each[0] != case)
            base = Facts(facts.known, facts.flags, facts.told, rest, None, facts.depth)
            for part in case.parts:
                inner = self.facts([(part, tag)], base, 1)
                found = inner.impossible
                if found is None:
                    found = self._show(goal, inner, _DEPTH)
                if found is None:
                    found = self._contradicted(inner)
                if found is None:
                    found = self._by_cases(goal, inner)
                if found is None:
                    break
                used |= found
            else:
                return used
        return None

    def _show(self, goal: Poly, facts: Facts, depth: int) -> frozenset[Tag] | None:
        goal = _tightened(goal)
        if self.least(goal) >= 0:
            return frozenset()
        key = frozenset(goal.items())
        if key in facts.shown:
            return facts.shown[key]
        tried = facts.tried[self.hard]
        if depth <= 0 or tried.get(key, -1) >= depth or self.steps > _STEPS:
            return None
        if not self.bounded(goal):
            return None
        self.steps += 1
        tried[key] = depth  # while it is being shown it may not be used
        at = max(
            {atom for monomial in goal for atom in monomial},
            key=lambda each: (self.atoms[each].rank, each),
            default=None,
        )
        if at is None:
            return None
        found = self._without(goal, at, facts, depth - 1)
        if found is not None:
            facts.shown[key] = found
        return found

    def _without(self, goal: Poly, at: int, facts: Facts, depth: int) -> frozenset[Tag] | None:
        """Whether the goal follows once an atom is replaced by what bounds it."""
        split = _split(goal, at)
        if split is None:  # it is squared: one power of it at a time
            return None
        factor, rest = split
        low, high = self.interval(factor)
        atom = self.atoms[at]
        if low < 0 < high:
            low = 0 if self.least(factor) >= 0 else low
            high = 0 if self.least(negated(factor)) >= 0 else high
        if low < 0 < high:
            return self._by_choice(at, factor, rest, facts, depth)
        upper = high <= 0  # whether an upper bound of the atom is wanted
        for bound in self._bounds(atom, upper=upper):
            found = self._show(add(multiply(factor, bound), rest), facts, depth)
            if found is not None:
                return found
        for without in self._divided(atom, factor, rest, upper=upper):
            found = self._show(without, facts, depth)
            if found is not None:
                return found
        for fact in facts.known:
            simpler = _eliminated(factor, rest, dict(fact.poly), at, upper=upper)
            if simpler is not None:
                found = self._show(simpler, facts, depth)
                if found is not None:
                    return found | {fact.tag}
        return self._by_choice(at, factor, rest, facts, depth)

    def _bounds(self, atom: Atom, *, upper: bool) -> Iterable[Poly]:
        """Polynomials that bound an atom, each of them."""
        yield from atom.highs if upper else atom.lows
        if atom.kind == ("min" if upper else "max"):
            yield from atom.parts
        yield const(atom.high if upper else atom.low)

    def _by_choice(
        self, at: int, factor: Poly, rest: Poly, facts: Facts, depth: int
    ) -> frozenset[Tag] | None:
        """Whether the goal follows for each of the values that an atom may be."""
        atom = self.atoms[at]
        values: list[tuple[Condition, Poly]]
        match atom.kind:
            case "choice":
                a, b = atom.parts
                values = [(atom.condition, a), (opposite(atom.condition), b)]
            case "truth":
                values = [(atom.condition, ONE), (opposite(atom.condition), ZERO)]
            case "min" | "max":
                a, b = atom.parts
                order = (at_least(b, a), at_least(a, b))
                values = list(
                    zip(order if atom.kind == "min" else order[::-1], (a, b), strict=True)
                )
            case "first":
                values = [(TRUE, each) for each in (ZERO, *atom.parts)]
            case "wrapped":
                return self._unwrapped(atom, factor, rest, facts, depth)
            case _:
                return None
        goals = [add(multiply(factor, value), rest) for _, value in values]
        found = self._each(goals, facts, depth)
        if found is not None or not self.hard or facts.depth >= _CASES or atom.kind == "first":
            return found
        used: frozenset[Tag] = frozenset()
        for (condition, value), goal in zip(values, goals, strict=True):
            inner = self._assuming(both(condition, equal({(at,): 1}, value)), facts)
            found = inner.impossible
            if found is None:
                found = self._show(goal, inner, depth)
            if found is None:
                found = self._contradicted(inner)
            if found is None:
                return None
            used |= found
        return used - {None}

    def _unwrapped(
        self, atom: Atom, factor: Poly, rest: Poly, facts: Facts, depth: int
    ) -> frozenset[Tag] | None:
        """Whether the goal follows where what may wrap around does not, by the facts."""
        (exact,) = atom.parts
        sides = [add(exact, const(atom.low), -1), add(const(atom.high), exact, -1)]
        fits = self._each(sides, facts, depth)
        found = (
            self._show(add(multiply(factor, exact), rest), facts, depth)
            if fits is not None
            else None
        )
        return found | fits if found is not None and fits is not None else None

    def _assuming(self, condition: Condition, facts: Facts) -> Facts:
        if condition not in facts.assumed:
            facts.assumed[condition] = self.facts([(condition, None)], facts, 1)
        return facts.assumed[condition]

    def _each(self, goals: list[Poly], facts: Facts, depth: int) -> frozenset[Tag] | None:
        used: frozenset[Tag] = frozenset()
        for goal in goals:
            found = self._show(goal, facts, depth)
            if found is None:
                return None
            used |= found
        return used

    def _divided(self, atom: Atom, factor: Poly, rest: Poly, *, upper: bool) -> Iterable[Poly]:
        """The goal `factor * (x // d) + rest` without the quotient."""
        if atom.kind != "floordiv":
            return
        x, d = atom.parts
        if self.interval(d)[0] <= 0:
            return
        slack = add(add(x, d, -1), ONE)  # x - d + 1 <= x // d * d <= x
        whole = _exactly_divided(factor, d)
        if whole is not None:
            yield add(multiply(whole, x if upper else slack), rest)
        if number_of(factor) == 1:  # x // d >= -rest
            yield add(multiply(rest, d), x)
        elif number_of(factor) == -1:  # x // d <= rest
            yield add(add(multiply(add(rest, ONE), d), ONE, -1), x, -1)
        else:
            yield add(multiply(factor, x if upper else slack), multiply(rest, d))


def _polys(condition: Condition) -> Iterable[Poly]:
    match condition:
        case Holds(poly):
            yield dict(poly)
        case All(parts) | Some(parts):
            for part in parts:
                yield from _polys(part)
        case Flag() | Not():
            return


def _split(goal: Poly, at: int) -> tuple[Poly, Poly] | None:
    """`factor` and `rest` of `goal = factor * atom + rest`; None if the atom is in the factor too."""
    factor: Poly = {}
    rest: Poly = {}
    for monomial, coefficient in goal.items():
        if at not in monomial:
            rest[monomial] = coefficient
            continue
        where = monomial.index(at)
        left = monomial[:where] + monomial[where + 1 :]
        if at in left:
            return None
        factor[left] = coefficient
    return factor, rest


def _eliminated(factor: Poly, rest: Poly, fact: Poly, at: int, *, upper: bool) -> Poly | None:
    """The goal without an atom, by a fact `c * atom + other >= 0` with a number c of the right sign."""
    split = _split(fact, at)
    if split is None:
        return None
    number = number_of(split[0])
    if not number or (number < 0) != upper:
        return None
    scaled = {monomial: coefficient * abs(number) for monomial, coefficient in rest.items()}
    part = multiply(factor, split[1])
    return add(scaled, part, 1 if upper else -1)


def _tightened(goal: Poly) -> Poly:
    """A goal divided by what its terms have in common, the number rounded down: all are whole numbers."""
    common = math.gcd(*(number for monomial, number in goal.items() if monomial))
    if common < 2:
        return goal
    divided = {monomial: number // common for monomial, number in goal.items()}
    return {monomial: number for monomial, number in divided.items() if number}


def _exactly_divided(poly: Poly, by: Poly) -> Poly | None:
    """`poly / by` where that is a polynomial again and `by` has one term."""
    if len(by) != 1:
        return None
    ((divisor, number),) = by.items()
    found: Poly = {}
    for monomial, coefficient in poly.items():
        left = list(monomial)
        for at in divisor:
            if at not in left:
                return None
            left.remove(at)
        if coefficient % number:
            return None
        found[tuple(left)] = coefficient // number
    return found
