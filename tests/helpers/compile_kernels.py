"""Compiles every kernel of generated packages for one target and reads the code; prints JSON.

A program, not a module: `python compile_kernels.py TARGET FOLDER PACKAGE COMBINATIONS [OPTION=N]`. No GPU is
needed, and TRITON_INTERPRET must not be set. For each kernel and combination of static values:

- no register is spilled;
- a tensor that is loaded and stored to has a barrier between its last load and its first store, in
  Triton's IR and, for NVIDIA, in PTX; for AMD, where one wavefront needs none, there is an `s_barrier`;
- what reaches an address was multiplied in 64 bits, or is a program's number times a tile;
- nothing was contracted to a fused multiply-add.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import building_blocks as blocks
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TYPES = {"bool": "i1", "f16": "fp16", "f32": "fp32"}
NOT_ADDRESSES = ("ld.", "st.", "setp", "//", ".", "bra")
BARRIERS = ("gpu.barrier", "ttg.barrier", "ttg.local_barrier")


def target_of(name: str) -> GPUTarget:
    if name.startswith("gfx"):
        return GPUTarget("hip", name, 32 if name.startswith("gfx1") else 64)
    return GPUTarget("cuda", int(name), 32)


def compiled(fn: Any, facts: dict, values: dict[str, int], target: GPUTarget, options: dict) -> Any:
    """The compiled kernel, with the arguments of an ordinary launch: none specialised."""
    signature, constants = {}, {}
    left_out = {f"{n.removeprefix('HAS_')}_ptr" for n, value in values.items() if value is False}
    for at, (name, (kind, dtype)) in enumerate(facts["parameters"].items()):
        if dtype == "constexpr" or name in left_out:
            signature[name], constants[at,] = "constexpr", values.get(name)
        elif kind in ("addresses", "strides"):
            signature[name] = (dtype,) * values[name]
        else:
            signature[name] = ("*" if kind == "pointer" else "") + TYPES.get(dtype, dtype)
    source = ASTSource(fn, signature, constants)
    given = {"num_warps": values["num_warps"], "enable_fp_fusion": False} | options
    return triton.compile(source, target=target, options=given)


_TOUCHES = re.compile(r"\b(?:ld|st|atom|red|cp)\.(?:\w+\.)*global|\bbra\b|\bret\b")


def tensor_of(parameter: str) -> str:
    """The tensor of a pointer, or of one of a list's addresses: `pool_3` is `pool`."""
    return re.sub(r"_ptr$|[._]\d+$", "", parameter)


@dataclass(eq=False)
class Made:
    """A value of Triton's IR: the line that makes it, and the values that it is made of."""

    name: str
    line: str = ""
    of: list[Made] = field(default_factory=list)

    def origin(self) -> list[Made]:
        """It and all that it is made of; loads are ends, and so is a program's number in its role."""
        seen: dict[int, Made] = {}
        todo = [self]
        while todo:
            each = todo.pop()
            if id(each) in seen:
                continue
            seen[id(each)] = each
            role = "arith.subi" in each.line and "get_program_id" in each.of[0].line
            todo += each.of[:1] if role else [] if "tt.load" in each.line else each.of
        return list(seen.values())

    def parameter(self) -> str:
        """The tensor that an address belongs to."""
        each = self
        while each.of:
            each = each.of[1 if "arith.select" in each.line else 0]
        return tensor_of(each.name.removeprefix("%"))


@dataclass
class Ir:
    """What Triton's IR does, in the order of its lines."""

    loads: dict[str, list[int]] = field(default_factory=dict)
    stores: dict[str, list[int]] = field(default_factory=dict)
    barriers: list[int] = field(default_factory=list)
    offsets: list[Made] = field(default_factory=list)  # what is added to addresses

    @staticmethod
    def read(text: str) -> Ir:
        """Names may come again in another branch, so that each use means the latest definition."""
        ir, known = Ir(), {}
        lines = [line.split(" loc(")[0].strip() for line in text.splitlines()]
        start = next(at for at, line in enumerate(lines) if line.startswith("tt.func"))
        for at, line in enumerate(lines[start + 1 :]):
            made = re.match(r"(%\w+)(?::\d+)? = (.*)", line)
            body = made[2] if made else line
            used = [known.setdefault(n, Made(n)) for n in re.findall(r"%\w+", body)]
            for name, first in re.findall(r"(%\w+) = (%\w+)", body.partition("iter_args")[2]):
                known[name] = Made(name, line, [known[first]])
            if made:
                known[made[1]] = Made(made[1], line, used)
            operation = re.match(r"\"?([\w.]+)", body)
            match operation[1] if operation else "":
                case "tt.load":
                    ir.loads.setdefault(used[0].parameter(), []).append(at)
                case "tt.store":
                    ir.stores.setdefault(used[0].parameter(), []).append(at)
                case "tt.addptr":
                    ir.offsets.append(used[1])
                case name if name in BARRIERS:
                    ir.barriers.append(at)
        return ir


