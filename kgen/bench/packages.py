"""Generated packages in a folder, and legal values for their groups' sizes and scalars.

Needs torch and triton only. In: a folder. Out: packages that are imported, groups by name.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class BenchError(Exception):
    """What is asked for can't be done here; the message says what to do."""


@dataclass(frozen=True)
class Package:
    """A generated package: its name, its manifest, and how its modules are imported."""

    name: str
    place: str
    manifest: dict[str, Any]

    def module(self, name: str) -> Any:
        """One of its modules."""
        return importlib.import_module(f"{self.place}.{name}")

    @property
    def groups(self) -> dict[str, Any]:
        """Its operators by name."""
        found: dict[str, Any] = self.module("ops").GROUPS
        return found


def packages(folder: Path) -> list[Package]:
    """The packages that a folder holds, or that it is.

    Raises:
        BenchError: there is none.
    """
    folder = folder.resolve()
    found = [folder] if (folder / "manifest.json").is_file() else []
    found += sorted(path.parent for path in folder.glob("*/manifest.json"))
    if not found:
        raise BenchError(f"there is no generated package in {folder}; run kgen build first")
    result = []
    for path in found:
        names = [path.name]
        root = path.parent
        if (root / "__init__.py").is_file():
            names.insert(0, root.name)
            root = root.parent
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        result.append(Package(path.name, ".".join(names), manifest))
    return result


def numbers(text: str) -> dict[str, int]:
    """`K1=8,D=576` as a table.

    Raises:
        BenchError: it is none.
    """
    found: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if not name.strip().isidentifier() or not value.strip().isdigit():
            raise BenchError(f"`{part}` is not NAME=NUMBER")
        found[name.strip()] = int(value)
    return found


def chosen(signature: Any, wanted: dict[str, int], static: int, running: int) -> dict[str, Any]:
    """A legal value of every size and scalar: the wanted one, or the default, moved into its range.

    Raises:
        BenchError: a wanted one is out of its range, or there is none.
    """
    values: dict[str, Any] = {}
    for name in signature.order:
        declared = signature.declared(name)
        derived = getattr(declared, "derived", None)
        if derived is not None:
            values[name] = derived(values)
        elif name in signature.defaults and name not in wanted:
            values[name] = signature.defaults[name](values)
        elif getattr(declared, "float", False):
            values[name] = 0.5
        else:
            low, high = declared.ends(values)
            value = wanted.get(name, max(low, min(static if declared.static else running, high)))
            if not low <= value <= high:
                raise BenchError(f"{signature.group}: `{name}` = {value} is not in {low} .. {high}")
            values[name] = value
    return values
