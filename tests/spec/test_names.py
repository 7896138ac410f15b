"""Names: what may be one, and that a spec's names are its own in the generated code."""

from __future__ import annotations

import ast
import re
import string
from pathlib import Path

import pytest

from kgen.build import compile_specs
from kgen.spec.model import is_name


@pytest.mark.parametrize("name", ["r", "R", "K1", "x_ptr", "row2slot", "match", "type"])
def test_a_name(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("letter", string.ascii_letters)
def test_every_letter_is_a_name(front, letter: str) -> None:
    spec = front.spec(
        sizes={"Rows": "0 .. 9"},
        tensors={letter: "i32[Rows]", "copied": '{type: "i32[Rows]", mode: out}'},
        index={"row": "Rows"},
        store={"copied[row]": f"{letter}[row]"},
    )
    assert front.found(spec) == []


NOT_NAMES = ["", "2x", "a-b", "a b", "a.b", "_x", "__x", "größe", "\uff58", "in", "None", "lambda"]
NOT_NAMES += ["min", "sum", "prefix", "i64", "static", "true", "tl", "torch"]


@pytest.mark.parametrize("name", NOT_NAMES)
def test_not_a_name(name: str) -> None:
    assert not is_name(name)


SPEC = """\
group: probe
summary: A probe.
sizes: {R: 0 .. 300, K: static 1 .. 12}
scalars: {WHAT: {type: i64, values: 0 .. 9}}
tensors:
  x: {type: "i64[R, K]", values: 0 .. 50}
  total: {type: "i64[R]", mode: out}
  seen: {type: "i64[R]", mode: inout}
index: {r: R, k: K}
let:
  more: x[r, 0] + WHAT
store:
  total[r]: more + sum[k](x[r, k])
  seen[r]: seen[r] + more
"""


def identifiers(spec: str, folder: Path) -> list[str]:
    """Every variable, parameter and function of the code that is generated of a spec."""
    (folder / "pack").mkdir(exist_ok=True)
    (folder / "pack" / "probe.yaml").write_text(spec, encoding="utf-8")
    (built,) = compile_specs(folder / "pack")
    found: list[str] = []
    for name in ("__init__.py", "kernels.py", "ops.py", "reference.py"):
        for node in ast.walk(ast.parse(built.files[name])):
            match node:
                case ast.Name(each) | ast.arg(each) | ast.FunctionDef(each) | ast.alias(each):
                    found.append(each)
    return found


# Names that the generated modules use, and others.
NAMES = ["v", "rt", "kernels", "launch", "programs", "ops", "device", "w", "len", "page"]


@pytest.mark.parametrize("name", [*NAMES, "runs_kernels"])
def test_a_name_of_the_spec_is_nothing_else_in_the_code(front, tmp_path: Path, name: str) -> None:
    """Refused, or the same code as with another name."""
    spec = SPEC.replace("WHAT", name)
    if front.found(spec) == [("bad-name", name)]:
        return
    other = "z" * len(name)
    own = re.compile(rf"\b{name}(?=_|\b)")  # the name itself, or one made of it
    renamed = [own.sub(other, each) for each in identifiers(spec, tmp_path)]
    assert renamed == identifiers(SPEC.replace("WHAT", other), tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *("num_warps", "num_stages", "num_ctas", "warmup", "self", "enable_fp_fusion"),
        *(name for name in ("grid", "kernel")),
    ],
)
def test_names_of_launch_options_are_refused(front, name: str) -> None:
    spec = SPEC.replace("WHAT: {type: i64, ", "WHAT: {type: static, ").replace("WHAT", name)
    assert front.found(spec) == [("bad-name", name)]


@pytest.mark.parametrize(
    "name",
    [
        *("torch", "ops", "launch", "reference", "kernels"),
        *(name for name in ("define", "NAMESPACE", "CASE")),
    ],
)
def test_names_that_a_group_would_hide_are_refused(front, name: str) -> None:
    spec = SPEC.replace("WHAT", "w").replace("group: probe", f"group: {name}")
    assert front.found(spec) == [("bad-name", name)]
