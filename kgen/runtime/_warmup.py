"""Builds every variant of a package's kernels that a deployment needs, before it is needed.

Needs torch and triton. A variant is a group with its static sizes and scalars, with which of its optional
tensors are given, with whether the tensors of its lists have the same strides, and with the widths of its
blocks, which follow from the sizes of a call; nothing else of a call compiles anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from ._launch import Widths, freeze, launches, runs_kernels
from ._operator import Operator
from ._runtime import LIMITS, KgenCallError, Signature, SizeArg, TensorArg, Values

# Run-time sizes are at least so large, the first with which something is launched.
_LEAST = (1, 2, 3, 5, 9, 17, 65, 129)
# What sizes may be, as far as the widths of blocks depend on them.
_SIZES = (0, 1, *(2**power for power in range(3, 17)))


def warm(
    groups: dict[str, Operator],
    device: torch.device | str,
    said_sizes: dict[str, int | list[int]],
) -> dict[str, int]:
    """Launch each variant of each group once on tiny tensors of its own; group -> how many variants.

    Args:
        groups: each group's operator.
        device: where the deployment runs.
        said_sizes: static size or scalar -> its value, or a list of values, which are all combined. Of a
            run-time one likewise; left out, it may be anything.

    Raises:
        KgenCallError: a name that is not a size or scalar of any group.
    """
    names = {name for operator in groups.values() for name in _static(operator.signature)}
    other = {n for operator in groups.values() for n in _running(operator.signature)} - names
    unknown = [name for name in said_sizes if name not in names | other]
    if unknown:
        raise KgenCallError(
            f"warmup: `{unknown[0]}` is not a static size or scalar; there is {', '.join(sorted(names))}"
        )
    static = {name: said for name, said in said_sizes.items() if name in names}
    running = {name: said for name, said in said_sizes.items() if name in other}
    for name, said in said_sizes.items():
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
                        kinds = (given, torch.device(device))
                        count_ = _launched(operator, fixed, running, *kinds, uneven=uneven)
                        if count_:
                            done[group] = done.get(group, 0) + count_
    if not done:
        raise KgenCallError(
            f"warmup: no group has all its static sizes among {', '.join(static) or 'nothing'}, each "
            f"in its range; there is {', '.join(sorted(names))}"
        )
    return done


def _launched(
    operator: Operator,
    fixed: Values,
    running: dict[str, int | list[int]],
    given: tuple[str, ...],
    device: torch.device,
    *,
    uneven: bool,
) -> int:
    """How many variants were launched on small tensors, of the least sizes at which one is."""
    for least in _LEAST:
        values = _values(operator.signature, fixed, least)
        if values is None or not operator.signature.runs(values):
            continue
        arguments = _arguments(operator.signature, values, given, device, uneven=uneven)
        if arguments is None:
            return 0
        before = launches()
        operator(**arguments)
        if not runs_kernels(device):
            return 1
        if launches() > before:
            every = _widths(operator, fixed, running)
            for widths in every:
                operator.launch.run(
                    operator.launch.prepare(arguments, values, device, widths=widths), arguments
                )
            return len(every)
    return 0


def _widths(operator: Operator, fixed: Values, running: dict[str, int | list[int]]) -> list[Widths]:
    """The widths that calls may have, by the run-time sizes that they follow from."""
    launch, signature = operator.launch, operator.signature
    asked = {name for expr in launch.expressions for name in expr.names}
    names = [name for name in _running(signature) if name in asked]
    choices = [_listed(running[name]) if name in running else [*_SIZES] for name in names]
    found: list[Widths] = []
    for sizes in itertools.product(*choices):
        values = _values(signature, fixed, _SIZES[-1], dict(zip(names, sizes, strict=True)))
        if values is not None and launch.count(values) > 0:
            widths = launch.widths(values)
            found += [widths] if widths not in found else []
    return found


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
        values: list[int | None] = [*_listed(said)]
        choices.append([(name, value) for value in [*values, *([None] if spare else [])]])
    seen = []
    for chosen in itertools.product(*choices):
        fixed = {name: value for name, value in chosen if value is not None}
        if fixed not in seen:
            seen.append(fixed)
            yield fixed


def _listed(said: int | list[int]) -> list[int]:
    return [*said] if isinstance(said, list | tuple) else [said]


def _running(signature: Signature) -> list[str]:
    """The names of sizes and scalars that a caller chooses and that are not static."""
    own = {name for name, each in signature.sizes.items() if each.derived is None}
    names = [name for name in signature.order if name in own or name in signature.scalars]
    return [name for name in names if name not in _static(signature)]


def _values(
    signature: Signature, fixed: Values, least: int, others: Values | None = None
) -> Values | None:
    """Sizes of at least `least` where they may be, and scalars; None if a fixed one is out of range.

    `others`: what some of them are, as far as their ranges allow.
    """
    values: Values = {}
    for name in signature.order:
        declared = signature.declared(name)
        if isinstance(declared, SizeArg) and declared.derived is not None:
            values[name] = declared.derived(values)
            continue
        if name in signature.defaults and name not in fixed and name not in (others or {}):
            values[name] = signature.defaults[name](values)
            continue
        low, high = declared.ends(values)
        wanted = fixed.get(name, max(low, min((others or {}).get(name, least), high)))
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
