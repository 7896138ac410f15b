"""Python expression text with the fewest parentheses: the one precedence table of kgen.

Specs, Triton and torch are all Python, so every printer builds its text from these pieces. What an
operator means on a backend is for that backend's emitter to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

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
from kgen.lang.types import LITERALS, exact

NO_NAMES: Mapping[str, str] = MappingProxyType({})

TERNARY, OR, AND, NOT, COMPARE, BIT_OR, BIT_AND, SUM, PRODUCT, UNARY, ATOM = range(11)


@dataclass(frozen=True, slots=True)
class Code:
    """Expression text, and how tightly its outermost operator binds."""

    text: str
    binds: int = ATOM

    def at(self, binds: int) -> str:
        """The text, in parentheses if it binds less tightly than asked."""
        return self.text if self.binds >= binds else f"({self.text})"

    def __str__(self) -> str:
        return self.text


# Operator -> (symbol, precedence). Comparisons do not chain and the rest group to the left.
_INFIX = {
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "truediv": ("/", PRODUCT),
    "floordiv": ("//", PRODUCT),
    "mod": ("%", PRODUCT),
    "lt": ("<", COMPARE),
    "le": ("<=", COMPARE),
    "gt": (">", COMPARE),
    "ge": (">=", COMPARE),
    "eq": ("==", COMPARE),
    "ne": ("!=", COMPARE),
    "and": ("and", AND),
    "or": ("or", OR),
    "bitand": ("&", BIT_AND),
    "bitor": ("|", BIT_OR),
}


def infix(op: str, a: Code, b: Code) -> Code:
    """`a op b`. The right operand binds tighter, and both of a comparison, which Python chains."""
    symbol, binds = _INFIX[op]
    left = binds + 1 if binds == COMPARE else binds
    return Code(f"{a.at(left)} {symbol} {b.at(binds + 1)}", binds)


def prefix(symbol: str, a: Code) -> Code:
    """`-a`, `~a`, `not a`."""
    binds = NOT if symbol == "not" else UNARY
    return Code(f"{symbol}{' ' if symbol == 'not' else ''}{a.at(binds)}", binds)


def ternary(cond: Code, then: Code, other: Code) -> Code:
    """`then if cond else other`."""
    text = f"{then.at(TERNARY + 1)} if {cond.at(TERNARY + 1)} else {other.at(TERNARY)}"
    return Code(text, TERNARY)


def call(function: str, *args: Code | str) -> Code:
    """`function(a, b)`."""
    return Code(f"{function}({', '.join(str(arg) for arg in args)})")


def method(value: Code, name: str, *args: Code | str) -> Code:
    """`value.name(a)`."""
    return Code(f"{value.at(ATOM)}.{name}({', '.join(str(arg) for arg in args)})")


def number(value: float) -> Code:
    """A literal."""
    return Code(repr(value), ATOM if value >= 0 else UNARY)


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
            codes = [operand(arg) for arg in args]
            plain = {"truncdiv": "floordiv", "truncmod": "mod"}.get(op, op)
            if plain in _INFIX:
                return infix(plain, codes[0], codes[1])
            if plain in ("neg", "not"):
                return prefix("-" if plain == "neg" else "not", codes[0])
            return call(plain, *codes)
