"""The host's time of a call and of a whole step, beside a bare Triton launch and a torch operation.

    python3 tests/gpu/host.py --out FOLDER [--requests 1,32]
    python3 tests/gpu/host.py --out FOLDER --dry-run      # on a CPU, small sizes, nothing is timed

Needs torch and triton, and of kgen only the working tree. First the bits: each group is called three times on copies of the
same tensors, eagerly, on a side stream and captured; the second call and those after it are launched at once, and
must give what the first one gave. Then microseconds a call, the median of rounds of calls that the device
does not hold up. Writes host.json; exit code 1 if bits differ, or a call that repeats was not launched at once.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE), str(ROOT / "tests" / "helpers")]

DRY = "--dry-run" in sys.argv
if DRY:
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported

import k3  # noqa: E402
import stepped  # noqa: E402
import torch  # noqa: E402
import triton  # noqa: E402

from generated import dspark  # noqa: E402
from generated.dspark import _repeat, ops  # noqa: E402

DEVICE = torch.device("cpu" if DRY else "cuda")
CALLS, ROUNDS = (3, 2) if DRY else (100, 21)
SETTINGS = {
    "eager": {},
    "fused": {"fused": True},
    "local_table": {"fused": True, "local_table": True},
    "fused_norm + local_table": {"fused": True, "fused_norm": True, "local_table": True},
    "fused + overlap": {"fused": True, "overlap": True},
    "all": {"fused": True, "fused_norm": True, "local_table": True, "overlap": True},
}


def synchronize():
    if not DRY:
        torch.cuda.synchronize()


def host_time(run, calls=CALLS):
    """Microseconds of the host for one call: the median, and the least and the greatest round."""
    rounds = []
    for _ in range(3):
        run()
    for _ in range(ROUNDS):
        synchronize()
        start = time.perf_counter_ns()
        for _ in range(calls):
            run()
        rounds.append((time.perf_counter_ns() - start) / 1000 / calls)
    synchronize()
    return [round(each, 2) for each in (statistics.median(rounds), min(rounds), max(rounds))]


def arguments_of(group, requests):
    make = getattr(k3, group, None)
    sizes = (
        k3.small(requests) if DRY else k3.Sizes(requests, pages=max(8192 // requests, 1) * requests)
    )
    return make(k3.Step(sizes, DEVICE)) if make is not None else None


def held(arguments):
    """What the tensors of a call hold, as bytes."""
    tensors = []
    for each in arguments.values():
        tensors += each if isinstance(each, list) else [each]
    return [each.contiguous().view(torch.uint8) for each in tensors if torch.is_tensor(each)]


def same(a, b):
    return all(torch.equal(one, other) for one, other in zip(held(a), held(b), strict=True))


def bits(group, arguments):
    """What is wrong with calls that are launched at once."""
    function, operator = getattr(dspark, group), ops.GROUPS[group]
    first, again, aside, replayed = (k3.move_all(arguments, DEVICE) for _ in range(4))
    function(**first)
    if DRY:
        return []
    known = operator._repeats._last
    before = known.prepared.launched[0] if known else 0
    wrong = [] if known else ["the first call was not remembered"]
    function(**again)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function(**aside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(**replayed)
    graph.replay()
    torch.cuda.synchronize()
    if known and (operator._repeats._last is not known or known.prepared.launched[0] != before + 3):
        wrong.append("a call that repeats was not launched at once")
    others = {"again": again, "on a side stream": aside, "from a graph": replayed}
    return wrong + [f"other bits {how}" for how, each in others.items() if not same(first, each)]


def group_times(group, arguments):
    """The host's time of a group in each way that it may be called."""
    function, operator = getattr(dspark, group), ops.GROUPS[group]
    repeats = operator._repeats
    function(**arguments)
    row = {"arguments": len(arguments), "repeated": host_time(lambda: function(**arguments))}
    if DRY:
        return row
    last = repeats._last

    others = itertools.cycle((arguments, k3.move_all(arguments, DEVICE)))

    def moved():
        last._seen.clear()
        function(**next(others))

    row["new addresses"] = host_time(moved)
    function(**arguments)
    number = next((n for n in repeats._free if type(arguments.get(n)) is int), None)
    if number is not None:
        row["another number"] = host_time(
            lambda: function(**arguments | {number: arguments[number]})
        )
    call = operator.checked(arguments)
    launch, prepared = operator.launch, call.launch
    run, repeats.run = repeats.run, lambda _: False
    keep, repeats.keep = repeats.keep, lambda *_: None
    row["by key and Triton's launch"] = host_time(lambda: function(**arguments))
    repeats.run, repeats.keep = run, keep
    filled = [*prepared.arguments]
    for at, name in launch.pointers:
        filled[at] = arguments.get(name)
    options = {"num_warps": prepared.warps, "enable_fp_fusion": False}
    options |= {"launch_pdl": True} if filled[[*launch.parameters].index("PDL")] else {}
    kernel, grid = launch.function, (prepared.programs,)
    row["bare Triton launch"] = host_time(lambda: kernel[grid](*filled, **options))
    values = tuple(arguments.values())
    row["of it the look-up"] = host_time(lambda: last.holds(values))
    found = last.holds(values)
    row["of it the launch"] = host_time(lambda: last.launch(*found))
    return row


