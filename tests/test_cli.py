"""The commands: what they print, what they write, how they end."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import kgen
from kgen.cli import main
from kgen.diagnostics import CATALOGUE

DOUBLED = """\
group: doubled
summary: Twice each number.
sizes: {N: 0 .. 5000}
tensors:
  x: i64[N]
  out: {type: "i64[N]", mode: out}
index: {n: N}
store:
  out[n]: 2 * x[n]
"""

ROW_SUMS = """\
group: row_sums
summary: The sum of each row, from the bias on.
sizes: {R: 0 .. 300, K: static 1 .. 12}
scalars: {bias: i64}
tensors:
  x: i64[R, K]
  total: {type: "i64[R]", mode: out}
index: {r: R, k: K}
let: {summed: "sum[k](x[r, k])"}
store:
  total[r]: summed + bias
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in a folder that holds `specs/pack/` with two groups."""
    (tmp_path / "specs" / "pack").mkdir(parents=True)
    (tmp_path / "specs" / "pack" / "doubled.yaml").write_text(DOUBLED)
    (tmp_path / "specs" / "pack" / "row_sums.yaml").write_text(ROW_SUMS)
    monkeypatch.chdir(tmp_path)

    def command(*args: str) -> Ended:
        with pytest.raises(SystemExit) as exit_:
            main(args=[*args], prog_name="kgen")
        printed = capsys.readouterr()
        return Ended(int(exit_.value.code or 0), printed.out, printed.err)

    return command


def tree(folder: Path) -> dict[str, tuple[int, bytes] | None]:
    """Every file below a folder with its time of change and bytes, every folder with None."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        if path.is_file()
        else None
        for path in sorted(folder.rglob("*"))
    }


# Building.


def test_one_of_a_thing_is_told_in_the_singular(run: Run) -> None:
    Path("specs/pack/row_sums.yaml").unlink()
    assert "pack: 1 group (doubled)" in run("build").out
    assert run("show", "doubled", "--phase", "plan").out.startswith("`ceil(N / 128)` programs:\n")
    page = Path("generated/pack/docs/doubled.md").read_text()
    assert "`ceil(N / 128)` programs:" in page
    with Path("generated/pack/docs/doubled.md").open("a") as file:
        file.write("more\n")
    assert "1 file in generated is not what" in run("build", "--check").err


def test_a_page_says_what_each_argument_is(run: Run) -> None:
    Path("specs/pack/doubled.yaml").write_text(
        """\
group: doubled
summary: Moves.
sizes: {N: 0 .. 9}
tensors:
  at: {type: "i64[N]", values: 0 .. N - 1, distinct: true, doc: where to | from}
  slot: {type: "i64[N]", values: 0 .. N, distinct: except N}
  y: {type: "i64[N + 1]", mode: inout}
index: {n: N}
store: {"y[at[n]]": "slot[n]"}
"""
    )
    run("build")
    page = Path("generated/pack/docs/doubled.md").read_text()
    assert "| `at` | `i64[N]` | in | `0 .. N - 1`, none twice | rows | where to \\| from |" in page
    assert "| `slot` | `i64[N]` | in | `0 .. N`, none twice, except `N` | rows | |" in page


def test_build_writes_the_packages_then_nothing(run: Run) -> None:
    first = run("build")
    assert (first.code, first.err) == (0, "")
    assert "pack: 2 groups (doubled, row_sums)" in first.out
    made = tree(Path("generated"))
    assert {"__init__.py", "pack/__init__.py", "pack/kernels.py", "pack/docs/doubled.md"} <= set(
        made
    )
    assert re.search(r"generated: \d+ written, 0 removed, 0 unchanged, in \d+\.\d\d s", first.out)
    second = run("build")
    assert second.code == 0
    assert "generated: up to date" in second.out
    assert tree(Path("generated")) == made


def test_build_of_one_package_leaves_the_others(run: Run) -> None:
    shutil.copytree("specs/pack", "specs/more")
    run("build")
    Path("specs/more/doubled.yaml").unlink()
    before = tree(Path("generated/more"))
    Path("specs/pack/doubled.yaml").write_text(DOUBLED.replace("2 *", "3 *"))
    assert run("build", "specs/pack").code == 0
    assert "3 * x" in Path("generated/pack/kernels.py").read_text()
    assert tree(Path("generated/more")) == before


def test_check_of_what_is_up_to_date(run: Run) -> None:
    run("build")
    before = tree(Path())
    ended = run("build", "--check")
    assert (ended.code, ended.err) == (0, "")
    assert "up to date" in ended.out
    assert tree(Path()) == before


