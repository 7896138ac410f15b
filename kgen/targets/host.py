"""Expressions that the host evaluates at a call: sizes, ends of ranges, how many programs there are.

In: typed values over sizes and scalars. Out: text of the spec language, which is Python. The runtime
evaluates it in whole numbers of any length (`_runtime.Expr`).
"""

from __future__ import annotations

from kgen.lang.code import Code, infix, number
from kgen.lang.dtypes import LIMITS
from kgen.lang.text import spec_text
from kgen.lang.typed import Cast, Group, Value
from kgen.plan.plan import Plan, Role


def host_text(value: Value) -> str:
    """A value over sizes and scalars."""
    return str(_host(value))


def programs_text(plan: Plan) -> str:
    """How many programs a launch has."""
    return str(_folded("+", [_count(plan.group, role) for role in plan.roles]))


def blocks_of(plan: Plan) -> dict[str, str | int]:
    """The block sizes of a kernel: numbers, or the extents that their lanes hold."""
    extents = plan.group.extents
    return {
        name: axis.tile if axis.tile is not None else host_text(extents[axis.index])
        for name, axis in plan.blocks.items()
    }


def _count(group: Group, role: Role) -> Code:
    counts: list[Code] = []
    for axis in role.program:
        extent = _host(group.extents[axis.index])
        tiled = axis.tile is not None and axis.tile > 1
        if tiled:
            extent = infix("+", extent, number((axis.tile or 1) - 1))
            extent = infix("//", extent, number(axis.tile or 1))
        counts.append(extent)
    return _folded("*", counts)


def _folded(symbol: str, codes: list[Code]) -> Code:
    total = codes[0] if codes else number(1)
    for code in codes[1:]:
        total = infix(symbol, total, code)
    return total


def _host(value: Value) -> Code:
    """Without the conversions of whole numbers, which change none of them."""
    while isinstance(value, Cast) and not value.wraps and value.arg.dtype in LIMITS:
        value = value.arg
    return spec_text(value)
