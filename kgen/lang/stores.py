"""A store: its place, its value, where it happens, and who wins where several meet."""

from __future__ import annotations

from kgen.diagnostics import Report, listed, nearest
from kgen.lang import syntax
from kgen.lang.convert import coerce, misfit
from kgen.lang.dtypes import FLOATS, LITERALS, DType, widens
from kgen.lang.infer import Scope
from kgen.lang.rewrite import winner
from kgen.lang.syntax import Expr, Item, Name
from kgen.lang.typed import (
    NO_AXES,
    Axes,
    Const,
    Index,
    Op,
    Store,
    Value,
    axes_of,
)
from kgen.spec.located import Text
from kgen.spec.model import StoreSpec, TensorSpec


def check_store(spec: StoreSpec, tensors: tuple[TensorSpec, ...], scope: Scope) -> Store | None:
    """The typed store; None after reporting what is wrong with it."""
    report = scope.report
    target = syntax.parse(spec.target, report)
    condition = syntax.parse(spec.when, report) if spec.when else None
    when = scope.infer(condition) if condition is not None else None
    value = scope.value(spec.value)
    place = _place(spec, target, tensors, scope) if target is not None else None
    if place is None:
        return None
    if spec.when is not None and when is not None and when.dtype != "bool":
        report.add("wrong-type", spec.when.span, "`when` must be a condition")
        return None
    item, items = place
    known = scope.tensors[item.base.id]
    if value is None or known is None or (spec.when and when is None):
        return None
    axes = axes_of(*items)
    decided = NO_AXES
    if spec.collide is not None:
        found = _collide(scope, spec, spec.collide, item, axes, condition)
        if found is None:
            return None
        when, decided = found
    stored = None
    if not _varies_with_more(spec, value, when, axes, report):
        stored = _stored(value, known[0], spec.value, report)
    if stored is None:
        return None
    return Store(
        tensor=item.base.id,
        items=items,
        value=stored,
        when=when,
        axes=axes,
        decided=decided,
        trusted=spec.trusted,
        target_text=spec.target.value,
        value_text=_store_text(spec),
        span=spec.target.span,
        value_span=spec.value.span,
    )


def _place(
    spec: StoreSpec, target: Expr, tensors: tuple[TensorSpec, ...], scope: Scope
) -> tuple[Item, tuple[Value, ...]] | None:
    """A place to store to and its typed indices."""
    report = scope.report
    if not isinstance(target, Item):
        report.add(
            "bad-syntax",
            spec.target.span,
            f"`{spec.target.value}` is not a place to store to",
            "name a tensor and its indices: out[r, k]",
        )
        return None
    name, span = target.base.id, target.base.span
    tensor = next((t for t in tensors if t.name.value == name), None)
    if tensor is None:
        known = nearest(name, [t.name.value for t in tensors])
        report.add("unknown-name", span, f"there is no tensor `{name}`", known)
        return None
    if tensor.mode == "in":
        report.add(
            "store-to-input",
            span,
            f"`{name}` is an `in` tensor",
            "declare it with mode: out, or inout if what it held before is read or survives",
        )
    scope.used.add(name)
    if tensor.optional:
        report.add(
            "ungiven",
            span,
            f"`{name}` is optional; only tensors that are always given are stored to",
        )
    items = scope.items(target, name)
    if items is not None and tensor.list is not None and not isinstance(items[0], Index | Const):
        report.add(
            "wrong-type",
            target.items[0].span,
            f"the list `{name}` is indexed by an index of the group",
        )
        return None
    return (target, items) if items is not None else None


def _varies_with_more(
    spec: StoreSpec, value: Value, when: Value | None, axes: Axes, report: Report
) -> bool:
    """Whether the value or the condition of a store varies with an index that its place does not."""
    for text, part in ((spec.value, value), (spec.when, when)):
        extra = sorted(part.axes - axes) if part is not None else []
        if text is not None and extra:
            report.add(
                "free-index",
                text.span,
                f"`{text.value}` varies with {listed(extra)}, the place "
                f"`{spec.target.value}` does not",
                f"reduce over `{extra[0]}`, or store to a place that varies with it",
            )
            return True
    return False


def _collide(
    scope: Scope,
    spec: StoreSpec,
    text: Text,
    target: Item,
    axes: Axes,
    condition: Expr | None,
) -> tuple[Value, Axes] | None:
    """The store's condition with `collide` in it, and the index along which it decides."""
    words = text.value.split()
    if len(words) != 2 or words[0] not in ("first", "last"):
        scope.report.add(
            "bad-choice",
            text.span,
            f"`{text.value}` is not a value of `collide`",
            "write `first k` or `last k`: the point with the lowest or the highest k wins",
        )
        return None
    start = text.value.index(words[1], len(words[0]))
    index = Name(words[1], text.part(start, start + len(words[1])))
    if index.id not in axes:
        scope.report.add(
            "not-an-index",
            index.span,
            f"`{spec.target.value}` does not vary with an index `{index.id}`",
            nearest(index.id, axes),
        )
        return None
    won = winner(scope, words[0], index, target, condition)
    value = scope.infer(won) if won is not None else None
    return (value, frozenset((index.id,))) if value is not None else None


def _stored(value: Value, dtype: DType, text: Text, report: Report) -> Value | None:
    """The value as the tensor's type, if no value changes by that."""
    if value.dtype in LITERALS and dtype != "bool" and (value.dtype == "int" or dtype in FLOATS):
        problem = misfit(value, dtype) if isinstance(value, Const) else ""
        if problem:
            report.add("wrong-type", text.span, problem, f"write {dtype}({text.value}) to round it")
            return None
        return coerce(value, dtype, text.span, report)
    if value.dtype == dtype or (widens(value.dtype, dtype) and value.dtype != "bool"):
        return coerce(value, dtype, text.span, report)
    if widens(value.dtype, dtype) or dtype == "bool":
        help = f"write {dtype}({text.value})" if dtype != "bool" else "compare it: x != 0"
        report.add(
            "wrong-type", text.span, f"this has type {value.dtype}, the tensor {dtype}", help
        )
    elif value.dtype in FLOATS and dtype not in FLOATS:
        report.add(
            "wrong-type",
            text.span,
            f"this has type {value.dtype}, the tensor {dtype}, and a float becomes no integer",
            "store it to a tensor of floats"
            + (
                "; a whole quotient is written `//`"
                if isinstance(value, Op) and value.op == "truediv"
                else ""
            ),
        )
    else:
        lost = "rounded to the nearest" if dtype in FLOATS else "cut to its low bits"
        report.add(
            "narrowing",
            text.span,
            f"this has type {value.dtype}, the tensor {dtype}",
            f"write {dtype}({text.value}) if it may be {lost}",
        )
    return None


def _store_text(spec: StoreSpec) -> str:
    parts = [spec.value.value]
    parts += [f"when {spec.when.value}"] if spec.when else []
    parts += [f"collide {spec.collide.value}"] if spec.collide else []
    return ", ".join(parts) if len(parts) > 1 else parts[0]
