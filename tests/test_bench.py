"""`kgen bench` and `kgen compile`: what they print, what they refuse, and that they need torch and triton only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kgen.bench import charts, groups
from kgen.bench.timing import Timing

ROOT = Path(__file__).parents[1]
# As on a machine where kgen's own needs are missing.
ALONE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("yaml", "jinja2", "pydantic", "pydantic_core", "click", "pytest"):
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Blocked())
import importlib
sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[2:]))
"""


def ran(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""} | variables
    return subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, check=False, cwd=ROOT
    )


def kgen(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return ran(["-m", "kgen", *arguments], **variables)


def test_kernels_are_compiled_for_gpus_that_are_not_there(tmp_path):
    """The sample whose spills CI limits: of both vendors, a small group and the largest ones."""
    for only in ("prologue_from_table", "gqa_kv_write"):
        at = "K1=8,K=7,W=7,D=576,R=512,half=32,page_size=32,head_dim=128,G=32,H=7168"
        done = kgen(
            *("compile", "--targets", "sm_90,gfx942", "--only", only, "--at", at),
            *("--most-spilled", "0", "--json"),
            TRITON_CACHE_DIR=str(tmp_path),
        )
        assert done.returncode == 0, done.stderr
        nvidia, amd = json.loads(done.stdout)["kernels"]
        assert (nvidia["target"], amd["target"]) == ("sm_90", "gfx942")
        for each in (nvidia, amd):
            assert 8 <= each["registers"] <= 255
            assert each["size"] > 1000
            assert each["spilled"] == 0
            assert each["error"] == ""


def test_what_spills_too_much_or_does_not_compile_is_an_error(tmp_path):
    cache = str(tmp_path)
    small = ("compile", "--only", "noise_block", "--at", "W=5,H=64")
    done = kgen(*small, "--targets", "sm_80", "--most-spilled", "-1", TRITON_CACHE_DIR=cache)
    assert done.returncode == 1
    assert "noise_block for sm_80 spills 0 bytes, more than -1" in done.stderr
    done = kgen(*small, "--targets", "sm_10", TRITON_CACHE_DIR=cache)
    assert done.returncode == 1
    assert "noise_block for sm_10: " in done.stderr


@pytest.mark.parametrize(
    "arguments, variables, message",
    [
        (("compile", "--targets", "h100"), {}, "`h100` is not a target; write sm_90 or gfx942"),
        (("compile", "--only", "nothing"), {}, "there is no group `nothing`"),
        (("compile", "tests"), {}, "there is no generated package in"),
        (("compile",), {"TRITON_INTERPRET": "1"}, "unset TRITON_INTERPRET"),
        (("compile", "--at", "K1"), {}, "`K1` is not NAME=NUMBER"),
        (("compile", "--at", "K1=99"), {}, "`K1` = 99 is not in 1 .. 16"),
        (("bench", "context_positions"), {}, "there is no GPU, and times come from CUDA graphs"),
        (("bench", "nothing", "--host"), {}, "the step of dspark needs its engine"),
        (("bench", "--host", "--batch", "a"), {}, "`--batch a` is not a list of numbers"),
        (
            ("bench", "noise_block", "--host", "--against", "fast"),
            {},
            "`fast` is not eager, compile or FILE:FUNCTION",
        ),
    ],
)
def test_what_cannot_be_done_is_said(arguments, variables, message):
    done = kgen(*arguments, **variables)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr


def test_without_a_gpu_launches_and_bytes_are_counted(tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        "def twice(embed_rows, noise):\n"
        "    noise.copy_(embed_rows[-1])\n"
        "    noise[:, 0].copy_(embed_rows[:-1])\n"
        "def wrong(embed_rows):\n    pass\n"
    )
    page = tmp_path / "page.html"
    asked = ("noise_block", "--host", "--batch", "2,5", "--at", "W=3,H=16", "--html", str(page))
    against = ("--against", f"eager,{own}:twice,{own}:wrong", "--json")
    done = ran(["-c", ALONE, "kgen.bench.groups", *asked, *against])
    assert done.returncode == 1, done.stderr  # for `wrong`
    found = json.loads(done.stdout)
    assert "nothing was timed" in found["notes"][0]
    for row, batch in zip(found["rows"], (2, 5), strict=True):
        assert row["batch"] == batch == row["sizes"]["G"]
        assert row["launches"] == {"fused": 1, "eager": 2, "twice": 2}
        assert row["touched"] == 2 * 16 * ((batch + 1) + batch * 3)
        assert row["times"] == {}
        assert "wrong" in row["failed"]
    text = page.read_text()
    assert text.count("<svg") == 1
    assert text.count("http") == 1, "the name of SVG only"
    assert "batch 5" in text


def test_compile_needs_torch_and_triton_only(tmp_path):
    asked = ("--targets", "sm_90", "--only", "context_positions")
    done = ran(["-c", ALONE, "kgen.bench.code", *asked], TRITON_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "dspark.context_positions  sm_90" in done.stdout


def test_times_are_ratios_to_the_empty_launch_and_to_the_bytes():
    times = {"fused": Timing(2.0, 1.9, 2.1), "empty": Timing(0.5, 0.4, 0.6)}
    row = groups.Row("p.g", 3, {"G": 3}, 4000, {"fused": 1}, times)
    head, line = groups.rows_of([row], speed=4000.0)
    assert head[5:] == ["us", "quartiles", "/ empty", "/ bytes"]
    assert line == ["p.g", 3, 4000, "fused", 1, "2.00", "1.90 .. 2.10", "4.00", "2.0"]


def test_a_bar_is_as_long_as_its_value():
    text = charts.bars({"one": {"a": 2.0, "<b>": 1.0}}, "us")
    assert 'width="520.0"' in text
    assert 'width="260.0"' in text
    assert "&lt;b&gt; 1.00 us" in text
