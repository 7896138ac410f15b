"""What is written in other terms before it is typed: a sum over earlier rows, the winner of a place.

In: untyped trees and the names in scope. Out: untyped trees over indices of kgen's own. A let that varies
with a renamed index is written out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kgen.lang import syntax
from kgen.lang.syntax import Apply, Call, Expr, Item, Name, Number
from kgen.lang.typed import Reduce, Value

if TYPE_CHECKING:
    from kgen.lang.infer import Scope

_SCANS = ("cumsum", "cumprod")


def winner(scope: Scope, keep: str, index: Name, target: Item, when: Expr | None) -> Expr | None:
    """The condition that a point is the first (or last) along `index` to store to its place."""
    other = _twin(scope, index, "other")
    clash: Expr = Apply("lt" if keep == "first" else "gt", (other, index), index.span)
    for item in target.items:
        value = scope.infer(item)
        if value is None:
            return None
        if index.id in value.axes:
            same = Apply("eq", (rename(scope, item, index.id, other), item), item.span)
            clash = Apply("and", (clash, same), index.span)
    if when is not None:
        stored = rename(scope, when, index.id, other)
        clash = Apply("and", (clash, stored), index.span)
    anyone = Call("any", (other,), (clash,), index.span, index.span)
    alone = Apply("not", (anyone,), index.span)
    return alone if when is None else Apply("and", (when, alone), index.span)


def prefix(scope: Scope, call: Call) -> Value | None:
    """`prefix[r](e)`: the sum of e over the rows before r, an index of its own."""
    if not scope.over(call):
        return None
    if len(call.over) != 1 or len(call.args) != 1:
        scope.report.add("wrong-arguments", call.span, "`prefix` takes one index and one value")
        return None
    row = call.over[0]
    before = _twin(scope, row, "before")
    summed = rename(scope, call.args[0], row.id, before)
    earlier = Apply("lt", (before, row), call.span)
    guarded = Apply("if", (earlier, summed, Number(0, call.span)), call.span)
    value = scope.infer(Call("sum", (before,), (guarded,), call.span, call.name_span))
    return replace(value, before=row.id) if isinstance(value, Reduce) else value


def _twin(scope: Scope, index: Name, suffix: str) -> Name:
    """An index of the same extent under a name that the spec does not have."""
    key = (index.id, suffix)
    if key not in scope.twins:
        taken = {*scope.params, *scope.extents, *scope.texts, *scope.tensors}
        name = f"{index.id}_{suffix}"
        while name in taken:
            name += "_"
        scope.twins[key] = name
        scope.extents[name] = scope.extents[index.id]
    return Name(scope.twins[key], index.span)


def rename(scope: Scope, expr: Expr, index: str, to: Name) -> Expr:
    """`expr` with another index in place of `index`, lets that vary with it written out."""
    match expr:
        case Number():
            return expr
        case Name(id, span):
            if id == index:
                return Name(to.id, span)
            if id in scope.texts and id not in scope.open:
                value = scope.let(id, span)
                inner = syntax.parse(scope.texts[id], scope.report)
                if value is not None and inner is not None and index in value.axes:
                    scope.used.add(id)
                    return rename(scope, inner, index, to)
            return expr
        case Apply(op, args, span):
            return Apply(op, tuple(rename(scope, arg, index, to) for arg in args), span)
        case Call(name, over, args, span, name_span):
            bound = index in {each.id for each in over} and name not in (*_SCANS, "prefix")
            # A reduction over the same index means its own; only `first`'s fallback is outside.
            kept = args[:1] if bound else ()
            renamed = tuple(rename(scope, arg, index, to) for arg in args[len(kept) :])
            moved = tuple(Name(to.id, o.span) if o.id == index else o for o in over)
            return Call(name, over if bound else moved, (*kept, *renamed), span, name_span)
        case Item(base, items, span):
            renamed = tuple(rename(scope, item, index, to) for item in items)
            return Item(base, renamed, span, expr.listed)


def asked(cond: Expr) -> list[str]:
    """The optional tensor that is all that `cond` asks for, so that the choice is one of compile time."""
    match cond:
        case Call("given", (), (Name(id),)):
            return [id]
    return []
