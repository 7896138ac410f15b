"""The generated tests are able to fail: faults put into printed kernels and into specs are seen.

A kernel's fault must fail its generated equivalence test. A few cannot: what the interpreter does not show
(a missing barrier) is for the watch on its memory. A spec's fault must be refused by kgen or fail against
the eager chain. Survivors stand here with reasons. What is wrong with a kernel before it is printed is for
`kernel/test_mutants.py`.

A sample of the specs' faults; `FAULTS=all pytest tests/test_mutations.py` tries them all, in
a minute: on 2026-12-01, 20 were refused, 31 failed a test, and the 5 below survived.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import building
import pytest

from kgen.diagnostics import SpecError

ROOT = Path(__file__).parents[1]
PART = 1 if os.environ.get("FAULTS") == "all" else 9  # one of so many faults of specs is tried

# What a printer could get wrong: (group, what the kernel says, the fault, how it is seen).
KERNEL_FAULTS = [
    ("accept_prefix", "r * draft_tokens_stride_0 + k", "r * target_tokens_stride_0 + k", "test"),
    ("accept_prefix", "row * accepted_tokens_stride_0 + t", "row * K1 + t", "test"),
    ("accept_prefix", "tl.int32),\n        mask=t_in,", "tl.int32),", "test"),
    ("accept_prefix", "(-matched).to(tl.int32)", "matched.to(tl.int32)", "test"),
    ("accept_prefix", "    tl.debug_barrier()\n", "", "watch"),
    ("context_positions", "(num_contexts + r)", "r", "test"),
    ("context_positions", "mask=k_in", "mask=k <= K1", "test"),
    ("refresh_block_tables", "pid - end_0", "pid", "test"),
    ("refresh_block_tables", "(blocks + TILE_c - 1) // TILE_c", "blocks // TILE_c", "test"),
    ("refresh_block_tables", "(program // tiles_c)", "(program % tiles_c)", "test"),
    (
        "refresh_block_tables",
        "range(0, blocks, TILE_c)",
        "range(0, blocks - TILE_c, TILE_c)",
        "test",
    ),
    ("refresh_block_tables", "c_in_2 = c_2 < blocks", "c_in_2 = c_2 <= blocks", "test"),
]


def ends(jobs: list[dict], tmp_path: Path) -> list[tuple[str, str]]:
    """How each changed copy's tests end."""
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(jobs))
    command = [sys.executable, str(ROOT / "tests" / "helpers" / "run_mutants.py"), str(file)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return [tuple(each) for each in json.loads(done.stdout.splitlines()[-1])]


def score(what: str, found: list[tuple[str, str]]) -> None:
    counts = Counter(end for end, _ in found)
    print(f"{what}: {len(found)} faults, {dict(counts)}")


@pytest.mark.slow
def test_faults_in_kernels_are_seen(tmp_path):
    text, jobs = (ROOT / "generated" / "dspark" / "kernels.py").read_text(), []
    base = {"folder": str(ROOT / "generated"), "package": "dspark"}
    for group, old, new, _ in KERNEL_FAULTS:
        before, head, rest = text.partition(f"def {group}_kernel(")
        own, mark, after = rest.partition("@kernel")
        assert own.count(old) == 1, (group, old)
        changed = before + head + own.replace(old, new) + mark + after
        jobs.append(base | {"group": group, "files": {"kernels.py": changed}})
    groups = sorted({group for group, *_ in KERNEL_FAULTS})
    sound = [base | {"group": group, "files": {}} for group in groups]
    found = ends(sound + jobs, tmp_path)
    assert found[: len(sound)] == [("survived", "")] * len(sound)
    found = [end for end, _ in found[len(sound) :]]
    assert found == [end for *_, end in KERNEL_FAULTS]


# (spec, what it says, the fault).
SPEC_FAULTS = [
    ("accept_prefix", "row: num_contexts + r", "row: r"),
    ("accept_prefix", "draft_tokens[r, k] != target", "draft_tokens[r, k] == target"),
    ("accept_prefix", "target_tokens[r, k], K)", "target_tokens[r, k], K1)"),
    ("accept_prefix", "i32(1 + matched)", "i32(matched)"),
    ("accept_prefix", "i32(-matched)", "i32(matched)"),
    ("accept_prefix", "target_kv_lens[row] + 1", "target_kv_lens[r] + 1"),
    ("accept_prefix", "target_kv_lens[row]: target", "target_kv_lens[r]: target"),
    ("accept_prefix", "accepted_tokens[row, t]:", "accepted_tokens[r, t]:"),
    ("accept_prefix", "values: 0 .. batch - G}", "values: 0 .. batch}"),
    ("accept_prefix", '"i32[batch, K1]", mode: inout', '"i32[batch, K1]", mode: out'),
    ("block_fixup", "position // page_size]", "position % page_size]"),
    ("block_fixup", "position % page_size\n", "position // page_size\n"),
    ("block_fixup", "position: num_ctx[r] + j", "position: num_ctx[r]"),
    ("block_fixup", "blocks * page_size - W", "blocks * page_size"),
    (
        "block_fixup",
        "page_tables[r, c]: block_tables[row, c]",
        "page_tables[r, c]: block_tables[r, c]",
    ),
    ("block_fixup", "i32(num_ctx[r] + W)", "i32(num_ctx[r])"),
    ("block_fixup", "if given(block_counts) else", "if not given(block_counts) else"),
    ("context_kv_write", " * bf16(keep[r, k])", ""),
    ("context_kv_write", "r * K1 + k, d]", "k * G + r, d]"),
    ("context_kv_write", "collide: first k", "collide: last k"),
    ("context_positions", "batch_to_slot[num_contexts + r]", "batch_to_slot[r]"),
    ("context_positions", "ctx_len[slot] + k", "ctx_len[slot]"),
    ("context_positions", "ctx_len[slot] + k", "ctx_len[slot] - k"),
    ("gen_bookkeeping", "    distinct: except slots - 1\n", ""),
    ("gen_bookkeeping", "min(before + n, max_ctx)", "before + n"),
    ("gen_bookkeeping", "max(n - 1, 0)", "n - 1"),
    ("gen_bookkeeping", "max(min(before + k, cap - 1), 0)", "min(before + k, cap - 1)"),
    ("gen_bookkeeping", "max(min(before + k, cap - 1), 0)", "max(before + k, 0)"),
    ("gen_bookkeeping", "value: k < n", "value: k <= n"),
    ("gen_bookkeeping", "min(after, max(cap - W, 0))", "min(after, cap - W)"),
    ("gen_bookkeeping", "min(after, max(cap - W, 0))", "after"),
    ("gen_bookkeeping", "  embed_ids[G]: mask_token_id\n", ""),
    ("gen_bookkeeping", "embed_ids[G]: mask", "embed_ids[0]: mask"),
    ("gen_bookkeeping", "seq_lens[row]: ", "seq_lens[r]: "),
    ("gen_bookkeeping", "when: G > 0\n", ""),
    ("gen_bookkeeping", "ctx_len[slot]: {value: after", "ctx_len[slot]: {value: before"),
    ("gen_bookkeeping", "ctx_len[slot]: {value: after", "ctx_len[r]: {value: after"),
    (
        "gen_bookkeeping",
        "query_positions[r, j]: {value: after",
        "query_positions[r, j]: {value: before",
    ),
    ("gen_bookkeeping", "col % page_size", "col // page_size"),
    ("gen_bookkeeping", "max_ctx, mode: inout}", "max_ctx, mode: out}"),
    ("gen_bookkeeping", "i64(block_tables[row,", "i64(block_tables[r,"),
    ("noise_block", "r if j == 0 else G", "r if j == 1 else G"),
    ("noise_block", "r if j == 0 else G", "r"),
    ("refresh_block_tables", "count[c](entry >= 0)", "count[c](entry > 0)"),
    ("refresh_block_tables", "count[c](entry >= 0)", "count[c](entry >= 0) + 1"),
    ("refresh_block_tables", "max(entry, 0) // divisor", "entry // divisor"),
    ("refresh_block_tables", "max(entry, 0) // divisor", "max(entry // divisor, 1)"),
    ("refresh_block_tables", "[pool_index, r, 0, c]", "[pool_index, r, 1, c]"),
    ("refresh_block_tables", "index: {r: num_seqs", "index: {r: rows"),
    ("refresh_block_tables", "values: 1 .. 2**31 - 1}", "values: 0 .. 2**31 - 1}"),
    ("refresh_block_tables", '"i32[rows, blocks]", mode: inout', '"i32[rows, blocks]", mode: out'),
]
# Faults in declarations alone, which change no value of a call that fits them: the reason for each.
SURVIVORS = {
    ("gen_bookkeeping", "distinct: except slots - 1", 'distinct: "true"'): (
        "padded rows are no longer drawn; test_bug_kinds calls with two of them"
    ),
    ("refresh_block_tables", "    layout: any\n", ""): (
        "odd strides are no longer drawn; test_bug_kinds calls with them"
    ),
    (
        "context_positions",
        "    distinct: except slots - 1\n",
        "",
    ): "it only reads, so nothing collides",
    ("context_kv_write", "    collide: first k\n", ""): (
        "what several points store to is undefined where the spec is `trusted` to have no such points"
    ),
    ("block_fixup", "blocks: (W + page_size - 1) // page_size ..", "blocks: 0 .."): (
        "with fewer blocks the range of num_ctx is empty, so that no tensor fits"
    ),
}


@pytest.mark.slow
def test_faults_in_specs_are_refused_or_seen(tmp_path):
    refused, jobs, told = [], [], []
    faults = [*SPEC_FAULTS, *SURVIVORS][::PART]
    for number, (group, old, new) in enumerate(faults):
        text = (ROOT / "specs" / "dspark" / f"{group}.yaml").read_text()
        assert text.count(old) == 1, (group, old)
        folder = tmp_path / f"fault_{number}"
        (folder / "dspark").mkdir(parents=True)
        (folder / "dspark" / f"{group}.yaml").write_text(text.replace(old, new))
        shutil.copy(ROOT / "specs" / "dspark" / "eager.py", folder / "dspark")
        try:
            building.build(folder / "dspark", folder / "out")
        except SpecError:
            refused.append((group, old, new))
        else:
            jobs.append(
                {"folder": str(folder / "out"), "package": "dspark", "group": group, "files": {}}
            )
            told.append((group, old, new))
    found = ends(jobs, tmp_path)
    score(f"specs, {len(refused)} refused", found)
    survivors = [fault for fault, (end, _) in zip(told, found, strict=True) if end == "survived"]
    assert set(survivors) == set(SURVIVORS) & set(faults)
    assert len(refused) >= 8 / PART


def test_the_harness_tells_faults_from_rewritings(tmp_path):
    """A fault is seen because it is one, not because any change would be."""
    text = (ROOT / "generated" / "dspark" / "eager.py").read_text()
    line = "    ctx_positions.copy_(before.unsqueeze(1) + steps)\n"
    assert line in text
    base = {"folder": str(ROOT / "generated"), "package": "dspark", "group": "context_positions"}
    jobs = [
        base | {"files": {"eager.py": text.replace(line, line.replace("+", f"+ {factor} *"))}}
        for factor in (2, 1)
    ]
    assert [end for end, _ in ends(jobs, tmp_path)] == ["test", "survived"]
