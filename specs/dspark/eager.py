"""The DSpark decode step's bookkeeping as torch ops: the chain that the fused kernels replace.

In: the tensors of one step, as the contract names them; out: the same step's out and inout tensors,
written in place, nothing else. Not here: the `live` and `drop_overflow` options, argument checks,
and any sharing with the generated code, since tests compare kernel, torch reference and this file.

Every function may be captured in a CUDA graph: sizes come from shapes, no value of a tensor reaches
the host, no loop runs over requests. With `G == 0` a function returns at once and touches nothing.

Sizes: `G` generation requests, which are batch rows `num_contexts .. num_contexts + G - 1`; `K`
draft tokens a request and `K1 = K + 1`; `W` positions in the draft block; `H` hidden size; `L`
drafter layers; `N = G * K1`; `R` latent rank, `P` rope width, `D = R + P`. Positions and lengths
are in tokens, pages are rows of a pool, and an offset is a token's place in its page.
"""

from __future__ import annotations

import torch
from torch import Tensor


def refresh_block_tables(
    *,
    block_offsets: Tensor,
    block_counts: Tensor,
    block_tables: Tensor,
    pool_index: int,
    divisor: int,
    num_seqs: int,
) -> None:
    """Group 1: decode this step's block offsets into the persistent table.

    Args:
        block_offsets: i32[pools, seqs, 2, blocks], any strides; a negative entry is a placeholder.
        block_counts: i64[rows], out: entries of the row that are no placeholder.
        block_tables: i32[rows, blocks], out: page of each entry, 0 for a placeholder.
        pool_index: which pool's offsets to read.
        divisor: offsets a page, at least 1.
        num_seqs: rows to refresh; the rows behind them stay untouched.
    """
    offsets = block_offsets[pool_index, :num_seqs, 0]
    block_counts.narrow(0, 0, num_seqs).copy_((offsets >= 0).sum(dim=1))
    pages = offsets.clamp(min=0).floor_divide(divisor)
    block_tables.narrow(0, 0, num_seqs).copy_(pages)


def context_positions(
    *, ctx_len: Tensor, batch_to_slot: Tensor, ctx_positions: Tensor, num_contexts: int
) -> None:
    """Group 2: positions of the tokens that this step may add to each request's context.

    Args:
        ctx_len: i64[slots], tokens in each slot's context before the step.
        batch_to_slot: i64[max_batch], slot of each batch row.
        ctx_positions: i64[G, K1], out: position of token k.
        num_contexts: context requests, which lie before the generation requests.
    """
    num_gens, width = ctx_positions.shape
    if num_gens == 0:
        return
    before = ctx_len[batch_to_slot.narrow(0, num_contexts, num_gens)]
    steps = torch.arange(width, device=ctx_len.device)
    ctx_positions.copy_(before.unsqueeze(1) + steps)


