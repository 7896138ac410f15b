"""Kernels of the form broken on purpose, one change of the tree at a time.

In: a `Kernel` and its group. Out: named mutants, each with the kind of its change. Nothing here says which of
them are wrong; `mutant_ends.py` finds that out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kgen.kernel import ir
from kgen.kernel.faults import called
from kgen.kernel.ir import Expr, Kernel, Num, Op, Spread, Stmt, Var
from kgen.lang.dtypes import FLOATS, INTEGERS
from kgen.lang.typed import Group

Body = tuple[Stmt, ...]
Name = tuple[str, str, Expr | None]  # kind, statement, and the expression that was changed
Change = tuple[str, Any]  # kind, and what there is now


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split(":") for pair in text.split())


# What an operator, a reduction or a scan may be taken for.
OTHERS = _pairs(
    "add:sub sub:add mul:add min:max max:min and:or or:and floordiv:mod mod:floordiv truediv:mul "
    "lt:le le:lt gt:ge ge:gt eq:ne ne:eq"
)
KINDS = _pairs("sum:max product:sum min:max max:min any:all all:any cumsum:cumprod cumprod:cumsum")
UNEVEN = "sub floordiv mod truediv lt le gt ge".split()
WIDTHS = ("u8 i32 i64".split(), "f16 bf16 f32".split())


@dataclass(frozen=True)
class Mutant:
    """A kernel with one change.

    `kind`: of the change; `where`: the statement that it is in; `was`: the expression that was changed, in
    role number `role`; `of`: the kernel that was broken.
    """

    kind: str
    where: str
    kernel: Kernel
    was: Expr | None
    role: int
    of: Kernel

    def __str__(self) -> str:
        return f"{self.kind} in `{self.where}`"


def mutants(kernel: Kernel, group: Group) -> Iterator[Mutant]:
    """All mutants of a kernel."""
    breaking = _Breaking(kernel, group)
    for at, role in enumerate(kernel.roles):
        for (kind, where, was), changed in breaking.role(role):
            yield Mutant(kind, where, _swapped(kernel, at, (changed,)), was, at, kernel)
        if len(kernel.roles) > 1:
            yield Mutant("role dropped", "", _swapped(kernel, at, ()), None, at, kernel)
        twice = _swapped(kernel, at, (role, _renamed(role)))
        yield Mutant("role doubled", "", twice, None, at, kernel)


def _swapped(kernel: Kernel, at: int, roles: tuple[ir.Role, ...]) -> Kernel:
    return replace(kernel, roles=kernel.roles[:at] + roles + kernel.roles[at + 1 :])


def spots(
    make: Callable[[Callable[[Expr], Expr]], Any],
) -> list[tuple[Expr, Callable[[Expr], Any]]]:
    """The expressions that `make` asks to change, each with what there is if it alone is changed."""
    seen: list[Expr] = []
    make(lambda expr: seen.append(expr) or expr)  # type: ignore[func-returns-value]

    def put(at: int, new: Expr) -> Any:
        counter = itertools.count()
        return make(lambda expr: new if next(counter) == at else expr)

    return [(expr, lambda new, at=at: put(at, new)) for at, expr in enumerate(seen)]


def shallow(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """A statement with its own expressions changed."""
    match stmt:
        case ir.Loop():
            return replace(ir.rewritten(replace(stmt, body=()), change), body=stmt.body)
        case ir.Branch(_, then, other):
            bare = ir.rewritten(replace(stmt, then=(), other=()), change)
            return replace(bare, then=then, other=other)
    return ir.rewritten(stmt, change)


def constant(value: float, like: Expr) -> Expr:
    """A number of the type and the axes of another expression."""
    number = Num(value, like.dtype)
    return Spread(number, like.dtype, like.axes) if like.axes else number


def shifted(expr: Expr, by: int) -> Expr:
    """A whole number and a little more or less."""
    op = "add" if by > 0 else "sub"
    return Op(op, (expr, Num(abs(by), "int")), expr.dtype, expr.axes)


def narrow(expr: ir.Cast) -> str:
    """A type narrower than both of a conversion; nothing if there is none."""
    for kinds in WIDTHS:
        if expr.dtype in kinds and expr.arg.dtype in kinds:
            least = min(kinds.index(expr.dtype), kinds.index(expr.arg.dtype))
            return kinds[least - 1] if least else ""
    return ""


def negated(cond: Expr) -> Expr:
    """The opposite of a condition."""
    return Op("not", (cond,), "bool", cond.axes)


def _renamed(part: Any, suffix: str = ".again") -> Any:
    """A role, or statements, whose variables have other names."""
    body = part.body if isinstance(part, ir.Role) else part
    own = {var.name for stmt in ir.every(body) for var in ir.bound(stmt)}
    own |= {stmt.start.name for stmt in ir.every(body) if isinstance(stmt, ir.Loop)}

    def bind(var: Var) -> Var:
        return replace(var, name=var.name + suffix) if var.name in own else var

    def change(expr: Expr) -> Expr:
        return bind(expr) if isinstance(expr, Var) else ir.rebuilt(expr, change)

    again = tuple(ir.rewritten(stmt, change, bind) for stmt in body)
    return replace(part, body=again) if isinstance(part, ir.Role) else again


@dataclass
class _Breaking:
    """The changes of one kernel. `scope`: the variables that are bound where it is."""

    kernel: Kernel
    group: Group
    scope: list[Var] = field(default_factory=list)

    def __post_init__(self) -> None:
        stmts = [s for role in self.kernel.roles for s in ir.every(role.body)]
        axes = [axis for role in self.kernel.roles for axis in role.axes]
        self.widths = [*dict.fromkeys(a.width for a in axes if a.width is not None)]
        self.stored = {stmt.tensor for stmt in stmts if isinstance(stmt, ir.Store)}
        exprs = [part for stmt in stmts for expr in ir.used(stmt) for part in ir.walk(expr)]
        self.args = [*dict.fromkeys(part for part in exprs if isinstance(part, ir.Arg))]

    # Roles.

    def role(self, role: ir.Role) -> Iterator[tuple[Name, ir.Role]]:
        """What may be wrong with a role: (name, role)."""
        self.scope = []
        for by in (1, -1):
            programs = shifted(role.programs, by)
            yield (f"programs {by:+}", "", None), replace(role, programs=programs)
        for kind, now, was in self.expr(role.programs):
            yield (kind, "the programs", was), replace(role, programs=now)
        if len(role.axes) > 1:
            yield ("axes reversed", "", None), replace(role, axes=role.axes[::-1])
        if [axis.kind for axis in role.program] == ["row"]:
            axes = tuple(replace(a, tile=2) if a.kind == "row" else a for a in role.axes)
            count = (shifted(role.programs, 1), Num(2, "int"))
            half = Op("floordiv", count, role.programs.dtype, ())
            yield ("every second row", "", None), replace(role, axes=axes, programs=half)
        for at, axis in enumerate(role.axes):
            for kind, changed in self._axis(axis):
                axes = _put(role.axes, at, changed)
                yield (kind, axis.index, None), replace(role, axes=axes)
        for name, body in self.body(role.body):
            yield name, replace(role, body=body)

    def _axis(self, axis: ir.Axis) -> Iterator[tuple[str, ir.Axis]]:
        for by in (1, -1):
            yield f"extent {by:+}", replace(axis, extent=shifted(axis.extent, by))
        tile = 2 * axis.tile if axis.tile is not None else 1
        yield f"tile {'doubled' if axis.tile else 'of 1'}", replace(axis, tile=tile)
        if axis.width is not None:
            for other in self.widths:
                if other != axis.width:
                    yield "another width", replace(axis, width=other)
        if axis.kind in ("tile", "loop"):
            yield "lanes for tiles", replace(axis, kind="lanes")

    # Statements.

    def body(self, body: Body) -> Iterator[tuple[Name, Body]]:
        """What may be wrong with a body: (name, body)."""
        for at, stmt in enumerate(body):
            before, after, outer = body[:at], body[at + 1 :], [*self.scope]
            for kind, now in self._order(body, at):
                yield (kind, called(stmt), None), now
            for kind, now in self._stmt(stmt):
                yield (kind, called(stmt), None), before + now + after
            for expr, put in spots(lambda change, stmt=stmt: shallow(stmt, change)):
                for kind, new, was in self.expr(expr):
                    yield (kind, called(stmt), was), (*before, put(new), *after)
            for number, inner in enumerate(ir.bodies(stmt)):
                self.scope += [stmt.start] if isinstance(stmt, ir.Loop) else []
                self.scope += ir.bound(stmt) if isinstance(stmt, ir.Loop) else ()
                for name, now in self.body(inner):
                    part = ("body",) if isinstance(stmt, ir.Loop) else ("then", "other")
                    yield name, (*before, replace(stmt, **{part[number]: now}), *after)
                self.scope = [*outer]
            self.scope += ir.bound(stmt)

    def _order(self, body: Body, at: int) -> Iterator[tuple[str, Body]]:
        """Statements that come later, or once more."""
        stmt, left = body[at], body[:at] + body[at + 1 :]
        if at + 1 < len(body):
            yield "moved later", (*body[:at], body[at + 1], stmt, *body[at + 2 :])
        if at + 2 < len(body):
            yield "moved to the end", (*left, stmt)
        match stmt:
            case ir.Bind(_, ir.Load(tensor)) if tensor in self.stored:
                yield "moved: loaded again at the end", (*body, *_renamed((stmt,)))
                for number, each in enumerate(body):
                    if number > at and _does_store(each, tensor):
                        now = (*body[:number], *_renamed((stmt,)), *body[number:])
                        yield "moved: loaded again before a store", now
            case ir.Store() if at:
                yield "moved to the beginning", (stmt, *left)
            case ir.Barrier():
                for number, each in enumerate(left):
                    if isinstance(each, ir.Loop):
                        now = replace(each, body=(*each.body, stmt))
                        yield "moved into a loop", _put(left, number, now)
                    if isinstance(each, ir.Branch):
                        now = replace(each, then=(*each.then, stmt))
                        yield "moved into a branch", _put(left, number, now)

    def _stmt(self, stmt: Stmt) -> Iterator[tuple[str, Body]]:
        """Statements that there may be instead of one."""
        yield f"{type(stmt).__name__.lower()} dropped", ()
        match stmt:
            case ir.Bind(var, ir.Load(mask=mask) as load) if mask:
                yield from self._elsewhere(stmt, var, load)
            case ir.Store():
                yield "store doubled", (stmt, stmt)
                first = Op("eq", (ir.Program(), Num(0, "int")), "bool", ())
                for kind, cond in (("only", first), ("not", negated(first))):
                    now = replace(stmt, mask=(*stmt.mask, cond))
                    yield f"{kind} in the first program", (now,)
                for kind, now in self._access(stmt):
                    yield kind, (now,)
            case ir.Loop(body=body, carried=carried):
                yield "loop doubled", (stmt, *_renamed((stmt,)))
                for by in (1, -1):
                    yield f"turns {by:+}", (replace(stmt, extent=shifted(stmt.extent, by)),)
                for at, each in enumerate(carried):
                    kept = replace(each, then=each.var)
                    now = replace(stmt, carried=(*carried[:at], kept, *carried[at + 1 :]))
                    yield "turn forgotten", (now,)
                if not carried:
                    once = (ir.Bind(stmt.start, constant(0, stmt.start)), *body)
                    yield "one turn", once
            case ir.Branch(then=then, other=other, merged=merged):
                for truth in (True, False):
                    always = replace(stmt, cond=Num(truth, "bool"))
                    yield f"branch always {truth}".lower(), (always,)
                yield "bodies swapped", (replace(stmt, then=other, other=then),)
                turned = tuple(ir.Merged(m.var, m.other, m.then) for m in merged)
                swapped = replace(stmt, then=other, other=then, merged=turned)
                yield "branches swapped", (swapped,)
            case ir.Barrier():
                yield "barrier doubled", (stmt, stmt)

    def _elsewhere(self, stmt: ir.Bind, var: Var, load: ir.Load) -> Iterator[tuple[str, Body]]:
        """A load that gives 1 where its mask does not hold."""
        raw, mask = replace(var, name=f"{var.name}.raw"), load.mask[0]
        for cond in load.mask[1:]:
            axes = tuple(axis for axis in var.axes if axis in (*mask.axes, *cond.axes))
            mask = Op("and", (mask, cond), "bool", axes)
        chosen = ir.Select(mask, raw, Num(1, var.dtype), var.dtype, var.axes)
        yield "elsewhere 1", (ir.Bind(raw, load), replace(stmt, value=chosen))

    def _access(self, access: Any) -> Iterator[Change]:
        """What may be wrong with a load or a store itself."""
        items, mask = access.items, access.mask
        for at, item in enumerate(items):
            for by in (1, -1):
                yield f"index {by:+}", replace(access, items=_put(items, at, shifted(item, by)))
            if item != constant(0, item):
                yield "index 0", replace(access, items=_put(items, at, constant(0, item)))
            if at:
                swapped = (*items[: at - 1], item, items[at - 1], *items[at + 1 :])
                yield "indices swapped", replace(access, items=swapped)
        for at, cond in enumerate(mask):
            true = constant(1, cond)
            yield "condition dropped", replace(access, mask=_put(mask, at, true))
            yield "condition negated", replace(access, mask=_put(mask, at, negated(cond)))
        kinds = {t.name: (t.dtype, len(t.shape), t.length) for t in self.group.tensors.values()}
        for name, kind in kinds.items():
            if name != access.tensor and kind == kinds[access.tensor] and access.chosen is None:
                yield "another tensor", replace(access, tensor=name)

    # Expressions.

    def expr(self, expr: Expr) -> Iterator[tuple[str, Expr, Expr]]:
        """Expressions that there may be instead of one: (kind, expression, the part that was changed)."""
        for kind, now in self._node(expr):
            yield kind, now, expr
        for part, put in spots(lambda change: ir.rebuilt(expr, change)):
            for kind, now, was in self.expr(part):
                yield kind, put(now), was

    def _node(self, expr: Expr) -> Iterator[Change]:
        match expr:
            case Num(value, "bool"):
                yield "constant flipped", replace(expr, value=1 - value)
            case Num(value):
                for by in (1, -1):
                    yield f"constant {by:+}", Num(value + by, expr.dtype)
            case ir.Arg():
                yield from self._next("another argument", expr, self.args)
            case ir.Program():
                yield "program +1", shifted(expr, 1)
            case ir.Lane():
                yield "lane +1", shifted(expr, 1)
            case Var(_, dtype, axes):
                alike = [v for v in self.scope if (v.dtype, v.axes) == (dtype, axes)]
                yield from self._next("another variable", expr, alike)
            case Op():
                yield from self._operator(expr)
            case ir.Cast(arg, dtype, axes):
                if narrow(expr):
                    yield "cast narrowed", replace(expr, arg=ir.Cast(arg, narrow(expr), axes))
                if arg.dtype in INTEGERS and dtype in INTEGERS:
                    yield "cast dropped", arg
            case ir.Select(cond, then, other):
                yield "choice swapped", replace(expr, then=other, other=then)
                yield "condition negated", replace(expr, cond=negated(cond))
            case ir.Chosen(_, at):
                for by in (1, -1):
                    yield f"tensor {by:+}", replace(expr, at=shifted(at, by))
                yield "tensor 0", replace(expr, at=constant(0, at))
            case ir.Load():
                yield from self._access(expr)
            case ir.Reduce(kind, _, _, mask) | ir.Scan(kind, _, _, mask):
                if kind in KINDS:
                    yield "another reduction", replace(expr, kind=KINDS[kind])
                for at, cond in enumerate(mask):
                    yield "condition dropped", replace(expr, mask=_put(mask, at, constant(1, cond)))
                    yield "condition negated", replace(expr, mask=_put(mask, at, negated(cond)))

    def _operator(self, expr: Op) -> Iterator[Change]:
        op, args = expr.op, expr.args
        if op in OTHERS:
            yield f"{OTHERS[op]} for {op}", replace(expr, op=OTHERS[op], rounds="down")
        if op in UNEVEN:
            yield "operands swapped", replace(expr, args=args[::-1])
        if op in ("floordiv", "mod"):
            rounds = "zero" if expr.rounds == "down" else "down"
            yield "rounded otherwise", replace(expr, rounds=rounds)
        if op == "not":
            yield "not dropped", args[0]
        if op in ("and", "or"):
            for arg in args:
                if arg.axes == expr.axes:
                    yield f"only one side of {op}", arg
                elif not arg.axes:
                    yield f"only one side of {op}", Spread(arg, "bool", expr.axes)
        if op == "lt" and args[1].dtype not in FLOATS:
            for by in (1, -1):
                yield f"bound {by:+}", replace(expr, args=(args[0], shifted(args[1], by)))
        if expr.dtype == "i64" and op in ("add", "sub", "mul"):
            less = tuple(ir.Cast(a, "i32", a.axes) if a.dtype == "i64" else a for a in args)
            inner = replace(expr, args=less, dtype="i32")
            yield "computed in i32", ir.Cast(inner, "i64", expr.axes)

    def _next(self, kind: str, expr: Any, every: list[Any]) -> Iterator[Change]:
        """The one after it of those of its type."""
        alike = [each for each in every if each.dtype == expr.dtype]
        if expr in alike and len(alike) > 1:
            yield kind, alike[(alike.index(expr) + 1) % len(alike)]


def _put(items: tuple[Any, ...], at: int, new: Any) -> tuple[Any, ...]:
    return (*items[:at], new, *items[at + 1 :])


def _does_store(stmt: Stmt, tensor: str) -> bool:
    return any(isinstance(each, ir.Store) and each.tensor == tensor for each in ir.every((stmt,)))
