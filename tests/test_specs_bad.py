"""Every kind of mistake: a broken spec with one fault, and the whole text that a user sees.

`specs_bad/CODE.yaml` or `CODE-what.yaml` is a spec, or without `.yaml` a folder of specs, and
`CODE.txt` what kgen says of it. `pytest tests/test_specs_bad.py --bless` rewrites those texts; read the
difference as a user would. An eager.py that is no Python is kept as `eager.py.txt`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kgen.build import compile_specs
from kgen.diagnostics import CATALOGUE, Report, SpecError
from kgen.spec import located

BAD = Path(__file__).parent / "specs_bad"
CASES = sorted(path for path in BAD.iterdir() if path.suffix != ".txt")


def code_of(case: Path) -> str:
    """The code that a file's name begins with, the longest that fits."""
    return max(
        (code for code in CATALOGUE if f"{case.stem}-".startswith(f"{code}-")), key=len, default=""
    )


def mistakes(case: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """What is wrong with a case, read as `specs/` of the current folder."""
    if case.is_dir():
        shutil.copytree(case, folder / "specs")
        for path in (folder / "specs").rglob("*.txt"):
            path.rename(path.with_suffix(""))
    else:
        (folder / "specs").mkdir()
        shutil.copy(case, folder / "specs")
    monkeypatch.chdir(folder)
    with pytest.raises(SpecError) as raised:
        compile_specs(Path("specs"))
    return raised.value.report


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_text(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    report = mistakes(case, tmp_path, monkeypatch)
    assert [each.code for each in report.diagnostics] == [code_of(case)], report.render()
    expected = case.with_suffix(".txt")
    if request.config.getoption("--bless"):
        expected.write_text(report.render(), encoding="utf-8", newline="\n")
    assert expected.is_file(), f"no {expected.name}; `pytest {__file__} --bless` writes it"
    assert report.render() == expected.read_text(encoding="utf-8")


def test_every_code_has_a_case() -> None:
    assert {code_of(case) for case in CASES} == set(CATALOGUE)


def test_every_text_has_a_case() -> None:
    texts = {path.stem for path in BAD.glob("*.txt")}
    assert texts == {case.stem for case in CASES}


def test_no_text_depends_on_where_it_was_made() -> None:
    for path in BAD.glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        assert str(Path.home()) not in text
        assert "/tmp" not in text
        assert "\x1b" not in text
        assert all("  --> specs" in text for text in text.split("error[")[1:])


@pytest.mark.parametrize(
    "case", [c for c in CASES if code_of(c) == "bad-yaml"], ids=lambda c: c.stem
)
def test_bad_yaml_reads_the_same_without_libyaml(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(located, "_Loader", yaml.SafeLoader)
    report = mistakes(case, tmp_path, monkeypatch)
    assert report.render() == case.with_suffix(".txt").read_text(encoding="utf-8")


def test_bless_rewrites_the_expected_texts_and_nothing_else(tmp_path: Path, root: Path) -> None:
    tests = tmp_path / "tests"
    shutil.copytree(BAD, tests / "specs_bad")
    for name in ("conftest.py", Path(__file__).name):
        shutil.copy(root / "tests" / name, tests)
    before = {path: path.read_bytes() for path in tests.rglob("*") if path.is_file()}
    (tests / "specs_bad" / "unused.txt").unlink()
    (tests / "specs_bad" / "race.txt").write_text("error[race]: something else\n")
    env = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
    ]
    command += ["tests/test_specs_bad.py", "-k", "test_text"]
    plain = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert "2 failed" in plain.stdout
    assert "--bless" in plain.stdout
    blessed = subprocess.run(
        [*command, "--bless"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert blessed.returncode == 0, blessed.stdout
    assert {path: path.read_bytes() for path in tests.rglob("*") if path.is_file()} == before


# Several mistakes at once.

SEVERAL = """\
group: several
summary: Five mistakes in five places.
sizes: {R: 0 .. 300, K: static 1 .. 12, Z: 0 .. 9}
tensors:
  x: i64[R, K]
  y: i64[K, J]
  total: {type: "i32[R]", mode: out}
  widest: {type: "i32[R]", mode: out}
index: {r: R, k: K}
let:
  first_of: x[r]
store:
  total[r]: i32(first_of + y[0, 0])
  widest[r]: max[k](x[r, k])
  x[r, k]: 0
"""


def test_all_mistakes_are_told_at_once_and_in_order(front) -> None:
    assert front.found(SEVERAL) == [
        ("unused", "Z"),
        ("unknown-name", "J"),
        ("wrong-rank", "x[r]"),
        ("narrowing", "max[k](x[r, k])"),
        ("store-to-input", "x"),
    ]


def test_all_files_are_read_whatever_is_wrong_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, names in {"one": ("empty-file", "unused"), "two": ("bad-yaml", "race")}.items():
        (tmp_path / "specs" / package).mkdir(parents=True)
        for name in names:
            shutil.copy(BAD / f"{name}.yaml", tmp_path / "specs" / package)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as raised:
        compile_specs(Path("specs"))
    told = [(each.span.file, each.code) for each in raised.value.report.ordered()]
    assert told == [
        ("specs/one/empty-file.yaml", "empty-file"),
        ("specs/one/unused.yaml", "unused"),
        ("specs/two/bad-yaml.yaml", "bad-yaml"),
        ("specs/two/race.yaml", "race"),
    ]


STATS = (BAD / "unused-size.yaml").read_text(encoding="utf-8").replace("  rows: 0 .. 9\n", "")


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ("i64[R, K]", "i64[R, K", ("bad-syntax", "[")),
        ("weights[k])", "weights[k]", ("bad-syntax", "(")),
        ("[r, k] * w", "[r, k] @ w", ("unsupported-syntax", "x[r, k] @ weights[k]")),
        ("sum[k](x[r, k] * ", "sum(", ("unknown-function", "sum")),
    ],
)
def test_one_mistake_is_told_once(front, old: str, new: str, expected: tuple[str, str]) -> None:
    assert front.found(STATS) == []
    assert front.found(STATS.replace(old, new)) == [expected]
