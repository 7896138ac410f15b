"""Which lanes a piece of kernel text has, and how it takes its place among more of them.

A block's dimensions are the lane axes that it varies with, in the role's order; a piece with fewer
gets the missing ones by indexing with None, as Triton wants.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.lang.code import ATOM, Code


@dataclass(frozen=True, slots=True)
class LaneCode:
    """Kernel text and its lane axes, in order."""

    code: Code
    lanes: tuple[str, ...]

    def at(self, lanes: tuple[str, ...]) -> Code:
        """The text with the dimensions `lanes`, of which its own are some."""
        return shaped(self.code, self.lanes, lanes)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lane axes of a role in order, and the compile-time name of each one's size."""

    order: tuple[str, ...]
    blocks: dict[str, str]

    def union(self, *codes: LaneCode) -> tuple[str, ...]:
        """The lane axes of several pieces together."""
        found = {lane for code in codes for lane in code.lanes}
        return tuple(index for index in self.order if index in found)

    def shape(self, lanes: tuple[str, ...]) -> Code:
        """The shape of a block with these axes, as a tuple's text."""
        names = [self.blocks[lane] for lane in lanes]
        return Code(f"({', '.join(names)}{',' if len(names) == 1 else ''})")


def shaped(code: Code, own: tuple[str, ...], lanes: tuple[str, ...]) -> Code:
    """`code`, whose axes are `own`, indexed so that it broadcasts over `lanes`."""
    if not own or own == lanes:
        return code
    at = ", ".join(":" if lane in own else "None" for lane in lanes)
    return Code(f"{code.at(ATOM)}[{at}]")
