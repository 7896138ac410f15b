"""Generated lines without those that compute what nothing uses.

Works on the lines of a kernel's body: assignments to one name, `for`, `if` and `else` with an
indented block, calls with an effect, and a comment before what it is about.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"\s*([A-Za-z_]\w*) = (.*)")
_HEADS = ("for ", "if ", "else:")


def words(texts: Iterable[str]) -> set[str]:
    """The names in lines of code, comments left out."""
    return {
        word for text in texts if not text.lstrip().startswith("#") for word in _NAME.findall(text)
    }


def pruned(lines: list[str]) -> list[str]:
    """The lines that something with an effect depends on, in order."""
    lines = _without_aliases(lines)
    made: dict[str, set[str]] = {}
    live: set[str] = set()
    for line in lines:
        assigned = _ASSIGNED.match(line)
        if assigned:
            made.setdefault(assigned[1], set()).update(words([assigned[2]]))
        elif not line.lstrip().startswith(_HEADS):
            live |= words([line])
    todo = list(live)
    while todo:
        more = made.get(todo.pop(), set()) - live
        live |= more
        todo += more
    kept: list[str] = []  # from the last line to the first
    below = False  # whether the line below is kept
    for at in range(len(lines) - 1, -1, -1):
        line, depth = lines[at], _depth(lines[at])
        assigned = _ASSIGNED.match(line)
        if line.lstrip().startswith("#"):
            keep = below
        elif line.lstrip().startswith(_HEADS):
            keep = bool(kept) and _depth(kept[-1]) > depth
            if not keep and line.lstrip().startswith("if ") and kept:
                keep = kept[-1].strip() == "else:" and _depth(kept[-1]) == depth
                kept += [f"{' ' * (depth + 4)}pass"] if keep else []
        else:
            keep = assigned is None or assigned[1] in live
        kept += [line] if keep else []
        below = keep
    return kept[::-1]


def _without_aliases(lines: list[str]) -> list[str]:
    """The lines with `a = b` left out and b written for a, where both are assigned once.

    A name that a comment explains is kept.
    """
    found = [match for line in lines if (match := _ASSIGNED.match(line))]
    count = Counter(match[1] for match in found)
    alias: dict[str, str] = {}
    kept: list[str] = []
    for line in lines:
        match = _ASSIGNED.match(line)
        explained = bool(kept) and kept[-1].lstrip().startswith("#")
        if match and not explained and count[match[1]] == count[match[2]] == 1:
            alias[match[1]] = alias.get(match[2], match[2])
        else:
            kept.append(line)
    if not alias:
        return kept
    names = re.compile(rf"\b({'|'.join(alias)})\b")
    return [
        line if line.lstrip().startswith("#") else names.sub(lambda each: alias[each[1]], line)
        for line in kept
    ]


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
