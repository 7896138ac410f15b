"""The form of a kernel: typed, and free of any backend's words.

A kernel is one launch. Its programs are divided among *roles*; each program of a role runs the role's body.
Every value is a block with a dimension for each lane axis that it spans (`axes`, in the role's order), or a
scalar. Loads and stores name a tensor and its indices; a mask is a set of conditions that must all hold.

All loads of a program see memory as it was before the launch: whoever makes a kernel keeps that, with
barriers. Expressions have no effects. Loads, reductions, scans and chosen tensors are only ever the whole
value of a `Bind`. Every variable is bound once in the kernel, and before it is used on every path. A number
without a type (`int`, `float`) may stand wherever one of another type is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

from kgen.lang.dtypes import DType
from kgen.lang.typed import sign_of

Axes: TypeAlias = tuple[str, ...]
NO_AXES: Axes = ()


@dataclass(frozen=True, slots=True)
class Num:
    """A number or truth value."""

    value: float
    dtype: DType
    axes: Axes = NO_AXES
    sign: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sign", sign_of(self.value))


@dataclass(frozen=True, slots=True)
class Arg:
    """A number that the launch passes: a size, a scalar; of type `int` if it is known at compile time.

    `HAS_x` is 1 if the optional tensor x is given; `LANES_k` and `TILE_r` are the sizes of blocks.
    """

    name: str
    dtype: DType
    axes: Axes = NO_AXES


@dataclass(frozen=True, slots=True)
class Program:
    """The number of this program among those of its role."""

    dtype: DType = "i32"
    axes: Axes = NO_AXES


@dataclass(frozen=True, slots=True)
class Lane:
    """0, 1, ... along a lane axis, as many as its block is wide."""

    axis: str
    axes: Axes
    dtype: DType = "i32"


@dataclass(frozen=True, slots=True)
class Var:
    """A value that is bound before."""

    name: str
    dtype: DType
    axes: Axes


@dataclass(frozen=True, slots=True)
class Op:
    """An operator of the language on operands of one type; `rounds`: where a quotient's fraction goes."""

    op: str
    args: tuple[Expr, ...]
    dtype: DType
    axes: Axes
    rounds: Literal["down", "zero"] = "down"


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion to another element type, as torch makes it."""

    arg: Expr
    dtype: DType
    axes: Axes


@dataclass(frozen=True, slots=True)
class Select:
    """`then` where `cond` holds, else `other`."""

    cond: Expr
    then: Expr
    other: Expr
    dtype: DType
    axes: Axes


@dataclass(frozen=True, slots=True)
class Spread:
    """A value repeated along more axes."""

    arg: Expr
    dtype: DType
    axes: Axes


@dataclass(frozen=True, slots=True)
class Chosen:
    """The tensor of a list that has number `at`, for loads and stores; the first where no tensor has it."""

    tensor: str
    at: Expr
    axes: Axes
    dtype: DType = "tensor"


@dataclass(frozen=True, slots=True)
class Load:
    """The element of a tensor, where every condition of `mask` holds; elsewhere 0, and no access.

    Its axes are those of `chosen`, `items` and `mask`; the indices are integers of any type.
    """

    tensor: str
    chosen: Expr | None
    items: tuple[Expr, ...]
    mask: tuple[Expr, ...]
    dtype: DType
    axes: Axes


@dataclass(frozen=True, slots=True)
class Reduce:
    """`sum`, `product`, `min`, `max`, `any`, `all` or `tree` of an axis's lanes where `mask` holds.

    Over none of them it is 0, 1, the type's largest or smallest value, false, or true. `tree` is the sum of
    floats in the language's order.
    """

    kind: str
    axis: str
    arg: Expr
    mask: tuple[Expr, ...]
    dtype: DType
    axes: Axes


@dataclass(frozen=True, slots=True)
class Scan:
    """`cumsum` or `cumprod` along an axis; lanes where `mask` does not hold count as neutral."""

    kind: str
    axis: str
    arg: Expr
    mask: tuple[Expr, ...]
    dtype: DType
    axes: Axes


Expr: TypeAlias = (
    Num | Arg | Program | Lane | Var | Op | Cast | Select | Spread | Chosen | Load | Reduce | Scan
)


@dataclass(frozen=True, slots=True)
class Bind:
    """`var = value`; `note` says what it is in the spec's words, `index` of which index it is the value."""

    var: Var
    value: Expr
    note: str = ""
    index: str = ""


