"""A group in each of torch's hands: what torch does to a program before, while or instead of running it.

Each of `RIGHT` makes a call, whose tensors then hold what a plain call leaves in them; each of `REFUSED` must
raise. They know no group: a call is a test case (kgen/runtime/_testing.py) and its arguments.
"""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

Arguments = dict[str, Any]
Hand = Callable[[Any, Arguments], list[Arguments] | None]  # gives what else must hold the same


def tensors_of(arguments: Arguments) -> list[Tensor]:
    return [each for each in pytree.tree_leaves(arguments) if isinstance(each, Tensor)]


def rebuilt(arguments: Arguments, tensors: list[Tensor]) -> Arguments:
    """The arguments with other tensors in the places of theirs."""
    left = iter(tensors)
    return pytree.tree_map(lambda e: next(left) if isinstance(e, Tensor) else e, arguments)


def copied(arguments: Arguments) -> Arguments:
    """The same call on memory of its own, with the same strides."""

    def apart(tensor: Tensor) -> Tensor:
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        reach = sum((size - 1) * stride for size, stride in steps) + 1 if tensor.numel() else 0
        own = torch.empty(reach, dtype=tensor.dtype, device=tensor.device)
        own = own.as_strided(tensor.shape, tensor.stride())
        return own.copy_(tensor) if tensor.numel() else own

    return rebuilt(arguments, [apart(each) for each in tensors_of(arguments)])


def on_tensors(call: Callable[..., object], arguments: Arguments) -> Callable[..., Tensor]:
    """A call as a function of its tensors alone; it gives 0."""

    def program(*tensors: Tensor) -> Tensor:
        call(**rebuilt(arguments, list(tensors)))
        return torch.zeros(())

    return program


# Right.


def plain(case: Any, arguments: Arguments) -> None:
    case.fused(**arguments)


def inference(case: Any, arguments: Arguments) -> None:
    with torch.inference_mode():
        own = copied(arguments)
        case.fused(**own)
    for mine, theirs in zip(tensors_of(own), tensors_of(arguments), strict=True):
        if mine.is_inference():
            theirs.copy_(mine) if theirs.numel() and not _expanded(theirs) else None


def inference_tensors_outside(case: Any, arguments: Arguments) -> None:
    with torch.inference_mode():
        own = copied(arguments)
    case.fused(**own)
    for mine, theirs in zip(tensors_of(own), tensors_of(arguments), strict=True):
        theirs.copy_(mine) if theirs.numel() and not _expanded(theirs) else None


