"""Compares kernel, reference and eager chain on random worlds, to the bit.

Needs torch and triton. Buffers are compared whole, so that a store outside its place is seen as well as a
wrong one.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ._draw import WORLDS, Buffer, World, bits, draw
from ._operator import Operator
from ._runtime import LIMITS, KgenCallError, Signature, TensorArg, Values
from ._shared import Places, shared
from ._trust import Inputs

__all__ = ["Buffer", "Case", "World", "check", "check_operator", "check_refusals", "draw"]

Masks = dict[tuple[str, int], torch.Tensor]

# What an element of floats may be; the first stands for what another row stores.
_FLOATS = (0.0, 0.0, 1.0, -3.0, float("nan"), float("inf"))


@dataclass
class Case:
    """A group under test.

    Attributes:
        operator: the group.
        eager: the chain that the group replaces, if the spec names one.
        eager_ulps: units in the last place that the eager chain may be away, summing otherwise.
        moved: tensors that only take over elements of others, NaN payloads and all.
        trusted: what the spec trusts, and why: loads, places and arithmetic to stay inside; and, by its
            name, a tensor of which no place is stored to twice.
        edges: sizes at which the schedule changes (tile ends), by run-time size.
        fused: the generated function.
    """

    operator: Operator
    eager: Callable[..., None] | None = None
    eager_ulps: int = 0
    moved: tuple[str, ...] = ()
    trusted: dict[str, str] = field(default_factory=dict)
    edges: dict[str, tuple[int, ...]] = field(default_factory=dict)
    fused: Any = None

    def __post_init__(self) -> None:
        self.fused = self.fused or self.operator.public

    @property
    def signature(self) -> Signature:
        """The group's parameters."""
        return self.operator.signature

    def programs(self, values: Values) -> int:
        """How many programs a launch has."""
        return self.operator.launch.count(values)

    def eager_defaults(self, world: World) -> dict[str, Any]:
        """The defaults that the eager chain has as parameters."""
        assert self.eager is not None
        named = set(inspect.signature(self.eager).parameters)
        return {n: world.values[n] for n in self.signature.defaults if n in named}

    def run_reference(self, world: World) -> None:
        """The reference on a world, in place."""
        self.operator.run_reference(world.arguments(), world.values)

    def keep(self, world: World, chance: random.Random) -> str:
        """Change a world until it keeps what the spec trusts; in words what it breaks, or nothing."""
        if not self.trusted or not self.signature.runs(world.values):
            return ""
        run, apart = self._reference(world.values), frozenset(self.trusted) & {*world.buffers}
        arguments = world.arguments()
        return Inputs(self.signature, run, arguments, world.values, apart, chance).keep()

    def shared(self, arguments: Mapping[str, Any], values: Values) -> Places:
        """The elements of each tensor that rows share, by a value that the spec lets repeat."""
        if not self.signature.runs(values):
            return {}
        return shared(self.signature, self._reference(values), arguments, values)

    def _reference(self, values: Values) -> Callable[[dict[str, Any]], None]:
        return lambda given: self.operator.run_reference(given, values)


def differences(
    case: Case, start: World, a: World, b: World, ulps: int = 0, ignored: Masks | None = None
) -> list[str]:
    """Where two results of a world differ, as text; empty if they agree to the bit.

    `ignored` is what `undefined` gives, if it is known.
    """
    found = []
    ignored = undefined(case, start) if ignored is None else ignored
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


def undefined(case: Case, start: World) -> Masks:
    """Masks of what the spec leaves undefined: places that rows share, and what depends on them."""
    host = start.clone(torch.device("cpu"))
    places = {
        n: sorted(each) for n, each in case.shared(host.arguments(), host.values).items() if each
    }
    bases: dict[int, torch.Tensor] = {}  # tensors that share a buffer share what is undefined
    masks = {
        (name, number): bases.setdefault(id(b.base), torch.zeros(b.base.shape, dtype=torch.bool))
        for name, each in host.buffers.items()
        for number, b in enumerate(each)
    }
    expected = host.clone()
    if places:
        case.run_reference(expected)
    for attempt in range(len(_FLOATS) if places else 0):
        other = host.clone()
        for name, flats in places.items():
            for number, at in _elements(host, name, flats):
                buffer = host.buffers[name][number]
                mask = masks[name, number].as_strided(
                    buffer.view.size(), buffer.view.stride(), buffer.view.storage_offset()
                )
                mask[at] = True
                given = other.buffers[name][number].view
                # What another row stores there, or anything.
                stored = expected.buffers[name][number].view[at]
                given[at] = stored if not attempt else _anything(case, name, host.values, attempt)
        try:
            case.run_reference(other)
        except (IndexError, OverflowError):  # what is trusted does not hold
            continue
        for name, number, one, two in _pairs(other, expected):
            masks[name, number].logical_or_(bits(one) != bits(two))
    return masks


