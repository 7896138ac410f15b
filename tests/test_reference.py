"""The torch reference: text that a reviewer would pass, and values computed by hand.

Nothing here is proved or planned first, so that a spec with wrong ranges gets as far as its reference.
"""

from __future__ import annotations

import math
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
import spec_oracle
import torch
import wild_specs
from references import faults, function_of, group_of, groups_of, text_of

from kgen.lang.typed import Group, Param
from kgen.runtime import _reference
from kgen.spec import model
from kgen.targets import reference

ROOT = Path(__file__).parents[1]
FOLDERS = [
    ROOT / "specs" / "dspark",
    ROOT / "tests" / "semantics" / "specs" / "small",
    ROOT / "tests" / "semantics" / "specs" / "knotty",
    ROOT / "tests" / "floats" / "specs" / "numbers",
]
TYPES = {"bool": torch.bool, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64}
TYPES |= {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


def spec(body: str) -> str:
    """A spec of one group from the lines that differ; each of `R`, `N`, ... may be empty."""
    return "group: probe\nsummary: A probe.\n" + body


def run(text: str, **given: Any) -> dict[str, Any]:
    """What the written tensors hold afterwards; tensors as nested lists, the sizes read off them."""
    group = group_of(text)
    passed: dict[str, Any] = {}
    for name, tensor in group.tensors.items():
        value = given.get(name)
        if tensor.length is not None and value is not None:
            passed[name] = [torch.tensor(each, dtype=TYPES[tensor.dtype]) for each in value]
        else:
            passed[name] = (
                torch.tensor(value, dtype=TYPES[tensor.dtype]) if value is not None else None
            )
        for each, shape in _shapes(tensor.dims, passed[name]):
            given.setdefault(each, shape)
    numbers = {name: given[name] for name in (*group.scalars, *group.sizes) if name in given}
    function_of(group)(**passed, **numbers)
    return {
        name: [one.tolist() for one in passed[name]] if tensor.length else passed[name].tolist()
        for name, tensor in group.tensors.items()
        if tensor.written
    }


def _shapes(dims: Any, tensor: Any) -> list[tuple[str, int]]:
    one = tensor[0] if isinstance(tensor, list) else tensor
    shape = one.shape if one is not None else ()
    return [(d.name, n) for d, n in zip(dims, shape, strict=False) if isinstance(d, Param)]


def body_of(text: str) -> list[str]:
    """The statements of a reference, without its signature and comments."""
    lines = text_of(text).split('"""')[2].splitlines()
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


# Text.


@pytest.mark.parametrize(
    "group",
    [group for folder in FOLDERS for group in groups_of(folder)],
    ids=lambda group: group.name,
)
def test_no_function_of_the_specs_has_a_fault(group: Group) -> None:
    text = reference.emit(group).text
    assert not faults(text, *group.lets, *group.extents)
    code = [line for line in text.splitlines() if '"""' not in line and "# " not in line]
    assert max(map(len, code)) <= 100


def test_faults_are_found() -> None:
    text = """
def f(*, x, y):
    a = _load(x, 1)
    a = _load(x, 1, where=y)
    y = a
    b_2 = y
"""
    assert faults(text) == [
        "f: a is assigned twice",
        "f: y is a parameter",
        "f: b_2 is not used",
        "f: b_2 without b",
        "f: _load(x, 1) twice",
    ]
    assert not faults("def f(*, x):\n    b_2 = x\n    return b_2\n", "b_2")


GUARDED = spec("""
sizes: {R: 0 .. 9, N: 0 .. 9}
tensors:
  at: i64[R]
  a: bool[R]
  b: bool[R]
  x: i64[N]
  y: {type: "i64[R]", mode: out}
  z: {type: "i64[R]", mode: inout}
index: {r: R}
let:
  found: x[at[r]]
""")


@pytest.mark.parametrize(
    ("stores", "where"),
    [
        ("y[r]: found\n  z[r]: {value: found, when: 'a[r] and b[r]'}", ""),
        ("y[r]: found if a[r] else 0\n  z[r]: found if a[r] and b[r] else 0", "a_r"),
        ("y[r]: found if a[r] else 0\n  z[r]: found if b[r] else 0", "a_r | b_r"),
        ("y[r]: found if a[r] else 0\n  z[r]: found if not a[r] and b[r] else 0", "a_r | b_r"),
        ("y[r]: (found if b[r] else 1) if a[r] else 0\n  z[r]: 0 if not b[r] else found", "b_r"),
        ("y[r]: found if a[r] else found + 1\n  z[r]: 1 if b[r] else 0", ""),
    ],
)
def test_a_let_is_one_variable_under_the_union_of_its_guards(stores: str, where: str) -> None:
    lines = body_of(f"{GUARDED}store:\n  {stores}\n")
    (found,) = [line for line in lines if line.startswith("found")]
    inner = f"_load(at, r, where={where})" if where else "_load(at, r)"
    assert found == f"found = _load(x, {inner}{f', where={where}' if where else ''})"


def test_text_is_plain() -> None:
    lines = body_of(
        spec("""
sizes: {R: 0 .. 9, blocks: 1 .. 99, K: static 1 .. 8}
scalars: {step: "i32", most: {type: i64, values: 1 .. 2**20}, page: {type: static, values: 1 .. 16}}
tensors:
  table: i32[R, blocks]
  lens: {type: "i64[R]", mode: inout}
  slot: {type: "i64[R, K]", mode: out}
index: {r: R, k: K}
let:
  at: lens[r]
  column: min(at // page, blocks - 1)
  place: i64(table[r, column]) * page + at % page
masks:
  fits: at < most
store:
  slot[r, k]: place + k if fits else -1
  lens[r]: min(at + step, most)
""")
    )
    assert lines == [
        "device = table.device",
        "r = torch.arange(R, device=device).view(-1, 1)",
        "k = torch.arange(K, device=device).view(1, -1)",
        "at = _load(lens, r)",
        "column = (at // page).clamp(max=blocks - 1)",
        "fits = at < most",
        "place = _load(table, r, column, where=fits).to(torch.int64) * page + at % page",
        "_store(slot, (r, k), torch.where(fits, place + k, -1))",
        "_store(lens, (r,), (at + step).clamp(max=most))",
    ]


def test_a_comment_quotes_what_is_computed_unless_the_code_says_the_same() -> None:
    text = text_of(
        spec("""
sizes: {R: 0 .. 9}
tensors:
  x: i64[R]
  y: {type: "i64[R]", mode: out}
index: {r: R}
let:
  a: x[r]
  b: a + r
store:
  y[r]: b * 2
""")
    )
    lines = [line.strip() for line in text.splitlines()]
    assert [line for line in lines if line.startswith("#")] == [
        "# a: x[r]",
        "# Every load came before; now the stores.",
        "# y[r]: b * 2",
    ]


CHAINS = {
    "twice": "{0} + {0} if c[r] > 2 else {0}",
    "under two guards": "({0} if c[r] > {1} else 0) + ({0} if d[r] > {1} else 1)",
    "as an index": "x[{0}] + {0} if 0 <= {0} and {0} < R else {0} * {0}",
    "in a reduction": "sum[r]({0} if c[r] > {1} else 0) + ({0} if d[r] > {1} else 0)",
    "as a divisor": "{0} // c[r] + {0} % d[r] if c[r] > {1} else {0} // d[r]",
}


def chain(step: str, length: int) -> str:
    lets = [f"  l{n}: {step.format(f'l{n - 1}', n)}" for n in range(2, length + 1)]
    head = """
sizes: {R: 0 .. 9}
tensors:
  x: i64[R]
  c: i64[R]
  d: i64[R]
  y: {type: "i64[R]", mode: out}
index: {r: R}
let:
  l1: x[r] + c[r] + d[r]
"""
    return spec("\n".join([head.rstrip(), *lets, "store:", f"  y[r]: l{length}", ""]))


@pytest.mark.parametrize("step", CHAINS.values(), ids=CHAINS.keys())
def test_chained_lets_make_linear_text_in_linear_time(step: str) -> None:
    sizes = {}
    for length in (32, 64):
        group = group_of(chain(step, length))
        started = time.process_time()
        text = reference.emit(group).text
        assert time.process_time() - started < 1
        sizes[length] = len(text)
        assert not faults(text)
    assert sizes[64] < 2.2 * sizes[32]


def test_chained_lets_are_right() -> None:
    twice = chain("{0} + {0} if c[r] > 2 else {0}", 64)
    found = run(twice, x=[3, 4], c=[0, 9], d=[0, 0], y=[0, 0])
    assert found["y"] == [3, 13 * 2**63 % 2**64 - 2**64]


def test_names_that_the_reference_uses_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of variables give way; those of arguments are the callers'."""
    monkeypatch.setattr(model, "_RESERVED", model._RESERVED - {"device", "torch", "Tensor"})
    text = spec("""
sizes: {R: 0 .. 9, index_shape: 1 .. 9}
scalars: {device: "i64"}
tensors:
  x: i64[R, index_shape]
  x_value: i64[R]
  cond: bool[R]
  y: {type: "i64[R]", mode: out}
  y_new: {type: "i64[R, index_shape]", mode: out}
index: {r: R, each_k: index_shape}
let:
  torch: x[r, 0] + device
  x_r_0: x[r, x_value[r]] if cond[r] else torch
  y_taken: sum[each_k](x[r, each_k]) + x[r, 0]
  Tensor: y_taken + r
store:
  y[r]: x_r_0 + Tensor if y_taken > 3 else -1
  y_new[r, each_k]: y_taken + x[r, 0]
""")
    group = group_of(text)
    assert not faults(reference.emit(group).text, *group.lets)
    found = run(
        text,
        x=[[1, 2], [1, 1]],
        x_value=[1, 7],
        cond=[True, False],
        device=10,
        y=[0, 0],
        y_new=[[0, 0], [0, 0]],
    )
    assert found == {"y": [2 + 4 + 0, -1], "y_new": [[5, 5], [4, 4]]}


def test_a_summary_that_ends_in_a_quote_is_a_docstring() -> None:
    text = text_of(
        GUARDED.replace("A probe.", "Says 'x', or \"x\"")
        + "store: {'y[r]': found, 'z[r]': '1 if a[r] and b[r] else 0'}\n"
    )
    compile(text, "reference", "exec")


# Values.

CHOICE = spec("""
sizes: {C: 0 .. 9, K: 0 .. 9}
tensors:
  b: {type: "i64[C]", optional: true}
  w: i64[K]
  y: {type: "i64[C, K]", mode: out}
index: {c: C, k: K}
store:
  y[c, k]: b[c] if given(b) else w[k]
""")
OPTIONAL = spec("""
sizes: {R: 0 .. 9, N: 0 .. 9}
tensors:
  b: {type: "i64[R]", optional: true}
  t: {type: "i32[N, 2]", optional: true, list: 2}
  x: i64[N]
  y: {type: "i64[R]", mode: out}
  z: {type: "i64[R]", mode: out}
  u: {type: "i64[R]", mode: out}
index: {r: R}
let:
  shared: (x[b[r]] if b[r] >= 0 else b[r] * b[r]) if given(b) else x[0]
store:
  y[r]: shared
  z[r]: shared + i64(given(b))
  u[r]: i64(t[r % 2][0, 1]) if given(t) else -1
""")
LISTS = spec("""
sizes: {R: 0 .. 9, K: 0 .. 9}
scalars: {n: "i32"}
tensors:
  a: {type: "i64[R, K]", list: 2}
  which: i64[R]
  lanes: {type: "i64[R, K]", mode: out}
  summed: {type: "i64[R, K]", mode: out}
  loaded: {type: "i64[R]", mode: out}
  named: {type: "i64[R]", mode: out}
  stored: {type: "i64[K]", list: 2, mode: inout}
index: {r: R, k: K, l: "2"}
store:
  lanes[r, k]: a[k % 2][r, k]
  summed[r, k]: sum[l](a[l][r, k])
  loaded[r]: a[which[r]][r, 0] if which[r] < 2 else -1
  named[r]: a[n][r, 0]
  stored[l][k]: {value: "a[l][0, k]", when: "l == 1"}
""")
EXTENTS = spec("""
sizes: {N: 0 .. 9, K: static 0 .. 4, M: 0 .. 9}
tensors:
  x: i64[N]
  z: i64[M]
  quarters: {type: "i64[(N + 3) // 4]", mode: out}
  least: {type: "i64[min(N, M)]", mode: out}
  chosen: {type: "i64[N if K > 2 else M]", mode: out}
  k: {type: "i64[K]", mode: out}
index: {b: "(N + 3) // 4", i: "min(N, M)", j: N if K > 2 else M, h: "4", q: K}
store:
  quarters[b]: "sum[h](x[b * 4 + h] if b * 4 + h < N else 0)"
  least[i]: x[i] + z[i]
  chosen[j]: j * 2
  k[q]: q
""")
EMPTY = spec("""
sizes: {R: 0 .. 9, C: 0 .. 9, K: static 0 .. 4}
tensors:
  x: i64[C]
  w: i64[R, K]
  d: i64[C]
  y: {type: "i64[R]", mode: out}
  last: {type: "i64[R, K]", mode: out}
  most: {type: "i64[R]", mode: out}
  some: {type: "i64[R]", mode: out}
index: {r: R, c: C, k: K}
store:
  y[r]: sum[c](x[0] * 1)
  last[r, k]: w[r, K - 1]
  most[r]: max[c](x[c])
  some[r]: first[c](x[c] // d[0] > 0, -1)
""")
LONE = spec("""
sizes: {N: 0 .. 9}
scalars: {n: "i64", f: "f32"}
tensors:
  x: i64[N]
  y: {type: "i64[2]", mode: out}
  z: {type: "f32[1]", mode: out}
store:
  y[0]: x[n] if 0 <= n and n < N else -1
  y[1]: n + 1
  z[0]: f
""")
UNSIGNED = spec("""
sizes: {R: 0 .. 9}
tensors:
  x: u8[R]
  y: {type: "u8[R]", mode: out}
  n: {type: "i64[R]", mode: out}
  low: {type: "u8[R]", mode: out}
index: {r: R}
store:
  y[r]: x[r] + 1
  n[r]: i64(min(x[r], 200)) * -1
  low[r]: wrap_u8(x[r] * 3 - 5)
""")
BOUNDS = spec("""
sizes: {A: 0 .. 9, B: 0 .. 9, C: 0 .. 9, D: static 1 .. 4}
tensors:
  x: i64[A, B, C, D]
  y: {type: "i64[A, C, D]", mode: out}
  z: {type: "i64[B, A]", mode: out}
index: {a: A, b: B, c: C, d: D}
let:
  along: cumsum[c](x[a, 0, c, d])
store:
  y[a, c, d]: along - sum[d](x[a, 1, c, d])
  z[b, a]: min[c](max[d](x[a, b, c, d]))
""")
WRAPS = spec("""
sizes: {R: 0 .. 9}
scalars: {n: "i32", wide: "i64"}
tensors:
  x: i32[R]
  y: {type: "i32[R]", mode: out}
  t: {type: "i32[1]", mode: out}
  z: {type: "i64[2]", mode: out}
index: {r: R}
store:
  y[r]: wrap_i32(x[r] * 65537 + n)
  t[0]: wrap_i32(n * n + n)
  z[0]: wide * wide
  z[1]: i64(wrap_i32(wide))
""")
LOW = -(2**63)
ANSWERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a choice of what is given": (CHOICE, {"b": [7, 8], "w": [1, 2, 3]}, {"y": [[7] * 3, [8] * 3]}),
    "a choice of what is left out": (CHOICE, {"C": 2, "w": [1, 2, 3]}, {"y": [[1, 2, 3]] * 2}),
    "a choice of nothing": (CHOICE, {"C": 2, "w": []}, {"y": [[], []]}),
    "optional tensors": (
        OPTIONAL,
        {"b": [1, -3], "t": [[[1, 2]], [[3, 4]]], "x": [10, 20]},
        {"y": [20, 9], "z": [21, 10], "u": [2, 4]},
    ),
    "optional tensors left out": (
        OPTIONAL,
        {"R": 2, "x": [10]},
        {"y": [10, 10], "z": [10, 10], "u": [-1, -1]},
    ),
    "lists": (
        LISTS,
        {"a": [[[1, 2, 3]], [[10, 20, 30]]], "which": [1], "n": 0, "stored": [[5] * 3, [6] * 3]},
        {
            "lanes": [[1, 20, 3]],
            "summed": [[11, 22, 33]],
            "loaded": [10],
            "named": [1],
            "stored": [[5] * 3, [10, 20, 30]],
        },
    ),
    "lists of wild numbers": (
        LISTS,
        {"a": [[[1], [2]], [[3], [4]]], "which": [7, 0], "n": 1, "stored": [[5], [6]]},
        {
            "lanes": [[1], [2]],
            "summed": [[4], [6]],
            "loaded": [-1, 2],
            "named": [3, 4],
            "stored": [[5], [3]],
        },
    ),
    "extents": (
        EXTENTS,
        {"x": [1, 2, 3, 4, 5], "z": [10, 20], "K": 3},
        {"quarters": [10, 5], "least": [11, 22], "chosen": [0, 2, 4, 6, 8], "k": [0, 1, 2]},
    ),
    "other extents": (
        EXTENTS,
        {"x": [], "z": [10, 20], "K": 0},
        {"quarters": [], "least": [], "chosen": [0, 2], "k": []},
    ),
    "empty reductions": (
        EMPTY,
        {"x": [], "w": [[], []], "d": [], "R": 2, "K": 0},
        {"y": [0, 0], "last": [[], []], "most": [LOW, LOW], "some": [-1, -1]},
    ),
    "single extents": (
        EMPTY,
        {"x": [5], "w": [[3]], "d": [2], "R": 1, "K": 1},
        {"y": [5], "last": [[3]], "most": [5], "some": [0]},
    ),
    "nothing to store": (
        EMPTY,
        {"x": [1], "w": [[1, 2]], "d": [1], "R": 0, "K": 2, "C": 1, "last": [[]]},
        {"y": [], "last": [[]], "most": [], "some": []},
    ),
    "no index": (LONE, {"x": [4, 5], "n": 1, "f": 0.5}, {"y": [5, 2], "z": [0.5]}),
    "no index, out of bounds": (
        LONE,
        {"x": [], "n": 2**63 - 1, "f": -1.0},
        {"y": [-1, LOW], "z": [-1.0]},
    ),
    "bytes": (UNSIGNED, {"x": [0, 255]}, {"y": [1, 0], "n": [0, -200], "low": [251, 248]}),
    "four indices": (
        BOUNDS,
        {"x": [[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]]},
        {"y": [[[1 - 11, 2 - 11], [4 - 15, 6 - 15]]], "z": [[2], [6]]},
    ),
    "wrap-around": (
        WRAPS,
        {"x": [2**30, -3], "n": 2**31 - 1, "wide": 2**32 + 5},
        {
            "y": [2**30 + 2**31 - 1 - 2**32, -3 * 65537 + 2**31 - 1],
            "t": [-(2**31)],
            "z": [((2**32 + 5) ** 2) % 2**64, 5],
        },
    ),
}


