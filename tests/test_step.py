"""The step: what may overlap is derived rightly, every setting gives the same bits, faults leave no trace."""

from __future__ import annotations

import importlib
import itertools
import random
import re
import shutil
from pathlib import Path

import building
import pytest
import torch
from steps import MAX_CTX, Engine, replayed

from generated import dspark
from kgen.build import compile_specs
from kgen.diagnostics import Report, Span, SpecError
from kgen.plan.streams import Stage, free_stages, schedule
from kgen.spec.located import Text
from kgen.spec.step import StepSpec

ROOT = Path(__file__).parents[1]
SETTINGS = list(itertools.product((False, True), repeat=2))
SPAN = Span("step.yaml", 1, 1, 2)


@pytest.fixture(autouse=True)
def switches_off():
    off = {"fused": False, "overlap": False, "fused_norm": False, "local_table": False}
    dspark.configure(**off)
    yield
    dspark.configure(**off)


# What overlaps.


def stage(name: str, reads: str, writes: str) -> Stage:
    return Stage(
        "call",
        name,
        name,
        frozenset(reads),
        frozenset(writes),
        (),
        None,
        False,
        "",
        "",
        (),
        (),
        SPAN,
    )


def spec(aux: list[str], beside: list[str]) -> StepSpec:
    texts = [tuple(Text(name, SPAN) for name in names) for names in (aux, beside)]
    name = Text("decode", SPAN)
    return StepSpec(name, "", (), (), None, (), (), (), *texts, ())


def happens_before(steps) -> set[tuple[str, str]]:
    """Pairs of stages of which the first has ended before the second begins, by streams and events alone."""
    ended: dict[bool, set[str]] = {
        False: set(),
        True: set(),
    }  # what each stream knows to have ended
    recorded: dict[str, set[str]] = {}
    pairs = set()
    for do in steps:
        if do.what == "run":
            pairs |= {(known, do.stage.name) for known in ended[do.aux]}
            ended[do.aux].add(do.stage.name)
        elif do.what == "record":
            recorded[do.stage.name] = set(ended[do.aux])
        else:
            ended[do.aux] |= recorded[do.stage.name]  # a wait before its record would be a KeyError
    assert ended[False] >= ended[True], "the step ends before its aux stages do"
    return pairs


def test_conflicting_stages_keep_their_order_whatever_the_streams():
    chance = random.Random(11)
    overlapped = 0
    for _ in range(3000):
        names = [f"s{at}" for at in range(chance.randint(1, 7))]
        stages = tuple(
            stage(
                name,
                "".join(chance.sample("abcd", chance.randint(0, 2))),
                "".join(chance.sample("abcd", chance.randint(0, 2))),
            )
            for name in names
        )
        aux = [name for name in names if chance.random() < 0.4]
        steps = schedule(stages, spec(aux, []), frozenset(), Report())
        before = happens_before(steps)
        ran = [do.stage.name for do in steps if do.what == "run"]
        assert sorted(ran) == sorted(names)
        for first, second in itertools.combinations(stages, 2):
            pair = (first.name, second.name)
            if first.conflict(second):
                assert pair in before, (stages, aux, pair)
            else:
                overlapped += pair not in before and pair[::-1] not in before
    assert overlapped > 1000, "nothing overlapped, so nothing was seen"


def test_a_race_is_named():
    stages = (stage("accept", "t", "n"), stage("project", "n", "l"))
    report = Report()
    schedule(stages, spec(["project"], ["accept"]), frozenset(), report)
    (found,) = report.diagnostics
    assert found.code == "step-race"
    assert all(f"`{word}`" in found.message for word in ("accept", "project", "n"))


def test_what_could_be_forked_too():
    (built,) = (b for b in compile_specs(ROOT / "specs") if b.step)
    assert [s.name for s in free_stages(built.step.stages, built.step.spec)] == [
        "refresh_block_tables"
    ]


