"""What users get: the wheel, the hook, the issue templates, one version, `make` without a goal."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import kgen
from kgen.cli import main

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """kgen's wheel, built as pip builds it."""
    place = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", place, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = place.glob("kgen-*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_has_all_that_a_build_needs(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "kgen").rglob("*.py")}
    templates = {
        f"kgen/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "templates").iterdir()
    }
    assert held >= sources | templates | {"kgen/py.typed"}
    assert not [name for name in held if name.startswith(("tests", "generated", "specs"))]


@pytest.mark.slow
def test_the_wheel_builds_what_the_checkout_builds(wheel, tmp_path):
    """From another folder, with nothing of the checkout in reach."""
    place = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(place)
    environment = os.environ | {"PYTHONPATH": str(place), "KGEN_CACHE": "off"}
    run = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    where = [sys.executable, "-c", "import kgen; print(kgen.__file__)"]
    assert str(place) in subprocess.run(where, check=True, **run).stdout
    build = [sys.executable, "-m", "kgen", "build", str(ROOT / "specs"), "--out", "made"]
    done = subprocess.run(build, check=False, **run)
    assert done.returncode == 0, done.stderr
    for path in (ROOT / "generated").rglob("manifest.json"):
        assert (
            tmp_path / "made" / path.relative_to(ROOT / "generated")
        ).read_text() == path.read_text()
    schema = subprocess.run([*build[:3], "schema"], check=True, **run)
    assert json.loads(schema.stdout)["$schema"]


def test_one_version():
    config = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'^dynamic = \["version"\]$', config, re.MULTILINE)
    assert not re.search(r"^version\s*=", config, re.MULTILINE)
    newest = re.search(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == kgen.__version__
    for path in (ROOT / "generated").glob("*/manifest.json"):
        assert json.loads(path.read_text())["generator"] == f"kgen {kgen.__version__}"


def hook() -> list[str]:
    """The arguments that the hook gives `kgen`."""
    (found,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (repository,) = yaml.safe_load((ROOT / "examples/ci/pre-commit-config.yaml").read_text())[
        "repos"
    ]
    (used,) = repository["hooks"]
    assert used["id"] == found["id"]
    assert found["pass_filenames"] is False
    program, *arguments = shlex.split(found["entry"])
    assert program == "kgen"
    return [*arguments, *used["args"]]


def workflow() -> list[str]:
    """Those that the workflow gives it."""
    steps = yaml.safe_load((ROOT / "examples/ci/kgen.yml").read_text())["jobs"]["generated"][
        "steps"
    ]
    (line,) = [step["run"] for step in steps if step.get("run", "").startswith("kgen ")]
    return shlex.split(line)[1:]


@pytest.mark.parametrize("arguments", [hook, workflow])
def test_what_ci_runs_sees_an_edit(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = Path("specs/mine/double.yaml")
    spec.parent.mkdir(parents=True)
    spec.write_text(
        "group: double\nsummary: Doubles.\nsizes: {R: 0 .. 64}\n"
        "tensors:\n  x: {type: 'i32[R]', values: 0 .. 9}\n  y: {type: 'i32[R]', mode: out}\n"
        "index: {r: R}\nstore:\n  y[r]: x[r] * 2\n"
    )
    command = arguments()
    assert CliRunner().invoke(main, [each for each in command if each != "--check"]).exit_code == 0
    assert CliRunner().invoke(main, command).exit_code == 0
    made = Path("generated/mine/kernels.py")
    made.write_text(made.read_text() + "# edited\n")
    assert CliRunner().invoke(main, command).exit_code == 1


def test_the_workflow_installs_versions_that_belong_together():
    text = (ROOT / "examples/ci/kgen.yml").read_text()
    pins = (ROOT / "requirements-dev.txt").read_text()
    for name in ("torch", "triton"):
        (version,) = re.findall(rf"\b{name}==(\S+)", text)
        assert f"{name}=={version}\n" in pins


def test_issue_templates_are_forms():
    forms = [
        path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"
    ]
    assert forms
    for path in forms:
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= set(form), path
        ids = [part["id"] for part in form["body"]]
        assert len(ids) == len(set(ids)), path


def test_make_without_a_goal_names_every_goal_and_does_nothing(tmp_path):
    command = ["make", f"VENV={tmp_path / 'none'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (goals,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for goal in set(goals.split()) - {"help"}:
        assert f"make {goal} " in done.stdout
    assert "PYTHON ?=" not in done.stdout
    assert not (tmp_path / "none").exists()
