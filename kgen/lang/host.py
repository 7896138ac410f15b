"""Values that are known before the launch: sizes, the ends of ranges, defaults, launch conditions.

In: texts and the names in scope. Out: typed trees of sizes, scalars and numbers; None after a diagnostic.
"""

from __future__ import annotations

from kgen.lang import syntax
from kgen.lang.dtypes import INTEGERS, LIMITS, widens
from kgen.lang.infer import Scope
from kgen.lang.operators import OPERATORS
from kgen.lang.typed import Cast, Given, Index, Load, Op, Reduce, Ref, Scan, Value, walk
from kgen.spec.located import Text


def host(scope: Scope, text: Text, what: str) -> Value | None:
    """A value that is known before the launch."""
    value = scope.value(text)
    if value is None:
        return None
    parts = list(walk(value, {}))
    early = next((why for each in parts if (why := _only_in_kernels(each))), "")
    if early:
        scope.report.add(
            "data-dependent",
            text.span,
            f"{what} is known before the launch, and this {early}",
            "use sizes and scalars here",
        )
        return None
    cut = next((e for e in parts if isinstance(e, Cast) and _cuts(e)), None)
    if cut is not None:
        scope.report.add(
            "wrong-type",
            text.span,
            f"{what} is worked out in whole numbers of any length; {cut.dtype}(...) would cut them",
            f"leave the cast out, or write min(..., {LIMITS[cut.dtype][1]}) for a bound",
        )
        return None
    late = next((e for e in parts if isinstance(e, Op) and OPERATORS[e.op].takes == "floats"), None)
    if late is not None:
        scope.report.add(
            "unknown-function",
            text.span,
            f"`{late.op}` is only worked out in kernels, and {what} before the launch",
            "have the caller pass the number as a scalar",
        )
        return None
    return value


def integer(scope: Scope, text: Text, what: str) -> Value | None:
    """A host value that counts something."""
    value = host(scope, text, what)
    if value is not None and (value.dtype not in LIMITS or value.dtype == "bool"):
        quotient = isinstance(value, Op) and value.op == "truediv"
        scope.report.add(
            "wrong-type",
            text.span,
            f"{what} is an integer, this has type {value.dtype}",
            "write `//` for a whole quotient" if quotient else "",
        )
        return None
    return value


def ends_of(
    scope: Scope, text: Text | None, what: str, *, floats: bool = False
) -> tuple[Value | None, Value | None] | None:
    """The two ends of a range; `floats` says that they need not be integers."""
    if text is None:
        return (None, None)
    ends = syntax.parse_range(text, scope.report)
    if ends is None:
        return None
    read = host if floats else integer
    low, high = (read(scope, end, what) if end else None for end in ends)
    for end, value in zip(ends, (low, high), strict=True):
        if end and value is None:
            return None
        if end and value is not None and value.dtype == "bool":
            scope.report.add("wrong-type", end.span, "an end of a range is a number")
            return None
    return (low, high)


def is_static(text: Text) -> bool:
    """Whether a size is declared as a compile-time number."""
    return text.value.split(maxsplit=1)[:1] == ["static"]


def is_derived(text: Text) -> bool:
    """Whether a size is defined by others, not by a range."""
    return ".." not in text.value and not is_static(text)


def _cuts(cast: Cast) -> bool:
    """Whether a cast to an integer may lose bits."""
    source = cast.arg.arg if isinstance(cast.arg, Cast) else cast.arg
    return (
        source.dtype in LIMITS and cast.dtype in INTEGERS and not widens(source.dtype, cast.dtype)
    )


def _only_in_kernels(value: Value) -> str:
    """Why a value is not known before the launch; empty if it is."""
    match value:
        case Load(tensor):
            return f"reads `{tensor}`"
        case Index(name):
            return f"varies with the index `{name}`"
        case Ref(name):
            return f"uses `{name}`"
        case Given(tensor):
            return f"asks whether `{tensor}` is given"
        case Reduce(kind) | Scan(kind):
            return f"has a `{kind}` over an index"
    return ""
