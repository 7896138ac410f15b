"""The torch operations that the references are made of, with bounds checked.

Every tensor here has one dimension for each index of its group and broadcasts over the others.
Not for capture in a CUDA graph: the checks look at values.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import torch
from torch import Tensor


def _full(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor that broadcasts against any other."""
    return torch.full((), value, dtype=dtype, device=device)


def _along(value: Tensor, dim: int, extent: int, rank: int) -> Tensor:
    """`value` of `rank` dimensions with all `extent` elements along `dim`, repeated if it has one."""
    if value.dim() == 0:
        value = value.view((1,) * rank)
    shape = list(value.shape)
    shape[dim] = extent
    return value.expand(shape)


class Watching(threading.local):
    """Who watches the references of a thread.

    `watch` is called before each load and in place of each store, with what is done ("read", "stored"), to
    which tensor or list, at which indices and where; and with the whole numbers that have to fit a type
    ("fits"), which type, and where. While one watches, nothing is stored and nothing raises.

    `later` keeps stores that are done together at the end: the tensor, the indices, the values.
    """

    watch: Callable[..., None] | None = None
    later: list[tuple[Tensor, tuple[Tensor, ...], Tensor]] | None = None


watching = Watching()


@contextlib.contextmanager
def together() -> Iterator[None]:
    """All stores of a reference are done at its end, or none if it raises."""
    before, watching.later = watching.later, []
    try:
        yield
        for tensor, parts, value in watching.later:
            tensor[parts] = value
    finally:
        watching.later = before


def _points(
    tensor: Tensor | list[Tensor], items: tuple[Tensor | int, ...], where: Tensor | bool
) -> tuple[list[Tensor], Tensor, list[Tensor]]:
    """The indices as i64 tensors, which of them count, and which are inside: all of one shape."""
    one = tensor if isinstance(tensor, Tensor) else tensor[0]
    shape = one.shape if isinstance(tensor, Tensor) else (len(tensor), *one.shape)
    parts = [torch.as_tensor(item, device=one.device).to(torch.int64) for item in items]
    *parts, mask = torch.broadcast_tensors(*parts, torch.as_tensor(where, device=one.device))
    inside = [(part >= 0) & (part < size) for part, size in zip(parts, shape, strict=True)]
    return parts, mask, inside


def _check(
    tensor: Tensor | list[Tensor],
    *items: Tensor | int,
    where: Tensor | bool = True,
    what: str = "read",
) -> None:
    """Raise IndexError if `tensor[items]` is outside the tensor or the list where `where` holds."""
    parts, mask, inside = _points(tensor, items, where)
    if watching.watch is not None:
        watching.watch(what, tensor, tuple(parts), mask)
        return
    for dim, (part, good) in enumerate(zip(parts, inside, strict=True)):
        if (mask & ~good).any():
            shape = list(tensor.shape) if isinstance(tensor, Tensor) else f"a list of {len(tensor)}"
            low, high = int(part[mask].min()), int(part[mask].max())
            raise IndexError(f"index {low} .. {high} in dimension {dim} of {shape} is {what}")


def _peek(tensor: Tensor | list[Tensor], *items: Tensor | int) -> Tensor:
    """`tensor[items]`, and 0 where that is outside the tensor or the list."""
    parts, mask, inside = _points(tensor, items, where=True)
    for good in inside:
        mask = mask & good
    parts = [torch.where(mask, part, 0) for part in parts]
    if not isinstance(tensor, Tensor):
        found = _peek(tensor[0], *parts[1:])
        for number, each in enumerate(tensor[1:], start=1):
            found = torch.where(parts[0] == number, _peek(each, *parts[1:]), found)
    elif tensor.numel():
        found = tensor[tuple(parts)]
    else:
        found = torch.zeros(mask.shape, dtype=tensor.dtype, device=tensor.device)
    return found.masked_fill(~mask, 0)


def _load(
    tensor: Tensor | list[Tensor], *items: Tensor | int, where: Tensor | bool = True
) -> Tensor:
    """`tensor[items]`, which must be inside where `where` holds; 0 where it is outside elsewhere."""
    _check(tensor, *items, where=where)
    return _peek(tensor, *items)


def _store(
    tensor: Tensor | list[Tensor],
    items: tuple[Tensor | int, ...],
    value: Tensor | float,
    where: Tensor | bool = True,
) -> None:
    """`tensor[items] = value` where `where` holds; the places are distinct."""
    _check(tensor, *items, where=where, what="stored")
    if watching.watch is not None:
        return
    if not isinstance(tensor, Tensor):
        for number, each in enumerate(tensor):
            _store(each, items[1:], value, where=where & (items[0] == number))
        return
    if not isinstance(value, Tensor):
        value = _full(value, tensor.dtype, tensor.device)
    parts, mask, _ = _points(tensor, items, where)
    *parts, mask, value = torch.broadcast_tensors(*parts, mask, value.to(tensor.dtype))
    places, value = tuple(part[mask] for part in parts), value[mask]
    if not value.numel():
        return
    if watching.later is not None:
        watching.later.append((tensor, places, value))
    else:
        tensor[places] = value


