"""Draws small worlds from a signature and compares kernel, reference and eager chain to the bit.

Needs torch alone. A world is one value for each argument: sizes that are not powers of two and
sometimes 0, values at and near the ends of their declared ranges, strided tensors with unaligned
starts, each inside a larger buffer of random bits. Buffers are compared whole, so that a store
outside its place is seen as well as a wrong one.
"""

from __future__ import annotations

import inspect
import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ._runtime import Expr, KgenCallError, Signature, SizeArg, TensorArg, cdiv

__all__ = ["Case", "World", "cdiv", "check", "check_operator", "check_refusals", "draw"]

WORLDS = 48
_PROGRAMS = 48  # of one launch at most: the interpreter takes milliseconds for each
_STATIC_CHOICES = (1, 2, 3, 4, 5, 7, 8)
_LIMITS = {
    torch.bool: (0, 1),
    torch.uint8: (0, 255),
    torch.int32: (-(2**31), 2**31 - 1),
    torch.int64: (-(2**63), 2**63 - 1),
}
_BITS = {
    torch.bool: torch.uint8,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
}
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


@dataclass
class Case:
    """A group under test.

    Attributes:
        signature: its parameters.
        fused: the generated function.
        reference: the torch reference: every argument, and the sizes named in `reference_sizes`.
        eager: the chain that the group replaces, if the spec names one.
        programs: how many programs a launch has, given the sizes.
        undefined: written places that several rows may own: (tensor, dimension, index).
        moved: tensors that only take over elements of others, NaN payloads and all.
        trusted: tensors whose places the spec trusts to be distinct.
        eager_ulps: units in the last place that the eager chain may be away, summing otherwise.
        edges: sizes at which the schedule changes (tile ends), by run-time size.
    """

    signature: Signature
    fused: Callable[..., None]
    reference: Callable[..., None]
    reference_sizes: tuple[str, ...]
    eager: Callable[..., None] | None
    programs: Callable[[dict[str, Any]], int]
    undefined: tuple[tuple[str, int, str], ...] = ()
    trusted: tuple[str, ...] = ()
    edges: dict[str, tuple[int, ...]] = field(default_factory=dict)
    eager_ulps: int = 0
    moved: tuple[str, ...] = ()

    def eager_defaults(self, world: World) -> dict[str, Any]:
        """The defaults that the eager chain has as parameters."""
        assert self.eager is not None
        named = set(inspect.signature(self.eager).parameters)
        return {n: world.values[n] for n in self.signature.defaults if n in named}

    def run_reference(self, world: World) -> None:
        """The reference on a world, in place."""
        sizes = {name: world.values[name] for name in self.reference_sizes}
        scalars = {name: world.values[name] for name in self.signature.scalars}
        absent = dict.fromkeys(world.absent, None)
        self.reference(**world.arguments() | absent | scalars, **sizes)


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
    values: dict[str, Any] = {}
    large = chance.choice(list(case.edges)) if case.edges and chance.random() < 0.25 else ""
    for name in signature.order:
        values[name] = _number(case, name, seed, chance, values, large=name == large)
    if case.programs(values) > _PROGRAMS:
        raise UnsatisfiableError
    usual = chance.random() < 0.5
    left_out = {name for name in signature.defaults if usual or chance.random() < 0.3}
    for name in left_out:
        values[name] = signature.defaults[name](values)
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
        fitting = [v for v in _STATIC_CHOICES if low <= v <= high] or [low, min(high, low + 3)]
        # Few combinations, since each one is a kernel to compile on a GPU.
        return random.Random(f"{case.signature.group} {name} {seed % 6}").choice([*fitting, low])
    if size:
        edges = [edge for edge in case.edges.get(name, ()) if low <= edge <= high]
        if large and edges:
            return chance.choice(edges)
        if seed % 8 == 1 or chance.random() < 0.04:
            return low
        least = max(low, min(high, 1))
        return chance.randint(least, min(high, least + chance.choice((1, 3, 6, 11))))
    if low == -math.inf:
        return chance.choice((1e-6, 1e-5, 0.5, 1.0, -2.0, 0.0))
    return _near_ends(low, high, chance)


