"""examples/dspark_decode: the same tokens and bits in every setting, for every batch, on every rank."""

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from examples.dspark_decode import at_k3, run
from examples.dspark_decode.engine import Engine, Request
from examples.dspark_decode.model import Sizes, Target
from examples.dspark_decode.pages import Pages
from examples.dspark_decode.ranks import Ranks
from generated import dspark

EAGER = {"fused": False, "overlap": False, "fused_norm": False, "local_table": False}
OTHERS = {
    "overlap": EAGER | {"overlap": True},
    "fused": EAGER | {"fused": True},
    "fused-overlap": EAGER | {"fused": True, "overlap": True},
}
ROOT = Path(run.__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def eager():
    dspark.configure(**EAGER)
    yield
    dspark.configure(**EAGER)


def new_engine(device, sizes=None, **options):
    return Engine(sizes or Sizes(), Ranks(), device, **options)


def request(id="A", length=5, new_tokens=12, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return Request(id, torch.randint(511, (length,), generator=draw).tolist(), new_tokens)


def alone(request, device, sizes=None, **options):
    """The same request with nobody else there."""
    found = Request(request.id, request.prompt, request.new_tokens)
    engine = new_engine(device, sizes, **options)
    engine.submit(found)
    engine.run()
    return found


def plain(request, device):
    """The same request from the target alone, a token at a time."""
    target = Target(Sizes(), Ranks(), device)
    tokens = [0, *request.prompt]
    for _ in range(request.new_tokens):
        last = torch.tensor([tokens[-2:]], device=device)
        at = torch.tensor([len(tokens) - 2], device=device)
        logits, _ = target(last[:, 0], last[:, 1], at)
        tokens.append(int(logits.argmax()))
    return tokens[1 + len(request.prompt) :]


def mixed(device, sizes=None, new_tokens=8, **options):
    """Three requests that overlap in time; two prompts begin alike."""
    requests = [
        request("A", 9, new_tokens, 1),
        request("B", 10, new_tokens, 2),
        request("C", 3, new_tokens - 3, 3),
    ]
    requests[1].prompt[:8] = requests[0].prompt[:8]
    requests[1].tokens[:8] = requests[0].prompt[:8]
    engine = new_engine(device, sizes, **options)
    for step in range(1000):
        if step % 2 == 0 and step < 6:
            engine.submit(requests[step // 2])
        elif not engine.busy:
            break
        engine.advance()
    return engine, requests


def outcome(engine, requests):
    return [each.output for each in requests], [each.accepted for each in requests], engine.digest()


@pytest.fixture(scope="module")
def expected():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dspark.configure(**EAGER)
    return outcome(*mixed(device))


@pytest.mark.parametrize("setting", OTHERS)
def test_a_setting_changes_no_bit(setting, device, expected):
    dspark.configure(**OTHERS[setting])
    assert outcome(*mixed(device)) == expected


def test_norms_inside_the_writes_change_no_token(device):
    first = request(length=3, new_tokens=4)
    expected = plain(first, device)
    dspark.configure(**EAGER | {"fused": True, "fused_norm": True})
    assert alone(first, device).output == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.gpu
@pytest.mark.parametrize("setting", ["eager", *OTHERS])
def test_replayed_graphs_change_no_bit(setting, device, expected):
    dspark.configure(**(EAGER | OTHERS.get(setting, {})))
    assert outcome(*mixed(device, graph=True)) == expected


@pytest.mark.parametrize("shift_label", [True, False])
@pytest.mark.parametrize("lag", [0, 1])
def test_a_batch_gives_each_request_what_it_gets_alone(shift_label, lag, device):
    sizes = Sizes(shift_label=shift_label)
    engine, requests = mixed(device, sizes, new_tokens=14, lag=lag)
    for each in requests:
        same = alone(each, device, sizes)
        assert each.output == same.output == plain(each, device)
        # Drafts too: a prefix hit, another's chunks and padding leave them alone.
        assert each.accepted == same.accepted
    for what in ("prefix hits", "mixed steps", "steps with G = 0", "padded rows"):
        assert engine.events[what], what
    drafted = [count for each in requests for count in each.accepted]
    assert 1 in drafted
    assert max(drafted) > 2


def test_the_fused_step_takes_a_block_of_both_widths(device):
    sizes = Sizes(shift_label=False)
    plain_bits = outcome(*mixed(device, sizes, new_tokens=5))
    dspark.configure(**OTHERS["fused-overlap"])
    assert outcome(*mixed(device, sizes, new_tokens=5)) == plain_bits


@pytest.mark.parametrize("drafts", [1, 7])
def test_other_numbers_of_drafts(drafts, device):
    sizes = Sizes(K=drafts)
    _, requests = mixed(device, sizes)
    for each in requests:
        assert each.output == plain(each, device)
        assert max(each.accepted) <= drafts + 1


def test_drafts_come_from_the_pool(device, monkeypatch):
    """Else equal drafts would say nothing of the latents."""
    first = request(new_tokens=30)
    expected = alone(first, device).accepted
    monkeypatch.setattr("examples.dspark_decode.model.Drafter.prefill", lambda *_: None)
    assert alone(first, device).accepted != expected


@pytest.mark.parametrize("shift_label", [True, False])
def test_which_slots_of_the_block_predict(shift_label, device):
    engine = new_engine(device, Sizes(shift_label=shift_label))
    drafter, drafts = engine.drafter, engine.draft_tokens[:2]
    bonus = torch.tensor([5, 6], device=device)
    draw = torch.Generator().manual_seed(0)
    drafter.hidden.copy_(torch.randn(drafter.hidden.shape, generator=draw))
    drafter.propose(bonus=bonus, draft_tokens=drafts)
    before, found = drafts.clone(), []
    for slot in range(drafter.hidden.shape[1]):
        drafter.hidden[:2, slot] *= -1
        drafter.propose(bonus=bonus, draft_tokens=drafts)
        found.append(not torch.equal(drafts, before))
        drafter.hidden[:2, slot] *= -1
    assert found == ([True] * 3 if shift_label else [False, True, True, True])


def test_what_a_page_held_before_is_never_read(device):
    first = request(new_tokens=14)
    engine = new_engine(device)
    engine.arena.fill_(float("nan"))
    engine.submit(first)
    engine.run()
    assert first.accepted == alone(first, device).accepted


def test_a_prompt_in_chunks_and_a_cached_one_are_a_cold_run(device):
    first = request(length=7, new_tokens=10)
    cold = alone(first, device, chunk=7)
    engine = new_engine(device, chunk=4)
    engine.submit(first)
    engine.run()
    again = Request("A", first.prompt, 10)
    engine.submit(again)
    engine.run()
    assert engine.events["prefix hits"] == 1
    for each in (first, again):
        assert (each.output, each.accepted) == (cold.output, cold.accepted)


@pytest.mark.parametrize("setting", ["eager", "fused"])
def test_a_late_result_touches_nobody(setting, device):
    """A is preempted while its result is under way, B gets its slot, A resumes, and ends under B."""
    dspark.configure(**(EAGER | OTHERS.get(setting, {})))
    engine = new_engine(device, Sizes(slots=2 if setting == "fused" else 4), lag=1)
    first, second = request("A", 5, 12, 1), request("B", 3, 6, 2)
    engine.submit(first)
    while len(first.output) < 4:
        engine.advance()
    known = list(first.tokens)
    slot = first.slot
    engine.preempt(first)
    engine.waiting.remove(first)
    engine.submit(second)
    engine.advance()
    assert second.slot == slot
    assert first.tokens == known, "a result of before the preemption came through"
    assert engine.ctx_len[slot] == 3
    engine.waiting.append(first)
    engine.run()
    assert engine.events["late results dropped"] >= 1
    assert first.output == plain(first, device)
    assert second.output == plain(second, device)
    assert second.accepted == alone(second, device).accepted


def test_an_id_that_is_used_again_in_the_same_step(device):
    engine = new_engine(device, lag=1)
    old, other = request("A", 5, 20, 1), request("B", 3, 16, 2)
    engine.submit(old)
    engine.submit(other)
    while len(old.output) < 4:
        engine.advance()
    slot, known = old.slot, list(old.tokens)
    engine.abort(old)
    new = request("A", 6, 8, 3)
    engine.submit(new)
    engine.advance()
    assert new.slot == slot
    engine.run()
    assert old.tokens == known
    for each in (new, other):
        assert (each.output, each.accepted) == (plain(each, device), alone(each, device).accepted)


def test_requests_that_need_more_pages_than_there_are(device):
    engine = new_engine(device, Sizes(pages=20))
    requests = [request(f"r{number}", 4 + number, 20, number) for number in range(5)]
    for each in requests:
        engine.submit(each)
    engine.run()
    assert engine.events["preemptions"] > 1
    for each in requests:
        assert each.output == plain(each, device)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_requests(seed, device):
    draw = random.Random(seed)
    sizes = Sizes(
        pages=draw.choice([20, 30]), slots=draw.choice([3, 5, 7]), shift_label=seed % 2 == 0
    )
    engine = new_engine(device, sizes, lag=draw.choice([0, 1, 2]), chunk=draw.choice([1, 3, 16]))
    requests, aborted = [], []
    for step in range(60):
        if step < 40 and draw.random() < 0.4:
            id = f"r{draw.randrange(8)}"
            if not engine.knows(id):
                new = request(id, draw.randint(1, 20), draw.randint(1, 20), draw.randrange(1000))
                if requests and draw.random() < 0.5:
                    start = draw.choice(requests).prompt[:12]
                    new = Request(id, start + new.prompt, new.new_tokens)
                requests.append(new)
                engine.submit(new)
        if engine.running and draw.random() < 0.1:
            engine.preempt(draw.choice(engine.running))
        if engine.running and draw.random() < 0.05:
            aborted.append(draw.choice([*engine.running, *engine.waiting]))
            engine.abort(aborted[-1])
        engine.advance(draw.choice([1, 2, 3, 3, 3]))
    engine.run()
    assert engine.finished
    for each in requests:
        expected = plain(each, device)
        assert each.output == (
            expected if each in engine.finished else expected[: len(each.output)]
        )
        assert (each in engine.finished) != (each in aborted)


@pytest.mark.parametrize("setting", ["eager", "fused-overlap"])
def test_the_number_of_drafts_moves(setting, device):
    dspark.configure(**(EAGER | OTHERS.get(setting, {})))
    engine = new_engine(device)
    requests = [request("A", 4, 10, 4), request("B", 3, 10, 5)]
    for each in requests:
        engine.submit(each)
    for step in range(1000):
        if not engine.busy:
            break
        drafts = 2 if step in (3, 4) else 3
        engine.advance(drafts)
        if drafts == 2:
            # Of the old width nothing is left, so that the next step can't take it for a draft.
            mask = engine.sizes.mask_token_id
            assert engine.drafts[:2, 2].tolist() == [mask, mask]
            assert mask not in engine.drafts[:2, :2]
    for each in requests:
        assert each.output == plain(each, device)


def test_a_step_without_generation_requests_touches_nothing(device):
    dspark.configure(**OTHERS["fused-overlap"])
    engine = new_engine(device)
    buffers = (
        engine.draft_tokens,
        engine.accepted_tokens,
        engine.num_accepted,
        engine.last_two,
        engine.drafts,
    )
    for each in buffers:
        each.fill_(3)
    before = [each.clone() for each in (*buffers, engine.ctx_len, engine.arena)]
    engine.submit(request(length=9))
    engine.advance()
    assert engine.events["steps with G = 0"] == 1
    *same, lengths, arena = (*buffers, engine.ctx_len, engine.arena)
    assert all(torch.equal(*each) for each in zip(same, before, strict=False))
    assert lengths.tolist() == [4, 0, 0, 0, 0, 0, 0]
    page = engine.running[0].pages[0]
    arena[page] = 0  # what the engine's own prefill wrote
    assert torch.equal(arena, before[-1])
    assert engine.block_counts[0] == len(engine.running[0].pages)


def test_fewer_launches(device):
    counted = {}
    for name, switches in {"eager": EAGER, "fused": OTHERS["fused"]}.items():
        dspark.configure(**switches)
        counted[name] = new_engine(device).launches(lambda call: run.launches(call, device))
    (eager, whole), (fused, fused_whole) = counted["eager"], counted["fused"]
    # Groups 1, 2, the prologue, 4, 5, 6 and 9 twice; and, where no graph is captured, two copies of what
    # is put back if a stage raises.
    assert fused == (8 if device.type == "cuda" else 10)
    assert whole - eager == fused_whole - fused
    assert eager > 5 * fused


@pytest.mark.parametrize(
    "id, length, new_tokens, message",
    [
        ("A", 3, 3, "request 'A' is not finished, so its id is not free"),
        ("B", 0, 3, "request 'B' needs a prompt, and a token to generate"),
        ("B", 3, 0, "request 'B' needs a prompt, and a token to generate"),
        ("B", 80, 6, "request 'B' may reach 86 tokens; there is room for 85"),
    ],
)
def test_requests_that_are_refused(id, length, new_tokens, message, device):
    engine = new_engine(device)
    engine.submit(request("A"))
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        engine.submit(request(id, length, new_tokens))


def test_pages_are_shared_and_evicted():
    pages = Pages(2, 4, page_size=2)
    mine = pages.take(3)
    pages.keep([1, 2, 3, 4, 5], mine)
    assert pages.share([1, 2, 3, 4, 9]) == mine[:2]
    assert pages.share([1, 2, 3, 4]) == mine[:1], "a last token has to be left for the target"
    assert pages.share([7, 2, 3]) == []
    pages.release(mine)
    assert pages.take(3) is None
    pages.release(mine[:2])
    pages.release(mine[:1])
    assert sorted(pages.take(4)) == [2, 3, 4, 5]
    assert pages.share([1, 2, 3]) == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("--tokens 0", "--tokens: 1 to 66"),
        ("--tokens 67", "--tokens: 1 to 66"),
        ("--drafts 8", "--drafts: 1 to 7"),
        ("--requests 0", "--requests: at least 1"),
        ("--requests two", "argument --requests: invalid int value: 'two'"),
        ("--device cpu --graph", "--graph needs --device cuda"),
    ],
)
def test_options_that_are_refused(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments.split()])
    with pytest.raises(SystemExit) as exit:
        run.main()
    assert exit.value.code == 2
    assert capsys.readouterr().err.rstrip().endswith(f"error: {message}")


def test_the_table(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "--requests", "2", "--tokens", "4"])
    assert run.main() == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split("|")[0].strip() for line in table[2:6]] == list(run.SETTINGS)
    assert all("as eager" in line for line in table[2:6])


