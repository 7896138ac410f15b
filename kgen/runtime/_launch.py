"""Kernels and their launches.

Needs torch and triton. What a kernel is given follows from the names of its parameters:

- `x_ptr`: the tensor `x`, None if it is left out;
- `x_stride_0`: its stride in dimension 0;
- `pool`, a list of tensors: a tuple of their addresses; `pool_stride_0`: a tuple of their strides, of only
  one if the lists' strides are the same. `pick` chooses from either; of a list that is left out it gives 0;
- `G`: a size or a scalar, static ones too; `HAS_b`: whether the optional tensor `b` is given;
- `LANES_k`, `TILE_c`, `LOOP_c`: a block size; `ONCE_c`: whether a loop has one turn.
- `PDL`: whether the launch may start before the one before it has ended.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ._runtime import Expr, Signature, Values

_MOST_PROGRAMS = 2**31 - 1
_MOST_LANES = 2**20  # elements of a block in Triton
_MANY = 2**20  # values: 4 for each thread of a large GPU

# How often each variant was launched: kernel, device and what it is compiled for. While `_frozen` no
# other is compiled.
_variants: dict[tuple[object, ...], list[int]] = {}
_frozen = False
_overlaps: dict[torch.device, bool] = {}


def interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter."""
    if hasattr(triton, "knobs"):  # from Triton 3.4 on
        return bool(triton.knobs.runtime.interpret)
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


def runs_kernels(device: torch.device) -> bool:
    """Whether kernels run on this device; the torch reference does elsewhere."""
    return device.type != "cpu" or interpreted()


def overlaps(device: torch.device) -> bool:
    """Whether a launch may start before the one before it has ended (programmatic dependent launch).

    NVIDIA GPUs from Hopper on can; KGEN_PDL=0 turns it off.
    """
    if device not in _overlaps:
        asked = os.environ.get("KGEN_PDL", "1").lower() not in ("0", "false", "off", "no", "n")
        able = device.type == "cuda" and torch.version.hip is None and not interpreted()
        _overlaps[device] = asked and able and torch.cuda.get_device_capability(device) >= (9, 0)
    return _overlaps[device]


def freeze(enable: bool) -> None:
    """Refuse variants that were not launched before, or no longer."""
    global _frozen  # noqa: PLW0603
    _frozen = enable


def launches() -> int:
    """How many launches there were."""
    return sum(count for (count,) in _variants.values())


def kernel(function: Callable[..., None]) -> Any:
    """A Triton kernel that is compiled once for each setting of its compile-time parameters.

    By itself Triton would compile it again for a number that is 1 or divisible by 16, and for a tensor
    that is not aligned.
    """
    parameters = inspect.signature(function).parameters.values()
    runtime = [each.name for each in parameters if each.annotation is not tl.constexpr]
    return triton.jit(function, do_not_specialize=runtime, do_not_specialize_on_alignment=runtime)


def packed(number: int) -> int:
    """A number of a tuple, as `pick` reads it: odd and large.

    Triton specializes numbers in a tuple by their size, for 1 and for multiples of 16, whatever is said of
    the parameter; all of these are the same to it.
    """
    return 2 * (number + 2**61) + 1


# Triton 3.4 has none, so that a kernel with -0.0 in it does not compile there.
_at_compile_time: Callable[[Any], Any] = getattr(
    triton, "constexpr_function", lambda function: function
)


@triton.jit
def follow():  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Wait until the launch before has ended and its stores are seen; let the next one start.

    The next one does the same, so that it comes no further than this. Each program waits before all else:
    a launch whose programs have ended says that those before it have, too.
    """
    gdc_wait()
    gdc_launch_dependents()


@triton.jit
def pick(at, values):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Number `at` of a tuple, with the shape of `at`; the only one if there are no more."""
    chosen = tl.where(at == 0, values[0], values[0])
    for number in tl.static_range(1, len(values)):
        chosen = tl.where(at == number, values[number], chosen)
    return (chosen >> 1) - (1 << 61)


@_at_compile_time
def is_minus_zero(number: float) -> bool:
    """Whether a compile-time number is -0.0."""
    return repr(number) == "-0.0"


@triton.jit
def rounded(number):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """A compile-time number as f32; -0.0 too, which Triton 3.6 takes for 0.0 otherwise."""
    if is_minus_zero(number):
        value = tl.full((), -0x80000000, tl.int32).to(tl.float32, bitcast=True)
    else:
        value = tl.full((), number, tl.float32)
    return value


