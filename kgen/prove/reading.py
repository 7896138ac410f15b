"""A group's typed values as polynomials and conditions, each read once.

In: a typed group. Out: `Reading`. What a value may be is its interval; what is made of it follows in whole
numbers. Arithmetic that may leave its type is an unknown number of that type.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from kgen.lang.dtypes import LIMITS
from kgen.lang.operators import Interval
from kgen.lang.typed import (
    Cast,
    Const,
    Given,
    Group,
    Index,
    Load,
    Op,
    Param,
    Reduce,
    Ref,
    Scan,
    Select,
    Value,
    children,
    index_of,
    rebuilt,
)
from kgen.prove.atoms import (
    ONE,
    TRUE,
    ZERO,
    All,
    Condition,
    Flag,
    Kind,
    Poly,
    Some,
    add,
    at_least,
    both,
    const,
    either,
    equal,
    multiply,
    negated,
    opposite,
)
from kgen.prove.contexts import Exists, Guard
from kgen.prove.intervals import Intervals
from kgen.prove.numbers import Numbers

_SMALL = 12  # comparisons of a condition that is written out where it is part of another

_COMPARED: dict[str, Callable[[Poly, Poly], Condition]] = {
    "lt": lambda a, b: at_least(b, add(a, ONE)),
    "le": lambda a, b: at_least(b, a),
    "gt": lambda a, b: at_least(a, add(b, ONE)),
    "ge": at_least,
    "eq": equal,
    "ne": lambda a, b: opposite(equal(a, b)),
}
_LINEAR: dict[str, Callable[..., Poly]] = {
    "add": add,
    "sub": lambda a, b: add(a, b, -1),
    "mul": multiply,
    "neg": negated,
}


@dataclass(slots=True)
class Reading(Intervals):
    """The values of one group. `alias`: indices that are read as others."""

    alias: Mapping[str, str] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=Numbers)
    polys: dict[Value, Poly] = field(default_factory=dict)
    places: dict[Value, Poly] = field(default_factory=dict)
    conditions: dict[Value, Condition] = field(default_factory=dict)
    keys: dict[Value, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # In the order of use, so that none is read through a chain.
        for let in self.group.lets.values():
            if let.value.dtype == "bool":
                self.condition(let.value)
            elif let.value.dtype in LIMITS:
                self.poly(let.value)

    def refined(self, value: Value, ends: Interval) -> Interval:
        """By what the value is as a polynomial, too."""
        if value.dtype == "bool" or isinstance(value, Cast | Reduce | Scan):
            return ends
        exact = self.exact(value)
        if exact is None:
            return ends
        least, most = self.numbers.least(exact), self.numbers.interval(exact)[1]
        return max(ends[0], least), min(ends[1], most)

    # Numbers.

    def poly(self, value: Value) -> Poly:
        """An integer as a polynomial."""
        if value not in self.polys:
            self.polys[value] = self._poly(value)
        return self.polys[value]

    def place(self, value: Value) -> Poly:
        """An integer but for multiples of 2**64, which tells two places apart and shows no bound.

        i64 sums, differences and products are read as if they did not wrap around.
        """
        if value not in self.places:
            self.places[value] = self._place(value)
        return self.places[value]

    def _place(self, value: Value) -> Poly:
        match value:
            case Ref(name):
                return self.place(self.group.lets[name].value)
            case Op(op, args) if op in _LINEAR and value.dtype == "i64":
                poly = _LINEAR[op](*map(self.place, args))
                return poly if self.numbers.bounded(poly) else self.poly(value)
        return self.poly(value)

    def exact(self, value: Value) -> Poly | None:
        """What a sum, a difference, a product or a conversion is before it is cut to its type."""
        match value:
            case Op(op, args) if op in _LINEAR:
                poly = _LINEAR[op](*map(self.poly, args))
                return poly if self.numbers.bounded(poly) else None
            case Cast(arg) if arg.dtype in LIMITS and arg.dtype != "bool":
                return self.poly(arg)
        return None

    def bounds(self, value: Value) -> tuple[Poly, Poly] | None:
        """Polynomials between which a number is before it is cut to its type; None if none is known."""
        exact = self.exact(value)
        match value:
            case Op("floordiv", (a, b)):
                exact = self.numbers.quotient(self.poly(a), self.poly(b))
            case Op("abs", (a,)):
                exact = self.numbers.extreme("max", self.poly(a), negated(self.poly(a)))
            case Reduce("sum", index, arg) | Scan("cumsum", index, arg) if arg.dtype in LIMITS:
                low, high = self.ends(arg)
                turns = self.extent(index)
                return multiply(turns, const(min(low, 0))), multiply(turns, const(max(high, 0)))
        return (exact, exact) if exact is not None else None

    def _poly(self, value: Value) -> Poly:
        match value:
            case Const(number):
                return const(int(number))
            case Param(name):
                return self.name(name)
            case Index(name):
                name = self.alias.get(name, name)
                return self.numbers.index(name, self.extent(name))
            case Ref(name):
                return self.poly(self.group.lets[name].value)
            case Load():
                return self._element(value)
            case Select(cond, then, other) if value.dtype in LIMITS:
                chosen = self.numbers.choice(
                    self.condition(cond), self.poly(then), self.poly(other)
                )
                return self._narrowed(chosen, value)
            case Cast(arg) if arg.dtype == "bool":
                return self.numbers.truth(self.condition(arg))
            case Cast(arg) if arg.dtype in LIMITS and self.fits(value, value.dtype):
                return self.poly(arg)
            case Op(op, args) if op in _LINEAR or op in ("floordiv", "abs"):
                if value.dtype == "int" or self.fits(value, value.dtype):
                    found = self._computed(op, args, value)
                    if found is not None:
                        return found
            case Op("min" | "max" as op, (a, b)) if value.dtype in LIMITS:
                return self._narrowed(self.numbers.extreme(op, self.poly(a), self.poly(b)), value)
            case Op("mod", (a, b)):
                return self.numbers.remainder(self.poly(a), self.poly(b))
            case Reduce() | Scan() if value.dtype in LIMITS and value.arg.dtype in LIMITS:
                return self._folded(value)
        return self._unknown(value)

    def _computed(self, op: str, args: tuple[Value, ...], value: Value) -> Poly | None:
        if op in _LINEAR:
            return self.exact(value)
        polys = [self.poly(arg) for arg in args]
        if op == "abs":
            return self.numbers.extreme("max", polys[0], negated(polys[0]))
        return self.numbers.quotient(*polys)

    def _narrowed(self, poly: Poly, value: Value) -> Poly:
        """The interval of a part that the value's own, worked out part by part, makes smaller."""
        if len(poly) == 1 and next(iter(poly.values())) == 1:
            ((monomial, _),) = poly.items()
            if len(monomial) == 1:
                atom, (low, high) = self.numbers.atoms[monomial[0]], self.ends_by_parts(value)
                atom.low, atom.high = max(atom.low, low), min(atom.high, max(high, atom.low))
        return poly

    def name(self, name: str) -> Poly:
        """A size or a scalar."""
        size = self.group.sizes.get(name)
        if size is not None and size.derived is not None:
            return self.poly(size.derived)
        declared = size or self.group.scalars[name]
        lows = [self.poly(end) for end in _bounds(declared.low, "max")]
        highs = [self.poly(end) for end in _bounds(declared.high, "min")]
        return self.numbers.atom("name", name, self.declared_ends(name), lows=lows, highs=highs)

    def extent(self, index: str) -> Poly:
        """How many values an index takes."""
        return self.poly(self.group.extents[index])

    def _element(self, load: Load) -> Poly:
        if load.dtype not in LIMITS or load.dtype == "bool":
            return self._unknown(load)
        tensor = self.group.tensors[load.tensor]
        return self.numbers.atom(
            "element",
            load.tensor,
            self.element_ends(tensor),
            load.axes,
            lows=[self.poly(end) for end in _bounds(tensor.low, "max")],
            highs=[self.poly(end) for end in _bounds(tensor.high, "min")],
            condition=self.inside(load),
            items=tuple(self.poly(item) for item in load.items),
        )

    def inside(self, load: Load) -> Condition:
        """Whether a place is one of its tensor's."""
        return both(*map(at_least, self.room(load)))

    def room(self, place: Load) -> list[Poly]:
        """What is not negative where a place is one of its tensor's: below and above each index."""
        found: list[Poly] = []
        for item, dim in zip(place.items, self.group.tensors[place.tensor].shape, strict=True):
            at = self.poly(item)
            found += [at, add(self.poly(dim), add(at, ONE), -1)]
        return found

    def distinct(self) -> dict[str, Poly | None]:
        """The tensors of integers without a value twice, each with the one that may repeat."""
        return {
            t.name: self.poly(t.repeats) if t.repeats is not None else None
            for t in self.group.tensors.values()
            if t.distinct and t.dtype in LIMITS
        }

    def last(self, index: str) -> Condition:
        """That an index is below its extent, for what is known of the extent by it."""
        extent = self.extent(index)
        return at_least(extent, add(self.numbers.index(index, extent), ONE))

    def declared(self, values: tuple[Value, ...]) -> Iterator[Condition]:
        """That the elements that some values read are in their declared ranges."""
        for load in evaluated(values, self.group):
            tensor = self.group.tensors[load.tensor]
            if load.dtype in LIMITS and load.dtype != "bool":
                element = self.poly(load)
                if tensor.low is not None:
                    yield at_least(element, self.poly(tensor.low))
                if tensor.high is not None:
                    yield at_least(self.poly(tensor.high), element)

    def _folded(self, value: Reduce | Scan) -> Poly:
        known, arg = self.numbers, value.arg
        what = (value.kind, value.index, self.key(arg))
        low, high = self.ends(arg)
        if isinstance(value, Reduce) and value.kind == "first":
            assert value.none is not None
            wanted = self.condition(arg)
            each = wanted.parts if isinstance(wanted, All) else (wanted,)
            inside = self.last(value.index)  # which every place that is found is
            asked = both(*(part for part in each if part != inside))
            what = (value.kind, value.index, known.number(asked))
            parts = (add(self.extent(value.index), ONE, -1), self.poly(value.none))
            return known.atom("first", what, self.ends(value), value.axes, parts=parts)
        ends = self.ends(value)
        if value.kind not in ("sum", "cumsum") or not self.fits(value, value.dtype):
            return known.atom("opaque", what, ends, value.axes)
        running = (value.index, arg) if isinstance(value, Scan) else self._earlier(value)
        if running is None:
            turns = self.extent(value.index)
            sure = low >= 0 or known.least(turns) >= 0
            bounds = [[multiply(turns, const(end))] if sure else [] for end in (low, high)]
            return known.atom("opaque", what, ends, value.axes, lows=bounds[0], highs=bounds[1])
        index, added = running
        at, own = known.index(index, self.extent(index)), self.poly(added)
        start = own if isinstance(value, Scan) else ZERO
        least, most = (add(start, multiply(at, const(end))) for end in self.ends(added))
        kind: Kind = "cumsum" if isinstance(value, Scan) else "prefix"
        if self.ends(added)[0] < 0:
            return known.atom("opaque", what, ends, value.axes, lows=[least], highs=[most])
        return known.atom(kind, what, ends, value.axes, lows=[least], highs=[most], parts=(own, at))

    def _earlier(self, value: Reduce) -> tuple[str, Value] | None:
        """For a sum over what is below the value of an index: that index, and what is added at it."""
        arg = self.resolved(value.arg)
        while isinstance(arg, Cast) and self.fits(arg, arg.dtype) and arg.arg.dtype != "bool":
            arg = self.resolved(arg.arg)
        match arg:
            case Select(Op("lt", (Index(each), Index(row))), then, Const(0)) if (
                each == value.index and row != each and self.extent(row) == self.extent(each)
            ):
                moved = self._moved(then, each, row)
                return (row, moved) if moved is not None else None
        return None

    def _moved(self, value: Value, index: str, to: str) -> Value | None:
        """A value at another index; None where that one has a meaning of its own in it."""
        if index not in value.axes:
            return value
        match value:
            case Index():
                return index_of(to)
            case Ref(name):
                return self._moved(self.group.lets[name].value, index, to)
            case Reduce(_, bound) | Scan(_, bound) if bound in (index, to):
                return None
        parts = [self._moved(part, index, to) for part in children(value)]
        known = [part for part in parts if part is not None]
        return rebuilt(value, tuple(known)) if len(known) == len(parts) else None

    def key(self, value: Value) -> int:
        """A number for what a value is made of: values of one key are equal wherever they are evaluated."""
        if value not in self.keys:
            known: Hashable
            if value.dtype == "bool":
                known = self.condition(value)
            elif value.dtype in LIMITS:
                known = frozenset(self.poly(value).items())
            else:
                known = self._made_of(self.resolved(value))
            self.keys[value] = self.numbers.number(known)
        return self.keys[value]

    def _made_of(self, value: Value) -> tuple[Hashable, ...]:
        return (*_own(value), *map(self.key, children(value)))

    def resolved(self, value: Value) -> Value:
        """What a name stands for."""
        while isinstance(value, Ref):
            value = self.group.lets[value.name].value
        return value

    def _unknown(self, value: Value) -> Poly:
        value = self.resolved(value)
        if isinstance(value, Op | Cast) and value.dtype in LIMITS:
            exact = self.exact(value)
            if exact is not None:
                ends = LIMITS[value.dtype]
                return self.numbers.atom("wrapped", value.dtype, ends, value.axes, parts=(exact,))
        ends = self.ends(value) if value.dtype in LIMITS else LIMITS["i64"]
        return self.numbers.atom("opaque", self._made_of(value), ends, value.axes)

    # Conditions.

    def holds(self, guard: Guard) -> Condition:
        """What a guard says."""
        cond, positive = guard
        if isinstance(cond, Exists):
            return at_least(self.extent(cond.index), ONE)
        condition = self.condition(cond)
        return condition if positive else opposite(condition)

    def condition(self, value: Value) -> Condition:
        """A condition."""
        if value not in self.conditions:
            self.conditions[value] = self._short(self._condition(value))
        return self.conditions[value]

    def _short(self, condition: Condition) -> Condition:
        """A condition; one that is not small is a flag, which stands for it."""
        if _parts(condition) <= _SMALL:
            return condition
        number, axes = self.numbers.number(condition), self.numbers.condition_axes(condition)
        flag = Flag(("condition", number), axes)
        self.numbers.defined[flag] = condition
        return flag

    def _condition(self, value: Value) -> Condition:
        match value:
            case Const(number):
                return TRUE if number else opposite(TRUE)
            case Ref(name):
                return self.condition(self.group.lets[name].value)
            case Given(tensor):
                return Flag(("given", tensor))
            case Load(tensor, items):
                places = tuple(frozenset(self.poly(item).items()) for item in items)
                return Flag(("element", tensor, places), value.axes)
            case Op("not", (arg,)):
                return opposite(self.condition(arg))
            case Op("and" | "or" as op, args):
                return (both if op == "and" else either)(*map(self.condition, args))
            case Op(op, (a, b)) if op in _COMPARED and a.dtype == "bool":
                x, y = self.condition(a), self.condition(b)
                same = either(both(x, y), both(opposite(x), opposite(y)))
                return same if op == "eq" else opposite(same)
            case Op(op, (a, b)) if op in _COMPARED and a.dtype in LIMITS:
                return _COMPARED[op](self.poly(a), self.poly(b))
            case Select(cond, then, other):
                test = self.condition(cond)
                return either(
                    both(test, self.condition(then)), both(opposite(test), self.condition(other))
                )
            case Cast(arg) if arg.dtype in LIMITS and arg.dtype != "bool":
                return opposite(equal(self.poly(arg), ZERO))
            case Reduce(kind, index, arg):
                return Flag((kind, index, self.key(arg)), value.axes)
        return Flag(self._made_of(value), value.axes)


