"""Everything that needs a GPU, in one call: tests, launches, bits, races, memory and times.

    python3 tests/gpu/run.py --out FOLDER [--package dspark] [--only PHASE,...] [--budget SECONDS]
    python3 tests/gpu/run.py --out FOLDER --dry-run      # on a CPU, small sizes, nothing is timed

Needs torch, triton and pytest, and of kgen only the working tree. Writes results.json and results.md to
FOLDER after each phase, so that a run that is cut short leaves what it has. Exit code 1 if a phase
found something wrong, or broke.
"""

import argparse
import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE), str(ROOT / "tests" / "helpers")]

DRY = "--dry-run" in sys.argv
if DRY:
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported

import hands as torchs  # noqa: E402
import k3  # noqa: E402
import report  # noqa: E402
import torch  # noqa: E402
import triton  # noqa: E402
from limits import limits  # noqa: E402

from kgen.bench.launches import launches  # noqa: E402
from kgen.bench.timing import empty, replay_times  # noqa: E402

DEVICE = torch.device("cpu" if DRY else "cuda")
REQUESTS = (1, 3) if DRY else (1, 32, 3, 8, 64)  # what matters most first, should time run out
MANY_ROWS = 7 if DRY else 4096
STRESS_RUNS = 2 if DRY else 25
STATE_RUNS = 3 if DRY else 1000  # of groups without floats, those that update state among them
# Groups that an engine calls one after the other: timed together too.
TOGETHER = (
    ("context_positions", "gen_bookkeeping", "noise_block"),
    ("context_kv_stage", "context_kv_write"),
    ("refresh_block_tables", "context_positions", "gen_bookkeeping", "noise_block", "block_fixup"),
    ("refresh_block_tables", "prologue_from_table"),
)
# Those that go through torch.compile in the phase `hands`, one of each kind of parameters.
COMPILED = ("context_positions", "block_write", "context_kv_norm_rope_write")
HANDS_SECONDS = 60  # what the phase `hands` leaves of the budget
COMPILE_SECONDS = 25  # what one torch.compile may take of the budget
ROW_SECONDS = 3  # what a row of times takes without it
SANITIZERS = ("memcheck", "racecheck", "initcheck")


class Run:
    """What the phases share: the package under test, its inputs, and the clock."""

    def __init__(self, package, budget):
        self.package, self.budget = package, budget
        self.started = time.monotonic()
        manifest = json.loads((ROOT / "generated" / package / "manifest.json").read_text())
        self.groups = list(manifest["groups"])
        self.cases = {
            name: importlib.import_module(f"generated.{package}.tests.test_{name}").CASE
            for name in self.groups
        }
        self.without_inputs = [name for name in self.groups if not hasattr(k3, name)]

    def say(self, text):
        print(f"[{time.monotonic() - self.started:5.0f} s] {text}", flush=True)

    def left(self):
        return self.budget - (time.monotonic() - self.started)

    def each(self, requests, work, *, quiet=False, special=False):
        """`work(case, arguments)` of each group that has inputs; one that breaks costs only its row."""
        sizes = k3.small(requests) if DRY else k3.Sizes(requests)
        step = k3.Step(sizes, DEVICE, special=special)
        rows = {}
        for name in self.groups:
            if name in self.without_inputs:
                continue
            try:
                rows[name] = work(self.cases[name], getattr(k3, name)(step))
            except Exception:  # noqa: BLE001 - the other groups are wanted all the same
                rows[name] = {"error": traceback.format_exc()[-3000:]}
            if not quiet or "error" in rows[name]:
                self.say(f"{name}, G = {requests}: {rows[name]}")
        return rows


def copied(arguments):
    return {name: k3.move(value, DEVICE) for name, value in arguments.items()}


def call(chain, arguments):
    """A call without parameters, on a copy of the arguments."""
    own = copied(arguments)
    return lambda: chain(**own)


def result(chain, arguments):
    own = copied(arguments)
    chain(**own)
    return own


def reference(case):
    """The torch reference as a function of the group's arguments alone."""

    def run(**arguments):
        declared = case.signature
        tensors = {name: arguments.get(name) for name in declared.tensors}
        scalars = tuple(arguments.get(name) for name in declared.scalars)
        values = declared.bind(tuple(tensors.values()), scalars)
        case.operator.run_reference(arguments, values)

    return run


