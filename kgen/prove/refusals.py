"""What is said of an obligation that can't be shown: what may happen, an example, and how to mend it.

In: an obligation, and which parts of it are not shown. Out: a diagnostic. Proves nothing.
"""

from __future__ import annotations

import ast
import contextlib

from kgen.diagnostics import Example, Report
from kgen.lang.text import spec_text
from kgen.lang.typed import Cast, Const, Group, Load, Op, Param, Value, walk
from kgen.prove.obligations import Obligation


def refuse(
    group: Group,
    obligation: Obligation,
    found: Example | None,
    open_: list[tuple[bool, bool]],
    report: Report,
) -> None:
    """Report an obligation; `open_`: of each item of a place whether it may be negative, or too large."""
    value, span = obligation.value, obligation.span
    text = written(obligation, report)
    match obligation.kind:
        case "load" | "store":
            assert isinstance(value, Load)
            reads = obligation.kind == "load"
            if found is None:
                done = "reads" if reads else "stores"
                message = f"kgen can't show that `{text}` {done} inside `{value.tensor}`"
            else:
                message = f"`{text}` can {'read' if reads else 'store'} outside `{value.tensor}`"
            help = _index_help(group, obligation, text, open_)
            report.add("out-of-bounds", span, message, help, example=found)
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


def _index_help(
    group: Group, obligation: Obligation, text: str, open_: list[tuple[bool, bool]]
) -> str:
    """How to mend an index: the first of its items that is not shown."""
    at = next((n for n, (below, above) in enumerate(open_) if below or above), 0)
    below, above = open_[at]
    place = obligation.value
    assert isinstance(place, Load)
    item, dim = place.items[at], group.tensors[place.tensor].shape[at]
    index, size = _items(text)[at], str(spec_text(dim))
    guard = f"{'0 <= ' if below else ''}{index} < {size}" if above else f"{index} >= 0"
    inner = f"min({index}, {size} - 1)" if above else index
    clamped = f"max({inner}, 0)" if below else inner
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


def written(obligation: Obligation, report: Report) -> str:
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
