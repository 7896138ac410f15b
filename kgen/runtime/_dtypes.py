"""The element types, one row each, the wider after the narrower: the only table of them. Needs nothing.

kgen types specs by it, its printers take each backend's name from it, and a generated package reads
tensors' types and their ranges by it. `kind` is bool, integer or float; integers of 8 bits are unsigned.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ElementType:
    """An element type; `foreign`: others' names for it."""

    name: str
    kind: str
    bits: int
    signed: bool
    torch: str
    triton: str
    foreign: tuple[str, ...] = ()

    @property
    def limits(self) -> tuple[int, int] | None:
        """The least and the greatest value; None for floats, which have infinities."""
        if self.kind == "float":
            return None
        if self.kind == "bool":
            return (0, 1)
        return (
            (-(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1)
            if self.signed
            else (0, 2**self.bits - 1)
        )


ROWS = (
    ElementType("bool", "bool", 8, False, "bool", "int1", ("boolean",)),
    ElementType("u8", "integer", 8, False, "uint8", "uint8", ("uint8", "byte")),
    ElementType("i32", "integer", 32, True, "int32", "int32", ("int32",)),
    ElementType("i64", "integer", 64, True, "int64", "int64", ("int64", "long")),
    ElementType("f16", "float", 16, True, "float16", "float16", ("float16", "half")),
    ElementType("bf16", "float", 16, True, "bfloat16", "bfloat16", ("bfloat16",)),
    ElementType("f32", "float", 32, True, "float32", "float32", ("float32", "float")),
)
ELEMENTS = {row.name: row for row in ROWS}
