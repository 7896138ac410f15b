"""What puts a lowered kernel in order: each pass takes a body and gives a better one that means the same.

`ordered` is the list of them: read it first. Nothing is proved here; the judge looks at what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kgen.kernel import ir
from kgen.kernel.ir import (
    Axes,
    Barrier,
    Bind,
    Branch,
    Carried,
    Expr,
    Kernel,
    Load,
    Loop,
    Merged,
    Num,
    Op,
    Program,
    Stmt,
    Store,
    Var,
)
from kgen.lang.names import fresh

Body: TypeAlias = tuple[Stmt, ...]
Renaming: TypeAlias = dict[str, Expr]


def ordered(kernel: Kernel, taken: Iterable[str] = ()) -> Kernel:
    """The kernel that is printed; `taken` are names that its variables may not have."""
    passes = (joined, shared, leaving_early, with_barriers, without_dead_code)
    return named(passed(kernel, *passes), taken)


def passed(kernel: Kernel, *passes: Callable[[Body], Body]) -> Kernel:
    """A kernel whose bodies went through some passes."""
    for each in passes:
        roles = tuple(replace(role, body=each(role.body)) for role in kernel.roles)
        kernel = replace(kernel, roles=roles)
    return kernel


# Loops and branches that go together.


def joined(body: Body) -> Body:
    """Loops over one index become one loop, and branches on one condition one branch, where data allow."""
    body = tuple(_joined_inside(stmt) for stmt in body)
    at = 0
    while at < len(body):
        first = body[at]
        for later in range(at + 1, len(body) if isinstance(first, Loop | Branch) else 0):
            both = _pair(first, body[later], body)
            if both is None:
                continue
            depends = _depending(first, body[at + 1 : later])
            if _names_used(body[later]) & _names_bound((first, *depends)):
                continue
            between = [stmt for stmt in body[at + 1 : later] if stmt not in depends]
            body = (*body[:at], *between, both, *depends, *body[later + 1 :])
            at -= 1  # what moved up is looked at again
            break
        at += 1
        at = max(at, 0)
    return body


def _joined_inside(stmt: Stmt) -> Stmt:
    match stmt:
        case Loop():
            return replace(stmt, body=joined(stmt.body))
        case Branch():
            return replace(stmt, then=joined(stmt.then), other=joined(stmt.other))
    return stmt


def _pair(a: Stmt, b: Stmt, body: Body) -> Stmt | None:
    """Two statements as one; None if they are not of one kind."""
    match a, b:
        case Branch(), Branch() if a.cond == b.cond:
            if any(isinstance(s, Store) for s in ir.every((a, b))):
                return None
            merged, then, other = (*a.merged, *b.merged), (*a.then, *b.then), (*a.other, *b.other)
            return Branch(a.cond, joined(then), joined(other), merged, a.note or b.note)
        case Loop(), Loop():
            alike = (a.axis, a.extent, a.step, a.start.dtype) == (
                b.axis,
                b.extent,
                b.step,
                b.start.dtype,
            )
            stored = {s.tensor for s in ir.every((a, b)) if isinstance(s, Store)}
            if not alike or stored & _loaded(body):
                return None
            inner = _renamed(b.body, {b.start.name: a.start})
            carried = tuple(
                replace(c, then=_expr(c.then, {b.start.name: a.start})) for c in b.carried
            )
            return replace(a, carried=(*a.carried, *carried), body=joined((*a.body, *inner)))
    return None


def _depending(first: Stmt, after: Body) -> list[Stmt]:
    """The statements that need what a statement binds, directly or not."""
    names, found = _names_bound((first,)), list[Stmt]()
    for stmt in after:
        if _names_used(stmt) & names or isinstance(stmt, Store):
            found.append(stmt)
            names |= _names_bound((stmt,))
    return found


def _names_bound(stmts: Iterable[Stmt]) -> set[str]:
    return {var.name for stmt in stmts for var in ir.bound(stmt)}


def _names_used(stmt: Stmt) -> set[str]:
    """The variables that a statement and those in it use."""
    values = (each for inner in ir.every((stmt,)) for each in ir.used(inner))
    return {each.name for value in values for each in ir.walk(value) if isinstance(each, Var)}


def _loaded(body: Body) -> set[str]:
    binds = (stmt.value for stmt in ir.every(body) if isinstance(stmt, Bind))
    return {value.tensor for value in binds if isinstance(value, Load)}


def _expr(expr: Expr, names: Renaming) -> Expr:
    """An expression with other variables."""
    if isinstance(expr, Var):
        return names.get(expr.name, expr)
    return ir.rebuilt(expr, lambda each: _expr(each, names))


def _renamed(body: Body, names: Renaming) -> Body:
    return tuple(ir.rewritten(stmt, lambda each: _expr(each, names)) for stmt in body)


# Equal values.


def shared(body: Body) -> Body:
    """What is bound twice is bound once; a load under fewer conditions serves those under more."""
    sharing = _Sharing()
    body = sharing.body(body, [])
    return _renamed(body, sharing.names)


@dataclass(slots=True)
class _Known:
    """What is bound in a body so far: values, and the loads of each element with where they stand."""

    stmts: list[Stmt] = field(default_factory=list)
    values: dict[Expr, Var] = field(default_factory=dict)
    loads: dict[Load, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Sharing:
    """`names`: what was found equal -> what it is now."""

    names: Renaming = field(default_factory=dict)

    def body(self, body: Body, around: list[_Known]) -> Body:
        """A body, given what is known around it."""
        here = _Known()
        for stmt in body:
            self._add(stmt, [*around, here])
        return tuple(here.stmts)

    def _add(self, stmt: Stmt, chain: list[_Known]) -> None:
        here = chain[-1]
        match stmt:
            case Bind():
                self._bind(replace(stmt, value=self._now(stmt.value)), chain)
            case Loop():
                extent, inner = self._now(stmt.extent), self.body(stmt.body, chain)
                carried = self._carried(stmt.carried)
                here.stmts.append(replace(stmt, extent=extent, body=inner, carried=carried))
            case Branch():
                then, other = self.body(stmt.then, chain), self.body(stmt.other, chain)
                merged = self._merged(stmt.merged)
                here.stmts.append(Branch(self._now(stmt.cond), then, other, merged, stmt.note))
            case _:
                here.stmts.append(ir.rewritten(stmt, self._now))

    def _now(self, expr: Expr) -> Expr:
        while True:
            changed = _expr(expr, self.names)
            if changed == expr:
                return expr
            expr = changed

    def _bind(self, stmt: Bind, chain: list[_Known]) -> None:
        value, here = stmt.value, chain[-1]
        if isinstance(value, Load):
            place = replace(value, mask=())
            for known in reversed(chain):
                for at in known.loads.get(place, []):
                    if self._served(stmt, known, at, same=known is here):
                        return
            here.loads.setdefault(place, []).append(len(here.stmts))
        else:
            for known in reversed(chain):
                if value in known.values:
                    self.names[stmt.var.name] = known.values[value]
                    return
            here.values[value] = stmt.var
        here.stmts.append(stmt)

    def _served(self, stmt: Bind, known: _Known, at: int, *, same: bool) -> bool:
        """Whether a load that is there already can serve another one, perhaps under fewer conditions."""
        before = known.stmts[at]
        assert isinstance(before, Bind)
        one, two = before.value, stmt.value
        assert isinstance(one, Load)
        assert isinstance(two, Load)
        mask = one.mask
        if not set(one.mask) <= set(two.mask):
            if not same:
                return False
            if any(set(c.axes) - set(one.axes) for c in (*one.mask, *two.mask)):
                return False
            mask = _union(one.mask, two.mask, one.axes)
            bound = _names_bound(known.stmts[:at])
            names = {e.name for c in mask for e in ir.walk(c) if isinstance(e, Var)}
            inside = {e.name for c in one.mask for e in ir.walk(c) if isinstance(e, Var)}
            if not names <= bound | inside:
                return False
        note, var = before.note or stmt.note, before.var
        known.stmts[at] = Bind(var, replace(one, mask=mask), note)
        self.names[stmt.var.name] = var
        return True

    def _merged(self, merged: tuple[Merged, ...]) -> tuple[Merged, ...]:
        """Each once of what is merged alike."""
        kept: dict[tuple[Expr, Expr], Merged] = {}
        for each in merged:
            ends = self._now(each.then), self._now(each.other)
            if ends in kept:
                self.names[each.var.name] = kept[ends].var
            else:
                kept[ends] = Merged(each.var, *ends)
        return tuple(kept.values())

    def _carried(self, carried: tuple[Carried, ...]) -> tuple[Carried, ...]:
        """Each once of what is carried alike."""
        kept: list[Carried] = []
        for each in carried:
            then = self._now(each.then)
            twin = next(
                (
                    k
                    for k in kept
                    if k.start == each.start and _expr(then, {each.var.name: k.var}) == k.then
                ),
                None,
            )
            if twin is not None:
                self.names[each.var.name] = twin.var
            else:
                kept.append(replace(each, then=then))
        return tuple(kept)


def _union(one: tuple[Expr, ...], two: tuple[Expr, ...], axes: Axes) -> tuple[Expr, ...]:
    """The conditions of a mask that holds where either of two does; `axes` has all of theirs, in order."""
    both = tuple(cond for cond in one if cond in two)
    rests = [[cond for cond in mask if cond not in both] for mask in (one, two)]
    if not all(rests) or (
        [_opposite(cond) for cond in rests[0]] == rests[1] and len(rests[0]) == 1
    ):
        return both
    sides = [_folded("and", rest, axes) for rest in rests]
    return (*both, _folded("or", sides, axes))


def _opposite(cond: Expr) -> Expr:
    match cond:
        case Op("not", (arg,)):
            return arg
    return Op("not", (cond,), "bool", cond.axes)


def _folded(op: str, conds: list[Expr], axes: Axes) -> Expr:
    total = conds[0]
    for cond in conds[1:]:
        own = tuple(axis for axis in axes if axis in total.axes or axis in cond.axes)
        total = Op(op, (total, cond), "bool", own)
    return total


# Programs that have nothing to do.


def leaving_early(body: Body) -> Body:
    """A program whose stores all want what does not hold does nothing else: it does not load.

    Only for conditions that are known without a load of the program's own, which would be waited for.
    """
    stores = [stmt for stmt in ir.every(body) if isinstance(stmt, Store)]
    common = [c for c in stores[0].mask if all(c in s.mask for s in stores)] if stores else []
    made = {var.name: stmt for stmt in body for var in ir.bound(stmt)}
    needed: dict[int, Stmt] = {}
    conditions = []
    for cond in common:
        own = _made_of(cond, made)
        if not cond.axes and own is not None and not _is_program(cond):
            conditions.append(cond)
            needed |= {id(stmt): stmt for stmt in own}
    if not conditions:
        return body
    head = tuple(stmt for stmt in body if id(stmt) in needed)
    rest = tuple(stmt for stmt in body if id(stmt) not in needed)
    rest = tuple(_without(stmt, conditions) for stmt in rest)
    return (*head, Branch(_folded("and", conditions, ()), rest, ()))


def _is_program(cond: Expr) -> bool:
    """Whether a condition names one program, whose stores are masked and nothing else."""
    return any(isinstance(each, Program) for each in ir.walk(cond))


def _made_of(cond: Expr, made: dict[str, Stmt]) -> list[Stmt] | None:
    """The statements that a condition is made of; None if one loads what is the program's own."""
    found: dict[int, Stmt] = {}
    todo = [each.name for each in ir.walk(cond) if isinstance(each, Var)]
    while todo:
        name = todo.pop()
        if name not in made or id(made[name]) in found:
            continue
        stmt = made[name]
        found[id(stmt)] = stmt
        for inner in ir.every((stmt,)):
            if isinstance(inner, Loop):
                return None
            for value in ir.used(inner):
                if isinstance(value, Load) and (value.mask or value.axes or not _is_fixed(value)):
                    return None
        todo += _names_used(stmt)
    return list(found.values())


