"""Calls that repeat: what is kept of a call that was checked and launched, and when it still holds.

Needs torch and triton. A `Known` is a call whose kernel is compiled and loaded. Another call is like it if
nothing differs that a check looks at, or that the kernel was compiled for:

- the names of its arguments, and which of them are None;
- of each tensor its class, element type, device, sizes, strides, whether it is negated or requires a
  gradient, and what torch would do with it (modes, tracers, functorch): torch's own guards compare these;
- numbers that a size, a range, a block or the number of programs depends on;
- any other number is within its range;
- the addresses were seen before, or the tensors are in memory, aligned and apart.

No tensor is kept and none is known by its identity, so that one that is resized, set to other memory or
freed is seen as what it is now. A call that is not like any is checked like the first one.

KGEN_UNCHECKED=1 leaves out the last two points of a call that is like one before.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import torch
import triton
from torch import Tensor

from ._launch import Launch, Prepared, packed
from ._overlap import extent
from ._runtime import Expr, ScalarArg, Signature, SizeArg, Values

UNCHECKED = os.environ.get("KGEN_UNCHECKED", "0") not in ("", "0")
_REMEMBERED = 256
# Versions of Triton whose compiled kernels are launched in the way below; others launch as usual.
_VERSIONS = ((3, 6), (3, 7), (3, 8), (3, 9))
_data_ptr = Tensor.data_ptr
_increment = torch.autograd.graph.increment_version


@functools.cache
def _torch_guards() -> Any:
    """Torch's class of guards on tensors, if it is there and tells apart what it must."""
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) not in _VERSIONS:
        return None
    try:
        from torch._C._dynamo.guards import TensorGuards  # noqa: PLC0415

        first = torch.zeros(2, 3, device="cpu")
        guards = _guards(TensorGuards, (first,))
        others = [
            torch.zeros(3, 3, device="cpu"),
            torch.zeros(3, 2, device="cpu").t(),
            torch.zeros(2, 3, device="cpu", dtype=torch.float64),
            torch.zeros(2, 3, device="meta"),
            torch.nn.Parameter(torch.zeros(2, 3, device="cpu")),
            torch._neg_view(torch.zeros(2, 3, device="cpu")),  # noqa: SLF001
        ]
        same = guards.check(torch.ones(2, 3, device="cpu"))
        differ = not any(guards.check(each) for each in others)
    except (ImportError, TypeError, RuntimeError, SystemError):
        return None
    return TensorGuards if same and differ else None


def _guards(kind: Any, tensors: tuple[Tensor, ...]) -> Any:
    sizes, strides = [[*each.shape] for each in tensors], [[*each.stride()] for each in tensors]
    return kind(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)


def _getter(places: list[int]) -> Callable[[Any], tuple[Any, ...]]:
    """What is at some places, in that order."""
    if len(places) > 1:
        return itemgetter(*places)
    if places:
        (at,) = places
        return lambda values: (values[at],)
    return lambda _: ()


def watched(function: Any) -> bool:
    """Whether Triton is to call hooks at a launch, or to compile otherwise than at first."""
    runtime = triton.knobs.runtime
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    return bool(
        getattr(enter, "calls", enter)
        or getattr(leave, "calls", leave)
        or function.pre_run_hooks
        or vars(runtime).get("debug")
        or triton.knobs.compilation.instrumentation_mode
    )


def free_scalars(signature: Signature, launch: Launch) -> dict[str, ScalarArg]:
    """The scalars on which nothing but their own range and one argument of the kernel depends."""
    exprs: list[Expr | None] = [signature.when, *launch.expressions, *signature.defaults.values()]
    for tensor in signature.tensors.values():
        exprs += [*tensor.dims, tensor.length]
    for name in signature.order:
        number = signature.declared(name)
        exprs += [number.values.low, number.values.high]
        exprs += [number.derived] if isinstance(number, SizeArg) else []
    used = {name for expr in exprs if expr is not None for name in expr.names}
    return {
        name: scalar
        for name, scalar in signature.scalars.items()
        if name not in used and not scalar.static and scalar.type in ("i32", "i64", "f32")
    }


