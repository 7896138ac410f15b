"""What fused groups save at the sizes of Kimi K3: each group by itself, then the step around them.

    python examples/dspark_decode/at_k3.py [--requests 32] [--context 131072]
    python examples/dspark_decode/at_k3.py --dry-run     # on a CPU, small sizes, nothing is timed

All times are those of replayed CUDA graphs, all variants of a row in turn. Inputs and engine are those of
tests/gpu, which docs/performance.md is measured with. Exit code 1 if bits differ.
"""
# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
GPU = torch.cuda.is_available()
DRY = "--dry-run" in sys.argv
if DRY:
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "gpu")]
WITHOUT_GPU = (
    "On a GPU this shows us a step, eager and fused, from replayed CUDA graphs at the sizes of Kimi K3; "
    "what an H200 showed is in docs/performance.md."
)

# Of the settings of the step: what is shown, and the switches behind it.
SETTINGS: dict[str, dict[str, bool]] = {
    "eager": {},
    "fused": {"fused": True},
    "fused + overlap": {"fused": True, "overlap": True},
}


def main() -> int:
    """Time groups and step, print both tables, and say whether all bits were equal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=32, help="generation requests G (32)")
    parser.add_argument("--context", type=int, default=131072, help="tokens a request (131072)")
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, small, without times")
    options = parser.parse_args()
    if not 1 <= options.requests <= 256:
        parser.error("--requests: 1 to 256")
    if options.context < 256 or options.context % 32:
        parser.error("--context: a multiple of 32, 256 at least")
    if not GPU and not options.dry_run:
        print(WITHOUT_GPU)
        return 0
    requests, context = (3, 64) if options.dry_run else (options.requests, options.context)
    device = torch.device("cpu" if options.dry_run else "cuda")
    rows, differing = _groups(requests, device)
    _print_table(("group", "us eager", "us fused", "saved", "bit-equal"), rows)
    print()
    _print_table(("the step, us", *SETTINGS, "saved"), _step(requests, context))
    where = "CPU, nothing is timed"
    if not options.dry_run:
        where = f"{torch.cuda.get_device_name()}, replayed CUDA graphs"
    print(f"\n{where}; G {requests}, {context} tokens a request in the step.")
    for name in differing:
        print(f"DIFFERS: {name}: eager chain and kernel", file=sys.stderr)
    return 1 if differing else 0


def _groups(requests: int, device: torch.device) -> tuple[list[tuple[str, ...]], list[str]]:
    """Each group that has an eager chain: its row, and the names of those that differ."""
    k3: Any = importlib.import_module("k3")
    # A page modulo G says whose it is, so that no two requests share one.
    step = math.lcm(requests, 4)
    pages = -(-k3.Sizes.pages // step) * step
    sizes = k3.small(requests) if DRY else k3.Sizes(requests, pages=pages)
    manifest = json.loads((ROOT / "generated/dspark/manifest.json").read_text(encoding="utf-8"))
    rows, differing = [], []
    for name in manifest["groups"]:
        case = importlib.import_module(f"generated.dspark.tests.test_{name}").CASE
        if case.eager is None or not hasattr(k3, name):
            continue
        inputs = getattr(k3, name)(k3.Step(sizes, device))
        chains = {"eager": case.eager, "fused": case.fused}
        results = {which: k3.move_all(inputs, device) for which in chains}
        for which, chain in chains.items():
            chain(**results[which])
        equal = _equal(results["eager"], results["fused"], case.eager_ulps)
        if not equal:
            differing.append(name)
        times = _times({which: _call(chains[which], results[which]) for which in chains})
        within = f", within {case.eager_ulps} ulp" if case.eager_ulps else ""
        rows.append((name, *_saved(times), f"yes{within}" if equal else "no"))
    return rows, differing


def _step(requests: int, context: int) -> list[tuple[str, ...]]:
    """The step with more and more of the engine's own stages in it."""
    stepped: Any = importlib.import_module("stepped")
    shown = {
        "only the groups": {"work": False, "norm": False},
        "with sampling and projection": {"work": True, "norm": False},
        "norm and rope of the engine too": {"work": True, "norm": True},
    }
    rows: list[tuple[str, ...]] = []
    for name, stages in shown.items():
        engine = stepped.K3Engine(context, requests, **stages)
        runs = {each: stepped.switched(engine, switches) for each, switches in SETTINGS.items()}
        if DRY:
            for run in runs.values():
                run()
        rows.append((name, *_saved(_times(runs, calls=8))))
    return rows


def _call(chain: Callable[..., object], arguments: dict[str, Any]) -> Callable[[], object]:
    return lambda: chain(**arguments)


def _times(runs: dict[str, Callable[[], object]], calls: int = 20) -> list[float]:
    """Median us of each; none in a dry run."""
    if DRY:
        return []
    from kgen.bench.timing import replay_times  # noqa: PLC0415 - it loads triton

    measured = replay_times(runs, calls=calls, rounds=25)
    return [measured[name].median for name in runs]


def _saved(times: list[float]) -> tuple[str, ...]:
    """The times as text, and what the last saves of the first."""
    if not times:
        return ("-",)
    return (*(f"{each:.1f}" for each in times), f"{times[0] - times[-1]:.1f}")


def _equal(a: dict[str, Any], b: dict[str, Any], ulps: int) -> bool:
    """Whether all tensors are equal to the bit, those of bf16 within `ulps`."""
    for name, value in a.items():
        pair = (value, b[name])
        ones, twos = (each if isinstance(each, list) else [each] for each in pair)
        for one, two in zip(ones, twos, strict=True):
            if isinstance(one, torch.Tensor) and not _same(one, two, ulps):
                return False
    return True


def _same(one: torch.Tensor, two: torch.Tensor, ulps: int) -> bool:
    if one.dtype != torch.bfloat16:
        return torch.equal(one, two)
    first, second = one.view(torch.int16), two.view(torch.int16)
    if not ulps:
        return torch.equal(first, second)
    ordered = [torch.where(each < 0, -32768 - each.int(), each.int()) for each in (first, second)]
    return bool(((ordered[0] - ordered[1]).abs() <= ulps).all())


def _print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    # A row without times has one dash for all of them.
    full = [
        (row[0], *["-"] * (len(head) - len(row) + 1), *row[2:]) if len(row) < len(head) else row
        for row in rows
    ]
    widths = [max(len(row[at]) for row in (head, *full)) for at in range(len(head))]
    for row in (head, tuple("-" * width for width in widths), *full):
        print(" | ".join(map(str.ljust, row, widths)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
