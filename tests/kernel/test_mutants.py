"""The judge and the runner are able to fail: kernels broken in one place are refused, or seen when they run.

A sample; `python tests/helpers/mutant_ends.py` tries all mutants of all specs, in eight minutes.
"""

from __future__ import annotations

from collections import Counter

import mutant_ends
import pytest

# Group -> one of how many of its mutants is tried.
SAMPLE = {
    "accept_prefix": 4,
    "block_fixup": 4,
    "context_kv_write": 8,
    "gen_bookkeeping": 8,
    "noise_block_from_table": 4,
    "refresh_block_tables": 4,
    "any_layout": 4,
    "guard_of_other_axis": 4,
    "order_of_sums": 4,
    "reverse_in_place": 3,
    "scan_tiles": 4,
    "table_of_tables": 3,
    "tiles_of_rows": 4,
}


@pytest.mark.parametrize("group", SAMPLE)
def test_broken_kernels_are_refused_or_seen(group):
    ends, found = Counter[str](), list[str]()
    for mutant, end, why in mutant_ends.ended(mutant_ends.specs()[group], SAMPLE[group]):
        ends[end] += 1
        if end in ("unsafe", "survived"):
            found.append(f"{end}: {mutant} {why}")
    assert not found
    assert ends["refused"] > sum(ends.values()) / 3
