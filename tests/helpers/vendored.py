"""Copies of the committed package elsewhere, and programs that use them with nothing of this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]

PRELUDE = """\
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("kgen", "yaml", "jinja2", "pydantic", "pydantic_core", "click"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Blocked())
import torch

def call(package, count=2):
    given = dict(
        ctx_len=torch.tensor([10, 20, 30]),
        batch_to_slot=torch.tensor([0, 1, 0]),
        ctx_positions=torch.full((count, 3), 77),
        num_contexts=1,
    )
    package.context_positions(**given)
    return given["ctx_positions"].tolist()

RIGHT = [[20, 21, 22], [10, 11, 12]]
"""


def run(
    place: Path,
    text: str,
    *,
    interpret: bool,
    arguments: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
) -> str:
    """What a program prints that runs in `place`, with nothing of this checkout on its path."""
    env = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "PYTHONPATH")}
    env |= {"TRITON_INTERPRET": "1"} if interpret else {}
    program = place / "program.py"
    program.write_text(PRELUDE + textwrap.dedent(text))
    command = [sys.executable, *options, str(program), *arguments]
    done = subprocess.run(command, env=env, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def vendor(place: Path, source: Path = ROOT / "generated" / "dspark") -> None:
    shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