def _elements(
    world: World, name: str, flats: list[int]
) -> Iterator[tuple[int, tuple[torch.Tensor, ...]]]:
    """The elements of a tensor or a list with these numbers: which tensor, and their indices."""
    count = world.buffers[name][0].view.numel()
    for number, buffer in enumerate(world.buffers[name]):
        own = [flat % count for flat in flats if flat // count == number]
        yield number, torch.unravel_index(torch.tensor(own, dtype=torch.int64), buffer.view.shape)


def _anything(case: Case, name: str, values: Values, attempt: int) -> float:
    """A value that an element may have."""
    declared = case.signature.tensors[name]
    if declared.dtype not in LIMITS:
        return _FLOATS[attempt]
    low, high = declared.values.ends(values, *LIMITS[declared.dtype])
    some: tuple[int, ...] = (low, min(low + 1, high), min(low + 7, high), (low + high) // 2, high)
    return some[attempt - 1]


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
        ignored = undefined(case, start)
        for what, result in results:
            ulps = case.eager_ulps if what == "eager chain" else 0
            found = differences(case, start, result, reference, ulps, ignored)
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


def check_operator(case: Case, device: torch.device) -> None:
    """The registered operator: torch's opcheck, and torch.compile without a graph break."""
    start = _whole(case).clone(device)
    world = start.clone()
    torch.library.opcheck(case.operator.op, (), world.arguments())
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
        wrongs = [*_wrong_tensors(declared, whole[-1])]
        for dim in _bound(signature, world, name):
            shape = [size + (at == dim) for at, size in enumerate(whole[-1].shape)]
            wrongs.append(("another shape", whole[-1].new_zeros(shape)))
        if len(world.every()) - len(world.absent) > 1:
            wrongs.append(("another device", whole[-1].to("meta")))
        for what, wrong in wrongs:
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


def _bound(signature: Signature, world: World, name: str) -> Iterator[int]:
    """The dimensions of a tensor that something else of a call fixes."""
    given = {n: tensor for n, tensor in signature.tensors.items() if n not in world.absent}
    texts = [dim.text for tensor in given.values() for dim in tensor.dims]
    texts += [tensor.length.text for tensor in given.values() if tensor.length is not None]
    made_of = [
        {source for used in dim.names & {*signature.sizes} for source in signature.sources(used)}
        for tensor in given.values()
        for dim in tensor.dims
    ]
    for dim, expr in enumerate(signature.tensors[name].dims):
        own = {s for used in expr.names & {*signature.sizes} for s in signature.sources(used)}
        loose = {source for source in own if source not in texts}  # read off what is made of it
        count = sum(bool(loose & sources) for sources in made_of)
        fixed = expr.text not in own and (not loose or count > 1)
        if fixed or texts.count(expr.text) > 1 or len(world.buffers[name]) > 1:
            yield dim


def _wrong_tensors(declared: TensorArg, view: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    yield "another dtype", view.to(torch.int64 if view.dtype != torch.int64 else torch.int32)
    yield "another rank", view.unsqueeze(0)
    if declared.layout != "any" and view.shape[-1] > 1:
        wide = view.new_zeros([*view.shape[:-1], 2 * view.shape[-1]])
        yield "another stride", wide[..., ::2]
    if declared.mode != "in" and view.shape[0] > 1:
        yield "an expanded dimension", view[:1].expand(view.shape)
    if declared.mode != "in" and sum(size > 1 for size in view.shape) > 1:
        memory = view.new_zeros(sum(view.shape))
        yield "elements that overlap", memory.as_strided(view.shape, [1] * view.dim())
