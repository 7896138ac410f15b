"""Debug mode: the kernel of a group with every load and store checked, and nothing stored.

In: a `Plan`. Out: `Watch`: the kernel that debug mode launches before the group's own, and what its notes
mean. What the spec does not read at a point is not checked there. Declared ranges are believed of sizes and
scalars, which the call has checked, and of no element. Beside the report the kernel stores to buffers:

- for each `distinct` tensor, which of its elements are read;
- for each tensor with `trusted` stores, the element that each point of its stores goes to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kgen.kernel import ir
from kgen.kernel.indices import cast, host
from kgen.kernel.ir import (
    Axes,
    Bind,
    Branch,
    Check,
    Expr,
    Kernel,
    Load,
    Loop,
    Num,
    Op,
    Stmt,
    Store,
    Var,
)
from kgen.kernel.lower import lower
from kgen.kernel.passes import joined, named, passed, shared, without_dead_code
from kgen.lang import typed
from kgen.lang.dtypes import FLOATS
from kgen.lang.typed import NOWHERE, Group, Tensor, Value
from kgen.plan.plan import Plan
from kgen.prove.prove import Proved

DETAILS = 14  # numbers that a note holds at most, as in kgen/runtime/_debug.py


@dataclass(frozen=True, slots=True)
class Note:
    """What is checked of a tensor at each point of `axes`: values, expected, read or stored."""

    tensor: str
    what: str
    axes: Axes


@dataclass(frozen=True, slots=True)
class Watch:
    """A check. `group`: the plan's, the buffers among its tensors, without its stores.

    `notes`: what each check notes, in order. `distinct`: the tensors whose read elements are noted;
    `trusted`: those whose stores are, with the axes of each store.
    """

    kernel: Kernel
    group: Group
    notes: tuple[Note, ...]
    distinct: tuple[str, ...]
    trusted: dict[str, tuple[Axes, ...]]

    @property
    def buffers(self) -> tuple[str, ...]:
        """The tensors that the check stores to."""
        return (*map(read_buffer, self.distinct), *map(places_buffer, self.trusted))


def read_buffer(tensor: str) -> str:
    """The buffer that says which elements of a tensor are read."""
    return f"_{tensor}_read"


def places_buffer(tensor: str) -> str:
    """The buffer that says which element each point stores to."""
    return f"_{tensor}_places"


def watch(plan: Plan, taken: frozenset[str] = frozenset()) -> Watch:
    """The check of a group; `taken` are names that its variables may not have."""
    group = plan.group
    kernel = passed(lower(plan, watched=True), joined, shared)
    notes: list[Note] = []
    roles = []
    for role in kernel.roles:
        watching = _Watching(plan.proved, role, notes)
        roles.append(replace(role, body=watching.body(role.body)))
    summary = f"Checks what {group.name} reads and where it stores; stores nothing itself."
    kernel = Kernel(f"{group.name}_check", summary, tuple(roles))
    kernel = named(passed(kernel, without_dead_code), taken)
    stored = {s.tensor for r in kernel.roles for s in ir.every(r.body) if isinstance(s, Store)}
    distinct = tuple(name for name in group.tensors if read_buffer(name) in stored)
    trusted = {
        name: tuple(_points(group, store) for store in group.stores if store.tensor == name)
        for name in group.tensors
        if places_buffer(name) in stored
    }
    buffers = {
        read_buffer(name): _buffer(read_buffer(name), _size(group, name)) for name in distinct
    }
    for name, stores in trusted.items():
        sizes = [_product([group.extents[index] for index in axes]) for axes in stores]
        total = sizes[0]
        for size in sizes[1:]:
            total = typed.Op("add", (total, size), "i64", total.axes)
        buffers[places_buffer(name)] = _buffer(places_buffer(name), total)
    buffers["_report"] = _buffer("_report", typed.Const(16 * len(notes), "int"))
    group = replace(group, tensors={**group.tensors, **buffers}, stores=())
    return Watch(kernel, group, tuple(notes), distinct, trusted)


def _points(group: Group, store: typed.Store) -> Axes:
    return tuple(index for index in group.extents if index in store.axes)


def _size(group: Group, tensor: str) -> Value:
    """How many elements a tensor has, or all those of a list."""
    return _product([*group.tensors[tensor].shape])


def _product(values: list[Value]) -> Value:
    total: Value = typed.Const(1, "i64")
    for value in values:
        total = typed.Op("mul", (total, typed.Cast(value, "i64", value.axes)), "i64", value.axes)
    return total


def _buffer(name: str, size: Value) -> Tensor:
    return Tensor(
        name, "i64", (size,), "inout", None, None, (None, None), False, None, "contiguous",
        None, False, "i64", "", "", "", NOWHERE,
    )  # fmt: skip


@dataclass(slots=True)
class _Watching:
    """The checks of one role."""

    proved: Proved
    role: ir.Role
    notes: list[Note]
    made: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    found: list[Stmt] = field(default_factory=list)
    indices: dict[str, Var] = field(default_factory=dict)

    @property
    def group(self) -> Group:
        return self.proved.group

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """A body with its checks."""
        around = (self.found, self.indices)
        self.found, self.indices = [], dict(self.indices)
        for stmt in body:
            self.made |= {var.name: ir.used(stmt) for var in ir.bound(stmt)}
            match stmt:
                case Bind(var, Load() as load):
                    self._load(var, load, stmt)
                case Store():
                    self._store(stmt)
                case Loop():
                    self.found.append(replace(stmt, body=self.body(stmt.body)))
                case Branch(_, then, other):
                    then, other = self.body(then), self.body(other)
                    self.found.append(replace(stmt, then=then, other=other))
                case _:
                    self.found.append(stmt)
            if isinstance(stmt, Bind) and stmt.index:
                self.indices[stmt.index] = stmt.var
        made = tuple(self.found)
        self.found, self.indices = around
        return made

    # What is checked.

    def _load(self, var: Var, load: Load, stmt: Bind) -> None:
        tensor = self.group.tensors[load.tensor]
        items = self._items(load)
        axes = self._axes(load)
        mask = self._bounds(tensor, "read", load, items, axes)
        self.found.append(replace(stmt, value=replace(load, mask=mask)))
        if tensor.distinct:
            place = self._flat(items, tensor.shape)
            mark = Num(1, "i64")
            self.found.append(
                Store(read_buffer(tensor.name), None, (place,), mark, mask, load.axes)
            )
        if load.dtype in FLOATS or load.dtype == "bool":
            return
        element = cast(var, "i64")
        for what, ends in (("values", (tensor.low, tensor.high)), ("expected", tensor.expected)):
            tests: list[Expr] = [
                self._op(op, element, self._host(end))
                for op, end in zip(("ge", "le"), ends, strict=True)
                if end is not None
            ]
            if tests:
                fits = self._kept(f"{tensor.name}_fits", tests)
                details = (*items, element)
                self._note(tensor, what, axes, mask, fits, details, load.axes)

    def _store(self, store: Store) -> None:
        tensor = self.group.tensors[store.tensor]
        items = self._items(store)
        first = any(isinstance(each, ir.Program) for cond in store.mask for each in ir.walk(cond))
        rows = () if first else tuple(axis.index for axis in self.role.program)
        axes = tuple(i for i in self.group.extents if i in (*store.axes, *rows))
        mask = self._bounds(tensor, "stored", store, items, axes)
        stores = [each for each in self.group.stores if each.tensor == store.tensor]
        if any(each.trusted for each in stores):
            at = next(n for n, each in enumerate(stores) if store.note.startswith(each.target_text))
            point = self._point(axes)
            for before in stores[:at]:
                every = [self.group.extents[index] for index in _points(self.group, before)]
                point = self._op("add", point, self._host(_product(every)), dtype="i64")
            place = cast(self._flat(items, tensor.shape), "i64")
            buffer = places_buffer(tensor.name)
            self.found.append(Store(buffer, None, (point,), place, mask, store.axes))

    def _bounds(
        self,
        tensor: Tensor,
        what: str,
        access: Load | Store,
        items: tuple[Expr, ...],
        axes: Axes,
    ) -> tuple[Expr, ...]:
        """The mask of an access with what keeps it in its tensor, where that is not shown of all calls."""
        tests: list[Expr] = []
        for item, dim in zip(items, tensor.shape, strict=True):
            if self.group.trusted or self._reads(item):
                tests.append(self._op("ge", item, Num(0, "i64")))
                tests.append(self._op("lt", item, self._host(dim)))
        if not tests:
            return access.mask
        inside = self._kept(f"{tensor.name}_inside", tests)
        self._note(tensor, what, axes, access.mask, inside, items, access.axes)
        return (*access.mask, inside)

    def _note(
        self,
        tensor: Tensor,
        what: str,
        axes: Axes,
        mask: tuple[Expr, ...],
        right: Expr,
        details: tuple[Expr, ...],
        lanes: Axes,
    ) -> None:
        """Note the first point at which something is not right."""
        assert len(details) <= DETAILS, "a note holds so many numbers"
        failed = (*mask, self._op("not", right))
        point = self._point(axes)
        self.found.append(Check(len(self.notes), failed, point, details, lanes))
        self.notes.append(Note(tensor.name, what, axes))

    # Its parts.

    def _items(self, access: Load | Store) -> tuple[Expr, ...]:
        """The indices of an access, a list's first, in 64 bits."""
        items = access.items
        if access.chosen is not None:
            assert isinstance(access.chosen, Var)
            (chosen,) = self.made[access.chosen.name]
            assert isinstance(chosen, ir.Chosen)
            items = (chosen.at, *items)
        return tuple(cast(item, "i64") for item in items)

    def _axes(self, load: Load) -> Axes:
        """The indices that the place of a load varies with."""
        names = {var.name for item in self._items(load) for var in self._variables(item)}
        rows = {axis.index for axis in self.role.axes if axis.kind == "row"}
        own = {
            index for index in rows if index in self.indices and self.indices[index].name in names
        }
        return tuple(index for index in self.group.extents if index in own or index in load.axes)

    def _variables(self, expr: Expr) -> list[Var]:
        """The variables that a value is made of, and those that these are made of."""
        found: dict[str, Var] = {}
        todo = [expr]
        while todo:
            for each in ir.walk(todo.pop()):
                if isinstance(each, Var) and each.name not in found:
                    found[each.name] = each
                    todo += self.made.get(each.name, ())
        return list(found.values())

    def _reads(self, item: Expr) -> bool:
        """Whether an index is made of what is loaded."""
        made = [self.made.get(var.name, ()) for var in self._variables(item)]
        return any(
            isinstance(each, Load) for exprs in made for expr in exprs for each in ir.walk(expr)
        )

    def _point(self, axes: Axes) -> Expr:
        """The number of a point among all those of some indices, the last one fastest."""
        return self._flat(
            tuple(cast(self.indices[index], "i64") for index in axes),
            tuple(self.group.extents[index] for index in axes),
        )

    def _flat(self, digits: tuple[Expr, ...], counts: tuple[Value, ...]) -> Expr:
        """A number in mixed radix."""
        zero, total = Num(0, "i64"), list[Expr]()
        for digit, count in zip(digits, counts, strict=True):
            if total and count != typed.Const(1, count.dtype):
                total = [self._op("mul", total[0], self._host(count), dtype="i64")]
            if digit != zero:
                total = [self._op("add", *total, digit, dtype="i64") if total else digit]
        return total[0] if total else zero

    def _kept(self, hint: str, tests: list[Expr]) -> Var:
        """A variable for several conditions together."""
        total = tests[0]
        for test in tests[1:]:
            total = self._op("and", total, test)
        var = Var(f"{hint}.note{len(self.notes)}", "bool", total.axes)
        self.found.append(Bind(var, total))
        return var

    def _host(self, value: Value) -> Expr:
        found = host(self.proved, value)
        return found if found.dtype == "int" else cast(found, "i64")

    def _op(self, op: str, *args: Expr, dtype: str = "bool") -> Op:
        own = {axis for arg in args for axis in arg.axes}
        return Op(op, args, dtype, tuple(axis for axis in self.role.lanes if axis in own))
