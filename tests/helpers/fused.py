"""Groups that have no spec file taken through the pipeline, and a fused group compared with its parts."""

from __future__ import annotations

import importlib
import itertools
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from in_memory import MEMORY, PACKAGE
from interpreter_memory import watched

from kgen.diagnostics import Report
from kgen.kernel.make import make
from kgen.kernel.run import Runner
from kgen.lang.check import check
from kgen.lang.typed import Group
from kgen.package.files import render
from kgen.package.view import View, emit
from kgen.plan.plan import make_plan
from kgen.prove.prove import prove
from kgen.spec.package import Package, read_packages
from kgen.targets.triton import reserved

_numbers = itertools.count()


def typed(report: Report, *texts: str) -> list[Group]:
    """The typed groups of some specs, in the order of the texts."""
    with tempfile.TemporaryDirectory() as name:
        for number, text in enumerate(texts):
            (Path(name) / f"spec_{number}.yaml").write_text(text, encoding="utf-8")
        (package,) = read_packages(Path(name), report)
        groups = [check(spec, package, report) for spec in package.groups]
    return [group for group in groups if group is not None]


@dataclass
class Made:
    """A group with its kernel in the form, and what is printed of it."""

    view: View
    runner: Runner


def made(group: Group, report: Report) -> Made | None:
    """A group through proofs, plan, judge and printing; None after reporting why not."""
    proved = prove(group, report)
    plan = make_plan(proved, report) if proved is not None else None
    if plan is None:
        return None
    kernels = make(plan, reserved(group))
    return Made(View(group, emit(kernels)), Runner(kernels.kernel))


@dataclass
class Readings:
    """A fused group and its parts, imported. `through`: what is memory of the parts only."""

    groups: list[Made]
    cases: list[Any]
    testing: Any
    through: tuple[str, ...]

    def differences(self, seed: int, readings: Collection[str]) -> tuple[list[str], bool]:
        """Where a world differs after the fused group and after its parts; whether it changed at all."""
        whole, *parts = range(len(self.cases))
        case = self.cases[whole]
        start = self.testing.draw(case, seed)
        results: dict[str, Any] = {}
        for reading in readings:
            for who, each in (("parts", parts), ("fused group", [whole])):
                world = start.clone()
                extra = self._scratch(start.values) if who == "parts" else {}
                for at in each:
                    self._run(reading, at, world, extra, seed)
                results[f"{reading} of the {who}"] = world
        (first, expected), *rest = results.items()
        found = [
            f"{what} and {first} at {start.values}: {text}"
            for what, world in rest
            for text in self.testing.differences(case, start, expected, world, 0, {})
        ]
        changed = bool(self.testing.differences(case, start, start, expected, 0, {}))
        return found, changed

    def _scratch(self, values: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Memory for what passes between the parts only."""
        found: dict[str, torch.Tensor] = {}
        for name in self.through:
            declared = self.cases[1].signature.tensors[name]
            shape = [dim(values) for dim in declared.dims]
            found[name] = torch.full(shape, 1, dtype=declared.dtype)
        return found

    def _run(
        self, reading: str, at: int, world: Any, extra: dict[str, torch.Tensor], seed: int
    ) -> None:
        """Call a group on a world that may have more than it takes."""
        case, given = self.cases[at], world.arguments() | extra
        signature = case.signature
        tensors = {name: given[name] for name in signature.tensors if name in given}
        scalars = {name: world.values[name] for name in signature.scalars}
        values = {name: world.values[name] for name in (*signature.sizes, *signature.scalars)}
        with np.errstate(all="ignore"):
            if reading == "kernel":
                watched(case).fused(**tensors, **scalars)
            elif signature.runs(values) and reading == "reference":
                case.operator.run_reference(tensors | scalars, values)
            elif signature.runs(values):
                blocks = case.operator.launch.block_sizes(values)
                asked = {f"HAS_{name}": name in tensors for name in signature.tensors}
                self.groups[at].runner.run(
                    {**values, **blocks, **asked},
                    {name: _numpy(each) for name, each in tensors.items()},
                    seed=seed,
                )


def _numpy(tensor: Any) -> Any:
    """The memory of a tensor or of a list, as the runner holds it."""
    if isinstance(tensor, list):
        return [_numpy(each) for each in tensor]
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


@contextmanager
def readings(whole: Made, parts: list[Made], *through: str) -> Iterator[Readings]:
    """A fused group and its parts as a package in memory."""
    groups, parent = [whole, *parts], f"fused_{next(_numbers)}"
    package = Package(PACKAGE, Path(PACKAGE), (), None, None)
    MEMORY.add(parent, render(package, tuple(each.view for each in groups), None))
    try:
        names = [each.view.name for each in groups]
        cases = [importlib.import_module(f"{parent}.{PACKAGE}.tests.test_{n}").CASE for n in names]
        testing = importlib.import_module(f"{parent}.{PACKAGE}._testing")
        yield Readings(groups, cases, testing, through)
    finally:
        MEMORY.remove(parent)
