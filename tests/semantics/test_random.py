"""Random specs: what hypothesis draws is built, and its kernel, reference and text must agree.

A failing spec is printed whole, ready for `specs/knotty/`. KGEN_RANDOM_SPECS=500 draws that many, and
each run others; without it, the same few each time.
"""

import os
import shutil
from itertools import count
from pathlib import Path

import building
import random_specs
import spec_oracle
import torch
from hypothesis import HealthCheck, Phase, given, settings
from interpreter_memory import watched

from kgen.diagnostics import SpecError

MANY = int(os.environ.get("KGEN_RANDOM_SPECS", "0"))
WORLDS = 5
# Python's own loops over an expression are slow.
BRUTE_FORCE_ELEMENTS = 250

numbers = count()


def agree(text: str, folder: Path, device: torch.device) -> None:
    """Build a spec alone; its kernel, its reference and its brute-force reading give the same bits."""
    (folder / "drawn").mkdir(parents=True)
    (folder / "drawn" / "drawn.yaml").write_text(text)
    try:
        building.build(folder / "drawn", folder / "out")
    except SpecError as error:
        raise AssertionError(error.report.render(colour=False)) from None
    building.load(folder / "out", folder.name)
    case = building.case(folder.name, "drawn", "drawn")
    testing = building.testing(folder.name, "drawn")
    checked = watched(case)
    for seed in range(WORLDS):
        start = testing.draw(case, seed).clone(device)
        kernel, reference = start.clone(), start.clone()
        checked.fused(**kernel.arguments())
        case.run_reference(reference)
        found = testing.differences(case, start, kernel, reference)
        assert not found, f"kernel and reference differ at {start.values}: {found}"
        if sum(buffer.view.numel() for buffer in start.every()) > BRUTE_FORCE_ELEMENTS:
            continue
        for name, tensor in spec_oracle.expected(text, start.arguments()).items():
            got = reference.arguments()[name].cpu()
            assert torch.equal(got, tensor), f"{name} at {start.values}: {got}, not {tensor}"


@settings(
    max_examples=MANY or 25,
    derandomize=not MANY,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)
@given(text=random_specs.specs())
def test_random_specs_agree(text, tmp_path_factory, device):
    folder = tmp_path_factory.getbasetemp() / f"drawn_{next(numbers)}"
    try:
        agree(text, folder, device)
    except Exception as error:
        error.add_note(f"the spec:\n{text}") if hasattr(error, "add_note") else print(text)
        raise
    finally:
        building.unload(folder.name)
        shutil.rmtree(folder, ignore_errors=True)