def test_the_projection_waits_for_nothing_and_the_write_for_it():
    (built,) = (b for b in compile_specs(ROOT / "specs") if b.step)
    order = [(do.what, do.stage.name) for do in built.step.plans[frozenset()]]
    assert order[0] == ("run", "context_positions")
    assert order.index(("wait", "context_positions")) < order.index(("run", "prologue"))
    assert order.index(("wait", "norm_rope")) < order.index(("run", "context_kv_write"))
    assert order.index(("run", "begin_block")) < order.index(("wait", "norm_rope"))


WORDS = "x y z total project load row_stats scale R K l 1 class self not {} [] l: null".split()


def test_a_changed_step_is_refused_or_python(tmp_path):
    """A word changed, a line left out or doubled: no traceback, and no generated file that can't be read."""
    source = ROOT / "tests" / "specs_bad" / "step-race"
    text = (source / "step.yaml").read_text().replace("beside: [scale]", "beside: [load]")
    chance = random.Random(3)
    accepted = 0
    shutil.copytree(source, tmp_path / "made")
    for _ in range(300):
        lines = text.splitlines()
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(lines))
            kind = chance.randrange(4)
            if kind == 0:
                del lines[at]
            elif kind == 1:
                lines.insert(at, chance.choice(lines))
            else:
                words = re.split(r"(\W+)", lines[at])
                words[chance.randrange(len(words))] = chance.choice(WORDS)
                lines[at] = "".join(words)
        (tmp_path / "made" / "step.yaml").write_text("\n".join(lines) + "\n")
        try:
            (built,) = compile_specs(tmp_path / "made")
        except SpecError:
            continue
        accepted += 1
        compile(built.files["step.py"], "step.py", "exec")
    assert accepted > 15


# Steps of other packages.

TAKES = """\
group: take
summary: Adds to a row.
eager: take
when: R > 4
sizes: {R: 0 .. 100, K: static 1 .. 4}
scalars: {n: {type: i32, values: 0 .. 5}, m: {type: static, values: 0 .. 9, default: K}}
tensors:
  x: {type: "i32[R, max(K, 2)]", values: 0 .. 9}
  y: {type: "i32[R, K]", mode: inout}
  once: {type: "i64[R]", values: 0 .. 200, distinct: true}
index: {r: "max(R - 1, 0)", k: K}
store:
  y[r, k]: x[r, k] + n + m + i32(once[r]) * 0
"""
EAGER = """\
def take(*, x, y, once, n):
    y[:-1] = x[:-1, : y.shape[1]] + n + y.shape[1]
"""
STEP = """\
step: small
summary: One group and a call.
varies: [R]
stages:
  - call: fill
    writes: [x]
  - group: take
overlap:
  aux: [fill]
"""


@pytest.fixture
def small(tmp_path, request):
    """A package with one group and a step, built and imported; `request.param` is its step.yaml."""
    folder = tmp_path / "specs" / "pk"
    folder.mkdir(parents=True)
    (folder / "take.yaml").write_text(TAKES)
    (folder / "eager.py").write_text(EAGER)
    (folder / "step.yaml").write_text(getattr(request, "param", STEP))
    building.build(folder, tmp_path / "out")
    building.load(tmp_path / "out", tmp_path.name)
    yield importlib.import_module(f"{tmp_path.name}.pk")
    building.unload(tmp_path.name)


def small_step(package, device, **changes):
    tensors = {
        "x": torch.ones(9, 2, dtype=torch.int32, device=device),
        "y": torch.zeros(9, 2, dtype=torch.int32, device=device),
        "once": torch.arange(9, device=device),
    }
    given = tensors | {"fill": lambda x: x.fill_(2), "R": 9, "n": 1} | changes
    return package.SmallStep(**given), given["y"]


@pytest.mark.parametrize("fused, overlap", SETTINGS)
def test_a_dimension_may_be_an_expression(small, device, fused, overlap):
    """It has a comma in it, and calls a function; the tensor is cut like the others."""
    small.configure(fused=fused, overlap=overlap)
    step, y = small_step(small, device)
    step(R=6)
    assert y.tolist() == [[5, 5]] * 5 + [[0, 0]] * 4


