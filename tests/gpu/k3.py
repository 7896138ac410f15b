"""One decode step at the sizes of Kimi K3, built by hand: a function a group returns its arguments.

A further group is one more function here, named like the group. Inputs look like a running engine's:
every request has a context of its own, a prefix of its table row names pages that nobody else owns, and
the rest of the row holds placeholders.
"""

# ruff: noqa: N802 - the sizes have the names of the specs

import math
from dataclasses import dataclass

import torch

SEED = 20


@dataclass(frozen=True)
class Sizes:
    """G requests and what the step around them is made of."""

    G: int
    K: int = 7
    W: int = 7
    H: int = 7168
    L: int = 5
    R: int = 512
    P: int = 64
    page_size: int = 32
    blocks: int = 4096
    pages: int = 8192  # of a pool; a multiple of G, see `Step.pages`
    vocab: int = 163840

    @property
    def K1(self):
        return self.K + 1

    @property
    def D(self):
        return self.R + self.P

    @property
    def slots(self):
        return max(self.G, 64) + 1

    @property
    def max_ctx(self):
        return self.blocks * self.page_size


def small(G):
    """Sizes for the interpreter on a CPU, none of them a power of two where that is free."""
    return Sizes(G, K=4, W=5, H=96, L=2, R=32, P=8, page_size=4, blocks=24, pages=12 * G, vocab=512)


