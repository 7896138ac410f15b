"""What the element types mean to the language, as torch has it; the types themselves are a table.

`int` and `float` are the types of numbers known at compile time (a literal, a static size): like a
Python number beside a tensor in torch, such a number takes the other operand's type.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from kgen.runtime._dtypes import ELEMENTS, ROWS

DType: TypeAlias = str  # a name of the table, `int` or `float`

ELEMENT_TYPES: Final[tuple[DType, ...]] = tuple(ELEMENTS)
CASTS: Final = frozenset(ELEMENT_TYPES)
INTEGERS: Final = frozenset(row.name for row in ROWS if row.kind == "integer")
FLOATS: Final = frozenset((*(row.name for row in ROWS if row.kind == "float"), "float"))
NARROW_FLOATS: Final = frozenset(row.name for row in ROWS if row.kind == "float" and row.bits < 32)
# The functions that keep the low bits of a number on purpose.
WRAPS: Final[dict[str, DType]] = {
    f"wrap_{name}": name for name in ELEMENT_TYPES if name in INTEGERS
}
LITERALS: Final = frozenset(("int", "float"))

# What other languages call them. torch's `int` is 32 bits wide, Python's is not: no word for it here.
FOREIGN_NAMES: Final[dict[str, DType]] = {word: row.name for row in ROWS for word in row.foreign}

# The smallest and the largest value of each integer type.
LIMITS: Final[dict[DType, tuple[int, int]]] = {
    **{row.name: row.limits for row in ROWS if row.limits is not None},
    "int": (-(2**64), 2**64),  # so that 2**63 - 1 can be written
}

# Of two types the wider one, a compile-time number's below all others of its kind.
_RANK: Final[dict[DType, float]] = {
    "int": -1,
    **{row.name: at for at, row in enumerate(ROWS)},
    "float": min(at for at, row in enumerate(ROWS) if row.kind == "float") - 0.5,
}


def torch_type(dtype: DType) -> str:
    """What torch calls the type; a compile-time number's is the widest of its kind."""
    return f"torch.{ELEMENTS[own_type(dtype)].torch}"


def triton_type(dtype: DType) -> str:
    """Likewise in Triton."""
    return f"tl.{ELEMENTS[own_type(dtype)].triton}"


def own_type(dtype: DType) -> DType:
    """The type itself; of a compile-time number the one that it has in torch.tensor."""
    return {"int": "i64", "float": "f32"}.get(dtype, dtype)


def promote(a: DType, b: DType) -> DType:
    """The type of `a + b` in torch: the wider of the two, a compile-time number taking the other's."""
    if a in NARROW_FLOATS and b in NARROW_FLOATS and a != b:
        return "f32"
    if "float" in (a, b) and not (a in FLOATS and b in FLOATS):
        return "float" if "int" in (a, b) else "f32"
    return a if _RANK[a] >= _RANK[b] else b


def widens(source: DType, target: DType) -> bool:
    """Whether every value of `source` is one of `target`, so that storing it loses nothing."""
    if source == target:
        return True
    if target in FLOATS:
        return source == "int" or (source in NARROW_FLOATS and target == "f32")
    if source in FLOATS:
        return False
    if source == "int" or target == "int":
        return _RANK[source] <= _RANK[target] and target != "bool"
    return LIMITS[target][0] <= LIMITS[source][0] and LIMITS[source][1] <= LIMITS[target][1]


def cut(number: int, dtype: DType) -> int:
    """A whole number as an integer type holds it."""
    if dtype == "bool":
        return int(number != 0)
    low, high = LIMITS[dtype]
    return number if dtype == "int" else (number - low) % (high - low + 1) + low


def exact(value: float, dtype: DType) -> bool:
    """Whether a literal is one of the numbers of a float type, or beside f32, where torch rounds it."""
    return dtype not in NARROW_FLOATS or rounded(value, dtype) == value


def rounded(value: float, dtype: DType) -> float:
    """A number as a float type holds it: the nearest one, ties to even; infinite past the largest."""
    if dtype not in FLOATS or dtype == "float":
        return value
    try:
        (bits,) = struct.unpack("I", struct.pack("f", value))  # torch goes by way of f32, too
        if dtype == "bf16":
            bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
        (single,) = struct.unpack("f", struct.pack("I", bits))
        return float(struct.unpack("e", struct.pack("e", single))[0] if dtype == "f16" else single)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
