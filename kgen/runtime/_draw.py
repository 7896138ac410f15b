"""Random small worlds of a signature: one value for each argument of a group.

Needs only torch. Sizes are not powers of two and sometimes 0, values are at and near the ends of their
declared ranges, tensors are strided with unaligned starts, each inside a larger buffer of random bits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ._runtime import LIMITS, ScalarArg, SizeArg, TensorArg

if TYPE_CHECKING:
    from ._testing import Case

WORLDS = 48
_LONG = 4096  # of a dimension in most worlds
_PROGRAMS = 48  # of one launch at most: the interpreter takes milliseconds for each
_PATTERN = 65521  # a prime
_SHORT = 16  # a range of so few values has no ends to prefer
_STATIC_CHOICES = (1, 2, 3, 4, 5, 7, 8)
_REFUSALS = 40  # worlds in which what a spec trusts can't be kept, before it is said
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.5,
    math.inf,
    -math.inf,
    math.nan,
    1e-40,
    -1e-40,
    3.3895e38,
    65504.0,
    6e-8,
)


class UnsatisfiableError(Exception):
    """The drawn sizes leave no legal value for something; draw again."""


@dataclass
class Buffer:
    """A tensor inside a larger flat buffer."""

    base: torch.Tensor
    view: torch.Tensor


@dataclass
class World:
    """One value for each argument of a group; a list has a buffer for each tensor.

    `usual`: no optional tensor is given and every default is taken, as in the eager chain.
    """

    values: dict[str, Any]
    scalars: dict[str, Any]
    buffers: dict[str, list[Buffer]]
    lists: frozenset[str]
    absent: frozenset[str]
    usual: bool

    def clone(self, device: torch.device | None = None) -> World:
        """The same world in memory of its own; buffers that share memory still do."""
        bases: dict[int, torch.Tensor] = {}
        for buffer in self.every():
            key = buffer.base.data_ptr() if buffer.base.numel() else id(buffer.base)
            if key not in bases:
                bases[key] = buffer.base.to(device or buffer.base.device, copy=True)
        buffers = {
            name: [
                Buffer(
                    base := bases[b.base.data_ptr() if b.base.numel() else id(b.base)],
                    base.as_strided(b.view.size(), b.view.stride(), b.view.storage_offset()),
                )
                for b in each
            ]
            for name, each in self.buffers.items()
        }
        return replace(self, buffers=buffers)

    def every(self) -> list[Buffer]:
        """All buffers."""
        return [buffer for each in self.buffers.values() for buffer in each]

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of a call, those left out missing."""
        tensors: dict[str, Any] = {}
        for name, each in self.buffers.items():
            if name not in self.absent:
                tensors[name] = [b.view for b in each] if name in self.lists else each[0].view
        return tensors | self.scalars


def draw(case: Case, seed: int) -> World:
    """The world of a seed: the same on every machine.

    Raises:
        AssertionError: no world satisfies the declared ranges, or keeps what the spec trusts.
    """
    group, refusals = case.signature.group, 0
    for attempt in range(200):
        chance = random.Random(f"{group} {seed} {attempt}")
        try:
            # Another attempt takes other static sizes too, and sooner or later an empty world.
            empty = seed % 6 == 1 or attempt > 50
            world = _draw(case, seed + (WORLDS + 1) * attempt, chance, empty=empty)
        except UnsatisfiableError:
            continue
        broken = case.keep(world, chance)
        if not broken:
            return world
        refusals += 1
        if refusals == _REFUSALS:
            trusted = "; ".join(f"`{what}`: {why}" for what, why in case.trusted.items())
            raise AssertionError(
                f"{group}: no random inputs keep what the spec trusts ({trusted}). In the last of "
                f"{refusals} tries {broken}, at {world.values}. Declare sizes and values with which it can "
                "be kept"
            )
    raise AssertionError(f"{group}: no world satisfies the declared ranges")


