"""What can be wrong with a kernel that is run, an error class each, and how messages say where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kgen.kernel import ir


def called(stmt: ir.Stmt) -> str:
    """What a statement is, in a message."""
    match stmt:
        case ir.Bind(note=note) | ir.Store(note=note) | ir.Branch(note=note) if note:
            return note
        case ir.Bind(var, ir.Load(tensor)):
            return f"{var.name} = {tensor}[...]"
        case ir.Bind(var):
            return f"{var.name} = ..."
        case ir.Store(tensor):
            return f"{tensor}[...] = ..."
        case ir.Loop(axis):
            return f"loop over {axis}"
        case ir.Check(number):
            return f"check {number}"
    return type(stmt).__name__.lower()


@dataclass(frozen=True, slots=True)
class Where:
    """Where a run was: statement, tensor and its index, program of a role, and lane of each axis."""

    statement: str = ""
    tensor: str = ""
    index: tuple[int, ...] = ()
    role: int | None = None
    program: int | None = None
    lane: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = []
        if self.statement:
            parts.append(f"in `{self.statement}`")
        if self.program is not None:
            parts.append(f"program {self.program} of role {self.role}")
        if self.lane:
            parts.append("lane " + ", ".join(f"{k} = {v}" for k, v in self.lane.items()))
        return "; ".join(parts)


class RunError(Exception):
    """A kernel, or how it is run, is wrong."""

    def __init__(self, what: str, where: Where | None = None) -> None:
        self.where = where or Where()
        shown = str(self.where)
        super().__init__(f"{what} ({shown})" if shown else what)


class CallError(RunError):
    """The numbers or tensors that the kernel is run with are not those that it takes."""


class MissingError(RunError):
    """A program accesses a tensor that is not given."""


class OutsideError(RunError):
    """An active lane accesses what is outside its tensor, or a tensor that the list does not have."""


class RaceError(RunError):
    """What is read or stored depends on the order of programs or warps, or a load comes after a store."""


class DoubleStoreError(RaceError):
    """One place is stored to twice."""


class BarrierError(RunError):
    """A warp waits at a barrier that another one never comes to."""
