"""What a package's kernels are compiled to, for GPUs that need not be there: `kgen compile`.

Needs torch and triton only; `python -m kgen.bench.code` is the same command where kgen's own needs are
missing. In: a folder of generated packages, targets. Out: for each kernel and target its registers, bytes
spilled to memory, shared memory and bytes of code.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton

from .packages import BenchError, Package, chosen, numbers, packages

TARGETS = "sm_80,sm_90,sm_100,sm_120,gfx942,gfx950"
_TYPES = {"bool": "i1", "f16": "fp16", "f32": "fp32", "f64": "fp64"}


@dataclass(frozen=True)
class Code:
    """A kernel compiled for a target.

    Attributes:
        registers: of a thread; on AMD its vector registers.
        spilled: bytes of a thread in local memory (scratch).
        shared: bytes of a program.
        size: bytes of machine code.
        error: why there is none.
    """

    package: str
    group: str
    target: str
    sizes: dict[str, Any]
    warps: int = 0
    registers: int = 0
    spilled: int = 0
    shared: int = 0
    size: int = 0
    error: str = ""


def target_of(name: str) -> Any:
    """Triton's target of `sm_90` or `gfx942`.

    Raises:
        BenchError: it is neither.
    """
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415

    if re.fullmatch(r"sm_\d{2,3}", name):
        return GPUTarget("cuda", int(name.removeprefix("sm_")), 32)
    if re.fullmatch(r"gfx[0-9a-f]{3,4}", name):
        return GPUTarget("hip", name, 32 if name.startswith("gfx1") else 64)
    raise BenchError(f"`{name}` is not a target; write sm_90 or gfx942")


def compiled(folder: Path, targets: Sequence[str], only: str, at: dict[str, int]) -> list[Code]:
    """Every kernel for every target.

    Raises:
        BenchError: no such package, group or target; or Triton was imported as its interpreter.
    """
    if triton.knobs.runtime.interpret:
        raise BenchError("Triton's interpreter compiles nothing; unset TRITON_INTERPRET")
    wanted = [(name, target_of(name)) for name in targets]
    found = packages(folder)
    names = [group for package in found for group in package.groups]
    if only and only not in names:
        raise BenchError(f"there is no group `{only}` in {folder}; there is {', '.join(names)}")
    return [
        _code(package, group, target, known, at)
        for package in found
        for group in package.groups
        if only in ("", group)
        for target, known in wanted
    ]


def _code(package: Package, group: str, name: str, target: Any, at: dict[str, int]) -> Code:
    facts, operator = package.manifest["groups"][group], package.groups[group]
    asked = {n: v for n, v in at.items() if n in operator.signature.order}
    values = chosen(operator.signature, asked, 8, 64)
    blocks, warps = operator.launch.widths(values)
    statics = {n: values[n] for n in facts["static"]}
    sizes = statics | blocks
    follows = target.backend == "cuda" and target.arch >= 90
    signature: dict[str, Any] = {}
    constants: dict[Any, Any] = {}
    for number, (parameter, (kind, dtype)) in enumerate(facts["parameters"].items()):
        if dtype == "constexpr":
            given = {"PDL": follows}.get(parameter, sizes.get(parameter, True))
            signature[parameter], constants[number,] = "constexpr", given
        elif kind in ("addresses", "strides"):
            tensor = operator.signature.tensors[parameter.split("_stride_")[0]]
            count = 1 if kind == "strides" else tensor.length(values)
            signature[parameter] = (dtype,) * count
        else:
            signature[parameter] = ("*" if kind == "pointer" else "") + _TYPES.get(dtype, dtype)
    function = getattr(package.module("kernels"), facts["kernel"])
    options = {"num_warps": warps, "enable_fp_fusion": False}
    options |= {"launch_pdl": True} if follows else {}
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):  # ptxas' errors come with all of PTX
            source = triton.compiler.ASTSource(function, signature, constants)
            kernel = triton.compile(source, target=target, options=options)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is the answer
        text = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        return Code(package.name, group, name, sizes, warps, error=text)
    registers, spilled = _resources(kernel, target)
    binary = kernel.asm["cubin" if target.backend == "cuda" else "hsaco"]
    shared = kernel.metadata.shared
    return Code(
        package.name, group, name, sizes, warps, registers, spilled, shared, _text_bytes(binary)
    )


def _resources(kernel: Any, target: Any) -> tuple[int, int]:
    """Registers of a thread, and the bytes that it spills."""
    if target.backend == "hip":
        text = kernel.asm["amdgcn"]
        found = {n: int(v) for n, v in re.findall(r"(\.vgpr_count|ScratchSize): *(\d+)", text)}
        return found[".vgpr_count"], found["ScratchSize"]
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    found = {n: int(v) for n, v in re.findall(r"(REG|STACK|LOCAL):(\d+)", done.stdout)}
    return found["REG"], found["STACK"] + found["LOCAL"]


def _text_bytes(binary: bytes) -> int:
    """The bytes of code in an ELF file of 64 bits: its sections named `.text`."""
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    size, count, names = struct.unpack_from("<3H", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", binary, table + at * size) for at in range(count)]
    start = headers[names][4]
    found = 0
    for name, _, _, _, _, length in headers:
        end = binary.index(b"\0", start + name)
        found += length if binary[start + name : end].startswith(b".text") else 0
    return found


def table(rows: Sequence[Sequence[object]]) -> str:
    """Rows as text, in columns; the first one names them."""
    texts = [[str(each) for each in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = ["  ".join(f"{t:{w}}" for t, w in zip(row, widths, strict=True)) for row in texts]
    return "\n".join(line.rstrip() for line in lines)


def report(codes: Sequence[Code], *, as_json: bool) -> str:
    """What was compiled, as text."""
    if as_json:
        return json.dumps({"kernels": [asdict(code) for code in codes]}, indent=2)
    rows: list[Sequence[object]] = [
        ("group", "target", "warps", "registers", "spilled", "shared", "code", "compiled for")
    ]
    for each in codes:
        sizes = ", ".join(f"{n}={v}" for n, v in each.sizes.items())
        made = (each.registers, each.spilled, each.shared, each.size, sizes)
        name = f"{each.package}.{each.group}"
        rows.append(
            (
                name,
                each.target,
                each.warps,
                *(made if not each.error else ("-",) * 4 + (each.error,)),
            )
        )
    return table(rows)


def too_much(codes: Sequence[Code], most_spilled: int | None) -> list[str]:
    """What is wrong: what does not compile, and what spills more than it may."""
    wrong = [f"{c.group} for {c.target}: {c.error}" for c in codes if c.error]
    if most_spilled is not None:
        wrong += [
            f"{c.group} for {c.target} spills {c.spilled} bytes, more than {most_spilled}"
            for c in codes
            if c.spilled > most_spilled
        ]
    return wrong


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    asked = argparse.ArgumentParser(
        prog="kgen compile", description=(__doc__ or "").partition("\n")[0]
    )
    asked.add_argument("folder", nargs="?", type=Path, default=Path("generated"))
    asked.add_argument("--targets", default=TARGETS, help="comma-separated: sm_90, gfx942, ...")
    asked.add_argument("--only", default="", metavar="GROUP", help="one group only")
    asked.add_argument("--at", default="", metavar="NAME=N,...", help="sizes and scalars")
    asked.add_argument(
        "--most-spilled", type=int, metavar="BYTES", help="exit code 1 if one spills more"
    )
    asked.add_argument("--json", action="store_true", dest="as_json")
    return asked


def main(arguments: Sequence[str] | None = None) -> int:
    """`kgen compile`: exit code 1 if something does not compile or spills too much, 2 for bad input."""
    asked = parser().parse_args(arguments)
    try:
        at = numbers(asked.at)
        codes = compiled(asked.folder, [*filter(None, asked.targets.split(","))], asked.only, at)
    except BenchError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(report(codes, as_json=asked.as_json) + "\n")
    wrong = too_much(codes, asked.most_spilled)
    for each in wrong:
        sys.stderr.write(f"error: {each}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
