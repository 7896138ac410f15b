"""What of a group is computed once, and the guard under which each part of it is read.

In: a typed group. Out: `Parts`, which the reference prints. A part is a let, a load, a reduction or scan,
a quotient whose divisor may be 0, a number that is trusted to fit its type, or a condition. Its guard is
the union of the guards of its uses, so that it is read exactly where the spec reads it. Each let is looked
at once: nothing is written out.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from kgen.lang.typed import (
    NO_AXES,
    Axes,
    Const,
    Group,
    Index,
    Load,
    Op,
    Reduce,
    Ref,
    Scan,
    Select,
    Value,
    children,
    walk,
)
from kgen.targets.known import Values, ordered


@dataclass(frozen=True, slots=True)
class Anywhere:
    """All of `facts` hold at some value of an index."""

    facts: Term
    index: str
    axes: Axes


@dataclass(frozen=True, slots=True)
class Wanted:
    """The guard of a part, as a condition with a name of its own."""

    part: Key
    axes: Axes


@dataclass(frozen=True, slots=True)
class Fact:
    """A condition that holds, or does not, where something is read.

    `lazy`: Python knows it, and does not evaluate what it guards where it fails.
    """

    cond: Value | Anywhere | Wanted
    holds: bool = True
    lazy: bool = False


Term: TypeAlias = "frozenset[Fact]"  # all of them hold
Guard: TypeAlias = "tuple[Term, ...]"  # one of them does
Key: TypeAlias = "str | Value | Wanted"  # a let's name, else the value itself

NO_FACTS: Term = frozenset()
ALWAYS: Guard = (NO_FACTS,)
_MOST = 8  # facts of a guard that is written out where it is a part of others


@dataclass(slots=True)
class Part:
    """A part of a group.

    Attributes:
        owner: the let that uses it first, or the tensor that is stored to.
        uses: how often the text of other parts and stores has it.
        lazy: the facts that all terms of its guard share and Python knows.
        mask: the rest of its guard, where it is a load or a quotient.
        late: whether its mask depends on its value, so that its bounds are checked afterwards.
    """

    owner: str
    uses: int = 0
    lazy: Term = NO_FACTS
    mask: Guard = ALWAYS
    late: bool = False


class Parts(Values):
    """The parts of a group.

    `order`: for each store the parts that no store before it needs, and then those of late checks.
    """

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.parts: dict[Key, Part] = {}
        self._read: dict[Key, list[Term]] = {}
        self._needs: dict[Key, list[tuple[Key, Term, str]]] = {}
        self._rank: dict[object, int] = {}
        self._wholes: dict[Fact, dict[Term, Fact]] = {}
        # What extents are made of is known at any call, so that nothing need be asked first.
        self._sized = {each for extent in group.extents.values() for each in walk(extent, {})}
        self.some = {index: self._some(extent) for index, extent in group.extents.items()}
        self.conds = {store.when for store in group.stores if store.when}
        for each in (each for value in group.values for each in walk(value, {})):
            if isinstance(each, Select):
                self.conds.add(each.cond)
        self._names: dict[Value, str] = {}
        for name, let in group.lets.items():
            if self.key(let.value) == let.value:
                self._names[let.value] = name
        self.order = self._ordered(self._spread())

    def key(self, value: Value) -> Key | None:
        """The part that a value is; None if it is written where it is used."""
        if isinstance(value, Ref):
            return value.name
        if self.number(value) or value in self._sized:
            return None
        own = isinstance(value, Load | Reduce | Scan) or self.divides(value) or self.trusts(value)
        return self._names.get(value, value) if own or value in self.conds else None

    def body(self, key: Key) -> tuple[Value, bool]:
        """What a part computes, and whether that is not another part itself."""
        assert not isinstance(key, Wanted)
        value = self.group.lets[key].value if isinstance(key, str) else key
        return value, self.key(value) in (key, None)

    def checked(self, key: Key) -> bool:
        """Whether a part is a number that is trusted to fit its type."""
        return not isinstance(key, Wanted) and self.body(key)[1] and self.trusts(self.body(key)[0])

    def uses(
        self, value: Value, facts: Term = NO_FACTS, *, inside: bool = False
    ) -> Iterator[tuple[Key, Term]]:
        """The parts in a value, each with the facts that guard it there."""
        key = None if inside else self.key(value)
        if key is not None:
            yield key, facts
        elif isinstance(value, Select):
            yield from self.uses(value.cond, facts)
            yield from self.uses(value.then, facts | self.facts(value.cond, holds=True))
            yield from self.uses(value.other, facts | self.facts(value.cond, holds=False))
        else:
            for each in children(value):
                yield from self.uses(each, facts)

    def needs(self, key: Key) -> Iterator[tuple[Key, Term, str]]:
        """The parts that a part is made of, with their guards in it and the index that it runs over."""
        value, own = self.body(key)
        if own and isinstance(value, Reduce | Scan):
            yield from ((*use, value.index) for use in self.uses(value.arg))
            if isinstance(value, Reduce) and value.none is not None:
                yield from ((*use, "") for use in self.uses(value.none))
        else:
            yield from ((*use, "") for use in self.uses(value, inside=own))

    # Guards.

    def facts(self, cond: Value, *, holds: bool) -> Term:
        """That a condition holds, or does not: what `and` joins each by itself."""
        if self.number(cond):
            return frozenset((self._ranked(Fact(cond, holds, lazy=True)),))
        found = self._pieces(cond, holds)
        for fact in found if len(found) > 1 else ():
            self._wholes.setdefault(fact, {})[found] = self._ranked(Fact(cond, holds))
        return found

    def _pieces(self, cond: Value, holds: bool) -> Term:
        match cond:
            case Op("not", (arg,)):
                return self._pieces(arg, not holds)
            case Op("and" | "or" as op, args) if (op == "and") == holds:
                return NO_FACTS.union(*(self._pieces(arg, holds) for arg in args))
        return frozenset((self._ranked(Fact(cond, holds)),))

    def _some(self, extent: Value) -> Term:
        """That an index has a value; nothing is said where its extent is at least 1 anyway."""
        cond = Op("gt", (extent, Const(0, "int")), "bool", NO_AXES)
        return frozenset((self._ranked(Fact(cond)),)) if self.ends(extent)[0] < 1 else NO_FACTS

    def _ranked(self, fact: Fact) -> Fact:
        self._rank.setdefault(fact.cond, len(self._rank))
        return fact

    def listed(self, term: Term) -> list[Fact]:
        """The facts of a term in one order, those of a whole condition as that condition."""
        wholes = {k: v for fact in term for k, v in self._wholes.get(fact, {}).items()}
        for pieces, whole in sorted(wholes.items(), key=lambda each: self._order(each[1], each[0])):
            if pieces <= term:
                term = (term - pieces) | {whole}
        return self._sorted(term)

    def _sorted(self, term: Term) -> list[Fact]:
        return sorted(term, key=self._order)

    def _order(self, fact: Fact, pieces: Term = NO_FACTS) -> tuple[int, int, bool]:
        """Where a fact comes among others, what has many pieces first."""
        return -len(pieces), self._rank[fact.cond], fact.holds

    def _anywhere(self, term: Term, index: str) -> Term:
        """A term inside what runs over an index: its facts about that index hold somewhere."""
        varying = frozenset(fact for fact in term if index in fact.cond.axes)
        if not varying:
            return term
        axes = NO_AXES.union(*(fact.cond.axes for fact in varying)) - {index}
        return (term - varying) | {self._ranked(Fact(Anywhere(varying, index, axes)))}

    def _union(self, terms: Iterable[Term]) -> Guard:
        """The terms, without what others say already."""
        found, before = list(dict.fromkeys(terms)), None
        while found != before:
            before = found[:]
            for at in range(len(found)):
                for fact in self._sorted(found[at]):
                    rest, other = found[at] - {fact}, replace(fact, holds=not fact.holds)
                    near = [each - {other} for each in found if other in each]
                    # Where Python chooses, the other term must be the same otherwise.
                    if rest in near or (not fact.lazy and any(each < rest for each in near)):
                        found[at] = rest
            found = list(dict.fromkeys(found))
        for term in found[:]:
            if any(_implied(each, term) for each in found if each != term):
                found.remove(term)
        return tuple(found)

    def _spread(self) -> list[list[Key]]:
        """Find where each part is read, uses before what they use; the parts that each store names."""
        roots: list[list[Key]] = []
        for store in self.group.stores:
            facts = NO_FACTS.union(*(self.some[index] for index in store.axes))
            roots.append([])
            for value in (*([store.when] if store.when else []), store.value, *store.items):
                for key, found in self.uses(value, facts):
                    self._note(key, [found], store.tensor)
                    roots[-1].append(key)
                if value is store.when:  # Python evaluates the call of `_store` in any case
                    holds = self.facts(value, holds=True)
                    facts |= frozenset(replace(fact, lazy=False) for fact in holds)
        for key in reversed(ordered((key for keys in roots for key in keys), self._made_of)):
            guard, owner = self._settle(key), key if isinstance(key, str) else self.parts[key].owner
            for each, facts, index in self._needs[key]:
                some = self.some[index] if index else NO_FACTS
                terms = [self._anywhere(term, index) | some | facts for term in guard]
                self._note(each, terms, owner)
        return roots

    def _note(self, key: Key, terms: Iterable[Term], owner: str) -> None:
        """Another use of a part."""
        self.parts.setdefault(key, Part(owner)).uses += 1
        self._read.setdefault(key, []).extend(terms)

    def _made_of(self, key: Key) -> list[Key]:
        if key not in self._needs:
            self._needs[key] = [] if isinstance(key, Wanted) else list(self.needs(key))
        return [each for each, _, _ in self._needs[key]]

    def _settle(self, key: Key) -> Guard:
        """The guard of a part, and what of it a load or quotient asks for; all its uses are known."""
        part = self.parts[key]
        value, own = self.body(key)
        guard = self._union(self._read[key]) if self.partial(value) else ALWAYS
        common = NO_FACTS.union(*guard).intersection(*guard)
        part.lazy = frozenset(fact for fact in common if fact.lazy)
        rest = tuple(term - part.lazy for term in guard)
        if own and (isinstance(value, Load) or self.divides(value) or self.trusts(value)):
            # Where a shape says that an index has a value, nobody asks: no element is looked at.
            seen = children(value)[-1] if self.divides(value) else value
            spans = {*self.group.extents} if self._inside(value) else self.spans(seen)
            terms = self._union(
                term.difference(*(self.some[index] for index in spans | self.spanned(term)))
                for term in rest
            )
            part.mask = self._aligned(terms, self.spans(seen))
        if sum(map(_weight, rest)) <= _MOST:
            return guard
        wanted = Wanted(key, NO_AXES.union(*(fact.cond.axes for term in rest for fact in term)))
        self.parts[wanted] = replace(part, mask=self._aligned(rest, NO_AXES))
        return (part.lazy | {self._ranked(Fact(wanted))},)

    def _ordered(self, roots: list[list[Key]]) -> list[list[Key]]:
        """The parts that each store needs first, and at the end those that late checks need."""
        masks = {key: list(self._asked(part.mask)) for key, part in self.parts.items()}
        # Lets that Python knows are in no mask: where they fail the part is not even looked at.
        made = {
            key: [*self._made_of(key), *self._asked((part.lazy,))]
            for key, part in self.parts.items()
        }
        graph = {key: made[key] + masks[key] for key in self.parts}
        for each in (each for mask in masks.values() for each in mask):
            self.parts[each].uses += 1
        for key in self.parts:
            if self.checked(key):  # once more in the check
                for each in self._made_of(key):
                    self.parts[each].uses += 1
        while cycle := _cycle(graph):
            for key in (key for key in cycle if masks[key] and not isinstance(key, Wanted)):
                self.parts[key].late = True
                graph[key] = made[key]
                for each in self._made_of(key):  # once more in the check
                    self.parts[each].uses += 1
        late = [each for key, part in self.parts.items() if part.late for each in masks[key]]
        order: list[list[Key]] = []
        done: set[Key] = set()
        # As the spec lists them: a let is computed where it stands there, or earlier if one needs it.
        first = [name for name in self.group.lets if name in self.parts]
        for keys in ([*first, *roots[0]], *roots[1:], late):
            new = ordered(keys, lambda key: [] if key in done else graph[key])
            order.append([key for key in new if key not in done])
            done.update(new)
        return order

    def _aligned(self, guard: Guard, spans: Axes) -> Guard:
        """A guard of whose terms none is lost where an index that another one varies with has no value."""
        every = [NO_AXES.union(*(fact.cond.axes for fact in term)) for term in guard]
        common = spans | frozenset.intersection(*every)
        terms = list(guard)
        for at, axes in enumerate(every):
            for index in (each for each in self.some if each in axes - common and self.some[each]):
                terms[at] = self._anywhere(terms[at], index)
        return tuple(terms)

    def spanned(self, term: Term) -> Axes:
        """The indices that a term surely has dimensions for."""
        conds = [fact.cond for fact in term if not isinstance(fact.cond, Anywhere | Wanted)]
        return NO_AXES.union(*map(self.spans, conds))

    def _inside(self, load: Value) -> bool:
        """Whether each item of a load runs over its dimension, or is a number in one of a known size."""
        if not isinstance(load, Load):
            return False
        tensor, extents = self.group.tensors[load.tensor], self.group.extents
        dims = tensor.dims if tensor.length is None else (tensor.length, *tensor.dims)
        return all(
            extents[item.name] == dim
            if isinstance(item, Index)
            else isinstance(item, Const) and isinstance(dim, Const) and 0 <= item.value < dim.value
            for item, dim in zip(load.items, dims, strict=True)
        )

    def _asked(self, guard: Guard) -> Iterator[Key]:
        """The parts that a guard is made of."""
        for fact in (fact for term in guard for fact in self.listed(term)):
            match fact.cond:
                case Wanted():
                    yield fact.cond
                case Anywhere(facts):
                    yield from self._asked((facts,))
                case _:
                    yield from (key for key, _ in self.uses(fact.cond))


def _cycle(graph: dict[Key, list[Key]]) -> list[Key]:
    """Parts that need each other in a circle, if there are any."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def _implied(term: Term, other: Term) -> bool:
    """Whether a term holds wherever another one does."""
    return all(
        fact in other or (isinstance(fact.cond, Anywhere) and fact.cond.facts <= other)
        for fact in term
    )


def _weight(term: Term) -> int:
    return sum(_weight(f.cond.facts) if isinstance(f.cond, Anywhere) else 1 for f in term)
