"""The files of a generated package.

In: the plans of a package's groups. Out: path -> text, the same on every machine. Jinja lays out
whole files; every decision is made here or before.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jinja2

import kgen
from kgen.emit.checks import check_helper
from kgen.emit.helpers import helper
from kgen.emit.step import StepView
from kgen.emit.view import View, make_view
from kgen.lang.text import spec_text
from kgen.plan.plan import Plan
from kgen.plan.step import StepPlan
from kgen.spec.package import Package

_HERE = Path(kgen.__file__).parent
# Beside the package in a checkout, inside it in a wheel.
_TEMPLATES = next(
    (p for p in (_HERE / "templates", _HERE.parent / "templates") if p.is_dir()),
    _HERE / "templates",
)
_RUNTIME = _HERE / "runtime"
_VENDORED = (
    "_runtime.py",
    "_overlap.py",
    "_reference.py",
    "_launch.py",
    "_debug.py",
    "_warmup.py",
    "_draw.py",
    "_testing.py",
)


def render(package: Package, plans: tuple[Plan, ...], step: StepPlan | None) -> dict[str, str]:
    """Every file of a generated package: path below the package's folder -> text."""
    views = [make_view(plan) for plan in plans]
    digest = hashlib.sha256(
        "".join(v.signature + v.kernel.text + v.reference for v in views).encode()
    ).hexdigest()
    used = {name for view in views for name in view.kernel.helpers}
    checked = {name for view in views for name in view.check.helpers}
    context: dict[str, object] = {
        "package": package.name,
        "version": kgen.__version__,
        "namespace": f"kgen_{package.name}_{digest[:8]}",
        "views": views,
        "helpers": [helper(name) for name in sorted(used)],
        "checked_views": [view for view in views if view.check.checked],
        "check_classes": [
            *(["Check"] if any(view.check.checks for view in views) else []),
            "Checks",
            *(["Trusted"] if any(view.check.trusted for view in views) else []),
        ],
        "imported_helpers": sorted(checked & used),
        "check_helpers": [check_helper(name) or helper(name) for name in sorted(checked - used)],
        "has_eager": any(view.group.eager for view in views),
        "reference_helpers": _reference_helpers(views),
        "step": StepView(step, package.name) if step is not None else None,
    }
    exports = [
        "KgenCallError",
        "KgenDeviceCheckError",
        "no_jit",
        "warmup",
        *(view.name for view in views),
    ]
    exports += [step.spec.class_name, "configure"] if step is not None else []
    context["exports"] = sorted(exports)
    static = sorted({name for plan in plans for name in plan.group.static_names})
    context["example_static"] = ", ".join(f"{name}=8" for name in static[:2]) or "none here"
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
        "debug.py": env.get_template("debug.py.j2").render(context),
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
    if step is not None:
        files["step.py"] = env.get_template("step.py.j2").render(context)
    for name in (*_VENDORED, *(["_step.py"] if step is not None else [])):
        files[name] = (_RUNTIME / name).read_text(encoding="utf-8")
    files["manifest.json"] = _manifest(package, views, files)
    return files


def _reference_helpers(views: list[View]) -> list[str]:
    names = (
        "_along",
        "_exp",
        "_first",
        "_full",
        "_larger",
        "_load",
        "_max",
        "_min",
        "_smaller",
        "_sqrt",
        "_store",
        "_tree_sum",
    )
    return [n for n in names if any(f"{n}(" in view.reference for view in views)]


def _manifest(package: Package, views: list[View], files: dict[str, str]) -> str:
    groups = {
        view.name: {
            "spec": view.group.file,
            "spec_sha256": view.group.sha256,
            "kernel": view.kernel.name,
            "parameters": {p.name: [p.kind, p.type] for p in view.kernel.parameters},
            "check": view.check.name if view.check.checked else None,
            "check_parameters": {p.name: [p.kind, p.type] for p in view.check.parameters},
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
