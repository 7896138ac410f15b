"""A spec's words inside generated files: whatever they are, the files parse, are formatted, and say them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import kgen.build
from kgen.build import InternalError, compile_specs
from kgen.cli import main
from kgen.targets.layout import docstring, literal

WORDS = {
    "quoted": 'Says "x"',
    "all_quoted": '"Says"',
    "quotes_end": 'It says "',
    "quotes_begin": '" it says',
    "triple": 'A """docstring""" in it',
    "six": '""""""',
    "single": "It's a 'word'",
    "both": """It's "both" """,
    "backslash": r"A \n path C:\new\x",
    "backslash_end": "Ends in a \\",
    "backslashes": r"\\ and \" and \' and \N{DASH} \u12 \x",
    "braces": "{0} {name} {{ x }} {% if %} {# no #}",
    "percent": "100 % of %s and %(x)d",
    "foreign": "Größe, 数, \u2028 and \U0001f600",
    "comment": "A # comment, and `code`",
    "table": "a | b || c \\| d",
    "brackets": "Opens ( [ { and, never, closes",
    "signs": "a + b & c if d else e = f, " * 6,
    "long": "word " * 60,
    "one_word": "x" * 150,
    "colon": "key: value",
    "newline": "two\nlines\n\n  and a third",
}


def spec(words: str) -> str:
    """A group with the same words wherever a person may write some."""
    said = json.dumps(words)
    return f"""\
group: quoting
summary: {said}
eager: quoting
sizes: {{R: 0 .. 50, N: 1 .. 60}}
scalars:
  by: {{type: i64, values: 0 .. 9, default: 3, doc: {said}}}
tensors:
  at: {{type: "i64[R]", values: 0 .. N - 1, distinct: except N - 1, doc: {said}}}
  to: {{type: "i64[R]", doc: {said}}}
  y: {{type: "i64[N]", mode: inout, doc: {said}}}
  z: {{type: "i32[N]", mode: inout}}
index: {{r: R}}
store:
  y[at[r]]: by
  z[to[r]]: {{value: "i32(r)", trusted: {said}}}
trusted:
  z[to[r]]: {said}
"""


STEP = """\
step: stepping
summary: {said}
switches:
  loud: {{needs: fused, doc: {said}}}
stages:
  - group: quoting
    bind: {{by: by}}
  - call: speak
    reads: [y]
    writes: [z]
    doc: {said}
"""
EAGER = "def quoting(*, at, to, y, z, by=3):\n    pass\n"


def files(folder: Path, words: str) -> dict[str, str]:
    package = folder / "specs" / "pk"
    package.mkdir(parents=True)
    (package / "quoting.yaml").write_text(spec(words), encoding="utf-8")
    (package / "step.yaml").write_text(STEP.format(said=json.dumps(words)), encoding="utf-8")
    (package / "eager.py").write_text(EAGER, encoding="utf-8")
    (built,) = compile_specs(folder / "specs")
    return built.files


@pytest.mark.parametrize("kind", WORDS)
def test_every_file_parses_and_says_the_words(tmp_path: Path, kind: str) -> None:
    words = " ".join(WORDS[kind].split())
    made = files(tmp_path, WORDS[kind])
    trees = {name: ast.parse(text) for name, text in made.items() if name.endswith(".py")}
    assert len(trees) > 20

    def doc(module: str, name: str) -> str:
        every = ast.walk(trees[module])
        kinds = (ast.FunctionDef, ast.ClassDef)
        node = next(n for n in every if isinstance(n, kinds) and n.name == name)
        return ast.get_docstring(node, clean=False) or ""

    for module, name in (
        ("kernels.py", "quoting_kernel"),
        ("reference.py", "quoting"),
        ("step.py", "_stage_quoting"),
        ("step.py", "_stage_speak"),
    ):
        assert doc(module, name).strip() == words, (module, name)
    public = " ".join(doc("__init__.py", "quoting").split())
    assert public.startswith(words)
    assert public.count(words) >= 3 or words[0].islower()
    assert " ".join(doc("step.py", "SteppingStep").split()).startswith(words)
    assert words in " ".join(doc("__init__.py", "configure").split())
    strings = {n.value for n in ast.walk(trees["debug.py"]) if isinstance(n, ast.Constant)}
    assert words in strings
    strings = {
        n.value for n in ast.walk(trees["tests/test_quoting.py"]) if isinstance(n, ast.Constant)
    }
    assert words in strings
    rows = [line for line in made["docs/quoting.md"].splitlines() if line.startswith("| `at`")]
    assert len(rows) == 1
    assert words.replace("|", "\\|") in rows[0]
    json.loads(made["manifest.json"])


@pytest.mark.parametrize("kind", WORDS)
def test_what_is_generated_stays_formatted(root: Path, tmp_path: Path, kind: str) -> None:
    made = files(tmp_path, WORDS[kind])
    for name, text in made.items():
        if name.endswith(".py") and name != "eager.py":
            (tmp_path / name.replace("/", "_")).write_text(text, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--diff",
        "--no-cache",
        *map(str, tmp_path.glob("*.py")),
    ]
    ended = subprocess.run(
        [*command, "--config", str(root / "pyproject.toml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout == ""


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_quoting_is_undone_by_python(words: str) -> None:
    assert ast.literal_eval(literal(words)) == words
    line = " ".join(words.split())
    assert ast.literal_eval(docstring(line)).strip() == line
    several = f"{line}\n\nArgs:\n    x: {line}"
    assert ast.literal_eval(docstring(several, "    ")).split("\n    ")[0].strip() == line


# A file that does not parse is kgen's own fault, and nothing is written.

GROUP = """\
group: {0}
summary: A group.
sizes: {{R: 0 .. 9}}
tensors: {{x: {{type: "i64[R]", mode: out}}}}
index: {{r: R}}
store: {{"x[r]": r}}
"""


@pytest.mark.parametrize(
    "name, broken, spec_file",
    [
        ("kernels.py", "def second_kernel(x, x):\n    pass\n", "second.yaml"),
        ("ops.py", "leading = Operator(\n    'a\n)\n", "leading.yaml"),
        ("tests/test_second.py", "x = (\n", "second.yaml"),
        ("__init__.py", "'''", "specs/pk"),
        ("debug.py", "nul = '\0'\n", "specs/pk"),
    ],
)
def test_a_file_that_does_not_parse_is_an_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, name: str, broken: str, spec_file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("specs/pk").mkdir(parents=True)
    for group in ("leading", "second"):
        Path(f"specs/pk/{group}.yaml").write_text(GROUP.format(group), encoding="utf-8")
    real = kgen.build.render
    monkeypatch.setattr(kgen.build, "render", lambda *given: real(*given) | {name: broken})
    with pytest.raises(InternalError) as caught:
        compile_specs(Path("specs"))
    told = str(caught.value)
    assert told.startswith(f"internal error: pk/{name} would not be Python")
    assert spec_file in told
    with pytest.raises(SystemExit) as ended:
        main(["build"])
    assert ended.value.code == 2
    assert "internal error" in capsys.readouterr().err
    assert not Path("generated").exists()


def test_an_eager_file_that_does_not_parse_is_its_writers(tmp_path: Path) -> None:
    package = tmp_path / "pk"
    package.mkdir()
    (package / "one.yaml").write_text(GROUP.format("one"), encoding="utf-8")
    (package / "eager.py").write_text("def one(:\n", encoding="utf-8")
    with pytest.raises(kgen.build.BuildError, match=r"pk.eager\.py, line 1, is not Python"):
        compile_specs(tmp_path)
