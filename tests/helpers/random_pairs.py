"""Random pairs of specs that share tensors, as texts: the second group reads what the first one stores.

Each of the two is sound, so that kgen has no reason to refuse it; whether the two can be fused is another
question. Reads are guarded or clamped, numbers stay small.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import traceback
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import fused

from kgen.diagnostics import Report
from kgen.lang.fuse import fuse

EXTENTS = {"r": "R", "c": "C", "k": "K"}
SIZES = {"R": "0 .. M", "C": "0 .. 9", "M": "1 .. 12", "K": "static 1 .. 4"}
SCALARS = {
    "s": "{type: i32, values: -9 .. 9}",
    "off": "{type: i32, values: 0 .. 2}",
    "d": "{type: i32, values: 1 .. 7}",
}
# What neither group need store to: name -> (element type, indices, the rest of its declaration).
INPUTS = {
    "row": ("i32", "r", "values: -9 .. 9"),
    "cell": ("i64", "r c", "values: -9 .. 9"),
    "lane": ("i32", "r k", "values: -9 .. 9"),
    "col": ("i64", "c", "values: -9 .. 9"),
    "flag": ("bool", "r", ""),
    "byte": ("u8", "r", ""),
    "half": ("bf16", "r k", ""),
    "wide": ("f32", "r k", ""),
    "at": ("i64", "r", "values: 0 .. M - 1"),
    "own": ("i64", "r", "values: 0 .. M - 1, distinct: true"),
}
INTEGERS = ("u8", "i32", "i64")


@dataclass(frozen=True)
class Middle:
    """A tensor that the first group stores to: its dimensions and each place, with the indices in it."""

    dims: tuple[str, ...]
    places: tuple[tuple[str, str], ...]
    filled: bool
    tail: str = ""  # what the store says beside its value


MIDDLES = [
    Middle(("R",), (("r", "r"),), True),
    Middle(("R", "K"), (("r, k", "r k"),), True),
    Middle(("R", "C"), (("r, c", "r c"),), True),
    Middle(("C", "R"), (("c, r", "r c"),), True),
    Middle(("R + 1",), (("r", "r"), ("R", "")), True),
    Middle(("R + 1",), (("0", ""), ("r + 1", "r")), True),
    Middle(("R * K",), (("r * K + k", "r k"),), True),
    Middle(("R",), (("R - 1 - r", "r"),), False),
    Middle(("R + 2",), (("r + off", "r"),), False),
    Middle(("2 * R + 2",), (("2 * r + 1", "r"),), False),
    Middle(("R", "K"), (("r, 0", "r"),), False),
    Middle(("M",), (("own[r]", "r"),), False),
    Middle(("M", "K"), (("own[r], k", "r k"),), False),
    Middle(("M", "K"), (("at[r], k", "r k"),), False, "collide: last r"),
    Middle(("R",), (("r", "r"),), False),
    Middle(("R", "K"), (("r, k", "r k"),), False),
]


@dataclass
class Drawer:
    """Draws one group; `shared` are the tensors of the first that the second reads."""

    dice: random.Random
    shared: dict[str, tuple[str, Middle]] = field(default_factory=dict)
    lets: dict[str, tuple[str, str]] = field(default_factory=dict)
    reads: int = 0

    def pick(self, options):
        return self.dice.choice(list(options))

    def chance(self, one_in: int) -> bool:
        return self.dice.randint(1, one_in) == 1

    # Numbers, all of them i64 and small.

    def number(self, depth: int, free: frozenset[str]) -> str:
        """A small integer that varies with some of `free`."""
        if self.shared and self.chance(3):
            return self.read(depth, free)
        if depth == 0:
            options = [f"{self.dice.randint(-5, 5)}", "i64(s)", "i64(off)", *sorted(free)]
            for name, (dtype, axes, _) in INPUTS.items():
                if set(axes.split()) <= free and dtype in INTEGERS:
                    options.append(f"i64({name}[{', '.join(axes.split())}])")
            known = [n for n, (_, axes) in self.lets.items() if set(axes.split()) <= free]
            return self.pick([*options, *known, *known])
        again = lambda: self.number(depth - 1, free)  # noqa: E731
        kind = self.pick("add mul floordiv mod min select reduce first scan prefix".split())
        match kind:
            case "add":
                return f"({again()} {self.pick('+-')} {again()})"
            case "mul":
                return f"(clamp({again()}, -9, 9) * clamp({again()}, -9, 9))"
            case "floordiv" | "mod":
                return f"({again()} {'//' if kind == 'floordiv' else '%'} {self.pick(('d', '3'))})"
            case "min":
                return f"{self.pick(('min', 'max'))}({again()}, {again()})"
            case "select":
                return f"({again()} if {self.condition(depth - 1, free)} else {again()})"
            case "reduce":
                index = self.pick("rkc")
                inner = self.number(depth - 1, free | {index})
                return f"clamp({self.pick(('sum', 'min', 'max'))}[{index}]({inner}), -99, 99)"
            case "first":
                index = self.pick("rk")
                return f"first[{index}]({self.condition(depth - 1, free | {index})}, {again()})"
            case "scan" if "k" in free:
                return f"cumsum[k](clamp({again()}, -9, 9))"
            case "prefix" if "r" in free:
                return f"clamp(prefix[r](clamp({again()}, -9, 9)), -99, 99)"
        return again()

    def condition(self, depth: int, free: frozenset[str]) -> str:
        options = ["compare"] * 3 + (["flag[r]"] if "r" in free else [])
        options += [
            self.element(name, self.place(max(depth, 0), free, middle))
            for name, (dtype, middle) in self.shared.items()
            if dtype == "bool" and self.chance(2)
        ]
        kind = self.pick(options)
        if kind == "compare":
            sides = [self.number(max(depth - 1, 0), free) for _ in range(2)]
            # Never of numbers only, which would be known when the kernel is compiled.
            return f"({sides[0]} + i64(s) {self.pick(('<', '<=', '==', '!='))} {sides[1]})"
        return kind if kind == "flag[r]" else f"({kind})"

    # Reads of what the first group stores.

    def read(self, depth: int, free: frozenset[str]) -> str:
        """A small integer made of an element that the first group may have stored."""
        name = self.pick(self.shared)
        dtype, middle = self.shared[name]
        place = self.place(depth, free, middle)
        element = self.element(name, place)
        self.reads += 1
        if dtype == "bool":
            return f"i64({element})"
        if dtype in INTEGERS:
            return f"clamp(i64({element}), -99, 99)"
        return f"i64({element} < {self.pick(('0.5', '-1.0'))})"

    def place(self, depth: int, free: frozenset[str], middle: Middle) -> list[tuple[str, bool]]:
        """An index for each dimension, and whether it is inside by itself."""
        found = []
        for dim in middle.dims:
            own = [i for i in sorted(free) if EXTENTS[i] == dim]
            kind = self.pick(["own"] * 4 + ["shift", "any", "number", "select", "element"])
            if kind == "own" and own:
                found.append((self.pick(own), True))
            elif kind == "shift" and free:
                found.append(
                    (f"{self.pick(sorted(free))} {self.pick(('- 1', '+ 1', '+ off'))}", False)
                )
            elif kind == "element" and "r" in free:
                found.append((self.pick(("own[r]", "at[r]")), dim == "M"))
            elif kind == "select" and own:
                found.append((f"{own[0]} if {self.condition(0, free)} else {dim} - 1", False))
            elif kind == "any":
                found.append((f"{self.number(max(depth - 1, 0), free)} + off", False))
            elif dim == "R * K" and {"r", "k"} <= free:
                found.append(("r * K + k", True))
            elif dim == "K":
                found.append(("0", True))
            else:
                found.append((self.pick(("0", f"{dim} - 1", "R", "1")), False))
        return found

    def element(self, name: str, place: list[tuple[str, bool]]) -> str:
        """A read of a place; guarded, but for what is inside anyway."""
        dtype, middle = self.shared[name]
        texts = [text for text, _ in place]
        load = f"{name}[{', '.join(texts)}]"
        unsafe = [(t, d) for (t, safe), d in zip(place, middle.dims, strict=True) if not safe]
        if not unsafe:
            return load
        inside = " and ".join(f"0 <= ({text}) and ({text}) < {dim}" for text, dim in unsafe)
        other = {"bool": "s > 0", "u8": "u8(7)", "i32": "i32(7)", "i64": "i64(7)"}.get(dtype)
        return f"({load} if {inside} else {other or f'{dtype}(0.25)'})"

    # Values of a type.

    def value(self, dtype: str, free: frozenset[str]) -> str:
        """What is stored to a tensor of a type."""
        same = [name for name, (known, _) in self.shared.items() if known == dtype]
        if same and self.chance(2):  # moved as it is
            name = self.pick(same)
            return self.element(name, self.place(1, free, self.shared[name][1]))
        if dtype == "bool":
            return self.condition(1, free)
        if self.chance(8):  # a number that is written out
            return f"{dtype}({'7' if dtype in INTEGERS else '0.1'})"
        number = self.number(2, free)
        if dtype == "u8":
            return self.pick((f"wrap_u8(i64({number}))", f"u8(clamp({number}, 0, 200))"))
        if dtype == "i32":
            return self.pick(
                (f"wrap_i32(i64({number}) * 99991 * 99991)", f"i32(clamp({number}, -99, 99))")
            )
        if dtype == "i64":
            return number
        return f"{dtype}({self.floating(free)})"

    def floating(self, free: frozenset[str]) -> str:
        """An f32."""
        parts = [f"f32({self.number(1, free)})", "f32(s) * 0.1", "1.5"]
        parts += ["f32(half[r, k])", "wide[r, k]"] if {"r", "k"} <= free else []
        parts += ["sum[k](wide[r, k] * f32(half[r, k]))"] * 2 if "r" in free else []
        for name, (dtype, middle) in self.shared.items():
            if dtype in ("bf16", "f32", "f16"):
                parts += [f"f32({self.element(name, self.place(1, free, middle))})"] * 2
                if "r" in free and middle.dims == ("R", "K"):
                    parts.append(f"sum[k](f32({name}[r, k]))")
        one, two = self.pick(parts), self.pick(parts)
        return f"(({one}) {self.pick('+-*')} ({two}))"


def draw(seed: int) -> tuple[str, str]:
    """The texts of two specs."""
    drawer = Drawer(random.Random(seed))
    draw_lets(drawer)
    shared: dict[str, tuple[str, Middle]] = {}
    tensors: dict[str, str] = {}
    stores: list[str] = []
    for number in range(drawer.dice.randint(1, 2)):
        name, middle = f"mid_{number}", drawer.pick([*MIDDLES, *MIDDLES[:7], *MIDDLES[:7]])
        dtype = drawer.pick(("i64", "i64", "i32", "u8", "bool", "bf16", "f32"))
        when = drawer.chance(5)
        filled = middle.filled and not when
        for place, axes in middle.places:
            free = frozenset(axes.split())
            old = f"{name}[{place}]"
            value = drawer.value(dtype, free)
            if not filled and dtype == "i64" and drawer.chance(3) and "own" not in place:
                value = f"clamp({old}, -9, 9) + {value}"
            parts = [f"value: {quoted(value)}"]
            parts += [f"when: {quoted(drawer.condition(1, free))}"] if when else []
            parts += [middle.tail] if middle.tail else []
            stores.append(f"{quoted(old)}: {{{', '.join(parts)}}}")
        rest = ["mode: out" if filled else "mode: inout"]
        tensors[name] = f'{{type: "{dtype}[{", ".join(middle.dims)}]", {", ".join(rest)}}}'
        shared[name] = (dtype, middle)
    first = spec("one", drawer, tensors, stores)
    second = second_spec(Drawer(drawer.dice, shared), tensors)
    # The same things under other names, and other things under the same.
    for names, often in (({"R": "Q"}, 20), ({"r": "c", "c": "r"}, 4), ({"r": "i", "k": "r"}, 4)):
        if drawer.chance(often):
            second = renamed(second, names)
    return launched(drawer, first), launched(drawer, second)


def renamed(text: str, names: dict[str, str]) -> str:
    """A spec with other names."""
    return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), text)


def launched(drawer: Drawer, text: str) -> str:
    """A spec that may be launched under a condition."""
    size = next((size for size in "RQM" if uses(text, size)), "")
    options = [f"{size} > 0", f"{size} > 2", f"{size} > 1 and {size} < 9"] if size else []
    options += ["s > 0"] if uses(text, "s") else []
    return f"{text}when: {drawer.pick(options)}\n" if options and drawer.chance(4) else text


def second_spec(drawer: Drawer, middles: dict[str, str]) -> str:
    """The text of the second group."""
    tensors, stores = {}, []
    stored = drawer.pick(drawer.shared) if drawer.chance(6) else ""
    if stored:  # both store to one tensor, which the second reads there at most
        dtype, middle = drawer.shared.pop(stored)
        zeros = ", ".join("0" for _ in middle.dims)
        some = " and ".join(f"{dim} > 0" for dim in middle.dims)
        ways = [(middle.places[:1], ""), (middle.places, "")]
        ways += [(((zeros, ""),), some)]
        places, least = drawer.pick(ways)
        for place, axes in places:
            free = frozenset(axes.split())
            value, old = drawer.value(dtype, free), f"{stored}[{place}]"
            if axes and drawer.chance(2) and dtype == "i64":
                value = f"clamp({old}, -9, 9) + {value}"
            asked = [drawer.condition(0, free)] if drawer.chance(2) else []
            when = " and ".join([*([least] if least else []), *asked])
            parts = [f"value: {quoted(value)}", *([f"when: {quoted(when)}"] if when else [])]
            parts += [middle.tail] if middle.tail and "at[r]" in place else []
            stores.append(f"{quoted(old)}: {{{', '.join(parts)}}}")
    elif drawer.chance(4):  # what the first group may read
        tensors["row"] = '{type: "i32[R]", values: -9 .. 9, mode: inout}'
        value = f"i32(clamp({drawer.number(1, frozenset('r'))}, -9, 9))"
        stores.append(f'"row[r]": {quoted(value)}')
    draw_lets(drawer)
    for number in range(drawer.dice.randint(1, 2)):
        axes = drawer.pick(("r", "r", "r k", "r c", "c", "k", ""))
        free = frozenset(axes.split())
        name = f"out_{number}"
        dtype = drawer.pick(("i64", "i64", "i32", "u8", "bool", "bf16", "f32"))
        value = drawer.value(dtype, free)
        when = drawer.condition(1, free) if drawer.chance(4) else ""
        dims = ", ".join(EXTENTS[index] for index in axes.split()) or "1"
        tensors[name] = f'{{type: "{dtype}[{dims}]", mode: {"inout" if when else "out"}}}'
        tail = f", when: {quoted(when)}" if when else ""
        place = ", ".join(axes.split()) or "0"
        stores.append(f'"{name}[{place}]": {{value: {quoted(value)}{tail}}}')
    used = "\n".join([*stores, *used_lets(drawer, stores).values()])
    for name, declared in middles.items():
        if uses(used, name):
            mode = "inout" if name == stored else "in"
            tensors[name] = re.sub(r"mode: \w+", f"mode: {mode}", declared)
    return spec("two", drawer, tensors, stores)


def used_lets(drawer: Drawer, stores: list[str]) -> dict[str, str]:
    """The lets that stores use, with their texts."""
    used, lets = "\n".join(stores), {}
    for name, (text, _) in reversed(drawer.lets.items()):
        if uses(used, name):
            lets[name] = text
            used += f"\n{text}"
    return lets


def draw_lets(drawer: Drawer) -> None:
    """Lets of the same names in both groups, so that they clash."""
    for number in range(drawer.dice.randint(0, 2)):
        axes = drawer.pick(("r", "r k", "r c", "c"))
        drawer.lets[f"let_{number}"] = (drawer.number(1, frozenset(axes.split())), axes)


def spec(group: str, drawer: Drawer, stored: dict[str, str], stores: list[str]) -> str:
    """A spec's text: these stores, and of all else what they use."""
    lets, stores = used_lets(drawer, stores), [*stores]
    used = "\n".join([*stores, *lets.values()])
    tensors = dict(stored)
    for name, (dtype, axes, rest) in INPUTS.items():
        if uses(used, name) and name not in tensors:
            dims = ", ".join(EXTENTS[index] for index in axes.split())
            tensors[name] = f'{{type: "{dtype}[{dims}]"{", " + rest if rest else ""}}}'
    indices = {index: extent for index, extent in EXTENTS.items() if uses(used, index)}
    text = "\n".join([used, *tensors.values(), *indices.values()])
    scalars = {name: declared for name, declared in SCALARS.items() if uses(text, name)}
    sizes = {name for name in SIZES if uses(text, name)}
    sizes |= {"M"} if "R" in sizes else set()
    for size in sorted(sizes):  # a size is read off a tensor's shape
        tensors[f"of_{size}_{group}"] = f'{{type: "bool[{size}]", mode: inout}}'
        stores.append(f'"of_{size}_{group}[0]": {{value: "{size} > 3", when: "{size} > 0"}}')
    lines = [f"group: {group}", "summary: One of two."]
    tables = {
        "sizes": {n: SIZES[n] for n in SIZES if n in sizes},
        "scalars": scalars,
        "tensors": tensors,
        "index": indices,
        "let": {name: quoted(text) for name, text in lets.items()},
    }
    for key, table in tables.items():
        lines += (
            [f"{key}:", *(f"  {name}: {each}" for name, each in table.items())] if table else []
        )
    return "\n".join([*lines, "store:", *(f"  {store}" for store in stores)]) + "\n"