def barrier_problems(loads, stores, barriers, what: str) -> list[str]:
    """Tensors that are loaded and stored to with no barrier between."""
    problems = []
    for tensor in sorted(set(loads) & set(stores)):
        last, first = max(loads[tensor]), min(stores[tensor])
        if not any(last < at < first for at in barriers):
            problems.append(
                f"no barrier between the last load and the first store of {tensor} {what}"
            )
    return problems


def address_problems(ir: Ir, tiles: set[int]) -> list[str]:
    """32-bit products that reach an address, but for a program's number times a tile."""
    products = {
        id(made): made
        for offset in ir.offsets
        for made in offset.origin()
        if re.search(r"arith\.muli .* : (tensor<[\dx]*)?i32", made.line)
    }
    problems = []
    for made in products.values():
        factors = [" ".join(each.line for each in factor.origin()) for factor in made.of]
        numbers = {int(n) for f in factors for n in re.findall(r"constant (?:dense<)?(\d+)", f)}
        if not (numbers & tiles and any("program_id" in factor for factor in factors)):
            problems.append(f"a 32-bit product reaches an address: {made.line}")
    return problems


def ptx_accesses(ptx: str, names: list[str]) -> tuple[dict, dict, list[int], list[str]]:
    """Where PTX loads and stores each tensor, its barriers, and accesses of unknown address."""
    owner: dict[str, set[str]] = {}
    loads: dict[str, list[int]] = {}
    stores: dict[str, list[int]] = {}
    barriers, unknown = [], []
    for at, raw in enumerate(ptx.splitlines()):
        line = re.sub(r"^@!?%p\d+\s+", "", raw.strip())
        # A parameter, or the address of one of a list's, of which one is chosen and then loaded.
        param = re.match(r"(?:ld\.param|mov)\.\w+\s+(%rd?\d+), \[?\w+_param_(\d+)\]?;", line)
        access = re.match(r"(ld|st)\.global\S*\s.*?\[\s*(%rd\d+)", line)
        if param:
            number = int(param[2])
            owner[param[1]] = {names[number]} if number < len(names) and names[number] else set()
        elif access:
            tensors = owner.get(access[2], set())
            if len(tensors) != 1:
                unknown.append(f"line {at}: {line} belongs to {sorted(tensors)}")
            for tensor in tensors:
                (loads if access[1] == "ld" else stores).setdefault(tensor, []).append(at)
        elif line.startswith("bar.sync"):
            barriers.append(at)
        elif line.startswith("ld.param") or not line.startswith(NOT_ADDRESSES):
            registers = re.findall(r"%rd?\d+", line)
            if registers:
                used = set().union(*(owner.get(name, set()) for name in registers[1:]))
                owner[registers[0]] = used
    return loads, stores, barriers, unknown


def contractions(ptx: str) -> list[str]:
    """Fused multiply-adds, but for products: sm_80 multiplies bf16 by adding -0.0."""
    negative_zeros = set(re.findall(r"mov\.b16\s+(%rs\d+), 0x8000;", ptx))
    found = re.findall(r"^\s*(?:@!?%p\d+\s+)?(fma\.\S+)\s.*?(%\w+);", ptx, re.MULTILINE)
    return [
        f"a fused multiply-add: {name}"
        for name, last in found
        if not (name.startswith("fma.rn.bf16") and last in negative_zeros)
    ]


