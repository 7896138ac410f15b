"""A step's stages, tensors, sizes and numbers.

In: a `StepSpec` and the package's typed groups. Out: a `StepPlan`, or diagnostics. What may overlap is
for streams.py to say.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kgen.diagnostics import Report, nearest
from kgen.lang.typed import Group, Load, walk
from kgen.plan.stepnames import NAME, StepNames, StepTensor
from kgen.plan.streams import Do, Names, Stage, every_stage, running_stages, schedule
from kgen.spec.located import Text
from kgen.spec.package import Package
from kgen.spec.step import StageSpec, StepSpec


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step. `sizes`: size -> (tensor, dimension) that it is read off, -1 for a list's length.

    `derived`: in order. `numbers`: what the caller gives, sizes first. `plans`: by switches.
    """

    spec: StepSpec
    groups: dict[str, Group]
    stages: tuple[Stage, ...]
    tensors: dict[str, StepTensor]
    given: tuple[str, ...]
    spare: Names
    calls: tuple[Stage, ...]
    sizes: dict[str, tuple[str, int]]
    derived: dict[str, str]
    numbers: tuple[str, ...]
    floats: Names
    switches: tuple[str, ...]
    plans: dict[Names, tuple[Do, ...]]

    def every(self) -> Iterator[Stage]:
        """All stages, those of repeats after their repeat."""
        return every_stage(self.stages)


def make_step(package: Package, groups: dict[str, Group], report: Report) -> StepPlan | None:
    """The plan of a package's step; None if it has none, or after reporting what is wrong with it."""
    if package.step is None:
        return None
    before = len(report.diagnostics)
    planner = _Planner(package.step, package, groups, report)
    plan = planner.plan()
    return plan if len(report.diagnostics) == before else None


# What a condition on sizes and scalars is made of.
_CONDITION = (
    ast.Name,
    ast.Load,
    ast.Compare,
    ast.cmpop,
    ast.BoolOp,
    ast.boolop,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
)


