"""Builds every variant of a package's kernels that a deployment needs, before it is needed.

Needs torch and triton. A variant is a group with its static sizes and scalars, with which of its optional
tensors are given, and with whether the tensors of its lists have the same strides; nothing else of a call
compiles anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from ._launch import freeze, launches, runs_kernels
from ._operator import Operator
from ._runtime import LIMITS, KgenCallError, Signature, SizeArg, TensorArg, Values

# Run-time sizes are at least so large, the first with which something is launched.
_LEAST = (1, 2, 3, 5, 9, 17, 65, 129)


def warm(
    groups: dict[str, Operator],
    device: torch.device | str,
    static: dict[str, int | list[int]],
) -> dict[str, int]:
    """Launch each variant of each group once on tiny tensors of its own; group -> how many variants.

    Args:
        groups: each group's operator.
        device: where the deployment runs.
        static: static size or scalar -> its value, or a list of values, which are all combined.

    Raises:
        KgenCallError: a name that is not a static size or scalar of any group.
    """
    names = {name for operator in groups.values() for name in _static(operator.signature)}
    unknown = [name for name in static if name not in names]
    if unknown:
        raise KgenCallError(
            f"warmup: `{unknown[0]}` is not a static size or scalar; there is {', '.join(sorted(names))}"
        )
    for name, said in static.items():
        for value in said if isinstance(said, list | tuple) else [said]:
            if isinstance(value, bool) or not isinstance(value, int):
                raise KgenCallError(f"warmup: `{name}` is an int or a list of them, not {said!r}")
    done: dict[str, int] = {}
    for group, operator in groups.items():
        tensors = operator.signature.tensors
        optional = [name for name, tensor in tensors.items() if tensor.optional]
        several = any(tensor.length is not None for tensor in tensors.values())
        for fixed in _variants(operator.signature, static):
            for count in range(len(optional) + 1):
                for given in itertools.combinations(optional, count):
                    for uneven in (False, True) if several else (False,):
                        if _launched(operator, fixed, given, torch.device(device), uneven=uneven):
                            done[group] = done.get(group, 0) + 1
    if not done:
        raise KgenCallError(
            f"warmup: no group has all its static sizes among {', '.join(static) or 'nothing'}, each "
            f"in its range; there is {', '.join(sorted(names))}"
        )
    return done


def _launched(
    operator: Operator, fixed: Values, given: tuple[str, ...], device: torch.device, *, uneven: bool
) -> bool:
    """Whether a call on small tensors has launched something; the least sizes at which one does."""
    for least in _LEAST:
        values = _values(operator.signature, fixed, least)
        if values is None or not operator.signature.runs(values):
            continue
        arguments = _arguments(operator.signature, values, given, device, uneven=uneven)
        if arguments is None:
            return False
        before = launches()
        operator(**arguments)
        if launches() > before or not runs_kernels(device):
            return True
    return False


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
    choices: list[list[tuple[str, int | None]]] = []
    for name, spare in _static(signature).items():
        said = static.get(name, [])
        values: list[int | None] = [*said] if isinstance(said, list | tuple) else [said]
        choices.append([(name, value) for value in [*values, *([None] if spare else [])]])
    seen = []
    for chosen in itertools.product(*choices):
        fixed = {name: value for name, value in chosen if value is not None}
        if fixed not in seen:
            seen.append(fixed)
            yield fixed


def _values(signature: Signature, fixed: Values, least: int) -> Values | None:
    """Sizes of at least `least` where they may be, and scalars; None if a fixed one is out of range."""
    values: Values = {}
    for name in signature.order:
        declared = signature.declared(name)
        if isinstance(declared, SizeArg) and declared.derived is not None:
            values[name] = declared.derived(values)
            continue
        if name in signature.defaults and name not in fixed:
            values[name] = signature.defaults[name](values)
            continue
        low, high = declared.ends(values)
        wanted = fixed.get(name, max(low, min(least, high)))
        if not low <= wanted <= high:
            return None
        values[name] = wanted
    return values


def _arguments(
    signature: Signature,
    values: Values,
    given: tuple[str, ...],
    device: torch.device,
    *,
    uneven: bool,
) -> dict[str, Any] | None:
    """The arguments of a call; None if no list can have tensors of different strides, as is wanted."""
    arguments: dict[str, Any] = {name: values[name] for name in signature.scalars}
    for name, tensor in signature.tensors.items():
        if tensor.optional and name not in given:
            continue
        made = [
            _tensor(tensor, values, device)
            for _ in range(tensor.length(values) if tensor.length is not None else 1)
        ]
        if uneven and len(made) > 1 and tensor.layout != "contiguous":
            made[-1] = _spread(made[-1], tensor)
        uneven = uneven and made[-1].stride() == made[0].stride()
        arguments[name] = made if tensor.length is not None else made[0]
    return None if uneven else arguments


def _tensor(tensor: TensorArg, values: Values, device: torch.device) -> torch.Tensor:
    low, high = tensor.values.ends(values, *LIMITS.get(tensor.dtype, (0, 0)))
    shape = [dim(values) for dim in tensor.dims]
    made = torch.full(shape, max(low, min(0, high)), dtype=tensor.dtype, device=device)
    if tensor.distinct:  # which debug mode looks at
        made = low + torch.arange(made.numel()).to(made).view(shape)
    return made


def _spread(tensor: torch.Tensor, declared: TensorArg) -> torch.Tensor:
    """A tensor of other strides."""
    wide = tensor.new_empty([*tensor.shape[:-1], 2 * tensor.shape[-1] + 1])
    step = 2 if declared.layout == "any" else 1
    wide[..., : step * tensor.shape[-1] : step] = tensor
    return wide[..., : step * tensor.shape[-1] : step]