class Step:
    """The state of a decode step, from which the groups' arguments are taken."""

    def __init__(self, sizes, device, seed=SEED, *, special=False):
        self.sizes, self.device, self.special = sizes, device, special
        self._random = torch.Generator().manual_seed(seed)
        self._floats = torch.Generator(device).manual_seed(seed)
        s = sizes
        room = s.K1 + s.W
        self.context = self.integers(s.max_ctx // 4, s.max_ctx - room, s.G)
        needed = (self.context + room + s.page_size - 1) // s.page_size
        self.counts = torch.minimum(needed + self.integers(0, 4, s.G), torch.tensor(s.blocks))
        self.owned = torch.arange(s.blocks) < self.counts.unsqueeze(1)
        self.slot = torch.randperm(s.slots - 1, generator=self._random)[: s.G]
        self.accepted = self.integers(1, s.K1 + 1, s.G)

    def integers(self, low, high, *shape, dtype=torch.int64):
        return torch.randint(low, high, shape, generator=self._random, dtype=dtype)

    def floats(self, *shape, dtype=torch.bfloat16):
        """Drawn where they are used: an embedding table has a billion of them."""
        drawn = torch.randn(shape, generator=self._floats, device=self.device, dtype=dtype)
        if self.special:  # NaN, infinities, -0.0 and denormals, in rows kept and masked alike
            flat = drawn.view(-1)
            for start, value in enumerate((math.nan, math.inf, -math.inf, -0.0, 1e-39, -1e-39)):
                flat[start * 2711 :: 16273] = value
        return drawn

    def pages(self):
        """i64[G, blocks]: no page is in two rows, since a page modulo G says whose it is."""
        s = self.sizes
        column, row = torch.arange(s.blocks), torch.arange(s.G).unsqueeze(1)
        return (column * s.G + row) % s.pages

    def tables(self):
        return torch.where(self.owned, self.pages(), 0).int()

    def batch_to_slot(self):
        slots = torch.full((self.sizes.slots - 1,), self.sizes.slots - 1)
        slots[: self.sizes.G] = self.slot
        return slots

    def ctx_len(self):
        lengths = torch.zeros(self.sizes.slots, dtype=torch.int64)
        lengths[self.slot] = self.context
        return lengths

    def places(self, first, count):
        """Page and offset of `count` positions from `first[r]` on."""
        size = self.sizes.page_size
        position = first.unsqueeze(1) + torch.arange(count)
        return self.pages().gather(1, position // size), position % size

    def keep(self):
        return torch.arange(self.sizes.K1) < self.accepted.unsqueeze(1)

    def pool(self):
        s = self.sizes
        return self.filled(s.pages, 1, 1, s.page_size, s.D, dtype=torch.bfloat16)

    def freqs(self):
        s = self.sizes
        angle = torch.arange(s.max_ctx + s.K1).unsqueeze(1) / 10000 ** (
            torch.arange(s.P // 2) / (s.P // 2)
        )
        return torch.stack((angle.cos(), angle.sin()), dim=-1).float()

    def filled(self, *shape, dtype=torch.int64):
        """An out tensor that holds what no result does."""
        return torch.full(shape, 99, dtype=dtype, device=self.device)

    def on_device(self, **arguments):
        return move_all(arguments, self.device)


def move(value, device):
    """A tensor, list of tensors or number on a device, in memory of its own."""
    if isinstance(value, list):
        return [move(each, device) for each in value]
    return value.to(device, copy=True) if isinstance(value, torch.Tensor) else value


def move_all(arguments, device):
    """A call's arguments in memory of their own."""
    return {name: move(value, device) for name, value in arguments.items()}


def refresh_block_tables(step):
    s = step.sizes
    entries = torch.where(step.owned, step.pages() * s.L, -1).int()
    offsets = torch.full((2, s.G, 2, s.blocks), -1, dtype=torch.int32)
    offsets[1] = entries.unsqueeze(1)
    return step.on_device(
        block_offsets=offsets,
        block_counts=step.filled(s.G),
        block_tables=step.filled(s.G, s.blocks, dtype=torch.int32),
        pool_index=1,
        divisor=s.L,
        num_seqs=s.G,
    )


def context_positions(step):
    s = step.sizes
    return step.on_device(
        ctx_len=step.ctx_len(),
        batch_to_slot=step.batch_to_slot(),
        ctx_positions=step.filled(s.G, s.K1),
        num_contexts=0,
    )


def gen_bookkeeping(step):
    s = step.sizes
    return step.on_device(
        accepted_tokens=step.integers(0, s.vocab, s.G, s.K1, dtype=torch.int32),
        num_accepted=step.accepted.int(),
        batch_to_slot=step.batch_to_slot(),
        block_counts=step.counts,
        block_tables=step.tables(),
        ctx_len=step.ctx_len(),
        bonus=step.filled(s.G),
        embed_ids=step.filled(s.G + 1),
        query_positions=step.filled(s.G, s.W),
        keep=torch.zeros(s.G, s.K1, dtype=torch.bool),
        write_pages=step.filled(s.G, s.K1),
        write_offsets=step.filled(s.G, s.K1),
        num_ctx=step.filled(s.G),
        seq_lens=step.filled(s.G, dtype=torch.int32),
        num_contexts=0,
        max_ctx=s.max_ctx,
        mask_token_id=s.vocab - 1,
        page_size=s.page_size,
    )


def gen_bookkeeping_arena(step):
    arguments = gen_bookkeeping(step)
    del arguments["block_counts"], arguments["block_tables"]
    s = step.sizes
    tables = torch.arange(s.slots * s.blocks, dtype=torch.int32).view(s.slots, s.blocks)
    return arguments | step.on_device(arena_tables=tables)


def noise_block_from_table(step):
    s = step.sizes
    ids = step.integers(0, s.vocab, s.G + 1)
    ids[0] = s.vocab  # outside the table
    return step.on_device(
        embed_ids=ids,
        embed_table=step.floats(s.vocab, s.H),
        noise=step.filled(s.G, s.W, s.H, dtype=torch.bfloat16),
    )


def noise_block(step):
    s = step.sizes
    return step.on_device(
        embed_rows=step.floats(s.G + 1, s.H),
        noise=step.filled(s.G, s.W, s.H, dtype=torch.bfloat16),
    )


def context_kv_stage(step):
    s = step.sizes
    tokens = s.G * s.K1
    return step.on_device(
        latents=step.floats(tokens, s.L, s.D),
        staged=step.filled(s.L, tokens, s.D, dtype=torch.bfloat16),
    )


def context_kv_write(step):
    s = step.sizes
    pages, offsets = step.places(step.context, s.K1)
    return step.on_device(
        normed=step.floats(s.L, s.G * s.K1, s.D),
        keep=step.keep(),
        write_pages=pages,
        write_offsets=offsets,
        pool=[step.pool() for _ in range(s.L)],
    )


def context_kv_norm_rope_write(step):
    s = step.sizes
    pages, offsets = step.places(step.context, s.K1)
    return step.on_device(
        latents=step.floats(s.G * s.K1, s.L, s.D),
        norm_weight=step.floats(s.L, s.R),
        freqs=step.freqs(),
        ctx_positions=step.context.unsqueeze(1) + torch.arange(s.K1),
        keep=step.keep(),
        write_pages=pages,
        write_offsets=offsets,
        pool=[step.pool() for _ in range(s.L)],
        eps=1e-6,
        max_ctx=s.max_ctx,
    )


def gqa_kv_write(step):
    s = step.sizes
    heads, head_dim = (8, 128) if s.H > 1000 else (3, 10)
    pages, offsets = step.places(step.context, s.K1)
    kind = torch.bfloat16
    return step.on_device(
        keys=step.floats(s.L, s.G * s.K1, heads, head_dim),
        vals=step.floats(s.L, s.G * s.K1, heads, head_dim),
        keep=step.keep(),
        write_pages=pages,
        write_offsets=offsets,
        pool=[
            step.filled(s.pages // 4 * 4, 2, heads, s.page_size, head_dim, dtype=kind)
            for _ in range(s.L)
        ],
    )


def block_fixup(step):
    s = step.sizes
    return step.on_device(
        num_ctx=step.context,
        block_tables=step.tables(),
        block_pages=step.filled(s.G, s.W),
        block_in_page=step.filled(s.G, s.W),
        page_tables=step.filled(s.G, s.blocks, dtype=torch.int32),
        kv_lens=step.filled(s.G, dtype=torch.int32),
        num_contexts=0,
        page_size=s.page_size,
    )


def block_write(step):
    s = step.sizes
    pages, offsets = step.places(step.context, s.W)
    return step.on_device(
        block_latents=step.floats(s.G, s.W, s.D),
        block_pages=pages,
        block_in_page=offsets,
        pool=step.pool(),
    )


def block_norm_rope_write(step):
    s = step.sizes
    pages, offsets = step.places(step.context, s.W)
    return step.on_device(
        block_latents=step.floats(s.G, s.W, s.D),
        norm_weight=step.floats(s.R),
        freqs=step.freqs(),
        query_positions=step.context.unsqueeze(1) + torch.arange(s.W),
        block_pages=pages,
        block_in_page=offsets,
        pool=step.pool(),
        normed=step.filled(s.G, s.W, s.D, dtype=torch.bfloat16),
        eps=1e-6,
        max_ctx=s.max_ctx,
    )


def accept_prefix(step):
    s = step.sizes
    target = step.integers(0, s.vocab, s.G, s.K1)
    agree = torch.arange(s.K) < (step.accepted - 1).unsqueeze(1)
    draft = torch.where(agree, target[:, : s.K], (target[:, : s.K] + 1) % s.vocab).int()
    return step.on_device(
        target_tokens=target,
        draft_tokens=draft,
        accepted_tokens=step.filled(s.G, s.K1, dtype=torch.int32),
        num_accepted=step.filled(s.G, dtype=torch.int32),
        kv_rewind=step.filled(s.G, dtype=torch.int32),
        target_kv_lens=step.context.int(),
        num_contexts=0,
    )


def prologue(step):
    return block_fixup(step) | gen_bookkeeping(step) | accept_prefix(step)


def prologue_from_table(step):
    own = noise_block_from_table(step)
    return own | prologue(step) | context_positions(step)
