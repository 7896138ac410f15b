"""The torch operations that the references are made of, with bounds checked.

Every tensor here has one dimension for each index of its group and broadcasts over the others.
Not for capture in a CUDA graph: the checks look at values.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def _full(value: int | bool, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor that broadcasts against any other."""
    return torch.full((), value, dtype=dtype, device=device)


def _along(value: Tensor, dim: int, extent: int, rank: int) -> Tensor:
    """`value` of `rank` dimensions with all `extent` elements along `dim`, repeated if it has one."""
    if value.dim() == 0:
        value = value.view((1,) * rank)
    shape = list(value.shape)
    shape[dim] = extent
    return value.expand(shape)


# The test harness listens here: called with each tensor stored to and the flat places in its storage.
recorder: Callable[[Tensor, Tensor], None] | None = None
# Debug mode listens here: the last one is called before each load and in place of each store.
watchers: list[Callable[..., None]] = []


def _checked(tensor: Tensor, items: tuple[Tensor | int, ...], where: Tensor | None) -> list[Tensor]:
    """The indices as i64 tensors of one shape; those outside `where` are made 0."""
    parts = [torch.as_tensor(item, device=tensor.device).to(torch.int64) for item in items]
    *parts, mask = torch.broadcast_tensors(
        *parts, torch.ones((), dtype=torch.bool, device=tensor.device) if where is None else where
    )
    for dim, part in enumerate(parts):
        checked = part[mask]
        if not checked.numel():
            continue
        low, high = int(checked.min()), int(checked.max())
        if low < 0 or high >= tensor.shape[dim]:
            raise IndexError(
                f"index {low} .. {high} in dimension {dim} of a tensor of shape {tuple(tensor.shape)}"
            )
    return parts if where is None else [torch.where(mask, part, 0) for part in parts]


def _chosen(tensors: list[Tensor], item: Tensor | int, where: Tensor | None) -> Tensor:
    """Which tensor of a list is meant; one that the list does not have raises."""
    chosen = torch.as_tensor(item, device=tensors[0].device)
    outside = (chosen < 0) | (chosen >= len(tensors))
    if bool((outside if where is None else outside & where).any()):
        raise IndexError(f"a tensor outside a list of {len(tensors)}")
    return chosen


def _load(
    tensor: Tensor | list[Tensor], *items: Tensor | int, where: Tensor | None = None
) -> Tensor:
    """`tensor[items]`; only where `where` holds, if it is given, and 0 elsewhere."""
    if watchers:
        watchers[-1]("read", tensor, items, where)
    if not isinstance(tensor, Tensor):
        chosen = _chosen(tensor, items[0], where)
        result: Tensor | None = None
        for number, each in enumerate(tensor):
            here = (chosen == number) if where is None else (chosen == number) & where
            loaded = _load(each, *items[1:], where=here)
            result = loaded if result is None else torch.where(here, loaded, result)
        assert result is not None
        return result
    parts = _checked(tensor, items, where)
    if tensor.numel() == 0:
        return torch.zeros(parts[0].shape, dtype=tensor.dtype, device=tensor.device)
    found = tensor[tuple(parts)]
    # With 0-dimensional indices alone it is a view, which a later store would change.
    return found if parts[0].dim() else found.clone()


def _store(
    tensor: Tensor | list[Tensor],
    items: tuple[Tensor | int, ...],
    value: Tensor,
    where: Tensor | None = None,
) -> None:
    """`tensor[items] = value` where `where` holds; the places are distinct."""
    if watchers:
        watchers[-1]("stored", tensor, items, where)
        return
    if not isinstance(tensor, Tensor):
        chosen = _chosen(tensor, items[0], where)
        for number, each in enumerate(tensor):
            here = (chosen == number) if where is None else (chosen == number) & where
            _store(each, items[1:], value, where=here)
        return
    parts = _checked(tensor, items, where)
    shape = torch.broadcast_shapes(parts[0].shape, value.shape)
    parts = [part.broadcast_to(shape) for part in parts]
    value = value.to(tensor.dtype).broadcast_to(shape)
    if where is not None:
        mask = where.broadcast_to(shape)
        parts, value = [part[mask] for part in parts], value[mask]
    if recorder is not None:
        steps = zip(parts, tensor.stride(), strict=True)
        places = [part.reshape(-1) * stride for part, stride in steps]
        recorder(tensor, torch.stack(places).sum(dim=0) + tensor.storage_offset())
    if value.numel():
        tensor[tuple(parts)] = value


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
