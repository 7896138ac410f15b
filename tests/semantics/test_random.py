"""Random specs: what `random_specs` draws is built, and all of its readings must agree to the bit.

The readings are the table in `worlds.py`. The same few specs each time; many others, and a smaller spec for each
failure, by `python tests/helpers/worlds.py` (its head says how). A failing spec is printed whole.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import random_specs
import worlds
from in_memory import Refused, compiled

SEEDS = range(120)
HELPERS = Path(worlds.__file__).parent


@pytest.mark.parametrize("seed", SEEDS)
def test_readings_agree(seed, device):
    spec = random_specs.draw(seed)
    try:
        tally = worlds.tried(spec.text, worlds.world_seeds(seed), device)
    except Refused:
        return  # how many are, the next test says
    if tally.failures:
        shown = "\n\n".join(str(failure) for failure in tally.failures.values())
        command = f"python tests/helpers/worlds.py --shrink {seed}"
        pytest.fail(f"{spec.text}\n{shown}\n\nfor a smaller spec: {command}", pytrace=False)


def test_few_are_refused():
    """Most are sound by construction, so that kgen has no reason to say no."""
    codes = []
    for seed in range(1000, 1040):
        try:
            compiled(random_specs.draw(seed).text)
        except Refused as refused:
            codes.append((seed, refused.codes))
        except Exception:  # noqa: BLE001 - what crashes is told above
            continue
    assert len(codes) <= 6, codes


def test_a_seed_is_one_spec_everywhere():
    """Whatever the order that this process happens to have sets in."""
    text = "import random_specs; print([random_specs.draw(seed).text for seed in range(60)])"
    path = os.pathsep.join([str(HELPERS), str(HELPERS.parents[1])])
    found = {
        subprocess.run(
            [sys.executable, "-c", text],
            env=os.environ | {"PYTHONHASHSEED": number, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    }
    assert len(found) == 1


def test_the_real_compiler_takes_a_sample(tmp_path):
    """Kernels for sm_90, compiled without a GPU: barriers, 64-bit addresses, no spill, no contraction."""
    found = worlds.compile_sample(5, 1, "90", tmp_path)
    assert found["problems"] == []
    assert found["kernels"] >= 5
