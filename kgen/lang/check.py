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

from kgen.diagnostics import Report, Span, nearest
from kgen.lang import syntax
from kgen.lang.dtypes import ELEMENT_TYPES, FLOATS, FOREIGN_NAMES, INTEGERS, LIMITS, DType
from kgen.lang.eager import check_eager
from kgen.lang.fuse import fuse, without
from kgen.lang.host import ends_of, host, integer
from kgen.lang.infer import Scope
from kgen.lang.stores import check_store
from kgen.lang.syntax import Call, Expr, Item, Name
from kgen.lang.text import spec_text
from kgen.lang.typed import (
    Chain,
    Const,
    Group,
    Let,
    Load,
    Op,
    Param,
    Scalar,
    Size,
    Tensor,
    Trusted,
    Value,
    axes_of,
    is_host,
    walk,
)
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
    checker = _Checker(spec, Scope(report))
    checker.scope.extents |= group.extents
    tile, warps = checker.schedule()
    made = replace(
        group,
        summary=spec.summary,
        program=checker.program(),
        tile=tile,
        warps=warps,
        file=spec.file.rsplit("/", 1)[-1],
        sha256=hashlib.sha256(f"{spec.sha256} {group.sha256}".encode()).hexdigest(),
        span=spec.name.span,
        scheduled=checker.scheduled(),
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
        self._check_use(tensors, sizes)
        trusted = [self._trusted(text, reason) for text, reason in spec.trusted]
        tile, warps = self.schedule()
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
            program=self.program(),
            tile=tile,
            warps=warps,
            file=spec.file.rsplit("/", 1)[-1],
            sha256=spec.sha256,
            span=spec.name.span,
            scheduled=self.scheduled(),
        )

    def _cyclic(self) -> bool:
        """Report sizes and scalars whose ranges or definitions go round in a circle."""
        texts = {name.value: (name, [text]) for name, text in self.spec.sizes}
        for each in self.spec.scalars:
            ends = [text for text in (each.values, each.default) if text is not None]
            texts[each.name.value] = (each.name, ends)
        needs = {
            name: {word for text in found for word in _WORD.findall(text.value) if word in texts}
            for name, (_, found) in texts.items()
        }
        waiting = dict(needs)
        while ready := [name for name, need in waiting.items() if not need & set(waiting)]:
            for name in ready:
                del waiting[name]
        for name in waiting:
            self.report.add(
                "cyclic-let",
                texts[name][0].span,
                f"the range of `{name}` depends on `{name}` itself",
            )
        return bool(waiting)

    def _declare(self) -> None:
        scope, spec = self.scope, self.spec
        texts = {name.value: text for name, text in spec.sizes}
        static = {name for name, text in texts.items() if _is_static(text)}
        grown = True
        while grown:  # a size derived from static sizes only is static
            grown = False
            for name, text in texts.items():
                if name not in static and _is_derived(text):
                    expr = syntax.parse(text, Report())
                    names = _names(expr) if expr is not None else {""}
                    if names <= static and names:
                        static.add(name)
                        grown = True
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
        if _is_derived(text):
            derived = integer(self.scope, text, "a size")
            if derived is None:
                return None
        else:
            ranged = text.slice(len("static"), len(text.value)) if _is_static(text) else text
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

    # What is used, bound and scheduled.

    def _check_use(self, tensors: dict[str, Tensor | None], sizes: dict[str, Size | None]) -> None:
        used = self.scope.used
        if any(each.code in _UNREAD for each in self.report.diagnostics):
            return  # what could not be read may use anything
        self._check_bound(tensors, sizes)
        kinds: list[tuple[str, Text]] = [("scalar", each.name) for each in self.spec.scalars]
        kinds += [("index", name) for name, _ in self.spec.indices]
        kinds += [("let", name) for name, _ in self.spec.lets]
        kinds += [("mask", name) for name, _ in self.spec.masks]
        kinds += [("tensor", each.name) for each in self.spec.tensors if each.mode == "in"]
        for kind, name in kinds:
            if name.value not in used:
                self.report.add(
                    "unused", name.span, f"nothing uses the {kind} `{name.value}`", "remove it"
                )
        stored = {expr.base.id for each in self.spec.stores if (expr := _target(each.target))}
        for name_text, tensor in tensors.items():
            if tensor is not None and tensor.written and name_text not in stored:
                self.report.add(
                    "not-stored",
                    tensor.span,
                    f"nothing stores to the `{tensor.mode}` tensor `{name_text}`",
                    "add a line under `store`, or make it an `in` tensor",
                )

    def _check_bound(
        self, tensors: dict[str, Tensor | None], sizes: dict[str, Size | None]
    ) -> None:
        """Report sizes that can't be read off the shapes of tensors that are always given."""
        found = {
            (item.id, name in self.scope.optional)
            for name, known in self.scope.tensors.items()
            for item in (known[1] if known else ())
            if isinstance(item, Name)
        }
        told = {name for name, spare in found if not spare}
        dims = [
            (f"`{each.name}` has a dimension `{spec_text(dim)}`", dim)
            for each in tensors.values()
            if each is not None and not each.optional
            for dim in each.shape
        ]
        made = [dim for _, dim in dims]
        made += [s.derived for n, s in sizes.items() if s and s.derived is not None and n in told]
        told |= {each.name.value for each in self.spec.scalars if each.default is None}
        asked = {name.value: name for name, text in self.spec.sizes if not _is_derived(text)}
        while new := {n for value in made if (n := _told_by(value, told)) in asked}:
            told |= new
        for name in (each for each in asked.values() if each.value not in told):
            if name.value not in self.scope.used:
                self.report.add("unused", name.span, f"nothing uses the size `{name.value}`")
                continue
            param = Param(name.value, self.scope.params[name.value])
            derive = f"declare that as a size, and derive `{name.value}` from it"
            ways = [f"{said}: {derive}" for said, dim in dims if param in walk(dim, {})][:1]
            if not ways and (name.value, True) in found:
                ways = ["let a tensor that is always given have it"]
            scalar = "a static scalar" if param.dtype == "int" else "a scalar"
            ways.append(f"make it {scalar}, which the caller passes")
            self.report.add(
                "unbound-size",
                name.span,
                f"only optional tensors have a dimension `{name.value}`"
                if (name.value, True) in found
                else f"no tensor has a dimension that is just `{name.value}`",
                "; or ".join(ways),
            )

    def _ulps(self) -> int:
        text = self.spec.eager_ulps
        if text is None or text.value.isdecimal():
            return int(text.value) if text is not None else 0
        self.report.add("bad-choice", text.span, "`eager_ulps` is a whole number: 1")
        return 0

    def program(self) -> tuple[str, ...] | None:
        names = self.spec.program or ()
        for number, name in enumerate(names):
            if name.value in {each.value for each in names[:number]}:
                self.report.add("bad-schedule", name.span, f"`{name.value}` stands here twice")
            if name.value not in self.scope.extents:
                self.report.add(
                    "bad-schedule",
                    name.span,
                    f"there is no index `{name.value}`",
                    nearest(name.value, self.scope.extents),
                )
        program = self.spec.program
        return tuple(name.value for name in program) if program is not None else None

    def scheduled(self) -> dict[str, Span]:
        """Where the schedule names each index."""
        return {
            **{f"program.{name.value}": name.span for name in self.spec.program or ()},
            **{f"tile.{name.value}": name.span for name, _ in self.spec.tile},
        }

    def schedule(self) -> tuple[dict[str, int], int | None]:
        tile: dict[str, int] = {}
        for name, text in self.spec.tile:
            size = _power_of_two(text)
            if name.value not in self.scope.extents:
                self.report.add(
                    "bad-schedule",
                    name.span,
                    f"there is no index `{name.value}` to tile",
                    nearest(name.value, self.scope.extents),
                )
            elif size is None or size > 65536:
                self.report.add(
                    "bad-schedule", text.span, "a tile is a power of two, from 1 to 65536"
                )
            else:
                tile[name.value] = size
        if self.spec.warps is None:
            return tile, None
        warps = _power_of_two(self.spec.warps)
        if warps is None or warps > 16:
            self.report.add("bad-schedule", self.spec.warps.span, "warps are 1, 2, 4, 8 or 16")
        return tile, warps


