"""Places: each stored once, an `out` tensor filled, nobody reading what another program may have written.

Tables say what is accepted and what is refused; for random places, what is accepted is then tried number
by number.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgen.diagnostics import Report
from kgen.lang.text import spec_text
from kgen.lang.typed import Group, Load, Store, Value, walk
from kgen.plan.plan import make_plan
from kgen.prove.places import check_places
from kgen.prove.prove import prove
from kgen.prove.reading import Reading

# P has room for every place that is stored to.
SIZES = {
    "R": "0 .. 300",
    "C": "1 .. 5000",
    "Q": "static 1 .. 12",
    "W": "static 1 .. 7",
    "P": "1 .. 2**30",
    "slots": "1 .. 301",
}
TENSORS = {
    "x": "i64[R]",
    "shape": "i64[C, Q, W, P, slots]",
    "cells": "i64[R, C]",
    "perm": '{type: "i64[R]", values: 0 .. P - 1, distinct: true}',
    "slot": '{type: "i64[R]", values: 0 .. slots - 1, distinct: except slots - 1}',
    "any_of": '{type: "i64[R]", values: 0 .. P - 1}',
    "places": '{type: "i64[P]", mode: inout}',
    "pairs": '{type: "i64[P, P]", mode: inout}',
    "state": '{type: "i64[R]", mode: inout}',
    "other": '{type: "i64[R]", mode: inout}',
    "rows": '{type: "i64[R, Q]", mode: inout}',
    "wide": '{type: "i64[R, C]", mode: inout}',
    "sums": '{type: "i64[R]", mode: out}',
    "by_slot": '{type: "i64[slots]", mode: inout}',
}
INDEX = {"r": "R", "c": "C", "j": "Q", "w": "W"}
# Part of every spec, so that each size can be read off a tensor.
BASE = {"sums[r]": "x[r] + shape[0, 0, 0, 0, 0]"}


def spec_of(front, store: dict[str, str], let: dict[str, str] | None = None, **tensors: str) -> str:
    """A spec of some stores, with tensors of its own."""
    return front.spec(
        sizes=SIZES,
        scalars={"first_row": "{type: i64, values: 0 .. P - R}"},
        tensors=TENSORS | tensors,
        index=INDEX,
        let=let,
        store=BASE | store,
    )


# Collisions of a store with itself.

APART = [
    "places[r]",
    "places[r + 7]",
    "places[first_row + r]",
    "places[3 * r + 1]",
    "places[R - 1 - r]",
    "places[r * Q + j]",
    "places[j + Q * r]",
    "places[j * R + r]",
    "places[(r * Q + j) * W + w]",
    "places[r * (Q * W) + j * W + w]",
    "places[first_row * Q + r * Q + j]",
    "places[perm[r]]",
    "places[perm[r] + 3]",
    "places[2 * perm[r]]",
    "places[perm[first_row]]",
    "by_slot[slot[r]]",
    "pairs[r, j]",
    "pairs[j, r]",
    "pairs[r, r + j]",
    "pairs[perm[r], j]",
    "pairs[x[0], r]",
]
TOGETHER = {
    "places[r // 2]": "r",
    "places[r % 7]": "r",
    "places[min(r, 5)]": "r",
    "places[r * r]": "r",
    "places[any_of[r]]": "r",
    "places[x[0] * r]": "r",
    "places[r + j]": "j, r",
    "places[r * Q + j + w]": "j, r, w",
    "places[r * W + j]": "j, r",
    "places[r * Q + 2 * j]": "j, r",
    "places[r * (Q - 1) + j]": "j, r",
    "places[(r * Q + j) * Q + w]": "j, r, w",
    "places[perm[r] + j]": "j, r",
    "places[perm[r // 2]]": "r",
    "places[perm[r] // 2]": "r",
    "places[perm[r] - r]": "r",
    "pairs[r // 2, r]": "",
    "pairs[r // 2, r % 2]": "r",
    "pairs[r + j, r + 2 * j]": "j, r",
    "pairs[r, any_of[j]]": "j",
}


@pytest.mark.parametrize(
    "place", [*APART, *(place for place, names in TOGETHER.items() if not names)]
)
def test_a_place_of_one_point_is_accepted(front, place: str) -> None:
    assert front.found(spec_of(front, {place: "7"})) == []


@pytest.mark.parametrize("place", [place for place, names in TOGETHER.items() if names])
def test_a_place_of_several_points_is_refused(front, place: str) -> None:
    _, report = front.read(spec_of(front, {place: "7"}))
    (found,) = report.diagnostics
    assert found.code == "collision"
    named = ", ".join(f"`{name}`" for name in TOGETHER[place].split(", "))
    assert found.message == f"`{place}` may be one place for several values of {named}"


@pytest.mark.parametrize(
    "place",
    [
        "places[i64(u8(r))]",
        "places[u8(r) + r * 0]",
        "places[i64(u8(r * Q + j))]",
        "places[perm[u8(r)]]",
    ],
)
def test_an_index_that_loses_bits_is_not_its_own(front, place: str) -> None:
    assert [code for code, _ in front.found(spec_of(front, {place: "7"}))] == ["collision"]


def test_the_value_that_may_repeat_is_undefined(front) -> None:
    group = front.group(spec_of(front, {"by_slot[slot[r]]": "x[r]"}))
    (undefined,) = check_places(Reading(group), Report())
    assert undefined.target == "by_slot[slot[r]]"
    assert (spec_text(undefined.load).text, spec_text(undefined.repeats).text) == (
        "slot[r]",
        "slots - 1",
    )
    group = front.group(spec_of(front, {"places[perm[r]]": "x[r]"}))
    assert check_places(Reading(group), Report()) == ()


def test_a_value_that_is_not_there_does_not_repeat(front) -> None:
    """More elements than values: there is no such call, so none is an example."""
    text = front.spec(
        sizes={"R": "1 .. 2"},
        tensors={
            "slot": '{type: "i64[R + 1]", values: 0 .. R - 1, distinct: except R}',
            "y": '{type: "i64[R]", mode: inout}',
        },
        index={"r": "R"},
        store={"y[slot[r // 2]]": "r"},
    )
    (found,) = front.read(text)[1].ordered()
    assert found.code == "collision"
    assert found.example is None


def test_the_value_that_may_repeat_is_undefined_behind_another_table(front) -> None:
    table = '{type: "i64[slots]", values: 0 .. P - 1, distinct: true}'
    group = front.group(spec_of(front, {"places[table[slot[r]]]": "x[r]"}, table=table))
    (undefined,) = check_places(Reading(group), Report())
    assert undefined.target == "places[table[slot[r]]]"
    assert spec_text(undefined.load).text == "slot[r]"


# Collisions of two stores.


@pytest.mark.parametrize(
    "one, other",
    [
        ("places[r]", "places[R]"),
        ("places[r]", "places[R + 3]"),
        ("places[r + 1]", "places[0]"),
        ("places[r]", "places[R + j]"),
        ("places[j]", "places[Q + r]"),
        ("places[0]", "places[1]"),
        ("pairs[r, 0]", "pairs[r, 1]"),
        ("pairs[r, j]", "pairs[r, Q]"),
        ("pairs[r, j]", "pairs[R, j]"),
        ("places[first_row + r]", "places[first_row + R]"),
    ],
)
def test_stores_to_places_apart_are_accepted(front, one: str, other: str) -> None:
    assert front.found(spec_of(front, {one: "7", other: "8"})) == []
    assert front.found(spec_of(front, {other: "7", one: "8"})) == []


@pytest.mark.parametrize(
    "one, other",
    [
        ("places[r]", "places[0]"),
        ("places[r]", "places[R - 1]"),
        ("places[r]", "places[j]"),
        ("places[r]", "places[first_row]"),
        ("places[r]", "places[perm[r]]"),
        ("places[2 * r]", "places[2 * r + perm[0]]"),
        ("pairs[r, j]", "pairs[r, 0]"),
        ("pairs[r, 0]", "pairs[0, j]"),
        ("places[r]", "places[r + 1]"),
        ("places[r]", "places[r + Q]"),
        ("places[r * Q + j]", "places[r * Q + j + 1]"),
        ("pairs[r, 0]", "pairs[r + 1, 0]"),
    ],
)
def test_stores_that_may_meet_are_refused(front, one: str, other: str) -> None:
    spec = spec_of(front, {one: "7", other: "8"})
    assert front.found(spec) == [("collision", other)]


# Filling an `out` tensor.


@pytest.mark.parametrize(
    "dims, stores",
    [
        ("R", ["r"]),
        ("R + 1", ["r", "R"]),
        ("R + 1", ["R", "r"]),
        ("R + 1", ["0", "r + 1"]),
        ("R + 2", ["r", "R", "R + 1"]),
        ("R + Q", ["r", "R + j"]),
        ("R + Q", ["j", "Q + r"]),
        ("R * Q", ["r * Q + j"]),
        ("R * Q * W", ["(r * Q + j) * W + w"]),
        ("2", ["0", "1"]),
        ("R, Q", ["r, j"]),
        ("Q, R", ["j, r"]),
        ("R, Q + 1", ["r, j", "r, Q"]),
        ("R + 1, Q", ["r, j", "R, j"]),
        ("R, 2", ["r, 0", "r, 1"]),
        ("R, C", ["r, c"]),
        ("R, 1", ["r, 0"]),
    ],
)
def test_a_filled_tensor_is_accepted(front, dims: str, stores: list[str]) -> None:
    filled = f'{{type: "i64[{dims}]", mode: out}}'
    spec = spec_of(front, {f"filled[{place}]": "7" for place in stores}, filled=filled)
    assert front.found(spec) == []


GAPS = [
    ("R + 1", ["r"]),
    ("R", ["r + 1"]),
    ("R + 1", ["r + 1"]),
    ("R + 2", ["r", "R + 1"]),
    ("R * Q", ["r"]),
    ("R * W", ["r * Q + j"]),
    ("R", ["perm[r]"]),
    ("R", ["R - 1 - r"]),
    ("R", ["first_row + r"]),
    ("Q", ["r"]),
    ("R, Q", ["r, 0"]),
    ("R, R", ["r, r"]),
    ("R, Q + 1", ["r, j"]),
    ("R + 1, Q + 1", ["r, j", "R, Q"]),
    ("R, 3", ["r, 0", "r, 2"]),
]


@pytest.mark.parametrize("dims, stores", GAPS)
def test_a_gap_is_refused(front, dims: str, stores: list[str]) -> None:
    filled = f'{{type: "i64[{dims}]", mode: out}}'
    spec = spec_of(front, {f"filled[{place}]": "7" for place in stores}, filled=filled)
    assert [code for code, _ in front.found(spec)] == ["partly-stored"]
    kept = filled.replace("out", "inout")
    assert (
        front.found(spec_of(front, {f"filled[{place}]": "7" for place in stores}, filled=kept))
        == []
    )


def test_a_conditional_store_fills_nothing(front) -> None:
    filled = '{type: "i64[R]", mode: out}'
    spec = spec_of(front, {"filled[r]": '{value: "7", when: "r >= 0"}'}, filled=filled)
    assert [code for code, _ in front.found(spec)] == ["partly-stored"]


def test_an_index_that_loses_bits_fills_nothing(front) -> None:
    filled = '{type: "i64[R]", mode: out}'
    spec = spec_of(front, {"filled[i64(u8(r))]": "7"}, filled=filled)
    assert "partly-stored" in [code for code, _ in front.found(spec)]


# Races: the places that are read of what is written.


@pytest.mark.parametrize(
    "store",
    [
        {"state[r]": "state[r] + 1"},
        {"state[r]": "x[max(r - 1, 0)]"},
        {"by_slot[slot[r]]": "by_slot[slot[r]] + 1"},
        {"places[first_row + r]": "2 * places[first_row + r]"},
        {"rows[r, j]": "rows[r, 0] + rows[r, Q - 1 - j]"},
        {"rows[r, 0]": "sum[j](rows[r, j])"},
        {"rows[r, j]": "cumsum[j](rows[r, j])"},
        {"wide[r, c]": "wide[r, c] + 1"},
        {"state[r]": "other[r]", "other[r]": "state[r]"},
        {"state[r]": "state[r] + 1", "rows[r, j]": "state[r] + j"},
        {"state[r]": "state[r] + 1", "wide[r, c]": "state[r] + c"},
        {"state[r]": "prefix[r](x[r])"},
        {"state[r]": "state[r] + sum[c](cells[r, c])"},
        {"wide[r, c]": "sum[c](wide[r, c])"},
        {"state[r]": "1", "rows[0, 0]": "sum[r](state[r])"},
    ],
    ids=str,
)
def test_a_program_that_reads_its_own_places_is_accepted(front, store: dict[str, str]) -> None:
    assert front.found(spec_of(front, store)) == []


@pytest.mark.parametrize(
    "store, marked",
    [
        ({"state[r]": "state[max(r - 1, 0)] + 1"}, "state[r]"),
        ({"state[r]": "state[0]"}, "state[r]"),
        ({"state[r]": "state[R - 1 - r]"}, "state[r]"),
        ({"state[r]": "state[perm[r]]"}, "state[r]"),
        ({"by_slot[slot[r]]": "by_slot[slot[0]]"}, "by_slot[slot[r]]"),
        ({"by_slot[slot[r]]": "by_slot[r]"}, "by_slot[slot[r]]"),
        ({"places[r]": "places[first_row + r]"}, "places[r]"),
        ({"rows[r, j]": "rows[max(r - 1, 0), j]"}, "rows[r, j]"),
        ({"wide[r, c]": "wide[r, 0]"}, "wide[r, c]"),
        ({"state[r]": "prefix[r](state[r]) + 1"}, "state[r]"),
        ({"state[r]": "prefix[r](2 * state[r] + x[r])"}, "state[r]"),
        ({"state[r]": "1", "other[r]": "state[max(r - 1, 0)]"}, "state[r]"),
        ({"state[r]": "1", "other[r]": "prefix[r](state[r])"}, "state[r]"),
        ({"state[r]": "x[r]", "rows[r, j]": "x[r] if state[0] > j else 0"}, "state[r]"),
        (
            {"state[r]": "x[r]", "by_slot[slot[r]]": '{value: "7", when: "state[0] > 3"}'},
            "state[r]",
        ),
    ],
    ids=str,
)
def test_a_race_is_refused(front, store: dict[str, str], marked: str) -> None:
    assert front.found(spec_of(front, store)) == [("race", marked)]


def test_a_race_through_lets_is_refused(front) -> None:
    let = {"before": "max(r - 1, 0)", "old": "state[before]", "new": "old + 1"}
    assert front.found(spec_of(front, {"state[r]": "new"}, let)) == [("race", "state[r]")]
    let["before"] = "r"
    assert front.found(spec_of(front, {"state[r]": "new"}, let)) == []


@pytest.mark.parametrize(
    "store, program, laid",
    [
        ({"rows[r, j]": "rows[r, j] + 1"}, "[r, j]", "r j"),
        ({"rows[r, j]": "rows[r, 0] + 1"}, "[r]", "r"),
        ({"lists[l][r]": "lists[l][r] + 1"}, "", "l r"),
        ({"lists[l][r]": "lists[0][r] + 1"}, "", "r"),
        ({"large[r, j, d]": "large[r, 0, d]"}, "", "r"),
        ({"large[r, j, d]": "large[r, j, 0]"}, "", "r j"),
        ({"lists[l][r]": "lists[l][max(r - 1, 0)]"}, "", "race"),
        ({"rows[r, j]": "rows[r, 0] + 1"}, "[r, j]", "bad-schedule"),
    ],
    ids=str,
)
def test_programs_over_static_indices(
    front, store: dict[str, str], program: str, laid: str
) -> None:
    """A static index is one of the programs' if a list, the schedule or a large extent makes it one.

    It stays inside a program, as lanes, where a point reads what another value of the index stores.
    """
    spec = front.spec(
        sizes=SIZES | {"L": "static 1 .. 5", "D": "static 1 .. 3000"},
        tensors=TENSORS
        | {
            "more": "i64[L, D]",
            "lists": '{type: "i64[R]", list: L, mode: inout}',
            "large": '{type: "i64[R, Q, D]", mode: inout}',
        },
        index=INDEX | {"l": "L", "d": "D"},
        store=BASE | {"sums[r]": "x[r] + shape[0, 0, 0, 0, 0] + more[0, 0]"} | store,
    )
    spec += f"schedule: {{program: {program}}}\n" if program else ""
    group, report = front.typed(spec)
    assert group is not None
    proved = prove(group, report)
    plan = make_plan(proved, report) if proved is not None else None
    if plan is None:
        assert [each.code for each in report.diagnostics] == [laid]
        return
    (role,) = (
        each
        for each in plan.roles
        if any(s.tensor in spec and s.tensor in next(iter(store)) for s in each.stores)
    )
    assert {axis.index for axis in role.program} == {*laid.split()}


# Winners: of the points that store to one place, one does.


@pytest.mark.parametrize(
    "place, collide, code",
    [
        ("places[r // 2]", "first r", None),
        ("places[any_of[r]]", "last r", None),
        ("places[r % 7]", "last r", None),
        ("pairs[r // 2, j]", "first r", None),
        ("pairs[r, any_of[first_row] + j // 2]", "first j", None),
        ("places[r]", "first r", None),
        ("places[r // 2 + j]", "first r", "collision"),
        ("pairs[r // 2, j // 2]", "first r", "collision"),
        ("places[j // 2]", "first r", "not-an-index"),
        ("places[r // 2]", "any r", "bad-choice"),
        ("places[r // 2]", "first", "bad-choice"),
    ],
)
def test_a_winner_is_named(front, place: str, collide: str, code: str | None) -> None:
    spec = spec_of(front, {place: f'{{value: "x[0]", collide: {collide}}}'})
    assert [found for found, _ in front.found(spec)] == ([code] if code else [])


def test_the_other_point_has_no_name_of_the_spec(front, machine) -> None:
    store = {"places[r // 2]": '{value: "r + r_other", collide: first r}'}
    group = front.group(
        front.spec(
            sizes=SIZES,
            scalars={"r_other": "i64"},
            tensors=TENSORS,
            index=INDEX,
            store=BASE | store,
        )
    )
    at = machine(group, {"R": 5, "Q": 1, "r_other": 3}, {})
    condition = group.stores[-1].when
    assert [at.at(condition, {"r": r}) for r in range(5)] == [1, 0, 1, 0, 1]


def test_a_reason_takes_the_place_of_a_proof(front) -> None:
    store = {"places[r // 2]": '{value: "7", trusted: every second row is dead}'}
    assert front.found(spec_of(front, store)) == []
    store["places[r // 3]"] = store["places[r // 2]"]
    assert front.found(spec_of(front, store)) == []
    store["places[r // 3]"] = "8"
    assert {code for code, _ in front.found(spec_of(front, store))} == {"collision"}


# Random places, number by number.

TERMS = ["r", "r", "r", "j", "j", "2 * r", "3 * j", "r * Q", "r * Q", "j * R", "R", "Q", "1", "7"]
TERMS += [
    "first_row",
    "perm[r]",
    "2 * perm[r]",
    "R - 1 - r",
    "r // 2",
    "r % 3",
    "min(r, 2)",
    "x[0]",
]
PLACES = st.lists(st.sampled_from(TERMS), min_size=1, max_size=3).map(" + ".join)


def machines(machine, group: Group | None) -> Iterator[object]:
    """An accepted group with small sizes and several contents."""
    if group is not None:
        tables = {
            each.tensor
            for store in group.stores[1:]
            for each in parts(store)
            if isinstance(each, Load)
        }
        # Without rows there is no x[0].
        for rows, width in itertools.product((1, 2, 5) if "x" in tables else (0, 1, 2, 5), (1, 3)):
            for first_row, x, perm in ((0, 2, [0, 1, 2, 3, 4]), (4, 0, [3, 0, 8, 1, 6])):
                params = {"R": rows, "Q": width, "first_row": first_row}
                yield machine(group, params, {"perm": perm[:rows], "x": [x] * rows})


def parts(store: Store) -> Iterator[Value]:
    """What the place and the value of a store are made of."""
    return itertools.chain.from_iterable(walk(each, {}) for each in (*store.items, store.value))


def points(at, store: Store) -> list[dict[str, int]]:
    """Every point of a store's indices."""
    names = sorted(store.axes)
    extents = [range(at.extent(name)) for name in names]
    return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*extents)]


