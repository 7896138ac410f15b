"""What declared ranges must keep to: each holds something, and no divisor may be 0.

In: a group's reading. Out: diagnostics.
"""

from __future__ import annotations

import math

from kgen.diagnostics import Report, Span
from kgen.lang.dtypes import LIMITS
from kgen.lang.text import spec_text
from kgen.lang.typed import Cast, Const, Op, Scalar, Size, Tensor, Value, walk
from kgen.prove.reading import Reading


def check_ranges(reading: Reading, report: Report) -> None:
    """Report ranges that hold nothing, and divisors that may be 0."""
    group, before = reading.group, len(report.diagnostics)
    ranged: tuple[Size | Scalar | Tensor, ...] = (
        *group.sizes.values(),
        *group.scalars.values(),
        *group.tensors.values(),
    )
    for each in ranged:
        low, high = _declared(each, reading)
        if low > high:
            report.add(
                "empty-range",
                each.range_span or each.span,
                f"no value of `{each.name}` is in its declared range",
                "a size is 0 or more" if isinstance(each, Size) and high < 0 else "",
            )
        elif isinstance(each, Scalar) and each.default is not None and each.default_span:
            least, most = _ends(each.default, reading)
            if least > high or most < low:
                report.add(
                    "bad-default",
                    each.default_span,
                    f"the default of `{each.name}` is never in its declared range",
                    f"the range is {each.text.partition(' ')[2]}",
                )
    if len(report.diagnostics) == before:
        for tensor in group.tensors.values():
            for dim in (each for each in tensor.dims if reading.ends(each)[1] < 0):
                message = (
                    f"{spec_text(dim)}, a dimension of `{tensor.name}`, is negative at every size"
                )
                report.add("empty-range", tensor.span, message)
    roots = [(let.span, let.value) for let in group.lets.values()]
    for store in group.stores:
        roots += [(store.span, item) for item in store.items]
        roots += [(store.value_span, each) for each in (store.value, store.when) if each]
    for each in ranged:
        ends = (each.low, each.high, each.derived if isinstance(each, Size) else None)
        roots += [(each.span, end) for end in ends if end is not None]
        roots += [(each.span, dim) for dim in (each.dims if isinstance(each, Tensor) else ())]
    roots += [(group.span, extent) for extent in group.extents.values()]
    roots += [(group.span, group.when)] if group.when is not None else []
    for span, root in roots:
        for value in walk(root, {}):
            if isinstance(value, Op) and value.op in ("floordiv", "mod"):
                _check_divisor(value, span, reading, report)
            if isinstance(value, Cast) and value.arg.dtype == "int" and value.dtype in LIMITS:
                _check_static(value, span, reading, report)


def _declared(each: Size | Scalar | Tensor, reading: Reading) -> tuple[float, float]:
    """The least and the greatest value that a declaration allows, whatever the sizes."""
    if isinstance(each, Size) and each.derived is not None:
        return max(reading.ends(each.derived)[0], 0), reading.ends(each.derived)[1]
    low = _ends(each.low, reading)[0] if each.low is not None else -math.inf
    high = _ends(each.high, reading)[1] if each.high is not None else math.inf
    return (max(low, 0) if isinstance(each, Size) else low), high


def _ends(value: Value, reading: Reading) -> tuple[float, float]:
    """An end of a range, which may be a fraction where it is a number by itself."""
    if isinstance(value, Const):
        return value.value, value.value
    return reading.ends(value) if value.dtype in LIMITS else (-math.inf, math.inf)


def _check_divisor(value: Op, span: Span, reading: Reading, report: Report) -> None:
    low, high = reading.ends(value.args[1])
    if low <= 0 <= high:
        divisor = spec_text(value.args[1])
        report.add(
            "division-by-zero",
            value.divisor_span or span,
            f"the divisor `{divisor}` may be 0: by the declared ranges it is {low} .. {high}",
            f"declare it from 1 on, or divide by max({divisor}, 1)",
        )


def _check_static(value: Cast, span: Span, reading: Reading, report: Report) -> None:
    low, high = reading.ends(value.arg)
    least, most = LIMITS[value.dtype]
    if not least <= low <= high <= most:
        report.add(
            "narrowing",
            span,
            f"a static number is {low} .. {high} by its declared range, which does not fit {value.dtype}",
            "declare a smaller range",
        )
