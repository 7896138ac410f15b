"""The step of a package as frozen data: its stages in order, each with its place in step.yaml.

In: a located tree whose shape the schema accepts. Out: `StepSpec`. Does not know the groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kgen.diagnostics import Report
from kgen.spec import schema
from kgen.spec.located import Block, Items, Text, parse, plain
from kgen.spec.model import (
    is_name,
    line_of,
    names_of,
    need,
    pairs_of,
    read_text,
    shape_error,
    text_of,
)


@dataclass(frozen=True, slots=True)
class SwitchSpec:
    """A switch beside `fused` and `overlap`."""

    name: Text
    needs: Text | None
    doc: str


@dataclass(frozen=True, slots=True)
class StageSpec:
    """A stage. `kind` is `group`, `call` or `repeat`; `name` that of the group, call or index."""

    kind: str
    name: Text
    extent: Text | None
    stages: tuple[StageSpec, ...]
    switch: Text | None
    always: bool
    doc: str
    reads: tuple[Text, ...]
    writes: tuple[Text, ...]
    bind: tuple[tuple[Text, Text], ...]


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step file."""

    name: Text
    summary: str
    switches: tuple[SwitchSpec, ...]
    varies: tuple[Text, ...]
    when: Text | None
    buffers: tuple[Text, ...]
    engine: tuple[Text, ...]
    restore: tuple[Text, ...]
    aux: tuple[Text, ...]
    beside: tuple[Text, ...]
    stages: tuple[StageSpec, ...]

    @property
    def class_name(self) -> str:
        """`DecodeStep` of the step `decode`."""
        return "".join(part.capitalize() for part in self.name.value.split("_")) + "Step"


def read_step(path: Path, shown: str, report: Report) -> StepSpec | None:
    """The step in a file; None after reporting what is wrong with its shape."""
    text = read_text(path, shown, report)
    root = parse(text, shown, report) if text is not None else None
    if root is None or text is None:
        return None
    before = len(report.diagnostics)
    for where, kind, context in schema.errors(plain(root), schema.Step):
        shape_error(root, where, kind, context, report, schema.step_keys)
    if len(report.diagnostics) > before:
        return None
    name = need(root, "step")
    if not is_name(name.value):
        report.add("bad-name", name.span, f"`{name.value}` can't be a name")
    stages = _stages(root, report)
    if not stages and len(report.diagnostics) == before:
        report.add("bad-stage", name.span, "a step has at least one stage", "add `- group: NAME`")
    overlap = root.get("overlap")
    overlap = overlap if isinstance(overlap, Block) else Block((), root.span)
    switches = root.get("switches")
    step = StepSpec(
        name=name,
        summary=line_of(root, "summary"),
        switches=tuple(
            SwitchSpec(key, text_of(block, "needs"), line_of(block, "doc"))
            for key, block in (switches.entries if isinstance(switches, Block) else ())
            if isinstance(block, Block)
        ),
        varies=names_of(root, "varies") or (),
        when=text_of(root, "when"),
        buffers=names_of(root, "buffers") or (),
        engine=names_of(root, "engine") or (),
        restore=names_of(root, "restore") or (),
        aux=names_of(overlap, "aux") or (),
        beside=names_of(overlap, "beside") or (),
        stages=stages,
    )
    return step if len(report.diagnostics) == before else None


def _stages(block: Block, report: Report) -> tuple[StageSpec, ...]:
    items = block.get("stages")
    blocks = items.items if isinstance(items, Items) else ()
    found = (_stage(each, report) for each in blocks if isinstance(each, Block))
    return tuple(stage for stage in found if stage is not None)


def _stage(block: Block, report: Report) -> StageSpec | None:
    kinds = [(key, node) for key, node in block.entries if key.value in ("group", "call", "repeat")]
    place = block.entries[0][0].span if block.entries else block.span
    if len(kinds) != 1:
        report.add(
            "bad-stage",
            place,
            "a stage is one of a group, a call and a repeat",
            "write `group: NAME`, `call: NAME`, or `repeat: {l: L}` with `stages`",
        )
        return None
    (key, node), extent = kinds[0], None
    if isinstance(node, Block):
        if len(node.entries) != 1 or not isinstance(node.entries[0][1], Text):
            report.add("bad-stage", key.span, "`repeat` has one index: `repeat: {l: L}`")
            return None
        name, extent = node.entries[0][0], node.entries[0][1]
    else:
        assert isinstance(node, Text)
        name = node
    allowed = {
        "group": {"bind"},
        "call": {"reads", "writes", "doc"},
        "repeat": {"stages"},
    }[key.value]
    for other, _ in block.entries:
        if other.value not in {key.value, "switch", "always", *allowed}:
            report.add("bad-stage", other.span, f"a `{key.value}` stage takes no `{other.value}`")
    stages = _stages(block, report)
    if key.value == "repeat" and not stages:
        report.add("bad-stage", key.span, "`repeat` has no stages", "add `stages: [...]` to it")
    for inner in stages:
        if inner.always:
            report.add(
                "bad-stage", inner.name.span, "`always` inside a repeat", "write it at the repeat"
            )
    return StageSpec(
        kind=key.value,
        name=name,
        extent=extent,
        stages=stages,
        switch=text_of(block, "switch"),
        always=line_of(block, "always") == "true",
        doc=line_of(block, "doc"),
        reads=names_of(block, "reads") or (),
        writes=names_of(block, "writes") or (),
        bind=pairs_of(block, "bind"),
    )
