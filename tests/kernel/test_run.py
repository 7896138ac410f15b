"""What each node means to the runner; the calls and accesses that it refuses."""

from __future__ import annotations

import kernels as k
import numpy as np
import pytest
from kernels import (
    INSIDE,
    LANE,
    ROW,
    K,
    R,
    arange,
    bind,
    cast,
    counted,
    lane,
    load,
    num,
    op,
    reduce,
    run,
    scan,
    select,
    spread,
    store,
    var,
)

from kgen.kernel import ir
from kgen.kernel.faults import CallError, MissingError, OutsideError
from kgen.kernel.ir import Arg, Branch, Carried, Check, Chosen, Loop, Merged, Var
from kgen.kernel.run import Note, Runner

SEEDS = range(12)


# Nodes.


def test_rows_lanes_and_masks():
    x, out = arange(3, 5), np.full((3, 5), -1)
    body = (
        bind("k_in", INSIDE),
        bind("v", load("x", ROW, LANE, mask=[var("k_in", "bool", "k")])),
        store("out", [ROW, LANE], op("add", var("v", "i64", "k"), cast(ROW, "i64")), [INSIDE]),
    )
    outcome = run(k.one(*body, programs=R), {"R": 3, "K": 4, "LANES_k": 8}, {"x": x, "out": out})
    wanted = np.where(np.arange(5) < 4, x + np.arange(3)[:, None], -1)
    assert (out == wanted).all()
    assert [*outcome.stored] == ["out"]
    assert (outcome.stored["out"][0] == (wanted >= 0)).all()
    assert outcome.notes == {}


def test_arguments_have_their_types():
    assert k.scalars(Arg("n", "i32"), n=-7) == -7
    assert k.scalars(Arg("f", "f32"), f=0.1) == np.float32(0.1)
    assert k.scalars(Arg("b", "bf16"), b=1.0) == 0x3F80
    assert k.scalars(Arg("HAS_x", "bool"), HAS_x=1)
    assert k.scalars(cast(Arg("n", "int"), "i64"), n=3) == 3
    for dtype, value in (("i32", 2**31), ("u8", -1), ("bool", 2), ("i64", 0.5)):
        with pytest.raises(CallError, match=f"the argument n is {value}, not a number of {dtype}"):
            k.scalars(Arg("n", dtype), n=value)
    with pytest.raises(CallError, match="the argument n is not given"):
        k.scalars(Arg("n", "i32"))


def test_a_load_gives_0_where_its_mask_does_not_hold():
    body = (
        bind("v", load("x", LANE, mask=[op("ge", LANE, num(2)), INSIDE])),
        store("out", [LANE], var("v", "i64", "k")),
    )
    args = {"K": 3, "LANES_k": 4}
    assert k.left(np.full(4, -1), *body, args=args, x=arange(4) + 5) == [0, 0, 7, 0]
    assert k.scalars(var("v"), bind("v", load("out", num(9), mask=[num(False, "bool")]))) == 0


def test_both_sides_of_a_choice_are_evaluated_in_every_lane():
    out, args = np.zeros((2, 4), np.int32), {"LANES_c": 2, "LANES_k": 4}
    value = select(op("lt", lane("c"), num(1)), LANE, op("floordiv", num(6), lane("c")))
    found = k.left(out, store("out", [lane("c"), LANE], value), args=args, lanes="ck")
    assert found == [[0, 1, 2, 3], [6, 6, 6, 6]]


def test_blocks_of_several_axes_are_aligned_by_name():
    out, args = np.zeros((2, 4), np.int64), {"LANES_c": 2, "LANES_k": 4}
    row = bind("row", reduce("sum", "k", op("mul", lane("c"), LANE)))
    column = bind("column", reduce("sum", "c", op("add", lane("c"), LANE)))
    both = op("add", op("mul", var("row", "i32", "c"), num(100)), var("column", "i32", "k"))
    kept = store("out", [lane("c"), LANE], cast(both, "i64"))
    found = k.left(out, row, column, kept, args=args, lanes="ck")
    assert found == [[1, 3, 5, 7], [601, 603, 605, 607]]


