"""Makes a spec smaller while something stays true of it, such as that it fails in one certain way.

Works on the YAML of any spec: drops stores, lets and attributes, takes dimensions away, replaces expressions by their
parts or by numbers, ranges by smaller ones, names by plain ones. What a step breaks, the predicate rejects.
"""

from __future__ import annotations

import ast
import copy
import re
import time
from collections.abc import Callable, Iterator

from spec_text import TABLES, Data, pruned, read, render, texts_of, tidy, words

Predicate = Callable[[str], bool]

_PLAIN = {
    "sizes": "RCMNSTABGH",
    "scalars": "stuvwd",
    "tensors": "xyzabwfgh",
    "index": "rckjlo",
    "let": "pq",
    "masks": "m",
}


def shrunk(text: str, holds: Predicate, seconds: float = 120.0) -> str:
    """A small spec of which the predicate still holds."""
    until = time.monotonic() + seconds
    data = read(text)
    known = {text}
    progress = True
    while progress and time.monotonic() < until:
        progress = False
        for smaller in _candidates(data):
            if time.monotonic() > until:
                break
            text = render(smaller)
            if text in known:
                continue
            known.add(text)
            if holds(text):
                data, progress = smaller, True
                break
    return render(data)


def _candidates(data: Data) -> Iterator[Data]:
    """Smaller specs, those that drop most first."""
    for change in (
        _without_stores,
        _without_keys,
        _without_attributes,
        _without_lets,
        _without_indices,
        _without_dimensions,
        _smaller_expressions,
        _smaller_declarations,
        _plainer_names,
    ):
        for smaller in change(data):
            try:
                yield pruned(_with_trusted(smaller))
            except KeyError:
                continue


def _with_trusted(data: Data) -> Data:
    """Without trust in places that are stored to no more."""
    if "trusted" not in data:
        return data
    everything = " ".join(texts_of({k: v for k, v in data.items() if k != "trusted"}))
    kept = {place: why for place, why in data["trusted"].items() if place in everything}
    return {**data, "trusted": kept}


def _replaced(data: Data, path: tuple[str, ...], value: object) -> Data:
    """A copy with another value at a path; None takes the entry away."""
    result = dict(data)
    if len(path) == 1:
        if value is None:
            del result[path[0]]
        else:
            result[path[0]] = value
        return result
    result[path[0]] = _replaced(result[path[0]], path[1:], value)
    return result


def _without_stores(data: Data) -> Iterator[Data]:
    places = list(data["store"])
    if len(places) > 1:
        for place in places:
            yield {**data, "store": {place: data["store"][place]}}
        for place in places:
            yield _replaced(data, ("store", place), None)


def _without_keys(data: Data) -> Iterator[Data]:
    for key in ("when", "schedule", "trusted"):
        if key in data:
            yield _replaced(data, (key,), None)
    for key, value in data.get("schedule", {}).items():
        yield _replaced(data, ("schedule", key), None)
        if isinstance(value, dict):
            for name in value:
                yield _replaced(data, ("schedule", key, name), None)


def _without_attributes(data: Data) -> Iterator[Data]:
    for table in ("store", "tensors", "scalars"):
        for name, entry in data.get(table, {}).items():
            if not isinstance(entry, dict):
                continue
            for key in entry:
                if key not in ("value", "type"):
                    yield _replaced(data, (table, name, key), None)
            if set(entry) == {"value"} or set(entry) == {"type"}:
                yield _replaced(data, (table, name), next(iter(entry.values())))
    for name, entry in data["tensors"].items():
        if isinstance(entry, dict) and entry.get("mode") == "inout":
            yield _replaced(data, ("tensors", name, "mode"), "out")


def _without_lets(data: Data) -> Iterator[Data]:
    """Each let written out where it is used."""
    for table in ("let", "masks"):
        for name, text in data.get(table, {}).items():
            rest = _replaced(data, (table, name), None)
            yield _renamed(rest, name, f"({text})")


