"""The proofs that a group needs before it may run; what can't be shown is refused, with an example.

In: a typed group whose ranges and places are sound. Out: diagnostics (`out-of-bounds`, `overflow`,
`negative-extent`). Declared ranges and guards first, then small calls that would show it wrong, then z3.
"""

from __future__ import annotations

import ast
import contextlib
from dataclasses import dataclass, replace
from typing import Literal

from kgen.analysis import facts
from kgen.analysis.bounds import Bounds
from kgen.analysis.obligations import Guard, Kind, Obligation, obligations, plain, room
from kgen.analysis.places import Algebra
from kgen.analysis.ranges import Ranges
from kgen.analysis.search import search
from kgen.analysis.solver import decide
from kgen.diagnostics import Example, Report, Span
from kgen.lang.code import prefix
from kgen.lang.dtypes import LIMITS
from kgen.lang.text import spec_text
from kgen.lang.typed import Cast, Const, Group, Load, Op, Param, Value, children, walk

How = Literal["ranges", "guards", "trusted"]


@dataclass(frozen=True, slots=True)
class Proof:
    """Why a load or a store is inside its tensor, or a number in its type, as a page shows it.

    `how`: by declared ranges alone, by the conditions in `because` that guard it, or by the reason there.
    """

    kind: Kind
    text: str
    how: How
    because: tuple[str, ...]


def prove(group: Group, report: Report) -> tuple[Proof, ...] | None:
    """Why each load and store of a group is inside; None after reporting what can't be shown."""
    before = len(report.diagnostics)
    ranges = Ranges(group)
    bounds = Bounds(Algebra(group, ranges, strict=True))
    believed = {plain(each.value, group): each.reason for each in group.trusted}
    needed: set[Value] = set()
    refused: set[Span] = set()
    proofs: list[Proof] = []
    for each in obligations(group):
        key = plain(each.value, group)
        needed.add(key)
        if each.span in refused or _unasked(each, ranges):
            continue
        text = _written(each, report)
        if key in believed:
            proofs.append(Proof(each.kind, text, "trusted", (believed[key],)))
            continue
        if _within(each, ranges) or facts.holds(each, bounds):
            how, because = _because(each, bounds)
            proofs.append(Proof(each.kind, text, how, because))
            continue
        shown: bool | Example = search(group, each) or decide(group, each, ranges)
        if shown is True:
            because = tuple(_condition(guard) for guard in each.guards)
            proofs.append(Proof(each.kind, text, "guards" if because else "ranges", because))
        else:
            refused.add(each.span)
            _refuse(each, shown or None, bounds, report)
    for trusted in group.trusted:
        if plain(trusted.value, group) not in needed:
            report.add(
                "unused",
                trusted.span,
                f"the group has no load, place or conversion `{trusted.text}` to trust",
                "write it as it stands in the let or store that needs it, or remove it",
            )
    if len(report.diagnostics) > before:
        return None
    # Arithmetic is of interest to a reader only where it is trusted.
    told = [each for each in proofs if each.kind in ("load", "store") or each.how == "trusted"]
    return tuple(dict.fromkeys(told))


def _because(obligation: Obligation, bounds: Bounds) -> tuple[How, tuple[str, ...]]:
    """The guards that a proof needs."""
    needed = obligation
    for guard in obligation.guards:
        fewer = replace(needed, guards=tuple(each for each in needed.guards if each != guard))
        if obligation.kind != "number" and facts.holds(fewer, bounds):
            needed = fewer
    if obligation.kind == "number" or not needed.guards:
        return "ranges", ()
    return "guards", tuple(_condition(guard) for guard in needed.guards)


def _condition(guard: Guard) -> str:
    cond, positive = guard
    return str(spec_text(cond) if positive else prefix("not", spec_text(cond)))


def _unasked(obligation: Obligation, ranges: Ranges) -> bool:
    """Whether it is i64 arithmetic on a number that may be any i64: it wraps around, as torch's does."""
    value = obligation.value
    if obligation.kind != "number" or value.dtype != "i64":
        return False
    operands = value.args if isinstance(value, Op) else children(value)
    least, most = LIMITS["i64"]
    return any(low <= least or most <= high for low, high in map(ranges.of, operands))


def _within(obligation: Obligation, ranges: Ranges) -> bool:
    value = obligation.value
    return obligation.kind == "number" and ranges.fits(value, value.dtype)


