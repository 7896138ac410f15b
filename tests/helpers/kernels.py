"""Kernels by hand: short names for the nodes of the form, and runs of small ones.

Axes are in the order of the alphabet; the block of an axis `k` is `LANES_k` wide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kgen.kernel import ir
from kgen.kernel.memory import Tensors
from kgen.kernel.run import Outcome, Runner
from kgen.kernel.values import HELD
from kgen.lang.dtypes import LITERALS
from kgen.lang.operators import OPERATORS

R = ir.Arg("R", "i32")
K = ir.Arg("K", "int")
NUMPY = HELD


def run(kernel: ir.Kernel, args: Mapping[str, float], tensors: Tensors, **options: Any) -> Outcome:
    """Run a kernel once; `Runner.run` says how."""
    return Runner(kernel).run(args, tensors, **options)


def num(value: float, dtype: str = "int") -> ir.Num:
    return ir.Num(value, dtype)


ROW = ir.Program()
LANE = ir.Lane("k", ("k",))


def spanned(*exprs: ir.Expr) -> ir.Axes:
    return tuple(sorted({axis for expr in exprs for axis in expr.axes}))


def op(name: str, *args: ir.Expr, rounds: str = "down") -> ir.Op:
    """An operator on operands whose type it gives."""
    own = [arg.dtype for arg in args if arg.dtype not in LITERALS] or ["int"]
    dtype = "bool" if OPERATORS[name].compares else own[0]
    return ir.Op(name, args, dtype, spanned(*args), rounds)


INSIDE = op("lt", LANE, K)


def cast(expr: ir.Expr, dtype: str) -> ir.Cast:
    return ir.Cast(expr, dtype, expr.axes)


def select(cond: ir.Expr, then: ir.Expr, other: ir.Expr) -> ir.Select:
    return ir.Select(cond, then, other, then.dtype, spanned(cond, then, other))


def spread(expr: ir.Expr, *axes: str) -> ir.Spread:
    return ir.Spread(expr, expr.dtype, axes)


def lane(axis: str = "k") -> ir.Lane:
    return ir.Lane(axis, (axis,))


def load(
    tensor: str, *items: ir.Expr, mask: Sequence[ir.Expr] = (), dtype: str = "i64", chosen=None
) -> ir.Load:
    axes = spanned(*items, *mask, *([chosen] if chosen is not None else []))
    return ir.Load(tensor, chosen, items, tuple(mask), dtype, axes)


def reduce(
    kind: str, axis: str, arg: ir.Expr, mask: Sequence[ir.Expr] = (), dtype: str | None = None
) -> ir.Reduce:
    left = tuple(each for each in spanned(arg, *mask) if each != axis)
    return ir.Reduce(kind, axis, arg, tuple(mask), dtype or arg.dtype, left)


def scan(kind: str, axis: str, arg: ir.Expr, mask: Sequence[ir.Expr] = ()) -> ir.Scan:
    return ir.Scan(kind, axis, arg, tuple(mask), arg.dtype, spanned(arg, *mask))


def bind(name: str, value: ir.Expr, note: str = "") -> ir.Bind:
    return ir.Bind(ir.Var(name, value.dtype, value.axes), value, note)


def store(
    tensor: str,
    items: Sequence[ir.Expr],
    value: ir.Expr,
    mask: Sequence[ir.Expr] = (),
    *,
    axes: ir.Axes | None = None,
    chosen: ir.Expr | None = None,
    note: str = "",
) -> ir.Store:
    if axes is None:
        axes = spanned(*items, value, *mask, *([chosen] if chosen is not None else []))
    return ir.Store(tensor, chosen, tuple(items), value, tuple(mask), axes, note)


def var(name: str, dtype: str = "i64", *axes: str) -> ir.Var:
    return ir.Var(name, dtype, axes)


def arange(*shape: int, dtype: type = np.int64) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


def counted(turns: Sequence[ir.Stmt], carried: tuple[ir.Carried, ...] = ()) -> ir.Loop:
    """A loop to R, a block of `k` at a time, from `at` on."""
    return ir.Loop("k", var("at", "i32"), R, ir.Arg("LANES_k", "int"), carried, tuple(turns))


def axis(index: str, kind: str = "lanes") -> ir.Axis:
    width = None if kind == "row" else ir.Arg(f"LANES_{index}", "int")
    return ir.Axis(index=index, kind=kind, width=width, tile=None, extent=num(1))


def role(*body: ir.Stmt, programs: ir.Expr | int = 1, lanes: str = "k") -> ir.Role:
    """A role whose blocks have an axis for each letter of `lanes`."""
    count = num(programs) if isinstance(programs, int) else programs
    return ir.Role(tuple(map(axis, sorted(lanes))), count, body)


def kernel(*roles: ir.Role) -> ir.Kernel:
    return ir.Kernel("probe_kernel", "A probe.", roles)


def one(*body: ir.Stmt, programs: ir.Expr | int = 1, lanes: str = "k") -> ir.Kernel:
    """A kernel of one role."""
    return kernel(role(*body, programs=programs, lanes=lanes))


def left(
    out: np.ndarray,
    *body: ir.Stmt,
    args: dict[str, float],
    programs: ir.Expr | int = 1,
    lanes: str = "k",
    **tensors: np.ndarray,
) -> list:
    """What a kernel of one role leaves in `out`."""
    run(one(*body, programs=programs, lanes=lanes), args, {"out": out, **tensors})
    return out.tolist()


def mapped(
    make: Callable[..., ir.Expr], dtypes: Sequence[str], *arrays: np.ndarray, **args: float
) -> np.ndarray:
    """What an expression makes of arrays, element by element; `make` gets the loaded variables."""
    width = len(arrays[0])
    binds = [bind(f"v{at}", load(f"x{at}", lane(), dtype=dtype)) for at, dtype in enumerate(dtypes)]
    value = make(*(each.var for each in binds))
    out = np.zeros(width, NUMPY[value.dtype])
    given = {f"x{at}": array for at, array in enumerate(arrays)}
    whole = one(*binds, store("out", [lane()], value))
    run(whole, {"LANES_k": width, **args}, {**given, "out": out})
    return out


def scalars(expr: ir.Expr, *before: ir.Stmt, widths: int = 8, **args: float) -> np.generic:
    """The value of a scalar expression."""
    out = np.zeros(1, NUMPY[expr.dtype])
    outcome = run(
        one(*before, store("out", [num(0)], expr)), {"LANES_k": widths, **args}, {"out": out}
    )
    assert isinstance(outcome, Outcome)
    return out[0]