@pytest.mark.parametrize(("text", "given", "want"), ANSWERS.values(), ids=ANSWERS.keys())
def test_answers(text: str, given: dict[str, Any], want: dict[str, Any]) -> None:
    group = group_of(text)
    assert not faults(reference.emit(group).text, *group.lets, *group.extents)
    blank = {}
    for name, value in want.items():
        blank[name] = given.get(name, torch.zeros_like(torch.tensor(value)).tolist())
    assert run(text, **{**blank, **given}) == want


FLOATS = spec("""
sizes: {R: 0 .. 9, K: static 1 .. 9}
scalars: {e: "f32"}
tensors:
  x: f32[R]
  b: bf16[R]
  w: f32[R, K]
  rounded: {type: "bf16[R]", mode: out}
  number: {type: "bf16[R]", mode: out}
  third: {type: "f32[R]", mode: out}
  mean: {type: "f32[R]", mode: out}
  least: {type: "f32[R]", mode: out}
  minus: {type: "f32[R]", mode: out}
  chosen: {type: "f32[R]", mode: out}
index: {r: R, k: K}
store:
  rounded[r]: b[r] + bf16(1.7)
  number[r]: b[r] * bf16(K)
  third[r]: 3.0 / x[r] + e * e
  mean[r]: sum[k](w[r, k]) / K
  least[r]: min(x[r], -0.0)
  minus[r]: -x[r] * 0.0
  chosen[r]: 0.1 if x[r] > 0.0 else 0.2
""")


