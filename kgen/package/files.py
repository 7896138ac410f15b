"""The files of a generated package.

In: the views of a package's groups. Out: path -> text, the same on every machine. Jinja lays out
whole files; every decision is made here or before.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

import jinja2

import kgen
from kgen.package.step import StepView
from kgen.package.view import View
from kgen.plan.step import StepPlan
from kgen.spec.package import Package
from kgen.targets.helpers import HELPERS, IN_LAUNCH, helper
from kgen.targets.layout import call, cell, escaped

_HERE = Path(kgen.__file__).parent
# Beside the package in a checkout, inside it in a wheel.
_TEMPLATES = next(
    (p for p in (_HERE / "templates", _HERE.parent / "templates") if p.is_dir()),
    _HERE / "templates",
)
_RUNTIME = _HERE / "runtime"
_VENDORED = sorted(path.name for path in _RUNTIME.glob("_[a-z]*.py") if path.name != "_step.py")


def render(package: Package, views: tuple[View, ...], step: StepPlan | None) -> dict[str, str]:
    """Every file of a generated package: path below the package's folder -> text."""
    checked = [view for view in views if view.checked]
    used = {name for view in views for name in view.kernel.helpers}
    checking = {name for view in checked for name in view.check.helpers}
    helpers = [helper(name) for name in sorted(used - IN_LAUNCH)]
    check_helpers = [helper(name) for name in sorted(checking - used - IN_LAUNCH)]
    found = [word for word in ("Check", "Trusted") if any(f"{word}(" in v.checks for v in checked)]
    context: dict[str, object] = {
        "package": package.name,
        "version": kgen.__version__,
        "views": views,
        "helpers": helpers,
        "kernel_imports": _from_launch(used, helpers),
        "registered": "\n".join(call("register", *(v.name for v in views)).lines("GROUPS = ")),
        "checked_views": checked,
        "check_classes": sorted(["Checks", *found]),
        "check_imports": _from_launch(checking, check_helpers),
        "imported_helpers": sorted(checking & used & {*HELPERS}),
        "check_helpers": check_helpers,
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
    static = sorted({name for view in views for name in view.group.static_names})
    context["example_static"] = ", ".join(f"{name}=8" for name in static[:2]) or "none here"
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - the output is Python and Markdown
    )
    env.filters |= {"cell": cell, "escaped": escaped}
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
        files[f"docs/{view.name}.md"] = page.render(context | {"view": view, "page": view.page})
    if package.eager is not None:
        files["eager.py"] = package.eager
    if step is not None:
        files["step.py"] = env.get_template("step.py.j2").render(context)
    for name in (*_VENDORED, *(["_step.py"] if step is not None else [])):
        files[name] = (_RUNTIME / name).read_text(encoding="utf-8")
    files["manifest.json"] = _manifest(package, views, files)
    return files


def _from_launch(used: set[str], helpers: list[str]) -> list[str]:
    """What kernels take from _launch.py, given what they use and the helpers beside them."""
    asked = ["interpreted"] if any("if interpreted():" in text for text in helpers) else []
    return ["follow", *asked, "kernel", *sorted(used & IN_LAUNCH)]


def _reference_helpers(views: Iterable[View]) -> list[str]:
    """What the references take from _reference.py."""
    text = (_RUNTIME / "_reference.py").read_text(encoding="utf-8")
    names = sorted(re.findall(r"^def (\w+)\(", text, re.MULTILINE))
    return [name for name in names if any(f"{name}(" in view.reference for view in views)]


def _manifest(package: Package, views: Iterable[View], files: dict[str, str]) -> str:
    groups = {
        view.name: {
            "spec": view.group.file,
            "spec_sha256": view.group.sha256,
            "kernel": view.kernel.name,
            "parameters": {p.name: [p.kind, p.type] for p in view.kernel.parameters},
            "check": view.check.name if view.checked else None,
            "check_parameters": {p.name: [p.kind, p.type] for p in view.check.parameters},
            "static": [p.name for p in view.kernel.parameters if p.kind == "static"],
            "blocks": view.emitted.blocks,
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
