"""Compile-time numbers and conversions: what type a number takes, and whether it has a value there."""

from __future__ import annotations

from dataclasses import replace

from kgen.diagnostics import Report, Span
from kgen.lang.dtypes import FLOATS, LIMITS, NARROW_FLOATS, DType, cut, exact, rounded, widens
from kgen.lang.operators import fold
from kgen.lang.typed import NOWHERE, Cast, Const, Op, Value

# The largest finite numbers: beyond them backends differ in what they do with a literal.
_LARGEST = {"f16": 65504.0, "bf16": 3.38e38, "f32": 3.4e38}


def coerce(value: Value, dtype: DType, span: Span, report: Report) -> Value | None:
    """`value` as `dtype`: a compile-time number takes the type, another value is cast to it."""
    if not isinstance(value, Const):
        return cast(value, dtype)
    if dtype in _LARGEST and abs(value.value) > _LARGEST[dtype]:
        report.add("wrong-type", span, f"{value.value} does not fit {dtype}")
        return None
    if dtype not in FLOATS and (problem := misfit(value, dtype)):
        report.add("wrong-type", span, problem)
        return None
    # A literal that is cast where it stands is rounded there, as in torch.
    return Const(rounded(value.value, dtype) if dtype in NARROW_FLOATS else value.value, dtype)


def misfit(value: Value, dtype: DType) -> str:
    """Why a compile-time number has no value of its own in `dtype`; empty if it has."""
    if not isinstance(value, Const):
        narrow = f"a static number beside {dtype} may have to be rounded"
        return narrow if dtype in NARROW_FLOATS else ""
    if dtype in FLOATS:
        return "" if exact(value.value, dtype) else f"{value.value} is not a number of {dtype}"
    low, high = LIMITS[dtype]
    if isinstance(value.value, float) or low <= value.value <= high:
        return ""
    shown = value.value if abs(value.value) < 2**70 else "this number"
    return f"{shown} does not fit {'i64' if dtype == 'int' else dtype}"


def cast(value: Value, dtype: DType, span: Span = NOWHERE) -> Value:
    """`value` as another type, by a conversion if it is not one already."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Const):
        return Const(value.value, dtype)
    return Cast(value, dtype, value.axes, span=span)


def wrapping(value: Value, dtype: DType, where: Span, span: Span, report: Report) -> Value | None:
    """The low bits of an integer: sums, differences and products in it may wrap around as well.

    They do so in types at least as wide as `dtype`, so that its low bits are those of the true result.
    """

    def mark(each: Value) -> Value:
        match each:
            case Op("add" | "sub" | "mul" | "neg" as op, args) if widens(dtype, each.dtype):
                args = tuple(mark(arg) for arg in args)
                folded = fold(op, [int(arg.value) for arg in args if isinstance(arg, Const)])
                if folded is not None:
                    return Const(cut(folded, each.dtype), each.dtype)
                return replace(each, args=args, wraps=True)
            case Cast(arg) if widens(dtype, each.dtype) and widens(dtype, arg.dtype):
                return replace(each, arg=mark(arg), wraps=not widens(arg.dtype, each.dtype))
        return each

    if value.dtype not in LIMITS or not widens(dtype, value.dtype) or value.dtype == "int":
        report.add(
            "wrong-type",
            where,
            f"wrap_{dtype} takes an integer at least as wide as {dtype}, this has type {value.dtype}",
            "cast what may wrap around, not the result" if value.dtype in LIMITS else "",
        )
        return None
    marked = mark(value)
    if isinstance(marked, Const):
        return Const(cut(int(marked.value), dtype), dtype)
    return marked if marked.dtype == dtype else Cast(marked, dtype, value.axes, True, span)
