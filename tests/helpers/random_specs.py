"""Random specs, as text, from a grammar of the language: what hypothesis draws, kgen must build.

Every number stays far inside its type and every gather is clamped or guarded, so that a spec drawn here
has a meaning and kgen has no reason to refuse it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hypothesis import assume
from hypothesis import strategies as st

# Index -> extent. K is static, the others are sizes of tensors.
INDICES = {"r": "R", "c": "C", "k": "K"}
SIZES = {"R": "0 .. 64", "C": "0 .. 64", "M": "1 .. 64", "K": "static 1 .. 5"}
SCALARS = {
    "s": "{type: i32, values: -9 .. 9}",
    "d": "{type: i32, values: 1 .. 17}",
    "far": "{type: i64, values: -2**40 .. 2**40}",
    "page": "{type: static, values: 1 .. 8}",
}
# Name -> (element type, indices, the rest of its declaration).
LEAVES = {
    "row_i32": ("i32", "r", "values: -9 .. 9"),
    "row_i64": ("i64", "r", "values: -9 .. 9"),
    "column": ("i64", "c", "values: -9 .. 9"),
    "lane": ("i32", "k", "values: -9 .. 9"),
    "cell": ("i32", "r c", "values: -9 .. 9"),
    "turned": ("i64", "c r", "values: -9 .. 9, layout: any"),
    "lanes": ("i64", "r k", "values: -9 .. 9"),
    "byte": ("u8", "c", "values: 0 .. 255"),
    "state": ("i64", "r", "values: -9 .. 9, mode: inout"),
}
FLAGS = {"flag": "r", "mark": "r c", "bit": "k"}
# Tables of M numbers, read at any expression, and tensors of indices into them.
TABLES = {"table": "i64", "small": "i32"}
PLACES = {"place": ("r", "values: 0 .. M - 1"), "wild": ("r", ""), "wild_column": ("c", "")}
OUTS = ("", "r", "k", "c", "r k", "r c", "c r", "k c")


@dataclass
class _Drawer:
    draw: st.DrawFn
    lets: dict[str, tuple[str, str]] = field(default_factory=dict)  # name -> (text, indices)
    masks: dict[str, tuple[str, str]] = field(default_factory=dict)

    def pick(self, options):
        return self.draw(st.sampled_from(list(options)))

    def leaf(self, free: frozenset[str], bound: frozenset[str]) -> str:
        at = free | bound
        options = [f"{self.draw(st.integers(-9, 9))}", "s", "d", "i64(page)"]
        options += sorted(at) * 2
        for name, (dtype, axes, _) in LEAVES.items():
            if set(axes.split()) <= at and (name != "state" or "r" not in bound):
                load = f"{name}[{', '.join(axes.split())}]"
                options += [f"i32({load})" if dtype == "u8" else load] * 2
        options += [name for name, (_, axes) in self.lets.items() if set(axes.split()) <= free] * 3
        return self.pick(options)

    def number(self, depth: int, free: frozenset[str], bound: frozenset[str] = frozenset()) -> str:
        """An expression with a small value that varies with some of `free` and `bound`."""
        if depth == 0:
            return self.leaf(free, bound)
        again = lambda: self.number(depth - 1, free, bound)  # noqa: E731
        kind = self.pick(
            "leaf add sub mul floordiv mod min max clamp neg abs cast select gather guarded "
            "reduce first scan prefix".split()
        )
        match kind:
            case "add" | "sub":
                return f"({again()} {'+' if kind == 'add' else '-'} {again()})"
            case "mul":
                return f"(i64({again()}) * clamp({again()}, -9, 9))"
            case "floordiv" | "mod":
                sign = "//" if kind == "floordiv" else "%"
                divisor = self.pick(("d", "page", "3", "4", "-2", f"max(abs({again()}), 1)"))
                return f"({again()} {sign} {divisor})"
            case "min" | "max":
                return f"{kind}({again()}, {again()})"
            case "clamp":
                return f"clamp({again()}, {again()}, {again()})"
            case "neg" | "abs":
                return f"(-{again()})" if kind == "neg" else f"abs({again()})"
            case "cast":
                return f"{self.pick(('i64', 'i32'))}(clamp({again()}, -1000, 1000))"
            case "select":
                return f"({again()} if {self.condition(depth - 1, free, bound)} else {again()})"
            case "gather":
                return f"{self.pick(TABLES)}[clamp({again()}, 0, M - 1)]"
            case "guarded":
                return self.guarded(again(), free | bound)
            case "reduce" | "first":
                return self.reduction(kind, depth, free, bound)
            case "scan" if options := sorted((free - bound) & {"c", "k"}):
                index = self.pick(options)
                inner = f"clamp({self.number(depth - 1, free, bound | {index})}, -2, 2)"
                return f"clamp({self.pick(('cumsum', 'cumprod'))}[{index}]({inner}), -99, 99)"
            case "prefix" if "r" in free and not bound:
                inner = self.number(depth - 1, free - {"r"}, frozenset("r"))
                return f"prefix[r](clamp({inner}, -99, 99))"
        return self.leaf(free, bound)

    def guarded(self, other: str, at: frozenset[str]) -> str:
        options = [f"{name}[{axis}]" for name, (axis, _) in PLACES.items() if axis in at]
        if not options:
            return other
        where = self.pick(options)
        place = self.pick((where, where, f"{where} - 2"))
        inside = f"0 <= {place} and {place} < M"
        return f"({self.pick(TABLES)}[{place}] if {inside} else {other})"

    def reduction(self, kind: str, depth: int, free: frozenset[str], bound: frozenset[str]) -> str:
        index = self.pick(INDICES)
        inner_bound = bound | {index}
        if kind == "first":
            found = self.condition(depth - 1, free, inner_bound)
            none = self.number(depth - 1, free - {index}, bound - {index})
            return f"first[{index}]({found}, {none})"
        name = self.pick(("sum", "min", "max", "count", "any", "all"))
        if name in ("any", "all"):
            return f"i64({name}[{index}]({self.condition(depth - 1, free, inner_bound)}))"
        if name == "count":
            return f"count[{index}]({self.condition(depth - 1, free, inner_bound)})"
        inner = self.number(depth - 1, free, inner_bound)
        return f"clamp({name}[{index}](i64({inner})), -999, 999)"

    def condition(self, depth: int, free: frozenset[str], bound: frozenset[str]) -> str:
        at = free | bound
        options = ["compare"] * 4
        options += [
            f"{n}[{', '.join(a.split())}]" for n, a in FLAGS.items() if set(a.split()) <= at
        ]
        options += [name for name, (_, axes) in self.masks.items() if set(axes.split()) <= free] * 2
        if depth:
            options += ["and", "or", "not"]
        kind = self.pick(options)
        if kind in ("and", "or"):
            sides = [self.condition(depth - 1, free, bound) for _ in range(2)]
            return f"({sides[0]} {kind} {sides[1]})"
        if kind == "not":
            return f"(not {self.condition(depth - 1, free, bound)})"
        if kind == "compare":
            sides = [self.number(max(depth - 1, 0), free, bound) for _ in range(2)]
            return f"({sides[0]} {self.pick(('<', '<=', '>', '>=', '==', '!='))} {sides[1]})"
        return kind


@st.composite
def specs(draw: st.DrawFn) -> str:
    """The text of a spec."""
    drawer = _Drawer(draw)
    for number in range(draw(st.integers(0, 2))):
        axes = drawer.pick(("r", "c", "r k", "r c"))
        text = drawer.number(2, frozenset(axes.split()))
        drawer.lets[f"let_{number}"] = (text, axes)
    if draw(st.booleans()):
        axes = drawer.pick(("r", "c", "r c"))
        drawer.masks["mask_0"] = (drawer.condition(1, frozenset(axes.split()), frozenset()), axes)
    tensors, stores = {}, []
    for number in range(draw(st.integers(1, 3))):
        axes = drawer.pick(OUTS).split()
        free = frozenset(axes)
        value = drawer.number(3, free)
        name, dtype = f"out_{number}", drawer.pick(("i64", "i64", "i32", "bool"))
        if dtype == "bool":
            value = drawer.condition(2, free, frozenset())
        elif dtype == "i32":
            value = f"i32(clamp({value}, -10**6, 10**6))"
        when = drawer.condition(1, free, frozenset()) if draw(st.integers(0, 3)) == 0 else None
        dims = ", ".join(INDICES[index] for index in axes) or "1"
        mode = "out" if when is None else "inout"
        tensors[name] = f'{{type: "{dtype}[{dims}]", mode: {mode}}}'
        value = value if when is None else f'{{value: "{value}", when: "{when}"}}'
        stores.append(f"{name}[{', '.join(axes) or '0'}]: {value}")
    # State is read by the program of its row alone, so that nothing may run over rows beside it.
    advanced = f"state[r]: clamp({drawer.number(2, frozenset('r'))}, -9, 9)"
    texts = [
        *stores,
        advanced,
        *(text for text, _ in (*drawer.lets.values(), *drawer.masks.values())),
    ]
    if draw(st.booleans()) and not any("[r](" in text for text in texts):
        stores.append(advanced)
    text = _spec(drawer, tensors, stores)
    # A scan along a loop that lies outside another one is more than a kernel of one pass can do.
    assume(not (re.search(r"cum(sum|prod)\[c\]", text) and "[r](" in text))
    return text


def _spec(drawer: _Drawer, outs: dict[str, str], stores: list[str]) -> str:
    used = "\n".join(stores)
    chosen = {}
    for name, (text, _) in reversed([*drawer.lets.items(), *drawer.masks.items()]):
        if _uses(used, name):
            chosen[name] = text
            used += f"\n{text}"
    tensors = dict(outs)
    for name, (dtype, axes, rest) in LEAVES.items():
        if _uses(used, name):
            stored = any(store.startswith("state[") for store in stores)
            rest = rest if name != "state" or stored else rest.removesuffix(", mode: inout")
            tensors[name] = f'{{type: "{dtype}[{_dims(axes)}]", {rest}}}'
    for name, axes in FLAGS.items():
        if _uses(used, name):
            tensors[name] = f'"bool[{_dims(axes)}]"'
    for name, dtype in TABLES.items():
        if _uses(used, name):
            tensors[name] = f'{{type: "{dtype}[M]", values: -9 .. 9}}'
    for name, (axis, rest) in PLACES.items():
        if _uses(used, name):
            tensors[name] = f'{{type: "i64[{_dims(axis)}]"{", " + rest if rest else ""}}}'
    indices = {i: extent for i, extent in INDICES.items() if _uses(used, i)}
    shapes = "\n".join(tensors.values())
    for index, extent in indices.items():
        if not _uses(shapes, extent):  # a size is read off a tensor's shape
            tensors[f"filled_{index}"] = f'{{type: "i64[{extent}]", mode: out}}'
            stores.append(f"filled_{index}[{index}]: {index} + 1")
    shapes = "\n".join([*tensors.values(), used])
    if _uses(used, "M") and not re.search(r"\[M\]", shapes):
        tensors["table"] = '{type: "i64[M]", mode: inout, values: -9 .. 9}'
        stores.append("table[0]: 1")
    # Each program has all of a static index's values, so a tile of one is refused.
    tiled = [index for index in indices if index != "k"]
    tile = {i: t for i in tiled if (t := drawer.pick((None, None, 1, 2, 4))) is not None}
    lines = ["group: drawn", "summary: A random spec."]
    sizes = {n: text for n, text in SIZES.items() if _uses("\n".join(tensors.values()), n)}
    lines += [_entry("sizes", sizes)] if sizes else []
    scalars = {n: text for n, text in SCALARS.items() if _uses(used, n)}
    lines += [_entry("scalars", scalars)] if scalars else []
    lines += [_entry("tensors", tensors)]
    lines += [_entry("index", indices)] if indices else []
    lets = {n: t for n, t in chosen.items() if n in drawer.lets}
    masks = {n: t for n, t in chosen.items() if n in drawer.masks}
    lines += [_entry("let", dict(sorted(lets.items())))] if lets else []
    lines += [_entry("masks", masks)] if masks else []
    lines += ["store:", *(f"  {store}" for store in stores)]
    if tile:
        lines.append(f"schedule: {{tile: {{{', '.join(f'{i}: {t}' for i, t in tile.items())}}}}}")
    return "\n".join(lines) + "\n"


def _uses(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _dims(axes: str) -> str:
    return ", ".join(INDICES[index] for index in axes.split())


def _entry(key: str, entries: dict[str, str]) -> str:
    return "\n".join([f"{key}:", *(f"  {name}: {text}" for name, text in entries.items())])
