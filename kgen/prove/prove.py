"""The proofs that a group needs before it is planned; what can't be shown is refused, with an example.

In: a typed group. Out: `Proved`, every fact beside the part of the group that it is about; or diagnostics.
Bounds by polynomials first, then small calls that would show it wrong, then z3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kgen.diagnostics import Example, Report, Span
from kgen.lang.code import prefix
from kgen.lang.dtypes import LIMITS, DType
from kgen.lang.operators import Interval
from kgen.lang.text import spec_text
from kgen.lang.typed import (
    NOWHERE,
    Cast,
    Group,
    Load,
    Op,
    Param,
    Reduce,
    Ref,
    Scan,
    Select,
    Store,
    Tensor,
    Trusted,
    Value,
    children,
    walk,
)
from kgen.prove.atoms import (
    ONE,
    TRUE,
    ZERO,
    Condition,
    Flag,
    Poly,
    add,
    at_least,
    const,
    either,
)
from kgen.prove.contexts import (
    Contexts,
    Exists,
    Guard,
    Guards,
    Place,
    contexts,
    guards_of,
    launched,
    parts,
)
from kgen.prove.counterexamples.search import broken, example, param_order, search, simplest
from kgen.prove.counterexamples.world import ImpossibleError, World
from kgen.prove.intervals import SIZE_LIMIT
from kgen.prove.numbers import Facts, Tag
from kgen.prove.obligations import Kind, Obligation, obligations
from kgen.prove.places import Laid, Undefined, check_places, check_races
from kgen.prove.ranges import check_ranges
from kgen.prove.reading import Reading, evaluated
from kgen.prove.refusals import refuse, written
from kgen.prove.solver import Model, Question

How = Literal["ranges", "guards", "trusted"]


@dataclass(frozen=True, slots=True)
class Proof:
    """Why a load or a store is inside its tensor, or a number in its type, as a page shows it.

    `how`: by declared ranges only, by the conditions in `because` that guard it, or by the reason there.
    """

    kind: Kind
    text: str
    how: How
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proved:
    """A group and what is shown of it.

    Attributes:
        group: the typed group.
        contexts: under which guards each let is evaluated.
        needs: the guards without which a load may leave its tensor.
        down: the quotients and remainders with an operand that may be negative: they are rounded down.
        ends: the least and the greatest value that each index's extent may have.
        launched: the indices that have a value whenever the group is launched.
        lengths: how many tensors each list has at most.
        laid: what programs may be laid over.
        undefined: the places that several points may own.
        wide: the run-time sizes that may be past 32 bits; they are derived from others.
        unkept: the stores that may leave in a tensor what its `values` say is not there.
        proofs: why each load and store is inside its tensor, for a reader.
    """

    group: Group
    contexts: Contexts
    needs: Needs
    down: frozenset[Value]
    ends: dict[str, Interval]
    launched: frozenset[str]
    lengths: dict[str, int]
    wide: frozenset[str]
    laid: Laid
    undefined: tuple[Undefined, ...]
    unkept: tuple[Store, ...]
    proofs: tuple[Proof, ...]

    def passed(self, name: str) -> DType:
        """The type as which a kernel takes a size or a scalar."""
        if name in self.group.static_names:
            return "int"
        if name in self.group.scalars:
            return self.group.scalars[name].dtype
        return "i64" if name in self.wide else "i32"


@dataclass(slots=True)
class Needs:
    """Which guards the loads of a group need.

    `loads`: for each load and the guards around it, those without which it may leave its tensor.
    """

    group: Group
    contexts: Contexts
    loads: dict[tuple[Load, Guards], Guards] = field(default_factory=dict)
    lets: dict[tuple[str, Guards], Guards] = field(default_factory=dict)

    def of(self, value: Value, guards: Guards) -> Guards:
        """Of some guards those that a load in a value needs."""
        found: set[Guard] = set()
        for part in parts(self.group, Place(value, guards, True, NOWHERE)):
            if isinstance(part.value, Load):
                found |= set(self.of_load(part.value, part.guards))
            elif isinstance(part.value, Ref):
                found |= set(self.of_let(part.value.name, part.guards))
        return tuple(guard for guard in guards if guard in found)

    def of_load(self, load: Load, guards: Guards) -> Guards:
        """Of the guards around a load those that it needs."""
        if (load, guards) in self.loads:
            return self.loads[load, guards]
        # A condition that guards something is evaluated under fewer guards than what it guards.
        have = set(guards)
        fewer = [known for each, known in self.loads if each == load and have.issuperset(known)]
        # One that was refused is not there; nothing will be made of it.
        return self.loads[load, max(fewer, key=len)] if fewer else guards

    def of_let(self, name: str, guards: Guards) -> Guards:
        """Of some guards those that a load in a let needs where it is used under them."""
        key = name, self.contexts.variant(name, guards)
        if key not in self.lets:
            self.lets[key] = self.of(self.group.lets[name].value, key[1])
        return self.lets[key]


def prove(group: Group, report: Report) -> Proved | None:
    """What is shown of a group; None after reporting all that can't be shown."""
    before = len(report.diagnostics)
    reading = Reading(group)
    check_ranges(reading, report)
    if len(report.diagnostics) > before:
        return None
    undefined = check_places(reading, report)
    laid = check_races(reading, report)
    known = contexts(group)
    prover = _Prover(reading, known, Needs(group, known), report)
    prover.prove()
    if len(report.diagnostics) > before:
        return None
    numbers = reading.numbers
    when = numbers.facts((reading.holds(g), None) for g in launched(group))
    return Proved(
        group=group,
        contexts=known,
        needs=prover.needs,
        down=rounded_down(reading),
        ends={index: reading.ends(extent) for index, extent in group.extents.items()},
        launched=frozenset(
            index
            for index in group.extents
            if numbers.shows(add(reading.extent(index), ONE, -1), when) is not None
        ),
        lengths={
            tensor.name: reading.ends(tensor.length)[1]
            for tensor in group.tensors.values()
            if tensor.length is not None
        },
        wide=frozenset(
            name
            for name, size in group.sizes.items()
            if size.derived is not None and reading.ends(size.derived)[1] > SIZE_LIMIT
        ),
        laid=laid,
        undefined=undefined,
        unkept=tuple(store for store in group.stores if not prover.keeps(store)),
        proofs=tuple(dict.fromkeys(prover.proofs)),
    )


