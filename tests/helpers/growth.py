"""How the time of `kgen build` grows with specs: prints the tables of docs/performance.md.

    PYTHONPATH=. python tests/helpers/growth.py

CPU seconds of this process and those that it starts, modules loaded before, the least of three builds.
*Cold* is without a cache, *warm* with one that holds every group. Needs neither torch nor a GPU; takes two
minutes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import z3  # noqa: F401 - loaded when first needed, which is not to be measured

from kgen import cache
from kgen.build import compile_specs
from kgen.diagnostics import SpecError

LETS = (8, 16, 32, 64)
GROUPS = (1, 10, 100, 300)
TRIES = 3  # of which the least counts: others use the machine as well
# How a let is made of the one before it, `{p}`.
CHAINS = (
    "min({p} + 1, N - 1)",
    "min({p} + {p}, N - 1) if c[r] else {p}",
    "min({p} * {p}, N - 1)",
    "t[{p}]",
    "t[{p} + 1] if {p} + 1 < N else {p}",
    "max({p} if c[r] else 0, {p} if x[r] > {i} else 0)",
)
CHAIN = """\
group: chained
summary: Lets that are each made of the one before.
sizes: {{R: 0 .. 64, N: 1 .. 64}}
tensors:
  x: {{type: "i64[R]", values: 0 .. N - 1}}
  t: {{type: "i64[N]", values: 0 .. N - 1}}
  c: bool[R]
  y: {{type: "i64[R]", mode: out}}
index: {{r: R}}
let:
  l0: x[r]
{lets}
store:
  y[r]: l{last} + t[0] * i64(c[r])
"""
SEARCH = """\
group: searched
summary: Where each row's number stands in a sorted tensor, found in six halvings.
sizes: {{R: 0 .. 64, N: 1 .. 64}}
tensors:
  x: i64[N]
  q: i64[R]
  y: {{type: "i64[R]", mode: out}}
index: {{r: R}}
let:
  lo0: 0 * r
  hi0: N + 0 * r
{lets}
store:
  y[r]: lo6 + hi6
"""
HALVING = """\
  m{i}: (lo{i} + hi{i}) // 2
  go{i}: (x[m{i}] <= q[r]) if lo{i} < hi{i} else 0 == 1
  lo{n}: m{i} + 1 if go{i} else lo{i}
  hi{n}: hi{i} if go{i} or lo{i} >= hi{i} else m{i}
"""
SUMMED = """\
group: summed
summary: An element at a sum of eight.
sizes: {{R: 0 .. 64, N: 1 .. 4096}}
tensors:
{tensors}
  x: i64[{room} * N]
  n: i64[N]
  y: {{type: "i64[R]", mode: out}}
index: {{r: R}}
store:
  y[r]: x[{total}] + n[0]
"""
ADVANCE = """\
group: advance_{i}
summary: Moves each request one token on, and says where that token's key and value go.
sizes:
  R: 0 .. 1024
  blocks: 1 .. 4096
scalars:
  max_len: {{type: i64, values: 1 .. 2**20}}
  page_size: {{type: static, values: 1 .. 256}}
tensors:
  block_tables: {{type: "i32[R, blocks]", values: 0 .. 2**23}}
  lens: {{type: "i64[R]", values: 0 .. max_len, mode: inout}}
  slots: {{type: "i64[R]", mode: out}}
index: {{r: R}}
let:
  at: lens[r]
  column: min(at // page_size, blocks - 1)
store:
  slots[r]: i64(block_tables[r, column]) * page_size + at % page_size if at < max_len else -{i}
  lens[r]: min(at + 1, max_len)
"""


def chain(form: str, count: int) -> str:
    """A spec of so many lets."""
    lets = [f"  l{i}: {form.format(p=f'l{i - 1}', i=i)}" for i in range(1, count)]
    return CHAIN.format(lets="\n".join(lets), last=count - 1)


def searched() -> str:
    """A binary search."""
    return SEARCH.format(lets="".join(HALVING.format(i=i, n=i + 1) for i in range(6)).rstrip())


def summed(room: int) -> str:
    """A load at the sum of eight loads, in bounds if there is room for eight."""
    tensors = [f'  a{i}: {{type: "i64[R]", values: 0 .. N - 1}}' for i in range(8)]
    total = " + ".join(f"a{i}[r]" for i in range(8))
    return SUMMED.format(tensors="\n".join(tensors), total=total, room=room)


def spent() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def seconds(specs: Path) -> tuple[float, bool]:
    """The time of a check of a folder of specs, and whether nothing is wrong with them."""
    times: list[float] = []
    sound = True
    for _ in range(TRIES):
        cache._version.cache_clear()  # reading kgen's own sources is part of it
        start = spent()
        try:
            compile_specs(specs)
        except SpecError:
            sound = False
        times.append(spent() - start)
    return min(times), sound


def measured(*texts: str) -> tuple[str, str]:
    """The times of a package, cold and warm."""
    with tempfile.TemporaryDirectory() as name:
        specs = Path(name, "specs", "growing")
        specs.mkdir(parents=True)
        for number, text in enumerate(texts):
            (specs / f"spec_{number}.yaml").write_text(text, encoding="utf-8")
        os.environ["KGEN_CACHE"] = "off"
        cold, sound = seconds(specs.parent)
        if not sound:
            return f"{cold:.2f}, refused", "-"
        os.environ["KGEN_CACHE"] = str(Path(name, "cache"))
        compile_specs(specs.parent)
        return f"{cold:.2f}", f"{seconds(specs.parent)[0]:.2f}"


def rows() -> Iterator[tuple[str, ...]]:
    """The cells of the tables, a line at a time."""
    yield "lets, each made of `l`, the one before", *(f"{count} lets" for count in LETS), "64, warm"
    yield ("---",) * (len(LETS) + 2)
    for form in CHAINS:
        times = [measured(chain(form, count)) for count in LETS]
        yield f"`{form.format(p='l', i='i')}`", *(cold for cold, _ in times), times[-1][1]
    yield ()
    yield "specs", "cold", "warm"
    yield ("---",) * 3
    yield "a binary search in six halvings", *measured(searched())
    yield "an element at a sum of eight loads", *measured(summed(8))
    yield "likewise, where the tensor may be too small", *measured(summed(7))
    for count in GROUPS:
        texts = [ADVANCE.format(i=i + 1) for i in range(count)]
        yield f"a package of {count} groups" if count > 1 else "a package of one", *measured(*texts)


def main() -> None:
    """Print the tables."""
    measured(ADVANCE.format(i=1))  # whatever is made at first use
    for cells in rows():
        print(f"| {' | '.join(cells)} |" if cells else "", flush=True)


if __name__ == "__main__":
    main()