@dataclass(frozen=True, slots=True)
class Store:
    """`tensor[items] = value` at every lane of `axes` where every condition of `mask` holds.

    No two active lanes of a launch have one place, even if they store the same.
    """

    tensor: str
    chosen: Expr | None
    items: tuple[Expr, ...]
    value: Expr
    mask: tuple[Expr, ...]
    axes: Axes
    note: str = ""


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that goes from one turn of a loop to the next: `start` at first, `then` after each turn.

    Those of one loop change together: each `then` sees what all of them were in the turn.
    """

    var: Var
    start: Expr
    then: Expr


@dataclass(frozen=True, slots=True)
class Loop:
    """`for start in range(0, extent, step)`; after it the carried variables are what the last turn left.

    The type of `start` holds the first number beyond the extent too.
    """

    axis: str
    start: Var
    extent: Expr
    step: Expr
    carried: tuple[Carried, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """A variable that a branch binds either way."""

    var: Var
    then: Expr
    other: Expr


@dataclass(frozen=True, slots=True)
class Branch:
    """One of two bodies, by a scalar condition; `merged` are bound after it."""

    cond: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...]
    merged: tuple[Merged, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Barrier:
    """No thread of the program goes on before all have come here; `tensors` are those that it is for."""

    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """Debug mode: note the least point at which every condition of `failed` holds, and details there."""

    number: int
    failed: tuple[Expr, ...]
    point: Expr
    details: tuple[Expr, ...]
    axes: Axes


Stmt: TypeAlias = Bind | Store | Loop | Branch | Barrier | Check
_Node = TypeVar("_Node", bound=Expr | Stmt)


@dataclass(frozen=True, slots=True)
class Axis:
    """How a role covers an index.

    `row`: one value a program; `tile`: a block of values a program; `lanes`: all values in each program;
    `loop`: all values in each program, a block at a time. `width`: the block's size, a power of two; None
    for a row.
    `tile`: the most that the width is, `least` the least; None for `lanes`, whose width is the next power
    of two of the extent.
    """

    index: str
    kind: Literal["row", "tile", "lanes", "loop"]
    width: Arg | None
    tile: int | None
    extent: Expr
    least: int | None = None


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of program: `programs` of them, laid over the row and tile axes, the last one fastest."""

    axes: tuple[Axis, ...]
    programs: Expr
    body: tuple[Stmt, ...]

    @property
    def program(self) -> tuple[Axis, ...]:
        """The axes that programs are laid over."""
        return tuple(axis for axis in self.axes if axis.kind in ("row", "tile"))

    @property
    def lanes(self) -> Axes:
        """The axes that blocks have, in order."""
        return tuple(axis.index for axis in self.axes if axis.kind != "row")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A launch. The programs of the first role come first."""

    name: str
    summary: str
    roles: tuple[Role, ...]


# Walking and rewriting.


# The fields of each node that are expressions or tuples of them, but for `carried` and `merged`.
_PARTS: dict[type, tuple[str, ...]] = {
    **dict.fromkeys((Num, Arg, Program, Lane, Var, Barrier), ()),
    Op: ("args",),
    Cast: ("arg",),
    Spread: ("arg",),
    Select: ("cond", "then", "other"),
    Chosen: ("at",),
    Load: ("chosen", "items", "mask"),
    Reduce: ("arg", "mask"),
    Scan: ("arg", "mask"),
    Bind: ("value",),
    Store: ("chosen", "items", "value", "mask"),
    Loop: ("extent", "step"),
    Branch: ("cond",),
    Check: ("failed", "point", "details"),
}


def operands(node: Expr | Stmt) -> tuple[Expr, ...]:
    """What an expression is made of, or a statement but for what it carries or merges."""
    found: list[Expr] = []
    for name in _PARTS[type(node)]:
        part = getattr(node, name)
        if isinstance(part, tuple):
            found += part
        elif part is not None:
            found.append(part)
    return tuple(found)


def walk(expr: Expr) -> Iterator[Expr]:
    """An expression and all that it is made of."""
    yield expr
    for each in operands(expr):
        yield from walk(each)


def rebuilt(node: _Node, change: Callable[[Expr], Expr]) -> _Node:
    """An expression or a statement with its operands changed."""
    changed: dict[str, Any] = {}
    for name in _PARTS[type(node)]:
        part = getattr(node, name)
        if part is not None:
            changed[name] = tuple(map(change, part)) if isinstance(part, tuple) else change(part)
    return replace(node, **changed) if changed else node


def used(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement itself, not those of the statements in it."""
    match stmt:
        case Loop():
            return (*operands(stmt), *(each for c in stmt.carried for each in (c.start, c.then)))
        case Branch():
            return (*operands(stmt), *(each for m in stmt.merged for each in (m.then, m.other)))
    return operands(stmt)


def bound(stmt: Stmt) -> tuple[Var, ...]:
    """The variables that a statement binds for those after it."""
    match stmt:
        case Bind(var):
            return (var,)
        case Loop(_, _, _, _, carried):
            return tuple(each.var for each in carried)
        case Branch(_, _, _, merged):
            return tuple(each.var for each in merged)
    return ()


def bodies(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The bodies of a statement."""
    match stmt:
        case Loop(_, _, _, _, _, body):
            return (body,)
        case Branch(_, then, other):
            return (then, other)
    return ()


def every(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements of a body, those inside others after them."""
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from every(inner)


def _same(var: Var) -> Var:
    return var


def rewritten(
    stmt: Stmt, change: Callable[[Expr], Expr], bind: Callable[[Var], Var] = _same
) -> Stmt:
    """A statement with its expressions and what it binds changed, and those of the statements in it."""

    def inner(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(rewritten(each, change, bind) for each in body)

    stmt = rebuilt(stmt, change)
    match stmt:
        case Bind(var):
            return replace(stmt, var=bind(var))
        case Loop():
            carried = (Carried(bind(c.var), change(c.start), change(c.then)) for c in stmt.carried)
            start, body = bind(stmt.start), inner(stmt.body)
            return replace(stmt, start=start, carried=tuple(carried), body=body)
        case Branch(_, then, other):
            merged = (Merged(bind(m.var), change(m.then), change(m.other)) for m in stmt.merged)
            return replace(stmt, then=inner(then), other=inner(other), merged=tuple(merged))
    return stmt
