"""A generated package stands alone: copied elsewhere, beside other copies, without kgen, and it refuses wrong calls.

What must not be importable is blocked in a process of its own, and so is the choice of the interpreter.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import building
import calls
import pytest
import torch
from vendored import ROOT, run, vendor


@pytest.mark.parametrize("name", ["dspark", "engine.third_party.dspark"])
def test_a_copy_alone_runs_the_reference_on_the_cpu(tmp_path, name):
    vendor(tmp_path / Path(*name.split(".")))
    run(
        tmp_path,
        f"""
        import {name} as package
        def launch(*_, **__):
            raise AssertionError("a kernel on the CPU")
        package._launch.launch = launch
        assert call(package) == RIGHT
        assert not [n for n in sys.modules if n.split(".")[0] == "kgen"]
        """,
        interpret=False,
    )


@pytest.mark.parametrize("name", ["dspark", "engine.third_party.dspark"])
def test_a_copy_alone_runs_the_kernel_in_the_interpreter(tmp_path, name):
    vendor(tmp_path / Path(*name.split(".")))
    run(
        tmp_path,
        f"""
        import {name} as package
        package.ops.context_positions.reference = None
        assert call(package) == RIGHT
        assert not [n for n in sys.modules if n.split(".")[0] == "kgen"]
        """,
        interpret=True,
    )


@pytest.mark.parametrize("place", ["dspark", pytest.param("engine/dspark", marks=pytest.mark.slow)])
def test_a_copy_brings_its_tests(tmp_path, place):
    """One group's, with kgen and what it needs blocked; in a package and in a plain folder."""
    vendor(tmp_path / place)
    if "/" in place:
        (tmp_path / "engine" / "__init__.py").write_text("")
    printed = run(
        tmp_path,
        f"""
        import pytest
        where = "{place}/tests/test_context_positions.py"
        sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", where]))
        """,
        interpret=True,
    )
    assert "passed" in printed
    assert "failed" not in printed


def test_copies_live_side_by_side(tmp_path):
    """BR-37: two copies of one package, and one of other specs under the same name."""
    specs = tmp_path / "specs" / "dspark"
    specs.mkdir(parents=True)
    text = (ROOT / "specs" / "dspark" / "context_positions.yaml").read_text()
    changed = text.replace("ctx_len[slot] + k", "ctx_len[slot] + k + 1000").replace(
        "eager: context_positions\n", ""
    )
    assert changed.count("1000") == 1
    (specs / "context_positions.yaml").write_text(changed)
    building.build(specs, tmp_path / "other")
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    vendor(tmp_path / "first" / "dspark")
    vendor(tmp_path / "second" / "dspark")
    run(
        tmp_path,
        """
        import first.dspark, second.dspark, other.dspark
        more = [[1000 + v for v in row] for row in RIGHT]
        for _ in range(2):
            assert call(first.dspark) == call(second.dspark) == RIGHT
            assert call(other.dspark) == more
        def through_torch(package):
            out = torch.zeros(2, 3, dtype=torch.int64)
            package.ops.context_positions.op(
                torch.tensor([10, 20, 30]), torch.tensor([0, 1, 0]), out, 1
            )
            return out.tolist()
        assert through_torch(first.dspark) == through_torch(second.dspark) == RIGHT
        assert through_torch(other.dspark) == more
        assert first.dspark.KgenCallError is not second.dspark.KgenCallError
        """,
        interpret=True,
    )


# What is changed in a second copy, and what it makes of [[20, 21, 22], [10, 11, 12]].
CHANGES = {
    "kernels.py": ("ctx_len_value + k,", "ctx_len_value + k + 1000,", 1000),
    "reference.py": ("ctx_positions_new)", "ctx_positions_new + 1000)", 1000),
    "_launch.py": (
        "arguments = [*prepared.arguments]",
        "arguments = [*prepared.arguments]; return",
        None,
    ),
    "_operator.py": ("if call.launch is None:", "if True:", None),
    "ops.py": (
        '"num_contexts": "i32 0 .. max_batch - G"',
        '"num_contexts": "i32 0 .. 0"',
        "refused",
    ),
    "_runtime.py": ("declared.ends(values)", "(0, 0)", "refused"),
}


