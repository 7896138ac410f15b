"""The torch operations that the references are made of, with bounds checked.

Every tensor here has one dimension for each index of its group and broadcasts over the others.
Not for capture in a CUDA graph: the checks look at values.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _full(value: int | bool, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor that broadcasts against any other."""
    return torch.full((), value, dtype=dtype, device=device)


def _along(value: Tensor, dim: int, extent: int) -> Tensor:
    """`value` with all `extent` elements along `dim`, repeated if it does not vary with it."""
    if value.dim() == 0:
        value = value.view((1,) * (dim + 1))
    shape = list(value.shape)
    shape[dim] = extent
    return value.expand(shape)


def _checked(tensor: Tensor, items: tuple[Tensor | int, ...], where: Tensor | None) -> list[Tensor]:
    """The indices as i64 tensors of one shape; those outside `where` are made 0."""
    parts = [torch.as_tensor(item, device=tensor.device).to(torch.int64) for item in items]
    parts = list(torch.broadcast_tensors(*parts, *([where] if where is not None else [])))[
        : len(items)
    ]
    for dim, part in enumerate(parts):
        checked = part if where is None else part[where.expand(part.shape)]
        if checked.numel() and not (
            int(checked.min()) >= 0 and int(checked.max()) < tensor.shape[dim]
        ):
            raise IndexError(
                f"index {int(checked.min())} .. {int(checked.max())} in dimension {dim} of a tensor "
                f"of shape {tuple(tensor.shape)}"
            )
    return [part if where is None else torch.where(where, part, 0) for part in parts]


def _load(tensor: Tensor, *items: Tensor | int, where: Tensor | None = None) -> Tensor:
    """`tensor[items]`; only where `where` holds, if it is given, and 0 elsewhere."""
    parts = _checked(tensor, items, where)
    if tensor.numel() == 0:
        return torch.zeros(parts[0].shape, dtype=tensor.dtype, device=tensor.device)
    return tensor[tuple(parts)]


def _store(
    tensor: Tensor, items: tuple[Tensor | int, ...], value: Tensor, where: Tensor | None = None
) -> None:
    """`tensor[items] = value` where `where` holds; the places are distinct."""
    parts = _checked(tensor, items, where)
    value = value.to(tensor.dtype).broadcast_to(parts[0].shape)
    if where is not None:
        mask = where.broadcast_to(parts[0].shape)
        parts, value = [part[mask] for part in parts], value[mask]
    if value.numel():
        tensor[tuple(parts)] = value


def _min(value: Tensor, dim: int) -> Tensor:
    """The least element along `dim`; the type's largest value where there is none."""
    return _extreme(value, dim, torch.iinfo(value.dtype).max, torch.amin)


def _max(value: Tensor, dim: int) -> Tensor:
    """The greatest element along `dim`; the type's smallest value where there is none."""
    return _extreme(value, dim, torch.iinfo(value.dtype).min, torch.amax)


def _extreme(value: Tensor, dim: int, empty: int, reduce) -> Tensor:  # type: ignore[no-untyped-def] # noqa: ANN001
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
