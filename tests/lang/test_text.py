"""Printing a typed value gives text that reads back as the same value, brackets where they matter."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kgen.lang.text import spec_text
from kgen.lang.typed import (
    Cast,
    Const,
    Given,
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

SPECS = sorted(
    path
    for path in (Path(__file__).parents[2] / "specs").glob("*/*.yaml")
    if path.name != "step.yaml" and "\nfuse:" not in path.read_text(encoding="utf-8")
)

# The shape of a tree: a name or a number, or a tuple of an operator and its operands.

INFIX = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.And: "and",
    ast.Or: "or",
    ast.Not: "not",
    ast.USub: "neg",
}


def shape(value: Value) -> object:
    """The shape of a typed value."""
    match value:
        case Const(number):
            return number
        case Param(name) | Index(name) | Ref(name):
            return name
        case Given(tensor):
            return ("given", tensor)
        case Load(tensor, items):
            return ("item", tensor, *map(shape, items))
        case Cast(arg, dtype):
            return (dtype, shape(arg))
        case Select(cond, then, other):
            return ("if", shape(cond), shape(then), shape(other))
        case Reduce(kind, index, arg, none):
            return (f"{kind}[{index}]", shape(arg), *([] if none is None else [shape(none)]))
        case Scan(kind, index, arg):
            return (f"{kind}[{index}]", shape(arg))
        case Op(op, args):
            return (op, *map(shape, args))


def shape_of_python(node: ast.expr) -> object:
    """The shape of what Python reads."""
    read = shape_of_python
    match node:
        case ast.Constant(int(number) | float(number)):
            return number
        case ast.UnaryOp(ast.USub(), ast.Constant(int(number) | float(number))) if number:
            return -number
        case ast.Name(name):
            return name
        case ast.Subscript(ast.Name(tensor), ast.Tuple(items)):
            return ("item", tensor, *map(read, items))
        case ast.Subscript(ast.Name(tensor), item):
            return ("item", tensor, read(item))
        case ast.Call(ast.Name(name), args):
            return (name, *map(read, args))
        case ast.Call(ast.Subscript(ast.Name(kind), ast.Name(index)), args):
            return (f"{kind}[{index}]", *map(read, args))
        case ast.BinOp(left, op, right):
            return (INFIX[type(op)], read(left), read(right))
        case ast.Compare(left, [op], [right]):
            return (INFIX[type(op)], read(left), read(right))
        case ast.BoolOp(op, [first, *rest]):
            result = read(first)
            for each in rest:
                result = (INFIX[type(op)], result, read(each))
            return result
        case ast.UnaryOp(op, operand):
            return (INFIX[type(op)], read(operand))
        case ast.IfExp(test, body, orelse):
            return ("if", read(test), read(body), read(orelse))
    raise AssertionError(ast.dump(node))


# Random expressions, every operand in brackets, so that reading them needs no precedence.

SIZES = {"R": "0 .. 300", "K": "static 1 .. 12"}
SCALARS = {"a": "i64", "b": "i32", "d": "{type: i64, values: 1 .. 9}"}
TENSORS = {
    "x": "i64[R, K]",
    "h": "f32[R]",
    "q": "bf16[R]",
    "y": "i32[R]",
    "f": "bool[R]",
    "i64_out": '{type: "i64[R, K]", mode: out}',
    "f32_out": '{type: "f32[R, K]", mode: out}',
}
INDEX = {"r": "R", "k": "K"}


@st.composite
def numbers(draw: st.DrawFn, depth: int = 4) -> str:
    """A number made of smaller ones."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from("a b d r k K R 0 1 17 -5 x[r,k] y[r]".split()))
    less = numbers(depth - 1)
    forms = [
        "({}) + ({})",
        "({}) - ({})",
        "({}) * ({})",
        "({}) // (d)",
        "({}) % (-7)",
        "({}) // (K)",
    ]
    forms += ["-({})", "abs({})", "i64(b - ({}))", "min({}, {})", "max({}, {})", "x[{}, 0]"]
    forms += ["sum[k]({})", "max[r]({})", "cumsum[k]({})"]
    form = draw(st.sampled_from([*forms, "({}) if (?) else ({})", "first[k](?, {})", "i64(?)"]))
    return fill(draw, form, less, conditions(depth - 1))


