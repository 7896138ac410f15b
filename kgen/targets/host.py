"""Expressions that the host evaluates at a call: sizes, ends of ranges, how many programs there are.

In: typed values over sizes and scalars. Out: text of the spec language, which is Python. The runtime
evaluates it in whole numbers of any length (`_runtime.Expr`).
"""

from __future__ import annotations

from kgen.lang.code import Code, infix, number
from kgen.lang.dtypes import LIMITS
from kgen.lang.text import spec_text
from kgen.lang.typed import Cast, Group, Value
from kgen.plan.plan import Axis, Plan, Role


def host_text(value: Value) -> str:
    """A value over sizes and scalars."""
    return str(_host(value))


def programs_text(plan: Plan) -> str:
    """How many programs a launch has."""
    return str(_folded("+", [_count(plan.group, role) for role in plan.roles]))


def blocks_of(plan: Plan) -> dict[str, str | int]:
    """The block sizes of a kernel: numbers, or how many values their lanes are to hold."""
    return {name: _width(plan.group, axis) for name, axis in plan.blocks.items()}


def warps_of(plan: Plan) -> str | int:
    """How many warps a program has, or how many values it holds at once, of which they follow."""
    if plan.group.warps is not None:
        return plan.group.warps
    products = [str(_folded("*", [Code(name) for name in names])) for names in plan.held]
    return products[0] if len(products) == 1 else f"max({', '.join(products)})"


def _width(group: Group, axis: Axis) -> str | int:
    extent = _host(group.extents[axis.index])
    if axis.tile is None:
        return str(extent)
    if axis.least is None:
        return axis.tile
    most = number(axis.tile)
    if axis.beside:
        room = infix("//", number(axis.budget), _folded("*", [Code(name) for name in axis.beside]))
        most = room if axis.tile == axis.budget else Code(f"min({most}, {room})")
    fit = f"min({extent}, {most})"
    return fit if axis.least == 1 else f"max({fit}, {axis.least})"


def _count(group: Group, role: Role) -> Code:
    counts: list[Code] = []
    for axis in role.program:
        extent = _host(group.extents[axis.index])
        if axis.kind == "tile":
            width = number(axis.tile or 1) if axis.least is None else Code(axis.block)
            extent = infix("-", infix("+", extent, width), number(1))
            extent = infix("//", extent, width)
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
