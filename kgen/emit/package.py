"""The files of a generated package.

In: the plans of a package's groups. Out: path -> text, the same on every machine. Jinja lays out
whole files; every decision is made here or before.
"""

from __future__ import annotations

import hashlib
import json
import textwrap
from dataclasses import dataclass
from pathlib import Path

import jinja2

import kgen
from kgen.emit import reference, triton
from kgen.emit.layout import wrap
from kgen.lang.text import spec_text
from kgen.lang.typed import Group, Param, Tensor, walk
from kgen.plan.plan import Plan, Role
from kgen.spec.model import Package

_HERE = Path(kgen.__file__).parent
# Beside the package in a checkout, inside it in a wheel.
_TEMPLATES = next(
    (p for p in (_HERE / "templates", _HERE.parent / "templates") if p.is_dir()),
    _HERE / "templates",
)
_RUNTIME = _HERE / "runtime"
_VENDORED = ("_runtime.py", "_reference.py", "_launch.py", "_testing.py")


@dataclass(frozen=True, slots=True)
class _View:
    """What the templates show of one group."""

    group: Group
    plan: Plan
    kernel: triton.Kernel
    reference: str
    reference_sizes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.group.name

    @property
    def constant(self) -> str:
        return self.group.name.upper()

    @property
    def arguments(self) -> list[str]:
        return [*self.group.tensors, *self.group.scalars]

    @property
    def signature(self) -> str:
        """The constructor call of the group's `rt.Signature`."""
        group = self.group
        lines = [f"{self.constant} = rt.Signature(", f'    "{group.name}",', "    sizes={"]
        lines += [f'        "{name}": "{size.text}",' for name, size in group.sizes.items()]
        lines += ["    },", "    scalars={"]
        lines += [f'        "{name}": "{each.text}",' for name, each in group.scalars.items()]
        lines += ["    },", "    tensors={"]
        lines += [
            f'        "{name}": rt.TensorArg({_tensor_arguments(tensor)}),'
            for name, tensor in group.tensors.items()
        ]
        lines.append("    },")
        if group.when is not None:
            lines.append(f'    when="{spec_text(group.when)}",')
        return wrap("\n".join([*lines, ")"]))

    @property
    def schema(self) -> str:
        """The operator's schema for torch.library."""
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        parts = []
        for tensor in self.group.tensors.values():
            kind = f"Tensor({next(letters)}!)" if tensor.written else "Tensor"
            parts.append(f"{kind} {tensor.name}")
        parts += [f"int {name}" for name in self.group.scalars]
        return f"{self.name}({', '.join(parts)}) -> ()"

    @property
    def parameters(self) -> str:
        parts = [f"{name}: Tensor" for name in self.group.tensors]
        return ", ".join(parts + [f"{name}: int" for name in self.group.scalars])

    @property
    def definition(self) -> str:
        """The head of the operator's Python function, arguments in order."""
        return _head(self.name, self.parameters, keyword=False)

    @property
    def public_definition(self) -> str:
        return _head(self.name, self.parameters, keyword=True)

    @property
    def doc(self) -> str:
        """The docstring of the public function."""
        group = self.group
        lines = [group.summary, "", "Args:"]
        for tensor in group.tensors.values():
            facts = [tensor.text, tensor.mode]
            facts += [f"values {tensor.values_text}"] if tensor.values_text else []
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
        return sorted(set(names) & set(self.group.sizes), key=list(self.group.sizes).index)

    @property
    def programs(self) -> str:
        """How many programs the launch has, in Python."""
        text = self.kernel.programs.text.replace("tl.cdiv", "rt.cdiv")
        for name, axis in self.plan.blocks.items():
            if axis.tile is not None:
                text = text.replace(name, str(axis.tile))
        return text

    @property
    def reference_call(self) -> str:
        args = [f"{name}={name}" for name in (*self.arguments, *self.reference_sizes)]
        return wrap(f"        reference.{self.name}({', '.join(args)})")

    @property
    def launch(self) -> str:
        """The launch, every argument by position except the compile-time ones."""
        args = [f"kernels.{self.kernel.name}", "programs"]
        keywords = []
        for each in self.kernel.parameters:
            match each.kind:
                case "stride":
                    args.append(f"{each.source}.stride({each.dim})")
                case "static":
                    keywords.append(f"{each.name}={each.source}")
                case "block":
                    keywords.append(f"{each.name}={self._block(each.name)}")
                case _:
                    args.append(each.source)
        keywords.append(f"num_warps={self.plan.warps}")
        return wrap(f"    launch({', '.join(args + keywords)})")

    def _block(self, name: str) -> str:
        axis = self.plan.blocks[name]
        if axis.tile is not None:
            return str(axis.tile)
        return f"rt.lanes({spec_text(self.group.extents[axis.index])})"

    @property
    def case(self) -> str:
        """The constructor call of the group's test case."""
        edges = sorted(
            {e for a in self.plan.blocks.values() if a.tile for e in (a.tile, a.tile + 1)}
        )
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
            f"    undefined={tuple(undefined)!r},".replace("'", '"'),
            f"    edges={tuple(edges)!r},",
            ")",
        ]
        return wrap("\n".join(lines))

    # The page of the group.

    @property
    def roles(self) -> list[str]:
        return [_role_text(self.group, role) for role in self.plan.roles]

    @property
    def undefined(self) -> list[str]:
        return [
            f"`{u.tensor}` at {spec_text(u.value)} in dimension {u.dim}: several rows may own it, so "
            "what it ends up holding is undefined, and so is what those rows read there"
            for u in self.plan.undefined
        ]


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
    args = [f'"{tensor.text}"']
    if tensor.mode != "in":
        args.append(f'mode="{tensor.mode}"')
    if tensor.values_text:
        args.append(f'values="{tensor.values_text}"')
    if tensor.distinct:
        what = f"except {spec_text(tensor.repeats)}" if tensor.repeats is not None else "true"
        args.append(f'distinct="{what}"')
    if tensor.layout != "rows":
        args.append(f'layout="{tensor.layout}"')
    return ", ".join(args)


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


