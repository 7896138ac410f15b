"""What bounds and facts are too weak for: a question as a formula for z3, with a bound that is a count.

In: polynomials that shall not be negative where some conditions hold. Out: that they are not, a model in
which one is, or neither. z3 is imported when it is first needed. Products of unknowns may be too hard, and
a sum over an index is any number of its range, so a model is to be walked through before it is believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kgen.prove.atoms import (
    All,
    Condition,
    Flag,
    Holds,
    Not,
    Poly,
    Some,
)
from kgen.prove.numbers import Numbers

Term: TypeAlias = Any  # z3 has no types

_EFFORT = 3_000_000  # z3's own count, about half a second: the same verdict on every machine
_MILLISECONDS = 10_000  # in case that count runs slowly
# How large sizes and other numbers of a model are at most; the last try says nothing of them.
_SMALL = ((3, 8), (3, 64), (8, 2**12), (0, 0))


@dataclass(slots=True)
class Question:
    """Whether polynomials are never negative where conditions hold; z3's terms for it."""

    numbers: Numbers
    goals: list[Poly]
    known: list[Condition]
    distinct: dict[str, Poly | None]  # tensor -> the value that may repeat
    z3: Any = None
    terms: dict[int, Term] = field(default_factory=dict)
    flags: dict[Flag, Term] = field(default_factory=dict)
    axioms: list[Term] = field(default_factory=list)
    solver: Any = None

    def __post_init__(self) -> None:
        import z3  # noqa: PLC0415 - most specs need none, and it takes its time

        self.z3 = z3
        negated = z3.Not(z3.And(*(self.poly(goal) >= 0 for goal in self.goals)))
        self.axioms += [self.holds(condition) for condition in self.known]
        self._separate()
        self.solver = z3.Solver()
        self.solver.set("rlimit", _EFFORT)
        self.solver.set("timeout", _MILLISECONDS)
        self.solver.set("random_seed", 0)
        self.solver.add(*self.axioms, negated)

    def shown(self) -> bool | None:
        """True if the goals follow, False if there is a model in which one does not; None: not known."""
        result = self.solver.check()
        return True if result == self.z3.unsat else False if result == self.z3.sat else None

    def models(self, more: Iterable[Condition], sizes: frozenset[str]) -> Iterator[Model]:
        """Models in which a goal fails and more conditions hold, those with small numbers first."""
        z3, start = self.z3, len(self.axioms)
        extra = [self.holds(condition) for condition in more]
        self.solver.add(*self.axioms[start:], *extra)
        for size, number in _SMALL:
            self.solver.push()
            for at, term in list(self.terms.items()) if size else ():
                atom = self.numbers.atoms[at]
                if atom.kind == "name" and atom.what in sizes:
                    self.solver.add(term <= size)
                elif atom.kind in ("name", "index", "element"):
                    self.solver.add(z3.And(-number <= term, term <= number))
            if self.solver.check() == z3.sat:
                yield Model(self, self.solver.model())
            self.solver.pop()

    def poly(self, poly: Poly) -> Term:
        """A polynomial as a term."""
        total = self.z3.IntVal(0)
        for monomial, coefficient in poly.items():
            term = self.z3.IntVal(coefficient)
            for at in monomial:
                term = term * self.atom(at)
            total = total + term
        return total

    def atom(self, at: int) -> Term:
        """An atom as a term; what is known of it becomes axioms."""
        if at not in self.terms:
            atom = self.numbers.atoms[at]
            term = self.terms[at] = self.z3.Int(f"{atom.kind}_{at}")
            bounds = [term >= atom.low, term <= atom.high]
            bounds += [self.poly(low) <= term for low in atom.lows]
            bounds += [term <= self.poly(high) for high in atom.highs]
            # What is declared is true of the places that a tensor has; others may be named, not read.
            inside = self.holds(atom.condition) if atom.kind == "element" else True
            self.axioms.append(self.z3.Implies(inside, self.z3.And(*bounds)))
            self.axioms += self._meaning(at, term)
        return self.terms[at]

    def _meaning(self, at: int, term: Term) -> list[Term]:
        z3, atom = self.z3, self.numbers.atoms[at]
        parts = [self.poly(part) for part in atom.parts]
        match atom.kind:
            case "min":
                return [term == z3.If(parts[0] < parts[1], parts[0], parts[1])]
            case "max":
                return [term == z3.If(parts[0] > parts[1], parts[0], parts[1])]
            case "choice":
                return [term == z3.If(self.holds(atom.condition), parts[0], parts[1])]
            case "truth":
                return [term == z3.If(self.holds(atom.condition), 1, 0)]
            case "floordiv" | "mod":
                a, b = parts  # z3 rounds down where the divisor is positive
                if self.numbers.interval(atom.parts[1])[0] > 0:
                    return [term == (a / b if atom.kind == "floordiv" else a % b)]
                if atom.kind == "floordiv":
                    return [term == z3.If(b > 0, a / b, (-a) / (-b))]
                return [term == z3.If(b > 0, a % b, -((-a) % (-b)))]
            case "first":
                return [z3.Or(z3.And(term >= 0, term <= parts[0]), term == parts[1])]
            case "wrapped":
                count = atom.high - atom.low + 1
                around = (parts[0] - atom.low) % count + atom.low
                fits = z3.And(atom.low <= parts[0], parts[0] <= atom.high)
                return [term == z3.If(fits, parts[0], around)]
        return []

    def _separate(self) -> None:
        """Elements at one place are one; those of a `distinct` tensor at two places differ."""
        z3, done = self.z3, 0
        while done < len(self.terms):  # places may name further elements
            elements = [at for at in self.terms if self.numbers.atoms[at].kind == "element"]
            done = len(self.terms)
            for number, at in enumerate(elements):
                for other in elements[:number]:
                    a, b = self.numbers.atoms[at], self.numbers.atoms[other]
                    if a.what != b.what:
                        continue
                    pairs = zip(a.items, b.items, strict=True)
                    same = z3.And(*(self.poly(x) == self.poly(y) for x, y in pairs))
                    one, two = self.terms[at], self.terms[other]
                    self.axioms.append(z3.Implies(same, one == two))
                    name = str(a.what)
                    if name in self.distinct:
                        apart = [one != two, same]
                        apart += [z3.Not(self.holds(each.condition)) for each in (a, b)]
                        repeats = self.distinct[name]
                        apart += [one == self.poly(repeats)] if repeats is not None else []
                        self.axioms.append(z3.Or(*apart))

    def holds(self, condition: Condition) -> Term:
        """A condition as a truth value."""
        z3 = self.z3
        match condition:
            case Holds(poly):
                return self.poly(dict(poly)) >= 0
            case All(parts):
                return z3.And(*map(self.holds, parts))
            case Some(parts):
                return z3.Or(*map(self.holds, parts))
            case Not(part):
                return z3.Not(self.holds(part))
            case Flag():
                if condition not in self.flags:
                    self.flags[condition] = z3.Bool(f"flag_{len(self.flags)}")
                    if condition in self.numbers.defined:
                        meant = self.holds(self.numbers.defined[condition])
                        self.axioms.append(self.flags[condition] == meant)
                return self.flags[condition]


@dataclass(frozen=True, slots=True)
class Model:
    """Numbers for the atoms of a question."""

    question: Question
    model: Any

    def number(self, poly: Poly) -> int:
        """What a polynomial is."""
        term = self.question.poly(poly)
        return int(self.model.eval(term, model_completion=True).as_long())

    def flag(self, flag: Flag) -> bool:
        """What a flag is."""
        z3, term = self.question.z3, self.question.holds(flag)
        return bool(z3.is_true(self.model.eval(term, model_completion=True)))