def gen_bookkeeping(
    *,
    accepted_tokens: Tensor,
    num_accepted: Tensor,
    batch_to_slot: Tensor,
    block_counts: Tensor,
    block_tables: Tensor,
    ctx_len: Tensor,
    bonus: Tensor,
    embed_ids: Tensor,
    query_positions: Tensor,
    keep: Tensor,
    write_pages: Tensor,
    write_offsets: Tensor,
    num_ctx: Tensor,
    seq_lens: Tensor,
    num_contexts: int,
    max_ctx: int,
    mask_token_id: int,
    page_size: int,
) -> None:
    """Group 3: advance every context, and say what to embed and where to write.

    Args:
        accepted_tokens: i32[batch, K1], token ids, valid for `k < num_accepted`.
        num_accepted: i32[batch], 0 .. K1.
        batch_to_slot: i64[max_batch], slot of each batch row.
        block_counts: i64[batch], pages that each row owns.
        block_tables: i32[batch, blocks], page of each block.
        ctx_len: i64[slots], inout: tokens in each slot's context.
        bonus: i64[G], out: the last accepted token.
        embed_ids: i64[G + 1], out: the bonus tokens, then the mask token.
        query_positions: i64[G, W], out: positions of the draft block.
        keep: bool[G, K1], out: whether token k was accepted.
        write_pages: i64[G, K1], out: page that takes token k's latent.
        write_offsets: i64[G, K1], out: its place in that page.
        num_ctx: i64[G], out: advertised context length, leaving room for the draft block.
        seq_lens: i32[batch], out, rows of generation requests only: K1.
        num_contexts: context requests, which lie before the generation requests.
        max_ctx: most tokens that a context may hold.
        mask_token_id: token id of the block's masked slots.
        page_size: tokens a page.
    """
    num_gens, width = keep.shape
    if num_gens == 0:
        return
    block_width = query_positions.shape[1]
    device = ctx_len.device

    slots = batch_to_slot.narrow(0, num_contexts, num_gens)
    accepted = num_accepted.narrow(0, num_contexts, num_gens).long()
    before = ctx_len[slots]
    after = (before + accepted).clamp(max=max_ctx)

    last = (accepted - 1).clamp(min=0)
    tokens = accepted_tokens.narrow(0, num_contexts, num_gens)
    bonus.copy_(tokens.gather(1, last.unsqueeze(1)).squeeze(1))
    embed_ids[:num_gens].copy_(bonus)
    embed_ids[num_gens].fill_(mask_token_id)

    query_positions.copy_(after.unsqueeze(1) + torch.arange(block_width, device=device))
    steps = torch.arange(width, device=device)
    keep.copy_(steps < accepted.unsqueeze(1))

    # A full arena clamps onto its last token; with no page at all `capacity - 1` is -1, hence 0.
    capacity = block_counts.narrow(0, num_contexts, num_gens) * page_size
    columns = torch.minimum(before.unsqueeze(1) + steps, (capacity - 1).unsqueeze(1)).clamp(min=0)
    tables = block_tables.narrow(0, num_contexts, num_gens)
    write_pages.copy_(tables.gather(1, columns.floor_divide(page_size)))
    write_offsets.copy_(columns.remainder(page_size))

    ctx_len[slots] = after
    num_ctx.copy_(torch.minimum(after, (capacity - block_width).clamp(min=0)))
    seq_lens.narrow(0, num_contexts, num_gens).fill_(width)


def gen_bookkeeping_arena(
    *,
    accepted_tokens: Tensor,
    num_accepted: Tensor,
    batch_to_slot: Tensor,
    arena_tables: Tensor,
    ctx_len: Tensor,
    bonus: Tensor,
    embed_ids: Tensor,
    query_positions: Tensor,
    keep: Tensor,
    write_pages: Tensor,
    write_offsets: Tensor,
    num_ctx: Tensor,
    seq_lens: Tensor,
    num_contexts: int,
    max_ctx: int,
    mask_token_id: int,
    page_size: int,
) -> None:
    """Group 3 for a drafter with an arena of its own: pages by slot, room for `max_ctx` tokens each.

    Args:
        accepted_tokens: i32[batch, K1], token ids, valid for `k < num_accepted`.
        num_accepted: i32[batch], 0 .. K1.
        batch_to_slot: i64[max_batch], slot of each batch row.
        arena_tables: i32[slots, blocks], pages of each slot.
        ctx_len: i64[slots], inout: tokens in each slot's context.
        bonus: i64[G], out: the last accepted token.
        embed_ids: i64[G + 1], out: the bonus tokens, then the mask token.
        query_positions: i64[G, W], out: positions of the draft block.
        keep: bool[G, K1], out: whether token k was accepted.
        write_pages: i64[G, K1], out: page that takes token k's latent.
        write_offsets: i64[G, K1], out: its place in that page.
        num_ctx: i64[G], out: the context length, nothing cut.
        seq_lens: i32[batch], out, rows of generation requests only: K1.
        num_contexts: context requests, which lie before the generation requests.
        max_ctx: most tokens that a context may hold.
        mask_token_id: token id of the block's masked slots.
        page_size: tokens a page.
    """
    num_gens, width = keep.shape
    if num_gens == 0:
        return
    device = ctx_len.device
    slots = batch_to_slot.narrow(0, num_contexts, num_gens)
    accepted = num_accepted.narrow(0, num_contexts, num_gens).long()
    before = ctx_len[slots]
    after = (before + accepted).clamp(max=max_ctx)

    last = (accepted - 1).clamp(min=0)
    tokens = accepted_tokens.narrow(0, num_contexts, num_gens)
    bonus.copy_(tokens.gather(1, last.unsqueeze(1)).squeeze(1))
    embed_ids[:num_gens].copy_(bonus)
    embed_ids[num_gens].fill_(mask_token_id)
    block = torch.arange(query_positions.shape[1], device=device)
    query_positions.copy_(after.unsqueeze(1) + block)
    steps = torch.arange(width, device=device)
    keep.copy_(steps < accepted.unsqueeze(1))

    columns = (before.unsqueeze(1) + steps).clamp(max=max_ctx - 1)
    write_pages.copy_(arena_tables[slots].gather(1, columns.floor_divide(page_size)))
    write_offsets.copy_(columns.remainder(page_size))
    ctx_len[slots] = after
    num_ctx.copy_(after)
    seq_lens.narrow(0, num_contexts, num_gens).fill_(width)


