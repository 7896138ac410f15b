"""What the page of a group says, in words."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.diagnostics import counted
from kgen.lang.code import Code, call, infix
from kgen.lang.text import spec_text
from kgen.lang.typed import Group, Scalar, Tensor
from kgen.plan.plan import Plan, Role


@dataclass(frozen=True, slots=True)
class Page:
    """What templates/group.md.j2 prints beside the spec's own texts."""

    plan: Plan
    ordered: tuple[Tensor | Scalar, ...]

    @property
    def values(self) -> dict[str, str]:
        """What each tensor holds by its declaration."""
        return {name: _values(tensor) for name, tensor in self.plan.group.tensors.items()}

    @property
    def docs(self) -> dict[str, str]:
        """What each tensor and scalar is."""
        return {each.name: each.doc.replace("|", "\\|") for each in self.ordered}

    @property
    def program_words(self) -> str:
        """How many programs of how many warps the launch has."""
        total: Code | None = None
        for role in self.plan.roles:
            count: Code | None = None
            for axis in role.program:
                extent = spec_text(self.plan.group.extents[axis.index])
                if axis.tile != 1:
                    extent = call("ceil", infix("/", extent, Code(str(axis.tile))))
                count = extent if count is None else infix("*", count, extent)
            count = count or Code("1")
            total = count if total is None else infix("+", total, count)
        number = str(total)
        shown = "1 program" if number == "1" else f"`{number}` programs"
        return f"{shown} of {counted(self.plan.warps, 'warp')}"

    @property
    def roles(self) -> list[str]:
        """What each kind of program does."""
        return [_role_text(self.plan.group, role) for role in self.plan.roles]

    @property
    def undefined(self) -> list[str]:
        """What the spec leaves undefined."""
        return [
            f"`{u.tensor}` at {spec_text(u.value)} in dimension {u.dim}: several rows may own it, so "
            "what it ends up holding is undefined, and so is what those rows read there"
            for u in self.plan.undefined
        ]


def _values(tensor: Tensor) -> str:
    facts = [f"`{tensor.values_text}`"] if tensor.values_text else []
    if tensor.repeats is not None:
        facts.append(f"none twice, except `{spec_text(tensor.repeats)}`")
    elif tensor.distinct:
        facts.append("none twice")
    if tensor.expected_text:
        facts.append(f"expected `{tensor.expected_text}`")
    return ", ".join(facts) or "any"


def _role_text(group: Group, role: Role) -> str:
    parts = []
    for axis in role.axes.values():
        extent = spec_text(group.extents[axis.index])
        match axis.kind:
            case "row":
                parts.append(f"a program for each `{axis.index}` of {extent}")
            case "tile":
                parts.append(f"a program for each {axis.tile} values of `{axis.index}` ({extent})")
            case "lanes":
                parts.append(f"all {extent} values of `{axis.index}` in each program")
            case "loop":
                parts.append(f"a loop over `{axis.index}` ({extent}), {axis.tile} at a time")
    targets = ", ".join(f"`{store.target_text}`" for store in (*role.stores, *role.once))
    return f"{targets}: {'; '.join(parts) or 'one program'}"
