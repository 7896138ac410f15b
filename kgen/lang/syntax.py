"""Expression text to an untyped tree with places.

In: a `Text`. Out: a closed union of frozen nodes, or a diagnostic. Knows the grammar and the names
of the language's functions, not what the names of a group mean.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from dataclasses import dataclass
from typing import TypeAlias

from kgen.diagnostics import Report, Span
from kgen.lang.operators import python_operators
from kgen.spec.located import Text


@dataclass(frozen=True, slots=True)
class Number:
    """A literal. Never -0.0, which is `-` applied to 0.0."""

    value: float
    span: Span


@dataclass(frozen=True, slots=True)
class Name:
    """A name, whatever it turns out to be."""

    id: str
    span: Span


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator on its operands: `add`, `floordiv`, `lt`, `and`, `not`, `neg`, `if`, ..."""

    op: str
    args: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """`min(a, b)`, `i32(a)`; and over indices: `sum[c](a)`."""

    name: str
    over: tuple[Name, ...]
    args: tuple[Expr, ...]
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class Item:
    """`tensor[a, b]`, or `list[l][a, b]`; `items` are all the indices, `listed` in the second form."""

    base: Name
    items: tuple[Expr, ...]
    span: Span
    listed: bool = False


Expr: TypeAlias = Number | Name | Apply | Call | Item

_DEEPEST = 100  # levels of an expression; later phases walk them recursively

_OPERATORS = python_operators()
# What Python has and the language has not -> what to write instead.
_INSTEAD: dict[type[ast.AST], str] = {
    ast.BitAnd: "join conditions with `and`; there are no bit operators",
    ast.BitOr: "join conditions with `or`; there are no bit operators",
    ast.BitXor: "compare conditions with `!=`; there are no bit operators",
    ast.LShift: "multiply by a power of two: a * 2**3",
    ast.RShift: "divide by a power of two: a // 2**3",
    ast.MatMult: "write a reduction: sum[k](a[k] * b[k])",
    ast.UAdd: "leave it out",
    ast.Invert: "negate a condition with `not`; there are no bit operators",
    ast.In: "compare: low <= a < high, or any[k](a == x[k])",
    ast.NotIn: "compare: not low <= a < high, or all[k](a != x[k])",
    ast.Is: "write `==`",
    ast.IsNot: "write `!=`",
    ast.Attribute: "names have no dots",
    ast.Lambda: "give the expression a name under `let`",
    ast.NamedExpr: "give the expression a name under `let`",
    ast.ListComp: "write a reduction: sum[k](...)",
    ast.SetComp: "write a reduction: sum[k](...)",
    ast.GeneratorExp: "write a reduction: sum[k](...)",
    ast.Slice: "write an index of the group for each element: x[r, k]",
    ast.Tuple: "write one value",
    ast.List: "write one value",
    ast.keyword: "write the arguments in order, without names",
    ast.Starred: "write each argument out",
}
CONSTANTS = {
    "True": "write a comparison that holds: 0 == 0",
    "False": "write a comparison that does not hold: 0 != 0",
    "None": "every value is a number or a condition; write the number that stands for nothing: -1",
}
# The same for what is not Python: other languages' operators.
_FOREIGN = (
    ("&&", "write `and`"),
    ("||", "write `or`"),
    ("...", "a range has two dots, and stands where one is declared"),
    ("..", "a range stands where one is declared; write one value here"),
    ("?", "write a choice as `a if condition else b`"),
    ("!", "write `not`"),
    ("<>", "write `!=`"),
    ("->", "an expression gives one value; the place comes before the colon"),
    ("++", "a value is never changed; write `a + 1`"),
    ("≤", "write `<=`"),
    ("≥", "write `>=`"),
    ("≠", "write `!=`"),
    ("=", "compare with `==`; a value gets its name under `let`"),
)
_OPERATOR = re.compile(r"[=!<>]=|" + "|".join(re.escape(mark) for mark, _ in _FOREIGN))


