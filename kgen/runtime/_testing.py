"""Draws small worlds from a signature and compares kernel, reference and eager chain to the bit.

Needs torch alone. A world is one value for each argument: sizes that are not powers of two and
sometimes 0, values at and near the ends of their declared ranges, strided tensors with unaligned
starts, each inside a larger buffer of random bits. Buffers are compared whole, so that a store
outside its place is seen as well as a wrong one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ._runtime import Expr, KgenCallError, Signature, SizeArg, TensorArg

WORLDS = 48
_STATIC_CHOICES = (1, 2, 3, 4, 5, 7, 8)
_LIMITS = {
    torch.bool: (0, 1),
    torch.uint8: (0, 255),
    torch.int32: (-(2**31), 2**31 - 1),
    torch.int64: (-(2**63), 2**63 - 1),
}


class UnsatisfiableError(Exception):
    """The drawn sizes leave no legal value for something; draw again."""


@dataclass
class Buffer:
    """A tensor inside a larger flat buffer."""

    base: torch.Tensor
    view: torch.Tensor

    def clone(self, device: torch.device | None = None) -> Buffer:
        """The same bits and layout in memory of their own."""
        base = self.base.clone() if device is None else self.base.to(device, copy=True)
        view = self.view
        return Buffer(base, base.as_strided(view.size(), view.stride(), view.storage_offset()))


@dataclass
class World:
    """One value for each argument of a group."""

    values: dict[str, int]
    scalars: dict[str, int]
    buffers: dict[str, Buffer]

    def clone(self, device: torch.device | None = None) -> World:
        """The same world in memory of its own."""
        buffers = {name: buffer.clone(device) for name, buffer in self.buffers.items()}
        return World(self.values, self.scalars, buffers)

    def arguments(self) -> dict[str, torch.Tensor | int]:
        """The keyword arguments of a call."""
        return {**{name: buffer.view for name, buffer in self.buffers.items()}, **self.scalars}


@dataclass
class Case:
    """A group under test.

    Attributes:
        signature: its parameters.
        fused: the generated function.
        reference: the torch reference: every argument, and the sizes named in `reference_sizes`.
        eager: the chain that the group replaces, if the spec names one.
        undefined: written places that several rows may own: (tensor, dimension, index).
        edges: sizes at which the schedule changes (tile ends), tried for every run-time size.
    """

    signature: Signature
    fused: Callable[..., None]
    reference: Callable[..., None]
    reference_sizes: tuple[str, ...]
    eager: Callable[..., None] | None
    undefined: tuple[tuple[str, int, str], ...] = ()
    edges: tuple[int, ...] = ()

    def run_reference(self, world: World) -> None:
        """The reference on a world, in place."""
        sizes = {name: world.values[name] for name in self.reference_sizes}
        self.reference(**world.arguments(), **sizes)


def draw(case: Case, seed: int) -> World:
    """The world of a seed: the same on every machine."""
    for attempt in range(200):
        chance = random.Random(f"{case.signature.group} {seed} {attempt}")
        try:
            return _draw(case, seed if attempt == 0 else seed + WORLDS, chance)
        except UnsatisfiableError:
            continue
    raise AssertionError(f"{case.signature.group}: no world satisfies the declared ranges")


def _draw(case: Case, seed: int, chance: random.Random) -> World:
    signature = case.signature
    values: dict[str, int] = {}
    large = (
        chance.choice(list(signature.sizes)) if signature.sizes and chance.random() < 0.25 else ""
    )
    for name in signature.order:
        values[name] = _number(case, name, seed, chance, values, large=name == large)
    buffers = {name: _buffer(tensor, values, chance) for name, tensor in signature.tensors.items()}
    return World(values, {name: values[name] for name in signature.scalars}, buffers)


def _number(
    case: Case, name: str, seed: int, chance: random.Random, values: dict[str, int], *, large: bool
) -> int:
    declared = case.signature.declared(name)
    size = isinstance(declared, SizeArg)
    if isinstance(declared, SizeArg) and declared.derived is not None:
        return declared.derived(values)
    low, high = declared.ends(values)
    if low > high:
        raise UnsatisfiableError
    if declared.static:
        fitting = [v for v in _STATIC_CHOICES if low <= v <= high] or [low, min(high, low + 3)]
        # Few combinations, since each one is a kernel to compile on a GPU.
        return random.Random(f"{case.signature.group} {name} {seed % 6}").choice([*fitting, low])
    if size:
        edges = [edge for edge in case.edges if low <= edge <= high]
        if large and edges:
            return chance.choice(edges)
        if seed % 8 == 1 or chance.random() < 0.04:
            return low
        least = max(low, min(high, 1))
        return chance.randint(least, min(high, least + chance.choice((1, 3, 6, 11))))
    return _near_ends(low, high, chance)


def _near_ends(low: int, high: int, chance: random.Random) -> int:
    kind = chance.randrange(4)
    if kind == 0:
        return min(high, low + chance.randrange(3))
    if kind == 1:
        return max(low, high - chance.randrange(3))
    return chance.randint(low, min(high, low + 40)) if kind == 2 else chance.randint(low, high)


def _buffer(declared: TensorArg, values: dict[str, int], chance: random.Random) -> Buffer:
    shape = [dim(values) for dim in declared.dims]
    order = list(range(len(shape)))
    steps = [1] * len(shape)
    pads = [0] * len(shape)
    if declared.layout == "any":
        chance.shuffle(order)
        steps = [chance.choice((1, 2)) for _ in shape]
    if declared.layout != "contiguous" and len(shape) > 1:
        pads = [chance.choice((0, 0, 1, 3)) for _ in shape]
    strides = [0] * len(shape)
    stride = 1
    for dim in reversed(order):
        strides[dim] = stride * steps[dim]
        stride *= max(shape[dim] * steps[dim] + pads[dim], 1)
    offset = chance.choice((0, 1, 3, 8))
    base = _random_bits(stride + offset + 5, declared.dtype, chance)
    view = base.as_strided(shape, strides, offset)
    if declared.mode != "out" and view.numel():
        view.copy_(_elements(declared, shape, values, chance))
    return Buffer(base, view)


def _random_bits(count: int, dtype: torch.dtype, chance: random.Random) -> torch.Tensor:
    low, high = _LIMITS[dtype]
    seeded = torch.Generator().manual_seed(chance.randrange(2**31))
    if dtype == torch.int64:
        words = torch.randint(-(2**31), 2**31, (count, 2), generator=seeded, dtype=torch.int64)
        return (words[:, 0] << 32) ^ words[:, 1]
    return torch.randint(low, high + 1, (count,), generator=seeded, dtype=torch.int64).to(dtype)


def _elements(
    declared: TensorArg, shape: list[int], values: dict[str, int], chance: random.Random
) -> torch.Tensor:
    low, high = declared.values.ends(values, *_LIMITS[declared.dtype])
    if low > high:
        raise UnsatisfiableError
    count = 1
    for size in shape:
        count *= size
    if declared.distinct:
        repeats = declared.repeats(values) if declared.repeats is not None else None
        drawn = _distinct(count, low, high, repeats, chance)
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
    if repeats is None:
        if len(pool) < count:
            raise UnsatisfiableError
        return pool[:count]
    real = min(len(pool), count - chance.randint(0, min(count, 3)))
    drawn = pool[:real] + [repeats] * (count - real)
    chance.shuffle(drawn)
    return drawn


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def differences(case: Case, start: World, a: World, b: World) -> list[str]:
    """Where two results of a world differ, as text; empty if they agree to the bit."""
    found = []
    ignored = _undefined(case, start)
    for name in a.buffers:
        one, two = a.buffers[name].base.cpu(), b.buffers[name].base.cpu()
        differ = _bits(one) != _bits(two)
        if name in ignored:
            differ &= ~ignored[name]
        if differ.any():
            at = int(differ.nonzero()[0, 0])
            found.append(
                f"{name}: {int(differ.sum())} of {differ.numel()} elements differ, first at flat "
                f"{at}: {one[at].item()} and {two[at].item()}"
            )
    return found


def _undefined(case: Case, start: World) -> dict[str, torch.Tensor]:
    """Masks of what the spec leaves undefined: what several rows own, and what they read there."""
    if not case.undefined or not _repeated(case, start):
        return {}
    host = start.clone(torch.device("cpu"))
    expected = host.clone()
    case.run_reference(expected)
    masks: dict[str, torch.Tensor] = {
        name: torch.zeros(buffer.base.shape, dtype=torch.bool)
        for name, buffer in host.buffers.items()
    }
    for tensor, dim, index in case.undefined:
        at = Expr(index)(start.values)
        declared = case.signature.tensors[tensor]
        marked = Buffer(masks[tensor], _strided(masks[tensor], host.buffers[tensor].view))
        marked.view.select(dim, at).fill_(True)
        low, high = declared.values.ends(start.values, *_LIMITS[declared.dtype])
        for value in {low, min(low + 1, high), min(low + 7, high), (low + high) // 2, high}:
            other = host.clone()
            other.buffers[tensor].view.select(dim, at).fill_(value)
            case.run_reference(other)
            for name in masks:
                masks[name] |= _bits(other.buffers[name].base) != _bits(expected.buffers[name].base)
    return masks


def _strided(base: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return base.as_strided(like.size(), like.stride(), like.storage_offset())


def _repeated(case: Case, world: World) -> bool:
    for name, declared in case.signature.tensors.items():
        if declared.distinct:
            view = world.buffers[name].view
            if view.unique().numel() < view.numel():
                return True
    return False


def check(case: Case, device: torch.device, *, replay: bool = False) -> None:
    """Kernel = reference = eager chain over all the worlds; raises AssertionError where not.

    Args:
        case: the group.
        device: where to run; on the CPU the kernel runs in Triton's interpreter.
        replay: run the kernel by replaying a CUDA graph that captured it.
    """
    changed = 0
    for seed in range(WORLDS):
        start = draw(case, seed).clone(device)
        fused, reference = start.clone(), start.clone()
        if replay:
            _replay(case, fused)
        else:
            case.fused(**fused.arguments())
        case.run_reference(reference)
        results = [("kernel", fused)]
        if case.eager is not None:
            eager = start.clone()
            case.eager(**eager.arguments())
            results.append(("eager chain", eager))
        for what, result in results:
            found = differences(case, start, result, reference)
            if found:
                raise AssertionError(
                    f"{case.signature.group}, seed {seed}: {what} and reference differ at "
                    f"{start.values}\n" + "\n".join(found)
                )
        changed += any(
            not torch.equal(_bits(reference.buffers[n].base), _bits(start.buffers[n].base))
            for n in start.buffers
        )
    if changed < WORLDS // 3:
        raise AssertionError(f"{case.signature.group}: only {changed} worlds changed anything")


def _replay(case: Case, world: World) -> None:
    """Run the kernel twice in a CUDA graph, the state put back between: one capture, two replays."""
    before = world.clone()
    case.fused(**world.arguments())  # loads the module, which a capture may not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        case.fused(**world.arguments())
    for _ in range(2):
        for name, buffer in world.buffers.items():
            buffer.base.copy_(before.buffers[name].base)
        graph.replay()
    torch.cuda.synchronize()


def _whole(case: Case) -> World:
    """A world in which no tensor is empty."""
    for seed in range(WORLDS, WORLDS + 1000):
        world = draw(case, seed)
        if all(buffer.view.numel() > 1 for buffer in world.buffers.values()):
            return world
    raise AssertionError(f"{case.signature.group}: no world without an empty tensor")


def check_operator(case: Case, op: Callable[..., None], device: torch.device) -> None:
    """The registered operator: torch's opcheck, and torch.compile without a graph break."""
    start = _whole(case).clone(device)
    world = start.clone()
    torch.library.opcheck(op, tuple(world.arguments().values()))
    world, expected = start.clone(), start.clone()

    def step(arguments: dict[str, torch.Tensor | int]) -> None:
        case.fused(**arguments)

    torch.compile(step, fullgraph=True, backend="aot_eager")(world.arguments())
    case.run_reference(expected)
    found = differences(case, start, world, expected)
    if found:
        raise AssertionError(f"{case.signature.group}: compiled step differs\n" + "\n".join(found))


