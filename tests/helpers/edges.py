"""Specs around the edge of each proof, and a judge by brute force that says which verdict is right.

Each family draws specs about one proof, with numbers that are off by one at its edge, guards that are there or not,
and ranges that touch. The judge reads the typed tree point by point in small worlds that keep what is declared, and
chooses each element when it is first read, so that all worlds of a small spec are gone through:

- an accepted spec with a bad world is UNSOUND; so is one whose kernel the judge of kernels does not take, or whose
  kernel does something else in the strict interpreter, or of which something else is said that is not true;
- a refused spec without a bad world is INCOMPLETE if all its worlds were gone through. That is counted, and no
  fault where the page of the language says so (`DOCUMENTED`).

    python tests/helpers/edges.py --minutes 30 [--seed N] [--family NAME]
    python tests/helpers/edges.py --spec N

2026-12-01, seeds 2, 4 and 5, 20 minutes of CPU, about 14 specs and 3000 worlds a second. Seed 2 found four accepted specs with
a bad world, all of one kind (i64 arithmetic behind `min`, a choice or a difference, of numbers whose declared range
reaches an end of i64), and examples that were no calls (`distinct: except` of a value that is not in the range).
Since these were mended: 6011 specs, 2476 of them accepted, 3535 refused, 1.3 million worlds; none unsound.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from edge_specs import FAMILIES, Data, Dice, spec
from point_by_point import LIMITS, Array, Call, Fault, Host, PointByPoint, _Run

from kgen.diagnostics import Report
from kgen.kernel.faults import RunError
from kgen.kernel.judge import UnsafeError
from kgen.kernel.make import make
from kgen.kernel.run import Runner
from kgen.kernel.values import HELD
from kgen.lang.check import check
from kgen.lang.typed import Group, Param, Store, walk
from kgen.plan.plan import make_plan
from kgen.prove.prove import Proved, prove
from kgen.spec.package import read_packages
from kgen.targets.triton import reserved

RUNS = 1500  # of one spec, all in all
AT_ONCE = 250  # of one choice of sizes and scalars, before elements are chosen at random
LAUNCHES = 3  # worlds of an accepted spec in which its kernel is run
FEW = 6  # numbers of a range that are all tried; of a longer one its ends and what is near 0
TRIES = 40  # at random, of what has too many worlds

# What the page of the language says of what is refused although it is true.

DOCUMENTED = {
    "collision": "only the forms of a place on the page tell points apart; no conditions of two stores",
    "partly-stored": "what is not shown to fill an output is refused, even where it is true",
    "race": "what one point stores another may not read, though a condition may keep it from it",
    "division-by-zero": "the range of a divisor counts, not what guards it",
    "out-of-bounds": "of a reduction or a scan its range is known, and no products of unknowns",
    "overflow": "likewise",
    "negative-extent": "likewise",
}


# Worlds.


class Choices:
    """Numbers that are chosen one after the other; `again` says whether there is another way to choose.

    `whole`: whether all numbers that there are were among the choices.
    """

    def __init__(self, chance: random.Random | None = None) -> None:
        self.chance, self.path, self.at = chance, list[list[int]](), 0
        self.whole = True

    def pick(self, count: int) -> int:
        """A number below `count`."""
        if self.chance is not None:
            return self.chance.randrange(count)
        if self.at == len(self.path):
            self.path.append([0, count])
        self.at += 1
        return self.path[self.at - 1][0]

    def again(self) -> bool:
        """Go on to the next way."""
        del self.path[self.at :]
        self.at = 0
        while self.path and self.path[-1][0] + 1 == self.path[-1][1]:
            self.path.pop()
        if not self.path:
            return False
        self.path[-1][0] += 1
        return True


def some(low: int, high: int, more: Iterable[int] = ()) -> list[int]:
    """Numbers of a range: all of a short one."""
    if high - low < FEW:
        return list(range(low, high + 1))
    near = [low, high, low + 1, high - 1, *(n for n in (0, 1, -1, *more))]
    return list(dict.fromkeys(n for n in near if low <= n <= high))


@dataclass
class Elements:
    """The elements of a tensor, each chosen when it is first read."""

    choices: Choices
    options: list[int]
    distinct: bool
    repeats: int | None
    all_of_them: bool = True
    held: dict[int, Any] = field(default_factory=dict)

    def __getitem__(self, at: int) -> Any:
        if at not in self.held:
            options = self.options
            if self.distinct:
                taken = set(self.held.values()) - {self.repeats}
                options = [n for n in options if n not in taken]
                if not options:
                    raise NoWorld
            self.held[at] = options[self.choices.pick(len(options))]
            self.choices.whole &= self.all_of_them
        return self.held[at]

    def __setitem__(self, at: int, value: Any) -> None:
        self.held[at] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.held.values())

    def __len__(self) -> int:
        return len(self.held)

    def __copy__(self) -> Elements:
        return dataclasses.replace(self, held=dict(self.held))


class NoWorld(Exception):
    """The numbers that were chosen so far are those of no legal call."""


@dataclass
class Worlds:
    """The small legal calls of a group. `whole`: whether they are all that there are."""

    group: Group
    payload: tuple[str, ...]
    whole: bool = True

    def numbers(self) -> Iterator[dict[str, int]]:
        """Legal values of the sizes and scalars."""
        group, choices = self.group, Choices()
        order = self._order()
        while True:
            call = Call({}, {})
            host = Host(group, call)
            with contextlib.suppress(NoWorld, Fault):
                for name in order:
                    size = group.sizes.get(name)
                    if size is not None and size.derived is not None:
                        number = host.of(size.derived)
                        if number < 0:
                            raise NoWorld
                    else:
                        each = size or group.scalars[name]
                        least, most = LIMITS.get(getattr(each, "dtype", ""), LIMITS["i64"])
                        least, most = (0, 2**31 - 1) if size is not None else (least, most)
                        number = self._one(host, choices, each, least, most)
                    call.numbers[name] = number
                self._legal(host)
                yield call.numbers
            if not choices.again():
                return

    def _one(self, host: Host, choices: Choices, each: Any, least: int, most: int) -> int:
        low = max(host.of(each.low), least) if each.low is not None else least
        high = min(host.of(each.high), most) if each.high is not None else most
        options = some(low, high)
        if not options:
            raise NoWorld
        self.whole &= len(options) == high - low + 1
        return options[choices.pick(len(options))]

    def _order(self) -> list[str]:
        group = self.group
        needs: dict[str, set[str]] = {}
        for each in (*group.sizes.values(), *group.scalars.values()):
            roots = [each.low, each.high, getattr(each, "derived", None)]
            parts = [v for root in roots if root is not None for v in walk(root, {})]
            needs[each.name] = {v.name for v in parts if isinstance(v, Param)}
        order: list[str] = []
        while len(order) < len(needs):
            order += [n for n, need in needs.items() if n not in order and need <= {*order}]
        return order

    def _legal(self, host: Host) -> None:
        for name in self.group.tensors:
            self._elements(host, Choices(random.Random(0)), name)

    def shape(self, host: Host, name: str) -> tuple[int, ...]:
        """The dimensions of a tensor."""
        shape = tuple(host.of(dim) for dim in self.group.tensors[name].dims)
        if any(dim < 0 for dim in shape):
            raise NoWorld
        return shape

    def _elements(self, host: Host, choices: Choices, name: str) -> Elements:
        """The elements of a tensor to come; raises `NoWorld` where there are none for it."""
        tensor, shape = self.group.tensors[name], self.shape(host, name)
        if tensor.dtype not in LIMITS:
            return Elements(choices, [1], False, None)
        least, most = LIMITS[tensor.dtype]
        low = max(host.of(tensor.low), least) if tensor.low is not None else least
        high = min(host.of(tensor.high), most) if tensor.high is not None else most
        if low > high and math.prod(shape):
            raise NoWorld
        repeats = host.of(tensor.repeats) if tensor.repeats is not None else None
        inside = repeats is not None and low <= repeats <= high
        if tensor.distinct and not inside and high - low + 1 < math.prod(shape):
            raise NoWorld
        numbers = [n + by for n in host.call.numbers.values() for by in (-1, 0, 1)]
        options = some(low, high, [*numbers, *([repeats] if repeats is not None else [])])
        whole = len(options) == high - low + 1 or name in self.payload
        if name in self.payload:
            options = options[len(options) // 2 :][:1]
        return Elements(choices, options, tensor.distinct, repeats, whole)

    def call(self, numbers: dict[str, int], given: bool, choices: Choices) -> Call:
        """A call; its elements are chosen as they are read."""
        group, call = self.group, Call(numbers, {})
        host = Host(group, call)
        for name, tensor in group.tensors.items():
            count = host.of(tensor.length) if tensor.length is not None else 1
            shape = self.shape(host, name)
            call.tensors[name] = [
                Array(shape, self._elements(host, choices, name))  # type: ignore[arg-type]
                for _ in range(count)
            ]
            if tensor.optional and not given:
                call.tensors[name] = None
        return call

    def each(self, runs: int, seed: int) -> Iterator[Call]:
        """Calls, all that there are if those are at most `runs`."""
        chance = random.Random(seed)
        optional = any(tensor.optional for tensor in self.group.tensors.values())
        every = list(itertools.islice(self.numbers(), runs + 1))
        if len(every) > runs:
            self.whole = False
            every = chance.sample(every, runs)
        done = 0
        for numbers, given in itertools.product(every, (True, False) if optional else (True,)):
            choices = Choices()
            for turn in itertools.count():
                if done + turn >= runs or turn >= AT_ONCE:
                    self.whole = False
                    for _ in range(TRIES if done < runs else FEW):
                        yield self.call(numbers, given, Choices(chance))
                    break
                yield self.call(numbers, given, choices)
                if not choices.again():
                    break
            self.whole &= choices.whole
            done += turn


# What is wrong in a world.


class Reads(_Run):
    """One evaluation that notes which point reads which element."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.point: tuple[int, tuple[int, ...]] = (0, ())
        self.reads: list[tuple[int, tuple[int, ...], str, tuple[int, ...]]] = []

    def begin(self, number: int, point: tuple[int, ...]) -> None:
        """Note that a point of a store is what comes next."""
        self.point = (number, point)

    def load(self, name: str) -> Callable[..., Any]:
        reader = super().load(name)

        def read(*items: int) -> Any:
            self.reads.append((*self.point, name, items))
            return reader(*items)

        return read


