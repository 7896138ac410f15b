"""The models: a toy target and a small MLA DSpark drafter, plain torch, seeded random weights.

In: the tensors of one decode step. Out: what the step's own stages must fill, in place. Nothing here
depends on the value of a tensor on the host, so all of it may be captured in a CUDA graph. Not here:
requests, pages and slots, and the bookkeeping, which is the generated step's.

Sizes are those of `Sizes`; G, K, K1, W and N are those of the step (see specs/dspark).
"""
# ruff: noqa: E741 - a layer is l, as in the specs

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from examples.dspark_decode.ranks import Ranks

EPS = 1e-6


@dataclass(frozen=True)
class Sizes:
    """Sizes of the models and of the engine's buffers."""

    H: int = 96  # hidden size
    L: int = 2  # drafter layers
    R: int = 32  # latent rank
    P: int = 8  # rope width
    heads: int = 4
    vocab: int = 512
    captured: int = 2  # target layers whose hidden states feed the drafter
    page_size: int = 4
    blocks: int = 24  # width of a block-table row
    pages: int = 24  # pages for requests
    slots: int = 7  # context slots; the last is the dummy slot
    K: int = 3  # greatest number of draft tokens
    # True: the block has W = K slots and slot j predicts the token after its own position (DSpark).
    # False: W = K + 1, slot 0 is the bonus token and predicts nothing (DFlash).
    shift_label: bool = True

    @property
    def D(self) -> int:  # noqa: N802 - the contract's name
        """Numbers stored a token and layer."""
        return self.R + self.P

    @property
    def max_batch(self) -> int:
        """Rows of a batch."""
        return self.slots - 1

    @property
    def mask_token_id(self) -> int:
        """A token that the target never says, so a draft of it is never accepted."""
        return self.vocab - 1

    def width(self, drafts: int) -> int:
        """Width W of the draft block that gives so many draft tokens."""
        return drafts if self.shift_label else drafts + 1

    @property
    def max_ctx(self) -> int:
        """Most tokens that a context may hold: what is left of a table row beside the block."""
        return self.blocks * self.page_size - self.K - 1