def noise_block(*, embed_rows: Tensor, noise: Tensor) -> None:
    """Group 4: the draft block's input: each request's bonus token, then mask tokens.

    Args:
        embed_rows: bf16[G + 1, H], embeddings of `embed_ids`; the last is the mask token's.
        noise: bf16[G, W, H], out.
    """
    num_gens = noise.shape[0]
    if num_gens == 0:
        return
    noise[:, 0].copy_(embed_rows[:num_gens])
    noise[:, 1:].copy_(embed_rows[num_gens])


def noise_block_from_table(*, embed_ids: Tensor, embed_table: Tensor, noise: Tensor) -> None:
    """Group 4 where the embedding table is whole: the embedding and the block in one.

    Args:
        embed_ids: i64[G + 1], token ids; one outside the table has a row of zeros.
        embed_table: bf16[vocab, H].
        noise: bf16[G, W, H], out.
    """
    num_gens = noise.shape[0]
    if num_gens == 0:
        return
    vocab = embed_table.shape[0]
    inside = (embed_ids >= 0) & (embed_ids < vocab)
    rows = embed_table[embed_ids.clamp(min=0, max=vocab - 1)]
    rows = rows.masked_fill(~inside.unsqueeze(1), 0.0)
    noise_block(embed_rows=rows, noise=noise)


def context_kv_stage(*, latents: Tensor, staged: Tensor) -> None:
    """Group 5: each layer's latents, made contiguous for the engine's norm-and-rope operator.

    Args:
        latents: bf16[N, L, D], as the fused projection leaves them.
        staged: bf16[L, N, D], out.
    """
    if latents.shape[0] == 0:
        return
    for layer, rows in enumerate(staged):
        rows.copy_(latents[:, layer])


def context_kv_write(
    *, normed: Tensor, keep: Tensor, write_pages: Tensor, write_offsets: Tensor, pool: list[Tensor]
) -> None:
    """Group 6: mask the context latents by multiplication and write them to their pages.

    Rejected tokens are written too (fixed sizes, for graph replay). `index_put_` has no defined
    winner, so every entry writes the value of the first entry of its request at its place.

    Args:
        normed: bf16[L, N, D], latents after norm and rope.
        keep: bool[G, K1], the factor, 1 or 0.
        write_pages: i64[G, K1].
        write_offsets: i64[G, K1].
        pool: L tensors bf16[pages, 1, 1, page_size, D], written at the N places.
    """
    num_gens, width = keep.shape
    if num_gens == 0:
        return
    places = write_pages * pool[0].shape[3] + write_offsets
    same = places.unsqueeze(2) == places.unsqueeze(1)
    first = same.int().argmax(dim=2)  # the lowest k of those that tie
    starts = torch.arange(0, num_gens * width, width, device=keep.device)
    winner = (starts.unsqueeze(1) + first).flatten()

    pages, offsets = write_pages.flatten(), write_offsets.flatten()
    factor = keep.flatten().unsqueeze(1).to(normed.dtype)
    for latents, arena in zip(normed, pool, strict=True):
        arena[:, 0, 0][pages, offsets] = (latents * factor)[winner]


