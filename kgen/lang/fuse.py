"""Two groups as one: what the first stores and the second reads stays in between as a value.

In: two typed groups that are sound. Out: a typed group like any other, whose effect is that of the first
and then the second on the same memory, to the bit; or a diagnostic that says what prevents it. A group
reads everything before it stores. So where the second reads a tensor that the first stores, the read
becomes the stored value of the point that stores there, and the old element where none does. Whether what
comes of it is sound (bounds, races, coverage) is for the later phases to say, as of any group.
"""

from __future__ import annotations

import graphlib
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn, TypeVar

from kgen.diagnostics import Report, Span, listed
from kgen.lang.convert import cast
from kgen.lang.dtypes import promote
from kgen.lang.operators import OPERATORS
from kgen.lang.substitute import CannotMoveError, Names, Rewriter, Where
from kgen.lang.text import spec_text
from kgen.lang.typed import (
    NO_AXES,
    Cast,
    Const,
    Group,
    Index,
    Let,
    Load,
    Op,
    Param,
    Reduce,
    Ref,
    Scalar,
    Scan,
    Schedule,
    Select,
    Size,
    Store,
    Tensor,
    Value,
    axes_of,
    children,
    index_of,
    is_host,
    rebuilt,
    truth,
    walk,
)

_Declared = TypeVar("_Declared", Size, Scalar, Tensor)
_ALIKE = "declare it alike in both groups, or give one of the two another name"
_APART = "leave the two groups apart"
_COVER = "let the second group store, without a condition, wherever the first does"
_MOVED = "read it at the indices that it is stored at"
_PLAIN = (
    "store to plain indices, `t[r, k]`, or to an index and a number that is known before the "
    "launch, `t[r + 1]`; or read the place as it is stored to"
)
_THROUGH = "leave it out of `through`, so that it stays in memory"


class _CannotFuseError(Exception):
    """The rest of a diagnostic: the place, the message, the help, and other places."""


def fuse(
    first: Group, second: Group, report: Report, *, name: str = "", through: Collection[str] = ()
) -> Group | None:
    """One group that does what the first and then the second would do on the same memory.

    The same name of a size, scalar or tensor is the same thing, under the stricter of two ranges; a tensor
    that one of the two needs is not optional. Names of lets and indices are each group's own. The schedule
    is left to kgen.

    Args:
        first: the group that would run first.
        second: the group that would run after it.
        report: takes what prevents it.
        name: what the group is called; both names if left out.
        through: tensors that only pass between the two, and are not in memory any more.

    Returns:
        The group; None after a `cannot-fuse` diagnostic.
    """
    try:
        both = _Fusion(_launched(first, second), _launched(second, first))
        return both.group(name or f"{first.name}_{second.name}", sorted(through))
    except _CannotFuseError as error:
        report.add("cannot-fuse", *error.args)
        return None


def without(group: Group, tensors: Collection[str]) -> Group:
    """A group that is not given some of its optional tensors."""
    if not tensors:
        return group
    names = Names({*group.sizes, *group.scalars, *group.tensors, *group.extents})
    side = Rewriter(names, group.lets, renames=True, absent=tensors)
    here = {index: index_of(index) for index in group.extents}

    stores = tuple(each.changed(lambda value: side.at(value, here)) for each in group.stores)
    made = replace(
        group,
        eager=tuple(replace(each, without=tuple(sorted(tensors))) for each in group.eager),
        tensors={name: each for name, each in group.tensors.items() if name not in tensors},
        stores=stores,
        lets=names.lets,
    )
    parts = {*_parts(made)}
    return replace(made, trusted=tuple(each for each in group.trusted if each.value in parts))


