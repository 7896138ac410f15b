"""Generated text: Python laid out as a formatter would, and the one place where specs' words are quoted."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

WIDTH = 100
_PAIRS = {")": "(", "]": "[", "}": "{"}


def literal(text: str) -> str:
    """A Python string, in the quotes that take fewer escapes, as a formatter leaves it."""
    quoted = json.dumps(text, ensure_ascii=False)
    if text.count('"') <= text.count("'"):
        return quoted
    return "'" + quoted[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"


def escaped(text: str) -> str:
    """Words inside a docstring."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def docstring(text: str, indent: str = "") -> str:
    """A docstring of one line, or of several that go on at `indent`."""
    body = escaped(text)
    before = " " if body.startswith('"') else ""
    lines = [f"{indent}{line}" if line else "" for line in body.split("\n")]
    shown = "\n".join(lines).removeprefix(indent)
    if len(lines) > 1:
        return f'"""{before}{shown}\n{indent}"""'
    bare = body.endswith('"') and not body.endswith('\\"\\"\\"')
    return f'"""{before}{shown}{" " if bare else ""}"""'


def filled(line: str, width: int) -> str:
    """A line of prose, broken at `width` columns; what goes on is indented by 4 more."""
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(
        line.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def cell(text: str) -> str:
    """Words in a table of Markdown."""
    return text.replace("|", "\\|")


@dataclass(frozen=True, slots=True)
class Tree:
    """A call, a dict, a list or a tuple: what opens it, its items, each after some text, what closes it."""

    head: str
    items: tuple[tuple[str, Tree | str], ...]
    tail: str

    def __str__(self) -> str:
        inner = ", ".join(f"{before}{item}" for before, item in self.items)
        comma = "," if self.head == "(" and len(self.items) == 1 else ""
        return f"{self.head}{inner}{comma}{self.tail}"

    def lines(self, before: str = "", after: str = "", indent: str = "") -> list[str]:
        """It on as many lines as a formatter gives it, with text before and after."""
        one = f"{indent}{before}{self}{after}"
        inner, called = f"{indent}    ", len(self.head) > 1
        short = inner + ", ".join(f"{prefix}{item}" for prefix, item in self.items)
        if len(one) <= WIDTH or not self.items:
            return [one]
        body = [short]
        if len(short) > WIDTH or not called:
            body = [line for prefix, item in self.items for line in lines(item, prefix, ",", inner)]
        return [f"{indent}{before}{self.head}", *body, f"{indent}{self.tail}{after}"]


def lines(item: Tree | str, before: str = "", after: str = "", indent: str = "") -> list[str]:
    """The lines of a tree, or of text that stays on one."""
    if isinstance(item, Tree):
        return item.lines(before, after, indent)
    return [f"{indent}{before}{item}{after}"]


def call(name: str, *items: Tree | str, **named: Tree | str | None) -> Tree:
    """A call; named arguments that are None are left out."""
    given = [(f"{key}=", item) for key, item in named.items() if item is not None]
    return Tree(f"{name}(", (*(("", item) for item in items), *given), ")")


def table(entries: Mapping[str, Tree | str]) -> Tree:
    """A dict from texts to what is Python already."""
    return Tree("{", tuple((f"{literal(key)}: ", item) for key, item in entries.items()), "}")


def texts(items: Iterable[str]) -> Tree:
    """A tuple of texts."""
    return Tree("(", tuple(("", literal(item)) for item in items), ")")


def wrap(text: str) -> str:
    """`text` with each long line that ends in a bracket broken after its commas."""
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    bare = line.lstrip()
    indent = line[: len(line) - len(bare)]
    if len(line) <= WIDTH or bare.startswith(("#", '"""')):
        return [line]
    tail = "," if line.endswith(",") else ""
    chooses = len(split_top(bare, " if ")) > 1
    for sign in ("&", "+") if not chooses else ():
        terms = split_top(bare.removesuffix(","), f" {sign} ")
        if len(terms) > 1 and tail:
            return _chain(terms, sign, indent, ",")
        name, equals, value = bare.partition(" = ")
        terms = split_top(value, f" {sign} ")
        at = _opening(terms[1], 0) if len(terms) == 2 and equals and terms[1][-1] == ")" else None
        if at is not None:
            head, inside = terms[1][: at + 1], terms[1][at + 1 : -1]
            two = [f"{indent}{name} = {terms[0]} {sign} {head}", f"{indent}    {inside}"]
            if max(map(len, two)) <= WIDTH:
                return [*two, f"{indent})"]
        if len(terms) > 1 and equals and name.isidentifier():
            return [f"{indent}{name} = (", *_chain(terms, sign, f"{indent}    ", ""), f"{indent})"]
    start = _opening(line.removesuffix(tail), len(indent))
    if start is None or chooses:
        name, equals, value = bare.partition(" = ")
        alone = equals and name.isidentifier() and not tail
        whole = len(indent) + 4 + len(value) <= WIDTH
        parts = [value] if whole else _choice(value)
        inner = [f"{indent}    {part}" for part in parts]
        return [f"{indent}{name} = (", *inner, f"{indent})"] if alone else [line]
    end = len(line) - len(tail) - 1
    while start >= WIDTH:  # what stands before a call that is too long is broken itself
        before = _closed(line, start, len(indent))
        if before is None:
            break
        start, end = before
    inner = split_top(line[start + 1 : end])
    one = f"{indent}    {', '.join(inner)}"
    head, foot = line[: start + 1], f"{indent}{line[end:]}"
    if len(one) <= WIDTH and line[start] not in "[{":
        return [head, one, foot]
    for sign in ("&", "+", "*"):
        terms = split_top(line[start + 1 : end], f" {sign} ")
        if len(inner) == 1 and len(terms) > 1:
            return [head, *_chain(terms, sign, f"{indent}    ", ""), foot]
    # A comma after the only element would make a tuple of what is merely in brackets.
    called = line[start] == "(" and (line[start - 1].isalnum() or line[start - 1] == "_")
    plural = called or len(inner) > 1 or line[start + 1 : end].rstrip().endswith(",")
    comma = "," if plural or line[start] != "(" else ""
    parts = [part for each in inner for part in _wrapped(f"{indent}    {each}{comma}")]
    return [head, *parts, foot]


def _chain(terms: list[str], sign: str, indent: str, tail: str) -> list[str]:
    """The terms of a sum, or of what `&` joins, each on a line of its own."""
    lines = [f"{indent}{terms[0]}", *(f"{indent}{sign} {term}" for term in terms[1:])]
    lines[-1] += tail
    return [part for line in lines for part in _factors(line)]


def _factors(line: str) -> list[str]:
    """A term of a chain, each factor on a line of its own if it is too long for one."""
    indent = line[: len(line) - len(line.lstrip())]
    first, *rest = split_top(line.strip(), " * ")
    if len(line) <= WIDTH or not rest:
        return _wrapped(line)
    return [f"{indent}{first}", *(f"{indent}* {each}" for each in rest)]


def _choice(value: str) -> list[str]:
    """`a if c else b` in three lines."""
    lines, *rest = [[part] for part in split_top(value, " if ")]
    for (each,) in rest:
        cond, *other = split_top(each, " else ")
        lines += [f"if {cond}", *(f"else {part}" for part in other)]
    return lines


def _opening(line: str, start: int) -> int | None:
    """Where the bracket that closes at the line's end opens; None if the line ends in none."""
    if not line or line[-1] not in _PAIRS:
        return None
    depth = 0
    for at in range(len(line) - 1, start - 1, -1):
        depth += (line[at] in _PAIRS) - (line[at] in _PAIRS.values())
        if depth == 0:
            return at if at + 1 < len(line) - 1 else None
    return None


def _closed(line: str, end: int, start: int) -> tuple[int, int] | None:
    """The last bracket outside of others that is opened and closed between two places."""
    close = max((line.rfind(each, start, end) for each in _PAIRS), default=-1)
    opened = _opening(line[: close + 1], start) if close >= 0 else None
    return (opened, close) if opened is not None else None


def split_top(text: str, separator: str = ",") -> list[str]:
    """The parts of a list, separators inside brackets left alone."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text if separator in text else ""):
        depth += (char in _PAIRS.values()) - (char in _PAIRS)
        if depth == 0 and text.startswith(separator, at) and at >= start:
            parts.append(text[start:at].strip())
            start = at + len(separator)
    last = text[start:].strip()
    return [*parts, last] if last else parts