class Watched(PointByPoint):
    """The reading that remembers nothing from point to point, and says at which point it is."""

    def _function(self, _axes: Iterable[str], _name: str, body: str) -> str:
        return f"({body})"

    def _let(self, name: str) -> str:
        let = self.group.lets[name].value
        return f"({self.operand(let, let.dtype)})"

    def _store(self, number: int, store: Store) -> str:
        point = ", ".join(f"i_{name}" for name in self.group.extents if name in store.axes)
        point = f"({point},)" if point else "()"
        text = super()._store(number, store)
        return text.replace("place = None", f"place = run.begin({number}, {point})", 1)

    def raced(self, call: Call) -> str:
        """A place that one point stores to and another one reads, along an index of programs."""
        run, group = Reads(self.group, call), self.group
        self.run(run)
        axes = [[n for n in group.extents if n in store.axes] for store in group.stores]
        for number, point, tensor, items in run.reads:
            shape = call.tensors[tensor][0].shape if call.tensors[tensor] else ()
            place = 0
            for at, size in zip(items, shape, strict=False):
                place = place * size + at
            mine = dict(zip(axes[number], point, strict=True))
            for owner, at in run.owners.get((tensor, 0), {}).get(place, ()):
                for index, value in zip(axes[owner], at, strict=True):
                    if group.static_extent(index):
                        continue
                    if mine.get(index) != value:  # a reduction's own index is none of a point's
                        return f"{tensor}{list(items)} is stored to at {at} and read at {point}"
        return ""


