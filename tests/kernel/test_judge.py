"""Kernels that look sound and are not: each is refused, and fails when it runs, where a small call shows it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernels import run

from kgen.diagnostics import Report
from kgen.kernel import ir
from kgen.kernel.faults import OutsideError, RaceError
from kgen.kernel.ir import Bind, Cast, Kernel, Loop, Num, Op
from kgen.kernel.judge import UnsafeError, judge
from kgen.kernel.make import make
from kgen.lang.check import check
from kgen.lang.typed import Group
from kgen.plan.plan import make_plan
from kgen.prove.prove import prove
from kgen.spec.package import read_packages
from kgen.targets.triton import reserved


@pytest.fixture
def made(tmp_path):
    """What kgen makes of the rest of a spec: its group and its kernel."""

    def build(text: str) -> tuple[Group, Kernel]:
        (tmp_path / "pk").mkdir(exist_ok=True)
        (tmp_path / "pk" / "probe.yaml").write_text(f"group: probe\nsummary: A probe.\n{text}")
        report = Report()
        (package,) = read_packages(tmp_path / "pk", report)
        group = check(package.groups[0], package, report)
        assert group is not None, report.render()
        proved = prove(group, report)
        assert proved is not None, report.render()
        return group, make(make_plan(proved, report), reserved(group)).kernel

    return build


def with_body(kernel: Kernel, body: list[ir.Stmt]) -> Kernel:
    (role,) = kernel.roles
    return replace(kernel, roles=(replace(role, body=tuple(body)),))


def with_axes(kernel: Kernel, **changes: dict) -> Kernel:
    (role,) = kernel.roles
    axes = tuple(replace(axis, **changes.get(axis.index, {})) for axis in role.axes)
    return replace(kernel, roles=(replace(role, axes=axes),))


SUMMED = """
sizes: {R: 0 .. 64, C: 0 .. 64}
tensors: {x: {type: "i64[R]", mode: inout, values: 0 .. 9}, y: {type: "i64[R, C]", values: 0 .. 9}}
index: {r: R, c: C}
store: {"x[r]": "x[r] + sum[c](y[r, c])"}
schedule: {tile: {c: 2}}
"""


def test_a_barrier_in_a_loop_may_have_no_turn(made):
    group, kernel = made(SUMMED)
    body = [*kernel.roles[0].body]
    at = {type(s).__name__: n for n, s in enumerate(body)}
    loop, barrier = body[at["Loop"]], body[at["Barrier"]]
    load = next(s for s in body if isinstance(s, Bind) and isinstance(s.value, ir.Load))
    left = [stmt for stmt in body if stmt not in (loop, barrier, load)]
    inside = replace(loop, body=(*loop.body, barrier))
    mutant = with_body(kernel, [*left[:1], load, inside, *left[1:]])
    with pytest.raises(UnsafeError, match="no barrier between loads from `x` and a store"):
        judge(mutant, group)
    with pytest.raises(RaceError):
        run(
            mutant,
            {"R": 3, "C": 0, "LOOP_c": 2},
            {"x": np.zeros(3, np.int64), "y": np.zeros((3, 0), np.int64)},
        )


def test_what_a_loop_has_combined_so_far_is_not_all(made):
    group, kernel = made("""
sizes: {R: 0 .. 64, C: 1 .. 64, D: 9 .. 64}
tensors: {x: "i64[D]", y: {type: "i64[R, C]", values: 0 .. 8}, out: {type: "i64[R]", mode: out}}
index: {r: R, c: C}
store: {"out[r]": "x[min[c](y[r, c])]"}
schedule: {tile: {c: 2}}
""")
    body = kernel.roles[0].body
    at = next(n for n, stmt in enumerate(body) if isinstance(stmt, Loop))
    loop, least, load = body[at : at + 3]
    early = replace(least, var=replace(least.var, name="early"))
    wild = Bind(replace(load.var, name="wild"), replace(load.value, items=(early.var,)))
    inside = replace(loop, body=(early, wild, *loop.body))
    mutant = with_body(kernel, [*body[:at], inside, *body[at + 1 :]])
    with pytest.raises(UnsafeError, match="is not shown to be in bounds"):
        judge(mutant, group)
    tensors = {"x": np.zeros(9, np.int64), "y": np.zeros((1, 3), np.int64)}
    with pytest.raises(OutsideError):
        run(mutant, {"R": 1, "C": 3, "LOOP_c": 2}, {**tensors, "out": np.zeros(1, np.int64)})


TILED = """
sizes: {N: 0 ..}
tensors: {x: "i64[N]", out: {type: "i64[N]", mode: out}, more: {type: "i64[N]", mode: out}}
index: {i: N}
store: {"out[i]": "x[i]", "more[i]": "0"}
schedule: {tile: {i: 256}}
"""


def test_lanes_past_the_end_of_a_large_index_have_wide_numbers(made):
    group, kernel = made(TILED)
    body = [*kernel.roles[0].body]
    at = next(n for n, s in enumerate(body) if isinstance(s, Bind) and s.index == "i")
    value = body[at].value
    assert value.dtype == "i64"  # beside 2**31 - 1 a lane is past what i32 holds
    cut = Cast(Cast(value, "i32", value.axes), "i64", value.axes)
    body[at] = replace(body[at], value=cut)
    with pytest.raises(UnsafeError):
        judge(with_body(kernel, body), group)


def test_bytes_do_not_count_lanes(made):
    group, kernel = made(TILED.replace("N: 0 ..", "N: static 1 .. 4096").replace("{i: 256}", "{}"))
    (role,) = kernel.roles
    lanes = next(s for s in role.body if isinstance(s, Bind) and s.index == "i")
    assert lanes.value == ir.Lane("i", ("i",))

    def change(expr: ir.Expr) -> ir.Expr:
        if expr in (lanes.var, lanes.value):
            return replace(expr, dtype="u8")
        return ir.rebuilt(expr, change)

    body = [ir.rewritten(stmt, change, change) for stmt in role.body]
    with pytest.raises(UnsafeError):
        judge(with_body(kernel, body), group)


def test_what_is_to_be_stored_is_not_read(made):
    group, kernel = made(TILED)
    (role,) = kernel.roles
    load = next(s for s in role.body if isinstance(s, Bind) and isinstance(s.value, ir.Load))
    other = replace(load, value=replace(load.value, tensor="more"))
    body = [other if stmt is load else stmt for stmt in role.body]
    at = next(n for n, s in enumerate(body) if isinstance(s, ir.Store) and s.tensor == "more")
    body.insert(at, ir.Barrier(("more",)))
    with pytest.raises(UnsafeError, match="`more` holds nothing before the launch"):
        judge(with_body(kernel, body), group)


def test_nothing_is_known_of_a_quotient_by_0(made):
    group, kernel = made("""
