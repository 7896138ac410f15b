"""Makes random inputs keep what a spec trusts, as its callers do.

Needs only torch. The reference is watched on the inputs. Where an index leaves its tensor, a number its
type or two points store to one place, elements that were read on the way are changed, until nothing does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ._runtime import LIMITS, Signature, Values
from ._trace import Access, Sum, trace

_PATIENCE = 10  # tries to mend the inputs of a call that mend nothing more
_MENDED = 24  # faults at once

Element = tuple[str, int]


@dataclass(frozen=True)
class Fault:
    """A promise that inputs break at a point.

    Attributes:
        text: what is broken, in words.
        point: the index in each of the group's dimensions; None where it may be any.
        reads: how many loads there were before.
        items: the indices; none of a number that leaves its type.
        dims: the tensor's dimensions.
        taken: the places that are stored to, if two points store to this one.
    """

    text: str
    point: tuple[int | None, ...]
    reads: int
    items: tuple[int, ...] = ()
    dims: tuple[int, ...] = ()
    taken: set[int] | None = None


@dataclass
class Inputs:
    """The inputs of a call, and how to change them.

    Attributes:
        signature: the group's parameters.
        run: calls the reference.
        arguments: the call's, by name.
        values: its sizes and scalars.
        apart: tensors of which no place may be stored to twice.
        chance: decides what is changed.
    """

    signature: Signature
    run: Callable[[dict[str, Any]], object]
    arguments: Mapping[str, Any]
    values: Values
    apart: frozenset[str]
    chance: random.Random
    reads: list[Access] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def keep(self) -> str:
        """Change elements until no promise is broken; in words one that still is, or nothing."""
        count, patience = self._look(), _PATIENCE
        while count and patience:
            reads, faults = self.reads, self.faults
            changes: dict[Element, float] = {}
            anyhow = self.chance.random() < 0.2
            for fault in faults[: 1 if anyhow else _MENDED]:
                for element, value in self._mend(fault, anyhow=anyhow):
                    changes.setdefault(element, value)
            before = {element: self._get(element) for element in changes}
            for element, value in changes.items():
                self._set(element, value)
            after = self._look()
            patience = _PATIENCE if after < count else patience - 1
            if after <= count:
                count = after
                continue
            self.reads, self.faults = reads, faults
            self.chance.shuffle(self.faults)
            for element, value in reversed(before.items()):
                self._set(element, value)
        return self.faults[0].text if count else ""

    # What is broken.

    def _look(self) -> int:
        """How many faults there are; notes some of them, and what is read."""
        self.reads, self.faults = [], []
        count, stored = 0, dict[str, list[Access]]()

        def watch(access: Access | Sum) -> None:
            nonlocal count
            if isinstance(access, Sum):
                limits = torch.iinfo(access.dtype)
                wrong = (access.exact < limits.min) | (access.exact >= limits.max + 1)
                wrong, what = wrong & access.mask, f"a result does not fit {access.dtype}"
            else:
                wrong, what = access.mask & ~access.inside, f"is {access.what}, which is outside"
                if access.what == "read":
                    self.reads.append(access)
                elif access.name in self.apart:
                    stored.setdefault(access.name, []).append(access)
            count += self._note(access, wrong, what)

        trace(self.run, self.arguments, watch)
        for accesses in stored.values():
            taken: set[int] = set()
            for access in accesses:
                happens = access.mask & access.inside
                places = access.flat[happens]
                _, order = places.unique(return_inverse=True)
                first = torch.full_like(places, len(places)).scatter_reduce(
                    0, order, torch.arange(len(places)), "amin"
                )
                again = torch.arange(len(places)) != first[order]
                again |= torch.isin(places, torch.tensor([*taken], dtype=torch.int64))
                wrong = torch.zeros_like(happens).masked_scatter(happens, again)
                taken |= set(places.tolist())
                count += self._note(access, wrong, "is stored to by another point too", taken)
        self.chance.shuffle(self.faults)
        return count

    def _note(
        self, access: Access | Sum, wrong: Tensor, what: str, taken: set[int] | None = None
    ) -> int:
        """Note faults of one access, of many a few; how many there are."""
        if not wrong.any():
            return 0
        points = wrong.nonzero().tolist()
        for at in self.chance.sample(points, min(len(points), _MENDED)):
            pairs = zip(wrong.shape, at, strict=True)
            point = tuple(index if size > 1 else None for size, index in pairs)
            if isinstance(access, Sum):
                self.faults.append(Fault(what, point, len(self.reads)))
                continue
            items = tuple(int(part[tuple(at)]) for part in access.parts)
            text = f"{access.name}[{', '.join(map(str, items))}] {what}"
            self.faults.append(Fault(text, point, len(self.reads), items, access.dims, taken))
        return len(points)

    # How it may be mended.

    def _mend(self, fault: Fault, *, anyhow: bool) -> Iterator[tuple[Element, float]]:
        """Elements to change, and what to; `anyhow`: any of them, to anything."""
        elements = list(dict.fromkeys(self._elements(fault)))
        if not elements:
            return
        chosen = self.chance.choice(elements[-self.chance.choice((1, 2, 4, len(elements))) :])
        wrong = [
            (item, size)
            for item, size in zip(fault.items, fault.dims, strict=True)
            if not 0 <= item < size and size
        ]
        if fault.taken is not None and not anyhow:
            yield from self._free(fault, elements).items()
        elif wrong and not anyhow:
            item, size = self.chance.choice(wrong)
            yield chosen, self._get(chosen) + self.chance.randrange(size) - item
        else:
            yield chosen, self._random(chosen)

    def _free(self, fault: Fault, elements: list[Element]) -> dict[Element, float]:
        """A free place, by the elements that are indices of a fault's."""
        assert fault.taken is not None
        names: dict[int, Element] = {}
        for dim, item in enumerate(fault.items):
            same = [each for each in elements if self._get(each) == item]
            if same:
                names[dim] = self.chance.choice(same[-2:])
        for _ in range(20 if names else 0):
            target, flat = [*fault.items], 0
            for dim, size in enumerate(fault.dims):
                target[dim] = self.chance.randrange(size) if dim in names else target[dim]
                flat = flat * size + target[dim]
            if flat not in fault.taken:
                fault.taken.add(flat)
                return {element: target[dim] for dim, element in names.items()}
        return {}

    def _elements(self, fault: Fault) -> Iterator[Element]:
        """The elements that were read on the way to a fault's point, in order."""
        for access in self.reads[: fault.reads]:
            shape = access.mask.shape
            at = tuple(
                0 if size == 1 else slice(None) if index is None else index
                for size, index in zip(shape, fault.point, strict=False)
            )
            happens = (access.mask & access.inside)[at].reshape(-1)
            for place in access.flat[at].reshape(-1)[happens][:8].tolist():
                yield access.name, place

    # Elements.

    def _ends(self, name: str) -> tuple[int, int]:
        declared = self.signature.tensors[name]
        return declared.values.ends(self.values, *LIMITS[declared.dtype])

    def _random(self, element: Element) -> float:
        """A random number for an element, small ones as likely as large ones."""
        if self.signature.tensors[element[0]].dtype.is_floating_point:
            return self.chance.gauss(0, 1)
        low, high = self._ends(element[0])
        if high - low < 16:
            return self.chance.randint(low, high)
        size = self.chance.getrandbits(self.chance.randint(1, (high - low).bit_length()))
        return max(low, min(high, 0)) + (size if self.chance.random() < 0.5 else -size)

    def _place(self, element: Element) -> tuple[Tensor, tuple[Any, ...]]:
        """A tensor of an argument, and the indices of an element of it."""
        name, at = element
        tensor = self.arguments[name]
        if not isinstance(tensor, Tensor):
            number, at = divmod(at, tensor[0].numel())
            tensor = tensor[number]
        items = []
        for size in reversed(tensor.shape):
            at, item = divmod(at, size)
            items.append(item)
        return tensor, tuple(reversed(items))

    def _get(self, element: Element) -> float:
        tensor, items = self._place(element)
        value: float = tensor[items].item()
        return value

    def _set(self, element: Element, value: float) -> None:
        """Change an element, within its range; where no value may be twice, swap it with another's."""
        declared = self.signature.tensors[element[0]]
        tensor, items = self._place(element)
        if not declared.dtype.is_floating_point:
            low, high = self._ends(element[0])
            value = max(low, min(high, value))
        repeats = declared.repeats(self.values) if declared.repeats is not None else None
        if declared.distinct and value != repeats:
            tensor[tensor == value] = tensor[items].clone()
        tensor[items] = value