def step_times(requests):
    """The host's time of a whole step whose own stages cost nothing."""
    engine = stepped.K3Engine(64 if DRY else 32768, requests, work=False, norm=False)
    times = {}
    for name, switches in SETTINGS.items():
        stepped.configure(**switches)
        times[name] = host_time(engine.step, calls=2 if DRY else 10)
    stepped.configure()
    return times


def bare():
    """A torch operation, and Triton launches of so many arguments."""
    x = torch.zeros(64, device=DEVICE)
    row = {"x.add_(1)": host_time(lambda: x.add_(1))}
    row["copy_"] = host_time(lambda: x.copy_(x))
    return row


def unchecked(asked):
    """The same times with KGEN_UNCHECKED=1, from a process of its own."""
    command = [sys.executable, __file__, "--out", str(asked.out), "--times", "unchecked"]
    command += ["--requests", asked.requests, *(["--dry-run"] if DRY else [])]
    env = os.environ | {"KGEN_UNCHECKED": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return (
        json.loads((asked.out / "host_unchecked.json").read_text())
        if not done.returncode
        else done.stderr[-2000:]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--requests", default="1,32")
    parser.add_argument("--times", default="")
    parser.add_argument("--dry-run", action="store_true")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    out = {
        "card": torch.cuda.get_device_name() if not DRY else "none",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "cpu": platform.processor() or platform.machine(),
        "guards": _repeat._torch_guards() is not None,
        "unchecked": _repeat.UNCHECKED,
    }
    wrong, counts = [], [int(each) for each in asked.requests.split(",")]
    out["bare"] = bare()
    for requests in counts:
        rows = out[f"G = {requests}"] = {}
        for group in ops.GROUPS:
            arguments = arguments_of(group, requests)
            if arguments is None:
                continue
            if not asked.times:
                wrong += [f"{group}, G = {requests}: {each}" for each in bits(group, arguments)]
            rows[group] = group_times(group, arguments)
            print(f"G = {requests}", group, rows[group], flush=True)
        rows["step"] = step_times(requests)
        print(f"G = {requests} step", rows["step"], flush=True)
    if not asked.times:
        out["with KGEN_UNCHECKED=1"] = unchecked(asked)
    out["wrong"] = wrong
    name = f"host{'_' if asked.times else ''}{asked.times}.json"
    (asked.out / name).write_text(json.dumps(out, indent=2) + "\n")
    print("wrong:", wrong or "nothing", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
