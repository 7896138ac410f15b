"""Lines of generated Python at most 100 columns wide, broken as a formatter would."""

from __future__ import annotations

WIDTH = 100
_PAIRS = {")": "(", "]": "[", "}": "{"}


def wrap(text: str) -> str:
    """`text` with each long line that ends in a bracket broken after its commas."""
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    bare = line.lstrip()
    indent = line[: len(line) - len(bare)]
    if len(line) <= WIDTH or bare.startswith(("#", '"""')):
        return [line]
    tail = "," if line.endswith(",") else ""
    for sign in ("&", "+"):
        terms = split_top(bare.removesuffix(","), f" {sign} ")
        if len(terms) > 1 and tail:
            return _chain(terms, sign, indent, ",")
        name, equals, value = bare.partition(" = ")
        terms = split_top(value, f" {sign} ")
        if len(terms) > 1 and equals and name.isidentifier():
            return [f"{indent}{name} = (", *_chain(terms, sign, f"{indent}    ", ""), f"{indent})"]
    start = _opening(line.removesuffix(tail), len(indent))
    if start is None or " if " in line:
        name, equals, value = bare.partition(" = ")
        alone = equals and name.isidentifier() and not tail
        return [f"{indent}{name} = (", f"{indent}    {value}", f"{indent})"] if alone else [line]
    end = len(line) - len(tail) - 1
    inner = split_top(line[start + 1 : end])
    one = f"{indent}    {', '.join(inner)}"
    head, foot = line[: start + 1], f"{indent}{line[end]}{tail}"
    if len(one) <= WIDTH and line[start] not in "[{":
        return [head, one, foot]
    for sign in ("&", "+"):
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
    return [part for line in lines for part in _wrapped(line)]


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


def split_top(text: str, separator: str = ",") -> list[str]:
    """The parts of a list, separators inside brackets left alone."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in _PAIRS.values()) - (char in _PAIRS)
        if depth == 0 and text.startswith(separator, at) and at >= start:
            parts.append(text[start:at].strip())
            start = at + len(separator)
    last = text[start:].strip()
    return [*parts, last] if last else parts