def test_floats() -> None:
    torch.manual_seed(3)
    x = torch.cat([torch.randn(500) * 10, torch.tensor([math.nan, 0.0, -0.0, math.inf])])
    b = torch.randn(x.shape).to(torch.bfloat16)
    w = torch.randn(*x.shape, 3)
    names = ("rounded", "number", "third", "mean", "least", "minus", "chosen")
    out = {n: torch.empty_like(b if n in ("rounded", "number") else x) for n in names}
    e = torch.tensor(0.1)
    function_of(group_of(FLOATS))(x=x, b=b, w=w, **out, e=0.1, R=len(x), K=3)
    assert torch.equal(out["rounded"], b + torch.tensor(1.7, dtype=torch.bfloat16))
    assert torch.equal(out["number"], b * 3)
    third = torch.full_like(x, 3.0) / x + e * e
    assert torch.equal(out["third"].view(torch.int32), third.view(torch.int32))
    assert torch.equal(out["mean"], (w[:, 0] + w[:, 2] + w[:, 1]) / torch.tensor(3.0))
    assert out["least"].isnan().tolist() == x.isnan().tolist()
    assert torch.signbit(out["least"][-3:-1]).tolist() == [True, True]
    assert torch.signbit(out["minus"][-3:-1]).tolist() == [True, False]
    assert torch.equal(out["chosen"], torch.where(x > 0, 0.1, 0.2))
    assert "1.703125" in text_of(FLOATS)


