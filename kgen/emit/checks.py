"""The check of a group as Triton text: its kernel with every load and store checked, and nothing stored.

In: a `Plan`. Out: `CheckKernel`, what debug mode launches before the kernel itself. It takes the kernel's
own arguments, then limits (sizes and ends of ranges, which the host computes) and buffers of i64:

- a row for each check: the least point at which it failed, the point whose details are wanted, and these;
- for each `distinct` tensor, which of its elements are read;
- for each tensor with `trusted` stores, the element that each point of its stores goes to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kgen.emit.helpers import HELPERS
from kgen.emit.lanes import LaneCode
from kgen.emit.names import Names
from kgen.emit.parameters import Parameter, is_zero, parameters, plain, programs_of
from kgen.emit.prune import pruned, words
from kgen.emit.role import RolePrinter
from kgen.emit.triton import function
from kgen.emit.values import Body, conjuncts
from kgen.lang.code import Code, call, infix, method, number
from kgen.lang.dtypes import FLOATS, LITERALS
from kgen.lang.text import spec_text
from kgen.lang.typed import (
    Axes,
    Const,
    Group,
    Index,
    Load,
    Store,
    Tensor,
    Value,
    walk,
)
from kgen.plan.plan import Plan

_LONG = 50  # characters beyond which a part of a number gets a name
ROW = (
    16  # numbers in a row of the report, as in kgen/runtime/_debug.py; the first two are the points
)


@dataclass(frozen=True, slots=True)
class Check:
    """What is checked of a tensor at each point of `axes`: values, expected, read or stored."""

    tensor: str
    what: str
    axes: tuple[str, ...]


@dataclass(slots=True)
class Found:
    """What the roles of a kernel check, in order; `limits` maps a parameter to its expression."""

    checks: list[Check] = field(default_factory=list)
    limits: dict[str, str] = field(default_factory=dict)
    known: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckKernel:
    """The text of a check and what its launch passes.

    `distinct`: the tensors whose read elements are noted; `trusted`: those whose stores are, with
    the axes of each store.
    """

    name: str
    text: str
    parameters: tuple[Parameter, ...]
    helpers: frozenset[str]
    checks: tuple[Check, ...]
    limits: tuple[str, ...]
    distinct: tuple[str, ...]
    trusted: dict[str, tuple[tuple[str, ...], ...]]

    @property
    def checked(self) -> bool:
        """Whether there is anything that debug mode has to look at."""
        return bool(self.checks or self.distinct or self.trusted)


def emit(plan: Plan) -> CheckKernel:
    """The check kernel of a plan."""
    params, found, helpers = parameters(plan), Found(), set[str]()
    names = Names({"pid", "program", "tl", "triton", *HELPERS, *(param.name for param in params)})
    several = len(plan.roles) > 1
    bodies = []
    for at, role in enumerate(plan.roles):
        printer = CheckPrinter(plan, role, names, at, helpers, several, found=found)
        bodies.append(pruned(printer.lines()) or ["pass"])
    distinct, trusted = _distinct(plan.group, bodies), _trusted(plan.group)
    more = [Parameter(name, "limit", "i64", "") for name in found.limits]
    buffers = ["_report", *(f"_{t}_read" for t in distinct), *(f"_{t}_places" for t in trusted)]
    more += [Parameter(f"{name}_ptr", "buffer", "i64", "") for name in buffers]
    counts = [programs_of(plan.group, role) for role in plan.roles]
    used = words(line for body in bodies for line in body) | words(str(c) for c in counts[:-1])
    kept = [p for p in params if p.name in used]
    static = next((at for at, p in enumerate(kept) if p.type == "constexpr"), len(kept))
    every = (*kept[:static], *more, *kept[static:])
    name = f"{plan.group.name}_check"
    summary = f"Checks what {plan.group.name} reads and where it stores; stores nothing itself."
    return CheckKernel(
        name,
        function(name, summary, every, bodies, counts),
        every,
        frozenset(helpers & used | {n for n in used if n.startswith("_note_") or n in _TESTS}),
        tuple(found.checks),
        tuple(found.limits.values()),
        distinct,
        trusted,
    )


_TESTS = {
    "_inside": '''\
@triton.jit
def _inside(at, size):
    """Whether an index is one of a dimension."""
    return (at >= 0) & (at < size)
''',
    "_between": '''\
@triton.jit
def _between(value, low, high):
    """Whether a value is in a range."""
    return (value >= low) & (value <= high)
''',
}


def check_helper(name: str) -> str | None:
    """The text of a helper that checks alone use."""
    if not name.startswith("_note_"):
        return _TESTS.get(name)
    count = int(name.removeprefix("_note_"))
    details = [f"detail_{at}" for at in range(count)]
    lines = [
        "@triton.jit",
        f"def _note_{count}(row, failed, point, {', '.join(details)}):",
        '    """Note the first point that failed; the details of the point that is asked for."""',
        "    tl.atomic_min(row + point * 0, point, mask=failed)",
        "    wanted = failed & (point == tl.load(row + 1))",
        *(
            f"    tl.store(row + {at + 2} + point * 0, {d}, mask=wanted)"
            for at, d in enumerate(details)
        ),
    ]
    return "\n".join(lines) + "\n"


def _distinct(group: Group, bodies: list[list[str]]) -> tuple[str, ...]:
    used = words(line for body in bodies for line in body)
    return tuple(n for n, t in group.tensors.items() if t.distinct and f"_{n}_read_ptr" in used)


def _trusted(group: Group) -> dict[str, tuple[tuple[str, ...], ...]]:
    """The tensors with trusted stores, and the axes of each store to them."""
    names = [s.tensor for s in group.stores if s.trusted]
    return {
        name: tuple(_ordered(group, s.axes) for s in group.stores if s.tensor == name)
        for name in dict.fromkeys(names)
    }


def _ordered(group: Group, axes: Axes) -> tuple[str, ...]:
    return tuple(index for index in group.extents if index in axes)


def _dims(tensor: Tensor) -> tuple[Value, ...]:
    """The dimensions of a tensor, of a list its length first."""
    return tensor.dims if tensor.length is None else (tensor.length, *tensor.dims)


def _holds(outer: Body, inner: Body) -> bool:
    """Whether a body is another one or around it."""
    here: Body | None = inner
    while here is not None:
        if here is outer:
            return True
        here = here.parent
    return False


@dataclass(slots=True)
class CheckPrinter(RolePrinter):
    """Prints the checks of a role."""

    found: Found = field(default_factory=Found)
    guards: dict[str | Value, list[tuple[LaneCode | None, Body]]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """The role's lines, one level of indentation short."""
        body = Body(None, ())
        self._program(body)
        looped: dict[tuple[str, ...], list[Store]] = {}
        lines: list[str] = []
        for store in self.role.stores:
            over = self._loops(store)
            if over:
                looped.setdefault(over, []).append(store)
            else:
                lines += self._store(store, body, first=False)
        for store in self.role.once:
            lines += self._store(store, body, first=True)
        for over, stores in looped.items():
            lines += self._store_loop(over, stores, body)
        return [*body.lines, *lines]

    # What the spec does not read at a point is not checked there: no load leaves its branch.

    def _needs_guard(self, value: Value) -> bool:
        return any(isinstance(each, Load) for each in walk(value, self.plan.lets))

    def _reads_optional(self, value: Value) -> bool:
        return self._needs_guard(value)

    def _load(self, load: Load, body: Body, guard: LaneCode | None) -> LaneCode:
        tensor = self.plan.group.tensors[load.tensor]
        items = [self.code(item, body, guard) for item in load.items]
        given = [*items, guard] if guard is not None else items
        masks = [self._axis_mask(i) for i in self.lanes.union(*given)]
        mask = self._all([*masks, guard] if guard is not None else masks)
        within = self._bounds(load.tensor, load.items, items, body.lines, safe=load.safe)
        clamped = items
        if within is not None:
            self._note(tensor, "read", load.axes, items, within, mask, body.lines)
            mask = self._all([mask, within] if mask is not None else [within])
            first = 0 if tensor.length is None else 1  # a list is chosen from by any number
            clamped = [
                item
                if at < first or isinstance(value, Const)
                else LaneCode(call("tl.where", within.at(u), item.at(u), "0"), u)
                for at, (value, item) in enumerate(zip(load.items, items, strict=True))
                for u in (self.lanes.union(item, within),)
            ]
        if tensor.distinct:
            self._noted(
                tensor,
                "read",
                self._flat(tensor, load.items, items, body.lines),
                number(1),
                mask,
                body.lines,
            )
        pointer = self._pointer(load.tensor, load.items, clamped, body)
        lanes = self.lanes.union(pointer, *([mask] if mask else []))
        pointer = self._filled(pointer, lanes)
        args = [pointer.code.text]
        if mask is not None:
            other = "0.0" if load.dtype in FLOATS else "0"
            args += [f"mask={self._filled_mask(mask, lanes)}", f"other={other}"]
        code = LaneCode(Code(f"tl.load({', '.join(args)})"), lanes)
        ranges = [("values", (tensor.low, tensor.high)), ("expected", tensor.expected)]
        ranges = [(what, ends) for what, ends in ranges if ends != (None, None)]
        if load.dtype in FLOATS or not ranges:
            return code
        name = self.names.fresh(f"{load.tensor}_element")
        body.lines.append(f"{name} = {code.code}")
        code = LaneCode(Code(name), lanes)
        for what, ends in ranges:
            fits = self._fits(tensor, what, ends, code, body.lines)
            self._note(tensor, what, load.axes, [*items, code], fits, mask, body.lines)
        return code

    def _store(self, store: Store, body: Body, *, first: bool) -> list[str]:
        guard = None
        if store.when is not None:
            guard = self._named(store.when, f"{store.tensor}_when", body, None)
            self.parts[guard.code.text] = tuple(
                self.code(part, body, None) for part in conjuncts(store.when)
            )
        self.code(store.value, body, guard)  # for its loads
        items = [self.code(item, body, guard) for item in store.items]
        masks = [self._axis_mask(index) for index in self.lanes.order if index in store.axes]
        masks += [guard] if guard is not None else []
        masks += [LaneCode(self.first, ())] if first and self.role.program else []
        mask = self._all(masks)
        tensor = self.plan.group.tensors[store.tensor]
        lines: list[str] = []
        within = self._bounds(store.tensor, store.items, items, lines, safe=store.safe)
        if within is not None:
            self._note(tensor, "stored", store.axes, items, within, mask, lines)
            mask = self._all([mask, within] if mask is not None else [within])
        if any(s.trusted for s in self.plan.group.stores if s.tensor == store.tensor):
            place = self._point(store.axes, lines)
            start = self._start_of(store)
            if start is not None:
                place = LaneCode(infix("+", start, place.code), place.lanes)
            self._noted(
                tensor, "places", place, self._flat(tensor, store.items, items, lines), mask, lines
            )
        return [f"# {store.target_text}", *lines] if lines else []

    # What was computed under a wider guard need not be again: it was checked there. A slotted dataclass
    # is not the class that a bare `super()` would mean.

    def _let(self, name: str, body: Body, guard: LaneCode | None) -> LaneCode:
        guard = self._widest(name, body, guard)
        return super(CheckPrinter, self)._let(name, body, guard)

    def _named(self, value: Value, hint: str, body: Body, guard: LaneCode | None) -> LaneCode:
        guard = self._widest(value, body, guard)
        return super(CheckPrinter, self)._named(value, hint, body, guard)

    def _widest(self, what: str | Value, body: Body, guard: LaneCode | None) -> LaneCode | None:
        known = self.guards.setdefault(what, [])
        for wider, where in known:
            if _holds(where, body) and self._texts(wider) <= self._texts(guard):
                return wider
        known.append((guard, body))
        return guard

    def _texts(self, guard: LaneCode | None) -> set[str]:
        if guard is None:
            return set()
        parts = self.parts.get(guard.code.text, (guard,))
        return {part.code.text for part in parts}

    # What is noted.

    def _bounds(
        self,
        name: str,
        values: tuple[Value, ...],
        items: list[LaneCode],
        lines: list[str],
        *,
        safe: bool,
    ) -> LaneCode | None:
        """Whether an index is in its tensor; None where that goes without saying.

        `safe`: it follows from declared ranges, of which those of tensors are not to be believed.
        """
        group = self.plan.group
        tests: list[LaneCode] = []
        dims = _dims(group.tensors[name])
        for at, (value, item, dim) in enumerate(zip(values, items, dims, strict=True)):
            if safe and not self._needs_guard(value):
                continue
            if isinstance(value, Const) and isinstance(dim, Const) and value.value < dim.value:
                continue
            size = self._limit(name, f"size_{at}", dim)
            code = item.code
            if value.dtype in LITERALS:  # a number without a type
                code = call("tl.full", "()", code, "tl.int64")
            index = isinstance(value, Index)
            test = infix("<", code, size) if index else call("_inside", code, size)
            tests.append(self._kept(f"{name}_inside", LaneCode(test, item.lanes), lines))
        if len(tests) < 2:
            return tests[0] if tests else None
        total = self._all(tests)
        assert total is not None, "there are tests"
        return self._kept(f"{name}_inside", total, lines)

    def _fits(
        self,
        tensor: Tensor,
        what: str,
        ends: tuple[Value | None, Value | None],
        value: LaneCode,
        lines: list[str],
    ) -> LaneCode:
        """Whether a value is in a range."""
        low, high = (
            self._limit(tensor.name, f"{what}_{side}", end) if end is not None else None
            for side, end in zip(("low", "high"), ends, strict=True)
        )
        wide = value.code if tensor.dtype == "i64" else method(value.code, "to", "tl.int64")
        if low is None or high is None:
            code = infix(">=", wide, low) if low is not None else infix("<=", wide, high or wide)
        else:
            code = call("_between", wide, low, high)
        return self._kept(f"{tensor.name}_fits", LaneCode(code, value.lanes), lines)

    def _kept(self, hint: str, test: LaneCode, lines: list[str]) -> LaneCode:
        """A variable for a value."""
        name = self.names.fresh(hint)
        lines.append(f"{name} = {test.code}")
        return LaneCode(Code(name), test.lanes)

    def _limit(self, tensor: str, what: str, value: Value) -> Code:
        """A number that the host computes, as a literal or a parameter."""
        if isinstance(value, Const):
            return number(value.value)
        key = (tensor, what)
        if key not in self.found.known:
            name = self.names.fresh(f"{tensor}_{what}")
            self.found.known[key] = name
            self.found.limits[name] = spec_text(value).text
        return Code(self.found.known[key])

    def _point(self, axes: Axes, lines: list[str]) -> LaneCode:
        """The number of a point among all those of some indices, the last one fastest."""
        total: LaneCode | None = None
        for index in _ordered(self.plan.group, axes):
            code = self._index(index)
            if code.lanes:
                code = LaneCode(method(code.code, "to", "tl.int64"), code.lanes)
            total = self._joined(total, plain(self.plan.group.extents[index]), code, lines)
        return total if total is not None else LaneCode(Code("tl.full((), 0, tl.int64)"), ())

    def _flat(
        self, tensor: Tensor, values: tuple[Value, ...], items: list[LaneCode], lines: list[str]
    ) -> LaneCode:
        """The number of an element among all those of its tensor, or of a list of tensors."""
        total: LaneCode | None = None
        for at, (value, item, dim) in enumerate(zip(values, items, _dims(tensor), strict=True)):
            if total is None and is_zero(value):
                continue
            code = item
            if isinstance(value, Index | Load) and (value.dtype != "i64" or item.lanes):
                code = LaneCode(method(item.code, "to", "tl.int64"), item.lanes)
            size = self._limit(tensor.name, f"size_{at}", dim) if total is not None else number(1)
            total = self._joined(total, size, code, lines)
        return total if total is not None else LaneCode(number(0), ())

    def _joined(
        self, total: LaneCode | None, size: Code, item: LaneCode, lines: list[str]
    ) -> LaneCode:
        """One more digit of a number in mixed radix; what is long gets a name."""
        if total is None:
            return item
        if len(total.code.text) > _LONG:
            total = self._kept("number", total, lines)
        lanes = self.lanes.union(total, item)
        scaled = total.at(lanes) if str(size) == "1" else infix("*", total.at(lanes), size)
        code = item.at(lanes)
        return LaneCode(scaled if str(code) == "0" else infix("+", scaled, code), lanes)

    def _start_of(self, store: Store) -> Code | None:
        """Where a store's points begin among those of all stores to its tensor."""
        group = self.plan.group
        stores = [s for s in group.stores if s.tensor == store.tensor]
        number_ = next(at for at, each in enumerate(stores) if each.span == store.span)
        if number_ == 0:
            return None
        texts = []
        for each in stores[:number_]:
            sizes = [spec_text(group.extents[i]).text for i in _ordered(group, each.axes)]
            texts.append(" * ".join(f"({size})" for size in sizes) or "1")
        key = (store.tensor, f"start_{number_}")
        if key not in self.found.known:
            self.found.known[key] = self.names.fresh(f"{store.tensor}_start_{number_}")
            self.found.limits[self.found.known[key]] = " + ".join(texts)
        return Code(self.found.known[key])

    def _noted(
        self,
        tensor: Tensor,
        buffer: str,
        place: LaneCode,
        value: LaneCode | Code,
        mask: LaneCode | None,
        lines: list[str],
    ) -> None:
        """Store a number to a buffer of the tensor."""
        content = value if isinstance(value, LaneCode) else LaneCode(value, ())
        pointer = LaneCode(
            infix("+", Code(f"_{tensor.name}_{buffer}_ptr"), place.code), place.lanes
        )
        lanes = self.lanes.union(pointer, content, *([mask] if mask is not None else []))
        args = [self._filled(pointer, lanes).at(lanes).text, content.at(lanes).text]
        if mask is not None:
            args.append(f"mask={self._filled_mask(mask, lanes)}")
        lines.append(f"tl.store({', '.join(args)})")

    def _note(
        self,
        tensor: Tensor,
        what: str,
        axes: Axes,
        details: list[LaneCode],
        right: LaneCode,
        mask: LaneCode | None,
        lines: list[str],
    ) -> None:
        """Note where a check failed, and what there was."""
        failed = LaneCode(infix("==", right.code, number(0)), right.lanes)
        total = failed if mask is None else self._logic("and", mask, failed)
        at = len(self.found.checks)
        self.found.checks.append(Check(tensor.name, what, _ordered(self.plan.group, axes)))
        assert len(details) <= ROW - 2, "a row holds so many details"
        point = self._point(axes, lines)
        lanes = self.lanes.union(total, point, *details)
        if set(point.lanes) < set(lanes):
            zeros = call("tl.zeros", self.lanes.shape(lanes), "tl.int64")
            point = LaneCode(infix("+", point.at(lanes), zeros), lanes)
        row = f"_report_ptr + {at * ROW}" if at else "_report_ptr"
        args = [row, str(self._filled_mask(total, lanes)), point.at(lanes).text]
        args += [detail.at(lanes).text for detail in details]
        lines.append(f"_note_{len(details)}({', '.join(args)})")
