"""Reading expressions: what each form becomes, and that nothing a user types makes kgen fall over."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgen.diagnostics import Report, Span
from kgen.lang.syntax import Apply, Call, Expr, Item, Name, Number, parse, parse_range
from kgen.spec.located import Text


def text(value: str) -> Text:
    """An expression in line 3 of a file, from column 11 on."""
    return Text(value, Span("spec.yaml", 3, 11, 11 + max(len(value), 1)))


def read(value: str) -> object:
    """The tree of an expression as nested tuples."""
    report = Report()
    tree = parse(text(value), report)
    assert tree is not None, report.render()
    return plain(tree)


def plain(expr: Expr) -> object:
    match expr:
        case Number(value):
            return value
        case Name(id):
            return id
        case Apply(op, args):
            return (op, *map(plain, args))
        case Call(name, over, args):
            return (name, [each.id for each in over], *map(plain, args))
        case Item(base, items):
            return ("item", base.id, *map(plain, items))


@pytest.mark.parametrize(
    "value, tree",
    [
        ("a + b - 2", ("sub", ("add", "a", "b"), 2)),
        ("a - (b - 2)", ("sub", "a", ("sub", "b", 2))),
        ("a * b % c", ("mod", ("mul", "a", "b"), "c")),
        ("a // b ** 2", ("floordiv", "a", ("pow", "b", 2))),
        ("-a * b", ("mul", ("neg", "a"), "b")),
        ("-5", -5),
        ("- 2**31", ("neg", ("pow", 2, 31))),
        ("0x_ff", 255),
        ("1_000", 1000),
        ("a < b", ("lt", "a", "b")),
        ("0 <= a < b != c", ("and", ("and", ("le", 0, "a"), ("lt", "a", "b")), ("ne", "b", "c"))),
        ("a and b and c", ("and", ("and", "a", "b"), "c")),
        ("a or b and c", ("or", "a", ("and", "b", "c"))),
        ("not a == b", ("not", ("eq", "a", "b"))),
        ("a if c else b if d else e", ("if", "c", "a", ("if", "d", "b", "e"))),
        ("x[r, k + 1]", ("item", "x", "r", ("add", "k", 1))),
        ("x[(r, k)]", ("item", "x", "r", "k")),
        ("x[y[r]]", ("item", "x", ("item", "y", "r"))),
        ("x[l][r, k]", ("item", "x", "l", "r", "k")),
        ("a / b // c", ("floordiv", ("truediv", "a", "b"), "c")),
        ("0.5", 0.5),
        ("-1e-6", -1e-6),
        ("-0.0", ("neg", 0.0)),
        ("min(a, b, c)", ("min", [], "a", "b", "c")),
        ("sum[r, k](x[r, k])", ("sum", ["r", "k"], ("item", "x", "r", "k"))),
        ("first[k](a > 2, K)", ("first", ["k"], ("gt", "a", 2), "K")),
    ],
)
def test_tree(value: str, tree: object) -> None:
    assert read(value) == tree


@pytest.mark.parametrize(
    "value, code, marked",
    [
        ("a +", "bad-syntax", None),
        ("(a", "bad-syntax", "("),
        ("a b", "bad-syntax", None),
        ("a = b", "bad-syntax", None),
        ("x[]", "bad-syntax", None),
        ("größe + 1", "bad-syntax", "größe + 1"),
        ("a +\nb", "bad-syntax", None),
        ("a + 0.5j", "unsupported-syntax", "0.5j"),
        ("a + 'b'", "unsupported-syntax", "'b'"),
        ("a + None", "unsupported-syntax", "None"),
        ("a + True", "unsupported-syntax", "True"),
        ("a + b.c", "unsupported-syntax", "b.c"),
        ("a + [b]", "unsupported-syntax", "[b]"),
        ("a + (b, c)", "unsupported-syntax", "(b, c)"),
        ("a + {b}", "unsupported-syntax", "{b}"),
        ("a + (lambda: b)", "unsupported-syntax", "lambda: b"),
        ("a + (b := c)", "unsupported-syntax", "b := c"),
        ("a + max(*b)", "unsupported-syntax", "max(*b)"),
        ("a + max(b, c=1)", "unsupported-syntax", "max(b, c=1)"),
        ("a + f()()", "unsupported-syntax", "f()()"),
        ("a + x[b:c]", "unsupported-syntax", "b:c"),
        ("a + x[b][c][d]", "unsupported-syntax", "x[b][c][d]"),
        ("a + 1e999", "unsupported-syntax", "1e999"),
        ("a & b", "unsupported-syntax", "a & b"),
        ("a << b", "unsupported-syntax", "a << b"),
        ("a @ b", "unsupported-syntax", "a @ b"),
        ("a + +b", "unsupported-syntax", "+b"),
        ("a in b", "unsupported-syntax", "a in b"),
        ("a is b", "unsupported-syntax", "a is b"),
        ("a + sum[k + 1](b)", "not-an-index", "sum[k + 1]"),
        ("a + f'{b}'", "unsupported-syntax", "f'{b}'"),
        ("a + ~b", "unsupported-syntax", "~b"),
    ],
)
def test_what_is_refused(value: str, code: str, marked: str | None) -> None:
    report = Report()
    assert parse(text(value), report) is None
    (found,) = report.diagnostics
    assert found.code == code
    assert found.span.line == 3
    if marked is not None:
        assert value[found.span.column - 11 : found.span.end_column - 11] == marked


@pytest.mark.parametrize(
    "value, ends",
    [
        ("0 .. 9", ("0", "9")),
        ("0..9", ("0", "9")),
        ("  a + 1  ..  b - 1 ", ("a + 1", "b - 1")),
        ("0 ..", ("0", None)),
        (".. n", (None, "n")),
    ],
)
def test_range(value: str, ends: tuple[str | None, str | None]) -> None:
    report = Report()
    found = parse_range(text(value), report)
    assert not report.diagnostics
    for end, expected in zip(found, ends, strict=True):
        assert (end and end.value) == expected
        if end:
            assert value[end.span.column - 11 : end.span.end_column - 11] == expected


@pytest.mark.parametrize("value", ["", "..", "9", "0 - 9", "0 .. 1 .. 2", " .. "])
def test_not_a_range(value: str) -> None:
    report = Report()
    assert parse_range(text(value), report) is None
    assert [each.code for each in report.diagnostics] == ["bad-range"]


# Nothing that a user types may end in a traceback.

SPEC = """\
group: probe
summary: A probe.
sizes: {R: 0 .. 300, K: static 1 .. 12}
tensors:
  x: i64[R, K]
  y: {type: "i32[R]", mode: inout}
