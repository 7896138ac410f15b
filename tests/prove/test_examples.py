"""The examples of refused specs are true: the torch reference of each group meets the fault at that call.

What is refused is generated all the same, with the proofs left out, and called with real tensors made from
the example: a wild index raises, a number that leaves its type is not what it would be without an end.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
import spec_oracle
import torch
import yaml

from kgen.build import compile_specs
from kgen.diagnostics import Diagnostic, Example, Report, SpecError
from kgen.lang.check import check
from kgen.package.view import signature
from kgen.runtime import _reference, _runtime
from kgen.runtime._runtime import LIMITS
from kgen.spec.package import read_packages
from kgen.targets.reference import emit

ROOT = Path(__file__).parents[2]
BAD = ROOT / "tests" / "specs_bad"
CODES = ("out-of-bounds", "overflow", "negative-extent")
CASES = {
    path.stem: path.read_text(encoding="utf-8")
    for code in CODES
    for path in sorted(BAD.glob(f"{code}*.yaml"))
}
# Kinds of fault that no small call shows, or that kgen does not follow into a reduction.
NO_EXAMPLE = {"out-of-bounds-inner-index", "overflow-sum"}

# Each of the real groups with one promise, guard or clamp less.
SPOILT = [
    ("accept_prefix", "values: 0 .. 2**31 - 2, mode", "mode"),
    ("accept_prefix", "{type: i32, values: 0 .. batch - G}", "{type: i32, values: 0 .. batch}"),
    ("block_fixup", "values: 0 .. batch - G", "values: 0 .. batch"),
    ("block_norm_rope_write", "max_pos: max_ctx + W ..", "max_pos: max_ctx .."),
    ("block_norm_rope_write", "when: alive and page >= 0", "when: alive"),
    ("block_write", "when: alive and page >= 0", "when: alive"),
    ("block_write", "values: 0 .. page_size - 1", "values: 0 .. page_size"),
    ("context_kv_norm_rope_write", "max_pos: max_ctx + K1 ..", "max_pos: max_ctx + K1 - 1 .."),
    ("context_kv_write", "N: G * K1", "N: G * K1 - 1"),
    ("context_positions", "values: 0 .. slots - 1\n", "values: 0 .. slots\n"),
    ("gen_bookkeeping", "max(n - 1, 0)", "n - 1"),
    ("gen_bookkeeping", "max(min(before + k, cap - 1), 0)", "min(before + k, cap - 1)"),
    ("gen_bookkeeping", "values: 0 .. blocks\n", "values: 0 .. blocks + 1\n"),
    ("gen_bookkeeping_arena", "col: min(before + k, max_ctx - 1)", "col: before + k"),
    ("gqa_kv_write", "and page >= 0", "and page >= -1"),
    ("noise_block", "embed_rows[r if j == 0 else G, h]", "embed_rows[r + j, h]"),
    ("noise_block_from_table", "if 0 <= id < vocab", "if id < vocab"),
    ("refresh_block_tables", '"0 .. min(seqs, rows)"', "0 .. rows"),
]


def refused(text: str, group: str, folder: Path) -> Diagnostic:
    """What kgen says of a spec, which must be one thing."""
    (folder / "pack").mkdir(parents=True)
    (folder / "pack" / f"{group}.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as raised:
        compile_specs(folder)
    found = raised.value.report.ordered()
    assert found[0].code in CODES, raised.value.report.render()
    assert found[0].example is not None, raised.value.report.render()
    return found[0]


def arguments(declared: Any, example: Example) -> dict[str, Any]:
    """A call made from an example; the elements that it says nothing of are legal ones."""
    values = dict(example.params)
    for name, scalar in declared.scalars.items():
        if scalar.type == "f32":
            values[name] = 1
    given = dict(example.given)
    call: dict[str, Any] = {name: values[name] for name in declared.scalars}
    for name, arg in declared.tensors.items():
        if arg.optional and not given[name]:
            continue
        shape = [dim(values) for dim in arg.dims]
        shape = [arg.length(values), *shape] if arg.length is not None else shape
        assert torch.Size(shape).numel() < 2**20
        low, high = arg.values.ends(values, *LIMITS.get(arg.dtype, (0, 0)))
        held = {place: number for other, place, number in example.elements if other == name}
        free = [n for n in range(max(low, -50), min(high, 2000) + 1) if n not in held.values()]
        free = free or [min(max(0, low), high)]
        flat = torch.zeros(shape, dtype=arg.dtype).flatten()
        for at in range(flat.numel() if arg.dtype in LIMITS else 0):
            flat[at] = free[at % len(free)] if arg.distinct else min(max(0, low), high)
        tensor = flat.view(shape)
        for place, number in held.items():
            assert low <= number <= high
            tensor[place] = number
        call[name] = list(tensor.unbind()) if arg.length is not None else tensor
    return call


def reference(folder: Path, name: str) -> tuple[Any, Any]:
    """The reference of a group that kgen refuses, and its signature."""
    (package,) = read_packages(folder, report := Report())
    group = check(package.groups[0], package, report)
    assert group is not None
    names: dict[str, Any] = {"torch": torch, "Tensor": torch.Tensor}
    names |= {name: each for name, each in vars(_reference).items() if not name.startswith("__")}
    exec(emit(group).text, names)
    return names[name], eval(str(signature(group)), vars(_runtime))


def run(function: Any, example: Example, call: dict[str, Any]) -> None:
    wanted = inspect.signature(function).parameters
    known = {**dict(example.params), **call}
    function(**{name: known.get(name) for name in wanted})


def sees(text: str, group: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the reference sees the fault that kgen tells of, at the example."""
    found = refused(text, group, folder)
    example = found.example
    assert example is not None
    function, declared = reference(folder, group)
    if found.code == "negative-extent":
        extents = yaml.load(text, yaml.BaseLoader)["index"].values()
        assert min(eval(e, {}, dict(example.params)) for e in extents) < 0
        return
    call = arguments(declared, example)
    if found.code == "out-of-bounds":
        with pytest.raises(IndexError):
            run(function, example, call)
        return
    before = {n: [t.clone() for t in v] if isinstance(v, list) else v for n, v in call.items()}
    before = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in before.items()}
    run(function, example, call)
    assert holds(call, text, before)
    monkeypatch.setattr(spec_oracle, "_wrap", lambda value, _dtype: value)
    assert not holds(call, text, before)  # no tensor has the true number