def _is_fixed(load: Load) -> bool:
    return all(isinstance(item, Num) for item in load.items) and load.chosen is None


def _without(stmt: Stmt, conditions: list[Expr]) -> Stmt:
    """A statement whose masks need some conditions no longer."""
    match stmt:
        case Store():
            return replace(stmt, mask=tuple(c for c in stmt.mask if c not in conditions))
        case Bind(_, Load() as load):
            mask = tuple(c for c in load.mask if c not in conditions)
            return replace(stmt, value=replace(load, mask=mask))
        case Loop():
            return replace(stmt, body=tuple(_without(each, conditions) for each in stmt.body))
        case Branch():
            then = tuple(_without(each, conditions) for each in stmt.then)
            other = tuple(_without(each, conditions) for each in stmt.other)
            return replace(stmt, then=then, other=other)
    return stmt


# Barriers.


def with_barriers(body: Body) -> Body:
    """A barrier before the first store to each tensor that has been loaded from."""
    return _barred(body, set())[0]


def _barred(body: Body, pending: set[str]) -> tuple[Body, set[str]]:
    """A body with its barriers; `pending`: tensors loaded from since the last one, before it and after."""
    found: list[Stmt] = []
    for at, stmt in enumerate(body):
        stored = _stored((stmt,))
        if stored & pending:
            found.append(Barrier(tuple(sorted(pending & _stored(body[at:])))))
            pending = set()
        match stmt:
            case Loop() if stored:  # a turn follows what the one before has loaded
                inner, left = _barred(stmt.body, pending | _loaded(stmt.body))
                pending = pending | left  # there may be no turn, and so no barrier in one
                found.append(replace(stmt, body=inner))
            case Branch() if stored:
                then, one = _barred(stmt.then, set(pending))
                other, two = _barred(stmt.other, set(pending))
                pending = one | two
                found.append(replace(stmt, then=then, other=other))
            case _:
                pending = pending | _loaded((stmt,))
                found.append(stmt)
    return tuple(found), pending