def _near_ends(low: int, high: int, chance: random.Random) -> int:
    kind = chance.randrange(4)
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
            base = _random_bits(stride + offset + 5, declared.dtype, chance)
        view = base.as_strided(shape, strides, offset + at % shared * pitch)
        found.append(Buffer(base, view))
        if declared.mode != "out" and view.numel():
            if declared.dtype in _LIMITS:
                view.copy_(_elements(declared, shape, values, chance))
            else:
                view.copy_(_floats(declared.dtype, shape, chance, tame=tame))
    return found


def _floats(
    dtype: torch.dtype, shape: list[int], chance: random.Random, *, tame: bool
) -> torch.Tensor:
    """Ordinary numbers; or, if not `tame`, random bits and special values among them."""
    seeded = torch.Generator().manual_seed(chance.randrange(2**31))
    ordinary = torch.randn(shape, generator=seeded).to(dtype)
    if tame:
        return ordinary
    count = ordinary.numel()
    wild = _random_bits(count, dtype, chance).view(shape)
    special = torch.tensor(_SPECIAL).to(dtype)
    picked = special[torch.randint(len(_SPECIAL), (count,), generator=seeded)].view(shape)
    kind = torch.randint(3, shape, generator=seeded)
    # Through integers, since a copy of a NaN may lose its payload.
    bits = torch.where(
        kind == 0, _bits(wild), torch.where(kind == 1, _bits(picked), _bits(ordinary))
    )
    return bits.view(dtype)


def _random_bits(count: int, dtype: torch.dtype, chance: random.Random) -> torch.Tensor:
    if dtype not in _LIMITS:
        words = torch.int16 if dtype.itemsize == 2 else torch.int32
        return _random_bits(count, torch.int32, chance).to(words).view(dtype)
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
    return tensor.view(_BITS[tensor.dtype]) if tensor.dtype in _BITS else tensor


def differences(case: Case, start: World, a: World, b: World, ulps: int = 0) -> list[str]:
    """Where two results of a world differ, as text; empty if they agree to the bit."""
    found = []
    ignored = _undefined(case, start)
    for name, number, one, two in _pairs(a, b):
        differ = _bits(one) != _bits(two)
        if ulps and one.dtype.is_floating_point:
            differ &= (_ordered(one) - _ordered(two)).abs() > ulps
        if name not in case.moved and one.dtype.is_floating_point:
            differ &= ~(one.isnan() & two.isnan())
        if (name, number) in ignored:
            differ &= ~ignored[name, number]
        if differ.any():
            at = int(differ.nonzero()[0, 0])
            found.append(
                f"{name}: {int(differ.sum())} of {differ.numel()} elements differ, first at flat "
                f"{at}: {one[at].item()} and {two[at].item()}"
            )
    return found


def _ordered(tensor: torch.Tensor) -> torch.Tensor:
    """Integers in the order of the floats, neighbours one apart, both zeros at 0."""
    bits = _bits(tensor).to(torch.int64)
    least = -(2 ** (8 * tensor.element_size() - 1))
    return torch.where(bits < 0, least - bits, bits)


def _pairs(a: World, b: World) -> Iterator[tuple[str, int, torch.Tensor, torch.Tensor]]:
    """The buffers of two worlds side by side, on the host."""
    for name in a.buffers:
        for number, (one, two) in enumerate(zip(a.buffers[name], b.buffers[name], strict=True)):
            yield name, number, one.base.cpu(), two.base.cpu()


