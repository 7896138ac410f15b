"""What a first `make` says and does: tools/venv.py, and the versions that it installs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[1]
# The Triton that a CUDA build of torch asks for, by the metadata of its wheel on PyPI.
TRITON_OF = {"2.13.0": "3.7.1", "2.11.0": "3.6.0"}


@pytest.fixture
def venv() -> ModuleType:
    spec = importlib.util.spec_from_file_location("venv_tool", ROOT / "tools" / "venv.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pins_of_torch_and_triton_agree():
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    assert pins["triton"] == TRITON_OF[pins["torch"]]


def test_nothing_is_missing_here(venv):
    assert venv.problem(ROOT / ".venv") == ""


def test_what_is_missing_is_named_with_its_cure(venv, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(venv.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
        assert "has 1.0 GB left" in venv.problem(tmp_path / ".venv")
        assert "make VENV=/elsewhere" in venv.problem(tmp_path / ".venv")
    with monkeypatch.context() as patch:
        patch.setattr(
            venv.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else 1
        )
        assert "apt install python3." in venv.problem(tmp_path / ".venv")
    with monkeypatch.context() as patch:
        patch.setattr(venv.sys, "platform", "darwin")
        assert "this is darwin" in venv.problem(tmp_path / ".venv")
    with monkeypatch.context() as patch:
        patch.setattr(venv.sys, "version_info", (3, 9, 1, "final", 0))
        assert "kgen needs Python 3.10 or later" in venv.problem(tmp_path / ".venv")


def test_a_long_download_is_announced(venv, monkeypatch, tmp_path):
    monkeypatch.setattr(venv, "has_gpu", lambda: False)
    said = venv.notice(tmp_path / ".venv")
    assert "several GB" in said
    assert "PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu" in said
    monkeypatch.setattr(venv, "has_gpu", lambda: True)
    monkeypatch.setattr(venv.shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * 10**9))
    assert "10 GB" in venv.notice(tmp_path / ".venv")


@pytest.fixture
def place(tmp_path) -> Path:
    """An environment whose pip does what `pip.sh` says."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        '#!/bin/sh\necho "pip $@" >> "$(dirname $0)/asked"\n. "$(dirname $0)/pip.sh"\n'
    )
    python.chmod(0o755)
    return tmp_path / ".venv"


def made(place: Path, script: str) -> subprocess.CompletedProcess[str]:
    """`python tools/venv.py` with that pip."""
    (place / "bin" / "pip.sh").write_text(script)
    command = [sys.executable, str(ROOT / "tools" / "venv.py"), str(place)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_second_run_is_fast_and_silent(place):
    first = made(place, "exit 0")
    assert first.returncode == 0, first.stderr
    assert "Making" in first.stdout
    asked = (place / "bin" / "asked").read_text()
    assert "install" in asked
    assert "requirements-dev.txt" in asked
    second = made(place, "exit 1")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    old = (ROOT / "requirements-dev.txt").stat().st_mtime - 1
    os.utime(place / ".ready", (old, old))
    assert made(place, "exit 0").stdout.startswith("Making"), "the pins are newer"


def test_pip_that_fails_leaves_nothing_ready(place):
    done = made(place, 'case "$*" in *install*) echo "no such version" >&2; exit 1;; esac')
    assert done.returncode == 1
    assert "no such version" in done.stderr
    assert "error: pip could not install" in done.stderr
    assert "make demo VENV=none" in done.stderr
    assert not (place / ".ready").exists()


def test_versions_that_do_not_fit_are_told_at_once(place):
    done = made(
        place,
        'case "$*" in *" check") echo "torch 2.13.0 has requirement triton==3.7.1, but you have triton 3.9.0."; exit 1;; esac',
    )
    assert done.returncode == 1
    assert "error: torch 2.13.0 has requirement triton==3.7.1" in done.stderr
    assert not (place / ".ready").exists()


def test_make_says_what_python_is_too_old(tmp_path):
    if shutil.which("make") is None:
        pytest.fail("make is needed to build and test kgen")
    fake = tmp_path / "python"
    code = (
        "import runpy, sys; sys.version_info = (3, 9, 0); "
        f"sys.argv = ['venv.py', '{tmp_path / 'none'}']; runpy.run_path('tools/venv.py', run_name='__main__')"
    )
    fake.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}"\n')
    fake.chmod(0o755)
    command = ["make", f"PYTHON={fake}", f"VENV={tmp_path / 'none'}", "test"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "kgen needs Python 3.10 or later" in done.stderr
    assert not (tmp_path / "none").exists()