_WORD = re.compile(r"[A-Za-z_]\w*")
_UNREAD = ("bad-syntax", "unsupported-syntax", "bad-type", "bad-range")
_SCALAR_TYPES = ("i32", "i64", "f32", "static")


def _is_static(text: Text) -> bool:
    return text.value.split(maxsplit=1)[:1] == ["static"]


def _told_by(value: Value, known: set[str]) -> str:
    """The size that follows from a number made of it and of what is known, `2 * half`; else nothing."""
    missing = {each.name for each in walk(value, {}) if isinstance(each, Param)} - known
    return min(missing) if len(missing) == 1 and _factor(value, min(missing)) else ""


def _factor(value: Value, name: str) -> int | None:
    """The number that a size is multiplied by in a sum; None where it stands otherwise."""
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


def _is_derived(text: Text) -> bool:
    return ".." not in text.value and not _is_static(text)


def _names(expr: Expr | None) -> set[str]:
    match expr:
        case Name(id):
            return {id}
        case syntax.Apply(_, args) | Call(_, _, args):
            return set().union(*(_names(arg) for arg in args)) if args else set()
        case Item(base, items):
            return {base.id}.union(*(_names(item) for item in items))
    return set()


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


def _target(text: Text) -> Item | None:
    expr = syntax.parse(text, Report())
    return expr if isinstance(expr, Item) else None


def _power_of_two(text: Text) -> int | None:
    value = int(text.value) if text.value.isdecimal() else 0
    return value if value > 0 and value & (value - 1) == 0 else None