def unequal(a, b, ulps=0):
    """How many elements of each argument differ, in their bits or by more than `ulps` of bf16."""
    found = {}
    for name, value in a.items():
        ones, twos = (v if isinstance(v, list) else [v] for v in (value, b[name]))
        pairs = zip(ones, twos, strict=True)
        count = sum(differing(x, y, ulps) for x, y in pairs if isinstance(x, torch.Tensor))
        if count:
            found[name] = count
    return found


def differing(a, b, ulps):
    if not a.dtype.is_floating_point:
        a, b = (each.contiguous().view(-1, 1).view(torch.uint8) for each in (a, b))
        return int((a != b).any(dim=1).sum())
    words = torch.int16 if a.element_size() == 2 else torch.int32
    ones, twos = a.view(words), b.view(words)
    apart = ones != twos
    if ulps:  # neighbours one apart, both zeros at 0
        least = torch.iinfo(words).min
        far = [torch.where(w < 0, least - w.int(), w.int()) for w in (ones, twos)]
        apart = (far[0] - far[1]).abs() > ulps
    return int((apart & ~(a.isnan() & b.isnan())).sum())  # after arithmetic a NaN is a NaN


def output_of(command, timeout, **environment):
    """The exit code, None if time ran out, and all that a command printed."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return None, f"ran out of time after {timeout:.0f} s"
    return done.returncode, (done.stdout + done.stderr).strip()


def tests(run):
    """The generated tests of each group in a process of its own."""
    folder = ROOT / "generated" / run.package / "tests"

    def one(name):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        code, output = output_of([*command, str(folder / f"test_{name}.py")], run.left())
        row = {"passed": code == 0, "summary": output.splitlines()[-1]}
        run.say(f"tests of {name}: {row['summary']}")
        return row if code == 0 else row | {"output": output[-6000:]}

    with ThreadPoolExecutor(2 if DRY else 8) as pool:
        rows = dict(zip(run.groups, pool.map(one, run.groups), strict=True))
    return {"wrong": [name for name, row in rows.items() if not row["passed"]], "groups": rows}


def launch_counts(run):
    """Nodes that the eager chain and the fused group put into a CUDA graph."""

    def work(case, arguments):
        row = {"fused": launches(call(case.fused, arguments), DEVICE)}
        if case.eager is not None:
            row["eager"] = launches(call(case.eager, arguments), DEVICE)
        return row

    rows = run.each(REQUESTS[-1], work)
    return {"wrong": [n for n, row in rows.items() if row.get("fused") != 1], "groups": rows}


def equality(run):
    """Kernel, reference and eager chain at full size, to the bit, special values among the floats."""

    def work(case, arguments):
        expected = result(reference(case), arguments)
        row = {"kernel": unequal(result(case.fused, arguments), expected)}
        if case.eager is not None:
            row["eager"] = unequal(result(case.eager, arguments), expected, case.eager_ulps)
        return row

    rows = {
        f"{name}, G = {requests}": row
        for requests in REQUESTS
        for name, row in run.each(requests, work, special=True).items()
    }
    return {"wrong": [n for n, row in rows.items() if any(row.values())], "groups": rows}


def moves_floats(arguments):
    """Whether a group moves hidden states or latents, which take long to copy; the rest are cheap."""
    each = [v[0] if isinstance(v, list) else v for v in arguments.values()]
    return any(isinstance(v, torch.Tensor) and v.is_floating_point() for v in each)


def stress(run):
    """Many rows and more warps than planned: an in-place group must never read its own write."""

    def work(case, arguments):
        expected = result(reference(case), arguments)
        row, launch = {}, case.operator.launch
        planned = launch.warps
        for warps in (4, 8):
            launch.warps = warps
            case.operator._known.clear()  # calls that were prepared with another number
            try:
                count = STRESS_RUNS if moves_floats(arguments) else STATE_RUNS
                runs = [unequal(result(case.fused, arguments), expected) for _ in range(count)]
            finally:
                launch.warps = planned
                case.operator._known.clear()
            row[f"{warps} warps"] = next(filter(None, runs), {})
        return row

    rows = run.each(MANY_ROWS, work)
    return {"wrong": [n for n, row in rows.items() if any(row.values())], "groups": rows}


def large_pools(run):
    """A pool past 2**31 elements: the last page is written, and nothing else."""
    if DRY:
        return {"wrong": [], "groups": {}, "note": "needs 9 GB of a GPU"}
    pages, rows, wrong = 116510, {}, []
    step = k3.Step(k3.Sizes(3), DEVICE)
    shape = (pages, 1, 1, 32, 576)
    for name in ("block_write", "context_kv_write"):
        if name not in run.groups:
            continue
        arguments = getattr(k3, name)(step)
        few = 1 if name == "context_kv_write" else 0
        pool = torch.zeros(shape, dtype=torch.bfloat16, device=DEVICE)
        if few:
            arguments["normed"] = arguments["normed"][:1]
        table = arguments["write_pages" if few else "block_pages"]
        table.copy_(pages - 1 - torch.arange(table.shape[0], device=DEVICE).unsqueeze(1) % 2 * 1)
        table[2] = 0
        run.cases[name].fused(**arguments | {"pool": [pool] if few else pool})
        kernel = pool.clone()
        pool.zero_()
        reference(run.cases[name])(**arguments | {"pool": [pool] if few else pool})
        same = all(torch.equal(a, b) for a, b in zip(kernel.chunk(64), pool.chunk(64), strict=True))
        touched = sorted(int(p) for p in kernel.view(pages, -1).ne(0).any(dim=1).nonzero())
        rows[name] = {"equal": same, "pages written": touched, "elements": pool.numel()}
        if not same or touched != [0, pages - 2, pages - 1]:
            wrong.append(f"{name}: {rows[name]}")
        run.say(f"large pool of {name}: {rows[name]}")
        del pool, kernel
    return {"wrong": wrong, "groups": rows}


def sanitizer(run):
    """compute-sanitizer over a short script, where the tool is installed."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if DRY or not Path(tool).exists():
        return {"wrong": [], "tools": {}, "note": "compute-sanitizer is not installed here"}

    def one(kind):
        command = [tool, "--tool", kind, sys.executable, str(HERE / "touch.py"), run.package]
        # Every tensor its own allocation, so that a stray access is seen.
        _, output = output_of(
            command, max(60, min(150, run.left() / 2)), PYTORCH_NO_CUDA_MEMORY_CACHING="1"
        )
        lines = [line for line in output.splitlines() if "SUMMARY" in line]
        clean = None if not lines else "SUMMARY: 0 " in lines[-1] and "touched" in output
        row = {"clean": clean, "summary": lines[-1] if lines else f"did not run: {output[-200:]}"}
        run.say(f"{kind}: {row['summary']}")
        return row if clean else row | {"output": output[-6000:]}

    with ThreadPoolExecutor(len(SANITIZERS)) as pool:
        rows = dict(zip(SANITIZERS, pool.map(one, SANITIZERS), strict=True))
    return {"wrong": [kind for kind, row in rows.items() if row["clean"] is False], "tools": rows}


