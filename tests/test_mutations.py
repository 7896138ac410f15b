"""The tests are able to fail: faults put into kernels and into specs, one at a time, are seen.

A kernel's fault must fail its generated equivalence test. A few cannot: what the interpreter does not show
(a missing barrier, a load past a row whose value nobody uses) is for the watch on its memory.
A spec's fault must be refused by kgen or fail against the eager chain. Survivors stand here with reasons.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import building
import kernel_mutants
import pytest

from kgen.diagnostics import SpecError

ROOT = Path(__file__).parents[1]
GROUPS = (
    "accept_prefix",
    "block_fixup",
    "context_positions",
    "gen_bookkeeping",
    "refresh_block_tables",
)

# Faults that no test can see, and why: (group, fault) with the fault's beginning.
EQUIVALENT = {
    ("accept_prefix", "k_in & (draft_tokens_value != target_tokens_value"): (
        "lanes past K load 0 on both sides, and 0 equals 0"
    ),
    ("gen_bookkeeping", "load of block_tables_ptr without its mask"): (
        "the column is clamped into the row on every lane"
    ),
}


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


def test_faults_in_kernels_are_seen(tmp_path):
    text = (ROOT / "generated" / "dspark" / "kernels.py").read_text()
    faults = [each for each in kernel_mutants.mutants(text) if each.group in GROUPS]
    assert len(faults) >= 25
    base = {"folder": str(ROOT / "generated"), "package": "dspark"}
    sound = [base | {"group": group, "files": {}} for group in GROUPS]
    jobs = [base | {"group": each.group, "files": {"kernels.py": each.text}} for each in faults]
    found = ends(sound + jobs, tmp_path)
    assert found[: len(sound)] == [("survived", "")] * len(sound)
    found = found[len(sound) :]
    score("kernels", found)
    survivors = [
        f"{fault.group}: {fault.fault}"
        for fault, (end, _) in zip(faults, found, strict=True)
        if end == "survived"
        and not any(
            fault.group == group and fault.fault.startswith(start) for group, start in EQUIVALENT
        )
    ]
    assert survivors == [], "\n".join(survivors)
    # Most of them by the generated test alone, which is what an engine has.
    assert sum(end in ("test", "crash") for end, _ in found) >= 0.9 * len(found)


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


def test_faults_in_specs_are_refused_or_seen(tmp_path):
    refused, jobs, told = [], [], []
    for number, (group, old, new) in enumerate([*SPEC_FAULTS, *SURVIVORS]):
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
    assert set(survivors) == set(SURVIVORS)
    assert len(refused) >= 8


@pytest.mark.parametrize("factor, end", [(2, "test"), (1, "survived")])
def test_the_harness_tells_faults_from_rewritings(tmp_path, factor, end):
    """A fault is seen because it is one, not because any change would be."""
    text = (ROOT / "generated" / "dspark" / "eager.py").read_text()
    line = "    ctx_positions.copy_(before.unsqueeze(1) + steps)\n"
    assert line in text
    changed = text.replace(line, line.replace("+ steps", f"+ {factor} * steps"))
    base = {"folder": str(ROOT / "generated"), "package": "dspark", "group": "context_positions"}
    assert ends([base | {"files": {"eager.py": changed}}], tmp_path)[0][0] == end
