"""Memory past 2**31 elements and tensors at odd addresses, for `run.py`: each function returns what is wrong.

What must come out is computed by torch on the same device. On a CPU the same calls are made with small sizes.
"""

import k3
import torch

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
UNTOUCHED = -7


def rows_of_a_table(case):
    """A table of a million tokens, 7.5e9 elements: its first and last rows, and ids that are not in it."""
    vocab, wide = (2**20 + 5, 7168) if GPU else (37, 96)
    ids = torch.tensor([0, vocab - 1, vocab // 2, -1, vocab, 299594 % vocab, 1], device=DEVICE)
    table = torch.zeros(vocab, wide, dtype=torch.bfloat16, device=DEVICE)
    inside = (ids >= 0) & (ids < vocab)
    for number, row in enumerate(ids[inside].tolist()):
        table[row] = torch.arange(wide, device=DEVICE).to(torch.bfloat16) + number
    rows = len(ids) - 1
    noise = torch.full((rows, 3, wide), UNTOUCHED, dtype=torch.bfloat16, device=DEVICE)
    case.fused(embed_ids=ids, embed_table=table, noise=noise, live=rows - 1)
    right = torch.where(inside.unsqueeze(1), table[ids.clamp(0, vocab - 1)], 0)
    return [
        *([] if torch.equal(noise[: rows - 1, 0], right[: rows - 1]) else ["first tokens differ"]),
        *([] if (noise[: rows - 1, 1:] == right[rows]).all() else ["other tokens differ"]),
        *([] if (noise[rows - 1] == UNTOUCHED).all() else ["a dead row was written"]),
    ]


def an_output_past_32_bits(case):
    """4096 rows of 16 tokens of 65536 numbers: 4.3e9 elements are stored."""
    rows, block, wide, vocab = (4096, 16, 65536, 7) if GPU else (9, 3, 160, 7)
    table = torch.arange(vocab * wide, device=DEVICE).view(vocab, wide).remainder(251)
    table = table.to(torch.bfloat16)
    ids = torch.arange(rows + 1, device=DEVICE) % vocab
    noise = torch.full((rows, block, wide), UNTOUCHED, dtype=torch.bfloat16, device=DEVICE)
    case.fused(embed_ids=ids, embed_table=table, noise=noise)
    wrong = []
    for row in range(rows):
        first = torch.equal(noise[row, 0], table[row % vocab])
        if not first or not (noise[row, 1:] == table[rows % vocab]).all():
            wrong.append(f"row {row} differs")
    return wrong[:5]


def rows_far_apart(case):
    """4096 rows that are 2**20 elements apart, and an input whose pools are all the same memory."""
    rows, columns, stride = (4096, 4096, 2**20) if GPU else (7, 12, 64)
    entries = torch.arange(rows * columns, dtype=torch.int32, device=DEVICE) - 5
    offsets = torch.full((rows, 2, columns), -1, dtype=torch.int32, device=DEVICE)
    offsets[:, 0] = entries.view(rows, columns)
    base = torch.full((rows, stride), UNTOUCHED, dtype=torch.int32, device=DEVICE)
    counts = torch.full((rows,), UNTOUCHED, device=DEVICE)
    case.fused(
        block_offsets=offsets.expand(3, rows, 2, columns),
        block_counts=counts,
        block_tables=base[:, :columns],
        pool_index=2,
        divisor=3,
        num_seqs=rows,
    )
    right = entries.view(rows, columns).clamp(min=0) // 3
    return [
        *([] if torch.equal(base[:, :columns], right) else ["the tables differ"]),
        *([] if (base[:, columns:] == UNTOUCHED).all() else ["something beside a row was written"]),
        *([] if torch.equal(counts, (offsets[:, 0] >= 0).sum(1)) else ["the counts differ"]),
    ]


def moved(value, by):
    """A tensor so many elements from where an allocation begins."""
    if isinstance(value, list):
        return [moved(each, by) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    base = torch.empty(value.numel() + by, dtype=value.dtype, device=DEVICE)
    shifted = base[by:].view(value.shape)
    shifted.copy_(value)
    return shifted


def odd_addresses(case, arguments):
    """Every tensor at the start of its memory, then 1 or 3 elements on, then at the start again."""
    wanted, wrong = None, []
    for by in (0, 1, 3, 0):
        own = {name: moved(value, by) for name, value in arguments.items()}
        case.fused(**own)
        wanted = wanted or own
        for name, value in own.items():
            pairs = zip(
                *(v if isinstance(v, list) else [v] for v in (value, wanted[name])), strict=True
            )
            for one, two in pairs:
                if isinstance(one, torch.Tensor) and not same(one, two):
                    wrong.append(f"{name} differs, {by} elements on")
    return wrong


def same(one, two):
    """Whether two tensors have the same bits."""
    return torch.equal(*(each.contiguous().view(-1).view(torch.uint8) for each in (one, two)))


FAR = {
    "noise_block_from_table": (rows_of_a_table, an_output_past_32_bits),
    "refresh_block_tables": (rows_far_apart,),
}


def limits(run):
    """Memory past 2**31 elements, and tensors at odd addresses."""
    rows = {}
    for name, trials in FAR.items():
        for trial in trials if name in run.cases else ():
            rows[f"{name}: {trial.__name__}"] = trial(run.cases[name])
            if GPU:
                torch.cuda.empty_cache()
    step = k3.Step(k3.Sizes(3) if GPU else k3.small(3), DEVICE)
    for name in run.groups:
        if name not in run.without_inputs:
            rows[f"{name}: odd addresses"] = odd_addresses(run.cases[name], getattr(k3, name)(step))
    for name, found in rows.items():
        run.say(f"{name}: {found or 'right'}")
    return {"wrong": [f"{name}: {found}" for name, found in rows.items() if found], "trials": rows}