def spills(kernel: Any, target: GPUTarget) -> list[str]:
    if target.backend == "hip":
        text = kernel.asm["amdgcn"]
        # Scalar registers spill into vector registers, not into memory.
        found = re.findall(r"(\.vgpr_spill_count|ScratchSize): *(\d+)", text)
        assert found, "no spill counts in the assembly"
        return [f"{name} is {count}" for name, count in found if int(count)]
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"(STACK|LOCAL):(\d+)", text)
    assert found, text
    return [f"{name} is {count} bytes" for name, count in found if int(count)]


def early_accesses(ptx: str) -> list[str]:
    """What PTX does before it has waited for the launch before; every program must wait."""
    lines = ptx[ptx.index(".entry") :].splitlines()
    waits = [at for at, line in enumerate(lines) if "griddepcontrol.wait" in line]
    if not waits:
        return ["does not wait for the launch before"]
    early = [line.strip() for line in lines[: waits[0]] if _TOUCHES.search(line)]
    return [f"before it waits for the launch before: {line}" for line in early]


def problems_of(kernel: Any, facts: dict, values: dict[str, int], target: GPUTarget) -> list[str]:
    ir = Ir.read(kernel.asm["ttir"])
    loads, stores = ir.loads, ir.stores
    written = set(facts["written"])
    problems = [f"{name} is stored to" for name in sorted(set(stores) - written)]
    problems += [f"{name} is never stored to" for name in sorted(written - set(stores))]
    problems += barrier_problems(loads, stores, ir.barriers, "in Triton's IR")
    tiles = {values[block] for block in facts["blocks"] if block.startswith(("TILE", "LOOP"))}
    problems += address_problems(ir, tiles)
    shared = set(loads) & set(stores)
    if target.backend == "cuda":
        ptx = kernel.asm["ptx"]
        absent = {f"{n.removeprefix('HAS_')}_ptr" for n, value in values.items() if value is False}
        names = [
            tensor_of(name) if kind in ("pointer", "addresses") else ""
            for name, (kind, dtype) in facts["parameters"].items()
            if dtype != "constexpr" and name not in absent
            for _ in range(values[name] if kind in ("addresses", "strides") else 1)
        ]
        ptx_loads, ptx_stores, barriers, unknown = ptx_accesses(ptx, names)
        problems += unknown
        problems += barrier_problems(ptx_loads, ptx_stores, barriers, "in PTX")
        if shared - set(ptx_loads) or set(stores) - set(ptx_stores):
            problems.append(f"PTX loads {sorted(ptx_loads)} and stores to {sorted(ptx_stores)}")
        problems += contractions(ptx)
        problems += early_accesses(ptx) if values["PDL"] else []
    elif shared and values["num_warps"] > 1 and "s_barrier" not in kernel.asm["amdgcn"]:
        problems.append("no s_barrier")
    return problems + spills(kernel, target)


def main(name: str, folder: str, package: str, combinations: str, *rest: str) -> None:
    """Print what is wrong with each kernel, and how many were compiled."""
    target = target_of(name)
    options = {key: int(value) for key, _, value in (option.partition("=") for option in rest)}
    sys.path.insert(0, str(Path(folder).parent))
    parent = Path(folder).name
    kernels = importlib.import_module(f"{parent}.{package}.kernels")
    ops = importlib.import_module(f"{parent}.{package}.ops")
    manifest = json.loads((Path(folder) / package / "manifest.json").read_text())
    count, problems = 0, []
    for group, facts in manifest["groups"].items():
        every = blocks.static_values(ops.GROUPS[group], facts, json.loads(combinations))
        for at, values in enumerate(every):
            fn = getattr(kernels, facts["kernel"])
            follows = target.backend == "cuda" and target.arch >= 90 and at % 2 == 0
            values["PDL"] = follows
            try:
                kernel = compiled(
                    fn, facts, values, target, options | ({"launch_pdl": True} if follows else {})
                )
            except Exception as error:  # noqa: BLE001 - whatever the compiler raises is a finding
                problems.append(f"{group} {values}: does not compile: {error!r}")
                continue
            count += 1
            found = problems_of(kernel, facts, values, target)
            problems += [f"{group} {values}: {text}" for text in found]
    print(json.dumps({"kernels": count, "problems": problems}))


if __name__ == "__main__":
    main(*sys.argv[1:])
