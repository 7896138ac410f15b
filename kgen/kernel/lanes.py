"""A role of a kernel read back: which index each lane is the value of, and what is known where.

In: a role, and the group for its declarations. Knows nothing of how the kernel was made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kgen.kernel import ir
from kgen.kernel.ir import Expr, Loop, Role, Var
from kgen.lang import typed
from kgen.lang.dtypes import LIMITS, DType
from kgen.lang.typed import NOWHERE, Axes, Group, Scalar
from kgen.prove.atoms import (
    ONE,
    Poly,
    add,
    const,
)
from kgen.prove.intervals import SIZE_LIMIT
from kgen.prove.reading import Reading

Literal: TypeAlias = tuple[
    Expr, bool
]  # a condition that is not made of others, and whether it holds
Known: TypeAlias = frozenset[Literal]

_PADDED = SIZE_LIMIT + 2**16  # above every lane of a block


@dataclass(frozen=True, slots=True)
class Position:
    """The index whose value something is, in the turns of a loop if it goes over one (its variable)."""

    index: str
    turn: str = ""


@dataclass(frozen=True, slots=True)
class Where:
    """Where a value is read: what is known there, and in the turns of which loops.

    `lanes`: indices, by the names of other lanes of theirs.
    """

    known: Known = frozenset()
    turns: frozenset[Position] = frozenset()
    lanes: frozenset[tuple[str, str]] = frozenset()

    def also(self, known: Known) -> Where:
        """Where more is known."""
        return replace(self, known=self.known | known)

    def outside(self, index: str) -> Where:
        """What of it is so for all values of an index."""
        return Where(
            frozenset(each for each in self.known if index not in each[0].axes),
            frozenset(each for each in self.turns if each.index != index),
            frozenset(each for each in self.lanes if each[0] != index),
        )

    def turning(self, position: Position) -> Where:
        """In a turn of a loop."""
        outer = self.outside(position.index)
        return replace(outer, turns=outer.turns | {position})

    def at(self, position: Position | None) -> str:
        """The index that something is the value of here; nothing if it is of none."""
        if position is None or (position.turn and position not in self.turns):
            return ""
        return position.index


ANYWHERE = Where()


@dataclass(frozen=True, slots=True)
class Merge:
    """A variable that is bound after a branch."""

    cond: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True, slots=True)
class Turn:
    """A variable that a loop carries; `position`: of the loop's lanes."""

    position: Position
    start: Expr
    then: Expr


