"""How others' kernels of this sort broke, on the groups of the DSpark step.

The inputs and the right answers are those of bug-kinds.md; BR-n is the entry there. Every case runs on the
kernel, on the torch reference and on the eager chain.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import calls
import pytest
import torch
from interpreter_memory import backwards

pytestmark = pytest.mark.parametrize("reading", calls.READINGS)


def outcome(group: str, reading: str, device: torch.device, **given: Any) -> dict[str, Any]:
    return calls.outcome(calls.dspark(group), reading, device, **given)


def bookkeeping(reading: str, device: torch.device, **given: Any) -> dict[str, Any]:
    """`gen_bookkeeping` with page tables that name page c in column c of every row, and 30 pages a row."""
    batch = len(given["num_accepted"])
    defaults = {
        "batch_to_slot": list(range(batch)),
        "block_counts": [30] * batch,
        "block_tables": [list(range(30))] * batch,
        "num_contexts": 0,
        "max_ctx": 100,
        "mask_token_id": 2**31 - 1,
        "page_size": 4,
        "W": 7,
        "G": batch - given.get("num_contexts", 0),
    }
    if "accepted_tokens" not in given:
        width = given.pop("K1")
        given["accepted_tokens"] = [[10 * row + k for k in range(width)] for row in range(batch)]
    return outcome("gen_bookkeeping", reading, device, **{**defaults, **given})


# BR-01: padded rows share the dummy slot, and no other.
PADDED = {"K1": 8, "ctx_len": [10, 20, 30, 99]}


@pytest.mark.parametrize("order", [nullcontext, backwards])
@pytest.mark.parametrize(
    "slots, accepted, lengths",
    [([0, 2, 3], [2, 1, 8], [12, 20, 31]), ([0, 3, 3], [2, 1, 8], [12, 20, 30])],
)
def test_padded_rows_advance_no_live_slot(reading, device, slots, accepted, lengths, order):
    with order():
        given = {"batch_to_slot": slots, "num_accepted": accepted}
        found = bookkeeping(reading, device, **PADDED, **given)
    assert found["ctx_len"][:3] == lengths


def test_live_rows_are_the_same_beside_a_padded_one(reading, device):
    with_it = bookkeeping(
        reading, device, **PADDED, batch_to_slot=[0, 2, 3], num_accepted=[2, 1, 8]
    )
    without = bookkeeping(reading, device, **PADDED, batch_to_slot=[0, 2], num_accepted=[2, 1])
    for name in ("bonus", "query_positions", "keep", "write_pages", "write_offsets", "num_ctx"):
        assert with_it[name][:2] == without[name], name


# BR-04: with nothing accepted the last token is not the one before the row.
@pytest.mark.parametrize("accepted, bonus", [([3, 0], [13, 21]), ([0, 3], [11, 23])])
def test_nothing_accepted_reads_its_own_row(reading, device, accepted, bonus):
    tokens = torch.tensor([[11, 12, 13], [21, 22, 23]], dtype=torch.int32, device=device)
    assert tokens.storage_offset() == 0
    found = bookkeeping(
        reading, device, accepted_tokens=tokens, num_accepted=accepted, ctx_len=[5, 6, 7]
    )
    assert found["bonus"] == bonus
    assert found["embed_ids"] == [*bonus, 2**31 - 1]
    assert found["ctx_len"] == [5 + accepted[0], 6 + accepted[1], 7]
    assert found["keep"][accepted.index(0)] == [False] * 3


# BR-05: the rejected suffix counts nowhere, and the next step overwrites it.
def test_lengths_over_three_steps(reading, device):
    length, lengths, kv_lens, written, advertised = 10, [], [], [], []
    for accepted in (1, 4, 2):
        positions = outcome(
            "context_positions",
            reading,
            device,
            ctx_len=[length, 0],
            batch_to_slot=[0],
            num_contexts=0,
            G=1,
            K1=4,
        )
        step = bookkeeping(reading, device, K1=4, W=3, num_accepted=[accepted], ctx_len=[length, 0])
        fixed = outcome(
            "block_fixup",
            reading,
            device,
            num_ctx=step["num_ctx"],
            block_tables=[list(range(20))],
            num_contexts=0,
            page_size=4,
            W=3,
        )
        places = zip(step["write_pages"][0], step["write_offsets"][0], strict=True)
        assert [4 * page + at for page, at in places] == positions["ctx_positions"][0]
        length = step["ctx_len"][0]
        lengths.append(length)
        advertised += step["num_ctx"]
        kv_lens += fixed["kv_lens"]
        written.append(positions["ctx_positions"][0])
    assert lengths == advertised == [11, 15, 17]
    assert kv_lens == [14, 18, 20]
    assert written == [[10, 11, 12, 13], [11, 12, 13, 14], [15, 16, 17, 18]]


# BR-06 (a): the block reaches past the only page; what is behind it in the table is somebody else's.
def test_positions_past_the_pages_stay_on_the_last_one(reading, device):
    found = bookkeeping(
        reading,
        device,
        K1=2,
        W=2,
        num_accepted=[1],
        ctx_len=[3, 0],
        block_counts=[1],
        block_tables=[[7, 5, 5]],
    )
    assert (found["write_pages"], found["write_offsets"]) == ([[7, 7]], [[3, 3]])
    assert found["num_ctx"] == [2]
    fixed = outcome(
        "block_fixup",
        reading,
        device,
        num_ctx=found["num_ctx"],
        block_tables=[[7, 5, 5]],
        num_contexts=0,
        page_size=4,
        W=2,
    )
    assert (fixed["block_pages"], fixed["block_in_page"]) == ([[7, 7]], [[2, 3]])
    assert fixed["page_tables"] == [[7, 5, 5]]


def test_no_pages_advertise_no_context(reading, device):
    """BR-06 (b)."""
    found = bookkeeping(
        reading,
        device,
        K1=2,
        W=2,
        num_accepted=[2],
        ctx_len=[9, 0],
        block_counts=[0],
        block_tables=[[0, 0]],
    )
    assert found["num_ctx"] == [0]
    assert (found["write_pages"], found["write_offsets"]) == ([[0, 0]], [[0, 0]])


# BR-06 (c), BR-07, BR-31: placeholders anywhere in a row, extremes, and the sign of a quotient.
WILD = [-1, 8, -1, -(2**31), 2**31 - 1]


@pytest.mark.parametrize(
    "offsets, divisor, count, table",
    [
        ([8, -1, 16], 4, 2, [2, 0, 4]),
        ([8, 12, -1], 4, 2, [2, 3, 0]),
        (WILD, 1, 2, [0, 8, 0, 0, 2147483647]),
        (WILD, 4, 2, [0, 2, 0, 0, 536870911]),
        (WILD, 16, 2, [0, 0, 0, 0, 134217727]),
        ([], 3, 0, []),
        ([0, -1], 2**31 - 1, 1, [0, 0]),
    ],
)
def test_placeholders_decode_to_page_0(reading, device, offsets, divisor, count, table):
    given = torch.tensor(offsets, dtype=torch.int32, device=device).view(1, 1, 1, -1)
    found = outcome(
        "refresh_block_tables",
        reading,
        device,
        block_offsets=given.expand(1, 1, 2, len(offsets)).contiguous(),
        pool_index=0,
        divisor=divisor,
        num_seqs=1,
        rows=2,
    )
    assert found == {"block_counts": [count, 77], "block_tables": [table, [77] * len(table)]}


# BR-29, BR-35: more blocks than a tile holds, and more valid ones than a byte counts.
@pytest.mark.parametrize("blocks, valid", [(300, 300), (1024, 1000), (1025, 1025), (2049, 257)])
def test_rows_longer_than_a_tile(reading, device, blocks, valid):
    offsets = torch.full((1, 2, 2, blocks), -1, dtype=torch.int32, device=device)
    offsets[0, :, 0, blocks - valid :] = torch.arange(valid, dtype=torch.int32, device=device)
    found = outcome(
        "refresh_block_tables",
        reading,
        device,
        block_offsets=offsets,
        pool_index=0,
        divisor=2,
        num_seqs=2,
        rows=3,
    )
    assert found["block_counts"] == [valid, valid, 77]
    row = [0] * (blocks - valid) + [at // 2 for at in range(valid)]
    assert found["block_tables"] == [row, row, [77] * blocks]


# BR-14: tables that are slices of wider buffers.
def test_rows_of_wider_buffers(reading, device):
    wide = torch.full((5, 40), -9, dtype=torch.int32, device=device)
    wide[:, :24] = torch.arange(120, dtype=torch.int32, device=device).view(5, 24)
    padded = torch.full((5, 11), -9, dtype=torch.int32, device=device)
    padded[:, :8] = torch.arange(40, dtype=torch.int32, device=device).view(5, 8)
    kept = wide.clone(), padded.clone()
    given = {
        "num_accepted": [3, 0, 8, 1, 5],
        "num_contexts": 1,
        "ctx_len": [4, 0, 91, 2, 50, 60],
        "block_counts": [24, 1, 20, 0, 24],
    }
    found = bookkeeping(
        reading, device, **given, block_tables=wide[:, :24], accepted_tokens=padded[:, :8]
    )
    want = bookkeeping(
        reading,
        device,
        **given,
        block_tables=wide[:, :24].contiguous(),
        accepted_tokens=padded[:, :8].contiguous(),
    )
    assert found == want
    assert found["seq_lens"] == [77, 8, 8, 8, 8]
    assert torch.equal(wide, kept[0])
    assert torch.equal(padded, kept[1])


def test_tables_written_into_wider_buffers(reading, device):
    """BR-14: the unused columns and rows keep what they held; all four strides of the offsets are odd."""
    chance = torch.Generator().manual_seed(0)
    dense = torch.randint(-5, 100, (3, 4, 2, 9), generator=chance, dtype=torch.int32)
    strides = (1201, 301, 151, 17)
    spread = torch.full((4001,), -9, dtype=torch.int32)
    view = spread.as_strided(dense.shape, strides, 3)
    view.copy_(dense)
    view = spread.to(device).as_strided(dense.shape, strides, 3)
    buffer = torch.full((5, 40), -9, dtype=torch.int32, device=device)
    common = {"pool_index": 2, "divisor": 3, "num_seqs": 4, "rows": 5}
    given = {**common, "block_counts": [-9] * 5}
    outcome(
        "refresh_block_tables",
        reading,
        device,
        **given,
        block_offsets=view,
        block_tables=buffer[:, :9],
    )
    want = outcome(
        "refresh_block_tables", reading, device, **common, block_offsets=dense.to(device)
    )
    assert buffer[:4, :9].tolist() == want["block_tables"][:4]
    assert (buffer[:, 9:] == -9).all()
    assert (buffer[4] == -9).all()


# BR-26, as far as places go: what does not fit is clamped onto the last place.
def test_columns_of_a_full_arena(reading, device):
    found = bookkeeping(
        reading, device, K1=8, num_accepted=[8], ctx_len=[6, 0], block_counts=[2], W=1
    )
    columns = [
        4 * page + at
        for page, at in zip(found["write_pages"][0], found["write_offsets"][0], strict=True)
    ]
    assert columns == [6, 7, 7, 7, 7, 7, 7, 7]


# BR-27: near the limit the length stops, and positions of the block go on.
def test_the_length_stops_at_the_limit(reading, device):
    found = bookkeeping(reading, device, K1=8, num_accepted=[3], ctx_len=[69, 0], max_ctx=70, W=2)
    assert found["ctx_len"] == [70, 0]
    assert found["query_positions"] == [[70, 71]]


# BR-33: nothing to do, and the smallest widths.
NOTHING = {
    "accept_prefix": {
        "target_tokens": torch.empty(0, 3, dtype=torch.int64),
        "draft_tokens": torch.empty(0, 2, dtype=torch.int32),
        "batch": 2,
    },
    "block_fixup": {"num_ctx": [], "block_tables": [[1, 2], [3, 4]], "page_size": 4, "W": 2},
    "context_positions": {"ctx_len": [5], "batch_to_slot": [0, 0, 0], "G": 0, "K1": 2},
    "gen_bookkeeping": {
        "accepted_tokens": [[1, 2], [3, 4]],
        "num_accepted": [1, 2],
        "batch_to_slot": [0, 1],
        "block_counts": [1, 1],
        "block_tables": [[1], [2]],
        "ctx_len": [3, 4, 5],
        "G": 0,
        "W": 2,
        "max_ctx": 100,
        "mask_token_id": 3,
        "page_size": 4,
    },
}


@pytest.mark.parametrize("group", NOTHING)
def test_no_generation_requests_touch_nothing(reading, device, group):
    given = {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in NOTHING[group].items()
    }
    found = outcome(group, reading, device, **given, num_contexts=2)
    untouched = {"ctx_len": [3, 4, 5]}
    for name, values in found.items():
        flat = torch.tensor(values).flatten().tolist()
        assert flat == untouched.get(name, [77] * len(flat)), name


@pytest.mark.parametrize("num_seqs, blocks", [(0, 3), (2, 0), (0, 0)])
def test_no_sequences_or_no_blocks(reading, device, num_seqs, blocks):
    found = outcome(
        "refresh_block_tables",
        reading,
        device,
        block_offsets=torch.zeros(1, 2, 2, blocks, dtype=torch.int32, device=device),
        pool_index=0,
        divisor=1,
        num_seqs=num_seqs,
        rows=2,
    )
    assert found["block_counts"] == ([0, 0] if num_seqs else [77, 77])
    assert found["block_tables"] == [[77] * blocks] * 2


@pytest.mark.parametrize(
    "target, draft, accepted",
    [
        ([[9]], torch.empty(1, 0, dtype=torch.int32), [1]),
        ([[9, 8]], [[9]], [2]),
        ([[9, 8]], [[7]], [1]),
        ([[1, 2, 3, 4, 5, 6, 7, 8]], [[1, 2, 3, 4, 5, 6, 7]], [8]),
        ([[1, 2, 3, 4, 5, 6, 7, 8]], [[1, 2, 3, 4, 0, 6, 7]], [5]),
    ],
)
def test_accepted_prefixes(reading, device, target, draft, accepted):
    """BR-38: K = 7 among them."""
    draft = draft.to(device) if isinstance(draft, torch.Tensor) else draft
    given = {"target_tokens": target, "draft_tokens": draft, "target_kv_lens": [5, 6]}
    found = outcome("accept_prefix", reading, device, **given, num_contexts=1, batch=2)
    assert found["num_accepted"] == [77, *accepted]
    assert found["accepted_tokens"] == [[77] * len(target[0]), target[0]]
    assert found["kv_rewind"] == [1 - accepted[0]]
    assert found["target_kv_lens"] == [5, 7]
