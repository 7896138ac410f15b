"""What a group relies on, in a person's words: its proofs, and what the caller promises.

In: a plan. Out: the rows and lines of a section of the group's page. Proves nothing.
"""

from __future__ import annotations

from kgen.analysis.prove import Proof
from kgen.lang.text import spec_text
from kgen.lang.typed import Group, Tensor
from kgen.plan.plan import Plan


def shown(plan: Plan) -> list[str]:
    """Why each load and each place is inside its tensor: those that are for one reason in one line."""
    places: dict[str, list[str]] = {}
    for proof in plan.proofs:
        known = places.setdefault(_reason(proof), [])
        known += [place] if (place := f"`{proof.text}`") not in known else []
    return [f"{reason}: {', '.join(found)}." for reason, found in places.items()]


def _reason(proof: Proof) -> str:
    match proof.how:
        case "ranges":
            return "By declared ranges alone"
        case "guards":
            done = "Read" if proof.kind == "load" else "Stored to"
            return f"{done} only where {' and '.join(f'`{each}`' for each in proof.because)}"
        case "trusted":
            return f"Trusted, since {proof.because[0].removesuffix('.')}"


def promises(group: Group) -> list[str]:
    """What the caller promises: what tensors hold, and what kgen was told to believe of stores."""
    lines = [line for tensor in group.tensors.values() if (line := _promise(tensor))]
    for store in group.stores:
        if store.trusted:
            lines.append(
                f"`{store.target_text}`: no two points store to one place; {store.trusted}."
            )
    return lines


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
