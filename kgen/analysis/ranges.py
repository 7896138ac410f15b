"""The least and the greatest value that each expression can take, from the declared ranges.

In: a typed group. Out: intervals; diagnostics for ranges that hold nothing and divisors that may be
0; and the group's values with each quotient marked as cheap where that is proved (`truncdiv`,
`truncmod`: neither operand can be negative, so rounding down and rounding to 0 agree). Intervals
know no relation between two names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kgen.diagnostics import Report, Span
from kgen.lang.dtypes import FLOATS, LIMITS, DType
from kgen.lang.operators import OPERATORS
from kgen.lang.text import spec_text
from kgen.lang.typed import (
    Cast,
    Const,
    Given,
    Group,
    Index,
    Load,
    Op,
    Param,
    Reduce,
    Ref,
    Scalar,
    Scan,
    Select,
    Size,
    Tensor,
    Value,
    walk,
)

# Of a float nothing is known: its interval is the whole line.
Interval = tuple[float, float]

_LINE: Interval = (-math.inf, math.inf)

# A run-time size or stride fits a kernel's 32-bit argument; the call checks it.
SIZE_LIMIT = 2**31 - 1


@dataclass(slots=True)
class Ranges:
    """Intervals of a group's values; `assumed` narrows names (a size known to be 0, say)."""

    group: Group
    assumed: dict[str, Interval] = field(default_factory=dict)
    known: dict[str, Interval] = field(default_factory=dict)
    inside: Callable[[Load], bool] = lambda _: False

    def of(self, value: Value) -> Interval:
        """The least and the greatest value."""
        if value.dtype in FLOATS:
            return _LINE
        low, high = self._of(value)
        least, most = LIMITS[value.dtype]
        # Past the type's end the value wraps around, so it can be anything.
        return (low, high) if least <= low and high <= most else (least, most)

    def exact(self, value: Value) -> Interval:
        """The least and the greatest value before it is cut to its type, its operands cut to theirs."""
        return self._of(value)

    def fits(self, value: Value, dtype: DType) -> bool:
        """Whether a value, worked out without wrapping around, is one of the integers of a type."""
        return dtype in LIMITS and value.dtype in LIMITS and _within(self._of(value), LIMITS[dtype])

    def _of(self, value: Value) -> Interval:
        group = self.group
        match value:
            case Const(number):
                return (number, number)
            case Param(name):
                return self._param(name)
            case Given():
                return (0, 1)
            case Index(name):
                return (0, max(self.of(group.extents[name])[1] - 1, 0))
            case Ref(name, dtype):
                if name not in self.known:
                    self.known[name] = LIMITS.get(dtype, _LINE)
                    self.known[name] = self.of(group.lets[name].value)
                return self.known[name]
            case Load(name, _, dtype):
                tensor = group.tensors[name]
                low, high = LIMITS.get(dtype, _LINE)
                low = self.of(tensor.low)[0] if tensor.low is not None else low
                high = self.of(tensor.high)[1] if tensor.high is not None else high
                return (low, high)
            case Cast(arg, dtype):
                low, high = self.of(arg)
                return (
                    (int(low > 0), int(high != 0 or low != 0)) if dtype == "bool" else (low, high)
                )
            case Select(cond, then, other):
                taken = self.of(cond)
                if taken == (1, 1):
                    return self.of(then)
                if taken == (0, 0):
                    return self.of(other)
                return _hull(self.of(then), self.of(other))
            case Reduce(kind, index, arg, none):
                return self._reduce(kind, index, arg, none)
            case Scan(kind, index, arg):
                if kind == "cumsum":
                    return _hull(self.of(arg), self._reduce("sum", index, arg, None))
                return (0, 1) if _within(self.of(arg), (0, 1)) else LIMITS["i64"]
            case Op(op, args):
                return _operate(op, [self.of(arg) for arg in args])

    def _param(self, name: str) -> Interval:
        if name in self.assumed:
            return self.assumed[name]
        if name in self.known:
            return self.known[name]
        self.known[name] = (0, SIZE_LIMIT)
        size = self.group.sizes.get(name)
        if size is not None and size.derived is not None:
            interval = self.of(size.derived)
        else:
            declared: Size | Scalar = size if size is not None else self.group.scalars[name]
            unsized = (
                (0, SIZE_LIMIT) if isinstance(declared, Size) else LIMITS.get(declared.dtype, _LINE)
            )
            least, most = unsized
            low = self.of(declared.low)[0] if declared.low is not None else least
            high = self.of(declared.high)[1] if declared.high is not None else most
            interval = (max(low, 0) if size is not None else low, high)
        self.known[name] = interval
        return interval

    def _reduce(self, kind: str, index: str, arg: Value, none: Value | None) -> Interval:
        low, high = self.of(arg)
        least, most = self.of(self.group.extents[index])
        match kind:
            case "sum":
                return (min(low * most, low * least, 0), max(high * most, high * least, 0))
            case "first" if none is not None:
                return _hull((0, max(most - 1, 0)), self.of(none))
            case "min" | "max":
                limits = LIMITS[arg.dtype]
                empty = limits[1] if kind == "min" else limits[0]
                return _hull((low, high), (empty, empty)) if least <= 0 else (low, high)
        return (0, 1)

    def mark(self, value: Value) -> Value:
        """`value` with its cheap quotients and its safe loads marked."""
        match value:
            case Const() | Param() | Given() | Index() | Ref():
                return value
            case Load(_, items):
                items = tuple(self.mark(item) for item in items)
                return replace(value, items=items, safe=self.inside(value))
            case Cast(arg):
                return replace(value, arg=self.mark(arg))
            case Select(cond, then, other):
                return replace(
                    value, cond=self.mark(cond), then=self.mark(then), other=self.mark(other)
                )
            case Reduce(_, _, arg, none):
                return replace(value, arg=self.mark(arg), none=none and self.mark(none))
            case Scan(_, _, arg):
                return replace(value, arg=self.mark(arg))
            case Op(op, args):
                marked = tuple(self.mark(arg) for arg in args)
                if op in ("floordiv", "mod") and all(self.of(arg)[0] >= 0 for arg in args):
                    op = "trunc" + op.removeprefix("floor")
                return replace(value, op=op, args=marked)


