"""Names, uses and declarations: what a group may be, beyond the one case of each mistake in specs_bad/."""

from __future__ import annotations

import pytest

SPEC = """\
group: probe
summary: A probe.
sizes: {R: 0 .. 300, K: static 1 .. 12}
tensors:
  x: i64[R, K]
  out: {type: "i64[R]", mode: out}
index: {r: R, k: K}
store:
  out[r]: sum[k](x[r, k])
"""


def edited(*edits: tuple[str, str]) -> str:
    """The spec with texts replaced, each of which stands there once."""
    text = SPEC
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


SUM = "sum[k](x[r, k])"


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [("K: static 1 .. 12", "K: static, L: K + 1"), (SUM, f"{SUM} + L")],
        [
            ("K: static 1 .. 12", "K: L - 1, L: static 2 .. 12"),
            ("R, K]", "R, K, L]"),
            ("[r, k]", "[r, k, 0]"),
        ],
        [("i64[R, K]", "i64[R, K * 2 + 1]\n  y: i64[K]"), (SUM, f"{SUM} + y[0]")],
        [("index:", "scalars: {n: i32}\nindex:"), (SUM, f"{SUM} + n")],
        [("index:", "scalars: {n: i32}\nindex:"), ("r: R", "r: n"), ("mode: out", "mode: inout")],
        [("index:", "when: R > 0 and K < 9\nindex:")],
        [("index:", "masks: {odd: r % 2 == 1}\nindex:"), (SUM, f"{SUM} if odd else 0")],
        [("index:", "let: {b: a + 1, a: 'x[r, 0]'}\nindex:"), (SUM, f"{SUM} + b")],
        [("store:", "schedule: {tile: {r: 64}, warps: 8}\nstore:")],
        [("mode: out}", 'mode: out, layout: any, doc: "sums"}')],
        [("x: i64[R, K]", 'x: {type: "i64[R, K]", values: "-5 .. R * K", layout: contiguous}')],
    ],
)
def test_accepted(front, edits: list[tuple[str, str]]) -> None:
    assert front.found(edited(*edits)) == []


@pytest.mark.parametrize(
    "edits, found",
    [
        (
            [("index:", "let: {a: b, b: c, c: a + r}\nindex:"), (SUM, f"{SUM} + a")],
            ("cyclic-let", "a"),
        ),
        ([("index:", "let: {a: a + 1}\nindex:"), (SUM, f"{SUM} + a")], ("cyclic-let", "a")),
        ([("r: R", "r: r + 1")], ("data-dependent", "r + 1")),
        (
            [("index:", "let: {a: K + 1}\nindex:"), (SUM, f"{SUM} + a"), ("r: R", "r: a")],
            ("data-dependent", "a"),
        ),
        (
            [("i64[R, K]", "i64[R, r]\n  y: i64[K]"), (SUM, f"{SUM} + y[0]")],
            ("data-dependent", "r"),
        ),
        ([("index:", "let: {a: r}\nindex:")], ("unused", "a")),
        ([("index:", "masks: {a: r > 2}\nindex:")], ("unused", "a")),
        ([("k: K", "k: K, j: K")], ("unused", "j")),
        ([("index:", "scalars: {n: i64}\nindex:")], ("unused", "n")),
        ([("index:", "scalars: {K: i64}\nindex:")], ("duplicate-name", "K")),
        ([("{r: R, k: K}", "{r: R, k: K, out: K}")], ("duplicate-name", "out")),
        ([(SUM, f"{{value: '{SUM}', when: r}}")], ("wrong-type", "r")),
        ([("store:", "schedule: {warps: 32}\nstore:")], ("bad-schedule", "32")),
        ([("store:", "schedule: {warps: -1}\nstore:")], ("bad-schedule", "-1")),
        ([("store:", "schedule: {tile: {r: 0}}\nstore:")], ("bad-schedule", "0")),
        ([("store:", "schedule: {tile: {r: 131072}}\nstore:")], ("bad-schedule", "131072")),
    ],
)
def test_refused(front, edits: list[tuple[str, str]], found: tuple[str, str]) -> None:
    assert front.found(edited(*edits)) == [found]


@pytest.mark.parametrize("sizes", ["A: A + 1", "A: B + 1, B: A - 1", "A: B, B: C, C: A"])
def test_a_size_is_not_part_of_itself(front, sizes: str) -> None:
    spec = edited(("K: static 1 .. 12", f"K: static 1 .. 12, {sizes}"), (SUM, f"{SUM} + y[0]"))
    spec = spec.replace("  out:", '  y: {type: "i64[A]", mode: inout}\n  out:') + "  y[0]: 7\n"
    assert front.found(spec)


@pytest.mark.parametrize(
    "load",
    [
        "y[0][r, k, 0]",
        "y[0][r]",
        "x[r][k]",
    ],
)
def test_brackets_of_lists_and_of_others(front, load: str) -> None:
    spec = edited(
        ("x: i64[R, K]", 'x: i64[R, K]\n  y: {type: "i64[R, K]", list: L}'),
        ("R: 0", "L: static, R: 0"),
    )
    right = spec.replace(SUM, f"{SUM} + y[0][r, 0] + sum[k](y[1][r, k])")
    assert front.found(right) == []
    assert front.found(right.replace("y[1][r, k]", load))


# The eager function: found in eager.py's text, never run.


@pytest.mark.parametrize(
    "eager, told",
    [
        ("def f(*, x, out): ...", ""),
        ("import no_such_module\n\ndef f(*, out, x): 1 / 0", ""),
        ("def g(*, x, out): ...", "eager.py has no function `f`"),
        (
            "def f(x, out): ...",
            "takes other arguments than the group: not keyword-only: `out`, `x`",
        ),
        ("def f(*, x): ...", "takes other arguments than the group: missing: `out`"),
        ("def f(*, x, out, n): ...", "takes other arguments than the group: not the group's: `n`"),
        ("class A:\n    def f(*, x, out): ...", "eager.py has no function `f`"),
        ("def f(:", "eager.py is not Python"),
        ("def f(y, *, x, out): ...", "takes other arguments than the group: not the group's: `y`"),
    ],
)
def test_eager(front, eager: str, told: str) -> None:
    path = front.folder / "eager.py"
    path.write_text(eager)
    try:
        _, report = front.read(edited(("index:", "eager: f\nindex:")))
    finally:
        path.unlink()
    assert [each.code for each in report.diagnostics] == (["bad-eager"] if told else [])
    assert all(told in each.message for each in report.diagnostics)