def rounded_down(reading: Reading) -> frozenset[Value]:
    """The quotients and remainders of a group with an operand that may be negative."""
    group = reading.group
    return frozenset(
        each
        for root in (*group.values, *group.extents.values())
        for each in walk(root, {})
        if isinstance(each, Op) and each.op in ("floordiv", "mod") and each.dtype in LIMITS
        if any(
            max(reading.numbers.least(reading.poly(a)), reading.ends(a)[0]) < 0 for a in each.args
        )
    )


@dataclass(slots=True)
class _Prover:
    reading: Reading
    contexts: Contexts
    needs: Needs
    report: Report
    proofs: list[Proof] = field(default_factory=list)
    facts: dict[Guards, Facts] = field(default_factory=dict)
    refused: set[Value] = field(default_factory=set)

    def prove(self) -> None:
        """Show every obligation, or report it."""
        group = self.reading.group
        believed = Believed(group)
        marked: set[Span] = set()
        for each in obligations(group, self.contexts):
            trusted = believed.reason(each)
            if each.span in marked or self._unasked(each):
                continue
            text = written(each, self.report)
            if trusted is not None:
                self._note(each, text, "trusted", each.guards, (trusted,))
                continue
            found = self._shown(each)
            if found is None:
                shown = search(group, each) or self._decided(each)
                if shown is not True:
                    marked.add(each.span)
                    self.refused.add(each.value)
                    refuse(group, each, shown or None, self._open(each), self.report)
                    continue
                found = set(each.guards)
            needed = tuple(guard for guard in each.guards if guard in found)
            because = tuple(said for guard in needed if (said := _text(guard)))
            self._note(each, text, "guards" if because else "ranges", needed, because)
        for unmet in believed.unused():
            self.report.add(
                "unused",
                unmet.span,
                f"the group has no load, place or conversion `{unmet.text}` to trust",
                "write it as it stands in the let or store that needs it, or remove it",
            )

    def keeps(self, store: Store) -> bool:
        """Whether what is stored is shown to be one of the values that its tensor holds."""
        reading, tensor = self.reading, self.reading.group.tensors[store.tensor]
        if tensor.dtype not in LIMITS or tensor.dtype == "bool":
            return True
        guards = guards_of(reading.group, store, inside=True)
        known = [(c, None) for c in reading.declared((store.value,))]
        known += [(reading.last(index), None) for index in sorted(store.axes)]
        facts, stored = (
            reading.numbers.facts(known, self._guarded(guards)),
            reading.poly(store.value),
        )
        goals = [add(stored, reading.poly(tensor.low), -1)] if tensor.low is not None else []
        goals += [add(reading.poly(tensor.high), stored, -1)] if tensor.high is not None else []
        return all(reading.numbers.shows(goal, facts) is not None for goal in goals)

    def _note(
        self,
        obligation: Obligation,
        text: str,
        how: How,
        needed: Guards,
        because: tuple[str, ...],
    ) -> None:
        """Keep a proof; arithmetic is of interest to a reader only where it is trusted."""
        value = obligation.value
        if obligation.kind == "load":
            assert isinstance(value, Load)
            # What an index and the conditions are made of must have been read for what is declared of it
            # to be true.
            known = set(needed)
            todo = [*value.items, *(cond for cond, _ in needed if not isinstance(cond, Exists))]
            while todo:
                more = {*self.needs.of(todo.pop(), obligation.guards)} - known
                known |= more
                todo += [cond for cond, _ in more if not isinstance(cond, Exists)]
            kept = tuple(guard for guard in obligation.guards if guard in known)
            self.needs.loads[value, obligation.guards] = kept
        if obligation.kind in ("load", "store") or how == "trusted":
            self.proofs.append(Proof(obligation.kind, text, how, because))

    def _facts(self, obligation: Obligation, *, guarded: bool) -> Facts:
        """What may be relied on: that there is a point at all, and with `guarded` what guards it."""
        reading, group, value = self.reading, self.reading.group, obligation.value
        own = [(Exists(i), True) for i in group.extents if i in value.axes]
        known: list[tuple[Condition, Tag]] = [(reading.holds(guard), None) for guard in own]
        known += [(c, None) for c in reading.declared(children(value))]
        known += [(reading.last(index), None) for index in sorted(value.axes)]
        known += [(c, None) for c in self._shaped()] if obligation.kind == "extent" else []
        return reading.numbers.facts(known, self._guarded(obligation.guards) if guarded else None)

    def _shaped(self) -> list[Condition]:
        """That no dimension of a tensor that every call has is negative."""
        given = [tensor for tensor in self.reading.group.tensors.values() if not tensor.optional]
        polys = [self.reading.poly(dim) for tensor in given for dim in tensor.dims]
        return [at_least(poly) for poly in polys if self.reading.numbers.least(poly) < 0]

    def _guarded(self, guards: Guards) -> Facts:
        """What some guards say, and what they are made of: each fact with the guard that it takes."""
        if guards not in self.facts:
            known: list[tuple[Condition, Tag]] = []
            for guard in guards:
                known.append((self.reading.holds(guard), guard))
                if not isinstance(guard[0], Exists):
                    known += [(c, guard) for c in self.reading.declared((guard[0],))]
                    own = sorted(guard[0].axes)
                    known += [(self.reading.last(i), (Exists(i), True)) for i in own]
            self.facts[guards] = self.reading.numbers.facts(known)
        return self.facts[guards]

    def _shown(self, obligation: Obligation) -> set[Guard] | None:
        """The guards that it takes to show an obligation; None where that is not enough."""
        value, numbers = obligation.value, self.reading.numbers
        if obligation.kind == "number" and self.reading.fits(value, value.dtype):
            return set()
        goals = self._goals(obligation)
        if goals is None:
            return None
        for hard in (False, True):
            for guarded in (False, True):
                facts = self._facts(obligation, guarded=guarded)
                used: set[object] = set()
                for goal in goals:
                    found = numbers.shows(goal, facts, hard=hard)
                    if found is None:
                        break
                    used |= found
                else:
                    return {guard for guard in obligation.guards if guard in used}
        return None

    def _goals(self, obligation: Obligation) -> list[Poly] | None:
        """What is not negative where the obligation holds; None where no polynomial says it."""
        reading, value = self.reading, obligation.value
        if obligation.kind == "extent":
            return [reading.poly(value)]
        if obligation.kind == "number":
            bounds = reading.bounds(value)
            if bounds is None:
                return None
            least, most = LIMITS[value.dtype]
            return [add(bounds[0], const(least), -1), add(const(most), bounds[1], -1)]
        assert isinstance(value, Load)
        return reading.room(value)

    def _open(self, obligation: Obligation) -> list[tuple[bool, bool]]:
        """For each item of a load or place whether it may be negative, and whether too large."""
        if obligation.kind not in ("load", "store"):
            return []
        facts = self._facts(obligation, guarded=True)
        shows = self.reading.numbers.shows
        open_ = [shows(goal, facts) is None for goal in self._goals(obligation) or []]
        return list(zip(open_[::2], open_[1::2], strict=True))

    def _unasked(self, obligation: Obligation) -> bool:
        """Whether it is i64 arithmetic on a number that may be any i64: it wraps around, as in torch."""
        value = obligation.value
        if obligation.kind != "number" or value.dtype != "i64":
            return False
        operands = value.args if isinstance(value, Op) else children(value)
        return any(self._any(operand) for operand in operands if operand.dtype in LIMITS)

    def _any(self, value: Value) -> bool:
        """Whether a number may be any i64: it is made of what has no declared range, or was refused."""
        group, (least, most) = self.reading.group, LIMITS["i64"]
        low, high = self.reading.ends(value)
        if least < low and high < most:
            return False
        match value:
            case Ref(name):
                return self._any(group.lets[name].value)
            case Load(name):
                return None in (group.tensors[name].low, group.tensors[name].high)
            case Param(name):
                scalar = group.scalars.get(name)
                return scalar is not None and None in (scalar.low, scalar.high)
            case Select(_, then, other):
                return self._any(then) or self._any(other)
            case Reduce("min" | "max") | Scan("cumprod"):
                return True  # over nothing `min` and `max` are an end of the type
        wraps = isinstance(value, Op | Cast) and value.wraps
        return wraps or value in self.refused or any(map(self._any, children(value)))

    def _decided(self, obligation: Obligation) -> bool | Example:
        """True if z3 shows an obligation; a call at which it fails; False if neither is known."""
        reading, group = self.reading, self.reading.group
        goals = self._goals(obligation)
        if goals is None:
            return False
        known = [reading.holds(guard) for guard in obligation.guards]
        known += [reading.holds((Exists(i), True)) for i in sorted(obligation.axes)]
        values = (*children(obligation.value), *(cond for cond, _ in obligation.conditions))
        # Each of them is shown by itself, or refused.
        known += [reading.inside(load) for load in evaluated(values, group)]
        question = Question(reading.numbers, goals, known, reading.distinct())
        verdict = question.shown()
        if verdict is not False or not obligation.whole:
            return bool(verdict)
        names = param_order(group)
        legal = [at_least(reading.name(name), const(0)) for name in names if name in group.sizes]
        legal += [self._fillable(tensor) for tensor in group.tensors.values()]
        for model in question.models(legal, frozenset(group.sizes)):
            found = self._example(obligation, model)
            if found is not None:
                return found
        return False

    def _fillable(self, tensor: Tensor) -> Condition:
        """That there are elements for a tensor that has any."""
        reading = self.reading
        if tensor.low is None or tensor.high is None or tensor.dtype not in LIMITS:
            return TRUE
        empty = [at_least(ZERO, reading.poly(dim)) for dim in tensor.dims]
        return either(*empty, at_least(reading.poly(tensor.high), reading.poly(tensor.low)))

    def _example(self, obligation: Obligation, model: Model) -> Example | None:
        """A model as a call, if it is a legal one and the obligation does not hold at it."""
        reading, group = self.reading, self.reading.group
        world = World(group, {}, {}, simplest)
        world.given = {
            t.name: model.flag(Flag(("given", t.name)))
            for t in group.tensors.values()
            if t.optional
        }
        try:
            for name in param_order(group):
                world.params[name] = model.number(reading.name(name))
            for at in list(model.question.terms):
                atom = reading.numbers.atoms[at]
                if atom.kind == "element":
                    place = tuple(map(model.number, atom.items))
                    if world.inside(str(atom.what), place):
                        world.elements[str(atom.what), place] = model.number({(at,): 1})
            point = {
                i: model.number(reading.numbers.index(i, reading.extent(i)))
                for i in obligation.axes
            }
            fault = broken(obligation, world, point) if world.legal() else None
        except ImpossibleError:
            return None
        return example(fault.world, fault.point, fault.text) if fault is not None else None