class Known:
    """A call that was checked and launched."""

    __slots__ = (
        "_addresses",
        "_fixed",
        "_floats",
        "_function",
        "_guards",
        "_index",
        "_ints",
        "_lists",
        "_order",
        "_others",
        "_plain",
        "_seen",
        "_spans",
        "_written",
        "compiled",
        "names",
        "prepared",
    )

    def __init__(
        self,
        guards: Any,
        launch: Launch,
        free: Mapping[str, ScalarArg],
        given: Mapping[str, Any],
        values: Values,
        prepared: Prepared,
        compiled: Any,
    ) -> None:
        self.names, self.prepared, self.compiled = tuple(given), prepared, compiled
        self._function = launch.function
        places = {name: at for at, name in enumerate(self.names)}
        plain = [name for name, each in given.items() if isinstance(each, Tensor)]
        lists = [name for name, each in given.items() if isinstance(each, list | tuple)]
        self._plain = _getter([places[name] for name in plain])
        self._lists = [(places[name], len(given[name])) for name in lists]
        tensors = (*(given[n] for n in plain), *(each for n in lists for each in given[n]))
        own = [*plain, *(name for name in lists for _ in given[name])]
        declared = launch.signature.tensors
        self._written = _getter([at for at, name in enumerate(own) if declared[name].mode != "in"])
        self._guards = _guards(guards, tensors)
        # Of each tensor with elements: its place, its bytes from the first element to the last one's
        # end, its offset's, and those of an element.
        self._spans = [
            (at, extent(each), each.element_size())
            for at, each in enumerate(tensors)
            if each.numel()
        ]
        self._addresses = tuple(map(_data_ptr, tensors))
        self._seen = {self._addresses: self._packed(self._addresses)}
        rest = [name for name in self.names if name not in plain and name not in lists]
        chosen = [name for name in rest if name in free and given[name] is not None]
        self._fixed = [(places[name], given[name]) for name in rest if name not in chosen]
        ends = {name: free[name].ends(values) for name in chosen}
        self._ints = [(places[n], *ends[n]) for n in chosen if not free[n].float]
        self._floats = [(places[n], *ends[n]) for n in chosen if free[n].float]
        numbers = [n for n in chosen if not free[n].float] + [n for n in chosen if free[n].float]
        self._index = prepared.device.index
        if self._index is None:
            self._index = triton.runtime.driver.active.get_current_device()
        self._order, self._others = self._arguments(launch, plain, lists, numbers)

    def _arguments(
        self, launch: Launch, plain: list[str], lists: list[str], numbers: list[str]
    ) -> tuple[Callable[[Any], Any], tuple[object, ...]]:
        """How the kernel's arguments are chosen from addresses, numbers and others; the others."""
        known: dict[str, int] = {}
        for name in (*plain, *lists, *numbers):
            known[name] = len(known)
        others: list[object] = []
        order = []
        for parameter, argument in zip(launch.parameters, self.prepared.arguments, strict=True):
            kind, name, _ = launch.sources.get(parameter, ("number", parameter, 0))
            if kind in ("memory", "number") and name in known:
                order.append(known[name])
            else:
                order.append(len(known) + len(others))
                others.append(argument)
        return _getter(order), tuple(others)

    def holds(self, values: tuple[Any, ...]) -> tuple[tuple[Tensor, ...], tuple[Any, ...]] | None:
        """The tensors and the kernel's arguments of a call with the same names, if it is like this one."""
        tensors = self._plain(values)
        for at, count in self._lists:
            each = values[at]
            if type(each) not in (list, tuple) or len(each) != count:
                return None
            tensors += (*each,)
        for at, value in self._fixed:
            number = values[at]
            if number is not value and (
                type(number) is not type(value)
                or number != value
                or (not value and type(value) is float)  # -0.0
            ):
                return None
        numbers: list[float] = []
        for at, low, high in self._ints:
            number = values[at]
            if type(number) is not int or not (UNCHECKED or low <= number <= high):
                return None
            numbers.append(number)
        for at, low, high in self._floats:
            number = values[at]
            if type(number) is not float:
                return None
            rounded = ctypes.c_float(number).value
            if not low <= rounded <= high or math.isinf(rounded):
                return None
            numbers.append(rounded)
        if not self._guards.check(*tensors):
            return None
        addresses = tuple(map(_data_ptr, tensors))
        passed = self._seen.get(addresses)
        if passed is None:
            if not (UNCHECKED or self._separate(tensors, addresses)):
                return None
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            self._addresses = addresses
            passed = self._seen[addresses] = self._packed(addresses)
        return tensors, self._order((*passed, *numbers, *self._others))

    def _packed(self, addresses: tuple[int, ...]) -> tuple[Any, ...]:
        """Addresses, those of lists as the kernel takes them."""
        at = len(addresses) - sum(count for _, count in self._lists)
        found: list[Any] = [*addresses[:at]]
        for _, count in self._lists:
            found.append(tuple(packed(each) for each in addresses[at : at + count]))
            at += count
        return tuple(found)

    def _separate(self, tensors: tuple[Tensor, ...], addresses: tuple[int, ...]) -> bool:
        """Whether tensors are in memory and aligned, where the last ones were not, and all clearly apart.

        Those that are not may be right all the same, which the whole check finds out.
        """
        spans = []
        for at, length, size in self._spans:
            address = addresses[at]
            if address != self._addresses[at]:
                storage = tensors[at].untyped_storage()
                if address % size or address + length > storage.data_ptr() + storage.nbytes():
                    return False
            spans.append((address, address + length))
        spans.sort()
        end = 0
        for first, last in spans:
            if first < end:
                return False
            end = last
        return True

    def launch(self, tensors: tuple[Tensor, ...], arguments: tuple[Any, ...]) -> bool:
        """Launch the compiled kernel; False if Triton has to do it, for a hook or on another device."""
        active = triton.runtime.driver.active
        if active.get_current_device() != self._index or watched(self._function):
            return False
        compiled, prepared = self.compiled, self.prepared
        stream = active.get_current_stream(self._index)
        compiled.run(
            prepared.programs,
            1,
            1,
            stream,
            compiled.function,
            compiled.packed_metadata,
            None,
            None,
            None,
            *arguments,
        )
        prepared.launched[0] += 1
        _increment(self._written(tensors))
        return True


