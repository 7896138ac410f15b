"""Compares kernel, reference and eager chain on drawn worlds, to the bit.

Needs torch alone. Buffers are compared whole, so that a store outside its place is seen as well as a wrong
one.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ._draw import WORLDS, Buffer, World, bits, draw
from ._runtime import LIMITS, Expr, KgenCallError, Signature, TensorArg, cdiv

__all__ = ["Buffer", "Case", "World", "cdiv", "check", "check_operator", "check_refusals", "draw"]


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


def differences(case: Case, start: World, a: World, b: World, ulps: int = 0) -> list[str]:
    """Where two results of a world differ, as text; empty if they agree to the bit."""
    found = []
    ignored = _undefined(case, start)
    for name, number, one, two in _pairs(a, b):
        differ = bits(one) != bits(two)
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
    words = bits(tensor).to(torch.int64)
    least = -(2 ** (8 * tensor.element_size() - 1))
    return torch.where(words < 0, least - words, words)


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
        low, high = declared.values.ends(host.values, *LIMITS[declared.dtype])
        for value in {low, min(low + 1, high), min(low + 7, high), (low + high) // 2, high}:
            other = host.clone()
            other.buffers[tensor][0].view.select(dim, at).fill_(value)
            case.run_reference(other)
            for name, number, one, two in _pairs(other, expected):
                masks[name, number] |= bits(one) != bits(two)


def _repeated(case: Case, world: World) -> bool:
    for name, declared in case.signature.tensors.items():
        if declared.distinct:
            view = world.buffers[name][0].view
            if view.unique().numel() < view.numel():
                return True
    return False


def _same(a: World, b: World) -> bool:
    return all(torch.equal(bits(one), bits(two)) for _, _, one, two in _pairs(a, b))


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
    if changed < worlds // 8:
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
