"""Where a mistake inside an expression is marked, however YAML writes the expression."""

from __future__ import annotations

import pytest

HEAD = """\
group: probe
summary: A probe.
sizes: {R: 0 .. 300, K: static 1 .. 12}
tensors:
  x: i64[R, K]
  total: {type: "i64[R]", mode: inout}
index: {r: R, k: K}
"""
STORE = "store:\n  total[r]: max[k](x[r, k])\n"

# What follows HEAD, with « » around what must be marked.
MARKED = {
    "plain": "store:\n  total[r]: x[r, 0] + «zz»\n",
    "plain, then a comment": "store:\n  total[r]: x[r, 0] + «zz»  # not there\n",
    "single quotes": "store:\n  total[r]: 'x[r, 0] + «zz»'\n",
    "double quotes": 'store:\n  total[r]: "x[r, 0] + «zz»"\n',
    "quotes, white space after": 'store:\n  total[r]: "x[r, 0] + «zz»  "\n',
    "far right": "store:\n  total[r]:            x[r, 0] + «zz»\n",
    "next line": "store:\n  total[r]:\n    x[r, 0] + «zz»\n",
    "explicit key": "store:\n  ? total[r]\n  : x[r, 0] + «zz»\n",
    "flow map": "store:\n  total[r]: {value: r + «zz»}\n",
    "flow map, quotes": "store: {'total[r]': {\"value\": 'x[r, 0] + «zz»'}}\n",
    "flow map, second value": 'store:\n  total[r]: {value: "x[r, 0]", when: "r < «zz»"}\n',
    "flow map over two lines": 'store:\n  total[r]: {value: "x[r, 0]",\n    when: r < «zz»}\n',
    "key": "store:\n  total[r + «zz»]: x[r, 0]\n",
    "quoted key": 'store:\n  "total[r + «zz»]": x[r, 0]\n',
    "key in a flow map": 'store: {"total[«zz»]": "x[r, 0]"}\n',
    "let": "let: {y: r + «zz»}\nstore:\n  total[r]: x[r, 0] + y\n",
    "index": 'let: {y: "x[r, «zz»]"}\nstore:\n  total[r]: y\n',
    "tensor's type": 'masks:\n  m: x[r, «zz»[0]] > 0\nstore:\n  total[r]: "x[r, 0] if m else 0"\n',
    "after other letters": "store:\n  total[r]: {when: r > 2, value: r + «zz»}  # größer\n",
    "name of a reduction": "store:\n  total[r]: «mean»[k](x[r, k])\n",
    "index of a reduction": "store:\n  total[r]: sum[«r2»](x[r, 0])\n",
    "inside a reduction": "store:\n  total[r]: sum[k](x[r, k] * (1 + «zz»))\n",
    "condition": "store:\n  total[r]: x[r, 0] if r > «zz» else 1\n",
    "chained comparison": "store:\n  total[r]: x[r, 0] if 0 < r < «zz» else 1\n",
    "an operand": "store:\n  total[r]: (r + 1) * («r > 2»)\n",
    "a load": "store:\n  total[r]: 3 + «x[r]» * 2\n",
    "syntax": "store:\n  total[r]: x[r, 0] + «*» 2\n",
    "condition of a store": 'store:\n  total[r]: {value: r, when: "x[r, «zz»] > 3"}\n',
    "winner": "store:\n  total[r // 2]: {value: r, collide: first «zz»}\n",
    "folded block": "store:\n  total[r]: «>»\n    x[r, 0]\n    + zz\n",
    "literal block": "store:\n  total[r]: «|»\n    x[r, 0] + zz\n",
    "plain over two lines": "store:\n  total[r]: «x»[r, 0]\n    + zz\n",
    "escapes": 'store:\n  total[r]: «"x[r, 0] + \\x7a\\x7a"»\n',
    "doubled quotes": "store:\n  total[r]: «'x[r, 0] + ''zz'''»\n",
    "unary operator": "store:\n  total[r]: x[r, 0] + «~x[r, 0]»\n",
    "quotes, white space before": 'store:\n  total[r]: "  x[r, 0] + «zz»"\n',
}


def check(front, text: str) -> None:
    """The only mistake, unused names aside, is marked where the text says."""
    spec = HEAD + text
    _, report = front.read(spec.replace("«", "").replace("»", ""))
    line = next(line for line in spec.split("\n") if "«" in line)
    start, end = line.index("«"), line.index("»") - 1
    (found,) = (each for each in report.diagnostics if each.code != "unused")
    assert found.span.line == spec.split("\n").index(line) + 1
    assert (found.span.column, found.span.end_column) == (start + 1, end + 1)


@pytest.mark.parametrize("text", MARKED.values(), ids=MARKED)
def test_mark(front, text: str) -> None:
    check(front, text)


DECLARED = {
    "size of a tensor": ("i64[R, K]", "i64[R, K + «zz»]"),
    "size in a flow map": ('{type: "i64[R]",', '{type: "i64[R + «zz»]",'),
    "low end": ("R: 0 .. 300", "R: «zz» .. 300"),
    "high end": ("R: 0 .. 300", "R: 0 .. 2**8 + «zz»"),
    "high end of a static size": ("static 1 .. 12", "static 1 .. «zz»"),
    "derived size": ("K: static", "L: R + «zz», K: static"),
    "extent": ("k: K}", "k: K + «zz»}"),
    "values": ("x: i64[R, K]", 'x: {type: "i64[R, K]", values: 0 .. R - «zz»}'),
    "length of a list": ("x: i64[R, K]", 'x: {type: "i64[R]", list: K + «zz»}'),
    "default": ("index:", "scalars: {n: {type: i64, default: R - «zz»}}\nindex:"),
    "distinct": ("x: i64[R, K]", 'x: {type: "i64[R, K]", distinct: except R - «zz»}'),
    "after umlauts": ("x: i64[R, K]", 'x: {doc: Maß und Größe, type: "i64[R, «zz» + K]"}'),
    "launch condition": ("sizes:", "when: R > «zz»\nsizes:"),
}


@pytest.mark.parametrize("old, new", DECLARED.values(), ids=DECLARED)
def test_mark_in_a_declaration(front, old: str, new: str) -> None:
    spec = HEAD.replace(old, new) + STORE
    _, report = front.read(spec.replace("«", "").replace("»", ""))
    places = [(each.code, each.span.line, each.span.column) for each in report.diagnostics]
    line = next(line for line in spec.split("\n") if "«" in line)
    assert ("unknown-name", spec.split("\n").index(line) + 1, line.index("«") + 1) in places