@pytest.mark.parametrize(
    "kind, inside, nothing",
    [
        ("sum", 5 + 9 + 7, 0),
        ("product", 5 * 9 * 7, 1),
        ("min", 5, 2**31 - 1),
        ("max", 9, -(2**31)),
    ],
)
def test_reductions_of_integers(kind, inside, nothing):
    x = np.array([5, 9, 7], np.int32)
    for size, wanted in ((3, inside), (0, nothing)):
        mask = [op("lt", LANE, num(size))]
        body = (
            bind("v", load("x", LANE, mask=mask, dtype="i32")),
            bind("all", reduce(kind, "k", var("v", "i32", "k"), mask)),
            store("out", [num(0)], var("all", "i32")),
        )
        assert k.left(np.zeros(1, np.int32), *body, args={"LANES_k": 8}, x=x) == [wanted]


def test_any_and_all():
    for size, (some, every) in {0: (False, True), 2: (True, False), 1: (False, False)}.items():
        mask = [op("lt", LANE, num(size))]
        for kind, wanted in (("any", some), ("all", every)):
            found = bind("found", reduce(kind, "k", op("eq", LANE, num(1)), mask))
            assert k.scalars(var("found", "bool"), found) == wanted


def test_a_reduction_without_a_mask_takes_the_padded_lanes():
    loaded = bind("v", load("x", LANE, mask=[INSIDE]))
    given = {"args": {"K": 3, "LANES_k": 4}, "x": np.array([5, 9, 7])}
    for mask, wanted in (([], 0), ([INSIDE], 5)):
        least = bind("least", reduce("min", "k", var("v", "i64", "k"), mask))
        kept = store("out", [num(0)], var("least"))
        assert k.left(np.zeros(1, np.int64), loaded, least, kept, **given) == [wanted]


def test_the_mask_of_a_reduction_may_span_more_than_what_is_reduced():
    mask = [op("le", LANE, lane("c"))]
    count = bind("count", reduce("sum", "k", num(1, "i32"), mask, dtype="i32"))
    out, args = np.zeros(4, np.int32), {"LANES_c": 4, "LANES_k": 8}
    kept = store("out", [lane("c")], var("count", "i32", "c"))
    assert k.left(out, count, kept, args=args, lanes="ck") == [1, 2, 3, 4]


@pytest.mark.parametrize("kind, wanted", [("cumsum", [2, 2, 5, 9]), ("cumprod", [2, 2, 6, 24])])
def test_scans(kind, wanted):
    body = (
        bind("v", cast(op("add", LANE, num(1)), "i64")),
        bind("n", op("max", var("v", "i64", "k"), num(2))),
        bind("s", scan(kind, "k", var("n", "i64", "k"), [op("ne", LANE, num(1))])),
        store("out", [LANE], var("s", "i64", "k")),
    )
    assert k.left(np.zeros(4, np.int64), *body, args={"LANES_k": 4}) == wanted


def test_a_list_is_chosen_from_by_scalars_and_by_lanes():
    xs = [arange(3) + 10, arange(2) + 20, arange(3) + 30]
    outs = [np.zeros(4, np.int64) for _ in range(2)]
    body = (
        bind("from", Chosen("xs", op("sub", LANE, num(1)), ("k",))),
        bind("to", Chosen("outs", ROW, ())),
        bind(
            "v",
            load("xs", num(1), mask=[op("ge", LANE, num(1))], chosen=Var("from", "tensor", ("k",))),
        ),
        store("outs", [LANE], var("v", "i64", "k"), chosen=Var("to", "tensor", ())),
    )
    outcome = run(k.one(*body, programs=2), {"LANES_k": 4}, {"xs": xs, "outs": outs})
    assert [out.tolist() for out in outs] == [[0, 11, 21, 31]] * 2
    assert [each.all() for each in outcome.stored["outs"]] == [True, True]


