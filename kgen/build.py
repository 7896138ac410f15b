"""The pipeline from specs to generated packages, and the one writer of files.

`compile_packages` and `compile_group` are the compiler's table of contents: read them first.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from kgen import cache
from kgen.diagnostics import Diagnostic, Report, SpecError
from kgen.kernel.judge import UnsafeError
from kgen.kernel.make import make
from kgen.lang.check import check
from kgen.lang.typed import Group
from kgen.package.files import render
from kgen.package.view import Emitted, View, emit
from kgen.plan.plan import make_plan
from kgen.plan.step import StepPlan, make_step
from kgen.prove.prove import prove
from kgen.spec.package import Package, read_packages
from kgen.targets.triton import reserved

_DEEP = 10_000  # calls within each other: a chain of lets is as deep as it is long
_MANY = 40  # groups that are worth starting processes for


class BuildError(Exception):
    """Generated files can't be written; the message says which, why and what to do."""


class InternalError(BuildError):
    """What kgen made of sound specs is not Python, or not shown to be safe: a fault of kgen."""


@dataclass(frozen=True, slots=True)
class Built:
    """A package and what was made of it: `files` of all its groups, if nothing is wrong with its specs.

    `notes`: what is no mistake and yet to be known, each with the group that it is about.
    """

    package: Package
    groups: tuple[Group, ...]
    step: StepPlan | None
    files: dict[str, str]
    notes: tuple[tuple[str, str], ...]


def compile_specs(root: Path) -> tuple[Built, ...]:
    """Everything in a folder of specs; raises `SpecError` with all that is wrong."""
    report = Report()
    packages = read_packages(root, report)
    built = compile_packages(packages, report)
    if report.diagnostics:
        raise SpecError(report)
    return built


def compile_packages(packages: tuple[Package, ...], report: Report) -> tuple[Built, ...]:
    """Specs to text. Each group tells its own mistakes, and each step, whatever is wrong with others."""
    typed = [
        [group for spec in package.groups if (group := check(spec, package, report))]
        for package in packages
    ]
    steps = [
        make_step(package, {group.name: group for group in groups}, report)
        if len(groups) == len(package.groups)
        else None
        for package, groups in zip(packages, typed, strict=True)
    ]
    wrong = {each.span.file for each in report.diagnostics}
    sound = [group for groups in typed for group in groups if group.span.file not in wrong]
    emitted = compile_groups(sound, report)
    built = []
    for package, groups, step in zip(packages, typed, steps, strict=True):
        views = tuple(
            View(group, emitted[where]) for group in groups if (where := group.span.file) in emitted
        )
        files = render(package, views, step) if not report.diagnostics else {}
        for name, text in files.items():
            _check_python(package, name, text)
        notes = tuple((view.name, text) for view in views for text in view.emitted.words.unkept)
        built.append(Built(package, tuple(groups), step, files, notes))
    return tuple(built)


def compile_groups(groups: list[Group], report: Report) -> dict[str, Emitted]:
    """The text of groups, by file: as it was kept, or made anew, by several processes if it is of many."""
    found: dict[str, Emitted] = {}
    todo: list[Group] = []
    for group in groups:
        kept = cache.load(group.sha256)
        if isinstance(kept, Emitted):
            found[group.span.file] = kept
        else:
            todo.append(group)
    for group, (emitted, mistakes) in zip(todo, _each(todo, report), strict=True):
        report.diagnostics += [each for each in mistakes if each not in report.diagnostics]
        if emitted is not None:
            found[group.span.file] = emitted
            cache.keep(group.sha256, emitted)
    return found


def _each(groups: list[Group], report: Report) -> Iterable[tuple[Emitted | None, list[Diagnostic]]]:
    work = functools.partial(_compile, sources=report.sources)
    processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if len(groups) < _MANY or processes == 1:
        return map(work, groups)
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - only for many groups

    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(work, groups, chunksize=4))


def _compile(group: Group, sources: dict[str, str]) -> tuple[Emitted | None, list[Diagnostic]]:
    report = Report(sources=sources)
    return compile_group(group, report), report.diagnostics


def compile_group(group: Group, report: Report) -> Emitted | None:
    """A typed group to text: proofs, plan, kernels, which are judged; None after reporting mistakes."""
    before = len(report.diagnostics)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEP))
    proved = prove(group, report)
    plan = make_plan(proved, report) if proved is not None else None
    if plan is None:
        for at, each in enumerate(report.diagnostics[before:], before):
            if each.span.file != group.span.file:  # of a group that it is made of
                also = (*each.also, (group.span, f"as a part of `{group.name}`"))
                report.diagnostics[at] = replace(each, also=also)
        return None
    try:
        return emit(make(plan, reserved(group)))
    except UnsafeError as error:
        raise InternalError(
            f"internal error: {error}; the specs are not at fault: please report it, with {group.file}"
        ) from error


