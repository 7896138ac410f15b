"""Counts what a package's groups compile when only run-time values change; prints JSON.

A program: `python count_variants.py FOLDER PACKAGE [GROUP...]`. A stand-in for Triton's driver compiles for sm_90 and
launches nothing, so that no GPU is needed. Each group is called with sizes and scalars of 0, 1, 2, 15, 16,
17, 32 and -1 (moved into their ranges), with odd starts and strides, at two settings of its static values.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import building_blocks as blocks
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

NUMBERS = (0, 1, 2, 15, 16, 17, 32, -1)


class StandIn(DriverBase):
    """A driver for a GPU that is not there."""

    launches = 0

    class _Launcher:
        def __init__(self, *_: Any) -> None:
            pass

        def __call__(self, *_: Any, **__: Any) -> None:
            StandIn.launches += 1

    class _Utils:
        def load_binary(self, *_: Any) -> tuple[int, ...]:
            return (0, 0, 0, 0, 1024)

        def get_device_properties(self, _: int) -> dict[str, int]:
            return {"max_shared_mem": 2**18, "multiprocessor_count": 132}

    def __init__(self) -> None:
        self.launcher_cls, self.utils = self._Launcher, self._Utils()

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        raise NotImplementedError

    def get_benchmarker(self) -> Any:
        raise NotImplementedError

    def get_empty_cache_for_benchmark(self) -> Any:
        raise NotImplementedError

    def clear_cache(self, _: Any) -> None:
        pass

    def map_python_to_cpp_type(self, name: str) -> str:
        return name


def lists(arguments: dict[str, Any]) -> list[tuple[int, bool]]:
    """How many tensors each list has, and whether their strides differ."""
    several = [each for each in arguments.values() if isinstance(each, list)]
    return [(len(each), len({tensor.stride() for tensor in each}) > 1) for each in several]


def main(folder: str, package: str, *only: str) -> None:
    """Print, for each group, its launches, its static settings and the variants that were compiled."""
    triton.runtime.driver.set_active(StandIn())
    sys.path.insert(0, str(Path(folder).parent))
    name = f"{Path(folder).name}.{package}"
    ops, kernels = (
        importlib.import_module(f"{name}.ops"),
        importlib.import_module(f"{name}.kernels"),
    )
    public = importlib.import_module(name)
    importlib.import_module(f"{name}._operator").runs_kernels = lambda _: (
        True
    )  # although the tensors are on the CPU
    manifest = json.loads((Path(folder) / package / "manifest.json").read_text())
    counts = {}
    groups = {n: each for n, each in manifest["groups"].items() if n in only or not only}
    for group, facts in groups.items():
        signature = ops.GROUPS[group].signature
        runtime = [n for n in signature.order if not signature.declared(n).static]
        settings = set()
        StandIn.launches = 0
        for static in (3, 5):
            # All run-time values alike, then each at its own number with the others at 5.
            tries = [dict.fromkeys(runtime, n) for n in NUMBERS]
            tries += [{each: n} for each, n in itertools.product(runtime, NUMBERS)]
            for at, wanted in enumerate(tries):
                fixed = {n: static for n in signature.order if signature.declared(n).static}
                try:
                    values = blocks.chosen(signature, {**fixed, **wanted}, 5)
                except ValueError:
                    continue
                given, uneven = at % 2 == 0, at % 5 == 0
                arguments = blocks.arguments(
                    signature, values, at % 4, at % 3, optional=given, uneven=uneven
                )
                before = StandIn.launches
                getattr(public, group)(**arguments)
                if StandIn.launches > before:
                    flags = [given] * any(t.optional for t in signature.tensors.values())
                    widths, warps = ops.GROUPS[group].launch.widths(values)
                    own = (*(values[n] for n in facts["static"]), *widths.values(), warps)
                    settings.add((*flags, *lists(arguments), *own))
        kernel = getattr(kernels, facts["kernel"])
        variants = sum(len(caches[0]) for caches in kernel.device_caches.values())
        counts[group] = {
            "launches": StandIn.launches,
            "settings": len(settings),
            "variants": variants,
        }
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
