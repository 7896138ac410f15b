"""Launches kernels and registers operators.

Needs torch and triton.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
import triton

from ._runtime import KgenCallError

# How often each variant was launched: kernel, device and compile-time arguments. While `_frozen` no
# other is compiled.
_variants: dict[tuple[object, ...], int] = {}
_frozen = False

# A library's operators live as long as the library object.
_libraries: dict[str, torch.library.Library] = {}


def interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter."""
    if hasattr(triton, "knobs"):  # from Triton 3.4 on
        return bool(triton.knobs.runtime.interpret)
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


def runs_kernels(device: torch.device) -> bool:
    """Whether kernels run on this device; the torch reference does elsewhere."""
    return device.type != "cpu" or interpreted()


def freeze(enable: bool) -> None:
    """Refuse variants that were not launched before, or no longer."""
    global _frozen  # noqa: PLW0603
    _frozen = enable


def launches() -> int:
    """How many launches there were."""
    return sum(_variants.values())


def launch(  # type: ignore[no-untyped-def]
    kernel,  # noqa: ANN001
    programs: int,
    device: torch.device,
    *args: object,
    **options: object,
) -> None:
    """Launch `programs` programs of a kernel on a device.

    Raises:
        KgenCallError: the variant was not launched before, and `no_jit` forbids to compile it.
    """
    if programs <= 0:
        return
    variant = (kernel, device, *options.values())
    if _frozen and variant not in _variants:
        static = ", ".join(f"{name}={value}" for name, value in options.items())
        raise KgenCallError(
            f"{kernel.__name__.removesuffix('_kernel')}: no variant for {static} was launched "
            "before no_jit(); add its static sizes to warmup(...)"
        )
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            kernel[(programs,)](*args, **options, enable_fp_fusion=False)
    else:
        kernel[(programs,)](*args, **options, enable_fp_fusion=False)
    _variants[variant] = _variants.get(variant, 0) + 1


def define(namespace: str, schema: str, function: Callable[..., None]) -> Callable[..., None]:
    """Register `function` as an operator that torch.compile treats as opaque; the operator.

    A second copy of the same package (the namespace holds the specs' hash) uses the first one's.
    """
    name = schema.split("(", 1)[0]
    if namespace not in _libraries:
        _libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
    if not hasattr(getattr(torch.ops, namespace), name):
        library = _libraries[namespace]
        library.define(schema)
        library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{namespace}::{name}", lambda *_: None, lib=library)
    return getattr(getattr(torch.ops, namespace), name).default  # type: ignore[no-any-return]