def debug(run):
    """Right and wrong calls with KGEN_DEBUG=1: bits, the errors' texts, and what they leave alone."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "debug.json"
        command = [sys.executable, str(HERE / "debugged.py"), run.package, str(file)]
        command += ["--dry-run"] if DRY else []
        code, output = output_of(command, max(120, run.left() / 2), KGEN_DEBUG="1")
        rows = json.loads(file.read_text()) if file.exists() else {}
    found = {"wrong": [f"{n}: {row['wrong']}" for n, row in rows.items() if row["wrong"]]}
    for name, row in rows.items():
        run.say(f"debug, {name}: {row['wrong'] or row['said'] or 'no error'}")
    if code != 0:
        found |= {"wrong": [*found["wrong"], "the program broke"], "output": output[-6000:]}
    return found | {"calls": rows}


def timing(run):
    """Medians of CUDA graph replays, all variants in one run, beside what an empty launch costs."""
    rows = {}
    for number, requests in enumerate(REQUESTS):
        chains = run.each(requests, lambda case, arguments: [(case, arguments)], quiet=True)
        chains = {name: chain for name, chain in chains.items() if isinstance(chain, list)}
        for names in TOGETHER:
            here = [name for name in names if name in chains]
            if len(here) > 1:
                chains[" + ".join(here)] = [chains[name][0] for name in here]
        for done, (label, chain) in enumerate(chains.items()):
            row = {"G": requests, "group": label}
            rows_left = len(chains) * (len(REQUESTS) - number) - done
            try:
                row |= measured(
                    chain, compile=run.left() > COMPILE_SECONDS + ROW_SECONDS * rows_left
                )
            except Exception:  # noqa: BLE001 - the other rows are wanted all the same
                row["error"] = traceback.format_exc()[-3000:]
            rows[f"{label}, G = {requests}"] = row
            shown = {k: v for k, v in row.items() if k not in ("G", "group", "quartiles")}
            run.say(f"times of {label}, G = {requests}: {shown}")
    return {"wrong": [n for n, row in rows.items() if "error" in row], "groups": rows}


def measured(chain, *, compile):
    """One row of the table: microseconds and launches of each variant of a chain of groups."""
    row = {"launches": {}}
    variants = {"fused": in_turn([call(case.fused, own) for case, own in chain])}
    if all(case.eager is not None for case, _ in chain):
        variants["eager"] = in_turn([call(case.eager, own) for case, own in chain])
        if compile:
            variants["compiled"] = compiled(chain)
        else:
            row["note"] = "torch.compile left out where the budget was spent"
    if DRY:
        for variant in variants.values():
            variant()
        return row | {"note": "dry run: nothing was timed"}
    for name, variant in variants.items():
        row["launches"][name] = launches(variant, DEVICE)
    times = replay_times(variants | {"empty": empty})
    row["us"] = {name: each.median for name, each in times.items()}
    row["quartiles"] = {name: [each.lower, each.upper] for name, each in times.items()}
    return row


def in_turn(calls):
    def run():
        for each in calls:
            each()

    return run


def compiled(chain):
    """The eager chain through torch.compile as it comes, compiled for these sizes alone."""
    functions = [case.eager for case, _ in chain]
    owned = [copied(own) for _, own in chain]

    def eager():
        for number, function in enumerate(functions):
            function(**owned[number])

    torch._dynamo.reset()
    return torch.compile(eager, dynamic=False, backend="eager" if DRY else "inductor")


def hands(run):
    """Each group in torch's hands: eager modes, tracers, export, threads; some under torch.compile."""
    testing = importlib.import_module(f"generated.{run.package}._testing")
    wrong, tried = [], 0
    for name, case in run.cases.items():
        start = torchs.world_of(case, testing, DEVICE)
        often = {*torchs.QUICK.items(), *(torchs.SLOW.items() if name in COMPILED else ())}
        for kind, each in (
            *((torchs.trial, one) for one in often),
            *((torchs.idle, one) for one in torchs.IDLE.items()),
            *((torchs.refusal, one) for one in torchs.REFUSED.items()),
        ):
            if run.left() < HANDS_SECONDS:
                return {"wrong": [*wrong, "out of time"], "tried": tried}
            tried += 1
            try:
                found = kind(case, testing, start, each[1])
            except Exception:  # noqa: BLE001 - the other hands are wanted all the same
                found = traceback.format_exc()[-600:]
            if kind is torchs.refusal:
                found = "" if "torch." in found[-300:] and "AssertionError" not in found else found
            if found:
                wrong.append(f"{name}, {each[0]}: {found}")
    run.say(f"{tried} tried, {len(wrong)} wrong")
    return {"wrong": wrong, "tried": tried}