@pytest.mark.parametrize(
    "small", [STEP.replace("aux: [fill]", "aux: []")], indirect=True, ids=["nothing beside"]
)
def test_without_aux_stages_nothing_is_forked(small, device, monkeypatch):
    small.configure(overlap=True)
    step, y = small_step(small, device)
    monkeypatch.setattr(step._streams, "fork", None)  # a call of it would fail
    step()
    assert y[0].tolist() == [5, 5]


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"R": 2.0}, "`R` must be an int; it is float"),
        ({"R": -3}, "`R` is -3; a size is not negative"),
        ({"n": "2"}, "`n` must be an int; it is str"),
    ],
)
def test_wrong_numbers_at_the_start(small, device, changes, words):
    with pytest.raises(small.KgenCallError, match=words):
        small_step(small, device, **changes)


def test_tensors_that_share_memory(small, device):
    x = torch.ones(9, 4, dtype=torch.int32, device=device)
    with pytest.raises(small.KgenCallError, match="`x` and `y` share memory"):
        small_step(small, device, x=x[:, :2], y=x[:, 1:3])
    small_step(small, device, x=x[:, :2], y=x[:, 2:])


def test_warm_up_finds_sizes_that_launch(small, device):
    """Where `when`, an extent or a default that names a size would have left nothing to launch."""
    assert small.warmup(device, K=[1, 2]) == {"take": 2}
    small.no_jit()
    small.configure(fused=True)
    step, y = small_step(small, device)
    step(R=7)
    assert y[0].tolist() == [5, 5]
    wide = {name: torch.zeros(9, 3, dtype=torch.int32, device=device) for name in "xy"}
    step, _ = small_step(small, device, **wide)
    with pytest.raises(small.KgenCallError, match=r"no variant for .*K=3"):
        step()


@pytest.mark.parametrize(
    "static, words",
    [
        ({"K": "2"}, "is an int"),
        ({"K": 9}, "no group has"),
        ({}, "no group has"),
        ({"K": []}, "no group"),
    ],
)
def test_a_wrong_warm_up(small, device, static, words):
    with pytest.raises(small.KgenCallError, match=words):
        small.warmup(device, **static)


def test_a_switch_of_the_environment_can_be_mended(small, monkeypatch):
    kind = type(small.SmallStep.SWITCHES)
    monkeypatch.setenv("KGEN_PK_MORE", "1")
    switches = kind("KGEN_PK", ("fused", "overlap", "more"), {"more": "fused"})
    with pytest.raises(small.KgenCallError, match="`more` needs `fused`"):
        switches.read()
    switches.configure(fused=True)
    assert switches.read() == {"fused": True, "overlap": False, "more": True}


def test_a_tensor_of_a_switch_is_asked_for_when_it_is_on(device):
    dspark.configure(fused=True, fused_norm=True)
    engine = Engine(device, freqs=None)
    with pytest.raises(dspark.KgenCallError, match="`freqs` is missing, which `fused_norm` needs"):
        engine.run(1)
    dspark.configure(fused_norm=False)
    engine.run(1)


# What a step does.