@dataclass(slots=True)
class _Fusion:
    """What two groups become. `stores`: the first's, by tensor; `found`: reads of them, each once."""

    first: Group
    second: Group
    sizes: dict[str, Size] = field(default_factory=dict)
    scalars: dict[str, Scalar] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    names: Names = field(default_factory=lambda: Names(set()))
    stores: dict[str, list[Store]] = field(default_factory=dict)
    found: dict[Load, Value] = field(default_factory=dict)

    def group(self, name: str, through: list[str]) -> Group:
        """The group of both."""
        first, second, names = self.first, self.second, self.names
        self._declare()
        names.taken |= {*self.sizes, *self.scalars, *self.tensors}
        always = {each.name for each in self.tensors.values() if not each.optional}
        one = Rewriter(names, first.lets, renames=True, given=always)
        two = Rewriter(names, second.lets, renames=True, read=self._read, given=always)
        where, trusted, twos = [*map(self._indices, (first, second))], [], list[Store]()
        for side, group, at in ((one, first, where[0]), (two, second, where[1])):
            for let in group.lets.values():
                side.at(Ref(let.name, let.value.dtype, let.value.axes), at)
            for each in group.stores:
                store = self._store(side, each, at, group.when)
                if group is first:
                    self.stores.setdefault(store.tensor, []).append(store)
                else:
                    twos.append(store)
            for promise in group.trusted:
                value, parts = promise.value, (side.at(e, at) for e in children(promise.value))
                # A load may be a place, which nobody reads.
                value = rebuilt(value, (*parts,)) if isinstance(value, Load) else side.at(value, at)
                trusted.append(replace(promise, value=value))
        ones = [each for several in self.stores.values() for each in several]
        stores = [*(each for each in ones if self._stays(each, twos)), *twos]
        when, whens = first.when, [each for each in (first.when, second.when) if each is not None]
        if first.when != second.when:
            when = truth("or", *whens) if len(whens) == 2 else None
        groups = list(zip(where, (first, second), strict=True))
        hashed = f"{first.sha256} {second.sha256} {name} {through}"
        fused = replace(
            first,
            name=name,
            summary=f"{first.summary} {second.summary}",
            eager=(*first.eager, *second.eager)
            if first.eager and second.eager and not through
            else (),
            eager_ulps=max(first.eager_ulps, second.eager_ulps),
            when=when,
            when_text=spec_text(when).text if when is not None else "",
            sizes=self.sizes,
            scalars=self.scalars,
            tensors={each: self.tensors[each] for each in self.tensors if each not in through},
            extents=names.extents,
            extent_texts={at[i].name: t for at, g in groups for i, t in g.extent_texts.items()},
            extent_spans={at[i].name: s for at, g in groups for i, s in g.extent_spans.items()},
            lets=names.lets,
            stores=tuple(each for each in stores if each.tensor not in through),
            trusted=tuple(trusted),
            twins=names.twins,
            schedule=Schedule(),
            file=f"{first.file}, {second.file}",
            sha256=hashlib.sha256(hashed.encode()).hexdigest(),
        )
        return self._finished(fused, through)

    # Declarations.

    def _declare(self) -> None:
        """Join what the two groups declare."""
        first, second = self.first, self.second
        for group in (first, second):
            self.sizes |= group.sizes
            self.scalars |= group.scalars
            self.tensors |= group.tensors
        read, stored = _loaded(first), {store.tensor for store in first.stores}
        every: list[dict[str, Size | Scalar | Tensor]]
        every = [{**group.sizes, **group.scalars, **group.tensors} for group in (first, second)]
        for name in (each for each in every[0] if each in every[1]):
            a, b = every[0][name], every[1][name]
            if isinstance(a, Size) and isinstance(b, Size) and a.static == b.static:
                made = [each for each in (a, b) if each.derived is not None]
                same = {self._known(each.derived) for each in made if each.derived is not None}
                if len(same) > 1 or (len(made) == 1 and not self._derives(made[0], a, b)):
                    _differ(a, b)
                self.sizes[name] = made[0] if made else _narrowed(a, b)
            elif isinstance(a, Scalar) and isinstance(b, Scalar) and a.dtype == b.dtype:
                default = a.default if a.default == b.default else None
                self.scalars[name] = replace(_narrowed(a, b), default=default)
            elif isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype == b.dtype:
                shapes = [tuple(map(self._known, each.shape)) for each in (a, b)]
                if shapes[0] != shapes[1]:
                    _differ(a, b)
                # What it held before is read by the first group; if not, by the second.
                kept = b if name in stored and name not in read and b.mode != "out" else a
                if name not in stored and b.mode != "out":
                    kept = _narrowed(a, b) if a.distinct or not b.distinct else _narrowed(b, a)
                layout = min(a.layout, b.layout, key=("contiguous", "rows", "any").index)
                self.tensors[name] = replace(
                    kept, layout=layout, optional=a.optional and b.optional
                )
            else:
                _differ(a, b)
        self._check_order()

    def _derives(self, made: Size, a: Size, b: Size) -> bool:
        """Whether a size that one group derives is within the range that the other one declares."""
        assert made.derived is not None
        ends, declared = self._interval(made.derived), b if made is a else a
        low, high = declared.low, declared.high
        return (
            ends is not None
            and (low is None or (isinstance(low, Const) and low.value <= ends[0]))
            and (high is None or (isinstance(high, Const) and ends[1] <= high.value))
        )

    def _interval(self, value: Value) -> tuple[int, int] | None:
        """Between which numbers a value over sizes is, if that depends on no other size."""
        match value:
            case Const(number):
                return int(number), int(number)
            case Param(name) if name in self.sizes:
                size = self.sizes[name]
                if size.derived is not None:
                    return self._interval(size.derived)
                if isinstance(size.low, Const) and isinstance(size.high, Const):
                    return int(size.low.value), int(size.high.value)
            case Op(op, args):
                parts = [self._interval(arg) for arg in args]
                row = OPERATORS[op].interval
                if row is not None and None not in parts:
                    return row(*parts)
        return None

    def _check_order(self) -> None:
        """Refuse ranges that would depend on each other."""
        needs: dict[str, set[str]] = {}
        numbers: list[Size | Scalar] = [*self.sizes.values(), *self.scalars.values()]
        for each in numbers:
            last = each.derived if isinstance(each, Size) else each.default
            ends = (end for end in (each.low, each.high, last) if end is not None)
            parts = (part for end in ends for part in walk(end, {}))
            needs[each.name] = {part.name for part in parts if isinstance(part, Param)}
        try:
            graphlib.TopologicalSorter(needs).prepare()
        except graphlib.CycleError as error:
            message = f"the ranges of {listed({*error.args[1]})} would depend on each other"
            span = (self.sizes.get(error.args[1][0]) or self.scalars[error.args[1][0]]).span
            raise _CannotFuseError(span, message, _ALIKE) from None

    def _known(self, value: Value) -> Value:
        """A value over sizes, with the derived ones written out."""
        size = self.sizes.get(value.name) if isinstance(value, Param) else None
        if size is not None and size.derived is not None:
            return self._known(size.derived)
        return rebuilt(value, tuple(map(self._known, children(value))))

    # The groups in the names of both.

    def _indices(self, group: Group) -> dict[str, Index]:
        """A group's indices: an index of the other group with as many values is the same one."""
        names, twins, found = self.names, group.twins, dict[str, Index]()
        before = {index: self._known(extent) for index, extent in names.extents.items()}
        for index in sorted(group.extents, key=lambda i: (i in twins, i not in before)):
            beside = found[twins[index]].name if index in twins else None
            for new in sorted(before, key=lambda other: other != index):
                alike = before[new] == self._known(group.extents[index])
                if alike and names.twins.get(new) == beside and index_of(new) not in found.values():
                    break
            else:
                new = names.fresh(beside + index[len(twins[index]) :] if beside else index)
                names.extents[new] = group.extents[index]
                names.twins |= {new: beside} if beside else {}
            found[index] = index_of(new)
        return found

    def _store(
        self, side: Rewriter, store: Store, where: dict[str, Index], launched: Value | None
    ) -> Store:
        """A store of a group, only where the group is `launched`."""
        store = store.changed(lambda value: side.at(value, where))
        items, value, when = store.items, store.value, store.when
        if len(axes_of(*items)) != len(store.axes):
            what = "what the first group stores does not vary with all of their indices"
            message = f"`{store.target_text}` would be one place for several points, since {what}"
            raise _CannotFuseError(store.span, message, _APART)
        if launched is not None and self.first.when != self.second.when:
            # What a condition reads is read only where the group would be launched.
            when = launched if when is None else _choice(launched, when, launched)
        if side.read is not None and when is not None:
            value = _Knowing(self.names, {*_joined(when, self.names.lets)}).at(value)
        place = Load(store.tensor, items, value.dtype, axes_of(*items))
        return replace(
            store,
            items=items,
            value=value,
            when=when,
            axes=place.axes,
            decided=frozenset(where[index].name for index in store.decided),
            target_text=spec_text(place).text,
            value_text=f"{spec_text(value)}" + (f", when {spec_text(when)}" if when else ""),
        )

    # What the second group reads.

    def _read(self, load: Load) -> Value:
        """What a load of the second group gives after the first group."""
        if load not in self.found:
            value = self._element(load) if load.tensor in self.stores else load
            if not isinstance(value, Load):
                value = self.names.named(value, f"{load.tensor}_read", load.span)
            self.found[load] = value
        return self.found[load]

    def _element(self, load: Load) -> Value:
        for number, item in enumerate(load.items):  # a place that is chosen is one of two places
            chosen = self._plain(item)
            if isinstance(chosen, Select):
                ways = []
                for way in (chosen.then, chosen.other):
                    items = (*load.items[:number], way, *load.items[number + 1 :])
                    ways.append(self._read(replace(load, items=items, axes=axes_of(*items))))
                return _choice(chosen.cond, *ways)
        text, stores = spec_text(load).text, self.stores[load.tensor]
        moves = Rewriter(self.names, self.names.lets)
        pieces: list[tuple[list[Value], Value]] = []
        for number, store in enumerate(stores):
            hit = self._point(store, load.items, load.span, text)
            if hit is None:
                continue
            where, conditions = hit
            # What is stored and read is worked out once.
            value = self.names.named(store.value, f"{store.tensor}_stored", store.value_span)
            stores[number] = replace(store, value=value)
            try:
                value = moves.at(value, where)
                conditions += [moves.at(store.when, where)] if store.when is not None else []
            except CannotMoveError as error:
                what = f"`{text}` needs what `{store.target_text}` stores at other indices"
                message, also = (
                    f"{what}, and {error} runs along one of them",
                    (error.span, "the scan"),
                )
                raise _CannotFuseError(load.span, message, _MOVED, (also,)) from None
            if not conditions:
                return value
            pieces.append((conditions, value))
        rest: Value = load
        if pieces and self._fills(self.first, load.tensor):  # one of them has stored there
            rest = pieces.pop()[1]
        for conditions, value in pieces:
            if not isinstance(rest, Load):
                rest = self.names.named(rest, f"{load.tensor}_read", load.span)
            for condition in reversed(conditions):  # each is asked where those before it hold
                value = _choice(condition, value, rest)  # noqa: PLW2901
            rest = value
        return rest

    def _point(
        self, store: Store, items: tuple[Value, ...], span: Span, text: str
    ) -> tuple[Where, list[Value]] | None:
        """The point of a store that stores to a place, and when there is one; None if there never is."""
        if store.items == items and not store.decided:
            return {}, []  # each point has a place of its own
        where, conditions, extents = dict[str, Value](), list[Value](), self.names.extents
        for item, place, dim in zip(
            items, store.items, self.tensors[store.tensor].shape, strict=True
        ):
            index, offset = self._split(place)
            base, same = self._split(item)
            if index is None and item != place:
                if isinstance(base, Index) and self._known(extents[base.name]) == self._known(
                    place
                ):
                    return None  # that index has no such value
                if isinstance(item, Const) and isinstance(place, Const):
                    return None
                conditions.append(truth("eq", cast(item, "i64"), _whole(place)))
            elif isinstance(index, Index) and index.name not in where:
                at = cast(item, "i64")
                if offset is not None:
                    known = base if same == offset else None
                    at = (
                        cast(known, "i64")
                        if known
                        else Op("sub", (at, _whole(offset)), "i64", at.axes)
                    )
                if not isinstance(at, Const):
                    at = self.names.named(at, f"{index.name}_at", span)
                where[index.name] = at
                extent = self._known(extents[index.name])
                if self._known(self._plain(at)) == extent:
                    return None  # it is just past the last one
                if isinstance(at, Index) and self._known(extents[at.name]) == extent:
                    continue
                above = [truth("lt", at, _whole(extents[index.name]))]
                inside = [truth("and", truth("le", Const(0, "int"), at), *above)]
                conditions += inside if offset else above if self._known(dim) != extent else []
            elif index is not None:
                message = f"`{text}` may be where `{store.target_text}` has stored"
                message, also = (
                    f"{message}, and kgen can't tell by which point",
                    (store.span, "the store"),
                )
                raise _CannotFuseError(span, message, _PLAIN, (also,))
        return where, conditions

    def _plain(self, value: Value) -> Value:
        """What a let is, and what is cast to i64."""
        while isinstance(value, Ref) or (isinstance(value, Cast) and value.dtype == "i64"):
            value = value.arg if isinstance(value, Cast) else self.names.lets[value.name].value
        return value

    def _split(self, value: Value) -> tuple[Value | None, Value | None]:
        """A place as a number and one that is known before the launch, which is added to it."""
        while isinstance(value, Ref):
            value = self.names.lets[value.name].value
        match value:
            case Op("add", (a, b)) if not value.wraps and is_host(b) != is_host(a):
                return (a, b) if is_host(b) else (b, a)
            case Op("sub", (a, b)) if not value.wraps and is_host(b) and not is_host(a):
                return a, replace(value, op="neg", args=(b,), axes=NO_AXES)
        return (None, value) if is_host(value) else (value, None)

    # What both groups store.

    def _fills(self, group: Group, tensor: str) -> bool:
        """Whether a group stores to every element of a tensor whenever both are launched."""
        declared = group.tensors.get(tensor)
        always = group.when is None or self.first.when == self.second.when
        return declared is not None and declared.mode == "out" and always

    def _stays(self, store: Store, later: list[Store]) -> bool:
        """Whether a store of the first group is needed beside those of the second."""
        if self._fills(self.second, store.tensor):
            return False
        for other in (each for each in later if each.tensor == store.tensor):
            hit = self._point(other, store.items, store.span, store.target_text)
            if hit is not None and not hit[1] and other.when is None:
                return False
            if hit is not None:
                message = f"`{other.target_text}` may be where `{store.target_text}` has stored"
                also = (store.span, "the first group's store")
                raise _CannotFuseError(other.span, message, _COVER, (also,))
        return True

    # What is left.

    def _finished(self, group: Group, through: list[str]) -> Group:
        """A group with what it needs, and with how its tensors are used now."""
        needed = {each.name for each in _parts(group, deep=True) if isinstance(each, Ref)}
        group = replace(group, lets={n: let for n, let in group.lets.items() if n in needed})
        parts, read = {*_parts(group), *(store.place for store in group.stores)}, _loaded(group)
        used = axes_of(*parts) | {each.index for each in parts if isinstance(each, Reduce | Scan)}
        order = sorted(group.extents, key=lambda index: index in group.twins)  # kgen's own last
        stored = {store.tensor for store in group.stores}
        partly = read | {store.tensor for store in group.stores if store.when is not None}
        tensors: dict[str, Tensor] = {}
        for name, tensor in group.tensors.items():
            both = [g.tensors[name].mode for g in (self.first, self.second) if name in g.tensors]
            mode: Literal["out", "inout"] = (
                "out" if "out" in both and name not in partly else "inout"
            )
            tensors[name] = replace(tensor, mode=mode if name in stored else "in")
        self._check(tensors, through, read)
        return replace(
            group,
            tensors=tensors,
            extents={index: group.extents[index] for index in order if index in used},
            extent_texts={i: text for i, text in group.extent_texts.items() if i in used},
            extent_spans={i: span for i, span in group.extent_spans.items() if i in used},
            twins={twin: index for twin, index in group.twins.items() if twin in used},
            trusted=tuple(each for each in group.trusted if each.value in parts),
        )

    def _check(self, tensors: dict[str, Tensor], through: list[str], read: Collection[str]) -> None:
        """Refuse to do without a tensor that does more than pass between the groups."""
        for name in through:
            one, two = self.first.tensors.get(name), self.second.tensors.get(name)
            why = "what it held before the two groups is read" if name in read else ""
            why = "the second group stores to it, too" if two is not None and two.written else why
            why = why if one is not None and one.written else "the first group does not store to it"
            if why:
                span = (one or two or self.first).span
                raise _CannotFuseError(span, f"`{name}` can't be dropped: {why}", _THROUGH)
        shapes = [tensor.shape for tensor in tensors.values() if not tensor.optional]
        bound = {dim.name for shape in shapes for dim in shape if isinstance(dim, Param)}
        for size in self.sizes.values():
            if size.derived is None and size.name not in bound:
                message = f"no tensor that is left has the size `{size.name}`"
                raise _CannotFuseError(size.span, message, _THROUGH)


