"""Without a GPU the kernels run in Triton's interpreter, which must be chosen before its import."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def device() -> torch.device:
    """Where the groups are tested: the GPU if there is one."""
    from .._launch import runs_kernels

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert runs_kernels(device), "set TRITON_INTERPRET=1 before triton is imported"
    return device
