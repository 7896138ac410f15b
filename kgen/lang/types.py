"""Element types and their arithmetic, as torch has it.

`int` is the type of a number known at compile time (a literal, a static size): like a Python number
beside a tensor in torch, it takes the other operand's type.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

DType: TypeAlias = Literal["bool", "u8", "i32", "i64", "int"]

ELEMENT_TYPES: Final[tuple[DType, ...]] = ("bool", "u8", "i32", "i64")
CASTS: Final = frozenset(ELEMENT_TYPES)

# The smallest and the largest value of each type.
LIMITS: Final[dict[DType, tuple[int, int]]] = {
    "bool": (0, 1),
    "u8": (0, 255),
    "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
    "int": (-(2**63), 2**63 - 1),
}

_ORDER: Final[dict[DType, int]] = {"int": -1, "bool": 0, "u8": 1, "i32": 2, "i64": 3}


def promote(a: DType, b: DType) -> DType:
    """The type of `a + b`: the wider of the two, a compile-time number taking the other's."""
    return a if _ORDER[a] >= _ORDER[b] else b


def widens(source: DType, target: DType) -> bool:
    """Whether every value of `source` is one of `target`, so that storing it loses nothing."""
    return _ORDER[source] <= _ORDER[target] and (source != "int" or target != "bool")
