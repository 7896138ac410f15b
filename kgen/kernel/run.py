"""Runs a kernel of the form on arrays, slowly and strictly: the oracle of random specs.

In: a `Kernel`, the numbers that a launch passes, and numpy arrays, which are written in place. The form is
checked before anything runs, every access while it runs. Each program is run by several warps: every warp
goes through the whole body on whole blocks, loads in its own time, and performs its share of each store.
Which one goes on is random; only a barrier makes the warps of a program wait for each other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from kgen.kernel import ir
from kgen.kernel.faults import BarrierError, CallError, Where
from kgen.kernel.form import check_form, has
from kgen.kernel.ir import Kernel, Role, Stmt
from kgen.kernel.memory import Memory, Tensors, Warp
from kgen.kernel.values import HELD, Array, Env, held, python, row
from kgen.lang.dtypes import LIMITS, DType

_AT_ONCE = 16  # programs that run beside each other
_BURSTS = (1, 1, 1, 2, 8)  # turns that a warp may make before another one goes on


@dataclass(frozen=True, slots=True)
class Note:
    """What a check found: the least point that failed, and the details there."""

    point: int
    details: tuple[int | float | bool, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left beside what it stored.

    `notes`: number of a check -> where it failed. `stored`: which elements were stored to, an array of
    truth values for the tensor, or for each one of a list, of those that are given.
    """

    notes: dict[int, Note]
    stored: dict[str, list[Array]]


class Runner:
    """A kernel that can be run; it is checked once."""

    def __init__(self, kernel: Kernel) -> None:
        check_form(kernel)
        self.kernel = kernel
        stmts = [stmt for role in kernel.roles for stmt in ir.every(role.body)]
        values = [value for stmt in stmts for value in ir.used(stmt)]
        for role in kernel.roles:
            values += [role.programs, *(axis.extent for axis in role.axes)]
            values += [axis.width for axis in role.axes if axis.width is not None]
        parts = [part for value in values for part in ir.walk(value)]
        self.args = dict.fromkeys(part for part in parts if isinstance(part, ir.Arg))
        self.accesses = [each for each in (*parts, *stmts) if isinstance(each, ir.Load | ir.Store)]

    def run(
        self,
        args: Mapping[str, float],
        tensors: Tensors,
        *,
        undefined: Tensors | None = None,
        seed: int = 0,
        warps: int = 2,
        watched: bool = True,
    ) -> Outcome:
        """Run the kernel in an order that `seed` chooses.

        Args:
            args: a number for each Arg.
            tensors: an array for each name, or a list of them, written in place; one that is missing or
                None is not given. bf16 is held as uint16.
            undefined: masks of elements for which a race or a second store is not an error, as several rows
                may own them (`distinct: except`) or the spec is trusted.
            seed: of the order in which warps go on.
            warps: how many run each program.
            watched: whether races and second stores are errors; if not, this order gives the values.
        """
        with np.errstate(all="ignore"):
            numbers = {(arg.name, arg.dtype): _given(args, arg) for arg in self.args}
            envs = [_env(role, numbers) for role in self.kernel.roles]
            memory = Memory(self.accesses, tensors, undefined or {}, watched)
            launch = _Launch(self.kernel.roles, envs, memory, random.Random(seed), warps)  # noqa: S311
            launch.run()
        return Outcome(launch.notes, memory.stored())


def _given(args: Mapping[str, float], arg: ir.Arg) -> object:
    """The number that an argument is."""
    value = args.get(arg.name)
    if value is None:
        raise CallError(f"the argument {arg.name} is not given")
    if not has(arg.dtype, value):
        raise CallError(f"the argument {arg.name} is {value}, not a number of {arg.dtype}")
    return held(value, arg.dtype)


def _env(role: Role, args: Mapping[tuple[str, DType], object]) -> Env:
    """What the programs of a role hold at first."""
    env = Env(role.lanes, args)
    for axis in role.axes:
        if axis.width is not None:
            width = int(env.value(axis.width))
            if width < 1 or width & (width - 1):
                raise CallError(f"a block of {axis.index} is {width} wide, not a power of two")
            env.widths[axis.index] = width
    return env


