"""Builds a spec in memory, draws worlds for it, and compares its readings there to the bit.

The readings are a table, `READINGS`: the first one says what is right (the typed tree, point by point), the
others must agree with it. Whole buffers are compared, NaN as NaN; where a NaN is only moved, its bits too.

A program as well, for random specs:

    python tests/helpers/worlds.py --worlds 20000 --seed 1 --processes 2    what was drawn, refused, and failed
    python tests/helpers/worlds.py --spec 17                                one spec and what is wrong with it
    python tests/helpers/worlds.py --shrink 17                              likewise, and a smaller one that fails alike
    python tests/helpers/worlds.py --compile 20 --seed 1 --target 90        their kernels by the real compiler

Last run, 2026-12-01, 16 processes, Triton 3.6 in its interpreter, `--worlds 24000 --seed 61`: 24,172 worlds of 8,571 specs; 8,071 agree
in every world, 454 are refused, none gives another value. Of 6 that failed 4 ran out of their time (in 61002628 the alarm
rang within numpy, which made a TypeError of it); a kernel with more lanes than Triton takes (61004833) and a mask of two loads
with too few axes (61005881) are mended since, and agree.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import functools
import itertools
import json
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import building
import random_specs
import shrinking
from in_memory import PACKAGE, Failure, Refused, Subject, compiled, kind_of, subject
from interpreter_memory import MemoryFault
from point_by_point import Array, Call, Fault, Payload

from kgen.build import Built
from kgen.diagnostics import Report
from kgen.kernel.make import make
from kgen.kernel.run import Runner
from kgen.plan.plan import make_plan
from kgen.prove.prove import prove
from kgen.targets.triton import reserved

# Values that the first reading may compute in a world; in larger ones the others are compared alone.
MOST_WORK = 60_000


# Readings. Each takes a world of its own and leaves in it what a call leaves there.


@dataclass
class Result:
    """A world after a call. Masks, one for each buffer: where any NaN will do, and what is undefined."""

    world: Any
    loose: dict[int, torch.Tensor] = field(default_factory=dict)
    undefined: dict[int, torch.Tensor] = field(default_factory=dict)


Reading = Callable[[Subject, Any], Result]


def typed_tree(subject: Subject, world: Any) -> Result:
    """Point by point in Python's numbers."""
    result = Result(world)
    outcome = subject.points.outcome(call_of(subject, world))
    for (name, member), values in outcome.written.items():
        buffer = world.buffers[name][member]
        put(subject, buffer.view, values)
        nans = [at for at, v in values.items() if math.isnan(v) and not isinstance(v, Payload)]
        mark(result.loose, buffer, nans)
    for (name, member), places in outcome.undefined.items():
        mark(result.undefined, world.buffers[name][member], sorted(places))
    return result


def reference(subject: Subject, world: Any) -> Result:
    """The package's torch reference."""
    subject.case.run_reference(world)
    return Result(world)


def kernel(subject: Subject, world: Any) -> Result:
    """The Triton kernel; in the interpreter its loads and stores are watched."""
    with np.errstate(all="ignore"):
        subject.checked.fused(**world.arguments())
    return Result(world)


@functools.lru_cache(maxsize=8)
def runner_of(text: str) -> Runner:
    """The strict interpreter of the kernel that kgen makes of a group, by its text."""
    report = Report()
    proved = prove(compiled(text).groups[0], report)
    plan = make_plan(proved, report) if proved is not None else None
    assert plan is not None, "it was built"
    return Runner(make(plan, reserved(plan.group)).kernel)


def strict(subject: Subject, world: Any) -> Result:
    """The kernel before it is printed, in the strict interpreter; warps go on in a random order."""
    case, values, group = subject.case, world.values, subject.group
    if not case.signature.runs(values):
        return Result(world)
    launch = case.operator.launch
    args = dict(launch.block_sizes(values))
    args |= {f"HAS_{name}": name not in world.absent for name in group.tensors} | values
    tensors = {
        name: [held(buffer.view) for buffer in each] if name in world.lists else held(each[0].view)
        for name, each in world.buffers.items()
        if name not in world.absent
    }
    # A dead row may read what a live one with its slot stores: it has no use for it.
    watched = not any(each.repeats for each in group.tensors.values())
    run = runner_of(subject.text).run
    run(args, tensors, seed=len(tensors), watched=watched)
    return Result(world)


