"""Right and wrong calls of a package in debug mode, for `run.py`: KGEN_DEBUG=1 python3 debugged.py PACKAGE FILE.

Writes JSON to FILE: for each group and call what it said, how long it took, and what is wrong with that. A right
call must give the reference's bits and no error; a wrong one an error that has the words below, and must
leave every tensor as it was; one under a CUDA graph's capture must be refused.
"""

import importlib
import json
import sys
import time
import traceback
from pathlib import Path

import k3
import run as gpu
import torch

REQUESTS = 3


def put(name, place, value):
    """A change of a call: one element, row or tensor of an argument."""

    def change(arguments):
        arguments[name][place] = value(arguments) if callable(value) else value

    return change


def same_place(pages, offsets):
    """The second request stores to where the first one does."""

    def change(arguments):
        for name in (pages, offsets):
            arguments[name][1, 0] = arguments[name][0, 0]

    return change


def past(name, dim):
    """A value just past a dimension of a tensor."""
    return lambda arguments: arguments[name].shape[dim]


KV = (
    ("values", put("write_offsets", (1, 0), -1), ("write_offsets[1, 0] is -1", "page_size - 1")),
    (
        "trusted",
        same_place("write_pages", "write_offsets"),
        ("r = 0, k = 0", "r = 1, k = 0", "it is trusted"),
    ),
)
BLOCK = (
    ("values", put("block_pages", (2, 1), past("pool", 0)), ("block_pages[2, 1] is", "pages - 1")),
    (
        "trusted",
        same_place("block_pages", "block_in_page"),
        ("r = 0, j = 0", "r = 1, j = 0", "it is trusted"),
    ),
)
SLOTS = (
    (
        "distinct",  # BR-01 (c)
        put("batch_to_slot", 1, lambda arguments: arguments["batch_to_slot"][0]),
        ("batch_to_slot[0] and batch_to_slot[1] are both", "declared distinct"),
    ),
    (
        "values of slots",
        put("batch_to_slot", 2, past("ctx_len", 0)),
        ("batch_to_slot[2] is", "slots - 1"),
    ),
)
BOOKKEEPING = (
    ("values", put("num_accepted", 2, 99), ("num_accepted[2] is 99", "0 .. K1 =", "(r = 2)")),
    *SLOTS,
)
# Group: calls that are wrong in one thing, and words of the error.
WRONG = {
    "accept_prefix": (
        ("values", put("target_tokens", (2, 1), -1), ("target_tokens[2, 1] is -1", "2**31 - 1")),
    ),
    "block_fixup": (
        ("values", put("num_ctx", 1, -1), ("num_ctx[1] is -1", "(r = 1)")),
        ("values of a tile", put("block_tables", (2, -1), -7), ("block_tables[2,", "is -7")),
    ),
    "block_norm_rope_write": BLOCK,
    "block_write": BLOCK,
    "context_kv_norm_rope_write": KV,
    "context_kv_write": KV,
    "context_positions": SLOTS,
    "gen_bookkeeping": (
        *BOOKKEEPING,
        # BR-06 (b): nothing behind the position.
        ("expected", put("block_counts", 0, 0), ("block_counts[0] is 0", "the expected values")),
    ),
    "gen_bookkeeping_arena": BOOKKEEPING,
    "gqa_kv_write": KV,
    "noise_block_from_table": (
        (
            "expected",
            put("embed_ids", 1, past("embed_table", 0)),
            ("embed_ids[1] is", "the expected values are 0 .. vocab - 1"),
        ),
    ),
}


def as_expected(case, arguments):
    """Move values into the ranges that debug mode expects: some inputs are outside on purpose."""
    signature = case.signature
    values = signature.bind(
        tuple(arguments.get(name) for name in signature.tensors),
        tuple(arguments.get(name) for name in signature.scalars),
    )
    for name, declared in signature.tensors.items():
        if declared.expected.text:
            arguments[name].clamp_(*declared.expected.ends(values, -(2**31), 2**31 - 1))


def outcome(package, case, arguments):
    """What a call said, None if it raised nothing, and its milliseconds."""
    started = time.perf_counter()
    try:
        case.fused(**arguments)
    except package.KgenDeviceCheckError as error:
        said = str(error)
    else:
        said = None
    return said, round(1000 * (time.perf_counter() - started), 2)


def right(package, case, arguments):
    expected = gpu.result(gpu.reference(case), arguments)
    own = gpu.copied(arguments)
    said, first = outcome(package, case, own)
    differ = gpu.unequal(own, expected)
    _, again = outcome(package, case, gpu.copied(arguments))
    row = {"said": said, "ms": again, "ms of the first": first}
    wrong = f"a right call said {said}" if said else f"bits differ: {differ}" if differ else ""
    return row | {"wrong": wrong}


def wrong(package, case, arguments, change, words):
    own = gpu.copied(arguments)
    change(own)
    before = gpu.copied(own)
    said, ms = outcome(package, case, own)
    row = {"said": said, "ms": ms, "wrong": ""}
    touched = gpu.unequal(own, before)
    if said is None:
        row["wrong"] = "no error"
    elif touched:
        row["wrong"] = f"written to by a call that failed: {touched}"
    elif not all(word in said for word in words):
        row["wrong"] = f"the error has not all of {words}"
    return row


def captured(package, case, arguments):
    """A call under capture, and an ordinary one after it."""
    own = gpu.copied(arguments)
    torch.cuda.synchronize()
    said = None
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            case.fused(**own)
    except package.KgenCallError as error:
        said = str(error)
    torch.cuda.synchronize()
    checks = importlib.import_module(f"{package.__name__}.debug")
    checked = hasattr(checks, case.signature.group)  # else all of it is proved
    right_refusal = bool(said and "capture" in said) if checked else said is None
    row = {"said": said, "wrong": "" if right_refusal else f"said {said} under capture"}
    after, _ = outcome(package, case, gpu.copied(arguments))
    return row | ({"wrong": f"the next call said {after}"} if after else {})


def main():
    package_name, file = sys.argv[1:3]
    work = gpu.Run(package_name, 600)
    package = importlib.import_module(f"generated.{package_name}")
    sizes = k3.small(REQUESTS) if gpu.DRY else k3.Sizes(REQUESTS)
    step = k3.Step(sizes, gpu.DEVICE)
    rows = {}
    for name in work.groups:
        if name in work.without_inputs:
            continue
        case = work.cases[name]
        calls = [("right", right, ())]
        calls += [(label, wrong, more) for label, *more in WRONG.get(name, ())]
        calls += [] if gpu.DRY else [("captured", captured, ())]
        try:
            arguments = getattr(k3, name)(step)
            as_expected(case, arguments)
        except Exception:  # noqa: BLE001 - the other groups are wanted all the same
            rows[f"{name}: inputs"] = {"said": None, "wrong": traceback.format_exc()[-2000:]}
            continue
        for label, call, more in calls:
            try:
                row = call(package, case, arguments, *more)
            except Exception:  # noqa: BLE001 - the other calls are wanted all the same
                row = {"said": None, "wrong": traceback.format_exc()[-2000:]}
            rows[f"{name}: {label}"] = row
            Path(file).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    with torch.no_grad():
        main()