def edit_spec() -> None:
    Path("specs/pack/doubled.yaml").write_text(DOUBLED.replace("2 * x", "3 * x"))


def edit_by_hand() -> None:
    path = Path("generated/pack/kernels.py")
    path.write_text(path.read_text().replace("2 * x_value", "5 * x_value"))


def lose_a_file() -> None:
    Path("generated/pack/docs/doubled.md").unlink()


def remove_a_group() -> None:
    Path("specs/pack/doubled.yaml").unlink()


def remove_a_package() -> None:
    shutil.copytree("specs/pack", "specs/later")
    shutil.rmtree("specs/pack")


@pytest.mark.parametrize(
    "change, told",
    [
        (
            edit_spec,
            ["-    # out[n]: 2 * x[n]", "+    # out[n]: 3 * x[n]", "--- pack/kernels.py (on disk)"],
        ),
        (edit_by_hand, ["5 * x_value", "+++ pack/kernels.py (specs)"]),
        (lose_a_file, ["+# doubled"]),
        (remove_a_group, ["pack/docs/doubled.md belongs to no spec", "-def doubled("]),
        (remove_a_package, ["pack/ belongs to no package of specs"]),
    ],
)
def test_check_shows_the_difference_and_how_to_accept_it(
    run: Run, change: Callable[[], None], told: list[str]
) -> None:
    run("build")
    change()
    before = tree(Path())
    ended = run("build", "--check")
    assert (ended.code, ended.out) == (1, "")
    for text in told:
        assert text in ended.err
    assert tree(Path()) == before, "a check writes nothing"
    accept = ended.err.splitlines()[-1].split(": ", 1)[1]
    program, *arguments = shlex.split(accept)
    assert program == "kgen"
    assert run(*arguments).code == 0
    assert run("build", "--check").code == 0


def test_check_before_the_first_build(run: Run) -> None:
    ended = run("build", "--check")
    assert ended.code == 1
    assert "+def doubled(" in ended.err
    assert not Path("generated").exists()


def test_what_belongs_to_no_spec_is_removed(run: Run) -> None:
    shutil.copytree("specs/pack", "specs/more")
    run("build")
    remove_a_group()
    shutil.rmtree("specs/more")
    assert run("build").code == 0
    left = tree(Path("generated"))
    assert not [name for name in left if "doubled" in name]
    assert not [name for name in left if name.startswith("more/")]


def test_no_empty_folder_is_left_of_a_removed_package(run: Run) -> None:
    shutil.copytree("specs/pack", "specs/more")
    run("build")
    shutil.rmtree("specs/more")
    assert run("build").code == 0
    assert not Path("generated/more").exists()


def test_the_init_of_the_output_folder_is_checked_and_restored(run: Run) -> None:
    run("build")
    Path("generated/__init__.py").unlink()
    assert run("build", "--check").code == 1
    assert run("build").code == 0
    assert Path("generated/__init__.py").is_file()


def test_python_caches_are_no_generated_files(run: Run) -> None:
    run("build")
    cache = Path("generated/pack/__pycache__/ops.cpython-310.pyc")
    cache.parent.mkdir()
    cache.write_bytes(b"\0")
    assert run("build", "--check").code == 0
    assert run("build").code == 0
    assert cache.exists()


# The other commands.


def test_check(run: Run) -> None:
    before = tree(Path())
    assert run("check") == Ended(0, "2 groups in specs: no mistakes found\n", "")
    assert run("check", "specs/pack", "--json") == Ended(0, '{"errors": []}\n', "")
    Path("specs/pack/doubled.yaml").unlink()
    assert run("check").out == "1 group in specs: no mistakes found\n"
    Path("specs/pack/doubled.yaml").write_text(DOUBLED)
    assert set(tree(Path())) == set(before), "nothing is written"


@pytest.mark.usefixtures("run")
def test_a_check_loads_nothing_of_kernels_and_text(root: Path) -> None:
    code = "import sys; from kgen.cli import main; main(['check'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert "no mistakes found" in done.stdout
    loaded = {name for name in done.stdout.split() if name.startswith("kgen.")}
    assert "kgen.prove.prove" in loaded
    for name in ("kernel", "targets", "package", "build"):
        assert f"kgen.{name}" not in loaded
    assert not {"jinja2", "torch", "triton"} & {*done.stdout.split()}


BREAKS = """\
group: doubled
summary: Adds a number to each total.
sizes: {R: 0 .. 64}
scalars: {most: {type: i64, values: 1 .. 100}}
tensors: {total: {type: "i64[R]", values: 0 .. most, mode: inout}}
index: {r: R}
store:
  total[r]: total[r] + 1
"""


