"""Which stages conflict, and from that the fork, the joins and their events.

Two stages conflict where one writes what the other touches. Conflicting stages keep their order in
step.yaml, on one stream by itself and on two by an event; all others may overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kgen.diagnostics import Report, Span
from kgen.spec.step import StepSpec

Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage.

    `args`: argument -> what it gets, in text. `method`: its name in the generated class. `loops`: the
    indices of the repeats around it.
    """

    kind: str
    name: str
    method: str
    reads: Names
    writes: Names
    args: tuple[tuple[str, str], ...]
    switch: tuple[str, bool] | None
    always: bool
    doc: str
    extent: str
    loops: tuple[str, ...]
    stages: tuple[Stage, ...]
    span: Span

    def runs(self, on: Names) -> bool:
        """Whether the stage is part of the step under these switches."""
        return self.switch is None or (self.switch[0] in on) == self.switch[1]

    def conflict(self, other: Stage) -> str | None:
        """A name that one of the two writes and the other touches."""
        names = self.writes & (other.reads | other.writes) | self.reads & other.writes
        return min(names, default=None)


@dataclass(frozen=True, slots=True)
class Do:
    """One thing that the host does, on the main stream or (`aux`) on the other.

    `what`: `run` a stage, `record` an event after it, or `wait` for that event before `stage`.
    """

    what: str
    stage: Stage
    aux: bool
    why: str = ""


def every_stage(stages: tuple[Stage, ...]) -> Iterator[Stage]:
    """All stages, those of repeats after their repeat."""
    for stage in stages:
        yield stage
        yield from every_stage(stage.stages)


def running_stages(stages: tuple[Stage, ...], on: Names) -> Iterator[Stage]:
    """The stages that run under these switches, those of a repeat once and in its place."""
    for stage in stages:
        if stage.runs(on):
            if stage.kind == "repeat":
                yield from running_stages(stage.stages, on)
            else:
                yield stage


def _why(first: Stage, second: Stage) -> str:
    name = first.conflict(second)
    verb = "writes" if name in first.writes else "reads"
    return f"{first.name} {verb} {name}, {second.name} {'writes' if name in second.writes else 'reads'} it"


def schedule(
    stages: tuple[Stage, ...], spec: StepSpec, on: Names, report: Report
) -> tuple[Do, ...]:
    """What the host does under `overlap`: aux stages as early as what they need allows."""
    aux_names = {each.value for each in spec.aux}
    beside = {each.value for each in spec.beside}
    active = [stage for stage in stages if stage.runs(on)]
    for stage in active:
        for other in active:
            if stage.name in aux_names and other.name in beside:
                _check_race(stage, other, spec, report)
    issued: dict[int, list[Stage]] = {}  # main stage (-1: the start) -> aux stages after it
    last = -1
    main: list[Stage] = []
    for stage in active:
        if stage.name in aux_names:
            needs = [at for at, other in enumerate(main) if other.conflict(stage)]
            last = max([last, *needs])
            issued.setdefault(last, []).append(stage)
        else:
            main.append(stage)
    steps: list[Do] = []
    running: list[Stage] = []  # aux stages, in order
    waited = 0  # of which the main stream has waited for so many
    for at in range(-1, len(main)):
        if at >= 0:
            needs = [n for n, other in enumerate(running) if other.conflict(main[at])]
            if needs and max(needs) >= waited:
                waited = max(needs) + 1
                cause = running[waited - 1]
                steps.append(Do("wait", cause, False, _why(cause, main[at])))
            steps.append(Do("run", main[at], False))
        for number, stage in enumerate(issued.get(at, [])):
            if number == 0 and at >= 0:
                steps.append(Do("record", main[at], False))
                steps.append(Do("wait", main[at], True, _why(main[at], stage)))
            steps.append(Do("run", stage, True))
            running.append(stage)
    if waited < len(running):
        steps.append(Do("wait", running[-1], False, "the end of the step"))
    recorded = [do.stage for do in steps if do.what == "wait" and not do.aux]
    found: list[Do] = []
    for do in steps:
        found.append(do)
        if do.what == "run" and do.aux and do.stage in recorded:
            found.append(Do("record", do.stage, True))
    return tuple(found)


def _check_race(aux: Stage, beside: Stage, spec: StepSpec, report: Report) -> None:
    name = aux.conflict(beside)
    if name is None:
        return
    verb = "writes" if name in aux.writes else "reads"
    other = "writes" if name in beside.writes else "reads"
    span = next(each.span for each in spec.aux if each.value == aux.name)
    report.add(
        "step-race",
        span,
        f"`{aux.name}` can't run beside `{beside.name}`: the one {verb} `{name}`, which the other "
        f"{other}",
        f"take `{aux.name}` out of `aux`, or `{beside.name}` out of `beside`",
    )


def free_stages(stages: tuple[Stage, ...], spec: StepSpec) -> tuple[Stage, ...]:
    """Stages that need nothing of what the aux ones run beside, and could be forked too."""
    beside = {each.value for each in spec.beside}
    aux = {each.value for each in spec.aux}
    after: list[Stage] = []
    found = []
    for stage in stages:
        if stage.name in beside or any(stage.conflict(other) for other in after):
            after.append(stage)
        elif stage.name not in aux and not any(
            stage.conflict(other) for other in stages if other.name in beside
        ):
            found.append(stage)
    return tuple(found)
