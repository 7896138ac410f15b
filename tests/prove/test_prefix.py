"""`prefix[r](e)` is the sum of e over the rows before r, whatever e is made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

N = [3, 0, 7, 2, 5]
X = [[row * 3 + k for k in range(2)] for row in range(5)]

# The expression, and the same in Python.
EXPRESSIONS: dict[str, Callable[[int], int]] = {
    "prefix[r](n[r])": lambda r: sum(N[:r]),
    "prefix[r](2 * n[r] + r) + n[r]": lambda r: sum(2 * N[e] + e for e in range(r)) + N[r],
    "prefix[r](more)": lambda r: sum(N[e] + e + 1 for e in range(r)),
    "prefix[r](more * more)": lambda r: sum((N[e] + e + 1) ** 2 for e in range(r)),
    "prefix[r](4)": lambda r: 4 * r,
    "prefix[r](fixed)": lambda r: 9 * r,
    "prefix[r](sum[k](x[r, k]))": lambda r: sum(sum(X[e]) for e in range(r)),
    "prefix[r](i64(n[r] > 2))": lambda r: sum(N[e] > 2 for e in range(r)),
    "prefix[r](n[r] if n[r] > 2 else -r)": lambda r: sum(
        N[e] if N[e] > 2 else -e for e in range(r)
    ),
    "n[prefix[r](i64(n[r] > 4))]": lambda r: N[sum(N[e] > 4 for e in range(r))],
    "max[r](prefix[r](n[r]))": lambda _: sum(N[:4]),
    "prefix[r](sum[r](n[r]))": lambda r: r * sum(N),
    "prefix[r](count[r](n[r] > 2) + n[r])": lambda r: sum(3 + N[e] for e in range(r)),
    "prefix[r](prefix[r](n[r]))": lambda r: sum(sum(N[:e]) for e in range(r)),
    "prefix[r](n[r]) + r_before": lambda r: sum(N[:r]) + 100,
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_prefix(front, machine, expression: str) -> None:
    group = front.group(
        front.spec(
            sizes={"R": "0 .. 300", "K": "static 1 .. 12"},
            scalars={"r_before": "i64"},
            tensors={
                "n": "i64[R]",
                "x": "i64[R, K]",
                "out": '{type: "i64[R]", mode: out}',
            },
            index={"r": "R", "k": "K"},
            let={
                "more": "n[r] + r + 1",
                "fixed": "4 + 5",
                "probe": expression,
                "kept": "more + fixed",
            },
            store={"out[r]": "probe + kept"},
        )
    )
    at = machine(group, {"R": len(N), "K": 2, "r_before": 100}, {"n": N, "x": X})
    value = group.lets["probe"].value
    assert [at.at(value, {"r": r}) for r in range(len(N))] == [
        EXPRESSIONS[expression](r) for r in range(len(N))
    ]
