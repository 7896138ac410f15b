"""Whole numbers as polynomials over atoms, and conditions on them, each part made once.

In: what a reader of some form says: names, indices, elements, operators. Out: polynomials, conditions, and
the intervals of their parts. Integers of any length, no floats. Knows neither specs nor kernels.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kgen.lang.operators import OPERATORS, Interval

Monomial: TypeAlias = tuple[int, ...]  # the numbers of its atoms, sorted
Poly: TypeAlias = dict[Monomial, int]  # never changed once it is made
Key: TypeAlias = frozenset[tuple[Monomial, int]]
Axes: TypeAlias = frozenset[str]
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


@dataclass(slots=True)
class Atoms:
    """The atoms of one group or kernel. `defined`: what some flags mean."""

    atoms: list[Atom] = field(default_factory=list)
    known: dict[tuple[object, ...], int] = field(default_factory=dict)
    defined: dict[Flag, Condition] = field(default_factory=dict)
    numbered: dict[Hashable, int] = field(default_factory=dict)

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


def _polys(condition: Condition) -> Iterable[Poly]:
    match condition:
        case Holds(poly):
            yield dict(poly)
        case All(parts) | Some(parts):
            for part in parts:
                yield from _polys(part)
        case Flag() | Not():
            return