class _Planner(StepNames):
    def plan(self) -> StepPlan | None:
        before = len(self.report.diagnostics)
        self._collect(self.spec.stages, ())
        self._check_clashes()
        if len(self.report.diagnostics) > before:
            return None
        stages = tuple(
            found for each in self.spec.stages if (found := self._stage(each, ())) is not None
        )
        self._check_names(stages)
        if len(self.report.diagnostics) > before:
            return None
        switches = tuple(each.name.value for each in self.spec.switches)
        plans = {on: schedule(stages, self.spec, on, self.report) for on in self._settings()}
        if len(self.report.diagnostics) > before:
            return None
        buffers = {each.value for each in self.spec.buffers}
        calls: dict[str, Stage] = {}
        for stage in every_stage(stages):
            if stage.kind == "call":
                calls.setdefault(stage.name, stage)
        given = tuple(name for name in self.tensors if name not in buffers)
        leaves = [stage for stage in every_stage(stages) if stage.kind != "repeat"]
        always = [stage for stage in leaves if stage.switch is None or not stage.switch[1]]
        needed = {name for s in always for name in s.reads | s.writes}
        spare = frozenset(given) - needed
        sizes, derived, numbers = self._numbers(spare)
        return StepPlan(
            spec=self.spec,
            groups=self.groups,
            stages=stages,
            tensors=self.tensors,
            given=given,
            spare=spare,
            calls=tuple(calls.values()),
            sizes=sizes,
            derived=derived,
            numbers=numbers,
            floats=frozenset(n for n, dtype in self.scalars.items() if dtype == "f32"),
            switches=switches,
            plans=plans,
        )

    def _settings(self) -> Iterator[Names]:
        """Every set of the step's own switches that may be on together."""
        names = [each.name.value for each in self.spec.switches]
        needs = {s.name.value: s.needs.value for s in self.spec.switches if s.needs is not None}
        for count in range(len(names) + 1):
            for on in itertools.combinations(names, count):
                if all(needs.get(name, name) in {*on, "fused", "overlap"} for name in on):
                    yield frozenset(on)

    # Stages.

    def _stage(self, spec: StageSpec, loops: tuple[str, ...]) -> Stage | None:
        method = spec.name.value
        while method in self.methods:
            self.methods[spec.name.value] += 1
            method = f"{spec.name.value}_{self.methods[spec.name.value]}"
        self.methods[method] = 1
        inner: tuple[Stage, ...] = ()
        args: tuple[tuple[str, str], ...] = ()
        if spec.kind == "group":
            group = self.groups[spec.name.value]
            bound = {argument.value: target.value for argument, target in spec.bind}
            names = [
                *(t.name for t in group.tensors.values() if not t.optional or t.name in bound),
                *(s.name for s in group.scalars.values() if s.default is None or s.name in bound),
            ]
            args = tuple((name, bound.get(name, name)) for name in names)
            base = {name: target.partition("[")[0] for name, target in args}
            values = [root for store in group.stores for root in store.values]
            used = [each for value in values for each in walk(value, group.lets)]
            loads = {each.tensor for each in used if isinstance(each, Load)}
            reads = frozenset(base[name] for name in loads if name in base)
            writes = frozenset(base[store.tensor] for store in group.stores if store.tensor in base)
        elif spec.kind == "call":
            texts = [each for each in spec.reads if self._known(each, loops, written=False)]
            texts += [each for each in spec.writes if self._known(each, loops, written=True)]
            args = tuple(
                dict.fromkeys(
                    (each.value.partition("[")[0], each.value)
                    for each in texts
                    if each.value.partition("[")[0] not in self.engine
                )
            )
            reads = frozenset(each.value.partition("[")[0] for each in spec.reads)
            writes = frozenset(each.value.partition("[")[0] for each in spec.writes)
        else:
            inner = tuple(
                found
                for each in spec.stages
                if (found := self._stage(each, (*loops, spec.name.value))) is not None
            )
            reads = frozenset().union(*(each.reads for each in inner))
            writes = frozenset().union(*(each.writes for each in inner))
        return Stage(
            kind=spec.kind,
            name=spec.name.value,
            method=method,
            reads=reads,
            writes=writes,
            args=args,
            switch=self._switch(spec.switch),
            always=spec.always,
            doc=spec.doc,
            extent=spec.extent.value if spec.extent is not None else "",
            loops=loops,
            stages=inner,
            span=spec.name.span,
        )

    def _known(self, text: Text, loops: tuple[str, ...], *, written: bool) -> bool:
        match = NAME.fullmatch(text.value)
        name, index = (match[1], match[2]) if match else ("", None)
        known = {*self.tensors, *self.engine}
        known |= set() if written else {*self.scalars, *self.sizes}
        indexed = index is None or (index in loops and name in self.tensors)
        if name not in known or not indexed:
            self._fail(
                "unknown-in-step",
                text.span,
                f"`{text.value}` is not a tensor of a group here, and not under `engine`",
                (nearest(name, known) or "name a tensor")
                + "; or add it to `engine` if only the engine sees it",
            )
            return False
        return True

    def _switch(self, text: Text | None) -> tuple[str, bool] | None:
        if text is None:
            return None
        name = text.value.removeprefix("not ").strip()
        names = [each.name.value for each in self.spec.switches]
        if name not in names:
            self._fail(
                "unknown-in-step", text.span, f"there is no switch `{name}`", nearest(name, names)
            )
        return name, not text.value.startswith("not ")

    def _check_names(self, stages: tuple[Stage, ...]) -> None:
        spec, every = self.spec, list(every_stage(stages))
        touched = {name for stage in every for name in stage.reads | stage.writes}
        written = {name for stage in every for name in stage.writes}
        single = {name for name, tensor in self.tensors.items() if tensor.length is None}
        lists = (
            ("buffers", spec.buffers, single),
            ("restore", spec.restore, single & written - {each.value for each in spec.buffers}),
            ("varies", spec.varies, {*self.sizes}),
            ("overlap.aux", spec.aux, {each.name for each in stages}),
            ("overlap.beside", spec.beside, {each.name for each in stages}),
        )
        for what, texts, known in lists:
            for text in texts:
                if text.value not in known:
                    self._fail(
                        "unknown-in-step",
                        text.span,
                        f"`{text.value}` can't stand in `{what}`",
                        nearest(text.value, known),
                    )
        for text in spec.engine:
            if text.value not in touched:
                self._fail(
                    "unused", text.span, f"no stage reads or writes `{text.value}`", "remove it"
                )
            if text.value in self.tensors:
                self._fail(
                    "duplicate-name", text.span, f"`{text.value}` is a tensor of a group too"
                )
        for switch in spec.switches:
            names = ["fused", "overlap", *(each.name.value for each in spec.switches)]
            if switch.needs is not None and switch.needs.value not in names:
                self._fail(
                    "unknown-in-step",
                    switch.needs.span,
                    f"there is no switch `{switch.needs.value}`",
                    nearest(switch.needs.value, names),
                )
            if switch.name.value in ("fused", "overlap"):
                self._fail(
                    "duplicate-name", switch.name.span, f"every step has `{switch.name.value}`"
                )
        self._check_when()
        self._check_buffers(stages)

    def _check_when(self) -> None:
        text = self.spec.when
        if text is None:
            return
        try:
            nodes = [*ast.walk(ast.parse(text.value, mode="eval").body)]
        except (SyntaxError, ValueError):
            nodes = []
        names = [node.id for node in nodes if isinstance(node, ast.Name)]
        plain = all(
            type(node.value) is int
            if isinstance(node, ast.Constant)
            else isinstance(node, _CONDITION)
            for node in nodes
        )
        if not names or not plain or not isinstance(nodes[0], ast.Compare | ast.BoolOp):
            self._fail(
                "bad-syntax",
                text.span,
                f"`{text.value}` is not a condition on sizes and scalars",
                "compare them: `G > 0`, `G > 0 and K > 1`",
            )
            return
        known = {*self.sizes, *self.scalars}
        for name in names:
            if name not in known:
                self._fail(
                    "unknown-in-step",
                    text.span,
                    f"`{name}` is not a size or scalar of a group here",
                    nearest(name, known),
                )

    def _check_buffers(self, stages: tuple[Stage, ...]) -> None:
        """A buffer that is read must have been written in the same step."""
        always = tuple(stage for stage in stages if stage.always)
        for on in self._settings():
            self._check_written(running_stages(stages, on), "no stage before it writes")
            self._check_written(
                running_stages(always, on), "no stage with `always` before it writes"
            )

    def _check_written(self, stages: Iterator[Stage], what: str) -> None:
        buffers = {each.value for each in self.spec.buffers}
        written: set[str] = set()
        for stage in stages:
            for name in sorted((stage.reads & buffers) - written):
                self._fail(
                    "bad-stage",
                    stage.span,
                    f"`{stage.name}` reads the buffer `{name}`, which {what}",
                    "order the stages so that it is written first",
                )
                written.add(name)
            written |= stage.writes

    # Numbers.

    def _numbers(
        self, spare: Names
    ) -> tuple[dict[str, tuple[str, int]], dict[str, str], tuple[str, ...]]:
        varies = {each.value for each in self.spec.varies}
        grown = True
        while grown:  # what is derived from a size that varies does too
            grown = False
            for name, text in self.sizes.items():
                if text and name not in varies and set(re.findall(r"[A-Za-z_]\w*", text)) & varies:
                    varies.add(name)
                    grown = True
        buffers = {each.value for each in self.spec.buffers}
        sizes: dict[str, tuple[str, int]] = {}
        always = {
            name
            for tensor in self.tensors.values()
            if tensor.name not in spare
            for dim in tensor.dims
            for name in re.findall(r"[A-Za-z_]\w*", dim)
        }
        for tensor in sorted(self.tensors.values(), key=lambda each: each.name in spare):
            if tensor.name in buffers:
                continue
            # What a step always needs can't be read off a tensor that may be left out.
            known = always if tensor.name in spare else set[str]()
            for dim, text in [*enumerate(tensor.dims), (-1, tensor.length)]:
                if text in self.sizes and text not in varies | known:
                    sizes.setdefault(text, (tensor.name, dim))
        derived: dict[str, str] = {}
        waiting = {n: t for n, t in self.sizes.items() if t is not None and n not in sizes}
        declared = {each.value for each in self.spec.varies}
        while waiting:
            ready = [
                n
                for n, t in waiting.items()
                if not set(re.findall(r"[A-Za-z_]\w*", t)) & set(waiting) and n not in declared
            ]
            for name in ready or list(waiting):
                text = waiting.pop(name)
                if name not in declared:
                    derived[name] = text
        used = {
            *(each.extent.value for each in self.extents if each.extent is not None),
            *re.findall(r"[A-Za-z_]\w*", self.spec.when.value if self.spec.when else ""),
            *(
                name
                for t in self.tensors.values()
                for d in t.dims
                for name in re.findall(r"[A-Za-z_]\w*", d)
            ),
            *(name for t in derived.values() for name in re.findall(r"[A-Za-z_]\w*", t)),
        }
        free = [
            name
            for name in self.sizes
            if name not in sizes and name not in derived and (name in used or name in declared)
        ]
        scalars = [n for n in self.scalars if n not in sizes and n not in derived and n not in free]
        return sizes, derived, (*sorted(free, key=lambda n: n not in declared), *scalars)