@pytest.mark.parametrize(
    "name",
    [
        each if each == "kernels.py" else pytest.param(each, marks=pytest.mark.slow)
        for each in CHANGES
    ],
)
def test_copies_that_differ_in_any_file_run_their_own_code(tmp_path, name):
    """Called, through torch's operators and compiled, whichever was imported first."""
    old, new, more = CHANGES[name]
    for copy in ("first", "second", "third"):
        (tmp_path / copy).mkdir()
        vendor(tmp_path / copy / "dspark")
    path = tmp_path / "second" / "dspark" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    run(
        tmp_path,
        f"""
        import first.dspark, second.dspark, third.dspark
        more = {more!r}
        def changed():
            if more is None:
                return [[77] * 3] * 2
            return [[more + v for v in row] for row in RIGHT]
        def through_torch(package):
            out = torch.full((2, 3), 77)
            package.ops.context_positions.op(
                torch.tensor([10, 20, 30]), torch.tensor([0, 1, 0]), out, 1
            )
            return out.tolist()
        def compiled(package):
            torch._dynamo.reset()
            step = torch.compile(package.context_positions, fullgraph=True, backend="aot_eager")
            out = torch.full((2, 3), 77)
            step(
                ctx_len=torch.tensor([10, 20, 30]),
                batch_to_slot=torch.tensor([0, 1, 0]),
                ctx_positions=out,
                num_contexts=1,
            )
            return out.tolist()
        for way in (call, through_torch, compiled, call):
            for package in (first.dspark, second.dspark, third.dspark):
                try:
                    found = way(package)
                except package.KgenCallError:
                    found = "refused"
                own = package is second.dspark
                assert found == (more if more == "refused" else changed()) if own else found == RIGHT, (way, package)
        names = {{p.ops.context_positions.op.name() for p in (first.dspark, second.dspark, third.dspark)}}
        assert len(names) == 3, names
        """,
        interpret=name != "reference.py",
    )


def test_a_package_that_is_imported_again_is_registered_again(tmp_path):
    vendor(tmp_path / "dspark")
    run(
        tmp_path,
        """
        import dspark
        for _ in range(3):
            assert call(dspark) == RIGHT
            for name in [name for name in sys.modules if name.split(".")[0] == "dspark"]:
                del sys.modules[name]
            import dspark
            dspark.ops.context_positions.op
        """,
        interpret=True,
    )


# Wrong calls, each wrong in one thing: (group, what is changed, words of the error).

BOOKKEEPING = {
    "accepted_tokens": [[1, 2]] * 3,
    "num_accepted": [1, 2, 0],
    "batch_to_slot": [0, 1, 2],
    "block_counts": [2] * 3,
    "block_tables": [[1, 2]] * 3,
    "ctx_len": [1, 2, 3, 4],
    "G": 2,
    "W": 2,
    "num_contexts": 1,
    "max_ctx": 100,
    "mask_token_id": 5,
    "page_size": 4,
}
FIXUP = {
    "num_ctx": [1, 2, 3, 4],
    "block_tables": [[1, 2, 3, 4]] * 5,
    "num_contexts": 1,
    "page_size": 4,
    "W": 2,
}


