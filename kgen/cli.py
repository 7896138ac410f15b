"""The commands: parsing of arguments and printing, no logic.

Exit codes: 0 good, 1 generated files are not what the specs say (`build --check`), 2 bad input.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

import kgen
from kgen.diagnostics import Report, SpecError, counted, nearest

if TYPE_CHECKING:
    from kgen.build import Built, Changes
    from kgen.front import Checked

T = TypeVar("T")

_PHASES = ("typed", "plan", "kernel", "reference")

_SPECS = click.argument("specs", type=click.Path(path_type=Path), default="specs")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
_QUIET = click.option("-q", "--quiet", is_flag=True, help="Print errors only.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kgen.__version__, prog_name="kgen")
def main() -> None:
    """Turn declarative YAML specs into fused GPU kernels."""
    gc.set_threshold(100_000, 50, 50)  # trees live as long as the command does


def _fail(message: str) -> NoReturn:
    click.echo(f"{click.style('error', fg='red', bold=True)}: {message}", err=True)
    sys.exit(2)


def _checked(specs: Path, *, as_json: bool) -> tuple[Checked, ...]:
    from kgen.front import check_specs

    return _made(check_specs, specs, as_json=as_json)


def _made(make: Callable[[Path], T], specs: Path, *, as_json: bool) -> T:
    """What is made of specs; ends with all that is wrong with them."""
    try:
        return make(specs)
    except SpecError as error:
        report = error.report
        if as_json:
            click.echo(json.dumps({"errors": [d.json() for d in report.ordered()]}, indent=2))
        else:
            click.echo(report.render(colour=sys.stderr.isatty()), err=True)
        count = len(report.diagnostics)
        _fail(f"{counted(count, 'mistake')} in the specs; nothing was written")


@main.command()
@_SPECS
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("generated"),
    show_default=True,
    help="Folder for the generated packages.",
)
@click.option(
    "--check", is_flag=True, help="Write nothing; fail if a file is not what the specs say."
)
@_JSON
@_QUIET
def build(specs: Path, out: Path, check: bool, as_json: bool, quiet: bool) -> None:
    """Render the package of each folder of specs: kernels, references, operators, tests, pages."""
    from kgen.build import BuildError, compare, compile_specs, write

    started = time.perf_counter()
    try:
        built = _made(compile_specs, specs, as_json=as_json)
        whole = all(each.package.folder != specs for each in built)
        changes = compare(built, out, whole=whole)
        if not check:
            write(built, out, changes)
    except BuildError as error:
        _fail(str(error))
    _report(built, out, specs, changes, check=check, as_json=as_json, quiet=quiet, started=started)
    if check and changes.any:
        sys.exit(1)


def _report(
    built: tuple[Built, ...],
    out: Path,
    specs: Path,
    changes: Changes,
    *,
    check: bool,
    as_json: bool,
    quiet: bool,
    started: float,
) -> None:
    seconds = time.perf_counter() - started
    if as_json:
        facts = {
            "written": changes.written,
            "removed": changes.removed,
            "unchanged": changes.unchanged,
        }
        click.echo(json.dumps(facts | {"checked": check}, indent=2))
        return
    if check and changes.any:
        for line in changes.differences:
            colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
            click.secho(line, fg=colour, err=True)
        count = len(changes.written) + len(changes.removed)
        click.echo(
            f"{counted(count, 'file')} in {out} {'is' if count == 1 else 'are'} not what the specs say; "
            f"accept the difference with: kgen build {specs} --out {out}",
            err=True,
        )
        return
    if quiet:
        return
    for each in built:
        names = ", ".join(group.name for group in each.groups)
        click.echo(f"{each.package.name}: {counted(len(each.groups), 'group')} ({names})")
    done = (
        "up to date"
        if check or not changes.any
        else (f"{len(changes.written)} written, {len(changes.removed)} removed")
    )
    click.echo(f"{out}: {done}, {changes.unchanged} unchanged, in {seconds:.2f} s")


@main.command()
@_SPECS
@_JSON
@_QUIET
def check(specs: Path, as_json: bool, quiet: bool) -> None:
    """Check the specs and write nothing."""
    built = _checked(specs, as_json=as_json)
    if as_json:
        notes = [{"group": group, "note": text} for each in built for group, text in each.notes]
        click.echo(json.dumps({"errors": [], **({"notes": notes} if notes else {})}))
    elif not quiet:
        count = sum(len(each.groups) for each in built)
        click.echo(f"{counted(count, 'group')} in {specs}: no mistakes found")
        for group, text in (note for each in built for note in each.notes):
            click.echo(f"note: {group}: {text}")


@main.command(name="list")
@_SPECS
@_JSON
def list_groups(specs: Path, as_json: bool) -> None:
    """List the groups."""
    built = _checked(specs, as_json=as_json)
    if as_json:
        rows = [
            {"package": b.package.name, "group": g.name, "summary": g.summary, "spec": g.file}
            for b in built
            for g in b.groups
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(len(g.name) for b in built for g in b.groups)
    for each in built:
        click.secho(each.package.name, bold=True)
        for group in each.groups:
            click.echo(f"  {group.name:{width}}  {group.summary}")


@main.command()
@click.argument("group")
@click.option("--specs", type=click.Path(path_type=Path), default=Path("specs"), show_default=True)
@click.option("--phase", type=click.Choice(_PHASES), default="kernel", show_default=True)
def show(group: str, specs: Path, phase: str) -> None:
    """Print what a group is in one phase of the compiler."""
    groups = {each.name: each for built in _checked(specs, as_json=False) for each in built.groups}
    if group not in groups:
        _fail(f"there is no group `{group}` in {specs}; {nearest(group, groups)}")
    typed = groups[group]
    if phase == "typed":
        from kgen.lang.text import spec_text

        for let in typed.lets.values():
            axes = ", ".join(i for i in typed.extents if i in let.value.axes)
            click.echo(f"{let.name}: {let.value.dtype}[{axes}] = {spec_text(let.value)}")
        for store in typed.stores:
            click.echo(f"{store.target_text} := {spec_text(store.value)}  ({store.value.dtype})")
        return
    from kgen.build import compile_group

    emitted = compile_group(typed, Report())
    assert emitted is not None, "its package was compiled"
    if phase == "plan":
        click.echo(f"{emitted.words.programs}:")
        for role in emitted.words.roles:
            click.echo(f"- {role}")
    else:
        text = emitted.kernel.text if phase == "kernel" else emitted.reference
        click.echo(text, nl=False)


@main.command()
@click.argument("step")
@click.option("--specs", type=click.Path(path_type=Path), default=Path("specs"), show_default=True)
def explain(step: str, specs: Path) -> None:
    """Say how a step runs: what its stages touch, what waits for what, what else could be forked."""
    from kgen.package.step import StepView

    built = {b.step.spec.name.value: b for b in _checked(specs, as_json=False) if b.step}
    if step not in built:
        _fail(
            f"there is no step `{step}` in {specs}; {nearest(step, built) or 'no package has one'}"
        )
    plan = built[step].step
    assert plan is not None
    click.echo(f"{plan.spec.class_name}: {plan.spec.summary}\n")
    for line in StepView(plan, built[step].package.name).explained:
        click.echo(line)


@main.command()
@click.option("--step", is_flag=True, help="Of step.yaml instead of a group's file.")
def schema(step: bool) -> None:
    """Print the JSON Schema of a spec file, for editors."""
    from kgen.spec.schema import json_schema, step_schema

    click.echo(json.dumps(step_schema() if step else json_schema(), indent=2))


# The arguments of these belong to kgen.bench, which also runs where kgen's own needs are missing.
_PASSED_ON = {"add_help_option": False, "context_settings": {"ignore_unknown_options": True}}
_ARGUMENTS = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)


@main.command(name="compile", **_PASSED_ON)
@_ARGUMENTS
def compile_kernels(arguments: tuple[str, ...]) -> None:
    """Print registers, spills and code size of each kernel, for GPUs that need not be there."""
    from kgen.bench import code

    sys.exit(code.main(arguments))


@main.command(**_PASSED_ON)
@_ARGUMENTS
def bench(arguments: tuple[str, ...]) -> None:
    """Time groups on a GPU beside their eager chains, torch.compile and functions of yours."""
    from kgen.bench import groups

    sys.exit(groups.main(arguments))


if __name__ == "__main__":
    main()
