"""What kgen proves is true: of specs drawn at random, no small world breaks one that it accepts.

The judge shares nothing with kgen: `spec_oracle` reads the spec by brute force, once with numbers that wrap
around and once with numbers without an end. An example of a refused spec must show its fault there too.
"""

from __future__ import annotations

import random
from pathlib import Path

import building
import pytest
import spec_oracle
import torch

from kgen.diagnostics import Example, Report
from kgen.prove import prove as proving
from kgen.prove.prove import prove

ROOT = Path(__file__).parents[2]
SPECS = 24  # of each seed
WORLDS = 60
LIMITS = {torch.int32: (-(2**31), 2**31 - 1), torch.int64: (-(2**63), 2**63 - 1)}

RANGES = {  # of the elements of `at`: each from .. to, in the spec's words
    "": (None, None),
    "0 .. N - 1": (0, "N - 1"),
    "-1 .. N": (-1, "N"),
    "0 .. N * 3": (0, "N * 3"),
    "1 .. 6": (1, 6),
    '"0 .."': (0, None),
}
GUARDS = [
    "",
    "0 <= {e} < N",
    "{e} >= 0 and {e} < N",
    "at[r] >= 0",
    "at[r] < N",
    "not ({e} < 0 or {e} >= N)",
    "r < N and at[r] >= 0",
    "flag[r]",
    "at[r] > 0 and at[r] < N",
]


def expression(chance: random.Random, depth: int) -> str:
    if depth == 0:
        return chance.choice(["at[r]", "at[r]", "r", "k", "N", "page", "s", "1", "2", "3", "N - 1"])
    a, b = expression(chance, depth - 1), expression(chance, chance.randrange(depth))
    return chance.choice(
        [
            f"({a} + {b})",
            f"({a} - {b})",
            f"(i64({a}) * {b})",
            f"({a} // page)",
            f"({a} // 3)",
            f"({a} % page)",
            f"({a} % max(N, 1))",
            f"min({a}, {b})",
            f"max({a}, {b})",
            f"clamp({a}, 0, N - 1)",
            f"max(min({a}, N - 1), 0)",
            f"abs(i64({a}))",
            f"({a} if flag[r] else {b})",
            f"({a} if {b} > 1 else 0)",
            f"first[c]({a} < c, N)",
            f"sum[k](i64(at[r] > {b}))",
        ]
    )


def draw(chance: random.Random) -> tuple[str, str, str]:
    """A spec, the range of `at`, and the type of its elements."""
    index = expression(chance, chance.randrange(1, 3))
    guard = chance.choice(GUARDS).format(e=index)
    dtype, values = chance.choice(("i32", "i64")), chance.choice(sorted(RANGES))
    declared = f'{{type: "{dtype}[R]", values: {values}}}' if values else f"{dtype}[R]"
    kind = chance.randrange(3)
    store = f"y[r, k]: x[{index}] if {guard} else -1" if guard else f"y[r, k]: x[{index}]"
    if kind == 2:
        store = f"x[{index}]: {{value: k, collide: first k, trusted: so be it"
        store += f', when: "{guard}"}}' if guard else "}"
    text = f"""\
group: probe
summary: A probe.
sizes: {{R: 0 .. 4, N: {chance.choice(("0", "1", "2"))} .. 7, K: static 1 .. 3}}
scalars:
  s: {{type: i32, values: {chance.choice(("0 .. N", "-2 .. 2", "0 .. 5"))}}}
  page: {{type: static, values: 1 .. 4}}
tensors:
  at: {declared}
  flag: bool[R]
  x: {{type: "i64[N]", values: -9 .. 9{", mode: inout" if kind == 2 else ""}}}
  y: {{type: "i64[R, K]", mode: out}}
  used: {{type: "i64[N]", mode: out}}
index: {{r: R, k: K, c: N}}
store:
  {store}
  used[c]: c + s + page
"""
    text += "  y[r, k]: at[r] + i64(flag[r])\n" if kind == 2 else "  z[r]: flag[r]\n"
    if kind != 2:
        text = text.replace("  used:", '  z: {type: "bool[R]", mode: out}\n  used:')
    if "at[" not in store and kind != 2:
        text = text.replace("  used[c]: c + s + page", "  used[c]: c + s + page").replace(
            "z[r]: flag[r]", "z[r]: flag[r] or at[r] > 0"
        )
    return text, values, dtype


