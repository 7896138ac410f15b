"""The operators and functions of the language, one row each: what one takes, gives, costs and prints as.

Every phase reads the table and none has a list of its own, so that a new operator is one row. A printer's
column says what an operator is on its backend; which operand is what, the printer knows.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kgen.lang.code import Code, call, infix, method, number, prefix, ternary

Form: TypeAlias = Callable[..., Code]  # the texts of the operands -> text
Interval: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Operator:
    """One row.

    `takes`: numbers, integers, floats, conditions, anything (numbers or conditions) or quotient (numbers,
    integers as f32). `compares`: it gives a condition, else the operands' type. `leaves`: its result may be
    outside the operands' integer type. `exact`: on whole numbers of any length, None where it is of floats.
    `interval`: of the operands' intervals; whole numbers. `numpy`: on arrays, where `exact` won't do. The
    rest are texts: in a spec (and of numbers known at compile time), in a Triton kernel and in torch, there
    for integers and conditions and for f32. `torch_bound`: of integers, a tensor and a number of Python's,
    where that is written otherwise.
    """

    name: str
    symbol: str
    takes: str
    spec: Form
    exact: Callable[..., int] | None
    interval: Callable[..., Interval] | None
    triton: Form
    torch: Form
    triton_floats: Form
    torch_floats: Form
    torch_bound: Form | None = None
    numpy: Callable[..., Any] | None = None
    compares: bool = False
    leaves: bool = False
    variadic: bool = False
    arity: int = 2


def _calls(name: str) -> Form:
    return lambda *args: call(name, *args)


def _methods(name: str) -> Form:
    return lambda first, *args: method(first, name, *args)


def _infix(symbol: str) -> Form:
    return lambda a, b: infix(symbol, a, b)


def _prefix(symbol: str) -> Form:
    return lambda a: prefix(symbol, a)


def _between(symbol: str, **more: Any) -> dict[str, Any]:
    """The texts of an operator that is written alike everywhere."""
    form = _infix(symbol)
    texts = dict.fromkeys(("triton", "torch", "triton_floats", "torch_floats", "spec"), form)
    return {"symbol": symbol, **texts, **more}


def _extreme(name: str, bound: str) -> dict[str, Any]:
    """The texts of `min` and `max`."""
    helper = "smaller" if name == "min" else "larger"
    return {
        "symbol": name,
        "takes": "numbers",
        "spec": _calls(name),
        "triton": _calls(f"tl.{name}imum"),
        "torch": _calls(f"torch.{name}imum"),
        "torch_bound": lambda a, b: method(a, "clamp", f"{bound}={b}"),
        "triton_floats": _calls(helper),
        "torch_floats": _calls(f"_{helper}"),
        "variadic": True,
    }


def _corners(op: Callable[[int, int], int], a: Interval, b: Interval) -> Interval:
    found = [op(x, y) for x in a for y in b]
    return (min(found), max(found))


def _quotient(a: Interval, b: Interval) -> Interval:
    if b[1] < 0:
        return _quotient((-a[1], -a[0]), (-b[1], -b[0]))
    low = max(b[0], 1)  # a divisor of 0 is refused
    return _corners(operator.floordiv, a, (low, max(b[1], low)))


def _remainder(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0 <= b[1]:
        return (min(b[0] + 1, 0), max(b[1] - 1, 0))
    if b[1] < 0:
        return (b[0] + 1, 0)
    return a if a[0] >= 0 and a[1] < b[0] else (0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1)


def _magnitude(a: Interval) -> Interval:
    return (0 if a[0] <= 0 <= a[1] else min(map(abs, a)), max(map(abs, a)))


def _truth(never: bool, always: bool) -> Interval:
    return (int(always), int(not never))


def _numpy() -> Any:
    import numpy  # noqa: ICN001, PLC0415 - for those who run kernels on the host only

    return numpy


def _exp(value: Any) -> Any:
    """The formula of docs/language.md in f32, as the helpers of the other backends compute it."""
    np = _numpy()
    one = np.float32
    x = np.where(value > one(-104.0), np.where(value < one(89.0), value, one(89.0)), one(-104.0))
    n = (x * one(1.44269504088896341) + one(12582912.0)) - one(12582912.0)
    r = (x - n * one(0.693359375)) - n * one(-2.12194440e-4)
    p = r * one(1.9875691500e-4) + one(1.3981999507e-3)
    for coefficient in (8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = p * r + one(coefficient)
    y = (p * (r * r) + r) + one(1.0)
    exponent = np.where(value == value, n, one(0)).astype(np.int32)  # noqa: PLR0124 - NaN
    for part in (exponent >> 1, exponent - (exponent >> 1)):
        y = y * ((part + np.int32(127)) << np.int32(23)).view(np.float32)
    return np.where(value == value, y, value)  # noqa: PLR0124 - NaN


def _function(name: str, **more: Any) -> dict[str, Any]:
    """The texts of a function of floats."""
    row = {"symbol": name, "arity": 1, "takes": "floats", "exact": None, "interval": None}
    return row | dict.fromkeys(("spec", "triton", "torch"), _calls(name)) | more


ROWS: Final = (
    Operator(
        name="add",
        takes="numbers",
        exact=operator.add,
        interval=lambda a, b: (a[0] + b[0], a[1] + b[1]),
        leaves=True,
        **_between("+"),
    ),
    Operator(
        name="sub",
        takes="numbers",
        exact=operator.sub,
        interval=lambda a, b: (a[0] - b[1], a[1] - b[0]),
        leaves=True,
        **_between("-"),
    ),
    Operator(
        name="mul",
        takes="numbers",
        exact=operator.mul,
        interval=lambda a, b: _corners(operator.mul, a, b),
        leaves=True,
        **_between("*"),
    ),
    Operator(
        name="truediv",
        takes="quotient",
        exact=None,
        interval=None,
        numpy=lambda a, b: a / b,
        # Triton's own `/` is not rounded as IEEE says.
        **_between("/") | {"triton_floats": _calls("tl.math.div_rn")},
    ),
    Operator(
        name="floordiv",
        takes="integers",
        exact=operator.floordiv,
        interval=_quotient,
        leaves=True,
        **_between("//") | {"triton": _calls("floor_div")},
    ),
    Operator(
        name="mod",
        takes="integers",
        exact=operator.mod,
        interval=_remainder,
        **_between("%") | {"triton": _calls("floor_mod")},
    ),
    Operator(
        name="neg",
        arity=1,
        symbol="-",
        takes="numbers",
        exact=operator.neg,
        interval=lambda a: (-a[1], -a[0]),
        spec=_prefix("-"),
        triton=_prefix("-"),
        torch=_prefix("-"),
        triton_floats=lambda a: infix("*", a, number(-1.0)),  # Triton's own loses the sign of 0.0
        torch_floats=_prefix("-"),
        leaves=True,
    ),
    Operator(
        name="abs",
        arity=1,
        symbol="abs",
        takes="numbers",
        exact=abs,
        interval=_magnitude,
        spec=_calls("abs"),
        triton=_calls("tl.abs"),
        torch=_methods("abs"),
        triton_floats=_calls("tl.abs"),
        torch_floats=_methods("abs"),
        leaves=True,
    ),
    Operator(
        name="min",
        exact=min,
        interval=lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
        numpy=lambda a, b: _numpy().where((a < b) | (a != a), a, b),  # noqa: PLR0124 - NaN
        **_extreme("min", "max"),
    ),
    Operator(
        name="max",
        exact=max,
        interval=lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
        numpy=lambda a, b: _numpy().where((a > b) | (a != a), a, b),  # noqa: PLR0124 - NaN
        **_extreme("max", "min"),
    ),
    Operator(
        name="lt",
        takes="numbers",
        exact=operator.lt,
        interval=lambda a, b: _truth(a[0] >= b[1], a[1] < b[0]),
        compares=True,
        **_between("<"),
    ),
    Operator(
        name="le",
        takes="numbers",
        exact=operator.le,
        interval=lambda a, b: _truth(a[0] > b[1], a[1] <= b[0]),
        compares=True,
        **_between("<="),
    ),
    Operator(
        name="gt",
        takes="numbers",
        exact=operator.gt,
        interval=lambda a, b: _truth(a[1] <= b[0], a[0] > b[1]),
        compares=True,
        **_between(">"),
    ),
    Operator(
        name="ge",
        takes="numbers",
        exact=operator.ge,
        interval=lambda a, b: _truth(a[1] < b[0], a[0] >= b[1]),
        compares=True,
        **_between(">="),
    ),
    Operator(
        name="eq",
        takes="anything",
        exact=operator.eq,
        interval=lambda a, b: _truth(a[1] < b[0] or b[1] < a[0], a[0] == a[1] == b[0] == b[1]),
        compares=True,
        **_between("=="),
    ),
    Operator(
        name="ne",
        takes="anything",
        exact=operator.ne,
        interval=lambda a, b: _truth(a[0] == a[1] == b[0] == b[1], a[1] < b[0] or b[1] < a[0]),
        compares=True,
        **_between("!="),
    ),
    Operator(
        name="and",
        takes="conditions",
        exact=operator.and_,
        interval=lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
        numpy=lambda a, b: a & b,
        **_between("and") | {"triton": _infix("&"), "torch": _infix("&")},
    ),
    Operator(
        name="or",
        takes="conditions",
        exact=operator.or_,
        interval=lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
        numpy=lambda a, b: a | b,
        **_between("or") | {"triton": _infix("|"), "torch": _infix("|")},
    ),
    Operator(
        name="not",
        arity=1,
        symbol="not",
        takes="conditions",
        exact=operator.not_,
        interval=lambda a: (1 - a[1], 1 - a[0]),
        numpy=lambda a: ~a,
        spec=_prefix("not"),
        triton=_prefix("~"),
        torch=_prefix("~"),
        triton_floats=_prefix("~"),
        torch_floats=_prefix("~"),
    ),
    Operator(
        name="sqrt",
        numpy=lambda a: _numpy().sqrt(a),
        **_function("sqrt", triton_floats=_calls("tl.sqrt_rn"), torch_floats=_calls("_sqrt")),
    ),
    Operator(
        name="rsqrt",
        numpy=lambda a: 1 / _numpy().sqrt(a),
        **_function("rsqrt", triton_floats=_calls("tl.rsqrt"), torch_floats=_methods("rsqrt")),
    ),
    Operator(
        name="exp",
        numpy=_exp,
        **_function("exp", triton_floats=_calls("exp"), torch_floats=_calls("_exp")),
    ),
)
OPERATORS: Final[dict[str, Operator]] = {row.name: row for row in ROWS}


def _node(symbol: str, *, infix: bool) -> type[ast.AST] | None:
    """What Python's parser makes of an operator's symbol; None if it is a function's name."""
    if symbol.isidentifier() and symbol not in ("and", "or", "not"):
        return None
    tree = ast.parse(f"a {symbol} b" if infix else f"{symbol} a", mode="eval").body
    match tree:
        case ast.BinOp(_, op) | ast.UnaryOp(op) | ast.BoolOp(op):
            return type(op)
        case ast.Compare(_, [op]):
            return type(op)
    raise ValueError(f"{symbol} is not an operator of Python")


