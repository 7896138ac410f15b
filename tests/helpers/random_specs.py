"""Random specs as text: `draw(seed)` is the same spec on every machine.

A spec is put together store by store, of the expressions in `random_values.py`, so that nearly all are sound by
construction. A few are spoiled on purpose. `Spec.features` names what was drawn and is in use.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from random_values import FLOATS, LIMITS, WIDTH, At, Node, Values, tidy_range
from spec_text import TABLES, Data, pruned, render, texts_of, tidy, words


@dataclass
class Spec:
    """A spec as data in the shape of its YAML, the seed that drew it, and what is special in it."""

    data: Data
    seed: int = 0
    features: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The spec file."""
        return render(self.data)


class Drawer(Values):
    """Draws one spec."""

    # Stores.

    def value(self, at: At, dtype: str) -> Node:
        """A value for an element of a type."""
        if dtype == "bool":
            return self.condition(at)
        if dtype in FLOATS:
            node = self.floating(at, dtype)
            return self._typed_float(node, dtype)
        return (
            self.cast(self.integer(at), dtype) if dtype != "i64" else self._wide(self.integer(at))
        )

    def _wide(self, node: Node) -> Node:
        return node if node.dtype in WIDTH else replace(node, text=f"i64({node.text})")

    def put(self, place: str, value: Node, *tags: str, **more: str) -> None:
        """Add a store."""
        entry: Any = tidy(value.text)
        if more:
            entry = {"value": entry, **more}
        self.stores[place] = entry
        self.store_tags[place] = value.tags | set(tags)

    def when(self, at: At) -> tuple[Node, At]:
        """A store's condition, and where its value stands."""
        if self.often(0.15):
            text, _ = self.host_cond(static=True)
            return Node(text, "bool", static=True), at
        if self.often(0.5):
            dtypes = ("i32", "i64", "f32", "bool", "u8", "bf16")
            found = self.guarded(replace(at, depth=0), dtypes)
            if found is not None and "given(" not in found.cond.text:
                return found.cond, replace(at, extra=(*at.extra, found.leaf))
        return self.condition(replace(at, depth=1)), at

    DTYPES = ("i64", "i64", "i32", "i32", "bool", "u8", "f32", "f32", "bf16", "f16")

    def store(self) -> None:
        """One more store, or several that belong together."""
        kind = self.weighted(
            {
                "plain store": 6,
                "when": 2,
                "pieces": 1,
                "radix store": 1,
                "backwards": 0.7,
                "spread": 0.5,
                "columns": 0.6,
                "state": 1.5,
                "slots": 1.2,
                "turned": 0.9,
                "swapped": 0.5,
                "once": 1,
                "counter": 0.8,
                "list store": 1.2,
                "collide": 1,
                "scattered": 1,
                "trusted": 0.5,
                "merging": 0.8,
            }
        )
        getattr(self, f"_store_{kind.replace(' ', '_')}")()

    def axes(self, most: int = 3) -> list[str]:
        """The indices of a store's place, in any order."""
        known = list(self.index)
        self.chance.shuffle(known)
        return known[: self.chance.randint(1, most)]

    def at(self, axes: Sequence[str]) -> At:
        """Where the value of a store stands."""
        return At(frozenset(axes), depth=self.pick((1, 2, 2, 3, 3)))

    def _out(self, dtype: str, dims: Sequence[str], mode: str = "out", **more: str) -> str:
        name = self.tensor("output", dtype, dims, mode=mode, **more)
        self.tags[name] |= {f"mode {mode}"}
        return name

    def _dims(self, axes: Sequence[str]) -> list[str]:
        return [self.extents[i].text for i in axes]

    def _store_plain_store(self) -> None:
        axes, dtype = self.axes(), self.pick(self.DTYPES)
        if not axes:
            return self._store_once()
        value = self.value(self.at(axes), dtype)
        name = self._out(dtype, self._dims(axes))
        self.put(f"{name}[{', '.join(axes)}]", value)
        return None

    def _store_when(self) -> None:
        axes, dtype = self.axes(), self.pick(self.DTYPES)
        if not axes:
            return self._store_once()
        cond, at = self.when(self.at(axes))
        value = self.value(at, dtype)
        name = self._out(dtype, self._dims(axes), "inout")
        tags = cond.tags | {"when on a store"}
        if cond.static:
            tags |= {"a compile-time when on a store"}
        self.put(f"{name}[{', '.join(axes)}]", value, *tags, when=tidy(cond.text))
        return None

    def _store_pieces(self) -> None:
        axes = self.axes(2)
        if not axes:
            return
        dtype, index = self.pick(self.DTYPES), axes[0]
        extent = self.extents[index].text
        name = self._out(dtype, [f"{extent} + 1", *self._dims(axes[1:])])
        rest = ", ".join(["", *axes[1:]])
        if self.often(0.5):
            self.put(
                f"{name}[{index}{rest}]", self.value(self.at(axes), dtype), "a tensor in pieces"
            )
            self.put(f"{name}[{tidy(extent)}{rest}]", self.value(self.at(axes[1:]), dtype))
        else:
            self.put(
                f"{name}[{index} + 1{rest}]", self.value(self.at(axes), dtype), "a tensor in pieces"
            )
            self.put(f"{name}[0{rest}]", self.value(self.at(axes[1:]), dtype))

    def _store_radix_store(self) -> None:
        axes = self.axes(3)
        if len(axes) < 2:
            return
        a, b = self.extents[axes[0]], self.extents[axes[1]]
        if max(a.high, 1) * max(b.high, 1) >= 2**31:
            return
        dtype = self.pick(self.DTYPES)
        name = self._out(dtype, [f"({a.text}) * ({b.text})", *self._dims(axes[2:])])
        place = tidy(f"{axes[0]} * ({b.text}) + {axes[1]}")
        value = self.value(self.at(axes), dtype)
        self.put(f"{name}[{', '.join([place, *axes[2:]])}]", value, "a place in mixed radix")

    def _store_backwards(self) -> None:
        axes = self.axes(2)
        if not axes:
            return
        dtype = self.pick(self.DTYPES)
        name = self._out(dtype, self._dims(axes), "inout")
        extent = self.extents[axes[-1]].text
        items = [*axes[:-1], tidy(f"({extent}) - 1 - {axes[-1]}")]
        self.put(
            f"{name}[{', '.join(items)}]", self.value(self.at(axes), dtype), "a place in reverse"
        )

    def _store_spread(self) -> None:
        axes = self.axes(1)
        if not axes or self.extents[axes[0]].high >= 2**29:
            return
        dtype, extent = self.pick(self.DTYPES), self.extents[axes[0]].text
        name = self._out(dtype, [f"2 * ({extent})"], "inout")
        start = self.pick(("", " + 1"))
        self.put(
            f"{name}[2 * {axes[0]}{start}]",
            self.value(self.at(axes), dtype),
            "a place with a factor",
        )

    def _store_columns(self) -> None:
        axes = self.axes(2)
        if not axes:
            return
        dtype = self.pick(self.DTYPES)
        name = self._out(dtype, [*self._dims(axes), "2"])
        for column in (0, 1):
            self.put(
                f"{name}[{', '.join(axes)}, {column}]", self.value(self.at(axes), dtype), "columns"
            )

    def _held(self, dtype: str) -> tuple[dict[str, str], int, int]:
        """The range of what a state holds and is given."""
        if dtype in FLOATS or dtype == "bool":
            return {}, 0, 1
        if dtype == "u8" or self.often(0.7):
            return {"values": "0 .. 40"}, 0, 40
        return {"values": "-9 .. 9"}, -9, 9

    def _kept(self, node: Node, dtype: str, low: int, high: int) -> Node:
        """A value in the range of its state."""
        if dtype in FLOATS or dtype == "bool":
            return node
        node = self.clamped(node, low, high) if node.low < low or node.high > high else node
        return self.cast(node, dtype) if node.dtype not in (dtype, "int") else node

    def _state_value(self, at: At, dtype: str, low: int, high: int, old: Node) -> Node:
        if dtype == "bool":
            return self.mixed(at, self.condition, old)
        if dtype in FLOATS:
            return self._typed_float(self.mixed(at, lambda a: self.floating(a, dtype), old), dtype)
        each = self.mixed(at, self.integer, old)
        return self._kept(each, dtype, low, high)

    def _store_state(self) -> None:
        """In place: read and stored by the same point."""
        axes = self.axes(2)
        if not axes:
            return self._store_counter()
        dtype = self.pick(("i64", "i32", "i64", "f32", "u8", "bool", "bf16"))
        more, low, high = self._held(dtype)
        name = self._out(dtype, self._dims(axes), "inout", **more)
        self.banned |= set(axes)
        old = Node(f"{name}[{', '.join(axes)}]", dtype, low, high, frozenset(axes))
        at = self.at(axes)
        value = self._state_value(at, dtype, low, high, old)
        tags = {"in-place state"}
        if self.often(0.3):
            cond = self.condition(replace(at, depth=1))
            self.put(old.text, value, *tags, *cond.tags, "when on a store", when=tidy(cond.text))
        else:
            self.put(old.text, value, *tags)
        if self.often(0.8):
            self.state.append(old.tagged("state that another store reads"))
        return None

    def _store_merging(self) -> None:
        """Two roles that become one, since the wider one reads what the narrower one stores."""
        axes = self.axes(3)
        if len(axes) < 2:
            return self._store_counter()
        row = axes[:1]
        dtype = self.pick(("i64", "i32", "f32"))
        more, low, high = self._held(dtype)
        name = self._out(dtype, self._dims(row), "inout", **more)
        self.banned |= set(row)
        old = Node(f"{name}[{row[0]}]", dtype, low, high, frozenset(row))
        wide = self.at(axes)
        self.put(old.text, self._state_value(self.at(row), dtype, low, high, old), "in-place state")
        dtype = "f32" if dtype == "f32" else self.pick(("i64", "f32", "i32"))
        value = self.mixed(wide, lambda a: self.value(a, dtype), old)
        value = self._fitted(value, dtype)
        target = self._out(dtype, self._dims(axes))
        self.put(f"{target}[{', '.join(axes)}]", value, "roles that must merge")
        return None

    def _store_slots(self) -> None:
        """State of rows that a distinct tensor names."""
        axes = self.axes(2)
        if not axes:
            return self._store_counter()
        row, inner = axes[0], axes[1:]
        room = self.size(low=1)
        dtype = self.pick(("i64", "i32", "f32", "bool"))
        more, low, high = self._held(dtype)
        kind = self.pick(("true", "true", "except last", "except -1", "given place"))
        values, distinct, when = f"0 .. {room.text} - 1", "true", ""
        if kind == "except last":
            distinct = f"except {room.text} - 1"
        elif kind == "except -1":
            values, distinct = f"-1 .. {room.text} - 1", "except -1"
        slots = self.tensor(
            "an input",
            self.pick(("i32", "i64")),
            [self.extents[row]],
            values=tidy_range(values),
            distinct=distinct,
        )
        place = f"{slots}[{row}]"
        if kind == "except -1":
            when = f"{place} >= 0"
        if kind == "given place" and self.often(0.5):
            when = f"{place} != 0"
        name = self._out(dtype, [room, *self._dims(inner)], "inout", **more)
        target = f"{name}[{', '.join([place, *inner])}]"
        old = Node(target, dtype, low, high, frozenset(axes))
        self.banned |= set(axes)
        at = self.at(axes)
        reads = self.often(0.7)
        if reads:
            value = self._state_value(at, dtype, low, high, old)
        else:
            value = self._kept(self.value(at, dtype), dtype, low, high)
        tags = {"state through slots" if reads else "places that a distinct tensor names"}
        tags.add(f"distinct: {'true' if distinct == 'true' else 'except'}")
        extra = {"when": when} if when else {}
        self.put(target, value, *tags, *(["when on a store"] if when else []), **extra)
        if reads and not when and self.often(0.4):
            self.state.append(old.tagged("state that another store reads"))
        return None

    def _store_turned(self) -> None:
        """Rows reversed in place, over lanes."""
        lanes = [i for i in self.index if self.static_index(i) and self.extents[i].high <= 16]
        if not lanes:
            return
        lane = self.pick(lanes)
        rest = [i for i in self.axes(2) if i != lane]
        dtype = self.pick(("i64", "i32", "f32", "bf16", "bool", "u8", "f16"))
        name = self._out(dtype, self._dims([*rest, lane]), "inout")
        extent = self.extents[lane].text
        self.banned |= set(rest)
        source = Node(
            f"{name}[{', '.join([*rest, tidy(f'({extent}) - 1 - {lane}')])}]",
            dtype,
            *(LIMITS.get(dtype, (0, 1))),
            frozenset((*rest, lane)),
        )
        value = source
        if dtype in ("i64", "i32", "f32") and self.often(0.4):
            value = self.choice(
                self.condition(self.at([*rest, lane]).deeper()), source, self.literal()
            )
            if dtype == "f32":
                value = source
        self.put(f"{name}[{', '.join([*rest, lane])}]", value, "reversed in place over lanes")

    def _store_swapped(self) -> None:
        axes = self.axes(2)
        if not axes:
            return
        dtype = self.pick(("i64", "i32", "f32", "bf16", "u8"))
        name = self._out(dtype, ["2", *self._dims(axes)], "inout")
        self.banned |= set(axes)
        rest = ", ".join(axes)
        limits = LIMITS.get(dtype, (0, 1))
        for here, there in (("0", "1"), ("1", "0")):
            old = Node(f"{name}[{there}, {rest}]", dtype, *limits, frozenset(axes))
            self.put(f"{name}[{here}, {rest}]", old, "rows that are swapped")

    def _store_once(self) -> None:
        """A store that varies with no index."""
        dtype = self.pick(self.DTYPES)
        name = self._out(dtype, ["1"])
        self.put(f"{name}[0]", self.value(self.at(()), dtype), "a store that is done once")

    def _store_counter(self) -> None:
        """State without an index, perhaps read by the rows of another store."""
        dtype = self.pick(("i64", "i32", "f32"))
        more, low, high = self._held(dtype)
        name = self._out(dtype, [self.pick(("1", "2"))], "inout", **more)
        old = Node(f"{name}[0]", dtype, low, high)
        value = self._state_value(self.at(()), dtype, low, high, old)
        self.put(old.text, value, "state without an index", "a store that is done once")
        if self.often(0.8):
            self.state.append(old.tagged("once-stored state that rows read"))

    def _store_list_store(self) -> None:
        lanes = [i for i in self.index if self.static_index(i) and self.extents[i].low >= 1]
        lanes = [i for i in lanes if self.extents[i].high <= 4]
        dtype = self.pick(self.DTYPES)
        if lanes and self.often(0.8):
            chooser = self.pick(lanes)
            length = self.extents[chooser].text
            rest = [i for i in self.axes(2) if i != chooser]
            dims = self._dims(rest) or ["1"]
            mode = self.pick(("out", "inout"))
            name = self._out(dtype, dims, mode, list=tidy(length))
            place = f"{name}[{chooser}][{', '.join(rest) or '0'}]"
            at = self.at([chooser, *rest])
            if mode == "inout" and rest:
                more = LIMITS.get(dtype, (0, 1))
                old = Node(place, dtype, *more, frozenset((chooser, *rest)))
                self.banned |= {chooser, *rest}
                value = (
                    old if self.often(0.3) else self.mixed(at, lambda a: self.value(a, dtype), old)
                )
                value = self._fitted(value, dtype)
                self.put(place, value, "a store to a list chosen by an index", "in-place state")
                return
            tag = "a store to a list chosen by an index"
            if mode == "inout":
                cond, at = self.when(at)
                self.put(place, self.value(at, dtype), tag, *cond.tags, when=tidy(cond.text))
                return
            self.put(place, self.value(at, dtype), tag)
            return
        axes = self.axes(2)
        dims = self._dims(axes) or ["1"]
        name = self._out(dtype, dims, "inout", list="2")
        member = self.pick(("0", "1"))
        self.put(
            f"{name}[{member}][{', '.join(axes) or '0'}]",
            self.value(self.at(axes), dtype),
            "a store to a list chosen by a number",
        )

    def _fitted(self, node: Node, dtype: str) -> Node:
        """A value as a type, whatever it was."""
        if dtype in FLOATS:
            return self._typed_float(node, dtype)
        return node if dtype == "bool" else self.cast(node, dtype)

    def _store_collide(self) -> None:
        """Several points may store to one place; the spec says who wins."""
        axes = self.axes(2)
        axes = [i for i in axes if self.extents[i].high <= 2**17]
        if not axes:
            return
        index, rest = axes[0], axes[1:]
        room = self.size(low=1)
        holder = self.tensor(
            "an input",
            self.pick(("i32", "i64")),
            [*self._dims(rest), self.extents[index].text],
            values=tidy_range(f"0 .. {room.text} - 1"),
        )
        dtype = self.pick(self.DTYPES)
        name = self._out(dtype, [*self._dims(rest), room.text], "inout")
        named = f"{holder}[{', '.join([*rest, index])}]"
        place = f"{name}[{', '.join([*rest, named])}]"
        keep = self.pick(("first", "last"))
        self.banned |= set(rest)
        at = self.at(axes)
        more = {"collide": f"{keep} {index}"}
        tags = {f"collide: {keep}"}
        if self.often(0.4):
            cond = self.condition(replace(at, depth=1))
            more = {"when": tidy(cond.text), **more}
            tags |= {"collide with a when", *cond.tags}
        self.put(place, self.value(at, dtype), *tags, **more)

    def _store_scattered(self) -> None:
        """Places that a distinct tensor names, of which some are outside."""
        axes = self.axes(2)
        if not axes:
            return
        row, rest = axes[0], axes[1:]
        room = self.size()
        holder = self.tensor(
            "an input",
            self.pick(("i32", "i64")),
            [self.extents[row]],
            values=self.pick(("-5 .. 60", "-1 .. 4095", "-3 .. 20")),
            distinct="true",
        )
        place = f"{holder}[{row}]"
        dtype = self.pick(self.DTYPES)
        name = self._out(dtype, [room, *self._dims(rest)], "inout")
        cond = f"0 <= {place} < {room.text}"
        self.put(
            f"{name}[{', '.join([place, *rest])}]",
            self.value(self.at(axes), dtype),
            "guarded places",
            "when on a store",
            "distinct: true",
            when=cond,
        )

    def _store_trusted(self) -> None:
        """What is true, but not shown."""
        axes = self.axes(1)
        if not axes:
            return
        index, dtype = axes[0], self.pick(self.DTYPES)
        name = self._out(dtype, [self.extents[index]], "inout")
        place = self.pick(
            (f"{index} // 3 * 3 + {index} % 3", f"{index} - {index} % 2 + {index} % 2")
        )
        self.put(
            f"{name}[{place}]",
            self.value(self.at(axes), dtype),
            "trusted",
            trusted="it is the index itself",
        )
        self.trusted[f"{name}[{place}]"] = "it is the index itself"

    # The whole.

    def spec(self, seed: int) -> Spec:
        """A spec."""
        self.nasty = self.pick((0.0, 0.0, 0.0, 0.15, 0.5))
        for _ in range(self.pick((0, 1, 1, 2, 2, 2, 3, 3, 3))):
            self.new_index()
        self.add_lets()
        wanted = self.pick((1, 1, 2, 2, 3, 4))
        for _ in range(30):
            if len(self.stores) >= wanted:
                break
            self.store()
        if not self.stores:
            self._store_once()
        data: dict[str, Any] = {"group": "drawn", "summary": "A random spec."}
        tags: set[str] = set()
        if self.often(0.12):
            text, _ = self.host_cond()
            data["when"] = tidy(text)
            tags.add("a launch-level when")
        data |= {
            "sizes": self.sizes,
            "scalars": self.scalars,
            "tensors": self.tensors,
            "index": self.index,
            "let": self.lets,
            "masks": self.masks,
            "store": self.stores,
            "trusted": self.trusted,
        }
        self._bind_sizes(data)
        data = pruned(data)
        if self.often(0.08):
            data, done = spoiled(data, self.chance)
            tags |= {"spoiled on purpose"} if done else set()
            data = pruned(data)
        schedule = self._schedule(data)
        if schedule:
            data["schedule"] = schedule
            tags |= {f"schedule: {key}" for key in schedule}
        return Spec(data, seed, frozenset(tags) | self._features(data))

    def _bind_sizes(self, data: dict[str, Any]) -> None:
        """Give each size that stands alone in no shape a tensor that it can be read off."""
        while True:
            kept = pruned(data)
            alone = {
                dim.strip()
                for entry in kept["tensors"].values()
                if not entry.get("optional")
                for dim in entry["type"].partition("[")[2].removesuffix("]").split(",")
            }
            alone |= {
                entry["list"]
                for entry in kept["tensors"].values()
                if "list" in entry and not entry.get("optional")
            }
            free = [
                name
                for name, text in kept.get("sizes", {}).items()
                if name not in alone and (".." in text or text.startswith("static"))
            ]
            if not free:
                return
            self._bind(self.numbers[free[0]])

    def _bind(self, size: Node) -> None:
        text = self.sizes[size.text]
        users = [n for n, each in self.sizes.items() if n != size.text and size.text in words(each)]
        derived = [n for n in users if ".." not in self.sizes[n]]
        if self.often(0.7) and not (size.static and derived) and not text.endswith(".."):
            # A number that stands in no shape is a scalar.
            del self.sizes[size.text]
            kind = "static" if size.static else "i64"
            low, _, high = text.removeprefix("static ").partition(" .. ")
            # Not as large as a size may be: scalars are drawn at the ends of their ranges, too.
            high = str(min(int(high), int(low) + 12)) if high.isdigit() else f"min({high}, 12)"
            self.scalars[size.text] = {"type": kind, "values": f"{low} .. {high}"}
            return
        kind = self.pick(("first", "last", "filled", "summed"))
        if kind in ("filled", "summed") and size.high <= 2**17 and len(self.index) < 3:
            index = self.new_index(replace(size, tags=frozenset()))
            if kind == "filled":
                name = self._out("i64", [size])
                node = Node(f"{index} + 1", "i64", axes=frozenset((index,)))
                self.put(f"{name}[{index}]", node)
                return
            held = self.tensor("an input", "i32", [size], values="-9 .. 9")
            name = self._out("i64", ["1"])
            text = self.pick(
                (f"sum[{index}]({held}[{index}])", f"count[{index}]({held}[{index}] > 0)")
            )
            self.put(f"{name}[0]", Node(text, "i64"), "a store that is done once")
            return
        if kind == "last":
            held = self.tensor("an input", "i64", [size])
            name = self._out("i64", ["1"])
            text = f"({held}[{size.text} - 1] if {size.text} > 0 else -1)"
            self.put(f"{name}[0]", Node(text, "i64"), "a store that is done once")
            return
        name = self._out("i32", [size], "inout")
        tags = ("a store that is done once", "when on a store")
        self.put(f"{name}[0]", Node("7", "int"), *tags, when=f"{size.text} > 0")

    def _schedule(self, data: dict[str, Any]) -> dict[str, Any]:
        schedule: dict[str, Any] = {}
        indices = data.get("index", {})
        running = [i for i in indices if not self.static_index(i)]
        texts = " ".join(texts_of(data))
        tile = {}
        for i in running:
            # Loops go thousands of values at a time, which is slow in the interpreter.
            looped = f"[{i}](" in texts or f"first {i}" in texts or f"last {i}" in texts
            if f"cumprod[{i}](" in texts or self.often(0.8 if looped else 0.3):
                tile[i] = str(self.pick((2, 4, 8, 16) if looped else (1, 2, 4, 8, 64)))
        if tile:
            schedule["tile"] = tile
        if self.often(0.15):
            schedule["warps"] = str(self.pick((1, 2, 4, 8, 16)))
        if indices and self.often(0.12):
            placed = words(" ".join(data["store"]))
            reduced = set(re.findall(r"\[(\w+)\]\(", " ".join(texts_of(data))))
            fitting = [i for i in indices if i in placed and i not in reduced]
            if self.state or self.banned:
                fitting = [i for i in fitting if i in self.banned] and fitting
            if fitting:
                chosen = [i for i in fitting if i in self.banned or self.often(0.7)]
                if chosen:
                    schedule["program"] = chosen
        return schedule

    def _features(self, data: dict[str, Any]) -> frozenset[str]:
        found: set[str] = set()
        for place in data["store"]:
            found |= self.store_tags[place]
        for table in TABLES:
            for name in data.get(table, {}):
                found |= self.tags.get(name, frozenset())
                node = self.numbers.get(name)
                found |= node.tags if node is not None else set()
        count = len(data.get("index", {}))
        found.add(f"{count} {'index' if count == 1 else 'indices'}")
        if len(data["store"]) > 1:
            found.add("several stores")
        return frozenset(tag for tag in found if not tag.startswith("~"))


