"""The generated tests' random inputs, by kind of fault: they keep what a spec trusts, reach what is optional, and
leave out what is undefined and nothing else.

Each spec is built, and its generated tests are run with the kernel's memory watched, so that an index that is
trusted to be inside is.
"""

from __future__ import annotations

import building
import pytest
import torch
from interpreter_memory import watched

KINDS = {
    # Loads, places and arithmetic that are trusted.
    "next_token": """
        sizes: {R: 0 .. 100, N: 1 .. 64}
        tensors:
          tok: i64[R, N]
          len: {type: "i32[R]", values: 0 .. N}
          y: {type: "i64[R]", mode: out}
        index: {r: R}
        store: {"y[r]": "tok[r, len[r]]"}
        trusted:
          tok[r, len[r]]: a prompt leaves room for one token
    """,
    "ragged": """
        sizes: {R: 0 .. 100, K: static 1 .. 8, total: 0 .. 800}
        tensors:
          n: {type: "i64[R]", values: 0 .. K}
          x: i32[R, K]
          flat: {type: "i32[total]", mode: inout}
        index: {r: R, k: K}
        let: {start: "prefix[r](n[r])"}
        store:
          flat[start + k]: {value: "x[r, k]", when: "k < n[r]", trusted: rows follow each other}
        trusted:
          flat[start + k]: total is the sum of n
    """,
    "squares": """
        sizes: {R: 0 .. 100}
        tensors:
          a: i32[R]
          b: {type: "i64[R]", values: 0 ..}
          y: {type: "i32[R]", mode: out}
          z: {type: "i32[R]", mode: out}
        index: {r: R}
        store:
          y[r]: a[r] * a[r] + 1
          z[r]: i32(b[r])
        trusted:
          a[r] * a[r]: numbers are small
          a[r] * a[r] + 1: numbers are small
          i32(b[r]): counts are small
    """,
    "sums": """
        sizes: {R: 0 .. 40, C: 0 .. 30}
        tensors:
          n: {type: "i64[R, C]", values: "0 .. 2**62"}
          byte: u8[C]
          y: {type: "i64[R]", mode: out}
          z: {type: "u8[C]", mode: out}
        index: {r: R, c: C}
        store:
          y[r]: sum[c](n[r, c])
          z[c]: byte[c] + byte[0]
        trusted:
          sum[c](n[r, c]): counts are small
          byte[c] + byte[0]: so are these
    """,
    "chained": """
        sizes: {R: 0 .. 40, P: 1 .. 20, Q: 1 .. 20}
        tensors:
          request: i64[R]
          page: i32[P]
          x: f32[Q]
          y: {type: "f32[R]", mode: out}
        index: {r: R}
        let: {at: "i64(page[request[r]]) - 7"}
        store: {"y[r]": "x[at]"}
        trusted:
          page[request[r]]: requests have pages
          x[at]: pages are inside
    """,
    "lists": """
        sizes: {R: 0 .. 40, N: 1 .. 30, L: static 1 .. 3}
        scalars: {base: {type: i64, values: "0 .. 2**40"}}
        tensors:
          which: i64[R]
          at: {type: "i64[R]", values: -3 ..}
          tables: {type: "i32[N]", list: L}
          y: {type: "i32[R]", mode: out}
        index: {r: R}
        store: {"y[r]": "tables[which[r]][at[r] + base]"}
        trusted:
          tables[which[r]][at[r] + base]: known
    """,
    "guarded": """
        sizes: {R: 0 .. 40, N: 1 .. 30}
        tensors:
          on: bool[R]
          x: f32[R]
          at: i64[R]
          y: {type: "i32[N]", mode: inout}
        index: {r: R}
        store:
          y[at[r]]: {value: "i32(r)", when: "on[r] and x[r] > 0.0", trusted: no two are at one place}
        trusted:
          y[at[r]]: places are inside
    """,
    # Places that are trusted to be apart.
    "pages": """
        sizes: {R: 0 .. 40, W: static 1 .. 6, P: 1 .. 20, S: 1 .. 12, D: static 1 .. 5}
        tensors:
          page: {type: "i64[R, W]", values: -1 .. P - 1}
          offset: {type: "i32[R, W]", values: 0 .. S - 1}
          x: bf16[R, W, D]
          pool: {type: "bf16[P, S, D]", mode: inout}
        index: {r: R, j: W, d: D}
        store:
          pool[page[r, j], offset[r, j], d]:
            {value: "x[r, j, d]", when: "page[r, j] >= 0", trusted: places are given out once}
    """,
    "layers": """
        sizes: {R: 0 .. 40, P: 1 .. 20, L: static 1 .. 3}
        tensors:
          page: {type: "i64[R]", values: 0 .. P - 1}
          x: f32[L, R]
          pool: {type: "f32[P]", mode: inout, list: L}
        index: {l: L, r: R}
        store:
          pool[l][page[r]]: {value: "x[l, r]", trusted: pages are given out once}
    """,
    "two_stores": """
        sizes: {R: 0 .. 20, N: 1 .. 60}
        tensors:
          a: {type: "i64[R]", values: 0 .. N - 1}
          b: {type: "i64[R]", values: 0 .. N - 1}
          y: {type: "i64[N]", mode: inout}
        index: {r: R}
        store:
          y[a[r]]: {value: r, trusted: all of them differ}
          y[b[r]]: {value: 100 + r, trusted: all of them differ}
    """,
    "running": """
        sizes: {R: 0 .. 20, C: 0 .. 20, N: 1 .. 90}
        tensors:
          m: {type: "i32[C]", values: 0 .. 9}
          z: {type: "i32[R, N]", mode: inout}
        index: {r: R, c: C}
        store:
          z[r, cumsum[c](m[c])]: {value: "m[c]", trusted: each is at least 1}
        trusted:
          z[r, cumsum[c](m[c])]: they fit
    """,
    # Optional tensors: with strides, in lists, several, with sizes of their own.
    "optional_rows": """
        sizes: {R: 0 .. 50, K: static 1 .. 8}
        tensors:
          x: i64[R, K]
          b: {type: "i64[R, K]", optional: true}
          y: {type: "i64[R, K]", mode: out}
        index: {r: R, k: K}
        store: {"y[r, k]": "b[r, k] if given(b) else x[r, k]"}
    """,
    "optional_any": """
        sizes: {A: 0 .. 20, B: 0 .. 20, C: 0 .. 5}
        tensors:
          x: {type: "i32[A, B, C]", layout: any}
          b: {type: "i32[C, B, A]", optional: true, layout: any}
          y: {type: "i32[A, B, C]", mode: out}
        index: {i: A, j: B, k: C}
        store: {"y[i, j, k]": "b[k, j, i] if given(b) else x[i, j, k]"}
    """,
    "optional_two": """
        sizes: {A: 0 .. 20, B: 0 .. 20}
        tensors:
          x: f32[A, B]
          b: {type: "f32[B, A]", optional: true, layout: any}
          c: {type: "f32[A, B]", optional: true}
          y: {type: "f32[A, B]", mode: out}
        index: {a: A, k: B}
        store:
          y[a, k]: x[a, k] + (b[k, a] if given(b) else 0.25) + (c[a, k] if given(c) else 0.5)
    """,
    "optional_list": """
        sizes: {R: 0 .. 50, L: static 1 .. 4}
        tensors:
          x: i64[R]
          b: {type: "i64[R, 3]", optional: true, list: L}
          c: {type: "i64[R, 3]", list: L}
          y: {type: "i64[L, R]", mode: out}
        index: {l: L, r: R}
        store: {"y[l, r]": "(b[l][r, 1] if given(b) else x[r]) + c[l][r, 0]"}
    """,
    "optional_size": """
        sizes: {S: 0 .. 50}
        tensors:
          x: i64[S]
          bias: {type: "i64[S]", optional: true}
          y: {type: "i64[1]", mode: out}
        index: {s: S}
        store: {"y[0]": "sum[s](x[s] + (bias[s] if given(bias) else 0))"}
    """,
    "optional_sizes": """
        sizes: {S: 0 .. 50, T: 0 .. 50}
        tensors:
          x: i64[S, T]
          rows: {type: "i64[S]", optional: true}
          columns: {type: "i64[T]", optional: true}
          y: {type: "i64[1]", mode: out}
        index: {s: S, t: T}
        let:
          of_row: rows[s] if given(rows) else s
          of_column: columns[t] if given(columns) else t
        store: {"y[0]": "sum[s, t](x[s, t] + of_row + of_column)"}
    """,
    "square": """
        sizes: {S: 0 .. 20}
        tensors:
          x: i64[S, S]
          y: {type: "i64[max(S, 3)]", mode: inout}
        index: {s: S}
        store: {"y[s]": "x[s, s] + 1"}
    """,
    # The value that may repeat is not one that an element may be.
    "repeats_outside": """
        sizes: {R: 0 .. 20}
        tensors:
          slot: {type: "i64[R]", values: 0 .. R - 1, distinct: except -1}
          y: {type: "i64[R]", mode: inout}
        index: {r: R}
        store: {"y[slot[r]]": "r"}
    """,
}


