"""What a reference reads and stores, at each point: for debug mode on a CPU, and for the tests.

Needs only torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ._reference import watching


@dataclass(frozen=True)
class Access:
    """A load or a store at every point, with a dimension for each index, of size 1 if all points are alike.

    Attributes:
        what: read or stored.
        name: the tensor's, or the list's.
        parts: the indices, that of a list first.
        mask: where it happens.
        dims: the tensor's dimensions, of a list its length first.
    """

    what: str
    name: str
    parts: tuple[Tensor, ...]
    mask: Tensor
    dims: tuple[int, ...]

    @cached_property
    def inside(self) -> Tensor:
        """Where every index is one of its dimension."""
        found = torch.ones_like(self.mask)
        for part, dim in zip(self.parts, self.dims, strict=True):
            found = found & (part >= 0) & (part < dim)
        return found

    @cached_property
    def flat(self) -> Tensor:
        """The element's number among all those of its tensor, or of a list of tensors."""
        found = torch.zeros_like(self.mask, dtype=torch.int64)
        for part, dim in zip(self.parts, self.dims, strict=True):
            found = found * dim + part
        return found


@dataclass(frozen=True)
class Sum:
    """Whole numbers, in f64, that a spec trusts to fit `dtype`; `mask` is where they are computed."""

    exact: Tensor
    dtype: torch.dtype
    mask: Tensor


def dims_of(argument: Tensor | list[Tensor]) -> tuple[int, ...]:
    """The dimensions of a tensor, of a list its length first."""
    if isinstance(argument, Tensor):
        return tuple(argument.shape)
    return (len(argument), *argument[0].shape)


def trace(
    run: Callable[[dict[str, Any]], object],
    arguments: Mapping[str, Any],
    watch: Callable[[Access | Sum], None],
) -> None:
    """Run a reference and store nothing; `watch` sees what it would do before it does.

    A load happens only where it is inside its tensor.

    Args:
        run: calls the reference with arguments by name.
        arguments: those of a call.
        watch: is given each load and store, and each number that is trusted to fit.
    """
    # Objects of their own, so that a tensor that is given twice has two names.
    own = {name: _alias(argument) for name, argument in arguments.items()}
    names = {id(argument): name for name, argument in own.items()}

    def watched(what: str, tensor: Any, *given: Any) -> None:
        if what == "fits":
            mask, dtype = given
            watch(Sum(tensor.cpu(), dtype, mask.cpu()))
        else:
            parts, mask = given
            watch(Access(what, names[id(tensor)], parts, mask, dims_of(tensor)))

    before, watching.watch = watching.watch, watched
    try:
        run(own)
    finally:
        watching.watch = before


def _alias(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.detach()
    return [*argument] if isinstance(argument, list | tuple) else argument