def python_operators() -> dict[type[ast.AST], str]:
    """Python's operator nodes -> the names of those that the language has."""
    found = ((_node(row.symbol, infix=row.arity == 2), row.name) for row in OPERATORS.values())
    return {node: name for node, name in found if node is not None} | {ast.Pow: "pow"}


def functions() -> dict[str, int | None]:
    """The functions of the language and how many arguments they take; None: two or more."""
    named = [row for row in OPERATORS.values() if _node(row.symbol, infix=row.arity == 2) is None]
    return {row.symbol: None if row.variadic else row.arity for row in named} | {"clamp": 3}


def fold(name: str, args: list[int]) -> int | None:
    """An operator on numbers that the spec writes out; None where kgen leaves it to run time."""
    if name == "pow":
        a, b = args
        return int(a**b) if 0 <= b <= 64 and abs(a) <= 2**16 else None
    row = OPERATORS[name]
    if row.exact is None or row.compares or row.takes == "conditions" or len(args) != row.arity:
        return None
    if name in ("floordiv", "mod") and args[1] == 0:
        return None
    return row.exact(*args)


def compile_time(name: str, args: list[Code]) -> Code:
    """An operator on compile-time numbers in a kernel, where min, max and abs make run-time ones."""
    if name in ("min", "max"):
        return ternary(infix("<" if name == "min" else ">", *args), *args)
    if name == "abs":
        return ternary(infix("<", args[0], number(0)), prefix("-", args[0]), args[0])
    return OPERATORS[name].spec(*args)


REDUCTIONS: Final[dict[str, int | None]] = {
    "sum": 1,
    "count": 1,
    "min": 1,
    "max": 1,
    "any": 1,
    "all": 1,
    "first": 2,
}
SCANS: Final = ("cumsum", "cumprod")
# Functions of torch and Triton -> how the language says it.
INSTEAD: Final = {
    "where": "write a choice: a if condition else b",
    "select": "write a choice: a if condition else b",
    "cdiv": "write a quotient rounded up: (a + b - 1) // b",
    "mean": "write a sum and a quotient: sum[k](...) / K",
    "pow": "multiply instead",
    "len": "name the size",
    "int": "write i32(...) or i64(...)",
}
