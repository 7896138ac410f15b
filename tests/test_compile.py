"""Every kernel compiles for every target, without a GPU, and the code is what was meant.

Triton's compiler does not run in a process that has chosen the interpreter, so that `compile_kernels.py`
and `count_variants.py` run in processes of their own.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import building
import pytest

ROOT = Path(__file__).parents[1]
HELPERS = ROOT / "tests" / "helpers"
SMALL = ROOT / "tests" / "semantics" / "specs" / "small"
TARGETS = ("80", "90", "100", "120", "gfx942")
COMMITTED = sorted(path.parent.name for path in (ROOT / "generated").glob("*/manifest.json"))
PACKAGES = [*COMMITTED, "small"]
SOON = {
    *itertools.product(("90", "gfx942"), COMMITTED),
    ("90", "small"),
}  # the rest is `make test-all`


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    """Where a package is."""
    built = tmp_path_factory.mktemp("compile") / "compiled_small"
    building.build(SMALL, built)
    return lambda package: built if package == "small" else ROOT / "generated"


def run(script: str, *arguments: object, cache: Path) -> dict:
    """What a helper prints, in a process where Triton compiles."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env |= {"TRITON_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(HELPERS / script), *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def changed(tmp_path: Path, *changes: tuple[str, str, str]) -> Path:
    """A copy of generated/ with changes to files of dspark: (name, pattern, replacement)."""
    folder = tmp_path / "changed"
    shutil.copytree(ROOT / "generated", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, pattern, replacement in changes:
        path = folder / "dspark" / name
        text, count = re.subn(pattern, replacement, path.read_text())
        assert count, pattern
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    "target, package",
    [
        pair if pair in SOON else pytest.param(*pair, marks=pytest.mark.slow)
        for pair in itertools.product(TARGETS, PACKAGES)
    ],
)
def test_kernels_compile_and_are_sound(folder_of, target, package, tmp_path):
    """No spill, a barrier where a tensor is read and written, addresses in 64 bits, no contraction."""
    # 1, and numbers that are no powers of two.
    few = package == "small" and target not in ("90", "gfx942")
    tries = [5, 3] if few else [1, 5] if package == "small" else [1, 5, 7]
    folder = folder_of(package)
    manifest = json.loads((folder / package / "manifest.json").read_text())
    found = run("compile_kernels.py", target, folder, package, json.dumps(tries), cache=tmp_path)
    assert found["problems"] == []
    assert found["kernels"] >= len(manifest["groups"])


@pytest.mark.parametrize("package", [*COMMITTED, pytest.param("small", marks=pytest.mark.slow)])
def test_run_time_values_never_compile(folder_of, package, tmp_path):
    """BR-10: one variant for each setting of the static values, whatever sizes, starts and strides."""
    counts = run("count_variants.py", folder_of(package), package, cache=tmp_path)
    assert all(count["launches"] >= 10 for count in counts.values()), counts
    wrong = {g: c for g, c in counts.items() if c["variants"] != c["settings"]}
    assert wrong == {}


# What the checks must see: (changes, options of the compiler, the finding).
FAULTS = {
    "no_barrier": (
        [("kernels.py", r"tl\.debug_barrier\(\)", "pass")],
        (),
        "no barrier between the last load and the first store",
    ),
    "narrow_strides": (
        [
            ("kernels.py", r"(program_id\(0\)\.to\()tl\.int64", r"\1tl.int32"),
            ("manifest.json", r'("stride",\s*)"i64"', r'\1"i32"'),
        ],
        (),
        "a 32-bit product reaches an address",
    ),
    "few_registers": ([], ("maxnreg=16",), "STACK is"),
    "stored_elsewhere": (
        [("kernels.py", r"(tl\.store\(\s*)ctx_positions_ptr", r"\1ctx_len_ptr")],
        (),
        "ctx_positions is never stored to",
    ),
    "no_wait": (
        [("kernels.py", r"follow\(\)\n", "pass\n")],
        (),
        "does not wait for the launch before",
    ),
    "some_wait": (
        [("kernels.py", r"    if PDL:\n", "    if PDL and tl.program_id(0) > 0:\n")],
        (),
        "before it waits for the launch before",
    ),
}


OFTEN = ("no_wait", "no_barrier")  # the others are seen by `make test-all`


@pytest.mark.parametrize(
    "fault",
    [each if each in OFTEN else pytest.param(each, marks=pytest.mark.slow) for each in FAULTS],
)
def test_the_checks_see_what_they_are_for(tmp_path, fault):
    changes, options, finding = FAULTS[fault]
    folder, cache = changed(tmp_path, *changes), tmp_path / "cache"
    found = run("compile_kernels.py", "90", folder, "dspark", "[5]", *options, cache=cache)
    assert any(finding in problem for problem in found["problems"]), found


def test_the_count_sees_a_specialised_argument(tmp_path):
    folder = changed(tmp_path, ("_launch.py", r"function, do_not_specialize=.*\n", "function)\n"))
    groups = ("accept_prefix", "block_fixup", "context_positions")
    counts = run("count_variants.py", folder, "dspark", *groups, cache=tmp_path / "cache")
    assert all(count["variants"] > count["settings"] for count in counts.values()), counts


def test_the_count_sees_a_specialised_number_of_a_tuple(tmp_path):
    """Triton does not pass on to a tuple's numbers what is said of the parameter."""
    folder = changed(
        tmp_path,
        ("_launch.py", r"return 2 \* \(number \+ 2\*\*61\) \+ 1", "return number"),
        ("_launch.py", r"return \(chosen >> 1\) - \(1 << 61\)", "return chosen"),
    )
    counts = run(
        "count_variants.py", folder, "dspark", "context_kv_write", cache=tmp_path / "cache"
    )
    assert all(count["variants"] > count["settings"] for count in counts.values()), counts
