"""Serve a few requests with a DSpark drafter, with each way of running its decode step.

    python examples/dspark_decode/run.py [--requests 6] [--tokens 24] [--no-graph] [--json]
    torchrun --nproc-per-node 2 examples/dspark_decode/run.py

Every row of the table serves the same requests: joining and leaving, prefilled in chunks beside others
that generate, preempted where pages run out, one of them under the id of one that has ended. Tokens,
accepted tokens and the state's bits must be the same in every row, and the tokens those of each request
alone; with several ranks, on each of them, and as with one. Exit code 1 if not, 2 for a wrong option.
"""
# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.dspark_decode.engine import Engine, Request
from examples.dspark_decode.model import Sizes
from examples.dspark_decode.ranks import Ranks
from generated import dspark
from kgen.bench.launches import launches

SETTINGS = {
    "eager": {"fused": False, "overlap": False, "fused_norm": False, "local_table": False},
    "overlap": {"fused": False, "overlap": True, "fused_norm": False, "local_table": False},
    "fused": {"fused": True, "overlap": False, "fused_norm": False, "local_table": False},
    "fused + overlap": {"fused": True, "overlap": True, "fused_norm": False, "local_table": False},
}
# Its sums have another order, so its drafts may differ; its tokens may not.
FUSED_NORM = ("fused_norm + overlap", {"fused": True, "overlap": True, "fused_norm": True})
BAR = 30  # characters


@dataclass(frozen=True)
class Row:
    """What one setting came to."""

    setting: str
    outputs: list[list[int]]
    accepted: list[list[int]]  # a number a step, of each request
    digest: str
    events: Counter[str]
    bookkeeping: int
    launches: int
    microseconds: float | None

    @property
    def per_step(self) -> float:
        """Accepted tokens a step and request."""
        steps = [count for each in self.accepted for count in each]
        return sum(steps) / max(len(steps), 1)