def _joined(condition: Value, lets: Mapping[str, Let]) -> Iterator[Value]:
    """The conditions that all hold where one does, in the names of lets and as these are written."""
    yield condition
    match condition:
        case Ref(name):
            yield from _joined(lets[name].value, lets)
        case Op("and", args):
            for each in args:
                yield from _joined(each, lets)


@dataclass(slots=True)
class _Knowing:
    """Values where some conditions hold: the choices by them are made."""

    names: Names
    known: set[Value]
    _made: dict[Value, Value] = field(default_factory=dict)

    def at(self, value: Value) -> Value:
        """`value`, the same object where no choice in it is made."""
        if value not in self._made:
            self._made[value] = self._at(value)
        return self._made[value]

    def _at(self, value: Value) -> Value:
        match value:
            case Select(cond, then, _) if cond in self.known:
                return self.at(then)
            case Ref(name):
                let = self.names.lets[name]
                known = self.at(let.value)
                return value if known == let.value else self.names.named(known, name, let.span)
            case Reduce() | Scan():  # other points may be meant
                return value
        return rebuilt(value, tuple(map(self.at, children(value))))


def _launched(group: Group, other: Group) -> Group:
    """A group with the condition of the other one's launch, if it stores nothing where that fails."""
    when = other.when
    if group.when is not None or when is None:
        return group
    for store in group.stores:
        extents = [group.extents[index] for index in store.axes]
        if when not in [truth("gt", each, Const(0, "int")) for each in extents]:
            return group
    return replace(group, when=when)


