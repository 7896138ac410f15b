"""Python expression text with the fewest parentheses: the one precedence table of kgen.

Specs, Triton and torch are all Python, so every printer builds its text from these pieces. What an
operator means on a backend stands in operators.py.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

(
    TERNARY,
    OR,
    AND,
    NOT,
    COMPARE,
    BIT_OR,
    BIT_XOR,
    BIT_AND,
    SHIFT,
    SUM,
    PRODUCT,
    UNARY,
    ATOM,
) = range(13)


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


# How tightly Python's infix operators bind. Comparisons do not chain here and the rest group to the left.
_BINDS = {
    "or": OR,
    "and": AND,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), COMPARE),
    "|": BIT_OR,
    "^": BIT_XOR,
    "&": BIT_AND,
    **dict.fromkeys(("<<", ">>"), SHIFT),
    **dict.fromkeys(("+", "-"), SUM),
    **dict.fromkeys(("*", "/", "//", "%"), PRODUCT),
}


def infix(symbol: str, a: Code, b: Code) -> Code:
    """`a + b`. The right operand binds tighter, and both of a comparison, which Python chains."""
    binds = _BINDS[symbol]
    left = binds + 1 if binds == COMPARE else binds
    return Code(f"{a.at(left)} {symbol} {b.at(binds + 1)}", binds)


def folded(symbol: str, codes: Iterable[Code]) -> Code:
    """`a + b + c`, from the left; of nothing 1."""
    first, *rest = [*codes] or [number(1)]
    return functools.reduce(lambda a, b: infix(symbol, a, b), rest, first)


def joined(symbol: str, codes: Iterable[Code]) -> Code:
    """`a & b & c`, for operators that may be grouped in any way."""
    first, *rest = codes
    binds = _BINDS[symbol]
    text = f" {symbol} ".join(code.at(binds) for code in (first, *rest))
    return Code(text, binds) if rest else first


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
