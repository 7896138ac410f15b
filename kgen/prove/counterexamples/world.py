"""A call on small numbers: what a typed value is there, computed number by number.

In: a typed group, a value for each size and scalar, and what chooses a tensor's elements as they are read.
Out: numbers; `OutsideError` where an index leaves its tensor, `ImpossibleError` where no legal call is so.
Only knows integers and conditions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

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
from kgen.prove.intervals import SIZE_LIMIT

Code: TypeAlias = "Callable[[World, Point], int]"  # a value as a function of a world and a point
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
    lets: dict[Place, int] = field(default_factory=dict)

    def forget(self) -> None:
        """Look at everything anew, so that what is read from here on is what matters."""
        self.used.clear()
        self.read.clear()
        self.lets.clear()

    def at(self, value: Value, point: Point) -> int:
        """A value at a point of the indices."""
        return _codes(self.group).at(value)(self, point)

    def exact(self, value: Value, point: Point) -> int:
        """A value before it is cut to its type; what it is made of is cut."""
        return _codes(self.group).exact(value)(self, point)

    def param(self, name: str) -> int:
        """A size or scalar."""
        self.used.add(name)
        return self.params[name]

    def along(self, code: Code, point: Point, index: str, numbers: range) -> list[int]:
        """What a code gives for some values of an index."""
        self.turns += len(numbers)
        if self.turns > _TURNS:
            raise ImpossibleError
        return [code(self, {**point, index: number}) for number in numbers]

    def dims(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape of a tensor, the length of a list first."""
        return tuple(self.at(dim, {}) for dim in tensor.shape)

    def inside(self, tensor: str, place: tuple[int, ...]) -> bool:
        """Whether a place is one of a tensor's."""
        return all(
            0 <= at < dim
            for at, dim in zip(place, self.dims(self.group.tensors[tensor]), strict=True)
        )

    def element(self, name: str, place: tuple[int, ...]) -> int:
        """An element of a tensor, chosen when it is first read."""
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
        repeats = self.at(tensor.repeats, {}) if tensor.repeats is not None else high + 1
        return not tensor.distinct or low <= repeats <= high or count <= high - low + 1

    def allows(self, name: str, place: tuple[int, ...], number: int) -> bool:
        """Whether a tensor has a place and may hold a number there."""
        low, high = self.ends(self.group.tensors[name])
        return self.inside(name, place) and low <= number <= high

    def _distinct(self, tensor: Tensor) -> bool:
        held = [v for (name, _), v in self.elements.items() if name == tensor.name]
        repeats = self.at(tensor.repeats, {}) if tensor.repeats is not None else None
        alone = [number for number in held if number != repeats]
        return not tensor.distinct or len(alone) == len(set(alone))


@dataclass(slots=True)
class _Codes:
    """The values of a group as functions, each made once."""

    group: Group
    known: dict[tuple[Value, bool], Code] = field(default_factory=dict)

    def at(self, value: Value) -> Code:
        """A value as its type holds it."""
        if (value, True) not in self.known:
            exact, dtype = self.exact(value), value.dtype
            low, high = LIMITS.get(dtype, (0, 0))

            def held(world: World, point: Point) -> int:
                number = exact(world, point)
                return number if low <= number <= high else cut(number, dtype)

            self.known[value, True] = (
                held if isinstance(value, Op | Cast | Reduce | Scan) else exact
            )
        return self.known[value, True]

    def exact(self, value: Value) -> Code:
        """A value before it is cut to its type."""
        if (value, False) not in self.known:
            self.known[value, False] = self._made(value)
        return self.known[value, False]

    def _made(self, value: Value) -> Code:
        if value.dtype in FLOATS:
            return _impossible
        match value:
            case Const(number):
                return lambda _world, _point: int(number)
            case Param(name):
                return lambda world, _point: world.param(name)
            case Given(tensor):
                return lambda world, _point: int(world.given[tensor])
            case Index(name):
                return lambda _world, point: point[name]
            case Ref(name):
                return self._let(name)
            case Load(tensor, items):
                codes = [self.at(item) for item in items]
                return lambda world, point: world.element(
                    tensor, tuple(code(world, point) for code in codes)
                )
            case Cast(arg):
                return self.at(arg)
            case Select(cond, then, other):
                test, yes, no = self.at(cond), self.at(then), self.at(other)
                return lambda world, point: (yes if test(world, point) else no)(world, point)
            case Op(op, args):
                return self._operated(op, args)
            case Scan(kind, index, arg):
                inner = self.at(arg)

                def scanned(world: World, point: Point) -> int:
                    past = world.along(inner, point, index, range(point[index] + 1))
                    return sum(past) if kind == "cumsum" else cut(math.prod(past), "i64")

                return scanned
            case Reduce():
                return self._reduced(value)

    def _let(self, name: str) -> Code:
        value = self.group.lets[name].value
        code, axes = self.at(value), sorted(value.axes)

        def known(world: World, point: Point) -> int:
            key = name, tuple(point.get(index, 0) for index in axes)
            if key not in world.lets:
                world.lets[key] = code(world, point)
            return world.lets[key]

        return known

    def _operated(self, op: str, args: tuple[Value, ...]) -> Code:
        exact, codes = OPERATORS[op].exact, [self.at(arg) for arg in args]
        if exact is None or any(arg.dtype in FLOATS for arg in args):
            return _impossible
        if len(codes) == 1:
            return lambda world, point: int(exact(codes[0](world, point)))
        a, b = codes

        def operated(world: World, point: Point) -> int:
            try:
                return int(exact(a(world, point), b(world, point)))
            except ZeroDivisionError:
                raise ImpossibleError from None

        return operated

    def _reduced(self, value: Reduce) -> Code:
        kind, index, inner = value.kind, value.index, self.at(value.arg)
        extent = self.at(self.group.extents[index])
        none = self.at(value.none) if value.none is not None else _impossible
        least, most = LIMITS[value.dtype]
        combine: dict[str, Callable[[list[int]], int]] = {
            "sum": sum,
            "any": lambda every: int(any(every)),
            "all": lambda every: int(all(every)),
            "min": lambda every: min(every, default=most),
            "max": lambda every: max(every, default=least),
        }

        def reduced(world: World, point: Point) -> int:
            every = world.along(inner, point, index, range(max(extent(world, {}), 0)))
            if kind == "first":
                return every.index(1) if 1 in every else none(world, point)
            return combine[kind](every)

        return reduced


def _impossible(_world: World, _point: Point) -> int:
    """Of floats nothing is computed here."""
    raise ImpossibleError


_last: list[_Codes] = []  # of the group that is looked at


def _codes(group: Group) -> _Codes:
    if not _last or _last[0].group is not group:
        _last[:] = [_Codes(group)]
    return _last[0]
