"""Tensor parallelism: what the ranks of one model tell each other.

In: one rank's part of a tensor. Out: the whole model's answer, the same on every rank. The vocabulary is
cut into equal parts, the lower ids on the lower ranks. Not here: how the ranks are started.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """One rank among `size`; with `size` 1 nothing is sent."""

    rank: int = 0
    size: int = 1

    def part(self, whole: Tensor) -> Tensor:
        """This rank's part of `whole`, which is cut along its first dimension."""
        each = whole.shape[0] // self.size
        return whole.narrow(0, self.rank * each, each).contiguous()

    def sum(self, part: Tensor) -> Tensor:
        """The sum over the ranks, in place."""
        if self.size > 1:
            dist.all_reduce(part)
        return part

    def argmax(self, logits: Tensor) -> Tensor:
        """The token with the greatest logit, of those that tie the lowest id.

        Every rank decides from the same gathered numbers, so ranks can't disagree on a near tie and
        then accept different numbers of tokens.

        Args:
            logits: f32[..., vocab / size].

        Returns:
            i64[...].
        """
        best, token = logits.max(dim=-1)
        if self.size == 1:
            return token
        token = token + self.rank * logits.shape[-1]
        # Both in f64, which holds each exactly; what a rank doesn't know is 0 in its sum.
        pairs = best.new_zeros(self.size, 2, *best.shape, dtype=torch.float64)
        pairs[self.rank, 0], pairs[self.rank, 1] = best, token
        self.sum(pairs)
        winner = pairs[:, 0].argmax(dim=0)  # the first of those that tie: the lowest rank
        return pairs[:, 1].gather(0, winner.unsqueeze(0)).squeeze(0).long()

    def same(self, text: str) -> bool:
        """Whether every rank holds the same text."""
        if self.size == 1:
            return True
        texts: list[str | None] = [None] * self.size
        dist.all_gather_object(texts, text)
        return len(set(texts)) == 1