def held(view: torch.Tensor) -> np.ndarray:
    """A tensor as the strict interpreter holds it, in the same memory."""
    bf16 = view.dtype == torch.bfloat16
    return view.view(torch.int16).numpy().view(np.uint16) if bf16 else view.numpy()


# The first one says what is right. A new reading is one line here.
READINGS: dict[str, Reading] = {
    "tree": typed_tree,
    "reference": reference,
    "kernel": kernel,
    "runner": strict,
}


def call_of(subject: Subject, world: Any) -> Call:
    """The arguments of a world as plain numbers."""
    tensors: dict[str, list[Array] | None] = {}
    for name, each in world.buffers.items():
        absent = name in world.absent
        tensors[name] = None if absent else [elements(subject, b.view) for b in each]
    return Call(dict(world.values), tensors)


def elements(subject: Subject, view: torch.Tensor) -> Array:
    """A tensor's elements in row-major order; a NaN with its bits."""
    flat = view.cpu().reshape(-1)
    data = flat.tolist()
    if flat.dtype.is_floating_point and flat.isnan().any():
        width = (1 << 8 * flat.element_size()) - 1
        words = subject.testing.bits(flat).tolist()
        data = [
            Payload(w & width) if math.isnan(v) else v for v, w in zip(data, words, strict=True)
        ]
    return Array(tuple(view.shape), data)


def put(subject: Subject, view: torch.Tensor, values: dict[int, Any]) -> None:
    """Write elements at row-major places."""
    if not values:
        return
    places = torch.unravel_index(torch.tensor(list(values)), view.shape)
    floats = view.dtype.is_floating_point
    numbers = torch.tensor(list(values.values()), dtype=torch.float64 if floats else torch.int64)
    view[places] = numbers.to(view.dtype)
    moved = {at: v.bits for at, v in values.items() if isinstance(v, Payload)}
    if moved:
        words = subject.testing.bits(view)
        size = 8 * view.element_size()
        signed = [b - (1 << size) if b >> (size - 1) else b for b in moved.values()]
        places = torch.unravel_index(torch.tensor(list(moved)), view.shape)
        words[places] = torch.tensor(signed).to(words.dtype)


def key_of(buffer: Any) -> int:
    """What memory a buffer is: those that interleave share it."""
    return buffer.base.data_ptr() if buffer.base.numel() else id(buffer.base)


def mark(masks: dict[int, torch.Tensor], buffer: Any, places: list[int]) -> None:
    """Mark row-major places of a view in the mask of its memory."""
    if not places:
        return
    mask = masks.setdefault(key_of(buffer), torch.zeros(buffer.base.shape, dtype=torch.bool))
    view = buffer.view
    inside = mask.as_strided(view.size(), view.stride(), view.storage_offset())
    inside[torch.unravel_index(torch.tensor(places), view.shape)] = True


def differences(subject: Subject, right: Result, other: Result, *, exact: bool) -> list[str]:
    """Where a result is not the right one. `exact`: NaNs are the same unless they may be any."""
    found = []
    bits = subject.testing.bits
    for name, each in right.world.buffers.items():
        for member, buffer in enumerate(each):
            one, two = buffer.base, other.world.buffers[name][member].base.cpu()
            differ = bits(one) != bits(two)
            nowhere = torch.zeros(one.shape, dtype=torch.bool)
            if one.dtype.is_floating_point:
                loose = right.loose.get(key_of(buffer), nowhere) if exact else ~nowhere
                differ &= ~(one.isnan() & two.isnan() & loose)
            differ &= ~right.undefined.get(key_of(buffer), nowhere)
            if differ.any():
                at = int(differ.nonzero()[0, 0])
                found.append(
                    f"{name}{[member] if len(each) > 1 else ''}: {int(differ.sum())} elements differ, first at flat "
                    f"{at} of its memory: {two[at].item()}, not {one[at].item()}; view {list(buffer.view.shape)}, "
                    f"strides {list(buffer.view.stride())}, offset {buffer.view.storage_offset()}"
                )
    return found


def described(world: Any) -> str:
    """The sizes and scalars of a world."""
    absent = f", not given: {sorted(world.absent)}" if world.absent else ""
    return f"{world.values}{absent}"