def _expanded(tensor: Tensor) -> bool:
    return any(s == 0 and n > 1 for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def operator(case: Any, arguments: Arguments) -> None:
    case.operator.op(**arguments)


def compiled(call: Callable[..., object], arguments: Arguments, **options: Any) -> None:
    torch._dynamo.reset()
    torch.compile(lambda given: call(**given), fullgraph=True, **options)(arguments)


def compiled_dynamic(case: Any, arguments: Arguments) -> None:
    compiled(case.fused, arguments, backend="aot_eager", dynamic=True)


def compiled_eager_backend(case: Any, arguments: Arguments) -> None:
    compiled(case.fused, arguments, backend="eager")


def compiled_inductor(case: Any, arguments: Arguments) -> None:
    compiled(case.fused, arguments, backend="inductor", dynamic=True)


def compiled_reduce_overhead(case: Any, arguments: Arguments) -> None:
    compiled(case.fused, arguments, mode="reduce-overhead")


def compiled_operator_object(case: Any, arguments: Arguments) -> None:
    compiled(case.operator, arguments, backend="aot_eager")


def _traced(case: Any, arguments: Arguments, **options: Any) -> None:
    program = on_tensors(case.fused, arguments)
    graph = make_fx(program, **options)(*tensors_of(copied(arguments)))
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert targets.count(case.operator.op) == 1, targets
    graph(*tensors_of(arguments))


def make_fx_real(case: Any, arguments: Arguments) -> None:
    case.fused(**copied(arguments))  # a call that was right before is seen all the same
    _traced(case, arguments, tracing_mode="real")


def make_fx_fake(case: Any, arguments: Arguments) -> None:
    _traced(case, arguments, tracing_mode="fake")


def make_fx_symbolic(case: Any, arguments: Arguments) -> None:
    _traced(case, arguments, tracing_mode="symbolic")


def make_fx_pre_dispatch(case: Any, arguments: Arguments) -> None:
    _traced(case, arguments, pre_dispatch=True)


class Program(torch.nn.Module):
    def __init__(self, program: Callable[..., Tensor]) -> None:
        super().__init__()
        self.program = program

    def forward(self, tensors: list[Tensor]) -> Tensor:
        return self.program(*tensors)


def _exported(case: Any, arguments: Arguments, *, strict: bool) -> Any:
    program = Program(on_tensors(case.fused, arguments))
    return torch.export.export(program, (tensors_of(copied(arguments)),), strict=strict)


def exported(case: Any, arguments: Arguments) -> None:
    _exported(case, arguments, strict=False).module()(tensors_of(arguments))


def exported_strictly(case: Any, arguments: Arguments) -> None:
    _exported(case, arguments, strict=True).module()(tensors_of(arguments))


def exported_saved_and_loaded(case: Any, arguments: Arguments) -> None:
    file = io.BytesIO()
    torch.export.save(_exported(case, arguments, strict=False).run_decompositions({}), file)
    file.seek(0)
    torch.export.load(file).module()(tensors_of(arguments))


def deep_copies(case: Any, arguments: Arguments) -> list[Arguments]:
    class Held(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.operator, self.function = case.operator, case.fused
            floats = [t for t in tensors_of(arguments) if t.is_floating_point()]
            self.weight = torch.nn.Parameter(floats[0] if floats else torch.zeros(1))

    module = copy.deepcopy(Held())
    assert module.operator is copy.copy(case.operator) is case.operator
    assert pickle.loads(pickle.dumps(case.operator)) is case.operator
    assert pickle.loads(pickle.dumps(case.fused)) is case.fused
    own = copy.deepcopy(arguments)
    before = [t.clone() for t in tensors_of(arguments)]
    module.operator(**own)
    assert all(map(_same, tensors_of(arguments), before))
    module.function(**arguments)
    return [own]


def _same(a: Tensor, b: Tensor) -> bool:
    one, two = (t.reshape(-1).clone(memory_format=torch.contiguous_format) for t in (a, b))
    return torch.equal(one.view(torch.uint8), two.view(torch.uint8))


def threads(case: Any, arguments: Arguments) -> list[Arguments]:
    """Four threads call it at once, each on memory of its own; all come to the same."""
    every = [arguments, *(copied(arguments) for _ in range(3))]
    failed: list[BaseException] = []

    def work(own: Arguments) -> None:
        try:
            case.fused(**own)
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failed.append(error)

    running = [threading.Thread(target=work, args=(own,)) for own in every]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failed, failed
    return every[1:]


class Seeing(TorchDispatchMode):
    """A mode that notes which operators it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def dispatch_mode(case: Any, arguments: Arguments) -> None:
    with Seeing() as mode:
        case.fused(**arguments)
    assert mode.seen == [case.operator.op]


class Wrapped(Tensor):
    """A tensor without memory of its own, whose operators run on that of another."""

    @staticmethod
    def __new__(cls, inner):
        made = Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), dtype=inner.dtype, device=inner.device
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def inner(value: Any) -> Any:
            return value.inner if isinstance(value, cls) else value

        return func(*pytree.tree_map(inner, args), **pytree.tree_map(inner, kwargs or {}))


def wrapped(case: Any, arguments: Arguments) -> None:
    case.fused(**rebuilt(arguments, [Wrapped(each) for each in tensors_of(arguments)]))


class Named(Tensor):
    """A class of tensors that only has a name, as those of weights in engines."""


def named_subclass(case: Any, arguments: Arguments) -> None:
    case.fused(**rebuilt(arguments, [t.as_subclass(Named) for t in tensors_of(arguments)]))


def other_defaults(case: Any, arguments: Arguments) -> None:
    """What a program sets as defaults is nothing to a call."""
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            case.fused(**arguments)
    finally:
        torch.set_default_dtype(kept)


def autocast(case: Any, arguments: Arguments) -> None:
    device = tensors_of(arguments)[0].device.type
    with torch.autocast(device, dtype=torch.bfloat16):
        case.fused(**arguments)


# Nothing is done, and nothing is wrong.


def fake(case: Any, arguments: Arguments) -> None:
    with FakeTensorMode() as mode:
        own = rebuilt(arguments, [mode.from_tensor(each) for each in tensors_of(arguments)])
        case.fused(**own)
    case.fused(**own)


def meta(case: Any, arguments: Arguments) -> None:
    own = rebuilt(arguments, [each.to("meta") for each in tensors_of(arguments)])
    own = rebuilt(
        arguments,
        [
            new.new_empty_strided(old.shape, old.stride())
            for new, old in zip(tensors_of(own), tensors_of(arguments), strict=True)
        ],
    )
    case.fused(**own)
    case.operator.op(**own)


# Refused.


def functionalize(case: Any, arguments: Arguments) -> None:
    torch.func.functionalize(on_tensors(case.fused, arguments))(*tensors_of(arguments))


def functionalized_operator(case: Any, arguments: Arguments) -> None:
    torch.func.functionalize(on_tensors(case.operator.op, arguments))(*tensors_of(arguments))


def traced_functionalized(case: Any, arguments: Arguments) -> None:
    program = torch.func.functionalize(on_tensors(case.fused, arguments))
    make_fx(program)(*tensors_of(arguments))


def jit_trace(case: Any, arguments: Arguments) -> None:
    inputs = tuple(tensors_of(arguments))
    torch.jit.trace(on_tensors(case.fused, arguments), inputs, check_trace=False)


def jit_trace_of_operator(case: Any, arguments: Arguments) -> None:
    inputs = tuple(tensors_of(arguments))
    torch.jit.trace(on_tensors(case.operator.op, arguments), inputs, check_trace=False)


def vmap(case: Any, arguments: Arguments) -> None:
    many = [torch.stack([each, each]) for each in tensors_of(arguments)]
    torch.vmap(on_tensors(case.fused, arguments))(*many)


def vmapped_operator(case: Any, arguments: Arguments) -> None:
    many = [torch.stack([each, each]) for each in tensors_of(arguments)]
    torch.vmap(on_tensors(case.operator.op, arguments))(*many)


def grad(case: Any, arguments: Arguments) -> None:
    _differentiated(case.fused, arguments)


def grad_of_operator(case: Any, arguments: Arguments) -> None:
    _differentiated(case.operator.op, arguments)


def _differentiated(call: Callable[..., object], arguments: Arguments) -> None:
    tensors = tensors_of(arguments)
    at = next(at for at, each in enumerate(tensors) if each.is_floating_point())

    def program(by: Tensor) -> Tensor:
        on_tensors(call, arguments)(*tensors[:at], by, *tensors[at + 1 :])
        return by.float().sum()

    torch.func.grad(program)(tensors[at])


QUICK: dict[str, Hand] = {
    each.__name__: each
    for each in (
        plain,
        inference,
        inference_tensors_outside,
        operator,
        make_fx_real,
        make_fx_fake,
        make_fx_symbolic,
        make_fx_pre_dispatch,
        deep_copies,
        threads,
        dispatch_mode,
        wrapped,
        named_subclass,
        other_defaults,
        autocast,
        exported,
    )
}
SLOW: dict[str, Hand] = {
    each.__name__: each
    for each in (
        compiled_eager_backend,
        compiled_dynamic,
        compiled_inductor,
        compiled_reduce_overhead,
        compiled_operator_object,
        exported_strictly,
        exported_saved_and_loaded,
    )
}
IDLE: dict[str, Hand] = {each.__name__: each for each in (fake, meta)}
REFUSED: dict[str, Hand] = {
    each.__name__: each
    for each in (
        functionalize,
        functionalized_operator,
        traced_functionalized,
        vmap,
        vmapped_operator,
        jit_trace,
        jit_trace_of_operator,
    )
}
DIFFERENTIATED: dict[str, Hand] = {each.__name__: each for each in (grad, grad_of_operator)}


@contextlib.contextmanager
def quiet():
    """Without torch's warnings of what is deprecated or a prototype."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def world_of(case: Any, testing: Any, device: torch.device) -> Any:
    """The smallest of some worlds of a case that have no empty tensor."""
    worlds = [testing.draw(case, seed) for seed in range(5)] + [testing._whole(case)]
    whole = [w for w in worlds if all(each.view.numel() for each in w.every())]
    smallest = min(whole, key=lambda world: sum(each.view.numel() for each in world.every()))
    return smallest.clone(device)


def trial(case: Any, testing: Any, start: Any, hand: Hand) -> list[str]:
    """What is wrong after a call in a hand; `testing` is the package's, `start` a world of its."""
    world, expected = start.clone(), start.clone()
    case.run_reference(expected)
    with quiet():
        alike = hand(case, world.arguments())
    found = testing.differences(case, start, world, expected)
    for own in alike or ():
        other = start.clone()
        for mine, theirs in zip(tensors_of(own), tensors_of(other.arguments()), strict=True):
            if mine.numel() and not _expanded(theirs):
                theirs.copy_(mine)
        found += testing.differences(case, start, other, expected)
    return found


def idle(case: Any, testing: Any, start: Any, hand: Hand) -> list[str]:
    """Likewise where nothing may be done."""
    world = start.clone()
    with quiet():
        hand(case, world.arguments())
    return testing.differences(case, start, world, start, ignored={})


def refusal(case: Any, testing: Any, start: Any, hand: Hand) -> str:
    """The text of the error, once it is known that nothing was written."""
    world = start.clone()
    try:
        with quiet():
            hand(case, world.arguments())
    except Exception as error:  # noqa: BLE001 - its text is looked at
        assert not testing.differences(case, start, world, start, ignored={})
        return str(error)
    raise AssertionError("it was taken")