def test_a_loop_carries_its_variables_from_turn_to_turn():
    total = var("total", "i64", "k")
    here = bind("here", op("add", var("at", "i32"), LANE))
    inside = op("lt", var("here", "i32", "k"), R)
    value = bind("v", load("x", var("here", "i32", "k"), mask=[inside]))
    turn = Carried(total, spread(num(0, "i64"), "k"), op("add", total, var("v", "i64", "k")))
    body = (
        counted([here, value], (turn,)),
        bind("all", reduce("sum", "k", total)),
        store("out", [num(0)], var("all")),
    )
    for size in (0, 1, 4, 5, 13):
        args = {"R": size, "LANES_k": 4}
        assert k.left(np.full(1, -1), *body, args=args, x=arange(size)) == [sum(range(size))]


def test_carried_variables_change_at_once():
    a, b = var("a", "i32"), var("b", "i32")
    carried = (
        Carried(a, num(0, "i32"), b),
        Carried(b, num(1, "i32"), op("add", a, b)),
    )
    fibonacci = k.scalars(a, counted([], carried), widths=1, R=10)
    assert fibonacci == 55
    assert k.scalars(b, counted([], carried), widths=1, R=0) == 1


def test_a_counter_must_not_leave_its_type():
    body = (counted([]), store("out", [num(0)], num(1, "i64")))
    given = {"LANES_k": 4096}
    with pytest.raises(CallError, match=r"to 2147483647 by 4096 leaves i32 \(in `loop over k`\)"):
        run(k.one(*body), given | {"R": 2**31 - 1}, {"out": np.zeros(1, np.int64)})
    backwards = Loop("k", var("at", "i32"), R, num(0), (), ())
    with pytest.raises(CallError, match="the step of a loop is 0"):
        run(k.one(backwards), given | {"R": 1}, {})


def test_only_the_branch_that_is_taken_runs():
    given, out = Arg("HAS_x", "bool"), np.zeros(2, np.int64)
    then = (bind("v", load("x", LANE)),)
    other = (bind("w", op("floordiv", num(8), Arg("d", "int"))),)
    merged = Merged(
        var("u", "i64", "k"), var("v", "i64", "k"), spread(cast(var("w", "int"), "i64"), "k")
    )
    body = (Branch(given, then, other, (merged,)), store("out", [LANE], var("u", "i64", "k")))
    for args, tensors, wanted in (
        ({"HAS_x": 1, "d": 0}, {"x": arange(2)}, [0, 1]),
        ({"HAS_x": 0, "d": 2}, {}, [4, 4]),
    ):
        assert k.left(out, *body, args=args | {"LANES_k": 2}, **tensors) == wanted
    with pytest.raises(MissingError, match="x is not given"):
        k.left(out, *body, args={"HAS_x": 1, "d": 1, "LANES_k": 2}, x=None)


def test_roles_have_programs_of_their_own():
    a, b = np.zeros(3, np.int32), np.zeros(2, np.int32)
    roles = (
        k.role(store("a", [ROW], ROW), programs=R, lanes=""),
        k.role(store("b", [ROW], op("neg", ROW)), programs=op("sub", R, num(1)), lanes=""),
    )
    run(k.kernel(*roles), {"R": 3}, {"a": a, "b": b})
    assert (a.tolist(), b.tolist()) == ([0, 1, 2], [0, -1])
    with pytest.raises(CallError, match="role 1 has -1 programs"):
        run(k.kernel(*roles), {"R": 0}, {"a": a, "b": b})


