"""The type and the axes of an expression.

In: an untyped tree and the names in scope. Out: a typed tree in which the operands of every operator
have one type, by casts that torch would make too; or None after a diagnostic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from kgen.diagnostics import Report, Span, counted, nearest
from kgen.lang import syntax
from kgen.lang.convert import cast, coerce, wrapping
from kgen.lang.dtypes import (
    CASTS,
    FLOATS,
    FOREIGN_NAMES,
    LITERALS,
    WRAPS,
    DType,
    own_type,
)
from kgen.lang.operands import applied, converted, fitted, selected
from kgen.lang.operators import INSTEAD, REDUCTIONS, SCANS, functions
from kgen.lang.rewrite import asked, prefix
from kgen.lang.syntax import Apply, Call, Expr, Item, Name, Number
from kgen.lang.typed import (
    Const,
    Given,
    Let,
    Load,
    Param,
    Reduce,
    Ref,
    Scan,
    Value,
    axes_of,
    index_of,
)
from kgen.spec.located import Text


@dataclass(slots=True)
class Scope:
    """The names of a group while it is checked; `used` collects those that expressions use."""

    report: Report
    params: dict[str, DType] = field(default_factory=dict)
    extents: dict[str, Value | None] = field(default_factory=dict)
    tensors: dict[str, tuple[DType, tuple[Expr, ...]] | None] = field(default_factory=dict)
    readable: set[str] = field(default_factory=set)
    texts: dict[str, Text] = field(default_factory=dict)
    lets: dict[str, Let | None] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    optional: set[str] = field(default_factory=set)
    lists: set[str] = field(default_factory=set)
    given: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    twins: dict[tuple[str, str], str] = field(default_factory=dict)

    def value(self, text: Text) -> Value | None:
        """The typed tree of an expression's text."""
        expr = syntax.parse(text, self.report)
        return self.infer(expr) if expr is not None else None

    def let(self, name: str, span: Span) -> Value | None:
        """The typed tree of a let, checked when it is first asked for."""
        if name in self.open:
            chain = " -> ".join((*self.open[self.open.index(name) :], name))
            self.report.add("cyclic-let", span, f"`{name}` is defined by itself: {chain}")
            return None
        if name not in self.lets:
            self.open.append(name)
            text = self.texts[name]
            value = self.value(text)
            if value is not None and value.dtype in LITERALS:  # a let is a run-time value
                value = coerce(value, own_type(value.dtype), text.span, self.report)
            self.open.pop()
            self.lets[name] = Let(name, value, text.value, text.span) if value is not None else None
        let = self.lets[name]
        return let.value if let is not None else None

    def infer(self, expr: Expr) -> Value | None:
        """The typed tree of an expression."""
        match expr:
            case Number(value, span):
                literal = Const(value, "int" if isinstance(value, int) else "float")
                return fitted(literal, "int", span, self.report)
            case Name(id, span):
                return self._name(id, span)
            case Item():
                return self._load(expr)
            case Apply("if", (cond, then, other), span):
                test = self.infer(cond)
                with self.granting(cond):
                    first = self.infer(then)
                second = self.infer(other)
                if test is None or first is None or second is None:
                    return None
                return selected([test, first, second], expr.args, span, self.report)
            case Apply(op, args, span):
                values = [self.infer(arg) for arg in args]
                known = [value for value in values if value is not None]
                return (
                    applied(op, known, args, span, self.report) if len(known) == len(args) else None
                )
            case Call():
                return self._call(expr)

    @contextlib.contextmanager
    def granting(self, cond: Expr | None) -> Iterator[None]:
        """While this is open the optional tensors that `cond` asks for may be read."""
        names = asked(cond) if cond is not None else []
        self.given += names
        yield
        del self.given[len(self.given) - len(names) :]

    def _name(self, id: str, span: Span) -> Value | None:
        self.used.add(id)
        if id in self.params:
            return Param(id, self.params[id])
        if id in self.extents:
            return index_of(id)
        if id in self.texts:
            value = self.let(id, span)
            return Ref(id, value.dtype, value.axes) if value is not None else None
        if id in self.tensors:
            self.report.add(
                "not-a-value", span, f"`{id}` is a tensor", f"read it at an index: {id}[...]"
            )
            return None
        known = (*self.params, *self.extents, *self.texts, *self.tensors)
        help = syntax.CONSTANTS.get(id.capitalize()) or nearest(id, known)
        self.report.add("unknown-name", span, f"unknown name `{id}`", help)
        return None

    def _load(self, expr: Item) -> Value | None:
        name, span = expr.base.id, expr.base.span
        self.used.add(name)
        if name not in self.tensors:
            if name in (*self.params, *self.extents, *self.texts):
                self.report.add(
                    "not-a-value", span, f"`{name}` is not a tensor; it has no elements"
                )
            else:
                self.report.add(
                    "unknown-name",
                    span,
                    f"there is no tensor `{name}`",
                    nearest(name, self.tensors),
                )
        elif name not in self.readable:
            self.report.add(
                "read-of-out",
                span,
                f"`{name}` is an `out` tensor",
                "use the let that was stored to it, or declare it with mode: inout",
            )
        elif name in self.optional and name not in self.given:
            self.report.add(
                "ungiven",
                span,
                f"`{name}` is optional and may not be given here",
                f"write {name}[...] if given({name}) else ...",
            )
        items = self.items(expr, name)
        known = self.tensors.get(name)
        if items is None or known is None:
            return None
        axes = axes_of(*items)
        return Load(name, items, known[0], axes, span=expr.span)

    def items(self, expr: Item, tensor: str) -> tuple[Value, ...] | None:
        """The indices of a load or of a store's place."""
        values = [self.infer(item) for item in expr.items]
        known = self.tensors.get(tensor)
        if known is not None and expr.listed and tensor not in self.lists:
            self.report.add(
                "wrong-rank",
                expr.span,
                f"`{tensor}` is not a list of tensors",
                f"write {tensor}[a, b]",
            )
            return None
        if known is not None and len(expr.items) != len(known[1]):
            self.report.add(
                "wrong-rank",
                expr.span,
                f"`{tensor}` has {counted(len(known[1]), 'dimension')}, not {len(expr.items)}",
            )
            return None
        items: list[Value] = []
        for item, value in zip(expr.items, values, strict=True):
            if value is None:
                continue
            if value.dtype == "bool":
                self.report.add("wrong-type", item.span, "an index is a number, this a condition")
            else:
                items.append(value)
        return tuple(items) if len(items) == len(expr.items) else None

    def _call(self, call: Call) -> Value | None:
        name, span = call.name, call.span
        if name == "prefix" and call.over:
            return prefix(self, call)
        if name == "given" and not call.over:
            return self._given(call)
        values = [self.infer(arg) for arg in call.args]
        known_over = self.over(call)
        args = [value for value in values if value is not None]
        if len(args) != len(values) or not known_over:
            return None
        table: dict[str, int | None] = {**dict.fromkeys((*CASTS, *WRAPS), 1), **functions()}
        if call.over:
            table = {**REDUCTIONS, **dict.fromkeys(SCANS, 1), "prefix": 1}
        if name not in table:
            what = "a reduction or a scan" if call.over else "a function"
            help = INSTEAD.get(name) or nearest(FOREIGN_NAMES.get(name, name), table)
            if not call.over and name in (*REDUCTIONS, *SCANS, "prefix"):
                help = f"name the index that it runs over: {name}[k](...)"
            self.report.add(
                "unknown-function", call.name_span, f"`{name}` is not {what} of the language", help
            )
            return None
        wanted = table[name]
        if len(args) < 2 if wanted is None else len(args) != wanted:
            takes = "two arguments or more" if wanted is None else counted(wanted, "argument")
            help = f"name the index that it runs over: {name}[k](...)" if wanted is None else ""
            self.report.add(
                "wrong-arguments", span, f"`{name}` takes {takes}, not {len(args)}", help
            )
            return None
        if call.over:
            return self._reduce(call, args)
        if name in CASTS:
            return converted(name, args[0], call, self.report)
        if name in WRAPS:
            return wrapping(args[0], WRAPS[name], call.args[0].span, span, self.report)
        if table[name] == 1:
            return applied(name, args, call.args, span, self.report)
        if name == "clamp":
            low = applied(
                "min", [args[0], args[2]], (call.args[0], call.args[2]), span, self.report
            )
            return low and applied(
                "max", [low, args[1]], (call.args[0], call.args[1]), span, self.report
            )
        result: Value | None = args[0]
        for arg, expr in zip(args[1:], call.args[1:], strict=True):
            result = result and applied(
                name, [result, arg], (call.args[0], expr), span, self.report
            )
        return result

    def over(self, call: Call) -> bool:
        """Whether what a reduction or scan runs over are indices."""
        known = True
        for number, index in enumerate(call.over):
            if index.id in {each.id for each in call.over[:number]}:
                self.report.add(
                    "wrong-arguments",
                    index.span,
                    f"`{call.name}` runs over `{index.id}` twice",
                    "name each index once",
                )
                known = False
            self.used.add(index.id)
            if index.id not in self.extents:
                self.report.add(
                    "not-an-index",
                    index.span,
                    f"`{index.id}` is not an index",
                    nearest(index.id, self.extents),
                )
                known = False
        return known

    def _reduce(self, call: Call, args: list[Value]) -> Value | None:
        name, arg = call.name, args[0]
        arg_span = call.args[0].span
        conditions = name in ("count", "any", "all", "first")
        if conditions and arg.dtype != "bool":
            self.report.add(
                "wrong-type", arg_span, f"`{name}` takes a condition, this has type {arg.dtype}"
            )
            return None
        if not conditions and arg.dtype == "bool":
            help = (
                "write `any` or `all`" if name in ("min", "max") else f"write {name}[..](i64(...))"
            )
            self.report.add("wrong-type", arg_span, f"`{name}` takes numbers", help)
            return None
        if arg.dtype in LITERALS:
            coerced = coerce(arg, own_type(arg.dtype), arg_span, self.report)
            if coerced is None:
                return None
            arg = coerced
        if arg.dtype in FLOATS and (name != "sum" or arg.dtype != "f32"):
            help = "write sum[..](f32(...))" if name == "sum" else "floats only have sums"
            self.report.add(
                "wrong-type", arg_span, f"`{name}` does not take numbers of type {arg.dtype}", help
            )
            return None
        running = [each for each in call.over if not self._static_index(each.id)]
        if arg.dtype == "f32" and running:
            self.report.add(
                "float-sum",
                running[0].span,
                f"`{running[0].id}` takes a number of values that is not known at compile time",
                "make its size static: a float sum is a tree over all of them",
            )
            return None
        if name in (*SCANS, "first") and len(call.over) != 1:
            self.report.add("wrong-arguments", call.span, f"`{name}` runs over one index")
            return None
        if name in SCANS:
            index = call.over[0].id
            return Scan(name, index, cast(arg, "i64"), "i64", arg.axes | {index}, call.span)
        if name == "first":
            none = coerce(args[1], "i64", call.args[1].span, self.report)
            if none is None:
                return None
            index = call.over[0].id
            return Reduce(name, index, arg, none, "i64", (arg.axes - {index}) | none.axes)
        if name in ("sum", "count"):
            arg, name = arg if arg.dtype == "f32" else cast(arg, "i64"), "sum"
        for over in reversed(call.over):
            arg = Reduce(name, over.id, arg, None, arg.dtype, arg.axes - {over.id}, call.span)
        return arg

    def _static_index(self, name: str) -> bool:
        extent = self.extents[name]
        return extent is None or extent.dtype == "int"

    def _given(self, call: Call) -> Value | None:
        arg = call.args[0] if len(call.args) == 1 else None
        if not isinstance(arg, Name) or arg.id not in self.optional:
            self.report.add(
                "wrong-arguments",
                call.span,
                "`given` takes the name of an optional tensor",
                nearest(arg.id if isinstance(arg, Name) else "", self.optional),
            )
            return None
        self.used.add(arg.id)
        return Given(arg.id)
