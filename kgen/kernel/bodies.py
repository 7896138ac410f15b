"""The bodies of a role while they are filled, and which of them holds what.

A value is bound in the outermost body that can hold it, where all the variables that it reads are bound.
So is a loop or a branch, together with what its loads need.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from kgen.kernel import ir
from kgen.kernel.ir import Axes, Bind, Carried, Expr, Loop, Op, Stmt, Var
from kgen.lang.dtypes import DType
from kgen.lang.names import fresh
from kgen.prove.contexts import Guards


@dataclass(slots=True)
class Body:
    """A body while it is filled: of a role, a loop or one side of a branch; what is known in it."""

    parent: Body | None
    depth: int
    stmts: list[Stmt] = field(default_factory=list)
    known: dict[Hashable, Expr] = field(default_factory=dict)
    indices: dict[str, Var] = field(default_factory=dict)
    carried: list[Carried] = field(default_factory=list)
    axis: str = ""
    chosen: Guards = ()  # of compile time, that hold on this side of a branch
    test: Expr | None = None  # that of the branch
    stays: bool = False  # whether it is never put further out than where it is opened

    def inner(self, axis: str = "", *, stays: bool = False) -> Body:
        """A body inside this one."""
        return Body(self, self.depth + 1, axis=axis, stays=stays)

    def side(self, test: Expr, chosen: Guards) -> Body:
        """The body of a branch inside this one."""
        return Body(self, self.depth + 1, test=test, chosen=chosen)

    def chain(self) -> Iterable[Body]:
        """This body and those around it, the innermost first."""
        here: Body | None = self
        while here is not None:
            yield here
            here = here.parent

    def find(self, key: Hashable, axes: Iterable[str]) -> Expr | None:
        """What is bound already for a value of some indices, none of which is bound again since."""
        for each in self.chain():
            if key in each.known:
                return each.known[key]
            if each.axis in axes:
                return None
        return None

    def lanes(self, name: str) -> Var:
        """The variable of an index."""
        return next(each.indices[name] for each in self.chain() if name in each.indices)


@dataclass(slots=True)
class Bodies:
    """The variables of a role. `scopes`: the body of each; `order`: of the axes of its blocks."""

    names: set[str]
    scopes: dict[str, Body] = field(default_factory=dict, kw_only=True)
    order: Axes = field(default=(), kw_only=True)

    def spanned(self, *exprs: Expr) -> Axes:
        """The axes of some expressions together."""
        return self.ordered(frozenset(axis for expr in exprs for axis in expr.axes))

    def op(self, op: str, *args: Expr, dtype: DType = "bool", rounds: str = "down") -> Op:
        """An operator on blocks of several axes."""
        axes = self.spanned(*args)
        quotient = op in ("floordiv", "mod")
        return Op(op, args, dtype, axes, "zero" if quotient and rounds == "zero" else "down")

    def every(self, conditions: Iterable[Expr]) -> Expr:
        """All of some conditions."""
        return functools.reduce(lambda a, b: self.op("and", a, b), conditions)

    def ordered(self, axes: frozenset[str] | set[str]) -> Axes:
        """Axes in the role's order; those of blocks only."""
        return tuple(index for index in self.order if index in axes)

    def bind(self, hint: str, value: Expr, scope: Body, note: str = "") -> Var:
        """A new variable with a value."""
        var = self.fresh(hint, value.dtype, value.axes, scope)
        scope.stmts.append(Bind(var, value, note))
        return var

    def fresh(self, hint: str, dtype: DType, axes: Axes, scope: Body) -> Var:
        """A variable with a name of its own; what is before a dot is what it should be called."""
        name = fresh(hint, self.names, ".")
        self.scopes[name] = scope
        return Var(name, dtype, axes)

    def home(self, value: Expr, scope: Body, forced: Body | None = None) -> Body:
        """The outermost body that can hold a value."""
        names = (each for each in ir.walk(value) if isinstance(each, Var))
        home = self.deepest(names, scope)
        return forced if forced is not None and forced.depth > home.depth else home

    def home_of(self, body: tuple[Stmt, ...], outside: Iterable[Var], scope: Body) -> Body:
        """The outermost body that can hold a loop or a branch, as `outside` are bound there."""
        home = self.deepest(outside, scope)
        around = next((each for each in scope.chain() if each.chosen), None)
        if body and around is not None and around.depth > home.depth:
            return around  # what is loaded here may need that choice as well
        return home

    def deepest(self, found: Iterable[Var], scope: Body) -> Body:
        """The innermost of the bodies that variables are bound in."""
        *_, root = scope.chain()
        bodies = (self.scopes[var.name] for var in found)
        return max(bodies, key=lambda body: body.depth, default=root)


def free(stmts: tuple[Stmt, ...], exprs: tuple[Expr, ...]) -> list[Var]:
    """The variables that some statements and expressions use and do not bind."""
    inside = {var.name for stmt in ir.every(stmts) for var in ir.bound(stmt)}
    inside |= {stmt.start.name for stmt in ir.every(stmts) if isinstance(stmt, Loop)}
    inside |= {c.var.name for s in ir.every(stmts) if isinstance(s, Loop) for c in s.carried}
    values = [each for stmt in ir.every(stmts) for each in ir.used(stmt)]
    found = (each for value in (*values, *exprs) for each in ir.walk(value))
    return [each for each in found if isinstance(each, Var) and each.name not in inside]
