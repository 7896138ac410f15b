"""Builds specs into a folder and imports what was generated, under a name of its own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from kgen.build import compare, compile_specs, write


def build(specs: Path, out: Path) -> None:
    """Generate the packages of a folder of specs; raises `SpecError`."""
    built = compile_specs(specs)
    write(built, out, compare(built, out, whole=False))


def load(folder: Path, name: str) -> ModuleType:
    """Import a folder of generated packages as the package `name`."""
    where = [str(folder)]
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=where
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def package(folder: Path, name: str, *specs: str) -> ModuleType:
    """Build specs given as text, each with its group's name, as the package `pk` of `name`; import it."""
    (folder / "pk").mkdir(parents=True)
    for number, text in enumerate(specs):
        (folder / "pk" / f"spec_{number}.yaml").write_text(text, encoding="utf-8")
    build(folder / "pk", folder / "out")
    load(folder / "out", name)
    return importlib.import_module(f"{name}.pk")


def unload(name: str) -> None:
    """Forget a package and all that is in it."""
    for each in [each for each in sys.modules if each.split(".")[0] == name]:
        del sys.modules[each]


def case(parent: str, package: str, group: str) -> Any:
    """The test case that kgen generated for a group."""
    return importlib.import_module(f"{parent}.{package}.tests.test_{group}").CASE


def testing(parent: str, package: str) -> ModuleType:
    """The package's own `_testing`."""
    return importlib.import_module(f"{parent}.{package}._testing")
