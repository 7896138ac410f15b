"""What the templates show of one group, as text.

In: a plan and the emitters' texts. Out: `View`, whose properties the templates print.
"""

from __future__ import annotations

import itertools
import json
import re
import textwrap
from dataclasses import dataclass

from kgen.emit import checks, reference, triton
from kgen.emit.layout import wrap
from kgen.emit.page import Page
from kgen.emit.parameters import Parameter, list_limit
from kgen.emit.prune import words
from kgen.emit.relies import promises, shown
from kgen.lang.dtypes import FLOATS
from kgen.lang.text import spec_text
from kgen.lang.typed import Const, Group, Load, Param, Ref, Scalar, Select, Tensor, Value, walk
from kgen.plan.plan import Plan


def make_view(plan: Plan) -> View:
    """The view of a plan."""
    text = reference.emit(plan.group)
    kernel, check = triton.emit(plan), checks.emit(plan)
    return View(plan.group, plan, kernel, check, text.text, text.sizes)


@dataclass(frozen=True, slots=True)
class View:
    """What the templates show of one group."""

    group: Group
    plan: Plan
    kernel: triton.Kernel
    check: checks.CheckKernel
    reference: str
    reference_sizes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The group's name."""
        return self.group.name

    @property
    def constant(self) -> str:
        """The name of its signature."""
        return self.group.name.upper()

    @property
    def ordered(self) -> list[Tensor | Scalar]:
        """The arguments, those that a caller may leave out last."""
        tensors = list(self.group.tensors.values())
        scalars = list(self.group.scalars.values())
        needed = [t for t in tensors if not t.optional], [s for s in scalars if s.default is None]
        spare = [t for t in tensors if t.optional], [s for s in scalars if s.default is not None]
        return [*needed[0], *needed[1], *spare[0], *spare[1]]

    @property
    def arguments(self) -> list[str]:
        """Their names."""
        return [each.name for each in self.ordered]

    @property
    def device(self) -> str:
        """Where the group runs: on the device of its first tensor."""
        first = next(tensor for tensor in self.group.tensors.values() if not tensor.optional)
        return f"{first.name}{'[0]' if first.length is not None else ''}.device"

    @property
    def signature(self) -> str:
        """The constructor call of the group's `rt.Signature`."""
        group = self.group
        lines = [
            f"{self.constant} = rt.Signature(",
            f'    "{group.name}",',
            "    sizes={" if group.sizes else "    sizes={},",
        ]
        lines += [f'        "{name}": "{size.text}",' for name, size in group.sizes.items()]
        lines += ["    },"] if group.sizes else []
        lines.append("    scalars={" if group.scalars else "    scalars={},")
        lines += [f'        "{name}": "{each.text}",' for name, each in group.scalars.items()]
        lines += ["    },"] if group.scalars else []
        lines.append("    tensors={")
        lines += [
            f'        "{name}": rt.TensorArg({_tensor_arguments(tensor)}),'
            for name, tensor in group.tensors.items()
        ]
        lines.append("    },")
        defaults = {n: s.default for n, s in group.scalars.items() if s.default is not None}
        if defaults:
            inner = ", ".join(f'"{name}": "{spec_text(d)}"' for name, d in defaults.items())
            lines.append(f"    defaults={{{inner}}},")
        if group.when is not None:
            lines.append(f'    when="{spec_text(group.when)}",')
        return wrap("\n".join([*lines, ")"]))

    @property
    def schema(self) -> list[str]:
        """The operator's schema for torch.library, as lines of Python."""
        letters = (f"a{number}" for number in itertools.count())
        parts = []
        for each in self.ordered:
            if isinstance(each, Tensor):
                kind = f"Tensor({next(letters)}!)" if each.written else "Tensor"
                kind += "[]" if each.length is not None else ""
                kind += "?" if each.optional else ""
                default = "=None" if each.optional else ""
            else:
                kind = "float" if each.dtype == "f32" else "int"
                kind += "?" if each.default is not None else ""
                default = "=None" if each.default is not None else ""
            parts.append(f"{kind} {each.name}{default}")
        one = f'"{self.name}({", ".join(parts)}) -> ()",'
        if len(one) <= 96:
            return [one]
        lines = [f'"{part}{", " if part is not parts[-1] else ""}"' for part in parts]
        return [f'"{self.name}("', *lines, '") -> ()",']

    @property
    def parameters(self) -> str:
        """The parameters of the Python functions."""
        return ", ".join(_parameter(each) for each in self.ordered)

    @property
    def definition(self) -> str:
        """The head of the operator's Python function, arguments in order."""
        return _head(self.name, self.parameters, keyword=False)

    @property
    def public_definition(self) -> str:
        """The head of the public function."""
        return _head(self.name, self.parameters, keyword=True)

    @property
    def doc(self) -> str:
        """The docstring of the public function."""
        group = self.group
        lines = [group.summary, "", "Args:"]
        for tensor in group.tensors.values():
            facts = [tensor.text, tensor.mode + (", may be left out" if tensor.optional else "")]
            facts += [f"values {tensor.values_text}"] if tensor.values_text else []
            facts += [f"expected {tensor.expected_text}"] if tensor.expected_text else []
            facts += [f"layout {tensor.layout}"] if tensor.layout != "rows" else []
            lines.append(f"    {tensor.name}: {', '.join(facts)}." + _sentence(tensor.doc))
        lines += [f"    {s.name}: {s.text}.{_sentence(s.doc)}" for s in group.scalars.values()]
        lines += [
            "",
            "Raises:",
            "    KgenCallError: an argument does not fit; nothing was written.",
        ]
        return "\n".join(_fill(line) for line in lines)

    @property
    def bind(self) -> str:
        """The check of a call."""
        tensors = ", ".join(self.group.tensors) + ","
        scalars = ", ".join(self.group.scalars) + ("," if self.group.scalars else "")
        one = f"    v = {self.constant}.bind(({tensors}), ({scalars}))"
        if len(self.group.tensors) > 1:
            one = one.replace(f"({tensors})", f"({tensors[:-1]})")
        if len(self.group.scalars) > 1:
            one = one.replace(f"({scalars})", f"({scalars[:-1]})")
        return wrap(one)

    @property
    def args(self) -> str:
        """The arguments in the operator's order."""
        comma = "," if len(self.arguments) == 1 else ""
        return wrap(f"    args = ({', '.join(self.arguments)}{comma})")

    @property
    def sizes_used(self) -> list[str]:
        """Sizes and scalars that the launch reads from the bound values."""
        names = [p.source for p in self.kernel.parameters if p.kind in ("size", "static")]
        for parameter in self.kernel.parameters:
            if parameter.kind == "block":
                extent = self.group.extents[parameter.source]
                if self.plan.blocks[parameter.name].kind == "lanes":
                    names += [e.name for e in walk(extent, {}) if isinstance(e, Param)]
        for role in self.plan.roles:
            for axis in role.program:
                extent = self.group.extents[axis.index]
                names += [e.name for e in walk(extent, {}) if isinstance(e, Param)]
        names += list(self.reference_sizes)
        sizes = sorted(set(names) & set(self.group.sizes), key=list(self.group.sizes).index)
        return sizes + [n for n, s in self.group.scalars.items() if s.default is not None]

    @property
    def programs(self) -> str:
        """How many programs the launch has, in Python."""
        text = self.kernel.programs.text.replace("tl.cdiv", "rt.cdiv")
        for name, axis in self.plan.blocks.items():
            if axis.tile is not None:
                text = text.replace(name, str(axis.tile))
        return text

    @property
    def _counted(self) -> str:
        names = set(re.findall(r"[A-Za-z_]\w*", self.programs)) & {
            *self.group.sizes,
            *self.group.scalars,
        }
        text = self.programs
        for name in names:
            text = re.sub(rf"\b{name}\b", f'v["{name}"]', text)
        return f"lambda v: {text.replace('rt.cdiv', 'testing.cdiv')}"

    @property
    def reference_call(self) -> str:
        """The call of the reference."""
        args = [f"{name}={name}" for name in (*self.arguments, *self.reference_sizes)]
        return wrap(f"        reference.{self.name}({', '.join(args)})")

    @property
    def launch(self) -> str:
        """The launch, every argument by position except the compile-time ones."""
        return self._launch(f"kernels.{self.kernel.name}", self.kernel.parameters)

    def _launch(self, kernel: str, parameters: tuple[Parameter, ...]) -> str:
        args, keywords = [kernel, "programs", self.device], []
        for each in parameters:
            match each.kind:
                case "address" | "stride" if each.element is not None:
                    if each.element == 0:
                        args.append(f"*{self._list_arguments(each)}")
                case "stride":
                    args.append(f"{each.source}.stride({each.dim})")
                case "given":
                    keywords.append(f"{each.name}={each.source} is not None")
                case "static":
                    keywords.append(f"{each.name}={each.source}")
                case "block":
                    keywords.append(f"{each.name}={self._block(each.name)}")
                case "limit" | "buffer":
                    if "*_more" not in args:
                        args.append("*_more")
                case _:
                    args.append(each.source)
        keywords.append(f"num_warps={self.plan.warps}")
        return wrap(f"    launch({', '.join(args + keywords)})")

    def _list_arguments(self, first: Parameter) -> str:
        limit = list_limit(self.group, self.group.tensors[first.source])
        if first.kind == "address":
            return f"rt.addresses({first.source}, {limit})"
        return f"rt.strides({first.source}, {first.dim}, {limit})"

    def _block(self, name: str) -> str:
        axis = self.plan.blocks[name]
        if axis.tile is not None:
            return str(axis.tile)
        return f"rt.lanes({spec_text(self.group.extents[axis.index])})"

    # Debug mode.

    @property
    def check_definition(self) -> str:
        """The head of the function that launches the group's check."""
        more = "v: rt.Values, _more: list[Any], "
        return _head(f"launch_{self.check.name}", more + self.parameters, keyword=False)

    @property
    def check_sizes(self) -> list[str]:
        """Sizes and scalars that the launch of the check reads from the bound values."""
        used = words((self.programs, self.check_launch))
        return [name for name in self.sizes_used if name in used]

    @property
    def check_launch(self) -> str:
        """The launch of the check."""
        return self._launch(self.check.name, self.check.parameters)

    @property
    def check_table(self) -> str:
        """The constructor call of the group's `Checks`."""
        check, group = self.check, self.group
        extents = {index: spec_text(extent).text for index, extent in group.extents.items()}
        stored = dict.fromkeys(
            tuple(i for i in group.extents if i in store.axes) for store in group.stores
        )
        reasons = {
            name: next(s.trusted for s in group.stores if s.tensor == name and s.trusted)
            for name in check.trusted
        }
        twins = {
            index: max((n for n in group.extent_texts if index.startswith(f"{n}_")), key=len)
            for index in group.extents
            if index not in group.extent_texts
        }
        lines = [
            f"{self.constant} = Checks(",
            f"    launch_{check.name},",
            f"    extents={json.dumps(extents)},",
            f"    stores=[{', '.join(_tuple(axes) for axes in stored)}],",
            *(["    checks=["] if check.checks else ["    checks=[],"]),
            *(
                f'        Check("{each.tensor}", "{each.what}", {_tuple(each.axes)}),'
                for each in check.checks
            ),
            *(["    ],"] if check.checks else []),
            f"    limits={_tuple(check.limits)},",
        ]
        if twins:
            lines.append(f"    twins={json.dumps(twins)},")
        if check.distinct:
            lines.append(f"    distinct={_tuple(check.distinct)},")
        if check.trusted:
            lines.append("    trusted={")
            for name, stores in check.trusted.items():
                each = ", ".join(_tuple(store) for store in stores)
                reason = json.dumps(reasons[name].replace('"', "'"))
                lines += [f'        "{name}": Trusted(', f"            {reason},"]
                lines += [f"            [{each}],", "        ),"]
            lines.append("    },")
        return wrap("\n".join([*lines, ")"]))

    @property
    def case(self) -> str:
        """The constructor call of the group's test case."""
        edges = {}
        for axis in self.plan.blocks.values():
            for each in walk(self.group.extents[axis.index], {}):
                if axis.tile is not None and isinstance(each, Param):
                    edges[each.name] = (axis.tile, axis.tile + 1)
        undefined = [(u.tensor, u.dim, spec_text(u.value).text) for u in self.plan.undefined]
        eager = f"eager.{self.group.eager}" if self.group.eager else "None"
        sizes = ", ".join(f'"{name}"' for name in self.reference_sizes)
        sizes += "," if len(self.reference_sizes) == 1 else ""
        lines = [
            "CASE = testing.Case(",
            f"    signature=ops.{self.constant},",
            f"    fused=package.{self.name},",
            f"    reference=reference.{self.name},",
            f"    reference_sizes=({sizes}),",
            f"    eager={eager},",
            f"    programs={self._counted},",
            f"    undefined={tuple(undefined)!r},".replace("'", '"'),
            f"    trusted={self.trusted!r},".replace("'", '"'),
            f"    edges={edges!r},".replace("'", '"'),
            f"    eager_ulps={self.group.eager_ulps},",
            f"    moved={self.moved!r},".replace("'", '"'),
            ")",
        ]
        return wrap("\n".join(lines))

    @property
    def test_note(self) -> str:
        """What the group's tests can't show without a GPU."""
        if not any(tensor.dtype in FLOATS for tensor in self.group.tensors.values()):
            return ""
        return (
            "\n\nIn Triton's interpreter, whose own bf16 is raw bits, conversions are bit arithmetic of "
            "the\nmodule (`bf16_to_f32`, `f32_to_bf16`): index math, masks and the place of every "
            "rounding are shown there, the\nGPU's own conversions, rsqrt and division only on a GPU.\n"
        )

    @property
    def trusted(self) -> tuple[str, ...]:
        """Tensors whose places a store trusts to be distinct."""
        trusted = {store.tensor for store in self.group.stores if store.trusted}
        return tuple(name for name in self.group.tensors if name in trusted)

    @property
    def moved(self) -> tuple[str, ...]:
        """Tensors that only take over elements of others: NaN keeps its payload there."""
        tensors = self.group.tensors
        floats = {
            name for name, tensor in tensors.items() if tensor.written and tensor.dtype in FLOATS
        }
        stores = self.group.stores
        computed = {s.tensor for s in stores if not _is_moved(s.value, self.group)}
        return tuple(name for name in tensors if name in floats - computed)

    @property
    def page(self) -> Page:
        """What the group's page says."""
        return Page(self.plan, tuple(self.ordered))

    @property
    def proofs(self) -> list[str]:
        """Why each index is inside its tensor."""
        return shown(self.plan)

    @property
    def promises(self) -> list[str]:
        """What the caller promises."""
        return promises(self.group)