def place(at, items: tuple[Value, ...], point: dict[str, int]) -> tuple[int, ...]:
    """The place of a store or a load at a point."""
    return tuple(at.at(item, point) for item in items)


def accepted(front, text: str) -> Group | None:
    """The group if nothing is wrong with it; a refusal is always right."""
    group, report = front.read(text)
    assert {each.code for each in report.diagnostics} <= {
        "collision",
        "free-index",
        "partly-stored",
        "race",
    }
    return None if report.diagnostics else group


def stored(at, tensor: str) -> list[tuple[int, ...]]:
    """The place of each store to a tensor at each of its points."""
    stores = [each for each in at.group.stores if each.tensor == tensor]
    return [place(at, each.items, point) for each in stores for point in points(at, each)]


SEARCH = settings(deadline=None, derandomize=True, max_examples=150)


@SEARCH
@given(item=PLACES)
def test_no_two_points_store_to_one_place(front, machine, item: str) -> None:
    group = accepted(front, spec_of(front, {f"places[{item}]": "7"}))
    for at in machines(machine, group):
        found = stored(at, "places")
        assert len(found) == len(set(found)), (at.params, at.tensors)


@SEARCH
@given(items=st.tuples(PLACES, PLACES))
def test_no_two_points_store_to_one_pair(front, machine, items: tuple[str, str]) -> None:
    group = accepted(front, spec_of(front, {f"pairs[{', '.join(items)}]": "7"}))
    for at in machines(machine, group):
        found = stored(at, "pairs")
        assert len(found) == len(set(found)), (at.params, at.tensors)


