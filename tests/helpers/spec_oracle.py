"""A spec read by brute force: every index point in turn, on Python's own numbers.

In: a spec's text and the arguments of a call. Out: what each written tensor must hold afterwards. Shares
nothing with kgen but Python's parser: the slow third reading of a spec that has no eager chain. Raises
`WildIndex` where the spec itself reads or stores outside a tensor, or stores to one place twice.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce

import torch
import yaml

Point = dict[str, int]

_WIDTHS = {"u8": (0, 8), "i32": (1, 32), "i64": (1, 64)}
_ORDER = ("int", "bool", "u8", "i32", "i64")
_TYPES = {"bool": torch.bool, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64}
_LIMITS = {"u8": (0, 255), "i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}
_REDUCTIONS = ("sum", "count", "any", "all", "first", "prefix", "cumsum", "cumprod", "min", "max")


class WildIndex(Exception):
    """The spec leaves a tensor, or stores twice to one place."""


def expected(text: str, arguments: dict[str, torch.Tensor | int]) -> dict[str, torch.Tensor]:
    """What a group's written tensors hold after a call, by name.

    Args:
        text: the spec.
        arguments: the tensors and scalars of a call, by name; not changed.
    """
    spec = yaml.load(text, yaml.BaseLoader)
    return _Reading(spec, arguments).run()


def _wrap(value: int, dtype: str) -> int:
    if dtype not in _WIDTHS:
        return value
    signed, bits = _WIDTHS[dtype]
    value %= 2**bits
    return value - 2**bits if signed and value >= 2 ** (bits - 1) else value


def _wider(*dtypes: str) -> str:
    return max(dtypes, key=_ORDER.index)


@dataclass
class _Reading:
    spec: dict
    arguments: dict[str, torch.Tensor | int]
    names: dict[str, tuple[int, str]] = field(default_factory=dict)  # sizes and scalars
    tensors: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    held: dict[str, list] = field(default_factory=dict)  # the snapshot
    known: dict[tuple, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = self.spec
        for name, entry in spec["tensors"].items():
            kind = entry if isinstance(entry, str) else entry["type"]
            dtype, dims = kind.rstrip("]").split("[", 1)
            self.tensors[name] = dtype, [dim.strip() for dim in _split(dims)]
            tensor = self.arguments[name]
            assert isinstance(tensor, torch.Tensor)
            self.held[name] = tensor.tolist()
            for dim, size in zip(self.tensors[name][1], tensor.shape, strict=True):
                if dim in spec.get("sizes", {}):
                    self.names[dim] = size, self._size_type(dim)
        for name, entry in spec.get("scalars", {}).items():
            kind = entry if isinstance(entry, str) else entry["type"]
            value = self.arguments[name]
            assert isinstance(value, int)
            self.names[name] = value, "int" if kind == "static" else kind
        self.lets = {**spec.get("let", {}), **spec.get("masks", {})}
        waiting = [name for name in spec.get("sizes", {}) if name not in self.names]
        for name in itertools.islice(itertools.cycle(waiting), len(waiting) ** 2):
            try:
                self.names.setdefault(name, (self.host(spec["sizes"][name]), self._size_type(name)))
            except KeyError:
                continue
        self.extents = {i: max(self.host(e), 0) for i, e in spec.get("index", {}).items()}

    def _size_type(self, name: str) -> str:
        text = self.spec["sizes"][name]
        if text.startswith("static"):
            return "int"
        if ".." in text:
            return "i64"
        used = {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)}
        return "int" if used and all(self._size_type(n) == "int" for n in used) else "i64"

    def host(self, text: str) -> int:
        return self.value(_tree(text), {})

    def run(self) -> dict[str, torch.Tensor]:
        out = {
            name: self.arguments[name].clone()
            for name, entry in self.spec["tensors"].items()
            if isinstance(entry, dict) and entry.get("mode", "in") != "in"
        }
        if "when" in self.spec and not self.host(self.spec["when"]):
            return out
        written: dict[tuple, int] = {}
        for target, entry in self.spec["store"].items():
            place = _tree(target)
            assert isinstance(place, ast.Subscript)
            text = entry if isinstance(entry, str) else entry["value"]
            when = None if isinstance(entry, str) else entry.get("when")
            name = place.value.id
            for point in self.points(self.axes(place)):
                if when is not None and not self.value(_tree(when), point):
                    continue
                at = tuple(self.value(item, point) for item in _items(place))
                if any(not 0 <= i < n for i, n in zip(at, out[name].shape, strict=True)):
                    raise WildIndex(f"{target} stores to {at}")
                if (name, at) in written:
                    raise WildIndex(f"{target} stores to {at} twice")
                written[name, at] = _wrap(self.value(_tree(text), point), self.tensors[name][0])
        for (name, at), value in written.items():
            out[name][at] = value
        return out

    def points(self, axes: set[str]) -> Iterator[Point]:
        names = [name for name in self.extents if name in axes]
        for values in itertools.product(*(range(self.extents[name]) for name in names)):
            yield dict(zip(names, values, strict=True))

    def axes(self, node: ast.expr) -> set[str]:
        """The free indices of an expression."""
        match node:
            case ast.Name(id) if id in self.extents:
                return {id}
            case ast.Name(id) if id in self.lets:
                return self.axes(_tree(self.lets[id]))
            case ast.Call(ast.Subscript(ast.Name(kind)), args):
                over = {item.id for item in _items(node.func)}
                free = self.axes(args[0]) - over
                free |= over if kind in ("cumsum", "cumprod", "prefix") else set()
                return free.union(*(self.axes(arg) for arg in args[1:]))
        children = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        return set().union(*(self.axes(each) for each in children))

    # Types.

    def dtype(self, node: ast.expr) -> str:
        key = "dtype", ast.dump(node)
        if key not in self.known:
            self.known[key] = self._dtype(node)
        return self.known[key]  # type: ignore[return-value]

    def _dtype(self, node: ast.expr) -> str:
        match node:
            case ast.Constant():
                return "int"
            case ast.Name(id) if id in self.names:
                return self.names[id][1]
            case ast.Name(id) if id in self.lets:
                dtype = self.dtype(_tree(self.lets[id]))
                return "i64" if dtype == "int" else dtype
            case ast.Name():
                return "i64"
            case ast.Subscript(ast.Name(id)):
                return self.tensors[id][0]
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(ast.Not()):
                return "bool"
            case ast.UnaryOp(_, operand):
                return self.dtype(operand)
            case ast.BinOp(left, _, right):
                return _wider(self.dtype(left), self.dtype(right))
            case ast.IfExp(_, body, orelse):
                dtype = _wider(self.dtype(body), self.dtype(orelse))
                return "i64" if dtype == "int" else dtype
            case ast.Call(ast.Name(id), args):
                id = id.removeprefix("wrap_")
                return id if id in _TYPES else _wider(*map(self.dtype, args))
            case ast.Call(ast.Subscript(ast.Name(kind)), args):
                if kind in ("any", "all"):
                    return "bool"
                if kind in ("min", "max"):
                    return {"int": "i64"}.get(self.dtype(args[0]), self.dtype(args[0]))
                return "i64"
        raise AssertionError(ast.dump(node))

    # Values.

    def value(self, node: ast.expr, point: Point) -> int:
        result = self._value(node, point)
        return _wrap(int(result), self.dtype(node))

    def _value(self, node: ast.expr, point: Point) -> int:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(id) if id in self.names:
                return self.names[id][0]
            case ast.Name(id) if id in self.lets:
                key = (id, *point.items())
                if key not in self.known:
                    self.known[key] = self.value(_tree(self.lets[id]), point)
                return self.known[key]  # type: ignore[return-value]
            case ast.Name(id):
                return point[id]
            case ast.Subscript(ast.Name(id)):
                found = self.held[id]
                for item in _items(node):
                    at = self.value(item, point)
                    if not 0 <= at < len(found):
                        raise WildIndex(f"{ast.unparse(node)} reads at {at} of {len(found)}")
                    found = found[at]
                return found  # type: ignore[return-value]
            case ast.IfExp(test, body, orelse):
                return self.value(body if self.value(test, point) else orelse, point)
            case ast.BoolOp(op, values):
                # Both sides are evaluated, unlike Python's.
                each = [self.value(value, point) for value in values]
                return int(all(each) if isinstance(op, ast.And) else any(each))
            case ast.UnaryOp(op, operand):
                inner = self.value(operand, point)
                return -inner if isinstance(op, ast.USub) else int(not inner)
            case ast.Compare(left, ops, comparators):
                sides = [self.value(side, point) for side in (left, *comparators)]
                pairs = zip(ops, sides, sides[1:], strict=False)
                return int(all(_COMPARE[type(op)](a, b) for op, a, b in pairs))
            case ast.BinOp(left, op, right):
                # Operands take the common type first, which changes no value but wraps none either.
                return _BINARY[type(op)](self.value(left, point), self.value(right, point))
            case ast.Call(ast.Name(id), args):
                each = [self.value(arg, point) for arg in args]
                if id == "clamp":
                    return max(min(each[0], each[2]), each[1])
                if id == "bool":
                    return int(each[0] != 0)
                return {"min": min, "max": max, "abs": lambda v: abs(v[0])}.get(id, lambda v: v[0])(
                    each
                )
            case ast.Call(ast.Subscript(ast.Name(kind)), args):
                return self.reduced(kind, [item.id for item in _items(node.func)], args, point)
        raise AssertionError(ast.dump(node))

    def reduced(self, kind: str, over: list[str], args: list[ast.expr], point: Point) -> int:
        assert kind in _REDUCTIONS, kind
        if kind in ("cumsum", "cumprod", "prefix"):
            (index,) = over
            last = point[index] + (kind != "prefix")
            each = [self.value(args[0], {**point, index: k}) for k in range(last)]
            if kind == "cumprod":
                return reduce(lambda a, b: _wrap(a * b, "i64"), each, 1)
            return sum(each)
        ranges = itertools.product(*(range(self.extents[index]) for index in over))
        if kind == "first":
            for (k,) in ranges:
                if self.value(args[0], {**point, over[0]: k}):
                    return k
            return self.value(args[1], point)
        each = [self.value(args[0], {**point, **dict(zip(over, at, strict=True))}) for at in ranges]
        if kind in ("sum", "count"):
            return sum(each)
        if kind in ("any", "all"):
            return int({"any": any, "all": all}[kind](each))
        low, high = _LIMITS[self.dtype(args[0])] if self.dtype(args[0]) != "int" else _LIMITS["i64"]
        return min(each, default=high) if kind == "min" else max(each, default=low)


_BINARY = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b,
}
_COMPARE = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}

_trees: dict[str, ast.expr] = {}


def _tree(text: str) -> ast.expr:
    if text not in _trees:
        _trees[text] = ast.parse(text, mode="eval").body
    return _trees[text]


def _items(node: ast.Subscript) -> list[ast.expr]:
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _split(text: str) -> list[str]:
    return [ast.unparse(item) for item in ast.parse(f"[{text}]", mode="eval").body.elts]