@pytest.mark.parametrize(
    "stored, told",
    [
        ("total[r] + 1", True),
        ("min(total[r] + 1, most)", False),
        ('{value: "total[r] + 1", when: "total[r] < most"}', False),
        ('{value: "total[r] + 1", when: "total[r] <= most"}', True),
        ("max(total[r], 3)", True),
        ("most - total[r]", False),
    ],
)
def test_check_tells_of_values_that_the_next_call_may_not_find(
    run: Run, stored: str, told: bool
) -> None:
    Path("specs/pack/doubled.yaml").write_text(BREAKS.replace("total[r] + 1", stored))
    note = (
        "`total[r]`: what is stored is not shown to be in `0 .. most`, the `values` of `total`, which "
        "the next call relies on"
    )
    assert run("check").out == "2 groups in specs: no mistakes found\n" + (
        f"note: doubled: {note}\n" if told else ""
    )
    assert json.loads(run("check", "--json").out).get("notes", []) == (
        [{"group": "doubled", "note": note}] if told else []
    )
    run("build")
    assert (note in Path("generated/pack/docs/doubled.md").read_text()) == told


def test_list(run: Run) -> None:
    ended = run("list")
    assert ended.code == 0
    assert [line.split(maxsplit=1) for line in ended.out.splitlines()] == [
        ["pack"],
        ["doubled", "Twice each number."],
        ["row_sums", "The sum of each row, from the bias on."],
    ]
    rows = json.loads(run("list", "--json").out)
    assert rows[0] == {
        "package": "pack",
        "group": "doubled",
        "summary": "Twice each number.",
        "spec": "doubled.yaml",
    }
    assert [row["group"] for row in rows] == ["doubled", "row_sums"]


@pytest.mark.parametrize(
    "phase, told",
    [
        ("typed", ["summed: i64[r] = sum[k](x[r, k])", "total[r] := summed + bias  (i64)"]),
        ("plan", ["`R` programs:", "- `total[r]`: a program for each `r` of R"]),
        ("kernel", ["@kernel", "def row_sums_kernel(", "# total[r]: summed + bias"]),
        ("reference", ["def row_sums(", "# total[r]: summed + bias"]),
    ],
)
def test_show(run: Run, phase: str, told: list[str]) -> None:
    ended = run("show", "row_sums", "--phase", phase)
    assert (ended.code, ended.err) == (0, "")
    for text in told:
        assert text in ended.out
    assert "doubled" not in ended.out


@pytest.mark.parametrize("phase, name", [("kernel", "kernels.py"), ("reference", "reference.py")])
def test_show_prints_what_is_generated(run: Run, phase: str, name: str) -> None:
    run("build")
    assert run("show", "row_sums", "--phase", phase).out in Path("generated/pack", name).read_text()


def test_show_of_a_group_that_is_not_there(run: Run) -> None:
    ended = run("show", "row_sum")
    assert ended == Ended(
        2, "", "error: there is no group `row_sum` in specs; did you mean `row_sums`?\n"
    )


def references(node: object) -> set[str]:
    """Each `$ref` in a JSON Schema."""
    if isinstance(node, dict):
        own = {node["$ref"]} if "$ref" in node else set()
        return own.union(*(references(value) for value in node.values()))
    return set().union(*(references(each) for each in node)) if isinstance(node, list) else set()


def test_schema(run: Run) -> None:
    schema = json.loads(run("schema").out)
    group, fused = schema["$defs"]["Group"], schema["$defs"]["Fused"]
    assert set(group["required"]) == {"group", "summary", "tensors", "store"}
    assert set(fused["required"]) == {"group", "summary", "fuse"}
    assert group["additionalProperties"] is fused["additionalProperties"] is False
    assert "2020-12" in schema["$schema"]
    found = references(schema)
    assert found
    assert found <= {f"#/$defs/{name}" for name in schema["$defs"]}
    assert set(schema["$defs"]["Tensor"]["properties"]["mode"]["enum"]) == {"in", "out", "inout"}


def test_version_and_help(run: Run) -> None:
    assert run("--version").out == f"kgen, version {kgen.__version__}\n"
    for command in ((), ("build",), ("check",), ("list",), ("show",), ("schema",)):
        ended = run(*command, "-h")
        assert ended.code == 0
        assert "Usage: kgen" in ended.out


def test_the_module_runs_as_a_program(run: Run, root: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "kgen", "list"],
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, run("list").out, "")


# Quiet and JSON.