def compare(
    subject: Subject, start: Any, device: torch.device | str = "cpu"
) -> tuple[bool, list[Failure]]:
    """All readings of a world: whether the first one took part, and what is wrong."""
    shown, failures = described(start), []
    right: Result | None = None
    judged = subject.points.work(call_of(subject, start)) <= MOST_WORK
    for number, (name, reading) in enumerate(READINGS.items()):
        if name in ("tree", "runner") and not judged:  # both take long
            continue
        world = start.clone(torch.device("cpu" if number == 0 else device))
        try:
            result = reading(subject, world)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            detail = str(error) if isinstance(error, Fault | MemoryFault) else repr(error)
            if error.__cause__ is not None:
                detail += f", from {error.__cause__!r}"
            failures.append(Failure(name, kind_of(error), detail, shown))
            continue
        if right is None:
            right = result
            if number:  # too large for the first reading, which knows what is undefined
                right = Result(result.world.clone(torch.device("cpu")))
                masks = subject.testing.undefined(subject.case, start)
                right.undefined = {
                    key_of(right.world.buffers[name][member]): mask
                    for (name, member), mask in masks.items()
                }
            continue
        found = differences(subject, right, result, exact=bool(right.loose) or judged)
        if found:
            failures.append(Failure(name, "differs", "\n".join(found), shown))
    return judged, failures


# Random specs.

WORLDS_A_SPEC = 3
# Elements of all of a world's memory; larger worlds are left out.
LARGEST = 300_000
# Seconds of CPU time that a spec and its worlds may take.
SLOW = 20


@dataclass
class Tally:
    """What came of a spec in some worlds: how many there were, in how many the first reading took part,
    in how many nothing was launched, and the first failure of each kind."""

    worlds: int = 0
    judged: int = 0
    empty: int = 0
    failures: dict[str, Failure] = field(default_factory=dict)
    features: frozenset[str] = frozenset()


def world_seeds(seed: int, count: int = WORLDS_A_SPEC) -> list[int]:
    """Which worlds a spec is tried in: others for each spec."""
    return [(5 * seed + 7 * at) % 48 for at in range(count)]


def drawn_world(made: Subject, seed: int) -> Any:
    """The world of a seed: of three, one has a size at its least, and one has a size of 1 or at a tile's edge.

    Raises AssertionError if no world satisfies the declared ranges.
    """
    case, chance = made.case, random.Random(seed)
    sizes = {n: s for n, s in case.signature.sizes.items() if s.derived is None}
    if sizes and seed % 3:
        name = chance.choice(list(sizes))
        kind = "static " if sizes[name].static else ""
        edge = chance.choice([1, 1, *case.edges.get(name, ())])
        pinned = copy.copy(case.signature)
        low, _, high = (end.strip() for end in sizes[name].values.text.partition(".."))
        number = "0" if seed % 3 == 1 else f"min({edge}, {high})" if high else str(edge)
        number = f"max({low}, {number})" if low else number
        text = f"{kind}{number} .. {number}"
        pinned.sizes = {**pinned.sizes, name: type(sizes[name])(text)}
        with contextlib.suppress(AssertionError):
            operator = copy.copy(case.operator)
            operator.signature = pinned
            return made.testing.draw(dataclasses.replace(case, operator=operator), seed)
    return made.testing.draw(case, seed)


def tried(text: str, seeds: list[int], device: torch.device | str = "cpu") -> Tally:
    """Compare all readings of a spec in some worlds; raises `Refused`."""
    tally = Tally()
    made: Subject | None = None

    def note(failure: Failure) -> None:
        tally.failures.setdefault(failure.key, failure)

    try:
        with limited(SLOW), subject(text) as made:
            tally.features = planned(made.built)
            for seed in seeds:
                try:
                    start = drawn_world(made, seed)
                except AssertionError:  # no world satisfies the declared ranges
                    continue
                except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
                    note(Failure("draw", kind_of(error), repr(error)))
                    break
                if sum(buffer.base.numel() for buffer in start.every()) > LARGEST:
                    continue
                judged, failures = compare(made, start, device)
                for failure in failures:
                    note(failure)
                tally.worlds += 1
                tally.judged += judged
                tally.empty += made.case.programs(start.values) == 0
    except Failure as failure:
        note(failure)
    except Slow as slow:
        where = "a reading" if tally.worlds or made is not None else "build"
        note(Failure("slow", where, f"{where} took more than {SLOW} s, in {slow}"))
    return tally


