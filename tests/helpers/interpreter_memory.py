"""Watches every load and store of a kernel that runs in Triton's interpreter.

The interpreter runs programs one after the other and knows nothing of tensors, so that a load past a
row's end, a race between programs or a missing barrier goes unnoticed there. `watched` makes a case's
kernel raise `MemoryFault` for each of them:

- an active lane outside the elements of the call's tensors, or a store to one that the group only reads;
- two stores to one place, or a load of a place that the launch has stored to;
- a place that one program loads and another stores to;
- a place that one program loads and stores to with no barrier between.

Places that the spec calls undefined (the dummy slot) are not compared. Does nothing on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

NOBODY, MANY = -1, -2


class MemoryFault(AssertionError):
    """A kernel touched what it must not."""


def addresses(tensor: torch.Tensor) -> np.ndarray:
    """The address of each element of a view."""
    found = np.array([tensor.data_ptr()], dtype=np.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        steps = np.arange(size, dtype=np.int64) * stride * tensor.element_size()
        found = (found[:, None] + steps[None, :]).ravel()
    return found


@dataclass
class Watch:
    """The places of a call's tensors, and who has touched each of them so far."""

    tensors: list[tuple[torch.Tensor, bool]]  # and whether the group may store to it
    undefined: list[torch.Tensor] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    program: int = 0
    phase: int = 0  # grows at every barrier

    def __post_init__(self) -> None:
        parts = [addresses(tensor) for tensor, _ in self.tensors]
        self.places = np.unique(np.concatenate(parts))
        self.writable = np.zeros(len(self.places), dtype=bool)
        for (_, written), part in zip(self.tensors, parts, strict=True):
            self.writable[np.searchsorted(self.places, part)] |= written
        self.shared = np.zeros(len(self.places), dtype=bool)
        for tensor in self.undefined:
            self.shared[np.searchsorted(self.places, addresses(tensor))] = True
        self.reader = np.full(len(self.places), NOBODY)
        self.writer = np.full(len(self.places), NOBODY)
        self.read_in = np.full(len(self.places), -1)

    def _fault(self, wrong: np.ndarray, what: str) -> None:
        if wrong.any():
            self.faults.append(f"program {self.program}: {int(wrong.sum())} {what}")

    def _find(self, pointers: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The active places, and the mask without the lanes that are nowhere."""
        lanes = np.asarray(pointers).astype(np.int64)
        active = np.broadcast_to(np.asarray(mask, dtype=bool), lanes.shape)
        if not len(self.places):
            return np.empty(0, dtype=np.int64), np.zeros_like(active)
        at = np.minimum(np.searchsorted(self.places, lanes), len(self.places) - 1)
        inside = active & (self.places[at] == lanes)
        return at[inside], inside

    def load(self, pointers: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Note a load; its mask without the lanes that are nowhere."""
        at, inside = self._find(pointers, mask)
        self._fault(np.asarray(mask, dtype=bool) & ~inside, "lanes load outside every tensor")
        own = at[~self.shared[at]]
        self._fault(self.writer[own] != NOBODY, "lanes load what this launch has stored")
        known = self.reader[own]
        self.reader[own] = np.where((known == NOBODY) | (known == self.program), self.program, MANY)
        self.read_in[own] = self.phase
        return inside

    def store(self, pointers: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Note a store; its mask without the lanes that are nowhere."""
        at, inside = self._find(pointers, mask)
        self._fault(np.asarray(mask, dtype=bool) & ~inside, "lanes store outside every tensor")
        self._fault(~self.writable[at], "lanes store to a tensor that is only read")
        own = at[~self.shared[at]]
        places, counts = np.unique(own, return_counts=True)
        self._fault(counts > 1, "places are stored to by several lanes")
        self._fault(self.writer[places] != NOBODY, "places are stored to twice")
        reader = self.reader[places]
        self._fault((reader != NOBODY) & (reader != self.program), "places another program loads")
        late = (reader == self.program) & (self.read_in[places] == self.phase)
        self._fault(late, "places are loaded and stored to with no barrier between")
        self.writer[places] = self.program
        return inside


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Report the interpreter's loads, stores and barriers to `watch`; raise what it found."""
    from triton.runtime import interpreter

    builder, memory = interpreter.interpreter_builder, interpreter._interpreter

    class Memory:
        """The interpreter's memory, watched."""

        def __getattr__(self, name: str) -> Any:
            return getattr(memory, name)

        def load(self, pointers, mask, other, dtype):
            return memory.load(pointers, watch.load(pointers, mask), other, dtype)

        def store(self, pointers, value, mask):
            return memory.store(pointers, value, watch.store(pointers, mask))

    def set_grid_idx(x: int, y: int, z: int) -> None:
        _, width, depth = builder.grid_dim
        watch.program = (x * width + y) * depth + z
        watch.phase += 1
        type(builder).set_grid_idx(builder, x, y, z)

    def create_barrier() -> None:
        watch.phase += 1

    interpreter._interpreter = Memory()
    builder.set_grid_idx, builder.create_barrier = set_grid_idx, create_barrier
    try:
        yield
    finally:
        interpreter._interpreter = memory
        del builder.set_grid_idx, builder.create_barrier
    if watch.faults:
        shown = "\n".join(watch.faults[:5])
        raise MemoryFault(f"{len(watch.faults)} faults:\n{shown}")


@contextmanager
def backwards() -> Iterator[None]:
    """Run the programs of each launch in the interpreter from the last to the first."""
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder

    def set_grid_idx(*at: int) -> None:
        mirrored = (n - 1 - i for i, n in zip(at, builder.grid_dim, strict=True))
        type(builder).set_grid_idx(builder, *mirrored)

    builder.set_grid_idx = set_grid_idx
    try:
        yield
    finally:
        del builder.set_grid_idx


def watched(case: Any) -> Any:
    """A test case whose kernel is watched."""
    return replace(case, fused=_watched_function(case))


def _watched_function(case: Any) -> Callable[..., None]:
    signature = case.signature

    def fused(**arguments: Any) -> None:
        given = {name: arguments.get(name) for name in signature.tensors}
        scalars = tuple(arguments.get(name) for name in signature.scalars)
        values = signature.bind(tuple(given.values()), scalars)
        tensors = {
            name: each if isinstance(each, list | tuple) else [] if each is None else [each]
            for name, each in given.items()
        }
        used = [
            (tensor, signature.tensors[name].mode != "in")
            for name, each in tensors.items()
            for tensor in each
        ]
        if used[0][0].device.type != "cpu":
            case.fused(**arguments)
            return
        undefined = []
        for name, flats in case.shared(arguments, values).items():
            count = tensors[name][0].numel()
            for flat in flats:
                tensor = tensors[name][flat // count]
                undefined.append(
                    tensor[tuple(map(int, np.unravel_index(flat % count, tensor.shape)))]
                )
        with watching(Watch(used, undefined)):
            case.fused(**arguments)

    return fused
