"""The pipeline from specs to generated packages, and the one writer of files.

Read `compile_packages` and `compile_group` first, and `plan_group` in kgen/front.py: they are the
compiler's table of contents.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from kgen import cache
from kgen.diagnostics import Report, SpecError
from kgen.front import Checked, notes, of_groups, plan_group, typed_packages
from kgen.kernel.judge import UnsafeError
from kgen.kernel.make import make
from kgen.lang.typed import Group
from kgen.package.files import render
from kgen.package.view import Emitted, View, emit
from kgen.spec.package import Package, read_packages
from kgen.targets.triton import reserved


class BuildError(Exception):
    """Generated files can't be written; the message says which, why and what to do."""


class InternalError(BuildError):
    """What kgen made of sound specs is not Python, or not shown to be safe: a fault of kgen."""


@dataclass(frozen=True, slots=True)
class Built(Checked):
    """A package and what was made of it: `files` of all its groups, if nothing is wrong with its specs."""

    files: dict[str, str]


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
    typed = typed_packages(packages, report)
    emitted = of_groups(typed, report, _compiled)
    built = []
    for each in typed:
        groups = [group for group in each.groups if group.span.file in emitted]
        views = tuple(View(group, emitted[group.span.file]) for group in groups)
        files = render(each.package, views, each.step) if not report.diagnostics else {}
        for name, text in files.items():
            _check_python(each.package, name, text)
        found = notes(groups, {file: one.words for file, one in emitted.items()})
        built.append(Built(each.package, each.groups, each.step, found, files))
    return tuple(built)


def _compiled(group: Group, report: Report) -> Emitted | None:
    """The text of a group: as it was kept, or made anew."""
    kept = cache.load(group.sha256)
    if isinstance(kept, Emitted):
        return kept
    emitted = compile_group(group, report)
    if emitted is not None:
        cache.keep(group.sha256, emitted)
    return emitted


def compile_group(group: Group, report: Report) -> Emitted | None:
    """A typed group to text: proofs, plan, kernels, which are judged; None after reporting mistakes."""
    plan = plan_group(group, report)
    if plan is None:
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