def test_a_check_notes_the_least_point_that_failed():
    point = op("add", op("mul", cast(ROW, "i64"), num(4)), cast(LANE, "i64"))
    value = var("v", "bf16", "k")
    failed = (op("gt", value, num(3)), op("lt", LANE, num(3)))
    body = (
        bind("v", load("x", ROW, LANE, dtype="bf16")),
        Check(7, failed, point, (ROW, value, op("eq", LANE, num(2)), num(5)), ("k",)),
    )
    x = (np.arange(12, dtype=np.float32).reshape(3, 4).view(np.uint32) >> 16).astype(np.uint16)
    for seed in SEEDS:
        outcome = run(k.one(*body, programs=R), {"R": 3, "LANES_k": 4}, {"x": x}, seed=seed)
        assert outcome.notes == {7: Note(4, (1, 4.0, False, 5))}
    assert run(k.one(*body, programs=R), {"R": 1, "LANES_k": 4}, {"x": x}).notes == {}


def test_arrays_that_are_not_contiguous():
    base, x = np.zeros((6, 8), np.int64), arange(8, 3)
    y = base[::2, 1::4]
    body = (bind("v", load("x", LANE, ROW)), store("y", [ROW, LANE], var("v", "i64", "k")))
    run(k.one(*body, programs=3), {"LANES_k": 2}, {"x": x[::4], "y": y})
    assert (y == x[::4].T).all()
    assert np.count_nonzero(base) == 5


# Calls.


def test_tensors_must_be_those_of_the_kernel():
    whole = Runner(
        k.one(
            bind("t", Chosen("xs", num(0), ())),
            bind("v", load("xs", LANE, chosen=Var("t", "tensor", ()))),
            store("y", [LANE], var("v", "i64", "k")),
        )
    )
    x, y = arange(4), np.zeros(4, np.int64)
    frozen = y.copy()
    frozen.flags.writeable = False
    for tensors, message in (
        ({"xs": x, "y": y}, "xs is ndarray, not a list of arrays"),
        ({"xs": [x], "y": [y]}, "y is list, not an array"),
        ({"xs": [x, 5], "y": y}, r"xs\[1\] is int, not an array"),
        ({"xs": [x.astype(np.int32)], "y": y}, r"xs\[0\] is int32, but i64 is held as int64"),
        ({"xs": [x[None]], "y": y}, r"xs\[0\] has 2 dimensions, not 1"),
        ({"xs": [x], "y": frozen}, "y is stored to, but is read-only"),
        ({"xs": [x, y], "y": y[1:]}, r"xs\[1\] and y share memory"),
    ):
        with pytest.raises(CallError, match=message):
            whole.run({"LANES_k": 4}, tensors)
    for width in (0, 3, -4):
        with pytest.raises(CallError, match=f"a block of k is {width} wide, not a power of two"):
            whole.run({"LANES_k": width}, {"xs": [x], "y": y})
    whole.run({"LANES_k": 4}, {"xs": [x, x], "y": y, "unused": None})
    assert (y == x).all()


# Accesses.


def test_a_lane_outside_its_tensor():
    body = (
        bind("v", load("x", ROW, LANE, mask=[op("lt", LANE, num(6))]), note="v: x[r, k]"),
        store("y", [ROW, LANE], var("v", "i64", "k"), [INSIDE]),
    )
    args = {"K": 4, "LANES_k": 8}
    message = (
        r"loads x\[[01], 4\], but it is 2 x 4; so does 1 more of 6 active lanes "
        r"\(in `v: x\[r, k\]`; program [01] of role 0; lane k = 4\)"
    )
    with pytest.raises(OutsideError, match=message) as found:
        run(k.one(*body, programs=2), args, {"x": arange(2, 4), "y": arange(2, 4)})
    where = found.value.where
    assert (where.tensor, where.index[1], where.lane) == ("x", 4, {"k": 4})
    assert where.program == where.index[0]
    with pytest.raises(OutsideError, match=r"stores to y\[0, 1\], but it is 2 x 1; so do"):
        run(k.one(*body), args, {"x": arange(2, 8), "y": arange(2, 1)}, warps=1)


