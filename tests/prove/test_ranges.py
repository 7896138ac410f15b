"""Intervals: no value leaves its own, none is wider than it need be, and cheap quotients are right."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgen.lang.typed import Group, Op, walk
from kgen.prove.prove import rounded_down
from kgen.prove.reading import Reading

# Names with few values, so that all of them can be tried.
SIZES = {"R": "0 .. 300", "T": "0 .. 3", "K": "static 1 .. 3"}
SCALARS = {
    "a": '{type: i64, values: "-3 .. 4"}',
    "b": "{type: i32, values: 0 .. 5}",
    "d": "{type: i64, values: 1 .. 3}",
    "s": '{type: static, values: "-2 .. 2"}',
    "big": "{type: i32, values: 2**31 - 3 .. 2**31 - 1}",
    "huge": '{type: i64, values: "-9223372036854775807 .. -9223372036854775806"}',
}
TENSORS = {
    "y": '{type: "i32[T]", values: "-2 .. 3"}',
    "f": "bool[T]",
    "u": '{type: "u8[R]", values: "250 .."}',
    "out": '{type: "i64[R, K, T]", mode: inout}',
}
INDEX = {"r": "R", "t": "T", "k": "K"}
VALUES = {
    "a": range(-3, 5),
    "b": range(6),
    "d": range(1, 4),
    "s": range(-2, 3),
    "big": range(2**31 - 3, 2**31),
    "huge": range(-(2**63) + 1, -(2**63) + 3),
    "K": range(1, 4),
    "T": range(4),
}


def group_of(front, text: str) -> Group | None:
    """A group whose let `probe` is the expression; None if a number does not fit its operands."""
    group, report = front.typed(
        front.spec(
            sizes=SIZES,
            scalars=SCALARS,
            tensors=TENSORS,
            index=INDEX,
            let={"probe": text},
            store={"out[r, k, t]": "i64(probe)"},
        )
    )
    codes = {each.code for each in report.diagnostics}
    assert codes <= {"wrong-type", "narrowing", "division-by-zero"}, report.render() + text
    return group if not report.diagnostics else None


def points(machine, group: Group, text: str) -> Iterator[tuple[object, dict[str, int]]]:
    """Every choice of the names that an expression uses: a machine, and a point of the indices."""
    words = set(re.findall(r"\w+", text))
    used = [
        name for name in VALUES if name in words | ({"T"} if words & {"t", "y", "f"} else set())
    ]
    used += ["K"] if "k" in words and "K" not in used else []
    for chosen in itertools.product(*(VALUES[name] for name in used)):
        params = dict(zip(used, chosen, strict=True))
        count = params.get("T", 0)
        for y in itertools.product((-2, 3) if "y" in words else (0,), repeat=count):
            for f in itertools.product((0, 1) if "f" in words else (0,), repeat=count):
                for u in (250, 255) if "u" in words else (0,):
                    yield machine(group, params, {"y": y, "f": f, "u": [u]}), {"r": 0}


@st.composite
def numbers(draw: st.DrawFn, depth: int = 3, bound: tuple[str, ...] = ()) -> str:
    """An expression of a few names."""
    if depth <= 0 or draw(st.integers(0, 4)) == 0:
        leaves = ["a", "b", "d", "s", "a", "b", "big", "huge", "u[r]", "K", "0", "1", "-3", "7"]
        inner = {"t": ["t", "y[t]", "y[t]"], "k": ["k"]}
        leaves += [leaf for index in bound for leaf in inner[index] * 3]
        return draw(st.sampled_from(leaves))
    forms = [
        "({0}) + ({1})",
        "({0}) - ({1})",
        "({0}) * ({1})",
        "({0}) // d",
        "({0}) % d",
        "({0}) // 2",
    ]
    forms += ["({0}) % -2", "({0}) // max({1}, 1)", "({0}) % max({1}, 2)", "-({0})", "abs({0})"]
    forms += [
        "min({0}, {1})",
        "max({0}, {1})",
        "clamp({0}, 0, {1})",
        "({0}) if ({1}) > ({2}) else ({1})",
    ]
    forms += ["i32({0})", "u8({0})", "i64({0})", "i64(({0}) == ({1}))", "i64(not (({0}) <= ({1})))"]
    forms += ["i64(({0}) < ({1}) and ({1}) != ({2}))", "i64(({0}) >= ({1}) or ({1}) > 0)"]
    free = [index for index in "tk" if index not in bound]
    reductions = [
        "sum[?](@)",
        "max[?](@)",
        "min[?](@)",
        "count[?]((@) > ({0}))",
        "first[?]((@) > 0, {0})",
    ]
    form = draw(st.sampled_from([*forms, *(reductions if free else [])]))
    if "?" in form:
        index = draw(st.sampled_from(free))
        inner = draw(numbers(depth=depth - 1, bound=(*bound, index)))
        form = form.replace("?", index).replace("@", inner)
    less = numbers(depth=depth - 1, bound=bound)
    return form.format(
        *(draw(less) for _ in range(1 + max(map(int, re.findall(r"\{(\d)\}", form)), default=-1)))
    )


@settings(deadline=None, derandomize=True, max_examples=250)
@given(text=numbers())
def test_no_value_leaves_its_interval(front, machine, text: str) -> None:
    group = group_of(front, text)
    if group is None:
        return
    value = group.lets["probe"].value
    low, high = Reading(group).ends(value)
    for at, point in itertools.islice(points(machine, group, text), 3000):
        computed = at.at(value, point)
        assert low <= computed <= high, (at.params, at.tensors)


@pytest.mark.parametrize(
    "text, interval",
    [
        ("a", (-3, 4)),
        ("a + b", (-3, 9)),
        ("a - b", (-8, 4)),
        ("a * b", (-15, 20)),
        ("a * a", (-12, 16)),
        ("-a", (-4, 3)),
        ("abs(a)", (0, 4)),
        ("abs(a - 9)", (5, 12)),
        ("a // d", (-3, 4)),
        ("a // 2", (-2, 2)),
        ("b % d", (0, 2)),
        ("b % 7", (0, 5)),
        ("a % 7", (0, 6)),
        ("min(a, b)", (-3, 4)),
        ("max(a, b)", (0, 5)),
        ("clamp(a, 0, d)", (0, 3)),
        ("a if b > 2 else 9", (-3, 9)),
        ("a if b >= 0 else 9", (-3, 4)),
        ("a if b > 5 else 9", (9, 9)),
        ("i64(a < 5)", (1, 1)),
        ("i64(a > 4 or b < 0)", (0, 0)),
        ("i64(not (a < 5))", (0, 0)),
        ("i64(a == b)", (0, 1)),
        ("u[r]", (250, 255)),
        ("u[r] + u8(5)", (0, 255)),
        ("i32(u[r]) + 5", (255, 260)),
        ("big + 1", (-(2**31), 2**31 - 1)),
        ("i64(big) + 1", (2**31 - 2, 2**31)),
        ("huge - 3", (-(2**63), 2**63 - 1)),
        ("u8(a)", (0, 255)),
        ("u8(b)", (0, 5)),
        ("r", (0, 299)),
        ("R", (0, 300)),
        ("K + s", (-1, 5)),
        ("sum[t](y[t])", (-6, 9)),
        ("sum[k](b + k)", (0, 21)),
        ("count[t](f[t])", (0, 3)),
        ("max[k](a + k)", (-3, 6)),
        ("min[t](y[t])", (-2, 2**31 - 1)),
        ("first[t](f[t], 7)", (0, 7)),
        ("first[k](b > k, -1)", (-1, 2)),
    ],
)
def test_interval(front, text: str, interval: tuple[int, int]) -> None:
    group = group_of(front, text)
    assert Reading(group).ends(group.lets["probe"].value) == interval


@pytest.mark.parametrize(
    "text, cheap",
    [
        ("b // d", True),
        ("b % d", True),
        ("b // 4", True),
        ("r % 7", True),
        ("max(a, 0) // d", True),
        ("(a + 3) % d", True),
        ("u[r] // u8(3)", True),
        ("a // d", False),
        ("a % d", False),
        ("(b - 1) // d", False),
        ("b // -2", False),
        ("b % -2", False),
        ("(big + 1) // 2", False),
        ("(big * 2) % 7", False),
        ("i32(i64(big) + 1) // 3", False),
        ("(i64(big) + 1) // 3", True),
        ("(huge - 3) % 2", False),
    ],
)
def test_a_quotient_is_cheap_only_where_nothing_is_negative(front, text: str, cheap: bool) -> None:
    group = group_of(front, text)
    value = group.lets["probe"].value
    quotients = [e for e in walk(value, {}) if isinstance(e, Op) and e.op in ("floordiv", "mod")]
    assert len(quotients) == 1
    assert (quotients[0] not in rounded_down(Reading(group))) == cheap


COMPARISONS = """
a < 5 | a < 4 | a < -2 | a < -3 | a <= 4 | a <= 3 | a <= -3 | a <= -4
a > -4 | a > -3 | a > 3 | a > 4 | a >= -3 | a >= -2 | a >= 4 | a >= 5
a == 4 | a == 5 | a == -3 | a == -4 | a != 4 | a != 5 | a != -4 | 3 == 3 | 3 != 3 | a < b | b >= 0
"""


@pytest.mark.parametrize("text", [each.strip() for each in re.split(r"[|\n]", COMPARISONS.strip())])
def test_interval_of_a_comparison(front, text: str) -> None:
    found = {int(eval(text, {"a": a, "b": b})) for a in VALUES["a"] for b in VALUES["b"]}
    group = group_of(front, f"i64({text})")
    assert Reading(group).ends(group.lets["probe"].value) == (min(found), max(found))


# What is reported.


@pytest.mark.parametrize(
    "text, divisor",
    [
        ("a // d", ""),
        ("a // max(b, 1)", ""),
        ("a % (b + 1)", ""),
        ("a // (b - 7)", ""),
        ("a // K", ""),
        ("a // b", "b"),
        ("a % a", "a"),
        ("a // s", "s"),
        ("a // u[r]", ""),
        ("a // (u[r] + u8(1))", "u[r] + u8(1)"),
        ("a // (big + 1)", "big + 1"),
        ("a if b > 0 else a // R", "R"),
        ("sum[t](a // (y[t] + 3))", ""),
        ("sum[t](a // (y[t] + 2))", "y[t] + 2"),
    ],
)
def test_divisors(front, text: str, divisor: str) -> None:
    spec = front.spec(
        sizes=SIZES,
        scalars=SCALARS,
        tensors=TENSORS,
        index=INDEX,
        let={"probe": text},
        store={"out[r, k, t]": "i64(probe)"},
    )
    assert front.found(spec) == ([("division-by-zero", divisor)] if divisor else [])


@pytest.mark.parametrize(
    "old, new",
    [
        pytest.param("T: ", "Q: R // T, T: ", id="derived size"),
        pytest.param("t: T", "t: T // R", id="extent"),
        pytest.param("index:", "when: 7 // T > 2\nindex:", id="launch condition"),
        pytest.param('values: "0 .. 9"', 'values: "0 .. 9 // T"', id="range"),
    ],
)
def test_divisors_on_the_host(front, old: str, new: str) -> None:
    spec = """\
