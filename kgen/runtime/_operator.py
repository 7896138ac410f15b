"""A group as a function, and as an operator of torch's: a call is checked, then launched.

Needs torch and triton. A call like one before costs a look-up and the launch.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from ._debug import DEBUG, check
from ._launch import Launch, Prepared, runs_kernels
from ._runtime import Signature, Values

_REMEMBERED = 256
# Operators live as long as their library.
_libraries: list[torch.library.Library] = []
_Function = TypeVar("_Function", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class _Call:
    """What is known of a call that was checked; `launch` is None if there is nothing to do."""

    values: Values
    device: torch.device
    launch: Prepared | None


class Operator:
    """A group that can be called, with keyword arguments.

    Args:
        signature: its parameters.
        kernel: the kernel; the names of its parameters say what each is given (_launch.py).
        reference: the same in torch, for tensors on which no kernel runs.
        programs: how many programs a launch has, an expression of sizes and scalars.
        blocks: block size of the kernel -> a number, or how many values its lanes are to hold.
        warps: of a program.

    Attributes:
        op: it as an operator of torch's, once it is registered.
        public: the package's function that calls it.
    """

    op: Any = None
    public: Any = None

    def __init__(
        self,
        signature: Signature,
        kernel: Any,
        reference: Callable[..., None],
        *,
        programs: str,
        blocks: Mapping[str, str | int] | None = None,
        lanes: str = "",
        combined: str = "",
        warps: int | None = None,
    ) -> None:
        self.signature, self.reference = signature, reference
        self.name = signature.group
        self.launch = Launch(signature, kernel, programs, blocks or {}, lanes, combined, warps)
        self.module = reference.__module__.rpartition(".")[0]  # the package's name
        self._read = tuple(inspect.signature(reference).parameters)
        self._known: dict[tuple[object, ...], _Call] = {}

    def __call__(self, *arguments: object, **named: object) -> None:
        """A call; positional arguments are in the order of `signature.arguments`.

        Raises:
            KgenCallError: an argument does not fit; nothing was written.
        """
        if arguments:
            names = self.signature.arguments
            if len(arguments) > len(names):
                raise self.signature.fail(f"it takes {len(names)} arguments, not {len(arguments)}")
            named = dict(zip(names, arguments, strict=False)) | named
        self.run(named)

    def run(self, given: Mapping[str, Any]) -> None:
        """A call with its arguments by name."""
        if DEBUG:
            check(self, given)
        call = self.checked(given)
        if call.launch is None:
            return
        if runs_kernels(call.device):
            self.launch.run(call.launch, given)
        else:
            self.run_reference(given, call.values)

    def run_reference(self, given: Mapping[str, Any], values: Values) -> None:
        """The reference on the arguments of a call, whose sizes and scalars are `values`."""
        known = {name: given.get(name) for name in self.signature.tensors} | values
        with torch.inference_mode():  # as a kernel does, it leaves autograd alone
            self.reference(**{name: known[name] for name in self._read})

    def checked(self, given: Mapping[str, Any]) -> _Call:
        """What is known of a call, once it is known to be right."""
        try:
            key = _key(given)
        except (AttributeError, RuntimeError, TypeError):  # of another kind, or without memory
            return self._check(given)
        call = self._known.get(key)
        if call is None:
            call = self._check(given)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = call
        return call

    def _check(self, given: Mapping[str, Any]) -> _Call:
        signature = self.signature
        unknown = [name for name in given if name not in signature.arguments]
        if unknown:
            raise signature.fail(
                f"there is no argument `{unknown[0]}`; it takes {', '.join(signature.arguments)}"
            )
        values = signature.bind(
            tuple(given.get(name) for name in signature.tensors),
            tuple(given.get(name) for name in signature.scalars),
        )
        device = next(
            _device(given[name]) for name, t in signature.tensors.items() if not t.optional
        )
        idle = device.type == "meta" or not signature.runs(values)
        return _Call(values, device, None if idle else self.launch.prepare(given, values, device))

    @property
    def schema(self) -> str:
        """It in the language of torch.library."""
        written = [name for name, tensor in self.signature.tensors.items() if tensor.mode != "in"]
        parts = []
        for name in self.signature.arguments:
            tensor = self.signature.tensors.get(name)
            spare = name in self.signature.defaults or (tensor is not None and tensor.optional)
            if tensor is not None:
                kind = f"Tensor(a{written.index(name)}!)" if name in written else "Tensor"
                kind += "[]" if tensor.length is not None else ""
            else:
                scalar = self.signature.scalars[name]
                kind = "float" if scalar.float else "int" if scalar.static else "SymInt"
            parts.append(f"{kind}? {name}=None" if spare else f"{kind} {name}")
        return f"{self.signature.group}({', '.join(parts)}) -> ()"


def _key(given: Mapping[str, Any]) -> tuple[object, ...]:
    """All that the check of a call depends on; of each argument it tells what it is.

    Raises:
        TypeError: an argument whose value may change, though the object is the same.
    """
    key: list[object] = [*given]
    for argument in given.values():
        if type(argument) is int:
            key.append(argument)
        elif isinstance(argument, Tensor):
            key += _tensor_key(argument)
        elif isinstance(argument, list | tuple):
            key.append(tuple(_tensor_key(each) for each in argument))
        elif isinstance(argument, float):
            key.append(argument.hex())  # 0.0 == -0.0
        elif argument is None or isinstance(argument, bool):
            key.append((argument, type(argument)))  # True == 1
        else:
            raise TypeError(type(argument))
    return tuple(key)


def _tensor_key(tensor: Tensor) -> tuple[object, ...]:
    dtype = tensor.dtype
    negated = dtype.is_floating_point and tensor.is_neg()
    return tensor.data_ptr(), tensor.shape, tensor.stride(), dtype, tensor.device, negated


def _device(argument: Any) -> torch.device:
    device: torch.device = (argument if isinstance(argument, Tensor) else argument[0]).device
    return device


def calls(operator: Operator) -> Callable[[_Function], _Function]:
    """A function that calls an operator, with the signature and the docstring of the one below it."""
    names = operator.signature.arguments

    def decorate(declared: _Function) -> _Function:
        @functools.wraps(declared)
        def call(**arguments: object) -> None:
            if torch.compiler.is_compiling():
                # Not by name: torch.compile takes one named `out` for torch's own.
                operator.op(*[arguments.get(name) for name in names])
            else:
                operator.run(arguments)

        operator.public = call
        return call  # type: ignore[return-value]

    return decorate


def register(*operators: Operator) -> dict[str, Operator]:
    """Register operators with torch, which torch.compile takes as they are; name -> operator.

    Each import of a package has a namespace of its own, so that each copy runs its own code.
    """
    schemas = {each.signature.group: each.schema for each in operators}
    digest = hashlib.sha256(repr(schemas).encode()).hexdigest()[:8]
    library = _library(f"kgen_{operators[0].module.rpartition('.')[2]}_{digest}")
    for each in operators:
        name = each.signature.group
        library.define(schemas[name])
        library.impl(name, each, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{library.ns}::{name}", lambda *_: None, lib=library)
        each.op = getattr(getattr(torch.ops, library.ns), name).default
    _libraries.append(library)
    return {each.signature.group: each for each in operators}


def _library(name: str) -> torch.library.Library:
    """A namespace that is not taken, named `name` if possible."""
    for number in range(1, 1000):
        with contextlib.suppress(RuntimeError):
            return torch.library.Library(name if number == 1 else f"{name}_{number}", "DEF")
    raise RuntimeError(f"{name} is registered too often")
