"""Element types and their arithmetic, as torch has it.

`int` and `float` are the types of numbers known at compile time (a literal, a static size): like a
Python number beside a tensor in torch, such a number takes the other operand's type.
"""

from __future__ import annotations

import struct
from typing import Final, Literal, TypeAlias

DType: TypeAlias = Literal["bool", "u8", "i32", "i64", "f16", "bf16", "f32", "int", "float"]

ELEMENT_TYPES: Final[tuple[DType, ...]] = ("bool", "u8", "i32", "i64", "f16", "bf16", "f32")
CASTS: Final = frozenset(ELEMENT_TYPES)
FLOATS: Final = frozenset(("f16", "bf16", "f32", "float"))
NARROW_FLOATS: Final = frozenset(("f16", "bf16"))
# The functions that keep the low bits of a number on purpose.
WRAPS: Final[dict[str, DType]] = {"wrap_u8": "u8", "wrap_i32": "i32", "wrap_i64": "i64"}
LITERALS: Final = frozenset(("int", "float"))

# What other languages call them. torch's `int` is 32 bits wide, Python's is not: no word for it here.
FOREIGN_NAMES: Final[dict[str, DType]] = {
    "int32": "i32",
    "int64": "i64",
    "long": "i64",
    "uint8": "u8",
    "byte": "u8",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float": "f32",
    "boolean": "bool",
}

# The smallest and the largest value of each integer type.
LIMITS: Final[dict[DType, tuple[int, int]]] = {
    "bool": (0, 1),
    "u8": (0, 255),
    "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
    "int": (-(2**64), 2**64),  # so that 2**63 - 1 can be written
}

_ORDER: Final[dict[DType, int]] = {
    "int": -1,
    "bool": 0,
    "u8": 1,
    "i32": 2,
    "i64": 3,
    "float": 4,
    "f16": 5,
    "bf16": 5,
    "f32": 6,
}


def promote(a: DType, b: DType) -> DType:
    """The type of `a + b` in torch: the wider of the two, a compile-time number taking the other's."""
    if {a, b} == {"f16", "bf16"}:
        return "f32"
    if "float" in (a, b) and not (a in FLOATS and b in FLOATS):
        return "float" if "int" in (a, b) else "f32"
    return a if _ORDER[a] >= _ORDER[b] else b


def widens(source: DType, target: DType) -> bool:
    """Whether every value of `source` is one of `target`, so that storing it loses nothing."""
    if source == target:
        return True
    if target in FLOATS:
        return source == "int" or (source in NARROW_FLOATS and target == "f32")
    if source in FLOATS:
        return False
    return _ORDER[source] <= _ORDER[target] and (source != "int" or target != "bool")


def exact(value: float, dtype: DType) -> bool:
    """Whether a literal is one of the numbers of a float type, or beside f32, where torch rounds it."""
    if dtype not in NARROW_FLOATS:
        return True
    try:
        if dtype == "f16":
            return bool(struct.unpack("e", struct.pack("e", value))[0] == value)
        (bits,) = struct.unpack("I", struct.pack("f", value))
        return bits & 0xFFFF == 0 and bool(struct.unpack("f", struct.pack("I", bits))[0] == value)
    except OverflowError:
        return False
