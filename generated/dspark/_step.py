"""What every generated step is made of: switches, streams, and buffers made once.

Needs only torch. The generated class says which stages there are and in which order; this one binds
the tensors, cuts them to a step's sizes, and puts the state back if a stage raises.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from ._overlap import may_overlap
from ._runtime import DTYPES, Expr, KgenCallError, split_list

_REMEMBERED = 256


class Switches:
    """Which forms of a step run: read from the environment once, or set by `configure`.

    A captured graph keeps the form that it was captured with.
    """

    def __init__(self, prefix: str, names: Sequence[str], needs: dict[str, str]) -> None:
        self.prefix, self.names, self.needs = prefix, tuple(names), needs
        self._on: dict[str, bool] | None = None

    def configure(self, **switches: bool | None) -> None:
        """Set switches; those left out, or None, stay as they are.

        Raises:
            KgenCallError: a switch that there is not, no bool, or one without what it needs.
        """
        wanted = dict(self._on if self._on is not None else self._environment())
        for name, value in switches.items():
            if name not in self.names:
                raise KgenCallError(
                    f"there is no switch `{name}`; there is {', '.join(self.names)}"
                )
            if value is not None and not isinstance(value, bool):
                raise KgenCallError(f"the switch `{name}` is True or False, not {value!r}")
            if value is not None:
                wanted[name] = value
        self._check(wanted)
        self._on = wanted

    def read(self) -> dict[str, bool]:
        """Every switch, on or off."""
        if self._on is None:
            found = self._environment()
            self._check(found)
            self._on = found
        return self._on

    def _environment(self) -> dict[str, bool]:
        return {name: self._variable(name) for name in self.names}

    def _variable(self, name: str) -> bool:
        variable = f"{self.prefix}_{name.upper()}"
        text = os.environ.get(variable, "0")
        if text not in ("", "0", "1"):
            raise KgenCallError(f"the environment variable {variable} is 0 or 1, not {text!r}")
        return text == "1"

    def _check(self, switches: dict[str, bool]) -> None:
        for name, needed in self.needs.items():
            if switches[name] and not switches[needed]:
                raise KgenCallError(f"the switch `{name}` needs `{needed}`; turn that on too")


class Streams:
    """The caller's stream and an aux stream, with events between them; on the CPU they are one."""

    def __init__(self, device: torch.device) -> None:
        self._aux = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._events: dict[str, torch.cuda.Event] = {}
        self._forked = False

    def start(self) -> None:
        """Note that a step begins, with nothing on the aux stream."""
        self._forked = False

    def fork(self) -> None:
        """Let the aux stream begin after all that the current one was given so far."""
        self._forked = True
        if self._aux is not None:
            self._aux.wait_stream(torch.cuda.current_stream(self._aux.device))

    def join(self) -> None:
        """Let the current stream go on after all that the aux one was given in this step."""
        if self._aux is not None and self._forked:
            torch.cuda.current_stream(self._aux.device).wait_stream(self._aux)

    @contextlib.contextmanager
    def aux(self) -> Iterator[None]:
        """What is launched inside goes to the aux stream."""
        if self._aux is None:
            yield
            return
        with torch.cuda.stream(self._aux):
            yield

    def record(self, stage: str) -> None:
        """Note where the current stream is, under a stage's name."""
        if self._aux is not None:
            if stage not in self._events:
                self._events[stage] = torch.cuda.Event()
            self._events[stage].record(torch.cuda.current_stream(self._aux.device))

    def wait(self, stage: str) -> None:
        """Let the current stream go on only after what was recorded under a stage's name."""
        if self._aux is not None:
            torch.cuda.current_stream(self._aux.device).wait_event(self._events[stage])


