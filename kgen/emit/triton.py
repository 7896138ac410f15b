"""The Triton kernel of a plan.

In: a `Plan`. Out: the text of one `@triton.jit` function and the facts that a launch needs. Prints
what the plan says; proves nothing. Shares only the typed tree with the torch emitter.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.emit.helpers import HELPERS
from kgen.emit.layout import wrap
from kgen.emit.names import Names
from kgen.emit.parameters import (
    TL_TYPES,
    Parameter,
    parameters,
    programs_of,
)
from kgen.emit.role import RolePrinter
from kgen.lang.code import Code, infix
from kgen.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Kernel:
    """The text of a kernel and what its launch passes."""

    name: str
    text: str
    parameters: tuple[Parameter, ...]
    helpers: frozenset[str]
    programs: Code


def emit(plan: Plan) -> Kernel:
    """The kernel of a plan."""
    helpers: set[str] = set()
    params = parameters(plan)
    counts = [programs_of(plan.group, role) for role in plan.roles]
    names = Names({"pid", "program", "tl", "triton", *HELPERS, *(param.name for param in params)})
    several = len(plan.roles) > 1
    bodies = [
        RolePrinter(plan, role, names, number, helpers, several).lines()
        for number, role in enumerate(plan.roles)
    ]
    name = f"{plan.group.name}_kernel"
    programs = programs_of(plan.group, plan.roles[0], host=True)
    for role in plan.roles[1:]:
        programs = infix("+", programs, programs_of(plan.group, role, host=True))
    text = function(name, plan.group.summary, params, bodies, counts)
    helpers |= {each for each in ("floor_div", "floor_mod") if f"{each}(" in text}  # of extents
    return Kernel(name, text, params, frozenset(helpers), programs)


def function(
    name: str,
    summary: str,
    params: tuple[Parameter, ...],
    bodies: list[list[str]],
    counts: list[Code],
) -> str:
    """The text of a kernel whose roles have these bodies and numbers of programs."""
    frozen = [p.name for p in params if p.kind in ("address", "stride", "size", "scalar", "limit")]
    aligned = [p.name for p in params if p.kind in ("pointer", "buffer")]
    lines = ["@triton.jit("]
    if frozen:
        lines.append(f"    do_not_specialize={frozen!r},".replace("'", '"'))
    lines.append(f"    do_not_specialize_on_alignment={aligned!r},".replace("'", '"'))
    lines += [")", f"def {name}("]
    for param in params:
        kind = "" if param.kind in ("pointer", "buffer") else f": {_annotation(param)}"
        lines.append(f"    {param.name}{kind},")
    lines += ["):", f'    """{summary}"""']
    if len(bodies) == 1:
        lines += [f"    {line}" if line else "" for line in bodies[0]]
    else:
        lines.append("    pid = tl.program_id(0)")
        for at, count in enumerate(counts[:-1]):
            start = f"end_{at - 1} + " if at else ""
            lines.append(f"    end_{at} = {start}{count.at(8) if at else count}")
        for at, body in enumerate(bodies):
            head = "else:" if at == len(bodies) - 1 else f"{'el' if at else ''}if pid < end_{at}:"
            lines.append(f"    {head}")
            lines += [f"        {line}" if line else "" for line in body]
    return wrap("\n".join(lines)) + "\n"


def _annotation(param: Parameter) -> str:
    return "tl.constexpr" if param.type == "constexpr" else TL_TYPES[param.type]