@pytest.mark.parametrize("at", [-1, 4, 2**31, -(2**40)])
def test_a_scalar_outside_its_tensor(at):
    for verb, body in (
        ("loads", bind("v", load("x", num(1), Arg("at", "i64")))),
        ("stores to", store("x", [num(1), Arg("at", "i64")], num(0, "i64"))),
    ):
        for dtype in ("i64", "int"):
            changed = ir.rewritten(body, lambda e, d=dtype: _retyped(e, d))
            with pytest.raises(OutsideError, match=rf"{verb} x\[1, {at}\], but it is 3 x 4"):
                run(k.one(changed), {"at": at, "LANES_k": 1}, {"x": arange(3, 4)})


def _retyped(expr: ir.Expr, dtype: str) -> ir.Expr:
    if isinstance(expr, Arg):
        return Arg(expr.name, dtype)
    return ir.rebuilt(expr, lambda each: _retyped(each, dtype))


def test_an_index_past_64_bits():
    body = bind("v", load("x", op("mul", num(2**40), Arg("n", "int")), LANE))
    with pytest.raises(OutsideError, match=r"loads x\[1099511627776000000000000, 0\]"):
        run(k.one(body), {"n": 10**12, "LANES_k": 2}, {"x": arange(3, 4)})


def test_an_empty_tensor_has_no_element():
    run(k.one(bind("v", load("x", LANE, mask=[INSIDE]))), {"LANES_k": 4, "K": 0}, {"x": arange(0)})
    with pytest.raises(OutsideError, match=r"loads x\[0\], but it is 0; so do 3 more"):
        run(k.one(bind("v", load("x", LANE))), {"LANES_k": 4}, {"x": arange(0)})


def test_a_tensor_that_the_list_does_not_have():
    body = (
        bind("at_value", load("at", LANE)),
        bind("t", Chosen("xs", var("at_value", "i64", "k"), ("k",))),
        bind(
            "v",
            load("xs", LANE, mask=[op("lt", LANE, K)], chosen=Var("t", "tensor", ("k",))),
        ),
    )
    given = {"at": np.array([0, 1, 2, -1]), "xs": [arange(3), arange(3)]}
    run(k.one(*body), {"K": 2, "LANES_k": 4}, given)
    with pytest.raises(OutsideError, match=r"loads xs\[2\], but there are 2 tensors") as found:
        run(k.one(*body), {"K": 3, "LANES_k": 4}, given)
    assert found.value.where.lane == {"k": 2}


def test_padded_lanes_that_satisfy_a_guard():
    r = op("add", op("mul", ROW, Arg("LANES_k", "int")), LANE)
    guard, inside = op("ge", r, num(2)), op("lt", r, R)

    def body(*mask: ir.Expr) -> ir.Kernel:
        value = select(guard, var("v", "i64", "k"), num(0, "i64"))
        return k.one(bind("v", load("x", num(2), mask=mask)), store("y", [r], value, [inside]))

    given = {"x": arange(2), "y": arange(2)}
    with pytest.raises(OutsideError, match=r"loads x\[2\], but it is 2; so do 125 more of 126 act"):
        run(body(guard), {"R": 2, "LANES_k": 128}, given)
    run(body(guard, inside), {"R": 2, "LANES_k": 128}, given)


def test_a_product_in_32_bits_masks_nothing():
    for dtype, stored in (("i32", 0), ("i64", 4)):
        total = op("mul", *(cast(Arg(name, "i32"), dtype) for name in "RC"))
        mask = op("lt", cast(LANE, dtype), total)
        y = np.zeros(4, np.int64)
        whole = k.one(store("y", [LANE], num(1, "i64"), [mask]))
        outcome = run(whole, {"R": 65536, "C": 65536, "LANES_k": 4}, {"y": y})
        assert y.sum() == outcome.stored["y"][0].sum() == stored


def test_a_program_times_a_tile_in_32_bits():
    start = op("mul", ROW, num(2**30, "i32"))
    far = store("out", [ROW], op("floordiv", start, num(2**30)))
    out = np.zeros(4, np.int32)
    assert k.left(out, far, programs=4, args={"LANES_k": 1}) == [0, 1, -2, -1]
