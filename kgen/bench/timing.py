"""How long a callable takes inside a CUDA graph, as in a serving engine's decode step.

In: callables that may be captured. Out: microseconds a call. Each variant is captured several times
back to back in one graph, so its working set is warm in L2 and no host time counts; the variants are
replayed in turn within one run, so that a drift of the clock meets all of them alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import triton

CALLS = 20  # in one graph
ROUNDS = 100  # replays of each graph, fewer where that takes longer than SECONDS
FEWEST_ROUNDS = 10
SECONDS = 2.0
_WARM_UP = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds a call: the median over all replays, and the quartiles around it."""

    median: float
    lower: float
    upper: float


@triton.jit
def _empty_kernel():  # type: ignore[no-untyped-def] # noqa: ANN202
    pass


def empty() -> None:
    """Launch a kernel that does nothing: what any launch costs in a graph."""
    _empty_kernel[(1,)]()


def capture(run: Callable[[], object], calls: int = CALLS) -> torch.cuda.CUDAGraph:
    """A graph of `calls` calls of `run`, one after the other."""
    for _ in range(_WARM_UP):  # compiles and loads modules, which a capture may not
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def replay_times(
    variants: Mapping[str, Callable[[], object]],
    *,
    calls: int = CALLS,
    rounds: int = ROUNDS,
    restore: Callable[[], object] = lambda: None,
) -> dict[str, Timing]:
    """The time of one call of each variant, all measured in turn in one run.

    `restore` is called before each replay, and not timed: it puts back what calls move on.
    """
    graphs = {name: capture(run, calls) for name, run in variants.items()}
    spent: dict[str, list[float]] = {name: [] for name in graphs}
    started = time.monotonic()
    for turn in range(rounds):
        if turn >= FEWEST_ROUNDS and time.monotonic() - started > SECONDS:
            break
        for name, graph in graphs.items():
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            restore()
            graph.replay()  # warms what the variant before has pushed out of the caches
            restore()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            spent[name].append(start.elapsed_time(end) * 1000 / calls)
    return {name: _timing(times) for name, times in spent.items()}


def _timing(times: list[float]) -> Timing:
    lower, median, upper = statistics.quantiles(times, n=4)
    return Timing(median, lower, upper)