def built(name: str, folder, kind: str):
    """The case of a group and its package's `_testing`."""
    text = KINDS[kind] if kind in KINDS else UNDEFINED[kind][0]
    lines = [line.removeprefix("        ") for line in text.strip("\n").split("\n")]
    building.package(folder, name, "\n".join([f"group: {kind}", "summary: A kind.", *lines]))
    return building.case(name, "pk", kind), building.testing(name, "pk")


@pytest.fixture
def made(tmp_path):
    """Builds a kind."""
    names = []

    def make(kind: str):
        names.append(f"inputs_{kind}_{len(names)}")
        return built(names[-1], tmp_path / names[-1], kind)

    yield make
    for name in names:
        building.unload(name)


@pytest.mark.parametrize("kind", KINDS)
def test_generated_tests_pass_and_stay_in_their_memory(made, kind, device):
    case, testing = made(kind)
    testing.check(watched(case), device)
    testing.check_refusals(case, device)


@pytest.mark.parametrize("kind", ["optional_rows", "optional_list", "optional_two", "ragged"])
def test_generated_operators_pass(made, kind, device):
    case, testing = made(kind)
    testing.check_operator(case, device)


def test_what_is_trusted_holds_of_the_numbers_themselves(made):
    """Not only for the reference that the inputs are made with."""
    case, testing = made("ragged")
    for seed in range(24):
        given = testing.draw(case, seed).arguments()
        assert int(given["n"].sum()) <= len(given["flat"]) or not given["n"].numel()
    case, testing = made("squares")
    for seed in range(24):
        given = testing.draw(case, seed).arguments()
        assert ((given["a"].double() ** 2 + 1) < 2**31).all()
        assert (given["b"] < 2**31).all()
    case, testing = made("pages")
    stored = 0
    for seed in range(24):
        given = testing.draw(case, seed).arguments()
        used = given["page"] >= 0
        places = (given["page"] * given["pool"].shape[1] + given["offset"])[used]
        assert places.unique().numel() == places.numel()
        stored += places.numel()
    assert stored > 100