@st.composite
def conditions(draw: st.DrawFn, depth: int = 4) -> str:
    """A condition made of smaller ones."""
    if depth <= 0 or draw(st.integers(0, 4)) == 0:
        return "f[r]"
    forms = [f"({{}}) {sign} ({{}})" for sign in ("<", "<=", ">", ">=", "==", "!=")]
    forms += [
        "(?) and (?)",
        "(?) or (?)",
        "(?) == (?)",
        "not (?)",
        "(?) if (?) else (?)",
        "any[r](?)",
    ]
    return fill(draw, draw(st.sampled_from(forms)), numbers(depth - 1), conditions(depth - 1))


def fill(
    draw: st.DrawFn, form: str, number: st.SearchStrategy[str], condition: st.SearchStrategy[str]
) -> str:
    """A form with a number for each `{}` and a condition for each `?`."""
    parts = re.split(r"(\{\}|\?)", form)
    drawn = {"{}": number, "?": condition}
    return "".join(draw(drawn[part]) if part in drawn else part for part in parts)


def value_of(front, text: str, result: str = "i64") -> Value | None:
    """The typed value of an expression; None if a number in it does not fit its operands."""
    spec = front.spec(
        sizes=SIZES,
        scalars=SCALARS,
        tensors=TENSORS,
        index=INDEX,
        let={"probe": text},
        store={f"{result}_out[r, k]": f"{result}(probe)"},
    )
    group, report = front.read(spec)
    codes = {each.code for each in report.diagnostics}
    assert codes <= {"wrong-type", "division-by-zero"}, report.render() + text
    return group.lets["probe"].value if group is not None else None


def check(front, text: str) -> None:
    """The text reads back, from what is printed, as the same tree; Python agrees about its shape."""
    value = value_of(front, text)
    assume(value is not None)
    printed = spec_text(value).text
    assert value_of(front, printed) == value, printed
    assert shape_of_python(ast.parse(printed, mode="eval").body) == shape(value), printed


@settings(deadline=None, derandomize=True, max_examples=300)
@given(text=numbers())
def test_random_expressions_read_back(front, text: str) -> None:
    check(front, text)


# The pairs of operators whose brackets matter.
PAIRS = """
a - (b - d) | a - (b + d) | (a - b) - d | a // (d // 3) | (a // d) // 3 | a * (b % d) | a % 7 * b
a * (b // d)
5 * (a % 2) | (5 * a) % 2 | -(a + b) | -a + b | -(a * b) | (-a) * b | -(-a) | a - -5 | a - (-b) | -(a // d)
(a < b) == (d < a) | not (a < b) == f[r] | (not a < b) == f[r] | not (a < b and f[r]) | (not f[r]) and a < b
a < b and (b < d and f[r]) | (a < b or f[r]) and b < d | a < b or f[r] and b < d | not (not f[r])
(a if f[r] else b) + d | a if f[r] else b + d | (a if f[r] else b) if a < b else d
a if f[r] else (b if a < b else d) | a if (f[r] if a < b else b < d) else d | -(a if f[r] else b)
abs(a if f[r] else b) | x[r - (a - b), 0] | min(a, b, d)
a < b < d | sum[r, k](x[r, k]) | clamp(a, b, d) | count[k](x[r, k] > 3) | bool(a) | cumprod[k](x[r, k] + 1)
"""


@pytest.mark.parametrize(
    "text", [each.strip() for line in PAIRS.split("\n") for each in line.split("|") if each]
)
def test_brackets(front, text: str) -> None:
    value = value_of(front, text)
    assert value is not None
    printed = spec_text(value).text
    assert value_of(front, printed) == value, printed
    assert shape_of_python(ast.parse(printed, mode="eval").body) == shape(value), printed


FLOATS = """
h[r] / h[0] / h[1] | h[r] / (h[0] / h[1]) | h[r] / (h[0] * h[1]) | -(h[r] / h[0])
h[r] * -0.5 | -0.0 * h[r] | sqrt(h[r] * h[r]) | rsqrt(h[r] + 1e-05) | exp(-h[r]) | f32(a) / d
a / d | sum[k](h[r] / k) | f32(q[r]) * h[r] | q[r] * 0.5 | h[r] if h[r] > 0.25 else -h[r] | max(h[r], 0.0)
h[r] * 0.5 - (h[0] - 1e-6) | 2.5 * (h[r] + 3) | h[r] - (h[0] - h[1]) | h[r] + (h[0] + h[1])
"""