def _without_indices(data: Data) -> Iterator[Data]:
    """An index instead of another one, or a number instead of it."""
    indices = list(data.get("index", {}))
    for name in indices:
        for other in indices:
            if other != name:
                yield _renamed(_replaced(data, ("index", name), None), name, other)
        if "[" + name + "](" not in " ".join(texts_of(data)):
            yield _renamed(_replaced(data, ("index", name), None), name, "0")


def _expressions(data: Data) -> Iterator[tuple[tuple[str, ...], str]]:
    """The path and the text of each expression."""
    if "when" in data:
        yield ("when",), data["when"]
    for table in ("store", "let", "masks", "index"):
        for name, entry in data.get(table, {}).items():
            if not isinstance(entry, dict):
                yield (table, name), entry
                continue
            for key in ("value", "when"):
                if key in entry:
                    yield (table, name, key), entry[key]
    for name, text in data.get("sizes", {}).items():
        if ".." not in text and not text.startswith("static"):
            yield ("sizes", name), text


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _smaller_expressions(data: Data) -> Iterator[Data]:
    for path, text in _expressions(data):
        for smaller in _smaller(text):
            yield _replaced(data, path, smaller)
    for place in data["store"]:
        for smaller in _smaller(place):
            tree = _parsed(smaller)
            if isinstance(tree, ast.Subscript) and smaller not in data["store"]:
                stores = {smaller if p == place else p: each for p, each in data["store"].items()}
                yield {**data, "store": stores}


def _smaller(text: str) -> Iterator[str]:
    """Expressions with one part of a text replaced by a smaller one, the largest parts first."""
    tree = _parsed(text)
    if tree is None:
        return
    count = sum(isinstance(node, ast.expr) for node in ast.walk(tree))
    for number in range(count):
        whole = copy.deepcopy(tree)
        nodes = [node for node in ast.walk(whole) if isinstance(node, ast.expr)]
        node = nodes[number]
        for part in _parts(node):
            changed = _swapped(copy.deepcopy(tree), number, part)
            if changed is not None and len(changed) < len(text):
                yield changed


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """What may stand instead of a node."""
    if isinstance(node, ast.Name | ast.Constant | ast.Tuple):
        return
    children = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
    if isinstance(node, ast.Call):
        children = node.args
    yield from (child for child in children if not isinstance(child, ast.Tuple))
    yield from (ast.Constant(value) for value in (0, 1))
    for text in ("0 == 0", "f32(0.5)"):
        yield ast.parse(text, mode="eval").body