def _text(guard: Guard) -> str:
    """A guard in the language of the specs; nothing for that of an index."""
    cond, positive = guard
    if isinstance(cond, Exists):
        return ""
    return str(spec_text(cond) if positive else prefix("not", spec_text(cond)))


class Believed:
    """What a spec asks kgen to believe: that a load or place is in bounds, or that a number fits."""

    def __init__(self, group: Group) -> None:
        self.trusted = group.trusted
        # kgen's own indices go by the names of those that they stand beside.
        self.reading = Reading(group, alias=group.twins) if group.trusted else None
        self.reasons = {self._key(each.value): each.reason for each in group.trusted}
        self.met: set[object] = set()

    def reason(self, obligation: Obligation) -> str | None:
        """Why an obligation is believed; None if it is not."""
        key = self._key(obligation.value) if self.reading is not None else None
        self.met.add(key)
        return self.reasons.get(key)

    def unused(self) -> list[Trusted]:
        """What is to be believed of nothing in the group."""
        return [each for each in self.trusted if self._key(each.value) not in self.met]

    def _key(self, value: Value) -> object:
        assert self.reading is not None
        if isinstance(value, Load):
            items = (frozenset(self.reading.poly(item).items()) for item in value.items)
            return (value.tensor, *items)
        bounds = self.reading.bounds(value)
        if bounds is None:
            return self.reading.resolved(value)
        return (value.dtype, *(frozenset(bound.items()) for bound in bounds))
