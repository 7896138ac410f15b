"""Floats: bf16 and its rounding, f32 operators, the tree, named winners, lists.

What these tests can show without a GPU: index math, masks, the places and the kind of every rounding, and
that Triton's interpreter, whose own bf16 is wrong, gets right bits through the helpers that generated
modules define for it (`bf16_to_f32`, `f32_to_bf16`). What they can't show is the GPU's own conversion
instructions and division: tests/gpu/run.py runs the generated tests there.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
import building

SPECS = Path(__file__).parent / "specs"
GROUPS = sorted(path.stem for path in (SPECS / "numbers").glob("*.yaml"))
NAME = "float_specs"


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    out = tmp_path_factory.mktemp("floats") / "generated"
    building.build(SPECS, out)
    building.load(out, NAME)
    yield importlib.import_module(f"{NAME}.numbers")
    building.unload(NAME)


def empty(like: torch.Tensor, *names: str, **types: torch.dtype) -> dict[str, torch.Tensor]:
    return {n: torch.empty_like(like, dtype=types.get(n, like.dtype)) for n in (*names, *types)}


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    words = {2: torch.int16, 4: torch.int32}[a.element_size()]
    equal = (a.view(words) == b.view(words)) | (a.isnan() & b.isnan())
    return a.dtype == b.dtype and bool(equal.all())


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.usefixtures("numbers")
def test_kernel_and_reference_agree(group: str) -> None:
    case = building.case(NAME, "numbers", group)
    building.testing(NAME, "numbers").check(case, torch.device("cpu"))


EVERY = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


@pytest.mark.parametrize(
    "factor",
    [pytest.param(each, marks=pytest.mark.slow) for each in (3.25, 1.0, 0.0, -1.5, 1e-38)],
)
def test_every_bf16_pattern(numbers: ModuleType, factor: float) -> None:
    b = torch.full_like(EVERY, factor)
    out = empty(
        EVERY,
        "product",
        "total",
        "quotient",
        "least",
        "negative",
        "chain",
        "moved",
        order=torch.bool,
    )
    numbers.bf16_math(a=EVERY, b=b, **out)
    assert same(out["product"], EVERY * b)
    assert same(out["total"], EVERY + b)
    assert same(out["quotient"], EVERY / b)
    assert same(out["negative"], -EVERY)
    assert same(out["chain"], EVERY * b + EVERY)
    assert torch.equal(out["order"], b > EVERY)
    assert torch.equal(out["moved"].view(torch.int16), EVERY.view(torch.int16)), "NaN payloads move"
    ordered = ~(b == EVERY)
    assert same(out["least"][ordered], torch.minimum(EVERY, b)[ordered])


def test_masking_multiplies(numbers: ModuleType) -> None:
    """BR-23: a masked NaN or infinity leaves NaN, a masked -1.5 leaves -0.0."""
    a = torch.tensor([math.nan, math.inf, -1.5, 2.0], dtype=torch.bfloat16)
    out = empty(
        a, "product", "total", "quotient", "least", "negative", "chain", "moved", order=torch.bool
    )
    numbers.bf16_math(a=a, b=torch.zeros_like(a), **out)
    assert out["product"].isnan().tolist() == [True, True, False, False]
    assert out["product"].view(torch.int16)[2:].tolist() == [-(2**15), 0]


def test_conversions(numbers: ModuleType) -> None:
    random = torch.Generator().manual_seed(5)
    bits = torch.randint(-(2**31), 2**31, (70001,), generator=random).to(torch.int32)
    ties = (torch.arange(4099, dtype=torch.int32) << 16) | 0x8000
    x = torch.cat([bits, ties, ties - 1, ties + 1]).view(torch.float32)
    n = torch.randint(-(2**31), 2**31, x.shape, generator=random).to(torch.int32)
    out = empty(
        x,
        "back",
        "mixed",
        as_bf16=torch.bfloat16,
        as_f16=torch.float16,
        of_int=torch.bfloat16,
        scaled=torch.bfloat16,
    )
    numbers.conversions(x=x, n=n, **out)
    assert same(out["as_bf16"], x.to(torch.bfloat16))
    assert same(out["as_f16"], x.to(torch.float16))
    assert same(out["back"], x.to(torch.bfloat16).float())
    assert same(out["of_int"], n.to(torch.bfloat16))
    assert same(out["scaled"], n * x.to(torch.bfloat16))
    assert same(out["mixed"], x.to(torch.bfloat16) * 0.5 + x.to(torch.float16))


def test_an_integer_beside_bf16_is_bf16(numbers: ModuleType) -> None:
    """BR-29: 257 * 3 is 768 in bf16, not the 772 that f32 would give."""
    x = torch.tensor([3.0, 0.0])
    n = torch.tensor([257, 257], dtype=torch.int32)
    out = empty(
        x,
        "back",
        "mixed",
        as_bf16=torch.bfloat16,
        as_f16=torch.float16,
        of_int=torch.bfloat16,
        scaled=torch.bfloat16,
    )
    numbers.conversions(x=x, n=n, **out)
    assert out["scaled"][0].item() == 768
    assert out["of_int"][0].item() == 256


def f32_math(numbers: ModuleType, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict:
    out = empty(a, "cross", "ratio", "root", "inverse", "power", "magnitude", "clipped")
    numbers.f32_math(a=a, b=b, c=c, eps=1e-6, **out)
    return out


def test_nothing_is_contracted(numbers: ModuleType) -> None:
    """BR-25: two products and a difference, three roundings."""
    a, b, c = (
        torch.tensor([v]) for v in (-1.1258398294448853, 1.5558264255523682, 0.21211032569408417)
    )
    assert f32_math(numbers, a, b, c)["cross"].item() == -1.5128090381622314


def test_f32_operators_are_torchs(numbers: ModuleType) -> None:
    random = torch.Generator().manual_seed(6)
    a, b, c = (torch.randn(30011, generator=random) * 3 for _ in range(3))
    out = f32_math(numbers, a, b, c)
    assert same(out["cross"], a * b - c * a)
    assert same(out["ratio"], a / b)
    assert same(out["root"], (a + 1e-6).double().sqrt().float())
    assert same(out["inverse"], torch.rsqrt(a * a + 1e-6))
    assert same(out["magnitude"], a.abs())
    assert same(out["clipped"], a.clamp(-1.0, 1.5))


def test_exp_is_within_two_units_in_the_last_place(numbers: ModuleType) -> None:
    a = torch.cat([torch.linspace(-103, 88.7, 40009), torch.tensor([0.0, -0.0, 200.0, -200.0])])
    a = torch.cat([a, torch.tensor([math.inf, -math.inf, math.nan])])
    got = f32_math(numbers, a, a, a)["power"]
    exact = torch.exp(a.double())
    assert got[-3:-1].tolist() == [math.inf, 0.0]
    assert got[-1].isnan()
    assert got[-7:-3].tolist() == [1.0, 1.0, math.inf, 0.0]
    normal = exact.float()[:-7] > 1e-37
    off = (got.double()[:-7] - exact[:-7]).abs()[normal] / exact[:-7][normal]
    assert off.max() < 2 * 2**-23


def halves(row: list[float]) -> torch.Tensor:
    """The tree by hand: f32 scalars, one addition at a time."""
    size = 1
    while size < len(row):
        size *= 2
    values = [torch.tensor(v, dtype=torch.float32) for v in row]
    values += [torch.tensor(0.0)] * (size - len(row))
    while len(values) > 1:
        middle = len(values) // 2
        values = [a + b for a, b in zip(values[:middle], values[middle:], strict=True)]
    return values[0]


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 1, 512), (1, 9, 65), (4, 3, 1)])
def test_float_sums_follow_the_tree(numbers: ModuleType, shape: tuple[int, ...]) -> None:
    random = torch.Generator().manual_seed(7)
    x = torch.randn(shape, generator=random) * 10.0 ** torch.randint(-4, 5, shape, generator=random)
    g, k, h = shape
    rows, whole, spread = torch.empty(g, k), torch.empty(g), torch.empty(g, h)
    numbers.tree_sums(x=x, rows=rows, whole=whole, spread=spread)
    expected = torch.stack([torch.stack([halves(row) for row in each]) for each in x.tolist()])
    assert same(rows, expected)
    assert same(whole, torch.stack([halves(row) for row in expected.tolist()]))
    columns = torch.stack(
        [torch.stack([halves(row) for row in each]) for each in x.transpose(1, 2).tolist()]
    )
    assert same(spread, columns / k)


@pytest.mark.parametrize("shape", [(2, 1, 1), (2, 4, 2), (3, 8, 64)])
def test_a_sum_of_nothing_but_minus_zeros_is_one(
    numbers: ModuleType, shape: tuple[int, ...]
) -> None:
    """Where no padding adds a 0.0."""
    x = torch.full(shape, -0.0)
    out = torch.empty(shape[:2]), torch.empty(shape[0]), torch.empty(shape[0], shape[2])
    numbers.tree_sums(x=x, rows=out[0], whole=out[1], spread=out[2])
    assert all(torch.signbit(each).all() for each in out)


def test_the_named_winner_wins(numbers: ModuleType) -> None:
    """BR-26: room 8, one request at 6: columns 6 and then seven times 7; and a random crowd."""
    random = torch.Generator().manual_seed(8)
    crowd = torch.randint(0, 8, (3, 8), generator=random)
    place = torch.cat([torch.tensor([[6, 7, 7, 7, 7, 7, 7, 7]]), crowd])
    keep = torch.rand(4, 8, generator=random) < 0.6
    x = torch.randn(4, 8, generator=random).to(torch.bfloat16)
    start = torch.full((4, 8), 99.0, dtype=torch.bfloat16)
    early, late = start.clone(), start.clone()
    numbers.winners(place=place, keep=keep, x=x, early=early, late=late)
    first, last = start.clone(), start.clone()
    for r in range(4):
        for k in reversed(range(8)):
            first[r, place[r, k]] = x[r, k]
        for k in range(8):
            if keep[r, k]:
                last[r, place[r, k]] = x[r, k]
    assert torch.equal(early, first)
    assert torch.equal(late, last)