def evaluated(values: tuple[Value, ...], group: Group) -> Iterator[Load]:
    """The loads that happen wherever some values are evaluated: none in a branch or a reduction.

    Each of them is to be shown by itself, so that what it needs may be relied on here.
    """
    todo, seen = list(values), set[str]()
    while todo:
        match todo.pop():
            case Ref(name) if name not in seen:
                seen.add(name)
                todo.append(group.lets[name].value)
            case Select(cond):
                todo.append(cond)
            case Load() as load:
                yield load
                todo += load.items
            case Op() | Cast() as value:
                todo += children(value)
            case _:
                pass


def _own(value: Value) -> tuple[Hashable, ...]:
    """What a value is, apart from the values that it is made of."""
    own: tuple[Hashable, ...]
    match value:
        case Const(number):
            return ("Const", number, value.sign)
        case Param(name) | Index(name) | Ref(name) | Given(name) | Load(name):
            own = (name,)
        case Op(op):
            own = (op,)
        case Reduce(kind, index) | Scan(kind, index):
            own = (kind, index)
        case Cast() | Select():
            own = ()
    return (type(value).__name__, value.dtype, *own)


def _parts(condition: Condition) -> int:
    match condition:
        case All(parts) | Some(parts):
            return sum(map(_parts, parts))
    return 1


def _bounds(end: Value | None, op: str) -> list[Value]:
    """What bounds a value by an end of its range: of a high end that is a `min` each argument does."""
    match end:
        case None:
            return []
        case Op(name, args) if name == op:
            return [each for arg in args for each in _bounds(arg, op)]
    return [end]