@pytest.mark.parametrize("command", ["build", "check"])
def test_quiet_prints_errors_only(run: Run, command: str) -> None:
    assert run(command, "-q") == Ended(0, "", "")
    Path("specs/pack/doubled.yaml").write_text(DOUBLED.replace("2 * x", "2 * y"))
    ended = run(command, "-q")
    assert (ended.code, ended.out) == (2, "")
    assert "unknown name" in ended.err or "there is no tensor `y`" in ended.err


def test_json_of_a_build(run: Run) -> None:
    first = json.loads(run("build", "--json").out)
    assert "pack/kernels.py" in first["written"]
    assert (first["removed"], first["unchanged"], first["checked"]) == ([], 0, False)
    remove_a_group()
    check = run("build", "--json", "--check")
    assert check.code == 1
    told = json.loads(check.out)
    assert told["removed"] == ["pack/docs/doubled.md", "pack/tests/test_doubled.py"]
    assert "pack/kernels.py" in told["written"]
    assert told["checked"] is True
    assert Path("generated/pack/docs/doubled.md").exists()


@pytest.mark.parametrize("command", ["build", "check", "list"])
def test_json_of_mistakes(run: Run, command: str) -> None:
    Path("specs/pack/doubled.yaml").write_text(DOUBLED.replace("2 * x[n]", "2 * y[n] + x[n]"))
    ended = run(command, "--json")
    assert ended.code == 2
    assert json.loads(ended.out) == {
        "errors": [
            {
                "code": "unknown-name",
                "file": "specs/pack/doubled.yaml",
                "line": 9,
                "column": 15,
                "end_column": 16,
                "message": "there is no tensor `y`",
                "why": CATALOGUE["unknown-name"],
                "help": "there is `out`, `x`",
                "also": [],
            }
        ]
    }
    assert ended.err == "error: 1 mistake in the specs; nothing was written\n"


# What goes wrong.


def spec_is(text: str) -> Callable[[pytest.MonkeyPatch], None]:
    def change(_: pytest.MonkeyPatch) -> None:
        Path("specs/pack/doubled.yaml").write_text(text)

    return change


def is_not_utf8(_: pytest.MonkeyPatch) -> None:
    Path("specs/pack/doubled.yaml").write_bytes(b"group: doubl\xe9\n")


def is_not_ours_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path.name == "doubled.yaml":
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)


def no_folder(_: pytest.MonkeyPatch) -> None:
    shutil.rmtree("specs")


def a_file_for_a_folder(_: pytest.MonkeyPatch) -> None:
    shutil.rmtree("specs")
    Path("specs").write_text(DOUBLED)


def no_specs(_: pytest.MonkeyPatch) -> None:
    shutil.rmtree("specs/pack")


@pytest.mark.parametrize("command", ["build", "check", "list", "show"])
@pytest.mark.parametrize(
    "change, told",
    [
        (no_folder, ["error[no-specs]: specs is not a folder", "kgen build specs/"]),
        (a_file_for_a_folder, ["error[no-specs]: specs is not a folder"]),
        (no_specs, ["error[no-specs]: no spec files (*.yaml) in specs"]),
        (spec_is(""), ["error[empty-file]", "specs/pack/doubled.yaml:1:1"]),
        (spec_is("# later\n"), ["error[empty-file]"]),
        (spec_is("group: [doubled\n"), ["error[bad-yaml]: the `[` that opens here is not closed"]),
        (spec_is("doubled\n"), ["error[wrong-shape]: a spec file holds one mapping"]),
        (
            spec_is(DOUBLED + "group: twice\n"),
            ["error[duplicate-key]", "doubled.yaml:10:1", "in line 1"],
        ),
        (is_not_utf8, ["error[unreadable-file]: can't read specs/pack/doubled.yaml", "UTF-8"]),
        (is_not_ours_to_read, ["error[unreadable-file]", "Permission denied"]),
    ],
)
def test_bad_input_ends_with_2_and_a_clear_text(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    change: Callable[[pytest.MonkeyPatch], None],
    told: list[str],
) -> None:
    run("build")
    before = tree(Path("generated"))
    change(monkeypatch)
    ended = run(command, *(["row_sums"] if command == "show" else []))
    assert (ended.code, ended.out) == (2, "")
    for text in told:
        assert text in ended.err
    assert "Traceback" not in ended.err
    assert ended.err.endswith("error: 1 mistake in the specs; nothing was written\n")
    assert tree(Path("generated")) == before


