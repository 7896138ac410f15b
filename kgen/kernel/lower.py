"""From a plan to a kernel: what each program computes, every value in the outermost place that can hold it.

In: a `Plan`. Out: a `Kernel` whose loads come before its stores, without barriers. Decides nothing that the
plan or what is proved does not say: a load's mask is the axes that it varies with and the guards that it
needs; `watched`: all that the spec has around it, for debug mode.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass, replace

from kgen.kernel import ir
from kgen.kernel.bodies import Body, free
from kgen.kernel.indices import Indices, cast, host
from kgen.kernel.ir import (
    Axes,
    Bind,
    Branch,
    Carried,
    Chosen,
    Expr,
    Kernel,
    Load,
    Loop,
    Merged,
    Num,
    Program,
    Reduce,
    Scan,
    Select,
    Spread,
    Stmt,
    Store,
    Var,
)
from kgen.lang import typed
from kgen.lang.dtypes import FLOATS, LIMITS, LITERALS, DType, own_type
from kgen.lang.typed import Value, walk
from kgen.plan.plan import Plan
from kgen.prove.contexts import Exists, Guards, guards_of, joined, launched, split, within

_LONG = 8  # parts of what is combined beyond which it gets a name


def lower(plan: Plan, *, watched: bool = False) -> Kernel:
    """The kernel of a plan."""
    names: set[str] = set()
    roles = tuple(_Role(names, plan, role, watched).lowered() for role in plan.roles)
    return Kernel(f"{plan.group.name}_kernel", plan.group.summary, roles)


@dataclass(slots=True)
class _Values(Indices):
    """The values of one role: what is loaded, chosen and combined for its stores."""

    watched: bool
    first: bool = False  # whether what is lowered is done by the first program only

    # Values.

    def value(self, value: Value, guards: Guards, scope: Body) -> Expr:
        """A value; what it loads, reduces or names is bound first."""
        match value:
            case typed.Const() | typed.Param() | typed.Given():
                return host(self.plan.proved, value)
            case typed.Index(name):
                return cast(scope.lanes(name), "i64")
            case typed.Ref(name):
                return self._let(name, guards, scope)
            case typed.Load():
                return self._load(value, guards, scope)
            case typed.Cast(arg, dtype):
                return cast(self.value(arg, guards, scope), dtype)
            case typed.Select():
                return self._select(value, guards, scope)
            case typed.Reduce():
                return self._reduced(value, guards, scope)
            case typed.Scan():
                return self._scanned(value, guards, scope)
            case typed.Op(op, args, dtype):
                parts = [self.value(arg, guards, scope) for arg in args]
                down = value in self.plan.proved.down or dtype == "int"
                return self.op(op, *parts, dtype=dtype, rounds="down" if down else "zero")

    def _typed(self, value: Value, guards: Guards, scope: Body) -> Expr:
        """A value that is not a compile-time number."""
        found = self.value(value, guards, scope)
        return cast(found, own_type(value.dtype)) if found.dtype in LITERALS else found

    def _let(self, name: str, guards: Guards, scope: Body) -> Expr:
        let = self.group.lets[name]
        variant = self.plan.proved.contexts.variant(name, guards)
        needs = self._needs_of_let(name, variant)
        key = ("let", name, needs, self._once(let.value))
        known = scope.find(key, let.value.axes)
        if known is not None:
            return known
        before = len(self.scopes)
        value = self._typed(let.value, variant, scope)
        note = f"{name}: {let.text}"
        if isinstance(value, Var):
            home = self.scopes[value.name]
            new = (
                value.name in [*self.scopes][before:]
            )  # one that was there is in use under its name
            home.known[key] = self._called(value, name, note, home) if new else value
        else:
            home = self.home(value, scope)
            home.known[key] = self.bind(name, value, home, note)
        return home.known[key]

    def _called(self, var: Var, name: str, note: str, home: Body) -> Var:
        """A variable under the name of a let, if it was bound for it; else as it is."""
        last = home.stmts[-1] if home.stmts else None
        new = self.fresh(name, var.dtype, var.axes, home)
        match last:
            case Bind(bound, value, "") if bound == var:
                home.stmts[-1] = Bind(new, value, note)
            case Branch(merged=(Merged() as merged,), note="") if merged.var == var:
                home.stmts[-1] = replace(last, merged=(replace(merged, var=new),), note=note)
            case _:
                return var
        for known, expr in [*home.known.items()]:
            if expr == var:
                home.known[known] = new
        return new

    def _needs_of_let(self, name: str, guards: Guards) -> Hashable:
        """What tells the variants of a let apart."""
        return guards if self.watched else self.plan.proved.needs.of_let(name, guards)

    def _once(self, value: Value) -> bool:
        """Whether a value is another one in the first program than what other stores make of it."""
        if not self.first:
            return False
        written = {store.tensor for store in self.group.stores}
        loads = (e for e in walk(value, self.group.lets) if isinstance(e, typed.Load))
        return any(load.tensor in written for load in loads)

    # Loads and their masks.

    def _load(self, load: typed.Load, guards: Guards, scope: Body) -> Expr:
        needed = guards if self.watched else self.plan.proved.needs.of_load(load, guards)
        once = self._once(load)
        key = ("load", load, needed, once)
        known = scope.find(key, load.axes)
        if known is not None:
            return known
        items = tuple(self.value(item, guards, scope) for item in load.items)
        own = self.ordered(frozenset(axis for item in items for axis in item.axes))
        exist = [cond.index for cond, _ in needed if isinstance(cond, Exists)]
        conditions = self._guards(
            tuple(guard for guard in needed if not isinstance(guard[0], Exists)), guards, scope
        )
        if once:
            conditions.append(self.op("eq", Program(), Num(0, "i32")))
        chosen, items = self._choose(load.tensor, items, scope)
        mask = self._mask(own, conditions, scope)
        forced = self._chosen_scope(needed, guards, load, scope)
        found = Load(load.tensor, chosen, items, _each(mask), load.dtype, own)
        home = self.home(found, scope, forced)
        # Outside the loop over an index nothing says that it has a value.
        mask += [c for index in exist if index not in own for c in self.exists(index, home)]
        found = replace(found, mask=_each(mask))
        home.known[key] = self.bind(f"{load.tensor}_value", found, home)
        return home.known[key]

    def _choose(
        self, tensor: str, items: tuple[Expr, ...], scope: Body
    ) -> tuple[Expr | None, tuple[Expr, ...]]:
        """Which tensor of a list is meant, and the indices in it."""
        if self.group.tensors[tensor].length is None:
            return None, items
        key = ("chosen", tensor, items[0])
        known = scope.find(key, items[0].axes)
        if known is None:
            at = items[0]
            chosen = Chosen(tensor, at, at.axes)
            home = self.home(chosen, scope)
            home.known[key] = known = self.bind(f"{tensor}_chosen", chosen, home)
        return known, items[1:]

    def _mask(self, own: Axes, conditions: list[Expr], scope: Body) -> list[Expr]:
        """The mask of a load that varies with `own`; what varies with more holds for any lane of that."""
        mask = [self.inside(index, scope) for index in own]
        wide = [cond for cond in conditions if set(cond.axes) - set(own)]
        mask += [cond for cond in conditions if cond not in wide]
        if not wide:
            return mask
        extra = self.ordered(frozenset(axis for cond in wide for axis in cond.axes) - {*own})
        total = self.every(wide)
        for axis in reversed(extra):
            left = tuple(each for each in total.axes if each != axis)
            inside = (self.inside(axis, scope),)
            some = Reduce("any", axis, total, inside, "bool", left)
            total = self.bind(f"any_{axis}", some, self.home(some, scope))
        return [*mask, total]

    def _guards(self, guards: Guards, known: Guards, scope: Body) -> list[Expr]:
        """Guards as conditions, those left out that hold wherever the program is."""
        found: list[Expr] = []
        always = {*launched(self.group), *(g for each in scope.chain() for g in each.chosen)}
        for guard in guards:
            cond, positive = guard
            if isinstance(cond, Exists):
                found += self.exists(cond.index, scope)
            elif guard not in always:
                # A condition that guards something is there already, wherever it was met first.
                test = scope.find(("condition", cond), cond.axes)
                if test is None:
                    before = known[: known.index(guard)] if guard in known else known
                    test = self.value(cond, before, scope)
                found.append(test if positive else self.op("not", test))
        return found

    def _chosen_scope(
        self, needed: Guards, guards: Guards, load: typed.Load, scope: Body
    ) -> Body | None:
        """The side of a branch that a load must stay in: where a needed choice of compile time was made."""
        optional = self.group.tensors[load.tensor].optional
        wanted = {g for g in needed if not isinstance(g[0], Exists) and _compile_time(g[0])}
        if optional:
            wanted |= {g for g in guards if g[0] == typed.Given(load.tensor)}
        return next((each for each in scope.chain() if wanted & {*each.chosen}), None)

    # Choices.

    def _select(self, value: typed.Select, guards: Guards, scope: Body) -> Expr:
        cond = value.cond
        yes = joined(guards, split(self.group, cond, positive=True))
        no = joined(guards, split(self.group, cond, positive=False))
        if _compile_time(cond):
            return self._branch(value, yes, no, guards, scope)
        test = self.value(cond, guards, scope)
        for guard in split(self.group, cond, positive=True):
            if guard[0] == cond and guard[1]:
                scope.known.setdefault(("condition", cond), test)
        then, other = self._typed(value.then, yes, scope), self._typed(value.other, no, scope)
        axes = self.spanned(test, then, other)
        return Select(test, then, other, value.dtype, axes)

    def _branch(
        self, value: typed.Select, yes: Guards, no: Guards, guards: Guards, scope: Body
    ) -> Expr:
        """A choice of compile time: only the side that is taken is compiled."""
        key = ("branch", value, self._needs(value, guards), self._once(value))
        known = scope.find(key, value.axes)
        if known is not None:
            return known
        test = self.value(value.cond, guards, scope)
        sides: list[tuple[Body, Expr]] = []
        for arm, inner_guards, positive in ((value.then, yes, True), (value.other, no, False)):
            taken = test if positive else self.op("not", test)
            inner = scope.side(taken, split(self.group, value.cond, positive=positive))
            sides.append((inner, self._typed(arm, inner_guards, inner)))
        axes = self.ordered(frozenset(axis for _, expr in sides for axis in expr.axes))
        spread = [
            expr if expr.axes == axes else Spread(expr, expr.dtype, axes) for _, expr in sides
        ]
        bodies = [tuple(inner.stmts) for inner, _ in sides]
        outside = [var for inner, expr in sides for var in free((*inner.stmts,), (expr,))]
        home = self.home_of((*bodies[0], *bodies[1]), outside, scope)
        var = self.fresh("chosen", value.dtype, axes, home)
        home.stmts.append(Branch(test, bodies[0], bodies[1], (Merged(var, spread[0], spread[1]),)))
        home.known[key] = var
        return var

    # Reductions and scans.

    def _reduced(self, value: typed.Reduce, guards: Guards, scope: Body) -> Expr:
        index, kind = value.index, value.kind
        inner_guards = joined(within(guards, index), ((Exists(index), True),))
        if kind == "first":
            return self._first(value, guards, scope)
        needs = self._needs(value.arg, inner_guards)
        key = ("reduce", value, needs, self._once(value))
        known = scope.find(key, value.axes)
        if known is not None:
            return known
        whole = "tree" if value.dtype in FLOATS else kind
        found = self._combined(whole, index, value.arg, inner_guards, scope)
        self._remember(key, found)
        return found

    def _first(self, value: typed.Reduce, guards: Guards, scope: Body) -> Expr:
        """The least place where a condition holds, apart from the fallback, whose indices are free."""
        assert value.none is not None
        inner_guards = joined(within(guards, value.index), ((Exists(value.index), True),))
        key = (
            "first",
            value.arg,
            value.index,
            self._needs(value.arg, inner_guards),
            self._once(value),
        )
        found = scope.find(key, value.arg.axes - {value.index})
        if found is None:
            found = self._combined("min", value.index, value.arg, inner_guards, scope, place=True)
            self._remember(key, found)
        none = self._typed(value.none, guards, scope)
        missing = self.op("eq", found, Num(LIMITS["i64"][1], "int"))
        axes = self.spanned(found, none)
        return Select(missing, none, found, "i64", axes)

    def _needs(self, value: Value, guards: Guards) -> Hashable:
        return guards if self.watched else self.plan.proved.needs.of(value, guards)

    def _remember(self, key: Hashable, found: Expr) -> None:
        assert isinstance(found, Var)
        self.scopes[found.name].known[key] = found

    def _combined(
        self,
        kind: str,
        index: str,
        arg: Value,
        guards: Guards,
        scope: Body,
        *,
        place: bool = False,
    ) -> Expr:
        """What an index's values combine to; with `place` those of the index itself where `arg` holds."""
        hint = f"{'first' if place else 'sum' if kind == 'tree' else kind}_{index}"
        if self.role.axes[index].kind != "loop":
            each, mask = self._each_of(index, arg, guards, scope, place=place)
            axes = tuple(axis for axis in self.spanned(each, *mask) if axis != index)
            found = Reduce(kind, index, each, mask, each.dtype, axes)
            return self.bind(hint, found, self.home(found, scope))
        inner, start = self.opened(index, scope)
        each, mask = self._each_of(index, arg, guards, inner, place=place)
        neutral, axes = _neutral(kind, each.dtype), self.spanned(each, *mask)
        taken = Select(self.every(mask), each, neutral, each.dtype, axes)
        op = {"sum": "add", "any": "or", "all": "and"}.get(kind, kind)
        total = self.fresh(f"{hint}_lanes", each.dtype, axes, inner)
        then = self.op(op, total, taken, dtype=each.dtype)
        inner.carried.append(Carried(total, Spread(neutral, each.dtype, axes), then))
        loop = self.closed(index, start, inner, [])
        home = self.home_of(loop.body, free((loop,), ()), scope)
        home.stmts.append(loop)
        for carried in loop.carried:
            self.scopes[carried.var.name] = home
        left = tuple(axis for axis in axes if axis != index)
        found = Reduce(kind, index, total, (), each.dtype, left)
        return self.bind(hint, found, self.home(found, scope))

    def _each_of(
        self, index: str, arg: Value, guards: Guards, scope: Body, *, place: bool = False
    ) -> tuple[Expr, tuple[Expr, ...]]:
        """What is combined, along the index even if it does not vary with it, and where."""
        each, inside = self._typed(arg, guards, scope), self.inside(index, scope)
        if sum(1 for _ in ir.walk(each)) > _LONG:
            each = self.bind(f"each_{index}", each, self.home(each, scope))
        if place:
            return cast(scope.lanes(index), "i64"), (inside, each)
        if index not in each.axes:
            each = Spread(each, each.dtype, self.ordered({*each.axes, index}))
        return each, (inside,)

    def _each_turn(
        self, kind: str, arg: Value, guards: Guards, turn: Body, scope: Body
    ) -> tuple[Expr, tuple[Expr, ...]]:
        """What is scanned in a turn; where a branch around it is not taken, what changes nothing."""
        around = [*itertools.takewhile(lambda body: body is not turn, scope.chain())]
        tests = [body.test for body in around if body.test is not None]
        if not tests:
            return self._each_of(turn.axis, arg, guards, scope)
        test = self.every(tests)
        side = turn.side(test, tuple(guard for body in around for guard in body.chosen))
        each, mask = self._each_of(turn.axis, arg, guards, side)
        var = self.fresh("scanned", each.dtype, each.axes, turn)
        neutral = Num(0 if kind == "cumsum" else 1, each.dtype)
        merged = Merged(var, each, Spread(neutral, each.dtype, each.axes))
        turn.stmts.append(Branch(test, tuple(side.stmts), (), (merged,)))
        return var, mask

    def _scanned(self, value: typed.Scan, guards: Guards, scope: Body) -> Expr:
        index, kind = value.index, value.kind
        inner_guards = within(guards, index)
        key = ("scan", value, self._needs(value.arg, inner_guards), self._once(value))
        known = scope.find(key, value.axes)
        if known is not None:
            return known
        if self.role.axes[index].kind == "loop":
            # Each turn adds to the running total, so nothing of it may be in a branch within the turn.
            turn = next(body for body in scope.chain() if body.axis)
            assert turn.axis == index, "a scan runs along the innermost loop"
            each, mask = self._each_turn(kind, value.arg, inner_guards, turn, scope)
        else:
            each, mask = self._each_of(index, value.arg, inner_guards, scope)
        scanned = Scan(kind, index, each, mask, "i64", each.axes)
        found = self.bind(f"{kind}_{index}", scanned, self.home(scanned, scope))
        if self.role.axes[index].kind == "loop":
            # The running total enters each turn of the loop and leaves it with the turn's own added.
            left = tuple(axis for axis in each.axes if axis != index)
            op, neutral = ("add", 0) if kind == "cumsum" else ("mul", 1)
            total = self.fresh(f"{kind}_{index}_total", "i64", left, turn)
            taken = Select(mask[0], each, Num(neutral, "i64"), "i64", each.axes)
            name = "sum" if kind == "cumsum" else "product"
            whole = self.bind(f"{name}_{index}", Reduce(name, index, taken, (), "i64", left), turn)
            then = self.op(op, total, whole, dtype="i64")
            turn.carried.append(Carried(total, Spread(Num(neutral, "i64"), "i64", left), then))
            found = self.bind(f"{kind}_{index}", self.op(op, total, found, dtype="i64"), turn)
            side = next(body for body in scope.chain() if body is turn or body.test is not None)
            if side is not turn:  # only there it is what was asked for
                found = self.bind(f"{kind}_{index}", found, side)
        self._remember(key, found)
        return found


