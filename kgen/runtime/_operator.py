"""A group as a function, and as an operator of torch's: a call is checked, then launched.

Needs torch and triton. A call like one before costs a look-up and the launch.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ._debug import DEBUG, check
from ._launch import Launch, Prepared, runs_kernels
from ._reference import together
from ._repeat import Repeats
from ._runtime import BY_FUNC, Signature, Values

_REMEMBERED = 256
# That torch.compile neither avoids an operator nor changes the strides of what it is given.
_TAGS = (
    torch.Tag.pt2_compliant_tag,
    getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order),
)
# Where torch would go on with other tensors than it was given, or forget a call; and why a call is refused.
_REFUSED = {
    "Negative": "a negated view",
    "Conjugate": "a conjugated view",
    "FuncTorchDynamicLayerFrontMode": f"{BY_FUNC}; call it outside of that",
    "Tracer": "torch.jit.trace loses calls that store into lists; use torch.export or torch.compile",
}
_PLAIN = Tensor.__torch_dispatch__
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
        self.name, self.arguments = signature.group, signature.arguments
        self.launch = Launch(signature, kernel, programs, blocks or {}, lanes, combined, warps)
        self.module = reference.__module__.rpartition(".")[0]  # the package's name
        self.__module__ = f"{self.module}.ops"
        self._written = [name for name, tensor in signature.tensors.items() if tensor.mode != "in"]
        self._read = tuple(inspect.signature(reference).parameters)
        self._known: dict[tuple[object, ...], _Call] = {}
        self._repeats = Repeats(self.launch)

    def __reduce__(self) -> str:
        return self.name  # a copy of it is the operator of that name in ops.py: itself

    def __call__(self, *arguments: object, **named: object) -> None:
        """A call; positional arguments are in the order of `signature.arguments`.

        Raises:
            KgenCallError: an argument does not fit; nothing was written.
        """
        if arguments:
            if len(arguments) > len(self.arguments):
                raise self.signature.fail(
                    f"it takes {len(self.arguments)} arguments, not {len(arguments)}"
                )
            named = dict(zip(self.arguments, arguments, strict=False)) | named
        self.run(named)

    def run(self, given: Mapping[str, Any]) -> None:
        """A call with its arguments by name; as torch's operator where torch has to see it."""
        if torch.compiler.is_compiling():
            self._dispatch(given)
            return
        if self._repeats.run(given):
            return
        if _recording():
            self._dispatch(given)
            return
        call = self._remembered(given)
        if call is None and any(_dispatches(tensor) for _, tensor in _tensors(given)):
            self._dispatch(given)
        else:
            self._run(given, call)

    def implement(self, *arguments: object) -> None:
        """What torch's operator does, on tensors that have memory."""
        given = dict(zip(self.arguments, arguments, strict=False))
        self._run(given, self._remembered(given))

    def refuse(self, reason: str, *arguments: object) -> None:
        """What torch's operator does where a kernel would not do, or not see, what torch means."""
        for name, tensor in _tensors(dict(zip(self.arguments, arguments, strict=False))):
            self.signature.held(name, tensor)
        raise self.signature.fail(reason)

    def _dispatch(self, given: Mapping[str, Any]) -> None:
        self._known_names(given)
        # Not by name: torch.compile takes one named `out` for torch's own.
        self.op(*[given.get(name) for name in self.arguments])

    def _run(self, given: Mapping[str, Any], call: _Call | None) -> None:
        if DEBUG:
            check(self, given)
        call = call or self.checked(given)
        if call.launch is None:
            return
        if runs_kernels(call.device):
            compiled = self.launch.run(call.launch, given)
            if compiled is not None and not DEBUG:
                self._repeats.keep(given, call.values, call.launch, compiled)
        else:
            self.run_reference(given, call.values)
        written: list[Tensor] = []
        for name in self._written:
            each = given.get(name)
            written += [each] if isinstance(each, Tensor) else each or ()
        torch.autograd.graph.increment_version(
            written
        )  # autograd must not use what it kept of them

    def run_reference(self, given: Mapping[str, Any], values: Values) -> None:
        """The reference on the arguments of a call, whose sizes and scalars are `values`."""
        known = {name: given.get(name) for name in self.signature.tensors} | values
        # As a kernel does, it does not touch autograd, and stores everything or nothing.
        with torch.inference_mode(), together():
            self.reference(**{name: known[name] for name in self._read})

    def checked(self, given: Mapping[str, Any]) -> _Call:
        """What is known of a call, once it is known to be right."""
        call = self._remembered(given)
        if call is None:
            key, call = _key(given), self._check(given)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            if key is not None:
                self._known[key] = call
        return call

    def _remembered(self, given: Mapping[str, Any]) -> _Call | None:
        """What is known of a call like one before."""
        key = _key(given)
        return self._known.get(key) if key is not None else None

    def _known_names(self, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in self.arguments:
                raise self.signature.fail(
                    f"there is no argument `{name}`; it takes {', '.join(self.arguments)}"
                )

    def _check(self, given: Mapping[str, Any]) -> _Call:
        signature = self.signature
        self._known_names(given)
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
        written, parts = self._written, []
        for name in self.arguments:
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


def _key(given: Mapping[str, Any]) -> tuple[object, ...] | None:
    """All that the check of a call depends on; of each argument it tells what it is.

    None if an argument is of another kind, without memory, or may change though the object is the same.
    """
    key: list[object] = [*given]
    try:
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
                return None
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return None
    return tuple(key)


def _tensor_key(tensor: Tensor) -> tuple[object, ...]:
    if type(tensor).__torch_dispatch__ is not _PLAIN:
        raise TypeError
    place = tensor.data_ptr(), tensor.shape, tensor.stride()
    return *place, tensor.dtype, tensor.device, tensor.is_neg()


def _recording() -> bool:
    """Whether torch wants to see each operator: make_fx, FakeTensorMode, a counter, torch.jit.trace."""
    return bool(
        torch._C._len_torch_dispatch_stack() > 0  # noqa: SLF001
        or torch._ops._len_torch_dispatch_stack_pre_dispatch() > 0  # noqa: SLF001
        or torch.jit.is_tracing()
    )


def _dispatches(tensor: Tensor) -> bool:
    """Whether a tensor's class says what operators do with it."""
    return type(tensor).__torch_dispatch__ is not _PLAIN


def _tensors(given: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of some arguments, with the names that errors call them by."""
    for name, argument in given.items():
        if isinstance(argument, Tensor):
            yield name, argument
        elif isinstance(argument, list | tuple):
            for number, each in enumerate(argument):
                if isinstance(each, Tensor):
                    yield f"{name}[{number}]", each


def _device(argument: Any) -> torch.device:
    device: torch.device = (argument if isinstance(argument, Tensor) else argument[0]).device
    return device


def calls(operator: Operator) -> Callable[[_Function], _Function]:
    """A function that calls an operator, with the signature and the docstring of the one below it."""

    def decorate(declared: _Function) -> _Function:
        @functools.wraps(declared)
        def call(**arguments: object) -> None:
            operator.run(arguments)

        operator.public = call
        return call  # type: ignore[return-value]

    return decorate


def register(*operators: Operator) -> dict[str, Operator]:
    """Register operators with torch, which torch.compile takes as they are; name -> operator.

    Each import of a package has a namespace of its own, so that each copy runs its own code. Its name is
    made of that code, so that a saved program never runs another's.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:8]
    library = _library(f"kgen_{operators[0].module.rpartition('.')[2]}_{digest}")
    for each in operators:
        library.define(each.schema, tags=_TAGS)
        library.impl(each.name, each.implement, "CompositeExplicitAutograd")
        for key, reason in _REFUSED.items():
            library.impl(each.name, functools.partial(each.refuse, reason), key)
        torch.library.register_fake(f"{library.ns}::{each.name}", lambda *_: None, lib=library)
        each.op = getattr(getattr(torch.ops, library.ns), each.name).default
    _libraries.append(library)
    return {each.name: each for each in operators}


def _library(name: str) -> torch.library.Library:
    """A namespace that is not taken, named `name` if possible."""
    for number in itertools.count(1):
        # Packages that are imported again and again, as in tests, don't look for a number.
        end = "" if number == 1 else f"_{number}" if number < 10 else f"_{os.urandom(6).hex()}"
        with contextlib.suppress(RuntimeError):
            return torch.library.Library(name + end, "DEF")
    raise AssertionError("a number is free")
