"""The front of the compiler: specs to plans. All that can be wrong with a spec is found here.

Loads nothing of kernels and text, so that `kgen check` answers at once.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from kgen import cache
from kgen.diagnostics import Diagnostic, Report, SpecError
from kgen.lang.check import check
from kgen.lang.typed import Group
from kgen.plan.plan import Plan, make_plan
from kgen.plan.step import StepPlan, make_step
from kgen.plan.words import Words, words
from kgen.prove.prove import prove
from kgen.spec.package import Package, read_packages

_DEEP = 10_000  # calls within each other: a chain of lets is as deep as it is long
_MANY = 40  # groups that are worth starting processes for

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Typed:
    """A package whose names, types and indices are right, as far as nothing was reported."""

    package: Package
    groups: tuple[Group, ...]
    step: StepPlan | None


@dataclass(frozen=True, slots=True)
class Checked:
    """A package with nothing wrong in it.

    `notes`: what is not a mistake but should be known, each with the group that it is about.
    """

    package: Package
    groups: tuple[Group, ...]
    step: StepPlan | None
    notes: tuple[tuple[str, str], ...]


def check_specs(root: Path) -> tuple[Checked, ...]:
    """Check everything in a folder of specs; raises `SpecError` with all that is wrong."""
    report = Report()
    packages = typed_packages(read_packages(root, report), report)
    found = of_groups(packages, report, _words)
    if report.diagnostics:
        raise SpecError(report)
    return tuple(
        Checked(each.package, each.groups, each.step, notes(each.groups, found))
        for each in packages
    )


def typed_packages(packages: tuple[Package, ...], report: Report) -> tuple[Typed, ...]:
    """Packages after their types are checked, and how their steps run."""
    found = []
    for package in packages:
        checked = (check(spec, package, report) for spec in package.groups)
        groups = tuple(group for group in checked if group is not None)
        whole = len(groups) == len(package.groups)
        step = make_step(package, {g.name: g for g in groups}, report) if whole else None
        found.append(Typed(package, groups, step))
    return tuple(found)


def of_groups(
    packages: tuple[Typed, ...], report: Report, make: Callable[[Group, Report], Made | None]
) -> dict[str, Made]:
    """What is made of each group, by file: of those that nothing was reported about."""
    wrong = {each.span.file for each in report.diagnostics}
    sound = [g for each in packages for g in each.groups if g.span.file not in wrong]
    found: dict[str, Made] = {}
    for group, (made, mistakes) in zip(sound, _each(sound, report, make), strict=True):
        report.diagnostics += [each for each in mistakes if each not in report.diagnostics]
        if made is not None:
            found[group.span.file] = made
    return found


def _each(
    groups: list[Group], report: Report, make: Callable[[Group, Report], Made | None]
) -> Iterable[tuple[Made | None, list[Diagnostic]]]:
    work = functools.partial(_one, make=make, sources=report.sources)
    processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if len(groups) < _MANY or processes == 1:
        return map(work, groups)
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - only for many groups

    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(work, groups, chunksize=4))


def _one(
    group: Group, make: Callable[[Group, Report], Made | None], sources: dict[str, str]
) -> tuple[Made | None, list[Diagnostic]]:
    report = Report(sources=sources)
    return make(group, report), report.diagnostics


def plan_group(group: Group, report: Report) -> Plan | None:
    """A typed group to how it runs, by way of its proofs; None after reporting mistakes."""
    before = len(report.diagnostics)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEP))
    proved = prove(group, report)
    plan = make_plan(proved, report) if proved is not None else None
    if plan is None:
        for at, each in enumerate(report.diagnostics[before:], before):
            if each.span.file != group.span.file:  # of a group that it is made of
                also = (*each.also, (group.span, f"as a part of `{group.name}`"))
                report.diagnostics[at] = replace(each, also=also)
    return plan


def _words(group: Group, report: Report) -> Words | None:
    kept = cache.load(f"{group.sha256}.words")
    if isinstance(kept, Words):
        return kept
    plan = plan_group(group, report)
    if plan is None:
        return None
    found = words(plan)
    cache.keep(f"{group.sha256}.words", found)
    return found


def notes(groups: Iterable[Group], found: dict[str, Words]) -> tuple[tuple[str, str], ...]:
    """What is to be known of groups."""
    return tuple((g.name, text) for g in groups for text in found[g.span.file].unkept)