def _stored(body: Body) -> set[str]:
    return {stmt.tensor for stmt in ir.every(body) if isinstance(stmt, Store)}


# Dead code.


def without_dead_code(body: Body) -> Body:
    """The statements that something with an effect depends on."""
    return _alive(body, set())[0]


def _alive(body: Body, wanted: set[str]) -> tuple[Body, set[str]]:
    """The statements that a body's effects and some variables need; and the variables that these use."""
    kept: list[Stmt] = []
    for stmt in reversed(body):
        needed = _needed(stmt, wanted)
        if needed is not None:
            kept.append(needed)
            wanted = (wanted - _names_bound((stmt,))) | _names_used(needed)
    return tuple(reversed(kept)), wanted


def _needed(stmt: Stmt, wanted: set[str]) -> Stmt | None:
    """What of a statement is needed."""
    match stmt:
        case Bind():
            return stmt if stmt.var.name in wanted else None
        case Loop():
            return _needed_loop(stmt, wanted)
        case Branch():
            merged = tuple(m for m in stmt.merged if m.var.name in wanted)
            then, _ = _alive(stmt.then, {*_named_in(m.then for m in merged)})
            other, _ = _alive(stmt.other, {*_named_in(m.other for m in merged)})
            left = replace(stmt, then=then, other=other, merged=merged)
            return left if then or other or merged else None
    return stmt


