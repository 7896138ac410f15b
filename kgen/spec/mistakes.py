"""What is wrong with a file that is not YAML, in kgen's words and with a way to mend it.

In: the text of one file that a YAML loader has refused. Out: a place, a message and a help. PyYAML's own
parser says where it stopped, whichever loader is used, so that the words do not depend on libyaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import yaml

from kgen.diagnostics import Span

Words = tuple[Span, str, str]

_QUOTE = "put quotes around the whole value"
# A double quote that begins a value and has no partner in its line.
_OPEN_QUOTE = re.compile(r"(?:^ *|[:,{\[-] +|[{\[])(\")(?:[^\"\\]|\\.)*$")


@dataclass(frozen=True, slots=True)
class _Stop:
    """Where the parser stopped, and what it was reading (`context`) since when (`opened`)."""

    file: str
    lines: list[str]
    context: str
    opened: tuple[int, int]
    problem: str
    line: int
    column: int

    def span(self, start: int, end: int, line: int | None = None) -> Span:
        number = self.line if line is None else line
        return Span(self.file, number + 1, start + 1, max(end, start + 1) + 1)

    @property
    def here(self) -> Span:
        return self.span(self.column, self.column + 1)

    @property
    def char(self) -> str:
        return self.text(self.line)[self.column : self.column + 1]

    def text(self, line: int) -> str:
        return self.lines[line] if line < len(self.lines) else ""

    def whole(self, line: int) -> Span:
        """A line without the white space around it."""
        text = self.text(line)
        return self.span(_indent(text), len(text.rstrip()), line)

    @property
    def above(self) -> int:
        """The nearest line above that holds anything."""
        rows = range(self.line - 1, -1, -1)
        return next((row for row in rows if self.text(row).strip(" ")), 0)


def explain(text: str, file: str, error: Exception) -> Words:
    """The place of the first mistake in a text that PyYAML refuses, what it is, and how to mend it."""
    start = Span(file, 1, 1, 2)
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        opened = error.context_mark or mark
        if mark is None or opened is None:
            return start, "YAML can't read this file", ""
        stop = _Stop(
            file,
            text.split("\n"),
            error.context or "",
            (opened.line, opened.column),
            error.problem or "",
            mark.line,
            mark.column,
        )
        return _unclosed_quote(stop) or _said(stop)
    found = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if found is not None:
        line, begin = text.count("\n", 0, found.start()), text.rfind("\n", 0, found.start())
        place = Span(file, line + 1, found.start() - begin, found.start() - begin + 1)
        return place, f"a control character, U+{ord(found[0]):04X}, stands here", "remove it"
    if isinstance(error, RecursionError):
        return start, "the brackets are too deeply nested", "give the parts names under `let`"
    return start, "YAML can't read this file", ""


def _said(stop: _Stop) -> Words:
    for pattern, words in _WORDS:
        if re.search(pattern, f"{stop.context}; {stop.problem}"):
            return words(stop)
    return stop.here, "YAML can't read on from here", _QUOTE


def _unclosed_quote(stop: _Stop) -> Words | None:
    """A quoted value that runs on to the end of the file, or to the next quote mark some lines on."""
    if "quoted scalar" in stop.context and "end of stream" in stop.problem:
        line, column = stop.opened
    else:
        open_quotes = ((row, _OPEN_QUOTE.search(stop.text(row))) for row in range(stop.line))
        line, column = next(((row, m.start(1)) for row, m in open_quotes if m), (-1, -1))
    if line < 0:
        return None
    mark = stop.text(line)[column]
    place = stop.span(column, len(stop.text(line)), line)
    return place, "the quoted value that starts here has no end", f"write the closing {mark}"


def _in_braces(stop: _Stop) -> Words:
    """Where a `,` or the end of a `{` or `[` should be."""
    line, (top, left) = stop.text(stop.line), stop.opened
    opening = stop.text(top)[left : left + 1]
    closing = {"{": "}", "[": "]"}.get(opening, "}")
    if stop.char in ("[", "{"):
        before = line[: stop.column]
        start = max((m.end() for m in re.finditer(r"(^|[:,{]) *", before)), default=0)
        end = _value_end(line, start)
        value = line[start:end].rstrip()
        quoted = f"'{value}'" if '"' in value else f'"{value}"'
        return (
            stop.span(start, start + len(value)),
            f"inside {opening}{closing} YAML ends a value without quotes at `{stop.char}`",
            f"quote it: {quoted}",
        )
    if stop.line > top:
        place = stop.span(left, left + 1, top)
        return place, f"the `{opening}` that opens here is not closed", f"close it with `{closing}`"
    return (
        stop.here,
        f"inside {opening}{closing} a `,` or the closing `{closing}` is missing here",
        "quote a value that holds `: `, a comma or a bracket",
    )


def _value_end(line: str, start: int) -> int:
    """Where a key or value in braces ends for a person: its own brackets do not count."""
    depth = 0
    for column in range(start, len(line)):
        if depth == 0 and (line[column] in ",}" or line.startswith(": ", column)):
            return column
        depth += (line[column] in "([{") - (line[column] in ")]}")
    return len(line)


def _colon(stop: _Stop) -> Words:
    """A `: ` where no key can stand."""
    line, above = stop.text(stop.line), stop.text(stop.above)
    key = re.match(r" *(?:\"[^\"]*\"|'[^']*'|[^\"' ][^:]*?) *: +", line)
    if key is not None and key.end() <= stop.column:
        return (
            stop.span(key.end(), len(line.rstrip())),
            "a value without quotes can't hold `: `",
            _QUOTE,
        )
    if _indent(line) > _indent(above):
        return (
            stop.whole(stop.line),
            "this key is indented under a line that has a value already",
            "give it the indentation of the keys that it belongs to",
        )
    return _no_key(stop, stop.above)


def _no_key(stop: _Stop, line: int | None = None) -> Words:
    return (
        stop.whole(stop.opened[0] if line is None else line),
        "this line is not a `key: value`",
        "write a colon and a space after the key; indent a line that goes on with the value above",
    )


def _block_end(stop: _Stop) -> Words:
    before = stop.text(stop.line)[: stop.column].rstrip()
    if before[-1:] in ("'", '"', "]", "}"):
        rest = stop.span(stop.column, len(stop.text(stop.line).rstrip()))
        return rest, f"the value ends before this, at the `{before[-1]}`", _QUOTE
    return (
        stop.whole(stop.line),
        "this line does not line up with the keys above it",
        "give keys that belong together the same number of spaces",
    )


def _cannot_start(stop: _Stop) -> Words:
    if "scanning a" in stop.context and stop.char != "\t" and "token" not in stop.context:
        row, column = stop.opened  # of a block, an anchor, an alias or a tag
        char = stop.text(row)[column]
        place = stop.span(column, column + 1, row)
        return place, f"a value without quotes can't start with `{char}`", _QUOTE
    if stop.char == "\t":
        return stop.here, "a tab stands here; YAML is indented with spaces", "write spaces instead"
    if not stop.char:
        return stop.here, "the file ends in the middle of a value", "write the rest of it"
    return (
        stop.here,
        f"a value without quotes can't start with `{stop.char}`",
        _QUOTE if stop.char not in "]}" else "remove it, or open the bracket before it",
    )


def _second_document(stop: _Stop) -> Words:
    return (
        stop.whole(stop.line),
        "a second YAML document starts here; a file holds one spec",
        "move it to a file of its own",
    )


def _directive(stop: _Stop) -> Words:
    if stop.text(stop.line).startswith("---"):
        return _second_document(stop)
    line = next((n for n in range(stop.line) if stop.text(n)[:3] in ("...", "---")), 0)
    return (
        stop.whole(line),
        "a spec has no directives and no document marks of YAML",
        "remove this line; put a second spec into a file of its own",
    )


def _anchor(stop: _Stop) -> Words:
    first = stop.opened[0] + 1
    return stop.here, f"this anchor is in line {first} too", "give one of them another name"


def _alias(stop: _Stop) -> Words:
    name = re.match(r"\*[\w-]*", stop.text(stop.line)[stop.column :])
    shown = name[0] if name is not None else "*"
    place = stop.span(stop.column, stop.column + len(shown))
    return place, f"`{shown}` is a YAML alias, and no anchor has this name", _QUOTE


def _escape(stop: _Stop) -> Words:
    column = stop.column - 1
    shown = stop.text(stop.line)[column : column + 2]
    place = stop.span(column, column + 2)
    return place, f"`{shown}` is not an escape of YAML", "use single quotes"


_WORDS: tuple[tuple[str, Callable[[_Stop], Words]], ...] = (
    ("flow (mapping|sequence)", _in_braces),
    ("mapping values are not allowed", _colon),
    ("expected ':'", _no_key),
    ("another document", _second_document),
    ("<document start>|directive", _directive),
    ("duplicate anchor", _anchor),
    ("undefined alias", _alias),
    ("escape", _escape),
    (
        "cannot start|not allowed here|node content|indicator|an alias|an anchor|a tag",
        _cannot_start,
    ),
    ("<block end>", _block_end),
)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))
