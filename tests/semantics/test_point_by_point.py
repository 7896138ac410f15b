"""The reading that judges the others: its numbers are torch's, and it sees what no sound spec does."""

import random
import struct

import in_memory
import point_by_point as points
import pytest
import torch
from point_by_point import Array, Call, Fault, PointByPoint

TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
EDGES = [0.0, -0.0, 1e-45, 6e-8, 65504.0, 65519.9, 65520.0, 3.4e38, 3.39e38, float("inf")]


def bits(value: float) -> bytes:
    """A float's own bytes, any NaN the same."""
    return b"nan" if value != value else struct.pack("<d", value)  # noqa: PLR0124


@pytest.mark.parametrize("dtype", TORCH)
def test_floats_are_rounded_as_in_torch(dtype):
    chance = random.Random(1)
    drawn = [struct.unpack("<f", chance.randbytes(4))[0] for _ in range(4000)]
    for value in [*EDGES, *(-edge for edge in EDGES), *drawn]:
        want = torch.tensor(value, dtype=torch.float32).to(TORCH[dtype]).item()
        assert bits(points.ROUND[dtype](value)) == bits(want), value


@pytest.mark.parametrize("dtype", TORCH)
def test_integers_are_rounded_as_in_torch(dtype):
    chance = random.Random(2)
    drawn = [chance.randint(-(2**n), 2**n) for n in range(63) for _ in range(40)]
    for value in [*drawn, 2**63 - 1, -(2**63), 2**24 + 1, 2**53 + 1, 65519, 65520]:
        want = torch.tensor(value, dtype=torch.int64).to(TORCH[dtype]).item()
        assert bits(points.ROUND[dtype](points.whole(value))) == bits(want), value


def test_arithmetic_is_that_of_f32():
    chance = random.Random(3)
    for _ in range(4000):
        a, b = (struct.unpack("<f", chance.randbytes(4))[0] for _ in range(2))
        x, y = torch.tensor(a), torch.tensor(b)
        assert bits(points.f32(a + b)) == bits((x + y).item())
        assert bits(points.f32(a * b)) == bits((x * y).item())
        assert bits(points.f32(points.divide(a, b))) == bits((x / y).item())
        root = x.double().sqrt().float()
        assert bits(points.f32(points.root(a))) == bits(root.item())


SPEC = """\
group: probe
summary: A probe.
sizes: {{R: 0 .. 9, K: static 1 .. 4}}
tensors:
  x: {{type: "i32[R]"}}
  y: {{type: "i64[R, K]", mode: {mode}}}
index: {{r: R, k: K}}
store:
  y[r, k]: {value}
"""


def outcome(value: str, mode: str = "out", x: tuple[int, ...] = (5, -7, 2)) -> list[int]:
    """What a value stored to `y[r, k]` gives, for K = 2."""
    built = in_memory.compiled(SPEC.format(value=value, mode=mode))
    call = Call(
        {"R": len(x), "K": 2},
        {
            "x": [Array((len(x),), list(x))],
            "y": [Array((len(x), 2), [0] * 2 * len(x))],
        },
    )
    written = PointByPoint(built.groups[0]).outcome(call).written
    return (
        [written["y", 0][at] for at in range(2 * len(x))] if mode == "out" else [*written["y", 0]]
    )


@pytest.mark.parametrize(
    "value, want",
    [
        ("x[r] * 1 + k", [5, 6, -7, -6, 2, 3]),
        ("i64(x[r]) // 2 * 10 + x[r] % 3", [22, 22, -38, -38, 12, 12]),
        ("sum[k](k + x[r]) + k", [11, 12, -13, -12, 5, 6]),
        ("prefix[r](x[r])", [0, 0, 5, 5, -2, -2]),
        ("first[r](x[r] < 0, -1)", [1] * 6),
        ("cumsum[k](i64(x[r]))", [5, 10, -7, -14, 2, 4]),
        (
            "max[r](x[r]) if r > 0 else wrap_i32(i64(x[r]) * 2**31)",
            [-(2**31), -(2**31), 5, 5, 5, 5],
        ),
        ("x[r - 1] if r >= 1 else -1", [-1, -1, 5, 5, -7, -7]),
    ],
)
def test_values(value, want):
    assert outcome(value) == want


def test_winners():
    text = """\
group: probe
summary: A probe.
sizes: {R: 0 .. 9, N: 1 .. 9}
tensors:
  at: {type: "i64[R]", values: 0 .. N - 1}
  y: {type: "i64[N]", mode: inout}
index: {r: R}
store:
  y[at[r]]: {value: r * 10, when: r != 0, collide: last r}
"""
    built = in_memory.compiled(text)
    call = Call({"R": 4, "N": 3}, {"at": [Array((4,), [1, 1, 1, 0])], "y": [Array((3,), [7] * 3)]})
    assert PointByPoint(built.groups[0]).outcome(call).written == {("y", 0): {1: 20, 0: 30}}


# What kgen must refuse is accepted here by a world that breaks a promise.
UNSOUND = """\
group: probe
summary: A probe.
sizes: {R: 0 .. 9, N: 1 .. 9}
tensors:
  at: {type: "i64[R]", values: 0 .. N - 1, distinct: true}
  x: i32[N]
  n: {type: "i32[R]", values: 1 .. 9}
  y: {type: "i32[N]", mode: inout}
index: {r: R}
store:
  y[at[r]]: x[at[r]] // n[r]
"""


@pytest.mark.parametrize(
    "at, n, kind",
    [
        ([0, 3], [1, 1], "out of bounds"),
        ([0, -1], [1, 1], "out of bounds"),
        ([1, 1], [1, 1], "collision"),
        ([1, 2], [1, 0], "division by zero"),
        ([2, 1], [1, -1], "overflow"),
    ],
)
def test_faults(at, n, kind):
    built = in_memory.compiled(UNSOUND)
    call = Call(
        {"R": 2, "N": 3},
        {
            "at": [Array((2,), at)],
            "x": [Array((3,), [5, -(2**31), 6])],
            "n": [Array((2,), n)],
            "y": [Array((3,), [0] * 3)],
        },
    )
    with pytest.raises(Fault) as raised:
        PointByPoint(built.groups[0]).outcome(call)
    assert raised.value.kind == kind
