"""YAML with places: scalars stay text, and each knows where it stands."""

from __future__ import annotations

import pytest

from kgen.diagnostics import Report
from kgen.spec.located import Block, Text, parse, plain


def read(text: str) -> Block:
    """The mapping of a text that is right."""
    report = Report()
    block = parse(text, "a.yaml", report)
    assert not report.diagnostics
    assert block is not None
    return block


@pytest.mark.parametrize(
    "value",
    [
        "yes",
        "no",
        "010",
        "1_000",
        "1:30",
        "2001-01-01",
        "null",
        "~",
        "1.5",
        "0x1f",
        "",
        "0 .. 9",
        ".inf",
        "=",
    ],
)
def test_scalars_stay_as_they_are_written(value: str) -> None:
    assert plain(read(f"a: {value}\nb: [{value or 'x'}]\n"))["a"] == value


def test_kinds_and_order() -> None:
    text = "b: {y: [1, {z: 2}], x: ''}\na: |\n  two\n  lines\n"
    assert plain(read(text)) == {"b": {"y": ["1", {"z": "2"}], "x": ""}, "a": "two\nlines\n"}
    assert [key.value for key, _ in read(text).entries] == ["b", "a"]


@pytest.mark.parametrize(
    "text, place, exact",
    [
        ("a: bcd\n", (1, 4, 7), True),
        ("\n\n  a: bcd   # e\n", (3, 6, 9), True),
        ("a: 'bcd'\n", (1, 5, 8), True),
        ('a: "bcd"\n', (1, 5, 8), True),
        ("{x: größe, a: bcd}\n", (1, 15, 18), True),
        ("x: 1\r\na: bcd\r\n", (2, 4, 7), True),
        ('a: "b\\x63d"\n', (1, 4, 12), False),
        ("a: >\n  bcd\n", (1, 4, 5), False),
        ("a: b\n  cd\n", (1, 4, 5), False),
    ],
)
def test_places(text: str, place: tuple[int, int, int], exact: bool) -> None:
    found = read(text).get("a")
    assert isinstance(found, Text)
    assert (found.span.line, found.span.column, found.span.end_column) == place
    assert found.exact == exact


def test_parts_of_a_text() -> None:
    text = read("a: ' b +  c '\n").get("a")
    assert isinstance(text, Text)
    part = text.slice(4, 8)
    assert (part.value, part.span.column, part.span.end_column) == ("c", 11, 12)
    whole = text.slice(0, 99)
    assert (whole.value, whole.span.column) == ("b +  c", 6)


def test_an_alias_stands_for_what_it_names() -> None:
    assert plain(read("a: &same {x: 1}\nb: *same\n")) == {"a": {"x": "1"}, "b": {"x": "1"}}


@pytest.mark.parametrize(
    "text, code, line",
    [
        ("", "empty-file", 1),
        ("# nothing\n", "empty-file", 1),
        ("--- \n...\n", "wrong-shape", 1),
        ("- a\n", "wrong-shape", 1),
        ("just words\n", "wrong-shape", 1),
        ("a: 1\n? [b]\n: 2\n", "wrong-shape", 2),
        ("a: &x\n  b: *x\n", "wrong-shape", 1),
        ("a: 1\nb: 2\na: 3\n", "duplicate-key", 3),
        ("a: {b: 1, c: 2, b: 3}\n", "duplicate-key", 1),
        ("a: 1\n'a': 3\n", "duplicate-key", 2),
        ("a: 1\nb: [\n", "bad-yaml", 3),
        ("a: 1\n---\nb: 2\n", "bad-yaml", 2),
        ("a: *none\n", "bad-yaml", 1),
        ("a: \x07\n", "bad-yaml", 1),
    ],
)
def test_what_is_no_mapping(text: str, code: str, line: int) -> None:
    report = Report()
    parse(text, "a.yaml", report)
    assert [(each.code, each.span.line) for each in report.diagnostics] == [(code, line)]