def _check_python(package: Package, name: str, text: str) -> None:
    """Refuse a file that does not parse; the message names the spec that it comes from."""
    copied = name.startswith("_") and name != "__init__.py"  # kgen's own runtime
    try:
        if name.endswith(".py") and not copied:
            compile(text, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        number = getattr(error, "lineno", None) or 1
        if name == "eager.py":
            where = f"{package.folder / name}, line {number}"
            raise BuildError(f"{where}, is not Python: {error.args[0]}") from error
        lines = text.splitlines()
        # The group that is named last before the fault, or by the file.
        words = re.findall(r"\w+", " ".join([name, *lines[:number]]))
        plain = [re.sub(r"^test_|_kernel$|_check$", "", word) for word in words]
        groups = {group.name.value: group.file for group in package.groups}
        named = [groups[word] for word in plain if word in groups]
        raise InternalError(
            f"internal error: {package.name}/{name} would not be Python: {error.args[0]} in line {number}, "
            f"`{lines[number - 1].strip() if number <= len(lines) else ''}`; it comes from "
            f"{named[-1] if named else package.folder}. This is a fault of kgen, not of the spec: please "
            "report it, with that file"
        ) from error


@dataclass(slots=True)
class Changes:
    """What a build changed, or would change: paths below the output folder."""

    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def any(self) -> bool:
        """Whether anything differs from what the specs say."""
        return bool(self.written or self.removed)


def compare(built: tuple[Built, ...], out: Path, *, whole: bool) -> Changes:
    """What differs between the output folder and the specs; writes nothing.

    Args:
        built: the packages.
        out: the output folder.
        whole: whether `built` is all that the folder should hold, so that other packages are orphans.
    """
    changes = Changes()
    for each in built:
        folder = out / each.package.name
        for name, text in sorted(each.files.items()):
            path = folder / name
            old = _read(path)
            if old == text:
                changes.unchanged += 1
                continue
            shown = f"{each.package.name}/{name}"
            changes.written.append(shown)
            changes.differences += difflib.unified_diff(
                (old or "").splitlines(),
                text.splitlines(),
                f"{shown} (on disk)",
                f"{shown} (specs)",
                "",
                "",
                2,
                "",
            )
        for name in _files(folder):
            if name not in each.files:
                changes.removed.append(f"{each.package.name}/{name}")
                changes.differences.append(f"{each.package.name}/{name} belongs to no spec")
    if built and not (out / "__init__.py").exists():
        changes.written.append("__init__.py")
        changes.differences.append("__init__.py is missing")
    if whole and out.is_dir():
        names = {each.package.name for each in built}
        for folder in sorted(p for p in out.iterdir() if (p / "manifest.json").is_file()):
            if folder.name not in names:
                changes.removed += [f"{folder.name}/{name}" for name in _files(folder)]
                changes.differences.append(f"{folder.name}/ belongs to no package of specs")
    return changes


def write(built: tuple[Built, ...], out: Path, changes: Changes) -> None:
    """Make the output folder what the specs say: all changed files, or none at all."""
    for shown in (*changes.removed, *changes.written):
        if (out / shown).exists() and not _ours(out, shown):
            raise BuildError(
                f"{out / shown} is in the way, and kgen did not write it: no manifest.json lists it; "
                "move it elsewhere, or give another folder with --out"
            )
    if not changes.any:
        return
    texts = {f"{b.package.name}/{name}": text for b in built for name, text in b.files.items()}
    texts["__init__.py"] = '"""Packages generated by kgen."""\n'
    made: list[Path] = []  # folders, to be taken away again if anything fails
    done: list[tuple[Path, Path]] = []  # what was moved: from, to
    try:
        _make_folder(out, made)
        with tempfile.TemporaryDirectory(prefix=".kgen-", dir=out) as name:
            staging = Path(name)
            for number, shown in enumerate(changes.written):
                fresh = staging / f"{number}.new"
                fresh.write_text(texts[shown], encoding="utf-8", newline="\n")
            try:
                for number, shown in enumerate((*changes.written, *changes.removed)):
                    path = out / shown
                    _make_folder(path.parent, made)
                    if path.exists():
                        _move(path, staging / f"{number}.old", done)
                    if number < len(changes.written):
                        _move(staging / f"{number}.new", path, done)
            except OSError:
                for source, target in reversed(done):
                    target.replace(source)
                raise
    except OSError as error:
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise BuildError(
            f"can't write {error.filename or out}: {error.strerror or error}; "
            "check that the folder exists and is yours to write, or give another with --out"
        ) from error
    for shown in changes.removed:
        for folder in (out / shown).parents:
            if folder == out:
                break
            if not folder.is_dir():
                continue
            if any(folder.iterdir()):
                break
            folder.rmdir()


def _make_folder(folder: Path, made: list[Path]) -> None:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        made.append(each)


def _move(source: Path, target: Path, done: list[tuple[Path, Path]]) -> None:
    source.replace(target)
    done.append((source, target))


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "replace") if path.is_file() else None
    except OSError as error:
        raise BuildError(f"can't read {path}: {error.strerror}") from error


def _files(folder: Path) -> list[str]:
    """The files of a generated package, Python's caches left out."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(
        path.relative_to(folder).as_posix()
        for path in found
        if "__pycache__" not in path.parts and path.suffix != ".pyc"
    )


def _ours(out: Path, shown: str) -> bool:
    """Whether the manifest beside a file lists it."""
    package, _, name = shown.partition("/")
    if not name:  # the output folder's own __init__.py, which is only written where there is none
        return False
    try:
        manifest = json.loads((out / package / "manifest.json").read_text(encoding="utf-8"))
        return name == "manifest.json" or name in manifest["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