def unguarded(text: str) -> str:
    """An expression without its first condition, if it has one."""
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            several = value if isinstance(value, list) else [value]
            for at, each in enumerate(several):
                if isinstance(each, ast.IfExp):
                    several[at] = each.body
                    setattr(node, name, value if isinstance(value, list) else several[0])
                    return ast.unparse(tree)
    return text


def spoiled(data: Data, chance: random.Random) -> tuple[Data, bool]:
    """A spec with one mistake in it: kgen refuses it, or it happens to be none."""
    data = {key: dict(each) if isinstance(each, dict) else each for key, each in data.items()}
    kind = chance.choice(
        ("number", "compare", "guard", "values", "distinct", "when", "size", "wider")
    )
    texts = [
        (table, name)
        for table in ("store", "let", "masks", "index")
        for name in data.get(table, {})
    ]
    table, name = chance.choice(texts)
    entry = data[table][name]
    text = entry["value"] if isinstance(entry, dict) else entry
    changed = text
    match kind:
        case "number":
            found = list(re.finditer(r"\b\d+\b", text))
            if found:
                each = chance.choice(found)
                changed = f"{text[: each.start()]}{int(each[0]) + 1}{text[each.end() :]}"
        case "compare":
            pairs = [("<", "<="), (">=", ">="), (" > ", " >= "), (" - 1", "")]
            old, new = chance.choice(pairs)
            changed = text.replace(old, new, 1) if f"{old}=" not in text else text
        case "guard":
            changed = unguarded(text) if table == "store" else text
        case "size":
            sizes = [n for n in data.get("sizes", {}) if n in words(text)]
            if sizes:
                old, new = chance.choice(sizes), chance.choice(list(data["sizes"]))
                changed = re.sub(rf"\b{old}\b", new, text)
        case "wider":
            sizes = [
                n for n, each in data.get("sizes", {}).items() if re.search(r"\.\. \w+$", each)
            ]
            if sizes:
                each = chance.choice(sizes)
                data["sizes"][each] = data["sizes"][each].partition("..")[0] + ".. 4096"
                return data, True
        case "when":
            if isinstance(entry, dict) and "when" in entry:
                data[table][name] = {k: v for k, v in entry.items() if k != "when"}
                return data, True
        case _:
            holders = [n for n, each in data["tensors"].items() if kind in each]
            if holders:
                each = chance.choice(holders)
                kept = {k: v for k, v in data["tensors"][each].items() if k != kind}
                data["tensors"] = {**data["tensors"], each: kept}
                return data, True
    if changed == text:
        return data, False
    data[table][name] = {**entry, "value": changed} if isinstance(entry, dict) else changed
    return data, True


def draw(seed: int) -> Spec:
    """The spec of a seed."""
    attempt = 0
    while True:
        chance = random.Random(f"kgen {seed} {attempt}")
        spec = Drawer(chance).spec(seed)
        # A spec that takes a page to read is no better at finding faults.
        if len(spec.text) < 4000:
            return spec
        attempt += 1
