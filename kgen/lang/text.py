"""Typed values in the language of the specs, which reading gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from kgen.lang.code import Code, call, number, ternary
from kgen.lang.dtypes import LITERALS, exact
from kgen.lang.operators import OPERATORS
from kgen.lang.typed import (
    Cast,
    Const,
    Given,
    Index,
    Load,
    Op,
    Param,
    Reduce,
    Ref,
    Scan,
    Select,
    Value,
)

NO_NAMES: Mapping[str, str] = MappingProxyType({})


def spec_text(value: Value, names: Mapping[str, str] = NO_NAMES) -> Code:
    """A typed value in the language of the specs, casts written out; `names` are indices renamed."""

    def show(value: Value) -> Code:
        return spec_text(value, names)

    def operand(value: Value) -> Code:
        """Where a literal has no type of its own, and one that was cast has."""
        bare = not isinstance(value, Const) or value.dtype in LITERALS
        return show(value) if bare else call(value.dtype, show(value))

    def alone(value: Value) -> Code:
        """Where a literal takes the type that it has by itself."""
        taken = isinstance(value, Const) and isinstance(value.value, int)
        return show(value) if value.dtype == ("i64" if taken else "f32") else operand(value)

    match value:
        case Const(literal):
            return number(literal)
        case Index(name):
            return Code(names.get(name, name))
        case Param(name) | Ref(name):
            return Code(name)
        case Given(tensor):
            return call("given", tensor)
        case Load(tensor, items):
            return Code(f"{tensor}[{', '.join(str(operand(item)) for item in items)}]")
        case Cast(arg, dtype):
            return call(f"wrap_{dtype}" if value.wraps else dtype, show(arg))
        case Select(cond, then, other):
            both = isinstance(then, Const) and isinstance(other, Const)
            arms = [
                alone(arm)
                if both or (isinstance(arm, Const) and not exact(arm.value, arm.dtype))
                else show(arm)
                for arm in (then, other)
            ]
            return ternary(show(cond), *arms)
        case Reduce(_, index, arg, before=row) if row:
            guarded = arg.arg if isinstance(arg, Cast) else arg
            assert isinstance(guarded, Select)
            inner = {**names, index: names.get(row, row)}
            return call(f"prefix[{inner[index]}]", spec_text(guarded.then, inner))
        case Reduce(kind, index, arg, none):
            args = (alone(arg),) if none is None else (alone(arg), show(none))
            return call(f"{kind}[{names.get(index, index)}]", *args)
        case Scan(kind, index, arg):
            return call(f"{kind}[{names.get(index, index)}]", alone(arg))
        case Op() if value.wraps:
            return call(f"wrap_{value.dtype}", show(replace(value, wraps=False)))
        case Op(op, args):
            return OPERATORS[op].spec(*map(operand, args))
