"""The names of a step: what its groups say of tensors, sizes and scalars, and that nothing clashes.

In: a `StepSpec` and the typed groups. Out: `StepNames`, filled, or diagnostics.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kgen.diagnostics import Report, Span, nearest
from kgen.lang.eager import eager_parameters
from kgen.lang.text import spec_text
from kgen.lang.typed import Group, Tensor
from kgen.spec.located import Text
from kgen.spec.model import is_name
from kgen.spec.package import Package
from kgen.spec.step import StageSpec, StepSpec

NAME = re.compile(r"([A-Za-z]\w*)(?:\[([A-Za-z]\w*)\])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class StepTensor:
    """A tensor of the step: element type, dimensions, and the length if it is a list."""

    name: str
    dtype: str
    dims: tuple[str, ...]
    length: str | None


class StepNames:
    """Tensors, sizes and scalars by the names that the step has for them."""

    def __init__(
        self, spec: StepSpec, package: Package, groups: dict[str, Group], report: Report
    ) -> None:
        self.spec, self.package, self.groups, self.report = spec, package, groups, report
        self.tensors: dict[str, StepTensor] = {}
        self.holders: dict[str, str] = {}
        self.scalars: dict[str, str] = {}
        self.sizes: dict[str, str | None] = {}
        self.methods: dict[str, int] = {}
        self.engine = {each.value for each in spec.engine}
        self.named: list[tuple[Text, str]] = []
        self.extents: list[StageSpec] = []
        self.rows: list[tuple[StepTensor, str, str, str, Span]] = []

    def _fail(self, code: str, span: Span, message: str, help: str = "") -> None:
        self.report.add(code, span, message, help)

    # Names.

    def _introduce(self, text: Text, kind: str) -> None:
        """A name that only the step has."""
        self.named.append((text, kind))
        if not is_name(text.value):
            self._fail(
                "bad-name",
                text.span,
                f"`{text.value}` can't be a name",
                "use letters, digits and underscores, start with a letter, and avoid Python's and "
                "the language's own words",
            )

    def _check_clashes(self) -> None:
        """Calls, indices, tensors and numbers become arguments of one function."""
        for each in (*self.spec.engine, *(switch.name for switch in self.spec.switches)):
            self._introduce(each, "")
        made = self.spec.class_name
        if made in self.groups:
            self._fail(
                "duplicate-name",
                self.spec.name.span,
                f"the step's class `{made}` is a group of the package too",
                "give the step another name",
            )
        kinds = dict.fromkeys(self.tensors, "tensor")
        numbers = {*self.sizes, *self.scalars}
        for name in numbers & {*kinds}:
            self._fail(
                "duplicate-name",
                self.spec.name.span,
                f"`{name}` is a tensor of one group and a number of another",
                "bind one of them to another name",
            )
        kinds |= dict.fromkeys(numbers, "number")
        for text, kind in self.named:
            other = kinds.setdefault(text.value, kind) if kind else kind
            if other != kind:
                self._fail(
                    "duplicate-name",
                    text.span,
                    f"the {kind} `{text.value}` is a {other} of the step too",
                    "give it another name",
                )
        for stage in self.extents:
            if stage.extent is not None and stage.extent.value not in numbers:
                self._fail(
                    "unknown-in-step",
                    stage.extent.span,
                    f"`{stage.extent.value}` is not a size or scalar of a group here",
                    nearest(stage.extent.value, numbers),
                )
        for row, argument, target, group, span in self.rows:
            whole = self.tensors.get(row.name)
            if whole is None:
                self._fail(
                    "unknown-in-step",
                    span,
                    f"no group has the whole of `{row.name}`",
                    "a stage of another group must name it without an index",
                )
            elif (row.dtype, row.dims) != (
                whole.dtype,
                whole.dims if whole.length is not None else whole.dims[1:],
            ):
                self._mismatch(row, argument, target, group, span)

    # What the groups say of tensors, sizes and scalars.

    def _collect(self, stages: tuple[StageSpec, ...], loops: tuple[str, ...]) -> None:
        for stage in stages:
            if stage.kind == "repeat":
                if stage.name.value in loops:
                    self._fail(
                        "bad-stage",
                        stage.name.span,
                        f"`{stage.name.value}` is the index of a repeat around this one",
                        "give it another name",
                    )
                self._introduce(stage.name, "index")
                self.extents.append(stage)
                self._collect(stage.stages, (*loops, stage.name.value))
            elif stage.kind == "call":
                self._introduce(stage.name, "call")
            elif stage.kind == "group":
                self._collect_group(stage, loops)

    def _collect_group(self, stage: StageSpec, loops: tuple[str, ...]) -> None:
        group = self.groups.get(stage.name.value)
        if group is None:
            self._fail(
                "unknown-in-step",
                stage.name.span,
                f"there is no group `{stage.name.value}` in this package",
                nearest(stage.name.value, self.groups),
            )
            return
        if not group.eager:
            self._fail(
                "bad-stage",
                stage.name.span,
                f"`{group.name}` has no eager function, which is what runs where `fused` is off",
                "write one in eager.py and name it in the group's spec: `eager: NAME`",
            )
            return
        known = {*group.tensors, *group.scalars}
        refused: list[Text] = []
        for argument, target in stage.bind:
            if argument.value not in known:
                self._fail(
                    "unknown-in-step",
                    argument.span,
                    f"`{group.name}` has no argument `{argument.value}`",
                    nearest(argument.value, known),
                )
            match = NAME.fullmatch(target.value)
            number = argument.value in group.scalars
            wrong = match is None or not is_name(match[1])
            if wrong or (match and match[2] and (number or match[2] not in loops)):
                refused.append(target)
                self._fail(
                    "bad-stage",
                    target.span,
                    f"`{target.value}` is not a name of the step",
                    "write `name`, or `name[l]` with the index of the repeat around the stage",
                )
        bound = {a.value: target.value for a, target in stage.bind if target not in refused}
        have = frozenset[str]().union(
            *(eager_parameters(self.package, each.name) - {*each.without} for each in group.eager)
        )
        for name in bound:
            if name in known and name not in have:
                self._fail(
                    "bad-stage",
                    stage.name.span,
                    f"`{name}` is bound, but `{group.eager[0].name}` in eager.py has no such argument",
                    "without it the step would not be the same with `fused` off",
                )
        for tensor in group.tensors.values():
            if tensor.optional and tensor.name not in bound:
                continue
            self._add_tensor(group, tensor, bound.get(tensor.name, tensor.name), stage)
        for scalar in group.scalars.values():
            if scalar.default is None or scalar.name in bound:
                self.scalars.setdefault(bound.get(scalar.name, scalar.name), str(scalar.dtype))
        for size in group.sizes.values():
            text = spec_text(size.derived).text if size.derived is not None else None
            before = self.sizes.get(size.name)
            if before is not None and text is not None and before != text:
                self._fail(
                    "bad-stage",
                    stage.name.span,
                    f"the size `{size.name}` is {text} in `{group.name}` and {before} in another group",
                    "give one of them another name in its spec",
                )
            self.sizes[size.name] = before or text

    def _add_tensor(self, group: Group, tensor: Tensor, target: str, stage: StageSpec) -> None:
        name, _, index = target.removesuffix("]").partition("[")
        dims = tuple(spec_text(dim).text for dim in tensor.dims)
        length = spec_text(tensor.length).text if tensor.length is not None else None
        found = StepTensor(name, str(tensor.dtype), dims, length)
        known = self.tensors.get(name)
        if index:
            # One tensor of a list, or one row of a tensor; the whole is another stage's to say.
            self.rows.append((found, tensor.name, target, group.name, stage.name.span))
        elif known is None:
            self.tensors[name] = found
            self.holders[name] = group.name
        elif (known.dtype, len(known.dims), known.length) != (found.dtype, len(dims), length):
            self._mismatch(found, tensor.name, target, group.name, stage.name.span)

    def _mismatch(
        self, found: StepTensor, argument: str, target: str, group: str, span: Span
    ) -> None:
        """Two groups have one name for two sorts of tensor."""
        known = self.tensors[found.name]
        self._fail(
            "bad-stage",
            span,
            f"`{target}` is {shown(found)} in `{group}`, but `{found.name}` is {shown(known)} in "
            f"`{self.holders[found.name]}`",
            f"bind one of them to another name: bind: {{{argument}: OTHER}}",
        )


def shown(tensor: StepTensor) -> str:
    """Its type, for a person."""
    text = f"{tensor.dtype}[{', '.join(tensor.dims)}]"
    return f"a list of {tensor.length} {text}" if tensor.length is not None else text