@pytest.mark.parametrize(
    "arguments, gpus, ranks, expected",
    [
        ("", 0, 1, False),
        ("", 1, 1, True),
        ("--no-graph", 1, 1, False),
        ("", 2, 2, False),
        ("--graph", 2, 2, True),
    ],
)
def test_one_rank_on_a_gpu_replays_graphs(arguments, gpus, ranks, expected, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments.split()])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    options, _ = run._options()
    assert options.graph is expected


def test_what_is_saved(capsys):
    def row(setting, microseconds):
        return run.Row(setting, [[1]], [[1]], "", Counter(), 1, 1, microseconds)

    options = SimpleNamespace(json=False, requests=1, tokens=1, graph=True)
    rows = [row("eager", 608.0), row("fused", 501.5)]
    run._report(options, rows, Sizes(), torch.device("cpu"), Ranks(), [])
    table = capsys.readouterr().out.splitlines()
    assert [line.split("|")[-1].strip() for line in table[2:4]] == ["0.0", "106.5"]


def test_sizes_of_k3_without_a_gpu():
    """Small sizes on a CPU, a process of its own; and the one line that says where times are."""
    command = [sys.executable, str(ROOT / "examples/dspark_decode/at_k3.py")]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    run = {"env": environment, "capture_output": True, "text": True}
    dry = subprocess.run([*command, "--dry-run"], check=False, **run)
    assert dry.returncode == 0, dry.stderr
    rows = [line.split(" | ") for line in dry.stdout.splitlines() if line.count(" | ") == 4]
    groups = [row[0].strip() for row in rows if row[-1].startswith("yes")]
    assert groups == list(
        json.loads((ROOT / "generated/dspark/manifest.json").read_text())["groups"]
    )
    assert "only the groups" in dry.stdout
    bare = subprocess.run(command, check=False, **run)
    assert bare.returncode == 0
    assert bare.stdout.count("\n") == 1
    assert "docs/performance.md" in bare.stdout
    wrong = subprocess.run([*command, "--context", "100"], check=False, **run)
    assert wrong.returncode == 2


