"""Checks a call against a group's signature before anything is written.

Needs only torch. A `Signature` repeats the spec's declarations; `bind` reads the sizes off the shapes and
verifies everything that the host can see. What tensors hold is not looked at: nothing here synchronizes
with a device.
"""

from __future__ import annotations

import inspect
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch

from ._dtypes import ELEMENTS, ElementType
from ._overlap import may_overlap, overlaps_itself

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, row.torch) for name, row in ELEMENTS.items()}
# The least and the greatest value of a type that is not a float.
LIMITS = {DTYPES[name]: row.limits for name, row in ELEMENTS.items() if row.limits is not None}
_SIZE_LIMIT = 2**31 - 1
BY_FUNC = "torch.func (vmap, grad, functionalize) can't see into a kernel"


# Sizes and scalars by name.
Values = dict[str, Any]


class KgenCallError(ValueError):
    """A generated function was called wrongly; nothing was written."""


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


def _cast(row: ElementType) -> Callable[[Any], Any]:
    """A conversion in a size expression; one to integers keeps whole numbers of any length."""
    if row.kind == "float":
        return lambda value: torch.tensor(value, dtype=DTYPES[row.name], device="cpu").item()
    return bool if row.kind == "bool" else int


_FUNCTIONS: dict[str, Any] = {
    "__builtins__": {},
    **{name: _cast(row) for name, row in ELEMENTS.items()},
    "min": min,
    "max": max,
    "abs": abs,
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

    @property
    def wanted(self) -> str:
        """What the argument must be, in words."""
        return f"{'a list of tensors' if self.length is not None else 'a tensor'} {self.type}"


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
        row = ELEMENTS["i64" if self.static else self.type]
        self.float = row.kind == "float"
        self._limits = row.limits or (-math.inf, math.inf)

    @property
    def wanted(self) -> str:
        """What the argument must be, in words."""
        return f"{'a float' if self.float else 'an int'} ({self.text})"

    def ends(self, values: Values) -> tuple[Any, Any]:
        """The least and the greatest legal value; of a float as its type holds them."""
        low, high = self.values.ends(values, *self._limits)
        return (
            (_FUNCTIONS[self.type](low), _FUNCTIONS[self.type](high)) if self.float else (low, high)
        )


class Signature:
    """The parameters of a group, and the check of a call."""

    def __init__(
        self,
        group: str,
        *,
        sizes: dict[str, str],
        tensors: dict[str, TensorArg],
        scalars: dict[str, str] | None = None,
        defaults: dict[str, str] | None = None,
        when: str = "",
    ) -> None:
        self.group = group
        self.sizes = {name: SizeArg(text) for name, text in sizes.items()}
        self.scalars = {name: ScalarArg(text) for name, text in (scalars or {}).items()}
        self.tensors = tensors
        self.defaults = {name: Expr(text) for name, text in (defaults or {}).items()}
        self.when = Expr(when) if when else None
        self.order = self._ordered()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of a call's arguments, those that may be left out last."""
        spare = {name for name, tensor in self.tensors.items() if tensor.optional}
        names = (*self.tensors, *self.scalars)
        return tuple(sorted(names, key=lambda name: name in spare or name in self.defaults))

    def bind(self, tensors: tuple[object, ...], scalars: tuple[object, ...]) -> Values:
        """The sizes and scalars of a call by name, once it is known to be right.

        Args:
            tensors: the tensor arguments, in the order of the signature; None for one that is left out.
            scalars: the scalar arguments, likewise.

        Raises:
            KgenCallError: an argument does not fit the spec's declarations.
        """
        given: list[tuple[str, TensorArg, torch.Tensor]] = []
        found: dict[str, tuple[int, str]] = {}
        for (name, declared), argument in zip(self.tensors.items(), tensors, strict=True):
            if argument is None and declared.optional:
                continue
            each = self._elements(name, declared, argument)
            given += each
            for shown, _, tensor in each:
                for dim, size in zip(declared.dims, tensor.shape, strict=True):
                    self._bind_size(dim.text, size, shown, declared, found)
            if declared.length is not None:
                self._bind_size(declared.length.text, len(each), name, declared, found)
        sizes = {name: size for name, (size, _) in found.items()}
        seen = [
            (expr, size)
            for _, arg, tensor in given
            for expr, size in zip(arg.dims, tensor.shape, strict=True)
        ]
        values = self._numbers(sizes, scalars, seen)
        for shown, declared, tensor in given:
            self._shape(shown, declared, tensor, values)
        for (name, declared), argument in zip(self.tensors.items(), tensors, strict=True):
            self._length(name, declared, argument, values)
        self._devices(given)
        self._overlaps(given)
        return values

    def runs(self, values: Values) -> bool:
        """Whether the spec's `when` holds, so that there is something to do."""
        return self.when is None or bool(self.when(values))

    def fail(self, message: str) -> KgenCallError:
        """An error that names the group."""
        return KgenCallError(f"{self.group}: {message}")

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

    def _numbers(
        self, values: Values, scalars: tuple[object, ...], seen: list[tuple[Expr, int]]
    ) -> Values:
        """The sizes and scalars, given the sizes that shapes say, and what each dimension is."""
        for (name, scalar), value in zip(self.scalars.items(), scalars, strict=True):
            if value is not None or name not in self.defaults:
                values[name] = self._number(name, scalar, value)
        self._solve(values, seen)
        for name in self.order:
            declared = self.declared(name)
            if isinstance(declared, SizeArg) and declared.derived is not None:
                self._derived(name, declared.derived, values)
                continue
            if name not in values and name in self.defaults:
                values[name] = self.defaults[name](values)
            self._range(name, declared, values)
        return values

    def _solve(self, values: Values, seen: list[tuple[Expr, int]]) -> None:
        """Read the sizes that no given tensor has alone off numbers made of them, `2 * half`.

        Whether these really are what their expressions say is checked with all the others.
        """
        derived = [
            (e.derived, values[n]) for n, e in self.sizes.items() if e.derived and n in values
        ]
        known = [*derived, *seen]
        wanted = [n for n, e in self.sizes.items() if e.derived is None and n not in values]
        for _ in wanted:  # one may take another
            for expr, number in known:
                missing = [name for name in expr.names if name not in values]
                if len(missing) == 1 and missing[0] in wanted:
                    at_0, at_1 = (expr(values | {missing[0]: at}) for at in (0, 1))
                    if at_0 != at_1:
                        values[missing[0]] = (number - at_0) // (at_1 - at_0)

    def _elements(
        self, name: str, declared: TensorArg, argument: object
    ) -> list[tuple[str, TensorArg, torch.Tensor]]:
        """The tensors of an argument, with the names that errors call them by."""
        if argument is None:
            raise self.fail(f"`{name}` is missing; it must be {declared.wanted}")
        if declared.length is None:
            return [(name, declared, self._tensor(name, declared, argument))]
        if not isinstance(argument, list | tuple) or not argument:
            kind = "empty" if isinstance(argument, list | tuple) else type(argument).__name__
            raise self.fail(f"`{name}` must be {declared.wanted}; it is {kind}")
        names = [f"{name}[{at}]" for at in range(len(argument))]
        return [
            (shown, declared, self._tensor(shown, declared, each))
            for shown, each in zip(names, argument, strict=True)
        ]

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
            raise self.fail(
                f"the size `{size_name}` is {known} in `{other}` and {size} in `{holder}` "
                f"({declared.type}); they must agree"
            )

    def _tensor(self, name: str, declared: TensorArg, tensor: object) -> torch.Tensor:
        if not isinstance(tensor, torch.Tensor):
            raise self.fail(
                f"`{name}` must be a tensor {declared.type}; it is {type(tensor).__name__}"
            )
        try:
            self._dense(name, declared, tensor)
        except (RuntimeError, ValueError) as error:
            if isinstance(error, KgenCallError):
                raise
            raise self.fail(f"`{name}` can't be looked at: {error}") from error
        return tensor

    def _dense(self, name: str, declared: TensorArg, tensor: torch.Tensor) -> None:
        """Check what one tensor is by itself, and that its values are in memory."""
        if tensor.dtype != declared.dtype:
            raise self.fail(
                f"`{name}` has dtype {tensor.dtype}, but {declared.type} needs {declared.dtype}; "
                f"convert it before the call"
            )
        if tensor.layout != torch.strided or tensor.is_nested:
            kind = "nested" if tensor.is_nested else f"of layout {tensor.layout}"
            raise self.fail(f"`{name}` is {kind}; pass a dense tensor")
        if tensor.dim() != len(declared.dims):
            raise self.fail(
                f"`{name}` has shape {list(tensor.shape)}, but {declared.type} has "
                f"{len(declared.dims)} dimensions"
            )
        self.held(name, tensor)
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # noqa: SLF001
            raise self.fail(f"`{name}` is wrapped, and {BY_FUNC}; call it outside of that")
        if not tensor.numel() or tensor.device.type == "meta":
            return
        address = _address(tensor)
        if not address:
            raise self.fail(
                f"`{name}` has no memory of its own (it is a {type(tensor).__name__}); pass a plain tensor"
            )
        if address % tensor.element_size():
            raise self.fail(
                f"`{name}` is at the address {address:#x}, which is not a multiple of the "
                f"{tensor.element_size()} bytes of an element; pass a copy"
            )
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in steps)
        end = (last + 1) * tensor.element_size()
        if end > tensor.untyped_storage().nbytes():
            raise self.fail(f"`{name}` needs {end} bytes of its storage, which has fewer")

    def held(self, name: str, tensor: torch.Tensor) -> None:
        """Refuse a tensor whose memory holds other values than its own."""
        if tensor.is_neg():
            raise self.fail(f"`{name}` is a negated view; pass `{name}.resolve_neg()`")
        if tensor.is_conj():
            raise self.fail(f"`{name}` is a conjugated view; pass `{name}.resolve_conj()`")

    def _number(self, name: str, declared: ScalarArg, value: object) -> float:
        if value is None:
            raise self.fail(f"`{name}` is missing; it must be {declared.wanted}")
        problem = f"`{name}` must be {declared.wanted}; it is {type(value).__name__}"
        if isinstance(value, bool | torch.Tensor):
            raise self.fail(problem)
        try:
            if not declared.float:
                return operator.index(value)  # type: ignore[arg-type]
            number = float(value if isinstance(value, float) else operator.index(value))  # type: ignore[arg-type]
        except (TypeError, OverflowError):
            raise self.fail(problem) from None
        rounded: float = _FUNCTIONS[declared.type](number)  # as the kernel is given it
        if math.isinf(rounded) and not math.isinf(number):
            raise self.fail(f"the scalar `{name}` is {number}, which no {declared.type} can hold")
        return rounded

    def _derived(self, name: str, expr: Expr, values: Values) -> None:
        value = expr(values)
        if values.setdefault(name, value) != value:
            parts = [f"{n} = {values[n]} in {self._holders(n)}" for n in self.sources(name)]
            raise self.fail(
                f"the size `{name}` is {values[name]} in {self._holders(name)}, but {expr.text} is "
                f"{value}: {'; '.join(parts)}"
            )

    def sources(self, name: str) -> list[str]:
        """The sizes read off shapes that a derived size is made of."""
        declared = self.declared(name)
        if not isinstance(declared, SizeArg) or declared.derived is None:
            return [name]
        return [source for need in sorted(self._needs(name)) for source in self.sources(need)]

    def _holders(self, size: str) -> str:
        holders = [
            f"`{tensor}`"
            for tensor, arg in self.tensors.items()
            if any(dim.text == size for dim in arg.dims)
        ]
        return ", ".join(holders or self._made_of(size)) or "the call"

    def _made_of(self, size: str) -> list[str]:
        """The tensors with a dimension that is made of a size."""
        return [
            f"`{tensor}`"
            for tensor, arg in self.tensors.items()
            if any(size in self.sources(used) for d in arg.dims for used in d.names & {*self.sizes})
        ]

    def _range(self, name: str, declared: SizeArg | ScalarArg, values: Values) -> None:
        low, high = declared.ends(values)
        if not low <= values[name] <= high:
            what = "the size" if isinstance(declared, SizeArg) else "the scalar"
            text = f" ({declared.values.text})" if declared.values.text else ""
            raise self.fail(
                f"{what} `{name}` is {_shown(values[name])}, but must be in {low} .. {high}{text}"
            )

    def _shape(self, name: str, declared: TensorArg, tensor: torch.Tensor, values: Values) -> None:
        wanted = [dim(values) for dim in declared.dims]
        if list(tensor.shape) != wanted:
            alone = {
                dim.text for arg in self.tensors.values() for dim in arg.dims if not arg.optional
            }
            told = {k: "" if k in alone or s.derived else k for k, s in self.sizes.items()}
            sizes = [
                f"{k} = {v}" + (f" in {', '.join(self._made_of(k))}" if told[k] else "")
                for k, v in values.items()
                if k in told
            ]
            raise self.fail(
                f"`{name}` has shape {list(tensor.shape)}, but {declared.type} is {wanted} here; "
                f"sizes: {', '.join(sizes)}"
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
                raise self.fail(
                    f"`{name}` has stride {stride} in dimension {dim}, but layout "
                    f"`{declared.layout}` needs {need}; pass a contiguous copy, or declare "
                    "`layout: any` in the spec"
                )
            if size > 1 and stride == 0 and declared.mode != "in":
                raise self.fail(f"`{name}` is written, but its dimension {dim} is an expanded one")
            dense *= size
        if declared.mode != "in" and overlaps_itself(tensor):
            raise self.fail(
                f"`{name}` is written, but its elements share memory: it has shape "
                f"{list(tensor.shape)} and strides {list(tensor.stride())}; pass a tensor whose "
                "elements do not overlap"
            )

    def _length(self, name: str, declared: TensorArg, argument: object, values: Values) -> None:
        if declared.length is None or argument is None:
            return
        count, wanted = len(argument), declared.length(values)  # type: ignore[arg-type]
        if count != wanted:
            raise self.fail(f"`{name}` has {count} tensors, but {declared.length.text} is {wanted}")

    def _devices(self, given: list[tuple[str, TensorArg, torch.Tensor]]) -> None:
        first, _, one = given[0]
        for name, _, tensor in given:
            if tensor.device != one.device:
                raise self.fail(
                    f"`{name}` is on {tensor.device}, `{first}` on {one.device}; "
                    "all tensors of a call must be on one device"
                )

    def _overlaps(self, given: list[tuple[str, TensorArg, torch.Tensor]]) -> None:
        if given[0][2].device.type == "meta":  # there is no memory
            return
        for at, (name, declared, tensor) in enumerate(given):
            for other, kind, second in given[at + 1 :]:
                written = declared.mode != "in" or kind.mode != "in"
                if written and may_overlap(tensor, second):
                    raise self.fail(
                        f"`{name}` and `{other}` share memory, and one of them is written; pass "
                        "tensors that do not overlap"
                    )


def _shown(number: float) -> str:
    """A number in words; a very long one is not written out."""
    if isinstance(number, int) and number.bit_length() > 128:
        return f"{'-' * (number < 0)}2**{number.bit_length() - 1} or so"
    return str(number)


def _address(tensor: torch.Tensor) -> int:
    """Where a tensor's elements are; 0 if nowhere."""
    try:  # without memory a tensor's own address is its offset
        return int(tensor.data_ptr()) if tensor.untyped_storage().data_ptr() else 0
    except RuntimeError:
        return 0


def chained(*functions: Callable[..., object]) -> Callable[..., None]:
    """Functions one after the other as one, each called with those of the arguments that it takes."""
    parameters: dict[str, inspect.Parameter] = {}
    takes = [inspect.signature(function).parameters for function in functions]
    for each in (each for taken in takes for each in taken.values()):
        if each.name not in parameters or each.default is each.empty:  # one needs it
            parameters[each.name] = each

    def run(**arguments: object) -> None:
        for function, taken in zip(functions, takes, strict=True):
            function(**{name: each for name, each in arguments.items() if name in taken})

    run.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
    return run


def without(function: Callable[..., object], *names: str) -> Callable[..., object]:
    """A function that does not take some of its optional arguments."""

    def run(**arguments: object) -> object:
        return function(**arguments)

    kept = [p for p in inspect.signature(function).parameters.values() if p.name not in names]
    run.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
    return run


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