def world(chance: random.Random, text: str, values: str, dtype: str) -> dict | None:
    """A legal call, or None where the sizes leave none."""
    sizes = {"R": chance.randrange(5), "N": chance.randrange(8), "K": chance.randint(1, 3)}
    if sizes["N"] < int(text.split("N: ")[1].split(maxsplit=1)[0]):
        return None
    low, high = (
        eval(end) if end.strip().lstrip("-").isdigit() else sizes["N"]
        for end in text.split("s: {type: i32, values: ")[1].split("}", maxsplit=1)[0].split("..")
    )
    kind = {"i32": torch.int32, "i64": torch.int64}[dtype]
    ends = [eval(end, {}, sizes) if isinstance(end, str) else end for end in RANGES[values]]
    least, most = (
        e if e is not None else limit for e, limit in zip(ends, LIMITS[kind], strict=True)
    )
    if least > most and sizes["R"]:
        return None
    near = [least, most, least + 1, most - 1, 0, 1, -1, 2, 3, sizes["N"], sizes["N"] - 1]
    near = [number for number in near if least <= number <= most]
    rows = range(sizes["R"])
    return {
        "at": torch.tensor([chance.choice(near) for _ in rows], dtype=kind),
        "flag": torch.tensor([chance.random() < 0.5 for _ in rows], dtype=torch.bool),
        "x": torch.randint(-9, 10, (sizes["N"],)),
        "y": torch.zeros(sizes["R"], sizes["K"], dtype=torch.int64),
        "z": torch.zeros(sizes["R"], dtype=torch.bool),
        "used": torch.zeros(sizes["N"], dtype=torch.int64),
        "s": chance.randint(low, high),
        "page": chance.randint(1, 4),
    }


class Left(Exception):
    """A number left its type."""


def strict(value: int, dtype: str) -> int:
    """Whether i64 is left matters only where kgen knows a range, so that it may be."""
    wrapped = WRAP(value, dtype)
    if dtype in ("u8", "i32") and wrapped != value:
        raise Left(f"{value} is no {dtype}")
    return wrapped


WRAP = spec_oracle._wrap


def fault(text: str, call: dict) -> str:
    """What goes wrong in a call: an index, a number, or nothing."""
    try:
        spec_oracle.expected(text, call)
    except spec_oracle.WildIndex as wild:
        return "twice" if "twice" in str(wild) else "index"  # the oracle knows no `collide`
    except Left:
        return "number"
    return ""


def called(example: Example, dtype: str) -> dict:
    """The call of an example."""
    params = dict(example.params)
    held = {(name, place): number for name, place, number in example.elements}
    kind = {"i32": torch.int32, "i64": torch.int64}[dtype]
    rows, columns = range(params["R"]), range(params["N"])
    free = next(iter(n for (name, _), n in held.items() if name == "at"), None)
    assert free is not None or "at" not in example.shown
    return {
        "at": torch.tensor([held.get(("at", (r,)), free or 1) for r in rows], dtype=kind),
        "flag": torch.tensor([bool(held.get(("flag", (r,)), 0)) for r in rows], dtype=torch.bool),
        "x": torch.zeros(len(columns), dtype=torch.int64),
        "y": torch.zeros(params["R"], params["K"], dtype=torch.int64),
        "z": torch.zeros(params["R"], dtype=torch.bool),
        "used": torch.zeros(params["N"], dtype=torch.int64),
        "s": params["s"],
        "page": params["page"],
    }


@pytest.mark.parametrize("alone", [False, True], ids=["all_means", "solver_alone"])
@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 9))]
)
def test_no_small_world_breaks_a_proof(seed: int, alone: bool, front, monkeypatch) -> None:
    if alone:
        monkeypatch.setattr(proving, "search", lambda _group, _obligation: None)
        monkeypatch.setattr(proving._Prover, "_shown", lambda _self, _obligation: None)
    chance = random.Random(seed)
    torch.manual_seed(seed)
    monkeypatch.setattr(spec_oracle, "_wrap", strict)
    tried = proved = 0
    for _ in range(SPECS):
        text, values, dtype = draw(chance)
        group, _ = front.typed(text)
        if group is None:
            continue  # an index that is its own opposite: not for here
        proofs = Report(sources={group.file: text})
        if prove(group, proofs) is None:
            for found in proofs.ordered():
                if found.example is not None:
                    seen = fault(text, called(found.example, dtype))
                    assert seen, f"{text}\n{proofs.render()}"
            continue
        proved += 1
        for _ in range(WORLDS):
            call = world(chance, text, values, dtype)
            if call is not None:
                tried += 1
                assert fault(text, call) in ("", "twice"), f"{text}\n{call}"
    assert proved
    assert tried >= 20


GROUPS = sorted({p.stem for p in (ROOT / "specs" / "dspark").glob("*.yaml")} - {"step"})


@pytest.mark.parametrize(
    "group", [pytest.param(g, marks=pytest.mark.slow) if "norm" in g else g for g in GROUPS]
)
def test_no_drawn_call_of_a_group_goes_wild(group: str) -> None:
    """The reference raises at the first index that leaves its tensor."""
    case = building.case("generated", "dspark", group)
    testing = building.testing("generated", "dspark")
    for seed in range(1000, 1040):
        case.run_reference(testing.draw(case, seed))
