"""Groups beside what they replace, on a GPU: `kgen bench`.

Needs torch and triton only; `python -m kgen.bench.groups` is the same command where kgen's own needs are
missing. In: a folder of generated packages, a group, batches. Out: for each variant the median and
quartiles of its time in a CUDA graph, its launches, and its ratio to an empty launch and to the time that
the bytes would take.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton

from . import charts
from .launches import launches
from .packages import BenchError, Package, chosen, numbers, packages
from .timing import Timing, empty, replay_times

_BANDWIDTH_BYTES = 2**28
_NO_GPU = (
    "there is no GPU, and times come from CUDA graphs; run this on a machine that has one, or add "
    "--host, which only counts launches and bytes"
)


@dataclass
class Row:
    """A group at a batch.

    Attributes:
        touched: bytes that the group loads and stores, each element once.
        launches: of each variant; without a GPU the torch operations that would be one.
        times: of each variant, microseconds; empty where nothing was timed.
        failed: variants that raise, and how.
    """

    group: str
    batch: int
    sizes: dict[str, Any]
    touched: int
    launches: dict[str, int] = field(default_factory=dict)
    times: dict[str, Timing] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def batch_of(operator: Any) -> str:
    """The run-time size on which the number of programs depends first."""
    signature = operator.signature
    own = [n for n in signature.sizes if not signature.sizes[n].static]
    named = [n for n in own if n in operator.launch.programs.names]
    named += [n for n in signature.scalars if n in operator.launch.programs.names]
    return str((named or own or [""])[0])


def inputs(
    package: Package, group: str, values: dict[str, Any], device: torch.device
) -> dict[str, Any]:
    """Arguments of a call: random within what the spec declares, and not moved on by calls too far.

    Tensors that calls update begin at the least value. Where the spec trusts more than it declares, or
    where that is not known, every integer is the least one.
    """
    signature = package.groups[group].signature
    try:
        plain = not package.module(f"tests.test_{group}").CASE.trusted
    except ImportError:
        plain = False
    seeded = torch.Generator().manual_seed(len(group))
    limits = package.module("_runtime").LIMITS
    given: dict[str, Any] = {}
    for name, declared in signature.tensors.items():
        if declared.optional:
            continue
        count = declared.length(values) if declared.length is not None else 1
        shape = [dim(values) for dim in declared.dims]
        made = []
        for _ in range(count):
            low, high = declared.values.ends(values, *limits.get(declared.dtype, (0, 0)))
            if declared.dtype.is_floating_point:
                each = torch.randn(shape, generator=seeded).to(declared.dtype)
            elif declared.distinct:
                each = (
                    (low + torch.arange(max(1, each_count(shape)))).view(shape).to(declared.dtype)
                )
            elif declared.dtype == torch.bool:
                each = torch.randint(0, 2, shape, generator=seeded).to(torch.bool)
            elif plain and declared.mode == "in":
                least, most = max(low, -(2**31)), min(high, 2**31 - 1)
                each = torch.randint(least, most + 1, shape, generator=seeded).to(declared.dtype)
            else:
                each = torch.full(shape, max(low, min(0, high)), dtype=declared.dtype)
            made.append(each.to(device))
        given[name] = made if declared.length is not None else made[0]
    return given | {n: values[n] for n in signature.scalars if n not in signature.defaults}


def each_count(shape: Sequence[int]) -> int:
    """How many elements a tensor of a shape has."""
    return int(torch.Size(shape).numel())


def touched(package: Package, group: str, given: dict[str, Any], values: dict[str, Any]) -> int:
    """The bytes that a call loads and stores, each element once for either."""
    operator, own = package.groups[group], copied(given, torch.device("cpu"))
    found: dict[tuple[str, str], list[torch.Tensor]] = {}

    def watch(access: Any) -> None:
        if not hasattr(access, "flat"):
            return
        flat, mask = torch.broadcast_tensors(access.flat, access.mask & access.inside)
        found.setdefault((access.what, access.name), []).append(flat[mask])

    package.module("_trace").trace(lambda a: operator.run_reference(a, values), own, watch)
    total = 0
    for (_, name), places in found.items():
        one = own[name] if isinstance(own[name], torch.Tensor) else own[name][0]
        total += torch.cat([p.flatten() for p in places]).unique().numel() * one.element_size()
    return total


def copied(given: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """A call's arguments in memory of their own."""

    def copy(each: Any) -> Any:
        if isinstance(each, list):
            return [copy(one) for one in each]
        return each.to(device, copy=True) if isinstance(each, torch.Tensor) else each

    return {name: copy(each) for name, each in given.items()}


