"""A step as Python text and as a picture.

In: a `StepPlan`. Out: the pieces that templates/step.py.j2 lays out, the functions that configure it, and
the page that shows its streams.
"""

from __future__ import annotations

import itertools
import textwrap
from dataclasses import dataclass

from kgen.package.view import chain, chain_import
from kgen.plan.step import StepPlan
from kgen.plan.stepnames import StepTensor
from kgen.plan.streams import Do, Names, Stage, free_stages
from kgen.targets import layout
from kgen.targets.layout import docstring, literal, table, texts, wrap


@dataclass(frozen=True, slots=True)
class StepView:
    """What the templates print."""

    plan: StepPlan
    package: str

    @property
    def name(self) -> str:
        """The class."""
        return self.plan.spec.class_name

    @property
    def summary(self) -> str:
        """One sentence."""
        return self.plan.spec.summary

    @property
    def prefix(self) -> str:
        """What the environment variables of the switches begin with."""
        return f"KGEN_{self.package.upper()}"

    @property
    def all_switches(self) -> tuple[str, ...]:
        """Every switch."""
        return ("fused", "overlap", *self.plan.switches)

    @property
    def table_of_switches(self) -> str:
        """The switches, and which needs which."""
        needs = {s.name.value: literal(s.needs.value) for s in self.plan.spec.switches if s.needs}
        made = layout.call("Switches", literal(self.prefix), texts(self.all_switches), table(needs))
        return "\n".join(made.lines("SWITCHES = "))

    @property
    def switches(self) -> list[tuple[str, str, str]]:
        """(switch, environment variable, what it does)."""
        said = {each.name.value: each.doc for each in self.plan.spec.switches}
        said["fused"] = "each group is one kernel instead of the eager chain"
        said["overlap"] = "the stages that may run on the aux stream do"
        return [(n, f"{self.prefix}_{n.upper()}", said[n]) for n in self.all_switches]

    @property
    def configured(self) -> str:
        """The switches as keyword arguments."""
        return ", ".join(f"{name}={name}" for name in self.all_switches)

    @property
    def groups(self) -> list[str]:
        """The groups of the step."""
        return list(dict.fromkeys(s.name for s in self.plan.every() if s.kind == "group"))

    @property
    def chain_import(self) -> str:
        """The import of what joins several eager chains, if a group replaces several."""
        return chain_import(".", [self.plan.groups[name] for name in self.groups])

    @property
    def eager(self) -> str:
        """Group -> its eager function."""
        chains = {name: chain(self.plan.groups[name]) or "" for name in self.groups}
        return "\n".join(table(chains).lines("EAGER = "))

    @property
    def fused(self) -> str:
        """Group -> its operator."""
        return wrap("FUSED = " + _table({n: f"ops.{n}" for n in self.groups}))

    @property
    def body(self) -> str:
        """The class."""
        lines = [f"class {self.name}(Step):", *_indent(self._docstring()), ""]
        lines += _indent([*self._tables(), "", *self._init(), "", *self._call()])
        lines += _indent(["", *self._serial()])
        for on in self.plan.plans:
            lines += _indent(["", *self._overlapped(on)])
        lines += _indent(["", "# The stages."])
        for stage in self.plan.every():
            if stage.kind != "repeat":
                lines += _indent(["", *self._method(stage)])
        return wrap("\n".join(lines))

    @property
    def _when(self) -> str:
        return self.plan.spec.when.value if self.plan.spec.when else ""

    def _docstring(self) -> list[str]:
        """The class's, filled to the line."""
        found = [part for line in self._said() for part in _filled(line)]
        return docstring("\n".join([self.plan.spec.summary, *found])).split("\n")

    def _said(self) -> list[str]:
        lines = ["", "Args:"]
        for call in self.plan.calls:
            takes = ", ".join((*(name for name, _ in call.args), *call.loops))
            lines.append(f"    {call.name}: function({takes}). {call.doc}".rstrip())
        for name in self.plan.given:
            spare = f"; for `{self._spare_switch(name)}` alone" if name in self.plan.spare else ""
            lines.append(f"    {name}: {_typed(self.plan.tensors[name])}{spare}.")
        varies = {each.value for each in self.plan.spec.varies}
        for name in self.plan.numbers:
            if name in varies:
                lines.append(f"    {name}: the greatest; each step may say a smaller one.")
            elif name in self._sizes():
                lines.append(f"    {name}: a size.")
            else:
                lines.append(f"    {name}: given here or to each step.")
        lines += [
            "",
            "The functions take tensors by keyword, cut to the step's sizes, and fill what they write.",
            "Those that may run on the aux stream must not keep what they allocate there.",
            "",
            "Raises:",
            "    KgenCallError: an argument is missing or does not fit.",
        ]
        return lines

    def _spare_switch(self, name: str) -> str:
        stages = (s for s in self.plan.every() if name in s.reads | s.writes)
        return next(s.switch[0] for s in stages if s.switch is not None)

    def _sizes(self) -> Names:
        groups = [self.plan.groups[name] for name in self.groups]
        return frozenset(size for group in groups for size in group.sizes)

    def _tables(self) -> list[str]:
        plan, buffers = self.plan, {each.value for each in self.plan.spec.buffers}
        tensors = {}
        for name, tensor in plan.tensors.items():
            more = f', length="{tensor.length}"' if tensor.length is not None else ""
            more += ", buffer=True" if name in buffers else ""
            more += f', spare="{self._spare_switch(name)}"' if name in plan.spare else ""
            tensors[name] = f'StepTensor("{_type(tensor)}"{more})'
        written = {name for stage in plan.every() for name in stage.writes}
        calls = {
            stage.method: _literal({kw: text for kw, text in stage.args if "[" not in text})
            for stage in plan.every()
            if stage.kind == "call"
        }
        return [
            f'NAME = "{self.name}"',
            f"TENSORS = {_table(tensors)}",
            f"SIZES = {_table({n: _literal(at) for n, at in plan.sizes.items()})}",
            f"DERIVED = {_literal(plan.derived)}",
            f"NUMBERS = {_literal(plan.numbers)}",
            f"VARIES = {_literal(tuple(each.value for each in plan.spec.varies))}",
            f"FLOATS = {_literal(tuple(n for n in plan.numbers if n in plan.floats))}",
            f"WRITES = {_literal(tuple(n for n in plan.given if n in written))}",
            f"CALLS = {_table(calls)}",
            f"RESTORE = {_literal(tuple(each.value for each in plan.spec.restore))}",
            f"WHEN = {literal(self._when)}",
            "SWITCHES = SWITCHES",
        ]

    def _init(self) -> list[str]:
        plan = self.plan
        lines = ["def __init__(", "    self,", "    *,"]
        for call in plan.calls:
            lines.append(f"    {call.name}: Callable[..., None],")
        needed = [name for name in plan.given if name not in plan.spare]
        lines += [f"    {name}: {_annotation(plan.tensors[name])}," for name in needed]
        for name in sorted(plan.spare):
            lines.append(f"    {name}: {_annotation(plan.tensors[name])} | None = None,")
        lines += [f"    {name}: {self._number(name)} | None = None," for name in plan.numbers]
        calls = _table({call.name: call.name for call in plan.calls})
        tensors = _table({name: name for name in plan.given})
        numbers = _table({name: name for name in plan.numbers})
        return [*lines, ") -> None:", f"    super().__init__({calls}, {tensors}, {numbers})"]

    def _number(self, name: str) -> str:
        return "float" if name in self.plan.floats else "int"

    def _call(self) -> list[str]:
        plan = self.plan
        lines = ["def __call__(", "    self,", *(["    *,"] if plan.numbers else [])]
        lines += [f"    {name}: {self._number(name)} | None = None," for name in plan.numbers]
        lines += [
            ") -> None:",
            '    """One step; what is left out is as it was given at the start.',
            "",
            "    Raises:",
            "        KgenCallError: a number is missing or does not fit; nothing was written.",
            "        Exception: whatever a stage raises; the tensors of `RESTORE` are as before the step.",
            '    """',
            "    _on = self.SWITCHES.read()",
            '    self._groups = FUSED if _on["fused"] else EAGER',
            "    self._on = _on",
            "    _stages = self._serial",
            '    if _on["overlap"]:',
        ]
        for switches in plan.plans:
            test = " and ".join(f'_on["{name}"]' for name in sorted(switches))
            pad = "        "
            if test:
                lines.append(f"        if {test}:")
                pad += "    "
            lines.append(f"{pad}_stages = self.{_overlap(switches)}")
        numbers = _table({name: name for name in plan.numbers})
        lines.append(f"    self._run({numbers}, self._idle, _stages, _on)")
        always = [stage for stage in plan.stages if stage.always]
        lines += ["", "def _idle(self, v: SimpleNamespace) -> None:"]
        lines.append(f"    {docstring(f'What runs where `{self._when}` is false.')}")
        return lines + _indent(_stages(tuple(always)))

    def _serial(self) -> list[str]:
        lines = [
            "def _serial(self, v: SimpleNamespace) -> None:",
            '    """The stages in order, on one stream."""',
        ]
        return lines + _indent(_stages(self.plan.stages))

    def _overlapped(self, on: Names) -> list[str]:
        lines = [
            f"def {_overlap(on)}(self, v: SimpleNamespace) -> None:",
            '    """Likewise, on two streams."""',
        ]
        if any(do.aux for do in self.plan.plans[on]):
            lines += ["    streams = self._streams", "    streams.fork()"]
        inside = False
        for do in self.plan.plans[on]:
            if do.aux and not inside:
                lines.append("    with streams.aux():")
            inside = do.aux
            pad = "        " if do.aux else "    "
            lines += [pad + line for line in _do(do, on)]
        return lines

    def _method(self, stage: Stage) -> list[str]:
        takes = "".join(f", {index}: int" for index in stage.loops)
        lines = [f"def _stage_{stage.method}(self, v: SimpleNamespace{takes}) -> None:"]
        if stage.kind == "group":
            lines.append(f"    {docstring(self.plan.groups[stage.name].summary)}")
            args = [f"{name}=v.{text}" for name, text in stage.args]
            return [*lines, f'    self._groups["{stage.name}"]({", ".join(args)})']
        if stage.doc:
            lines.append(f"    {docstring(stage.doc)}")
        args = [f"{name}=v.{text}" for name, text in stage.args if "[" in text]
        args += [f"{index}={index}" for index in stage.loops]
        args.append(f'**v.calls["{stage.method}"]')
        return [*lines, f'    self._calls["{stage.name}"]({", ".join(args)})']

    # The page, and what `kgen explain` prints.

    @property
    def explained(self) -> list[str]:
        """The stages and what they touch, the streams, and what else could be forked."""
        lines = []
        for stage in self.plan.stages:
            several = [stage] if stage.kind != "repeat" else list(stage.stages)
            if stage.kind == "repeat":
                lines.append(f"for each {stage.name} of {stage.extent}:")
            for each in several:
                lines += [f"{'  ' * (stage.kind == 'repeat')}{each.name}{_condition(each)}"]
                lines += [f"    reads {', '.join(sorted(each.reads)) or 'nothing'}"]
                lines += [f"    writes {', '.join(sorted(each.writes)) or 'nothing'}"]
        for on, picture in self.pictures:
            lines += ["", f"{on}:", "", picture]
        beside = ", ".join(each.value for each in self.plan.spec.beside)
        free = ", ".join(s.name for s in free_stages(self.plan.stages, self.plan.spec))
        if beside:
            lines += [
                "",
                f"Independent of {beside}, so it could be forked too: {free or 'nothing'}.",
            ]
        return lines

    @property
    def pictures(self) -> list[tuple[str, str]]:
        """(which switches are on, the streams as text)."""
        return [(", ".join(["overlap", *sorted(on)]), self._picture(on)) for on in self.plan.plans]

    def _picture(self, on: Names) -> str:
        names = [stage.name for stage in self.plan.stages]
        wide = max([len(name) for name in names] + [len("main stream")]) + 2
        lines = [f"{'main stream':{wide}}   aux stream", f"{'o':{wide}}-> o"]
        for do in self.plan.plans[on]:
            if do.what == "run" and do.aux:
                lines.append(f"{'|':{wide}}   {do.stage.name}")
            elif do.what == "run":
                repeated = [s.name for s in do.stage.stages if s.runs(on)]
                names = [do.stage.name] if not repeated else []
                lines += [f"{name:{wide}}   |" for name in names]
                if repeated:
                    lines.append(f"for each {do.stage.name}:")
                    lines += [f"{'  ' + name:{wide}}   |" for name in repeated]
            elif do.what == "wait" and not do.aux:
                lines.append(f"{'o':{wide}}<- o  {do.why}")
            elif do.what == "wait":
                lines.append(f"{'o':{wide}}-> o  {do.why}")
        return "\n".join(line.rstrip() for line in lines)