Widths: TypeAlias = tuple[dict[str, int], int]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A launch, but for its tensors: `arguments` has places for them.

    `launched` counts, in a list of one, the launches of its variant.
    """

    programs: int
    device: torch.device
    arguments: tuple[object, ...]
    warps: int
    shown: str
    launched: list[int]


class Launch:
    """How a kernel is launched.

    Args:
        signature: the group's parameters.
        function: the kernel.
        programs: how many programs a launch has, an expression of sizes and scalars.
        blocks: block size -> a number, or how many values all its lanes together are to hold, an expression
            of sizes, scalars and the blocks before it.
        lanes: how many values a program holds at once, an expression of blocks.
        combined: how many does one that combines many of them, likewise.
        warps: of a program; None if they follow from the above.
    """

    def __init__(
        self,
        signature: Signature,
        function: Any,
        programs: str,
        blocks: Mapping[str, str | int],
        lanes: str = "",
        combined: str = "",
        warps: int | None = None,
    ) -> None:
        self.signature, self.function, self.warps = signature, function, warps
        self.lanes, self.combined = Expr(lanes or "0"), Expr(combined or "0")
        self.programs = Expr(programs)
        self.blocks = {n: Expr(b) if isinstance(b, str) else b for n, b in blocks.items()}
        self.parameters = inspect.signature(function.fn).parameters
        known: dict[str, tuple[str, str, int]] = {}
        for name, tensor in signature.tensors.items():
            known[f"HAS_{name}"] = ("given", name, 0)
            known[name if tensor.length is not None else f"{name}_ptr"] = ("memory", name, 0)
            for dim in range(len(tensor.dims)):
                known[f"{name}_stride_{dim}"] = ("stride", name, dim)
        self.sources = {name: known[name] for name in self.parameters if name in known}
        self.pointers = [
            (at, self.sources[name][1])
            for at, name in enumerate(self.parameters)
            if name in self.sources and self._is_pointer(name)
        ]

    def _is_pointer(self, parameter: str) -> bool:
        kind, source, _ = self.sources[parameter]
        return kind == "memory" and self.signature.tensors[source].length is None

    @classmethod
    def of(cls, other: Launch, function: Any) -> Launch:
        """Another kernel, launched as `other` is."""
        blocks = {n: b if isinstance(b, int) else b.text for n, b in other.blocks.items()}
        texts = (other.programs.text, blocks, other.lanes.text, other.combined.text)
        return cls(other.signature, function, *texts, other.warps)

    def prepare(
        self,
        given: Mapping[str, Any],
        values: Values,
        device: torch.device,
        more: Mapping[str, object] | None = None,
        widths: Widths | None = None,
    ) -> Prepared:
        """The launch for a call that was checked.

        `more` are arguments by the parameter's name, `widths` other widths than the call's own.

        Raises:
            KgenCallError: it has more programs than a launch may have, or too wide a block.
        """
        blocks, warps = widths or self.widths(values)
        programs = self.programs({**values, **blocks})
        if programs > _MOST_PROGRAMS:
            raise self.signature.fail(
                f"a launch would have {self.programs.text} = {programs} programs, more than 2**31 - 1"
                f"{_at(self.programs, values)}; split the call"
            )
        wide = _strided(self.signature, given)
        known = {"PDL": overlaps(device), **blocks, **(more or {})}
        arguments = tuple(
            known[name] if name in known else self._argument(name, given, values, wide=wide)
            for name in self.parameters
        )
        fixed = {
            name: len(argument) if isinstance(argument, tuple) else argument
            for (name, parameter), argument in zip(self.parameters.items(), arguments, strict=True)
            if parameter.annotation is tl.constexpr or isinstance(argument, tuple)
        }
        variant = (self.function, device, warps, *fixed.values())
        shown = ", ".join(
            f"{name}={value}" for name, value in {**fixed, "num_warps": warps}.items()
        )
        launched = _variants.setdefault(variant, [0])
        return Prepared(programs, device, arguments, warps, shown, launched)

    def run(self, prepared: Prepared, given: Mapping[str, Any]) -> Any:
        """Launch the kernel on a call's tensors; what Triton has compiled, if it has.

        Raises:
            KgenCallError: the variant was not launched before, and `no_jit` forbids compiling it, or a
                CUDA graph's capture forbids loading it.
        """
        if prepared.programs <= 0:
            return None
        if not prepared.launched[0] and _captures(prepared.device):
            raise self.signature.fail(
                f"no variant for {prepared.shown} was launched before, and a CUDA graph's capture forbids "
                "loading one; call warmup(...) before the capture, or the group itself"
            )
        if _frozen and not prepared.launched[0]:
            raise self.signature.fail(
                f"no variant for {prepared.shown} was launched before no_jit(); add its static sizes "
                "to warmup(...)"
            )
        arguments = [*prepared.arguments]
        for at, name in self.pointers:
            arguments[at] = given.get(name)
        compiled = launch(
            self.function, prepared.programs, prepared.device, arguments, prepared.warps
        )
        prepared.launched[0] += 1
        return compiled

    @property
    def expressions(self) -> list[Expr]:
        """What the widths and the number of programs follow from."""
        blocks = [each for each in self.blocks.values() if isinstance(each, Expr)]
        return [self.programs, *blocks]

    def count(self, values: Values) -> int:
        """How many programs a launch has."""
        return self.programs({**values, **self.block_sizes(values)})

    def widths(self, values: Values) -> Widths:
        """The compile-time sizes of the blocks at a call, and how many warps a program has."""
        blocks = self.block_sizes(values)
        return blocks, self._warps(blocks, self.programs({**values, **blocks}))

    def block_sizes(self, values: Values) -> dict[str, int]:
        """The compile-time sizes of the blocks at a call.

        Raises:
            KgenCallError: a block is too wide.
        """
        found: dict[str, int] = {}
        for name, block in self.blocks.items():
            found[name] = self._block(block, {**values, **found})
        return found

    def _warps(self, blocks: dict[str, int], programs: int) -> int:
        """How many warps a program has.

        Each thread has 8 values, so that a program is done soon; or 32 where the GPU is full anyway, so
        that more are loaded at a time. One that combines them has 16.
        """
        if self.warps is not None:
            return self.warps
        lanes = self.lanes(blocks)
        own = lanes // (1024 if programs * lanes > _MANY else 256)
        return max(min(own, 8), min(self.combined(blocks) // 512, 16), 1)

    def _block(self, block: Expr | int, values: Values) -> int:
        """The value of a block size."""
        if isinstance(block, int):
            return block
        extent = block(values)
        if isinstance(extent, bool):
            return extent
        lanes = 1 << max(extent - 1, 0).bit_length()
        if lanes > _MOST_LANES:
            raise self.signature.fail(
                f"a program would hold {block.text} = {extent} values at once, more than 2**20"
                f"{_at(block, values)}; declare a smaller range, or a size that is not static"
            )
        return lanes

    def _argument(
        self, name: str, given: Mapping[str, Any], values: Values, *, wide: bool
    ) -> object:
        """What a parameter is given; None for a tensor, which each call brings."""
        if name not in self.sources:
            return values[name]
        kind, source, dim = self.sources[name]
        argument, several = given.get(source), self.signature.tensors[source].length is not None
        match kind:
            case "given":
                return argument is not None
            case "memory" if not several:
                return None
            case "memory":
                return tuple(packed(each.data_ptr()) for each in argument or ()) or (packed(0),)
        if several:
            strides = [packed(each.stride(dim)) for each in argument or ()] or [packed(0)]
            return tuple(strides if wide else strides[:1])
        return argument.stride(dim) if argument is not None else 0


def launch(
    function: Any,
    programs: int,
    device: torch.device,
    arguments: Sequence[object],
    warps: int,
) -> Any:
    """Launch `programs` programs of a kernel on a device; what Triton has compiled, if it has."""
    if interpreted():
        with _interpreter():
            function[(programs,)](*_typed(function, arguments), num_warps=warps)
        return None
    options: dict[str, object] = {"num_warps": warps, "enable_fp_fusion": False}
    if overlaps(device):
        options["launch_pdl"] = True
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return function[(programs,)](*arguments, **options)
    return function[(programs,)](*arguments, **options)


def _captures(device: torch.device) -> bool:
    """Whether a CUDA graph is captured on the device's current stream, or on that of the current one."""
    if device.type != "cuda":
        return False
    if torch.cuda.is_current_stream_capturing():
        return True
    with torch.cuda.device(device):
        return bool(torch.cuda.is_current_stream_capturing())


