"""What the language means: each feature in a spec of its own, read four times.

`specs/small/` holds the specs and `eager.py`, the same by hand in Python loops. The kernel (watched by
`interpreter_memory`), the torch reference and the loops agree to the bit on drawn worlds; a brute-force
reading of the spec's text agrees on the small ones; and the tables below fix single answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import building
import calls
import pytest
import spec_oracle
import torch
from interpreter_memory import watched

from kgen.diagnostics import SpecError

SPECS = Path(__file__).parent / "specs"
GROUPS = sorted(path.stem for path in (SPECS / "small").glob("*.yaml"))
LARGEST, LEAST = 2**63 - 1, -(2**63)


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """The small specs' test cases, by group."""
    out = tmp_path_factory.mktemp("semantics")
    building.build(SPECS / "small", out)
    building.load(out, "semantics_small")
    return lambda group: building.case("semantics_small", "small", group)


@pytest.mark.parametrize("group", GROUPS)
def test_kernel_reference_and_loops_agree(small, group, device):
    testing = building.testing("semantics_small", "small")
    testing.check(watched(small(group)), device)


@pytest.mark.parametrize("group", GROUPS)
def test_wrong_calls_are_refused(small, group, device):
    testing = building.testing("semantics_small", "small")
    testing.check_refusals(small(group), device)


@pytest.mark.parametrize("group", GROUPS)
def test_brute_force_agrees_with_loops(small, group):
    testing = building.testing("semantics_small", "small")
    case, text = small(group), (SPECS / "small" / f"{group}.yaml").read_text()
    compared = 0
    for seed in range(16):
        world = testing.draw(case, seed)
        given = world.arguments()
        slots = given.get("slot")
        repeated = slots is not None and slots.unique().numel() < slots.numel()
        if repeated or sum(buffer.view.numel() for buffer in world.every()) > 400:
            continue
        want = spec_oracle.expected(text, given)
        case.eager(**given)
        for name, tensor in want.items():
            assert torch.equal(given[name], tensor), (name, world.values)
        compared += 1
    assert compared >= 3


# One of each kind of parameter list; a run of opcheck and torch.compile costs a second.
@pytest.mark.parametrize(
    "group", ["any_layout", "guarded_store", "launch_condition", "wide_scalar"]
)
def test_operators_pass_opcheck_and_compile(small, group, device):
    testing = building.testing("semantics_small", "small")
    testing.check_operator(small(group), device)


