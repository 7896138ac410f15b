"""The runner's numbers: types, operators, casts, sums and bits are those of torch and of Python."""

from __future__ import annotations

import itertools

import kernels as k
import numpy as np
import pytest
import torch
from kernels import cast, mapped, num, op, select

from kgen.kernel import ir
from kgen.kernel.faults import CallError
from kgen.kernel.form import FormError
from kgen.lang.dtypes import LIMITS
from kgen.runtime import _reference as reference

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
RANDOM = np.random.default_rng(7)
PATTERNS = np.arange(2**16, dtype=np.uint16)


def to_torch(array: np.ndarray, dtype: str) -> torch.Tensor:
    if dtype == "bf16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def bits(array: np.ndarray) -> np.ndarray:
    return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.itemsize])


def agree(found: np.ndarray, wanted: torch.Tensor, dtype: str) -> None:
    """Equal to the bit, but a NaN is a NaN."""
    assert wanted.dtype == TORCH[dtype]
    shown = wanted.view(torch.int16) if dtype == "bf16" else wanted
    expected = shown.numpy().view(found.dtype)
    same = bits(found) == bits(expected)
    if dtype in FLOATS:
        same |= torch.isnan(to_torch(found, dtype)).numpy() & torch.isnan(wanted).numpy()
    wrong = np.flatnonzero(~same)
    assert not len(wrong), (len(wrong), wrong[0], found[wrong[0]], expected[wrong[0]])


