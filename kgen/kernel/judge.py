"""Whether a kernel keeps to its tensors: what was proved of the spec, shown of what will run.

In: a finished kernel and the group that it is of. Out: nothing, or `UnsafeError`: a fault of kgen, which no
spec should cause. It shares no code with what makes kernels; it reads them back (`raised.py`) and shows

- that each load and store, under the mask that it has and for every lane that is active, is in its tensor,
  at every legal size, and that a tensor that may be left out is used only where it is given;
- that programs, lanes and turns go through all values of the indices of each store once, and that the
  kernel stores where the spec does, under the spec's conditions, no more and no less. That no two points of
  the spec store to one place, and that all places of an `out` tensor are stored to, is proved of the spec;
- that no program reads what another one stores, no turn of a loop what an earlier one stored, and that in
  each program a barrier stands between loads and the stores to the same tensor that follow.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeAlias

from kgen.kernel import ir
from kgen.kernel.form import FormError, check_form
from kgen.kernel.ir import Expr, Kernel, Role, Stmt
from kgen.kernel.lanes import Position, Where
from kgen.kernel.raised import Raised
from kgen.lang.dtypes import LIMITS
from kgen.lang.text import spec_text
from kgen.lang.typed import NOWHERE, Axes, Group, Load, Store
from kgen.prove.atoms import (
    ONE,
    TRUE,
    All,
    Condition,
    Flag,
    Holds,
    Not,
    Some,
    add,
    at_least,
    const,
    multiply,
    opposite,
)
from kgen.prove.contexts import Exists, Guards, guards_of, launched
from kgen.prove.numbers import Facts
from kgen.prove.obligations import Obligation
from kgen.prove.places import Places
from kgen.prove.prove import Believed
from kgen.prove.reading import Reading
from kgen.prove.solver import Question


class UnsafeError(Exception):
    """A kernel of which something is not shown that has to be. A fault of kgen, not of the spec."""


Loops: TypeAlias = tuple[
    tuple[str, str], ...
]  # around a statement: the variable and the axis of each


@dataclass(frozen=True, slots=True)
class _Access:
    """A load or a store: of which place, in which loops, and whether only the first program does it."""

    tensor: str
    place: Load
    loops: Loops
    first: bool


def judge(kernel: Kernel, group: Group, notes: Container[str] = ()) -> None:
    """Raise `UnsafeError` unless a kernel is shown to be what its group says.

    `notes`: tensors in which a check keeps what it finds; it may store to any place of theirs.
    """
    try:
        check_form(kernel, {tensor.name: tensor.dtype for tensor in group.tensors.values()})
    except FormError as error:
        raise UnsafeError(f"{kernel.name}: {error}") from error
    reading, widths = Reading(group), dict[str, object]()
    for axis in (axis for role in kernel.roles for axis in role.axes):
        size = (
            (axis.least, axis.tile) if axis.tile else frozenset(reading.extent(axis.index).items())
        )
        if axis.width is not None and widths.setdefault(axis.width.name, size) != size:
            raise UnsafeError(f"{kernel.name}: {axis.width.name} has two sizes")
    roles = [_Judge(kernel, group, number, notes) for number in range(len(kernel.roles))]
    for role in roles:
        role.judge()
    for tensor in {access.tensor for role in roles for access in role.stores}:
        for one in roles:
            for other in roles:
                if one is not other and _of(tensor, one.stores) and _of(tensor, other.loads):
                    raise UnsafeError(
                        f"{kernel.name}: programs of one kind store to `{tensor}`, others read it"
                    )
    met = [store for role in roles for store in role.met]
    for store in group.stores:
        if met.count(store.span) != 1:
            raise UnsafeError(
                f"{kernel.name}: `{store.target_text}` is stored {met.count(store.span)} times"
            )


def _of(tensor: str, accesses: list[_Access]) -> list[_Access]:
    return [access for access in accesses if access.tensor == tensor]


@dataclass(slots=True)
class _Judge:
    """The judgement of one role."""

    kernel: Kernel
    declared: Group
    number: int
    notes: Container[str]
    raised: Raised = field(init=False)
    believed: Believed = field(init=False)
    always: list[Condition] = field(default_factory=list)
    loads: list[_Access] = field(default_factory=list)
    stores: list[_Access] = field(default_factory=list)
    met: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.raised = Raised(self.role, self.declared)
        self.believed = Believed(self.raised.group)

    @property
    def role(self) -> Role:
        """The role."""
        return self.kernel.roles[self.number]

    @property
    def group(self) -> Group:
        """The group with what is raised beside its own lets."""
        return self.raised.group

    def judge(self) -> None:
        """Raise `UnsafeError` unless the role is safe."""
        self._axes()
        reading = self.raised.reading
        self.always = [reading.holds(guard) for guard in launched(self.declared)]
        self.always += [at_least(reading.extent(axis.index), ONE) for axis in self.role.program]
        self._body(self.role.body, Where(), (), set(), set())
        for store in self.stores:
            for load in _of(store.tensor, self.loads):
                self._apart(store, load)

    def _fail(self, what: str) -> UnsafeError:
        return UnsafeError(f"{self.kernel.name} of {self.declared.file}: {what}")

    # The axes.

    def _axes(self) -> None:
        """That programs and lanes are as many as the indices have values."""
        raised, counts = self.raised, _factors(self.role.programs)
        for axis in self.role.axes:
            if raised.poly(axis.extent) != raised.reading.extent(axis.index):
                raise self._fail(f"`{axis.index}` does not go through its extent")
            tile, tiled = axis.tile or 0, axis.kind in ("tile", "loop")
            least = tile if axis.least is None else axis.least
            power = 0 < least <= tile and not tile & (tile - 1)
            if not (power if tiled else not tile or (axis.kind, tile) == ("row", 1)):
                raise self._fail(f"a block of `{axis.index}` does not have the size that it needs")
        found = reduce(multiply, (raised.poly(_uncast(count)) for count in counts), ONE)
        if found != reduce(multiply, map(raised.programs, self.role.program), ONE):
            raise self._fail("the programs are not as many as the values of their indices")

    # The body.

    def _body(
        self,
        body: tuple[Stmt, ...],
        where: Where,
        loops: Loops,
        loaded: set[str],
        stored: set[str],
    ) -> None:
        """Judge a body; `loaded`: tensors loaded from since the last barrier, `stored`: those stored to."""
        for stmt in body:
            match stmt:
                case ir.Bind(_, ir.Load() as load):
                    if self.group.tensors[load.tensor].mode == "out":
                        raise self._fail(f"`{load.tensor}` holds nothing before the launch")
                    if load.tensor in stored:
                        raise self._fail(f"`{load.tensor}` is loaded from after it was stored to")
                    loaded.add(load.tensor)
                    self.loads.append(self._access(load, where, loops))
                case ir.Store():
                    if stmt.tensor in loaded:
                        raise self._fail(
                            f"no barrier between loads from `{stmt.tensor}` and a store"
                        )
                    stored.add(stmt.tensor)
                    access = self._access(stmt, where, loops)
                    if stmt.tensor not in self.notes:
                        self.stores.append(access)
                        self.met.append(self._matched(stmt, access, where).span)
                case ir.Barrier():
                    loaded.clear()
                case ir.Loop():
                    self._loop(stmt, where, loops, loaded, stored)
                case ir.Branch(cond, then, other):
                    ends = []
                    for side, positive in ((then, True), (other, False)):
                        more = where.also(self.raised.literals((cond,), positive=positive))
                        state = (set(loaded), set(stored))
                        self._body(side, more, loops, *state)
                        ends.append(state)
                    loaded.clear()
                    loaded.update(*(state[0] for state in ends))
                    stored.update(*(state[1] for state in ends))

    def _loop(
        self,
        loop: ir.Loop,
        where: Where,
        loops: Loops,
        loaded: set[str],
        stored: set[str],
    ) -> None:
        raised, axis = self.raised, next(a for a in self.role.axes if a.index == loop.axis)
        whole = raised.poly(loop.extent) == raised.reading.extent(loop.axis)
        if axis.kind != "loop" or not whole or loop.step != axis.width:
            raise self._fail(f"a loop does not go through the values of `{loop.axis}`")
        last = raised.reading.ends(self.declared.extents[loop.axis])[1] + (axis.tile or 0)
        if last > LIMITS[loop.start.dtype][1]:
            raise self._fail(f"a loop over `{loop.axis}` may count past {loop.start.dtype}")
        # A turn follows the loads of the one before; what it may load of what that stored, see `_apart`.
        every, before = list(ir.every(loop.body)), set(loaded)
        loaded |= {
            s.value.tensor for s in every if isinstance(s, ir.Bind) and isinstance(s.value, ir.Load)
        }
        self.always.append(at_least(raised.reading.extent(loop.axis), ONE))
        inner = where.turning(Position(loop.axis, loop.start.name))
        self._body(loop.body, inner, (*loops, (loop.start.name, loop.axis)), loaded, stored)
        self.always.pop()
        loaded |= before  # there may be no turn, and so no barrier in one

    # Loads and stores.

    def _access(self, access: ir.Load | ir.Store, where: Where, loops: Loops) -> _Access:
        """Show that a load or a store is in its tensor."""
        raised, tensor = self.raised, self.group.tensors[access.tensor]
        here = where.also(raised.literals(access.mask))
        place = raised.place(access, where)
        facts = self._facts(here, place)
        given = not tensor.optional or facts.flags.get(Flag(("given", tensor.name))) is True
        if facts.impossible is None:
            if not given:
                raise self._fail(
                    f"`{spec_text(place)}` is used where `{tensor.name}` may be left out"
                )
            self._inside(place, facts, here)
        first = any(_is_first(cond) and positive for cond, positive in here.known)
        return _Access(access.tensor, place, loops, first)

    def _facts(self, where: Where, place: Load) -> Facts:
        reading = self.raised.reading
        conditions = [*self.always, *self.raised.facts(where), *reading.declared(place.items)]
        own = [index for index in sorted(place.axes) if index in self.declared.extents]
        conditions += [reading.last(index) for index in own]
        return reading.numbers.facts((condition, None) for condition in conditions)

    def _inside(self, place: Load, facts: Facts, where: Where) -> None:
        reading = self.raised.reading
        open_ = [goal for goal in reading.room(place) if reading.numbers.shows(goal, facts) is None]
        if not open_:
            return
        believed = Obligation("load", place, (), True, NOWHERE)
        if self.believed.reason(believed) is not None:
            return
        conditions = [*self.always, *self.raised.facts(where)]
        question = Question(reading.numbers, open_, conditions, reading.distinct())
        if question.shown() is not True:
            conditions_ = ", ".join(sorted(map(_shown, where.known))) or "nothing"
            raise self._fail(
                f"`{spec_text(place)}` is not shown to be in bounds where {conditions_}"
            )

    # What is stored.

    def _matched(self, store: ir.Store, access: _Access, where: Where) -> Store:
        """The store of the spec that a store of the kernel is."""
        reading, raised = self.raised.reading, self.raised
        here = where.also(raised.literals(store.mask))
        places = tuple(map(reading.place, access.place.items))
        why = "no store of the spec has this place"
        for its in self.declared.stores:
            if its.tensor != store.tensor or tuple(map(reading.place, its.items)) != places:
                continue
            why = self._differs(its, store, access, here)
            if not why:
                return its
        raise self._fail(f"`{spec_text(access.place)}` is stored to: {why}")

    def _differs(self, its: Store, store: ir.Store, access: _Access, here: Where) -> str:
        """Why a store of the kernel is not done at the very points of one of the spec; nothing if it is."""
        axes = {axis.index: axis for axis in self.role.axes}
        if not its.axes <= set(axes):
            return "not all of its indices are gone through"
        program = {axis.index for axis in self.role.program}
        if access.first:
            if program & its.axes or not self._launched():
                return "the first program does not do it all"
        elif not program <= its.axes:
            return "several programs do it"
        lanes = tuple(axis for axis in self.role.lanes if axis in its.axes)
        if store.axes != lanes or not set(lanes) <= self.raised.inside(here):
            return "lanes beyond the ends of its indices do it"
        looped = {index for index in its.axes if axes[index].kind == "loop"}
        if sorted(axis for _, axis in access.loops) != sorted(looped):
            return "it is not done once in each turn of its loops"
        return self._guarded(its, here)

    def _guarded(self, its: Store, here: Where) -> str:
        """Why the conditions of a store are not those of the spec; nothing if they are."""
        raised, reading = self.raised, self.raised.reading
        found: list[Condition] = []
        for cond, positive in sorted(here.known, key=str):
            implied = _is_first(cond) or here.at(raised.bounded_by(cond))
            if not (positive and implied):
                condition = reading.condition(raised.value(cond, here))
                found.append(condition if positive else opposite(condition))
        outer = guards_of(self.declared, its, inside=False)
        own = tuple(g for g in guards_of(self.declared, its, inside=True) if g not in outer)
        wanted = [reading.holds(guard) for guard in own]
        more = self._unmet(found, outer, wanted)
        if more is not None:
            return f"it also asks for {more}"
        less = self._unmet(wanted, outer, found)
        return f"it does not ask for {less}" if less is not None else ""

    def _unmet(
        self, goals: Iterable[Condition], outer: Guards, known: list[Condition]
    ) -> Condition | None:
        """A condition that does not hold where others do; None if all of them do."""
        reading = self.raised.reading
        parts = {part for condition in known for part in _parts(condition)}
        left = [p for goal in goals for p in _parts(goal) if p not in parts and p != TRUE]
        if not left:
            return None
        facts = [*self.always, *known, *(reading.holds(guard) for guard in outer)]
        values = tuple(cond for cond, _ in outer if not isinstance(cond, Exists))
        facts += reading.declared(values)
        shown = reading.numbers.facts((condition, None) for condition in facts)
        return next((part for part in left if not self._holds(part, shown)), None)

    def _holds(self, part: Condition, facts: Facts) -> bool:
        match part:
            case Holds(poly):
                return self.raised.reading.numbers.shows(dict(poly), facts) is not None
            case Flag():
                return facts.flags.get(part) is True
            case Not(flag):
                return facts.flags.get(flag) is False
            case All(parts):
                return all(self._holds(each, facts) for each in parts)
            case Some(parts):
                if any(self._holds(each, facts) for each in parts):
                    return True
                numbers = (
                    self.raised.reading.numbers
                )  # else it must be absurd that none of them holds
                none = numbers.facts([(opposite(part), None)], facts, 1)
                return numbers.shows(const(-1), none) is not None

    def _launched(self) -> bool:
        """Whether a launch has a first program."""
        reading = self.raised.reading
        when = reading.numbers.facts((reading.holds(g), None) for g in launched(self.declared))
        ends = [add(reading.extent(axis.index), ONE, -1) for axis in self.role.program]
        return all(reading.numbers.shows(end, when) is not None for end in ends)

    # Loads of what is stored.

    def _apart(self, store: _Access, load: _Access) -> None:
        """That what one program stores no other reads, nor a later turn of a loop."""
        reading = self.raised.reading
        pairs = [
            (reading.place(one), reading.place(other))
            for one, other in zip(store.place.items, load.place.items, strict=True)
        ]
        common = [one for one, two in zip(store.loops, load.loops, strict=False) if one == two]
        bound = {axis for _, axis in load.loops[len(common) :]}  # not those of the store
        shared = Places(reading).determined(tuple(a for a, b in pairs if a == b)) - bound
        program: Axes = frozenset(axis.index for axis in self.role.program)
        if not program <= shared and not (store.first and load.first):
            raise self._fail(
                f"`{spec_text(load.place)}` may be read after another program stored to it"
            )
        if not {axis for _, axis in common} <= shared:
            raise self._fail(
                f"`{spec_text(load.place)}` may be read after an earlier turn stored to it"
            )


def _factors(expr: Expr) -> list[Expr]:
    """What a number of programs is a product of."""
    match expr:
        case ir.Op("mul", (a, b)):
            return [*_factors(a), *_factors(b)]
        case ir.Num(1):
            return []
    return [expr]


def _uncast(expr: Expr) -> Expr:
    """A number of programs without the conversions that keep it: the launch checks it to be an i32."""
    while isinstance(expr, ir.Cast) and {expr.dtype, expr.arg.dtype} <= {"i32", "i64", "int"}:
        expr = expr.arg
    return expr


def _is_first(cond: Expr) -> bool:
    """Whether a condition says that this is the first program of its role."""
    match cond:
        case ir.Op("eq", (ir.Program(), ir.Num(0))):
            return True
    return False


def _parts(condition: Condition) -> tuple[Condition, ...]:
    return condition.parts if isinstance(condition, All) else (condition,)


def _shown(literal: tuple[Expr, bool]) -> str:
    cond, positive = literal
    return f"{'' if positive else 'not '}{cond}"
