"""Before any test: where the helpers are, and Triton's interpreter where there is no GPU.

Triton decides when a kernel is decorated whether it will be interpreted, so that the switch must be set
before anything imports a generated package. What needs Triton's compiler runs in a process of its own.
"""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
# The package `generated`, and the modules that tests share.
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:  # kgen itself needs no torch, nor do the tests of its messages
        return False
    return torch.cuda.is_available()


if not _has_gpu():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def device():
    """Where groups are tested: the GPU if there is one."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