def _interpreter() -> threading.RLock:
    """Triton's interpreter, for one thread at a time, of whichever package: it has one state for all."""
    from triton.runtime.interpreter import interpreter_builder  # noqa: PLC0415

    lock: threading.RLock = vars(interpreter_builder).setdefault("kgen_lock", threading.RLock())
    return lock


def _typed(function: Any, arguments: Sequence[object]) -> list[object]:
    """Numbers as they are when a kernel is compiled; Triton's interpreter looks at their sizes only."""
    from triton.runtime.interpreter import TensorHandle, np  # noqa: PLC0415

    types = {tl.int32: np.int32, tl.int64: np.int64, tl.float32: np.float32}
    declared = [each.annotation for each in inspect.signature(function.fn).parameters.values()]
    return [
        tl.tensor(TensorHandle(np.array([argument], dtype=types[dtype]), dtype), dtype)
        if dtype in types
        else argument
        for argument, dtype in zip(arguments, declared, strict=True)
    ]


def _strided(signature: Signature, given: Mapping[str, Any]) -> bool:
    """Whether some list has tensors of different strides."""
    lists = [given.get(n) or [] for n, t in signature.tensors.items() if t.length is not None]
    return any(each.stride() != every[0].stride() for every in lists for each in every)


def _at(expr: Expr, values: Values) -> str:
    """The numbers that an expression is made of, in words."""
    names = sorted(expr.names & set(values))
    return f", at {', '.join(f'{name} = {values[name]}' for name in names)}" if names else ""