@dataclass
class Bad:
    """A fault, and the world in which it happens."""

    kind: str
    what: str
    world: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}" + (f"\n  at {self.world}" if self.world else "")


def shown(call: Call) -> str:
    """A world as text: what was read of it."""
    held = {
        name: [dict(sorted(getattr(each.data, "held", {}).items())) for each in arrays]
        for name, arrays in call.tensors.items()
        if arrays is not None
    }
    return f"{call.numbers} {held}"


# Verdicts.

SHOWS = {  # what a world shows where a code is right
    "out-of-bounds": "out of bounds",
    "overflow": "overflow",
    "narrowing": "overflow",
    "collision": "collision",
    "partly-stored": "partly stored",
    "negative-extent": "negative extent",
    "division-by-zero": "division by zero",
    "race": "race",
}


@dataclass
class Verdict:
    """What came of a spec.

    `outcome`: "sound" or "unsound" of one that is accepted; of one that is refused "right", "incomplete", or
    "open" where not all of its worlds were gone through, "untrue" where it has an example that they deny;
    "invalid" where it is not about a proof.
    """

    family: str
    text: str
    outcome: str
    codes: tuple[str, ...] = ()
    bad: Bad | None = None
    worlds: int = 0
    examples: bool = True
    said: str = ""


_FOLDER = tempfile.TemporaryDirectory()