def _parts(group: Group, *, deep: bool = False) -> Iterable[Value]:
    """Everything that stores and lets are made of; `deep`: that stores are made of, through lets."""
    roots = (value for store in group.stores for value in store.values) if deep else group.values
    return (each for root in roots for each in walk(root, group.lets if deep else {}))


def _loaded(group: Group) -> set[str]:
    """The tensors that a group reads."""
    return {each.tensor for each in _parts(group) if isinstance(each, Load)}


def _choice(cond: Value, then: Value, other: Value) -> Select:
    return Select(cond, then, other, then.dtype, axes_of(cond, then, other))


def _whole(value: Value) -> Value:
    """A number beside one of type i64."""
    return value if value.dtype == "int" else cast(value, "i64")


def _narrowed(a: _Declared, b: _Declared) -> _Declared:
    """`a` with the range that both ranges hold."""
    low, high = _tighter("max", a.low, b.low), _tighter("min", a.high, b.high)
    shown = " .. ".join(str(spec_text(end)) if end is not None else "" for end in (low, high))
    text = "" if low is high is None else shown.strip()
    if isinstance(a, Tensor):
        return replace(a, low=low, high=high, values_text=text)
    kind = "static" if a.static else a.dtype if isinstance(a, Scalar) else ""
    return replace(a, low=low, high=high, text=f"{kind} {text}".strip())


