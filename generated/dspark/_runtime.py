"""Checks a call against a group's signature, cheaply, before anything is written.

Needs torch alone. A `Signature` repeats the spec's declarations; `bind` reads the sizes off the
shapes, verifies everything that the host can see, and remembers calls that passed. What tensors hold
is not looked at: nothing here synchronizes with a device.
"""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch

from ._overlap import may_overlap

DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
}
# The least and the greatest value of a type of integers.
LIMITS = {
    torch.bool: (0, 1),
    torch.uint8: (0, 255),
    torch.int32: (-(2**31), 2**31 - 1),
    torch.int64: (-(2**63), 2**63 - 1),
}
_LIMITS: dict[str, tuple[float, float]] = {
    "f32": (-math.inf, math.inf),
    "static": (-(2**63), 2**63 - 1),
    "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
}
_SIZE_LIMIT = 2**31 - 1
_REMEMBERED = 256


# Sizes and scalars by name.
Values = dict[str, Any]


class KgenCallError(ValueError):
    """A generated function was called wrongly; nothing was written."""


def lanes(extent: int) -> int:
    """The least power of two that is not below `extent` (nor below 1)."""
    return 1 << max(extent - 1, 0).bit_length()


def cdiv(a: int, b: int) -> int:
    """A / b rounded up."""
    return -(-a // b)


def addresses(tensors: list[torch.Tensor], limit: int) -> list[int]:
    """Where the tensors of a list begin, filled up with 0 to what the kernel takes."""
    found = [tensor.data_ptr() for tensor in tensors]
    return found + [0] * (limit - len(found))


def strides(tensors: list[torch.Tensor], dim: int, limit: int) -> list[int]:
    """The strides of the tensors of a list in one dimension, likewise."""
    found = [tensor.stride(dim) for tensor in tensors]
    return found + [0] * (limit - len(found))


@dataclass(frozen=True)
class Expr:
    """A size expression of the spec, evaluated on names."""

    text: str
    code: CodeType = field(init=False, compare=False)
    names: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        code = compile(self.text, "<spec>", "eval")
        object.__setattr__(self, "code", code)
        object.__setattr__(self, "names", frozenset(code.co_names) - {*_FUNCTIONS})

    def __call__(self, values: Values) -> int:
        """The value, given the sizes and scalars by name."""
        result: int = eval(self.code, _FUNCTIONS, values)  # noqa: S307 - generated text
        return result


_FUNCTIONS = {
    "__builtins__": {},
    "min": min,
    "max": max,
    "abs": abs,
    "i32": int,
    "i64": int,
    "u8": lambda value: int(value) & 255,
    "bool": bool,
    "f16": lambda value: torch.tensor(value, dtype=torch.float16).item(),
    "bf16": lambda value: torch.tensor(value, dtype=torch.bfloat16).item(),
    "f32": lambda value: torch.tensor(value, dtype=torch.float32).item(),
    "clamp": lambda value, low, high: max(min(value, high), low),
}


@dataclass(frozen=True)
class Range:
    """`low .. high`, both included, either of which may be missing."""

    text: str
    low: Expr | None = None
    high: Expr | None = None

    @staticmethod
    def parse(text: str) -> Range:
        """The range that a declaration writes."""
        low, _, high = text.partition("..")
        ends = [Expr(end.strip()) if end.strip() else None for end in (low, high)]
        return Range(text.strip(), ends[0], ends[1])

    def ends(self, values: Values, least: float, most: float) -> tuple[Any, Any]:
        """The two ends in numbers, within `least .. most`."""
        low = self.low(values) if self.low is not None else least
        high = self.high(values) if self.high is not None else most
        return max(low, least), min(high, most)


class TensorArg:
    """A tensor parameter: `type` as in the spec (`i32[batch, K1]`), and how the group uses it."""

    def __init__(
        self,
        type: str,
        mode: str = "in",
        values: str = "",
        distinct: str = "",
        layout: str = "rows",
        length: str = "",
        *,
        optional: bool = False,
        expected: str = "",
    ) -> None:
        name, inner = type.removesuffix("]").split("[", 1)
        self.type, self.mode, self.layout = type, mode, layout
        self.length = Expr(length) if length else None
        self.optional = optional
        self.dtype = DTYPES[name]
        self.dims = tuple(Expr(dim.strip()) for dim in split_list(inner))
        self.values, self.expected = Range.parse(values), Range.parse(expected)
        self.distinct = bool(distinct)
        self.repeats = Expr(distinct.removeprefix("except ")) if "except" in distinct else None


class SizeArg:
    """A size: `low .. high`, `static low .. high`, or an expression of other sizes."""

    def __init__(self, text: str) -> None:
        self.static = text.startswith("static")
        self.text = text
        text = text.removeprefix("static").strip()
        derived = bool(text) and ".." not in text
        self.derived = Expr(text) if derived else None
        self.values = Range.parse("" if derived else text)

    def ends(self, values: Values) -> tuple[int, int]:
        """The least and the greatest legal value."""
        return self.values.ends(values, 0, _SIZE_LIMIT)


class ScalarArg:
    """A number: `i32 low .. high`, `i64 ...` or `static ...`."""

    def __init__(self, text: str) -> None:
        self.type, _, values = text.partition(" ")
        self.static = self.type == "static"
        self.text = text
        self.values = Range.parse(values)

    def ends(self, values: Values) -> tuple[Any, Any]:
        """The least and the greatest legal value."""
        return self.values.ends(values, *_LIMITS[self.type])


class Signature:
    """The parameters of a generated function, and the check of its calls."""

    def __init__(
        self,
        group: str,
        *,
        sizes: dict[str, str],
        scalars: dict[str, str],
        tensors: dict[str, TensorArg],
        defaults: dict[str, str] | None = None,
        when: str = "",
    ) -> None:
        self.group = group
        self.sizes = {name: SizeArg(text) for name, text in sizes.items()}
        self.scalars = {name: ScalarArg(text) for name, text in scalars.items()}
        self.tensors = tensors
        self.defaults = {name: Expr(text) for name, text in (defaults or {}).items()}
        self.when = Expr(when) if when else None
        self.order = self._ordered()
        self._passed: dict[tuple[object, ...], Values] = {}

    def bind(self, tensors: tuple[object, ...], scalars: tuple[object, ...]) -> Values:
        """The sizes and scalars of a call by name, once it is known to be right.

        Args:
            tensors: the tensor arguments, in the order of the signature.
            scalars: the scalar arguments, likewise.

        Raises:
            KgenCallError: an argument does not fit the spec's declarations.
        """
        key = _key(tensors, scalars)
        known = self._passed.get(key)
        if known is not None:
            return known
        values = self._check(tensors, scalars)
        if len(self._passed) >= _REMEMBERED:
            self._passed.clear()
        self._passed[key] = values
        return values

    def runs(self, values: Values) -> bool:
        """Whether the spec's `when` holds, so that there is something to do."""
        return self.when is None or bool(self.when(values))

    def _ordered(self) -> tuple[str, ...]:
        """Sizes and scalars, each after those that its range is made of, static ones early."""
        waiting = {name: self._needs(name) for name in (*self.sizes, *self.scalars)}
        ordered: list[str] = []
        while waiting:
            ready = [name for name, needs in waiting.items() if needs <= set(ordered)]
            if not ready:
                raise ValueError(
                    f"{self.group}: ranges depend on each other in a circle: {[*waiting]}"
                )
            ready.sort(key=lambda name: not self.declared(name).static)
            ordered.append(ready[0])
            del waiting[ready[0]]
        return tuple(ordered)

    def declared(self, name: str) -> SizeArg | ScalarArg:
        """The declaration of a size or scalar."""
        return self.sizes[name] if name in self.sizes else self.scalars[name]

    def _needs(self, name: str) -> set[str]:
        declared = self.declared(name)
        derived = declared.derived if isinstance(declared, SizeArg) else None
        exprs = (declared.values.low, declared.values.high, derived, self.defaults.get(name))
        return {
            used
            for expr in exprs
            if expr is not None
            for used in re.findall(r"[A-Za-z_]\w*", expr.text)
            if used in self.sizes or used in self.scalars
        }

    def _fail(self, message: str) -> KgenCallError:
        return KgenCallError(f"{self.group}: {message}")

    def _check(self, tensors: tuple[object, ...], scalars: tuple[object, ...]) -> Values:
        given: dict[str, torch.Tensor] = {}
        values: Values = {}
        found: dict[str, tuple[int, str]] = {}
        for (name, declared), argument in zip(self.tensors.items(), tensors, strict=True):
            if argument is None and declared.optional:
                continue
            for shown, tensor in self._elements(name, declared, argument):
                given[shown] = self._tensor(shown, declared, tensor)
                for dim, size in zip(declared.dims, given[shown].shape, strict=True):
                    self._bind_size(dim.text, size, shown, declared, found)
            if declared.length is not None:
                count = len(argument)  # type: ignore[arg-type]
                self._bind_size(declared.length.text, count, name, declared, found)
        values = {name: size for name, (size, _) in found.items()}
        for (name, scalar), value in zip(self.scalars.items(), scalars, strict=True):
            if value is None and name in self.defaults:
                continue
            values[name] = self._number(name, scalar, value)
        for name in self.order:
            declared_number = self.declared(name)
            if isinstance(declared_number, SizeArg) and declared_number.derived is not None:
                self._derived(name, declared_number.derived, values)
                continue
            if name not in values and name in self.defaults:
                values[name] = self.defaults[name](values)
            self._range(name, declared_number, values)
        for shown, tensor in given.items():
            name = shown.split("[")[0]
            self._shape(shown, self.tensors[name], tensor, values)
        for name, declared in self.tensors.items():
            if declared.length is not None and f"{name}[{declared.length(values)}]" in given:
                raise self._fail(f"`{name}` has more tensors than {declared.length.text}")
        self._devices(given)
        self._overlaps(given)
        return values

    def _elements(
        self, name: str, declared: TensorArg, argument: object
    ) -> list[tuple[str, object]]:
        """The tensors of an argument, with the names that errors call them by."""
        if declared.length is None:
            return [(name, argument)]
        if not isinstance(argument, list | tuple) or not argument:
            kind = type(argument).__name__
            raise self._fail(f"`{name}` must be a list of tensors {declared.type}; it is {kind}")
        return [(f"{name}[{at}]", tensor) for at, tensor in enumerate(argument)]

    def _bind_size(
        self,
        size_name: str,
        size: int,
        holder: str,
        declared: TensorArg,
        found: dict[str, tuple[int, str]],
    ) -> None:
        if size_name not in self.sizes:
            return
        known, other = found.setdefault(size_name, (size, holder))
        if known != size:
            raise self._fail(
                f"the size `{size_name}` is {known} in `{other}` and {size} in `{holder}` "
                f"({declared.type}); they must agree"
            )

    def _tensor(self, name: str, declared: TensorArg, tensor: object) -> torch.Tensor:
        if not isinstance(tensor, torch.Tensor):
            raise self._fail(
                f"`{name}` must be a tensor {declared.type}; it is {type(tensor).__name__}"
            )
        if tensor.dtype != declared.dtype:
            raise self._fail(
                f"`{name}` has dtype {tensor.dtype}, but {declared.type} needs {declared.dtype}; "
                f"convert it before the call"
            )
        if tensor.dim() != len(declared.dims):
            raise self._fail(
                f"`{name}` has shape {list(tensor.shape)}, but {declared.type} has "
                f"{len(declared.dims)} dimensions"
            )
        return tensor

    def _number(self, name: str, declared: ScalarArg, value: object) -> float:
        wanted = "a float" if declared.type == "f32" else "an int"
        problem = f"`{name}` must be {wanted} ({declared.text}); it is {type(value).__name__}"
        if isinstance(value, bool | torch.Tensor):
            raise self._fail(problem)
        if declared.type == "f32" and isinstance(value, float | int):
            return float(value)
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise self._fail(problem) from None

    def _derived(self, name: str, expr: Expr, values: Values) -> None:
        value = expr(values)
        if values.setdefault(name, value) != value:
            parts = [f"{n} = {values[n]} in {self._holders(n)}" for n in self._sources(name)]
            raise self._fail(
                f"the size `{name}` is {values[name]} in {self._holders(name)}, but {expr.text} is "
                f"{value}: {'; '.join(parts)}"
            )

    def _sources(self, name: str) -> list[str]:
        """The sizes read off shapes that a derived size is made of."""
        declared = self.declared(name)
        if not isinstance(declared, SizeArg) or declared.derived is None:
            return [name]
        return [source for need in sorted(self._needs(name)) for source in self._sources(need)]

    def _holders(self, size: str) -> str:
        holders = [
            f"`{tensor}`"
            for tensor, arg in self.tensors.items()
            if any(dim.text == size for dim in arg.dims)
        ]
        return ", ".join(holders)

    def _range(self, name: str, declared: SizeArg | ScalarArg, values: Values) -> None:
        low, high = declared.ends(values)
        if not low <= values[name] <= high:
            what = "the size" if isinstance(declared, SizeArg) else "the scalar"
            text = f" ({declared.values.text})" if declared.values.text else ""
            raise self._fail(
                f"{what} `{name}` is {values[name]}, but must be in {low} .. {high}{text}"
            )

    def _shape(self, name: str, declared: TensorArg, tensor: torch.Tensor, values: Values) -> None:
        wanted = [dim(values) for dim in declared.dims]
        if list(tensor.shape) != wanted:
            raise self._fail(
                f"`{name}` has shape {list(tensor.shape)}, but {declared.type} is {wanted} here; "
                f"sizes: {', '.join(f'{k} = {v}' for k, v in values.items() if k in self.sizes)}"
            )
        if tensor.numel() == 0:
            return
        dense = 1
        for dim in range(tensor.dim() - 1, -1, -1):
            size, stride = tensor.shape[dim], tensor.stride(dim)
            last = dim == tensor.dim() - 1
            need = dense if declared.layout == "contiguous" else 1
            fixed = declared.layout == "contiguous" or (declared.layout == "rows" and last)
            if size > 1 and fixed and stride != need:
                raise self._fail(
                    f"`{name}` has stride {stride} in dimension {dim}, but layout "
                    f"`{declared.layout}` needs {need}; pass a contiguous copy, or declare "
                    "`layout: any` in the spec"
                )
            if size > 1 and stride == 0 and declared.mode != "in":
                raise self._fail(f"`{name}` is written, but its dimension {dim} is an expanded one")
            dense *= size

    def _devices(self, given: dict[str, torch.Tensor]) -> None:
        first = next(iter(given))
        for name, tensor in given.items():
            if tensor.device != given[first].device:
                raise self._fail(
                    f"`{name}` is on {tensor.device}, `{first}` on {given[first].device}; "
                    "all tensors of a call must be on one device"
                )

    def _overlaps(self, given: dict[str, torch.Tensor]) -> None:
        names = list(given)
        for at, name in enumerate(names):
            for other in names[at + 1 :]:
                written = any(self.tensors[n.split("[")[0]].mode != "in" for n in (name, other))
                if written and may_overlap(given[name], given[other]):
                    raise self._fail(
                        f"`{name}` and `{other}` share memory, and one of them is written; pass "
                        "tensors that do not overlap"
                    )


def split_list(text: str) -> list[str]:
    """The parts of a comma-separated list, commas in brackets left alone."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += char in "([{"
        depth -= char in ")]}"
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]] if text.strip() else []


def _key(tensors: tuple[object, ...], scalars: tuple[object, ...]) -> tuple[object, ...]:
    """What a call's check depends on."""
    parts: list[object] = []
    for argument in tensors:
        several = isinstance(argument, list | tuple)
        for t in argument if several else (argument,):  # type: ignore[attr-defined]
            known = isinstance(t, torch.Tensor)
            parts.append((t.data_ptr(), t.shape, t.stride(), t.dtype, t.device) if known else id(t))
    # True == 1, but only one of them is a number here.
    return (*parts, *scalars, *map(type, scalars))