sizes: {R: 0 .. 64, D: 9 .. 64}
scalars: {d: {type: i32, values: 1 .. 8}, e: {type: i32, values: 0 .. 8}}
tensors: {x: "i64[D]", y: {type: "i64[R]", values: 0 .. 8}, out: {type: "i64[R]", mode: out}}
index: {r: R}
store: {"out[r]": "x[y[r] // d] + e"}
""")

    def change(expr: ir.Expr) -> ir.Expr:
        return replace(expr, name="e") if expr == ir.Arg("d", "i32") else ir.rebuilt(expr, change)

    mutant = with_body(kernel, [ir.rewritten(stmt, change) for stmt in kernel.roles[0].body])
    with pytest.raises(UnsafeError, match="is not shown to be in bounds"):
        judge(mutant, group)
    args, zeros = {"R": 1, "D": 9, "e": 0}, np.zeros(1, np.int64)
    widths = {axis.width.name: 256 for axis in kernel.roles[0].axes if axis.width is not None}
    with pytest.raises(OutsideError):
        run(mutant, args | widths, {"x": np.zeros(9, np.int64), "y": zeros, "out": zeros.copy()})


LANES = """
sizes: {R: 0 .. 64, J: static 1 .. 64, K: static 1 .. 64}
tensors: {j: {type: "i64[R, J]", mode: out}, k: {type: "i64[R, K]", mode: out}}
index: {r: R, i: J, c: K}
store: {"j[r, i]": "i", "k[r, c]": "c"}
"""


def test_blocks_are_as_wide_as_their_axes_need(made):
    group, kernel = made(LANES)
    axes = {axis.index: axis for axis in kernel.roles[0].axes}
    with pytest.raises(UnsafeError, match="LANES_i has two sizes"):
        judge(with_axes(kernel, c={"width": axes["i"].width}), group)
    for index, tile in (("i", 1), ("c", 16), ("r", 2)):
        with pytest.raises(UnsafeError, match=f"a block of `{index}` does not have the size"):
            judge(with_axes(kernel, **{index: {"tile": tile}}), group)


def test_programs_are_not_counted_in_bytes(made):
    group, kernel = made(LANES)
    (role,) = kernel.roles
    few = Cast(Cast(role.programs, "u8", ()), "i32", ())
    judge(replace(kernel, roles=(replace(role, programs=few),)), group)  # there are 64 at most
    group, kernel = made(LANES.replace("R: 0 .. 64", "R: 0 .. 999"))
    with pytest.raises(UnsafeError, match="the programs are not as many"):
        judge(replace(kernel, roles=(replace(role, programs=few),)), group)


def test_a_store_is_not_left_to_some_programs(made):
    group, kernel = made(LANES)
    other = Op("not", (Op("eq", (ir.Program(), Num(0, "int")), "bool", ()),), "bool", ())
    body = [
        replace(stmt, mask=(*stmt.mask, other)) if isinstance(stmt, ir.Store) else stmt
        for stmt in kernel.roles[0].body
    ]
    with pytest.raises(UnsafeError, match="it also asks for"):
        judge(with_body(kernel, body), group)


# Kernels whose conditions are those of the spec only if something is known that no part of them says.
SOUND = {
    "a choice of conditions, one of which the extents exclude": """
sizes: {Q: static 0 .. 1}
tensors: {x: "bool[Q]", y: {type: "f32[Q]", mode: inout}}
index: {r: Q}
store: {"y[r]": {value: 0, when: "x[0] or r == 1"}}
""",
    "a load before a loop, which has turns only if there is something to load": """
sizes: {C: 0 .. 9}
scalars: {s: static}
tensors: {x: "i32[C]", y: {type: "i64[C]", mode: inout}}
index: {r: C}
store: {"y[r]": {value: 3, when: "all[r](x[0] <= s < r)"}}
""",
    "the same among lanes": """
sizes: {C: static 0 .. 9, R: 0 .. 9}
tensors: {x: "i32[C]", y: {type: "i64[R]", mode: inout}}
index: {r: R, c: C}
store: {"y[r]": {value: 3, when: "any[c](x[0] <= c)"}}
""",
}


@pytest.mark.parametrize("what", SOUND)
def test_a_sound_kernel_is_judged_so(made, what: str) -> None:
    made(SOUND[what])
