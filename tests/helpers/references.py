"""References emitted straight from specs given as text: no proofs, no plan, nothing written."""

from __future__ import annotations

import ast
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kgen.diagnostics import Report
from kgen.lang.check import check
from kgen.lang.typed import Group
from kgen.runtime import _reference
from kgen.spec.package import read_packages
from kgen.targets import reference


def group_of(text: str) -> Group:
    """The typed group of a spec; raises ValueError if its names or types are wrong."""
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spec.yaml").write_text(text)
        groups = groups_of(Path(folder), report)
    if report.diagnostics:
        raise ValueError(report.render(colour=False))
    return groups[0]


def groups_of(folder: Path, report: Report | None = None) -> list[Group]:
    """The typed groups of a folder of specs, without those whose names or types are wrong."""
    report = report or Report()
    (package,) = read_packages(folder, report)
    groups = []
    for spec in package.groups:
        before = len(report.diagnostics)
        group = check(spec, package, report)
        groups += [group] if group is not None and len(report.diagnostics) == before else []
    return groups


def text_of(text: str) -> str:
    """The text of the reference of a spec."""
    return reference.emit(group_of(text)).text


def function_of(group: Group) -> Callable[..., None]:
    """The reference itself; sizes by keyword, those that it does not take as well."""
    emitted = reference.emit(group)
    known = {name: each for name, each in vars(_reference).items() if name.startswith("_")}
    known |= {"torch": torch, "Tensor": torch.Tensor}
    exec(compile(emitted.text, group.name, "exec"), known)
    spare = set(group.sizes) - set(emitted.sizes)

    def run(**given: Any) -> None:
        known[group.name](**{name: each for name, each in given.items() if name not in spare})

    return run


def faults(text: str, *names: str) -> list[str]:
    """What a reviewer would not let pass in the functions of a module; `names` are the specs' own."""
    return [
        f"{function.name}: {fault}"
        for function in ast.parse(text).body
        if isinstance(function, ast.FunctionDef)
        for fault in _faults(function, set(names))
    ]


def _faults(function: ast.FunctionDef, given: set[str]) -> list[str]:
    parameters = {arg.arg for arg in function.args.kwonlyargs}
    nodes = list(ast.walk(function))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    stored = Counter(node.id for node in names if isinstance(node.ctx, ast.Store))
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    found = [f"{name} is assigned twice" for name, times in stored.items() if times > 1]
    found += [f"{name} is a parameter" for name in stored if name in parameters]
    found += [f"{name} is not used" for name in stored if name not in read]
    for name in set(stored) - given:
        numbered = re.fullmatch(r"(\w+)_([2-9]|\d\d+)", name)
        if numbered and numbered[1] not in {*stored, *parameters, "torch"}:
            found.append(f"{name} without {numbered[1]}")
    loads = Counter(
        ", ".join(map(ast.unparse, node.args))
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("_load", "_peek")
    )
    return found + [f"_load({load}) twice" for load, times in loads.items() if times > 1]