def test_a_promise_that_no_input_keeps_fails_the_test_by_name(tmp_path, device):
    text = """\
group: liar
summary: Reads past the end.
sizes: {R: 1 .. 100, N: 1 .. 64}
tensors:
  tok: i64[R, N]
  y: {type: "i64[R]", mode: out}
index: {r: R}
store: {"y[r]": "tok[r, N]"}
trusted:
  tok[r, N]: there is one more
"""
    building.package(tmp_path, "inputs_liar", text)
    case, testing = (
        building.case("inputs_liar", "pk", "liar"),
        building.testing("inputs_liar", "pk"),
    )
    words = r"liar: no random inputs keep what the spec trusts \(`tok\[r, N\]`: there is one more\)"
    with pytest.raises(AssertionError, match=words):
        testing.check(case, device)
    building.unload("inputs_liar")


# What is undefined.

UNDEFINED = {
    # The text of a spec; what its page says; the written tensors whose last row is left out, and where from.
    "guarded_float": (
        """
        sizes: {R: 0 .. 50, N: 1 .. 60}
        tensors:
          at: {type: "i64[R]", values: -1 .. N - 1, distinct: except -1}
          x: f32[R]
          y: {type: "f32[N]", mode: inout}
        index: {r: R}
        store:
          y[at[r]]: {value: "x[r] + 1.0", when: "at[r] >= 0"}
        """,
        [],
    ),
    "guarded_last": (
        """
        sizes: {R: 0 .. 50, N: 1 .. 60}
        tensors:
          at: {type: "i64[R]", values: 0 .. N - 1, distinct: except N - 1}
          y: {type: "i64[N]", mode: inout}
        index: {r: R}
        store:
          y[at[r]]: {value: "y[at[r]] + 1", when: "at[r] < N - 1"}
        """,
        [],
    ),
    "guarded_list": (
        """
        sizes: {R: 0 .. 50, N: 1 .. 60, L: static 1 .. 3}
        tensors:
          at: {type: "i32[R]", values: -1 .. N - 1, distinct: except -1}
          x: f16[R]
          ys: {type: "f16[N]", mode: inout, list: L}
        index: {l: L, r: R}
        let: {place: "at[r]"}
        masks: {real: place >= 0}
        store:
          ys[l][place]: {value: "x[r]", when: real}
        """,
        [],
    ),
    "moved": (
        """
        sizes: {R: 0 .. 50, N: 1 .. 60}
        tensors:
          at: {type: "i64[R]", values: -1 .. N - 2, distinct: except -1}
          x: bf16[R]
          y: {type: "bf16[N]", mode: inout}
        index: {r: R}
        store: {"y[at[r] + 1]": "x[r]"}
        """,
        ["`y[at[r] + 1]` where `at[r]` is `-1`"],
    ),
    "read_back": (
        """
        sizes: {R: 0 .. 50, N: 1 .. 60, L: static 1 .. 3}
        tensors:
          at: {type: "i64[R]", values: 0 .. N - 1, distinct: except N - 1}
          x: i32[L, R]
          ys: {type: "i32[N]", mode: inout, list: L}
          z: {type: "i32[L, R]", mode: out}
        index: {l: L, r: R}
        store:
          ys[l][at[r]]: x[l, r]
          z[l, r]: ys[l][at[r]]
        """,
        ["`ys[l][at[r]]` where `at[r]` is `N - 1`"],
    ),
    "one_stores": (
        """
        sizes: {R: 0 .. 50, N: 1 .. 60, K: static 1 .. 4}
        tensors:
          at: {type: "i64[R]", values: 0 .. N - 1, distinct: except N - 1}
          live: bool[R]
          x: f32[R, K]
          y: {type: "f32[N, K]", mode: inout}
          z: {type: "f32[R, K]", mode: out}
        index: {r: R, k: K}
        store:
          y[at[r], k]: {value: "x[r, k] + y[at[r], k]", when: "live[r]"}
          z[r, k]: y[at[r], k]
        """,
        ["`y[at[r], k]` where `at[r]` is `N - 1`"],
    ),
    "told_apart": (
        """
        sizes: {R: 0 .. 50, N: 1 .. 60}
        tensors:
          at: {type: "i64[R]", values: 0 .. N - 1, distinct: except N - 1}
          y: {type: "i64[N, R]", mode: inout}
        index: {r: R}
        store: {"y[at[r], r]": "r"}
        """,
        [],
    ),
}