class Slow(BaseException):
    """A spec takes too long; the message names the function that it was in."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Slow` after so many seconds of CPU time, in a program's main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, frame: Any) -> None:
        inside = [f.filename for f in traceback.extract_stack(frame)]
        ours = [Path(name).name for name in inside if "/kgen/" in name or "in memory" in name]
        raise Slow(ours[-1] if ours else "a reading")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def planned(built: Built) -> frozenset[str]:
    """What the plan of a group has, to be counted."""
    plan = make_plan(prove(built.groups[0], Report()), Report())
    assert plan is not None, "it was built"
    roles = plan.roles
    found = {f"plan: {axis.kind} axis" for role in roles for axis in role.axes.values()}
    found |= {"plan: several roles"} if len(roles) > 1 else set()
    found |= {"plan: one program"} if any(not role.program for role in roles) else set()
    found |= {"plan: two or more program axes"} if any(len(r.program) > 1 for r in roles) else set()
    if any(role.once and role.stores for role in roles):
        found.add("plan: once-stores beside others")
    loops = {i for r in roles for s in r.stores for i in s.axes if r.axes[i].kind == "loop"}
    return frozenset(found | ({"plan: a store in a loop"} if loops else set()))


@dataclass
class Record:
    """What came of one random spec."""

    seed: int
    outcome: str  # "agreed", "refused", "failed", "no world"
    features: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)
    detail: str = ""
    worlds: int = 0
    judged: int = 0
    empty: int = 0


def record(seed: int) -> Record:
    """Draw a spec and try it."""
    spec = random_specs.draw(seed)
    features = tuple(sorted(spec.features))
    try:
        tally = tried(spec.text, world_seeds(seed))
    except Refused as refused:
        return Record(seed, "refused", features, refused.codes, detail=str(refused))
    features = tuple(sorted(spec.features | tally.features))
    failures = {key: str(failure) for key, failure in tally.failures.items()}
    outcome = "failed" if failures else "agreed" if tally.worlds else "no world"
    return Record(
        seed,
        outcome,
        features,
        failures=failures,
        worlds=tally.worlds,
        judged=tally.judged,
        empty=tally.empty,
    )


def fails_by(key: str, worlds: int = 12) -> Callable[[str], bool]:
    """Whether a spec fails in a certain way in some world; the world that showed it last is tried first."""
    order = list(range(worlds))

    def holds(text: str) -> bool:
        try:
            for seed in list(order):
                tally = tried(text, [seed])
                if key in tally.failures:
                    order.remove(seed)
                    order.insert(0, seed)
                    return True
                if not tally.worlds and tally.failures:
                    return False
        except Refused:
            return False
        return False

    return holds


# The program.

A_SEED = 1_000_000  # the specs of `--seed N` begin at N times this


@dataclass
class Summary:
    """What came of many specs."""

    outcomes: Counter[str] = field(default_factory=Counter)
    drawn: Counter[str] = field(default_factory=Counter)
    agreed: Counter[str] = field(default_factory=Counter)
    codes: dict[str, list[int]] = field(default_factory=dict)
    failures: dict[str, list[int]] = field(default_factory=dict)
    worlds: int = 0
    judged: int = 0
    empty: int = 0
    seconds: float = 0.0

    def add(self, each: Record) -> None:
        """Count one spec."""
        self.outcomes[each.outcome] += 1
        self.drawn.update(each.features)
        if each.outcome == "agreed":
            self.agreed.update(each.features)
        for code in each.codes:
            self.codes.setdefault(code, []).append(each.seed)
        for key in each.failures:
            self.failures.setdefault(key, []).append(each.seed)
        self.worlds += each.worlds
        self.judged += each.judged
        self.empty += each.empty

    def text(self, processes: int) -> str:
        """For a person."""
        specs = sum(self.outcomes.values())
        speed = specs / max(self.seconds, 1e-9) / processes
        time_ = f"in {self.seconds:.0f} s by {processes} processes, {speed:.1f} specs a second each"
        lines = [
            f"{self.worlds} worlds of {specs} specs {time_}",
            f"{self.judged} judged by the typed tree, {self.empty} launched nothing",
            ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.most_common()),
            "",
            "drawn  agreed",
        ]
        for feature, count in sorted(self.drawn.items()):
            lines.append(f"{count:5}  {self.agreed[feature]:6}  {feature}")
        for title, table in (("refused", self.codes), ("failed", self.failures)):
            lines += ["", title]
            for key, seeds in sorted(table.items(), key=lambda each: -len(each[1])):
                lines.append(f"{len(seeds):5}  {key}  (seeds {', '.join(map(str, seeds[:5]))})")
        return "\n".join(lines)


def _quiet() -> None:
    """The settings of a process that runs random specs."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def run(worlds: int, seed: int, processes: int, seconds: float = math.inf) -> Summary:
    """Draw specs until there were so many worlds, or so much time has passed."""
    summary, start = Summary(), time.monotonic()
    # A pool takes all that it is given at once, so a seed waits until there is room for it.
    room = threading.Semaphore(4 * processes)

    def seeds() -> Iterator[int]:
        for number in itertools.count(seed * A_SEED):
            room.acquire()
            if summary.worlds >= worlds or time.monotonic() - start > seconds:
                return
            yield number

    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, _quiet, maxtasksperchild=400) as pool:
        for each in pool.imap_unordered(record, seeds()):
            summary.add(each)
            room.release()
    summary.seconds = time.monotonic() - start
    return summary


