"""Debug mode: KGEN_DEBUG=1 finds what breaks a spec, says where, and writes nothing; without it nothing changes.

`debugged` is the committed package imported under another name with the variable set. Each wrong call is made
twice: with the kernel's check, and on the reference, which is watched where no kernel runs.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import building
import calls
import pytest
import torch

from kgen.build import compile_group, compile_packages
from kgen.diagnostics import Report
from kgen.spec.package import read_packages

ROOT = Path(__file__).parents[1]
GROUPS = sorted(
    path.stem for path in (ROOT / "specs" / "dspark").glob("*.yaml") if path.stem != "step"
)
SMALL = ROOT / "tests" / "semantics" / "specs" / "small"
READINGS = ("kernel", "reference")
WORLDS = 4

# What no group of dspark can do wrong with values in their declared ranges.
PROBES = {
    "gather": """
        sizes: {R: 0 .. 100, N: 1 .. 50}
        tensors:
          at: i32[R]
          x: {type: "u8[N]", values: 0 .. 200}
          y: {type: "u8[R]", mode: out}
        index: {r: R}
        store:
          y[r]: x[at[r]] if at[r] != -1 else 0
        trusted:
          x[at[r]]: looked at in debug mode
    """,
    "scatter": """
        sizes: {R: 0 .. 100, K: static 1 .. 8, N: 1 .. 50}
        tensors:
          at: i64[R, K]
          x: f32[R, K]
          y: {type: "f32[R, N]", mode: inout}
          z: {type: "f32[N]", mode: inout}
        index: {r: R, k: K}
        store:
          y[r, at[r, k]]: {value: "x[r, k]", when: "at[r, k] >= 0", collide: last k}
          z[at[r, 0]]: {value: "x[r, 0]", when: "at[r, 0] >= 0", trusted: each row has its place}
        trusted:
          y[r, at[r, k]]: looked at in debug mode
          z[at[r, 0]]: looked at in debug mode
    """,
    "sums": """
        sizes: {R: 0 .. 100, C: 0 .. 9000}
        tensors:
          x: {type: "i32[R, C]", values: -5 ..}
          total: {type: "i64[R]", mode: out}
          running: {type: "i64[R, C]", mode: out}
        index: {r: R, c: C}
        store:
          total[r]: sum[c](x[r, c])
          running[r, c]: cumsum[c](x[r, c])
    """,
    "lists": """
        sizes: {R: 0 .. 100, L: static 1 .. 4, N: 1 .. 50}
        tensors:
          which: i64[R]
          tables: {type: "i32[N]", list: L, values: .. N}
          spare: {type: "i64[R]", values: 3 .. 7, optional: true}
          y: {type: "i64[R]", mode: out}
        index: {r: R}
        store:
          y[r]: i64(tables[which[r]][r % N]) + (spare[r] if given(spare) else 0)
        trusted:
          tables[which[r]][r % N]: looked at in debug mode
    """,
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The small specs of the language's tests, built."""
    built = tmp_path_factory.mktemp("checks") / "checked_small"
    building.build(SMALL, built)
    return built


@pytest.fixture(scope="module")
def case_of(small, tmp_path_factory):
    """The test cases of the committed package, of the small specs and of the probes, in debug mode."""
    importlib.import_module(
        "generated.dspark.ops"
    )  # the registered operators are those of this one
    folder = tmp_path_factory.mktemp("probes")
    (folder / "probe").mkdir()
    for name, text in PROBES.items():
        head = f"group: {name}\nsummary: A probe.\n"
        (folder / "probe" / f"{name}.yaml").write_text(head + textwrap.dedent(text))
    building.build(folder / "probe", folder / "out")
    places = {"dspark": ROOT / "generated", "small": small, "probe": folder / "out"}
    os.environ["KGEN_DEBUG"] = "1"
    try:
        for package, place in places.items():
            building.load(place, f"debugged_{package}")
            importlib.import_module(f"debugged_{package}.{package}")
        yield case
    finally:
        del os.environ["KGEN_DEBUG"]
        for package in places:
            building.unload(f"debugged_{package}")


def case(group: str) -> Any:
    """A group's test case in debug mode."""
    package = "probe" if group in PROBES else "dspark" if group in GROUPS else "small"
    return building.case(f"debugged_{package}", package, group)


