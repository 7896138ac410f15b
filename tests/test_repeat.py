"""A call like one before is launched at once, and one that only looks so is not: `repeated.py` changes something of each.

Triton's compiler does not run in a process that has chosen the interpreter, so that it runs in one of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HELPER = Path(__file__).parent / "helpers" / "repeated.py"
# What is launched at once even so.
DIRECT = {
    "nothing",
    "other tensors",
    "a scalar",
    "a float",
    "a negative zero",
    "other data",
    "without gradients",
    "on another stream",
    "without new variants",
    "a list",
    "a tuple",
    "another in the list",
}
# Each lets a call pass that is not like the one before: what it leaves out, and what must show it.
MUTANTS = [
    ("if not self._guards.check(*tensors):", "if False:", "resized in place"),
    ("UNCHECKED or self._separate(tensors, addresses)", "True", "set to memory of another"),
    ("if first < end:", "if False:", "a view of another"),
    (" or address + length > storage.data_ptr() + storage.nbytes()", "", "without memory"),
    ("address % size or ", "", "unaligned"),
    (" or address + length > storage.data_ptr() + storage.nbytes()", "", "short of memory"),
    ("if names == last.names", "if len(names) == len(last.names)", "another order of numbers"),
    (
        "type(number) is not int or not (UNCHECKED or low <= number <= high)",
        "False",
        "a scalar that is a tensor",
    ),
    ("or type(number) is not type(value)", "", "a static scalar that is a float"),
    ("not (UNCHECKED or low <= number <= high)", "False", "a scalar out of range"),
    ("if not low <= rounded <= high or math.isinf(rounded):", "if False:", "nan"),
    ("or len(each) != count", "", "a longer list"),
    ("active.get_current_stream(self._index)", "7", "on another stream"),
    ("active.get_current_device() != self._index or", "", "on another device"),
    ("or watched(self._function)", "", "with a hook"),
    ("_increment(self._written(tensors))", "pass", "nothing"),
    ("rounded = ctypes.c_float(number).value", "rounded = number", "a float"),
]


def outcomes(folder: Path, *change: str, **variables: str) -> dict[str, Any]:
    """What became of each case."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | variables
    command = [sys.executable, str(HELPER), str(folder), *change]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_call_that_only_looks_like_one_before_is_checked(tmp_path):
    found = outcomes(tmp_path)
    assert [name for name, case in found.items() if not case["repeats"]] == []
    assert {n: c for n, c in found.items() if c["ended"] != c["first"]} == {}
    assert {name for name, case in found.items() if case["direct"]} == DIRECT
    errors = [case for case in found.values() if "error" in case["ended"]]
    assert len(errors) > 25
    assert all(each["rose"] != [] for each in (found[n]["ended"] for n in DIRECT))


def test_unchecked_the_launches_are_the_same(tmp_path):
    found = outcomes(tmp_path, KGEN_UNCHECKED="1")
    right = {n: c for n, c in found.items() if "error" not in c["first"]}
    assert {n: c for n, c in right.items() if c["ended"] != c["first"]} == {}
    assert {name for name in right if right[name]["direct"]} >= DIRECT
    assert "error" not in found["a scalar out of range"]["ended"]
    assert "error" not in found["a view of another"]["ended"]


@pytest.mark.slow
@pytest.mark.parametrize("text, instead, shown", MUTANTS, ids=[shown for *_, shown in MUTANTS])
def test_each_guard_is_needed(tmp_path, text, instead, shown):
    try:
        case = outcomes(tmp_path, text, instead)[shown]
    except AssertionError:
        return  # it broke: seen too
    assert case["ended"] != case["first"]