def gqa_kv_write(
    *,
    keys: Tensor,
    vals: Tensor,
    keep: Tensor,
    write_pages: Tensor,
    write_offsets: Tensor,
    pool: list[Tensor],
) -> None:
    """Group 6 for a drafter with grouped-query attention: keys and values in one paged pool a layer.

    Args:
        keys: bf16[L, N, heads, head_dim], after norm and rope.
        vals: bf16[L, N, heads, head_dim].
        keep: bool[G, K1], the factor, 1 or 0.
        write_pages: i64[G, K1].
        write_offsets: i64[G, K1].
        pool: L tensors bf16[pages, 2, heads, page_size, head_dim], keys at 0 and values at 1.
    """
    num_gens, width = keep.shape
    if num_gens == 0:
        return
    places = write_pages * pool[0].shape[3] + write_offsets
    same = places.unsqueeze(2) == places.unsqueeze(1)
    first = same.int().argmax(dim=2)
    starts = torch.arange(0, num_gens * width, width, device=keep.device)
    winner = (starts.unsqueeze(1) + first).flatten()

    pages, offsets = write_pages.flatten(), write_offsets.flatten()
    factor = keep.flatten()[:, None, None].to(keys.dtype)
    for layer, arena in enumerate(pool):
        for kind, rows in enumerate((keys[layer], vals[layer])):
            arena[:, kind].transpose(1, 2)[pages, offsets] = (rows * factor)[winner]


def _norm_rope(latents: Tensor, norm_weight: Tensor, cos_sin: Tensor, eps: float) -> Tensor:
    """RMSNorm over the first R numbers and rope on the last P, in f32, not yet rounded.

    Args:
        latents: bf16[..., D].
        norm_weight: bf16[R].
        cos_sin: f32[..., P / 2, 2], the rotation of each (re, im) pair.
        eps: added to the mean square.

    Returns:
        f32[..., D].
    """
    rank = norm_weight.shape[0]
    values = latents.float()
    latent, pairs = values[..., :rank], torch.unflatten(values[..., rank:], -1, (-1, 2))

    mean_square = latent.square().mean(dim=-1, keepdim=True)
    latent = latent * torch.rsqrt(mean_square + eps) * norm_weight  # bf16 promotes to f32

    # Six separate roundings: one complex multiplication might contract to fused multiply-adds.
    turned = torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1)
    pairs = pairs * cos_sin[..., :1] + turned * cos_sin[..., 1:]
    return torch.cat((latent, pairs.flatten(-2)), dim=-1)


def context_kv_norm_rope_write(
    *,
    latents: Tensor,
    norm_weight: Tensor,
    freqs: Tensor,
    ctx_positions: Tensor,
    keep: Tensor,
    write_pages: Tensor,
    write_offsets: Tensor,
    pool: list[Tensor],
    eps: float,
    max_ctx: int,
) -> None:
    """Group 7: groups 5 and 6 with each layer's norm and rope between them.

    Args:
        latents: bf16[N, L, D], raw.
        norm_weight: bf16[L, R].
        freqs: f32[max_pos, P / 2, 2], cosine and sine.
        ctx_positions: i64[G, K1].
        keep: bool[G, K1].
        write_pages: i64[G, K1].
        write_offsets: i64[G, K1].
        pool: L tensors bf16[pages, 1, 1, page_size, D], written at the N places.
        eps: added to the mean square.
        max_ctx: most tokens that a context may hold; `freqs` has at least K1 rows more.
    """
    assert freqs.shape[0] >= max_ctx + keep.shape[1]
    if keep.shape[0] == 0:
        return
    num_tokens, num_layers, dim = latents.shape
    cos_sin = freqs[ctx_positions.flatten()]
    normed = latents.new_empty(num_layers, num_tokens, dim)
    for layer, rows in enumerate(normed):
        rows.copy_(_norm_rope(latents[:, layer], norm_weight[layer], cos_sin, eps))
    context_kv_write(
        normed=normed, keep=keep, write_pages=write_pages, write_offsets=write_offsets, pool=pool
    )