def check_ranges(group: Group, report: Report) -> None:
    """Report ranges that hold nothing, and divisors that may be 0."""
    ranges = Ranges(group)
    ranged: tuple[Size | Scalar | Tensor, ...] = (
        *group.sizes.values(),
        *group.scalars.values(),
        *group.tensors.values(),
    )
    for each in ranged:
        low, high = _declared(each, ranges)
        if low > high:
            report.add(
                "empty-range",
                each.range_span or each.span,
                f"no value of `{each.name}` is in its declared range",
                "a size is 0 or more" if isinstance(each, Size) and high < 0 else "",
            )
        elif isinstance(each, Scalar) and each.default is not None and each.default_span:
            least, most = ranges.of(each.default)
            if least > high or most < low:
                report.add(
                    "bad-default",
                    each.default_span,
                    f"the default of `{each.name}` is never in its declared range",
                    f"the range is {each.text.partition(' ')[2]}",
                )
    if not report.diagnostics:
        for tensor in group.tensors.values():
            for dim in (each for each in tensor.dims if ranges.of(each)[1] < 0):
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
                _check_divisor(value, span, ranges, report)
            if isinstance(value, Cast) and value.arg.dtype == "int" and value.dtype in LIMITS:
                _check_static(value, span, ranges, report)


def _declared(each: Size | Scalar | Tensor, ranges: Ranges) -> Interval:
    """The least and the greatest value that a declaration allows, whatever the sizes."""
    if isinstance(each, Size) and each.derived is not None:
        return max(ranges.of(each.derived)[0], 0), ranges.of(each.derived)[1]
    low = ranges.of(each.low)[0] if each.low is not None else -math.inf
    high = ranges.of(each.high)[1] if each.high is not None else math.inf
    return (max(low, 0) if isinstance(each, Size) else low), high


def _check_divisor(value: Op, span: Span, ranges: Ranges, report: Report) -> None:
    low, high = ranges.of(value.args[1])
    if low <= 0 <= high:
        divisor = spec_text(value.args[1])
        report.add(
            "division-by-zero",
            value.divisor_span or span,
            f"the divisor `{divisor}` may be 0: by the declared ranges it is {low} .. {high}",
            f"declare it from 1 on, or divide by max({divisor}, 1)",
        )


def _check_static(value: Cast, span: Span, ranges: Ranges, report: Report) -> None:
    low, high = ranges.of(value.arg)
    least, most = LIMITS[value.dtype]
    if not least <= low <= high <= most:
        report.add(
            "narrowing",
            span,
            f"a static number is {low} .. {high} by its declared range, which does not fit {value.dtype}",
            "declare a smaller range",
        )


def _within(inner: Interval, outer: Interval) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _hull(*intervals: Interval) -> Interval:
    return (min(low for low, _ in intervals), max(high for _, high in intervals))


def _operate(op: str, args: list[Interval]) -> Interval:
    row = OPERATORS[{"truncdiv": "floordiv", "truncmod": "mod"}.get(op, op)]
    if row.interval is None or any(math.isinf(end) for arg in args for end in arg):
        return (0, 1) if row.compares else LIMITS["i64"]
    return row.interval(*((int(low), int(high)) for low, high in args))