group: probe
summary: A probe.
sizes: {R: 0 .. 300, T: 0 .. 9}
tensors:
  x: {type: "i64[R, T]", values: "0 .. 9"}
  out: {type: "i64[R]", mode: out}
index: {r: R, t: T}
store: {"out[r]": "sum[t](x[r, t])"}
"""
    assert front.found(spec) == []
    spec = spec.replace(old, new)
    if "Q" in spec:
        spec = spec.replace("i64[R, T]", "i64[R, T, Q]").replace("x[r, t]", "x[r, t, 0]")
    assert [code for code, _ in front.found(spec)] == ["division-by-zero"]


@pytest.mark.parametrize(
    "values, empty",
    [
        ("0 .. 9", False),
        ("9 .. 9", False),
        ("9 .. 8", True),
        ("R .. 0", False),
        ("R + 301 .. 300", True),
        ("0 .. K - 4", True),
        ("0 .. K - 3", False),
        ("0 ..", False),
        (".. -1", False),
        ("0 .. 2**63 - 1", False),
    ],
)
def test_empty_ranges(front, values: str, empty: bool) -> None:
    spec = f"""\
group: probe
summary: A probe.
sizes: {{R: 0 .. 300, K: static 1 .. 3}}
scalars: {{n: {{type: i64, values: "{values}"}}}}
tensors: {{"x": "i64[R, K]", "out": {{type: "i64[R]", mode: out}}}}
index: {{r: R}}
store: {{"out[r]": "x[r, 0] + n"}}
"""
    assert front.found(spec) == ([("empty-range", values)] if empty else [])