@dataclass(slots=True)
class Lanes:
    """The lanes of one role. `partial`: what combines a loop's lanes before its last turn has ended."""

    role: Role
    group: Group
    made: dict[str, Expr | Merge | Turn] = field(default_factory=dict)
    starts: dict[str, Loop] = field(default_factory=dict)
    partial: set[Expr] = field(default_factory=set)
    reading: Reading = field(init=False)
    positions: dict[Expr, Position | None] = field(default_factory=dict)
    needed: dict[str, frozenset[Expr]] = field(default_factory=dict)
    bounded: dict[Expr, Position | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for stmt in ir.every(self.role.body):
            match stmt:
                case ir.Bind(var, value):
                    self.made[var.name] = value
                case Loop():
                    self.starts[stmt.start.name] = stmt
                    position = Position(stmt.axis, stmt.start.name)
                    for each in stmt.carried:
                        self.made[each.var.name] = Turn(position, each.start, each.then)
                    own = {each.var for each in stmt.carried}
                    inside = (v for s in ir.every(stmt.body) for v in ir.used(s))
                    self.partial |= {v for v in inside if isinstance(v, ir.Reduce) and v.arg in own}
                case ir.Branch(cond, _, _, merged):
                    for one in merged:
                        self.made[one.var.name] = Merge(cond, one.then, one.other)
        # The group's own dictionaries are not touched: what is raised gets lets and names of its own.
        group = self.group
        lets, extents, scalars = dict(group.lets), dict(group.extents), dict(group.scalars)
        for axis in (each for each in self.role.axes if each.width is not None and each.least):
            assert axis.width is not None
            name = axis.width.name
            scalars[name] = scalar_of(name, "int", axis.least or 1, axis.tile or 1)
        self.group = replace(group, lets=lets, extents=extents, scalars=scalars)
        for axis in self.role.axes:
            extents[padded(axis.index)] = typed.Const(_PADDED, "int")
        scalars["program"] = scalar_of("program", "i32", 0, SIZE_LIMIT)
        self.reading = Reading(self.group)

    @abstractmethod
    def poly(self, expr: Expr, where: Where = ANYWHERE) -> Poly:
        """A whole number as a polynomial, where something is known."""

    # Which index a lane is.

    def position(self, expr: Expr) -> Position | None:
        """What an expression is the value of, in each lane that is one of its values; None if of none."""
        if expr not in self.positions:
            self.positions[expr] = self._position(expr)
        return self.positions[expr]

    def _position(self, expr: Expr) -> Position | None:
        match expr:
            case Var(name):
                made = self._computed(name)
                return self.position(made) if made is not None else None
            case ir.Cast(arg, dtype):
                found = self.position(arg)
                return found if found is not None and self._has(dtype, found.index) else None
            case ir.Lane(index, _, dtype):
                own = self._axis(index).kind == "lanes" and self._has(dtype, index)
                return Position(index) if own else None
            case ir.Op("add", (first, lane), dtype):
                inner = self._plain(lane)
                if isinstance(inner, ir.Lane) and self._has(dtype, inner.axis):
                    return self._beginning(self._axis(inner.axis), first)
        digit = self.digit(expr)
        return Position(digit.index) if digit is not None and digit.kind == "row" else None

    def _has(self, dtype: DType, index: str) -> bool:
        """Whether a type has the places of all lanes of an axis, those beyond its end too."""
        axis = self._axis(index)
        tiled = axis.kind in ("tile", "loop")
        last = self._end(index) + (axis.tile or 0) if tiled else SIZE_LIMIT
        return dtype in ("i32", "i64", "int") and last <= LIMITS[dtype][1]

    def _beginning(self, axis: ir.Axis, first: Expr) -> Position | None:
        """Which lanes of an axis an expression is the first of; None if it is not that."""
        match self._plain(first):
            case Var(name) if name in self.starts:
                loop = self.starts[name]
                whole = loop.axis == axis.index and axis.kind == "loop" and loop.step == axis.width
                return Position(axis.index, name) if whole else None
            case ir.Op("mul", (tile, width)):
                own = width == axis.width and axis.kind == "tile" and self.digit(tile) == axis
                return Position(axis.index) if own else None
        return None

    def digit(self, expr: Expr) -> ir.Axis | None:
        """The axis of the programs whose number an expression is."""
        axes = self.role.program
        match self._plain(expr):
            case ir.Op("mod", (number, count)):
                left = self._left(number)
                if left is not None and left > 0 and self._counts(count, axes[left]):
                    return axes[left]
            case plain:
                return axes[0] if self._left(plain) == 0 else None
        return None

    def _left(self, expr: Expr) -> int | None:
        """The axis whose number is the last digit of what is left of the program's number."""
        match self._plain(expr):
            case ir.Program():
                return len(self.role.program) - 1
            case ir.Op("floordiv", (number, count)):
                left = self._left(number)
                if left is not None and left > 0 and self._counts(count, self.role.program[left]):
                    return left - 1
        return None

    def _counts(self, count: Expr, axis: ir.Axis) -> bool:
        """Whether an expression is how many programs an axis has, which the launch checks to be an i32."""
        return self.poly(self._plain(count)) == self.programs(axis)

    def programs(self, axis: ir.Axis) -> Poly:
        """How many programs an axis has."""
        extent = self.reading.extent(axis.index)
        tile = const(axis.tile or 1)
        if axis.least is not None and axis.width is not None:
            tile = self.reading.name(axis.width.name)
        return self.reading.numbers.quotient(add(add(extent, tile), ONE, -1), tile)

    def _plain(self, expr: Expr) -> Expr:
        """An expression behind its variable, without conversions, which program numbers all survive."""
        match expr:
            case Var(name):
                found = self._computed(name)
                return self._plain(found) if found is not None else expr
            case ir.Cast(arg, dtype) if {arg.dtype, dtype} <= {"i32", "i64", "int"}:
                return self._plain(arg)
        return expr

    def _computed(self, name: str) -> Expr | None:
        """What a variable is bound to, if that is computed from numbers of programs and lanes."""
        made = self.made.get(name)
        return made if isinstance(made, ir.Op | ir.Cast | ir.Program | ir.Lane | Var) else None

    def _axis(self, index: str) -> ir.Axis:
        return next(axis for axis in self.role.axes if axis.index == index)

    def _end(self, index: str) -> int:
        return self.reading.ends(self.group.extents[index])[1]

    # Conditions.

    def literals(self, conditions: Iterable[Expr], *, positive: bool = True) -> Known:
        """What conditions are joined of."""
        return frozenset(literal for cond in conditions for literal in self._split(cond, positive))

    def _split(self, cond: Expr, positive: bool) -> Iterator[Literal]:
        cond = self._leaf(cond)
        match cond:
            case ir.Op("not", (arg,)):
                yield from self._split(arg, not positive)
            case ir.Op("and" | "or" as op, args) if (op == "and") == positive:
                for arg in args:
                    yield from self._split(arg, positive)
            case ir.Spread(arg):
                yield from self._split(arg, positive)
            case _:
                yield cond, positive

    def _leaf(self, cond: Expr) -> Expr:
        """A condition behind its variable."""
        while isinstance(cond, Var):
            found = self.made[cond.name]
            if not isinstance(found, ir.Op | ir.Cast | ir.Num | ir.Arg | Var):
                return cond
            cond = found
        return cond

    def implied(self, cond: Expr, known: Known, *, positive: bool = True) -> bool:
        """Whether a condition holds, or does not, wherever something is known."""
        cond = self._leaf(cond)
        if (cond, positive) in known:
            return True
        match cond:
            case ir.Num(value):
                return bool(value) == positive
            case ir.Op("not", (arg,)):
                return self.implied(arg, known, positive=not positive)
            case ir.Op("and" | "or" as op, args):
                every = all if (op == "and") == positive else any
                return every(self.implied(arg, known, positive=positive) for arg in args)
            case Var(name):
                match self.made[name]:
                    case ir.Reduce("any", _, arg, mask) if positive:  # this lane is one of them
                        return all(self.implied(each, known) for each in (arg, *mask))
        return False

    def inside(self, where: Where) -> Axes:
        """The indices whose lanes are known to be some of their values."""
        found = (where.at(self.bounded_by(cond)) for cond, positive in where.known if positive)
        return frozenset(index for index in found if index)

    def bounded_by(self, cond: Expr) -> Position | None:
        """What a condition says a lane to be one of the values of; None if it says another thing."""
        if cond not in self.bounded:
            self.bounded[cond] = None
            self.bounded[cond] = self._says_inside(cond)
        return self.bounded[cond]

    def _says_inside(self, cond: Expr) -> Position | None:
        match cond:
            case ir.Op("lt", (lane, extent)):
                found = self.position(lane)
                if found is not None and self.poly(extent) == self.reading.extent(found.index):
                    return found
        return None

    def asks(self, name: str) -> frozenset[Expr]:
        """The conditions that tell what a variable is: those of its loads, its choices and its lanes."""
        if name not in self.needed:
            self.needed[name] = frozenset()  # of a loop's variable while it is looked at
            found = self.made.get(name)
            match found:
                case Merge(cond, then, other):
                    asked = self._leaves(cond) | self._asked((cond, then, other))
                case Turn(_, start, then):
                    asked = self._asked((start, then))
                case None:
                    asked = frozenset()
                case _:
                    asked = self._asked((found,))
            self.needed[name] = asked
        return self.needed[name]

    def _asked(self, exprs: Iterable[Expr]) -> frozenset[Expr]:
        found: set[Expr] = set()
        for expr in exprs:
            for each in ir.walk(expr):
                match each:
                    case Var(name):
                        found |= self.asks(name)
                    case ir.Load() | ir.Reduce() | ir.Scan():
                        found |= {leaf for cond in each.mask for leaf in self._leaves(cond)}
                    case ir.Select(cond):
                        found |= self._leaves(cond)
        return frozenset(found)

    def _leaves(self, cond: Expr) -> frozenset[Expr]:
        cond = self._leaf(cond)
        match cond:
            case ir.Op("not" | "and" | "or", args):
                return frozenset().union(*map(self._leaves, args))
            case Var(name):
                match self.made[name]:
                    case ir.Reduce(_, _, arg, mask):
                        return frozenset((cond,)).union(*map(self._leaves, (arg, *mask)))
        return frozenset((cond,))


def padded(index: str) -> str:
    """The name of the index that goes on beyond the end, to where its blocks end."""
    return f"{index} padded"


def scalar_of(name: str, dtype: DType, low: int | None = None, high: int | None = None) -> Scalar:
    """A number of the kernel as a scalar, for the proofs."""
    ends = [typed.Const(end, "int") if end is not None else None for end in (low, high)]
    return Scalar(name, dtype, ends[0], ends[1], None, dtype, "", NOWHERE)
