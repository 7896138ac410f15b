"""What may be relied on where something has to be shown, as polynomials that are not negative there.

In: an obligation. Out: facts from its guards, and from there being a point at all. Sound, not complete.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

from kgen.analysis.bounds import Bounds
from kgen.analysis.obligations import Obligation, evaluated, room
from kgen.analysis.places import Algebra, Poly, add
from kgen.lang.dtypes import FLOATS, LIMITS
from kgen.lang.typed import Op, Value

_FLIPPED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
_MOST = 12  # facts that are tried; two of them at a time


def holds(obligation: Obligation, bounds: Bounds) -> bool:
    """Whether an obligation follows from declared ranges and from what guards it."""
    goals = _goals(obligation, bounds.algebra)
    if goals is None:
        return False
    if all(bounds.holds(goal) for goal in goals):
        return True
    facts = _facts(obligation, bounds.algebra)
    return all(_follows(goal, facts, bounds) for goal in goals)


def unshown(obligation: Obligation, bounds: Bounds) -> tuple[list[bool], list[bool]]:
    """For each item of a load or place: whether it may be negative, and whether too large."""
    goals, facts = _goals(obligation, bounds.algebra) or [], _facts(obligation, bounds.algebra)
    open_ = [not _follows(goal, facts, bounds) for goal in goals]
    return open_[::2], open_[1::2]


def _follows(goal: Poly, facts: list[Poly], bounds: Bounds) -> bool:
    if bounds.holds(goal):
        return True
    rests = [add(goal, fact, -1) for fact in facts]
    if any(bounds.holds(rest, steps=6) for rest in rests):
        return True
    pairs = combinations_with_replacement(facts, 2)
    return any(bounds.holds(add(add(goal, a, -1), b, -1), steps=3) for a, b in pairs)


def _goals(obligation: Obligation, algebra: Algebra) -> list[Poly] | None:
    """What is not negative where the obligation holds; None where no polynomial says it."""
    if obligation.kind == "extent":
        return [algebra.poly(obligation.value)]
    if obligation.kind == "number":
        exact = algebra.exact(obligation.value)
        if exact is None:
            return None
        least, most = LIMITS[obligation.value.dtype]
        return [add(exact, {(): least}, -1), add({(): most}, exact, -1)]
    goals: list[Poly] = []
    for item, dim in room(obligation.value, algebra.group):
        place = algebra.poly(item)
        goals += [place, add(add(algebra.poly(dim), place, -1), {(): 1}, -1)]
    return goals


def _facts(obligation: Obligation, algebra: Algebra) -> list[Poly]:
    one: Poly = {(): 1}
    found = [fact for guard in obligation.guards for fact in _comparison(*guard, algebra)]
    # There is a point, so that each index has a value; and what is loaded has one too.
    found += [add(algebra.extent(index), one, -1) for index in sorted(obligation.axes)]
    for load in evaluated(obligation, algebra.group):
        tensor = algebra.group.tensors[load.tensor]
        if tensor.low is not None and tensor.high is not None:
            found.append(add(algebra.poly(tensor.high), algebra.poly(tensor.low), -1))
    return [fact for at, fact in enumerate(found) if fact not in found[:at]][:_MOST]


def _comparison(cond: Value, positive: bool, algebra: Algebra) -> list[Poly]:
    match cond:
        case Op(op, (a, b)) if op in _FLIPPED and a.dtype not in (*FLOATS, "bool"):
            op = op if positive else _FLIPPED[op]
            x, y = algebra.poly(a), algebra.poly(b)
            up, down = add(y, x, -1), add(x, y, -1)
            one: Poly = {(): 1}
            return {
                "lt": [add(up, one, -1)],
                "le": [up],
                "gt": [add(down, one, -1)],
                "ge": [down],
                "eq": [up, down],
            }.get(op, [])
    return []
