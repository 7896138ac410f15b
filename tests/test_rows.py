"""An operator is one row of a table, and so is an element type: both are put into a copy of kgen and used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

OPERATOR = """\
    Operator(
        name="square",
        arity=1,
        symbol="square",
        takes="numbers",
        exact=lambda a: a * a,
        interval=lambda a: (_magnitude(a)[0] ** 2, _magnitude(a)[1] ** 2),
        numpy=lambda a: a * a,
        spec=_calls("square"),
        triton=lambda a: infix("*", a, a),
        torch=_calls("torch.square"),
        triton_floats=lambda a: infix("*", a, a),
        torch_floats=_calls("torch.square"),
        leaves=True,
    ),
"""
TYPE = '    ElementType("i16", "integer", 16, True, "int16", "int16", ("int16",)),\n'
SPEC = """\
group: squares
summary: Squares of what there is, and an element at one.
sizes: {R: 0 .. 64, N: 1 .. 200}
tensors:
  a: {type: "i16[R]", values: -30 .. 40}
  b: {type: "i32[R]", values: 0 .. 2**20}
  f: f32[R]
  x: i64[N]
  whole: {type: "i16[R]", mode: out}
  real: {type: "f32[R]", mode: out}
  at: {type: "i64[R]", mode: out}
  both: {type: "i32[R]", mode: out}
index: {r: R}
store:
  whole[r]: square(a[r]) + 3
  real[r]: square(f[r])
  at[r]: x[min(square(a[r]), N - 1)] + wrap_i16(i64(a[r]) * 5000)
  both[r]: a[r] + b[r]
"""


def insert(path: Path, before: str, row: str) -> None:
    """Put a row into a table."""
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, row + before), encoding="utf-8")


def test_a_row_is_all_that_it_takes(root: Path, tmp_path: Path) -> None:
    for name in ("kgen", "templates"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    insert(tmp_path / "kgen/lang/operators.py", '    Operator(\n        name="sqrt"', OPERATOR)
    insert(tmp_path / "kgen/runtime/_dtypes.py", '    ElementType("i32"', TYPE)
    spec = tmp_path / "specs" / "squared" / "squares.yaml"
    spec.parent.mkdir(parents=True)
    spec.write_text(SPEC, encoding="utf-8")
    env = {"PYTHONPATH": str(tmp_path), "TRITON_INTERPRET": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    for command in (["kgen", "build", "specs"], ["pytest", "-q", "generated/squared"]):
        ended = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=os.environ | env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
