"""Random specs that read anywhere: guards, lists and optional tensors around indices out of range.

No prover would pass them. A reference must raise where `spec_oracle`, which reads point by point, meets
an index outside its tensor or a divisor of 0, and nowhere else.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

import torch

SIZES = {"R": "0 .. 9", "C": "0 .. 9", "N": "0 .. 9", "K": "static 0 .. 3", "L": "static 1 .. 3"}
EXTENTS = {"r": "R", "c": "C", "k": "K", "l": "L"}
PLACES = {"at": "i64 r", "bt": "i32 r", "ct": "i64 c", "kt": "i32 k", "rk": "i64 r k", "ut": "u8 r"}
FLAGS = {"f": "r", "g": "c", "h": "k", "rkf": "r k", "rcf": "r c"}
TABLES = {"x": "i64[N]", "z": "i32[N]", "u": "u8[N]", "w": "i64[R, N]"}
TYPES = {"i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}


@dataclass
class Wild:
    """A random spec; `text` for kgen, `plain` for the oracle, which has neither lists nor optional tensors."""

    chance: random.Random
    lets: dict[str, tuple[str, set[str]]] = field(default_factory=dict)
    outs: dict[str, str] = field(default_factory=dict)
    stores: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        depth = self.chance.choice((1, 2, 2, 3))
        for number in range(self.chance.randrange(5)):
            free = set(self.pick("", "r", "c", "k", "r k", "r c", "l").split())
            kind = self.number if self.chance.random() < 0.7 else self.condition
            name = f"{'n' if kind == self.number else 'm'}{number}"
            self.lets[name] = (kind(depth, free), free)
        for number in range(self.chance.randrange(1, 4)):
            axes = self.pick("", "r", "k", "c", "r k", "r c", "l r", "r c k").split()
            place = list(axes) or ["0"]
            place[0] += " + off" if axes and self.chance.random() < 0.25 else ""
            dims = ", ".join(EXTENTS[index] for index in axes) or "1"
            self.outs[f"y{number}"] = f"i64[{dims}]"
            value = f'value: "i64({self.number(depth, set(axes))})"'
            if self.chance.random() < 0.5:
                value += f', when: "{self.condition(depth, set(axes))}"'
            self.stores.append(f"  y{number}[{', '.join(place)}]: {{{value}}}")

    def pick(self, *options: str) -> str:
        return self.chance.choice(options)

    def leaf(self, free: set[str]) -> str:
        options = ["s", "0", "1", "-1", "2", "m", "K", "N", "R", *sorted(free) * 3]
        for name, kind in PLACES.items():
            axes = kind.split()[1:]
            options += [f"{name}[{', '.join(axes)}]"] * 3 if set(axes) <= free else []
        return self.pick(*options)

    def number(self, depth: int, free: set[str], *, tame: bool = False) -> str:
        """A number; a `tame` one has a value everywhere."""
        if depth <= 0:
            return self.leaf(free)
        again = lambda: self.number(depth - 1, free, tame=tame)  # noqa: E731
        kinds = ["leaf", "let", "+", "-", "*", "min", "max", "choice", "choice", "cast", "reduce"]
        wild = ["gather", "gather", "divide", "optional", "list", "scan", "first", "let"]
        match self.pick(*kinds, *([] if tame else wild)):
            case "let":
                known = [n for n, (_, axes) in self.lets.items() if axes <= free and n[0] == "n"]
                return self.pick(*known) if known and not tame else again()
            case "+" | "-" | "*" as symbol:
                return f"({again()} {symbol} {again()})"
            case "min" | "max" as name:
                return f"{name}({again()}, {again()})"
            case "choice":
                return f"({again()} if {self.condition(depth - 1, free, tame=tame)} else {again()})"
            case "cast":
                return f"{self.pick('i64', 'wrap_i32', 'wrap_u8')}(i64({again()}))"
            case "gather":
                table, index = self.pick("x", "z", "u", "w"), again()
                load = (
                    f"{table}[{self.leaf(free)}, {index}]" if table == "w" else f"{table}[{index}]"
                )
                return self.pick(load, f"({load} if 0 <= {index} and {index} < N else {again()})")
            case "divide":
                divisor = self.pick("3", "s", "-2", again(), self.leaf(free)).replace("K", "s")
                return f"({again()} {self.pick('//', '%')} {divisor})"
            case "optional":
                one, two = f"b[{again()}]", f"x[b[{again()}]]"
                both = f"({one} * {two} if {self.condition(depth - 1, free)} else {again()})"
                return f"({self.pick(one, two, both)} if given(b) else {again()})"
            case "list":
                return f"a[{self.pick('0', 'l' if 'l' in free else '1', again())}][{again()}]"
            case "reduce":
                index, kind = self.pick(*EXTENTS), self.pick("sum", "min", "max", "count", "any")
                if kind in ("count", "any"):
                    found = self.condition(depth - 1, free | {index}, tame=tame)
                    return f"i64({kind}[{index}]({found}))"
                return f"{kind}[{index}](i64({self.number(depth - 1, free | {index}, tame=tame)}))"
            case "scan" if free:
                index = self.pick(*sorted(free))
                return f"cumsum[{index}](i64({self.number(depth - 1, free, tame=True)}))"
            case "first":
                index = self.pick(*EXTENTS)
                found = self.condition(depth - 1, free | {index}, tame=True)
                return f"first[{index}]({found}, i64({self.leaf(free - {index})}))"
        return self.leaf(free)

    def condition(self, depth: int, free: set[str], *, tame: bool = False) -> str:
        options = ["compare"] * 4 + ["(K > 1)", "(s > 1)", "(R < N)", "given(b)", "not given(b)"]
        for name, axes in FLAGS.items():
            options += [f"{name}[{', '.join(axes.split())}]"] * 2 if {*axes.split()} <= free else []
        known = [name for name, (_, axes) in self.lets.items() if axes <= free and name[0] == "m"]
        options += [] if tame else known * 2
        kind = self.pick(*options, *(["and", "or", "not"] if depth > 0 else []))
        again = lambda: self.condition(depth - 1, free, tame=tame)  # noqa: E731
        if kind == "compare":
            symbol = self.pick("<", "<=", "==", "!=", ">", ">=")
            return f"({self.number(depth - 1, free, tame=tame)} {symbol} {self.leaf(free)})"
        if kind in ("and", "or"):
            return f"({again()} {kind} {again()})"
        return f"(not {again()})" if kind == "not" else kind

    def declared(self) -> dict[str, str]:
        """The tensors and their types, of one that is a list as of a tensor."""
        known = {name: f"{kind.split()[0]}[{self._dims(kind)}]" for name, kind in PLACES.items()}
        known |= {name: f"bool[{self._dims(f'- {axes}')}]" for name, axes in FLAGS.items()}
        known |= {**TABLES, "b": "i64[N]", "a": "i32[L, N]"}
        used = "\n".join([*self.stores, *(text for text, _ in self._used().values())])
        # `all_sizes` has a dimension for each size, so that all are read off a shape.
        found = {"all_sizes": "i64[R, C, N, K, L]"}
        found |= {n: kind for n, kind in known.items() if re.search(rf"\b{n}\b", used)}
        return found | self.outs

    def _dims(self, kind: str) -> str:
        return ", ".join(EXTENTS[index] for index in kind.split()[1:])

    def _used(self) -> dict[str, tuple[str, set[str]]]:
        text, used = "\n".join(self.stores), {}
        for name, let in reversed(self.lets.items()):
            if re.search(rf"\b{name}\b", text):
                used[name] = let
                text += let[0]
        return used

    @property
    def text(self) -> str:
        """The spec."""
        more = {"all_sizes": "", "a": ", list: L", "b": ", optional: true"}
        more |= dict.fromkeys(self.outs, ", mode: inout")
        lines = ["group: wild", "summary: Reads anywhere.", "sizes:"]
        lines += [f"  {name}: {ends}" for name, ends in SIZES.items()]
        lines += ["scalars: {s: {type: i32, values: 1 .. 9}, m: i64, off: i64}", "tensors:"]
        for name, kind in self.declared().items():
            shown = kind.replace("L, ", "", 1) if name == "a" else kind
            lines.append(f'  {name}: {{type: "{shown}"{more.get(name, "")}}}')
        lines.append('  all_used: {type: "i64[1]", mode: inout}')
        lines += ["index: {r: R, c: C, k: K, l: L}", "let:"]
        lines += [f'  {name}: "{text}"' for name, (text, _) in self._used().items()]
        lines += ["  spare: all_sizes[0, 0, 0, 0, 0] + s + m + off", "store:", *self.stores]
        total = " + ".join(f"sum[{index}]({index})" for index in EXTENTS)
        return "\n".join([*lines, f"  all_used[0]: spare + {total} if R < 0 else 0", ""])

    def plain(self, *, given: bool) -> str:
        """The spec for the oracle."""
        text = self.text.replace("][", ", ").replace(", list: L", "")
        text = re.sub(r'(  a: \{type: ")i32\[N\]', r"\1i32[L, N]", text)
        return re.sub(r"given\(b\)", "(1 == 1)" if given else "(1 == 0)", text)

    def world(self) -> dict[str, Any]:
        """Sizes, scalars and tensors."""
        one = self.chance.choice
        values: dict[str, Any] = {
            "R": one((0, 1, 2, 3)),
            "C": one((0, 1, 2)),
            "N": one((0, 1, 3, 4)),
        }
        values |= {"K": one((0, 1, 2, 3)), "L": one((1, 2, 3))}
        values |= {"s": one((1, 2, 3)), "m": one((-1, 0, 1, 2)), "off": one((-1, 0, 0, 1))}
        low, high = one(((0, max(values["N"] - 1, 0)), (-2, 5)))
        for name, kind in {**self.declared(), "all_used": "i64[1]"}.items():
            dtype, dims = kind.rstrip("]").split("[")
            shape = [values[dim] if dim in values else int(dim) for dim in dims.split(", ")]
            ends = {"bool": (0, 1), "u8": (max(low, 0), high)}.get(dtype, (low, high))
            numbers = [self.chance.randint(*ends) for _ in range(torch.Size(shape).numel())]
            values[name] = torch.tensor(numbers, dtype=torch.int64).to(TYPES[dtype]).view(shape)
        return values
