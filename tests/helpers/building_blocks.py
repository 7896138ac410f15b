"""Values for a group's static names, and calls on tensors that hold nothing in particular."""

from __future__ import annotations

from typing import Any

import torch


def chosen(signature: Any, wanted: dict[str, int], default: int) -> dict[str, int]:
    """A legal value for every size and scalar: the wanted one, moved into its range."""
    values: dict[str, int] = {}
    for name in signature.order:
        declared = signature.declared(name)
        derived = getattr(declared, "derived", None)
        if derived is not None:
            values[name] = derived(values)
            continue
        if getattr(declared, "type", "") == "f32":
            values[name] = 0.5
            continue
        low, high = declared.ends(values)
        if low > high:
            raise ValueError(f"{signature.group}: {name} has no value at {values}")
        values[name] = min(max(wanted.get(name, default), low), high)
    return values


def static_values(operator: Any, facts: dict, tries: list[int]) -> list[dict[str, int]]:
    """What a kernel's compile-time parameters may be: its statics at each try, its blocks and its warps.

    Whether an optional tensor is given, and whether run-time sizes are large, alternates from try to try.
    """
    signature = operator.signature
    flags = [n for n, (k, _) in facts["parameters"].items() if k == "given"]
    names = [n for n, (k, _) in facts["parameters"].items() if k == "static"]
    found = []
    for at, number in enumerate(tries):
        # Not the same number for all: the next one of the list for every second name.
        other = tries[(at + 1) % len(tries)]
        declared = [n for n in signature.order if signature.declared(n).static]
        wanted = {name: number if i % 2 == 0 else other for i, name in enumerate(declared)}
        known = chosen(signature, wanted, (7, 5000)[at % 2])
        values = {name: known[name] for name in names} | dict.fromkeys(flags, at % 2 == 0)
        for name, (kind, _) in facts["parameters"].items():  # how many a tuple holds
            if kind in ("addresses", "strides"):
                count = signature.tensors[name.split("_stride_")[0]].length(known)
                values[name] = 1 if kind == "strides" and at % 2 else count
        widths, warps = operator.launch.widths(known)
        values |= widths | {"num_warps": warps}
        if values not in found:
            found.append(values)
    return found


def arguments(
    signature: Any,
    values: dict[str, int],
    offset: int,
    pad: int,
    *,
    optional: bool,
    uneven: bool = False,
) -> dict[str, Any]:
    """The arguments of a call with these sizes; `offset` and `pad` make odd starts and strides.

    `uneven`: the tensors of a list have different ones.
    """
    given: dict[str, Any] = {}
    for name, declared in signature.tensors.items():
        if declared.optional and not optional:
            continue
        count = declared.length(values) if declared.length is not None else 1
        made = [_zeros(declared, values, offset, pad + at * uneven) for at in range(count)]
        given[name] = made[0] if declared.length is None else made
    return {**given, **{name: values[name] for name in signature.scalars}}


def _zeros(declared: Any, values: dict[str, int], offset: int, pad: int) -> torch.Tensor:
    shape = [dim(values) for dim in declared.dims]
    strides, stride = [0] * len(shape), 1
    for dim in reversed(range(len(shape))):
        strides[dim] = stride
        stride *= max(shape[dim], 1)
        stride += pad if declared.layout != "contiguous" else 0
    base = torch.zeros(stride + offset + 1, dtype=declared.dtype)
    return base.as_strided(shape, strides, offset)