def _role_text(group: Group, role: Role) -> str:
    parts = []
    for axis in role.axes.values():
        extent = spec_text(group.extents[axis.index])
        match axis.kind:
            case "row":
                parts.append(f"a program for each `{axis.index}` of {extent}")
            case "tile":
                parts.append(f"a program for each {axis.tile} values of `{axis.index}` ({extent})")
            case "lanes":
                parts.append(f"all {extent} values of `{axis.index}` in each program")
            case "loop":
                parts.append(f"a loop over `{axis.index}` ({extent}), {axis.tile} at a time")
    targets = ", ".join(f"`{store.target_text}`" for store in (*role.stores, *role.once))
    return f"{targets}: {'; '.join(parts) or 'one program'}"


def render(package: Package, plans: tuple[Plan, ...]) -> dict[str, str]:
    """Every file of a generated package: path below the package's folder -> text."""
    views = [_view(plan) for plan in plans]
    digest = hashlib.sha256(
        "".join([kgen.__version__, *(v.group.sha256 for v in views)]).encode()
    ).hexdigest()
    helpers = sorted({name for view in views for name in view.kernel.helpers})
    context = {
        "package": package.name,
        "version": kgen.__version__,
        "namespace": f"kgen_{package.name}_{digest[:8]}",
        "views": views,
        "helpers": [triton.HELPERS[name] for name in helpers],
        "has_eager": any(view.group.eager for view in views),
        "reference_helpers": _reference_helpers(views),
    }
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - the output is Python and Markdown
    )
    files = {
        "__init__.py": env.get_template("init.py.j2").render(context),
        "kernels.py": env.get_template("kernels.py.j2").render(context),
        "reference.py": env.get_template("reference.py.j2").render(context),
        "ops.py": env.get_template("ops.py.j2").render(context),
        "tests/__init__.py": '"""Equivalence tests of the generated groups."""\n',
        "tests/conftest.py": env.get_template("conftest.py.j2").render(context),
        "README.md": env.get_template("package.md.j2").render(context),
    }
    for view in views:
        test, page = env.get_template("test_group.py.j2"), env.get_template("group.md.j2")
        files[f"tests/test_{view.name}.py"] = test.render(context | {"view": view})
        files[f"docs/{view.name}.md"] = page.render(context | {"view": view})
    if package.eager is not None:
        files["eager.py"] = package.eager
    for name in _VENDORED:
        files[name] = (_RUNTIME / name).read_text(encoding="utf-8")
    files["manifest.json"] = _manifest(package, views, files)
    return files


def _view(plan: Plan) -> _View:
    text = reference.emit(plan.group)
    return _View(plan.group, plan, triton.emit(plan), text.text, text.sizes)


def _reference_helpers(views: list[_View]) -> list[str]:
    names = ("_along", "_first", "_full", "_load", "_max", "_min", "_store")
    return [n for n in names if any(f"{n}(" in view.reference for view in views)]


def _manifest(package: Package, views: list[_View], files: dict[str, str]) -> str:
    groups = {
        view.name: {
            "spec": view.group.file,
            "spec_sha256": view.group.sha256,
            "kernel": view.kernel.name,
            "parameters": {p.name: [p.kind, p.type] for p in view.kernel.parameters},
            "static": list(view.plan.static_names),
            "blocks": {
                name: axis.tile
                if axis.tile is not None
                else str(spec_text(view.group.extents[axis.index]))
                for name, axis in view.plan.blocks.items()
            },
            "num_warps": view.plan.warps,
            "written": [t.name for t in view.group.tensors.values() if t.written],
        }
        for view in views
    }
    hashes = {
        name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(files.items())
    }
    data = {
        "generator": f"kgen {kgen.__version__}",
        "package": package.name,
        "groups": groups,
        "files": hashes,
    }
    return json.dumps(data, indent=2) + "\n"