@pytest.mark.parametrize("text", [each.strip() for each in re.split(r"[|\n]", FLOATS.strip())])
def test_floats_read_back(front, text: str) -> None:
    value = value_of(front, text, "f32")
    assert value is not None
    printed = spec_text(value).text
    assert value_of(front, printed, "f32") == value, printed
    assert shape_of_python(ast.parse(printed, mode="eval").body) == shape(value), printed


@pytest.mark.parametrize(
    "text, printed",
    [
        ("((a + (b)) - (d))", "a + i64(b) - d"),
        ("(a * d) + (-(a))", "a * d + -a"),
        ("((r) < (a)) and ((a) < (d))", "r < a and a < d"),
        ("(x[(r), (k)]) // (2**3 - 1)", "x[r, k] // 7"),
        ("not (not (f[r]))", "not not f[r]"),
    ],
)
def test_no_bracket_too_many(front, text: str, printed: str) -> None:
    assert spec_text(value_of(front, text)).text == printed


@pytest.mark.parametrize(
    "text, result",
    [
        ("i64(5) + a", "i64"),
        ("i64(5) // i64(2)", "i64"),
        ("q[r] + bf16(0.1)", "f32"),
        ("q[r] if f[r] else bf16(0.1)", "f32"),
        ("i32(5) if f[r] else i32(6)", "i64"),
        ("max[k](i32(5))", "i64"),
        ("x[i64(0), u8(1)]", "i64"),
    ],
)
def test_a_cast_number_reads_back(front, text: str, result: str) -> None:
    value = value_of(front, text, result)
    assert value is not None
    assert value_of(front, spec_text(value).text, result) == value


@pytest.mark.parametrize(
    "text, printed",
    [
        ("prefix[r](x[r, k])", "prefix[r](x[r, k])"),
        ("prefix[r](y[r] + 1)", "prefix[r](y[r] + 1)"),
        ("prefix[r](prefix[r](y[r]))", "prefix[r](prefix[r](y[r]))"),
        ("prefix[r](max[r](y[r]) + y[r])", "prefix[r](max[r](y[r]) + y[r])"),
        ("prefix[r](cumsum[k](x[r, k]))", "prefix[r](cumsum[k](x[r, k]))"),
        ("prefix[k](x[r, k]) + prefix[r](1)", "prefix[k](x[r, k]) + prefix[r](1)"),
    ],
)
def test_a_prefix_reads_back(front, text: str, printed: str) -> None:
    value = value_of(front, text)
    assert value is not None
    assert spec_text(value).text == printed
    assert value_of(front, printed) == value


# The specs themselves.


def direct(value: Value) -> Value:
    """A stored value; a static number that is cast goes by way of i64 where the cast is written out."""
    match value:
        case Cast(Cast(Param(), "i64") as inner, _) if inner.arg.dtype == "int":
            return replace(value, arg=inner.arg)
    return value


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_expression_of_the_specs_reads_back(front, path: Path) -> None:
    source = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    source.pop("eager", None)
    group = front.group(yaml.safe_dump(source, sort_keys=False))
    printed = {name: spec_text(let.value).text for name, let in group.lets.items()}
    for table in ("let", "masks"):
        if table in source:
            source[table] = {name: printed[name] for name in source[table]}
    entries = {}
    for written, store in zip(source["store"].values(), group.stores, strict=True):
        entry = {"value": written} if isinstance(written, str) else dict(written)
        entry["value"] = spec_text(store.value).text
        if "when" in entry and "collide" not in entry:  # a winner is part of the condition
            entry["when"] = spec_text(store.when).text
        place = ", ".join(spec_text(item).text for item in store.items)
        entries[f"{store.tensor}[{place}]"] = entry
    source["store"] = entries
    again = front.group(yaml.safe_dump(source, sort_keys=False))
    assert {name: let.value for name, let in again.lets.items()} == {
        name: let.value for name, let in group.lets.items()
    }
    for one, other in zip(group.stores, again.stores, strict=True):
        assert (one.tensor, one.items, one.when) == (other.tensor, other.items, other.when)
        assert direct(one.value) == direct(other.value)
        assert shape_of_python(ast.parse(spec_text(one.value).text, mode="eval").body) == shape(
            one.value
        )