index: {r: R, k: K}
let: {m: r + 1}
store: {"y[r]": "WHAT"}
"""
TOKENS = "r k K R x y m 0 1 2**31 0.5 ( ) [ ] , . : + - * // % / ** < == and or not if else min sum".split()
TOKENS += ["i32(", "first[k](", "x[r, k]", "y[r]", "sum[k]("]


@settings(deadline=None, derandomize=True, max_examples=400)
@given(tokens=st.lists(st.sampled_from(TOKENS), max_size=9))
def test_any_words_give_a_group_or_a_diagnostic(front, tokens: list[str]) -> None:
    group, report = front.read(SPEC.replace("WHAT", " ".join(tokens)))
    assert group is not None or report.diagnostics
    assert report.render().count("error[") == len(report.diagnostics)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(value=st.text(st.characters(codec="utf-8"), max_size=12))
def test_any_text_gives_a_tree_or_a_diagnostic(value: str) -> None:
    report = Report()
    tree = parse(text(value), report)
    assert (tree is None) == bool(report.diagnostics)
    for each in report.diagnostics:
        assert 11 <= each.span.column < each.span.end_column


@pytest.mark.parametrize(
    "value",
    [
        "(" * 90 + "r" + ")" * 90,
        "(" * 900 + "r" + ")" * 900,
        "-" * 5000 + "r",
        " + ".join(["x[r, k]"] * 900),
        "0x" + "f" * 5000,
        "9" * 5000,
        "65536**64",
        "2**(2**60)",
        "1 // (2 - 2)",
    ],
    ids=lambda value: value[:12],
)
def test_extremes_give_a_diagnostic_or_a_group(front, value: str) -> None:
    front.read(SPEC.replace("WHAT", f"i32(y[r] + {value})"))