def _is_moved(value: Value, group: Group) -> bool:
    """Whether a value's bits are those of some element, whatever they are."""
    if isinstance(value, Load):
        return True
    if isinstance(value, Select):
        return all(_is_moved(arm, group) for arm in (value.then, value.other))
    if isinstance(value, Ref):
        return _is_moved(group.lets[value.name].value, group)
    return isinstance(value, Const)


def _parameter(each: Tensor | Scalar) -> str:
    if isinstance(each, Tensor):
        return f"{each.name}: {reference.python_type(each)}" + (" = None" if each.optional else "")
    kind = "float" if each.dtype == "f32" else "int"
    return f"{each.name}: {kind}" + (" | None = None" if each.default is not None else "")


def _head(name: str, parameters: str, *, keyword: bool) -> str:
    parts = (["*"] if keyword else []) + parameters.split(", ")
    one = f"def {name}({', '.join(parts)}) -> None:"
    if len(one) <= 100:
        return one
    inner = f"    {', '.join(parts)}"
    if len(inner) <= 100:
        return f"def {name}(\n{inner}\n) -> None:"
    return "\n".join([f"def {name}(", *(f"    {part}," for part in parts), ") -> None:"])


def _tensor_arguments(tensor: Tensor) -> str:
    args = [f'"{tensor.type_text}"']
    if tensor.mode != "in":
        args.append(f'mode="{tensor.mode}"')
    if tensor.values_text:
        args.append(f'values="{tensor.values_text}"')
    if tensor.expected_text:
        args.append(f'expected="{tensor.expected_text}"')
    if tensor.distinct:
        what = f"except {spec_text(tensor.repeats)}" if tensor.repeats is not None else "true"
        args.append(f'distinct="{what}"')
    if tensor.layout != "rows":
        args.append(f'layout="{tensor.layout}"')
    if tensor.length is not None:
        args.append(f'length="{spec_text(tensor.length)}"')
    if tensor.optional:
        args.append("optional=True")
    return ", ".join(args)


def _tuple(items: tuple[str, ...]) -> str:
    """A tuple of texts, as Python."""
    inner = ", ".join(json.dumps(item) for item in items)
    return f"({inner}{',' if len(items) == 1 else ''})"


def _sentence(doc: str) -> str:
    return f" {doc[0].upper()}{doc[1:].removesuffix('.')}." if doc else ""


def _fill(line: str) -> str:
    """A docstring's line, broken at 92 columns with a hanging indent."""
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(
        line.strip(),
        92,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
