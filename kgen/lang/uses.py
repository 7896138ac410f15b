"""What a group declares in vain: names that nothing uses, tensors that nothing stores to, unbound sizes.

In: a `GroupSpec`, its names and what they are declared as. Out: diagnostics.
"""

from __future__ import annotations

from collections.abc import Mapping

from kgen.diagnostics import Report
from kgen.lang import syntax
from kgen.lang.host import is_derived
from kgen.lang.infer import Scope
from kgen.lang.syntax import Item, Name
from kgen.lang.text import spec_text
from kgen.lang.typed import Const, Op, Param, Size, Tensor, Value, walk
from kgen.spec.located import Text
from kgen.spec.model import GroupSpec

# Mistakes after which a part is not read, which may use anything.
_UNREAD = ("bad-syntax", "unsupported-syntax", "bad-type", "bad-range")


def check_uses(
    spec: GroupSpec,
    scope: Scope,
    tensors: Mapping[str, Tensor | None],
    sizes: Mapping[str, Size | None],
) -> None:
    """Report what nothing uses, `out` tensors that nothing stores to, sizes that no tensor has."""
    report, used = scope.report, scope.used
    if any(each.code in _UNREAD for each in report.diagnostics):
        return  # what could not be read may use anything
    _check_bound(spec, scope, tensors, sizes)
    kinds: list[tuple[str, Text]] = [("scalar", each.name) for each in spec.scalars]
    kinds += [("index", name) for name, _ in spec.indices]
    kinds += [("let", name) for name, _ in spec.lets]
    kinds += [("mask", name) for name, _ in spec.masks]
    kinds += [("tensor", each.name) for each in spec.tensors if each.mode == "in"]
    for kind, name in kinds:
        if name.value not in used:
            report.add("unused", name.span, f"nothing uses the {kind} `{name.value}`", "remove it")
    stored = {expr.base.id for each in spec.stores if (expr := _target(each.target))}
    for name_text, tensor in tensors.items():
        if tensor is not None and tensor.written and name_text not in stored:
            report.add(
                "not-stored",
                tensor.span,
                f"nothing stores to the `{tensor.mode}` tensor `{name_text}`",
                "add a line under `store`, or make it an `in` tensor",
            )


def _check_bound(
    spec: GroupSpec,
    scope: Scope,
    tensors: Mapping[str, Tensor | None],
    sizes: Mapping[str, Size | None],
) -> None:
    """Report sizes that can't be read off the shapes of tensors that are always given."""
    found = {
        (item.id, name in scope.optional)
        for name, known in scope.tensors.items()
        for item in (known[1] if known else ())
        if isinstance(item, Name)
    }
    given = {name for name, spare in found if not spare}
    dims = [
        (f"`{each.name}` has a dimension `{spec_text(dim)}`", dim)
        for each in tensors.values()
        if each is not None and not each.optional
        for dim in each.shape
    ]
    made = [dim for _, dim in dims]
    made += [s.derived for n, s in sizes.items() if s and s.derived is not None and n in given]
    given |= {each.name.value for each in spec.scalars if each.default is None}
    asked = {name.value: name for name, text in spec.sizes if not is_derived(text)}
    while new := {n for value in made if (n := _given_by(value, given)) in asked}:
        given |= new
    for name in (each for each in asked.values() if each.value not in given):
        if name.value not in scope.used:
            scope.report.add("unused", name.span, f"nothing uses the size `{name.value}`")
            continue
        param = Param(name.value, scope.params[name.value])
        derive = f"declare that as a size, and derive `{name.value}` from it"
        ways = [f"{said}: {derive}" for said, dim in dims if param in walk(dim, {})][:1]
        if not ways and (name.value, True) in found:
            ways = ["let a tensor that is always given have it"]
        scalar = "a static scalar" if param.dtype == "int" else "a scalar"
        ways.append(f"make it {scalar}, which the caller passes")
        scope.report.add(
            "unbound-size",
            name.span,
            f"only optional tensors have a dimension `{name.value}`"
            if (name.value, True) in found
            else f"no tensor has a dimension that is just `{name.value}`",
            "; or ".join(ways),
        )


def _target(text: Text) -> Item | None:
    expr = syntax.parse(text, Report())
    return expr if isinstance(expr, Item) else None


def _given_by(value: Value, known: set[str]) -> str:
    """The size that follows from a number made of it and of what is known, `2 * half`; else nothing."""
    missing = {each.name for each in walk(value, {}) if isinstance(each, Param)} - known
    return min(missing) if len(missing) == 1 and _factor(value, min(missing)) else ""


def _factor(value: Value, name: str) -> int | None:
    """The number that a size is multiplied by in a sum; None where it is anything else."""
    match value:
        case Param(found):
            return int(found == name)
        case Op("add" | "sub" as op, (a, b)):
            one, two = _factor(a, name), _factor(b, name)
            return (
                one + (two if op == "add" else -two)
                if one is not None and two is not None
                else None
            )
        case Op("mul", (Const(number), other) | (other, Const(number))):
            inner = _factor(other, name)
            return int(number) * inner if inner is not None else None
    named = any(each == Param(name, each.dtype) for each in walk(value, {}))
    return None if named else 0