@contextlib.contextmanager
def read_by(package: str, reading: str):
    """Run the kernel, or on a CPU the reference as if there were no interpreter."""
    modules = [importlib.import_module(f"{package}.{name}") for name in ("_operator", "_debug")]
    kept = [module.runs_kernels for module in modules]
    for module in modules:
        if reading == "reference":
            module.runs_kernels = lambda _: False
    try:
        yield modules[1].KgenDeviceCheckError
    finally:
        for module, each in zip(modules, kept, strict=True):
            module.runs_kernels = each


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's memory as integers, so that NaN compares."""
    floats = {torch.bfloat16: torch.int16, torch.float32: torch.int32}
    return tensor.view(floats.get(tensor.dtype, tensor.dtype))


def tensors_of(arguments: dict[str, Any]) -> dict[str, list[torch.Tensor]]:
    several = {n: v if isinstance(v, list) else [v] for n, v in arguments.items()}
    return {n: v for n, v in several.items() if isinstance(v[0], torch.Tensor)}


def error_of(case: Any, reading: str, arguments: dict[str, Any]) -> str:
    """The text of the error, once it is known that nothing was written; empty if there is none."""
    package = case.operator.module
    before = {n: [t.clone() for t in each] for n, each in tensors_of(arguments).items()}
    with read_by(package, reading) as error:
        try:
            case.fused(**arguments)
        except error as caught:
            for name, each in tensors_of(arguments).items():
                for tensor, old in zip(each, before[name], strict=True):
                    assert torch.equal(bits(tensor), bits(old)), name
            return str(caught)
    return ""


# Right inputs.


def as_expected(case: Any, world: Any) -> None:
    """Move the values of a drawn world into the ranges that are expected."""
    for name, declared in case.signature.tensors.items():
        if declared.expected.text:
            low, high = declared.expected.ends(world.values, -(2**63), 2**63 - 1)
            for buffer in world.buffers[name]:
                buffer.view.clamp_(low, high)


@pytest.mark.parametrize("group", GROUPS)
def test_right_inputs_give_the_kernels_bits_and_no_error(case_of, group, device):
    """Random worlds, in which no two points meet where a spec trusts them not to."""
    case, plain = case_of(group), calls.dspark(group)
    testing = building.testing("debugged_dspark", "dspark")
    for seed in range(WORLDS):
        start = testing.draw(case, seed).clone(device)
        as_expected(case, start)
        checked, kernel, watched = start.clone(), start.clone(), start.clone()
        assert error_of(case, "kernel", checked.arguments()) == ""
        assert error_of(case, "reference", watched.arguments()) == ""
        plain.fused(**kernel.arguments())
        assert testing._same(checked, kernel)


# Wrong inputs: (group, what is given, the error's text).

BOOKKEEPING = {
    "K1": 8,
    "W": 7,
    "G": 2,
    "accepted_tokens": [[10 * row + k for k in range(8)] for row in range(3)],
    "num_accepted": [2, 1, 8],
    "batch_to_slot": [0, 2, 3],
    "ctx_len": [10, 20, 30, 99],
    "block_counts": [30] * 3,
    "block_tables": [list(range(30))] * 3,
    "num_contexts": 1,
    "max_ctx": 100,
    "mask_token_id": 5,
    "page_size": 4,
}
# Two requests of two tokens each, pages of 4; page 0 belongs to the second.
KV = {
    "normed": [[[1.0], [2.0], [3.0], [4.0]]],
    "keep": [[True, True], [True, True]],
    "write_pages": [[2, 2], [0, 0]],
    "write_offsets": [[1, 2], [1, 2]],
}
SCATTER = {"at": [[0, 4, 4], [1, -1, -1]], "x": [[1.0, 2, 3], [4, 5, 6]], "N": 5}


def kv(**changes: Any) -> dict[str, Any]:
    """A call of context_kv_write with a pool of 5 pages in a list of one."""
    pool = torch.full((5, 1, 1, 4, 1), 77, dtype=torch.bfloat16)
    return KV | {"pool": [pool]} | changes


