"""The whole pipeline on specs/: the same bytes everywhere, fast, formatted, up to date."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kgen.build import Changes, compare, compile_specs, write

GAP = """\
group: gap
summary: How far each row's length is from the one of the row before; the first row's from zero.
sizes: {R: 0 .. 5000}
tensors:
  length: i64[R]
  gap_to: {type: "i64[R]", mode: out}
index: {r: R}
let:
  before: length[max(r - 1, 0)] if r > 0 else 0
store:
  gap_to[r]: length[r] - before
"""


def build(specs: Path, out: Path) -> Changes:
    """Bring an output folder up to date."""
    built = compile_specs(specs)
    changes = compare(built, out, whole=True)
    write(built, out, changes)
    return changes


def files(folder: Path) -> dict[str, bytes]:
    """The files below a folder."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in paths
        if "__pycache__" not in path.parts
    }


def python(code: str, *args: str, checkout: Path, cwd: Path, **env: str) -> str:
    """What a Python program prints that imports kgen from a checkout."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=cwd,
        env=os.environ
        | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1", "KGEN_CACHE": "off"}
        | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


# The same bytes everywhere.

DIGEST = """
import hashlib, sys
from pathlib import Path
import kgen
from kgen.build import compile_specs
assert Path(kgen.__file__).parent.parent == Path(sys.argv[2]), kgen.__file__
for each in compile_specs(Path(sys.argv[1])):
    for name, text in each.files.items():
        print(each.package.name, name, hashlib.sha256(text.encode()).hexdigest())
"""


def test_bytes_do_not_depend_on_hashing_or_on_the_folder(root: Path, tmp_path: Path) -> None:
    away = tmp_path / "an other" / "checkout"
    for name in ("kgen", "templates", "specs"):
        shutil.copytree(root / name, away / name, ignore=shutil.ignore_patterns("__pycache__"))
    runs = [
        python(DIGEST, "specs", str(root), checkout=root, cwd=root, PYTHONHASHSEED="1"),
        python(DIGEST, "specs", str(root), checkout=root, cwd=root, PYTHONHASHSEED="77"),
        python(
            DIGEST, str(away / "specs"), str(away), checkout=away, cwd=tmp_path, PYTHONHASHSEED="3"
        ),
        python(
            DIGEST,
            "../specs",
            str(away),
            checkout=away,
            cwd=away / "kgen",
            LC_ALL="C",
            TZ="Asia/Tokyo",
        ),
    ]
    assert len(runs[0].splitlines()) > 10
    assert runs[1:] == runs[:1] * 3


def test_no_file_names_its_machine(root: Path) -> None:
    for each in compile_specs(root / "specs"):
        for name, text in each.files.items():
            assert str(root) not in text, name
            assert "\r" not in text, name
            assert text.endswith("\n"), name


def test_a_comment_in_a_spec_changes_no_code(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "specs", tmp_path / "specs")
    for path in (tmp_path / "specs").rglob("*.yaml"):
        path.write_text("# One more remark.\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    before, after = compile_specs(root / "specs"), compile_specs(tmp_path / "specs")
    for one, other in zip(before, after, strict=True):
        changed = {name for name, text in one.files.items() if other.files[name] != text}
        assert changed <= {"manifest.json"}


# What is in the repository.


def test_generated_is_up_to_date(root: Path) -> None:
    changes = compare(compile_specs(root / "specs"), root / "generated", whole=True)
    assert not changes.any, "accept with `make bless`:\n" + "\n".join(changes.differences)


def test_the_manifest_lists_every_file(root: Path) -> None:
    for each in compile_specs(root / "specs"):
        manifest = json.loads(each.files["manifest.json"])
        hashes = {
            name: hashlib.sha256(text.encode()).hexdigest()
            for name, text in each.files.items()
            if name != "manifest.json"
        }
        assert manifest["files"] == hashes
        assert list(manifest["groups"]) == [group.name for group in each.groups]


# Only what changed is written.


def test_a_build_writes_only_what_changed(root: Path, tmp_path: Path) -> None:
    specs, out = tmp_path / "specs", tmp_path / "out"
    shutil.copytree(root / "specs", specs)
    first = build(specs, out)
    assert first.unchanged == 0
    for path in out.rglob("*"):
        os.utime(path, ns=(10**18, 10**18))
    assert build(specs, out).written == []
    path = next(path for path in sorted(specs.rglob("*.yaml")) if path.parent != specs)
    path.write_text(
        path.read_text(encoding="utf-8").replace("summary: ", "summary: In short, "),
        encoding="utf-8",
    )
    second = build(specs, out)
    written = {
        path.relative_to(out).as_posix()
        for path in out.rglob("*")
        if path.is_file() and path.stat().st_mtime_ns != 10**18
    }
    assert written == set(second.written)
    assert f"{path.parent.name}/kernels.py" in written
    assert f"{path.parent.name}/_runtime.py" not in written
    assert second.unchanged + len(written) == len(first.written) - 1, "__init__.py aside"


# What a build needs.

LOADED = """
import sys
from kgen.cli import main
try:
    main(["build", sys.argv[1], "--out", sys.argv[2]])