def _undefined(case: Case, start: World) -> dict[tuple[str, int], torch.Tensor]:
    """Masks of what the spec leaves undefined.

    That is what several points store to, by a spec that trusts them not to; and what several rows
    own by a `distinct: except`, with all that they read there.
    """
    host = start.clone(torch.device("cpu"))
    expected = host.clone()
    masks = {
        (name, number): torch.zeros(buffer.base.shape, dtype=torch.bool)
        for name, each in host.buffers.items()
        for number, buffer in enumerate(each)
    }
    stored: dict[int, list[torch.Tensor]] = {}
    # The reference modules of all groups of a package share this one.
    helpers: Any = sys.modules[case.reference.__module__.rpartition(".")[0] + "._reference"]
    helpers.recorder = lambda tensor, places: stored.setdefault(tensor.data_ptr(), []).append(
        places
    )
    try:
        case.run_reference(expected)
    finally:
        helpers.recorder = None
    for (name, number), marked in masks.items():
        pointer = expected.buffers[name][number].view.data_ptr()
        if pointer in stored:
            counts = torch.bincount(torch.cat(stored[pointer]), minlength=marked.numel())
            marked.logical_or_(counts > 1)
    if _repeated(case, start):
        _mark_shared(case, host, expected, masks)
    owned = {tensor for tensor, _, _ in case.undefined}
    for (name, number), mask in masks.items():
        if mask.any() and name not in case.trusted and not owned:
            raise AssertionError(
                f"{case.signature.group}: several points store to one place of {name}"
            )
        for (
            other,
            at,
        ), second in masks.items():  # tensors that share a buffer share what is undefined
            if host.buffers[other][at].base is host.buffers[name][number].base:
                mask.logical_or_(second)
    return masks


