"""The eager function that a spec names: found in the text of eager.py, never run."""

from __future__ import annotations

import ast
import functools

from kgen.diagnostics import Report, Span, listed, nearest
from kgen.spec.model import GroupSpec
from kgen.spec.package import Package


def check_eager(spec: GroupSpec, package: Package, report: Report) -> None:
    """Report an eager function that is missing or takes other arguments than its group."""
    if spec.eager is None:
        return
    name = spec.eager.value
    if package.eager is None:
        report.add(
            "bad-eager", spec.eager.span, f"there is no eager.py beside the spec to hold `{name}`"
        )
        return
    file = (package.folder / "eager.py").as_posix()
    try:
        functions = _functions(package.eager)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        column = getattr(error, "offset", None) or 1
        report.add(
            "bad-eager",
            spec.eager.span,
            "eager.py is not Python",
            also=((Span(file, line, column, column + 1), "the syntax error"),),
        )
        return
    if name not in functions:
        report.add(
            "bad-eager",
            spec.eager.span,
            f"eager.py has no function `{name}`",
            nearest(name, functions) or "it has no functions at all",
        )
        return
    parameters = functions[name].args
    given = {arg.arg for arg in parameters.kwonlyargs}
    other = {arg.arg for arg in (*parameters.posonlyargs, *parameters.args)} - given
    wanted = {each.name.value for each in spec.tensors}
    wanted |= {each.name.value for each in spec.scalars}
    spare = {each.name.value for each in spec.tensors if each.optional}
    spare |= {each.name.value for each in spec.scalars if each.default is not None}
    wrong = {
        "missing": wanted - spare - given - other,
        "not the group's": (given | other) - wanted,
        "not keyword-only": other & wanted,
    }
    if any(wrong.values()):
        line = functions[name].lineno
        column = functions[name].col_offset + 1
        report.add(
            "bad-eager",
            spec.eager.span,
            f"`{name}` in eager.py takes other arguments than the group: "
            + "; ".join(f"{what}: {listed(names)}" for what, names in wrong.items() if names),
            "it takes the group's tensors and scalars, keyword-only and by the same names",
            ((Span(file, line, column, column + len(f"def {name}")), "it is here"),),
        )


def eager_parameters(package: Package, name: str) -> frozenset[str]:
    """The keyword arguments of a function in eager.py; none if it can't be read."""
    try:
        found = _functions(package.eager or "").get(name)
    except SyntaxError:
        return frozenset()
    return frozenset(arg.arg for arg in found.args.kwonlyargs) if found is not None else frozenset()


@functools.lru_cache(maxsize=8)
def _functions(text: str) -> dict[str, ast.FunctionDef]:
    """The functions of a module; each group of a package asks for them."""
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
