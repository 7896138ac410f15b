"""The torch reference of a group.

In: a typed group. Out: the text of one function that computes the group in torch, vectorized, on any
device: the second reading of the spec. It knows nothing of plans or of proved facts; every gather and
store checks its bounds, so that a reference which disagrees with the spec's ranges fails loudly.

A value is a number of Python's where it is known before the launch. Else it is a tensor with one dimension
for each index of the group, of size 1 where the value does not vary with it, or with none; torch's
broadcasting does the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kgen.lang.code import COMPARE, Code, call, joined, method, number, prefix, ternary
from kgen.lang.dtypes import FLOATS, LITERALS, DType, torch_type
from kgen.lang.names import fresh
from kgen.lang.operators import OPERATORS, SCANS
from kgen.lang.typed import (
    NO_AXES,
    Axes,
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
    Store,
    Tensor,
    Value,
)
from kgen.targets.guards import (
    ALWAYS,
    NO_FACTS,
    Anywhere,
    Fact,
    Guard,
    Key,
    Part,
    Parts,
    Term,
    Wanted,
)
from kgen.targets.known import shared
from kgen.targets.layout import docstring, wrap

_SHORT = 24  # characters of a condition that is written out wherever it is asked for
_LONG = 40  # characters of what is used once, beyond which it gets a name
_LOADS, _CALL = re.compile(r"\b_(load|peek)\("), re.compile(r"\w\(")
_NUMBERED = re.compile(r"_\d+$")


@dataclass(frozen=True, slots=True)
class Reference:
    """The text of a reference function, and the sizes that it takes beside the group's arguments."""

    text: str
    sizes: tuple[str, ...]


def emit(group: Group) -> Reference:
    """The reference function of a group: tensors, scalars and sizes by keyword, outputs in place."""
    group = shared(group)
    return _Reference(group, Parts(group)).emit()


def python_type(tensor: Tensor) -> str:
    """The annotation of a tensor parameter."""
    kind = "list[Tensor]" if tensor.length is not None else "Tensor"
    return f"{kind} | None" if tensor.optional else kind