def main() -> int:
    """Run the settings, print the table, and say whether all agreed."""
    options, sizes = _options()
    device = torch.device(options.device)
    ranks = Ranks()
    if "WORLD_SIZE" in os.environ:
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        ranks = Ranks(dist.get_rank(), dist.get_world_size())
    if ranks.size == 1:
        return _main(options, sizes, device, ranks)
    status = 1
    try:
        status = _main(options, sizes, device, ranks)
        dist.barrier()  # no rank leaves while another still talks to it
    except Exception:  # noqa: BLE001 - printed, and the exit code says so
        traceback.print_exc()
    # Not by Python's own way out, where a thread of torch's that still runs now and then ends in an abort.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _main(options: argparse.Namespace, sizes: Sizes, device: torch.device, ranks: Ranks) -> int:
    runs = 1 + len(SETTINGS) + options.fused_norm + (ranks.size > 1)
    total = runs * sum(request.new_tokens for request in _requests(options))
    bar = _Bar(total if ranks.rank == 0 else 0)
    alone = _alone(options, sizes, device, bar)
    settings = SETTINGS | dict([FUSED_NORM] if options.fused_norm else [])
    rows = [
        _serve(name, switches, options, sizes, device, ranks, bar)
        for name, switches in settings.items()
    ]
    faults = _faults(rows, alone)
    if ranks.size > 1:
        # The first row's bits are those of a model that isn't cut, too.
        whole = _serve("one rank", SETTINGS["eager"], options, sizes, device, Ranks(), bar)
        faults += _faults([whole, *rows], alone)
        if not ranks.same(json.dumps([(row.outputs, row.accepted, row.digest) for row in rows])):
            faults.append(f"rank {ranks.rank}: the ranks differ")
    bar.clear()
    if ranks.rank == 0:
        _report(options, rows, sizes, device, ranks, faults)
    for fault in faults:
        print(f"DIFFERS: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _options() -> tuple[argparse.Namespace, Sizes]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=6, help="how many (6)")
    parser.add_argument(
        "--tokens", type=int, default=24, help="most tokens that one generates (24)"
    )
    parser.add_argument("--drafts", type=int, default=3, help="draft tokens K a request (3)")
    parser.add_argument("--dflash", action="store_true", help="a block of K + 1 slots, not K")
    parser.add_argument("--fused-norm", action="store_true", help="a row for the switch fused_norm")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="a GPU if there is one")
    parser.add_argument(
        "--graph",
        action=argparse.BooleanOptionalAction,
        help="replay CUDA graphs (as one rank on a GPU does)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    options = parser.parse_args()
    sizes = Sizes(K=options.drafts, shift_label=not options.dflash)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if options.device == "cuda" and torch.cuda.device_count() < ranks:
        parser.error(f"--device cuda: {ranks} GPUs are needed, {torch.cuda.device_count()} found")
    if options.graph is None:
        options.graph = options.device == "cuda" and ranks == 1
    if options.graph and options.device != "cuda":
        parser.error("--graph needs --device cuda")
    if options.device == "cpu" and torch.cuda.is_available():
        # Kernels run in the interpreter only if that was said before triton was imported.
        parser.error("--device cpu: there is a GPU; hide it with CUDA_VISIBLE_DEVICES=")
    if options.requests < 1:
        parser.error("--requests: at least 1")
    if not 1 <= options.drafts <= 7:
        parser.error("--drafts: 1 to 7")
    if sizes.vocab % ranks:
        parser.error(f"{sizes.vocab} tokens can't be cut into {ranks} equal parts")
    most = Engine.most_tokens(sizes, lag=1) - max(_PROMPTS)
    if not 1 <= options.tokens <= most:
        parser.error(f"--tokens: 1 to {most}")
    return options, sizes


_PROMPTS = (11, 14, 5, 19, 7, 3)  # lengths


def _requests(options: argparse.Namespace) -> list[Request]:
    """The requests, in the order of their arrival."""
    draw = torch.Generator().manual_seed(3)
    found: list[Request] = []
    for number in range(options.requests):
        length = _PROMPTS[number % len(_PROMPTS)]
        prompt = torch.randint(511, (length,), generator=draw).tolist()
        if number == 1:
            prompt[:9] = found[0].prompt[:9]  # begins like the first: a hit in the prefix cache
        new_tokens = max(options.tokens - 5 * (number % 3), 1)
        found.append(Request(f"r{number}", prompt, new_tokens))
    if len(found) > 1:
        found[-1].id = "r0"  # arrives when the first has left
    return found


def _alone(
    options: argparse.Namespace, sizes: Sizes, device: torch.device, bar: _Bar
) -> list[list[int]]:
    """Each request's tokens when nobody else is there, one after the other, on one rank."""
    dspark.configure(**SETTINGS["eager"])
    outputs = []
    for request in _requests(options):
        engine = Engine(sizes, Ranks(), device, lag=0)
        engine.submit(request)
        engine.run()
        outputs.append(request.output)
        bar.add(len(request.output), "each request alone")
    return outputs


def _serve(
    name: str,
    switches: dict[str, bool],
    options: argparse.Namespace,
    sizes: Sizes,
    device: torch.device,
    ranks: Ranks,
    bar: _Bar,
) -> Row:
    """All requests with one setting."""
    dspark.configure(**switches)
    engine = Engine(sizes, ranks, device, graph=options.graph)
    requests = _requests(options)
    coming = list(requests)
    while coming or engine.busy:
        step = engine.events["steps"]
        # One comes in every second step, but not under an id that is taken.
        if coming and step % 2 == 0 and not engine.knows(coming[0].id):
            engine.submit(coming.pop(0))
        done = sum(len(each.output) for each in requests)
        # K is lowered for a while.
        engine.advance(max(sizes.K - 1, 1) if 8 <= step < 12 else sizes.K)
        bar.add(sum(len(each.output) for each in requests) - done, name)
    counts = engine.launches(lambda run: launches(run, device))
    return Row(
        name,
        [each.output for each in requests],
        [each.accepted for each in requests],
        engine.digest(),
        engine.events,
        *counts,
        engine.microseconds() if device.type == "cuda" else None,
    )


def _faults(rows: list[Row], alone: list[list[int]]) -> list[str]:
    """Where a row differs from the first, or from each request alone."""
    first, faults = rows[0], []
    for row in rows:
        for number, (output, expected) in enumerate(zip(row.outputs, alone, strict=True)):
            if output != expected:
                faults.append(
                    f"{row.setting}: tokens of request {number} and of the same one alone"
                )
        if row.setting == FUSED_NORM[0]:
            continue
        if row.accepted != first.accepted:
            faults.append(f"{row.setting}: accepted tokens a step and those of {first.setting}")
        if row.digest != first.digest:
            faults.append(f"{row.setting}: bits of the state and those of {first.setting}")
    return faults


def _report(
    options: argparse.Namespace,
    rows: list[Row],
    sizes: Sizes,
    device: torch.device,
    ranks: Ranks,
    faults: list[str],
) -> None:
    if options.json:
        names = (
            "setting",
            "outputs",
            "accepted",
            "digest",
            "bookkeeping",
            "launches",
            "microseconds",
        )
        found = [{name: getattr(row, name) for name in names} for row in rows]
        print(json.dumps({"rows": found, "events": rows[0].events, "faults": faults}))
        return
    table = []
    for row in rows:
        same = "as eager" if row.digest == rows[0].digest else "others"
        time = "-" if row.microseconds is None else f"{row.microseconds:.1f}"
        tokens = str(sum(map(len, row.outputs)))
        saved = "-"
        if row.microseconds is not None and rows[0].microseconds is not None:
            saved = f"{rows[0].microseconds - row.microseconds:.1f}"
        shown = (row.setting, tokens, f"{row.per_step:.3f}", same)
        table.append((*shown, str(row.bookkeeping), str(row.launches), time, saved))
    head = (
        "setting",
        "tokens",
        "accepted a step",
        "bits",
        "launches",
        "with the model",
        "us a step",
        "saved",
    )
    widths = [max(len(row[at]) for row in (head, *table)) for at in range(len(head))]
    for line in (head, tuple("-" * width for width in widths), *table):
        print(" | ".join(map(str.ljust, line, widths)).rstrip())
    requests = [
        f"{each.id} {sum(steps) / max(len(steps), 1):.2f}"
        for each, steps in zip(_requests(options), rows[0].accepted, strict=True)
    ]
    print(f"\nAccepted a step, by request: {', '.join(requests)}.")
    print(
        "On the way: "
        + ", ".join(f"{count} {name}" for name, count in rows[0].events.items())
        + "."
    )
    where = (
        torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU, Triton's interpreter"
    )
    block = f"K {sizes.K}, W {sizes.width(sizes.K)}, G {sizes.max_batch} at most"
    print(f"{where}; {block}; {ranks.size} rank{'s' if ranks.size > 1 else ''}", end="")
    print("; CUDA graphs." if options.graph else ".")


class _Bar:
    """A progress bar on stderr, where that is a terminal."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.shown = total > 0 and sys.stderr.isatty()

    def add(self, count: int, what: str) -> None:
        """So many tokens more."""
        self.done += count
        if self.shown:
            full = min(BAR * self.done // self.total, BAR)
            line = f"[{'#' * full}{'.' * (BAR - full)}] {what}"
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
