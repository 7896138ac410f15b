"""A fused group does to the bit what its parts do one after the other; what can't be fused is said.

Many pairs of random specs: `python tests/helpers/random_pairs.py --pairs 2000`.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import fused
import pytest
import random_pairs

from kgen.diagnostics import Report
from kgen.lang.fuse import fuse, without
from kgen.lang.text import spec_text
from kgen.lang.typed import Group, Load, walk

SIZES = {
    "R": "0 .. 100",
    "C": "0 .. 50",
    "K": "static 1 .. 8",
    "N": "1 .. 60",
    "L": "static 1 .. 2",
}
SCALARS = {"s": "{type: i32, values: -9 .. 9}", "off": "{type: i32, values: 0 .. 2}"}
TENSORS = {
    "x": '{type: "i64[R]", values: -9 .. 9}',
    "w": '{type: "i32[R, K]", values: -9 .. 9}',
    "own": '{type: "i64[R]", values: 0 .. N - 1, distinct: true}',
    "at": '{type: "i64[R]", values: 0 .. N - 1}',
    "f": "bool[R]",
    "z": '{type: "i64[C]", values: -9 .. 9}',
    "h": "bf16[R]",
    "n": '{type: "bool[N]", mode: inout}',
    "y": '{type: "i64[R]", mode: out}',
    "y_c": '{type: "i64[C]", mode: out}',
    "y_k": '{type: "i64[R, K]", mode: out}',
    "y_h": '{type: "f32[R]", mode: out}',
    "y_n": '{type: "i64[N]", mode: inout}',
    "rows": '{type: "i64[R]", mode: inout}',
}
INDEX = {"r": "R", "c": "C", "k": "K", "i": "R", "j": "N", "l": "L"}
# A tensor that the first group stores to and the second reads: in all, in parts, more than there are rows.
ALL = '{type: "i64[R]", mode: out}'
SOME = '{type: "i64[R]", mode: inout}'
MORE = '{type: "i64[R + 1]", mode: out}'
PADDED = '{type: "i64[R, K + 2]", mode: inout}'
PLACED = '{type: "i64[N]", mode: inout}'
WIDE = '{type: "i64[R, K]", mode: out}'


def spec(front, name: str, t: str, store: dict[str, str], **more) -> str:
    """A spec's text; `t` declares the tensor in between."""
    tables = {"sizes": SIZES, "scalars": SCALARS, "index": INDEX} | more
    when, tensors = tables.pop("when", ""), TENSORS | tables.pop("tensors", {})
    text = front.spec(tensors=tensors | {"t": t}, store=store, **tables)
    text = text.replace("group: probe", f"group: {name}")
    return text + (f"when: {when}\n" if when else "")


def pair(front, t: str, one: dict, two: dict, **more) -> tuple[list[Group], Report]:
    """Two typed groups: the second reads `t`, unless it stores to it or its keywords say more."""
    stored = any(place.startswith("t[") for place in two)
    read = t.replace("mode: out", "mode: inout" if stored else "mode: in")
    read = read if stored else read.replace("mode: inout", "mode: in")
    first = {key[4:]: value for key, value in more.items() if key.startswith("one_")}
    second = {key[4:]: value for key, value in more.items() if key.startswith("two_")}
    report = Report()
    texts = spec(front, "one", first.pop("t", t), one, **first)
    groups = fused.typed(report, texts, spec(front, "two", second.pop("t", read), two, **second))
    assert not report.diagnostics, report.render()
    return groups, report


def compared(groups: list[Group], whole: Group, *through: str, worlds: int = 6) -> None:
    """Hold a fused group's kernel, run in its form, against its parts."""
    report = Report()
    parts, one = [fused.made(group, report) for group in groups], fused.made(whole, report)
    assert not report.diagnostics, report.render()
    with fused.readings(one, parts, *through) as both:
        changes = 0
        for seed in range(worlds):
            found, changed = both.differences(seed, ["form"])
            assert not found, "\n".join(found)
            changes += changed
        assert changes


