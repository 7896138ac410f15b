"""What the page of a group says of its declarations, in words."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.lang.text import spec_text
from kgen.lang.typed import Group, Tensor
from kgen.plan.words import Words
from kgen.targets.layout import cell


@dataclass(frozen=True, slots=True)
class Page:
    """What templates/group.md.j2 prints beside the spec's own texts."""

    group: Group
    words: Words

    @property
    def arguments(self) -> list[str]:
        """The rows of the table of arguments."""
        group = self.group
        rows = [
            [f"`{t.name}`", f"`{t.text}`", t.mode, _values(t), t.layout, t.doc]
            for t in group.tensors.values()
        ]
        rows += [
            [f"`{s.name}`", f"`{s.text}`", "scalar", "", "", s.doc] for s in group.scalars.values()
        ]
        return [
            "|".join(["", *(f" {cell(each)} " if each else " " for each in row), ""])
            for row in rows
        ]

    @property
    def promises(self) -> list[str]:
        """What the caller promises: what tensors hold, and what kgen is asked to believe of stores."""
        group = self.group
        lines = [line for tensor in group.tensors.values() if (line := _promise(tensor))]
        for store in group.stores:
            if store.trusted:
                lines.append(
                    f"`{store.target_text}`: no two points store to one place; {store.trusted}."
                )
        return lines


def _values(tensor: Tensor) -> str:
    facts = [f"`{tensor.values_text}`"] if tensor.values_text else []
    if tensor.repeats is not None:
        facts.append(f"none twice, except `{spec_text(tensor.repeats)}`")
    elif tensor.distinct:
        facts.append("none twice")
    if tensor.expected_text:
        facts.append(f"expected `{tensor.expected_text}`")
    return ", ".join(facts) or "any"


def _promise(tensor: Tensor) -> str:
    parts = []
    if tensor.values_text:
        ends = [part.strip() for part in tensor.values_text.split("..")]
        low, high = (f"`{end}`" if end else "" for end in ends)
        span = (
            f"from {low} to {high}"
            if low and high
            else f"from {low} on"
            if low
            else f"up to {high}"
        )
        parts.append(f"elements {span}")
    if tensor.distinct:
        but = f", but for `{spec_text(tensor.repeats)}`" if tensor.repeats is not None else ""
        parts.append(f"no value twice{but}")
    if not parts:
        return ""
    doc = f" {tensor.doc[0].upper()}{tensor.doc[1:].removesuffix('.')}." if tensor.doc else ""
    return f"`{tensor.name}`: {'; '.join(parts)}.{doc}"