# (group, what is given, what is written): answers fixed by hand.
X = [-7, -1, 0, 7]
ANSWERS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    # BR-07: the sign of a quotient.
    ("quotients", {"x": X, "d": 1}, {"q": [-7, -1, 0, 7], "m": [0, 0, 0, 0]}),
    ("quotients", {"x": X, "d": 2}, {"q": [-4, -1, 0, 3], "m": [1, 1, 0, 1]}),
    ("quotients", {"x": X, "d": 16}, {"q": [-1, -1, 0, 0], "m": [9, 15, 0, 7]}),
    (
        "quotients",
        {"x": [-(2**31), 2**31 - 1, -1], "d": 2**31 - 1},
        {"q": [-2, 1, -1], "m": [2**31 - 2, 0, 2**31 - 2]},
    ),
    ("quotients", {"x": [-(2**31)], "d": 1}, {"q": [-(2**31)], "m": [0]}),
    ("quotients_negative", {"x": X, "d": -1}, {"q": [7, 1, 0, -7], "m": [0, 0, 0, 0]}),
    ("quotients_negative", {"x": X, "d": -2}, {"q": [3, 0, 0, -4], "m": [-1, -1, 0, -1]}),
    (
        "quotients_negative",
        {"x": [1 - 2**31, 2**31 - 1], "d": -16},
        {"q": [2**27 - 1, -(2**27)], "m": [-15, -1]},
    ),
    (
        "quotients_static",
        {"x": [-1, LEAST, LARGEST], "narrow": [-1, -(2**31), 2**31 - 1], "page_size": 1},
        {
            "q": [-1, LEAST, LARGEST],
            "m": [0, 0, 0],
            "narrow_q": [-1, -(2**30), 2**30 - 1],
            "narrow_m": [1, 0, 1],
        },
    ),
    # i32 wraps, i64 does not; u8 stays u8.
    (
        "wraparound",
        {"a": [2**31 - 1, -(2**31), 65536], "b": [1, -1, 65536], "wide": [2**40 + 5, -1, 2**62]},
        {
            "total": [-(2**31), 2**31 - 1, 131072],
            "product": [2**31 - 1, -(2**31), 0],
            "difference": [2**31 - 2, 1 - 2**31, 0],
            "negated": [1 - 2**31, -(2**31), -65536],
            "narrowed": [5, -1, 0],
            "low_byte": [255, 0, 0],
            "exact": [2**31, -(2**31) - 1, 131072],
            "doubled": [2**41 + 10, -2, LEAST],
        },
    ),
    # BR-38: an i64 scalar between 2**31 and 2**32 is no 32-bit number.
    (
        "wide_scalar",
        {"x": [0, 1, -1], "base": 2**32 - 1, "step": -1},
        {
            "y": [2**32 - 1, 2**32, 2**32 - 2],
            "above": [False, False, False],
            "stepped": [-(2**31), -(2**31) - 1, 1 - 2**31],
        },
    ),
    (
        "wide_scalar",
        {"x": [1], "base": 2**31, "step": 2**31 - 1},
        {"y": [2**31 + 1], "above": [False], "stepped": [(2**31 - 1) * (2**31 + 1)]},
    ),
    # A lower bound above the upper one wins, unless the upper one is applied last.
    (
        "clamps",
        {"x": [-9, 0, 9], "bound": [-9, 5, 9], "low": 4, "high": -4},
        {
            "inside": [4, 4, 4],
            "below_first": [-4, -4, -4],
            "of_three": [-13, -8, -13],
            "by_tensor": [0, 0, 9],
            "narrow": [-4, 5, 7],
        },
    ),
    # The load happens only where the guard holds.
    (
        "guarded_gather",
        {"at": [LEAST, LARGEST, -1, 2, 1], "narrow_at": [-(2**31), 2, 3, 4, 5], "table": [10, 11]},
        {"out": [-7, -7, -7, -7, 11], "negated": [-7, -7, -7, -7, 11], "row": [0, 1, 10, 11, 4]},
    ),
    (
        "guarded_gather",
        {"at": [0, -5], "narrow_at": [3, 3], "table": []},
        {"out": [-7, -7], "negated": [-7, -7], "row": [0, 1]},
    ),
    (
        "guarded_twice",
        {"at": [0, 1, 2, -9, 2**60], "table": [1, LEAST, 7], "values": [40, 41]},
        {"out": [41, -1, -1, -2, -2]},
    ),
    # BR-07: a sentinel writes nothing.
    (
        "guarded_place",
        {
            "slot": [-1, 2, 0, -1],
            "origin": [1, 0, 2],
            "x": [5, 6, 7],
            "pool": [[1, 1], [2, 2], [3, 3]],
        },
        {"pool": [[6, 7], [2, 2], [7, 8]]},
    ),
    (
        "guarded_store",
        {"n": [1, 2], "x": [[1, 2, 3], [4, 5, 6]], "live": 1, "C": 3},
        {"row": [6, 77], "lanes": [[0, 77, 77], [77] * 3], "columns": [[77, 1, 2], [77, 77, 2]]},
    ),
    # Nothing valid, all negative, no elements at all.
    (
        "reduce_tiles",
        {"x": [[-3, -1, -2, -5, -4]], "bound": [-2]},
        {
            "total": [-15],
            "least": [-5],
            "most": [-1],
            "hits": [1],
            "some": [True],
            "every": [False],
            "at": [1],
        },
    ),
    (
        "reduce_tiles",
        {"x": torch.empty(2, 0, dtype=torch.int64), "bound": [0, 1]},
        {
            "total": [0, 0],
            "least": [LARGEST] * 2,
            "most": [LEAST] * 2,
            "hits": [0, 0],
            "some": [False] * 2,
            "every": [True] * 2,
            "at": [-1, -1],
        },
    ),
    (
        "reduce_bytes",
        {"x": [[255, 255, 255, 255, 255]], "bound": [254]},
        {
            "total": [1275],
            "least": [255],
            "most": [255],
            "hits": [5],
            "some": [True],
            "every": [True],
            "at": [0],
        },
    ),
    (
        "reduce_static",
        {"x": torch.empty(1, 0, dtype=torch.int64), "bound": [0]},
        {
            "total": [0],
            "least": [LARGEST],
            "most": [LEAST],
            "hits": [0],
            "some": [False],
            "every": [True],
            "at": [-1],
        },
    ),
    # The hit is in the second tile, or in none.
    (
        "reduce_tiles",
        {"x": [[0, 0, 9], [0, 0, 0]], "bound": [5, 5]},
        {
            "total": [9, 0],
            "least": [0, 0],
            "most": [9, 0],
            "hits": [1, 0],
            "some": [True, False],
            "every": [False, False],
            "at": [2, -1],
        },
    ),
    # BR-29: 256 hits are true, and 300 are 300.
    (
        "count_of_many",
        {"p": [[True] * 256 + [False] * 44, [True] * 300]},
        {"n": [256, 300], "some": [True, True], "low_byte": [0, 44]},
    ),
    # BR-35: five elements in tiles of two; the total crosses the borders.
    (
        "scan_tiles",
        {"x": [[1, 2, 3, 4, 5]], "keep": [[True, False, True, True, False]]},
        {
            "sums": [[1, 3, 6, 10, 15]],
            "products": [[1, 2, 6, 24, 120]],
            "places": [[0, -1, 1, 2, -1]],
            "kept": [3],
        },
    ),
    (
        "prefix_rows",
        {"n": [2, 0, 5], "x": [[1, 1], [2, 0], [0, 3]]},
        {"start": [0, 3, 4], "end": [3, 4, 10], "of_sums": [[0, 1], [2, 3], [4, 5]]},
    ),
    # BR-15: the wide row is made of the old state, by a static width and by one of run time.
    (
        "state_row",
        {"slot": [2, 0], "n": [5, 7], "ctx_len": [10, 20, 30, 40], "limit": 33, "K": 3},
        {"ctx_len": [17, 20, 33, 40], "wide": [[30, 31, 32], [10, 11, 12]]},
    ),
    (
        "state_row_runtime",
        {"slot": [2, 0], "ctx_len": [10, 20, 30], "C": 5},
        {"ctx_len": [15, 20, 35], "wide": [[30, 31, 32, 33, 34], [10, 11, 12, 13, 14]]},
    ),
    ("state_without_index", {"counter": [5, 9], "step": -2}, {"counter": [3, 5], "moved": [True]}),
    (
        "reverse_in_place",
        {"x": [[1, 2, 3]], "a": [10], "b": [20]},
        {"x": [[3, 2, 1]], "a": [20], "b": [11]},
    ),
    # Sizes of 0 and 1.
    ("launch_condition", {"x": [3], "limit": 2}, {"x": [3], "ran": [True]}),
    ("launch_condition", {"x": [3, 4], "limit": 0, "ran": [False]}, {"x": [3, 4], "ran": [False]}),
    ("pieces", {"x": [], "tail": 2**40}, {"out": [-1, 2**40], "counts": [0, -1]}),
    ("transpose", {"x": torch.empty(0, 3, dtype=torch.int32)}, {"out": [[], [], []]}),
    (
        "flat_places",
        {"x": [10, 20], "y": [1, 2, 3], "z": [0, 5]},
        {
            "by_static": [10, 15, 20, 25],
            "by_size": [9, 8, 7, 19, 18, 17],
            "three": [0, 1, 10, 11, 100, 101, 110, 111],
        },
    ),
]


