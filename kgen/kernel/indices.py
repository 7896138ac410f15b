"""The indices of a role: which variable has the values of each, where, and how many there are.

In: a `Plan` and one of its roles. An index is bound once to the program's own value of it or a block of
lanes, or anew in each turn of a loop.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from kgen.kernel import ir
from kgen.kernel.bodies import Bodies, Body
from kgen.kernel.ir import Arg, Bind, Cast, Expr, Lane, Loop, Num, Op, Program, Select, Stmt, Var
from kgen.lang import typed
from kgen.lang.dtypes import DType
from kgen.lang.typed import Group, Value
from kgen.plan.plan import Plan, Role
from kgen.prove.prove import Proved

_LIMIT = 2**31 - 1


@dataclass(slots=True)
class Indices(Bodies):
    """The indices of one role."""

    plan: Plan
    role: Role

    @property
    def group(self) -> Group:
        """The group of the plan."""
        return self.plan.group

    def axis(self, index: str) -> ir.Axis:
        """How an index is laid over the role."""
        axis = self.role.axes[index]
        width = None if axis.kind == "row" else Arg(axis.block, "int")
        return ir.Axis(index, axis.kind, width, axis.tile, self._extent(index, None), axis.least)

    def _lane_type(self, index: str) -> DType:
        """The type that holds an index and what its last block has beyond its end."""
        most = self.plan.proved.ends[index][1]
        tile = self.role.axes[index].tile or 1 << max(most - 1, 0).bit_length()
        return "i32" if most + tile <= _LIMIT else "i64"

    def _index(self, axis: ir.Axis, value: Expr, scope: Body) -> None:
        var = self.fresh(axis.index, value.dtype, value.axes, scope)
        scope.stmts.append(Bind(var, value, index=axis.index))
        scope.indices[axis.index] = var

    def inside(self, index: str, scope: Body) -> Expr:
        """Whether a lane is one of the index's values."""
        home = next(each for each in scope.chain() if index in each.indices)
        key = ("inside", index)
        if key not in home.known:
            lane = home.indices[index]
            extent = self._extent(index, lane.dtype)
            wide = extent.dtype == "i64" and lane.dtype == "i32"
            test = self.op("lt", cast(lane, "i64") if wide else lane, extent)
            home.known[key] = self.bind(f"{index}_in", test, home)
        return home.known[key]

    def _extent(self, index: str, dtype: DType | None) -> Expr:
        """How many values an index takes; as i32 or i64 if it is not a compile-time number."""
        value = host(self.plan.proved, self.group.extents[index], self.plan.proved.down)
        match value:
            case Cast(Arg() as size, _) if size.dtype != "int":
                return cast(size, dtype) if dtype is not None and dtype != "i32" else size
        return value

    def exists(self, index: str, scope: Body) -> list[Expr]:
        """That an index has a value: programs have one, and so has a loop's turn."""
        axis = self.role.axes[index]
        if axis.kind in ("row", "tile") or self.plan.proved.ends[index][0] > 0:
            return []
        for each in scope.chain():
            if each.axis == index:
                return []
            if not each.stays:  # it may leave the loops around it
                break
        return [self.op("gt", self._extent(index, "i32"), Num(0, "int"))]

    def lay(self, axes: tuple[ir.Axis, ...], root: Body) -> Expr:
        """Bind the role's indices; how many programs it has."""
        program = [axis for axis in axes if axis.kind in ("row", "tile")]
        number: Expr = Program()
        if len(program) > 1:
            number = self.bind("program", number, root)
        total: Expr = Num(1, "i32")
        for at, axis in reversed(list(enumerate(program))):
            count = self._count(axis)
            dtype: DType = "int" if count.dtype == total.dtype == "int" else "i32"
            total = count if total == Num(1, "i32") else self.op("mul", count, total, dtype=dtype)
            here = number
            if at > 0 and axis.kind == "tile":
                count = self.bind(f"tiles_{axis.index}", count, root)
            if at > 0:
                here = self.op("mod", number, count, dtype="i32", rounds="zero")
                number = self.op("floordiv", number, count, dtype="i32", rounds="zero")
            if axis.kind == "row":
                self._index(axis, Cast(here, "i64", ()), root)
            else:
                self._block(axis, here, root)
        for axis in axes:
            if axis.kind == "lanes":
                self._block(axis, None, root)
        return total

    def _count(self, axis: ir.Axis) -> Expr:
        """How many programs an axis has: at most 2**31 - 1, which the launch checks."""
        count = self._extent(axis.index, "i32")
        if axis.width is None:
            return count if count.dtype == "int" else cast(count, "i32")
        known = count.dtype == "int"
        dtype: DType = "int" if known else self._lane_type(axis.index)
        up = self.op("add", count if known else cast(count, dtype), axis.width, dtype=dtype)
        up = self.op("sub", up, Num(1, "int"), dtype=dtype)
        tiles = self.op("floordiv", up, axis.width, dtype=dtype, rounds="zero")
        return tiles if known else cast(tiles, "i32")

    def _block(self, axis: ir.Axis, start: Expr | None, scope: Body) -> None:
        """Bind the lanes of an axis: all of them, or those of tile number `start`."""
        assert axis.width is not None
        dtype = self._lane_type(axis.index)
        lanes = cast(Lane(axis.index, (axis.index,)), dtype)
        if start is not None:
            begin = self.op("mul", cast(start, dtype), axis.width, dtype=dtype)
            lanes = self.op("add", begin, lanes, dtype=dtype)
        self._index(axis, lanes, scope)

    def opened(self, index: str, scope: Body, *, stays: bool = False) -> tuple[Body, Var]:
        """The body of a loop over an index, its lanes bound."""
        inner, axis = scope.inner(axis=index, stays=stays), self.axis(index)
        dtype = self._lane_type(index)
        start = self.fresh(f"{index}_start", dtype, (), inner)
        lanes = self.op("add", start, cast(Lane(index, (index,)), dtype), dtype=dtype)
        self._index(axis, lanes, inner)
        return inner, start

    def closed(self, index: str, start: Var, inner: Body, body: list[Stmt]) -> Loop:
        """The loop that `opened` began, with more behind what is in its body."""
        axis = self.axis(index)
        assert axis.width is not None
        extent = self._extent(index, start.dtype)
        return Loop(index, start, extent, axis.width, tuple(inner.carried), (*inner.stmts, *body))


def host(proved: Proved, value: Value, down: Container[Value] | None = None) -> Expr:
    """A value that is made of sizes, scalars and numbers; `down`: what is rounded down, None for all."""

    def inner(value: Value) -> Expr:
        return host(proved, value, down)

    match value:
        case typed.Const(number, dtype):
            return Num(number, dtype)
        case typed.Param(name, dtype):
            return cast(Arg(name, proved.passed(name)), dtype)
        case typed.Given(tensor):
            return Arg(f"HAS_{tensor}", "bool")
        case typed.Cast(arg, dtype):
            return cast(inner(arg), dtype)
        case typed.Select(cond, then, other, dtype):
            return Select(inner(cond), inner(then), inner(other), dtype, ())
        case typed.Op(op, args, dtype):
            quotient = op in ("floordiv", "mod") and dtype != "int"
            cut = quotient and down is not None and value not in down
            return Op(op, tuple(map(inner, args)), dtype, (), "zero" if cut else "down")
    raise AssertionError(value)


def cast(expr: Expr, dtype: DType) -> Expr:
    """An expression as another type."""
    if expr.dtype == dtype:
        return expr
    if isinstance(expr, Num) and dtype != "bool":
        return Num(expr.value, dtype)
    return Cast(expr, dtype, expr.axes)
