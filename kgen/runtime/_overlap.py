"""Whether tensors may share memory, with each other or within one. Needs only torch."""

from __future__ import annotations

import math

import torch

_WORK = 10_000  # steps of a search, after which two elements may share memory for all that is known


def may_overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors may have an element's memory in common.

    Exact for dense tensors; for strided ones also tells apart views that interleave in rows of one
    pitch (columns of one matrix, layers of one pool). Where it cannot tell, it says yes.
    """
    if a.numel() == 0 or b.numel() == 0 or a.device != b.device:
        return False
    start_a, start_b = a.data_ptr(), b.data_ptr()
    end_a, end_b = start_a + extent(a), start_b + extent(b)
    if end_a <= start_b or end_b <= start_a:
        return False
    for pitch in sorted({*_pitches(a), *_pitches(b)}, reverse=True):
        inner_a, inner_b = _inner(a, pitch), _inner(b, pitch)
        if inner_a is None or inner_b is None:
            continue
        base = min(start_a, start_b)
        from_a, from_b = (start_a - base) % pitch, (start_b - base) % pitch
        apart = from_a + inner_a <= from_b or from_b + inner_b <= from_a
        if apart and from_a + inner_a <= pitch and from_b + inner_b <= pitch:
            return False
    return True


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements of a tensor share memory. Exact, unless the search gets too long: then yes."""
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    dims = sorted((stride, size) for stride, size in pairs if size > 1)
    if tensor.numel() == 0:
        return False
    reach = 0  # how far the dimensions of smaller strides go
    for stride, size in dims:
        if stride <= reach:
            break
        reach += (size - 1) * stride
    else:
        return False
    return _meet(dims, 0, [_WORK], differs=False)


def _meet(dims: list[tuple[int, int]], gap: int, work: list[int], *, differs: bool) -> bool:
    """Whether steps of less than each size, some not 0, add up to `-gap`; strides in rising order.

    `differs`: whether a step that is not 0 was taken before. Of two opposite ways one is tried.
    """
    work[0] -= 1
    if work[0] < 0:
        return True
    if not dims:
        return differs and gap == 0
    (stride, size), rest = dims[-1], dims[:-1]
    if stride == 0:  # and so are all others
        return gap == 0
    if gap % math.gcd(*(each for each, _ in dims)):
        return False
    reach = sum((count - 1) * step for step, count in rest)
    least = max(-((reach + gap) // stride), 1 - size if differs else 0)
    most = min((reach - gap) // stride, size - 1)
    return any(
        _meet(rest, gap + step * stride, work, differs=differs or step != 0)
        for step in range(least, most + 1)
    )


def extent(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the end of the last one."""
    last: int = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return (last + 1) * int(tensor.element_size())


def _pitches(tensor: torch.Tensor) -> list[int]:
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride * tensor.element_size() for size, stride in pairs if size > 1 and stride > 0]


def _inner(tensor: torch.Tensor, pitch: int) -> int | None:
    """Bytes that a tensor spans within one pitch, if its larger strides are multiples of it."""
    last = 0
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        step = stride * tensor.element_size()
        if size > 1 and step % pitch:
            if step > pitch:
                return None
            last += (size - 1) * step
    return int(last + tensor.element_size())