# Random blocks may be too large for the registers, and a store may be ruled out by a static size.
NOT_SAMPLED = {"schedule: tile", "a compile-time when on a store"}


def sample(count: int, seed: int, folder: Path) -> list[str]:
    """Build the packages of some random specs into one of `folder`; the names of their groups."""
    specs, names = folder / "specs" / PACKAGE, []
    specs.mkdir(parents=True)
    for number in itertools.count(seed * A_SEED):
        if len(names) == count:
            break
        spec = random_specs.draw(number)
        if NOT_SAMPLED & spec.features:
            continue
        text = spec.text.replace("group: drawn", f"group: drawn_{number}", 1)
        try:
            with limited(SLOW), subject(text):
                names.append(f"drawn_{number}")
        except (Refused, Failure, Slow):
            continue
        (specs / f"drawn_{number}.yaml").write_text(text, encoding="utf-8")
    building.build(specs, folder / "sample")
    return names


def compile_sample(count: int, seed: int, target: str, folder: Path) -> dict[str, Any]:
    """What the real compiler says of the kernels of some random specs."""
    names = sample(count, seed, folder)
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    env |= {"TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    script = Path(__file__).with_name("compile_kernels.py")
    command = [sys.executable, str(script), target, str(folder / "sample"), PACKAGE, "[3, 5]"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stdout[-2000:] + done.stderr[-4000:])
    return {"groups": names, **json.loads(done.stdout.splitlines()[-1])}


def show(seed: int, *, shrink: bool) -> None:
    """Print the spec of a seed and what is wrong with it."""
    _quiet()
    text = random_specs.draw(seed).text
    print(text)
    each = record(seed)
    print(each.outcome, *each.codes)
    print(each.detail)
    for key, detail in each.failures.items():
        print(f"-- {key}\n{detail}\n")
        if shrink:
            print(shrinking.shrunk(text, fails_by(key)))


def main() -> None:
    """See the top of this file."""
    os.environ["TRITON_INTERPRET"] = "1"
    parser = argparse.ArgumentParser(description="Random specs in all their readings.")
    parser.add_argument("--worlds", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--spec", type=int, metavar="SEED")
    parser.add_argument("--shrink", type=int, metavar="SEED")
    parser.add_argument("--compile", type=int, metavar="COUNT")
    parser.add_argument("--target", default="90")
    given = parser.parse_args()
    if given.spec is not None or given.shrink is not None:
        show(given.spec if given.shrink is None else given.shrink, shrink=given.shrink is not None)
    elif given.compile is not None:
        with tempfile.TemporaryDirectory() as name:
            found = compile_sample(given.compile, given.seed, given.target, Path(name))
        print(
            f"{found['kernels']} kernels of {len(found['groups'])} specs compiled for {given.target}"
        )
        print(*found["problems"], sep="\n")
    else:
        summary = run(given.worlds, given.seed, given.processes, 60 * given.minutes)
        print(summary.text(given.processes))


if __name__ == "__main__":
    main()
