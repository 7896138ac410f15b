"""What earlier builds made of groups, kept by content: an unchanged group costs nothing.

A key is the text of a group's file and every source file of kgen. `KGEN_CACHE` names the folder, or is
`off`; by default it is kgen's own below the user's cache folder. A cache that can't be read or written is
as good as none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import shutil
import sys
import tempfile
from pathlib import Path

import kgen

_KEPT = 4  # versions of kgen whose entries stay


def load(sha256: str) -> object | None:
    """What was kept for a group's file; None if nothing was."""
    path = _path(sha256)
    with contextlib.suppress(Exception):  # a damaged file may raise anything
        if path is not None and path.is_file():
            value: object = pickle.loads(path.read_bytes())  # noqa: S301 - the user's own folder
            return value
    return None


def keep(sha256: str, value: object) -> None:
    """Keep something for a group's file."""
    path = _path(sha256)
    if path is None:
        return
    with contextlib.suppress(OSError):
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            _forget(path.parent.parent)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(pickle.dumps(value))
        Path(file.name).replace(path)


def _path(sha256: str) -> Path | None:
    folder = os.environ.get("KGEN_CACHE", "")
    if folder == "off":
        return None
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(folder) if folder else Path(home) / "kgen"
    return root / _version() / sha256


@functools.cache
def _version() -> str:
    """A name for this kgen and this Python."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(Path(kgen.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _forget(root: Path) -> None:
    """Remove what the oldest versions of kgen kept."""
    folders = sorted(root.iterdir(), key=_changed, reverse=True)
    for folder in folders[_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


def _changed(path: Path) -> float:
    return path.stat().st_mtime
