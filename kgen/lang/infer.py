"""The type and the axes of an expression.

In: an untyped tree and the names in scope. Out: a typed tree in which the operands of every operator
have one type, by casts that torch would make too; or None after a diagnostic.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kgen.diagnostics import Report, Span, nearest
from kgen.lang import syntax
from kgen.lang.syntax import Apply, Call, Expr, Item, Name, Number
from kgen.lang.typed import (
    NO_AXES,
    Axes,
    Cast,
    Const,
    Index,
    Let,
    Load,
    Op,
    Param,
    Reduce,
    Ref,
    Scan,
    Select,
    Value,
)
from kgen.lang.types import CASTS, LIMITS, DType, promote
from kgen.spec.located import Text

_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_FUNCTIONS: dict[str, int | None] = {"min": None, "max": None, "abs": 1, "clamp": 3}
_REDUCTIONS: dict[str, int | None] = {
    "sum": 1,
    "count": 1,
    "min": 1,
    "max": 1,
    "any": 1,
    "all": 1,
    "first": 2,
}
_SCANS = ("cumsum", "cumprod")


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
    open: list[str] = field(default_factory=list)

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
            if value is not None and value.dtype == "int":  # a let is a run-time value
                value = coerce(value, "i64", text.span, self.report)
            self.open.pop()
            self.lets[name] = Let(name, value, text.value, text.span) if value is not None else None
        let = self.lets[name]
        return let.value if let is not None else None

    def infer(self, expr: Expr) -> Value | None:
        """The typed tree of an expression."""
        match expr:
            case Number(value, span):
                return self._fits(Const(value, "int"), "i64", span)
            case Name(id, span):
                return self._name(id, span)
            case Item():
                return self._load(expr)
            case Apply(op, args, span):
                values = [self.infer(arg) for arg in args]
                known = [value for value in values if value is not None]
                return self._apply(op, known, args, span) if len(known) == len(args) else None
            case Call():
                return self._call(expr)

    def _name(self, id: str, span: Span) -> Value | None:
        self.used.add(id)
        if id in self.params:
            return Param(id, self.params[id])
        if id in self.extents:
            return Index(id, frozenset((id,)))
        if id in self.texts:
            value = self.let(id, span)
            return Ref(id, value.dtype, value.axes) if value is not None else None
        if id in self.tensors:
            self.report.add(
                "not-a-value", span, f"`{id}` is a tensor", f"read it at an index: {id}[...]"
            )
            return None
        known = (*self.params, *self.extents, *self.texts, *self.tensors)
        self.report.add("unknown-name", span, f"unknown name `{id}`", nearest(id, known))
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
        items = self.items(expr, name)
        known = self.tensors.get(name)
        if items is None or known is None:
            return None
        return Load(name, items, known[0], frozenset().union(*(item.axes for item in items)))

    def items(self, expr: Item, tensor: str) -> tuple[Value, ...] | None:
        """The indices of a load or of a store's place."""
        values = [self.infer(item) for item in expr.items]
        known = self.tensors.get(tensor)
        if known is not None and len(expr.items) != len(known[1]):
            self.report.add(
                "wrong-rank",
                expr.span,
                f"`{tensor}` has {len(known[1])} dimensions, not {len(expr.items)}",
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

    def _apply(
        self, op: str, values: list[Value], args: tuple[Expr, ...], span: Span
    ) -> Value | None:
        axes = _axes(values)
        if op in ("and", "or", "not"):
            for value, arg in zip(values, args, strict=True):
                if value.dtype != "bool":
                    self.report.add(
                        "wrong-type",
                        arg.span,
                        f"`{op}` takes conditions, this has type {value.dtype}",
                        "compare it: x != 0",
                    )
                    return None
            return Op(op, tuple(values), "bool", axes)
        if op == "if":
            return self._select(values, args, span)
        if all(isinstance(value, Const) and value.dtype == "int" for value in values):
            folded = _fold(op, [value.value for value in values if isinstance(value, Const)])
            if folded is not None:
                return self._fits(Const(folded, "int"), "i64", span)
        if op == "pow":
            self.report.add(
                "unsupported-syntax",
                span,
                "`**` is for numbers alone: 2**31 - 1",
                "multiply instead",
            )
            return None
        if op in ("eq", "ne") and values[0].dtype == values[1].dtype == "bool":
            return Op(op, tuple(values), "bool", axes)
        united = self._unite(values, args)
        if united is None:
            return None
        same, dtype = united
        if op in ("floordiv", "mod") and isinstance(same[1], Const) and same[1].value == 0:
            self.report.add("division-by-zero", args[1].span, "the divisor is 0")
            return None
        return Op(op, same, "bool" if op in _COMPARISONS else dtype, axes)

    def _select(self, values: list[Value], args: tuple[Expr, ...], span: Span) -> Value | None:
        cond, then, other = values
        if cond.dtype != "bool":
            self.report.add(
                "wrong-type", args[0].span, f"a condition is wanted, this has type {cond.dtype}"
            )
            return None
        if then.dtype == other.dtype == "bool":
            return Select(cond, then, other, "bool", _axes(values))
        united = self._unite([then, other], args[1:])
        if united is None:
            return None
        (then, other), dtype = united
        if dtype == "int":
            dtype = "i64"
        branches = [coerce(each, dtype, span, self.report) for each in (then, other)]
        if branches[0] is None or branches[1] is None:
            return None
        return Select(cond, branches[0], branches[1], dtype, _axes(values))

    def _unite(
        self, values: list[Value], args: tuple[Expr, ...]
    ) -> tuple[tuple[Value, ...], DType] | None:
        """Operands of one number type; a compile-time number stays one beside another type."""
        dtype: DType = "int"
        for value, arg in zip(values, args, strict=True):
            if value.dtype == "bool":
                self.report.add(
                    "wrong-type",
                    arg.span,
                    "a number is wanted, this is a condition",
                    "write i32(...)",
                )
                return None
            dtype = promote(dtype, value.dtype)
        same: list[Value] = []
        for value, arg in zip(values, args, strict=True):
            if value.dtype == "int":
                fitted = self._fits(value, dtype, arg.span)
                if fitted is None:
                    return None
                same.append(fitted)
            else:
                same.append(value if value.dtype == dtype else Cast(value, dtype, value.axes))
        return tuple(same), dtype

    def _call(self, call: Call) -> Value | None:
        name, span = call.name, call.span
        if name == "prefix" and call.over:
            return self._prefix(call)
        values = [self.infer(arg) for arg in call.args]
        known_over = self._over(call)
        args = [value for value in values if value is not None]
        if len(args) != len(values) or not known_over:
            return None
        table: dict[str, int | None] = {**dict.fromkeys(CASTS, 1), **_FUNCTIONS}
        if call.over:
            table = {**_REDUCTIONS, **dict.fromkeys(_SCANS, 1), "prefix": 1}
        if name not in table:
            what = "a reduction or a scan" if call.over else "a function"
            help = nearest(name, table)
            if not call.over and name in (*_REDUCTIONS, *_SCANS, "prefix"):
                help = f"name the index that it runs over: {name}[k](...)"
            self.report.add(
                "unknown-function", call.name_span, f"`{name}` is not {what} of the language", help
            )
            return None
        wanted = table[name]
        if wanted is None:
            wanted = max(len(args), 2)
        if len(args) != wanted:
            self.report.add(
                "wrong-arguments", span, f"`{name}` takes {wanted} arguments, not {len(args)}"
            )
            return None
        if call.over:
            return self._reduce(call, args)
        if name in CASTS:
            return self._cast(name, args[0], call)
        if name == "abs":
            return self._apply("abs", args, call.args, span)
        if name == "clamp":
            low = self._apply("min", [args[0], args[2]], (call.args[0], call.args[2]), span)
            return low and self._apply("max", [low, args[1]], (call.args[0], call.args[1]), span)
        result: Value | None = args[0]
        for arg, expr in zip(args[1:], call.args[1:], strict=True):
            result = result and self._apply(name, [result, arg], (call.args[0], expr), span)
        return result

    def _over(self, call: Call) -> bool:
        known = True
        for index in call.over:
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

    def _cast(self, name: str, arg: Value, call: Call) -> Value | None:
        dtype: DType = name  # type: ignore[assignment]
        if dtype == "bool" and arg.dtype != "bool":
            return self._apply(
                "ne", [arg, Const(0, "int")], (call.args[0], call.args[0]), call.span
            )
        if arg.dtype == "int":
            return coerce(arg, dtype, call.span, self.report)
        return Cast(arg, dtype, arg.axes)

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
        if arg.dtype == "int":
            coerced = coerce(arg, "i64", arg_span, self.report)
            if coerced is None:
                return None
            arg = coerced
        if name in (*_SCANS, "first") and len(call.over) != 1:
            self.report.add("wrong-arguments", call.span, f"`{name}` runs over one index")
            return None
        if name in _SCANS:
            index = call.over[0].id
            wide = arg if arg.dtype == "i64" else Cast(arg, "i64", arg.axes)
            return Scan(name, index, wide, "i64", arg.axes | {index})
        if name == "first":
            none = coerce(args[1], "i64", call.args[1].span, self.report)
            if none is None:
                return None
            index = call.over[0].id
            return Reduce(name, index, arg, none, "i64", (arg.axes - {index}) | none.axes)
        if name in ("sum", "count"):
            arg, name = Cast(arg, "i64", arg.axes) if arg.dtype != "i64" else arg, "sum"
        for over in reversed(call.over):
            arg = Reduce(name, over.id, arg, None, arg.dtype, arg.axes - {over.id})
        return arg

    def _prefix(self, call: Call) -> Value | None:
        """`prefix[r](e)`: the sum of e over the rows before r, an index of its own."""
        if not self._over(call):
            return None
        if len(call.over) != 1 or len(call.args) != 1:
            self.report.add("wrong-arguments", call.span, "`prefix` takes one index and one value")
            return None
        row = call.over[0]
        before = Name(f"{row.id}_before", row.span)
        self.extents[before.id] = self.extents[row.id]
        summed = self._rename(call.args[0], row.id, before)
        earlier = Apply("lt", (before, row), call.span)
        guarded = Apply("if", (earlier, summed, Number(0, call.span)), call.span)
        return self.infer(Call("sum", (before,), (guarded,), call.span, call.name_span))

    def _rename(self, expr: Expr, index: str, to: Name) -> Expr:
        """`expr` with another index in place of `index`, lets that vary with it written out."""
        match expr:
            case Number():
                return expr
            case Name(id, span):
                if id == index:
                    return Name(to.id, span)
                if id in self.texts and id not in self.open:
                    value = self.let(id, span)
                    inner = syntax.parse(self.texts[id], self.report)
                    if value is not None and inner is not None and index in value.axes:
                        self.used.add(id)
                        return self._rename(inner, index, to)
                return expr
            case Apply(op, args, span):
                return Apply(op, tuple(self._rename(arg, index, to) for arg in args), span)
            case Call(name, over, args, span, name_span):
                return Call(
                    name, over, tuple(self._rename(arg, index, to) for arg in args), span, name_span
                )
            case Item(base, items, span):
                return Item(base, tuple(self._rename(item, index, to) for item in items), span)

    def _fits(self, value: Value, dtype: DType, span: Span) -> Value | None:
        low, high = LIMITS[dtype]
        if isinstance(value, Const) and not low <= value.value <= high:
            self.report.add(
                "wrong-type",
                span,
                f"{value.value} does not fit {dtype}",
                "cast the other operand to i64" if dtype in ("i32", "u8") else "",
            )
            return None
        return value


def coerce(value: Value, dtype: DType, span: Span, report: Report) -> Value | None:
    """`value` as `dtype`: a compile-time number takes the type, another value is cast to it."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Const):
        low, high = LIMITS[dtype]
        if not low <= value.value <= high:
            report.add("wrong-type", span, f"{value.value} does not fit {dtype}")
            return None
        return Const(value.value, dtype)
    return Cast(value, dtype, value.axes)


def _axes(values: list[Value]) -> Axes:
    return NO_AXES.union(*(value.axes for value in values))


def _fold(op: str, args: list[int]) -> int | None:
    match op, args:
        case "add", [a, b]:
            return a + b
        case "sub", [a, b]:
            return a - b
        case "mul", [a, b]:
            return a * b
        case "pow", [a, b] if 0 <= b <= 64 and abs(a) <= 2**16:
            return int(a**b)
        case "floordiv", [a, b] if b != 0:
            return a // b
        case "mod", [a, b] if b != 0:
            return a % b
        case "min", [a, b]:
            return min(a, b)
        case "max", [a, b]:
            return max(a, b)
        case "abs" | "neg", [a]:
            return abs(a) if op == "abs" else -a
    return None