def floats(dtype: str, count: int = 2**16) -> np.ndarray:
    """Numbers of all sorts: each pattern of 16 bits, or random ones of 32 and special ones."""
    if dtype != "f32":
        order = RANDOM.permutation(PATTERNS)[:count]
        return order.view(k.NUMPY[dtype])
    words = RANDOM.integers(0, 2**32, count, dtype=np.uint32)
    ties = RANDOM.integers(0, 2**16, count // 4, dtype=np.uint32) << np.uint32(16)
    words[: count // 4] = ties + RANDOM.integers(0x7FFF, 0x8002, count // 4, dtype=np.uint32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, 1.0, -1.0]
    words[: len(special)] = np.array(special, np.float32).view(np.uint32)
    return words.view(np.float32)


def integers(dtype: str, count: int = 1024) -> np.ndarray:
    low, high = LIMITS[dtype]
    found = RANDOM.integers(low, high, count, dtype=k.NUMPY[dtype], endpoint=True)
    near = [low, low + 1, high - 1, high, 0, 1, 2, 7] + [max(low, each) for each in (-1, -2, -7)]
    found[: len(near)] = near
    found[512:] = RANDOM.integers(max(low, -50), 50, 512)
    return RANDOM.permutation(found)


def some(dtype: str) -> np.ndarray:
    if dtype == "bool":
        return RANDOM.integers(0, 2, 1024).astype(np.bool_)
    return floats(dtype) if dtype in FLOATS else integers(dtype)


# Floats.


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "name, torch_op",
    [
        ("add", torch.add),
        ("sub", torch.sub),
        ("mul", torch.mul),
        ("truediv", torch.div),
        ("min", reference._smaller),
        ("max", reference._larger),
    ],
)
def test_floats_are_computed_as_torch_does(dtype, name, torch_op):
    for _ in range(3):
        a, b = floats(dtype), floats(dtype)
        found = mapped(lambda x, y: op(name, x, y), [dtype, dtype], a, b)
        agree(found, torch_op(to_torch(a, dtype), to_torch(b, dtype)), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "name, torch_op",
    [
        ("neg", torch.neg),
        ("abs", torch.abs),
        ("sqrt", reference._sqrt),
        ("exp", reference._exp),
    ],
)
def test_functions_of_floats(dtype, name, torch_op):
    a = floats(dtype)
    agree(mapped(lambda x: op(name, x), [dtype], a), torch_op(to_torch(a, dtype)), dtype)


def test_exp_of_numbers_in_its_range():
    a = np.concatenate([np.linspace(-110, 95, 2**15), RANDOM.normal(0, 20, 2**15)])
    a = a.astype(np.float32)
    agree(mapped(lambda x: op("exp", x), ["f32"], a), reference._exp(torch.from_numpy(a)), "f32")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons_of_floats(dtype, name):
    a, b = floats(dtype), floats(dtype)
    b[::2] = a[::2]
    found = mapped(lambda x, y: op(name, x, y), [dtype, dtype], a, b)
    agree(found, getattr(torch, name)(to_torch(a, dtype), to_torch(b, dtype)), "bool")


def test_there_is_no_fused_multiply_add():
    a, b, c = (floats("f32") for _ in range(3))
    found = mapped(lambda x, y, z: op("add", op("mul", x, y), z), ["f32"] * 3, a, b, c)
    with np.errstate(all="ignore"):
        agree(found, torch.from_numpy((a * b) + c), "f32")


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_literal_takes_the_type_beside_it(dtype):
    a = floats(dtype)
    for value in (0.1, -0.0, 3, 2**24 + 1):
        wanted = torch.tensor(value, dtype=TORCH[dtype]) * to_torch(a, dtype)
        found = mapped(lambda x, v=value: op("mul", num(v, _literal(v)), x), [dtype], a)
        agree(found, wanted, dtype)


def _literal(value: float) -> str:
    return "float" if isinstance(value, float) else "int"


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_only_moved_keeps_its_bits(dtype):
    a, b = floats(dtype), floats(dtype)
    found = mapped(lambda x, y: select(op("lt", k.lane(), num(100)), x, y), [dtype] * 2, a, b)
    assert (bits(found) == bits(np.concatenate([a[:100], b[100:]]))).all()
    payload = np.array([0x7F800001, 0xFFC00003, 0x80000000], np.uint32).view(np.float32)
    held = payload if dtype == "f32" else (bits(payload) >> 16).astype(np.uint16)
    held = held.view(k.NUMPY[dtype])
    for at in range(3):  # scalars, of an array that is not contiguous into another
        x, out = np.zeros((3, 2), held.dtype), np.zeros((3, 2), held.dtype)
        x[:, 1] = held
        whole = k.one(
            k.bind("v", k.load("x", num(at), dtype=dtype)),
            k.store("out", [num(at)], select(num(True, "bool"), ir.Var("v", dtype, ()), num(0))),
        )
        k.run(whole, {"LANES_k": 1}, {"x": x[:, 1], "out": out[:, 1]})
        assert bits(out.copy())[at, 1] == bits(held)[at]


# Integers.


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "min", "max", "lt", "le", "eq", "ne"])
def test_integers_wrap_around_in_their_type(dtype, name):
    a, b = integers(dtype), integers(dtype)
    b[::2] = a[::2]
    function = {"min": torch.minimum, "max": torch.maximum}.get(name) or getattr(torch, name)
    wanted = function(torch.from_numpy(a), torch.from_numpy(b))
    found = mapped(lambda x, y: op(name, x, y), [dtype] * 2, a, b)
    agree(found, wanted, "bool" if wanted.dtype == torch.bool else dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_neg_and_abs_of_integers(dtype):
    a = integers(dtype)
    for name in ("neg", "abs"):
        wanted = getattr(torch, name)(torch.from_numpy(a))
        agree(mapped(lambda x, n=name: op(n, x), [dtype], a), wanted, dtype)


def to_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_quotients_round_as_they_say(dtype):
    a, b = integers(dtype), integers(dtype)
    b = np.where(b == 0, b.dtype.type(3), b)
    low, high = LIMITS[dtype]
    pairs = [*zip(a.tolist(), b.tolist(), strict=True)]
    for name, rounds, formula in (
        ("floordiv", "down", lambda x, y: x // y),
        ("floordiv", "zero", to_zero),
        ("mod", "down", lambda x, y: x % y),
        ("mod", "zero", lambda x, y: x - to_zero(x, y) * y),
    ):
        found = mapped(lambda x, y, n=name, r=rounds: op(n, x, y, rounds=r), [dtype] * 2, a, b)
        wrapped = [(formula(*pair) - low) % (high - low + 1) + low for pair in pairs]
        assert found.tolist() == wrapped


@pytest.mark.parametrize("rounds", ["down", "zero"])
@pytest.mark.parametrize("name", ["floordiv", "mod"])
def test_a_division_by_0_in_a_lane_that_is_not_active_is_no_error(name, rounds):
    a, b = np.array([7, -7, 0, 5], np.int32), np.array([0, 2, 0, 0], np.int32)

    def make(x: ir.Var, y: ir.Var) -> ir.Expr:
        return select(op("ne", y, num(0)), op(name, x, y, rounds=rounds), num(9, "i32"))

    wanted = {"floordivdown": -4, "floordivzero": -3, "moddown": 1, "modzero": -1}[name + rounds]
    assert mapped(make, ["i32"] * 2, a, b).tolist() == [9, wanted, 9, 9]
    one = cast(ir.Arg("zero", "i32"), "i32")
    assert k.scalars(op(name, num(7, "i32"), one, rounds=rounds), zero=0) in (-1, 7)


def test_compile_time_numbers_have_any_length():
    big = op("sub", op("mul", num(2**80), ir.Arg("n", "int")), num(2**81))
    assert k.scalars(cast(op("floordiv", big, num(2**79)), "i32"), n=3) == 2
    assert k.scalars(cast(big, "i64"), n=3) == 0, "a cast keeps the low bits"
    for a, b in itertools.product((-7, 7, -8), (2, -2, 3)):
        n, d = ir.Arg("n", "int"), ir.Arg("d", "int")
        for rounds, quotient in (("down", a // b), ("zero", to_zero(a, b))):
            found = [
                k.scalars(cast(op(name, n, d, rounds=rounds), "i64"), n=a, d=b)
                for name in ("floordiv", "mod")
            ]
            assert found == [quotient, a - quotient * b]
    with pytest.raises(CallError, match="a division by 0 of compile-time numbers"):
        k.scalars(cast(op("mod", num(1), ir.Arg("n", "int")), "i64"), n=0)


def test_compile_time_fractions():
    third = ir.Op("mul", (num(0.1, "float"), num(3)), "float", ())
    assert k.scalars(cast(third, "f32")) == np.float32(0.1 * 3)
    assert k.scalars(op("lt", num(0.1, "float"), num(1)))


def test_i32_expressions_wrap_where_they_are_computed():
    r, c = ir.Arg("R", "i32"), ir.Arg("C", "i32")
    assert k.scalars(op("mul", r, c), R=65536, C=65536) == 0
    assert k.scalars(cast(op("mul", r, c), "i64"), R=65536, C=32768) == -(2**31)
    assert k.scalars(op("mul", cast(r, "i64"), cast(c, "i64")), R=65536, C=65536) == 2**32
    lanes = op("add", op("mul", ir.Arg("R", "i32"), num(2**16)), k.lane())
    assert k.scalars(
        ir.Var("least", "i32", ()), k.bind("least", k.reduce("min", "k", lanes)), R=2**15
    ) == -(2**31)


# Casts.


@pytest.mark.parametrize("target", [*TORCH])
@pytest.mark.parametrize("source", [*TORCH])
def test_casts_are_those_of_torch(source, target):
    a = some(source)
    if source in FLOATS and target in INTEGERS:
        with pytest.raises(FormError, match=f"{source} is cast to {target}"):
            mapped(lambda x: cast(x, target), [source], a)
        return
    found = mapped(lambda x: cast(x, target), [source], a)
    agree(found, to_torch(a, source).to(TORCH[target]), target)


@pytest.mark.parametrize("target", ["f16", "bf16", "f32"])
def test_a_compile_time_integer_as_a_float(target):
    for value in (0, -3, 2**24 + 1, 2**53 + 1, -(2**63) + 1, 70000):
        found = np.array([k.scalars(cast(num(value), target))])
        agree(found, torch.full((1,), value, dtype=torch.int64).to(TORCH[target]), target)


# Sums.


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 31, 64])
def test_a_tree_is_that_of_the_reference(width):
    block = 1 << (width - 1).bit_length()
    for seed in range(20):
        chance = np.random.default_rng(seed)
        x = np.exp(chance.normal(0, 8, (4, width))).astype(np.float32)
        x *= chance.choice(np.array([1, -1, 0], np.float32), x.shape)
        if seed == 0:
            x[:] = -0.0
        if seed % 5 == 1:
            x[0, 0], x[1, -1], x[2, 0], x[2, -1] = np.nan, np.inf, np.inf, -np.inf
        wanted = reference._tree_sum(torch.from_numpy(x), 1).reshape(-1)
        for axes in ("ck", "kc"):  # along the last dimension of a block, and along the first
            assert_tree(x, wanted, block, along=axes[1])


def assert_tree(x: np.ndarray, wanted: torch.Tensor, block: int, along: str) -> None:
    left = "c" if along == "k" else "k"
    rows, columns = k.lane(left), k.lane(along)
    inside = op("lt", columns, ir.Arg("width", "int"))
    out = np.zeros(4, np.float32)
    whole = k.one(
        k.bind("v", k.load("x", rows, columns, mask=[inside], dtype="f32")),
        k.bind("total", k.reduce("tree", along, ir.Var("v", "f32", ("c", "k")), [inside])),
        k.store("out", [rows], ir.Var("total", "f32", (left,))),
        lanes="ck",
    )
    args = {f"LANES_{left}": 4, f"LANES_{along}": block, "width": x.shape[1]}
    k.run(whole, args, {"x": x, "out": out})
    agree(out, wanted, "f32")