def _swapped(tree: ast.expr, number: int, part: ast.expr) -> str | None:
    """The text of a tree with its node of a number replaced."""
    holder = ast.Expression(tree)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr)]
    target = nodes[number]

    class Swap(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return part if node is target else self.generic_visit(node)

    try:
        return ast.unparse(ast.fix_missing_locations(Swap().visit(holder)))
    except (AttributeError, ValueError, TypeError):
        return None


def _without_dimensions(data: Data) -> Iterator[Data]:
    """A tensor with one dimension less, everywhere."""
    for name, entry in data["tensors"].items():
        kind = entry["type"] if isinstance(entry, dict) else entry
        dtype, _, dims = kind.removesuffix("]").partition("[")
        parts = [ast.unparse(part) for part in _items(f"[{dims}]")]
        for at in range(len(parts)):
            if len(parts) > 1:
                left = ", ".join([*parts[:at], *parts[at + 1 :]])
                path = ("tensors", name, "type") if isinstance(entry, dict) else ("tensors", name)
                fewer = _replaced(data, path, f"{dtype}[{left}]")
                yield _without_item(fewer, name, at)


def _items(text: str) -> list[ast.expr]:
    tree = _parsed(text)
    return tree.elts if isinstance(tree, ast.List) else []


def _without_item(data: Data, tensor: str, at: int) -> Data:
    class Drop(ast.NodeTransformer):
        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
            self.generic_visit(node)
            base = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            if (
                isinstance(base, ast.Name)
                and base.id == tensor
                and isinstance(node.slice, ast.Tuple)
            ):
                items = [item for number, item in enumerate(node.slice.elts) if number != at]
                node.slice = ast.Tuple(items, ast.Load()) if len(items) > 1 else items[0]
            return node

    def changed(text: str) -> str:
        tree = _parsed(text)
        return text if tree is None else ast.unparse(ast.fix_missing_locations(Drop().visit(tree)))

    result = data
    for path, text in _expressions(data):
        result = _replaced(result, path, changed(text))
    stores = {changed(place): entry for place, entry in result["store"].items()}
    return {**result, "store": stores}


def _smaller_declarations(data: Data) -> Iterator[Data]:
    for name, text in data.get("sizes", {}).items():
        wanted = ("static 1 .. 4", "static 1 .. 8") if text.startswith("static") else ("0 .. 9",)
        for smaller in wanted:
            if text != smaller and (".." in text or text.startswith("static")):
                yield _replaced(data, ("sizes", name), smaller)
    for name, entry in data.get("scalars", {}).items():
        if isinstance(entry, dict) and entry.get("values") not in (None, "0 .. 9", "1 .. 9"):
            for smaller in ("0 .. 9", "1 .. 9"):
                yield _replaced(data, ("scalars", name, "values"), smaller)
    for name, entry in data["tensors"].items():
        kind = entry["type"] if isinstance(entry, dict) else entry
        path = ("tensors", name, "type") if isinstance(entry, dict) else ("tensors", name)
        dtype, _, dims = kind.removesuffix("]").partition("[")
        for other in ("i64", "i32", "f32"):
            if dtype not in ("i64", "i32", "f32", other):
                yield _replaced(data, path, f"{other}[{dims}]")
        for smaller in _smaller(f"[{dims}]"):
            if smaller.startswith("["):
                yield _replaced(data, path, f"{dtype}{smaller}")
    for index, text in data.get("index", {}).items():
        for size in data.get("sizes", {}):
            if text != size and not text.isidentifier():
                yield _shared_extent(data, index, text, size)


def _shared_extent(data: Data, index: str, text: str, size: str) -> Data:
    """An index that takes as many values as a size says, and so do the tensors of its shape."""
    result = _replaced(data, ("index", index), size)
    tensors = {}
    for name, entry in result["tensors"].items():
        kind = entry["type"] if isinstance(entry, dict) else entry
        changed = kind.replace(text, size)
        tensors[name] = {**entry, "type": changed} if isinstance(entry, dict) else changed
    return {**result, "tensors": tensors}


def _plainer_names(data: Data) -> Iterator[Data]:
    taken = {name for table in TABLES for name in data.get(table, {})}
    for table in TABLES:
        for name in data.get(table, {}):
            static = table == "sizes" and data["sizes"][name].startswith("static")
            options = "KLPQ" if static else _PLAIN[table]
            if name in options:
                continue
            plain = next((each for each in options if each not in taken), None)
            if plain is not None:
                yield _renamed(data, name, plain, declared=True)


def _renamed(data: Data, name: str, other: str, *, declared: bool = False) -> Data:
    """Every use of a name replaced by another text."""
    pattern = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")

    def text_of(text: str) -> str:
        if name not in words(text):
            return text
        changed = pattern.sub(other, text)
        return changed if ".." in changed or "first " in changed else tidy(changed)

    def walk(value: object, depth: int) -> object:
        if isinstance(value, dict):
            names = declared or depth != 1
            return {
                (text_of(key) if names and (depth == 1 or value is data["store"]) else key): walk(
                    each, depth + 1
                )
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [walk(each, depth + 1) for each in value]
        return text_of(str(value))

    result = {}
    for key, value in data.items():
        if key in ("group", "summary"):
            result[key] = value
        elif key in ("store", "trusted"):
            result[key] = {text_of(place): walk(each, 2) for place, each in value.items()}
        else:
            result[key] = walk(value, 1)
    if "schedule" in result:
        schedule = result["schedule"]
        tile = {text_of(k): v for k, v in schedule.get("tile", {}).items()}
        result["schedule"] = {**schedule, **({"tile": tile} if tile else {})}
    return result
