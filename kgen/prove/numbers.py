"""What follows from facts: whether a polynomial is never negative where some of them hold.

In: polynomials and conditions. Out: which of the facts that takes; None if it is not shown. Sound, not
complete; every question has a bound that is a count. Knows neither specs nor kernels.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from kgen.prove.atoms import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    All,
    Atom,
    Atoms,
    Condition,
    Flag,
    Holds,
    Key,
    Not,
    Poly,
    Some,
    add,
    at_least,
    both,
    const,
    equal,
    multiply,
    negated,
    number_of,
    opposite,
)

Tag: TypeAlias = Hashable  # what a fact comes from

_STEPS = 800  # of one question
_DEPTH = 20  # of parts replaced one after the other
_CASES = 5  # conditions that are assumed one after the other


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
class Numbers(Atoms):
    """Atoms, and what is shown of them; a choice has the bounds that both its sides are shown to have."""

    steps: int = 0
    hard: bool = False

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
            found = self._show_there(goal, facts, _DEPTH)
            if found is None:
                found = self._by_cases(goal, facts)
        if self.steps > _STEPS:
            for each in facts.tried:
                each.clear()  # another question may have more steps left for them
            facts.assumed.clear()
        return found

    def _show_there(self, goal: Poly, facts: Facts, depth: int) -> frozenset[Tag] | None:
        """Whether the goal follows from the facts, or they can't hold together."""
        if facts.impossible is not None:
            return facts.impossible
        found = self._show(goal, facts, depth)
        return found if found is not None else self._contradicted(facts)

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
                found = self._show_there(goal, inner, _DEPTH)
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
            found = self._show_there(goal, inner, depth)
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
        return self._each([*sides, add(multiply(factor, exact), rest)], facts, depth)

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