@dataclass(frozen=True)
class StepTensor:
    """A tensor of a step: `i64[G, K1]`, or so many of them in a list.

    `spare`: the switch without which it may be left out.
    """

    type: str
    length: str = ""
    buffer: bool = False
    spare: str = ""

    @property
    def dtype(self) -> torch.dtype:
        """The element type."""
        return DTYPES[self.type.partition("[")[0]]

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions, as expressions."""
        return tuple(part.strip() for part in split_list(self.type[:-1].partition("[")[2]))


class Step:
    """A step over an engine's own stages and tensors.

    Buffers are made at the start for the greatest sizes and kept, so a captured step replays on them.
    """

    NAME: ClassVar[str]
    TENSORS: ClassVar[dict[str, StepTensor]]
    SIZES: ClassVar[dict[str, tuple[str, int]]]
    DERIVED: ClassVar[dict[str, str]]
    NUMBERS: ClassVar[tuple[str, ...]]
    VARIES: ClassVar[tuple[str, ...]]
    FLOATS: ClassVar[tuple[str, ...]]
    WRITES: ClassVar[tuple[str, ...]]
    CALLS: ClassVar[dict[str, dict[str, str]]]
    RESTORE: ClassVar[tuple[str, ...]]
    WHEN: ClassVar[str]
    SWITCHES: ClassVar[Switches]

    def __init__(
        self,
        calls: dict[str, Callable[..., None]],
        tensors: dict[str, Any],
        numbers: dict[str, Any],
    ) -> None:
        self._calls = calls
        for name, function in calls.items():
            if not callable(function):
                raise self._fail(f"`{name}` must be a function; it is {type(function).__name__}")
        self._given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        self.device = self._check_tensors()
        self._check_overlaps()
        self._start = self._said(numbers)
        self._most = self._evaluate(self._start)
        self._buffers: dict[str, torch.Tensor] = {}
        for name, declared in self.TENSORS.items():
            if declared.buffer:
                count = math.prod(self._shape(name, self._most, f"the buffer `{name}`"))
                self._buffers[name] = torch.zeros(count, dtype=declared.dtype, device=self.device)
        self._saved = {name: torch.empty_like(self._given[name]) for name in self.RESTORE}
        self._streams = Streams(self.device)
        self._when = Expr(self.WHEN) if self.WHEN else None
        dims = [dim for each in self.TENSORS.values() if each.buffer for dim in each.dims]
        self._fixed = {name for dim in dims for name in Expr(dim).names}
        self._fixed -= set(self.VARIES)
        self._known: dict[tuple[Any, ...], SimpleNamespace] = {}
        self._last: SimpleNamespace | None = None

    def _fail(self, message: str) -> KgenCallError:
        return KgenCallError(f"{self.NAME}: {message}")

    def _check_tensors(self) -> torch.device:
        devices = {}
        for name, declared in self.TENSORS.items():
            if declared.buffer:
                continue
            value = self._given.get(name)
            if value is None:
                if declared.spare:
                    continue
                raise self._fail(f"`{name}` is missing; it must be {self._typed(declared)}")
            each = value if declared.length else [value]
            if not isinstance(each, list | tuple) or not each:
                raise self._fail(f"`{name}` must be {self._typed(declared)}")
            for tensor in each:
                if not isinstance(tensor, torch.Tensor):
                    raise self._fail(
                        f"`{name}` must be {self._typed(declared)}; it is {type(tensor).__name__}"
                    )
                if tensor.dtype != declared.dtype or tensor.dim() != len(declared.dims):
                    raise self._fail(
                        f"`{name}` must be {self._typed(declared)}; it has dtype {tensor.dtype} and "
                        f"shape {list(tensor.shape)}"
                    )
                devices[tensor.device] = name
        if len(devices) > 1:
            shown = ", ".join(f"`{name}` on {device}" for device, name in devices.items())
            raise self._fail(f"all tensors must be on one device: {shown}")
        return next(iter(devices))

    def _check_overlaps(self) -> None:
        """A stage that writes one tensor must not reach another's memory."""
        every = [
            (name, tensor)
            for name, given in self._given.items()
            for tensor in (given if isinstance(given, list | tuple) else [given])
        ]
        for at, (name, tensor) in enumerate(every):
            for other, second in every[at + 1 :]:
                if (name in self.WRITES or other in self.WRITES) and may_overlap(tensor, second):
                    raise self._fail(
                        f"`{name}` and `{other}` share memory, and one of them is written; give "
                        "tensors that do not overlap"
                    )

    @staticmethod
    def _typed(declared: StepTensor) -> str:
        kind = "a list of tensors" if declared.length else "a tensor"
        return f"{kind} {declared.type}"

    def _evaluate(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """Every size and number by name, as far as they are known."""
        values: dict[str, Any] = {}
        for size, (name, dim) in self.SIZES.items():
            given = self._given.get(name)
            if given is not None and dim < 0:
                values[size] = len(given)
            elif given is not None:
                values[size] = (given[0] if isinstance(given, list | tuple) else given).shape[dim]
        values |= numbers
        for name, text in self.DERIVED.items():
            with contextlib.suppress(NameError):
                values[name] = Expr(text)(dict(values))
        return values

    def _shape(self, name: str, values: dict[str, Any], what: str) -> list[int]:
        declared = self.TENSORS[name]
        try:
            shape = [Expr(dim)(dict(values)) for dim in declared.dims]
        except NameError as error:
            raise self._fail(f"`{error.name}` must be given: {what} is {declared.type}") from None
        if min(shape, default=0) < 0:
            raise self._fail(f"{what} is {declared.type}, which would be {shape}")
        return shape

    def _values(self, numbers: dict[str, Any]) -> SimpleNamespace:
        """The step's tensors, cut to its sizes, and its numbers."""
        said = self._said(numbers)
        for name, value in said.items():
            if name in self._fixed and value != self._start.get(name, value):
                raise self._fail(
                    f"`{name}` is {value}, but the step was made for {self._start[name]}"
                )
            if name in self.VARIES and value > self._most.get(name, value):
                raise self._fail(
                    f"`{name}` is {value}, but the step was made for 0 .. {self._most[name]}"
                )
        wanted = self._start | said
        missing = [name for name in self.NUMBERS if name not in wanted]
        if missing:
            raise self._fail(f"`{missing[0]}` must be given, to the step or when it is made")
        key = tuple(wanted[name] for name in self.NUMBERS)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[key] = self._cut(self._evaluate(wanted))
        return known

    def _said(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """The numbers that are given."""
        said = {name: value for name, value in numbers.items() if value is not None}
        for name, value in said.items():
            exact = isinstance(value, int) and not isinstance(value, bool)
            if not exact and not (name in self.FLOATS and isinstance(value, float)):
                wanted = "a float" if name in self.FLOATS else "an int"
                raise self._fail(f"`{name}` must be {wanted}; it is {type(value).__name__}")
            if name in self.VARIES and value < 0:
                raise self._fail(f"`{name}` is {value}; a size is not negative")
        return said

    def _cut(self, values: dict[str, Any]) -> SimpleNamespace:
        found = dict(values)
        for name, declared in self.TENSORS.items():
            if name in self._buffers:
                shape = self._shape(name, values, f"the buffer `{name}`")
                found[name] = self._buffers[name][: math.prod(shape)].view(shape)
            elif name not in self._given or declared.length:
                found[name] = self._given.get(name)
            else:
                found[name] = self._narrow(name, values)
        view = SimpleNamespace(**found)
        view.calls = {
            stage: {kw: found[n] for kw, n in arguments.items() if n in found}
            for stage, arguments in self.CALLS.items()
        }
        return view

    def _narrow(self, name: str, values: dict[str, Any]) -> torch.Tensor:
        """A tensor of the engine, cut to the sizes that vary."""
        tensor: torch.Tensor = self._given[name]
        for dim, text in enumerate(self.TENSORS[name].dims):
            expr = Expr(text)
            if not expr.names <= set(values):
                continue
            size = expr(dict(values))
            if size > tensor.shape[dim]:
                raise self._fail(
                    f"`{name}` has {tensor.shape[dim]} in dimension {dim}, the step needs "
                    f"{text} = {size}"
                )
            tensor = tensor.narrow(dim, 0, size)
        return tensor

    def view(self, name: str) -> torch.Tensor:
        """A tensor of the step as the last step saw it.

        Raises:
            KgenCallError: there is no such tensor, or no step was made yet.
        """
        if self._last is None or name not in self.TENSORS:
            raise self._fail(f"there is no tensor `{name}` of a step made")
        tensor: torch.Tensor = getattr(self._last, name)
        return tensor

    def _capturing(self) -> bool:
        if self.device.type != "cuda":
            return False
        with torch.cuda.device(self.device):
            return bool(torch.cuda.is_current_stream_capturing())

    def _run(
        self,
        numbers: dict[str, Any],
        idle: Callable[[SimpleNamespace], None],
        stages: Callable[[SimpleNamespace], None],
        switches: dict[str, bool],
    ) -> None:
        """One step; the state is as before it if a stage raises."""
        v = self._values(numbers)
        if self._when is not None and not self._when(vars(v)):
            stages = idle
        for name, declared in self.TENSORS.items():
            if declared.spare and switches[declared.spare] and name not in self._given:
                raise self._fail(
                    f"`{name}` is missing, which `{declared.spare}` needs; it must be "
                    f"{self._typed(declared)}"
                )
        # While a graph is captured nothing runs, so there is nothing to put back.
        capturing = self._capturing()
        self._streams.start()
        if not capturing:
            for name, saved in self._saved.items():
                saved.copy_(self._given[name])
        try:
            stages(v)
        except BaseException:
            self._streams.join()
            if not capturing:
                for name, saved in self._saved.items():
                    self._given[name].copy_(saved)
            raise
        self._last = v
