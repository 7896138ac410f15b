"""Expressions that the host evaluates at a call: sizes, ends of ranges, how many programs there are.

In: typed values over sizes and scalars. Out: text of the spec language, which is Python. The runtime
evaluates it in whole numbers of any length (`_runtime.Expr`).
"""

from __future__ import annotations

from kgen.lang.code import Code, call, folded, infix, number
from kgen.lang.dtypes import LIMITS
from kgen.lang.text import spec_text
from kgen.lang.typed import Cast, Group, Value
from kgen.plan.plan import LEAST_TILE, MANY, MOST_LANES, Axis, Plan, Role


def host_text(value: Value) -> str:
    """A value over sizes and scalars."""
    return str(_host(value))


def programs_text(plan: Plan) -> str:
    """How many programs a launch has."""
    return str(folded("+", [_count(plan.group, role) for role in plan.roles]))


def blocks_of(plan: Plan) -> dict[str, str | int]:
    """The block sizes of a kernel, each after those that it depends on; whether a loop has one turn.

    A number, or how many values the lanes are to hold.
    """
    found: dict[str, str | int] = {}
    for name, axis in plan.blocks.items():
        found[name] = _width(plan, axis)
        if axis.kind == "loop" and axis.least is not None:
            extent = _host(plan.group.extents[axis.index])
            found[f"ONCE_{axis.index}"] = f"0 < {infix('<=', extent, Code(name))}"
    return found


def lanes_of(plan: Plan) -> str:
    """How many values a program holds at once, at most, if it combines few of them; else empty."""
    return str(_product(plan.stored)) if any(plan.stored) else ""


def combined_of(plan: Plan) -> str:
    """How many values a program that combines many of them holds at once, at most; empty if none does."""
    return str(_product(plan.combined)) if any(plan.combined) else ""


def _product(several: tuple[tuple[str, ...], ...]) -> Code:
    """The largest of some products of blocks."""
    products = [folded("*", [Code(name) for name in names]) for names in several]
    return products[0] if len(products) == 1 else call("max", *products)


def _width(plan: Plan, axis: Axis) -> str | int:
    extent = _host(plan.group.extents[axis.index])
    if axis.tile is None:
        return str(extent)
    if axis.least is None:
        return axis.tile
    most = number(axis.tile)
    if any(axis.beside):
        room = infix("//", number(axis.budget), _product(axis.beside))
        most = room if axis.tile == axis.budget else Code(f"min({most}, {room})")
    if axis.kind == "tile" and axis.least == 1:
        return f"min({extent}, {most}) if {_many(plan, axis)} else 1"
    if axis.rows:
        most = Code(f"{axis.rows} if {_many(plan, axis)} else {most}")
    least = str(axis.least)
    if axis.kind == "loop" and axis.least == 1:
        least = f"min({LEAST_TILE}, {infix('//', number(MOST_LANES), _product(axis.beside))})"
    return f"max(min({extent}, {most}), {least})"


def _many(plan: Plan, axis: Axis) -> str:
    """Whether there would be many programs if each had one row."""
    role = next(each for each in plan.roles if axis in each.axes.values())
    return f"{_count(plan.group, role, rows=True)} > {MANY}"


def _count(group: Group, role: Role, *, rows: bool = False) -> Code:
    """How many programs a role has; `rows`: how many if each had one row."""
    counts: list[Code] = []
    for axis in role.program:
        extent = _host(group.extents[axis.index])
        if axis.kind == "tile" and not (rows and axis.least == 1):
            width = number(axis.tile or 1) if rows or axis.least is None else Code(axis.block)
            extent = infix("-", infix("+", extent, width), number(1))
            extent = infix("//", extent, width)
        counts.append(extent)
    return folded("*", counts)


def _host(value: Value) -> Code:
    """Without the conversions of whole numbers, which change none of them."""
    while isinstance(value, Cast) and not value.wraps and value.arg.dtype in LIMITS:
        value = value.arg
    return spec_text(value)