# What becomes of reads: the tensor in between, what the first group stores, what the second stores, and the
# texts of the lets that are made for reads.
READS: dict[str, tuple[str, dict[str, str], dict[str, str], dict[str, str]]] = {
    "the same index": (ALL, {"t[r]": "x[r] + 1"}, {"y[r]": "t[r] * 2"}, {}),
    "an index of another name": (ALL, {"t[r]": "x[r] + 1"}, {"y[i]": "t[i] * 2"}, {}),
    "a reduction": (WIDE, {"t[r, k]": "w[r, k]"}, {"y[r]": "sum[k](t[r, k])"}, {}),
    "under a guard": (
        ALL,
        {"t[r]": "x[r] * 2"},
        {"y[r]": "t[r - 1] if r > 0 else 0"},
        {"r_at": "r - 1", "t_stored_at": "x[r_at] * 2"},
    ),
    "an offset, and a piece of its own": (
        MORE,
        {"t[0]": "i64(s)", "t[r + 1]": "x[r] + 1"},
        {"y[r]": "t[r + 1] - t[r]"},
        {"t_read": "t_stored if r == 0 else t_stored_2_at"},
    ),
    "a place that is chosen, past the end of an index for one": (
        MORE,
        {"t[r]": "x[r] + 1", "t[R]": "i64(s)"},
        {"y_k[r, k]": "t[r if k == 0 else R]"},
        {"t_read": "t_stored if k == 0 else t_stored_2"},
    ),
    "a number known before the launch": (
        PADDED,
        {"t[r, k + off]": "w[r, k]"},
        {"y_k[r, k]": "t[r, k] + t[r, k + 1]"},
        {"t_read": "t_stored_at if 0 <= k_at and k_at < K else t[r, k]"},
    ),
    "less a number": (PADDED, {"t[r, k - (off - 2)]": "w[r, k]"}, {"y_k[r, k]": "t[r, k]"}, {}),
    "where it is stored": (
        SOME,
        {"t[r]": '{value: "x[r]", when: "f[r]"}'},
        {"y[r]": "t[r]"},
        {"t_read": "t_stored if f[r] else t[r]"},
    ),
    "a condition that is asked only inside": (
        PADDED,
        {"t[r, k + 1]": '{value: "w[r, k]", when: "w[r, k] > 0"}'},
        {"y_k[r, k]": "t[r, k]"},
        {
            "t_read": "(t_stored_at if w[r, k_at] > 0 else t[r, k]) if 0 <= k_at and k_at < K else t[r, k]"
        },
    ),
    "a place that is stored to as it is read": (
        PLACED,
        {"t[own[r]]": "x[r]"},
        {"y[r]": "t[own[r]] + 1"},
        {},
    ),
    "any place": (
        '{type: "i64[N]", mode: out}',
        {"t[j]": "j * 2", "n[0]": "N > 3"},
        {"y[r]": "t[at[r]] + 1"},
        {"t_stored_at": "j_at * 2", "j_at": "at[r]"},
    ),
    "a reduction over what the place varies with": (
        ALL,
        {"t[r]": "sum[k](w[r, k])"},
        {"y[r]": "sum[k](t[k] * w[r, k] if k < R else 0)"},
        {"t_stored_at": "sum[k_at](i64(w[k, k_at]))"},
    ),
    "sums of earlier rows": (
        ALL,
        {"t[r]": "prefix[r](x[r])"},
        {"y[r]": "prefix[r](t[r]) + t[R - 1]"},
        {},
    ),
    "a running sum": (WIDE, {"t[r, k]": "cumsum[k](w[r, k])"}, {"y[r]": "sum[k](t[r, k])"}, {}),
    "a number that is rounded": (
        '{type: "bf16[R]", mode: out}',
        {"t[r]": "bf16(0.1)", "rows[r]": "x[r]"},
        {"y_h[r]": "f32(t[r] * t[r]) * 0.1"},
        {"t_stored": "0.10009765625"},
    ),
    "rounded on its way": (
        '{type: "bf16[R]", mode: out}',
        {"t[r]": "bf16(f32(h[r]) * 1.7)"},
        {"y_h[r]": "f32(t[r]) * 0.1"},
        {},
    ),
    "the second stores wherever the first does": (
        SOME,
        {"t[r]": '{value: "x[r]", when: "f[r]"}'},
        {"t[r]": "t[r] + 1"},
        {},
    ),
    "the second stores to a place that the first leaves out": (
        MORE.replace("out", "inout"),
        {"t[0]": "1", "rows[r]": "x[r]"},
        {"t[1]": '{value: "t[0]", when: "R > 0"}', "y[r]": "x[r]"},
        {},
    ),
    "the second stores to what the first reads": (
        SOME,
        {"rows[r]": "t[r]", "y[r]": "rows[r]"},
        {"t[r]": "x[r] + 1"},
        {},
    ),
    "both update it": (SOME, {"t[r]": "t[r] + x[r]"}, {"t[r]": "min(t[r], 3) * 2"}, {}),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_becomes_what_was_stored(front, name: str) -> None:
    t, one, two, lets = READS[name]
    first = {"one_t": "i64[R]"} if not any(place.startswith("t[") for place in one) else {}
    groups, report = pair(front, t, one, two, **first)
    whole = fuse(*groups, report)
    assert whole is not None, report.render()
    texts = {name: let.text for name, let in whole.lets.items()}
    assert {name: texts.get(name) for name in lets} == lets
    compared(groups, whole)


def test_what_passes_between_may_be_dropped(front) -> None:
    groups, report = pair(front, ALL, {"t[r]": "x[r] + 1"}, {"y[r]": "t[r] * 2"})
    whole = fuse(*groups, report, name="whole", through=("t",))
    assert whole is not None, report.render()
    assert list(whole.tensors) == ["x", "y"]
    compared(groups, whole, "t")


def test_names_that_clash_are_told_apart(front) -> None:
    groups, report = pair(
        front,
        WIDE,
        {"t[r, k]": "same + other"},
        {"y[r]": "same * other", "y_c[k]": "z[k] + k"},
        one_let={"same": "x[r] + 1", "other": "w[r, k]"},
        two_let={"same": "x[r] + 1", "other": "t[r, 0]"},
        two_index={"k": "C", "r": "R"},
    )
    whole = fuse(*groups, report)
    assert whole is not None, report.render()
    texts = {name: let.text for name, let in whole.lets.items()}
    assert texts == {
        "same": "x[r] + 1",
        "other": "w[r, k]",
        "t_stored": "same + i64(other)",
        "other_at": "w[r, i64(0)]",
        "t_stored_at": "same + i64(other_at)",
    }
    assert {n: spec_text(e).text for n, e in whole.extents.items()} == {
        "r": "R",
        "k": "K",
        "k_2": "C",
    }
    compared(groups, whole)


def test_a_let_may_be_called_as_a_tensor_of_the_other_group(front) -> None:
    groups, report = pair(
        front,
        ALL,
        {"t[r]": "other + 1"},
        {"y_c[c]": "other[c]", "y[r]": "t[r]"},
        one_let={"other": "x[r] * 2"},
        two_tensors={"other": "i64[C]"},
    )
    whole = fuse(*groups, report)
    assert whole is not None, report.render()
    assert whole.lets["other_2"].text == "x[r] * 2"
    compared(groups, whole)


def test_three_groups(front) -> None:
    report = Report()
    some, read = '{type: "i64[R]", mode: inout}', "i64[R]"
    texts = [
        spec(front, "one", some, {"t[r]": '{value: "x[r]", when: "f[r]"}'}),
        spec(front, "two", read, {"rows[r]": "t[r] + prefix[r](x[r])"}),
        spec(front, "three", some, {"t[r]": "t[r] + rows[r]"}, tensors={"rows": read}),
    ]
    groups = fused.typed(report, *texts)
    whole = fuse(*groups[:2], report, name="both")
    whole = fuse(whole, groups[2], report, name="whole") if whole is not None else None
    assert whole is not None, report.render()
    compared(groups, whole)


def test_a_chain_of_groups_grows_by_what_each_adds(front) -> None:
    report, texts = Report(), []
    for at in range(10):
        value = f"min(t{at - 1}[r], 9) + min(t{at - 1}[r], {at})" if at else "x[r]"
        tensors = {f"t{at}": ALL, f"t{at - 1}": "i64[R]"}
        texts.append(spec(front, f"g{at}", ALL, {f"t{at}[r]": value}, tensors=tensors))
    whole, *rest = fused.typed(report, *texts)
    for at, group in enumerate(rest, 1):
        whole = fuse(whole, group, report)
        assert whole is not None, report.render()
        assert len(whole.lets) == at


# Declarations.


def test_the_stricter_range_holds(front) -> None:
    groups, report = pair(
        front,
        ALL,
        {"t[r]": "x[r] + s"},
        {"y[r]": "x[r] + s + t[r]", "y_n[0]": "1"},
        one_sizes=SIZES | {"R": "2 .. 80"},
        one_scalars={"s": "{type: i32, values: 0 .. R, default: 1}"},
        one_tensors={"x": '{type: "i64[R]", values: 0 .. 9, layout: any}'},
        two_sizes=SIZES | {"R": "1 .. N"},
        two_scalars={"s": "{type: i32, values: -5 .. 70, default: 1}"},
        two_tensors={"x": '{type: "i64[R]", values: -5 .. 5, distinct: true}'},
    )
    whole = fuse(*groups, report)
    assert whole is not None, report.render()
    assert whole.sizes["R"].text == "2 .. min(80, N)"
    assert whole.scalars["s"].text == "i32 0 .. min(R, 70)"
    x = whole.tensors["x"]
    assert (x.values_text, x.distinct, x.layout) == ("0 .. 5", True, "rows")
    compared(groups, whole)


@pytest.mark.parametrize(
    "one, two, both",
    [
        ("R > 0", "R > 0", "R > 0"),
        ("R > 0", "", "R > 0"),  # the second one stores only where r has a value
        ("R > 1", "", ""),
        ("R > 2", "s > 3", "2 < R or 3 < s"),
    ],
)
def test_launches(front, one: str, two: str, both: str) -> None:
    groups, report = pair(
        front,
        SOME,
        {"t[r]": '{value: "x[r] + s", when: "f[r]"}'},
        {"y_n[own[r]]": "t[r] + s"},
        one_when=one,
        two_when=two,
    )
    whole = fuse(*groups, report)
    assert whole is not None, report.render()
    assert whole.when_text.replace("R > 2", "2 < R").replace("s > 3", "3 < s") == both
    compared(groups, whole, worlds=12)


def test_a_tensor_that_one_of_the_groups_needs_is_given(front) -> None:
    groups, report = pair(
        front,
        ALL,
        {"t[r]": "x[r] + 1"},
        {"y[r]": "t[r] if given(t) else 5", "y_k[r, k]": "8 if given(t) and w[r, k] > 0 else s"},
        two_t='{type: "i64[R]", optional: true}',
    )
    whole = fuse(*groups, report)
    assert whole is not None, report.render()
    assert not whole.tensors["t"].optional
    assert "given" not in "".join(store.value_text for store in whole.stores)
    compared([groups[0], given(groups[1], "t")], whole)


def test_a_tensor_that_a_group_is_not_given(front) -> None:
    groups, report = pair(
        front,
        ALL,
        {"t[r]": "x[r] + 1"},
        {"y[r]": "(x[r] if given(x) else 7) + t[r]", "y_k[r, k]": "w[r, k] if not given(x) else 3"},
        two_tensors={"x": '{type: "i64[R]", values: -9 .. 9, optional: true}'},
    )
    second = without(groups[1], {"x"})
    assert "x" not in second.tensors
    whole = fuse(groups[0], second, report)
    assert whole is not None, report.render()
    assert "x" in whole.tensors
    compared([groups[0], second], whole)


def given(group: Group, name: str) -> Group:
    """A group whose optional tensor is always there."""
    tensor = replace(group.tensors[name], optional=False)
    return replace(group, tensors=group.tensors | {name: tensor})


def test_what_is_stored_only_where_the_first_group_stored_reads_nothing_old(front) -> None:
    groups, report = pair(
        front,
        SOME,
        {"t[r]": '{value: "x[r] * 3", when: "f[r]"}'},
        {"rows[r]": '{value: "t[r] + 1", when: "f[r] and x[r] > 0"}', "y[r]": "x[r]"},
    )
    whole = fuse(*groups, report)
    assert whole is not None, report.render()
    stored = next(store for store in whole.stores if store.tensor == "rows")
    loads = {each.tensor for each in walk(stored.value, whole.lets) if isinstance(each, Load)}
    assert loads == {"x"}
    compared(groups, whole)


@pytest.mark.parametrize(("kept", "fits"), [("static 1 .. 9", True), ("static 3 .. 9", False)])
def test_a_size_that_one_of_the_groups_derives(front, kept: str, fits: bool) -> None:
    groups, report = pair(
        front,
        ALL,
        {"t[r]": "x[r] + 1", "y_k[r, k]": "w[r, k] + 1"},
        {"wide[r, j]": "t[r] + v[r, j]"},
        one_sizes=SIZES | {"J": "K + 1"},
        one_tensors={"y_k": '{type: "i64[R, J]", mode: inout}'},
        two_sizes=SIZES | {"J": kept},
        two_tensors={
            "v": '{type: "i64[R, J]", values: -9 .. 9}',
            "wide": '{type: "i64[R, J]", mode: out}',
        },
        two_index=INDEX | {"j": "J"},
    )
    whole = fuse(*groups, report)
    assert (whole is not None) == fits
    if whole is not None:
        assert whole.sizes["J"].derived is not None
        compared(groups, whole)


# What can't be fused: the two groups, and the message.

REFUSED: dict[str, tuple[str, dict[str, str], dict[str, str], dict, str]] = {
    "two points may store there": (
        PLACED,
        {"t[at[r]]": '{value: "x[r]", collide: first r}'},
        {"y[r]": "t[at[r]]"},
        {},
        "`t[at[r]]` may be where `t[at[r]]` has stored, and kgen can't tell by which point",
    ),
    "a place through a load": (
        PLACED,
        {"t[own[r]]": "x[r]"},
        {"y[r]": "t[at[r]]"},
        {},
        "`t[at[r]]` may be where `t[own[r]]` has stored, and kgen can't tell by which point",
    ),
    "a place with a factor": (
        '{type: "i64[2 * R]", mode: inout}',
        {"t[2 * r + 1]": "x[r]"},
        {"y[r]": "t[r]"},
        {},
        "`t[r]` may be where `t[2 * r + 1]` has stored, and kgen can't tell by which point",
    ),
    "a scan": (
        WIDE,
        {"t[r, k]": "cumsum[k](w[r, k])"},
        {"y[r]": "t[r, K - 1]"},
        {},
        "`t[r, K - 1]` needs what `t[r, k]` stores at other indices, and `cumsum[k]` runs along one of them",
    ),
    "a scan over what moves": (
        WIDE,
        {"t[r, k]": "cumsum[k](w[r, k])"},
        {"y_k[r, k]": "t[r - k, k] if r >= k else 0"},
        {},
        "`t[r - k, k]` needs what `t[r, k]` stores at other indices, and `cumsum[k]` runs along one of them",
    ),
    "a list": (
        '{type: "i64[R]", mode: inout, list: L}',
        {"t[l][r]": '{value: "x[r]", when: "f[r]"}'},
        {"t[0][r]": '{value: "x[r]", when: "f[r]"}'},
        {},
        "`t[0, r]` may be where `t[l, r]` has stored",
    ),
    "both store, one of them sometimes": (
        SOME,
        {"t[r]": "x[r]"},
        {"t[r]": '{value: "x[r] + 1", when: "f[r]"}'},
        {},
        "`t[r]` may be where `t[r]` has stored",
    ),
    "both store to places through loads": (
        PLACED,
        {"t[0]": "1"},
        {"t[own[r]]": "x[r]"},
        {"one_tensors": {"n": '{type: "bool[N]", mode: inout}'}},
        "`t[0]` may be where `t[own[r]]` has stored, and kgen can't tell by which point",
    ),
    "one place for several points": (
        ALL,
        {"t[r]": "3", "rows[r]": "x[r]"},
        {"y_n[clamp(t[r], 0, N - 1)]": '{value: "x[r]", collide: first r}'},
        {},
        (
            "`y_n[clamp(t[r], 0, N - 1)]` would be one place for several points, since what the first group "
            "stores does not vary with all of their indices"
        ),
    ),
    "a size and a scalar": (
        ALL,
        {"t[r]": "x[r] + s"},
        {"y[r]": "t[r] + (q[0] if s > 0 else 0)"},
        {"two_sizes": SIZES | {"s": "0 .. 9"}, "two_scalars": {}, "two_tensors": {"q": "i64[s]"}},
        "`s` is the size 0 .. 9 here and the scalar i32 -9 .. 9 in the first group",
    ),
    "types of a tensor": (
        ALL,
        {"t[r]": "x[r]"},
        {"y[r]": "i64(t[r])"},
        {"two_t": "i32[R]"},
        "`t` is the tensor i32[R] here and the tensor i64[R] in the first group",
    ),
    "dimensions of a tensor": (
        ALL,
        {"t[r]": "x[r]"},
        {"y_c[c]": "t[c]"},
        {"two_t": "i64[C]"},
        "`t` is the tensor i64[C] here and the tensor i64[R] in the first group",
    ),
    "a static size": (
        WIDE,
        {"t[r, k]": "w[r, k]"},
        {"y[r]": "t[r, 0]"},
        {"two_sizes": SIZES | {"K": "1 .. 8"}},
        "`K` is the size 1 .. 8 here and the size static 1 .. 8 in the first group",
    ),
    "types of a scalar": (
        ALL,
        {"t[r]": "x[r] + s"},
        {"y[r]": "t[r] + s"},
        {"two_scalars": {"s": "{type: i64, values: 0 .. 9}"}},
        "`s` is the scalar i64 0 .. 9 here and the scalar i32 -9 .. 9 in the first group",
    ),
    "ranges that go round": (
        ALL,
        {"t[r]": "x[r]", "y_c[c]": "z[c]"},
        {"y[r]": "t[r] + (z[0] if C > 0 else 0)"},
        {"one_sizes": SIZES | {"C": "0 .. R"}, "two_sizes": SIZES | {"R": "0 .. C"}},
        "the ranges of `C`, `R` would depend on each other",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_fused(front, name: str) -> None:
    t, one, two, more, message = REFUSED[name]
    groups, report = pair(front, t, one, two, **more)
    assert fuse(*groups, report) is None
    (found,) = report.diagnostics
    assert (found.code, found.message) == ("cannot-fuse", message)
    assert found.help
    assert found.span.file.endswith(".yaml")


DROPS = {
    "x": "`x` can't be dropped: the first group does not store to it",
    "rows": "`rows` can't be dropped: the second group stores to it, too",
    "t": "`t` can't be dropped: what it held before the two groups is read",
    "y_k": "no tensor that is left has the size `K`",
}


@pytest.mark.parametrize("name, message", DROPS.items())
def test_what_cannot_be_dropped(front, name: str, message: str) -> None:
    store = {"t[r]": '{value: "x[r]", when: "f[r]"}', "rows[r]": "x[r]", "y_k[r, k]": "r * K + k"}
    groups, report = pair(front, SOME, store, {"y[r]": "t[r]", "rows[r]": "x[r] + 1"})
    assert fuse(*groups, report, through=(name,)) is None
    assert [each.message for each in report.diagnostics] == [message]


# Random pairs.

outcomes: Counter[str] = Counter()
SEEDS = range(int(os.environ.get("KGEN_RANDOM_PAIRS", "24")))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_pairs_agree(seed: int) -> None:
    outcomes[random_pairs.outcome(seed, 1, ["form", "kernel", "reference"])] += 1


def test_many_random_pairs_can_be_fused() -> None:
    if not outcomes:
        pytest.skip("the random pairs ran elsewhere")
    assert outcomes["fused"] >= sum(outcomes.values()) // 4, outcomes