def uses(text: str, name: str) -> bool:
    """Whether a text has a name."""
    return re.search(rf"\b{name}\b", text) is not None


def quoted(text: str) -> str:
    """A text that YAML takes as it is."""
    return f'"{text}"'


# What becomes of a pair.

WORLDS = 3
# What the two as one may be refused for by later phases, which see one kernel where there were two.
LATER = {"race", "scan-in-loop", "out-of-bounds", "overflow", "collision", "negative-extent"}


def outcome(seed: int, worlds: int, readings: Collection[str]) -> str:
    """Fuse the pair of a seed and compare; gives what became of it."""
    report = Report()
    parts = fused.typed(report, *draw(seed))
    plans = [fused.made(part, report) for part in parts]
    assert {each.code for each in report.diagnostics} <= {"race", "scan-in-loop"}, report.render()
    if report.diagnostics:
        return "a part is refused"
    whole = fuse(*parts, report, name="whole")
    plan = fused.made(whole, report) if whole is not None else None
    codes = {each.code for each in report.diagnostics}
    if whole is None:
        assert codes == {"cannot-fuse"}
        return re.sub(r"`[^`]*`", "..", report.diagnostics[0].message)
    assert codes <= LATER, report.render()
    if plan is None:
        return f"later: {min(codes)}"
    with fused.readings(plan, plans) as both:
        for world in range(worlds):
            found, _ = both.differences(7 * seed + world, readings)
            assert not found, "\n".join(found)
    return "fused"


def main() -> None:
    """Pairs from the command line: what became of them, and each that went wrong."""
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description="Random pairs of specs, fused and one by one.")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worlds", type=int, default=WORLDS)
    parser.add_argument("--readings", nargs="*", default=["form", "kernel", "reference"])
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    outcomes: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.pairs):
        try:
            found = outcome(seed, given.worlds, given.readings)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            found = f"WRONG: {type(error).__name__}"
            print(f"seed {seed}: {error!r}"[:1500])
            if given.show:
                print(*draw(seed), traceback.format_exc(), sep="\n")
        outcomes[found] += 1
    for found, count in outcomes.most_common():
        print(f"{count:6} {found}")


if __name__ == "__main__":
    main()
