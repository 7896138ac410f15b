"""The values of a role, read back in the spec's terms, so that both can be compared.

In: a role, and the group for its declarations. Out: typed values over the role's variables, each a let of
`Raised.reading`. A value is raised where something is known: what a load gives where its mask holds is the
element, elsewhere 0. Knows nothing of how the kernel was made; what it can't read is an unknown number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from kgen.kernel import ir
from kgen.kernel.ir import Expr, Var
from kgen.kernel.lanes import ANYWHERE, Lanes, Merge, Position, Turn, Where, padded, scalar_of
from kgen.lang import typed
from kgen.lang.dtypes import LIMITS, DType
from kgen.lang.typed import NOWHERE, Let, Value
from kgen.prove.atoms import (
    Condition,
    Flag,
    Poly,
    both,
)

_VARIANTS = 16  # of one variable; beyond them nothing is known where it is read


@dataclass(slots=True)
class Raised(Lanes):
    """The values of one role."""

    variants: dict[tuple[object, ...], typed.Ref] = field(default_factory=dict)

    # Values.

    def poly(self, expr: Expr, where: Where = ANYWHERE) -> Poly:
        """A whole number as a polynomial, where something is known."""
        return self.reading.poly(self.value(expr, where))

    def condition(self, expr: Expr, where: Where = ANYWHERE) -> Condition:
        """A condition, where something is known."""
        return self.reading.condition(self.value(expr, where))

    def value(self, expr: Expr, where: Where) -> Value:
        """A value in the spec's terms."""
        index = where.at(self.position(expr))
        if index:
            return self._index(index, where)
        match expr:
            case ir.Num(number, dtype):
                return typed.Const(number, dtype)
            case ir.Arg(name, dtype):
                return self._argument(name, dtype)
            case ir.Program():
                return typed.Param("program", "i32")
            case Var(name) if name in self.made:
                return self._variable(expr, where)
            case ir.Spread(arg):
                return self.value(arg, where)
            case ir.Cast(arg, dtype):
                inner = self.value(arg, where)
                return typed.Cast(inner, dtype, inner.axes)
            case ir.Op():
                return self._operation(expr, where)
            case ir.Select(cond, then, other, dtype):
                first = self._first(expr, where)
                if first is not None:
                    return first
                test = self.value(cond, where)
                yes = self.value(then, where.also(self.literals((cond,))))
                no = self.value(other, where.also(self.literals((cond,), positive=False)))
                return typed.Select(test, yes, no, dtype, test.axes | yes.axes | no.axes)
            case ir.Load():
                return self._element(expr, where)
            case ir.Reduce(kind, index, Var(name), ()) if isinstance(self.made.get(name), Turn):
                return self._looped(expr, kind, index, name, where)
            case ir.Reduce(kind, index, arg, mask) if self._axis(index).kind == "lanes":
                return self._folded(expr, arg, mask, where.outside(index))
            case ir.Scan(kind, index, arg, mask) if self._axis(index).kind == "lanes":
                return self._scanned(expr, arg, mask, where)
        return self._unknown(expr)

    def place(self, load: ir.Load | ir.Store, where: Where) -> typed.Load:
        """The place of a load or a store, where its mask holds."""
        return self._place(load, where.also(self.literals(load.mask)))

    def _place(self, load: ir.Load | ir.Store, where: Where) -> typed.Load:
        items = [self.value(item, where) for item in load.items]
        if load.chosen is not None:
            chosen = self.made[load.chosen.name] if isinstance(load.chosen, Var) else load.chosen
            assert isinstance(chosen, ir.Chosen)
            items.insert(0, self.value(chosen.at, where))
        axes = typed.axes_of(*items)
        dtype = self.group.tensors[load.tensor].dtype
        return typed.Load(load.tensor, tuple(items), dtype, axes)

    def _element(self, load: ir.Load, where: Where) -> Value:
        place = self.place(load, where)
        left = [c for c in load.mask if not self._met(c, where)]
        if not left:
            return place
        test: Value = self.value(left[0], where)
        for cond in left[1:]:
            more = self.value(cond, where)
            test = typed.truth("and", test, more)
        zero = typed.Const(0, load.dtype)
        return typed.Select(test, place, zero, load.dtype, test.axes | place.axes)

    def _met(self, cond: Expr, where: Where) -> bool:
        """Whether a condition is known to hold, or asks for an index to have a value where it has one."""
        if self.implied(cond, where.known):
            return True
        match self._leaf(cond):
            case ir.Op("and" | "or" as op, args):
                every = all if op == "and" else any
                return every(self._met(each, where) for each in args)
        return any(self._asks_extent(cond, index) for index in self.inside(where))

    def _asks_extent(self, cond: Expr, index: str) -> bool:
        """Whether a condition asks for an index to have a value."""
        match self._leaf(cond):
            case ir.Op("gt", (extent, ir.Num(0))):
                return self.poly(extent) == self.reading.extent(index)
        return False

    def _index(self, index: str, where: Where) -> Value:
        name = dict(where.lanes).get(index, index)
        rows = self._axis(index).kind == "row"
        if name == index and not rows and index not in self.inside(where):
            name = padded(index)
        return typed.index_of(name)

    def _argument(self, name: str, dtype: DType) -> Value:
        if name in self.group.sizes or name in self.group.scalars:
            number = typed.Param(name, dtype)
            fits = dtype not in LIMITS or self.reading.fits(number, dtype)
            return number if fits else self._unknown(ir.Arg(name, dtype))
        if name.startswith("HAS_"):
            return typed.Given(name.removeprefix("HAS_"))
        for axis in self.role.axes:
            if axis.width is not None and axis.width.name == name and axis.tile is not None:
                return typed.Const(axis.tile, "int")
        return self._unknown(ir.Arg(name, dtype))

    def _operation(self, expr: ir.Op, where: Where) -> Value:
        scanned = self._running(expr, where)
        if scanned is not None:
            return scanned
        args = tuple(self.value(arg, where) for arg in expr.args)
        axes = typed.axes_of(*args)
        if expr.op in ("floordiv", "mod"):
            (low, _), (least, most) = map(self.reading.ends, args)
            # Without a negative number both roundings are the same.
            if (expr.rounds == "zero" and min(low, least) < 0) or least <= 0 <= most:
                return self._unknown(expr)
        return typed.Op(expr.op, args, expr.dtype, axes)

    def _variable(self, var: Var, where: Where) -> Value:
        """A variable as a let: another one where it may be another value."""
        found, asked = self.made[var.name], self.asks(var.name)
        mine = frozenset(e for e in where.known if e[0] in asked or self.bounded_by(e[0]))
        lanes = frozenset(each for each in where.lanes if each[0] in var.axes)
        several = sum(1 for key in self.variants if key[0] == var.name)
        turns = frozenset(
            each
            for each in where.turns
            if each.index in var.axes or any(self._asks_extent(e, each.index) for e in asked)
        )
        key = (var.name, Where(mine, turns, lanes))
        if key not in self.variants and several >= _VARIANTS:
            key = (var.name, Where(frozenset(), turns, lanes))
        if key not in self.variants:
            match found:
                case Merge(cond, then, other):
                    choice = ir.Select(cond, then, other, var.dtype, var.axes)
                    value = self.value(choice, key[1])
                case Turn():
                    value = self._unknown(var)
                case _:
                    value = self.value(found, key[1])
            name = f"{var.name}{'@' + str(several) if several else ''}"
            while name in self.group.lets:
                name += "'"
            self.group.lets[name] = Let(name, value, "", NOWHERE)
            self.variants[key] = typed.Ref(name, var.dtype, value.axes)
        return self.variants[key]

    def _unknown(self, expr: Expr) -> Value:
        """A value of which nothing is known but its type: one of its own each time."""
        name = f"unknown {len(self.group.scalars)}"
        self.group.scalars[name] = scalar_of(name, expr.dtype)
        return typed.Param(name, expr.dtype, frozenset(expr.axes))

    # Reductions and scans.

    def _folded(self, expr: ir.Reduce, arg: Expr, mask: Iterable[Expr], inner: Where) -> Value:
        """What the values of an index combine to, each of them in one lane; those where `mask` holds."""
        index, conditions = expr.axis, self.literals(mask)
        whole = frozenset(
            each for each in conditions if inner.at(self.bounded_by(each[0])) == index
        )
        if not whole or expr.kind == "product":
            return self._unknown(expr)
        inner = inner.also(conditions)
        more = [
            self.value(cond, inner) if positive else typed.truth("not", self.value(cond, inner))
            for cond, positive in sorted(conditions - whole, key=str)
        ]
        value = self.value(arg, inner)
        axes = typed.axes_of(value, *more) - {index}
        test: Value = typed.Const(1, "bool")
        for each in more:
            test = typed.truth("and", test, each)
        if more and expr.kind == "min" and inner.at(self.position(arg)) == index:
            missing = typed.Const(LIMITS["i64"][1], "i64")
            return typed.Reduce("first", index, test, missing, "i64", axes)
        if more:
            neutral = typed.Const(_NEUTRAL[expr.kind](expr.dtype), expr.dtype)
            value = typed.Select(test, value, neutral, expr.dtype, axes | {index})
        kind = "sum" if expr.kind == "tree" else expr.kind
        return typed.Reduce(kind, index, value, None, expr.dtype, axes)

    def _looped(self, expr: ir.Reduce, kind: str, index: str, name: str, where: Where) -> Value:
        """What the lanes of a loop, each combined over its turns, combine to."""
        turn = self.made[name]
        assert isinstance(turn, Turn)
        if turn.position.index != index or expr in self.partial:
            return self._unknown(expr)
        found = self._each_turn(name, kind)
        if found is None:
            return self._unknown(expr)
        inner = where.turning(turn.position)
        return self._folded(expr, found.then, (found.cond,), inner)

    def _each_turn(self, name: str, kind: str) -> ir.Select | None:
        """What a loop combines in each turn, neutral where its lanes are beyond the end."""
        ops = {"sum": "add", "min": "min", "max": "max", "any": "or", "all": "and"}
        match self.made.get(name):
            case Turn(_, start, ir.Op(op, (Var(before), ir.Select() as each), dtype)):
                begin = start.arg if isinstance(start, ir.Spread) else start
                wanted = ir.Num(_NEUTRAL[kind](dtype), dtype)
                if op == ops.get(kind) and before == name and begin == each.other == wanted:
                    return each
        return None

    def _scanned(self, expr: ir.Scan, arg: Expr, mask: Iterable[Expr], where: Where) -> Value:
        conditions = self.literals(mask)
        whole = all(where.at(self.bounded_by(cond)) == expr.axis for cond, _ in conditions)
        if not whole or not conditions or expr.axis in dict(where.lanes):
            return self._unknown(expr)
        known = frozenset(each for each in where.known if expr.axis not in each[0].axes)
        value = self.value(arg, replace(where, known=known | conditions))
        index = frozenset((expr.axis,))
        return typed.Scan(expr.kind, expr.axis, value, expr.dtype, value.axes | index)

    def _running(self, expr: ir.Op, where: Where) -> Value | None:
        """A scan that a loop goes on with: the total of the turns before, and the scan of this one."""
        match expr:
            case ir.Op("add" | "mul" as op, (Var(total), Var(scan))):
                turn, part = self.made.get(total), self.made.get(scan)
                kind, fold = ("cumsum", "sum") if op == "add" else ("cumprod", "product")
                if not isinstance(turn, Turn) or not isinstance(part, ir.Scan):
                    return None
                match turn:
                    case Turn(
                        Position(index) as at, start, ir.Op(then, (Var(before), Var(turned)))
                    ):
                        whole = self.made.get(turned)
                        if at not in where.turns:
                            return None
                        neutral = 0 if op == "add" else 1
                        begin = start.arg if isinstance(start, ir.Spread) else start
                        same = (then, before, part.kind, part.axis) == (op, total, kind, index)
                        same &= begin == ir.Num(neutral, "i64")
                        match whole:
                            case ir.Reduce(f, axis, ir.Select(cond, each, none), ()):
                                same &= (f, axis, each) == (fold, index, part.arg)
                                same &= none == ir.Num(neutral, "i64") and (cond,) == part.mask
                                if same:
                                    return self._scanned(part, part.arg, part.mask, where)
        return None

    def _first(self, expr: ir.Select, where: Where) -> Value | None:
        """The least place where a condition holds, or another number where there is none."""
        match expr:
            case ir.Select(ir.Op("eq", (place, ir.Num(value))), then, other) if other == place:
                if value != LIMITS["i64"][1]:
                    return None
                found = self.reading.resolved(self.value(place, where))
                if not isinstance(found, typed.Reduce):
                    return None
                own = typed.index_of(found.index)
                if found.kind == "min" and self.reading.poly(found.arg) == self.reading.poly(own):
                    found = replace(found, kind="first", arg=typed.Const(1, "bool"))
                if found.kind == "first":
                    none = self.value(then, where.also(self.literals((expr.cond,))))
                    return replace(found, none=none, axes=found.axes | none.axes)
        return None

    # What is known.

    def facts(self, where: Where) -> list[Condition]:
        """What follows where something is known: conditions, and what is declared of what they read."""
        reading, found = self.reading, list[Condition]()
        for cond, positive in sorted(where.known, key=str):
            value = self.value(cond, where)
            found.append(reading.condition(value if positive else typed.truth("not", value)))
            found += reading.declared((value,))
            if positive:
                self._witness(cond, where)
        found += [reading.last(index) for index in sorted(self.inside(where))]
        return found

    def _witness(self, cond: Expr, where: Where) -> None:
        """Say of an `any` what it says of some lane, for which there is an index of its own."""
        reduced = self.made.get(cond.name) if isinstance(cond, Var) else None
        flag = self.condition(cond, where)
        if (
            not isinstance(cond, Var)
            or not isinstance(reduced, ir.Reduce)
            or not isinstance(flag, Flag)
        ):
            return
        index, name = reduced.axis, f"{cond.name} witness"
        self.group.extents[name] = self.group.extents[index]
        conditions = (reduced.arg, *reduced.mask)
        lane = replace(where.outside(index), turns=where.turns)
        match reduced.arg:
            case Var(lanes) if (each := self._each_turn(lanes, "any")) is not None:
                turn = self.made[lanes]
                assert isinstance(turn, Turn)
                conditions, lane = (each.then, each.cond), where.turning(turn.position)
        lane = lane.also(self.literals(conditions))
        lane = replace(lane, lanes=lane.lanes | {(index, name)})
        for inner, positive in self.literals(conditions):
            if positive:
                self._witness(inner, lane)
        parts = [self.condition(inner, lane) for inner in conditions]
        self.reading.numbers.defined[flag] = both(*parts, self.reading.last(name))


def _zero(_: DType) -> int:
    return 0


_NEUTRAL: dict[str, Callable[[DType], int]] = {
    "sum": _zero,
    "tree": _zero,
    "any": _zero,
    "all": lambda _: 1,
    "min": lambda dtype: LIMITS[dtype][1],
    "max": lambda dtype: LIMITS[dtype][0],
}