def _divisor(value: Tensor, where: Tensor | bool = True) -> Tensor:
    """`value`, which must not be 0 where `where` holds; 1 where it is 0 elsewhere."""
    if watching.watch is None and ((value == 0) & where).any():
        raise ZeroDivisionError("a divisor is 0")
    return torch.where(value == 0, 1, value)


def _fits(exact: Tensor, dtype: torch.dtype, where: Tensor | bool = True) -> None:
    """Whole numbers, in f64, that a spec trusts to fit a type: raises where one does not."""
    if watching.watch is not None:
        mask = torch.as_tensor(where, device=exact.device)
        watching.watch("fits", *torch.broadcast_tensors(exact, mask), dtype)
        return
    limits = torch.iinfo(dtype)
    if (((exact < limits.min) | (exact >= limits.max + 1)) & where).any():
        raise OverflowError(f"a result that is trusted to fit {dtype} does not")


def _smaller(a: Tensor | float, b: Tensor | float) -> Tensor:
    """The smaller one, a NaN if there is one; b of two zeros."""
    return torch.where((a < b) | (a != a), a, b)  # noqa: PLR0124 - NaN


def _larger(a: Tensor | float, b: Tensor | float) -> Tensor:
    """The larger one, a NaN if there is one; b of two zeros."""
    return torch.where((a > b) | (a != a), a, b)  # noqa: PLR0124 - NaN


def _sqrt(value: Tensor) -> Tensor:
    """The square root as IEEE rounds it; torch's own is off by one unit on some CPUs."""
    return value.double().sqrt().to(torch.float32).to(value.dtype)


def _exp(value: Tensor) -> Tensor:
    """e**value by +, - and * in f32, the same to the bit everywhere (Cephes, expf)."""
    x = value.to(torch.float32)
    kept = torch.where(x > -104.0, torch.where(x < 89.0, x, 89.0), -104.0)
    n = (kept * 1.44269504088896341 + 12582912.0) - 12582912.0
    r = (kept - n * 0.693359375) - n * -2.12194440e-4
    coefficients = (
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
    p = r * 1.9875691500e-4
    for coefficient in coefficients[:-1]:
        p = (p + coefficient) * r
    p = p + coefficients[-1]
    y = (p * (r * r) + r) + 1.0
    exponent = n.to(torch.int32)
    half = exponent >> 1
    for part in (half, exponent - half):
        y = y * ((part + 127) << 23).view(torch.float32)
    return torch.where(x == x, y, x).to(value.dtype)  # noqa: PLR0124 - NaN


def _tree_sum(value: Tensor, dim: int) -> Tensor:
    """The sum along `dim` in one order: padded to a power of two, halves added until one is left."""
    rows = value.movedim(dim, -1)
    size = max(rows.shape[-1], 1)
    width = 1 << (size - 1).bit_length()
    padded = torch.zeros((*rows.shape[:-1], width), dtype=value.dtype, device=value.device)
    padded[..., : rows.shape[-1]] = rows
    while width > 1:
        width //= 2
        padded = padded[..., :width] + padded[..., width:]
    return padded.movedim(-1, dim)


def _min(value: Tensor, dim: int) -> Tensor:
    """The least element along `dim`; the type's largest value where there is none."""
    return _extreme(value, dim, torch.iinfo(value.dtype).max, torch.amin)


def _max(value: Tensor, dim: int) -> Tensor:
    """The greatest element along `dim`; the type's smallest value where there is none."""
    return _extreme(value, dim, torch.iinfo(value.dtype).min, torch.amax)


def _extreme(value: Tensor, dim: int, empty: int, reduce: Callable[..., Tensor]) -> Tensor:
    if value.shape[dim]:
        return reduce(value, dim=dim, keepdim=True)
    shape = [1 if at == dim else size for at, size in enumerate(value.shape)]
    return torch.full(shape, empty, dtype=value.dtype, device=value.device)


def _first(found: Tensor, none: Tensor | int, dim: int) -> Tensor:
    """The least index along `dim` where `found` holds, `none` where it holds nowhere."""
    shape = [1] * found.dim()
    shape[dim] = -1
    size = found.shape[dim]
    places = torch.arange(size, device=found.device).view(shape)
    least = _extreme(torch.where(found, places, size), dim, size, torch.amin)
    return torch.where(least == size, none, least)