# Bounds: checked where the spec reads, and nowhere else.

MUTUAL = spec("""
sizes: {R: 0 .. 9, N: 0 .. 9}
tensors:
  at: i64[R]
  to: i64[R]
  x: i64[N]
  w: i64[N]
  p: bool[R]
  q: bool[R]
  y: {type: "i64[R]", mode: inout}
  z: {type: "i64[R]", mode: inout}
index: {r: R}
let:
  a: x[at[r]]
  b: w[to[r]]
store:
  y[r]: {value: a if b > 0 else 0, when: "p[r]"}
  z[r]: {value: b if a > 0 else 0, when: "q[r]"}
""")
TWO = f"""{GUARDED}store:
  y[r]: found if a[r] else -1
  z[r]: {{value: found * 2, when: "b[r]"}}
"""
DIVIDED = spec("""
sizes: {R: 0 .. 9, N: 0 .. 9}
tensors:
  at: i64[R]
  x: i64[N]
  y: {type: "i64[R]", mode: out}
index: {r: R}
let:
  part: 100 // x[at[r]]
store:
  y[r]: part if at[r] >= 0 else -1
""")
OWN = spec("""
sizes: {R: 0 .. 9, K: static 1 .. 9, N: 0 .. 9}
tensors:
  at: i64[R]
  keep: bool[R, K]
  x: i64[N, K]
  y: {type: "i64[R, K]", mode: out}
index: {r: R, k: K}
let:
  total: sum[k](x[at[r], k])
store:
  y[r, k]: total + k if keep[r, k] else -1
""")
PLACE = spec("""
sizes: {R: 0 .. 9, N: 0 .. 9}
tensors:
  at: i64[R]
  y: {type: "i64[N]", mode: inout}
index: {r: R}
store:
  y[at[r]]: {value: r, when: "at[r] >= 0"}
""")
STATIC = spec("""
sizes: {R: 0 .. 9, K: static 1 .. 9}
tensors:
  x: i64[R, K]
  y: {type: "i64[R]", mode: out}
index: {r: R}
let:
  third: x[r, 3]
store:
  y[r]: third if K > 3 else 0
""")
LISTED = spec("""
sizes: {R: 0 .. 9}
tensors:
  a: {type: "i64[R]", list: 2}
  which: i64[R]
  y: {type: "i64[R]", mode: out}
index: {r: R}
store:
  y[r]: a[which[r]][r]
""")
T, F = True, False
READ = {
    "a let under two guards": (
        TWO,
        {"at": [0, 9, 1, 9], "a": [T, F, F, F], "b": [F, F, T, F], "x": [5, 6]},
        {"y": [5, -1, -1, -1], "z": [0, 0, 12, 0]},
    ),
    "guards that need each other": (
        MUTUAL,
        {
            "at": [0, 9, 1, 9],
            "to": [1, 0, 9, 9],
            "x": [5, -1],
            "w": [-3, 4],
            "p": [T, T, F, F],
            "q": [F, F, T, F],
        },
        {"y": [5, 0, 0, 0], "z": [0, 0, 0, 0]},
    ),
    "a guarded divisor": (DIVIDED, {"at": [0, -1], "x": [7, 0]}, {"y": [14, -1]}),
    "a guarded divisor of an empty tensor": (DIVIDED, {"at": [-1], "x": []}, {"y": [-1]}),
    "a guard that varies with a sum's index": (
        OWN,
        {"at": [0, 7], "keep": [[T, F], [F, F]], "x": [[1, 2]]},
        {"y": [[3, -1], [-1, -1]]},
    ),
    "a guarded place": (PLACE, {"at": [-5, 1], "y": [7, 7]}, {"y": [7, 1]}),
    "a guard of static sizes": (STATIC, {"x": [[1, 2, 3]]}, {"y": [0]}),
    "a list": (LISTED, {"a": [[1, 2], [3, 4]], "which": [1, 0]}, {"y": [3, 2]}),
}
RAISES: dict[str, tuple[str, dict[str, Any], type[Exception]]] = {
    "a let under the first guard": (
        TWO,
        {"at": [9], "a": [T], "b": [F], "x": [5]},
        IndexError,
    ),
    "a let under the second guard": (
        TWO,
        {"at": [-1], "a": [F], "b": [T], "x": [5]},
        IndexError,
    ),
    "guards that need each other": (
        MUTUAL,
        {"at": [9], "to": [0], "x": [5], "w": [1], "p": [T], "q": [F]},
        IndexError,
    ),
    "a divisor of 0": (DIVIDED, {"at": [0], "x": [0]}, ZeroDivisionError),
    "a guard that varies with a sum's index": (
        OWN,
        {"at": [7], "keep": [[F, T]], "x": [[1, 2]]},
        IndexError,
    ),
    "a place": (PLACE, {"at": [2], "y": [7, 7]}, IndexError),
    "a list": (LISTED, {"a": [[1], [3]], "which": [2]}, IndexError),
    "a negative index": (LISTED, {"a": [[1], [3]], "which": [-1]}, IndexError),
}