def _needed_loop(loop: Loop, wanted: set[str]) -> Loop | None:
    names = {c.var.name for c in loop.carried if c.var.name in wanted}
    while True:
        ends = {*_named_in(c.then for c in loop.carried if c.var.name in names)}
        body, used = _alive(loop.body, ends)
        more = {c.var.name for c in loop.carried if c.var.name in used | ends} - names
        if not more:
            break
        names |= more
    carried = tuple(c for c in loop.carried if c.var.name in names)
    return replace(loop, carried=carried, body=body) if body or carried else None


def _named_in(exprs: Iterable[Expr]) -> Iterable[str]:
    return (each.name for expr in exprs for each in ir.walk(expr) if isinstance(each, Var))


# Names.


def named(kernel: Kernel, taken: Iterable[str]) -> Kernel:
    """The kernel with a name for each variable that nothing else has: first those that the spec gives."""
    used = set(taken)
    names: Renaming = {}
    every = [stmt for role in kernel.roles for stmt in ir.every(role.body)]
    bound = [(var, _is_spoken(stmt)) for stmt in every for var in _bound_by(stmt)]
    for spoken in (True, False):
        for var, its in bound:
            if its == spoken and var.name not in names:
                names[var.name] = replace(var, name=fresh(var.name.partition(".")[0], used))

    def change(expr: Expr) -> Expr:
        return _expr(expr, names)

    def bind(var: Var) -> Var:
        found = names[var.name]
        assert isinstance(found, Var)
        return found

    roles = tuple(
        replace(role, body=tuple(ir.rewritten(stmt, change, bind) for stmt in role.body))
        for role in kernel.roles
    )
    return replace(kernel, roles=roles)


def _is_spoken(stmt: Stmt) -> bool:
    """Whether what a statement binds has a name in the spec."""
    match stmt:
        case Bind():
            return bool(stmt.note or stmt.index)
        case Branch():
            return bool(stmt.note)
    return False


def _bound_by(stmt: Stmt) -> tuple[Var, ...]:
    return (stmt.start, *ir.bound(stmt)) if isinstance(stmt, Loop) else ir.bound(stmt)