@SEARCH
@given(
    item=PLACES,
    keep=st.sampled_from(["first", "last"]),
    index=st.sampled_from(["r", "r", "j"]),
    condition=st.sampled_from(["r >= 0", "r > 1", "perm[r] != 1", "j != 1 or r < 2"]),
)
def test_one_point_wins_each_place(
    front, machine, item: str, keep: str, index: str, condition: str
) -> None:
    if {"r": "j", "j": "r"}[index] in re.findall(r"\w+", item):
        return  # both at once: see ALONG
    entry = f'{{value: "7", when: "asked", collide: {keep} {index}}}'
    text = spec_of(front, {f"places[{item}]": entry}, {"asked": condition})
    group, report = front.read(text)
    codes = {each.code for each in report.diagnostics}
    assert codes <= {"collision", "free-index", "not-an-index", "unused"}
    group = None if codes else group
    for at in machines(machine, group):
        store = next(each for each in group.stores if each.tensor == "places")
        asked: dict[tuple[int, ...], list[int]] = {}
        won: dict[tuple[int, ...], list[int]] = {}
        for point in points(at, store):
            here = place(at, store.items, point)
            if at.at(group.lets["asked"].value, point):
                asked.setdefault(here, []).append(point[index])
            if at.at(store.when, point):
                won.setdefault(here, []).append(point[index])
        best = {here: [min(all_) if keep == "first" else max(all_)] for here, all_ in asked.items()}
        assert won == best, (at.params, at.tensors)


