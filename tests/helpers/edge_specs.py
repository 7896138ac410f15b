"""Specs at the edges of proofs: each family is about one proof, `edges.py` says which verdict is right.

Numbers are off by one, guards are there or not, ranges touch. What is drawn for an edge that the language does
not have (a name that is taken, an index that a place does not vary with) is no spec, and is drawn again.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from typing import Any

from point_by_point import LIMITS
from spec_text import render, words

Data = dict[str, Any]

FAMILIES: dict[str, Callable[[Dice], Data]] = {}


def family(draw: Callable[[Dice], Data]) -> Callable[[Dice], Data]:
    """A family of specs, by its name."""
    FAMILIES[draw.__name__] = draw
    return draw


class Dice(random.Random):
    """A source of chance with a few words of its own. A table is a text with `;` between its entries."""

    def of(self, table: str) -> str:
        """One of the entries of a table."""
        return self.choice([each.strip() for each in table.split(";")])

    def likely(self, chance: float) -> bool:
        """True with some likelihood."""
        return self.random() < chance

    def off(self) -> int:
        """A number to be off by: most often none."""
        return self.choice((0, 0, 0, 0, -1, 1))

    def near(self, text: str | int) -> str:
        """An expression, perhaps one more or less."""
        return plus(text, self.off())


def plus(text: str | int, number: int) -> str:
    """`text + number`, without a 0."""
    if isinstance(text, int):
        return str(text + number)
    return f"{text} + {number}" if number > 0 else f"{text} - {-number}" if number else text


SIZES = {"R": "0 .. 3", "C": "0 .. 3", "N": "0 .. 4", "M": "0 .. 3", "S": "0 .. 3"}
SIZES |= {"K": "static 1 .. 3", "J": "static 1 .. 2", "L": "static 1 .. 3"}
INDEX = {"r": "R", "c": "C", "k": "K", "j": "J", "i": "N"}
TABLES = ("let", "index", "tensors", "scalars", "sizes")


def spec(parts: Data) -> str:
    """The text of a spec: what is declared and not used is left out, and each size is made readable."""
    data: Data = {"group": "edge", "summary": "An edge.", "when": parts.get("when", "")}
    data |= {"sizes": SIZES | parts.get("sizes", {}), "scalars": parts.get("scalars", {})}
    data |= {"tensors": parts["tensors"], "index": INDEX | parts.get("index", {})}
    data |= {"let": parts.get("let", {}), "store": dict(parts["store"])}
    used = words(f"{data['when']} {data['store']}")
    for table in TABLES * 4:
        used |= words(" ".join(str(v) for k, v in data[table].items() if k in used))
    for table in TABLES:
        data[table] = {k: v for k, v in data[table].items() if k in used}
    for name, value in data["tensors"].items():
        data["tensors"][name] = value if isinstance(value, dict) else tensor(value)
    told = [each["type"] for each in data["tensors"].values() if "optional" not in each]
    alone = {dim.strip() for text in told for dim in text.partition("[")[2][:-1].split(",")}
    sizes = data["sizes"].items()
    bare = [name for name, text in sizes if name not in alone and re.search(r"static|\.\.", text)]
    if bare:
        data["tensors"]["shapes"] = {"type": f"u8[{', '.join(bare)}]"}
        data["tensors"]["seen"] = {"type": "u8[1]", "mode": "out"}
        there = " and ".join(f"{name} > 0" for name in bare)
        at = ", ".join("0" for _ in bare)
        data["store"]["seen[0]"] = f"shapes[{at}] if {there} else u8(0)"
    return render({key: value for key, value in data.items() if value not in ("", {})})


def tensor(text: str) -> dict[str, str]:
    """A tensor as a mapping, of `type` or `type: values` and words behind `|`."""
    first, *more = (each.strip() for each in text.split("|"))
    kind, _, values = (each.strip() for each in first.partition(":"))
    data = {"type": kind} | ({"values": values} if values else {})
    for each in more:
        key, _, value = each.partition(" ")
        data |= {"mode": key} if key in ("out", "inout") else {key: value or "true"}
    return data


def scalar(text: str) -> dict[str, str]:
    """A scalar, likewise."""
    kind, _, values = text.partition(":")
    return {"type": kind, "values": values.strip()}


def point(text: str) -> list[str]:
    """The indices that a number varies with, as far as its text tells."""
    while True:
        shorter = re.sub(r"\w+\[[\w, ]*\]\([^()]*\)|\b\w+\[(\w+)\]\(.*\)", "", text)
        if shorter == text:
            return sorted(words(text) & set(INDEX))
        text = shorter


def condition(dice: Dice, index: str, size: str) -> str:
    """A guard that holds an index in its tensor, one that nearly does, or half of one."""
    low = dice.of(f"{index} >= 0; 0 <= {index}; {index} > -1; {index} >= {dice.off()}")
    high = f"{index} < {size}; {index} < {size}; {index} <= {size} - 1; {index} < {dice.near(size)}"
    high = dice.of(f"{high}; {index} != {size}; not {index} >= {size}; {size} > {index}")
    both = f"{low} and {high}; {low} and {high}; {low} and {high} and flag[r]"
    return dice.of(f"{low}; {high}; {both}; not (not ({low}) or not ({high})); {low} or {high}")


HELD = {  # tensors whose elements give places
    "at": "i64[R]: 0 .. N - 1",
    "to": "i32[R]: -1 .. N",
    "low": "i64[R]: 0 .. N",
    "many": "i64[R]: 0 .. K",
    "flag": "bool[R]",
    "mask": "bool[R, K]",
}


def number(dice: Dice, depth: int) -> str:
    """A number that may index something of about N elements."""
    if depth == 0:
        return dice.of("at[r]; at[r]; to[r]; low[r]; r; k; many[r]; s; i; 0; 1; N - 1; R")
    a, b = number(dice, depth - 1), number(dice, dice.randrange(depth))
    return dice.of(
        f"({dice.near(a)}); ({a} + {b}); (i64({a}) - {b}); (N - 1 - {a}); abs(i64({a}));"
        f"({a} // {dice.of('2; K; p; -2')}); ({a} % {dice.of('2; K; p; max(N, 1); N + 1')});"
        f"min({a}, {dice.near('N - 1')}); max({a}, {dice.off()}); min({a}, {b}); max({a}, {b});"
        f"clamp({a}, {dice.off()}, {dice.near('N - 1')}); (i64(K) * r + k); (2 * r + {dice.off()});"
        f"({a} if {dice.of(f'flag[r]; {a} < N; {b} > 0; {a} < {b}; k > 0; R > N')} else {b});"
        f"first[k](mask[r, k], {dice.near('K')}); first[i](i >= {a}, {dice.near('N')});"
        f"count[k](mask[r, k]); sum[k](i64(mask[r, k])); cumsum[k](i64(mask[r, k])); prefix[r](many[r]);"
        f"wrap_u8(i64({a})); i64({a} > {b}); max[k](i64(mask[r, k]) + {a}); min[k](k + {a})"
    )


def scalars(dice: Dice, low: str = "") -> Data:
    """The scalars of such numbers."""
    ranges = low or "0 .. N; -1 .. 1; 0 .. N - 1; 0 .. 2; 1 .. N"
    return {"s": scalar(f"i32: {dice.of(ranges)}"), "p": scalar("static: 1 .. 3")}


@family
def bounds(dice: Dice) -> Data:
    """A load at some index, guarded or not."""
    held = dict(
        HELD, at=f"i64[R]: {dice.of('0 .. N - 1; 0 .. N - 1; -1 .. N - 1; 0 .. N; 0 .. 2')}"
    )
    dim = dice.of("N; N; N; N + 1; K * R; R; R + K; 2 * R; max(N, 1); max(N, R); R * K + 1")
    at = number(dice, dice.choice((0, 1, 1, 2)))
    load, guard = f"x[{at}]", condition(dice, at, dim)
    first, last = guard.split(" and ")[0], guard.split(" and ")[-1]
    value = dice.of(
        f"{load}; ({load} if {guard} else -1); ({load} if {guard} else -1);"
        f"(({load} if {last} else 1) if {first} else 2); (-1 if not ({guard}) else {load})"
    )
    let, when = {}, ""
    if dice.likely(0.4):
        let, value = {"found": load}, value.replace(load, "found")
    if "i" in point(f"{value} {let}"):
        value = f"max[i](i32({value}))"
    elif dice.likely(0.25):
        when = dice.of(f"{guard}; flag[r]; r < N; N > 0")
    return {
        "sizes": {"N": dice.of("0 .. 4; 1 .. 4; R .. 4; R + 1 .. 4")},
        "scalars": scalars(dice),
        "tensors": held | {"x": f"i32[{dim}]", "y": f"i32[R, K]|{'inout' if when else 'out'}"},
        "let": let,
        "store": {"y[r, k]": {"value": value, "when": when} if when else value},
        "payload": ("x",),
    }


@family
def stores(dice: Dice) -> Data:
    """A store at some index."""
    dim = dice.of("N; N; N + 1; R; R + K; K * R; 2 * R")
    at = re.sub(r"\bi\b(?!\])", "r", number(dice, dice.choice((0, 1, 1, 2))))
    store: Data = {"value": "i32(r)"}
    if dice.likely(0.7):
        store["when"] = condition(dice, at, dim)
    if "k" in point(at):
        store["collide"] = dice.of("first k; last k")
    tensors = HELD | {"y": f"i32[R, {dim}]|inout"}
    return {"scalars": scalars(dice), "tensors": tensors, "store": {f"y[r, {at}]": store}}


@family
def pages(dice: Dice) -> Data:
    """A table of pages, and places in them."""
    columns = dice.of(
        "(N + p - 1) // p; (N + p - 1) // p; N // p; N // p + 1; N // p + 1; N; N + 1; T"
    )
    size = dice.of(f"B * p; B * p; {dice.near('B * p')}")
    pos = dice.of("low[r]; at[r]; at[r]; at[r]; at[r] + 1; r; min(low[r], N - 1)")
    entry = (
        f"table[r, {dice.of(f'{pos} // p; {pos} // p; min({pos} // p, T - 1); ({pos} + 1) // p')}]"
    )
    place = dice.of("page * p + %; page * p + %; page * p + % + 1; (page + 1) * p - 1 - %; page")
    place = place.replace("%", dice.of(f"{pos} % p; {pos} % p; ({pos} + k) % p; min(k, p - 1)"))
    guard = (
        f"{pos} < N; 0 <= {pos} and {pos} < N; page >= 0; {pos} < N and page >= 0; {pos} < T * p"
    )
    value = dice.of(f"x[{place}]; (x[{place}] if {dice.of(guard)} else 0)")
    return {
        "sizes": {
            "T": dice.of("0 .. 3; 1 .. 3; (N + p - 1) // p .. 3"),
            "B": "0 .. 2",
            "N": "0 .. 3",
        },
        "scalars": {"p": scalar("static: 1 .. 2")},
        "tensors": HELD
        | {
            "table": f"i64[R, {columns}]: {dice.of('0 .. B - 1; 0 .. B - 1; 0 .. B - 1; -1 .. B - 1; 0 .. B')}"
        }
        | {"x": f"i64[{size}]", "y": "i64[R, K]|out"},
        "let": {
            "page": dice.of(f"{entry}; ({entry} if {pos} < N else 0); ({entry} if T > 0 else -1)")
        },
        "store": {"y[r, k]": value},
        "payload": ("x",),
    }


@family
def lists(dice: Dice) -> Data:
    """A list of tensors and an optional one."""
    at = dice.of(f"k; {dice.near('k')}; to[r]; at[r]; L - 1; 0; 1; min(k, L - 1)")
    row = dice.near("r")
    load = f"a[{at}][{dice.of(f'r; {row}; R - 1 - r; 0')}]"
    guard = dice.of(f"{at} < L; 0 <= {at} and {at} < L; K <= L; k < L; R > 1")
    bias = dice.of(f"b[r]; b[{dice.near('r')}]; b[k]")
    less = f"(({bias} if {dice.of('r < S; k < S; R <= S')} else 0) if given(b) else 1)"
    more = dice.of(f"0; ({bias} if given(b) else 0); {less}; ({bias} if given(b) and r < S else 0)")
    held = {
        "a": "i64[R]: 0 .. 1|list L",
        "b": f"i64[{dice.of('R; R; S')}]: 0 .. 1|optional",
        "at": f"i64[R]: {dice.of('0 .. L - 1; 0 .. L; 0 .. 1')}",
        "to": "i32[R]: -1 .. L",
        "y": "i64[R, K]|out",
    }
    value = dice.of(f"{load}; ({load} if {guard} else 0)")
    return {"tensors": held, "store": {"y[r, k]": f"{value} + {more}"}, "payload": ("a", "b")}


@family
def extents(dice: Dice) -> Data:
    """How many values an index takes, and what it reads."""
    size = dice.of("N; M; R")
    count = dice.of(
        f"{size} - 1; {size} - 2; max({size} - 1, 0); N - M; N - M + 1; N - M - 1; {size} // p;"
        f"({dice.near(f'{size} + p - 1')}) // p; ({size} - 1) // p; min(N, M); min(N, M) - 1;"
        f"max(N, M) - {size}; {size} * p; {size} * p - 1; N % p; (N if N < M else M); abs(N - M);"
        f"(N - M if N >= {dice.near('M')} else 0); s; {dice.near('s')}; (N - M) * p; N * M - {size}"
    )
    read = dice.of(f"q; {dice.near('q')}; q * p; q // p; p * q + p - 1; N - 1 - q; q % max(N, 1)")
    dim = dice.of(f"N; N; M; N + 1; p * N; {count}")
    value = dice.of(f"x[{read}]; (x[{read}] if q < N else 0); 0; (x[{read}] if q * p < N else 0)")
    store: Data = {
        f"y[q{dice.of(';;; + 1')}]": {"value": value, "when": dice.of("q < 8; q < 8; q < N")}
    }
    return {
        "sizes": {
            "N": dice.of("0 .. 4; 1 .. 4; 2 .. 4; M .. 4; M + 1 .. 4"),
            "M": dice.of("0 .. 3; 1 .. 3"),
            "p": "static 1 .. 3",
        },
        "scalars": {"s": scalar(f"i32: {dice.of('0 .. N; -1 .. 2; 1 .. 2; M .. N')}")},
        "index": {"q": count},
        "tensors": {
            "x": f"i32[{dim}]",
            "y": f"i32[{dice.of(f'8; 8; {count}')}]|inout",
            "z": "i32[1]|out",
        },
        "store": {"z[0]": f"max[q](i32({value}))"} if dice.likely(0.5) else store,
        "when": dice.of("N > 0; N > M; M > 0; N >= M; s > 0; N > 1") if dice.likely(0.3) else "",
        "payload": ("x",),
    }


@family
def overflow(dice: Dice) -> Data:
    """Arithmetic at the ends of a type."""
    dtype = dice.of("i32; i32; u8; i64")
    wide = {"u8": "i32", "i32": "i64", "i64": "i64"}[dtype]
    (least, most), by = LIMITS[dtype], dice.choice((2, 3, 7))
    high = dice.choice((most, most // by, most - by, most // by + 1, most - by + 1, 5, most // 2))
    high = dice.choice((high, high, math.isqrt(most), math.isqrt(most) + 1))
    low = dice.choice((0, 1, least, -(most // by), least // by, -high, least + 1, least + by))
    low = min(max(low, least), high)
    other = dice.choice(((0, 1), (-1, 1), (1, by), (0, by), (-by, -1), (low, high), (-1, 0)))
    other = (max(other[0], least), max(other[1], least))
    b = dice.of(f"w[r]; w[r]; {by}; x[r]; {dtype}(k)")
    inner = dice.of(
        f"{wide}(x[r]) + {b}; {wide}(x[r]) * {b}; {wide}(x[r]) - {b}; {wide}(x[r]) // {by};"
        f"sum[k](i64(x[r])); count[k](k < w[r]); cumsum[k](i64(x[r]))"
    )
    value = dice.of(
        f"x[r] + {b}; x[r] - {b}; x[r] * {b}; x[r] // {b}; x[r] % {b}; -x[r]; abs(x[r]);"
        f"x[r] * x[r]; (x[r] + {by}) - {dice.near(by)}; {dtype}({inner}); {dtype}({inner});"
        f"min(x[r], {by}) * {b}; (x[r] if x[r] < {by} else {dtype}(0)) + {b}; abs(x[r] - {b})"
    )
    guard = dice.of(
        f"{inner} <= {most}; x[r] < {max(most // by, 1)}; x[r] <= {most - by}; x[r] >= 0;"
        f"x[r] > {max(least, -most)}; {inner} >= {least}; w[r] > 0; x[r] <= {most // by} and w[r] >= 0"
    )
    if dice.likely(0.5):
        value = f"({value}) if {guard} else {dtype}(0)"
    held = {"x": f"{dtype}[R]: {low} .. {high}", "w": f"{dtype}[R]: {other[0]} .. {other[1]}"}
    return {
        "sizes": {"R": "0 .. 2"},
        "tensors": held | {"y": f"{dtype}[R, K]|out"},
        "store": {"y[r, k]": value},
    }


@family
def digits(dice: Dice) -> Data:
    """Indices in mixed radix: each point its own place, and every place filled."""
    a, b, c = dice.sample(("r", "k", "j", "c"), 3)
    radix = dice.near(INDEX[b]) if dice.likely(0.6) else dice.of("2; 3; 4; N")
    place = dice.of(
        f"{a} * ({radix}) + {b}; {a} * ({radix}) + {b}; {a}; {b} + {dice.of('2; 3')} * {a};"
        f"({a} * {INDEX[b]} + {b}) * ({dice.near(INDEX[c])}) + {c}; {a} * ({radix}) + {b} + 2;"
        f"{a} * ({radix}) + ({INDEX[b]} - 1 - {b}); {a} * ({radix}) - {b} + {dice.of('K; C; 3')};"
        f"at[{a}] * ({radix}) + {b}; slot[r] * ({radix}) + {dice.of('k; digit[r, k]')};"
        f"r * ({radix}) + digit[r, k]; r // 2 * 2 + r % {dice.of('2; 3')}; {a} * 2 + {b} % 2;"
        f"(-{a}) * ({radix}) + {b} + 9; ({a} + {b}) * 2 + {b}; {a} * N + {b} * M; {b} * N + {a};"
        f"({a} * {INDEX[b]} + {b}) // ({radix}); {a} * ({radix}) + min({b}, 1)"
    )
    whole = " * ".join(sorted(INDEX[each] for each in point(place))) or "1"
    out = dice.likely(0.4)
    dim = dice.of(f"{whole}; {whole}; {whole} + 1; {INDEX[a]} * ({radix})") if out else "64"
    store: Data = {"value": f"i32({' + '.join(point(place)) or '1'})"}
    if dice.likely(0.3):
        guard = dice.of(
            f"{a} < {dice.near(radix)}; {b} < {radix}; {b} < {dice.near(radix)}; {b} > 0"
        )
        store |= {"when": guard} if {*point(guard)} <= {*point(place)} else {}
    tensors = {
        "at": f"i64[{INDEX[a]}]: 0 .. 3{dice.of('|distinct;|distinct;')}",
        "slot": f"i64[R]: 0 .. 3{dice.of('|distinct;|distinct;;|distinct except 0')}",
        "digit": f"i64[R, K]: 0 .. {dice.of('1; 2; K - 1; K - 1; K')}",
        "y": f"i32[{dim}]|{'out' if out else 'inout'}",
    }
    sizes = {"N": dice.of("2 .. 4; 0 .. 3; R .. 4"), "M": dice.of("0 .. 2; 1 .. 2")}
    return {"sizes": sizes, "tensors": tensors, "store": {f"y[{place}]": store}}


@family
def distinct(dice: Dice) -> Data:
    """Places that elements of a `distinct` tensor give, and what their points read there."""
    at = dice.of(
        "slot[r]; slot[r]; slot[r + s]; slot[R - 1 - r]; slot[r // 2]; 2 * slot[r]; slot[min(r, 1)];"
        "slot[slot[r]]; pair[r, k]; pair[r, 0]; slot[k]; slot[r] % 3; slot[r] + r; wide[r]; 2 * wide[r];"
        "slot[r * K + k]; pair[r, k] // 2; slot[r] * 2 + s; max(slot[r], 0); abs(slot[r]); slot[r + k]"
    )
    second = dice.of(";; k; r")
    axes = point(f"{at} {second}")
    store: Data = {"value": f"i64({' + '.join(axes) or '1'})"}
    if dice.likely(0.4):
        store["when"] = dice.of(f"{at} != 0; {at} > 0; {at} < 2; {at} != R; 0 <= {at} and {at} < 4")
    place = ", ".join(each for each in (at, second) if each)
    mode = dice.of(
        "|distinct; |distinct; |distinct except 0; |distinct except -1; |distinct except R;"
    )
    return {
        "sizes": {"R": "0 .. 2"},
        "scalars": {"s": scalar(f"i32: {dice.of('0 .. 1; 0 .. 0')}")},
        "tensors": {
            "slot": f"i64[{dice.of('R; R; R + 1; R + K; R * K')}]: "
            f"{dice.of('0 .. 3; 0 .. R - 1; 0 .. R; -1 .. 2')}{mode}",
            "pair": "i64[R, K]: 0 .. 3|distinct",
            "wide": "i64[R]|distinct",
            "y": f"i64[{dice.of('4; 7; R; R + 1')}{', 3' if second else ''}]|inout",
        },
        "store": {f"y[{place}]": store},
    }


@family
def apart(dice: Dice) -> Data:
    """Two stores to one tensor, whose ranges touch."""
    one = dice.of(f"r; {dice.near('r')}; k; r * K + k; at[r]; 0; 2 * r; low[r]; min(r, N); r // 2")
    two = dice.of(
        f"{dice.near('R')}; R + c; {dice.near('r + R')}; {dice.near('K + k')}; r + K; R * K + c; 7 - r;"
        f"{dice.near('R * K')}; {dice.near('4')}; at[r] + 4; at[r] + 3; N + r; {dice.near('N')}; 0; 1;"
        f"r * K + k + R * K; 2 * r + 1; 2 * R; max(r, R); max(low[r], N); N + 1; N + 1 + r; R // 2"
    )
    held = {"at": "i64[R]: 0 .. 3|distinct", "low": "i64[R]: 0 .. N|distinct"}
    held["y"] = "i32[24]|inout"
    values: list[Data] = []
    for place in (one, two):
        axes = point(place)
        values.append({"value": f"i32({' + '.join(axes) or '1'})"})
        if dice.likely(0.3) and axes:
            values[-1]["when"] = dice.of(f"{axes[0]} > 0; {axes[0]} < N; {place} > {dice.off()}")
    if dice.likely(0.3):
        held["y"] = "i32[2, 24]|inout"
        one, two = f"{dice.of('0; 0; r % 2')}, {one}", f"{dice.of('0; 1')}, {two}"
    elif dice.likely(0.3):
        dim = dice.of("R + 1; R + C; 2 * R; K + R; R * K + 1; R * K + C; R; 2 * R + 1; N + 1")
        held["y"] = f"i32[{dim}]|{dice.of('out; inout')}"
    sizes = {"N": dice.of("R .. 4; 0 .. 4; R + 1 .. 4")}
    two = f"{two} + 1" if one == two else two
    return {
        "sizes": sizes,
        "tensors": held,
        "store": {f"y[{one}]": values[0], f"y[{two}]": values[1]},
    }


@family
def coverage(dice: Dice) -> Data:
    """The stores that fill an output, or all but a place of it."""
    dim, *places = dice.of(
        f"R/r; R + 1/r; min(R, N)/r; max(R, 1)/r; P/r; {dice.near('R')}/r; R + 1/r/R; R + 1/r/{dice.near('R')};"
        f"R + 2/r/R/R + 1; R + 1/0/r + 1; R + 2/0/r + 1; R + 2/0/r + 1/R + 1; R, K/r, k; R, K + 1/r, k;"
        f"R, K + 1/r, k/r, K; R, K + 1/r, k/0, K; R, K/r, k/r, K; R * K/r * K + k; R * K/k * R + r;"
        f"R * K + 1/r * K + k/R * K; R * K/r * (K + 1) + k; R * (K + 1)/r * (K + 1) + k; R + C/r/R + c;"
        f"R + C/r/{dice.near('R + c')}; 2 * R/r/R + r; 2 * R/r; 2 * R/2 * r + h; 2 * R + 1/2 * r + h;"
        f"2 * R/2 * r; R * R/r * R + r; R, R/r, r; R, C/r, c; C, R/r, c; N/min(r, N); R/R - 1 - r; R/at[r];"
        f"R * C * K/(r * C + c) * K + k; R * C * K/(r * K + k) * C + c; R * C * K/(r * C + k) * K + c;"
        f"K + 1/k/K; K/k; 3/k; R + K/k/K + r; R + K/r/K + r; R + K/r/k; R - 1/r; S/r; C * K/k + c * K; 1/0;"
        f"N + 1/N/i; 2, R/0, r/1, r; 2, R/h, r; 2, R/0, r; 3, R/h, r/2, r; R, 2, K/r, 0, k/r, 1, k; R, 2, K/r, h, k"
    ).split("/")
    store: Data = {f"y[{place}]": f"i32({' + '.join(point(place)) or '1'})" for place in places}
    if dice.likely(0.15):
        name = dice.choice(sorted(store))
        guard = dice.of(
            "R > 0; r < N; N < 5; N > 0; r < R" if "r" in point(name) else "R > 0; N < 5"
        )
        store[name] = {"value": store[name], "when": guard}
    sizes = {"P": dice.of(f"R; {dice.near('R')}; 2 * R"), "S": dice.of("R .. R; R .. 3; 0 .. R")}
    tensors = {"y": f"i32[{dim}]|out", "at": "i64[R]: 0 .. R - 1|distinct"}
    return {
        "sizes": sizes,
        "index": {"h": dice.of("2; 2; 2; 1; 3; J")},
        "tensors": tensors,
        "store": store,
    }


@family
def races(dice: Dice) -> Data:
    """A tensor that is read and stored to."""
    shape = dice.of("R; R; R, K; R, C")
    inner = {"R": "", "R, K": "k", "R, C": "c"}[shape]
    size = shape[-1]
    spot = ", ".join(each for each in ("r", inner) if each)
    row = dice.of(
        "r; r; r; max(r - 1, 0); R - 1 - r; min(r + 1, R - 1); 0; slot[r]; r // 1; r + 0; min(r, 1)"
    )
    column = (
        dice.of(f"{inner}; {inner}; {size} - 1 - {inner}; 0; max({inner} - 1, 0)") if inner else ""
    )
    read = f"y[{', '.join(each for each in (row, column) if each)}]"
    cond = dice.of("r == 0; R == 1; flag[r]; r > 0; r < 1")
    value = dice.of(
        f"{read}; min({read} + 1, 9); ({read} if {cond} else 1); ({read} if r > 0 else 0)"
    )
    over, other = inner or "r", dice.of(f"y[{spot}]; {read}")
    fold = dice.of(f"max[{over}]({other}); min[{over}]({other}); sum[{over}]({other})")
    if dice.likely(0.35):
        value = dice.of(f"max(min({value}, 9) - {fold}, -9); min(max({fold}, 0), 9)")
    elif dice.likely(0.2):
        value = dice.of(f"cumsum[{over}](y[{spot}]); i64(any[{over}](y[{spot}] > 0))")
    target = dice.of(f"{spot}; {spot}; {spot.replace('r', 'slot[r]', 1)}")
    value = value.replace("y[r", "y[slot[r]") if dice.likely(0.2) else value
    store: Data = {f"y[{target}]": {"value": value}}
    if dice.likely(0.3):
        store[f"y[{target}]"]["when"] = dice.of(f"flag[r]; y[{target}] > 0; r > 0")
    if dice.likely(0.35):
        seen = ", ".join(each for each in (dice.of("r; 0; R - 1; R - 1 - r"), inner) if each)
        what = f"w[r, {inner}]" if inner else dice.of("z[r]; z[r]; z[0]")
        store[what] = (
            f"y[{seen}]" if "r" in point(what) or "r" not in point(seen) else f"max[r](y[{seen}])"
        )
    held = {
        "slot": f"i64[R]: 0 .. R - 1|distinct{dice.of(';;; except R - 1')}",
        "flag": "bool[R]",
        "y": f"i64[{shape}]: -9 .. 9|inout",
        "z": "i64[R]|inout",
        "w": f"i64[{shape}]|inout",
    }
    sizes = {"R": dice.of("0 .. 3; 1 .. 3"), "C": dice.of("0 .. 2; 1 .. 2"), "K": "static 1 .. 2"}
    return {"sizes": sizes, "tensors": held, "store": store, "payload": ("y",)}


@family
def kept(dice: Dice) -> Data:
    """What is stored into a tensor with `values`, which the next call relies on."""
    low, high = dice.choice(((0, "N"), (0, "N - 1"), (1, 4), (-1, "N"), (0, 3)))
    near_low, near_high = dice.near(low), dice.near(high)
    value = dice.of(
        f"min(y[r] + {dice.of('0; 1; 2')}, {near_high}); max(y[r] - {dice.of('0; 1')}, {near_low}); y[r]; s;"
        f"clamp(y[r] + s, {low}, {near_high}); (y[r] + 1 if y[r] < {near_high} else {low}); given[r]; i64(r);"
        f"(y[r] - 1 if y[r] > {near_low} else y[r]); min(given[r], {near_high}); r % 4; (y[r] + 1) % 4;"
        f"first[k](mask[r, k], {near_low}); y[r] // 2; (y[r] + given[r]) // 2; count[k](mask[r, k]); abs(y[r])"
    )
    store: Data = {"value": value.replace("given[r]", "g[r]")}
    if dice.likely(0.4):
        guard = f"y[r] < {near_high}; s < {near_high}; g[r] > 0; r < {high}; g[r] <= {near_high}; y[r] > 0"
        store["when"] = dice.of(guard)
    return {
        "scalars": {"s": scalar(f"i64: {dice.of(f'0 .. 1; 0 .. N; -1 .. 1; {low} .. {high}')}")},
        "tensors": {
            "g": f"i64[R]: {dice.of(f'0 .. 3; 0 .. N; {low} .. {high}')}",
            "mask": "bool[R, K]",
            "y": f"i64[R]: {low} .. {high}|inout",
        },
        "sizes": {"R": "0 .. 2", "N": dice.of("0 .. 3; 1 .. 3; R .. 3")},
        "store": {"y[r]": store},
    }


@family
def packing(dice: Dice) -> Data:
    """Rows one after the other, by a sum over what comes before."""
    size = dice.of("R * K; R * K; R * K - 1; R * K + 1; R * 2; 16; 16; 16; 16")
    match dice.of("ragged; ragged; compact; columns; pages"):
        case "ragged":
            start = "prefix[r](m[r])"
            place = dice.of(
                "start + k; start + k; start + k; start + k + 1; start + K - 1 - k; start - k + 2; start;"
                "start + 2 * k; start + m[r] - 1 - k; start + min(k, 1); 2 * start + k; start + k // 2"
            )
            guard = dice.of(
                f"k < m[r]; k < m[r]; k < m[r]; k <= m[r]; k < {dice.near('m[r]')}; k < K; m[r] > 0; "
            )
            if "k" not in point(place):
                guard = dice.of("m[r] > 0; m[r] >= 0; keep[r];")
        case "compact":
            start = dice.of("prefix[r](i64(keep[r])); cumsum[r](i64(keep[r])); prefix[r](m[r])")
            size = dice.of("R; R; R + 1; R - 1; R * K; 16; 16")
            place = dice.of("start; start; start - 1; start + 1; start * 2; R - start")
            guard = dice.of("keep[r]; keep[r]; not keep[r]; r > 0; m[r] > 0; keep[r] and m[r] > 0;")
        case "columns":
            start, size = "cumsum[k](i64(mask[r, k]))", dice.of("R, K; R, K; R, K + 1; R, K - 1")
            place = f"{dice.of('r; r; r; 0')}, start{dice.of(' - 1; - 1; - 1;; - 2')}"
            guard = dice.of("mask[r, k]; mask[r, k]; not mask[r, k]; mask[r, 0]; k > 0;")
        case _:
            start, size = "prefix[r](m[r])", dice.of("32; 32; R * K * K")
            place = dice.of(
                "start * K + k; start * 2 + k; (start + k) * 2; (start + k) * 2 + k % 2"
            )
            guard = dice.of("k < m[r]; k < m[r]; m[r] > 0;")
    store: Data = {"value": f"i64({' + '.join(point(place.replace('start', 'r'))) or 'r'})"}
    tensors = {
        "m": f"i64[R]: {dice.of('0 .. K; 0 .. K; 0 .. K; 1 .. K; 0 .. 2; -1 .. K')}",
        "keep": "bool[R]",
        "mask": "bool[R, K]",
        "y": f"i64[{size}]|inout",
    }
    store |= {"when": guard} if guard else {}
    sizes = {"R": "0 .. 3", "K": "static 1 .. 2"}
    return {
        "sizes": sizes,
        "tensors": tensors,
        "let": {"start": start},
        "store": {f"y[{place}]": store},
    }


@family
def division(dice: Dice) -> Data:
    """Divisors near 0."""
    divisor = dice.of(
        f"d[r]; {dice.near('N')}; {dice.near('s')}; max(d[r], {dice.off()}); (d[r] + 1); (d[r] * 2 + 1); (r + 1);"
        f"(i64(K) - {dice.of('0; 1; 4')}); abs(d[r]); (1 if d[r] == 0 else d[r]); r; (k - 3); (K - k); d[r] * d[r];"
        f"(N // 2 + 1); (N - M); min(d[r], -1); (d[r] if s > 0 else 1)"
    )
    value = f"i64(r) {dice.of('//; %')} ({divisor})"
    value = f"({value}) if {divisor} != 0 else 0" if dice.likely(0.3) else value
    size = f"R // ({dice.near('N')}) + R" if dice.likely(0.2) else "R"
    return {
        "sizes": {"R": "0 .. 2", "N": dice.of("0 .. 3; 1 .. 3; 2 .. 3; M + 1 .. 4")},
        "scalars": {"s": scalar(f"i64: {dice.of('0 .. 2; 1 .. 2; -2 .. -1; -1 .. 1')}")},
        "tensors": {
            "d": f"i64[R]: {dice.of('0 .. 3; 1 .. 3; -3 .. -1; -1 .. 1; -3 .. 0')}",
            "y": f"i64[{size}, K]|inout",
        },
        "store": {"y[r, k]": value},
    }


@family
def winners(dice: Dice) -> Data:
    """Stores of which one wins, and those that it takes to tell the rest apart."""
    place, dims = dice.of(
        "r, at[r, k] in R, 3; r, at[r, k] in R, 3; r, at[r, k] in R, 2; at[r, k] in 3; at[r, k] + r * 3 in 6; r, k // 2 in R, K;"
        "0, at[r, k] in R, 3; r, min(k, 1) in R, 2; r, at[r, k] + k in R, 5; r * 3 + at[r, k] in R * 3; r, k in R, K; 0 in 1; r in R"
    ).split(" in ")
    store: Data = {"value": "r * 4 + k", "collide": dice.of("first k; last k; first r; last r")}
    if dice.likely(0.5):
        store["when"] = dice.of(
            f"keep[r, k]; at[r, k] < {dice.near(2)}; k > 0; r < 1; at[r, k] >= 0"
        )
    held = {"at": f"i64[R, K]: {dice.of('0 .. 2; 0 .. 1; -1 .. 1')}", "keep": "bool[R, K]"}
    tensors = held | {"y": f"i64[{dims}]|inout"}
    return {
        "sizes": {"R": "0 .. 2", "K": "static 1 .. 2"},
        "tensors": tensors,
        "store": {f"y[{place}]": store},
    }


@family
def ends(dice: Dice) -> Data:
    """Ranges that are made of each other: of sizes, of scalars, of elements."""
    low, high = (
        dice.of("0; 1; M; min(M, 2); max(M, 1)"),
        dice.of("3; max(M, 3); M + 2; min(M + 1, 3)"),
    )
    derived = dice.of(
        "N + M; N - M; 2 * N; max(N, M); min(N, M); (N + 1) // 2; N // 2 + M % 2; M * N; N - 1"
    )
    dim = dice.of("P; N; M; P + 1; N - M; P - N; max(P, N)")
    element = dice.of(
        f"0 .. P - 1; 0 .. P - 1; 0 .. {dice.near('N - 1')}; M .. N; 0 .. max(N, M); 0 .. min(N, M) - 1;"
        f"s .. N - 1; 0 .. s; -s .. 0; max(s, M) .. N - 1; 0 .. N // 2; 0 .. (N if N < M else M)"
    )
    at = dice.of(
        "at[r]; at[r]; at[r] + s; s; P - 1; N - M; at[r] - M; M; N - 1 - at[r]; P // 2; -at[r]; at[r] - s"
    )
    guard = dice.of(
        f"{at} < P; {at} >= 0; N > M; s < N; 0 <= {at} and {at} < {dim}; P > 0; {at} < {dim}"
    )
    return {
        "sizes": {"M": "0 .. 2", "N": f"{low} .. {high}", "P": derived, "R": "0 .. 2"},
        "scalars": {
            "s": scalar(f"i64: {dice.of('0 .. M; 0 .. N - M; M .. N; 0 .. P; 0 .. P - 1; 0 .. 1')}")
        },
        "tensors": {"at": f"i64[R]: {element}", "x": f"i32[{dim}]", "y": "i32[R]|out"},
        "store": {"y[r]": dice.of(f"x[{at}]; x[{at}]; (x[{at}] if {guard} else 0)")},
        "payload": ("x",),
    }
