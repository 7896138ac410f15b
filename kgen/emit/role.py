"""One role of a kernel as Triton text.

Its program axes, then every load, then a barrier where a tensor is both read and written, then every
store. All loads and reductions get names of their own, so that a store's line holds arithmetic only.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.emit.lanes import LaneCode, Lanes
from kgen.emit.parameters import (
    plain,
    programs_of,
)
from kgen.emit.reductions import ReductionPrinter
from kgen.emit.values import Body, conjuncts
from kgen.lang.code import Code, call, infix, method
from kgen.lang.typed import (
    Cast,
    Const,
    Given,
    Index,
    Load,
    Op,
    Param,
    Reduce,
    Ref,
    Scan,
    Select,
    Store,
    Value,
    walk,
)
from kgen.plan.plan import Axis, Role


@dataclass(slots=True)
class RolePrinter(ReductionPrinter):
    """Prints a role."""

    def __post_init__(self) -> None:
        order = [axis.index for axis in self.role.axes.values() if axis.kind != "row"]
        blocks = {axis.index: axis.block for axis in self.role.axes.values()}
        self.lanes = Lanes(tuple(order), blocks)
        for store in (*self.role.stores, *self.role.once):
            if store.when is None:
                for root in (*store.items, store.value):
                    self._find_unguarded(root)
            else:
                self._find_unguarded(store.when)

    def _find_unguarded(self, value: Value) -> None:
        """Collect the lets that are evaluated everywhere, so that a guard on them is idle."""
        match value:
            case Ref(name):
                if name not in self.unguarded:
                    self.unguarded.add(name)
                    self._find_unguarded(self.plan.lets[name].value)
            case Select(cond):
                self._find_unguarded(cond)
            case Load(_, args) | Op(_, args):
                for arg in args:
                    self._find_unguarded(arg)
            case Cast(arg) | Scan(_, _, arg):
                self._find_unguarded(arg)
            case Reduce(_, _, arg, none):
                self._find_unguarded(arg)
                if none is not None:
                    self._find_unguarded(none)
            case Const() | Param() | Given() | Index():
                pass

    # The role.

    def lines(self) -> list[str]:
        """The role's lines, one level of indentation short."""
        body = Body(None, ())
        self._program(body)
        plain = [s for s in self.role.stores if not self._loops(s)]
        stores = [self._store(store, body, first=False) for store in plain]
        stores += [self._store(store, body, first=True) for store in self.role.once]
        looped: dict[tuple[str, ...], list[Store]] = {}
        for store in self.role.stores:
            if self._loops(store):
                looped.setdefault(self._loops(store), []).append(store)
        loops = [
            line for over, group in looped.items() for line in self._store_loop(over, group, body)
        ]
        written = {s.tensor for s in (*plain, *self.role.once)}
        barrier: list[str] = []
        if written & self.role.reads:
            names = ", ".join(sorted(written & self.role.reads))
            barrier = [
                f"# {names}: no thread may store before every thread has loaded.",
                "tl.debug_barrier()",
            ]
        return [*body.lines, *loops, *barrier, *(line for lines in stores for line in lines)]

    def _loops(self, store: Store) -> tuple[str, ...]:
        """The loops around a store, one that a scan runs along innermost."""
        when = () if store.when is None else (store.when,)
        roots = (*store.items, store.value, *when)
        values = [each for root in roots for each in walk(root, self.plan.lets)]
        scanned = {each.index for each in values if isinstance(each, Scan)}
        loops = [i for i, axis in self.role.axes.items() if axis.kind == "loop" and i in store.axes]
        return tuple(sorted(loops, key=lambda i: i in scanned))

    def _program(self, body: Body) -> None:
        program = self.role.program
        pid = Code("tl.program_id(0)")
        if self.shared_launch:
            pid = Code("pid") if self.number == 0 else Code(f"(pid - end_{self.number - 1})")
        if len(program) > 1:
            body.lines.append(
                f"program = {pid.text.removeprefix('(').removesuffix(')')}"
                if pid.text.startswith("(")
                else f"program = {pid}"
            )
            pid = Code("program")
        self.first = Code(f"{pid} == 0", 4)
        for at, axis in reversed(list(enumerate(program))):
            count = programs_of(
                self.plan.group, Role((), (), {axis.index: axis}, frozenset(), frozenset())
            )
            here = pid
            if at > 0:
                here = infix("%", pid, count)
                pid = infix("//", pid, count)
            if axis.kind == "row":
                body.lines.append(f"{self.local(axis.index)} = {method(here, 'to', 'tl.int64')}")
            else:
                start = infix("*", here, Code(axis.block))
                self._lane_axis(axis, start, body)
        for axis in self.role.axes.values():
            if axis.kind == "lanes":
                self._lane_axis(axis, None, body)

    def _lane_axis(self, axis: Axis, start: Code | None, body: Body) -> None:
        lanes = call("tl.arange", "0", axis.block)
        code = lanes if start is None else infix("+", start, lanes)
        body.lines.append(f"{self.local(axis.index)} = {code}")
        extent = plain(self.plan.group.extents[axis.index])
        inside = infix("<", Code(self.local(axis.index)), extent)
        body.lines.append(f"{self._inside(axis.index)} = {inside}")

    # Stores.

    def _store(self, store: Store, body: Body, *, first: bool) -> list[str]:
        guard = None
        if store.when is not None:
            guard = self._named(store.when, f"{store.tensor}_when", body, None)
            self.parts[guard.code.text] = tuple(
                self.code(part, body, None) for part in conjuncts(store.when)
            )
        value = self.code(store.value, body, guard)
        items = [self.code(item, body, guard) for item in store.items]
        pointer = self._pointer(store.tensor, store.items, items, body)
        masks = [self._axis_mask(index) for index in self.lanes.order if index in store.axes]
        if guard is not None:
            masks.append(guard)
        if first and self.role.program:
            masks.append(LaneCode(self.first, ()))
        mask = self._all(masks)
        lanes = self.lanes.union(pointer, value, *([mask] if mask else []))
        pointer = self._filled(pointer, lanes)
        args = [pointer.at(lanes).text, value.at(lanes).text]
        if mask is not None:
            args.append(f"mask={self._filled_mask(mask, lanes)}")
        comment = f"# {store.target_text}: {store.value_text}"
        return [comment, f"tl.store({', '.join(args)})"]

    def _store_loop(self, over: tuple[str, ...], stores: list[Store], body: Body) -> list[str]:
        if not over:
            return [line for store in stores for line in self._store(store, body, first=False)]
        inner = Body(body, (*body.loops, over[0]))
        head = self._loop_head(over[0], inner)
        lines = self._store_loop(over[1:], stores, inner)
        return [head, *(f"    {line}" for line in (*inner.lines, *lines))]

    def _start(self, index: str) -> str:
        return self.local(f"{index}_start")

    def _loop_head(self, index: str, inner: Body) -> str:
        axis = self.role.axes[index]
        start = self._start(index)
        if index in inner.loops[:-1]:
            start = self.names.fresh(start)
        self._lane_axis(axis, Code(start), inner)
        extent = plain(self.plan.group.extents[index])
        return f"for {start} in range(0, {extent}, {axis.block}):"

    # Masks and pointers.
