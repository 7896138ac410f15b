"""Builds the package of one spec in memory, without a file, and says how kgen fails where it does.

The texts of a package become modules by an importer of their own. What is the same text in many packages, the
vendored runtime, is compiled once.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import itertools
import linecache
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from interpreter_memory import MemoryFault, watched
from point_by_point import Fault, PointByPoint

from kgen.build import Built, compile_packages
from kgen.diagnostics import Report
from kgen.lang.typed import Group
from kgen.spec.package import read_packages

PACKAGE = "drawn"


class Memory(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules from text. What is the same text in many packages is compiled once."""

    def __init__(self) -> None:
        self.texts: dict[str, tuple[str, bool]] = {}
        self.codes: dict[str, CodeType] = {}

    def add(self, parent: str, files: dict[str, str]) -> None:
        """A parent package, and in it one package of these files."""
        self.texts[parent] = ("", True)
        for path, text in files.items():
            if path.endswith(".py"):
                parts = [parent, PACKAGE, *path.removesuffix(".py").split("/")]
                package = parts[-1] == "__init__"
                self.texts[".".join(parts[:-1] if package else parts)] = (text, package)

    def remove(self, parent: str) -> None:
        """Forget a parent package and all that is in it."""
        inside = re.compile(rf"{re.escape(parent)}(\..*)?")
        for name in [name for name in self.texts if inside.fullmatch(name)]:
            del self.texts[name]
            linecache.cache.pop(self._file(name), None)
        for name in [name for name in sys.modules if inside.fullmatch(name)]:
            del sys.modules[name]

    @staticmethod
    def _file(name: str) -> str:
        return f"/in memory/{name}.py"

    def find_spec(self, fullname: str, _path: Any = None, _target: Any = None) -> Any:
        if fullname not in self.texts:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=self._file(fullname))
        spec.has_location = True
        if self.texts[fullname][1]:
            spec.submodule_search_locations = []
        return spec

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        text, file = self.texts[name][0], self._file(name)
        vendored = name.rpartition(".")[2].startswith("_")
        if not vendored or text not in self.codes:
            code = compile(text, file, "exec", dont_inherit=True)
            if vendored:
                self.codes[text] = code
        else:
            code = self.codes[text]
        # Triton reads the text of a kernel again.
        file = code.co_filename
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(code, module.__dict__)


MEMORY = Memory()
sys.meta_path.insert(0, MEMORY)
_numbers = itertools.count()


class Refused(Exception):
    """kgen says no; `codes` are those of its diagnostics."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.render())
        self.report = report
        self.codes = tuple(sorted({each.code for each in report.diagnostics}))


class Failure(Exception):
    """A spec that kgen accepted, or crashed on, and what is wrong with it.

    `reading` is where it shows (`build`, `import`, or one of the readings), `kind` what it is, without numbers
    and names, so that equal faults of different specs have equal kinds.
    """

    def __init__(self, reading: str, kind: str, detail: str, world: str = "") -> None:
        super().__init__(f"{reading}: {detail}" + (f"\nat {world}" if world else ""))
        self.reading, self.kind, self.detail, self.world = reading, kind, detail, world

    @property
    def key(self) -> str:
        """Reading and kind."""
        return f"{self.reading}: {self.kind}"


def kind_of(error: BaseException) -> str:
    """What an error is, without numbers and names."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, Fault):
        return error.kind
    if isinstance(error, MemoryFault):
        lines = str(error).splitlines()[1:]
        return ", ".join(sorted({re.sub(r"^program \d+: \d+ ", "", line) for line in lines}))
    lines = str(error).splitlines() or [""]
    text = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", "..", lines[0])
    text = re.sub(r"[-\d]+", "N", text)
    return f"{type(error).__name__}: {text[:80]}"


@dataclass
class Subject:
    """A group that was built, and what its readings need."""

    text: str
    parent: str
    built: Built
    case: Any
    testing: ModuleType
    points: PointByPoint

    @property
    def group(self) -> Group:
        """The typed tree."""
        return self.built.groups[0]

    @property
    def checked(self) -> Any:
        """The test case, its kernel watched."""
        return watched(self.case)


@contextlib.contextmanager
def subject(text: str) -> Iterator[Subject]:
    """A spec's package, in memory while this is open; raises `Refused` or `Failure`."""
    built = compiled(text)
    parent = f"{PACKAGE}_{next(_numbers)}"
    MEMORY.add(parent, built.files)
    try:
        try:
            name = built.groups[0].name
            case = importlib.import_module(f"{parent}.{PACKAGE}.tests.test_{name}").CASE
            testing = importlib.import_module(f"{parent}.{PACKAGE}._testing")
        except Exception as error:
            raise Failure("import", kind_of(error), repr(error)) from error
        yield Subject(text, parent, built, case, testing, PointByPoint(built.groups[0]))
    finally:
        MEMORY.remove(parent)


@lru_cache(maxsize=8)
def compiled(text: str) -> Built:
    """What kgen makes of a spec; raises `Refused` or `Failure`."""
    report = Report()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / PACKAGE
        folder.mkdir()
        (folder / "spec.yaml").write_text(text, encoding="utf-8")
        try:
            (package,) = read_packages(folder, report)
            built = compile_packages((package,), report)[0]
        except Exception as error:
            raise Failure("build", kind_of(error), repr(error)) from error
    if report.diagnostics:
        raise Refused(report)
    return built