def _draw(case: Case, seed: int, chance: random.Random, *, empty: bool) -> World:
    signature = case.signature
    values: dict[str, Any] = {}
    large = chance.choice(list(case.edges)) if case.edges and chance.random() < 0.25 else ""
    usual = chance.random() < 0.5
    left_out = {name for name in signature.defaults if usual or chance.random() < 0.3}
    for name in signature.order:
        values[name] = (
            signature.defaults[name](values)
            if name in left_out
            else _number(case, name, seed, chance, values, large=name == large)
        )
    if not (0 if empty else 1) <= case.programs(values) <= _PROGRAMS:
        raise UnsatisfiableError
    tame = chance.random() < 0.6
    buffers: dict[str, list[Buffer]] = {}
    for name, tensor in signature.tensors.items():
        count = tensor.length(values) if tensor.length is not None else 1
        buffers[name] = _buffers(tensor, count, values, chance, tame=tame)
    optional = [name for name, tensor in signature.tensors.items() if tensor.optional]
    return World(
        values,
        {name: values[name] for name in signature.scalars if name not in left_out},
        buffers,
        frozenset(n for n, t in signature.tensors.items() if t.length is not None),
        frozenset(name for name in optional if usual or chance.random() < 0.5),
        usual,
    )


def _number(
    case: Case, name: str, seed: int, chance: random.Random, values: dict[str, int], *, large: bool
) -> float:
    declared = case.signature.declared(name)
    size = isinstance(declared, SizeArg)
    if isinstance(declared, SizeArg) and declared.derived is not None:
        return declared.derived(values)
    low, high = declared.ends(values)
    if low > high:
        raise UnsatisfiableError
    if declared.static:
        fitting = [v for v in _STATIC_CHOICES if low < v <= high] or [low, min(high, low + 3)]
        # Few combinations, since each one is a kernel to compile on a GPU.
        picked = random.Random(f"{case.signature.group} {name} {seed % 6}").choice(fitting)
        return low if seed % 12 == 5 else picked
    if size:
        edges = [edge for edge in case.edges.get(name, ()) if low <= edge <= high]
        if large and edges:
            return chance.choice(edges)
        if seed % 8 == 1 or chance.random() < 0.04:
            return low
        least = max(low, min(high, 1))
        most = min(high, least + chance.choice((1, 3, 6, 11)))
        # Rather large than small: other sizes are often bounded by it.
        return max(chance.randint(least, most), chance.randint(least, most))
    if isinstance(declared, ScalarArg) and declared.float:
        drawn = [v for v in (1e-6, 1e-5, 0.5, 1.0, -2.0, 0.0, low, high) if low <= v <= high]
        return float(chance.choice([v for v in drawn if math.isfinite(v)]))
    # One that a dimension depends on is seldom large: such worlds take long.
    if high - low > _LONG and chance.random() < 0.9:
        dims = (dim for tensor in case.signature.tensors.values() for dim in tensor.dims)
        if any(name in dim.names for dim in dims):
            high = low + _LONG
    return _near_ends(low, high, chance)


def _near_ends(low: int, high: int, chance: random.Random) -> int:
    """A value anywhere in a short range; of a long one mostly at its ends or about 0."""
    if high - low <= _SHORT:
        return chance.randint(low, high)
    kind = chance.randrange(5)
    if kind == 4 and low <= 0 <= high:
        return max(low, min(high, chance.randint(-2, 3)))
    if kind == 0:
        return min(high, low + chance.randrange(3))
    if kind == 1:
        return max(low, high - chance.randrange(3))
    return chance.randint(low, min(high, low + 40)) if kind == 2 else chance.randint(low, high)


def _buffers(
    declared: TensorArg, count: int, values: dict[str, Any], chance: random.Random, *, tame: bool
) -> list[Buffer]:
    """`count` tensors of one shape: each in memory of its own, or interleaved in one buffer."""
    shape = [dim(values) for dim in declared.dims]
    order = list(range(len(shape)))
    steps = [1] * len(shape)
    pads = [0] * len(shape)
    if declared.layout == "any":
        chance.shuffle(order)
        steps = [chance.choice((1, 2)) for _ in shape]
    if declared.layout != "contiguous" and len(shape) > 1:
        pads = [chance.choice((0, 0, 1, 3)) for _ in shape]
    shared = count if chance.random() < 0.5 and declared.layout != "contiguous" else 1
    strides = [0] * len(shape)
    stride = pitch = 1
    for dim in reversed(order):
        if dim == order[0]:  # the outermost dimension steps over all the tensors that interleave
            pitch = stride
            stride *= shared if len(shape) > 1 else 1
        strides[dim] = stride * steps[dim]
        stride *= max(shape[dim] * steps[dim] + pads[dim], 1)
    shared = shared if len(shape) > 1 else 1
    offset = chance.choice((0, 1, 3, 8))
    found: list[Buffer] = []
    for at in range(count):
        if at % shared == 0:
            base = _spread(_random_bits, stride + offset + 5, declared.dtype, chance)
        view = base.as_strided(shape, strides, offset + at % shared * pitch)
        found.append(Buffer(base, view))
        if declared.mode != "out" and view.numel():
            if declared.dtype in LIMITS:
                view.copy_(_elements(declared, shape, values, chance))
            else:
                floats = _ordinary if tame else _wild
                view.copy_(_spread(floats, view.numel(), declared.dtype, chance).view(shape))
    return found