def _tighter(op: str, a: Value | None, b: Value | None) -> Value | None:
    if a is None or b is None or a == b:
        return b if a is None else a
    ends: list[Value] = []
    for end in (*_ends(op, a), *_ends(op, b)):
        number = next((e for e in ends if isinstance(e, Const) and isinstance(end, Const)), None)
        if isinstance(end, Const) and isinstance(number, Const):
            ends.remove(number)
            end = number if (number.value >= end.value) == (op == "max") else end  # noqa: PLW2901
        ends += [end] if end not in ends else []
    joined = ends[0]
    for end in ends[1:]:
        joined = Op(op, (joined, end), promote(joined.dtype, end.dtype), NO_AXES)
    return joined


def _ends(op: str, end: Value) -> tuple[Value, ...]:
    """What an end is the greatest or the least of."""
    match end:
        case Op(kind, args) if kind == op:
            return tuple(each for arg in args for each in _ends(op, arg))
    return (end,)


def _differ(a: Size | Scalar | Tensor, b: Size | Scalar | Tensor) -> NoReturn:
    kinds = [f"the {type(each).__name__.lower()} {each.text}".strip() for each in (a, b)]
    one, two = (
        f"{kind}, optional" if isinstance(each, Tensor) and each.optional else kind
        for kind, each in zip(kinds, (a, b), strict=True)
    )
    message = f"`{b.name}` is {two} here and {one} in the first group"
    raise _CannotFuseError(b.span, message, _ALIKE, ((a.span, one),))
