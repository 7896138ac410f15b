"""The pipeline from specs to generated packages, and the one writer of files.

`compile_package` is the compiler's table of contents: read it first.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from kgen.analysis.prove import prove
from kgen.diagnostics import Report, SpecError
from kgen.emit.package import render
from kgen.lang.check import check
from kgen.lang.typed import Group
from kgen.plan.plan import Plan, make_plan
from kgen.plan.step import StepPlan, make_step
from kgen.spec.package import Package, read_packages


class BuildError(Exception):
    """Generated files can't be written; the message says which, why and what to do."""


@dataclass(frozen=True, slots=True)
class Built:
    """A package and what was made of it. `plans` and `files` are empty if its specs are wrong."""

    package: Package
    groups: tuple[Group, ...]
    plans: tuple[Plan, ...]
    step: StepPlan | None
    files: dict[str, str]


def compile_package(package: Package, report: Report) -> Built:
    """Specs to text: names and types, proofs and plan, then the emitters."""
    groups = [group for spec in package.groups if (group := check(spec, package, report))]
    plans = [plan for group in groups if (plan := _proved_plan(group, report))]
    whole = len(plans) == len(package.groups) and not report.diagnostics
    step = make_step(package, {group.name: group for group in groups}, report) if whole else None
    whole = whole and not report.diagnostics
    files = render(package, tuple(plans), step) if whole else {}
    return Built(package, tuple(groups), tuple(plans), step, files)


def _proved_plan(group: Group, report: Report) -> Plan | None:
    """The plan of a group with what is proved of it; None after reporting what can't be."""
    plan = make_plan(group, report)
    proofs = prove(group, report) if plan is not None else None
    return replace(plan, proofs=proofs) if plan is not None and proofs is not None else None


def compile_specs(root: Path) -> tuple[Built, ...]:
    """Everything in a folder of specs; raises `SpecError` with all that is wrong."""
    report = Report()
    packages = read_packages(root, report)
    built = tuple(compile_package(package, report) for package in packages)
    if report.diagnostics:
        raise SpecError(report)
    return built


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
