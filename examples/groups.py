"""Run every generated group beside the chain that it replaces: launches of each, and their bits.

    python examples/groups.py [--states 12] [PACKAGE ...]

Each group gets small random states and runs three ways: the eager torch chain, the fused kernel, and
the torch reference. All buffers are compared whole, the space around the tensors included. With a GPU
the kernels run there and launches are counted in CUDA graphs; without one they run in Triton's
interpreter, and operations are counted that each would be a launch. Exit code 1 if any bit differs.
"""
# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
sys.path.insert(0, str(ROOT))

from kgen.bench.launches import launches  # noqa: E402


def main() -> int:
    """Run the groups, print the table, and say whether all bits were equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", help="packages under generated/; all if left out")
    parser.add_argument("--states", type=int, default=12, help="random states for each group")
    options = parser.parse_args()

    groups = _groups(options.packages)
    rows, differences = [], []
    for number, (package, name) in enumerate(groups, start=1):
        _progress(f"[{number}/{len(groups)}] {package}.{name}")
        row, found = _run(package, name, options.states)
        rows.append(row)
        differences += found
    _progress("")
    _print_table(("group", "launches eager", "launches fused", "bit-equal"), rows)
    print(f"\n{options.states} random states for each group, {_where()}")
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


def _run(package: str, name: str, states: int) -> tuple[tuple[str, ...], list[str]]:
    """One group: its row of the table, and where results differ."""
    testing = importlib.import_module(f"generated.{package}._testing")
    case = importlib.import_module(f"generated.{package}.tests.test_{name}").CASE
    chains = {"kernel": case.fused}
    if case.eager is not None:
        chains["eager chain"] = case.eager
    most = dict.fromkeys(chains, 0)  # some states are empty and launch nothing
    found = []
    for seed in range(states):
        start = testing.draw(case, seed).clone(DEVICE)
        reference = start.clone()
        case.run_reference(reference)
        for what, chain in chains.items():
            result = start.clone()
            chain(**result.arguments())
            most[what] = max(most[what], _count(chain, start.clone().arguments()))
            found += [
                f"{package}.{name}, state {seed}, {what} and reference: {difference}"
                for difference in testing.differences(case, start, result, reference)
            ]
    eager = str(most.get("eager chain", "-"))
    return (f"{package}.{name}", eager, str(most["kernel"]), "no" if found else "yes"), found


def _count(chain: Any, arguments: dict[str, Any]) -> int:
    return launches(lambda: chain(**arguments), DEVICE)


def _where() -> str:
    if DEVICE.type == "cuda":
        return f"on {torch.cuda.get_device_name()}; launches are nodes of a CUDA graph."
    return (
        "in Triton's interpreter on the CPU;\n"
        "an eager launch is a torch operation that would be one on a GPU."
    )


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
