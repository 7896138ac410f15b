"""Diagnostics as data and as text."""

from __future__ import annotations

import json

import pytest

from kgen.build import compile_specs
from kgen.diagnostics import CATALOGUE, Diagnostic, Report, Span, SpecError, nearest, render

SOURCE = "group: probe\n\tstore: {x: y}\n"


def diagnostic(line: int = 2, column: int = 2, end: int = 7, message: str = "wrong") -> Diagnostic:
    return Diagnostic(Span("a.yaml", line, column, end), "unused", message, "remove it")


def test_every_code_says_why_in_a_sentence() -> None:
    for code, why in CATALOGUE.items():
        assert code == code.lower().replace(" ", "-")
        assert why.endswith(".")


def test_a_code_outside_the_catalogue_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="misspelt-code"):
        Diagnostic(Span("a.yaml", 1, 1, 2), "misspelt-code", "wrong")


GROUP = """\
group: {name}
summary: One of several.
sizes: {{{sizes}}}
tensors:
  x: i32[R]
  y: {{type: "i32[{dim}]", mode: out}}
index: {{r: R}}
store:
  y[r]: {value}
"""


def test_a_mistake_of_one_group_hides_none_of_others(tmp_path) -> None:
    groups = {
        "one/unused": ("R: 0 .. 64, S: 0 .. 9", "R", "x[r]"),
        "one/empty": ("R: 0 .. 64", "R - 65", "x[r]"),
        "one/outside": ("R: 0 .. 64", "R", "x[r + 1]"),
        "two/gap": ("R: 0 .. 64", "R + 1", "x[r]"),
    }
    for path, (sizes, dim, value) in groups.items():
        file = tmp_path / f"{path}.yaml"
        file.parent.mkdir(exist_ok=True)
        name = path.partition("/")[2]
        file.write_text(GROUP.format(name=name, sizes=sizes, dim=dim, value=value))
    with pytest.raises(SpecError) as raised:
        compile_specs(tmp_path)
    assert {
        (each.span.file.rsplit("/", 1)[1], each.code) for each in raised.value.report.ordered()
    } == {
        ("unused.yaml", "unused"),
        ("empty.yaml", "empty-range"),
        ("outside.yaml", "out-of-bounds"),
        ("gap.yaml", "partly-stored"),
    }


def test_text() -> None:
    assert render(diagnostic(), {"a.yaml": SOURCE}) == (
        "error[unused]: wrong\n"
        "  --> a.yaml:2:2\n"
        "  |\n"
        "2 |  store: {x: y}\n"
        "  |  ^^^^^\n"
        f"  = why: {CATALOGUE['unused']}\n"
        "  = help: remove it\n"
    )


@pytest.mark.parametrize(
    "line, column, end, mark",
    [
        (1, 8, 13, "         ^^^^^"),
        (1, 8, 99, "         ^^^^^"),
        (1, 13, 14, "              ^"),
        (1, 8, 8, "         ^"),
    ],
)
def test_the_mark_stays_within_its_line(line: int, column: int, end: int, mark: str) -> None:
    text = render(diagnostic(line, column, end), {"a.yaml": SOURCE})
    assert f"{line} | group: probe\n  |{mark[1:]}\n" in text


@pytest.mark.parametrize("line, sources", [(9, {"a.yaml": SOURCE}), (1, {})])
def test_text_without_the_line(line: int, sources: dict[str, str]) -> None:
    text = render(diagnostic(line), sources)
    assert f"  --> a.yaml:{line}:2\n  = why" in text


def test_colours_only_when_asked_and_nothing_else_changes() -> None:
    plain = render(diagnostic(), {"a.yaml": SOURCE})
    coloured = render(diagnostic(), {"a.yaml": SOURCE}, colour=True)
    assert "\x1b[" in coloured
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[31m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


def test_json_holds_all_that_the_text_says() -> None:
    data = json.loads(json.dumps(diagnostic().json()))
    assert data == {
        "code": "unused",
        "file": "a.yaml",
        "line": 2,
        "column": 2,
        "end_column": 7,
        "message": "wrong",
        "why": CATALOGUE["unused"],
        "help": "remove it",
        "also": [],
    }


def test_other_places_are_shown_too() -> None:
    found = Diagnostic(
        Span("a.yaml", 2, 1, 2), "unused", "wrong", "", ((Span("b.py", 1, 3, 4), "the other"),)
    )
    text = render(found, {"a.yaml": "one\ntwo\n", "b.py": "three\n"})
    assert "2 | two\n  | ^\n  --> b.py:1:3: the other\n  |\n1 | three\n  |   ^\n  = why" in text
    assert found.json()["also"] == [
        {"file": "b.py", "line": 1, "column": 3, "end_column": 4, "message": "the other"}
    ]


def test_a_report_is_in_order_and_tells_nothing_twice() -> None:
    report = Report()
    for line, message in ((3, "b"), (2, "b"), (2, "a"), (3, "b")):
        report.add("unused", Span("a.yaml", line, 1, 2), message)
    assert [(each.span.line, each.message) for each in report.ordered()] == [
        (2, "a"),
        (2, "b"),
        (3, "b"),
    ]
    assert report.render().count("error[unused]") == 3


@pytest.mark.parametrize(
    "name, known, help",
    [
        ("batchs", ["batch", "blocks"], "did you mean `batch`?"),
        ("zz", ["b", "a"], "there is `a`, `b`"),
        ("zz", [], ""),
        ("zz", [f"n{each:02}" for each in range(24)], ", `n19`, ..."),
        ("zz", ["a", "a"], "there is `a`"),
        ("BATCHS", ["batch", "blocks"], "did you mean `batch`?"),
        ("k1", ["K1", "L1"], "did you mean `K1`?"),
    ],
)
def test_nearest(name: str, known: list[str], help: str) -> None:
    assert nearest(name, known).endswith(help)
    if not help:
        assert nearest(name, known) == ""
