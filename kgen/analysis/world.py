"""A call on small numbers: what a typed value is there, computed number by number.

In: a typed group, a value for each size and scalar, and what chooses a tensor's elements as they are read.
Out: numbers; `OutsideError` where an index leaves its tensor, `ImpossibleError` where no legal call is so.
Knows integers and conditions alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kgen.analysis.ranges import SIZE_LIMIT
from kgen.lang.dtypes import FLOATS, LIMITS, cut
from kgen.lang.operators import OPERATORS
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
)

Place = tuple[str, tuple[int, ...]]
Point = dict[str, int]
# Chooses an element: the tensor, the least and the greatest value, and the values that are taken.
Draw = Callable[[Tensor, int, int, set[int]], int]

_TURNS = 100_000  # of reductions, all in all; beyond it a world is too large to walk through


class OutsideError(Exception):
    """An index outside its tensor."""


class ImpossibleError(Exception):
    """No legal call is like that, or this is more than can be computed here."""


@dataclass(slots=True)
class World:
    """One call. `elements` grows as elements are read.

    `read` and `used` collect the elements, sizes and scalars that were looked at.
    """

    group: Group
    params: dict[str, int]
    given: dict[str, bool]
    draw: Draw
    elements: dict[Place, int] = field(default_factory=dict)
    read: dict[Place, int] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    turns: int = 0

    def at(self, value: Value, point: Point) -> int:
        """A value at a point of the indices."""
        return cut(self.exact(value, point), value.dtype)

    def exact(self, value: Value, point: Point) -> int:
        """A value before it is cut to its type; what it is made of is cut."""
        if value.dtype in FLOATS:
            raise ImpossibleError
        match value:
            case Const(number):
                return int(number)
            case Param(name):
                self.used.add(name)
                return self.params[name]
            case Given(tensor):
                return int(self.given[tensor])
            case Index(name):
                return point[name]
            case Ref(name):
                return self.at(self.group.lets[name].value, point)
            case Load(tensor, items):
                return self._read(tensor, tuple(self.at(item, point) for item in items))
            case Cast(arg):
                return self.at(arg, point)
            case Select(cond, then, other):
                return self.at(then if self.at(cond, point) else other, point)
            case Op(op, args):
                if any(arg.dtype in FLOATS for arg in args):
                    raise ImpossibleError
                numbers = [self.at(arg, point) for arg in args]
                if op in ("floordiv", "mod", "truncdiv", "truncmod") and numbers[1] == 0:
                    raise ImpossibleError
                row = OPERATORS[{"truncdiv": "floordiv", "truncmod": "mod"}.get(op, op)]
                assert row.exact is not None
                return int(row.exact(*numbers))
            case Scan(kind, index, arg):
                past = self._along(arg, point, index, range(point[index] + 1))
                return sum(past) if kind == "cumsum" else cut(_product(past), "i64")
            case Reduce(kind, index, arg, none, dtype):
                count = max(self.at(self.group.extents[index], {}), 0)
                every = self._along(arg, point, index, range(count))
                if kind == "first":
                    assert none is not None
                    return every.index(1) if 1 in every else self.at(none, point)
                least, most = LIMITS[dtype]
                match kind:
                    case "sum":
                        return sum(every)
                    case "any" | "all":
                        return int(any(every) if kind == "any" else all(every))
                    case "min":
                        return min(every, default=most)
                    case _:
                        return max(every, default=least)

    def _along(self, arg: Value, point: Point, index: str, numbers: range) -> list[int]:
        self.turns += len(numbers)
        if self.turns > _TURNS:
            raise ImpossibleError
        return [self.at(arg, {**point, index: number}) for number in numbers]

    def dims(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape of a tensor, the length of a list first."""
        dims = tensor.dims if tensor.length is None else (tensor.length, *tensor.dims)
        return tuple(self.at(dim, {}) for dim in dims)

    def inside(self, tensor: str, place: tuple[int, ...]) -> bool:
        """Whether a place is one of a tensor's."""
        return all(
            0 <= at < dim
            for at, dim in zip(place, self.dims(self.group.tensors[tensor]), strict=True)
        )

    def _read(self, name: str, place: tuple[int, ...]) -> int:
        tensor = self.group.tensors[name]
        if not self.inside(name, place) or (tensor.optional and not self.given[name]):
            raise OutsideError
        if (name, place) not in self.elements:
            low, high = self.ends(tensor)
            taken: set[int] = set()
            if tensor.distinct:
                taken = {v for (other, _), v in self.elements.items() if other == name}
                taken -= {self.at(tensor.repeats, {})} if tensor.repeats is not None else set()
            self.elements[name, place] = self.draw(tensor, low, high, taken)
        number = self.read[name, place] = self.elements[name, place]
        return number

    def ends(self, tensor: Tensor) -> tuple[int, int]:
        """The least and the greatest value of a tensor's elements."""
        low, high = LIMITS[tensor.dtype]
        low = max(low, self.at(tensor.low, {})) if tensor.low is not None else low
        high = min(high, self.at(tensor.high, {})) if tensor.high is not None else high
        if low > high:
            raise ImpossibleError
        return low, high

    def param_ends(self, name: str) -> tuple[int, int]:
        """The least and the greatest value of a size or scalar, the others being what they are."""
        size = self.group.sizes.get(name)
        if size is not None and size.derived is not None:
            number = self.at(size.derived, {})
            return number, number
        declared: Size | Scalar = size if size is not None else self.group.scalars[name]
        if isinstance(declared, Size):
            low, high = 0, SIZE_LIMIT
        else:
            low, high = LIMITS["i64" if declared.static else declared.dtype]
        low = max(low, self.at(declared.low, {})) if declared.low is not None else low
        high = min(high, self.at(declared.high, {})) if declared.high is not None else high
        if low > high:
            raise ImpossibleError
        return low, high

    def legal(self) -> bool:
        """Whether there is a call with these numbers: its tensors can hold what they are declared to."""
        used = set(self.used)
        try:
            ends = {name: self.param_ends(name) for name in self.params}
            fits = all(low <= self.params[name] <= high for name, (low, high) in ends.items())
            return (
                fits
                and all(self._fillable(each) for each in self.group.tensors.values())
                and all(self.allows(*place, number) for place, number in self.elements.items())
                and all(self._distinct(each) for each in self.group.tensors.values())
            )
        except ImpossibleError:
            return False
        finally:
            self.used = used

    def _fillable(self, tensor: Tensor) -> bool:
        if tensor.optional and not self.given[tensor.name]:
            return True
        dims = self.dims(tensor)
        count = math.prod(dims)
        if min(dims, default=0) < 0 or tensor.dtype in FLOATS or not count:
            return min(dims, default=0) >= 0
        low, high = self.ends(tensor)
        return not tensor.distinct or tensor.repeats is not None or count <= high - low + 1

    def allows(self, name: str, place: tuple[int, ...], number: int) -> bool:
        """Whether a tensor has a place and may hold a number there."""
        low, high = self.ends(self.group.tensors[name])
        return self.inside(name, place) and low <= number <= high

    def _distinct(self, tensor: Tensor) -> bool:
        held = [v for (name, _), v in self.elements.items() if name == tensor.name]
        repeats = self.at(tensor.repeats, {}) if tensor.repeats is not None else None
        alone = [number for number in held if number != repeats]
        return not tensor.distinct or len(alone) == len(set(alone))


def _product(numbers: Iterable[int]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result