DSPARK: list[tuple[str, dict[str, Any], str]] = [
    (
        "gen_bookkeeping",
        BOOKKEEPING | {"num_accepted": [2, 1, 9]},
        "gen_bookkeeping: num_accepted[2] is 9, but its declared values are 0 .. K1 = 8 (r = 1)",
    ),
    (
        "gen_bookkeeping",
        BOOKKEEPING | {"batch_to_slot": [0, -1, 3]},
        "gen_bookkeeping: batch_to_slot[1] is -1, but its declared values are 0 .. slots - 1 = 3 (r = 0)",
    ),
    (  # a table's entry behind the guard of a clamp, and the first of several
        "gen_bookkeeping",
        BOOKKEEPING | {"block_tables": [[-1] * 30, [7] * 6 + [-9] * 24, [-2] * 30]},
        "gen_bookkeeping: block_tables[1, 7] is -9, but its declared values are 0 .. (r = 0, k = 0)",
    ),
    (  # BR-01 (c)
        "gen_bookkeeping",
        BOOKKEEPING | {"batch_to_slot": [2, 0, 0]},
        (
            "gen_bookkeeping: batch_to_slot[1] and batch_to_slot[2] are both 0, but `batch_to_slot` is "
            "declared distinct, except slots - 1 = 3"
        ),
    ),
    (  # BR-06 (b): nothing behind the position
        "gen_bookkeeping",
        BOOKKEEPING | {"block_counts": [30, 30, 0], "block_tables": [[0] * 30] * 3},
        (
            "gen_bookkeeping: block_counts[2] is 0, but the expected values are 1 - drop_overflow = 1 .. "
            "blocks = 30 (r = 1)"
        ),
    ),
    (  # BR-06 (c): a hole in the first request's table has decoded to page 0
        "context_kv_write",
        kv(write_pages=[[2, 0], [0, 0]]),
        (
            "context_kv_write: pool[0][0, 0, 0, 2, 0] is stored to at (l = 0, r = 0, k = 1, d = 0) and at "
            "(l = 0, r = 1, k = 1, d = 0), but it is trusted that no place is stored to twice: requests own "
            "disjoint pages; what lands on a page that rows share is undefined"
        ),
    ),
    (
        "context_kv_write",
        kv(write_offsets=[[1, 2], [4, 2]]),
        (
            "context_kv_write: write_offsets[1, 0] is 4, but its declared values are 0 .. page_size - 1 = 3 "
            "(r = 1, k = 0)"
        ),
    ),
    (
        "noise_block_from_table",
        {"G": 2, "embed_ids": [3, 9, 1], "embed_table": [[1.0, 2.0]] * 9, "W": 2},
        (
            "noise_block_from_table: embed_ids[1] is 9, but the expected values are 0 .. vocab - 1 = 8 "
            "(r = 1, j = 0)"
        ),
    ),
]
OTHERS: list[tuple[str, dict[str, Any], str]] = [
    (
        "gather",
        {"at": [0, -1, 3], "x": [1, 2, 3]},
        "gather: x[3] is read, but it has N = 3 elements (r = 2)",
    ),
    (
        "gather",
        {"at": [0, -2, 3], "x": [1, 2, 3]},
        "gather: x[-2] is read, but it has N = 3 elements (r = 1)",
    ),
    (
        "gather",
        {"at": [0, -1, 2], "x": [1, 255, 201]},
        "gather: x[2] is 201, but its declared values are 0 .. 200 (r = 2)",
    ),
    (
        "scatter",
        SCATTER | {"at": [[0, 4, 4], [1, 5, -1]]},
        "scatter: y[1, 5] is stored to, but its dimension 1 has N = 5 elements (r = 1, k = 1)",
    ),
    (
        "scatter",
        SCATTER | {"at": [[1, 4, 4], [1, 0, 0]]},
        (
            "scatter: z[1] is stored to at (r = 0) and at (r = 1), but it is trusted that no place is stored "
            "to twice: each row has its place"
        ),
    ),
    (
        "sums",
        {"x": [[0] * 5000, [0] * 4500 + [-6] * 500]},
        "sums: x[1, 4500] is -6, but its declared values are -5 .. (r = 1, c = 4500)",
    ),
    (
        "lists",
        {"which": [0, 2], "tables": ([1, 2, 3], [1, 2, 3])},
        "lists: tables[2][1] is read, but the list has L = 2 elements (r = 1)",
    ),
    (
        "lists",
        {"which": [0, 1], "tables": ([1, 2, 3], [1, 4, 3])},
        "lists: tables[1][1] is 4, but its declared values are .. N = 3 (r = 1)",
    ),
    (
        "lists",
        {"which": [0, 1], "tables": ([1, 2, 3], [1, 2, 3]), "spare": [3, 8]},
        "lists: spare[1] is 8, but its declared values are 3 .. 7 (r = 1)",
    ),
]