class Target:
    """A next-token rule in place of a large model.

    The logits after a token are a row of a bigram table (of low rank) plus a row drawn by the last two
    tokens and the position. So they depend on the request alone, and a context length that is wrong by
    one shows up as another text. A drafter that knows the bigram table is right now and then.
    """

    def __init__(self, sizes: Sizes, ranks: Ranks, device: torch.device) -> None:
        draw = torch.Generator().manual_seed(1)
        self.left = torch.randn(sizes.vocab, 16, generator=draw).to(device)
        self.right = torch.randn(sizes.vocab, 16, generator=draw).to(device)
        rows = 0.6 * torch.randn(251, sizes.vocab, generator=draw).to(device)
        bigram = (self.left.double() @ self.right.double().T).float()
        bigram[:, sizes.mask_token_id] = -torch.inf
        self.bigram, self.rows = ranks.part(bigram.T).T, ranks.part(rows.T).T
        states = (sizes.vocab + len(rows), sizes.H)
        self.states = torch.randn(states, generator=draw).bfloat16().to(device)

    def __call__(self, before: Tensor, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and captured hidden states of tokens.

        Args:
            before: i64[n], the token before each.
            tokens: i64[n].
            positions: i64[n].

        Returns:
            f32[n, vocab / ranks] and bf16[n, captured * H].
        """
        row = (before * 7919 + tokens * 104729 + positions * 31) % len(self.rows)
        logits = self.bigram[tokens] + self.rows[row]
        captured = self.states[torch.stack((tokens, row + self.bigram.shape[0]), dim=1)]
        return logits, captured.flatten(1)


class Drafter:
    """An MLA drafter: attention over a paged cache of latents, and a Markov head over the block.

    A method that is named like a stage of specs/dspark/step.yaml is that stage.
    """

    def __init__(
        self, sizes: Sizes, target: Target, ranks: Ranks, device: torch.device, rows: int
    ) -> None:
        """Draw the weights; `rows` is the greatest G."""
        self.sizes, self.ranks = sizes, ranks
        draw = torch.Generator().manual_seed(2)

        def weight(count: int, fan_in: int, fan_out: int) -> Tensor:
            """Weights of `count` layers, bf16 numbers held in f64 (see `_linear`)."""
            drawn = torch.randn(count, fan_in, fan_out, generator=draw) / math.sqrt(fan_in)
            return drawn.bfloat16().double().to(device)

        H, L, R, D = sizes.H, sizes.L, sizes.R, sizes.D  # noqa: N806 - the contract's names
        self.fc = weight(1, sizes.captured * H, H)[0]
        self.context = weight(1, H, L * D)[0]
        self.latent = weight(L, H, D)
        # Sharp and loud, else all that attention reads would average out.
        self.query = 4 * weight(L, H, sizes.heads * D)
        self.out = 4 * weight(L, sizes.heads * R, H)
        self.up, self.down = weight(L, H, 2 * H), weight(L, 2 * H, H)
        self.table = ranks.part(weight(1, sizes.vocab, H)[0] * math.sqrt(sizes.vocab)).bfloat16()
        self.head = ranks.part(weight(1, H, sizes.vocab)[0].T).T

        # A random head would never agree with the target, so the Markov head gets the target's own
        # bigram table, with noise. What the block adds to it can only mislead; but then a wrong
        # latent, page or position changes the draft, and that is what this example is to show.
        noise = torch.randn(sizes.vocab, 16, generator=draw).to(device)
        self.markov = (target.left + 0.1 * noise).double()
        self.bigram = ranks.part(target.right.double()).T

        self.norm_weight = (1 + 0.1 * torch.randn(L, R, generator=draw)).bfloat16().to(device)
        rates = 10000.0 ** (-torch.arange(0, sizes.P, 2, dtype=torch.float64) / sizes.P)
        angles = torch.arange(sizes.max_ctx + sizes.K + 1, dtype=torch.float64)[:, None] * rates
        self.freqs = torch.stack((angles.cos(), angles.sin()), dim=-1).float().to(device)

        tokens = rows * (sizes.K + 1)
        self.captured = torch.zeros(tokens, sizes.captured * H, dtype=torch.bfloat16, device=device)
        block = (rows, sizes.width(sizes.K), H)
        self.hidden = torch.zeros(block, dtype=torch.bfloat16, device=device)

    # The stages, in the step's order.

    def embed(self, *, embed_ids: Tensor, embed_rows: Tensor) -> None:
        """Rows of the embedding table, which is sharded: each row is zero on all ranks but one.

        Args:
            embed_ids: i64[G + 1].
            embed_rows: bf16[G + 1, H], out.
        """
        local = embed_ids - self.ranks.rank * self.table.shape[0]
        mine = (local >= 0) & (local < self.table.shape[0])
        rows = self.table[local.clamp(0, self.table.shape[0] - 1)]
        embed_rows.copy_(self.ranks.sum(rows.float() * mine.unsqueeze(1)))

    def project(self, *, latents: Tensor) -> None:
        """Context latents of all layers, from the captured hidden states.

        Args:
            latents: bf16[N, L, D], out.
        """
        latents.copy_(self._context_latents(self.captured[: latents.shape[0]]))

    def norm_rope(self, *, staged: Tensor, ctx_positions: Tensor, normed: Tensor) -> None:
        """Norm and rope of the context latents, a layer at a time.

        Args:
            staged: bf16[L, N, D].
            ctx_positions: i64[G, K1].
            normed: bf16[L, N, D], out.
        """
        positions = ctx_positions.flatten()
        for l, rows in enumerate(staged):
            normed[l].copy_(self._norm_rope(rows, positions, l))

    def begin_block(self, *, noise: Tensor) -> None:
        """The block's input.

        Args:
            noise: bf16[G, W, H].
        """
        self._block(noise.shape[0], noise.shape[1]).copy_(noise)

    def layer_latents(self, *, query_positions: Tensor, block_latents: Tensor, l: int) -> None:
        """Layer l's latents of the block, before norm and rope.

        Args:
            query_positions: i64[G, W].
            block_latents: bf16[G, W, D], out.
            l: the layer.
        """
        hidden = self._block(*query_positions.shape)
        block_latents.copy_(_linear(_norm(hidden), self.latent[l]))

    def layer_norm_rope(
        self, *, block_latents: Tensor, query_positions: Tensor, block_normed: Tensor, l: int
    ) -> None:
        """Norm and rope of layer l's latents of the block.

        Args:
            block_latents: bf16[G, W, D].
            query_positions: i64[G, W].
            block_normed: bf16[G, W, D], out.
            l: the layer.
        """
        block_normed.copy_(self._norm_rope(block_latents, query_positions, l))

    def attend(
        self, *, query_positions: Tensor, page_tables: Tensor, kv_lens: Tensor, pool: Tensor, l: int
    ) -> None:
        """Layer l's attention over the pages of each request, and its MLP.

        Absorbed: queries meet the latents as they are stored, and the first R numbers of a latent are
        its value too. A slot of the block sees the context and the block up to itself.

        Args:
            query_positions: i64[G, W].
            page_tables: i32[G, blocks].
            kv_lens: i32[G], tokens of context and block.
            pool: bf16[pages, 1, 1, page_size, D], the layer's.
            l: the layer.
        """
        sizes, device = self.sizes, pool.device
        rows, width = query_positions.shape
        hidden = self._block(rows, width)
        query = _linear(_norm(hidden), self.query[l]).unflatten(-1, (sizes.heads, sizes.D))
        turned = _rope(query[..., sizes.R :], self.freqs[query_positions].unsqueeze(2))
        query = torch.cat((query[..., : sizes.R], turned.bfloat16()), dim=-1)

        keys = pool[:, 0, 0][page_tables.long()].flatten(1, 2)
        places = torch.arange(keys.shape[1], device=device)
        # Places behind the request's end are anything, and 0 * NaN is NaN.
        keys = keys.masked_fill((places >= kv_lens.unsqueeze(1)).unsqueeze(2), 0).double()
        slots = torch.arange(width, device=device)
        last = kv_lens.unsqueeze(1) - width + slots  # [G, W]: the last place that a slot sees
        scores = torch.einsum("gwhd,gtd->gwht", query.double(), keys) / math.sqrt(sizes.D)
        hides = (places > last.unsqueeze(2)).unsqueeze(2)
        weights = scores.masked_fill(hides, -torch.inf).softmax(dim=-1)
        mixed = torch.einsum("gwht,gtr->gwhr", weights, keys[..., : sizes.R])
        hidden += _linear(mixed.bfloat16().flatten(2), self.out[l])
        inner = functional.silu(_linear(_norm(hidden), self.up[l]))
        hidden += _linear(inner, self.down[l])

    def propose(self, *, bonus: Tensor, draft_tokens: Tensor) -> None:
        """The next step's draft tokens, one after the other: each is biased by the one before.

        Args:
            bonus: i64[G], the last accepted token.
            draft_tokens: i32[G, K], out.
        """
        rows, drafts = draft_tokens.shape
        width = self.sizes.width(drafts)
        hidden = self._block(rows, width)[:, width - drafts :]
        logits = _norm(hidden).double() @ self.head
        token = bonus
        for k in range(drafts):
            biased = logits[:, k] + self.markov[token] @ self.bigram
            token = self.ranks.argmax(biased.float())
            draft_tokens[:, k].copy_(token)

    # Prefill, which is the engine's own business and no part of the step.

    def prefill(self, captured: Tensor, places: Tensor, pool: list[Tensor]) -> None:
        """Write the latents of a chunk of a prompt.

        Args:
            captured: bf16[n, captured * H].
            places: i64[3, n]: position, page and place in the page of each token.
            pool: L tensors bf16[pages, 1, 1, page_size, D].
        """
        positions, pages, offsets = places
        latents = self._context_latents(captured)
        for l, arena in enumerate(pool):
            arena[:, 0, 0][pages, offsets] = self._norm_rope(latents[:, l], positions, l)

    def _block(self, rows: int, width: int) -> Tensor:
        """bf16[rows, width, H], the block's hidden states, which stay where they are."""
        return self.hidden[:rows, :width]

    def _context_latents(self, captured: Tensor) -> Tensor:
        """bf16[n, captured * H] to bf16[n, L, D]."""
        latents = _linear(_norm(_linear(captured, self.fc)), self.context)
        return latents.unflatten(-1, (self.sizes.L, self.sizes.D))

    def _norm_rope(self, latents: Tensor, positions: Tensor, l: int) -> Tensor:
        """RMSNorm of the first R numbers and rope of the last P, in f32, rounded once.

        Args:
            latents: bf16[..., D].
            positions: i64[...].
            l: the layer.

        Returns:
            bf16[..., D].
        """
        values = latents.float()
        latent, turns = values[..., : self.sizes.R], values[..., self.sizes.R :]
        mean = latent.square().mean(dim=-1, keepdim=True)
        latent = latent * torch.rsqrt(mean + EPS) * self.norm_weight[l]
        return torch.cat((latent, _rope(turns, self.freqs[positions])), dim=-1).bfloat16()


def _rope(values: Tensor, cos_sin: Tensor) -> Tensor:
    """Turn adjacent (re, im) pairs, in f32, every product rounded (no fused multiply-add).

    Args:
        values: [..., P].
        cos_sin: f32[..., P / 2, 2].

    Returns:
        f32[..., P].
    """
    pairs = values.float().unflatten(-1, (-1, 2))
    crossed = torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1)
    return (pairs * cos_sin[..., :1] + crossed * cos_sin[..., 1:]).flatten(-2)


def _linear(values: Tensor, weight: Tensor) -> Tensor:
    """A bf16 product, summed in f64.

    A library's order of summation changes with the number of rows. In f64 that is too little to be
    seen after rounding, so what a request drafts doesn't depend on who else is in the batch.
    """
    return (values.double() @ weight).bfloat16()


def _norm(values: Tensor) -> Tensor:
    """RMSNorm without a weight, bf16 to bf16, summed in f64."""
    wide = values.double()
    return (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + EPS)).bfloat16()
