"""YAML text to a tree in which every key and value knows its place.

In: the text of one file. Out: `Text`, `Block` and `Items`. Scalars stay text: what `yes`, `010` or
`1:30` mean is for the reader of a key to say, not for YAML. Does not know any key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import yaml

from kgen.diagnostics import Report, Span
from kgen.spec import mistakes

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar as written, without its quotes. `exact` says that columns count into the span."""

    value: str
    span: Span
    exact: bool = True

    def part(self, start: int, end: int) -> Span:
        """The place of the characters `start` to `end` of this text."""
        return self.span.within(start, end) if self.exact else self.span

    def slice(self, start: int, end: int) -> Text:
        """The characters `start` to `end`, without the white space around them."""
        raw = self.value[start:end]
        start += len(raw) - len(raw.lstrip())
        value = raw.strip()
        return Text(value, self.part(start, start + len(value)), self.exact)


@dataclass(frozen=True, slots=True)
class Items:
    """A YAML sequence."""

    items: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Block:
    """A YAML mapping, in order; its keys are distinct."""

    entries: tuple[tuple[Text, Node], ...]
    span: Span

    def get(self, key: str) -> Node | None:
        """The value of `key`, or None."""
        return next((value for name, value in self.entries if name.value == key), None)


Node: TypeAlias = Text | Items | Block


def plain(node: Node) -> object:
    """The tree without its places: str, list and dict."""
    match node:
        case Text(value):
            return value
        case Items(items):
            return [plain(item) for item in items]
        case Block(entries):
            return {key.value: plain(value) for key, value in entries}


def parse(text: str, file: str, report: Report) -> Block | None:
    """The mapping that a spec file holds; None after reporting why there is none."""
    start = Span(file, 1, 1, 2)
    root = None
    for loader in dict.fromkeys((_Loader, yaml.SafeLoader)):  # libyaml, and what PyYAML says of it
        try:
            root = yaml.compose(text, Loader=loader)
            break
        except (yaml.YAMLError, RecursionError) as error:
            refused = error
    else:
        span, message, help = mistakes.explain(text, file, refused)
        report.add("bad-yaml", span, message, help)
        return None
    if root is None:
        report.add("empty-file", start, "the file holds no spec", "start with `group: NAME`")
        return None
    located = _convert(root, text, file, report, frozenset())
    if not isinstance(located, Block):
        report.add(
            "wrong-shape",
            start,
            "a spec file holds one mapping of keys",
            "start with `group: NAME`",
        )
        return None
    return located


def _convert(node: yaml.Node, text: str, file: str, report: Report, above: frozenset[int]) -> Node:
    mark, end = node.start_mark, node.end_mark
    same_line = mark.line == end.line
    end_column = end.column + 1 if same_line else mark.column + 2
    span = Span(file, mark.line + 1, mark.column + 1, max(end_column, mark.column + 2))
    if id(node) in above:  # an alias to a mapping that it is part of
        report.add("wrong-shape", span, "a YAML alias may not contain itself")
        return Text("", span)
    above |= {id(node)}
    if not node.tag.startswith("tag:yaml.org,"):
        report.add(
            "bad-yaml",
            span,
            "YAML takes what starts with `!` for a tag",
            "write `not` for the opposite, or quotes around the whole value",
        )
    if isinstance(node, yaml.ScalarNode):
        quoted = node.style in ("'", '"')
        exact = same_line and end.column - mark.column == len(node.value) + 2 * quoted
        if exact and quoted:
            span = span.within(1, 1 + len(node.value))
        # Halves of a character, as JSON escapes them, are made one.
        value = node.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return Text(value, span, exact)
    if isinstance(node, yaml.SequenceNode):
        return Items(tuple(_convert(item, text, file, report, above) for item in node.value), span)
    entries: dict[str, tuple[Text, Node]] = {}
    for key_node, value_node in node.value:
        key = _convert(key_node, text, file, report, above)
        value = _convert(value_node, text, file, report, above)
        if not isinstance(key, Text):
            report.add("wrong-shape", key.span, "a key must be a name or an expression")
        elif key.value in entries:
            first = entries[key.value][0].span.line
            report.add(
                "duplicate-key",
                key.span,
                f"`{key.value}` stands here a second time",
                f"the first is in line {first}; keep one of them",
            )
        else:
            entries[key.value] = (key, value)
    return Block(tuple(entries.values()), span)