def typed(text: str) -> tuple[Group | None, Report]:
    """The typed group of a spec."""
    folder = Path(_FOLDER.name) / "edges"
    folder.mkdir(exist_ok=True)
    (folder / "spec.yaml").write_text(text, encoding="utf-8")
    report = Report()
    (package,) = read_packages(folder, report)
    groups = [check(each, package, report) for each in package.groups]
    return (groups[0] if groups and not report.diagnostics else None), report


def judged(name: str, parts: Data, seed: int) -> Verdict:
    """What kgen says of a spec, and what is right."""
    text, payload = spec(parts), parts.get("payload", ())
    group, report = typed(text)
    if group is None:
        codes = tuple(sorted({each.code for each in report.diagnostics}))
        return Verdict(name, text, "invalid", codes, said=report.render())
    proved = prove(group, report)
    plan = make_plan(proved, report) if proved is not None else None
    worlds = Worlds(group, payload)
    if proved is None or plan is None:
        return _refused(name, text, worlds, report, seed)
    verdict = Verdict(name, text, "sound")
    verdict.bad = _wrong(proved, worlds, verdict, seed) or _misrun(proved, plan, worlds, seed)
    verdict.outcome = "unsound" if verdict.bad else "sound"
    return verdict


def _refused(name: str, text: str, worlds: Worlds, report: Report, seed: int) -> Verdict:
    """Whether some world shows what a refused spec is refused for, or another fault."""
    codes = tuple(sorted({each.code for each in report.diagnostics}))
    said = report.render()
    missing = any(each.example is None and each.code in SHOWS for each in report.diagnostics)
    verdict = Verdict(name, text, "incomplete", codes, examples=not missing, said=said)
    wanted = {SHOWS[code] for code in codes if code in SHOWS}
    group, other = worlds.group, None
    points, watched = PointByPoint(group), Watched(group) if "race" in codes else None
    for call in worlds.each(RUNS, seed):
        verdict.worlds += 1
        fault = _fault(points, watched, call)
        if fault is not None and fault.kind in wanted:
            verdict.outcome, verdict.bad = "right", fault
            return verdict
        other = other or fault
    if other is not None:
        verdict.outcome, verdict.bad = "right", other
    elif not verdict.worlds and "empty-range" in codes:
        verdict.outcome = "right"
    elif not missing and "division-by-zero" not in codes:
        # An example is a world that kgen has walked through.
        verdict.outcome = "untrue" if worlds.whole else "right"
    elif not worlds.whole:
        verdict.outcome = "open"
    return verdict


def _fault(points: PointByPoint, watched: Watched | None, call: Call) -> Bad | None:
    """What is wrong in a world."""
    with contextlib.suppress(NoWorld):
        try:
            points.outcome(call)
            raced = watched.raced(call) if watched is not None else ""
        except Fault as fault:
            return Bad(fault.kind, str(fault), shown(call))
        return Bad("race", raced, shown(call)) if raced else None
    return None