def test_bits_at_k3_sizes():
    one = torch.tensor([1.0, -1.0, -0.0]).bfloat16()
    next_to = (one.view(torch.int16) + torch.tensor([1, 0, 0], dtype=torch.int16)).view(one.dtype)
    zero = torch.tensor([1.0, -1.0, 0.0]).bfloat16()
    assert at_k3._equal({"x": one}, {"x": one.clone()}, 0)
    assert not at_k3._equal({"x": one}, {"x": zero}, 0)
    assert not at_k3._equal({"x": one}, {"x": next_to}, 0)
    assert at_k3._equal({"x": [one]}, {"x": [next_to]}, 1)
    assert not at_k3._equal({"x": [one]}, {"x": [one * 2]}, 1)


def test_a_difference_is_reported(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "--requests", "1", "--tokens", "2"])
    monkeypatch.setattr(run, "_alone", lambda *_: [[1, 2]])
    monkeypatch.setattr(run, "SETTINGS", {"eager": EAGER})
    assert run.main() == 1
    assert (
        "DIFFERS: eager: tokens of request 0 and of the same one alone" in capsys.readouterr().err
    )


def test_ranks_agree_on_a_tie(monkeypatch):
    above = torch.nextafter(torch.tensor(7.0), torch.tensor(8.0)).item()
    inf = float("inf")
    whole = torch.tensor([[1, 5, 5, 2], [7, 0, 0, above], [0, 3, 9, 9], [-inf, -inf, -inf, -9]])
    told = []
    monkeypatch.setattr("torch.distributed.all_reduce", lambda part: told.append(part.clone()))
    for rank in (0, 1):
        Ranks(rank, 2).argmax(whole[:, 2 * rank : 2 * rank + 2])
    monkeypatch.setattr("torch.distributed.all_reduce", lambda part: part.copy_(told[0] + told[1]))
    for rank in (0, 1):
        assert Ranks(rank, 2).argmax(whole[:, 2 * rank : 2 * rank + 2]).tolist() == [1, 3, 2, 3]


@pytest.mark.slow
def test_two_ranks():
    """With `make demo`'s program: it compares the ranks, and both with one rank, itself."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    options = ["--requests=2", "--tokens=4", "--device=cpu", "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(
        [*command, str(ROOT / "examples/dspark_decode/run.py"), *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["faults"] == []
    assert len({row["digest"] for row in report["rows"]}) == 1
