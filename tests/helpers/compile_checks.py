"""Compiles the checks of debug mode for targets without a GPU; prints JSON.

A program, not a module: `python compile_checks.py FOLDER PACKAGE COMBINATIONS TARGET...`. TRITON_INTERPRET must
not be set. A check may store to its buffers alone, and its addresses are computed in 64 bits.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import building_blocks as blocks
from compile_kernels import Ir, address_problems, compiled, target_of


def main(folder: str, package: str, combinations: str, *targets: str) -> None:
    """Print what is wrong with each check, and how many were compiled."""
    sys.path.insert(0, str(Path(folder).parent))
    parent = Path(folder).name
    debug = importlib.import_module(f"{parent}.{package}.debug")
    ops = importlib.import_module(f"{parent}.{package}.ops")
    manifest = json.loads((Path(folder) / package / "manifest.json").read_text())
    count, problems = 0, []
    for group, facts in manifest["groups"].items():
        if facts["check"] is None:
            continue
        parameters = facts["check_parameters"]
        facts |= {"parameters": parameters}
        blocks_ = [name for name in facts["blocks"] if name.startswith(("TILE", "LOOP"))]
        buffers = {n.removesuffix("_ptr") for n in parameters if n.startswith("_")}
        for values in blocks.static_values(ops.GROUPS[group], facts, json.loads(combinations)):
            tiles = {values[name] for name in blocks_}
            values["PDL"] = False
            for target in targets:
                what = f"{group} {values} on {target}"
                try:
                    kernel = compiled(
                        getattr(debug, facts["check"]),
                        facts,
                        values,
                        target_of(target),
                        {},
                    )
                except Exception as error:  # noqa: BLE001 - whatever the compiler raises is a finding
                    problems.append(f"{what}: does not compile: {error!r}")
                    continue
                count += 1
                ir = Ir.read(kernel.asm["ttir"])
                problems += [f"{what}: stores to {t}" for t in sorted(set(ir.stores) - buffers)]
                problems += [f"{what}: {text}" for text in address_problems(ir, tiles)]
    print(json.dumps({"checks": count, "problems": problems}))


if __name__ == "__main__":
    main(*sys.argv[1:])
