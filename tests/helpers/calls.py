"""Calls a group on numbers written down in a test, in each of its readings."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch

# A group with a float scalar, a default and an optional tensor.
SCALED = """\
group: scaled
summary: Scales, and adds what is there.
sizes: {R: 0 .. 50}
scalars: {by: f32, times: {type: i32, default: 1}}
tensors:
  x: {type: "f32[R]", layout: any}
  bias: {type: "f32[R]", optional: true}
  out: {type: "f32[R]", mode: out}
index: {r: R}
store:
  out[r]: (x[r] if by == 1.0 else by) + (bias[r] if given(bias) else 0.0) * f32(times)
"""
READINGS = ("kernel", "reference", "eager")
# What nothing has written.
UNTOUCHED = {torch.bool: True}


def arguments(
    case: Any,
    device: torch.device,
    *,
    lists: dict[str, list[torch.Tensor]] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """All arguments of a call, by name.

    Args:
        case: the group.
        device: where its tensors are.
        lists: lists of tensors, ready-made.
        given: scalars, and tensors as nested lists or ready-made. A tensor that is left out is filled
            with 77 (true, if it is bool); its shape follows from the others', or from sizes given too.
    """
    signature = case.signature
    values = {k: v for k, v in given.items() if k in signature.sizes or k in signature.scalars}
    tensors: dict[str, torch.Tensor] = {}
    for name, declared in signature.tensors.items():
        if name not in given:
            continue
        tensor = given[name]
        if not isinstance(tensor, torch.Tensor):
            tensor = torch.tensor(tensor, dtype=declared.dtype, device=device)
        tensors[name] = tensor
        for dim, size in zip(declared.dims, tensor.shape, strict=True):
            if dim.text in signature.sizes:
                values[dim.text] = size
    for name in signature.order:
        size = signature.sizes.get(name)
        if size is not None and size.derived is not None:
            values.setdefault(name, size.derived(values))
        if name in signature.defaults:
            values.setdefault(name, signature.defaults[name](values))
    for name, declared in signature.tensors.items():
        if name not in tensors and not declared.optional and name not in (lists or {}):
            shape = [dim(values) for dim in declared.dims]
            fill = UNTOUCHED.get(declared.dtype, 77)
            tensors[name] = torch.full(shape, fill, dtype=declared.dtype, device=device)
    ready = {**tensors, **(lists or {})}
    ordered = {name: ready.get(name) for name in signature.tensors}
    return {**ordered, **{name: values[name] for name in signature.scalars}}


def outcome(case: Any, reading: str, device: torch.device, **given: Any) -> dict[str, Any]:
    """What the written tensors hold after a call in one reading, as nested lists."""
    signature = case.signature
    passed = arguments(case, device, **given)
    if reading == "kernel":
        case.fused(**passed)
    elif reading == "reference":
        bound = signature.bind(
            tuple(passed[name] for name in signature.tensors),
            tuple(passed[name] for name in signature.scalars),
        )
        case.operator.run_reference(passed, bound)
    else:
        known = inspect.signature(case.eager).parameters
        case.eager(**{name: value for name, value in passed.items() if name in known})
    written = [name for name, declared in signature.tensors.items() if declared.mode != "in"]
    return {name: passed[name].tolist() for name in written}


def dspark(group: str) -> Any:
    """The test case of a group of the committed package."""
    return importlib.import_module(f"generated.dspark.tests.test_{group}").CASE