@dataclass(slots=True)
class _Reference:
    group: Group
    parts: Parts
    lines: list[str] = field(default_factory=list)
    codes: dict[Key, Code] = field(default_factory=dict)  # of the parts
    used: set[str] = field(default_factory=set)  # sizes, scalars, indices and the device
    names: set[str] = field(init=False)
    local: dict[str, str] = field(init=False)
    device: str = field(init=False)
    trunks: set[Value] = field(init=False)

    def __post_init__(self) -> None:
        group = self.group
        self.names = {"torch", *group.sizes, *group.scalars, *group.tensors}
        self.local = {name: fresh(name, self.names) for name in (*group.extents, *group.lets)}
        self.device = fresh("device", self.names)
        values = [let.value for let in group.lets.values()] + [s.value for s in group.stores]
        self.trunks = {value.arg if isinstance(value, Cast) else value for value in values}

    def emit(self) -> Reference:
        group = self.group
        stores = []
        for keys, store in zip(self.parts.order, (*group.stores, None), strict=True):
            for key in keys:
                self._define(key)
            stores += self._store(store) if store is not None else []
        self._check_late()
        head = []
        if group.when is not None:
            test = prefix("not", self._host(group.when))
            head = [f"# when: {group.when_text}", f"if {test}:", "    return"]
        indices = [self._arange(index) for index in group.extents if index in self.used]
        if self.device in self.used:
            given = [tensor for tensor in group.tensors.values() if not tensor.optional]
            first = next((tensor for tensor in given if tensor.length is None), given[0])
            of = first.name if first.length is None else f"{first.name}[0]"
            head.append(f"{self.device} = {of}.device")
        sizes = tuple(name for name in group.sizes if name in self.used)
        args = [f"{name}: {python_type(tensor)}" for name, tensor in group.tensors.items()]
        args += [f"{n}: {'float' if s.dtype == 'f32' else 'int'}" for n, s in group.scalars.items()]
        args += [f"{name}: int" for name in sizes]
        lines = [f"def {group.name}(", "    *,", *(f"    {arg}," for arg in args), ") -> None:"]
        body = [docstring(group.summary), *head, *indices, *self.lines]
        body += ["# Every load came before; now the stores.", *stores]
        return Reference(wrap("\n".join(lines + [f"    {line}" for line in body]) + "\n"), sizes)

    # Parts.

    def _define(self, key: Key) -> None:
        """Compute a part: as a variable, or as text where it is used once."""
        part = self.parts.parts[key]
        if isinstance(key, Wanted):
            whose = key.part if isinstance(key.part, str) else part.owner
            self.codes[key] = self._named(self._guard(part.mask), f"reads_{whose}", part.lazy)
            return
        value, own = self.parts.body(key)
        if self.parts.checked(key) and not part.late:
            self._check(value, part)
        code = self._made(value, part) if own else self._code(value)
        if isinstance(key, str):
            comment = f"# {key}: {self.group.lets[key].text}"
            self.codes[key] = self._assigned(code, self.local[key], part.lazy, comment)
            return
        if part.uses == 1:
            inline = len(code.text) <= _LONG or value in self.trunks
        else:  # a short condition may as well be written again
            short = len(code.text) <= _SHORT and not _CALL.search(code.text)
            inline = key in self.parts.conds and short
        self.codes[key] = code if inline else self._named(code, self._hint(key, part), part.lazy)

    def _named(self, code: Code, hint: str, lazy: Term = NO_FACTS) -> Code:
        return self._assigned(code, fresh(hint, self.names), lazy)

    def _assigned(self, code: Code, name: str, lazy: Term, comment: str = "") -> Code:
        """A variable for some text; it is None where Python knows that nobody reads it."""
        if lazy:
            code = ternary(self._lazily(lazy), code, Code("None"))
        if comment and comment != f"# {name}: {code}":
            self.lines.append(comment)
        self.lines.append(f"{name} = {code}")
        return Code(name)

    def _hint(self, value: Value, part: Part) -> str:
        """What a part may be called."""
        match value:
            case Load(tensor, items):
                words = map(str, self._items(items))
                name = tensor + "".join(w if w.isdigit() else f"_{w}" for w in words)
                good = name.isidentifier() and len(name) <= 32 and not _NUMBERED.search(name)
                return name if good else f"{tensor}_value"
            case Reduce(kind, index) | Scan(kind, index):
                return f"{kind}_{index}"
            case Op("floordiv" | "mod" as op):
                return f"{part.owner}_{op}"
        when = any(store.when == value for store in self.group.stores)
        return f"{part.owner}_{'when' if when else 'taken'}"

    def _made(self, value: Value, part: Part) -> Code:
        """The text of a part."""
        match value:
            case Load(tensor, items) if part.late:
                return call("_peek", tensor, *self._items(items))
            case Load(tensor, items):
                return call("_load", tensor, *self._items(items), *self._where(part.mask))
            case Op(op, (a, b)) if part.mask != ALWAYS and self.parts.divides(value):
                where = ["where=False"] if part.late else self._where(part.mask)
                divisor = call("_divisor", self._code(b), *where)
                return OPERATORS[op].torch(self._code(a, loose=True), divisor)
            case Reduce(kind, index, arg) | Scan(kind, index, arg):
                each = self._along(self._code(arg), self.parts.spans(arg), index)
                if len(each.text) > _LONG:
                    each = self._named(each, f"each_{index}", part.lazy)
                dim = f"dim={self._dim(index)}"
                if kind == "first" and isinstance(value, Reduce) and value.none is not None:
                    return call("_first", each, self._code(value.none, loose=True), dim)
                if kind in ("min", "max"):
                    return call(f"_{kind}", each, dim)
                if value.dtype == "f32":
                    return call("_tree_sum", each, dim)
                return method(each, kind, dim, *(["keepdim=True"] if kind not in SCANS else []))
        return self._plain(value, loose=self.parts.number(value))

    def _check_late(self) -> None:
        """The checks of parts whose guards depend on their values."""
        for key in (key for keys in self.parts.order for key in keys):
            part = self.parts.parts[key]
            if part.late:
                self._check(self.parts.body(key)[0], part)

    def _check(self, value: Value, part: Part) -> None:
        """The check of a load's bounds, or of a number that is trusted to fit its type."""
        where = self._where(part.mask)
        if isinstance(value, Load):
            line = call("_check", value.tensor, *self._items(value.items), *where)
        elif self.parts.trusts(value):
            line = call("_fits", self._exact(value), torch_type(value.dtype), *where)
        else:
            return
        self.lines += [f"if {self._lazily(part.lazy)}:"] if part.lazy else []
        self.lines.append(f"{'    ' if part.lazy else ''}{line}")

    def _exact(self, value: Value) -> Code:
        """The text of a whole number in f64."""
        match value:
            case Reduce(_, index, arg) | Scan(_, index, arg):
                each = method(self._along(self._code(arg), self.parts.spans(arg), index), "double")
                keep = ["keepdim=True"] if isinstance(value, Reduce) else []
                kind = "sum" if keep else "cumsum"
                return method(each, kind, f"dim={self._dim(index)}", *keep)
            case Cast(arg):
                return method(self._code(arg), "double")
            case Op(op, args):
                return OPERATORS[op].torch(*(method(self._code(arg), "double") for arg in args))
        raise AssertionError(f"{value} is not computed")

    # Guards.

    def _where(self, guard: Guard) -> list[str]:
        return [] if guard == ALWAYS else [f"where={self._guard(guard)}"]

    def _guard(self, guard: Guard) -> Code:
        return joined("|", map(self._term, guard))

    def _term(self, term: Term) -> Code:
        lazy = frozenset(fact for fact in term if fact.lazy)
        codes = [self._fact(fact) for fact in self.parts.listed(term - lazy)]
        if not codes:
            return self._lazily(lazy)
        none = self._full(Code("False"), "bool") if lazy else None
        code = joined("&", codes)
        return ternary(self._lazily(lazy), code, none) if none else code

    def _lazily(self, lazy: Term) -> Code:
        return joined("and", map(self._fact, self.parts.listed(lazy)))

    def _fact(self, fact: Fact) -> Code:
        match fact.cond:
            case Wanted():
                return self.codes[fact.cond]
            case Anywhere(facts, index):
                code = self._along(self._term(facts), self.parts.spanned(facts), index)
                return method(code, "any", f"dim={self._dim(index)}", "keepdim=True")
            case cond if self.parts.number(cond):
                return self._host(cond if fact.holds else Op("not", (cond,), "bool", NO_AXES))
            case cond:
                return self._code(cond) if fact.holds else prefix("~", self._code(cond))

    # Values.

    def _code(self, value: Value, *, loose: bool = False) -> Code:
        """The text of a value: a tensor, or a number of Python's where one will do (`loose`)."""
        key = self.parts.key(value)
        if key is None or self.parts.number(value):
            return self._plain(value, loose=loose)
        return self.codes[key]

    def _plain(self, value: Value, *, loose: bool = False) -> Code:
        """The text of a value that is written where it is used."""
        number = self.parts.number
        if number(value):
            host = self._host(value)
            return host if loose else self._full(host, value.dtype)
        match self.parts.outward(value):
            case Index(name):
                self.used.add(name)
                return Code(self.local[name])
            case Cast(arg, dtype) if arg.dtype in LITERALS:
                return self._full(self._host(arg), dtype)
            case Cast(arg, dtype):
                return method(self._code(arg), "to", torch_type(dtype))
            case Select(cond, then, other) if number(cond):
                arms = [self._code(arm, loose=loose) for arm in (then, other)]
                return ternary(self._host(cond), *arms)
            case Select(cond, then, other, dtype):
                both = dtype == "i64" and number(then) and number(other)  # torch's own choice
                arms = list(map(self._host, (then, other))) if both else self._pair((then, other))
                return call("torch.where", self._code(cond), *arms)
            case Op() as one:
                return self._operate(one)
        raise AssertionError(f"{value} is a part")

    def _operate(self, value: Op) -> Code:
        table, args, number = OPERATORS[value.op], value.args, self.parts.number
        floats = any(arg.dtype in FLOATS for arg in args)
        form = table.torch_floats if floats else table.torch
        if table.arity == 1:
            return form(self._code(args[0]))
        if table.takes == "quotient":  # with a number of Python's torch multiplies by a reciprocal
            full = [self._full(self._host(a), value.dtype) if number(a) else None for a in args]
            return form(*(one or self._code(arg) for one, arg in zip(full, args, strict=True)))
        tensor, bound = sorted(args, key=number)
        if table.torch_bound is not None and not floats:
            if number(bound):
                return table.torch_bound(self._code(tensor), self._host(bound))
            return form(*map(self._code, args))
        a, b = self._pair(args)
        code = form(a, b)  # conditions may be grouped in any way
        return (
            form(a, Code(b.text)) if table.takes == "conditions" and b.binds == code.binds else code
        )

    def _pair(self, args: tuple[Value, ...]) -> list[Code]:
        """Operands of one operator: at least one is a tensor, whatever Python chooses."""
        sure = any(map(self.parts.sure, args))
        return [self._code(arg, loose=sure or at > 0) for at, arg in enumerate(args)]

    def _items(self, items: tuple[Value, ...]) -> list[Code]:
        return [self._code(item, loose=True) for item in items]

    def _host(self, value: Value) -> Code:
        """What is known before the launch, of Python's numbers."""
        match value:
            case Const(literal):
                return number(literal)
            case Param(name):
                self.used.add(name)
                return Code(name)
            case Given(tensor):
                return Code(f"{tensor} is not None", COMPARE)
            case Ref(name):
                return self.codes[name]
            case Cast(arg):
                return self._host(arg)
            case Select(cond, then, other):
                return ternary(*map(self._host, (cond, then, other)))
            case Op("not", (Given(tensor),)):
                return Code(f"{tensor} is None", COMPARE)
            case Op(op, args):
                return OPERATORS[op].spec(*map(self._host, args))
        raise AssertionError(f"{value} is not known before the launch")

    def _full(self, code: Code, dtype: DType) -> Code:
        self.used.add(self.device)
        return call("_full", code, torch_type(dtype), self.device)

    # Indices and stores.

    def _along(self, code: Code, spans: Axes, index: str) -> Code:
        """A tensor with all elements along an index."""
        if index in spans:
            return code
        extent = self._host(self.group.extents[index])
        return call("_along", code, str(self._dim(index)), extent, str(len(self.group.extents)))

    def _dim(self, index: str) -> int:
        return list(self.group.extents).index(index)

    def _arange(self, index: str) -> str:
        """The line that defines an index."""
        self.used.add(self.device)
        extents, twin = self.group.extents, self.group.twins.get(index)
        code = call("torch.arange", self._host(extents[index]), f"device={self.device}")
        if len(extents) > 1:
            code = method(code, "view", *("-1" if each == index else "1" for each in extents))
        return f"{self.local[index]} = {code}" + (f"  # another {twin}" if twin else "")

    def _store(self, store: Store) -> list[str]:
        """The lines of a store; what it loads becomes variables first."""
        lines = [f"# {store.target_text}: {store.value_text}"]
        value = self._code(store.value, loose=True)
        if _LOADS.search(value.text):
            self.lines += lines
            value, lines = self._named(value, f"{store.tensor}_new"), []
        items = [
            self._named(code, f"{store.tensor}_at") if _LOADS.search(code.text) else code
            for code in self._items(store.items)
        ]
        places = ", ".join(map(str, items)) + "," * (len(items) == 1)
        where = [f"where={self._code(store.when, loose=True)}"] if store.when is not None else []
        return [*lines, str(call("_store", store.tensor, f"({places})", value, *where))]
