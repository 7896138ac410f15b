"""Places that several rows share, where a spec lets a value of a `distinct` tensor repeat.

Needs only torch. Rows that read that value may store to one place. What it ends up holding is undefined,
and so is what such a row reads there. Watching the reference shows which places those are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ._runtime import Signature, Values
from ._trace import Access, trace

Places = dict[str, set[int]]


def shared(
    signature: Signature,
    run: Callable[[dict[str, Any]], object],
    arguments: Mapping[str, Any],
    values: Values,
) -> Places:
    """The elements of each tensor that several rows share, by their numbers.

    Args:
        signature: the group's parameters.
        run: calls the reference.
        arguments: a call's, by name.
        values: its sizes and scalars.

    Raises:
        AssertionError: several points store to one place for another reason.
    """
    accesses: list[Access] = []
    trace(run, arguments, lambda a: accesses.append(a) if isinstance(a, Access) else None)
    written = {access.name for access in accesses if access.what == "stored"}
    found: Places = {name: set() for name in written}
    for owner in _owners(signature, accesses, arguments, values):
        for name in written:
            found[name] |= _met(owner, [access for access in accesses if access.name == name])
    for name in written:
        places = [
            a.flat[a.mask & a.inside] for a in accesses if (a.name, a.what) == (name, "stored")
        ]
        unique, counts = torch.cat(places).unique(return_counts=True)
        met = set(unique[counts > 1].tolist()) - found[name]
        if met:
            raise AssertionError(
                f"{signature.group}: several points store to place {min(met)} of {name}"
            )
    return found


def _owners(
    signature: Signature, accesses: list[Access], arguments: Mapping[str, Any], values: Values
) -> Iterator[Tensor]:
    """For each load of a value that may repeat, and does: which element it is at each point, or -1."""
    for access in accesses:
        repeats = signature.tensors[access.name].repeats
        if repeats is None or access.what != "read":
            continue
        elements = arguments[access.name].reshape(-1)
        same = elements == repeats(values)
        if int(same.sum()) > 1:
            places = torch.where(access.mask & access.inside, access.flat, -1)
            yield torch.where((places >= 0) & same[places], places, -1)


def _met(owner: Tensor, accesses: list[Access]) -> set[int]:
    """The places of a tensor that one of the rows stores to and another one has for its own too."""
    own: dict[int, set[int]] = {}  # place -> rows of which it is the place, stored to or not
    storing: dict[int, set[int]] = {}
    reading: dict[int, set[int]] = {}
    for access in accesses:
        shape = access.mask.shape
        if torch.broadcast_shapes(owner.shape, shape) != shape:  # it is made of several rows
            continue
        rows = owner.expand(shape)
        for mask, into in (
            (access.inside, own if access.what == "stored" else {}),
            (access.inside & access.mask, storing if access.what == "stored" else reading),
        ):
            here = mask & (rows >= 0)
            for place, row in zip(access.flat[here].tolist(), rows[here].tolist(), strict=True):
                into.setdefault(place, set()).add(row)
    return {
        place
        for place, rows in storing.items()
        if len((rows | reading.get(place, set())) & own[place]) > 1
    }
