"""Programs and warps in any order: what depends on it is an error in every order."""

from __future__ import annotations

import kernels as k
import numpy as np
import pytest
from kernels import (
    INSIDE,
    LANE,
    ROW,
    R,
    arange,
    bind,
    cast,
    counted,
    load,
    num,
    op,
    run,
    spread,
    store,
    var,
)

from kgen.kernel import ir
from kgen.kernel.faults import BarrierError, DoubleStoreError, RaceError
from kgen.kernel.ir import Barrier, Branch, Chosen, Var
from kgen.kernel.run import Runner

SEEDS = range(12)


def everywhere(
    whole: ir.Kernel,
    args: dict[str, float],
    error: type[Exception],
    match: str,
    **tensors: np.ndarray,
) -> None:
    """An error with every seed."""
    runner = Runner(whole)
    for seed in SEEDS:
        for warps in (2, 4):
            copies = {name: array.copy() for name, array in tensors.items()}
            with pytest.raises(error, match=match):
                runner.run({"LANES_k": 4, **args}, copies, seed=seed, warps=warps)


def results(whole: ir.Kernel, args: dict[str, float], out: str, warps: int = 2, **tensors) -> set:
    """What is left in a tensor in many orders, if nobody looks."""
    runner, found = Runner(whole), set()
    for seed in range(60):
        copies = {name: array.copy() for name, array in tensors.items()}
        runner.run({"LANES_k": 4, **args}, copies, seed=seed, warps=warps, watched=False)
        found.add(tuple(copies[out].reshape(-1).tolist()))
    return found


def raised(*between: ir.Stmt) -> ir.Kernel:
    """Load a state, store its value plus lanes, and the state one higher."""
    before = bind("before", load("state", ROW), note="before: state[r]")
    wide = op("add", spread(var("before"), "k"), cast(LANE, "i64"))
    return k.one(
        before,
        *between,
        store("state", [ROW], op("add", var("before"), num(1)), note="state[r]: before + 1"),
        store("wide", [ROW, LANE], wide),
        programs=R,
    )


def test_a_store_that_late_warps_see():
    given = {"state": arange(6) * 100, "wide": np.zeros((6, 4), np.int64)}
    message = (
        r"stores to state\[\d\], which the same program in `before: state\[r\]` loads with no barrier between, "
        r"so that a warp may see either value \(in `state\[r\]: before \+ 1`; program \d"
    )
    everywhere(raised(), {"R": 6}, RaceError, message, **given)
    wanted = (given["state"][:, None] + np.arange(4)).reshape(-1)
    found = results(raised(), {"R": 6}, "wide", **given)
    assert len(found) > 5
    assert all(set(np.array(each) - wanted) <= {0, 1} for each in found)
    with_barrier = raised(Barrier(("state",)))
    assert results(with_barrier, {"R": 6}, "wide", warps=4, **given) == {tuple(wanted)}
    for seed in SEEDS:
        run(with_barrier, {"R": 6, "LANES_k": 4}, given, seed=seed, warps=8)
    run(raised(), {"R": 6, "LANES_k": 4}, given, warps=1)


def test_a_barrier_in_a_loop_is_needed_in_every_turn():
    here = bind("here", op("add", var("at", "i32"), LANE))
    place = var("here", "i32", "k")

    def loop(*between: ir.Stmt) -> ir.Kernel:
        value = bind("v", load("x", place))
        kept = store("x", [place], op("add", var("v", "i64", "k"), num(1)))
        return k.one(counted([here, value, *between, kept], ()))

    everywhere(loop(), {"R": 16}, RaceError, "no barrier between", x=arange(16))
    x = arange(16)
    run(loop(Barrier(("x",))), {"R": 16, "LANES_k": 4}, {"x": x}, warps=4)
    assert (x == arange(16) + 1).all()


def test_a_load_of_what_the_program_has_stored():
    body = [
        store("x", [ROW], num(5, "i64"), note="x[r]: 5"),
        Barrier(("x",)),
        bind("v", load("x", ROW)),
        store("y", [ROW], var("v")),
    ]
    message = r"loads x\[\d\], to which the same program in `x\[r\]: 5` has stored"
    given = {"x": arange(3), "y": arange(3)}
    everywhere(k.one(*body, programs=3), {}, RaceError, message, **given)
    either = r"loads x\[\d\], to which|stores to x\[\d\], which the same program in `v = .*` loads with no"
    everywhere(k.one(body[0], *body[2:], programs=3), {}, RaceError, either, **given)