# How many places, and the terms that run over as many.
SPANS = {"R": "r", "Q": "j", "R * Q": "r * Q + j", "1": "0"}
SPOILT = ["r", "j", "2 * r", "r + 1", "R - 1 - r", "perm[r]", "r * Q", "R + r", "r // 2"]


@st.composite
def fillings(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A dimension and the places that fill it, one after the other; or nearly so."""
    lengths = draw(st.lists(st.sampled_from([*SPANS]), min_size=1, max_size=3))
    items = [" + ".join([*lengths[:number], SPANS[each]]) for number, each in enumerate(lengths)]
    if draw(st.booleans()):
        items[draw(st.integers(0, len(items) - 1))] = draw(st.sampled_from(SPOILT))
    if draw(st.integers(0, 4)) == 0:
        lengths.append("1")
    return " + ".join(lengths), draw(st.permutations(items))


@SEARCH
@given(filling=fillings())
def test_no_two_stores_meet(front, machine, filling: tuple[str, list[str]]) -> None:
    _, items = filling
    group = accepted(front, spec_of(front, {f"places[{item}]": "7" for item in items}))
    for at in machines(machine, group):
        found = stored(at, "places")
        assert len(found) == len(set(found)), (at.params, at.tensors)


@SEARCH
@given(filling=fillings())
def test_every_place_of_an_out_tensor_is_stored(
    front, machine, filling: tuple[str, list[str]]
) -> None:
    dim, items = filling
    filled = f'{{type: "i64[{dim}]", mode: out}}'
    group = accepted(
        front, spec_of(front, {f"filled[{item}]": "7" for item in items}, filled=filled)
    )
    for at in machines(machine, group):
        size = at.at(group.tensors["filled"].dims[0], {})
        assert set(stored(at, "filled")) >= {(each,) for each in range(size)}, (
            at.params,
            at.tensors,
        )


@SEARCH
@given(written=PLACES, read=PLACES)
def test_no_program_reads_what_another_writes(front, machine, written: str, read: str) -> None:
    summed = "j" in read and "j" not in written
    value = f"sum[j](places[{read}])" if summed else f"places[{read}] + 1"
    group = accepted(front, spec_of(front, {f"places[{written}]": value}))
    for at in machines(machine, group):
        store = next(each for each in group.stores if each.tensor == "places")
        load = next(
            each
            for each in walk(store.value, {})
            if isinstance(each, Load) and each.tensor == "places"
        )
        writer = {place(at, store.items, point): point.get("r") for point in points(at, store)}
        for point in points(at, store):
            for j in range(at.extent("j")) if summed else (point.get("j", 0),):
                reader = point.get("r")
                read_at = place(at, load.items, {**point, "j": j})
                assert writer.get(read_at, reader) == reader, (at.params, at.tensors, point)