@pytest.mark.parametrize("kind", UNDEFINED)
def test_what_is_undefined_is_left_out_and_nothing_else(made, kind, device):
    case, testing = made(kind)
    testing.check(watched(case), device)
    _, told = UNDEFINED[kind]
    left_out = 0
    for seed in range(24):
        start = testing.draw(case, seed)
        given, masks = start.arguments(), testing.undefined(case, start)
        left_out += sum(int(mask.sum()) for mask in masks.values())
        for name, places in case.shared(given, start.values).items():
            shape = given[name].shape if torch.is_tensor(given[name]) else given[name][0].shape
            rows = {place // shape[1:].numel() % shape[0] for place in places}
            # The place of the value that repeats: the dummy row, or the first one.
            assert rows <= {0 if kind == "moved" else shape[0] - 1}, name
    assert bool(left_out) == bool(told)


@pytest.mark.parametrize("kind", UNDEFINED)
def test_the_page_names_places_that_are_stored_to(made, kind, tmp_path):
    made(kind)
    (page,) = tmp_path.glob("*/out/pk/docs/*.md")
    _, told = UNDEFINED[kind]
    section = page.read_text().partition("Undefined:")[2].partition("##")[0]
    assert [line for line in section.split("\n") if line.startswith("- ")] == [
        f"- {what}: several rows may share that place, so what it ends up holding is undefined, and so is "
        "what those rows read there"
        for what in told
    ]


def test_the_rows_of_a_race_see_what_another_stores(made):
    """What a shared row reads is either what was there or what another one stores: both are left out."""
    case, testing = made("read_back")
    shown = 0
    for seed in range(48):
        start = testing.draw(case, seed)
        given = start.arguments()
        last = len(given["ys"][0]) - 1
        rows = given["at"] == last
        if int(rows.sum()) < 2:
            continue
        masks, view = testing.undefined(case, start), start.buffers["z"][0].view
        mask = masks["z", 0].as_strided(view.size(), view.stride(), view.storage_offset())
        assert mask[:, rows].all()
        assert not mask[:, ~rows].any()
        shown += 1
    assert shown > 3