def listed(case: Any, given: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The arguments of a call, a tuple being a list of tensors."""
    lists = {n: v for n, v in given.items() if isinstance(v, tuple | list) and is_list(case, n)}
    single = {n: v for n, v in given.items() if n not in lists}
    for name, each in lists.items():
        dtype, dims = case.signature.tensors[name].dtype, case.signature.tensors[name].dims
        lists[name] = [torch.as_tensor(v, dtype=dtype).to(device) for v in each]
        shape = lists[name][0].shape
        single |= {d.text: n for d, n in zip(dims, shape, strict=True) if d.text.isidentifier()}
        single[case.signature.tensors[name].length.text] = len(each)
    return calls.arguments(case, device, lists=lists, **single)


def is_list(case: Any, name: str) -> bool:
    return name in case.signature.tensors and case.signature.tensors[name].length is not None


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("group, given, text", DSPARK + OTHERS)
def test_wrong_inputs_are_named_and_write_nothing(case_of, group, given, text, reading, device):
    case = case_of(group)
    arguments = listed(case, given, device)
    text += "; nothing was written"
    assert error_of(case, reading, arguments) == text


# What is not read is not checked, and what `collide` or `except` allows is no fault.
FINE: list[tuple[str, dict[str, Any]]] = [
    ("gen_bookkeeping", BOOKKEEPING),
    (
        "gen_bookkeeping",
        BOOKKEEPING
        | {"num_accepted": [99, 1, 8], "batch_to_slot": [2, 3, 3], "block_counts": [-1, 30, 30]},
    ),
    (
        "gen_bookkeeping",
        BOOKKEEPING | {"live": 1, "num_accepted": [2, 1, 99], "batch_to_slot": [9, 2, 2]},
    ),
    ("gen_bookkeeping", BOOKKEEPING | {"drop_overflow": 1, "block_counts": [30, 30, 0]}),
    ("context_kv_write", kv()),
    ("context_kv_write", kv(write_offsets=[[1, 1], [3, 3]])),
    ("context_kv_write", kv(write_pages=[[2, 2], [2, 2]], live=1)),
    ("gather", {"at": [0, -1, 2], "x": [1, 255, 200]}),
    ("gather", {"at": [], "x": [255]}),
    ("scatter", SCATTER),
    ("sums", {"x": [[-5] * 5000]}),
    ("lists", {"which": [0, 1], "tables": ([1, 99, 3], [99, 2, 3])}),
]


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("group, given", FINE)
def test_what_is_not_read_is_not_checked(case_of, group, given, reading, device):
    case = case_of(group)
    assert error_of(case, reading, listed(case, given, device)) == ""


def spoiled(case: Any, world: Any, chance: random.Random) -> bool:
    """Change an element of a tensor of integers, mostly to what is out of range; whether there is one."""
    found = [
        (declared, buffer.view)
        for name, declared in case.signature.tensors.items()
        for buffer in world.buffers[name]
        if declared.dtype in (torch.int32, torch.int64) and declared.mode != "out"
        if name not in world.absent and buffer.view.numel()
    ]
    if not found:
        return False
    declared, view = chance.choice(found)
    low, high = declared.values.ends(world.values, -(2**31) + 1, 2**31 - 2)
    at = tuple(chance.randrange(size) for size in view.shape)
    view[at] = chance.choice((max(low - 1, -(2**31)), min(high + 1, 2**31 - 1), -5, 10**6, low))
    return True


@pytest.mark.parametrize("group", sorted(path.stem for path in SMALL.glob("*.yaml")))
def test_both_readings_say_the_same_of_spoiled_inputs(case_of, group, device):
    """The check and the watched reference come from two emitters, and know nothing of each other."""
    case, testing = case_of(group), building.testing("debugged_small", "small")
    chance = random.Random(group)
    for seed in range(3):
        right = testing.draw(case, seed)
        assert error_of(case, "kernel", right.clone(device).arguments()) == ""
        for _ in range(3):
            world = right.clone()
            if spoiled(case, world, chance):
                said = [error_of(case, r, world.clone(device).arguments()) for r in READINGS]
                assert said[0] == said[1], world.values


def test_a_registered_operator_is_checked_too(case_of, device):
    case_of("gather")
    ops = importlib.import_module("debugged_probe.probe.ops")
    error = importlib.import_module("debugged_probe.probe").KgenDeviceCheckError
    at, x = torch.tensor([0, 7], dtype=torch.int32), torch.tensor([1, 2], dtype=torch.uint8)
    with pytest.raises(error, match=r"x\[7\] is read, but it has N = 2 elements \(r = 1\)"):
        ops.gather.op(at.to(device), x.to(device), torch.zeros_like(x).to(device))


def test_threads_check_their_own_calls(case_of, device):
    """On the CPU the reference is watched, which must not keep another thread's call from storing."""
    case, wrong = case_of("gather"), []

    def work(number: int) -> None:
        at = torch.arange(20, dtype=torch.int32, device=device) % 10
        x = torch.full((10,), number, dtype=torch.uint8, device=device)
        for _ in range(30):
            y = torch.full((20,), 99, dtype=torch.uint8, device=device)
            case.fused(at=at, x=x, y=y)
            if y.tolist() != [number] * 20:
                wrong.append(y.tolist())

    with read_by("debugged_probe.probe", "reference"):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


# Without the variable.

PRINT = """
import hashlib, importlib, json, sys
sys.path.insert(0, sys.argv[1])
package = importlib.import_module("generated.dspark")
kernels = importlib.import_module("generated.dspark.kernels")
keys = {n: k.cache_key for n, k in vars(kernels).items() if n.endswith("_kernel")}
print(json.dumps({"keys": keys, "on": package._debug.DEBUG, "debug": "generated.dspark.debug" in sys.modules}))
"""


def printed(**variables: str) -> dict[str, Any]:
    env = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "KGEN_DEBUG")}
    command = [sys.executable, "-c", PRINT, str(ROOT)]
    done = subprocess.run(command, env=env | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_without_the_variable_nothing_is_checked_and_the_kernels_are_the_same():
    """The key under which Triton caches a kernel is made of its text and all that it calls."""
    without, with_it = printed(), printed(KGEN_DEBUG="1")
    assert not without["on"]
    assert not without["debug"]
    assert with_it["on"]
    assert len(without["keys"]) == len(GROUPS)
    assert with_it["keys"] == without["keys"]


def test_the_checks_leave_no_trace_in_the_kernels():
    """kernels.py is made of the kernels' own texts and their helpers, none of which knows of checks."""
    report = Report()
    (package,) = read_packages(ROOT / "specs" / "dspark", report)
    built = compile_packages((package,), report)[0]
    text = built.files["kernels.py"]
    kernels = [compile_group(group, report).kernel for group in built.groups]
    assert all(kernel.text in text for kernel in kernels)
    names = {name.split("(")[0] for name in text.split("\ndef ")[1:]}
    assert {name for name in names if name.endswith("_kernel")} == {f"{g}_kernel" for g in GROUPS}
    assert "_report" not in text
    assert "atomic" not in text


# Compiled.


@pytest.mark.parametrize(
    "package, tries, targets",
    [
        ("dspark", "[5]", ("90", "gfx942")),
        pytest.param("dspark", "[5]", ("80", "100", "120"), marks=pytest.mark.slow),
        pytest.param("dspark", "[3, 5]", ("90",), marks=pytest.mark.slow),
        pytest.param("small", "[5]", ("90",), marks=pytest.mark.slow),
    ],
)
def test_checks_compile_and_store_to_their_buffers_alone(small, package, tries, targets, tmp_path):
    folder = small if package == "small" else ROOT / "generated"
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    script = ROOT / "tests" / "helpers" / "compile_checks.py"
    command = [sys.executable, str(script), str(folder), package, tries, *targets]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["problems"] == []
    assert found["checks"] >= 8 * len(targets)
