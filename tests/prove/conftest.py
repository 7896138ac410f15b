"""What a typed value is at one point, computed number by number: the judge of what analysis proves."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from kgen.lang.typed import (
    Cast,
    Const,
    Group,
    Index,
    Load,
    Op,
    Param,
    Reduce,
    Ref,
    Scan,
    Select,
    Value,
)

BITS = {"u8": 8, "i32": 32, "i64": 64, "int": 64}
Point = Mapping[str, int]
Tensors = Mapping[str, Sequence[object]]


def wrap(number: int, dtype: str) -> int:
    """A number as the type holds it."""
    if dtype == "bool":
        return int(number != 0)
    number %= 2 ** BITS[dtype]
    signed = dtype != "u8" and number >= 2 ** (BITS[dtype] - 1)
    return number - 2 ** BITS[dtype] if signed else number


OPERATORS: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "neg": operator.neg,
    "abs": abs,
    "min": min,
    "max": max,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.not_,
}
EMPTY = {"sum": 0, "any": 0, "all": 1}


@dataclass(frozen=True, slots=True)
class Machine:
    """A group's sizes, scalars and tensors; `at` computes a value at a point of the indices."""

    group: Group
    params: Point
    tensors: Tensors

    def extent(self, index: str) -> int:
        """How many values an index takes."""
        return max(self.at(self.group.extents[index], {}), 0)

    def at(self, value: Value, point: Point) -> int:
        """The value, with the numbers that `point` gives to indices."""
        match value:
            case Const(number):
                return int(number)
            case Param(name):
                size = self.group.sizes.get(name)
                derived = size.derived if size is not None else None
                return self.params[name] if derived is None else self.at(derived, {})
            case Index(name):
                return point[name]
            case Ref(name):
                return self.at(self.group.lets[name].value, point)
            case Load(tensor, items):
                element: object = self.tensors[tensor]
                for item in items:
                    assert isinstance(element, Sequence)
                    element = element[self.at(item, point)]
                assert isinstance(element, int)
                return element
            case Cast(arg, dtype):
                return wrap(self.at(arg, point), dtype)
            case Select(cond, then, other):
                return self.at(then if self.at(cond, point) else other, point)
            case Op(op, args, dtype):
                return wrap(int(OPERATORS[op](*(self.at(arg, point) for arg in args))), dtype)
            case Scan(kind, index, arg, dtype):
                past = [self.at(arg, {**point, index: each}) for each in range(point[index] + 1)]
                return wrap(sum(past) if kind == "cumsum" else product(past), dtype)
            case Reduce(kind, index, arg, none, dtype):
                all_ = [self.at(arg, {**point, index: each}) for each in range(self.extent(index))]
                if kind == "first":
                    assert none is not None
                    return all_.index(1) if 1 in all_ else self.at(none, point)
                if kind in EMPTY:
                    total = {"sum": sum, "any": any, "all": all}[kind](all_)
                    return wrap(int(total), dtype)
                most = 255 if dtype == "u8" else 2 ** (BITS[dtype] - 1) - 1
                least = 0 if dtype == "u8" else -most - 1
                return min(all_, default=most) if kind == "min" else max(all_, default=least)


def product(numbers: Iterable[int]) -> int:
    """All numbers multiplied."""
    result = 1
    for number in numbers:
        result *= number
    return result


@pytest.fixture(scope="session")
def machine() -> type[Machine]:
    """What computes a typed value at one point."""
    return Machine
