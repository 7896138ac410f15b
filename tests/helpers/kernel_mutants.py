"""Faults for the text of generated kernels, made one at a time from their syntax tree.

In: the text of a `kernels.py`. Out: for each fault the group, what it is, and the text with it. The faults
are those that generators and people make: a mask or a bound forgotten, `<` for `<=`, a wrong stride, a
missing barrier, a store left out. What they are called does not depend on how the text is laid out.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
BOUNDS = ("tl.maximum", "tl.minimum")
REDUCERS = {"tl.sum": "tl.max", "tl.min": "tl.max", "tl.max": "tl.min"}
HELPERS = {"floor_div": ast.FloorDiv, "floor_mod": ast.Mod}


@dataclass(frozen=True)
class Mutant:
    """A fault: the kernel's group, what is wrong, and the module's text."""

    group: str
    fault: str
    text: str


def mutants(text: str) -> Iterator[Mutant]:
    """Every fault of every kernel in a module, no two of one name."""
    lines = text.splitlines()
    for kernel in ast.parse(text).body:
        if not isinstance(kernel, ast.FunctionDef) or not kernel.name.endswith("_kernel"):
            continue
        head = "\n".join(lines[: kernel.decorator_list[0].lineno - 1])
        tail = "\n".join(lines[kernel.end_lineno :])
        seen: dict[str, int] = {}
        for at, node in enumerate(ast.walk(kernel)):
            for choice in range(len(_choices(kernel, node))):
                twin = copy.deepcopy(kernel)
                fault = _inject(twin, at, choice)
                seen[fault] = seen.get(fault, 0) + 1
                name = fault if seen[fault] == 1 else f"{fault} ({seen[fault]})"
                changed = f"{head}\n{ast.unparse(twin)}\n{tail}\n"
                yield Mutant(kernel.name.removesuffix("_kernel"), name, changed)


def _inject(kernel: ast.FunctionDef, at: int, choice: int) -> str:
    """Change node number `at` in place; what was done."""
    node = next(n for i, n in enumerate(ast.walk(kernel)) if i == at)
    what, change = _choices(kernel, node)[choice]
    change()
    ast.fix_missing_locations(kernel)
    return what


def _choices(kernel: ast.FunctionDef, node: ast.AST) -> list[tuple[str, Callable[[], None]]]:
    if not hasattr(node, "lineno") or _is_declaration(kernel, node):
        return []
    return _faults(kernel, node)


def _is_declaration(kernel: ast.FunctionDef, node: ast.AST) -> bool:
    parts = [*kernel.decorator_list, kernel.args]
    return any(node is each for part in parts for each in ast.walk(part))


def _faults(kernel: ast.FunctionDef, node: ast.AST) -> list[tuple[str, Callable[[], None]]]:
    shown = ast.unparse(node) if isinstance(node, ast.expr | ast.stmt) else ""
    match node:
        case ast.Call(ast.Attribute(ast.Name("tl"), "load" | "store" as kind), args, keywords):
            tensor = next(n.id for n in ast.walk(args[0]) if isinstance(n, ast.Name))
            found = []
            if any(keyword.arg == "mask" for keyword in keywords):
                found.append((f"{kind} of {tensor} without its mask", lambda: keywords.clear()))
            return found
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("tl"), "debug_barrier"))):
            return [("no barrier", lambda: _replace(kernel, node, ast.Pass()))]
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("tl"), "store"), args)):
            tensor = next(n.id for n in ast.walk(args[0]) if isinstance(n, ast.Name))
            return [(f"no store to {tensor}", lambda: _replace(kernel, node, ast.Pass()))]
        case ast.Compare(_, [op], _) if type(op) in COMPARISONS:
            other = COMPARISONS[type(op)]
            return [(f"{shown}: {other.__name__}", lambda: node.ops.__setitem__(0, other()))]
        case ast.Call(function, args) if ast.unparse(function) in BOUNDS:
            return [
                (f"{shown}: {ast.unparse(args[0])}", lambda: _replace(kernel, node, args[0])),
                (f"{shown}: {ast.unparse(args[1])}", lambda: _replace(kernel, node, args[1])),
            ]
        case ast.Call(function, args) if ast.unparse(function) == "tl.where":
            return [
                (f"{shown}: {ast.unparse(arm)}", lambda arm=arm: _replace(kernel, node, arm))
                for arm in args[1:]
                if not isinstance(arm, ast.Constant)
            ]
        case ast.Call(function, args) if ast.unparse(function) in REDUCERS:
            other = ast.parse(REDUCERS[ast.unparse(function)], mode="eval").body
            return [(f"{shown}: {ast.unparse(other)}", lambda: setattr(node, "func", other))]
        case ast.Call(ast.Name(name), [a, b]) if name in HELPERS:
            plain = ast.BinOp(a, HELPERS[name](), b)
            return [(f"{shown}: rounded to zero", lambda: _replace(kernel, node, plain))]
        case ast.BinOp(left, ast.Add() | ast.Sub(), _):
            return [(f"{shown}: {ast.unparse(left)}", lambda: _replace(kernel, node, left))]
        case ast.BinOp(left, ast.Mult(), _):
            return [(f"{shown}: {ast.unparse(left)}", lambda: _replace(kernel, node, left))]
        case ast.BinOp(left, ast.FloorDiv() | ast.Mod() as op, right):
            other = ast.Mod if isinstance(op, ast.FloorDiv) else ast.FloorDiv
            return [
                (f"{shown}: {ast.unparse(left)}", lambda: _replace(kernel, node, left)),
                (f"{shown}: {other.__name__}", lambda: setattr(node, "op", other())),
            ]
        case ast.BinOp(left, ast.BitAnd() | ast.BitOr(), right):
            return [
                (f"{shown}: {ast.unparse(side)}", lambda side=side: _replace(kernel, node, side))
                for side in (left, right)
            ]
        case ast.Name(id, ast.Load()) if "_stride_" in id:
            names = [a.arg for a in kernel.args.args if "_stride_" in a.arg]
            other = names[(names.index(id) + 1) % len(names)] if id in names else id
            return (
                [(f"{other} for {id}", lambda: setattr(node, "id", other))] if other != id else []
            )
        case ast.Name(id, ast.Load()) if id in ("r", "row") and _defines(kernel, "row"):
            other = "row" if id == "r" else "r"
            before = f"{other} for {id} in {_line(kernel, node)}"
            return [(before, lambda: setattr(node, "id", other))] if _after(kernel, node) else []
    return []


def _line(kernel: ast.FunctionDef, node: ast.AST) -> str:
    """The statement that holds a node, without what is inside it."""
    statements = [
        n
        for n in ast.walk(kernel)
        if isinstance(n, ast.Assign | ast.Expr | ast.For | ast.If)
        and any(c is node for c in ast.walk(n))
    ]
    inner = statements[-1]
    match inner:
        case ast.Assign([target]):
            return ast.unparse(target)
        case ast.Expr(ast.Call(_, [first, *_])):
            names = [n.id for n in ast.walk(first) if isinstance(n, ast.Name)]
            return f"the store to {names[0]}"
        case ast.For(target):
            return f"the loop of {ast.unparse(target)}"
    return "a branch"


def _defines(kernel: ast.FunctionDef, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(kernel))


def _after(kernel: ast.FunctionDef, node: ast.Name) -> bool:
    """Whether `row` is known where the node stands."""
    made = [
        n.lineno
        for n in ast.walk(kernel)
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "row"
    ]
    return any(line < node.lineno for line in made)


def _replace(kernel: ast.FunctionDef, old: ast.AST, new: ast.AST) -> None:
    class Swap(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else self.generic_visit(node)

    Swap().visit(kernel)
