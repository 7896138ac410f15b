"""Typed values in other terms: other names, other indices, something else in place of a load.

In: typed values over the lets of a group. Out: typed values over lets that are made here. A let becomes
another one once for each replacement of its indices, so that nothing is written out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from kgen.diagnostics import Span
from kgen.lang.text import spec_text
from kgen.lang.typed import (
    Axes,
    Const,
    Given,
    Index,
    Let,
    Load,
    Param,
    Reduce,
    Ref,
    Scan,
    Select,
    Value,
    axes_of,
    children,
    index_of,
    rebuilt,
)

Where = Mapping[str, Value]


class CannotMoveError(Exception):
    """A value can't be had at other indices, because of a scan."""

    def __init__(self, scan: Scan) -> None:
        super().__init__(f"`{scan.kind}[{scan.index}]`")
        self.span = scan.span


@dataclass(slots=True)
class Names:
    """The lets and indices of a group that is being made.

    `taken`: names that nothing may have. `twins`: indices of kgen's own -> those that they stand beside.
    """

    taken: set[str]
    lets: dict[str, Let] = field(default_factory=dict)
    extents: dict[str, Value] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)
    known: dict[Value, Ref] = field(default_factory=dict)

    def fresh(self, name: str) -> str:
        """`name`, with a number behind it if it is taken; it is taken from now on."""
        stem, number, found = re.sub(r"_\d+$", "", name), 1, name
        while found in self.taken:
            number += 1
            found = f"{stem}_{number}"
        self.taken.add(found)
        return found

    def named(self, value: Value, name: str, span: Span) -> Value:
        """A value as a let, `name` if that is free; equal values are one let."""
        if isinstance(value, Ref | Param | Index):
            return value
        if value not in self.known:
            name = self.fresh(name)
            self.lets[name] = Let(name, value, spec_text(value).text, span)
            self.known[value] = Ref(name, value.dtype, value.axes)
        return self.known[value]


@dataclass(slots=True)
class Rewriter:
    """Puts values in other terms.

    `lets`: what the values are made of. `renames`: other names are put in place of indices where they are
    bound, too; without it, values are put in place of some indices where they are free. `read`: what
    becomes of a load. `given`, `absent`: tensors that are always given, or never.
    """

    names: Names
    lets: Mapping[str, Let]
    renames: bool = False
    read: Callable[[Load], Value] | None = None
    given: Collection[str] = ()
    absent: Collection[str] = ()
    _made: dict[tuple[str, frozenset[tuple[str, Value]]], Value] = field(default_factory=dict)
    _twins: dict[str, str] = field(default_factory=dict)

    def at(self, value: Value, where: Where) -> Value:
        """`value` with other values, i64 ones, in place of its indices; those not in `where` stay.

        Raises:
            CannotMoveError: a scan runs along an index that becomes another value.
        """
        if not self.renames:
            where = {name: new for name, new in where.items() if name in value.axes}
            if all(new == index_of(name) for name, new in where.items()):
                return value
        match value:
            case Index(name):
                return where[name]
            case Ref(name):
                return self._let(self.lets[name], value.axes, where)
            case Select(Given(name), then, other) if name in self.given or name in self.absent:
                return self.at(then if name in self.given else other, where)
            case Given(name) if name in self.given or name in self.absent:
                return Const(name in self.given, "bool")
            case Reduce(_, index, arg, none):
                bound, inner = self._bound(index, arg.axes, where)
                row = where.get(value.before, index_of(value.before))
                before = row.name if isinstance(row, Index) else ""
                parts = [self.at(arg, inner), *([self.at(none, where)] if none is not None else [])]
                return rebuilt(replace(value, index=bound, before=before), tuple(parts))
            case Scan(_, index, arg):
                bound, inner = self._bound(index, arg.axes, where)
                if not self.renames and (index in where or bound != index):
                    raise CannotMoveError(value)
                return rebuilt(replace(value, index=bound), (self.at(arg, inner),))
        made = rebuilt(value, tuple(self.at(part, where) for part in children(value)))
        return self.read(made) if self.read is not None and isinstance(made, Load) else made

    def _let(self, let: Let, axes: Axes, where: Where) -> Value:
        """What a use of a let becomes."""
        key = (let.name, frozenset(each for each in where.items() if each[0] in axes))
        if key not in self._made:
            name = let.name if self.renames else f"{let.name}_at"
            self._made[key] = self.names.named(self.at(let.value, where), name, let.span)
        return self._made[key]

    def _bound(self, index: str, axes: Axes, where: Where) -> tuple[str, Where]:
        """What an index is that a reduction or scan runs over, and what is replaced within."""
        if self.renames:
            new = where[index]
            assert isinstance(new, Index)
            return new.name, where
        inner = {name: new for name, new in where.items() if name != index and name in axes}
        bound = index
        while bound in axes_of(*inner.values()):  # one would be taken for the other
            bound = self._twin(bound)
        return bound, inner if bound == index else {**inner, index: index_of(bound)}

    def _twin(self, index: str) -> str:
        """Another index of the same extent, the same one each time."""
        names, beside = self.names, self.names.twins.get(index, index)
        if index not in self._twins:
            name = self._twins[index] = names.fresh(f"{beside}_at")
            names.twins[name], names.extents[name] = beside, names.extents[index]
        return self._twins[index]