def differences(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> list[str]:
    return [n for n in a if not torch.equal(a[n].view(torch.uint8), b[n].view(torch.uint8))]


@pytest.mark.parametrize("fused, overlap", SETTINGS)
def test_every_setting_gives_the_eager_bits(device, fused, overlap):
    eager = Engine(device)
    eager.run(6)
    dspark.configure(fused=fused, overlap=overlap)
    other = Engine(device)
    other.run(6)
    assert differences(eager.tensors(), other.tensors()) == []
    assert eager.state["ctx_len"].max() == MAX_CTX  # the clamp was met
    assert other.calls[:2] == (["project", "norm_rope"] if overlap else ["sample", "embed"])


@pytest.mark.parametrize("overlap", [False, True])
def test_the_whole_table_gives_the_eager_bits(device, overlap):
    eager = Engine(device)
    eager.run(6)
    dspark.configure(fused=True, overlap=overlap, local_table=True)
    other = Engine(device)
    other.run(6)
    assert differences(eager.tensors(), other.tensors()) == []
    assert "embed" not in other.calls


@pytest.mark.parametrize("overlap", [False, True])
def test_fused_norm_runs_without_the_engines_norm(device, overlap):
    dspark.configure(fused=True, overlap=overlap, fused_norm=True)
    engine = Engine(device)
    engine.run(3)
    assert {"norm_rope", "layer_norm_rope"} & set(engine.calls) == set()
    assert engine.calls.count("attend") == 6


@pytest.mark.parametrize("fused, overlap", SETTINGS)
def test_nothing_to_generate(device, fused, overlap):
    """G = 0 beside two context requests: the tables are refreshed, and nothing else is touched."""
    dspark.configure(fused=fused, overlap=overlap)
    engine = Engine(device)
    before = engine.tensors()
    engine.run(1, G=0, num_contexts=2, num_seqs=2)
    assert engine.calls == []
    assert set(differences(before, engine.tensors())) == {"block_counts[0]", "block_tables[0]"}


@pytest.mark.parametrize("fused", [False, True])
def test_k_goes_down_and_up_again(device, fused):
    """BR-33: buffers for 3; no value of the old width is seen after the change."""
    dspark.configure(fused=fused)
    engine, alone = Engine(device), Engine(device)
    engine.run(1)
    engine.run(1, K=2, W=2)
    assert engine.step.view("keep").shape == (4, 3)
    for buffer in engine.step._buffers.values():  # poison what the next step must write anew
        buffer.fill_(1)
    engine.run(1)
    alone.run(1)
    alone.run(1, K=2, W=2)
    alone.run(1)
    assert differences(engine.tensors(), alone.tensors()) == []


@pytest.mark.parametrize(
    "where, fused, overlap",
    [
        pytest.param(where, *each, marks=[] if each == (True, True) else pytest.mark.slow)
        for where in ("project", "sample", "embed", "layer_latents", "propose")
        for each in SETTINGS
    ],
)
def test_a_stage_that_raises_leaves_the_lengths(device, fused, overlap, where):
    dspark.configure(fused=fused, overlap=overlap)
    engine, sound = Engine(device), Engine(device)
    sound.run(3)
    engine.run(1)
    before = engine.tensors()
    engine.fail_in = where
    with pytest.raises(RuntimeError, match=f"{where} fails"):
        engine.run(1)
    for name in ("ctx_len[0]", "target_kv_lens[0]"):
        assert torch.equal(before[name], engine.tensors()[name])
    engine.fail_in = ""
    engine.run(2)
    assert differences(engine.tensors(), sound.tensors()) == []


def test_lengths_of_three_steps(device):
    """BR-05: each step goes on from the accepted length of the last, rejected tokens left out."""
    dspark.configure(fused=True)
    engine = Engine(device)
    state, rejected = engine.state, 0
    for _ in range(3):
        before = state["ctx_len"].tolist()
        engine.run(1)
        accepted = state["num_accepted"][1:5].tolist()
        rejected += sum(4 - n for n in accepted)
        for n, slot in zip(accepted[:3], (2, 0, 1), strict=True):
            assert state["ctx_len"][slot] == min(before[slot] + n, MAX_CTX)
        held = engine.step.view("num_ctx").cpu() + 3
        assert torch.equal(engine.step.view("kv_lens").cpu().long(), held)
    assert rejected


# Switches, numbers, variants.


def test_the_environment_sets_switches(monkeypatch):
    monkeypatch.setenv("KGEN_DSPARK_FUSED", "1")
    switches = type(dspark.DecodeStep.SWITCHES)("KGEN_DSPARK", ("fused", "overlap"), {})
    assert switches.read() == {"fused": True, "overlap": False}
    monkeypatch.setenv("KGEN_DSPARK_OVERLAP", "yes")
    switches = type(switches)("KGEN_DSPARK", ("fused", "overlap"), {})
    with pytest.raises(dspark.KgenCallError, match="KGEN_DSPARK_OVERLAP is 0 or 1, not 'yes'"):
        switches.read()


def test_wrong_switches_are_refused():
    with pytest.raises(dspark.KgenCallError, match="`fused_norm` needs `fused`"):
        dspark.configure(fused_norm=True)
    with pytest.raises(dspark.KgenCallError, match="True or False"):
        dspark.configure(fused=1)
    assert not any(dspark.DecodeStep.SWITCHES.read().values())


@pytest.mark.parametrize(
    "numbers, words",
    [
        ({"G": 5}, "`G` is 5, but the step was made for 0 .. 4"),
        ({"K": 4}, "`K` is 4, but the step was made for 0 .. 3"),
        ({"H": 16}, "`H` is 16, but the step was made for 8"),
        ({"G": True}, "`G` must be an int; it is bool"),
        ({"G": torch.tensor(2)}, "`G` must be an int; it is Tensor"),
    ],
)
def test_a_number_that_does_not_fit(device, numbers, words):
    with pytest.raises(dspark.KgenCallError, match=words):
        Engine(device).run(1, **numbers)


def test_a_number_that_is_missing(device):
    engine = Engine(device)
    with pytest.raises(dspark.KgenCallError, match="`num_contexts` must be given"):
        engine.step(num_seqs=5)
    with pytest.raises(dspark.KgenCallError, match="`H` must be given: the buffer `embed_rows`"):
        Engine(device, H=None)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"ctx_len": None}, "`ctx_len` is missing; it must be a tensor i64\\[slots\\]"),
        ({"sample": 3}, "`sample` must be a function"),
        ({"ctx_len": torch.zeros(6)}, "it has dtype torch.float32"),
        ({"pool": torch.zeros(3)}, "`pool` must be a list of tensors"),
    ],
)
def test_a_step_made_wrongly(device, changes, words):
    moved = {n: v.to(device) if isinstance(v, torch.Tensor) else v for n, v in changes.items()}
    with pytest.raises(dspark.KgenCallError, match=words):
        Engine(device, **moved)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a graph needs a GPU")
