"""The chain that the group replaces."""

from torch import Tensor


def row_stats(*, x: Tensor, weights: Tensor, total: Tensor, widest: Tensor) -> None:
    """The weighted sum and the largest value of each row."""
    total.copy_((x * weights).sum(1))
    widest.copy_(x.amax(1))


def scale(*, y: Tensor, z: Tensor) -> None:
    """Twice the projection."""
    z.copy_(y * 2)