# The times last: they take what the others leave of the budget.
PHASES = (
    tests,
    launch_counts,
    equality,
    hands,
    stress,
    large_pools,
    limits,
    debug,
    sanitizer,
    timing,
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--package", default="dspark")
    parser.add_argument("--only", default="", help="phases, comma-separated")
    parser.add_argument(
        "--budget", type=float, default=500, help="seconds; torch.compile gives way"
    )
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, nothing is timed")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    run = Run(options.package, options.budget)
    results = {"machine": machine(), "package": options.package, "dry_run": DRY}
    if run.without_inputs:
        results["without_inputs"] = run.without_inputs
        run.say(f"no inputs in k3.py, left out of what needs them: {', '.join(run.without_inputs)}")
    wrong = []
    for phase in PHASES:
        name = phase.__name__
        if options.only and name not in options.only.split(","):
            continue
        run.say(f"{name}: {phase.__doc__}")
        try:
            with torch.no_grad():
                results[name] = phase(run)
        except Exception:  # noqa: BLE001 - the other phases are wanted all the same
            results[name] = {"wrong": ["broke"], "error": traceback.format_exc()[-6000:]}
            run.say(results[name]["error"])
        wrong += [f"{name}: {each}" for each in results[name]["wrong"]]
        results["seconds"] = round(time.monotonic() - run.started, 1)
        results["wrong"] = wrong
        (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (options.out / "results.md").write_text(report.markdown(results))
    for each in wrong:
        run.say(f"WRONG: {each}")
    run.say(f"done, results in {options.out}")
    return 1 if wrong else 0


def machine():
    return {
        "device": "CPU, interpreted" if DRY else torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "date": time.strftime("%Y-%m-%d"),
    }


if __name__ == "__main__":
    sys.exit(main())