def parse(text: Text, report: Report) -> Expr | None:
    """The tree of an expression; None after reporting what is wrong with it."""
    text = text.slice(0, len(text.value))
    if not text.value:
        report.add("bad-syntax", text.span, "an expression is missing here")
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python, about `1if x else y` and the like
            tree = ast.parse(text.value, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        report.add("bad-syntax", *_unread(text, error))
        return None
    if not text.value.isascii():
        report.add("bad-syntax", text.span, "an expression is written in ASCII")
        return None
    if _depth(tree) > _DEEPEST:
        report.add("bad-syntax", text.span, "the expression is too deeply nested", "name its parts")
        return None
    before = len(report.diagnostics)
    expr = _Reader(text, report).read(tree.body)
    return expr if len(report.diagnostics) == before else None


def _unread(text: Text, error: Exception) -> tuple[Span, str, str]:
    """Where an expression stops to be one, why, and what to write instead."""
    for found in _OPERATOR.finditer(text.value):
        help = dict(_FOREIGN).get(found[0])
        if help is not None:
            return text.part(*found.span()), f"`{found[0]}` is not in the language", help
    offset = error.offset if isinstance(error, SyntaxError) and error.offset else 1
    line = error.lineno if isinstance(error, SyntaxError) else 1
    place = text.part(offset - 1, offset) if line == 1 else text.span
    reason = error.msg if isinstance(error, SyntaxError) else "too deeply nested"
    if reason.startswith("invalid syntax"):
        comma = "perhaps a comma is missing here"
        reason = comma if reason.endswith("comma?") else "it can't be read from here on"
    return place, f"`{text.value}` is not an expression: {reason}", ""


def _depth(tree: ast.AST) -> int:
    deepest, todo = 0, [(tree, 0)]
    while todo:
        node, depth = todo.pop()
        deepest = max(deepest, depth)
        if depth <= _DEEPEST:
            todo += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
    return deepest


@dataclass(frozen=True, slots=True)
class _Reader:
    text: Text
    report: Report

    def span(self, node: ast.AST) -> Span:
        start = getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", None) or start + 1
        if getattr(node, "lineno", 1) != 1 or getattr(node, "end_lineno", 1) != 1:
            return self.text.span
        return self.text.part(start, end)

    def refuse(self, node: ast.AST, what: str, *kinds: ast.AST) -> Number:
        """Report what is not in the language; `kinds` say what to write instead, else the node."""
        help = next((_INSTEAD[type(each)] for each in (*kinds, node) if type(each) in _INSTEAD), "")
        self.report.add(
            "unsupported-syntax", self.span(node), f"{what} is not in the language", help
        )
        return Number(0, self.span(node))

    def source(self, node: ast.AST) -> str:
        """The text of a node."""
        return ast.get_source_segment(self.text.value, node) or ""

    def between(self, left: ast.expr, right: ast.expr) -> str:
        """The operator between two operands."""
        found = self.text.value.encode()[left.end_col_offset : right.col_offset].decode()
        return " ".join(found.strip("() \t").split())

    def read(self, node: ast.expr) -> Expr:
        span = self.span(node)
        match node:
            case ast.Constant(bool() | None as word):
                self.report.add(
                    "unsupported-syntax",
                    span,
                    f"`{word}` is not in the language",
                    CONSTANTS[str(word)],
                )
                return Number(0, span)
            case ast.Constant(int(huge)) if abs(huge) > 2**64:
                return self.refuse(node, "a number of more than 64 bits")
            case ast.Constant(int(literal) | float(literal)) if math.isfinite(literal):
                return Number(literal, span)
            case ast.Name(id):
                return Name(id, span)
            case ast.BinOp(left, op, right):
                operands = (self.read(left), self.read(right))
                if type(op) not in _OPERATORS:
                    return self.refuse(node, f"`{self.between(left, right)}`", op)
                return Apply(_OPERATORS[type(op)], operands, span)
            case ast.UnaryOp(ast.USub(), operand):
                negated = self.read(operand)
                if isinstance(negated, Number) and negated.value != 0:
                    return Number(-negated.value, span)
                return Apply("neg", (negated,), span)
            case ast.UnaryOp(op, operand) if type(op) in _OPERATORS:
                return Apply(_OPERATORS[type(op)], (self.read(operand),), span)
            case ast.UnaryOp(op, operand):
                self.read(operand)
                return self.refuse(node, f"`{self.source(node)[0]}`", op)
            case ast.Compare(left, ops, comparators):
                return self.compare(node, left, ops, comparators)
            case ast.BoolOp(op, values):
                name = _OPERATORS[type(op)]
                result = self.read(values[0])
                for each in values[1:]:
                    result = Apply(name, (result, self.read(each)), span)
                return result
            case ast.IfExp(test, body, orelse):
                return Apply("if", (self.read(test), self.read(body), self.read(orelse)), span)
            case ast.Subscript(ast.Name() as base, index):
                return Item(Name(base.id, self.span(base)), self.items(index), span)
            case ast.Subscript(ast.Subscript(ast.Name() as base, chosen), index):  # of a list
                items = (*self.items(chosen), *self.items(index))
                return Item(Name(base.id, self.span(base)), items, span, listed=True)
            case ast.Call(function, args, keywords):
                return self.call(node, function, args, keywords)
            case _:
                return self.refuse(node, f"`{self.source(node)}`")

    def items(self, node: ast.expr) -> tuple[Expr, ...]:
        nodes = node.elts if isinstance(node, ast.Tuple) else [node]
        return tuple(self.read(each) for each in nodes)

    def compare(
        self, node: ast.expr, left: ast.expr, ops: list[ast.cmpop], right: list[ast.expr]
    ) -> Expr:
        sides = [self.read(each) for each in (left, *right)]
        result: Expr | None = None
        nodes = (left, *right)
        for number, op in enumerate(ops):
            a, b = sides[number], sides[number + 1]
            if type(op) not in _OPERATORS:
                return self.refuse(node, f"`{self.between(nodes[number], nodes[number + 1])}`", op)
            each = Apply(_OPERATORS[type(op)], (a, b), self.span(node))
            result = each if result is None else Apply("and", (result, each), self.span(node))
        return result if result is not None else sides[0]

    def call(
        self,
        node: ast.expr,
        function: ast.expr,
        args: list[ast.expr],
        keywords: list[ast.keyword],
    ) -> Expr:
        over: tuple[Expr, ...] = ()
        base = function
        if isinstance(function, ast.Subscript):
            over, base = self.items(function.slice), function.value
        starred = [arg for arg in args if isinstance(arg, ast.Starred)]
        if not isinstance(base, ast.Name) or keywords or starred:
            return self.refuse(node, "this call", *keywords, *starred, base)
        names = tuple(each for each in over if isinstance(each, Name))
        if len(names) != len(over):
            self.report.add(
                "not-an-index", self.span(function), f"`{base.id}[...]` takes names of indices"
            )
        read = tuple(self.read(arg) for arg in args)
        return Call(base.id, names, read, self.span(node), self.span(base))


def parse_range(text: Text, report: Report) -> tuple[Text | None, Text | None] | None:
    """`low .. high` as its two ends, either of which may be left out."""
    parts = text.value.split("..")
    if len(parts) != 2 or "..." in text.value or not (parts[0].strip() or parts[1].strip()):
        report.add(
            "bad-range",
            text.span,
            f"`{text.value}` is not a range" if text.value else "a range is missing here",
            "write two dots between its ends, `0 .. batch - 1`, or leave out an end that has no "
            "bound: `0 ..`",
        )
        return None
    middle = len(parts[0])
    low, high = text.slice(0, middle), text.slice(middle + 2, len(text.value))
    return (low if low.value else None, high if high.value else None)
