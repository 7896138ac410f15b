"""The functions of the language: their names and how many arguments they take."""

from __future__ import annotations

COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
UNARY = ("abs", "sqrt", "rsqrt", "exp")
FUNCTIONS: dict[str, int | None] = {
    **dict.fromkeys(UNARY, 1),
    "min": None,
    "max": None,
    "clamp": 3,
}
REDUCTIONS: dict[str, int | None] = {
    "sum": 1,
    "count": 1,
    "min": 1,
    "max": 1,
    "any": 1,
    "all": 1,
    "first": 2,
}
SCANS = ("cumsum", "cumprod")
# Functions of torch and Triton -> how the language says it.
INSTEAD = {
    "where": "write a choice: a if condition else b",
    "select": "write a choice: a if condition else b",
    "cdiv": "write a quotient rounded up: (a + b - 1) // b",
    "mean": "write a sum and a quotient: sum[k](...) / K",
    "pow": "multiply instead",
    "len": "name the size",
    "int": "write i32(...) or i64(...)",
}