def opponents(names: Sequence[str], package: Package, group: str) -> dict[str, Callable[..., Any]]:
    """The functions to compare with; without those that the package does not have.

    Raises:
        BenchError: there is no such function.
    """
    found: dict[str, Callable[..., Any]] = {}
    case = None
    if {"eager", "compile"} & {*names}:
        case = _eager(package, group)
    for name in names:
        if name in ("eager", "compile"):
            if case is not None:
                found[name] = case if name == "eager" else torch.compile(case, dynamic=False)
            continue
        file, _, function = name.rpartition(":")
        if not file or not Path(file).is_file():
            raise BenchError(f"`{name}` is not eager, compile or FILE:FUNCTION")
        spec = importlib.util.spec_from_file_location(Path(file).stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if not hasattr(module, function):
            raise BenchError(f"there is no function `{function}` in {file}")
        found[function] = getattr(module, function)
    return found


def _eager(package: Package, group: str) -> Any:
    """A group's eager chain, if it has one; a fused group's is in its tests, which need pytest."""
    try:
        return package.module(f"tests.test_{group}").CASE.eager
    except ImportError:
        has = "eager.py" in package.manifest["files"]
        return getattr(package.module("eager"), group, None) if has else None


def measure(
    package: Package,
    group: str,
    batch: int,
    at: dict[str, int],
    against: Sequence[str],
    *,
    host: bool,
) -> Row:
    """A group at a batch, beside its opponents."""
    operator = package.groups[group]
    device = torch.device("cpu" if host else "cuda")
    asked = {n: v for n, v in at.items() if n in operator.signature.order}
    values = chosen(operator.signature, {batch_of(operator): batch} | asked, 8, 64)
    start = inputs(package, group, values, device)
    sizes = {n: values[n] for n in operator.signature.order}
    row = Row(f"{package.name}.{group}", batch, sizes, touched(package, group, start, values))
    functions = {"fused": operator.public} | opponents(against, package, group)
    calls: dict[str, Callable[[], object]] = {}
    states: list[tuple[torch.Tensor, torch.Tensor]] = []
    for name, function in functions.items():
        own = copied(start, device)
        states += _pairs(own, start, operator)

        def call(function: Any = function, own: dict[str, Any] = own) -> object:
            return function(**own)

        try:
            row.launches[name] = 1 if host and name == "fused" else launches(call, device)
        except Exception as error:  # noqa: BLE001 - the other variants are wanted all the same
            row.failed[name] = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            continue
        calls[name] = call
    if not host:

        def restore() -> None:
            for now, first in states:
                now.copy_(first)

        row.times = replay_times(calls | {"empty": empty}, restore=restore)
    return row


def _pairs(
    own: dict[str, Any], start: dict[str, Any], operator: Any
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What calls update, and what it was; floats stay as they are."""
    found = []
    for name, declared in operator.signature.tensors.items():
        if declared.mode == "inout" and name in own and not declared.dtype.is_floating_point:
            both = (own[name], start[name])
            found += list(zip(*both, strict=True)) if isinstance(own[name], list) else [both]
    return found


def bandwidth() -> float:
    """Bytes a microsecond that a large copy reads and writes on this card."""
    source = torch.empty(_BANDWIDTH_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = replay_times({"copy": lambda: target.copy_(source)}, calls=4, rounds=20)
    return 2 * _BANDWIDTH_BYTES / times["copy"].median


def rows_of(rows: Sequence[Row], speed: float) -> list[list[object]]:
    """The table: a line for each variant of each row; without times if there are none."""
    timed = any(row.times for row in rows)
    head = ["group", "batch", "bytes", "variant", "launches"]
    lines: list[list[object]] = [[*head]]
    lines[0] += ["us", "quartiles", "/ empty", "/ bytes"] if timed else []
    for row in rows:
        start = [row.group, row.batch, row.touched]
        for name, count in row.launches.items():
            line: list[object] = [*start, name, count]
            if timed:
                timing = row.times[name]
                line += [f"{timing.median:.2f}", f"{timing.lower:.2f} .. {timing.upper:.2f}"]
                least = row.touched / speed
                line.append(f"{timing.median / row.times['empty'].median:.2f}")
                line.append(f"{timing.median / least:.1f}" if least else "-")
            lines.append(line)
        blank = [""] * (len(lines[0]) - 5)
        lines += [[*start, name, error, *blank] for name, error in row.failed.items()]
    return lines


def notes(*, host: bool, speed: float) -> list[str]:
    """How the numbers were made."""
    versions = f"torch {torch.__version__}, Triton {triton.__version__}"
    if host:
        counted = "Launches are counted as torch operations that would each be one."
        return [f"Host only, {versions}: nothing was timed. {counted}"]
    card, rate = torch.cuda.get_device_name(), speed / 1000
    return [
        f"{card}, {versions}. Medians of a CUDA graph of 20 calls, variants in turn, warm in L2.",
        "/ empty: beside a kernel that does nothing. / bytes: beside what the bytes that a call loads and",
        f"stores would take, each element once, at the {rate:.0f} GB/s that a large copy has on this card.",
    ]


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    asked = argparse.ArgumentParser(
        prog="kgen bench", description=(__doc__ or "").partition("\n")[0]
    )
    asked.add_argument("group", nargs="?", default="", metavar="GROUP", help="left out: all")
    asked.add_argument("--packages", type=Path, default=Path("generated"), help="their folder")
    asked.add_argument(
        "--batch", default="1,8,32", metavar="N,...", help="the first size that runs"
    )
    asked.add_argument("--at", default="", metavar="NAME=N,...", help="other sizes and scalars")
    asked.add_argument(
        "--against", default="eager", metavar="NAME,...", help="eager, compile, FILE:FUNCTION"
    )
    asked.add_argument("--host", action="store_true", help="no GPU: count launches and bytes only")
    asked.add_argument("--json", action="store_true", dest="as_json")
    asked.add_argument("--html", type=Path, metavar="FILE", help="write a page with charts")
    return asked


def main(arguments: Sequence[str] | None = None) -> int:
    """`kgen bench`: exit code 1 if a variant fails, 2 if nothing can be measured."""
    asked = parser().parse_args(arguments)
    try:
        rows, speed = _measured(asked)
    except BenchError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    said = notes(host=asked.host, speed=speed)
    if asked.as_json:
        facts = {"notes": said, "host": asked.host, "rows": [asdict(row) for row in rows]}
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    else:
        from .code import table  # noqa: PLC0415

        sys.stdout.write("\n".join([*said, "", table(rows_of(rows, speed))]) + "\n")
    if asked.html:
        asked.html.write_text(_page(rows, said, speed), encoding="utf-8")
    return 1 if any(row.failed for row in rows) else 0


def _measured(asked: argparse.Namespace) -> tuple[list[Row], float]:
    batches = [int(each) for each in asked.batch.split(",") if each.strip().isdigit()]
    if not batches or len(batches) != len(asked.batch.split(",")):
        raise BenchError(f"`--batch {asked.batch}` is not a list of numbers")
    if not asked.host and not torch.cuda.is_available():
        raise BenchError(_NO_GPU)
    found = packages(asked.packages)
    steps = [each.name for each in found if "step.py" in each.manifest["files"]]
    names = [(package, group) for package in found for group in package.groups]
    wanted = [(p, g) for p, g in names if asked.group in ("", g, f"{p.name}.{g}")]
    if not wanted:
        there = ", ".join(group for _, group in names)
        step = f"; the step of {', '.join(steps)} needs its engine, so time that" if steps else ""
        raise BenchError(f"there is no group `{asked.group}`; there is {there}{step}")
    at, against = numbers(asked.at), [each for each in asked.against.split(",") if each]
    rows = [
        measure(package, group, batch, at, against, host=asked.host)
        for package, group in wanted
        for batch in batches
    ]
    return rows, 1.0 if asked.host else bandwidth()


def _page(rows: Sequence[Row], said: Sequence[str], speed: float) -> str:
    sections = {}
    for group in dict.fromkeys(row.group for row in rows):
        own = [row for row in rows if row.group == group]
        timed = {
            f"batch {r.batch}": {n: t.median for n, t in r.times.items()} for r in own if r.times
        }
        counted = {f"batch {r.batch}": {n: float(c) for n, c in r.launches.items()} for r in own}
        chart = charts.bars(timed, "us") if timed else charts.bars(counted, "launches")
        sizes = ", ".join(f"{n} = {v}" for n, v in own[-1].sizes.items())
        sections[group] = chart + charts.table(rows_of(own, speed)) + charts.table([["at", sizes]])
    return charts.page("kgen bench", said, sections)


if __name__ == "__main__":
    sys.exit(main())