def _mark_shared(
    case: Case, host: World, expected: World, masks: dict[tuple[str, int], torch.Tensor]
) -> None:
    for tensor, dim, index in case.undefined:
        at = Expr(index)(host.values)
        declared = case.signature.tensors[tensor]
        view = host.buffers[tensor][0].view
        mask = masks[tensor, 0]
        marked = mask.as_strided(view.size(), view.stride(), view.storage_offset())
        marked.select(dim, at).fill_(True)
        low, high = declared.values.ends(host.values, *_LIMITS[declared.dtype])
        for value in {low, min(low + 1, high), min(low + 7, high), (low + high) // 2, high}:
            other = host.clone()
            other.buffers[tensor][0].view.select(dim, at).fill_(value)
            case.run_reference(other)
            for name, number, one, two in _pairs(other, expected):
                masks[name, number] |= _bits(one) != _bits(two)


def _repeated(case: Case, world: World) -> bool:
    for name, declared in case.signature.tensors.items():
        if declared.distinct:
            view = world.buffers[name][0].view
            if view.unique().numel() < view.numel():
                return True
    return False


def _same(a: World, b: World) -> bool:
    return all(torch.equal(_bits(one), _bits(two)) for _, _, one, two in _pairs(a, b))


def check(case: Case, device: torch.device, *, replay: bool = False) -> None:
    """Kernel = reference = eager chain over all the worlds; raises AssertionError where not.

    Args:
        case: the group.
        device: where to run; on the CPU the kernel runs in Triton's interpreter.
        replay: run the kernel by replaying a CUDA graph that captured it.
    """
    changed = 0
    worlds = WORLDS if device.type != "cpu" else WORLDS // 2  # the interpreter is slow
    for seed in range(worlds):
        start = draw(case, seed).clone(device)
        fused, reference = start.clone(), start.clone()
        if replay:
            _replay(case, fused)
        else:
            case.fused(**fused.arguments())
        case.run_reference(reference)
        results = [("kernel", fused)]
        if case.eager is not None and start.usual:
            eager = start.clone()
            case.eager(**eager.arguments() | case.eager_defaults(eager))
            results.append(("eager chain", eager))
        for what, result in results:
            ulps = case.eager_ulps if what == "eager chain" else 0
            found = differences(case, start, result, reference, ulps)
            if found:
                raise AssertionError(
                    f"{case.signature.group}, seed {seed}: {what} and reference differ at "
                    f"{start.values}\n" + "\n".join(found)
                )
        changed += not _same(reference, start)
    if changed < worlds // 3:
        raise AssertionError(f"{case.signature.group}: only {changed} worlds changed anything")


def _replay(case: Case, world: World) -> None:
    """Run the kernel twice in a CUDA graph, the state put back between: one capture, two replays."""
    before = world.clone()
    case.fused(**world.arguments())  # loads the module, which a capture may not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        case.fused(**world.arguments())
    for _ in range(2):
        for buffer, old in zip(world.every(), before.every(), strict=True):
            buffer.base.copy_(old.base)
        graph.replay()
    torch.cuda.synchronize()


def _whole(case: Case) -> World:
    """A world in which no tensor is empty."""
    for seed in range(WORLDS, WORLDS + 1000):
        world = draw(case, seed)
        if all(buffer.view.numel() for buffer in world.every()):
            return world
    raise AssertionError(f"{case.signature.group}: no world without an empty tensor")


def check_operator(case: Case, op: Callable[..., None], device: torch.device) -> None:
    """The registered operator: torch's opcheck, and torch.compile without a graph break."""
    start = _whole(case).clone(device)
    world = start.clone()
    torch.library.opcheck(op, (), world.arguments())
    world, expected = start.clone(), start.clone()

    def step(arguments: dict[str, torch.Tensor | int]) -> None:
        case.fused(**arguments)

    torch._dynamo.reset()  # noqa: SLF001 - each group is a program of its own
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
        if not _same(world, start):
            raise AssertionError(f"{what} of `{name}`: something was written by a refused call")


def _wrong_arguments(case: Case, world: World) -> Iterator[tuple[str, tuple[str, Any]]]:
    signature = case.signature
    for name, declared in signature.tensors.items():
        if name in world.absent:
            continue
        whole = [buffer.view for buffer in world.buffers[name]]
        for what, wrong in _wrong_tensors(signature, declared, whole[-1]):
            yield name, (what, [*whole[:-1], wrong] if name in world.lists else wrong)
        yield name, ("no tensor", None if not declared.optional else 7)
        if name in world.lists:
            yield name, ("a tensor for a list", whole[0])
            yield name, ("an empty list", [])
        if declared.mode == "in":
            continue
        for twin, kind in signature.tensors.items():
            same = (
                kind.dtype == declared.dtype and twin not in world.lists and name not in world.lists
            )
            if same and twin not in (name, *world.absent):
                other = world.buffers[twin][0].view
                if other.shape == whole[0].shape:
                    yield name, ("shared memory", lambda w, twin=twin: w.buffers[twin][0].view)
        if name in world.lists and len(whole) > 1:
            yield name, ("one tensor twice", [*whole[:-1], whole[0]])
    for name, scalar in signature.scalars.items():
        yield name, ("no number", "1")
        yield name, ("a bool", True)
        low, high = scalar.ends(world.values)
        if scalar.values.high is not None:
            yield name, ("a value past its range", high + 1)
        if scalar.values.low is not None:
            yield name, ("a value before its range", low - 1)


def _wrong_tensors(
    signature: Signature, declared: TensorArg, view: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    yield "another dtype", view.to(torch.int64 if view.dtype != torch.int64 else torch.int32)
    yield "another rank", view.unsqueeze(0)
    yield "another device", view.to("meta")
    fixed = any(dim.text not in signature.sizes for dim in declared.dims)
    uses = [dim.text for tensor in signature.tensors.values() for dim in tensor.dims]
    if fixed or any(uses.count(dim.text) > 1 for dim in declared.dims):
        yield "another shape", view.new_zeros([size + 1 for size in view.shape])
    if declared.layout != "any" and view.shape[-1] > 1:
        wide = view.new_zeros([*view.shape[:-1], 2 * view.shape[-1]])
        yield "another stride", wide[..., ::2]
    if declared.mode != "in" and view.shape[0] > 1:
        yield "an expanded dimension", view[:1].expand(view.shape)
