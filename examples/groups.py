"""Run every generated group beside the chain that it replaces: launches of each, and their bits.

    python examples/groups.py [PACKAGE ...]

Each group gets random states, those of its tests, and runs three ways: the eager torch chain, the fused
kernel, and the torch reference. All buffers are compared whole, the space around the tensors included.
With a GPU the kernels run there and launches are counted in CUDA graphs; without one they run in
Triton's interpreter, and operations are counted that each would be a launch. Exit code 1 if any bit
differs.
"""
# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
sys.path.insert(0, str(ROOT))

from kgen.bench.launches import launches  # noqa: E402

STATES = 8  # random states that are shown of each group
MOST_STATES = 100


def main() -> int:
    """Run the groups, print the table, and say whether all bits were equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", help="packages under generated/; all if left out")
    options = parser.parse_args()

    # Random floats have infinities and NaNs among them, which NumPy remarks on in the interpreter.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")
    groups = _groups(options.packages)
    rows, differences = [], []
    for number, (package, name) in enumerate(groups, start=1):
        _progress(f"[{number}/{len(groups)}] {package}.{name}")
        row, found = _run(package, name)
        rows.append(row)
        differences += found
    _progress("")
    _print_table(("group", "launches eager", "launches fused", "bit-equal"), rows)
    print(_where())
    for each in differences:
        print(f"DIFFERS: {each}", file=sys.stderr)
    return 1 if differences else 0


def _groups(packages: list[str]) -> list[tuple[str, str]]:
    """The packages' groups, as their manifests list them."""
    found = sorted((ROOT / "generated").glob("*/manifest.json"))
    return [
        (path.parent.name, name)
        for path in found
        if not packages or path.parent.name in packages
        for name in json.loads(path.read_text(encoding="utf-8"))["groups"]
    ]


def _run(package: str, name: str) -> tuple[tuple[str, ...], list[str]]:
    """One group: its row of the table, and where results differ."""
    testing = importlib.import_module(f"generated.{package}._testing")
    case = importlib.import_module(f"generated.{package}.tests.test_{name}").CASE
    launched = {"kernel": 0, "eager chain": 0}
    found, shown = [], 0
    for seed in range(MOST_STATES):
        start = testing.draw(case, seed).clone(DEVICE)
        expected = start.clone()
        case.run_reference(expected)
        if not testing.differences(case, start, start, expected):
            continue  # it changes nothing, for want of rows, say
        for what, chain, defaults, ulps in _chains(case, start):
            result = start.clone()
            chain(**result.arguments(), **defaults)
            launched[what] = max(
                launched[what], _count(chain, start.clone().arguments() | defaults)
            )
            found += [
                f"{package}.{name}, state {seed}, {what} and reference: {difference}"
                for difference in testing.differences(case, start, result, expected, ulps)
            ]
        shown += 1
        if shown == STATES:
            break
    if not shown:
        found.append(f"{package}.{name}: none of {MOST_STATES} states changes anything")
    eager = str(launched["eager chain"]) if case.eager is not None else "-"
    equal = "no" if found else "yes"
    if case.eager_ulps and not found:
        equal += f", eager within {case.eager_ulps} ulp"
    return (f"{package}.{name}", eager, str(launched["kernel"]), equal), found


def _chains(case: Any, start: Any) -> Iterator[tuple[str, Any, dict[str, Any], int]]:
    """What to hold against the reference: name, function, further arguments, ulps that it may be off."""
    yield "kernel", case.fused, {}, 0
    if case.eager is not None and start.usual:  # the chain knows no options
        yield "eager chain", case.eager, case.eager_defaults(start), case.eager_ulps


def _count(chain: Any, arguments: dict[str, Any]) -> int:
    return launches(lambda: chain(**arguments), DEVICE)


def _where() -> str:
    if DEVICE.type == "cuda":
        how = f"On {torch.cuda.get_device_name()}; launches are nodes of a CUDA graph"
    else:
        how = "In Triton's interpreter; eager launches are torch operations that would be one on a GPU"
    return f"\n{how},\nthe most of {STATES} random states."


def _progress(text: str) -> None:
    """A line that the next one replaces, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    for row in (head, tuple("-" * width for width in widths), *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print(" | ".join(cells).rstrip())


if __name__ == "__main__":
    sys.exit(main())
