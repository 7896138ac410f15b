"""Debug mode: with KGEN_DEBUG=1 each call is checked on its device before it writes anything.

Needs torch and triton. A group's check (debug.py) notes where a value is out of its range, an index out of
its tensor, which elements of `distinct` tensors are read and where `trusted` stores go. Here the notes
are read, which waits for the device, and made into an error. On a CPU without Triton's interpreter the
reference is watched instead.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ._launch import Launch, runs_kernels
from ._runtime import Expr, Range, TensorArg, Values
from ._trace import Access, Sum, dims_of, trace

if TYPE_CHECKING:
    from ._operator import Operator

DEBUG = os.environ.get("KGEN_DEBUG", "0") not in ("", "0")
_ROW = 16  # numbers in a row of the report; the first two are points
_NEVER = 2**63 - 1


class KgenDeviceCheckError(RuntimeError):
    """Debug mode found that a tensor breaks what the spec declares; nothing was written."""


@dataclass(frozen=True)
class Check:
    """What is checked of a tensor at each point of `axes`: values, expected, read or stored."""

    tensor: str
    what: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Trusted:
    """Why no two points store to one place of a tensor, and the indices of each of its stores."""

    reason: str
    stores: list[tuple[str, ...]]


@dataclass(frozen=True)
class Checks:
    """A group's check, and what its notes mean.

    Attributes:
        kernel: takes what the group's kernel does, and the buffers.
        extents: how many values each index takes.
        stores: the indices of each store of the group.
        checks: a row of the report each.
        twins: indices that `collide` or `prefix` compare a declared one with, and that one.
        distinct: tensors whose elements that are read must differ.
        trusted: tensors with trusted stores.
    """

    kernel: Any
    extents: dict[str, str]
    stores: list[tuple[str, ...]]
    checks: list[Check] = field(default_factory=list)
    twins: dict[str, str] = field(default_factory=dict)
    distinct: tuple[str, ...] = ()
    trusted: dict[str, Trusted] = field(default_factory=dict)


def check(operator: Operator, given: Mapping[str, Any]) -> None:
    """Raise what is wrong with a call of an operator.

    Raises:
        KgenCallError: an argument does not fit.
        KgenDeviceCheckError: what a tensor holds breaks what the spec declares.
    """
    call = operator.checked(given)
    checks = getattr(importlib.import_module(f"{operator.module}.debug"), operator.name, None)
    if checks is not None and call.launch is not None:
        _Call(operator, checks, given, call.values, call.device).check()


@dataclass
class _Call:
    """A call under check."""

    operator: Operator
    checks: Checks
    given: Mapping[str, Any]
    values: Values
    device: torch.device
    read: dict[str, Tensor] = field(init=False)
    places: dict[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.signature = self.operator.signature

    def check(self) -> None:
        """Raise what is wrong with the call."""
        if not any(map(self._points, self.checks.stores)):
            return  # nothing is stored, so nothing is read
        if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise self.signature.fail(
                "KGEN_DEBUG=1 waits for the device to read what was found, which a CUDA graph's capture "
                "forbids; call it outside, or unset KGEN_DEBUG"
            )
        numbers = functools.partial(torch.full, dtype=torch.int64, device=self.device)
        self.read = {
            name: numbers((sum(t.numel() for t in self._tensors(name)),), 0)
            for name in self.checks.distinct
        }
        self.places = {
            name: numbers((sum(map(self._points, trusted.stores)),), -1)
            for name, trusted in self.checks.trusted.items()
        }
        if runs_kernels(self.device):
            self._launch(numbers((len(self.checks.checks), _ROW), -1))
        else:
            self._watch()
        for name in self.checks.distinct:
            self._distinct(name)
        for name in self.checks.trusted:
            self._trusted(name)

    def _tensors(self, name: str) -> list[Tensor]:
        """The tensors of an argument; none if it is not given."""
        given = self.given.get(name)
        return [] if given is None else [given] if isinstance(given, Tensor) else list(given)

    def _extent(self, index: str) -> int:
        return Expr(self.checks.extents[index])(self.values)

    def _points(self, axes: tuple[str, ...]) -> int:
        return math.prod(self._extent(index) for index in axes)

    def _fail(self, message: str) -> KgenDeviceCheckError:
        return KgenDeviceCheckError(f"{self.signature.group}: {message}; nothing was written")

    # The kernel's notes.

    def _launch(self, report: Tensor) -> None:
        report[:, 0] = _NEVER
        launch = Launch.of(self.operator.launch, self.checks.kernel)
        buffers = {"_report_ptr": report}
        buffers |= {f"_{name}_read_ptr": each for name, each in self.read.items()}
        buffers |= {f"_{name}_places_ptr": each for name, each in self.places.items()}
        prepared = launch.prepare(self.given, self.values, self.device, buffers)
        launch.run(prepared, self.given)
        points = report[:, 0].tolist()
        number = next((at for at, point in enumerate(points) if point != _NEVER), None)
        if number is None:
            return
        # Once more, now that it is known whose details are wanted.
        report[:, 1] = report[:, 0]
        launch.run(prepared, self.given)
        check = self.checks.checks[number]
        declared = self.signature.tensors[check.tensor]
        rank = len(declared.dims) + (declared.length is not None)
        numbers = report[number, 2:].tolist()
        raise self._broken(
            check, self._point(check.axes, points[number]), numbers[:rank], numbers[rank]
        )

    def _point(self, axes: tuple[str, ...], number: int) -> dict[str, int]:
        """The indices at a point, given its number."""
        found: dict[str, int] = {}
        for index in reversed(axes):
            number, found[index] = divmod(number, self._extent(index))
        return dict(reversed(found.items()))

    # The reference, watched: the same notes without a kernel.

    def _watch(self) -> None:
        stores = dict.fromkeys(self.checks.trusted, 0)

        def watch(access: Access | Sum) -> None:
            if isinstance(access, Sum):
                return
            name, mask, parts = access.name, access.mask, access.parts
            self._first(name, access.what, mask & ~access.inside, parts, None)
            if access.what == "read":
                if name in self.read:
                    self.read[name][access.flat[mask]] = 1
                self._ranges(name, mask, parts)
            elif name in stores:
                trusted = self.checks.trusted[name]
                start = sum(map(self._points, trusted.stores[: stores[name]]))
                place = self._numbers(trusted.stores[stores[name]])
                shape = torch.broadcast_shapes(place.shape, mask.shape)
                wanted, flat = mask.expand(shape), access.flat.expand(shape)
                self.places[name][start + place.expand(shape)[wanted]] = flat[wanted]
                stores[name] += 1

        trace(lambda own: self.operator.run_reference(own, self.values), self.given, watch)

    def _numbers(self, axes: tuple[str, ...]) -> Tensor:
        """The numbers of the points of some indices, a dimension for each index of the group."""
        device, rank = self.device, len(self.checks.extents)
        number = torch.zeros((1,) * rank, dtype=torch.int64, device=device)
        for at, index in enumerate(self.checks.extents):
            if index in axes:
                shape = [1] * number.dim()
                shape[at] = -1
                each = torch.arange(self._extent(index), device=device).view(shape)
                number = number * self._extent(index) + each
        return number

    def _dims(self, name: str) -> tuple[int, ...]:
        """The dimensions of a tensor, of a list its length first."""
        return dims_of(self.given[name])

    def _ranges(self, name: str, mask: Tensor, parts: tuple[Tensor, ...]) -> None:
        """The ranges of what is read of a tensor of integers."""
        declared = self.signature.tensors[name]
        if declared.dtype.is_floating_point or not mask.any():
            return
        tensors = self._tensors(name)
        chosen = [torch.where(mask, part, 0) for part in parts]
        if declared.length is None:
            found = tensors[0][tuple(chosen)]
        else:
            found = torch.stack([each[tuple(chosen[1:])] for each in tensors])
            found = found.gather(0, chosen[0].unsqueeze(0)).squeeze(0)
        found = found.to(torch.int64)
        for what, ends in (("values", declared.values), ("expected", declared.expected)):
            low, high = ends.ends(self.values, -(2**63), _NEVER)
            self._first(name, what, mask & ((found < low) | (found > high)), parts, found)

    def _first(
        self,
        name: str,
        what: str,
        wrong: Tensor,
        parts: tuple[Tensor, ...],
        value: Tensor | None,
    ) -> None:
        """Raise the first point at which a check fails."""
        if not wrong.any():
            return
        at = tuple(wrong.nonzero()[0].tolist())
        known = [c for c in self.checks.checks if (c.tensor, c.what) == (name, what)]
        varying = {i for i, size in zip(self.checks.extents, wrong.shape, strict=False) if size > 1}
        fitting = [c for c in known if varying <= {*c.axes}] or known
        axes = fitting[0].axes if fitting else tuple(varying)
        point = {i: n for i, n in zip(self.checks.extents, at, strict=False) if i in axes}
        found = int(value[at]) if value is not None else 0
        raise self._broken(Check(name, what, axes), point, [int(p[at]) for p in parts], found)

    # What is wrong, in words.

    def _broken(
        self, check: Check, point: dict[str, int], items: list[int], value: int
    ) -> KgenDeviceCheckError:
        declared = self.signature.tensors[check.tensor]
        element = _element(check.tensor, declared, items)
        if check.what in ("values", "expected"):
            ends = declared.values if check.what == "values" else declared.expected
            kind = "its declared" if check.what == "values" else "the expected"
            said = f"{element} is {value}, but {kind} values are {self._range(ends)}"
            return self._fail(said + self._at(point))
        dims = self._dims(check.tensor)
        at = next(
            at for at, (i, dim) in enumerate(zip(items, dims, strict=True)) if not 0 <= i < dim
        )
        exprs = [*([declared.length] if declared.length is not None else []), *declared.dims]
        verb = "is read" if check.what == "read" else "is stored to"
        which = "it" if len(dims) == 1 else f"its dimension {at - len(dims) + len(declared.dims)}"
        if at == 0 and declared.length is not None:
            which = "the list"
        said = f"{element} {verb}, but {which} has {self._end(exprs[at])} elements"
        return self._fail(said + self._at(point))

    def _at(self, point: dict[str, int]) -> str:
        """An index point, in the names that the spec declares."""
        names = {i: self.checks.twins.get(i, i) for i in point}
        if len({*names.values()}) < len(names):
            names = {i: i for i in point}
        said = ", ".join(f"{names[index]} = {number}" for index, number in point.items())
        return f" ({said})" if point else ""

    def _range(self, ends: Range) -> str:
        return " .. ".join(self._end(end) for end in (ends.low, ends.high)).strip()

    def _end(self, end: Expr | None) -> str:
        """An expression, with its value where that says more."""
        if end is None:
            return ""
        value = end(self.values)
        return end.text if end.text == str(value) else f"{end.text} = {value}"

    def _items(self, name: str, flat: int) -> list[int]:
        """An element's indices, given its number."""
        items = []
        for dim in reversed(self._dims(name)):
            flat, item = divmod(flat, dim)
            items.append(item)
        return items[::-1]

    def _distinct(self, name: str) -> None:
        """Raise two elements that are read and equal."""
        declared = self.signature.tensors[name]
        elements = torch.cat([tensor.reshape(-1) for tensor in self._tensors(name)])
        places = self.read[name].nonzero()[:, 0]
        elements = elements[places]
        if declared.repeats is not None:
            mine = elements != declared.repeats(self.values)
            places, elements = places[mine], elements[mine]
        pair = _equal(elements)
        if pair is None:
            return
        one, two = (_element(name, declared, self._items(name, int(places[at]))) for at in pair)
        but = f", except {self._end(declared.repeats)}" if declared.repeats is not None else ""
        raise self._fail(
            f"{one} and {two} are both {int(elements[pair[0]])}, but `{name}` is declared "
            f"distinct{but}"
        )

    def _trusted(self, name: str) -> None:
        """Raise two points that store to one place."""
        trusted = self.checks.trusted[name]
        points = (self.places[name] >= 0).nonzero()[:, 0]
        places = self.places[name][points]
        pair = _equal(places)
        if pair is None:
            return
        element = _element(
            name, self.signature.tensors[name], self._items(name, int(places[pair[0]]))
        )
        said = []
        for at in pair:
            number = int(points[at])
            for axes in trusted.stores:
                if number < self._points(axes):
                    said.append(self._at(self._point(axes, number)).strip())
                    break
                number -= self._points(axes)
        raise self._fail(
            f"{element} is stored to at {said[0]} and at {said[1]}, but it is trusted that no place "
            f"is stored to twice: {trusted.reason}"
        )


def _equal(values: Tensor) -> tuple[int, int] | None:
    """The places of the first two values that are equal."""
    ordered, order = values.sort(stable=True)
    again = (ordered[1:] == ordered[:-1]).nonzero()[:, 0]
    if not len(again):
        return None
    second = int(order[again + 1].min())
    first = (values == values[second]).nonzero()[0, 0]
    return int(first), second


def _element(name: str, declared: TensorArg, items: list[int]) -> str:
    listed = f"[{items[0]}]" if declared.length is not None else ""
    rest = items[1:] if declared.length is not None else items
    return f"{name}{listed}[{', '.join(map(str, rest))}]"
