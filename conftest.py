"""Without a GPU the tests run kernels in Triton's interpreter: chosen here, before Triton is imported.

A generated package's own conftest.py comes too late for that, since pytest imports the package first.
"""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