@pytest.mark.parametrize(("text", "given", "want"), READ.values(), ids=READ.keys())
def test_what_is_not_read_may_be_anywhere(
    text: str, given: dict[str, Any], want: dict[str, Any]
) -> None:
    blank = {
        n: [[0] * len(v[0])] * len(v) if isinstance(v[0], list) else [0] * len(v)
        for n, v in want.items()
    }
    assert run(text, **{**blank, **given}) == want


@pytest.mark.parametrize(("text", "given", "error"), RAISES.values(), ids=RAISES.keys())
def test_what_is_read_must_be_inside(
    text: str, given: dict[str, Any], error: type[Exception]
) -> None:
    group = group_of(text)
    blank = {
        n: [0] * len(given.get("at", given.get("which")))
        for n, t in group.tensors.items()
        if t.written
    }
    if text is OWN:
        blank["y"] = [[0, 0]]
    with pytest.raises(error):
        run(text, **{**blank, **given})


def test_a_watcher_hears_of_exactly_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, list[int], list[bool]]] = []

    def watch(what: str, tensor: torch.Tensor, _: tuple, where: torch.Tensor) -> None:
        heard.append((what, list(tensor.shape), where.tolist()))

    monkeypatch.setattr(_reference.watching, "watch", watch)
    given = {"at": [0, 9, 1], "a": [T, F, F], "b": [F, F, T], "x": [5, 6]}
    found = run(TWO, **given, y=[0, 0, 0], z=[3, 3, 3])
    assert found == {"y": [0, 0, 0], "z": [3, 3, 3]}, "nothing is stored while somebody watches"
    assert heard == [
        ("read", [3], [T, T, T]),  # a
        ("read", [3], [T, T, T]),  # b
        ("read", [3], [T, F, T]),  # at
        ("read", [2], [T, F, T]),  # x
        ("stored", [3], [T, T, T]),
        ("stored", [3], [F, F, T]),
    ]