def _condition(stage: Stage) -> str:
    if stage.switch is None:
        return ""
    name, wanted = stage.switch
    return f" (if {'' if wanted else 'not '}{name})"


def _do(do: Do, on: Names) -> list[str]:
    if do.what == "run":
        return _stages((do.stage,), on)
    if do.what == "record":
        return [f'streams.record("{do.stage.method}")']
    return [f"# {do.why}", f'streams.wait("{do.stage.method}")']


def _stages(stages: tuple[Stage, ...], on: Names | None = None) -> list[str]:
    """The calls of stages; `on` are the switches if they are known, else they are asked for."""
    lines: list[str] = []
    for switch, several in itertools.groupby(stages, lambda stage: stage.switch):
        found: list[str] = []
        for stage in several:
            if on is not None and not stage.runs(on):
                continue
            if stage.kind == "repeat":
                found.append(f"for {stage.name} in range(v.{stage.extent}):")
                found += _indent(_stages(stage.stages, on))
            else:
                found.append(_run(stage))
        if on is None and switch is not None:
            name, wanted = switch
            found = [f'if {"" if wanted else "not "}self._on["{name}"]:', *_indent(found)]
        lines += found
    return lines


def _filled(line: str) -> list[str]:
    """A line of a docstring, broken where it is too long."""
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line, 92, subsequent_indent=f"{indent}    ") or [""]


def _run(stage: Stage) -> str:
    return f"self._stage_{stage.method}({', '.join(('v', *stage.loops))})"


def _overlap(on: Names) -> str:
    return "_".join(["_overlapped", *sorted(on)])


def _type(tensor: StepTensor) -> str:
    return f"{tensor.dtype}[{', '.join(tensor.dims)}]"


def _typed(tensor: StepTensor) -> str:
    return f"list of {_type(tensor)}" if tensor.length is not None else _type(tensor)


def _annotation(tensor: StepTensor) -> str:
    return "list[Tensor]" if tensor.length is not None else "Tensor"


def _indent(lines: list[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]


def _literal(value: object) -> str:
    return repr(value).replace("'", '"')


def _table(entries: dict[str, str]) -> str:
    return "{" + ", ".join(f'"{name}": {text}' for name, text in entries.items()) + "}"