def check_refusals(case: Case, device: torch.device) -> None:
    """Wrong calls raise KgenCallError that names the argument, and write nothing."""
    start = _whole(case).clone(device)
    for name, (what, value) in _wrong_arguments(case, start):
        world = start.clone()
        arguments = {**world.arguments(), name: value(world) if callable(value) else value}
        try:
            case.fused(**arguments)
        except KgenCallError as error:
            if name not in str(error) or case.signature.group not in str(error):
                raise AssertionError(
                    f"{what}: the error does not name `{name}`: {error}"
                ) from error
        else:
            raise AssertionError(f"{case.signature.group}: {what} of `{name}` was accepted")
        for each in world.buffers:
            if not torch.equal(_bits(world.buffers[each].base), _bits(start.buffers[each].base)):
                raise AssertionError(f"{what}: `{each}` was written by a refused call")


def _wrong_arguments(case: Case, world: World) -> Iterator[tuple[str, tuple[str, Any]]]:
    signature = case.signature
    for name, declared in signature.tensors.items():
        view = world.buffers[name].view
        other = torch.int64 if view.dtype != torch.int64 else torch.int32
        yield name, ("no tensor", None)
        yield name, ("another dtype", view.to(other))
        yield name, ("another rank", view.unsqueeze(0))
        yield name, ("another device", view.to("meta"))
        fixed = any(dim.text not in signature.sizes for dim in declared.dims)
        shared = sum(
            dim.text == d.text
            for t in signature.tensors.values()
            for d in t.dims
            for dim in declared.dims
        )
        if fixed or shared > len(declared.dims):
            longer = [size + 1 for size in view.shape]
            yield name, ("another shape", view.new_zeros(longer))
        if declared.layout != "any" and view.shape[-1] > 1:
            wide = view.new_zeros([*view.shape[:-1], 2 * view.shape[-1]])
            yield name, ("another stride", wide[..., ::2])
        if declared.mode != "in" and view.shape[0] > 1:
            yield name, ("an expanded dimension", view[:1].expand(view.shape))
        for twin, kind in signature.tensors.items():
            same = kind.dtype == declared.dtype and world.buffers[twin].view.shape == view.shape
            if twin != name and same and declared.mode != "in":
                yield name, ("shared memory", lambda w, twin=twin: w.buffers[twin].view)
    for name, scalar in signature.scalars.items():
        yield name, ("a float", 1.5)
        yield name, ("a bool", True)
        if scalar.values.high is not None:
            yield name, ("a value past its range", scalar.values.high(world.values) + 1)
        if scalar.values.low is not None:
            yield name, ("a value before its range", scalar.values.low(world.values) - 1)
