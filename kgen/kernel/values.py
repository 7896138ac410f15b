"""The values of a kernel's expressions, in numpy, a block at a time.

A number known at compile time is Python's, of any length; any other is what numpy has of its element type,
a scalar or a block; bf16 is held as its bits. Floats narrower than f32 are computed in f32. A block has a
dimension for each lane axis of its role, one wide where it does not span the axis, so that numpy aligns
blocks. That the kernel is of the form is trusted. Knows nothing of memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from kgen.kernel import ir
from kgen.kernel.faults import CallError, Where, called
from kgen.kernel.form import has, operand_type
from kgen.kernel.ir import Axes, Expr, Stmt
from kgen.lang.dtypes import FLOATS, INTEGERS, LIMITS, LITERALS, DType, cut, rounded
from kgen.lang.operators import OPERATORS
from kgen.runtime._dtypes import ROWS

Array: TypeAlias = np.ndarray[Any, Any]

# Element type -> what numpy holds it as.
HELD: Final[dict[DType, Any]] = {
    row.name: np.uint16 if row.name == "bf16" else np.dtype(row.torch).type for row in ROWS
}
# What a reduction or scan combines with.
_COMBINES: Final[dict[str, Any]] = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "any": np.logical_or,
    "all": np.logical_and,
    "tree": np.add,
    "cumsum": np.add,
    "cumprod": np.multiply,
}


@dataclass(slots=True)
class Env:
    """What a warp holds. `order`: the lane axes; `stmt`: the statement that it is at."""

    order: Axes
    args: Mapping[tuple[str, DType], Any]
    widths: dict[str, int] = field(default_factory=dict)
    program: Any = None
    variables: dict[str, Any] = field(default_factory=dict)
    stmt: Stmt | None = None

    def shape(self, axes: Axes) -> tuple[int, ...]:
        """The shape of a block."""
        return tuple(self.widths[axis] if axis in axes else 1 for axis in self.order)

    def value(self, expr: Expr) -> Any:
        """The value of an expression that is not a load."""
        match expr:
            case ir.Var(name):
                return self.variables[name]
            case ir.Op():
                return self._operator(expr)
            case ir.Num(value, dtype):
                return held(value, dtype)
            case ir.Cast(arg, dtype):
                return cast(self.value(arg), arg.dtype, dtype)
            case ir.Arg(name, dtype):
                return self.args[name, dtype]
            case ir.Program():
                return self.program
            case ir.Lane(axis, axes, dtype):
                lanes = np.arange(self.widths[axis]).astype(HELD[dtype])
                return lanes.reshape(self.shape(axes))
            case ir.Select(cond, then, other, dtype, axes):
                holds, a, b = self.value(cond), self.typed(then, dtype), self.typed(other, dtype)
                return np.where(holds, a, b) if axes else a if holds else b
            case ir.Spread(arg, dtype, axes):
                value = self.typed(arg, dtype)
                return np.broadcast_to(value, self.shape(axes)) if axes else value
            case ir.Chosen(_, at):
                return self.value(at)
            case ir.Reduce() | ir.Scan():
                return self._combined(expr)
            case ir.Load():
                raise TypeError("memory has the values of loads")

    def typed(self, expr: Expr, dtype: DType) -> Any:
        """A value where one of some type is wanted: a compile-time number becomes one."""
        value = self.value(expr)
        if expr.dtype == dtype or dtype in LITERALS:
            return value
        if not has(dtype, value):
            raise self.fail(f"the compile-time number {value} is not one of {dtype}")
        return held(value, dtype)

    def mask(self, conditions: tuple[Expr, ...]) -> Any:
        """Where all conditions hold."""
        parts = [self.value(each) for each in conditions]
        return functools.reduce(lambda a, b: a & b, parts) if parts else np.True_

    def bind(self, values: dict[str, Expr]) -> None:
        """Give variables their values, all at once."""
        self.variables.update({name: self.value(expr) for name, expr in values.items()})

    def called(self) -> str:
        """The statement, in a message."""
        return "" if self.stmt is None else called(self.stmt)

    def fail(self, what: str) -> CallError:
        """What is wrong with the numbers that the launch passes."""
        return CallError(what, Where(self.called()))

    def _operator(self, expr: ir.Op) -> Any:
        own = operand_type(expr.args)
        args = [self.typed(each, own) for each in expr.args]
        function = _function(expr.op, expr.rounds, own)
        try:
            return function(*args) if len(args) < 3 else functools.reduce(function, args)
        except ZeroDivisionError:
            raise self.fail("a division by 0 of compile-time numbers") from None

    def _combined(self, expr: ir.Reduce | ir.Scan) -> Any:
        """A reduction or a scan."""
        kind, dtype, at = expr.kind, expr.dtype, self.order.index(expr.axis)
        ufunc, (low, high) = _COMBINES[kind], LIMITS.get(dtype, (0, 0))
        neutral = held({"min": high, "max": low}.get(kind, ufunc.identity), dtype)
        block = np.where(self.mask(expr.mask), self.typed(expr.arg, dtype), neutral)
        if isinstance(expr, ir.Scan):
            return ufunc.accumulate(block, axis=at, dtype=HELD[dtype])
        if kind == "tree":
            while block.shape[at] > 1:
                first, second = np.split(block, 2, axis=at)
                block = first + second
        else:
            block = ufunc.reduce(block, axis=at, dtype=HELD[dtype], keepdims=True)
        return block if expr.axes else block.reshape(-1)[0]


@functools.cache
def _function(op: str, rounds: str, dtype: DType) -> Callable[..., Any]:
    """An operator on operands of one type."""
    operator = OPERATORS[op]
    exact = operator.exact
    plain = operator.numpy or exact
    assert plain is not None, "a row has one of the two"
    if operator.takes == "integers":
        return functools.partial(_divided, op, rounds)
    if dtype in LITERALS and exact is not None:
        return (lambda *args: np.bool_(exact(*args))) if operator.compares else exact
    if dtype not in FLOATS or dtype == "f32":
        return plain
    if operator.compares:
        return lambda *args: plain(*(widened(each, dtype) for each in args))
    return lambda *args: narrowed(plain(*(widened(each, dtype) for each in args)), dtype)


def _divided(op: str, rounds: str, a: Any, b: Any) -> Any:
    """A quotient or a remainder.

    By 0, which only lanes that are not active may divide, it is what no one should count on.
    """
    quotient = a // b - (b == 0)
    if rounds == "zero":
        quotient = quotient + ((a % b != 0) & ((a < 0) != (b < 0)))
    return quotient if op == "floordiv" else a - quotient * b


# Numbers.


def row(value: Any, shape: tuple[int, ...]) -> Array:
    """A value of a block of some shape, its lanes in a row."""
    whole = value if np.shape(value) == shape else np.full(shape, value)
    return whole.reshape(-1)


def widened(value: Any, dtype: DType) -> Any:
    """A float as f32."""
    if dtype == "bf16":
        return (value.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return value.astype(np.float32)


def narrowed(value: Any, dtype: DType) -> Any:
    """An f32 as another float type, to nearest, ties to even."""
    if dtype != "bf16":
        return value.astype(HELD[dtype])
    bits = value.view(np.uint32)
    high = bits >> np.uint32(16)
    near = (bits + np.uint32(0x7FFF) + (high & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(value), high | np.uint32(0x40), near).astype(np.uint16)


def held(value: float, dtype: DType) -> Any:
    """A Python number as it is held."""
    if dtype in LITERALS:
        return int(value) if dtype == "int" else float(value)
    if dtype not in FLOATS:
        return HELD[dtype](value)
    if isinstance(value, int) and abs(value) < 2**63:  # rounded to f32 once, as torch does
        return narrowed(np.int64(value).astype(np.float32), dtype)[()]
    return narrowed(np.float32(rounded(float(value), dtype)), dtype)[()]


def python(value: Any, dtype: DType) -> Any:
    """A scalar as a Python number."""
    if dtype in LITERALS:
        return held(value, dtype)
    return (widened(value, dtype) if dtype in FLOATS else value).item()


def cast(value: Any, source: DType, target: DType) -> Any:
    """A number of one type as one of another, as torch converts it."""
    if source == target:
        return value
    if source in LITERALS:
        if target == "bool":
            return np.bool_(value != 0)
        return held(cut(value, target) if target in INTEGERS else value, target)
    if source in FLOATS:
        value = widened(value, source)
    if target == "bool":
        return value != 0
    if target in INTEGERS:
        return value.astype(HELD[target])
    return narrowed(value.astype(np.float32), target)