def ints(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


WRONG: list[tuple[str, dict[str, Any], dict[str, Any], tuple[str, ...]]] = [
    # BR-06 (d), (e): a buffer sized for another batch, a row narrower than the table's.
    ("block_fixup", FIXUP, {"kv_lens": ints(3, dtype=torch.int32)}, ("`kv_lens`", "3", "4")),
    (
        "block_fixup",
        FIXUP,
        {"page_tables": ints(4, 3, dtype=torch.int32)},
        ("`page_tables`", "3", "4"),
    ),
    ("gen_bookkeeping", BOOKKEEPING, {"embed_ids": ints(2)}, ("`embed_ids`", "[2]", "[3]")),
    # BR-29: a type by accident.
    (
        "gen_bookkeeping",
        BOOKKEEPING,
        {"num_accepted": ints(3)},
        ("`num_accepted`", "int64", "int32"),
    ),
    (
        "gen_bookkeeping",
        BOOKKEEPING,
        {"batch_to_slot": ints(3, dtype=torch.int32)},
        ("`batch_to_slot`", "int32", "int64"),
    ),
    (
        "gen_bookkeeping",
        BOOKKEEPING,
        {"block_tables": ints(3, 2)},
        ("`block_tables`", "int64", "int32"),
    ),
    (
        "gen_bookkeeping",
        BOOKKEEPING,
        {"keep": ints(2, 2, dtype=torch.uint8)},
        ("`keep`", "uint8", "bool"),
    ),
    # BR-30: the split of context and generation requests from another view of the batch.
    ("gen_bookkeeping", BOOKKEEPING, {"num_contexts": 2}, ("`num_contexts`", "2", "0 .. 1")),
    ("block_fixup", FIXUP, {"num_contexts": 2}, ("`num_contexts`", "2", "0 .. 1")),
    # BR-36: tensors of two devices.
    (
        "gen_bookkeeping",
        BOOKKEEPING,
        {"ctx_len": ints(4).to("meta")},
        ("`ctx_len`", "meta", "one device"),
    ),
    # Numbers that are none, or do not fit the kernel's argument.
    ("gen_bookkeeping", BOOKKEEPING, {"page_size": True}, ("`page_size`", "bool")),
    ("gen_bookkeeping", BOOKKEEPING, {"page_size": 0}, ("`page_size`", "1 .. 1024")),
    ("gen_bookkeeping", BOOKKEEPING, {"max_ctx": 2**40}, ("`max_ctx`", "2**21")),
    ("gen_bookkeeping", BOOKKEEPING, {"mask_token_id": 5.0}, ("`mask_token_id`", "float")),
]


@pytest.mark.parametrize("group, right, wrong, words", WRONG, ids=[next(iter(w[2])) for w in WRONG])
def test_a_wrong_call_is_refused_and_writes_nothing(group, right, wrong, words, device):
    package = importlib.import_module("generated.dspark")
    case = calls.dspark(group)
    moved = {
        name: value.to(device)
        if isinstance(value, torch.Tensor) and value.device.type != "meta"
        else value
        for name, value in wrong.items()
    }
    arguments = calls.arguments(case, device, **right) | moved
    before = {
        name: value.clone() for name, value in arguments.items() if isinstance(value, torch.Tensor)
    }
    with pytest.raises(package.KgenCallError) as caught:
        case.fused(**arguments)
    assert group in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    for name, tensor in before.items():
        assert tensor.device.type == "meta" or torch.equal(tensor, arguments[name]), name


def test_the_right_call_is_taken(device):
    """What the wrong calls above differ from."""
    for group, right in (("gen_bookkeeping", BOOKKEEPING), ("block_fixup", FIXUP)):
        case = calls.dspark(group)
        case.fused(**calls.arguments(case, device, **right))


def test_views_of_one_buffer_that_do_not_meet_are_taken(device):
    """Aliasing is refused where memory is shared, not where a buffer is."""
    package = importlib.import_module("generated.dspark")
    case = calls.dspark("block_fixup")
    arguments = calls.arguments(case, device, **FIXUP)
    both = torch.zeros(4, 4, dtype=torch.int64, device=device)
    case.fused(**arguments | {"block_pages": both[:, :2], "block_in_page": both[:, 2:]})
    assert both.tolist() == [[1, 1, 1, 2], [1, 1, 2, 3], [1, 2, 3, 0], [2, 2, 0, 1]]
    with pytest.raises(package.KgenCallError, match="share memory"):
        case.fused(**arguments | {"block_pages": both[:, :2], "block_in_page": both[:, 1:3]})
