"""The small specs by hand: plain Python loops over lists, one point at a time.

In: the arguments of a group. Out: its out and inout tensors, written in place. Everything is read before
anything is written. Not here: speed, and any code that kgen's own readings share.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod

import torch
from torch import Tensor


def _put(tensor: Tensor, values: list) -> None:
    """Fill a tensor with the numbers of a nested list."""
    tensor.copy_(torch.tensor(values, dtype=tensor.dtype).view(tensor.shape))


def _i32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def _i64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


# Arithmetic.


def quotients(*, x: Tensor, d: int, q: Tensor, m: Tensor) -> None:
    _put(q, [v // d for v in x.tolist()])
    _put(m, [v % d for v in x.tolist()])


def quotients_of_tensors(
    *, x: Tensor, d: Tensor, q: Tensor, m: Tensor, q_of_negative: Tensor, m_of_negative: Tensor
) -> None:
    pairs = [(a - 5, b) for a, b in zip(x.tolist(), d.tolist(), strict=True)]
    _put(q, [a // b for a, b in pairs])
    _put(m, [a % b for a, b in pairs])
    _put(q_of_negative, [a // -b for a, b in pairs])
    _put(m_of_negative, [a % -b for a, b in pairs])


def quotients_static(
    *,
    x: Tensor,
    narrow: Tensor,
    q: Tensor,
    m: Tensor,
    narrow_q: Tensor,
    narrow_m: Tensor,
    page_size: int,
) -> None:
    _put(q, [v // page_size for v in x.tolist()])
    _put(m, [v % page_size for v in x.tolist()])
    _put(narrow_q, [v // (page_size + 1) for v in narrow.tolist()])
    _put(narrow_m, [v % (page_size + 1) for v in narrow.tolist()])


def wraparound(
    *,
    a: Tensor,
    b: Tensor,
    wide: Tensor,
    total: Tensor,
    product: Tensor,
    difference: Tensor,
    negated: Tensor,
    narrowed: Tensor,
    low_byte: Tensor,
    exact: Tensor,
    doubled: Tensor,
) -> None:
    xs, ys, wides = a.tolist(), b.tolist(), wide.tolist()
    pairs = list(zip(xs, ys, strict=True))
    _put(total, [_i32(x + y) for x, y in pairs])
    _put(product, [_i32(x * y) for x, y in pairs])
    _put(difference, [_i32(x - y) for x, y in pairs])
    _put(negated, [_i32(-x) for x in xs])
    _put(narrowed, [_i32(w) for w in wides])
    _put(low_byte, [x % 256 for x in xs])
    _put(exact, [x + y for x, y in pairs])
    _put(doubled, [_i64(2 * w) for w in wides])


def byte_math(
    *,
    a: Tensor,
    b: Tensor,
    total: Tensor,
    difference: Tensor,
    less: Tensor,
    least: Tensor,
    quotient: Tensor,
    remainder: Tensor,
    signed: Tensor,
    wide: Tensor,
) -> None:
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    _put(total, [(x + y) % 256 for x, y in pairs])
    _put(difference, [(x - y) % 256 for x, y in pairs])
    _put(less, [x < y for x, y in pairs])
    _put(least, [min(x, y, 200) for x, y in pairs])
    _put(quotient, [x // max(y, 1) for x, y in pairs])
    _put(remainder, [x % max(y, 1) for x, y in pairs])
    _put(signed, [x - y for x, y in pairs])
    _put(wide, [x * y - 1 for x, y in pairs])


def flags(
    *,
    p: Tensor,
    q: Tensor,
    x: Tensor,
    both: Tensor,
    either: Tensor,
    neither: Tensor,
    same: Tensor,
    chosen: Tensor,
    between: Tensor,
    nonzero: Tensor,
    as_number: Tensor,
    as_byte: Tensor,
    least: int,
) -> None:
    ps, qs, xs = p.tolist(), q.tolist(), x.tolist()
    pairs = list(zip(ps, qs, strict=True))
    _put(both, [a and b for a, b in pairs])
    _put(either, [a or b for a, b in pairs])
    _put(neither, [not a and not b for a, b in pairs])
    _put(same, [a is b for a, b in pairs])
    _put(chosen, [a if v >= least else not b for (a, b), v in zip(pairs, xs, strict=True)])
    _put(between, [least <= v < 100 for v in xs])
    _put(nonzero, [v != 0 for v in xs])
    _put(as_number, [int(a) - int(v >= least) for a, v in zip(ps, xs, strict=True)])
    _put(as_byte, [int(a is not b) for a, b in pairs])


def wide_scalar(
    *, x: Tensor, y: Tensor, above: Tensor, stepped: Tensor, base: int, step: int
) -> None:
    xs = x.tolist()
    _put(y, [base + v for v in xs])
    _put(above, [base + v > 2**32 for v in xs])
    _put(stepped, [_i64(step * 2**31 + v * step) for v in xs])


def clamps(
    *,
    x: Tensor,
    bound: Tensor,
    inside: Tensor,
    below_first: Tensor,
    of_three: Tensor,
    by_tensor: Tensor,
    narrow: Tensor,
    low: int,
    high: int,
) -> None:
    xs, bounds = x.tolist(), bound.tolist()
    _put(inside, [max(min(v, high), low) for v in xs])
    _put(below_first, [min(max(v, low), high) for v in xs])
    _put(of_three, [min(v, high, 3) - max(v, low, -3) for v in xs])
    _put(by_tensor, [max(min(v, w), 0) for v, w in zip(xs, bounds, strict=True)])
    _put(narrow, [max(min(w, 7), -4) for w in bounds])


def promotion(
    *,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    a_b: Tensor,
    b_c: Tensor,
    a_i: Tensor,
    s_b: Tensor,
    compared: Tensor,
    chosen: Tensor,
    s: int,
) -> None:
    rows = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    _put(a_b, [_i32(x - y) for x, y, _ in rows])
    _put(b_c, [_i64(_i32(y * 3) + z * y) for _, y, z in rows])
    _put(a_i, [x * (i + 1) for i, (x, _, _) in enumerate(rows)])
    _put(s_b, [_i32(s + y) for _, y, _ in rows])
    _put(compared, [x > z for x, _, z in rows])
    _put(chosen, [y if x > 100 else z for x, y, z in rows])


def static_facts(
    *,
    x: Tensor,
    table: Tensor,
    wide: Tensor,
    chosen: Tensor,
    mixed: Tensor,
    pages: Tensor,
    back: Tensor,
    page_size: int,
) -> None:
    xs, width = x.tolist(), table.shape[1]
    _put(wide, [width > 3 for _ in xs])
    _put(chosen, [v if width > 2 else -1 for v in xs])
    _put(mixed, [width > 3 and v > 0 for v in xs])
    _put(pages, [(width + page_size - 1) // page_size - (3 - width) // 2 for _ in xs])
    _put(back, [row[::-1] for row in table.tolist()])


# Gathers.


def guarded_gather(
    *, at: Tensor, narrow_at: Tensor, table: Tensor, out: Tensor, negated: Tensor, row: Tensor
) -> None:
    places, narrow, values = at.tolist(), narrow_at.tolist(), table.tolist()
    picked = [values[p] if 0 <= p < len(values) else -7 for p in places]
    _put(out, picked)
    _put(negated, picked)
    _put(row, [values[p - 3] if 3 <= p < len(values) + 3 else i for i, p in enumerate(narrow)])


def guarded_twice(*, at: Tensor, table: Tensor, values: Tensor, out: Tensor) -> None:
    nexts, ends = table.tolist(), values.tolist()
    found = []
    for place in at.tolist():
        if not 0 <= place < len(nexts):
            found.append(-2)
        elif not 0 <= nexts[place] < len(ends):
            found.append(-1)
        else:
            found.append(ends[nexts[place]])
    _put(out, found)


def guards_of_two_indices(
    *, slot: Tensor, marks: Tensor, a: Tensor, h: Tensor, rows: Tensor
) -> None:
    slots, first = slot.tolist(), h.tolist()[:1] or [0]
    found = []
    for number, row in enumerate(marks.tolist()):
        found.append([])
        for at, mark in enumerate(row):
            total = slots[at + 3] if at < len(slots) - 3 else mark - 5
            other = a.tolist()[number] + mark if number < a.numel() else total
            found[-1].append(max(other, total) + first[0])
    _put(rows, found)


def guard_of_other_axis(
    *, at: Tensor, n: Tensor, table: Tensor, by_lane: Tensor, by_column: Tensor
) -> None:
    values = table.tolist()
    for out in (by_lane, by_column):
        _put(
            out,
            [
                [
                    _i64(values[place] + c) if 0 <= place < len(values) and c < length else -1
                    for c in range(out.shape[1])
                ]
                for place, length in zip(at.tolist(), n.tolist(), strict=True)
            ],
        )


def guard_in_loop(*, at: Tensor, n: Tensor, weight: Tensor, table: Tensor, total: Tensor) -> None:
    values, weights = table.tolist(), weight.tolist()
    totals = []
    for place, length in zip(at.tolist(), n.tolist(), strict=True):
        known = 0 <= place < len(values)
        each = [values[place] if known and c < length else w for c, w in enumerate(weights)]
        totals.append(sum(each))
    _put(total, totals)


def guarded_let(
    *,
    at: Tensor,
    wild: Tensor,
    table: Tensor,
    free: Tensor,
    guarded: Tensor,
    one: Tensor,
    other: Tensor,
) -> None:
    values = table.tolist()
    rows = list(zip(at.tolist(), wild.tolist(), strict=True))
    _put(free, [values[p] for p, _ in rows])
    _put(guarded, [values[p] if w % 2 == 0 else 0 for p, w in rows])
    known = [0 <= w < len(values) for _, w in rows]
    _put(
        one,
        [
            values[w] if inside and w % 2 == 0 else -1
            for (_, w), inside in zip(rows, known, strict=True)
        ],
    )
    _put(
        other,
        [
            _i64(values[w] * 2) if inside and w % 2 else -2
            for (_, w), inside in zip(rows, known, strict=True)
        ],
    )


def table_of_tables(
    *,
    row_of: Tensor,
    start: Tensor,
    table: Tensor,
    owner: Tensor,
    page: Tensor,
    owned_by: Tensor,
    page_size: int,
) -> None:
    starts, tables, owners = start.tolist(), table.tolist(), owner.tolist()
    pages, owned = [], []
    for s in row_of.tolist():
        for j in range(page.shape[1]):
            position = starts[s] + j
            found = tables[s][min(position // page_size, len(tables[s]) - 1)]
            pages.append(found * page_size + position % page_size)
            owned.append(owners[found])
    _put(page, pages)
    _put(owned_by, owned)


# Stores.


def guarded_store(
    *, n: Tensor, x: Tensor, row: Tensor, lanes: Tensor, columns: Tensor, live: int
) -> None:
    for r, (length, values) in enumerate(zip(n.tolist(), x.tolist(), strict=True)):
        if r < live:
            row[r] = _i64(sum(values))
            for k, value in enumerate(values):
                if k < length:
                    lanes[r, k] = _i64(value - 1)
        for c in range(max(length, 0), columns.shape[1]):
            columns[r, c] = c


def guarded_place(*, slot: Tensor, origin: Tensor, x: Tensor, pool: Tensor) -> None:
    origins, values = origin.tolist(), x.tolist()
    for s in slot.tolist():
        if s >= 0:
            for p in range(pool.shape[1]):
                pool[s, p] = _i32(values[origins[s]] + p)


def pieces(*, x: Tensor, out: Tensor, counts: Tensor, tail: int) -> None:
    _put(out, [-1, *x.tolist(), tail])
    _put(counts, [len(x), 3 * len(x) - 1])


# Reductions.


def reductions(
    *,
    x: Tensor,
    bound: Tensor,
    total: Tensor,
    least: Tensor,
    most: Tensor,
    hits: Tensor,
    some: Tensor,
    every: Tensor,
    at: Tensor,
) -> None:
    limits = torch.iinfo(x.dtype)
    rows = list(zip(x.tolist(), bound.tolist(), strict=True))
    above = [[v > b for v in row] for row, b in rows]
    _put(total, [_i64(sum(row)) for row, _ in rows])
    _put(least, [min(row, default=limits.max) for row, _ in rows])
    _put(most, [max(row, default=limits.min) for row, _ in rows])
    _put(hits, [sum(each) for each in above])
    _put(some, [any(each) for each in above])
    _put(every, [all(each) for each in above])
    _put(at, [each.index(True) if True in each else -1 for each in above])


def reduce_masked(
    *,
    x: Tensor,
    valid: Tensor,
    n: Tensor,
    least: Tensor,
    most: Tensor,
    at_least: Tensor,
    last: Tensor,
) -> None:
    found = []
    for row, ok, length in zip(x.tolist(), valid.tolist(), n.tolist(), strict=True):
        kept = [
            v if good and c < length else 2**31 - 1
            for c, (v, good) in enumerate(zip(row, ok, strict=True))
        ]
        smallest = min(kept, default=2**31 - 1)
        valids = [v for v, good in zip(row, ok, strict=True) if good]
        places = [c for c, good in enumerate(ok) if good]
        # Over no columns at all the greatest is the type's smallest number.
        nowhere = -1 if row else -(2**63)
        found.append(
            (
                smallest,
                max(valids, default=-(2**31)),
                kept.index(smallest) if smallest in kept else len(row),
                max(places, default=nowhere),
            )
        )
    for tensor, column in zip((least, most, at_least, last), range(4), strict=True):
        _put(tensor, [each[column] for each in found])


def reduce_nested(
    *, x: Tensor, weight: Tensor, outer: Tensor, inner: Tensor, both: Tensor, lanes: Tensor
) -> None:
    weights, width = weight.tolist(), x.shape[2]
    rows = [list(zip(*row, strict=True)) or [()] * width for row in x.tolist()]  # K rows of C
    _put(outer, [sum(w * max(v) for w, v in zip(weights, row, strict=True)) for row in x.tolist()])
    _put(inner, [max(sum(column) for column in row) for row in rows])
    _put(both, [sum(k * v for k, column in enumerate(row) for v in column) for row in rows])
    _put(
        lanes,
        [[_i64(min(column, default=2**63 - 1) - sum(weights)) for column in row] for row in rows],
    )


def reduce_to_one(*, x: Tensor, out: Tensor, some: Tensor) -> None:
    rows = x.tolist()
    least = [min(row, default=2**31 - 1) for row in rows]
    negative = [any(v < 0 for v in row) for row in rows]
    at = negative.index(True) if True in negative else len(rows)
    _put(out, [sum(map(sum, rows)), max(least, default=-(2**31)), at])
    _put(some, [any(0 in row for row in rows)])


def reduce_constant(
    *,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    times: Tensor,
    lanes: Tensor,
    at: Tensor,
    most: Tensor,
    hits: Tensor,
) -> None:
    xs, ys, zs = x.tolist(), y.tolist(), z.tolist()
    _put(times, [v * len(ys) for v in xs])
    _put(lanes, [v * len(zs) + sum(range(len(zs))) for v in xs])
    places = [[c for c, w in enumerate(ys) if c * 2 > v and w > 0] for v in xs]
    _put(at, [each[0] if each else v - 100 for each, v in zip(places, xs, strict=True)])
    _put(most, [len(ys) - 1 if ys else -(2**63) for _ in xs])
    _put(hits, [sum(w > 0 or v > k for k, w in enumerate(zs)) for v in xs])


def reduce_beside_guard(
    *,
    at: Tensor,
    x: Tensor,
    y: Tensor,
    valid: Tensor,
    used: Tensor,
    columns: Tensor,
    lanes: Tensor,
    ranks: Tensor,
) -> None:
    xs, ys, ok, lit = x.tolist(), y.tolist(), valid.tolist(), used.tolist()
    shifted = []
    for r, place in enumerate(at.tolist()):
        row = xs[place] if 0 <= place < len(xs) else None
        shifted.append(
            [v - max(row) if row and g else -1 for v, g in zip(row or ok[r], ok[r], strict=True)]
        )
    _put(columns, shifted)
    _put(
        lanes,
        [
            [v - min(row) if g else -1 for v, g in zip(row, lit[r], strict=True)]
            for r, row in enumerate(ys)
        ],
    )
    for r, row in enumerate(ys):
        for k, good in enumerate(lit[r]):
            if good:
                ranks[r, k] = sum(row[: k + 1]) - row[0]


def count_of_many(*, p: Tensor, n: Tensor, some: Tensor, low_byte: Tensor) -> None:
    hits = [sum(row) for row in p.tolist()]
    _put(n, hits)
    _put(some, [count > 0 for count in hits])
    _put(low_byte, [count % 256 for count in hits])


# Scans.


def scan_static(
    *, x: Tensor, sums: Tensor, before: Tensor, products: Tensor, unbroken: Tensor
) -> None:
    rows = x.tolist()
    _put(sums, [list(accumulate(row)) for row in rows])
    _put(before, [[sum(row[:k]) for k in range(len(row))] for row in rows])
    _put(products, [[_i64(prod(row[: k + 1])) for k in range(len(row))] for row in rows])
    _put(unbroken, [[all(v > 0 for v in row[: k + 1]) for k in range(len(row))] for row in rows])


def scan_tiles(
    *, x: Tensor, keep: Tensor, sums: Tensor, products: Tensor, places: Tensor, kept: Tensor
) -> None:
    rows, flags_ = x.tolist(), keep.tolist()
    _put(sums, [[_i64(v) for v in accumulate(row)] for row in rows])
    _put(products, [[_i64(prod(row[: c + 1])) for c in range(len(row))] for row in rows])
    _put(places, [[sum(row[:c]) if row[c] else -1 for c in range(len(row))] for row in flags_])
    _put(kept, [sum(row) for row in flags_])


def scan_long(*, x: Tensor, sums: Tensor) -> None:
    _put(sums, [list(accumulate(row)) for row in x.tolist()])


def prefix_rows(*, n: Tensor, x: Tensor, start: Tensor, end: Tensor, of_sums: Tensor) -> None:
    at = total = 0
    starts, ends, sums = [], [], []
    for length, row in zip(n.tolist(), x.tolist(), strict=True):
        starts.append(at)
        at += length + 1
        ends.append(at)
        sums.append([total + k for k in range(len(row))])
        total += sum(row)
    _put(start, starts)
    _put(end, ends)
    _put(of_sums, sums)


# State.


def state_row(*, slot: Tensor, n: Tensor, ctx_len: Tensor, wide: Tensor, limit: int) -> None:
    before = ctx_len.tolist()
    for r, (s, length) in enumerate(zip(slot.tolist(), n.tolist(), strict=True)):
        for k in range(wide.shape[1]):
            wide[r, k] = before[s] + k
        ctx_len[s] = min(before[s] + length, limit)


def state_row_runtime(*, slot: Tensor, ctx_len: Tensor, wide: Tensor) -> None:
    before, width = ctx_len.tolist(), wide.shape[1]
    slots = slot.tolist()
    _put(wide, [[before[s] + c for c in range(width)] for s in slots])
    for s in slots:
        ctx_len[s] = before[s] + width


def reverse_in_place(*, x: Tensor, a: Tensor, b: Tensor) -> None:
    _put(x, [row[::-1] for row in x.tolist()])
    one, two = a.tolist(), b.tolist()
    _put(a, two)
    _put(b, [_i64(v + 1) for v in one])


def state_without_index(*, counter: Tensor, moved: Tensor, step: int) -> None:
    now = counter[0].item()
    _put(counter, [now + step, now])
    _put(moved, [step != 0])


# Shapes.


def flat_places(
    *, x: Tensor, y: Tensor, z: Tensor, by_static: Tensor, by_size: Tensor, three: Tensor
) -> None:
    xs, ys, zs = x.tolist(), y.tolist(), z.tolist()
    _put(by_static, [_i64(v + w) for v in xs for w in zs])
    _put(by_size, [_i64(v - w) for v in xs for w in ys])
    _put(
        three,
        [r * 100 + j * 10 + h for r in range(len(xs)) for j in range(len(zs)) for h in range(2)],
    )


def static_only(*, x: Tensor, out: Tensor, total: Tensor) -> None:
    xs, width = x.tolist(), out.shape[0]
    _put(out, [[_i64(v * j) for v in xs] for j in range(width)])
    _put(total, [_i64(sum(v * j for j in range(width) for v in xs))])


def transpose(*, x: Tensor, out: Tensor) -> None:
    columns = x.tolist()
    _put(out, [[column[r] for column in columns] for r in range(out.shape[0])])


def any_layout(
    *,
    x: Tensor,
    flags: Tensor,
    y: Tensor,
    out: Tensor,
    state: Tensor,
    dense: Tensor,
) -> None:
    xs, ps, ys = x.tolist(), flags.tolist(), y.tolist()
    depth, rows = len(xs), len(ps)
    _put(
        out,
        [
            [
                [_i64(xs[a][b][k] + ys[k][a]) if ps[b] else -1 for a in range(depth)]
                for k in range(len(ys))
            ]
            for b in range(rows)
        ],
    )
    _put(state, [(v + 1) % 256 for v in state.tolist()])
    _put(dense, [[xs[a][b][0] for b in range(rows)] for a in range(depth)])


def narrow_dimensions(
    *,
    head: Tensor,
    tail: Tensor,
    between: Tensor,
    out_head: Tensor,
    out_tail: Tensor,
    out_between: Tensor,
) -> None:
    _put(out_head, [_i32(row[0] + 1) for row in tail.tolist()])
    _put(out_tail, [_i32(v + 2) for row in head.tolist() for v in row])
    _put(out_between, [_i32(row[0][0] + 3) for row in between.tolist()])


def tiles_of_rows(*, x: Tensor, n: Tensor, out: Tensor, row: Tensor) -> None:
    width, lengths = out.shape[2], n.tolist()
    _put(
        out,
        [
            [[_i64(v + k) if c < length else -k for k in range(width)] for c, v in enumerate(line)]
            for line, length in zip(x.tolist(), lengths, strict=True)
        ],
    )
    _put(row, [2 * length for length in lengths])


def row_tiles(*, x: Tensor, at: Tensor, out: Tensor) -> None:
    xs = x.tolist()
    _put(out, [_i64(xs[place] - i) for i, place in enumerate(at.tolist())])


def launch_condition(*, x: Tensor, ran: Tensor, limit: int) -> None:
    if len(x) > 1 and limit != 0:
        _put(x, [_i64(v * limit) for v in x.tolist()])
        _put(ran, [limit > 0])


def derived_sizes(
    *, x: Tensor, edges: Tensor, blocks: Tensor, step: Tensor, padded: Tensor
) -> None:
    xs, steps = x.tolist(), step.tolist()
    _put(edges, [b - a for a, b in zip(xs, xs[1:], strict=False)])
    _put(blocks, [sum(xs[at : at + 4]) for at in range(0, len(xs), 4)])
    _put(padded, [[*(_i64(v + s) for s in steps), -1] for v in xs])


def static_conditions(
    *, x: Tensor, some: Tensor, hits: Tensor, at: Tensor, stored: Tensor, bit: Tensor, total: Tensor
) -> None:
    rows, width = x.tolist(), x.shape[1]
    wide = width > 2
    _put(some, [wide for _ in rows])
    _put(hits, [sum(wide or v > 0 for v in row) for row in rows])
    _put(at, [0 if wide else -1 for _ in rows])
    _put(stored, [[wide] * width for _ in rows])
    _put(bit, [int(wide) for _ in rows])
    _put(total, [sum(int(wide) + (width <= 3) * v for v in row) for row in rows])


def extent_quotient(*, x: Tensor, z: Tensor, y: Tensor) -> None:
    """A number of sizes that is always 1: the first element only."""
    values = y.tolist()
    if int(x[0]) >= int(z[0]):
        values[0] = 0
    _put(y, values)


# Places that are told by others.


def compaction(
    *, keep: Tensor, n: Tensor, x: Tensor, kept: Tensor, flat: Tensor, front: Tensor
) -> None:
    rows, total = x.tolist(), flat.numel()
    chosen = [row[0] for row, yes in zip(rows, keep.tolist(), strict=True) if yes]
    _put(kept, chosen + kept.tolist()[len(chosen) :])
    joined = [v for row, count in zip(rows, n.tolist(), strict=True) for v in row[:count]][:total]
    _put(flat, joined + flat.tolist()[len(joined) :])
    fronts = []
    for row, old in zip(rows, front.tolist(), strict=True):
        ahead = [v for v in row if v > 0]
        fronts.append(ahead + old[len(ahead) :])
    _put(front, fronts)