except SystemExit as ended:
    assert not ended.code, ended.code
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""


def test_building_needs_neither_torch_nor_triton(root: Path, tmp_path: Path) -> None:
    printed = python(
        LOADED, str(root / "specs"), str(tmp_path / "out"), checkout=root, cwd=tmp_path
    )
    loaded = set(printed.splitlines()[-1].split())
    assert {"kgen", "yaml", "jinja2"} <= loaded
    assert not loaded & {"torch", "triton", "numpy"}


# A package grows by a file.


def test_a_new_group_is_one_new_file(root: Path, tmp_path: Path) -> None:
    specs, out = tmp_path / "specs", tmp_path / "out"
    shutil.copytree(root / "specs", specs)
    build(specs, out)
    package = next(path.parent for path in sorted(specs.glob("*/*.yaml")))
    before = functions(out / package.name / "__init__.py")
    (package / "gap.yaml").write_text(GAP, encoding="utf-8")
    changes = build(specs, out)
    after = functions(out / package.name / "__init__.py")
    assert set(after) - set(before) == {"gap"}
    assert set(before) <= set(after)
    arguments = after["gap"].args
    assert [each.arg for each in arguments.kwonlyargs] == ["length", "gap_to"]
    assert ast.get_docstring(after["gap"]).startswith("How far each row's length is")
    new = {name.removeprefix(f"{package.name}/") for name in changes.written}
    assert {"docs/gap.md", "tests/test_gap.py"} <= new
    assert not changes.removed


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    """The functions of a module."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


# The text of what is generated.


def formatted(folder: Path, root: Path) -> str:
    """What the formatter would change in the Python files of a folder."""
    command = [sys.executable, "-m", "ruff", "format", "--diff", "--no-cache", str(folder)]
    ended = subprocess.run(
        [*command, "--config", str(root / "pyproject.toml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode in (0, 1), ended.stderr
    return ended.stdout


def test_generated_files_are_formatted(root: Path, tmp_path: Path) -> None:
    assert formatted(root / "generated", root) == ""
    (tmp_path / "ugly.py").write_text("x = ( 1 )\n")
    assert formatted(tmp_path, root) != "", "the formatter was not run"


LONG = "accepted_token_positions"

SHAPES = {
    "no scalars, a short schema": GAP,
    "one tensor": """\
group: one
summary: One tensor, in place.
sizes: {N: 0 .. 5000}
tensors: {x: {type: "i64[N]", mode: inout}}
index: {n: N}
store: {"x[n]": "x[n] + 1"}
""",
    "long names": f"""\
group: {LONG}s_group
summary: Long names everywhere.
sizes: {{{LONG}_rows: 0 .. 300, {LONG}_columns: static 1 .. 12}}
scalars: {{{LONG}_offset: {{type: i64, values: 0 .. 99}}}}
tensors:
  {LONG}: {{type: "i64[{LONG}_rows, {LONG}_columns]", values: 0 .. {LONG}_offset}}
  {LONG}_sum: {{type: "i64[{LONG}_rows]", mode: out}}
index: {{r: {LONG}_rows, k: {LONG}_columns}}
store:
  {LONG}_sum[r]: sum[k]({LONG}[r, k] * {LONG}_offset + {LONG}[r, 0]) + {LONG}_offset // ({LONG}_offset + 1)
""",
    "many scalars": f"""\
group: many
summary: Many scalars.
sizes: {{N: 0 .. 5000}}
scalars: {{{", ".join(f"scalar_{n}: i64" for n in range(17))}}}
tensors: {{x: {{type: "i64[N]", mode: inout}}}}
index: {{n: N}}
store: {{"x[n]": "x[n] + {" + ".join(f"scalar_{n}" for n in range(17))}"}}
""",
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES.keys())
def test_what_is_generated_of_other_shapes_is_formatted(
    root: Path, tmp_path: Path, text: str
) -> None:
    (tmp_path / "specs" / "pack").mkdir(parents=True)
    (tmp_path / "specs" / "pack" / "group.yaml").write_text(text, encoding="utf-8")
    build(tmp_path / "specs", tmp_path / "out")
    assert formatted(tmp_path / "out", root) == ""