@pytest.mark.parametrize(
    "arguments", [["bild"], ["build", "--no-such"], ["show"], ["show", "doubled", "--phase", "x"]]
)
def test_a_wrong_command_line_ends_with_2(run: Run, arguments: list[str]) -> None:
    ended = run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "Usage: kgen" in ended.err


# Where the files go.


def out_is_a_file() -> None:
    Path("out").write_text("mine")


def out_is_below_a_file() -> None:
    Path("file").write_text("mine")


@pytest.mark.parametrize(
    "change, out, told",
    [
        (out_is_a_file, "out", "Directory 'out' is a file"),
        (out_is_below_a_file, "file/out", "can't write file/out"),
    ],
)
def test_an_output_folder_that_cannot_be(
    run: Run, change: Callable[[], None], out: str, told: str
) -> None:
    change()
    before = tree(Path())
    ended = run("build", "--out", out)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert tree(Path()) == before


def test_a_read_only_output_folder(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    for name in ("mkdir", "write_text", "write_bytes"):
        monkeypatch.setattr(Path, name, refuse)
    ended = run("build")
    assert (ended.code, ended.out) == (2, "")
    assert "can't write generated" in ended.err
    assert "Permission denied" in ended.err
    assert "--out" in ended.err
    assert not Path("generated").exists()


def test_a_file_of_somebody_else_in_a_generated_folder(run: Run) -> None:
    run("build")
    Path("generated/pack/notes.txt").write_text("mine")
    edit_spec()
    before = tree(Path("generated"))
    ended = run("build")
    assert (ended.code, ended.out) == (2, "")
    assert "generated/pack/notes.txt" in ended.err
    assert "kgen did not write it" in ended.err
    assert tree(Path("generated")) == before
    assert run("build", "--check").code == 1


def test_a_file_of_somebody_else_is_never_overwritten(run: Run) -> None:
    Path("lib/pack").mkdir(parents=True)
    Path("lib/pack/ops.py").write_text("mine")
    before = tree(Path("lib"))
    ended = run("build", "--out", "lib")
    assert ended.code == 2
    assert "lib/pack/ops.py" in ended.err
    assert tree(Path("lib")) == before


# Nothing is half-written.


def content(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder below a folder, and the files' bytes."""
    return {name: found and found[1] for name, found in tree(folder).items()}


@pytest.mark.parametrize("built", ["not built", "built"])
@pytest.mark.parametrize("turn", [1, 3])
@pytest.mark.parametrize(
    "operation",
    ["write_text", "replace"],
)
def test_a_build_that_fails_changes_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, operation: str, turn: int, built: str
) -> None:
    """The disk is full, half-way through a file or when it is moved to its place."""
    if built == "built":
        run("build")
        edit_spec()
    before = content(Path())
    real = getattr(Path, operation)
    turns = iter(range(1000))

    def fail(path: Path, text: object, *args: object, **options: object) -> object:
        if "generated" in path.parts and next(turns) == turn:
            if operation == "write_text":
                real(path, str(text)[:7], *args, **options)
            raise OSError(28, "No space left on device", str(path))
        return real(path, text, *args, **options)

    monkeypatch.setattr(Path, operation, fail)
    ended = run("build")
    assert (ended.code, ended.out) == (2, "")
    assert "No space left on device" in ended.err
    assert content(Path()) == before


def test_a_full_disk_changes_nothing(run: Run, root: Path) -> None:
    """A real limit on the size of a file, which the longest of the files exceeds."""
    run("build")
    edit_spec()
    Path("generated/pack/_testing.py").unlink()
    before = content(Path())
    limited = (
        "import resource; from kgen.cli import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)); main(['build'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", limited],
        env=os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "can't write" in ended.stderr
    assert content(Path()) == before


# Colours.


def on_a_terminal(root: Path, *args: str) -> str:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-m", "kgen", *args],
            env={k: v for k, v in os.environ.items() if k != "NO_COLOR"}
            | {"PYTHONPATH": str(root)},
            stdout=theirs,
            stderr=theirs,
            check=False,
        )
        os.close(theirs)
        printed = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # all is read and nobody writes
                break
            if not part:
                break
            printed += part
        return printed.decode()
    finally:
        os.close(ours)


def test_colours_on_a_terminal_only(run: Run, root: Path) -> None:
    run("build")
    edit_spec()
    Path("broken").mkdir()
    Path("broken/doubled.yaml").write_text(DOUBLED.replace("2 *", "2 /"))
    for arguments in (["build", "--check"], ["check", "broken"], ["list"], ["show", "none"]):
        ended = run(*arguments)
        assert "\x1b" not in ended.out + ended.err
        assert "\x1b[" in on_a_terminal(root, *arguments)
