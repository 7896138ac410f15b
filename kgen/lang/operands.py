"""Operators, choices and casts on typed values: which operands they take, and what type comes of them.

In: typed values, and what was written for each. Out: a value whose operands have one type; or None after a
diagnostic.
"""

from __future__ import annotations

from kgen.diagnostics import Report, Span
from kgen.lang.convert import cast, coerce, misfit
from kgen.lang.dtypes import (
    FLOATS,
    INTEGERS,
    LITERALS,
    NARROW_FLOATS,
    DType,
    own_type,
    promote,
)
from kgen.lang.operators import OPERATORS, fold
from kgen.lang.syntax import Call, Expr
from kgen.lang.typed import Const, Op, Select, Value, axes_of


def applied(
    op: str, values: list[Value], args: tuple[Expr, ...], span: Span, report: Report
) -> Value | None:
    """An operator on values; `args` are what was written for them."""
    axes = axes_of(*values)
    row = OPERATORS.get(op)
    if row is not None and row.takes == "conditions":
        for value, arg in zip(values, args, strict=True):
            if value.dtype != "bool":
                report.add(
                    "wrong-type",
                    arg.span,
                    f"`{op}` takes conditions, this has type {value.dtype}",
                    "compare it: x != 0",
                )
                return None
        return Op(op, tuple(values), "bool", axes)
    if all(isinstance(value, Const) and value.dtype == "int" for value in values):
        folded = fold(op, [int(value.value) for value in values if isinstance(value, Const)])
        if folded is not None:
            return fitted(Const(folded, "int"), "int", span, report)
    if row is None:
        report.add(
            "unsupported-syntax",
            span,
            "`**` is only for numbers: 2**31 - 1",
            "multiply instead",
        )
        return None
    if row.takes == "anything" and values[0].dtype == values[1].dtype == "bool":
        return Op(op, tuple(values), "bool", axes)
    united = _united(values, args, report)
    if united is None:
        return None
    same, dtype = united
    if row.takes == "integers" and dtype in FLOATS:
        slash = op in ("floordiv", "mod")
        what = "`//` and `%` take" if slash else f"`{row.symbol}` takes"
        report.add(
            "wrong-type",
            span,
            f"{what} integers, this has type {dtype}",
            "write `/`" if slash else "",
        )
        return None
    if row.takes in ("quotient", "floats"):
        if dtype == "float" or (row.takes == "floats" and dtype not in FLOATS):
            report.add(
                "wrong-type",
                span,
                f"this takes a number of a float type, not {dtype}",
                "cast an operand: f32(...)",
            )
            return None
        if dtype not in FLOATS:  # torch divides integers as f32
            same = tuple(each if each.dtype == "int" else cast(each, "f32") for each in same)
            if all(each.dtype == "int" for each in same):
                same = tuple(cast(each, "f32") for each in same)
            dtype = "f32"
    divides = op in ("floordiv", "mod")
    if divides and isinstance(same[1], Const) and same[1].value == 0:
        report.add("division-by-zero", args[1].span, "the divisor is 0")
        return None
    numbers = [int(each.value) for each in same if isinstance(each, Const)]
    if len(numbers) == len(same) and dtype not in FLOATS:
        folded = fold(op, numbers)
        if folded is not None:
            return fitted(Const(folded, dtype), dtype, span, report)
    divisor = args[1].span if divides else None
    gives = "bool" if row.compares else dtype
    return Op(op, same, gives, axes, span=span, divisor_span=divisor)


def selected(
    values: list[Value], args: tuple[Expr, ...], span: Span, report: Report
) -> Value | None:
    """`then if cond else other`, of `[cond, then, other]`."""
    cond, then, other = values
    if cond.dtype != "bool":
        report.add("wrong-type", args[0].span, f"a condition is wanted, this has type {cond.dtype}")
        return None
    if then.dtype == other.dtype == "bool":
        return Select(cond, then, other, "bool", axes_of(*values))
    united = _united([then, other], args[1:], report)
    if united is None:
        return None
    (then, other), dtype = united
    if dtype in LITERALS:
        dtype = own_type(dtype)
    branches = [coerce(each, dtype, span, report) for each in (then, other)]
    if branches[0] is None or branches[1] is None:
        return None
    return Select(cond, branches[0], branches[1], dtype, axes_of(*values))


def _united(
    values: list[Value], args: tuple[Expr, ...], report: Report
) -> tuple[tuple[Value, ...], DType] | None:
    """Operands of one number type; a compile-time number stays one beside another type."""
    dtype: DType = "int"
    for value, arg in zip(values, args, strict=True):
        if value.dtype == "bool":
            report.add(
                "wrong-type",
                arg.span,
                "a number is wanted, this is a condition",
                "write i32(...)",
            )
            return None
        dtype = promote(dtype, value.dtype)
    same: list[Value] = []
    for value, arg in zip(values, args, strict=True):
        if value.dtype in LITERALS:
            number = fitted(value, dtype, arg.span, report)
            if number is None:
                return None
            same.append(number)
        else:
            same.append(cast(value, dtype))
    return tuple(same), dtype


def converted(dtype: DType, arg: Value, call: Call, report: Report) -> Value | None:
    """A cast that the spec writes."""
    if dtype == "bool" and arg.dtype != "bool":
        return applied(
            "ne", [arg, Const(0, "int")], (call.args[0], call.args[0]), call.span, report
        )
    if isinstance(arg, Const) and (arg.dtype == "int" or dtype in FLOATS):
        return coerce(arg, dtype, call.span, report)
    if arg.dtype == "int" and dtype not in FLOATS:  # written out, so it may lose bits
        return cast(cast(arg, "i64"), dtype, call.span)
    if arg.dtype in FLOATS and dtype not in FLOATS:
        report.add(
            "wrong-type",
            call.span,
            f"a float is not converted to {dtype}: backends differ on NaN and large values",
            "compare it, or keep it a float",
        )
        return None
    return cast(arg, dtype, call.span)


def fitted(value: Value, dtype: DType, span: Span, report: Report) -> Value | None:
    """A compile-time number that has a value of its own in `dtype`."""
    problem = misfit(value, dtype)
    if not problem:
        return value
    help = ""
    if dtype in NARROW_FLOATS:
        help = f"write {dtype}(...) to round it, or cast the other operand to f32"
    elif dtype in INTEGERS - {"i64"}:
        help = "cast the other operand to i64"
    report.add("wrong-type", span, problem, help)
    return None