@dataclass(slots=True)
class _Launch:
    """A run of a kernel. `envs`: what the programs of each role hold at first."""

    roles: tuple[Role, ...]
    envs: list[Env]
    memory: Memory
    random: random.Random
    warps: int
    notes: dict[int, Note] = field(default_factory=dict)

    def run(self) -> None:
        """Run all programs: a few beside each other, the next one as soon as one has ended."""
        programs: list[tuple[int, int]] = []
        for number, role in enumerate(self.roles):
            count = int(self.envs[number].value(role.programs))
            if count < 0:
                raise CallError(f"role {number} has {count} programs")
            programs += [(number, program) for program in range(count)]
        todo = [(number, *program) for number, program in enumerate(programs)]
        self.random.shuffle(todo)
        going: list[Warp] = []
        for _ in range(min(_AT_ONCE, len(todo))):
            going += self._crew(*todo.pop())
        while going:
            at = self._draw(len(going))
            warp = going[at]
            warp.state = self._go(warp)
            if warp.state == "going":
                continue
            going[at] = going[-1]
            going.pop()
            states = {each.state for each in warp.crew}
            if states == {"waiting"}:
                for each in warp.crew:
                    each.state = "going"
                    each.epoch += 1
                going += warp.crew
            elif states == {"done"} and todo:
                going += self._crew(*todo.pop())
            elif states == {"waiting", "done"}:
                where = Where(role=warp.role, program=warp.program)
                raise BarrierError("some warps wait at a barrier that others never come to", where)

    def _draw(self, count: int) -> int:
        return int(self.random.random() * count)

    def _crew(self, number: int, role: int, program: int) -> list[Warp]:
        """The warps of a program, ready to go."""
        crew: list[Warp] = []
        turned = self._draw(self.warps)
        for own in range(self.warps):
            env = replace(self.envs[role], program=np.int32(program), variables={})
            warp = Warp(env, role, program, number, (own - turned) % self.warps, crew)
            warp.turns = self._turns(self.roles[role].body, warp)
            crew.append(warp)
        return crew

    def _go(self, warp: Warp) -> str:
        """Let a warp make some turns; its state then."""
        for _ in range(_BURSTS[self._draw(len(_BURSTS))]):
            waits = next(warp.turns, None)
            if waits is None:
                return "done"
            if waits:
                return "waiting"
        return "going"

    # Statements, as the turns that a warp makes: False before an access, True at a barrier.

    def _turns(self, body: tuple[Stmt, ...], warp: Warp) -> Iterator[bool]:
        env = warp.env
        around = env.stmt
        for stmt in body:
            env.stmt = stmt
            match stmt:
                case ir.Bind(var, ir.Load() as load):
                    yield False
                    env.variables[var.name] = self.memory.load(warp, load)
                case ir.Bind(var, value):
                    env.variables[var.name] = env.value(value)
                case ir.Store():
                    yield False
                    self.memory.store(warp, stmt)
                case ir.Loop():
                    yield from self._loop(stmt, warp)
                case ir.Branch(cond, then, other, merged):
                    if env.value(cond):
                        yield from self._turns(then, warp)
                        env.bind({each.var.name: each.then for each in merged})
                    else:
                        yield from self._turns(other, warp)
                        env.bind({each.var.name: each.other for each in merged})
                case ir.Barrier():
                    yield True
                case ir.Check():
                    self._check(stmt, env)
        env.stmt = around

    def _loop(self, loop: ir.Loop, warp: Warp) -> Iterator[bool]:
        env, dtype = warp.env, loop.start.dtype
        env.bind({each.var.name: each.start for each in loop.carried})
        extent, step = int(env.value(loop.extent)), int(env.value(loop.step))
        if step <= 0:
            raise env.fail(f"the step of a loop is {step}")
        numbers = range(0, extent, step)
        if numbers and numbers[-1] + step > LIMITS[dtype][1]:
            raise env.fail(f"the counter of a loop to {extent} by {step} leaves {dtype}")
        for number in numbers:
            env.variables[loop.start.name] = HELD[dtype](number)
            yield from self._turns(loop.body, warp)
            env.bind({each.var.name: each.then for each in loop.carried})

    def _check(self, check: ir.Check, env: Env) -> None:
        shape = env.shape(check.axes)
        failed = row(env.mask(check.failed), shape).nonzero()[0]
        if not len(failed):
            return
        parts = (check.point, *check.details)
        blocks = [row(env.value(part), shape) for part in parts]
        least = failed[blocks[0][failed].argmin()]
        at_least = zip(blocks, parts, strict=True)
        point, *details = [python(block[least], part.dtype) for block, part in at_least]
        known = self.notes.get(check.number)
        if known is None or point < known.point:
            self.notes[check.number] = Note(int(point), tuple(details))