def _spread(
    made: Callable[[int, torch.dtype, random.Random], torch.Tensor],
    count: int,
    dtype: torch.dtype,
    chance: random.Random,
) -> torch.Tensor:
    """So many random numbers; a pattern of them, if they are many."""
    pattern = made(min(count, _PATTERN), dtype, chance)
    return pattern.repeat(max(-(-count // _PATTERN), 1))[:count]


def _ordinary(count: int, dtype: torch.dtype, chance: random.Random) -> torch.Tensor:
    """Ordinary floats."""
    seeded = torch.Generator().manual_seed(chance.randrange(2**31))
    return torch.randn(count, generator=seeded).to(dtype)


def _wild(count: int, dtype: torch.dtype, chance: random.Random) -> torch.Tensor:
    """Ordinary floats, random bits and special values."""
    seeded = torch.Generator().manual_seed(chance.randrange(2**31))
    ordinary, wild = _ordinary(count, dtype, chance), _random_bits(count, dtype, chance)
    special = torch.tensor(_SPECIAL).to(dtype)
    picked = special[torch.randint(len(_SPECIAL), (count,), generator=seeded)]
    kind = torch.randint(3, (count,), generator=seeded)
    # Through integers, since a copy of a NaN may lose its payload.
    mixed = torch.where(kind == 0, bits(wild), torch.where(kind == 1, bits(picked), bits(ordinary)))
    return mixed.view(dtype)


def _random_bits(count: int, dtype: torch.dtype, chance: random.Random) -> torch.Tensor:
    """Any bits; of a bool those of True or False."""
    seeded = torch.Generator().manual_seed(chance.randrange(2**31))
    words = dtype if dtype in LIMITS else _WORDS[dtype.itemsize]
    if words == torch.int64:
        halves = torch.randint(-(2**31), 2**31, (count, 2), generator=seeded, dtype=torch.int64)
        found = (halves[:, 0] << 32) ^ halves[:, 1]
    else:
        limits = LIMITS.get(words) or (torch.iinfo(words).min, torch.iinfo(words).max)
        ends = limits[0], limits[1] + 1
        found = torch.randint(*ends, (count,), generator=seeded, dtype=torch.int64).to(words)
    return found if dtype in LIMITS else found.view(dtype)


def _elements(
    declared: TensorArg, shape: list[int], values: dict[str, int], chance: random.Random
) -> torch.Tensor:
    low, high = declared.values.ends(values, *LIMITS[declared.dtype])
    if low > high:
        raise UnsatisfiableError
    count = 1
    for size in shape:
        count *= size
    if declared.distinct:
        repeats = declared.repeats(values) if declared.repeats is not None else None
        drawn = _distinct(count, low, high, repeats, chance)
    elif chance.random() < 0.25:  # two values, so that elements are often equal to each other
        some = [_near_ends(low, high, chance) if low > 0 or high < 1 else 0]
        some.append(min(high, some[0] + 1))
        drawn = [chance.choice(some) for _ in range(min(count, 997))]
        drawn = [drawn[at % 997] for at in range(count)]
    elif count > 4096:  # a pattern of drawn values: wide tensors are drawn often
        some = [_near_ends(low, high, chance) for _ in range(997)]
        drawn = [some[at % 997] for at in range(count)]
    else:
        drawn = [_near_ends(low, high, chance) for _ in range(count)]
    return torch.tensor(drawn, dtype=torch.int64).to(declared.dtype).view(shape)


def _distinct(
    count: int, low: int, high: int, repeats: int | None, chance: random.Random
) -> list[int]:
    pool = [v for v in range(low, min(high, low + 8192) + 1) if v != repeats]
    chance.shuffle(pool)
    if repeats is None or not low <= repeats <= high:
        if len(pool) < count:
            raise UnsatisfiableError
        return pool[:count]
    real = min(len(pool), count - chance.randint(0, min(count, 3)))
    drawn = pool[:real] + [repeats] * (count - real)
    chance.shuffle(drawn)
    return drawn


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, so that NaN and -0.0 compare."""
    integer = tensor.dtype in LIMITS and tensor.dtype != torch.bool
    return tensor if integer else tensor.view(_WORDS[tensor.element_size()])
