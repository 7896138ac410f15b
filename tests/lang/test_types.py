"""The type of every operator's result is torch's, and what no value survives is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from kgen.lang.dtypes import ELEMENT_TYPES, LIMITS, exact, promote, widens

TORCH = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
}
INTEGERS = ("u8", "i32", "i64")
FLOATS = ("f16", "bf16", "f32")
NUMBERS = tuple(each for each in ELEMENT_TYPES if each != "bool")


def pairs(types: tuple[str, ...]) -> list[tuple[str, str]]:
    """Each type with each."""
    return list(itertools.product(types, repeat=2))


def test_every_type_is_one_of_torch() -> None:
    assert set(ELEMENT_TYPES) <= set(TORCH)


@pytest.mark.parametrize("a, b", pairs(ELEMENT_TYPES))
def test_promotion_of_two(a: str, b: str) -> None:
    assert TORCH[promote(a, b)] == torch.promote_types(TORCH[a], TORCH[b])


@pytest.mark.parametrize("a", NUMBERS)
def test_a_compile_time_number_takes_the_other_type(a: str) -> None:
    result = torch.result_type(torch.zeros(1, dtype=TORCH[a]), 3)
    assert TORCH[promote(a, "int")] == TORCH[promote("int", a)] == result
    assert promote("int", "int") == "int"


@pytest.mark.parametrize("a", NUMBERS)
def test_a_compile_time_fraction_takes_the_other_type(a: str) -> None:
    result = torch.result_type(torch.zeros(1, dtype=TORCH[a]), 0.5)
    assert TORCH[promote(a, "float")] == TORCH[promote("float", a)] == result
    assert promote("int", "float") == promote("float", "int") == "float"


@pytest.mark.parametrize("a", INTEGERS)
def test_limits(a: str) -> None:
    info = torch.iinfo(TORCH[a])
    assert LIMITS[a] == (info.min, info.max)


@pytest.mark.parametrize("a, b", pairs(FLOATS))
def test_widening_of_floats(a: str, b: str) -> None:
    one, other = torch.finfo(TORCH[a]), torch.finfo(TORCH[b])
    assert widens(a, b) == (
        one.max <= other.max and one.tiny >= other.tiny and one.eps >= other.eps
    )


@pytest.mark.parametrize("a", FLOATS)
@pytest.mark.parametrize("b", ("bool", *INTEGERS))
def test_nothing_widens_between_integers_and_floats(a: str, b: str) -> None:
    assert not widens(a, b)
    assert not widens(b, a)


@pytest.mark.parametrize("dtype", ("f16", "bf16"))
@pytest.mark.parametrize(
    "value", [0.5, 0.1, 3.0, 257.0, 2049.0, 65504.0, 1e30, 1e-8, -0.25, 2.0**-24, 2.0**-133]
)
def test_exact_literals(dtype: str, value: float) -> None:
    rounded = torch.tensor(value, dtype=torch.float64).to(TORCH[dtype])
    assert exact(value, dtype) == (rounded.double().item() == value)


@pytest.mark.parametrize("a, b", pairs(("bool", *INTEGERS)))
def test_widening_loses_no_value(a: str, b: str) -> None:
    (low, high), (least, most) = LIMITS[a], LIMITS[b]
    assert widens(a, b) == (least <= low and high <= most)


# Results of expressions: the tensors x and y of two types, and the same in torch.

BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "x[r] + y[r]": torch.add,
    "x[r] - y[r]": torch.sub,
    "x[r] * y[r]": torch.mul,
    "x[r] // max(y[r], 1)": torch.floor_divide,
    "x[r] % max(y[r], 1)": torch.remainder,
    "min(x[r], y[r])": torch.minimum,
    "max(x[r], y[r])": torch.maximum,
    "x[r] < y[r]": torch.lt,
    "x[r] != y[r]": torch.ne,
    "x[r] if r > 1 else y[r]": lambda x, y: torch.where(torch.tensor([True]), x, y),
    "clamp(x[r], 0, y[r])": lambda x, y: torch.clamp(x, torch.zeros_like(y), y),
}
UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "-x[r]": torch.neg,
    "abs(x[r])": torch.abs,
    "x[r] + 3": lambda x: x + 3,
    "3 - x[r]": lambda x: 3 - x,
    "x[r] % 7": lambda x: x % 7,
    "x[r] // 7": lambda x: x // 7,
    "max(x[r], 3)": lambda x: x.clamp(min=3),
    "x[r] >= 3": lambda x: x >= 3,
    "x[r] if r > 1 else 3": lambda x: torch.where(torch.tensor([True]), x, 3),
    "sum[r](x[r])": torch.sum,
    "max[r](x[r])": torch.max,
    "min[r](x[r])": torch.min,
    "count[r](x[r] > 3)": lambda x: (x > 3).sum(),
    "any[r](x[r] > 3)": lambda x: (x > 3).any(),
    "all[r](x[r] > 3)": lambda x: (x > 3).all(),
    "first[r](x[r] > 3, 9)": lambda x: (x > 3).int().argmax(),
    "cumsum[r](x[r])": lambda x: x.cumsum(0),
    "i32(x[r])": lambda x: x.to(torch.int32),
    "bool(x[r])": lambda x: x.to(torch.bool),
    "u8(x[r]) + x[r]": lambda x: x.to(torch.uint8) + x,
}


# The same in floats, where `//` and `%` are refused and `/` is a quotient.
OF_FLOATS = {each: BINARY[each] for each in BINARY if "//" not in each and "%" not in each}
OF_FLOATS |= {"x[r] / y[r]": torch.true_divide}
OF_ONE_FLOAT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "-x[r]": torch.neg,
    "abs(x[r])": torch.abs,
    "sqrt(x[r])": torch.sqrt,
    "rsqrt(x[r])": torch.rsqrt,
    "exp(x[r])": torch.exp,
    "x[r] + 3": lambda x: x + 3,
    "x[r] * 0.5": lambda x: x * 0.5,
    "2 / x[r]": lambda x: 2 / x,
    "x[r] > 0.5": lambda x: x > 0.5,
    "f32(x[r])": lambda x: x.float(),
    "bf16(x[r])": lambda x: x.bfloat16(),
}


def type_of(front, expression: str, a: str, b: str = "i64") -> str:
    """The type that kgen gives an expression of x and y."""
    spec = front.spec(
        sizes={"R": "0 .. 300"},
        tensors={"x": f"{a}[R]", "y": f"{b}[R]", "out": '{type: "bool[R]", mode: out}'},
        index={"r": "R"},
        let={"probe": expression, "compared": "probe == probe"},
        store={"out[r]": "compared"},
    )
    return front.group(spec).lets["probe"].value.dtype


@pytest.mark.parametrize("expression", BINARY)
@pytest.mark.parametrize("a, b", pairs(INTEGERS))
def test_type_of_two(front, expression: str, a: str, b: str) -> None:
    x, y = torch.ones(3, dtype=TORCH[a]), torch.ones(3, dtype=TORCH[b])
    assert TORCH[type_of(front, expression, a, b)] == BINARY[expression](x, y).dtype


@pytest.mark.parametrize("expression", UNARY)
@pytest.mark.parametrize("a", INTEGERS)
def test_type_of_one(front, expression: str, a: str) -> None:
    x = torch.ones(3, dtype=TORCH[a])
    assert TORCH[type_of(front, expression, a)] == UNARY[expression](x).dtype


@pytest.mark.parametrize("expression", OF_FLOATS)
@pytest.mark.parametrize("a, b", [*pairs(FLOATS), ("f16", "i64"), ("i32", "bf16"), ("f32", "u8")])
def test_type_of_two_floats(front, expression: str, a: str, b: str) -> None:
    x, y = torch.ones(3, dtype=TORCH[a]), torch.ones(3, dtype=TORCH[b])
    assert TORCH[type_of(front, expression, a, b)] == OF_FLOATS[expression](x, y).dtype


@pytest.mark.parametrize("expression", OF_ONE_FLOAT)
@pytest.mark.parametrize("a", FLOATS)
def test_type_of_one_float(front, expression: str, a: str) -> None:
    x = torch.ones(3, dtype=TORCH[a])
    assert TORCH[type_of(front, expression, a)] == OF_ONE_FLOAT[expression](x).dtype


@pytest.mark.parametrize("a, b", pairs(INTEGERS))
def test_type_of_a_quotient_of_integers(front, a: str, b: str) -> None:
    x, y = torch.ones(3, dtype=TORCH[a]), torch.ones(3, dtype=TORCH[b])
    assert TORCH[type_of(front, "x[r] / y[r]", a, b)] == (x / y).dtype


# Stores.

STORED = [
    # value, type of the tensor, code or None
    ("x[r]", "i64", None),
    ("i32(x[r])", "i64", None),
    ("u8(x[r])", "i64", None),
    ("u8(x[r])", "i32", None),
    ("7", "u8", None),
    ("-7", "i32", None),
    ("K", "i64", None),
    ("x[r] > 2", "bool", None),
    ("x[r]", "i32", "narrowing"),
    ("x[r]", "u8", "narrowing"),
    ("i32(x[r])", "u8", "narrowing"),
    ("x[r] > 2", "i64", "wrong-type"),
    ("x[r] > 2", "u8", "wrong-type"),
    ("x[r]", "bool", "wrong-type"),
    ("1", "bool", "wrong-type"),
    ("300", "u8", "wrong-type"),
    ("-1", "u8", "wrong-type"),
    ("2**31", "i32", "wrong-type"),
    ("K", "u8", "narrowing"),
    ("K * 2**30", "i32", "narrowing"),
]


@pytest.mark.parametrize("value, dtype, code", STORED)
def test_what_may_be_stored(front, value: str, dtype: str, code: str | None) -> None:
    spec = front.spec(
        sizes={"R": "0 .. 300", "K": "static 1 .. 1200"},
        tensors={
            "x": "i64[R, K]" if "K" in value else "i64[R]",
            "out": f'{{type: "{dtype}[R]", mode: out}}',
            "also": '{type: "i64[R]", mode: out}',
        },
        index={"r": "R"},
        store={"out[r]": value, "also[r]": "x[r, 0]" if "K" in value else "x[r]"},
    )
    assert front.found(spec) == ([(code, value)] if code else [])
