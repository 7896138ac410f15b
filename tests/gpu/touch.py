"""Call each group of a package on a few small states, for compute-sanitizer to watch.

Each tensor is exactly as large as its shape says, in an allocation of its own, so that an access past
its end is one outside all memory.
"""

import importlib
import json
import os
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
STATES = 6


def exact(value):
    if isinstance(value, list | tuple):
        return type(value)(exact(each) for each in value)
    return value.contiguous().to(DEVICE, copy=True) if isinstance(value, torch.Tensor) else value


def main():
    package = sys.argv[1]
    testing = importlib.import_module(f"generated.{package}._testing")
    manifest = ROOT / "generated" / package / "manifest.json"
    for name in json.loads(manifest.read_text())["groups"]:
        case = importlib.import_module(f"generated.{package}.tests.test_{name}").CASE
        for seed in range(STATES):
            world = testing.draw(case, seed)
            case.fused(**{name: exact(value) for name, value in world.arguments().items()})
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    print("touched", package)


if __name__ == "__main__":
    main()