@dataclass(slots=True)
class _Role(_Values):
    """The lowering of one role: its programs, its blocks and its stores."""

    def lowered(self) -> ir.Role:
        """The role's body."""
        root = Body(None, 0)
        axes = tuple(self.axis(each.index) for each in self.role.axes.values())
        self.order = tuple(axis.index for axis in axes if axis.kind != "row")
        programs = self.lay(axes, root)
        stores: list[Stmt] = []
        looped: dict[tuple[str, ...], list[typed.Store]] = {}
        for store in (*self.role.stores, *self.role.once):
            loops = self.role.loops(self.group, store)
            if loops:
                looped.setdefault(loops, []).append(store)
        loops_ = [self._store_loop(over, group, root) for over, group in looped.items()]
        for store in (*self.role.stores, *self.role.once):
            if not self.role.loops(self.group, store):
                stores.append(self._store(store, root))
        return ir.Role(axes, programs, (*root.stmts, *loops_, *stores))

    def _store(self, store: typed.Store, scope: Body) -> Store:
        self.first = store in self.role.once and bool(self.role.program)
        outer, inner = (guards_of(self.group, store, inside=each) for each in (False, True))
        when = split(self.group, store.when, positive=True) if store.when is not None else ()
        conditions = self._guards(when, outer, scope)
        value = self._typed(store.value, inner, scope)
        items = tuple(self.value(item, inner, scope) for item in store.items)
        chosen, items = self._choose(store.tensor, items, scope)
        axes = self.ordered(store.axes)
        mask = [self.inside(index, scope) for index in axes] + conditions
        if self.first:
            mask.append(self.op("eq", Program(), Num(0, "i32")))
        self.first = False
        note = f"{store.target_text}: {store.value_text}"
        return Store(store.tensor, chosen, items, value, _each(mask), axes, note)

    def _store_loop(self, over: tuple[str, ...], stores: list[typed.Store], scope: Body) -> Loop:
        """The stores that go through the same loops."""
        inner, start = self.opened(over[0], scope, stays=True)
        body: list[Stmt] = []
        if len(over) > 1:
            body.append(self._store_loop(over[1:], stores, inner))
        else:
            body += [self._store(store, inner) for store in stores]
        return self.closed(over[0], start, inner, body)


def _each(mask: list[Expr]) -> tuple[Expr, ...]:
    """The conditions of a mask, each once."""
    return tuple(dict.fromkeys(mask))


def _neutral(kind: str, dtype: DType) -> Num:
    """What changes nothing where it is combined."""
    low, high = LIMITS.get(dtype, (0, 0))
    values = {"sum": 0, "any": 0, "all": 1, "min": high, "max": low}
    return Num(values[kind], dtype)


def _compile_time(value: Value) -> bool:
    """Whether a value is known when the kernel is compiled."""
    match value:
        case typed.Const() | typed.Given():
            return True
        case typed.Param(_, dtype):
            return dtype in LITERALS
        case typed.Op(_, args):
            return all(map(_compile_time, args))
    return False
