"""Reductions and scans as Triton text: over lanes at once, over a loop's blocks in turn.

Integers combine in any order; the sum of floats is the tree, over lanes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kgen.emit.lanes import LaneCode
from kgen.emit.parameters import (
    TL_TYPES,
)
from kgen.emit.values import Body, ValuePrinter
from kgen.lang.code import Code, call, infix, method, number
from kgen.lang.dtypes import LIMITS, DType
from kgen.lang.typed import (
    Reduce,
    Scan,
)

_LONG = 60  # characters beyond which what is reduced gets a name


@dataclass(slots=True)
class ReductionPrinter(ValuePrinter):
    """Prints what runs over an index."""

    def _reduce(self, value: Reduce, body: Body, guard: LaneCode | None, hint: str) -> LaneCode:
        index, kind = value.index, value.kind
        axis = self.role.axes[index]
        neutral = _neutral(kind, value.arg.dtype)
        if axis.kind == "loop":
            name = self.names.fresh(hint)
            inner = Body(body, (*body.loops, index))
            head = self._loop_head(index, inner)
            each, lanes = self._masked(value, inner, guard, neutral)
            shape = self.lanes.shape(lanes)
            dtype = "tl.int32" if kind in ("any", "all") else TL_TYPES[value.dtype]
            body.lines.append(f"{name} = {call('tl.full', shape, neutral, dtype)}")
            inner.lines.append(f"{name} = {_combine(kind, Code(name), each)}")
            body.lines += [head, *(f"    {line}" for line in inner.lines)]
            if index in body.loops:  # the enclosing loop's own values again
                self._lane_axis(axis, Code(self._start(index)), body)
            each = Code(name)
        else:
            each, lanes = self._masked(value, body, guard, neutral)
        at = lanes.index(index)
        left = tuple(lane for lane in lanes if lane != index)
        if kind == "sum" and value.dtype == "f32":
            return LaneCode(self._tree_sum(each, lanes, index), left)
        reduced = call(f"tl.{_reducer(kind)}", each, f"axis={at}")
        if kind in ("any", "all"):
            name = self.names.fresh(f"{hint}_bit")
            body.lines.append(f"{name} = {reduced}")
            return LaneCode(infix("!=", Code(name), number(0)), left)
        return LaneCode(reduced, left)

    def _found(self, value: Reduce, hint: str, body: Body, guard: LaneCode | None) -> LaneCode:
        """`first`: the search, whose index is bound, apart from its fallback, whose indices are free."""
        assert value.none is not None
        axes = value.arg.axes - {value.index}
        search = self._named(replace(value, none=None, axes=axes), f"{hint}_at", body, guard)
        none = self._typed(value.none, body, guard)
        lanes = self.lanes.union(search, none)
        missing = infix("==", search.at(lanes), _neutral("first", "i64"))
        return LaneCode(call("tl.where", missing, none.at(lanes), search.at(lanes)), lanes)

    def _tree_sum(self, each: Code, lanes: tuple[str, ...], index: str) -> Code:
        """The float sum of one order: the axis last, the others as rows."""
        block, left = self.lanes.blocks[index], [lane for lane in lanes if lane != index]
        if not left:
            self.helpers.add("tree_sum")
            return call("tree_sum", each, block)
        self.helpers.add("tree_sum_rows")
        if lanes[-1] != index:
            order = [lanes.index(lane) for lane in (*left, index)]
            each = call("tl.permute", each, f"({', '.join(map(str, order))})")
        rows = " * ".join(self.lanes.blocks[lane] for lane in left)
        if len(left) == 1:
            return call("tree_sum_rows", each, rows, block)
        flat = call("tl.reshape", each, f"({rows}, {block})")
        summed = call("tree_sum_rows", flat, rows, block)
        return call("tl.reshape", summed, self.lanes.shape(tuple(left)))

    def _masked(
        self, value: Reduce, body: Body, guard: LaneCode | None, neutral: Code
    ) -> tuple[Code, tuple[str, ...]]:
        """What a reduction combines, neutral where the index is past its end; and its lanes."""
        arg = self._typed(value.arg, body, guard)
        if len(arg.code.text) > _LONG:
            name = self.names.fresh(f"each_{value.index}")
            body.lines.append(f"{name} = {arg.code}")
            arg = LaneCode(Code(name), arg.lanes)
        inside = self._axis_mask(value.index)
        lanes = self.lanes.union(arg, inside)
        taken, code = inside.at(lanes), arg.at(lanes)
        if value.kind == "first":
            wide = LaneCode(method(Code(self.local(value.index)), "to", "tl.int64"), (value.index,))
            taken, code = infix("&", taken, code), wide.at(lanes)
        elif value.kind in ("any", "all"):
            code = method(code, "to", "tl.int32")
        return call("tl.where", taken, code, neutral), lanes

    def _scan(self, value: Scan, body: Body, guard: LaneCode | None, hint: str) -> LaneCode:
        arg = self._typed(value.arg, body, guard)
        inside = self._axis_mask(value.index)
        lanes = self.lanes.union(arg, inside)
        neutral = number(0 if value.kind == "cumsum" else 1)
        at = lanes.index(value.index)
        code = call("tl.where", inside.at(lanes), arg.at(lanes), neutral)
        scanned = call(f"tl.{value.kind}", code, f"axis={at}")
        if self.role.axes[value.index].kind != "loop":
            return LaneCode(scanned, lanes)
        # The running total enters each turn of the loop and leaves it with the turn's own added.
        assert body.parent is not None
        assert body.loops[-1] == value.index, "a scan runs along the innermost loop"
        left = tuple(lane for lane in lanes if lane != value.index)
        total = self.names.fresh(f"{hint}_total")
        full = call("tl.full", self.lanes.shape(left), neutral, "tl.int64")
        body.parent.lines.append(f"{total} = {full}")
        op = "+" if value.kind == "cumsum" else "*"
        part = self.names.fresh(f"{hint}_part")
        body.lines.append(f"{part} = {infix(op, LaneCode(Code(total), left).at(lanes), scanned)}")
        if value.kind == "cumsum":
            turn = call("tl.sum", code, f"axis={at}")
        else:
            turn = call("tl.reduce", code, str(at), "multiply")
            self.helpers.add("multiply")
        body.lines.append(f"{total} = {infix(op, Code(total), turn)}")
        return LaneCode(Code(part), lanes)


def _neutral(kind: str, dtype: DType) -> Code:
    if dtype == "f32":
        return number(0.0)
    low, high = LIMITS[dtype]
    values = {"sum": 0, "any": 0, "all": 1, "min": high, "max": low, "first": LIMITS["i64"][1]}
    return number(values[kind])


def _combine(kind: str, total: Code, each: Code) -> Code:
    match kind:
        case "sum":
            return infix("+", total, each)
        case "min" | "all" | "first":
            return call("tl.minimum", total, each)
    return call("tl.maximum", total, each)


def _reducer(kind: str) -> str:
    return {"sum": "sum", "any": "max", "max": "max"}.get(kind, "min")
