"""What the page of a group says of its plan, in a person's words: how it runs, and what it relies on.

In: a plan. Out: lines of Markdown.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.diagnostics import counted
from kgen.lang.code import Code, call, folded, infix
from kgen.lang.text import spec_text
from kgen.lang.typed import Group, Store
from kgen.plan.plan import Axis, Plan, Role
from kgen.prove.places import Undefined
from kgen.prove.prove import Proof


@dataclass(frozen=True, slots=True)
class Words:
    """`programs`: how many there are. `roles`: what each kind of them does. The rest as headings say."""

    programs: str
    roles: tuple[str, ...]
    proofs: tuple[str, ...]
    undefined: tuple[str, ...]
    unkept: tuple[str, ...]


def words(plan: Plan) -> Words:
    """What there is to say of a plan."""
    return Words(
        programs=_programs(plan),
        roles=tuple(_role(plan.group, role) for role in plan.roles),
        proofs=_shown(plan.proved.proofs),
        undefined=tuple(dict.fromkeys(map(_undefined, plan.proved.undefined))),
        unkept=tuple(_unkept(plan.group, store) for store in plan.proved.unkept),
    )


def _programs(plan: Plan) -> str:
    counts: list[Code] = []
    for role in plan.roles:
        extents: list[Code] = []
        for axis in role.program:
            extent = spec_text(plan.group.extents[axis.index])
            if axis.kind == "tile":
                width = Code(str(axis.tile) if axis.least is None else axis.block)
                extent = call("ceil", infix("/", extent, width))
            extents.append(extent)
        counts.append(folded("*", extents))
    number = str(folded("+", counts))
    shown = "1 program" if number == "1" else f"`{number}` programs"
    warps = plan.group.schedule.warps
    return f"{shown} of {counted(warps, 'warp')}" if warps is not None else shown


def _role(group: Group, role: Role) -> str:
    parts = []
    for axis in role.axes.values():
        extent = spec_text(group.extents[axis.index])
        match axis.kind:
            case "row":
                parts.append(f"a program for each `{axis.index}` of {extent}")
            case "tile":
                parts.append(
                    f"a program for each {_wide(axis)} values of `{axis.index}` ({extent})"
                )
            case "lanes":
                parts.append(f"all {extent} values of `{axis.index}` in each program")
            case "loop":
                parts.append(f"a loop over `{axis.index}` ({extent}), {_wide(axis)} at a time")
    targets = ", ".join(f"`{store.target_text}`" for store in (*role.stores, *role.once))
    return f"{targets}: {'; '.join(parts) or 'one program'}"


def _wide(axis: Axis) -> str:
    return f"{axis.tile}" if axis.least is None else f"`{axis.block}`, {axis.least} to {axis.tile},"


def _shown(proofs: tuple[Proof, ...]) -> tuple[str, ...]:
    """Why each load and each place is inside its tensor: those that are for one reason in one line."""
    places: dict[str, dict[str, None]] = {}
    for proof in proofs:
        places.setdefault(_reason(proof), {})[f"`{proof.text}`"] = None
    return tuple(f"{reason}: {', '.join(found)}." for reason, found in places.items())


def _reason(proof: Proof) -> str:
    match proof.how:
        case "ranges":
            return "By declared ranges only"
        case "guards":
            done = "Read" if proof.kind == "load" else "Stored to"
            return f"{done} only where {' and '.join(f'`{each}`' for each in proof.because)}"
        case "trusted":
            return f"Trusted, since {proof.because[0].removesuffix('.')}"


def _unkept(group: Group, store: Store) -> str:
    tensor = group.tensors[store.tensor]
    return (
        f"`{store.target_text}`: what is stored is not shown to be in `{tensor.values_text}`, the `values` "
        f"of `{tensor.name}`, which the next call relies on"
    )


def _undefined(place: Undefined) -> str:
    return (
        f"`{place.target}` where `{spec_text(place.load)}` is `{spec_text(place.repeats)}`: several rows "
        "may share that place, so what it ends up holding is undefined, and so is what those rows read "
        "there"
    )
