"""Random declarations and expressions, each with what is known of it.

Every number carries an interval, every load a reason why it is in bounds: its index, a clamp, a declared range,
or the guard around it. So nearly all that is made of them is sound.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spec_text import tidy, words

from kgen.spec.model import is_name

LIMITS = {"u8": (0, 255), "i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}
WIDTH = ("int", "u8", "i32", "i64")
FLOATS = ("f16", "bf16", "f32")
COMPARE = ("<", "<=", ">", ">=", "==", "!=")
MODEST = 10**6  # numbers beyond it are clamped before they are added or multiplied

NAMES = {
    "size": "R C N M S T A B G H".split(),
    "static": "K L W P Q D".split(),
    "scalar": "s t u d live far base".split(),
    "tensor": "x y z a b w h at to_ slot table pool seen marks rows keep cells".split(),
    "index": "r c k l o j b m".split(),
    "let": "found place total here part held both taken".split(),
}
# Names that Python, torch, Triton, YAML or the generated code use as well.
NASTY = """
k_in r_in c_in r_start c_start end_0 end_1 LANES_k LANES_r TILE_r TILE_c TILE_k x_ptr y_ptr x_value x_stride_0
x_stride_1 x_0 x_1 pool_0 pool_chosen pool_chosen_ptr pool_stride_0 y_when y_new y_at sum_c sum_k min_c any_k each_k
each_r cond other mask chosen value values index_shape found_2 x_2 total_2 HAS_x HAS_b x_other r_other r_before index
lane lanes axis dim shape stride ptr e f i n y no yes on off null none True_ range len print int float list tuple dict
type object str id iter next zip map repr slice set sorted vars eval exec open input hash dir arange zeros where load
store constexpr jit math np numpy dtype name group sizes tensors scalars store_ let masks mode doc call bound offset
pytest eager cdiv strides addresses Expr Signature TensorArg Case World recorder watchers import_module kgen full
program pid floor_div device v program_id debug_barrier minimum maximum expand view to item shape_ size numel result runs interpreted start stop step
turn program_ pid_ accumulator carry tile block warps stages role_0 once hit part_2 lo hi low high
""".split()
INTERNAL = frozenset(NASTY)


@dataclass(frozen=True)
class Node:
    """An expression: its text, its type, the interval of a whole number, the indices that it varies with.

    `int` is the type of numbers known at compile time, of which `static` is true; `tags` name what is special
    in it.
    """

    text: str
    dtype: str
    low: int = 0
    high: int = 0
    axes: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    static: bool = False

    def tagged(self, *tags: str) -> Node:
        """The same with more tags."""
        return replace(self, tags=self.tags | set(tags))


@dataclass(frozen=True)
class At:
    """Where an expression stands.

    `free` and `bound`: the indices that have a value; `extra`: leaves that the guards around it allow;
    `depth`: how deep it may still get; `banned`: indices that nothing may run over here.
    """

    free: frozenset[str]
    bound: frozenset[str] = frozenset()
    extra: tuple[Node, ...] = ()
    depth: int = 2
    looped: bool = False  # inside a reduction over a run-time index

    @property
    def indices(self) -> frozenset[str]:
        """All indices that have a value."""
        return self.free | self.bound

    def deeper(self) -> At:
        """One level further in."""
        return replace(self, depth=self.depth - 1)

    def over(self, index: str, *, running: bool) -> At:
        """Inside a reduction: what a guard says of an index of that name is forgotten."""
        kept = tuple(leaf for leaf in self.extra if index not in leaf.axes)
        return At(
            self.free,
            self.bound | {index},
            tuple(leaf for leaf in kept if index not in guard_axes(leaf)),
            self.depth - 1,
            self.looped or running,
        )


def guard_axes(leaf: Node) -> frozenset[str]:
    """The indices of the guards that allow a leaf."""
    return frozenset(
        tag.removeprefix("~guarded by ") for tag in leaf.tags if tag.startswith("~guarded by ")
    )


def tidy_range(text: str) -> str:
    """A range with tidy ends."""
    low, _, high = text.partition("..")
    return f"{tidy(low.strip())} .. {tidy(high.strip())}".strip()


def wider(a: str, b: str) -> str:
    """The wider of two types of integers."""
    return max(a, b, key=WIDTH.index)


def joined(text: str, dtype: str, low: int, high: int, *parts: Node) -> Node:
    """An expression made of others."""
    return Node(
        text,
        dtype,
        low,
        high,
        frozenset().union(*(part.axes for part in parts)),
        frozenset().union(*(part.tags for part in parts)),
        all(part.static for part in parts),
    )


def corners(op: str, a: Node, b: Node) -> tuple[int, int]:
    """The interval of a sum, a difference or a product."""
    if op == "+":
        return a.low + b.low, a.high + b.high
    if op == "-":
        return a.low - b.high, a.high - b.low
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(ends), max(ends)


@dataclass
class Guarded:
    """A condition and what may be read where it holds."""

    cond: Node
    leaf: Node


@dataclass
class Values:
    """What a spec declares so far, and random expressions of it."""

    chance: random.Random
    sizes: dict[str, str] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)
    index: dict[str, str] = field(default_factory=dict)
    lets: dict[str, str] = field(default_factory=dict)
    masks: dict[str, str] = field(default_factory=dict)
    stores: dict[str, Any] = field(default_factory=dict)
    trusted: dict[str, str] = field(default_factory=dict)
    extents: dict[str, Node] = field(default_factory=dict)
    numbers: dict[str, Node] = field(default_factory=dict)  # sizes and scalars
    plain: list[tuple[str, str, tuple[str, ...], Node]] = field(default_factory=list)
    known_lets: list[Node] = field(default_factory=list)
    unsafe_lets: list[Guarded] = field(default_factory=list)
    state: list[Node] = field(default_factory=list)
    banned: set[str] = field(default_factory=set)
    tags: dict[str, frozenset[str]] = field(default_factory=dict)  # of each declared name
    store_tags: dict[str, frozenset[str]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=lambda: {"drawn", "last"})
    nasty: float = 0.0
    weights: dict[str, float] = field(default_factory=dict)

    # Chance.

    def pick(self, options: Sequence[Any]) -> Any:
        """One of them."""
        return self.chance.choice(list(options))

    def often(self, share: float) -> bool:
        """True in that share of all cases."""
        return self.chance.random() < share

    def weighted(self, table: dict[str, float]) -> str:
        """A key by its weight; each spec likes some of them more than others."""
        keys = [key for key, weight in table.items() if weight > 0]
        shares = [table[key] * self.weights.setdefault(key, self._taste()) for key in keys]
        return self.chance.choices(keys, shares)[0]

    def _taste(self) -> float:
        return self.pick((0.2, 0.5, 1.0, 1.0, 2.0, 5.0))

    # Names.

    def name(self, kind: str) -> str:
        """A fresh name."""
        for _ in range(60):
            nasty = self.often(self.nasty)
            name = self.pick(NASTY if nasty else NAMES[kind])
            if nasty and self.often(0.3):
                name = self._derived_name() or name
            if not nasty and name in self.taken:
                name = f"{name}{self.chance.randint(1, 9)}"
            if name not in self.taken and (is_name(name) or self.often(0.01)):
                self.taken.add(name)
                self.tags[name] = frozenset({f"{kind} named like an internal one"} if nasty else ())
                return name
        raise AssertionError("no name is left")

    def _derived_name(self) -> str:
        """A name that generated code would make of one that there is."""
        forms = []
        for index in self.index:
            forms += [f"{index}_in", f"{index}_start", f"LANES_{index}", f"TILE_{index}"]
            forms += [f"sum_{index}", f"each_{index}", f"{index}_other", f"{index}_before"]
        for tensor in self.tensors:
            forms += [f"{tensor}_ptr", f"{tensor}_value", f"{tensor}_stride_0", f"{tensor}_0"]
            forms += [f"{tensor}_chosen", f"{tensor}_when", f"{tensor}_new", f"{tensor}_at"]
            forms += [f"HAS_{tensor}", f"{tensor}_2"]
        forms += [f"{size}_" for size in self.sizes] + [f"{scalar}_" for scalar in self.scalars]
        return self.pick(forms) if forms else ""

    # Sizes, scalars, extents.

    def size(
        self, *, static: bool = False, low: int | None = None, high: int | None = None
    ) -> Node:
        """A size that is there already, or a new one."""
        fitting = [
            node
            for name, node in self.numbers.items()
            if name in self.sizes
            and node.static == static
            and (low is None or node.low >= low)
            and (high is None or node.high <= high)
        ]
        if fitting and self.often(0.6):
            return self.pick(fitting)
        name = self.name("static" if static else "size")
        if static:
            least = self.pick((0, 1, 1, 1, 2)) if low is None else low
            most = max(
                least,
                self.pick((1, 3, 4, 5, 8)) if high is None else min(high, self.pick((3, 5, 8))),
            )
            self.sizes[name] = f"static {least} .. {most}"
            node = Node(name, "int", least, most, static=True)
        else:
            least = self.pick((0, 0, 0, 1)) if low is None else low
            most = max(least + 1, self.pick((1, 9, 40, 64, 300, 4096, 65536)))
            most = most if high is None else max(least, min(most, high))
            bounds = [
                n
                for n, s in self.numbers.items()
                if n in self.sizes and not s.static and s.high >= least
            ]
            if bounds and high is None and least == 0 and self.often(0.25):
                a, b = (self.numbers[self.pick(bounds)] for _ in range(2))
                text, most = self.pick(
                    (
                        (a.text, a.high),
                        (a.text, a.high),
                        (f"max({a.text}, {b.text})", max(a.high, b.high)),
                        (f"min({a.text}, {b.text})", min(a.high, b.high)),
                        (f"{a.text} // 2", a.high // 2),
                    )
                )
                self.sizes[name] = f"0 .. {text}"
                self.tags[name] |= {"a size bounded by others"}
            elif high is None and self.often(0.05):
                self.sizes[name], most = f"{least} ..", 2**31 - 1
            else:
                self.sizes[name] = f"{least} .. {most}"
            node = Node(name, "i64", least, most)
        if least == 0:
            node = node.tagged("an extent that may be 0")
        self.numbers[name] = node
        return node

    def scalar(self, kind: str) -> Node:
        """A scalar of a kind: small, divisor, wide, free, f32, static, live."""
        fitting = [n for n in self.numbers.values() if f"~scalar {kind}" in n.tags]
        if fitting and self.often(0.7):
            return self.pick(fitting)
        name = self.name("scalar")
        tags = {f"~scalar {kind}"}
        entry: dict[str, str]
        match kind:
            case "small":
                entry, low, high = {"type": "i32", "values": "-9 .. 9"}, -9, 9
                if self.often(0.3):
                    entry["default"] = self.pick(("0", "3", "-9", "2 * 2"))
                    tags.add("a scalar with a default")
            case "divisor":
                entry, low, high = {"type": self.pick(("i32", "i64")), "values": "1 .. 17"}, 1, 17
            case "wide":
                entry, low, high = {"type": "i64", "values": "-2**40 .. 2**40"}, -(2**40), 2**40
                tags.add("a scalar past 32 bits")
            case "free":
                entry = {"type": self.pick(("i32", "i64"))}
                low, high = LIMITS[entry["type"]]
            case "f32":
                entry, low, high = {"type": "f32"}, 0, 0
                if self.often(0.4):
                    entry["values"] = self.pick(("0.0 .. 1.0", "-2.5 .. 2.5", "1e-6 .. "))
                if "values" not in entry and self.often(0.3):
                    entry["default"] = self.pick(("0.5", "1.5", "2"))
                    tags.add("a scalar with a default")
                tags.add("an f32 scalar")
            case "static":
                least = self.pick((0, 1, 1))
                entry, low, high = {"type": "static", "values": f"{least} .. 6"}, least, 6
                if self.often(0.3):
                    entry["default"] = self.pick(("1", "2", "6"))
                    tags.add("a scalar with a default")
                tags.add("a static scalar")
            case _:
                size = self.size(high=40)
                entry, low, high = {"type": "i32", "values": f"0 .. {size.text}"}, 0, size.high
                if self.often(0.7):
                    entry["default"] = size.text
                    tags.add("a scalar with a default")
                tags.add("a scalar bounded by a size")
        dtype = "int" if entry["type"] == "static" else entry["type"]
        self.scalars[name] = entry if len(entry) > 1 or self.often(0.5) else entry["type"]
        node = Node(name, dtype, low, high, tags=frozenset(tags), static=dtype == "int")
        self.numbers[name] = node
        return node

    def extent(self) -> Node:
        """How many values an index takes."""
        kind = self.weighted(
            {
                "run": 9,
                "static": 7,
                "one": 0.6,
                "const": 1.2,
                "none": 0.25,
                "ceil": 1.2,
                "halved": 0.6,
                "rest": 0.4,
                "max": 0.7,
                "min": 0.7,
                "choice": 0.8,
                "product": 0.6,
                "less": 0.7,
                "more": 0.7,
                "scalar": 0.5,
                "of statics": 0.8,
            }
        )
        node = self._extent(kind)
        compound = not node.text.isalnum()
        if compound and node.dtype != "int" and self.often(0.3):
            name = self.name("size")
            self.sizes[name] = tidy(node.text)
            self.tags[name] |= {"a derived size", *node.tags}
            node = replace(node, text=name)
            self.numbers[name] = replace(node, tags=node.tags)
        return node

    def _extent(self, kind: str) -> Node:
        match kind:
            case "run":
                return self.size()
            case "static":
                return self.size(static=True).tagged("a static extent")
            case "one":
                return Node("1", "int", 1, 1, static=True).tagged("an extent of 1")
            case "const":
                n = self.pick((2, 3, 4, 5, 6, 7))
                return Node(str(n), "int", n, n, static=True).tagged("an extent that is a number")
            case "none":
                return Node("0", "int", 0, 0, static=True).tagged("an extent of 0")
            case "ceil":
                size, d = self.size(), self._divisor()
                text = f"({size.text} + {d.text} - 1) // {d.text}"
                if d.text.isdigit() and self.often(0.6):
                    text = f"({size.text} + {int(d.text) - 1}) // {d.text}"
                high = (size.high + d.low - 1) // d.low
                return self._host(text, 0, high, size, d).tagged("a division in an extent")
            case "halved":
                size, d = self.size(), self._divisor()
                return self._host(
                    f"{size.text} // {d.text}", 0, size.high // d.low, size, d
                ).tagged("a division in an extent")
            case "rest":
                size, d = self.size(), self._divisor()
                return self._host(
                    f"{size.text} % {d.text} + 1", 1, min(size.high, d.high - 1) + 1, size, d
                ).tagged("a division in an extent")
            case "max" | "min":
                a, b = self.size(), self.pick((self.size, lambda: self.size(static=True)))()
                low, high = (
                    (max if kind == "max" else min)(a.low, b.low),
                    (max if kind == "max" else min)(a.high, b.high),
                )
                return self._host(f"{kind}({a.text}, {b.text})", low, high, a, b).tagged(
                    "min or max in an extent"
                )
            case "choice":
                a, b = self.size(), self.size()
                cond, other = self.host_cond()
                low, high = min(a.low, b.low), max(a.high, b.high)
                return self._host(
                    f"({a.text} if {cond} else {b.text})", low, high, a, b, *other
                ).tagged("a choice in an extent")
            case "product":
                a, b = self.size(high=64), self.size(static=self.often(0.5), high=64)
                return self._host(
                    f"{a.text} * {b.text}", a.low * b.low, a.high * b.high, a, b
                ).tagged("a product in an extent")
            case "less":
                a = self.size()
                return self._host(
                    f"max({a.text} - 1, 0)", max(a.low - 1, 0), max(a.high - 1, 0), a
                ).tagged("min or max in an extent")
            case "more":
                a, n = self.size(), self.pick((1, 1, 2, 3))
                return self._host(f"{a.text} + {n}", a.low + n, a.high + n, a).tagged(
                    "a sum in an extent"
                )
            case "scalar":
                scalar = self.scalar("live")
                return replace(scalar, dtype="i64").tagged("a scalar as an extent")
            case _:
                a = self.pick((self.size, self.scalar))
                a = self.size(static=True) if self.often(0.7) else self.scalar("static")
                text, low, high = self.pick(
                    (
                        (f"{a.text} + 1", a.low + 1, a.high + 1),
                        (f"2 * {a.text}", 2 * a.low, 2 * a.high),
                        (f"({a.text} + 1) // 2", (a.low + 1) // 2, (a.high + 1) // 2),
                        (f"max({a.text} - 1, 0)", max(a.low - 1, 0), max(a.high - 1, 0)),
                        (f"min({a.text}, 3)", min(a.low, 3), min(a.high, 3)),
                    )
                )
                tags = {"an extent of static numbers"}
                tags |= {"a division in an extent"} if "//" in text else set()
                tags |= {"min or max in an extent"} if "m" in text else set()
                return self._host(text, low, high, a).tagged(*tags)

    def _host(self, text: str, low: int, high: int, *parts: Node) -> Node:
        static = all(part.static for part in parts)
        tags = frozenset().union(*(part.tags for part in parts)) - {"a static extent"}
        tags = frozenset(tag for tag in tags if not tag.startswith("~"))  # what a scalar itself is
        tags |= {"an extent that may be 0"} if low <= 0 else set()
        dtype = "int" if static else "i64"
        return Node(text, dtype, max(low, 0), high, tags=tags, static=static)

    def _divisor(self) -> Node:
        """A number of 1 or more, known before the launch."""
        kind = self.pick(("number", "number", "static", "scalar", "size"))
        match kind:
            case "static":
                found = [n for n in self.numbers.values() if n.static and n.low >= 1]
                return self.pick(found) if found else self.size(static=True, low=1)
            case "scalar":
                return self.scalar("divisor")
            case "size":
                return self.size(low=1)
        number = self.pick((1, 2, 3, 4, 7))
        return Node(str(number), "int", number, number, static=True)

    def host_cond(self, *, static: bool | None = None) -> tuple[str, list[Node]]:
        """A condition on sizes and scalars, and what it is made of."""
        kind = "static" if static else self.pick(("static", "scalar", "size", "two"))
        match kind:
            case "static":
                node = self.size(static=True) if self.often(0.6) else self.scalar("static")
                text = self.pick(
                    (
                        f"{node.text} > {self.chance.randint(0, 4)}",
                        f"{node.text} % 2 == 0",
                        f"{node.text} == {self.chance.randint(0, 3)}",
                        f"not {node.text} < 3",
                        f"1 <= {node.text} <= 3",
                    )
                )
                return text, [node]
            case "scalar":
                node = self.scalar("small")
                return f"{node.text} {self.pick(('<', '>=', '!='))} {self.chance.randint(-3, 4)}", [
                    node
                ]
            case "size":
                node = self.size()
                return f"{node.text} {self.pick(('>', '<=', '=='))} {self.chance.randint(0, 5)}", [
                    node
                ]
        a, b = self.size(), self.size()
        return f"{a.text} {self.pick(('<', '>=', '=='))} {b.text}", [a, b]

    def new_index(self, extent: Node | None = None) -> str:
        """One more index."""
        node = extent or self.extent()
        name = self.name("index")
        self.index[name] = tidy(node.text)
        self.extents[name] = node
        self.tags[name] |= node.tags
        return name

    def static_index(self, index: str) -> bool:
        """Whether the number of its values is known at compile time."""
        return self.extents[index].static

    # Tensors.

    def tensor(self, kind: str, dtype: str, dims: Sequence[Node | str], **more: str) -> str:
        """A new tensor."""
        name = self.name("tensor")
        texts = [dim if isinstance(dim, str) else dim.text for dim in dims]
        entry = {"type": f"{dtype}[{', '.join(map(tidy, texts))}]", **more}
        layout = self.pick(("rows", "rows", "rows", "contiguous", "any", "any"))
        if layout != "rows":
            entry["layout"] = layout
        self.tensors[name] = entry
        tags = {f"a tensor of {dtype}", f"layout {layout}", f"a tensor of rank {len(texts)}"}
        tags |= {"a list"} if kind == "list" else set()
        for text in texts:
            tags |= {"a division in a dimension"} if "//" in text or "%" in text else set()
            tags |= {"min or max in a dimension"} if "min(" in text or "max(" in text else set()
            tags |= {"a choice in a dimension"} if " if " in text else set()
        self.tags[name] |= tags
        return name

    def _range(self, dtype: str) -> tuple[str, int, int]:
        """The declared values of a tensor of integers."""
        if dtype == "u8":
            text, low, high = self.pick((("", 0, 255), ("0 .. 9", 0, 9), ("200 ..", 200, 255)))
            return text, low, high
        least, most = LIMITS[dtype]
        choices = [("-9 .. 9", -9, 9)] * 4 + [
            ("0 .. 5", 0, 5),
            ("-1 .. 3", -1, 3),
            ("", least, most),
        ]
        choices += [("0 .. 2**31 - 1", 0, 2**31 - 1), ("-2**31 .. 7", -(2**31), 7)]
        choices += [(".. 40", least, 40)]
        if dtype == "i64":
            choices += [("-2**40 .. 2**40", -(2**40), 2**40)]
            choices += [
                self.pick((("0 .. 2**62", 0, 2**62), ("-2**62 .. 2**62 - 1", -(2**62), 2**62 - 1)))
            ]
        return self.pick(choices)

    def values_node(self, load: str, dtype: str, low: int, high: int, axes: frozenset[str]) -> Node:
        """A load as an expression."""
        return Node(load, dtype, low, high, axes)

    def load(self, at: At, dtypes: Sequence[str]) -> Node:
        """An element that is in bounds at every point."""
        again = [
            (name, node)
            for name, dtype, axes, node in self.plain
            if dtype in dtypes and set(axes) <= at.indices
        ]
        if again and self.often(0.45):
            return self.pick(again)[1]
        kinds = {
            "plain": 6.0,
            "longer": 0.8,
            "reversed": 0.7,
            "radix": 0.5,
            "diagonal": 0.2,
            "more dimensions": 0.6,
            "clamped": 1.2,
            "ranged": 1.5,
            "an end": 0.8,
            "list": 1.6,
        }
        return self._load(self.weighted(kinds), at, dtypes)

    def some(self, indices: frozenset[str], most: int = 3) -> list[str]:
        """Some of the indices in any order."""
        known = [index for index in self.index if index in indices]
        self.chance.shuffle(known)
        return known[: self.pick((1, 1, 2, 2, 3)[: 2 + most])] if known else []

    def _values(self, dtype: str) -> tuple[dict[str, str], int, int]:
        """The attributes and the interval of a new tensor's elements."""
        if dtype in FLOATS or dtype == "bool":
            return {}, 0, 1
        text, low, high = self._range(dtype)
        return ({"values": text} if text else {}), low, high

    def _load(self, kind: str, at: At, dtypes: Sequence[str]) -> Node:
        dtype = self.pick(dtypes)
        more, low, high = self._values(dtype)
        axes = self.some(at.indices)
        if kind in ("clamped", "ranged"):
            return self._gather(kind, at, dtype, more, low, high)
        if kind == "list":
            return self._listed(at, dtype, more, low, high)
        if not axes:
            kind = "no index"
        dims: list[str] = [self.extents[index].text for index in axes]
        items = list(axes)
        tags: set[str] = set()
        match kind:
            case "longer":
                n = self.pick((1, 1, 2, 3))
                dims[-1] = f"{dims[-1]} + {n}"
                items[-1] = f"{items[-1]} + {self.chance.randint(0, n)}"
                tags.add("a load at an offset")
            case "reversed":
                items[-1] = f"{dims[-1]} - 1 - {items[-1]}"
                tags.add("a load in reverse")
            case "radix" if len(axes) > 1:
                a, b = self.extents[axes[0]], self.extents[axes[1]]
                if a.high * b.high < 2**31:
                    dims[:2] = [f"({a.text}) * ({b.text})"]
                    items[:2] = [f"{axes[0]} * ({b.text}) + {axes[1]}"]
                    tags.add("a load in mixed radix")
            case "diagonal":
                dims, items = [*dims, dims[0]], [*items, items[0]]
                tags.add("a load on the diagonal")
            case "more dimensions":
                n = self.pick((1, 2, 3))
                place = self.chance.randint(0, len(dims))
                dims.insert(place, str(n))
                items.insert(place, str(self.chance.randint(0, n - 1)))
            case "an end":
                # Its index has a value, so that the dimension is not empty.
                items[0] = self.pick(("0", f"{dims[0]} - 1"))
                tags.add("a load at an end of what an index runs over")
            case "no index":
                dims, items = [str(self.pick((1, 2, 3)))], ["0"]
        name = self.tensor("input", dtype, dims, **more)
        used = frozenset(i for i in axes if any(i in words(item) for item in items))
        node = Node(f"{name}[{', '.join(items)}]", dtype, low, high, used, frozenset(tags))
        # An end may be read only where the index is known to have a value.
        self.plain.append((name, dtype, tuple(axes), node))
        return node

    def _gather(
        self, kind: str, at: At, dtype: str, more: dict[str, str], low: int, high: int
    ) -> Node:
        """A load at a computed place."""
        room = self.size(low=1) if self.often(0.8) else self.size(static=True, low=1)
        inner = [] if self.often(0.7) else self.some(at.indices)[:1]
        if kind == "ranged":
            place = self._place(at, room, f"0 .. {room.text} - 1")
            tag = "a load at a place that a tensor holds"
        else:
            each = self.integer(at.deeper()) if at.depth > 0 else self.leaf(at)
            form = self.pick(("clamp({}, 0, {} - 1)", "max(min({}, {} - 1), 0)", "{} % {}"))
            if each.dtype == "u8" or (each.dtype == "int" and form == "{} % {}"):
                each = replace(each, text=f"i64({each.text})", dtype="i64")
            place = replace(each, text=f"({form.format(each.text, room.text)})")
            tag = "a load at a clamped place"
        dims = [room.text, *(self.extents[i].text for i in inner)]
        name = self.tensor("input", dtype, dims, **more)
        axes = place.axes | set(inner)
        items = [place.text, *inner]
        return Node(f"{name}[{', '.join(items)}]", dtype, low, high, axes, place.tags | {tag})

    def _place(self, at: At, room: Node, values: str) -> Node:
        """An element of a tensor of places."""
        axes = self.some(at.indices)[:2]
        dims = [self.extents[i].text for i in axes] or ["1"]
        items = ", ".join(axes) or "0"
        dtype = self.pick(("i32", "i64", "i64"))
        name = self.tensor("input", dtype, dims, values=tidy_range(values))
        return Node(f"{name}[{items}]", dtype, 0, room.high, frozenset(axes))

    def _listed(self, at: At, dtype: str, more: dict[str, str], low: int, high: int) -> Node:
        """An element of one tensor of a list."""
        chosen = [i for i in at.indices if self.extents[i].static and self.extents[i].low >= 1]
        chosen = [i for i in chosen if self.extents[i].high <= 4]
        kind = self.pick(
            ["number", "loaded", "expression", "clamped", "static"] + ["index"] * 4 * bool(chosen)
        )
        if kind == "index":
            index = self.pick(sorted(chosen))
            length = self.extents[index]
            where = "a reduction's index" if index in at.bound else "an index"
            item = Node(index, "i64", 0, length.high, frozenset((index,)))
            tag = f"a list chosen by {where}"
        else:
            length = self.size(static=True, low=1, high=3)
            if length.high > 4:
                length = Node("3", "int", 3, 3, static=True)
            last = f"{length.text} - 1"
            match kind:
                case "number" | "static":
                    item = Node(self.pick(("0", last)) if kind == "static" else "0", "int")
                    tag = "a list chosen by a number"
                case "loaded":
                    item = self._place(at, length, f"0 .. {last}")
                    tag = "a list chosen by a loaded number"
                case _:
                    each = (
                        self.leaf(at)
                        if at.depth <= 0 or kind == "clamped"
                        else self.integer(at.deeper())
                    )
                    each = self.cast(each, "i64")
                    form = self.pick(("clamp({}, 0, {})", "max(min({}, {}), 0)"))
                    text = form.format(each.text, last)
                    if self.often(0.3):
                        text = f"({each.text} % {length.text})"
                    item = replace(each, text=text)
                    tag = "a list chosen by an expression"
        axes = self.some(at.indices)[:2]
        axes = [i for i in axes if i not in item.axes or self.often(0.3)]
        dims = [self.extents[i].text for i in axes] or ["1"]
        name = self.tensor("list", dtype, dims, list=tidy(length.text), **more)
        tags = item.tags | {tag}
        if item.axes & {i for i in at.indices if self.extents[i].static}:
            tags |= {"a list chosen by a static index"}
        text = f"{name}[{item.text}][{', '.join(axes) or '0'}]"
        return Node(text, dtype, low, high, item.axes | set(axes), tags)

    # Guarded loads.

    def guarded(self, at: At, dtypes: Sequence[str]) -> Guarded | None:
        """A condition, and an element that may be read only where it holds."""
        if self.unsafe_lets and self.often(0.6):
            fitting = [
                each
                for each in self.unsafe_lets
                if each.leaf.dtype in dtypes and each.leaf.axes | each.cond.axes <= at.free
            ]
            if fitting:
                found = self.pick(fitting)
                return Guarded(found.cond, found.leaf.tagged("a let used under a guard"))
        kind = self.weighted(
            {
                "place": 2.5,
                "static": 2.0,
                "padded": 2.0,
                "neighbour": 1.5,
                "given": 3.5,
                "size": 1.2,
                "length": 0.6,
                "scalar": 0.5,
                "shorter": 1.0,
                "block": 0.8,
            }
        )
        dtype = self.pick(dtypes)
        more, low, high = self._values(dtype)
        made = getattr(self, f"_guard_{kind}")(at, dtype, more)
        if made is None:
            return None
        cond, load, axes, tags = made
        leaf = Node(load, dtype, low, high, axes, frozenset(tags))
        if self.often(0.25) and kind != "given":
            more_cond = self.condition(replace(at, depth=0, extra=()))
            cond = replace(
                cond,
                text=f"({cond.text} and {more_cond.text})",
                axes=cond.axes | more_cond.axes,
                tags=cond.tags | more_cond.tags,
            )
            if more_cond.axes - leaf.axes:
                leaf = leaf.tagged("a guard of other axes")
        return Guarded(cond, leaf.tagged(*(f"~guarded by {axis}" for axis in cond.axes)))

    def _guard_place(self, at: At, dtype: str, more: dict[str, str]) -> Any:
        """`table[at[r]]` where `0 <= at[r] < M`."""
        room = self.size() if self.often(0.75) else self.size(static=True)
        axes = self.some(at.indices)[:2]
        dims = [self.extents[i].text for i in axes] or ["1"]
        values = self.pick(({}, {}, {"values": "-5 .. 60"}, {"values": "-1 .."}))
        if self.often(0.3):
            values = {**values, "expected": f"0 .. {room.text} - 1"}
        kind = self.pick(("i32", "i64", "i64"))
        if values.get("expected"):
            self.tags.setdefault("", frozenset())
        holder = self.tensor("input", kind, dims, **values)
        if "expected" in values:
            self.tags[holder] |= {"expected"}
        place = f"{holder}[{', '.join(axes) or '0'}]"
        if self.often(0.3):
            place = f"i64({place}) - 2" if kind == "i32" else f"{place} - 2"
        inner = [] if self.often(0.6) else self.some(at.indices)[:1]
        name = self.tensor("input", dtype, [room, *(self.extents[i].text for i in inner)], **more)
        cond = Node(
            self.pick((f"0 <= {place} < {room.text}", f"({place} >= 0 and {place} < {room.text})")),
            "bool",
            axes=frozenset(axes),
        )
        load = f"{name}[{', '.join([place, *inner])}]"
        return cond, load, frozenset(axes) | set(inner), {"a guarded gather"}

    def _guard_static(self, at: At, dtype: str, more: dict[str, str]) -> Any:
        """`x[r, 3]` where `K > 3`."""
        size = self.size(static=True)
        if size.high < 1:
            return None
        number = self.chance.randint(0, min(size.high, 5))
        axes = self.some(at.indices)[:2]
        dims = [self.extents[i].text for i in axes]
        items = list(axes)
        place = self.chance.randint(0, len(dims))
        form = self.pick(("{} > {}", "{} >= {} + 1", "not {} <= {}"))
        item = self.pick((str(number), f"{size.text} - {number + 1}"))
        dims.insert(place, size.text)
        items.insert(place, item)
        name = self.tensor("input", dtype, dims, **more)
        cond = Node(form.format(size.text, number), "bool", static=True)
        return (
            cond,
            f"{name}[{', '.join(items)}]",
            frozenset(axes),
            {"a load under a compile-time guard"},
        )

    def _guard_padded(self, at: At, dtype: str, more: dict[str, str]) -> Any:
        """`x[2]` where `r >= 2`: true of padded lanes too."""
        if not at.indices:
            return None
        index = self.pick(sorted(at.indices))
        number = self.chance.randint(1, 4)
        extent = self.extents[index]
        others = [i for i in self.some(at.indices)[:1] if i != index]
        dims = [extent.text, *(self.extents[i].text for i in others)]
        if self.often(0.3):
            dims, others = dims[:1], []
        name = self.tensor("input", dtype, dims, **more)
        item = self.pick((str(number), f"{index} - {number}", str(number - 1)))
        cond = Node(
            self.pick(
                (f"{index} >= {number}", f"{index} > {number - 1}", f"not {index} < {number}")
            ),
            "bool",
            axes=frozenset((index,)),
        )
        axes = frozenset((*others, *([index] if index in words(item) else [])))
        load = f"{name}[{', '.join([item, *others])}]"
        return cond, load, axes, {"a guard that padded lanes satisfy"}

    def _guard_neighbour(self, at: At, dtype: str, more: dict[str, str]) -> Any:
        """`x[r + 1]` where there is one more."""
        if not at.indices:
            return None
        index = self.pick(sorted(at.indices))
        extent, number = self.extents[index], self.chance.randint(1, 3)
        name = self.tensor("input", dtype, [extent], **more)
        cond = self.pick(
            (f"{index} + {number} < {extent.text}", f"{index} < ({extent.text}) - {number}")
        )
        axes = frozenset((index,))
        load = f"{name}[{index} + {number}]"
        return Node(cond, "bool", axes=axes), load, axes, {"a load of a neighbour"}

    def _guard_given(self, at: At, dtype: str, more: dict[str, str]) -> Any:
        """`b[r, k]` where `given(b)`."""
        axes = self.some(at.indices)
        if self.often(0.4):
            axes = [index for index in self.index if index in at.indices]
            self.chance.shuffle(axes)
        dims = [self.extents[i].text for i in axes] or [self.pick(("1", "2"))]
        items = [*axes] or ["0"]
        if self.often(0.2) and len(axes) < 3:
            dims.append("2")
            items.append(self.pick(("0", "1")))
        listed = {}
        if self.often(0.08):
            length = self.size(static=True, low=1, high=3)
            listed = {"list": length.text}
        name = self.tensor("input", dtype, dims, **more, **listed, optional="true")
        self.tags[name] |= {"an optional tensor", f"an optional tensor of rank {len(dims)}"}
        layout = self.tensors[name].get("layout", "rows")
        self.tags[name] |= {f"an optional tensor with layout {layout}"}
        chosen = "[0]" if listed else ""
        load = f"{name}{chosen}[{', '.join(items)}]"
        return (
            Node(f"given({name})", "bool", static=True),
            load,
            frozenset(axes),
            {"a choice on given"},
        )

    def _guard_size(self, at: At, dtype: str, more: dict[str, str]) -> Any:
        """`x[0]` where `M > 0`."""
        size, number = self.size(), self.chance.randint(0, 3)
        name = self.tensor("input", dtype, [size], **more)
        item = self.pick((str(number), f"{size.text} - {number + 1}"))
        if at.indices and self.often(0.3):
            index = self.pick(sorted(at.indices))
            item = f"min({index}, {size.text} - 1)"
            return (
                Node(f"{size.text} > {number}", "bool"),
                f"{name}[{item}]",
                frozenset((index,)),
                {"a guard on a size"},
            )
        return (
            Node(f"{size.text} > {number}", "bool"),
            f"{name}[{item}]",
            frozenset(),
            {"a guard on a size"},
        )

    def _guard_length(self, at: At, dtype: str, more: dict[str, str]) -> Any:
        """`p[2][r]` where `L > 2`."""
        length, number = self.size(static=True, low=1, high=3), self.chance.randint(0, 2)
        axes = self.some(at.indices)[:2]
        dims = [self.extents[i].text for i in axes] or ["1"]
        name = self.tensor("list", dtype, dims, list=length.text, **more)
        cond = Node(f"{length.text} > {number}", "bool", static=True)
        load = f"{name}[{number}][{', '.join(axes) or '0'}]"
        tags = {"a load under a compile-time guard", "a list chosen by a number"}
        return cond, load, frozenset(axes), tags

    def _guard_scalar(self, _at: At, dtype: str, more: dict[str, str]) -> Any:
        """`x[s]` where a scalar is inside."""
        size, scalar = self.size(), self.scalar("small")
        name = self.tensor("input", dtype, [size], **more)
        cond = Node(f"0 <= {scalar.text} < {size.text}", "bool")
        return cond, f"{name}[{scalar.text}]", frozenset(), {"a guard on a scalar"}

    def _guard_shorter(self, at: At, dtype: str, more: dict[str, str]) -> Any:
        """`x[r]` where `r < M`, M another size, or the smaller of two."""
        if not at.indices:
            return None
        index = self.pick(sorted(at.indices))
        size = self.size()
        room = size.text
        if self.often(0.4):
            room = self.pick((f"min({size.text}, {self.size().text})", f"max({size.text}, 1)"))
        name = self.tensor("input", dtype, [room], **more)
        axes = frozenset((index,))
        return (
            Node(f"{index} < {room}", "bool", axes=axes),
            f"{name}[{index}]",
            axes,
            {"a guard on a size"},
        )

    def _guard_block(self, at: At, dtype: str, more: dict[str, str]) -> Any:
        """`x[4 * b + o]` where that is inside: the last block is not full."""
        if not at.indices:
            return None
        index = self.pick(sorted(at.indices))
        size, number = self.size(), self.pick((2, 3, 4))
        others = [i for i in sorted(at.indices) if i != index and self.extents[i].high < 2**20]
        inner = self.pick(others) if others and self.often(0.6) else str(self.chance.randint(0, 1))
        name = self.tensor("input", dtype, [size], **more)
        place = f"{number} * {index} + {inner}"
        axes = frozenset({index} | words(inner))
        return (
            Node(f"{place} < {size.text}", "bool", axes=axes),
            f"{name}[{place}]",
            axes,
            {"a guarded block"},
        )

    def under_guard(self, at: At, each: Callable[[At], Node], dtypes: Sequence[str]) -> Node | None:
        """A choice whose first branch reads what only its condition allows."""
        found = self.guarded(at, dtypes)
        if found is None:
            return None
        inner = replace(at.deeper(), extra=(*at.extra, found.leaf))
        then = (
            found.leaf if self.often(0.4) or at.depth <= 0 else self.mixed(inner, each, found.leaf)
        )
        other = each(at.deeper())
        if "given(" in found.cond.text and self.often(0.3):  # nested, in the branch without it
            nested = self._optional(at, dtypes)
            other = self.choice(nested.cond, nested.leaf, other)
        return self.choice(found.cond, then, other)

    def _optional(self, at: At, dtypes: Sequence[str]) -> Guarded:
        """A choice on `given` for another tensor."""
        dtype = self.pick(dtypes)
        more, low, high = self._values(dtype)
        cond, load, axes, tags = self._guard_given(at, dtype, more)
        return Guarded(cond, Node(load, dtype, low, high, axes, frozenset(tags)))

    def mixed(self, at: At, each: Callable[[At], Node], leaf: Node) -> Node:
        """An expression with a leaf in it somewhere."""
        node = each(at)
        if leaf.text in node.text:
            return node
        if leaf.dtype == "bool":
            return self._both(
                self.pick(("and", "or")), leaf, node if node.dtype == "bool" else leaf
            )
        if node.dtype in FLOATS or leaf.dtype in FLOATS:
            return self._float_op(self.pick(("+", "*", "min")), leaf, node)
        return self.arithmetic(self.pick(("+", "-", "min", "max")), leaf, node)

    # Whole numbers.

    def literal(self) -> Node:
        """A number as written."""
        number = self.pick((0, 1, 2, 3, 5, 7, 9, -1, -2, -9))
        return Node(
            str(number) if number >= 0 else f"({number})", "int", number, number, static=True
        )

    def leaf(self, at: At) -> Node:
        """A number without operators."""
        kinds = {
            "literal": 1.5,
            "index": 2.5 if at.indices else 0,
            "load": 5,
            "scalar": 0.8,
            "size": 0.6,
            "static": 0.6,
            "let": 4 if any(n.dtype in WIDTH and n.axes <= at.free for n in self.known_lets) else 0,
            "extra": 6 if any(n.dtype in WIDTH for n in at.extra) else 0,
            "state": 4 if self._states(at, WIDTH) else 0,
        }
        match self.weighted(kinds):
            case "literal":
                return self.literal()
            case "index":
                name = self.pick(sorted(at.indices))
                high = max(self.extents[name].high - 1, 0)
                return Node(name, "i64", 0, high, frozenset((name,)))
            case "scalar":
                return self.scalar(
                    self.pick(("small", "small", "divisor", "wide", "free", "static", "live"))
                )
            case "size":
                return self.size()
            case "static":
                return self.size(static=True)
            case "let":
                return self.pick(
                    [n for n in self.known_lets if n.dtype in WIDTH and n.axes <= at.free]
                )
            case "extra":
                return self.pick([n for n in at.extra if n.dtype in WIDTH])
            case "state":
                return self.pick(self._states(at, WIDTH))
        return self.load(at, ("i32", "i64", "i64", "i32", "u8"))

    def _states(self, at: At, dtypes: Sequence[str]) -> list[Node]:
        """What is read and stored by the same point, where that point is known."""
        return [
            n
            for n in self.state
            if n.dtype in dtypes and n.axes <= at.free and not n.axes & at.bound
        ]

    def cast(self, node: Node, dtype: str) -> Node:
        """A number as a type, clamped if it might not fit."""
        if node.dtype == dtype:
            return node
        low, high = LIMITS[dtype]
        if node.low < low or node.high > high:
            node = self.clamped(node, max(low, -1000), min(high, 1000))
        return replace(node, text=f"{dtype}({node.text})", dtype=dtype)

    def clamped(self, node: Node, low: int, high: int) -> Node:
        """A number kept within two ends."""
        if node.dtype == "int":
            node = replace(node, text=f"i64({node.text})", dtype="i64")
        if node.dtype == "u8" and (low < 0 or high > 255):
            return node
        text = f"clamp({node.text}, {low}, {high})"
        return replace(
            node, text=text, low=max(min(node.low, high), low), high=max(min(node.high, high), low)
        )

    def modest(self, node: Node) -> Node:
        """A number that is not too large to calculate with."""
        if node.low >= -MODEST and node.high <= MODEST:
            return node
        return self.clamped(node, *self.pick(((-1000, 1000), (0, 9), (-1, 3))))

    def arithmetic(self, op: str, a: Node, b: Node) -> Node:
        """`a + b` and the like in a type that holds every result."""
        if op in ("min", "max"):
            a, b = self.together(a, b)
            dtype = wider(a.dtype, b.dtype)
            pick = min if op == "min" else max
            return joined(
                f"{op}({a.text}, {b.text})", dtype, pick(a.low, b.low), pick(a.high, b.high), a, b
            )
        wild = any(n.dtype == "i64" and (n.low, n.high) == LIMITS["i64"] for n in (a, b))
        if wild and wider(a.dtype, b.dtype) == "i64" and self.often(0.4):
            text = f"({a.text} {op} {b.text})"
            return joined(text, "i64", *LIMITS["i64"], a, b).tagged(
                "i64 arithmetic that may wrap around"
            )
        low, high = corners(op, a, b)
        exact = (
            wider(a.dtype, b.dtype) == "i64"
            and LIMITS["i64"][0] <= low
            and high <= LIMITS["i64"][1]
        )
        if not exact or self.often(0.5):
            a, b = self.modest(a), self.modest(b)
        elif max(-low, high) > 2**53:
            a = a.tagged("numbers past 2**53")
        a, b = self.together(a, b)
        dtype = wider(a.dtype, b.dtype)
        low, high = corners(op, a, b)
        if dtype != "int" and not (LIMITS[dtype][0] <= low and high <= LIMITS[dtype][1]):
            if a.dtype == "int":
                b = self.cast(b, "i64")
            else:
                a = self.cast(a, "i64")
            dtype = "i64"
        return joined(f"({a.text} {op} {b.text})", dtype, low, high, a, b)

    def together(self, a: Node, b: Node) -> tuple[Node, Node]:
        """Two operands of which a compile-time number fits the other's type."""
        for one, two in ((a, b), (b, a)):
            if one.dtype == "int" and two.dtype in LIMITS:
                low, high = LIMITS[two.dtype]
                if one.low < low or one.high > high:
                    wide = self.cast(two, "i32" if two.dtype == "u8" else "i64")
                    return (a, wide) if two is b else (wide, b)
        return a, b

    def integer(self, at: At) -> Node:
        """A whole number."""
        if at.depth <= 0:
            return self.leaf(at)
        again = lambda: self.integer(at.deeper())  # noqa: E731
        kind = self.weighted(
            {
                "leaf": 3,
                "+": 2.5,
                "-": 2,
                "*": 1.5,
                "//": 1.2,
                "%": 1.2,
                "min": 1,
                "max": 1,
                "clamp": 0.7,
                "neg": 0.6,
                "abs": 0.6,
                "cast": 1,
                "wrap": 0.8,
                "choice": 1.5,
                "static choice": 1,
                "guarded": 3.5,
                "reduce": 4,
                "scan": 1.8,
                "prefix": 1,
                "flag": 0.6,
            }
        )
        match kind:
            case "+" | "-" | "*" | "min" | "max":
                return self.arithmetic(kind, again(), again())
            case "//" | "%":
                return self._quotient(kind, again(), at)
            case "clamp":
                a, low, high = self.modest(again()), self.literal(), self.modest(again())
                a, high = self.together(*self.together(a, high))
                if wider(a.dtype, high.dtype) == "u8" and low.low < 0:
                    low = Node("0", "int", static=True)
                text = f"clamp({a.text}, {low.text}, {high.text})"
                ends = [min(a.low, high.low), low.low], [min(a.high, high.high), low.high]
                dtype = wider(a.dtype, high.dtype)
                return joined(text, dtype, max(ends[0]), max(ends[1]), a, low, high)
            case "neg":
                a = self.modest(again())
                a = self.cast(a, "i32") if a.dtype == "u8" else a
                return replace(a, text=f"(-{a.text})", low=-a.high, high=-a.low)
            case "abs":
                a = self.modest(again())
                if a.dtype == "int":
                    a = self.cast(a, "i64")
                ends = (abs(a.low), abs(a.high))
                return replace(a, text=f"abs({a.text})", low=0, high=max(ends))
            case "cast":
                dtype = self.pick(("i64", "i32", "u8"))
                return self.cast(again(), dtype).tagged("a cast of a number")
            case "wrap":
                return self._wrapped(again(), again())
            case "choice":
                cond = self.condition(at.deeper())
                return self.choice(cond, again(), again())
            case "static choice":
                return self.static_choice(at, self.integer)
            case "guarded":
                found = self.under_guard(at, self.integer, ("i32", "i64", "i64", "u8"))
                return found if found is not None else self.leaf(at)
            case "reduce":
                return self._reduce(at)
            case "scan":
                return self._scan(at)
            case "prefix":
                return self._prefix(at)
            case "flag":
                cond = self.condition(at.deeper())
                dtype = self.pick(("i64", "i32", "u8"))
                return Node(f"{dtype}({cond.text})", dtype, 0, 1, cond.axes, cond.tags)
        return self.leaf(at)

    def _quotient(self, op: str, a: Node, at: At) -> Node:
        kind = self.pick(("number", "number", "negative", "scalar", "static", "computed"))
        tags = {"a division"}
        match kind:
            case "number":
                n = self.pick((1, 2, 3, 4, 7))
                b = Node(str(n), "int", n, n, static=True)
            case "negative":
                a = self.modest(a)
                n = self.pick((-1, -2, -3))
                b = Node(f"({n})", "int", n, n, static=True)
                a = self.cast(a, "i64")
                tags.add("a division by a negative number")
            case "scalar":
                b = self.scalar("divisor")
            case "static":
                b = self._divisor()
            case _:
                each = self.leaf(at)
                each = self.modest(each)
                each = self.cast(each, "i64") if each.dtype in ("int", "u8") else each
                text = f"max(abs({each.text}), 1)"
                b = replace(each, text=text, low=1, high=max(abs(each.low), abs(each.high), 1))
        if a.dtype == "int" and b.dtype == "int":
            a = self.cast(a, "i64")
        a, b = self.together(a, b)
        dtype = wider(a.dtype, b.dtype)
        if op == "//":
            ends = [x // y for x in (a.low, a.high) for y in {b.low, b.high}]
            low, high = min(ends), max(ends)
        else:
            low, high = min(b.low + 1, 0), max(b.high - 1, 0)
            if b.low > 0:
                low = 0
        if (a.low, a.high) == LIMITS.get(a.dtype) and b.low < 0:
            a = self.modest(a)
        return joined(f"({a.text} {op} {b.text})", dtype, low, high, a, b).tagged(*tags)

    def _wrapped(self, a: Node, b: Node) -> Node:
        dtype = self.pick(("u8", "i32", "i64", "i32"))
        a = self.cast(a, "i64") if a.dtype == "int" else a
        a, b = self.together(a, b)
        wide = wider(a.dtype, b.dtype)
        op = self.pick(("+", "-", "*", "*"))
        node = joined(f"({a.text} {op} {b.text})", wide, 0, 0, a, b)
        if WIDTH.index(wide) < WIDTH.index(dtype):
            if a.dtype == "u8" or self.often(0.5):
                node = joined(f"({dtype}({a.text}) {op} {b.text})", dtype, 0, 0, a, b)
            else:
                dtype = wide
        low, high = LIMITS[dtype]
        return replace(
            node, text=f"wrap_{dtype}({node.text})", dtype=dtype, low=low, high=high
        ).tagged("arithmetic that wraps around")

    def choice(self, cond: Node, a: Node, b: Node) -> Node:
        """`a if cond else b`."""
        if a.dtype in FLOATS or b.dtype in FLOATS:
            a, b = self._floats_together(a, b)
            dtype = a.dtype if a.dtype in FLOATS else b.dtype
        elif a.dtype == b.dtype == "bool":
            dtype = "bool"
        else:
            a, b = self.together(a, b)
            dtype = wider(a.dtype, b.dtype)
            dtype = "i64" if dtype == "int" else dtype
        node = joined(
            f"({a.text} if {cond.text} else {b.text})",
            dtype,
            min(a.low, b.low),
            max(a.high, b.high),
            a,
            b,
            cond,
        )
        if cond.static and a.axes != b.axes:
            node = node.tagged("a compile-time choice whose branches span different indices")
        if cond.static and "given(" in cond.text and "given(" in a.text + b.text:
            node = node.tagged("nested choices on given")
        return node

    def static_choice(self, at: At, each: Callable[[At], Node]) -> Node:
        """A choice that is made at compile time."""
        text, _ = self.host_cond(static=True)
        cond = Node(f"({text})", "bool", static=True)
        a, b = each(at.deeper()), each(at.deeper())
        return self.choice(cond, a, b).tagged("a compile-time choice")

    # Reductions.

    def runs_over(self, at: At, *, free: bool = False) -> str | None:
        """An index to reduce over; or, if `free`, to scan along."""
        options = [i for i in self.index if i not in self.banned]
        if free:
            options = [i for i in options if i in at.free and i not in at.bound]
            if at.looped:
                options = [i for i in options if self.static_index(i)]
        elif at.looped:
            options = [i for i in options if self.static_index(i)] or (
                options if self.often(0.3) else []
            )
        options = [i for i in options if self.extents[i].high <= 2**17]
        return self.pick(options) if options else None

    def _reduce(self, at: At) -> Node:
        index = self.runs_over(at)
        if index is None:
            return self.leaf(at)
        running = not self.static_index(index)
        inner = at.over(index, running=running)
        kind = self.pick(("sum", "sum", "count", "min", "max", "any", "all", "first", "first"))
        tags = {f"the reduction {kind}", "over run time" if running else "over a static index"}
        if index in at.free:
            tags.add("a reduction over an index that is also free")
        if at.bound:
            tags.add("nested reductions")
        extent = self.extents[index]
        over = index
        member = []
        if extent.static and 1 <= extent.high <= 4 and self.often(0.5):
            member = self._members(index, inner)
            inner = replace(inner, extra=(*inner.extra, *member))
        if kind == "first":
            found = self.condition(inner)
            none = self.leaf(replace(at, extra=()))
            none = self.cast(self.modest(none), "i64") if none.dtype != "int" else none
            axes = (found.axes - {index}) | none.axes
            text = f"first[{index}]({found.text}, {none.text})"
            low, high = min(none.low, 0), max(none.high, extent.high)
            return Node(text, "i64", low, high, axes, found.tags | none.tags | tags)
        if kind in ("count", "any", "all"):
            each = self.condition(inner)
            text = f"{kind}[{index}]({each.text})"
            if kind == "count":
                return Node(text, "i64", 0, extent.high, each.axes - {index}, each.tags | tags)
            dtype = self.pick(("i64", "i32"))
            return Node(f"{dtype}({text})", dtype, 0, 1, each.axes - {index}, each.tags | tags)
        nested = self.runs_over(inner) is not None and inner.depth >= 0 and self.often(0.2)
        each = (
            self._reduce(replace(inner, depth=max(inner.depth, 1)))
            if nested
            else self.integer(inner)
        )
        if member and self.often(0.7):
            each = self.mixed(inner, self.leaf, member[0])
        if kind == "sum":
            each = self.modest(each)
            others = [
                i
                for i in self.index
                if i != index
                and i not in self.banned
                and self.static_index(i)
                and i not in at.bound
            ]
            if others and self.often(0.15):
                other = self.pick(others)
                over = f"{index}, {other}"
                tags.add("a reduction over two indices")
                extent = replace(extent, high=extent.high * max(self.extents[other].high, 1))
                each = replace(each, axes=each.axes - {other})
            low, high = min(each.low, 0) * extent.high, max(each.high, 0) * extent.high
            node = Node(f"sum[{over}]({each.text})", "i64", low, high, each.axes - {index})
            node = self.clamped(node, -999, 999) if max(-low, high) > 2**40 else node
        else:
            each = self.cast(each, "i64") if each.dtype == "int" else each
            low, high = LIMITS[each.dtype]
            node = Node(f"{kind}[{index}]({each.text})", each.dtype, low, high, each.axes - {index})
            if self.often(0.5):
                node = self.clamped(node, -999, 999)
        return node.tagged(*tags, *each.tags)

    def _members(self, index: str, at: At) -> list[Node]:
        """Elements of a list that a reduction's index chooses from."""
        if self.extents[index].low < 1:
            return []
        axes = [i for i in self.some(at.indices)[:2] if i != index]
        dtype = self.pick(("i64", "i32"))
        text, low, high = self._range(dtype)
        more = {"values": text} if text else {}
        dims = [self.extents[i].text for i in axes] or ["1"]
        name = self.tensor("list", dtype, dims, list=tidy(self.extents[index].text), **more)
        node = Node(
            f"{name}[{index}][{', '.join(axes) or '0'}]",
            dtype,
            low,
            high,
            frozenset((index, *axes)),
        )
        return [node.tagged("a list chosen by a reduction's index")]

    def _scan(self, at: At) -> Node:
        index = self.runs_over(at, free=True)
        if index is None:
            return self.leaf(at)
        kind = self.pick(("cumsum", "cumsum", "cumprod"))
        inner = At(at.free, at.bound, (), min(at.depth - 1, 1), at.looped)
        inner = replace(inner, looped=inner.looped or not self.static_index(index))
        each = self.clamped(self.integer(inner), -2, 2)
        if each.dtype == "u8":
            each = self.cast(each, "i32")
        node = Node(
            f"{kind}[{index}]({each.text})",
            "i64",
            *LIMITS["i64"],
            each.axes | {index},
            each.tags | {f"the scan {kind}"},
        )
        tag = (
            "a scan over run time" if not self.static_index(index) else "a scan over a static index"
        )
        return self.clamped(node, -99, 99).tagged(tag)

    def _prefix(self, at: At) -> Node:
        options = [
            i for i in at.free - at.bound if i not in self.banned and self.extents[i].high <= 2**17
        ]
        if not options or at.bound or at.looped:
            return self.leaf(at)
        index = self.pick(sorted(options))
        each = self.clamped(self.integer(replace(at, extra=(), depth=1, looped=True)), -99, 99)
        if each.dtype in ("u8", "int"):
            each = self.cast(each, "i64")
        high = 99 * self.extents[index].high
        low = -high if each.low < 0 else 0
        node = Node(
            f"prefix[{index}]({each.text})", "i64", low, high, each.axes | {index}, each.tags
        )
        return node.tagged("prefix")

    # Conditions.

    def condition(self, at: At) -> Node:
        """A condition."""
        kinds = {
            "compare": 4,
            "floats": 0.7,
            "flag": 1.5,
            "chain": 0.6,
            "host": 0.8,
            "live": 0.8 if at.indices else 0,
            "let": 3
            if any(n.dtype == "bool" and n.axes <= at.free for n in self.known_lets)
            else 0,
            "extra": 4 if any(n.dtype == "bool" for n in at.extra) else 0,
        }
        if at.depth > 0:
            kinds |= {
                "and": 1.2,
                "or": 1,
                "not": 0.8,
                "same": 0.4,
                "guarded": 1,
                "any": 0.8,
                "choice": 0.5,
            }
        match self.weighted(kinds):
            case "flag":
                return self.load(at, ("bool",))
            case "floats":
                a, b = self._floats_together(self.floating(at.deeper()), self.floating(at.deeper()))
                return joined(f"({a.text} {self.pick(COMPARE)} {b.text})", "bool", 0, 1, a, b)
            case "chain":
                a, b, c = (self.leaf(at) for _ in range(3))
                a, b = self.together(a, b)
                b, c = self.together(b, c)
                a, b = self.together(a, b)
                return joined(f"({a.text} <= {b.text} < {c.text})", "bool", 0, 1, a, b, c)
            case "host":
                text, _ = self.host_cond()
                return Node(f"({text})", "bool", 0, 1)
            case "live":
                index, live = self.pick(sorted(at.indices)), self.scalar("live")
                node = Node(f"({index} < {live.text})", "bool", 0, 1, frozenset((index,)))
                return node.tagged("rows below a scalar")
            case "let":
                return self.pick(
                    [n for n in self.known_lets if n.dtype == "bool" and n.axes <= at.free]
                )
            case "extra":
                return self.pick([n for n in at.extra if n.dtype == "bool"])
            case "and":
                return self._both("and", self.condition(at.deeper()), self.condition(at.deeper()))
            case "or":
                return self._both("or", self.condition(at.deeper()), self.condition(at.deeper()))
            case "not":
                a = self.condition(at.deeper())
                return replace(a, text=f"(not {a.text})")
            case "same":
                a, b = self.condition(at.deeper()), self.condition(at.deeper())
                return joined(f"({a.text} {self.pick(('==', '!='))} {b.text})", "bool", 0, 1, a, b)
            case "guarded":
                found = self.under_guard(at, self.condition, ("bool",))
                return found if found is not None else self.load(at, ("bool",))
            case "choice":
                cond = self.condition(at.deeper())
                return self.choice(cond, self.condition(at.deeper()), self.condition(at.deeper()))
            case "any":
                index = self.runs_over(at)
                if index is None:
                    return self.load(at, ("bool",))
                each = self.condition(at.over(index, running=not self.static_index(index)))
                kind = self.pick(("any", "all"))
                node = Node(
                    f"{kind}[{index}]({each.text})", "bool", 0, 1, each.axes - {index}, each.tags
                )
                return node.tagged(f"the reduction {kind}")
        a = self.integer(at.deeper()) if at.depth > 0 else self.leaf(at)
        b = self.leaf(at)
        a, b = self.together(a, b)
        return joined(f"({a.text} {self.pick(COMPARE)} {b.text})", "bool", 0, 1, a, b)

    def _both(self, op: str, a: Node, b: Node) -> Node:
        return joined(f"({a.text} {op} {b.text})", "bool", 0, 1, a, b)

    # Floats.

    def floating(self, at: At, dtype: str = "") -> Node:
        """A float; of a type, if one is asked for."""
        dtype = dtype or self.pick(("f32", "f32", "bf16", "f16"))
        if at.depth <= 0:
            return self.float_leaf(at, dtype)
        again = lambda: self.floating(at.deeper(), dtype)  # noqa: E731
        kind = self.weighted(
            {
                "float leaf": 3,
                "f+": 1.5,
                "f-": 1,
                "f*": 1.5,
                "f/": 1,
                "fmin": 0.7,
                "fmax": 0.7,
                "fneg": 0.5,
                "fabs": 0.4,
                "sqrt": 0.7,
                "exp": 0.3,
                "fclamp": 0.4,
                "fcast": 1.2,
                "fchoice": 1,
                "fstatic": 0.7,
                "fguarded": 2.5,
                "fsum": 3 if dtype == "f32" else 0,
                "of integers": 0.6 if dtype == "f32" else 0,
            }
        )
        match kind:
            case "f+" | "f-" | "f*" | "f/" | "fmin" | "fmax":
                return self._float_op(kind[1:], again(), again())
            case "fneg":
                a = again()
                return replace(a, text=f"(-{a.text})")
            case "fabs" | "sqrt" | "exp":
                a = self._typed_float(again(), dtype)
                inner = f"abs({a.text})" if kind == "sqrt" and self.often(0.6) else a.text
                return replace(a, text=f"{kind.removeprefix('f')}({inner})").tagged(f"float {kind}")
            case "fclamp":
                a = self._typed_float(again(), dtype)
                return replace(a, text=f"clamp({a.text}, -1.5, 2.0)")
            case "fcast":
                inner = self.pick((self.floating, self.integer, self.condition))(at.deeper())
                node = Node(f"{dtype}({inner.text})", dtype, 0, 0, inner.axes, inner.tags)
                return node.tagged(f"a cast to {dtype}")
            case "fchoice":
                return self.choice(self.condition(at.deeper()), again(), again())
            case "fstatic":
                return self.static_choice(at, lambda inner: self.floating(inner, dtype))
            case "fguarded":
                found = self.under_guard(at, lambda inner: self.floating(inner, dtype), (dtype,))
                return found if found is not None else self.float_leaf(at, dtype)
            case "fsum":
                return self._float_sum(at)
            case "of integers":
                a, b = self.modest(self.integer(at.deeper())), self.modest(self.leaf(at))
                a, b = self.cast(a, "i32"), self.cast(b, "i32")
                return joined(f"({a.text} / {b.text})", "f32", 0, 0, a, b).tagged(
                    "a quotient of integers"
                )
        return self.float_leaf(at, dtype)

    def float_leaf(self, at: At, dtype: str) -> Node:
        """A float without operators."""
        kinds = {
            "float load": 5,
            "float literal": 1,
            "float scalar": 1 if dtype == "f32" else 0,
            "float extra": 6 if any(n.dtype == dtype for n in at.extra) else 0,
            "float let": 3
            if any(n.dtype == dtype and n.axes <= at.free for n in self.known_lets)
            else 0,
            "float state": 3 if self._states(at, (dtype,)) else 0,
        }
        match self.weighted(kinds):
            case "float literal":
                number = self.pick(("0.1", "1.7", "0.5", "2.0", "3", "-0.25"))
                return Node(f"{dtype}({number})", dtype).tagged("a cast of a literal")
            case "float scalar":
                return self.scalar("f32")
            case "float extra":
                return self.pick([n for n in at.extra if n.dtype == dtype])
            case "float let":
                return self.pick(
                    [n for n in self.known_lets if n.dtype == dtype and n.axes <= at.free]
                )
            case "float state":
                return self.pick(self._states(at, (dtype,)))
        return self.load(at, (dtype,))

    def _typed_float(self, node: Node, dtype: str) -> Node:
        return (
            node
            if node.dtype == dtype
            else replace(node, text=f"{dtype}({node.text})", dtype=dtype)
        )

    def _floats_together(self, a: Node, b: Node) -> tuple[Node, Node]:
        """Two operands of one float type."""
        dtypes = {n.dtype for n in (a, b) if n.dtype in FLOATS}
        dtype = dtypes.pop() if len(dtypes) == 1 else "f32"
        return self._typed_float(a, dtype), self._typed_float(b, dtype)

    def _float_op(self, op: str, a: Node, b: Node) -> Node:
        a, b = self._floats_together(a, b)
        if self.often(0.1) and a.dtype == "f32":
            b = Node(self.pick(("2", "0.1", "0.5")), "f32")
        text = f"{op}({a.text}, {b.text})" if op in ("min", "max") else f"({a.text} {op} {b.text})"
        return joined(text, a.dtype, 0, 0, a, b).tagged(f"{a.dtype} {op}")

    def _float_sum(self, at: At) -> Node:
        options = [
            i
            for i in self.index
            if self.static_index(i) and i not in self.banned and self.extents[i].high <= 16
        ]
        if not options:
            return self.float_leaf(at, "f32")
        index = self.pick(options)
        each = self._typed_float(self.floating(at.over(index, running=False)), "f32")
        node = Node(f"sum[{index}]({each.text})", "f32", 0, 0, each.axes - {index}, each.tags)
        return node.tagged("a float sum")

    # Lets.

    def add_lets(self) -> None:
        """A few lets and masks, each perhaps made of those before it."""
        for _ in range(self.pick((0, 0, 1, 1, 2, 2, 3, 4))):
            free = frozenset(self.some(frozenset(self.index)))
            at = At(free, depth=self.pick((1, 1, 2)))
            kind = self.pick(("integer", "integer", "condition", "floating", "unsafe", "unsafe"))
            name = self.name("let")
            before = frozenset(node.text for node in self.known_lets)
            if kind == "unsafe":
                found = self.guarded(At(free, depth=0), ("i32", "i64", "f32", "bool"))
                if found is None or "given(" in found.cond.text or found.leaf.text.isidentifier():
                    self.taken.discard(name)
                    continue
                self.lets[name] = tidy(found.leaf.text)
                leaf = replace(found.leaf, text=name)
                self.unsafe_lets.append(Guarded(found.cond, leaf))
                continue
            node = getattr(self, kind)(at)
            table = self.masks if node.dtype == "bool" and self.often(0.7) else self.lets
            table[name] = tidy(node.text)
            tags = node.tags
            tags |= {"chained lets"} if words(node.text) & before else frozenset()
            self.tags[name] |= tags | {"a mask" if table is self.masks else "a let"}
            dtype = "i64" if node.dtype == "int" else node.dtype
            made = Node(name, dtype, node.low, node.high, node.axes, frozenset())
            self.known_lets.append(made)
