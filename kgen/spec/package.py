"""The packages of a folder of specs: groups, the step, and the eager chain's text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kgen.diagnostics import Report, Span
from kgen.spec.model import GroupSpec, is_name, read_group, read_text
from kgen.spec.step import StepSpec, read_step

STEP_FILE = "step.yaml"


@dataclass(frozen=True, slots=True)
class Package:
    """A folder of spec files; `eager` is the text of its eager.py, `step` its step.yaml."""

    name: str
    folder: Path
    groups: tuple[GroupSpec, ...]
    eager: str | None
    step: StepSpec | None


def read_packages(root: Path, report: Report) -> tuple[Package, ...]:
    """The packages in `root`: itself if it holds spec files, else its folders that do."""
    if not root.is_dir():
        report.add(
            "no-specs",
            Span(str(root), 1, 1, 2),
            f"{root} is not a folder",
            "give the folder that holds the packages, or one package: kgen build specs/",
        )
        return ()
    folders = [root] if _spec_files(root) else sorted(p for p in root.iterdir() if p.is_dir())
    packages = tuple(_read_package(folder, report) for folder in folders if _spec_files(folder))
    if not packages:
        report.add(
            "no-specs",
            Span(str(root), 1, 1, 2),
            f"no spec files (*.yaml) in {root} or in the folders under it",
            "a package is a folder of spec files: specs/PACKAGE/GROUP.yaml",
        )
    return packages


def _spec_files(folder: Path) -> list[Path]:
    """The files of a folder's groups."""
    files = [*folder.glob("*.yaml"), *folder.glob("*.yml")]
    return sorted(file for file in files if file.is_file() and file.name != STEP_FILE)


def _read_package(folder: Path, report: Report) -> Package:
    groups: dict[str, GroupSpec] = {}
    if not is_name(folder.resolve().name):
        report.add(
            "bad-name",
            Span(str(folder), 1, 1, 2),
            f"the folder name `{folder.resolve().name}` can't be a package name",
            "use letters, digits and underscores",
        )
    for file in _spec_files(folder):
        group = read_group(file, file.as_posix(), report)
        if group is None:
            continue
        if group.name.value in groups:
            other = groups[group.name.value].file
            report.add(
                "duplicate-group",
                group.name.span,
                f"`{group.name.value}` is a group in {other} too",
            )
        groups.setdefault(group.name.value, group)
    eager_file = folder / "eager.py"
    eager = None
    if eager_file.is_file():
        eager = read_text(eager_file, eager_file.as_posix(), report)
    step_file = folder / STEP_FILE
    step = read_step(step_file, step_file.as_posix(), report) if step_file.is_file() else None
    return Package(folder.resolve().name, folder, tuple(groups.values()), eager, step)
