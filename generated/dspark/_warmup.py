"""Builds every variant of a package's kernels that a deployment needs, before it is needed.

Needs torch alone. A variant is a group with its static sizes and scalars, and with which of its optional
tensors are given; nothing else of a call compiles anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ._launch import freeze
from ._runtime import LIMITS, KgenCallError, Signature, SizeArg, Values


def warm(
    groups: dict[str, tuple[Signature, Callable[..., None]]],
    device: torch.device | str,
    static: dict[str, int | list[int]],
) -> dict[str, int]:
    """Launch each variant of each group once on tiny tensors of its own; group -> how many variants.

    Args:
        groups: each group's signature and function.
        device: where the deployment runs.
        static: static size or scalar -> its value, or a list of values, which are all combined.

    Raises:
        KgenCallError: a name that is no static size or scalar of any group.
    """
    names = {name for signature, _ in groups.values() for name in _static(signature)}
    unknown = [name for name in static if name not in names]
    if unknown:
        raise KgenCallError(
            f"warmup: `{unknown[0]}` is no static size or scalar; there is {', '.join(sorted(names))}"
        )
    done: dict[str, int] = {}
    for group, (signature, function) in groups.items():
        optional = [name for name, tensor in signature.tensors.items() if tensor.optional]
        for fixed in _variants(signature, static):
            values = _values(signature, fixed)
            if values is None:
                continue
            for count in range(len(optional) + 1):
                for given in itertools.combinations(optional, count):
                    function(**_arguments(signature, values, given, torch.device(device)))
                    done[group] = done.get(group, 0) + 1
    return done


def no_jit(enable: bool = True) -> None:
    """Make a later launch of a variant that was not launched before an error, instead of compiling it."""
    freeze(enable)


def _static(signature: Signature) -> dict[str, bool]:
    """The static names of a group that a caller chooses, and whether they have a default."""
    found = {name: name in signature.defaults for name, s in signature.scalars.items() if s.static}
    sizes = {n: False for n, s in signature.sizes.items() if s.static and s.derived is None}
    return found | sizes


def _variants(signature: Signature, static: dict[str, int | list[int]]) -> Iterator[Values]:
    """Every combination of a group's static values; none if one was not said."""
    choices: list[list[tuple[str, int]]] = []
    for name, spare in _static(signature).items():
        said = static.get(name, [])
        values = list(said) if isinstance(said, list | tuple) else [said]
        if spare:
            values = list(dict.fromkeys([*values, signature.defaults[name]({})]))
        choices.append([(name, value) for value in values])
    for chosen in itertools.product(*choices):
        yield dict(chosen)


def _values(signature: Signature, fixed: Values) -> Values | None:
    """The least sizes with something to do, and scalars; None if the fixed ones are out of range."""
    values: Values = {}
    for name in signature.order:
        declared = signature.declared(name)
        if isinstance(declared, SizeArg) and declared.derived is not None:
            values[name] = declared.derived(values)
            continue
        low, high = declared.ends(values)
        wanted = fixed.get(name, max(low, min(1, high)))
        if not low <= wanted <= high:
            return None
        values[name] = wanted
    return values


def _arguments(
    signature: Signature, values: Values, given: tuple[str, ...], device: torch.device
) -> dict[str, Any]:
    arguments: dict[str, Any] = {name: values[name] for name in signature.scalars}
    for name, tensor in signature.tensors.items():
        if tensor.optional and name not in given:
            continue
        low, high = tensor.values.ends(values, *LIMITS.get(tensor.dtype, (0, 0)))
        shape = [dim(values) for dim in tensor.dims]
        fill = max(low, min(0, high))
        made = [
            torch.full(shape, fill, dtype=tensor.dtype, device=device)
            for _ in range(tensor.length(values) if tensor.length is not None else 1)
        ]
        arguments[name] = made if tensor.length is not None else made[0]
    return arguments