def test_a_program_that_loads_what_another_one_stores_to():
    n = op("sub", R, num(1))
    after = op("min", op("add", ROW, num(1)), n)
    body = (
        bind("v", load("x", after), note="v: x[r + 1]"),
        Barrier(("x",)),
        store("x", [ROW], var("v"), note="x[r]: v"),
    )
    message = (
        r"(loads x\[\d\], to which program \d of role 0 in `x\[r\]: v` has stored \(in `v: x\[r \+ 1\]`; "
        r"program \d|stores to x\[\d\], which (program \d of role 0 in `v: x\[r \+ 1\]`|more than one "
        r"program) loads)"
    )
    everywhere(k.one(*body, programs=R), {"R": 5}, RaceError, message, x=arange(5))
    assert len(results(k.one(*body, programs=R), {"R": 5}, "x", x=arange(5))) > 3


def test_programs_of_different_roles_race_too():
    roles = (
        k.role(store("x", [ROW], num(5, "i64")), programs=40),
        k.role(bind("v", load("x", num(39))), store("y", [num(0)], var("v"))),
    )
    message = r"(loads x\[39\], to which program 39 of role 0|stores to x\[39\], which program 0 of role 1)"
    everywhere(k.kernel(*roles), {}, RaceError, message, x=arange(40), y=arange(1))
    assert len(results(k.kernel(*roles), {}, "y", x=arange(40), y=arange(1))) == 2


def test_a_store_that_is_done_once_but_loaded_by_every_program():
    first = op("eq", ROW, num(0))

    def body(*mask: ir.Expr) -> ir.Kernel:
        return k.one(
            bind("head_value", load("head", num(0), mask=mask)),
            bind("next", load("nxt", var("head_value"), mask=mask)),
            Barrier(("head",)),
            store("head", [num(0)], var("next"), [first]),
            store("y", [ROW], cast(ROW, "i64")),
            programs=R,
        )

    given = {"head": np.array([2]), "nxt": np.array([0, 3, 1]), "y": arange(6)}
    everywhere(body(), {"R": 6}, RaceError, "head", **given)
    run(body(first), {"R": 6, "LANES_k": 1}, given)
    assert given["head"][0] == 1


def test_two_programs_store_to_one_place():
    body = (store("y", [op("floordiv", ROW, num(2))], cast(ROW, "i64"), note="y[r // 2]: r"),)
    message = r"stores to y\[\d\], to which program \d of role 0 in `y\[r // 2\]: r` has stored"
    everywhere(k.one(*body, programs=6), {}, DoubleStoreError, message, y=arange(3))
    assert len(results(k.one(*body, programs=6), {}, "y", y=arange(3))) == 8
    same = store("y", [num(0)], num(1, "i64"))
    everywhere(k.one(same, programs=2), {}, DoubleStoreError, r"stores to y\[0\]", y=arange(1))


def test_lanes_of_one_program_store_to_one_place():
    halves = op("floordiv", LANE, num(2))
    for value in (cast(LANE, "i64"), num(1, "i64")):
        body = store("y", [halves], value, [INSIDE])
        everywhere(k.one(body), {"K": 3}, DoubleStoreError, r"stores to y\[0\]", y=arange(2))
    everywhere(
        k.one(store("y", [num(0)], num(1, "i64"), axes=("k",))),
        {},
        DoubleStoreError,
        r"stores to y\[0\], (and so does another lane|to which the same program)",
        y=arange(1),
    )
    run(
        k.one(store("y", [halves], num(1, "i64"), [INSIDE])),
        {"K": 1, "LANES_k": 4},
        {"y": arange(2)},
    )


def test_two_statements_store_to_one_place():
    body = (
        store("y", [ROW], num(1, "i64"), note="one"),
        store("y", [num(1)], num(1, "i64"), [op("eq", ROW, num(1))]),
    )
    everywhere(
        k.one(*body, programs=3),
        {},
        DoubleStoreError,
        "to which the same program in `one` has",
        y=arange(3),
    )


def test_a_tile_whose_offset_is_forgotten():
    inside = op("lt", LANE, num(5))
    tiles = k.one(store("y", [LANE], LANE, [inside]), programs=3)
    given = {"LANES_k": 2}
    everywhere(tiles, given, DoubleStoreError, r"stores to y\[[01]\]", y=np.full(5, -1, np.int32))
    assert results(tiles, given, "y", y=np.full(5, -1, np.int32)) == {(0, 1, -1, -1, -1)}


