"""From a spec's text to a typed group: names, ranks, types, free indices.

In: a `GroupSpec`. Out: a `Group`, or diagnostics, all of them. A part that failed is None and silences
what would follow from it. Bounds, collisions and races are not checked here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from kgen.diagnostics import Report, nearest
from kgen.lang import syntax
from kgen.lang.dtypes import ELEMENT_TYPES, FLOATS, FOREIGN_NAMES, INTEGERS, LIMITS, DType
from kgen.lang.eager import check_eager
from kgen.lang.fuse import fuse, without
from kgen.lang.host import ends_of, host, integer, is_derived, is_static
from kgen.lang.infer import Scope
from kgen.lang.schedule import check_schedule
from kgen.lang.stores import check_store
from kgen.lang.syntax import Call, Expr, Item, Name
from kgen.lang.typed import (
    Chain,
    Group,
    Let,
    Load,
    Scalar,
    Size,
    Tensor,
    Trusted,
    Value,
    axes_of,
    is_host,
)
from kgen.lang.uses import check_uses
from kgen.spec.located import Text
from kgen.spec.model import GroupSpec, ScalarSpec, TensorSpec
from kgen.spec.package import Package


def check(spec: GroupSpec, package: Package, report: Report) -> Group | None:
    """The typed group of a spec; None after reporting every mistake found."""
    before = len(report.diagnostics)
    if spec.fuse:
        return _fused(spec, package, report)
    group = _Checker(spec, Scope(report)).group()
    check_eager(spec, package, report)
    return group if len(report.diagnostics) == before else None


def _fused(spec: GroupSpec, package: Package, report: Report) -> Group | None:
    """The group of several; what is wrong with one of them is reported with its own file."""
    parts = {each.name.value: each for each in package.groups if not each.fuse}
    group: Group | None = None
    before = len(report.diagnostics)
    unread = {Path(each.span.file).stem for each in report.diagnostics}
    if unread & {name.value for name in spec.fuse if name.value not in parts}:
        return None
    for name in spec.fuse:
        if name.value not in parts:
            message = f"`{name.value}` is not a group of this package that has a `store` of its own"
            report.add("cannot-fuse", name.span, message, nearest(name.value, parts))
    if len(spec.fuse) < 2:
        report.add("cannot-fuse", spec.fuse[0].span, "one group only", "name two groups or more")
    if len(report.diagnostics) > before:
        return None
    left_out = _left_out(spec, parts, report)
    passing = {each.value: each for each in spec.through}
    for number, name in enumerate(spec.fuse):
        part = check(parts[name.value], package, Report())
        part = without(part, left_out[name.value]) if part is not None else None
        if part is None or number == 0:
            group = part
        else:
            assert group is not None
            used = {
                tensor for each in spec.fuse[number + 1 :] for tensor in _tensors(parts[each.value])
            }
            now = {tensor for tensor in passing if tensor in part.tensors and tensor not in used}
            group = fuse(group, part, report, name=spec.name.value, through=now)
            for tensor in now:
                del passing[tensor]
        if group is None:
            if len(report.diagnostics) > before:
                last = report.diagnostics[-1]
                also = (*last.also, (name.span, f"fused into `{spec.name.value}` here"))
                report.diagnostics[-1] = replace(last, also=also)
            return None
    for left in passing.values():
        message = f"no two of the groups have a tensor `{left.value}` that could pass between them"
        report.add("cannot-fuse", left.span, message, "leave it out of `through`")
    assert group is not None
    made = replace(
        group,
        summary=spec.summary,
        schedule=check_schedule(spec, group.extents, report),
        file=spec.file.rsplit("/", 1)[-1],
        sha256=hashlib.sha256(f"{spec.sha256} {group.sha256}".encode()).hexdigest(),
        span=spec.name.span,
    )
    return made if len(report.diagnostics) == before else None


def _left_out(
    spec: GroupSpec, parts: Mapping[str, GroupSpec], report: Report
) -> dict[str, set[str]]:
    """Group -> the optional tensors that it is not given."""
    found: dict[str, set[str]] = {name.value: set() for name in spec.fuse}
    for text in spec.without:
        group, _, tensor = text.value.partition(".")
        optional = (
            [t.name.value for t in parts[group].tensors if t.optional] if group in found else []
        )
        if tensor in optional:
            found[group].add(tensor)
        else:
            known = [f"{g}.{t.name.value}" for g in found for t in parts[g].tensors if t.optional]
            message = f"`{text.value}` is not an optional tensor of a group that is fused here"
            report.add("cannot-fuse", text.span, message, nearest(text.value, known))
    return found


def _tensors(spec: GroupSpec) -> list[str]:
    return [each.name.value for each in spec.tensors]


@dataclass(slots=True)
class _Checker:
    spec: GroupSpec
    scope: Scope

    @property
    def report(self) -> Report:
        return self.scope.report

    def group(self) -> Group | None:
        spec, scope = self.spec, self.scope
        if self._cyclic():
            return None
        self._declare()
        sizes = {name.value: self._size(name, text) for name, text in spec.sizes}
        scalars = {each.name.value: self._scalar(each) for each in spec.scalars}
        tensors = {each.name.value: self._tensor(each) for each in spec.tensors}
        for name, text in spec.indices:
            scope.extents[name.value] = integer(self.scope, text, "how many values an index takes")
        when = host(self.scope, spec.when, "the condition of a launch") if spec.when else None
        if when is not None and spec.when is not None and when.dtype != "bool":
            self.report.add("wrong-type", spec.when.span, "`when` must be a condition")
        lets = {name.value: self._let(name, text) for name, text in (*spec.lets, *spec.masks)}
        for name, text in spec.masks:
            mask = lets[name.value]
            if mask is not None and mask.value.dtype != "bool":
                self.report.add(
                    "wrong-type",
                    text.span,
                    f"the mask `{name.value}` has type {mask.value.dtype}, not bool",
                    "compare it: a mask is a condition",
                )
        stores = [check_store(each, spec.tensors, scope) for each in spec.stores]
        check_uses(spec, scope, tensors, sizes)
        trusted = [self._trusted(text, reason) for text, reason in spec.trusted]
        schedule = check_schedule(spec, scope.extents, self.report)
        good = all(
            each is not None
            for table in (sizes, scalars, tensors, scope.extents, lets)
            for each in table.values()
        )
        if not good or None in stores or None in trusted or (spec.when and when is None):
            return None
        # Lets in the order of use, so that each stands after what it is made of.
        return Group(
            name=spec.name.value,
            summary=spec.summary,
            eager=(Chain(spec.eager.value),) if spec.eager else (),
            eager_ulps=self._ulps(),
            when=when,
            when_text=spec.when.value if spec.when else "",
            sizes=cast("dict[str, Size]", sizes),
            scalars=cast("dict[str, Scalar]", scalars),
            tensors=cast("dict[str, Tensor]", tensors),
            extents=cast("dict[str, Value]", scope.extents),
            extent_texts={name.value: text.value for name, text in spec.indices},
            extent_spans={name.value: text.span for name, text in spec.indices},
            lets={name: let for name, let in scope.lets.items() if let is not None},
            stores=tuple(each for each in stores if each is not None),
            trusted=tuple(each for each in trusted if each is not None),
            twins={twin: index for (index, _), twin in scope.twins.items()},
            schedule=schedule,
            file=spec.file.rsplit("/", 1)[-1],
            sha256=spec.sha256,
            span=spec.name.span,
        )

    def _cyclic(self) -> bool:
        """Report sizes and scalars whose ranges or definitions go round in a circle."""
        names = {name.value: name for name, _ in self.spec.sizes}
        names |= {each.name.value: each.name for each in self.spec.scalars}
        waiting = {name.value: self._needs(text) for name, text in self.spec.sizes}
        for each in self.spec.scalars:
            ends = [text for text in (each.values, each.default) if text is not None]
            waiting[each.name.value] = set().union(*map(self._needs, ends))
        while ready := [name for name, need in waiting.items() if not need & set(waiting)]:
            for name in ready:
                del waiting[name]
        for name in waiting:
            self.report.add(
                "cyclic-let",
                names[name].span,
                f"the range of `{name}` depends on `{name}` itself",
            )
        return bool(waiting)

    def _needs(self, text: Text) -> set[str]:
        """The sizes and scalars that a text names."""
        declared = {name.value for name, _ in self.spec.sizes}
        declared |= {each.name.value for each in self.spec.scalars}
        return declared.intersection(_WORD.findall(text.value))

    def _declare(self) -> None:
        scope, spec = self.scope, self.spec
        texts = {name.value: text for name, text in spec.sizes}
        static = {name for name, text in texts.items() if is_static(text)}
        derived = {name: self._needs(text) for name, text in texts.items() if is_derived(text)}
        # A size derived from static sizes only is static.
        while more := {n for n, need in derived.items() if need and need <= static} - static:
            static |= more
        for name in texts:
            scope.params[name] = "int" if name in static else "i64"
        for each in spec.scalars:
            known = each.type.value in _SCALAR_TYPES
            kind = "int" if each.type.value == "static" or not known else each.type.value
            scope.params[each.name.value] = kind
        scope.extents = {name.value: None for name, _ in spec.indices}
        scope.texts = {name.value: text for name, text in (*spec.lets, *spec.masks)}
        scope.lists = {each.name.value for each in spec.tensors if each.list is not None}
        scope.optional = {each.name.value for each in spec.tensors if each.optional}
        scope.readable = {each.name.value for each in spec.tensors if each.mode != "out"}
        for tensor in spec.tensors:
            scope.tensors[tensor.name.value] = self._tensor_type(tensor)

    # Declarations.

    def _size(self, name: Text, text: Text) -> Size | None:
        static = self.scope.params[name.value] == "int"
        low = high = derived = None
        if is_derived(text):
            derived = integer(self.scope, text, "a size")
            if derived is None:
                return None
        else:
            ranged = text.slice(len("static"), len(text.value)) if is_static(text) else text
            ends = ends_of(self.scope, ranged if ranged.value else None, "an end of a size's range")
            if ends is None:
                return None
            low, high = ends
        return Size(name.value, static, low, high, derived, text.value, name.span, text.span)

    def _scalar(self, spec: ScalarSpec) -> Scalar | None:
        if spec.type.value not in _SCALAR_TYPES:
            self.report.add(
                "bad-type",
                spec.type.span,
                f"`{spec.type.value}` is not the type of a scalar",
                _nearest_type(spec.type.value, _SCALAR_TYPES),
            )
            return None
        floats = spec.type.value == "f32"
        ends = ends_of(self.scope, spec.values, "an end of a scalar's range", floats=floats)
        if ends is None:
            return None
        read = host if floats else integer
        default = (
            read(self.scope, spec.default, "the default of a scalar") if spec.default else None
        )
        if spec.default and default is None:
            return None
        return Scalar(
            name=spec.name.value,
            dtype=self.scope.params[spec.name.value],
            low=ends[0],
            high=ends[1],
            default=default,
            text=f"{spec.type.value} {spec.values.value}" if spec.values else spec.type.value,
            doc=spec.doc,
            span=spec.name.span,
            range_span=spec.values.span if spec.values else None,
            default_span=spec.default.span if spec.default else None,
        )

    def _tensor_type(self, spec: TensorSpec) -> tuple[DType, tuple[Expr, ...]] | None:
        expr = syntax.parse(spec.type, self.report)
        if expr is None:
            return None
        if not isinstance(expr, Item) or expr.base.id not in ELEMENT_TYPES or expr.listed:
            self.report.add(
                "bad-type",
                spec.type.span,
                f"`{spec.type.value}` is not the type of a tensor",
                _tensor_type_help(expr),
            )
            return None
        items = expr.items
        if spec.list is not None:  # a list is indexed first
            length = syntax.parse(spec.list, self.report)
            if length is None:
                return None
            items = (length, *items)
        return expr.base.id, items

    def _tensor(self, spec: TensorSpec) -> Tensor | None:
        known = self.scope.tensors[spec.name.value]
        if known is None:
            return None
        dtype, items = known
        dims = tuple(self.scope.infer(item) for item in items)
        ok = True
        for item, dim in zip(items, dims, strict=True):
            if dim is None:
                ok = False
            elif not is_host(dim):
                self.report.add("data-dependent", item.span, "a dimension is made of sizes")
                ok = False
            elif dim.dtype not in LIMITS or dim.dtype == "bool":
                self.report.add(
                    "wrong-type", item.span, f"a dimension is an integer, this has type {dim.dtype}"
                )
                ok = False
        ends = ends_of(
            self.scope, spec.values, "an end of a tensor's range", floats=dtype in FLOATS
        )
        expected = ends_of(self.scope, spec.expected, "an end of a tensor's expected range")
        if not ok or ends is None or expected is None:
            return None
        if spec.expected is not None and dtype not in INTEGERS:
            self.report.add(
                "wrong-type",
                spec.expected.span,
                f"`{spec.name.value}` holds {dtype}; debug mode only looks at the values of integers",
                "leave `expected` out",
            )
        distinct, repeats = self._distinct(spec)
        length = None
        if spec.list is not None:
            length, dims = dims[0], dims[1:]
            if length is not None and length.dtype != "int":
                self.report.add(
                    "wrong-type",
                    spec.list.span,
                    "how many tensors a list has must be a static size",
                    "declare it `static 1 .. 8`: the kernel has a pointer for each",
                )
                return None
        return Tensor(
            name=spec.name.value,
            dtype=dtype,
            dims=cast("tuple[Value, ...]", dims),
            mode=cast('Literal["in", "out", "inout"]', spec.mode),
            low=ends[0],
            high=ends[1],
            expected=expected,
            distinct=distinct,
            repeats=repeats,
            layout=cast('Literal["contiguous", "rows", "any"]', spec.layout),
            length=length,
            optional=spec.optional,
            type_text=spec.type.value,
            values_text=spec.values.value if spec.values else "",
            expected_text=spec.expected.value if spec.expected else "",
            doc=spec.doc,
            span=spec.name.span,
            range_span=spec.values.span if spec.values else None,
        )

    def _distinct(self, spec: TensorSpec) -> tuple[bool, Value | None]:
        text = spec.distinct
        if text is None or text.value in ("true", "false"):
            return (text is not None and text.value == "true", None)
        if text.value.startswith("except "):
            repeats = text.slice(len("except "), len(text.value))
            return True, host(self.scope, repeats, "the value that may repeat")
        self.report.add(
            "bad-choice",
            text.span,
            f"`{text.value}` is not a value of `distinct`",
            "write `true`, or `except slots - 1` for the one value that may repeat",
        )
        return (False, None)

    def _let(self, name: Text, text: Text) -> Let | None:
        value = self.scope.let(name.value, text.span)
        return self.scope.lets[name.value] if value is not None else None

    def _trusted(self, text: Text, reason: Text) -> Trusted | None:
        """What a key of `trusted` names; a place counts as the load of it."""
        scope = self.scope
        expr = syntax.parse(text, self.report)
        if expr is None:
            return None
        value: Value | None
        scope.given = sorted(scope.optional)  # they are named here, not read
        known = scope.tensors.get(expr.base.id) if isinstance(expr, Item) else None
        if isinstance(expr, Item) and known is not None:
            items = scope.items(expr, expr.base.id)
            axes = axes_of(*(items or ()))
            value = Load(expr.base.id, items, known[0], axes) if items is not None else None
        else:
            value = scope.infer(expr)
        scope.given = []
        line = " ".join(reason.value.split())
        return Trusted(value, line, text.value, text.span) if value is not None else None

    def _ulps(self) -> int:
        text = self.spec.eager_ulps
        if text is None or text.value.isdecimal():
            return int(text.value) if text is not None else 0
        self.report.add("bad-choice", text.span, "`eager_ulps` is a whole number: 1")
        return 0


_WORD = re.compile(r"[A-Za-z_]\w*")
_SCALAR_TYPES = ("i32", "i64", "f32", "static")


def _nearest_type(name: str, known: tuple[str, ...]) -> str:
    """The help line that names the type that `name` may have meant."""
    word = name.lower().removeprefix("torch.")
    return nearest(FOREIGN_NAMES.get(word, word), known)


def _tensor_type_help(expr: Expr) -> str:
    match expr:
        case Item(Name(id)) if id not in ELEMENT_TYPES:
            return _nearest_type(id, ELEMENT_TYPES)
        case Name(id) | Call(id) if id in ELEMENT_TYPES:
            return f"write its sizes in brackets: {id}[batch, K1]"
    return f"write an element type ({', '.join(ELEMENT_TYPES)}) and sizes: i32[batch, K1]"