@pytest.mark.parametrize("reading", calls.READINGS)
@pytest.mark.parametrize(
    "group, given, written",
    ANSWERS,
    ids=[f"{n}-{group}" for n, (group, _, _) in enumerate(ANSWERS)],
)
def test_answers(small, group, given, written, reading, device):
    fresh = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    assert calls.outcome(small(group), reading, device, **fresh) == written


def test_every_small_spec_names_its_feature():
    for group in GROUPS:
        text = (SPECS / "small" / f"{group}.yaml").read_text()
        assert text.startswith("# "), group
        assert f"\ngroup: {group}\n" in text


# Specs at the border of what one pass over the tiles can do: refused with a place, or right.
@pytest.mark.parametrize("group", sorted(path.stem for path in (SPECS / "knotty").glob("*.yaml")))
def test_knotty_specs_are_refused_or_right(group, tmp_path, device):
    text = (SPECS / "knotty" / f"{group}.yaml").read_text()
    alone = tmp_path / "knotty"
    alone.mkdir()
    (alone / f"{group}.yaml").write_text(text)
    try:
        building.build(alone, tmp_path / "out")
    except SpecError as error:
        assert error.report.ordered()[0].span.file.endswith(f"{group}.yaml")
        return
    parent = f"knotty_{group}"
    building.load(tmp_path / "out", parent)
    case, testing = building.case(parent, "knotty", group), building.testing(parent, "knotty")
    checked = watched(case)
    for seed in range(12):
        start = testing.draw(case, seed).clone(device)
        fused, reference = start.clone(), start.clone()
        want = spec_oracle.expected(text, start.arguments())
        checked.fused(**fused.arguments())
        case.run_reference(reference)
        for reading, world in (("kernel", fused), ("reference", reference)):
            for name, tensor in want.items():
                assert torch.equal(world.arguments()[name].cpu(), tensor), (reading, name, seed)