MANY = int(os.environ.get("KGEN_RANDOM_SPECS", "0"))


def test_wild_specs_raise_exactly_where_they_read_outside() -> None:
    """Without KGEN_RANDOM_SPECS the same few each time; with it so many others."""
    start = random.SystemRandom().randrange(2**32) if MANY else 0
    compared = 0
    for seed in range(start, start + (MANY or 40)):
        wild = wild_specs.Wild(random.Random(seed))
        try:
            group = group_of(wild.text)
        except ValueError:  # a divisor or a number of bytes that the types refuse
            continue
        found = faults(reference.emit(group).text, *group.lets, *group.extents)
        assert not found, f"seed {seed}: {found}\n{wild.text}"
        for _ in range(6):
            world, given = wild.world(), wild.chance.random() < 0.6
            compared += _agree(seed, wild, group, world, given)
    assert compared > 3 * (MANY or 40)


def _agree(
    seed: int, wild: wild_specs.Wild, group: Group, world: dict[str, Any], given: bool
) -> bool:
    """Compare the reference and the oracle; whether there was a value to compare."""
    mine = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in world.items()}
    if "a" in mine:
        mine["a"] = list(mine["a"])
    if "b" in mine and not given:
        mine["b"] = None
    want: Any = None
    try:
        want = spec_oracle.expected(wild.plain(given=given), world)
    except (spec_oracle.WildIndex, ZeroDivisionError) as error:
        want = error
    got: Any = None
    try:
        function_of(group)(**mine)
    except (IndexError, ZeroDivisionError, RuntimeError) as error:
        got = error
    shown = f"seed {seed}: {want!r}, but the reference: {got!r} at {world}, {given}\n{wild.text}"
    assert isinstance(want, Exception) == isinstance(got, Exception), shown
    if isinstance(want, Exception):
        return False
    assert all(torch.equal(mine[name], tensor) for name, tensor in want.items()), shown
    return True