def _wrong(proved: Proved, worlds: Worlds, verdict: Verdict, seed: int) -> Bad | None:
    """A world in which something does not hold that is said of an accepted group."""
    group, points = proved.group, PointByPoint(proved.group)
    kept = [
        tensor
        for tensor in group.tensors.values()
        if tensor.dtype in LIMITS and (tensor.low is not None or tensor.high is not None)
        if tensor.written and not any(store.tensor == tensor.name for store in proved.unkept)
    ]
    for call in worlds.each(RUNS, seed):
        verdict.worlds += 1
        try:
            outcome = points.outcome(call)
        except NoWorld:
            continue
        except Fault as fault:
            return Bad(fault.kind, str(fault), shown(call))
        host = Host(group, call)
        if group.when is not None and not host.of(group.when):
            continue
        for index in group.extents:
            count, (low, high) = host.extent(index), proved.ends[index]
            if not low <= count <= high or (index in proved.launched and count < 1):
                return Bad("extent", f"{index} takes {count} values", shown(call))
        if outcome.undefined and not proved.undefined:
            return Bad("undefined", str(outcome.undefined), shown(call))
        for tensor in kept:
            low = host.of(tensor.low) if tensor.low is not None else -math.inf
            high = host.of(tensor.high) if tensor.high is not None else math.inf
            free = outcome.undefined.get((tensor.name, 0), set())
            held = outcome.written.get((tensor.name, 0), {})
            left = {at: n for at, n in held.items() if at not in free and not low <= n <= high}
            if left:
                return Bad("values", f"{tensor.name} is left with {left}", shown(call))
    return None


def _misrun(proved: Proved, plan: Any, worlds: Worlds, seed: int) -> Bad | None:
    """A world in which the kernel of a group does what it must not."""
    group, chance = proved.group, random.Random(seed)
    try:
        runner = Runner(make(plan, reserved(group)).kernel)
    except UnsafeError as error:
        return Bad("judge", str(error))
    every = list(itertools.islice(worlds.numbers(), 400))
    points = PointByPoint(group)
    for at in range(LAUNCHES if every else 0):
        numbers = chance.choice(every)
        with contextlib.suppress(NoWorld):
            call = filled(worlds.call(numbers, chance.random() < 0.7, Choices(chance)))
            bad = launched(runner, points, call, chance, at)
            if bad is not None:
                return bad
    return None


def filled(call: Call) -> Call:
    """A call all of whose elements are chosen."""
    for arrays in call.tensors.values():
        for each in arrays or ():
            each.data = [each.data[at] for at in range(math.prod(each.shape))]
    return call


def launched(
    runner: Runner, points: PointByPoint, call: Call, chance: random.Random, seed: int
) -> Bad | None:
    """What is wrong with a kernel in a world."""
    group, host = points.group, Host(points.group, call)
    text = f"{call.numbers} {call.tensors}"
    if group.when is not None and not host.of(group.when):
        return None
    wanted = points.outcome(call)
    args: dict[str, Any] = {name: host.number(name) for name in (*group.sizes, *group.scalars)}
    for arg in runner.args:
        kind, _, index = arg.name.partition("_")
        if kind == "HAS":
            args[arg.name] = call.tensors[index] is not None
        elif kind in ("LANES", "TILE", "LOOP", "ONCE") and index in group.extents:
            args[arg.name] = {
                "LANES": 1 << max(host.extent(index) - 1, 0).bit_length(),
                "TILE": chance.choice((1, 2)),
                "LOOP": 2,
                "ONCE": host.extent(index) <= 2,
            }[kind]
    tensors: dict[str, Any] = {}
    for name, tensor in group.tensors.items():
        if call.tensors[name] is not None:
            held = [
                np.array(a.data, HELD[tensor.dtype]).reshape(a.shape) for a in call.tensors[name]
            ]
            tensors[name] = held if tensor.length is not None else held[0]
    watched = not any(each.repeats for each in group.tensors.values())
    try:
        runner.run(args, tensors, seed=seed, watched=watched)
    except RunError as error:
        return Bad(f"kernel: {type(error).__name__}", str(error), text)
    for name, tensor in group.tensors.items():
        if not tensor.written:
            continue
        arrays = tensors[name] if tensor.length is not None else [tensors[name]]
        for member, array in enumerate(arrays):
            written = wanted.written.get((name, member), {})
            free = wanted.undefined.get((name, member), set())
            for at, number in enumerate(array.reshape(-1).tolist()):
                right = written.get(at, call.tensors[name][member].data[at])
                if at not in free and number != right:
                    return Bad("kernel: differs", f"{name} at {at} is {number}, not {right}", text)
    return None


