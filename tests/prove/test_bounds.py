"""A load that is shown to be in its tensor is that at every point, for every size and value that is declared."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgen.lang.typed import Group, Load
from kgen.prove.reading import Reading

SIZES = {"R": "0 .. 300", "S": "1 .. 300", "Q": "static 1 .. 12", "P": "R .. 4096", "T": "3 .. 300"}
SCALARS = {
    "first_row": "{type: i64, values: 0 .. P - R}",
    "page": "{type: static, values: 1 .. 12}",
    "delta": '{type: i64, values: "-2 .. 2"}',
    "many": "{type: i32, values: 2**30 .. 2**31 - 1}",
}
TENSORS = {
    "shape": "i64[R, S, Q, P, T]",
    "table": '{type: "i64[R]", values: 0 .. P - 1}',
    "steps": '{type: "i64[R]", values: 0 .. Q}',
    "out": '{type: "i64[R, Q, T]", mode: out}',
}
INDEX = {"r": "R", "j": "Q", "t": "T"}


def group_of(front, dim: str, item: str) -> Group:
    """A group whose let `probe` reads a tensor of these dimensions at this place."""
    spec = front.spec(
        sizes=SIZES,
        scalars=SCALARS,
        tensors=TENSORS | {"data": f"i64[{dim}]"},
        index=INDEX,
        let={"probe": f"data[{item}]"},
        store={"out[r, j, t]": "probe + shape[0, 0, 0, 0, 0]"},
    )
    group, report = front.typed(spec)
    assert not report.diagnostics, report.render() + spec
    return group


def load_of(group: Group) -> Load:
    load = group.lets["probe"].value
    assert isinstance(load, Load)
    return load


def inside(group: Group) -> bool:
    """Whether kgen shows the load to be in bounds."""
    load, reading = load_of(group), Reading(group)
    known = [*reading.declared(load.items), *(reading.last(index) for index in sorted(load.axes))]
    facts = reading.numbers.facts((condition, None) for condition in known)
    return all(reading.numbers.shows(goal, facts) is not None for goal in reading.room(load))


def machines(machine, group: Group, text: str) -> Iterator[object]:
    """The group with small sizes and the ends of what is declared, as far as the text uses them."""
    words = set(re.findall(r"\w+", text))

    def some(name: str, *values: int) -> tuple[int, ...]:
        return values if name in words else values[-1:]

    for rows, width, slots in itertools.product((0, 1, 4), (1, 3), some("S", 1, 2, 5)):
        for places in some("P", rows, rows + 3) if words & {"P", "table", "first_row"} else (rows,):
            for first, delta, turns, page, many, entry, step in itertools.product(
                some("first_row", 0, places - rows),
                some("delta", -2, 0, 2),
                some("T", 3, 5),
                some("page", 1, 3, 5),
                some("many", 2**30, 2**31 - 1),
                some("table", 0, places - 1),
                some("steps", 0, width),
            ):
                params = {"R": rows, "S": slots, "Q": width, "P": places, "T": turns}
                params |= {"first_row": first, "delta": delta}
                tensors = {"table": [entry] * rows, "steps": [step] * rows}
                yield machine(group, params | {"page": page, "many": many}, tensors)


def stays_inside(machine, group: Group, text: str) -> bool:
    """Whether the load is in bounds at every point that is tried."""
    load = load_of(group)
    names = sorted(load.axes)
    for at in machines(machine, group, text):
        for chosen in itertools.product(*(range(at.extent(name)) for name in names)):
            point = dict(zip(names, chosen, strict=True))
            for item, dim in zip(load.items, group.tensors["data"].dims, strict=True):
                if not 0 <= at.at(item, point) < at.at(dim, {}):
                    return False
    return True


SHOWN = [
    ("R", "r"),
    ("R + 1", "r"),
    ("R + 1", "r + 1"),
    ("R", "R - 1 - r"),
    ("P", "first_row + r"),
    ("P", "table[r]"),
    ("P + 1", "table[r] + 1"),
    ("S", "0"),
    ("S", "S - 1"),
    ("Q", "j"),
    ("Q + 1", "steps[r]"),
    ("R * Q", "r * Q + j"),
    ("R, Q", "r, j"),
    ("S", "max(min(r + j, S - 1), 0)"),
    ("S", "clamp(table[r], 0, S - 1)"),
    ("S", "table[r] % S"),
    ("R", "r // 2"),
    ("Q", "max(steps[r] - 1, 0)"),
    ("Q", "min(steps[r], Q - 1)"),
    ("Q", "first[j](steps[r] > j, 0)"),
    ("P", "table[r] if r > 1 else first_row + r"),
    ("S + 1", "(r // 2) * 2 - r + 1"),
    ("T", "(2 * T - 2 * t - 2) // 2"),
]
NOT_INSIDE = [
    ("R", "r + 1"),
    ("R", "r - 1"),
    ("R", "0"),
    ("R", "r + j"),
    ("R", "table[r]"),
    ("P", "table[r] + 1"),
    ("P", "table[r] - 1"),
    ("P", "first_row + R"),
    ("Q", "steps[r]"),
    ("Q", "steps[r] - 1"),
    ("R * Q", "r * Q + j + 1"),
    ("R, Q", "r, steps[r]"),
    ("S", "min(r, S)"),
    ("S", "max(r, 0)"),
    ("S", "table[r] % (S + 1)"),
    ("S", "table[r] // page"),
    ("Q", "first[j](steps[r] > j, Q)"),
    ("P", "table[r] if r > 1 else R + r"),
    ("S", "(r // 2) * 2 - r"),
    ("T + 1", "(2 * T - 2 * t + 2) // 2"),
    ("P * 2 + 3", "table[r] * delta"),
]


@pytest.mark.parametrize("dim, item", SHOWN)
def test_what_is_shown(front, machine, dim: str, item: str) -> None:
    group = group_of(front, dim, item)
    assert inside(group)
    assert stays_inside(machine, group, f"{dim} {item}")


@pytest.mark.parametrize("dim, item", NOT_INSIDE)
def test_what_is_not_inside(front, machine, dim: str, item: str) -> None:
    group = group_of(front, dim, item)
    assert not inside(group)
    assert not stays_inside(machine, group, f"{dim} {item}"), "the case itself is wrong"


@pytest.mark.parametrize(
    "dim, item",
    [
        ("S", "min(many + many, S - 1)"),
        ("S", "min(many * 2, S - 1)"),
        ("S", "clamp(u8(-1 - r), 0, S)"),
    ],
)
def test_an_index_that_wraps_around_is_not_shown(front, machine, dim: str, item: str) -> None:
    group = group_of(front, dim, item)
    assert not stays_inside(machine, group, f"{dim} {item}"), "the case itself is wrong"
    assert not inside(group)


@st.composite
def items(draw: st.DrawFn, depth: int = 2) -> str:
    """An index made of a few names."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from("r r r j j table[r] steps[r] first_row R S Q P 0 1 2".split()))
    forms = [
        "{} + {}",
        "({}) - ({})",
        "({}) * 2",
        "({}) * Q",
        "min({}, {})",
        "max({}, {})",
        "max({}, 0)",
    ]
    forms += ["({}) // page", "({}) // 2", "({}) % S", "({}) % 3", "({}) if r > 1 else ({})"]
    forms += ["first[j](steps[r] > j, {})", "min({}, S - 1)", "({}) - 1", "({}) * page"]
    form = draw(st.sampled_from(forms))
    return form.format(*(draw(items(depth=depth - 1)) for _ in range(form.count("{}"))))


DIMS = [
    "R",
    "S",
    "P",
    "Q",
    "R * Q",
    "R + 1",
    "P + Q",
    "S * Q",
    "R + Q - 1",
    "S + R",
    "Q + 1",
    "P * page",
]


@settings(deadline=None, derandomize=True, max_examples=300)
@given(dim=st.sampled_from(DIMS), item=items(), clamped=st.booleans())
def test_a_safe_load_is_inside(front, machine, dim: str, item: str, clamped: bool) -> None:
    item = f"max(min({item}, {dim} - 1), 0)" if clamped else item
    group = group_of(front, dim, item)
    if inside(group):
        assert stays_inside(machine, group, f"{dim} {item}")
