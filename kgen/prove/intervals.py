"""The least and the greatest value of each part of a group, by its operators and by declared ranges.

In: a typed group. Out: `Intervals`, to be narrowed by whoever knows more of a value than its operators say.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

from kgen.lang.dtypes import FLOATS, LIMITS, DType
from kgen.lang.operators import OPERATORS, Interval
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
    Tensor,
    Value,
)

# A run-time size or stride fits a kernel's 32-bit argument; the call checks it.
SIZE_LIMIT = 2**31 - 1


@dataclass(slots=True)
class Intervals:
    """The ends of the values of one group, each computed once."""

    group: Group
    intervals: dict[Value, Interval] = field(default_factory=dict)

    def ends(self, value: Value) -> Interval:
        """The least and the greatest value of an integer or a condition; as its type holds it."""
        low, high = self.exact_ends(value)
        least, most = LIMITS[value.dtype]
        # Past the type's end the value wraps around, so it can be anything.
        return (low, high) if least <= low and high <= most else (least, most)

    def exact_ends(self, value: Value) -> Interval:
        """Likewise before it is cut to its type, its operands cut to theirs."""
        if value not in self.intervals:
            self.intervals[value] = LIMITS[value.dtype]  # while it is being computed
            low, high = self.refined(value, self.ends_by_parts(value))
            self.intervals[value] = (low, high) if low <= high else (high, high)
        return self.intervals[value]

    @abstractmethod
    def refined(self, value: Value, ends: Interval) -> Interval:
        """The ends of a value by its parts, narrowed by what else is known of it."""

    def fits(self, value: Value, dtype: DType) -> bool:
        """Whether a value, before it is cut to its own type, is one of the integers of a type."""
        if dtype not in LIMITS or value.dtype not in LIMITS:
            return False
        low, high = self.exact_ends(value)
        return LIMITS[dtype][0] <= low and high <= LIMITS[dtype][1]

    def ends_by_parts(self, value: Value) -> Interval:
        """Likewise by the operators that it is made of, one by one."""
        match value:
            case Const(number):
                return (int(number), int(number))
            case Param(name):
                return self.declared_ends(name)
            case Given():
                return (0, 1)
            case Index(name):
                return (0, max(self.ends(self.group.extents[name])[1] - 1, 0))
            case Ref(name):
                return self.ends(self.group.lets[name].value)
            case Load(name):
                return self.element_ends(self.group.tensors[name])
            case Cast(arg):
                return self.ends(arg) if arg.dtype in LIMITS else LIMITS[value.dtype]
            case Select(cond, then, other):
                taken = self.ends(cond)
                if taken[0] == taken[1]:
                    return self.ends(then if taken[0] else other)
                return _hull(self.ends(then), self.ends(other))
            case Reduce(kind, index, arg, none):
                return self._reduced_ends(kind, index, arg, none)
            case Scan(kind, index, arg):
                if kind == "cumsum":
                    return _hull(self.ends(arg), self._reduced_ends("sum", index, arg, None))
                low, high = self.ends(arg)
                return (0, 1) if low >= 0 and high <= 1 else LIMITS["i64"]
            case Op(op, args):
                row = OPERATORS[op]
                if row.interval is None or any(arg.dtype not in LIMITS for arg in args):
                    return (0, 1) if value.dtype == "bool" else LIMITS[value.dtype]
                return row.interval(*map(self.ends, args))

    def element_ends(self, tensor: Tensor) -> Interval:
        """The least and the greatest element of a tensor of integers, by its declaration."""
        low, high = LIMITS[tensor.dtype]
        low = max(self.ends(tensor.low)[0], low) if tensor.low is not None else low
        high = min(self.ends(tensor.high)[1], high) if tensor.high is not None else high
        return (low, max(low, high))

    def declared_ends(self, name: str) -> Interval:
        """The least and the greatest value of a size or scalar, by its declaration."""
        size = self.group.sizes.get(name)
        if size is not None and size.derived is not None:
            low, high = self.ends(size.derived)
            return (max(low, 0), max(high, 0))
        declared = size or self.group.scalars[name]
        if isinstance(declared, Scalar) and declared.dtype in FLOATS:
            return LIMITS["i64"]
        low, high = LIMITS[declared.dtype] if isinstance(declared, Scalar) else (0, SIZE_LIMIT)
        low = max(self.ends(declared.low)[0], low) if declared.low is not None else low
        high = min(self.ends(declared.high)[1], high) if declared.high is not None else high
        return (low, max(low, high))

    def _reduced_ends(self, kind: str, index: str, arg: Value, none: Value | None) -> Interval:
        if arg.dtype in FLOATS:
            return LIMITS["i64"]
        low, high = self.ends(arg)
        least, most = self.ends(self.group.extents[index])
        match kind:
            case "sum":
                return (min(low * most, low * least, 0), max(high * most, high * least, 0))
            case "first":
                assert none is not None
                return _hull((0, max(most - 1, 0)), self.ends(none))
            case "min" | "max":
                empty = LIMITS[arg.dtype][1 if kind == "min" else 0]
                return _hull((low, high), (empty, empty)) if least <= 0 else (low, high)
        return (0, 1)


def _hull(*intervals: Interval) -> Interval:
    return (min(low for low, _ in intervals), max(high for _, high in intervals))