def holds(call: dict[str, Any], text: str, before: dict[str, Any]) -> bool:
    """Whether the tensors of a call hold what the brute-force reading says."""
    try:
        expected = spec_oracle.expected(text, before)
    except (RuntimeError, ValueError):  # a number that the type does not have
        return False
    return all(torch.equal(call[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("name", sorted(set(CASES) - NO_EXAMPLE))
def test_the_reference_sees_what_the_example_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = yaml.load(CASES[name], yaml.BaseLoader)["group"]
    sees(CASES[name], group, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", sorted(NO_EXAMPLE))
def test_without_an_example_kgen_says_that_it_cannot_show_it(name: str) -> None:
    told = (BAD / f"{name}.txt").read_text(encoding="utf-8")
    assert "kgen can't show" in told
    assert "for example" not in told


@pytest.mark.parametrize("group, old, new", SPOILT)
def test_each_promise_of_a_group_is_needed(
    group: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "specs" / "dspark" / f"{group}.yaml").read_text(encoding="utf-8")
    assert old in text
    text = text.replace(old, new)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("eager"))
    sees(f"{text}\n", group, tmp_path, monkeypatch)


PLACES = {
    path.stem: path.read_text(encoding="utf-8")
    for code in ("collision", "partly-stored", "race")
    for path in sorted(BAD.glob(f"{code}*.yaml"))
}
POISON = 77
# A loop's turns are the kernel's affair; the other one fills its tensor, though kgen can't see it.
NO_CLASH = {"race-loop", "partly-stored-unknown"}


@pytest.mark.parametrize("name", sorted(set(PLACES) - NO_CLASH))
def test_the_oracle_sees_stores_that_meet_miss_or_race(name: str, tmp_path: Path) -> None:
    text = PLACES[name]
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "spec.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as raised:
        compile_specs(tmp_path)
    (found,) = raised.value.report.ordered()
    example = found.example
    assert example is not None
    call: dict[str, Any] = {}
    values = dict(example.params)
    spec = yaml.load(text, yaml.BaseLoader)
    for tensor, entry in spec["tensors"].items():
        kind = entry if isinstance(entry, str) else entry["type"]
        dtype, dims = kind.rstrip("]").split("[", 1)
        shape = [eval(dim, {}, values) for dim in dims.split(",")]
        call[tensor] = torch.full(shape, POISON).to(spec_oracle._TYPES[dtype])
        low = "" if isinstance(entry, str) else entry.get("values", "").split("..")[0]
        call[tensor][:] = eval(low, {}, values) if low else POISON
    call |= {name: number for name, number in values.items() if name in spec.get("scalars", {})}
    for tensor, place, number in example.elements:
        call[tensor][place] = number
    tensor, place = example.fault.split("`")[1].rstrip("]").split("[")
    at = tuple(int(each) for each in place.split(","))
    if found.code == "collision":
        with pytest.raises(spec_oracle.WildIndex, match="twice"):
            spec_oracle.expected(text, call)
        return
    first = spec_oracle.expected(text, call)[tensor]
    call[tensor][at] += 1
    second = spec_oracle.expected(text, call)[tensor]
    if found.code == "partly-stored":
        assert first[at] != second[at]  # it holds what it held
    else:
        first[at] = second[at]
        assert not torch.equal(first, second)  # another place has what was read there


def test_examples_are_small() -> None:
    """A person can check an example by hand."""
    for name in set(CASES) - NO_EXAMPLE:
        told = (BAD / f"{name}.txt").read_text(encoding="utf-8")
        (line,) = [line for line in told.splitlines() if "for example: " in line]
        for part in line.split("for example: ")[1].split(": ")[0].split(", "):
            if part.partition(" = ")[0] in ("R", "G", "N", "C", "batch", "slots"):
                assert ast.literal_eval(part.partition(" = ")[2]) <= 3, line