def _refuse(obligation: Obligation, found: Example | None, bounds: Bounds, report: Report) -> None:
    value, span = obligation.value, obligation.span
    text = _written(obligation, report)
    match obligation.kind:
        case "load" | "store":
            assert isinstance(value, Load)
            reads = obligation.kind == "load"
            if found is None:
                done = "reads" if reads else "stores"
                message = f"kgen can't show that `{text}` {done} inside `{value.tensor}`"
            else:
                message = f"`{text}` can {'read' if reads else 'store'} outside `{value.tensor}`"
            report.add(
                "out-of-bounds", span, message, _index_help(obligation, text, bounds), example=found
            )
        case "extent":
            message = (
                f"kgen can't show that `{text}`, how many values an index takes, is never negative"
                if found is None
                else f"`{text}`, how many values an index takes, can be negative"
            )
            help = f"write max({text}, 0), or declare sizes that keep it from being negative"
            report.add("negative-extent", span, message, help, example=found)
        case _:
            message = (
                f"kgen can't show that `{text}` stays in {value.dtype}"
                if found is None
                else f"`{text}` can leave {value.dtype}"
            )
            report.add("overflow", span, message, _number_help(value, text), example=found)


def _index_help(obligation: Obligation, text: str, bounds: Bounds) -> str:
    """How to mend an index: the first of its items that is not shown."""
    group = bounds.algebra.group
    below, above = facts.unshown(obligation, bounds)
    at = next(n for n in range(len(below)) if below[n] or above[n])
    item, dim = room(obligation.value, group)[at]
    index, size = _items(text)[at], str(spec_text(dim))
    guard = f"{'0 <= ' if below[at] else ''}{index} < {size}" if above[at] else f"{index} >= 0"
    inner = f"min({index}, {size} - 1)" if above[at] else index
    clamped = f"max({inner}, 0)" if below[at] else inner
    ways = [f"store only `when: {guard}`"]
    if obligation.kind == "load":
        ways = [f"guard it, `{text} if {guard} else ...`", f"clamp it, `{clamped}`"]
    parts = [each for each in walk(item, group.lets) if isinstance(each, Load | Param)]
    if isinstance(item, Const) and isinstance(dim, Param):
        ways = [f"declare `{size}` from {int(item.value) + 1} on", *ways[:1]]
    elif parts:
        ways.append(f"declare the `values` of what `{index}` is made of")
    return f"{'; or '.join(ways)}; or say why it is inside, under `trusted`"


def _items(text: str) -> list[str]:
    """The indices of a load or place as they are written, that of a list first."""
    found: list[str] = []
    node: ast.expr = ast.parse(text, mode="eval").body
    while isinstance(node, ast.Subscript):
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        texts = [ast.get_source_segment(text, item) or "" for item in items]
        loose = (ast.IfExp, ast.Compare, ast.BoolOp)
        pairs = zip(items, texts, strict=True)
        found = [*(f"({t})" if isinstance(i, loose) else t for i, t in pairs), *found]
        node = node.value
    return found


def _number_help(value: Value, text: str) -> str:
    if isinstance(value, Cast):
        inner = text.removeprefix(f"{value.dtype}(").removesuffix(")")
        return (
            "declare the `values` of what it is made of, or clamp it; or write "
            f"wrap_{value.dtype}({inner}) where its low bits are wanted"
        )
    ways = ["declare smaller ranges of what it is made of"]
    if value.dtype != "i64":
        ways.insert(0, "compute it in i64, by casting an operand: i64(...)")
    if isinstance(value, Op) and value.op in ("add", "sub", "mul", "neg"):
        ways.append(f"write wrap_{value.dtype}({text}) where it shall wrap around")
    return "; or ".join(ways)


def _written(obligation: Obligation, report: Report) -> str:
    """A part of the spec as it is written there, if that is known; else as kgen prints it."""
    span, value = obligation.span, obligation.value
    lines = report.sources.get(span.file, "").splitlines()
    if 0 < span.line <= len(lines):
        text = lines[span.line - 1][span.column - 1 : span.end_column - 1]
        with contextlib.suppress(SyntaxError, ValueError):
            tree = ast.parse(text, mode="eval").body
            if isinstance(value, Load) == isinstance(tree, ast.Subscript):
                return text
    return spec_text(value).text
