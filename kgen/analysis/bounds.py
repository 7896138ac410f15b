"""Whether an index stays inside its tensor, from declared ranges alone.

In: polynomials over sizes, indices and opaque parts (see places.py). Out: yes, or don't know. A goal is
a polynomial to be shown not negative. One part of it at a time is replaced by what bounds it from the
side that counts, until the numbers decide; where a part has two bounds (`min`, `max`, a choice), both
or either must do. Every step is sound: it never makes the goal larger.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kgen.analysis.places import Algebra, Monomial, Poly, add, multiply
from kgen.lang.typed import Cast, Const, Group, Index, Load, Op, Param, Reduce, Select, Value

_STEPS = 14


@dataclass(slots=True)
class Bounds:
    """Proofs about one group's indices."""

    algebra: Algebra
    shown: set[frozenset[tuple[Monomial, int]]] = field(default_factory=set)
    tried: dict[frozenset[tuple[Monomial, int]], int] = field(default_factory=dict)

    def inside(self, load: Load) -> bool:
        """Whether a load is in its tensor's bounds at every index point, whatever guards it."""
        group = self.algebra.group
        tensor = group.tensors[load.tensor]
        dims = tensor.dims if tensor.length is None else (tensor.length, *tensor.dims)
        for item, dim in zip(load.items, dims, strict=True):
            place = self.algebra.poly(item)
            room = add(add(self.algebra.poly(dim), place, -1), {(): 1}, -1)
            if not self.holds(place) or not self.holds(room):
                return False
        return not tensor.optional

    def holds(self, goal: Poly, steps: int = _STEPS) -> bool:
        """Whether `goal` is never negative."""
        key = frozenset(goal.items())
        if key not in self.shown and self.tried.get(key, -1) < steps:
            self.tried[key] = steps  # while it is being shown it may not be used
            if self.algebra.least(goal) >= 0 or (steps > 0 and self._split(goal, steps)):
                self.shown.add(key)
        return key in self.shown

    def _split(self, goal: Poly, steps: int) -> bool:
        """Whether replacing one part of the goal by its bounds shows it."""
        for monomial, atom in self._parts(goal):
            value = self.algebra.atoms[atom]
            rest = list(monomial)
            rest.remove(atom)
            if any(self.algebra.ranges.of(self.algebra.atoms[name])[0] < 0 for name in rest):
                continue  # the sign of the part is not known
            choices = self._bounds(value, upper=goal[monomial] < 0)
            scaled = self._scaled(value, rest, upper=goal[monomial] < 0)
            if scaled is not None:
                others = tuple(rest)
                others = others[: others.index(scaled[0])] + others[others.index(scaled[0]) + 1 :]
                if self.holds(_with(goal, monomial, others, scaled[1]), steps - 1):
                    return True
            whole = self._divided(goal, monomial, value)
            if whole is not None and self.holds(whole, steps - 1):
                return True
            for every in choices:
                goals = [_with(goal, monomial, tuple(rest), bound) for bound in every]
                if all(self.holds(each, steps - 1) for each in goals):
                    return True
        return False

    def _parts(self, goal: Poly) -> list[tuple[Monomial, str]]:
        """The atoms of a goal with their monomials: computed ones first, then indices, then names."""
        found = [(m, atom) for m in goal for atom in dict.fromkeys(m)]
        return sorted(
            found, key=lambda each: (_rank(self.algebra.atoms[each[1]], self.algebra.group), each)
        )

    def _bounds(self, value: Value, *, upper: bool) -> list[list[Poly]]:
        """What bounds a part: any of the lists will do, all of a list are needed."""
        algebra = self.algebra
        match value:
            case Index(name):
                return [[add(algebra.extent(name), {(): 1}, -1) if upper else {}]]
            case Load(name):
                tensor = algebra.group.tensors[name]
                end = tensor.high if upper else tensor.low
                return [[algebra.poly(end)]] if end is not None else []
            case Param(name):
                group = algebra.group
                declared = group.sizes.get(name) or group.scalars[name]
                ends = _ends(declared.high if upper else declared.low)
                return [[algebra.poly(end)] for end in ends]
            case Op("min" | "max" as op, args):
                polys = [algebra.poly(arg) for arg in args]
                either = (op == "min") == upper
                return [[poly] for poly in polys] if either else [polys]
            case Op("mod" | "truncmod", (_, divisor)) if algebra.ranges.of(divisor)[0] > 0:
                return [[add(algebra.poly(divisor), {(): 1}, -1) if upper else {}]]
            case Select(_, then, other):
                return [[algebra.poly(then), algebra.poly(other)]]
            case Op("floordiv" | "truncdiv", (x, Const(divisor))) if divisor > 0:
                quotient = self._quotient(algebra.poly(x), int(divisor), upper=upper)
                return [[quotient]] if quotient is not None else []
            case Cast(arg) if arg.dtype == "bool":
                return [[{(): 1} if upper else {}]]
            case Reduce("first", index, _, none) if none is not None:
                last = add(algebra.extent(index), {(): 1}, -1) if upper else {}
                return [[last, algebra.poly(none)]]
        return []

    def _quotient(self, poly: Poly, divisor: int, *, upper: bool) -> Poly | None:
        """The quotient at the indices' ends, if it is a polynomial itself."""
        for monomial, coefficient in list(poly.items()):
            value = self.algebra.atoms[monomial[0]] if len(monomial) == 1 else None
            if isinstance(value, Index):
                at_last = (coefficient > 0) == upper
                last = add(self.algebra.extent(value.name), {(): 1}, -1)
                poly = _with(poly, monomial, (), last if at_last else {})
        if any(m != () and c % divisor for m, c in poly.items()):
            return None
        return {m: c // divisor for m, c in poly.items() if c // divisor}

    def _scaled(self, value: Value, rest: list[str], *, upper: bool) -> tuple[str, Poly] | None:
        """What bounds a quotient times its divisor, where that is one of the parts beside it."""
        match value:
            case Op("floordiv" | "truncdiv", (x, d)) if self.algebra.ranges.of(d)[0] > 0:
                divisor, dividend = self.algebra.poly(d), self.algebra.poly(x)
                for part in rest:
                    if divisor == {(part,): 1}:  # x // d * d is x less a remainder of d - 1 at most
                        slack = {} if upper else add({(): 1}, divisor, -1)
                        return part, add(dividend, slack, 1)
        return None

    def _divided(self, goal: Poly, monomial: Monomial, value: Value) -> Poly | None:
        """The goal without a quotient: `rest - x // d >= 0` is `(rest + 1) * d - 1 - x >= 0`."""
        coefficient = goal[monomial]
        match value:
            case Op("floordiv" | "truncdiv", (x, d)) if (
                len(monomial) == 1 and abs(coefficient) == 1
            ):
                if self.algebra.ranges.of(d)[0] <= 0:
                    return None
                rest = {m: c for m, c in goal.items() if m != monomial}
                divisor, dividend = self.algebra.poly(d), self.algebra.poly(x)
                if coefficient > 0:  # rest + x // d >= 0
                    return add(multiply(rest, divisor), dividend, 1)
                whole = multiply(add(rest, {(): 1}, 1), divisor)
                return add(add(whole, {(): 1}, -1), dividend, -1)
            case Op("floordiv" | "truncdiv", (x, d)) if len(monomial) == 1:
                # c * (x // d) with c a multiple of d: at most (c / d) * x, at least that less c - c / d
                divisor = self.algebra.poly(d)
                number = divisor.get((), 0)
                if set(divisor) != {()} or number <= 0 or coefficient % number:
                    return None
                factor = coefficient // number
                rest = {m: c for m, c in goal.items() if m != monomial}
                scaled = multiply(self.algebra.poly(x), {(): factor})
                slack: Poly = {} if factor < 0 else {(): factor * (number - 1)}
                return add(add(rest, scaled, 1), slack, -1)
        return None


def _rank(value: Value, group: Group) -> int:
    match value:
        case Param(name):
            return 3 if name in group.scalars else 4 + _depth(name, group)
        case Index():
            return 2
        case Load():
            return 1
    return 0


def _depth(name: str, group: Group) -> int:
    """How many sizes bound this one from above in turn: the least bounded is replaced last."""
    depth = 0
    while depth < len(group.sizes):
        size = group.sizes.get(name)
        if size is None or not isinstance(size.high, Param):
            break
        name, depth = size.high.name, depth + 1
    return len(group.sizes) - depth


def _ends(end: Value | None) -> list[Value]:
    """The values that an end of a range is, where it is a `min` or `max` any of them."""
    if end is None:
        return []
    if isinstance(end, Op) and end.op in ("min", "max"):
        return list(end.args)
    return [end]


def _with(goal: Poly, monomial: Monomial, rest: Monomial, bound: Poly) -> Poly:
    """The goal with one factor of a monomial replaced by what bounds it."""
    without = {m: c for m, c in goal.items() if m != monomial}
    return add(without, multiply({rest: goal[monomial]}, bound), 1)
