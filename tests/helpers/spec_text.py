"""The text of a spec as data in the shape of its YAML, and back; what nothing uses is left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import yaml

Data = dict[str, Any]


def tidy(text: str) -> str:
    """An expression with no more parentheses than it needs."""
    try:
        return ast.unparse(ast.parse(text, mode="eval"))
    except SyntaxError:
        return text


def quoted(text: str, *, flow: bool) -> str:
    """A YAML scalar, in quotes if it needs them."""
    special = "[]{},#&*!|>'\"%@`" if flow else "#'\""
    odd = text[:1] in "[]{},&*!|>%@`?-" and not re.match(r"-?\w", text)
    if odd or any(each in text for each in special) or ": " in text or text.endswith(":"):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


def flow(value: Any) -> str:
    """A value inside braces."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return quoted(str(value), flow=True)


def render(data: dict[str, Any]) -> str:
    """The text of a spec."""
    lines = []
    for key, value in data.items():
        if not isinstance(value, dict):
            lines.append(f"{key}: {quoted(str(value), flow=False)}")
            continue
        if not value:
            continue
        lines.append(f"{key}:")
        for name, each in value.items():
            shown = flow(each) if isinstance(each, dict | list) else quoted(str(each), flow=False)
            lines.append(f"  {name}: {shown}")
    return "\n".join(lines) + "\n"


def words(text: str) -> set[str]:
    """The names in a text."""
    return set(re.findall(r"[A-Za-z_]\w*", text))


def texts_of(value: Any) -> Iterator[str]:
    """All texts in a part of a spec."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield str(key)
            yield from texts_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts_of(each)
    else:
        yield str(value)


TABLES = ("sizes", "scalars", "tensors", "index", "let", "masks")


def pruned(data: dict[str, Any]) -> dict[str, Any]:
    """A spec without what nothing uses: declarations follow from its stores."""
    used = words(" ".join(texts_of({k: data.get(k, {}) for k in ("store", "trusted", "when")})))
    while True:
        more = set(used)
        for table in TABLES:
            for name, each in data.get(table, {}).items():
                if name in used:
                    parts = each.values() if isinstance(each, dict) else [each]
                    more |= words(" ".join(map(str, parts)))
        if more == used:
            break
        used = more
    kept = dict(data)
    for table in TABLES:
        kept[table] = {n: each for n, each in data.get(table, {}).items() if n in used}
    if "schedule" in data:
        schedule = {k: v for k, v in data["schedule"].items() if v}
        tile = {n: t for n, t in schedule.get("tile", {}).items() if n in kept["index"]}
        schedule = {**schedule, "tile": tile}
        kept["schedule"] = {k: v for k, v in schedule.items() if v}
    return {key: value for key, value in kept.items() if value != {}}


def read(text: str) -> Data:
    """The data of a spec file; its numbers stay text."""
    return yaml.load(text, yaml.BaseLoader)