def test_many_programs_race_though_they_never_run_together():
    body = (bind("v", load("x", num(199))), store("x", [ROW], num(1, "i64")))
    everywhere(k.one(*body, programs=200), {}, RaceError, "x", x=arange(200))


def test_elements_that_may_be_raced_for():
    slot = bind("slot_value", load("slot", ROW))
    at = var("slot_value")
    state = bind("state_value", load("state", at))
    body = (
        slot,
        state,
        Barrier(("state",)),
        store("state", [at], op("add", var("state_value"), num(1))),
    )
    given = {"slot": np.array([0, 3, 1, 3]), "state": arange(4)}
    everywhere(k.one(*body, programs=4), {}, RaceError, r"state\[3\]", **given)
    for seed in SEEDS:
        state = arange(4)
        run(
            k.one(*body, programs=4),
            {"LANES_k": 1},
            given | {"state": state},
            undefined={"state": np.arange(4) == 3},
            seed=seed,
        )
        assert state[:3].tolist() == [1, 2, 2]
    pools = k.one(
        bind("t", Chosen("pool", num(1), ())),
        store("pool", [num(0)], cast(ROW, "i64"), chosen=Var("t", "tensor", ())),
        programs=2,
    )
    masks = [np.array([False]), np.array([True])]
    run(pools, {"LANES_k": 1}, {"pool": [arange(1), arange(1)]}, undefined={"pool": masks})
    with pytest.raises(DoubleStoreError, match=r"stores to pool\[1\]\[0\]"):
        run(
            pools, {"LANES_k": 1}, {"pool": [arange(1), arange(1)]}, undefined={"pool": masks[::-1]}
        )


def test_warps_that_part_before_a_barrier():
    body = (
        bind("v", load("x", num(0))),
        store("x", [num(0)], num(1, "i64")),
        Branch(op("eq", var("v"), num(0)), (Barrier(("x",)),), ()),
    )
    found = []
    for seed in range(60):
        try:
            run(k.one(*body), {"LANES_k": 1}, {"x": arange(1)}, seed=seed, watched=False)
        except BarrierError as error:
            found.append(str(error))
    assert set(found) == {
        "some warps wait at a barrier that others never come to (program 0 of role 0)"
    }


def test_a_seed_chooses_one_order():
    given = {"state": arange(6) * 100, "wide": np.zeros((6, 4), np.int64)}
    runner, found = Runner(raised()), []
    for seed in (3, 3, 4):
        copies = {name: array.copy() for name, array in given.items()}
        runner.run({"R": 6, "LANES_k": 4}, copies, seed=seed, watched=False)
        found.append(copies["wide"].tolist())
    assert found[0] == found[1] != found[2]


def test_there_is_an_error_if_and_only_if_an_order_could_matter():
    """Programs load x[a[r]] and store to x[b[r]]: random a and b, with and without a barrier."""
    loaded = (
        bind("a_value", load("a", ROW)),
        bind("b_value", load("b", ROW)),
        bind("v", load("x", var("a_value"))),
    )
    kept = store("x", [var("b_value")], op("add", var("v"), num(100)))
    runners = {
        barrier: Runner(k.one(*loaded, *between, kept, programs=R))
        for barrier, between in ((True, [Barrier(("x",))]), (False, []))
    }
    chance, seen = np.random.default_rng(5), {}
    for seed in range(400):
        count = int(chance.integers(1, 5))
        a, b = chance.integers(0, 9, count), chance.integers(0, 9, count)
        barrier, warps = bool(chance.integers(2)), int(chance.integers(1, 4))
        twice = len(set(b.tolist())) < count
        others = any(b[r] == a[s] for r in range(count) for s in range(count) if r != s)
        late = not barrier and warps > 1 and bool((a == b).any())
        wanted = (twice, others, late)
        x, error = arange(9), None
        expected = arange(9)
        expected[b] = x[a] + 100
        try:
            runners[barrier].run(
                {"R": count, "LANES_k": 1}, {"a": a, "b": b, "x": x}, seed=seed, warps=warps
            )
        except RaceError as found:
            error = found
        assert (error is not None) == any(wanted), (a, b, barrier, warps, error)
        if error is None:
            assert (x == expected).all()
        elif not others and not late:
            assert isinstance(error, DoubleStoreError)
        elif not twice:
            assert not isinstance(error, DoubleStoreError)
        seen[wanted] = seen.get(wanted, 0) + 1
    assert len(seen) > 5