class Repeats:
    """The calls of an operator that were launched, by what they look like."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._free = free_scalars(launch.signature, launch)
        self._known: dict[tuple[object, ...], Known] = {}
        self._last: Known | None = None

    def run(self, given: Mapping[str, Any]) -> bool:
        """Launch a call that is like one before; False if none is, or if Triton has to launch it."""
        last = self._last
        if last is None:
            return False
        names, values = tuple(given), tuple(given.values())
        held = last.holds(values) if names == last.names else None
        if held is None:
            try:
                last = self._known.get(self._like(names, values))
            except TypeError:  # something that is not hashable, and no number
                return False
            held = last.holds(values) if last is not None else None
            if last is None or held is None:
                return False
            self._last = last
        return last.launch(*held)

    def keep(
        self, given: Mapping[str, Any], values: Values, prepared: Prepared, compiled: Any
    ) -> None:
        """Remember a call that was checked and has just been launched as `compiled`."""
        if compiled is None or getattr(compiled, "packed_metadata", None) is None:
            return  # of Triton's interpreter, or a hook's
        function, index = self._launch.function, prepared.device.index
        guards = _torch_guards()
        if guards is None or function.used_global_vals or watched(function):
            return
        if index not in (None, triton.runtime.driver.active.get_current_device()):
            return
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        known = Known(guards, self._launch, self._free, given, values, prepared, compiled)
        self._known[self._like(known.names, tuple(given.values()))] = self._last = known

    def _like(self, names: tuple[str, ...], values: tuple[Any, ...]) -> tuple[object, ...]:
        """What tells most calls apart, and costs little: shapes, and the numbers on which checks depend."""
        key: list[object] = [names, torch.is_inference_mode_enabled()]
        for name, value in zip(names, values, strict=True):
            if isinstance(value, Tensor):
                key.append(value.shape)
            elif isinstance(value, list | tuple):
                key.append(len(value))
            elif name not in self._free or value is None:
                key.append(value)
        return tuple(key)