def block_fixup(
    *,
    num_ctx: Tensor,
    block_tables: Tensor,
    block_pages: Tensor,
    block_in_page: Tensor,
    page_tables: Tensor,
    kv_lens: Tensor,
    num_contexts: int,
    page_size: int,
) -> None:
    """Group 8: where the draft block's latents go and what its attention reads, once a step.

    Args:
        num_ctx: i64[G], advertised context lengths.
        block_tables: i32[batch, blocks], page of each block.
        block_pages: i64[G, W], out: page of position `num_ctx + j`.
        block_in_page: i64[G, W], out: its offset in that page.
        page_tables: i32[G, blocks], out: the generation requests' rows of the table.
        kv_lens: i32[G], out: context and block together.
        num_contexts: context requests, which lie before the generation requests.
        page_size: tokens a page.
    """
    num_gens, block_width = block_pages.shape
    if num_gens == 0:
        return
    positions = num_ctx.unsqueeze(1) + torch.arange(block_width, device=num_ctx.device)
    tables = block_tables.narrow(0, num_contexts, num_gens)
    block_pages.copy_(tables.gather(1, positions.floor_divide(page_size)))
    block_in_page.copy_(positions.remainder(page_size))
    page_tables.copy_(tables)
    kv_lens.copy_(num_ctx + block_width)


def block_write(
    *, block_latents: Tensor, block_pages: Tensor, block_in_page: Tensor, pool: Tensor
) -> None:
    """Group 9: write one layer's block latents to their pages.

    Args:
        block_latents: bf16[G, W, D].
        block_pages: i64[G, W].
        block_in_page: i64[G, W].
        pool: bf16[pages, 1, 1, page_size, D], that layer's, written at the G * W places.
    """
    if block_latents.shape[0] == 0:
        return
    pool[:, 0, 0][block_pages, block_in_page] = block_latents


def block_norm_rope_write(
    *,
    block_latents: Tensor,
    norm_weight: Tensor,
    freqs: Tensor,
    query_positions: Tensor,
    block_pages: Tensor,
    block_in_page: Tensor,
    pool: Tensor,
    normed: Tensor,
    eps: float,
    max_ctx: int,
) -> None:
    """Group 10: group 9 with the layer's norm and rope before it.

    Args:
        block_latents: bf16[G, W, D], raw.
        norm_weight: bf16[R].
        freqs: f32[max_pos, P / 2, 2], cosine and sine.
        query_positions: i64[G, W].
        block_pages: i64[G, W].
        block_in_page: i64[G, W].
        pool: bf16[pages, 1, 1, page_size, D], that layer's, written at the G * W places.
        normed: bf16[G, W, D], out: what the pool gets, for the block's own attention.
        eps: added to the mean square.
        max_ctx: most tokens that a context may hold; `freqs` has at least W rows more.
    """
    assert freqs.shape[0] >= max_ctx + query_positions.shape[1]
    if block_latents.shape[0] == 0:
        return
    normed.copy_(_norm_rope(block_latents, norm_weight, freqs[query_positions], eps))
    pool[:, 0, 0][block_pages, block_in_page] = normed


def accept_prefix(
    *,
    target_tokens: Tensor,
    draft_tokens: Tensor,
    accepted_tokens: Tensor,
    num_accepted: Tensor,
    kv_rewind: Tensor,
    target_kv_lens: Tensor,
    num_contexts: int,
) -> None:
    """Group 11: accept the longest prefix of the draft that the target model agrees with.

    Args:
        target_tokens: i64[G, K1], the target model's token ids.
        draft_tokens: i32[G, K], the drafter's token ids.
        accepted_tokens: i32[batch, K1], out, rows of generation requests only: all target tokens.
        num_accepted: i32[batch], out, rows of generation requests only: 1 .. K1.
        kv_rewind: i32[G], out: change of the target's KV length, 0 or negative.
        target_kv_lens: i32[batch], inout, rows of generation requests only: one token more.
        num_contexts: context requests, which lie before the generation requests.
    """
    num_gens, num_drafts = draft_tokens.shape
    if num_gens == 0:
        return
    matches = (draft_tokens == target_tokens[:, :num_drafts]).int()
    accepted = matches.cumprod(dim=1).sum(dim=1) + 1
    accepted_tokens.narrow(0, num_contexts, num_gens).copy_(target_tokens)
    num_accepted.narrow(0, num_contexts, num_gens).copy_(accepted)
    kv_rewind.copy_(1 - accepted)
    target_kv_lens.narrow(0, num_contexts, num_gens).add_(1)