@pytest.mark.parametrize("fused, overlap", SETTINGS)
def test_a_captured_step_gives_the_eager_bits(device, fused, overlap):
    eager = Engine(device)
    eager.run(4)
    dspark.configure(fused=fused, overlap=overlap)
    assert differences(eager.tensors(), replayed(device, 4).tensors()) == []


@pytest.mark.slow
def test_after_warm_up_no_step_needs_a_variant(device, monkeypatch):
    from generated.dspark import _launch

    monkeypatch.setattr(_launch, "_variants", {})
    for operator in dspark.ops.GROUPS.values():
        operator._known.clear()
    done = dspark.warmup(device, K=[2, 3], K1=[3, 4], W=[2, 3], L=2, D=8, R=4, half=2, page_size=4)
    assert done["context_positions"] == 2
    assert done["accept_prefix"] == 2  # for two K
    dspark.no_jit()
    try:
        dspark.configure(fused=True, overlap=True)
        engine = Engine(device)
        engine.run(2)
        engine.run(1, G=1, num_contexts=3)
        engine.run(1, K=2, W=2)
        dspark.configure(fused_norm=True)
        engine.run(1, G=3)
        with pytest.raises(dspark.KgenCallError, match=r"no variant for .*K1=2.* was launched"):
            engine.run(1, K=1, W=1)
        with pytest.raises(dspark.KgenCallError, match="`K9` is not a static size"):
            dspark.warmup(device, K9=3)
    finally:
        dspark.no_jit(False)
