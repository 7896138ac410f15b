"""What intervals and polynomials are too weak for: an obligation as a formula for z3, with a time bound.

In: an obligation. Out: that it holds, a call at which it does not, or neither. z3 is imported when it is
first needed. A formula says less than the group (what a reduction gives is any number of its range,
products of names may be too hard), so a model is walked through before it is believed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kgen.analysis.obligations import Obligation, evaluated, room
from kgen.analysis.ranges import SIZE_LIMIT, Ranges
from kgen.analysis.search import broken, example, param_order, simplest
from kgen.analysis.world import ImpossibleError, World
from kgen.diagnostics import Example
from kgen.lang.dtypes import FLOATS, LIMITS, DType
from kgen.lang.text import spec_text
from kgen.lang.typed import (
    Cast,
    Const,
    Given,
    Group,
    Index,
    Load,
    Op,
    Param,
    Reduce,
    Ref,
    Scan,
    Select,
    Value,
)

Term: TypeAlias = Any  # z3 has no types

_EFFORT = 3_000_000  # z3's own count, about half a second: the same verdict on every machine
_MILLISECONDS = 10_000  # in case that count runs slowly
# How large sizes and other numbers are at most; the last try says nothing of them.
_SMALL = ((3, 8), (3, 64), (8, 2**12), (0, 0))


def decide(group: Group, obligation: Obligation, ranges: Ranges) -> bool | Example:
    """True if the obligation is shown; a call at which it fails; False if neither is known."""
    import z3  # noqa: PLC0415 - most specs need none, and it takes its time

    formula = _Formula(group, ranges, z3)
    axioms = formula.axioms
    for index in sorted(obligation.axes):
        axioms += [formula.names(index) >= 0, formula.names(index) < formula.extent(index)]
    for cond, positive in obligation.guards:
        holds = formula.of(cond)
        axioms.append(holds if positive else z3.Not(holds))
    for load in evaluated(obligation, group):
        axioms.append(formula.inside(load))  # which is shown by itself, or refused
    goal = formula.goal(obligation)
    solver = z3.Solver()
    solver.set("rlimit", _EFFORT)
    solver.set("timeout", _MILLISECONDS)
    solver.set("random_seed", 0)
    solver.add(*axioms, z3.Not(goal))
    result = solver.check()
    if result == z3.unsat:
        return True
    if not obligation.whole:
        return False
    known = len(axioms)
    formula.make_legal()
    solver.add(*axioms[known:])
    for size, number in _SMALL:
        solver.push()
        if size:
            solver.add(
                *(formula.names(name) <= size for name in group.sizes if name in formula.known)
            )
            solver.add(*(z3.And(-number <= t, t <= number) for t in formula.numbers()))
        found = solver.check()
        shown = _shown(group, obligation, formula, solver.model()) if found == z3.sat else None
        solver.pop()
        if shown is not None:
            return shown
    return False


@dataclass(slots=True)
class _Formula:
    """Values as z3 terms; `axioms` say what the declared ranges make true of them."""

    group: Group
    ranges: Ranges
    z3: Any
    axioms: list[Term] = field(default_factory=list)
    known: dict[str, Term] = field(default_factory=dict)
    terms: dict[Value, Term] = field(default_factory=dict)
    loads: dict[Load, tuple[Term, tuple[Term, ...]]] = field(default_factory=dict)

    def names(self, name: str) -> Term:
        """The variable of a size, a scalar or an index."""
        if name not in self.known:
            self.known[name] = self.z3.Int(name)
            self._declare(name)
        return self.known[name]

    def make_legal(self) -> None:
        """Also say what a whole call needs: each name in its range, and elements for each tensor."""
        for name in param_order(self.group):
            self.names(name)
        for tensor in self.group.tensors.values():
            if tensor.low is not None and tensor.high is not None:
                filled = self.z3.And(*(self.of(dim) > 0 for dim in tensor.dims))
                some = self.of(tensor.low) <= self.of(tensor.high)
                self.axioms.append(self.z3.Implies(filled, some))

    def numbers(self) -> list[Term]:
        """What a reader should find small: scalars, elements and the like."""
        named = [term for name, term in self.known.items() if name not in self.group.sizes]
        return [*named, *(term for term, _ in self.loads.values())]

    def extent(self, index: str) -> Term:
        """How many values an index takes."""
        return self.of(self.group.extents[index])

    def _declare(self, name: str) -> None:
        group, term = self.group, self.known[name]
        size, scalar = group.sizes.get(name), group.scalars.get(name)
        if size is not None and size.derived is not None:
            self.axioms.append(term == self.of(size.derived))
            return
        declared = size or scalar
        if declared is None:
            return
        least, most = (0, SIZE_LIMIT) if scalar is None else LIMITS[_held(scalar.dtype)]
        self.axioms += [term >= least, term <= most]
        self.axioms += [term >= self.of(declared.low)] if declared.low is not None else []
        self.axioms += [term <= self.of(declared.high)] if declared.high is not None else []

    def of(self, value: Value) -> Term:
        """A value as a term: an integer, or a truth value."""
        if value not in self.terms:
            term = self._exact(value)
            if value.dtype in ("u8", "i32", "i64") and not self.ranges.fits(value, value.dtype):
                low, high = LIMITS[value.dtype]
                around = (term - low) % (high - low + 1) + low
                term = self.z3.If(self.z3.And(low <= term, term <= high), term, around)
            self.terms[value] = term
        return self.terms[value]

    def _any(self, value: Value, prefix: str, ends: tuple[float, float] | None) -> Term:
        """An unknown, the same one for the same text: a truth value, or a number between two ends."""
        text = f"{prefix} {spec_text(value)}"
        if ends is None:
            return self.z3.Bool(text) if value.dtype == "bool" else self.z3.Int(text)
        term = self.z3.Int(text)
        self.axioms += [term >= int(ends[0])] if math.isfinite(ends[0]) else []
        self.axioms += [term <= int(ends[1])] if math.isfinite(ends[1]) else []
        return term

    def _exact(self, value: Value) -> Term:
        z3 = self.z3
        if value.dtype in FLOATS:
            return self._any(value, "float", None)
        match value:
            case Const(number):
                return z3.BoolVal(bool(number)) if value.dtype == "bool" else z3.IntVal(int(number))
            case Param(name) | Index(name):
                return self.names(name)
            case Given(tensor):
                return z3.Bool(f"given {tensor}")
            case Ref(name):
                return self.of(self.group.lets[name].value)
            case Load():
                return self._load(value)
            case Cast(arg):
                inner = self.of(arg)
                if value.dtype == "bool":
                    return inner != 0
                return z3.If(inner, 1, 0) if arg.dtype == "bool" else inner
            case Select(cond, then, other):
                return z3.If(self.of(cond), self.of(then), self.of(other))
            case Op(op, args):
                if any(arg.dtype in FLOATS for arg in args):
                    return self._any(value, "floats", None)
                terms = [self.of(arg) for arg in args]
                if op in ("floordiv", "mod"):
                    positive = self.ranges.of(args[1])[0] > 0
                    return self._divide(op, terms, positive=positive)
                return self._operate(op, terms)
            case Scan() | Reduce():
                return self._folded(value)

    def _load(self, load: Load) -> Term:
        z3, tensor = self.z3, self.group.tensors[load.tensor]
        items = tuple(self.of(item) for item in load.items)
        sorts = [z3.IntSort()] * (len(items) + 1)
        term = z3.Function(load.tensor, *sorts)(*items)
        least, most = LIMITS[tensor.dtype]
        self.axioms += [term >= least, term <= most]
        # What is declared is true of the places that a tensor has; a branch not taken may name others.
        inside = self.inside(load)
        for end, holds in ((tensor.low, term.__ge__), (tensor.high, term.__le__)):
            self.axioms += [z3.Implies(inside, holds(self.of(end)))] if end is not None else []
        if tensor.distinct:
            repeats = self.of(tensor.repeats) if tensor.repeats is not None else None
            for other, (held, places) in self.loads.items():
                if other.tensor == load.tensor:
                    same = z3.And(*(x == y for x, y in zip(items, places, strict=True)))
                    apart = [held != term, same, z3.Not(inside), z3.Not(self.inside(other))]
                    apart += [term == repeats] if repeats is not None else []
                    self.axioms.append(z3.Or(*apart))
        self.loads[load] = (term, items)
        return term != 0 if load.dtype == "bool" else term

    def inside(self, load: Load) -> Term:
        """Whether a load is one of its tensor's places."""
        sides = []
        for item, dim in room(load, self.group):
            sides += [self.of(item) >= 0, self.of(item) < self.of(dim)]
        return self.z3.And(*sides)

    def _folded(self, value: Scan | Reduce) -> Term:
        """What a reduction or a scan gives: any number that its elements allow."""
        z3 = self.z3
        if value.dtype == "bool" or value.arg.dtype in FLOATS:
            return self._any(value, "all", None)
        term = self._any(value, "all", self.ranges.exact(value))
        low, high = self.ranges.of(value.arg)
        count = self.extent(value.index)
        match value:
            case Reduce("first", _, _, none) if none is not None:
                found = z3.And(term >= 0, term < count)
                self.axioms.append(z3.Or(found, term == self.of(none)))
            case Reduce("sum"):
                few = z3.If(count > 0, count, 0)
                self.axioms += [term >= few * int(low), term <= few * int(high)]
            case Scan("cumsum", index):
                many = self.names(index) + 1
                self.axioms += [term >= many * int(low), term <= many * int(high)]
            case Reduce("min" | "max"):
                bounded = z3.And(term >= int(low), term <= int(high))
                self.axioms.append(z3.Implies(count > 0, bounded))
        return term

    def _divide(self, op: str, args: list[Term], *, positive: bool) -> Term:
        """z3 rounds down where the divisor is positive; its remainder is never negative."""
        a, b = args
        if positive:
            return a / b if op == "floordiv" else a % b
        if op == "floordiv":
            return self.z3.If(b > 0, a / b, (-a) / (-b))
        return self.z3.If(b > 0, a % b, -((-a) % (-b)))

    def _operate(self, op: str, args: list[Term]) -> Term:
        z3 = self.z3
        a, b = args[0], args[-1]
        match op:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "mul":
                return a * b
            case "neg":
                return -a
            case "abs":
                return z3.If(a >= 0, a, -a)
            case "min":
                return z3.If(a < b, a, b)
            case "max":
                return z3.If(a > b, a, b)
            case "lt":
                return a < b
            case "le":
                return a <= b
            case "gt":
                return a > b
            case "ge":
                return a >= b
            case "eq":
                return a == b
            case "ne":
                return a != b
            case "and":
                return z3.And(a, b)
            case "or":
                return z3.Or(a, b)
            case _:
                return z3.Not(a)

    def goal(self, obligation: Obligation) -> Term:
        """What is to be shown."""
        z3, value = self.z3, obligation.value
        if obligation.kind == "extent":
            return self.of(value) >= 0
        if obligation.kind == "number":
            low, high = LIMITS[value.dtype]
            exact = self._exact(value)
            return z3.And(low <= exact, exact <= high)
        assert isinstance(value, Load)
        return self.inside(value)


def _held(dtype: DType) -> DType:
    return "i64" if dtype == "int" else dtype


def _shown(group: Group, obligation: Obligation, formula: _Formula, model: Any) -> Example | None:
    """A model as a call, if it is a legal one and the obligation does not hold at it."""

    def number(term: Term) -> int:
        return int(model.eval(term, model_completion=True).as_long())

    z3 = formula.z3
    world = World(group, {}, {}, simplest)
    world.given = {
        t.name: z3.is_true(model.eval(z3.Bool(f"given {t.name}"), model_completion=True))
        for t in group.tensors.values()
        if t.optional
    }
    try:
        for name in param_order(group):
            low, high = world.param_ends(name)
            known = formula.known.get(name)
            world.params[name] = number(known) if known is not None else min(max(low, 1), high)
        for load, (term, items) in formula.loads.items():
            if world.inside(load.tensor, place := tuple(number(item) for item in items)):
                world.elements[load.tensor, place] = number(term)
        point = {index: number(formula.names(index)) for index in obligation.axes}
        fault = broken(obligation, world, point) if world.legal() else None
    except ImpossibleError:
        return None
    return example(fault.world, fault.point, fault.text) if fault is not None else None