# The program.


def drawn(seed: int, only: str = "", again: int = 0) -> tuple[str, Data]:
    """The family and the parts of a seed; of some that are no spec the next ones."""
    dice = Dice(100 * seed + again)
    name = only or sorted(FAMILIES)[seed % len(FAMILIES)]
    return name, FAMILIES[name](dice)


def tried(seed: int, only: str = "") -> Verdict:
    """The verdict on the spec of a seed."""
    for again in range(20):
        name, parts = drawn(seed, only, again)
        verdict = judged(name, parts, seed)
        if verdict.outcome != "invalid":
            break
    return verdict


@dataclass
class Summary:
    """What came of many specs."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    codes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    seeds: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    worlds: int = 0
    without: int = 0
    seconds: float = 0.0

    def add(self, seed: int, each: Verdict) -> None:
        """Count one spec."""
        self.outcomes[each.family, each.outcome] += 1
        self.worlds += each.worlds
        self.without += each.outcome == "right" and not each.examples
        said = each.bad.kind if each.outcome == "unsound" and each.bad else ", ".join(each.codes)
        key = (each.outcome, each.family, said)
        self.codes[key] += 1
        self.seeds.setdefault(key, []).append(seed)

    def count(self, *outcomes: str) -> int:
        """How many specs had one of some outcomes."""
        return sum(n for (_, outcome), n in self.outcomes.items() if outcome in outcomes)

    @property
    def text(self) -> str:
        """For a person."""
        kinds = ("sound", "unsound", "right", "incomplete", "open", "untrue", "invalid")
        refused = self.count("right", "incomplete", "open", "untrue")
        lines = [
            f"{sum(self.outcomes.values())} specs, {self.worlds} worlds, {self.seconds:.0f} s of CPU",
            f"{self.count('sound', 'unsound')} accepted, {refused} refused",
            f"{self.without} rightly refused without an example",
            f"{'':12}" + "".join(f"{kind:>12}" for kind in kinds),
        ]
        for name in sorted(FAMILIES):
            lines.append(f"{name:12}" + "".join(f"{self.outcomes[name, k]:12}" for k in kinds))
        for kind in ("unsound", "untrue", "incomplete", "open", "invalid"):
            for (outcome, name, said), count in sorted(self.codes.items()):
                if outcome == kind:
                    seeds = ", ".join(map(str, self.seeds[outcome, name, said][:5]))
                    lines.append(f"{count:5}  {kind}: {name}: {said}  (seeds {seeds})")
                    if outcome == "incomplete":
                        lines += [f"{'':8}{DOCUMENTED[code]}" for code in said.split(", ")]
        return "\n".join(lines)


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description="Specs at the edges of proofs.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", default="")
    parser.add_argument("--spec", type=int)
    given = parser.parse_args()
    if given.spec is not None:
        verdict = tried(given.spec, given.family)
        print(verdict.text, verdict.said, verdict.family, verdict.outcome, verdict.worlds, sep="\n")
        print(verdict.bad)
        return
    summary = Summary()
    start, at = time.process_time(), time.process_time()
    for seed in itertools.count(given.seed * 1_000_000):
        verdict = tried(seed, given.family)
        summary.add(seed, verdict)
        now = time.process_time()
        summary.seconds = now - start
        if verdict.outcome in ("unsound", "untrue"):
            print(f"seed {seed}\n{verdict.text}{verdict.bad}\n", flush=True)
        if now - at > 120:
            at = now
            print(summary.text, flush=True)
        if now - start > 60 * given.minutes:
            break
    print(summary.text)


if __name__ == "__main__":
    main()
