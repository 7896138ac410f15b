"""Folders to packages, files to groups: what is read, what a short form stands for, what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgen.diagnostics import Report
from kgen.spec.model import GroupSpec, read_group
from kgen.spec.package import Package, read_packages

SPEC = """\
group: NAME
summary: >
  Twice
  each number.
sizes: {N: 0 .. 300}
tensors:
  x: i64[N]
  y: {type: "i64[N]", mode: out, values: 0 .., doc: "half of it\\n is x"}
index: {n: N}
store:
  y[n]: 2 * x[n]
"""


def packages(root: Path) -> tuple[Package, ...]:
    """The packages below a folder that is right."""
    report = Report()
    found = read_packages(root, report)
    assert not report.diagnostics, report.render()
    return found


def lay(root: Path, *files: str) -> None:
    """Specs at these places, each a group named after its file."""
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SPEC.replace("NAME", path.stem))


@pytest.mark.parametrize(
    "files, found",
    [
        (["a/g.yaml", "a/h.yml", "b/g.yaml"], {"a": ["g", "h"], "b": ["g"]}),
        (["b/z.yaml", "b/a.yaml", "a/m.yaml"], {"a": ["m"], "b": ["a", "z"]}),
        (["g.yaml", "a/h.yaml"], {"root": ["g"]}),
        (["a/g.yaml", "a/deeper/h.yaml", "a/README.md", "c/notes.txt"], {"a": ["g"]}),
    ],
)
def test_what_is_a_package(tmp_path: Path, files: list[str], found: dict[str, list[str]]) -> None:
    lay(tmp_path / "root", *files)
    read = packages(tmp_path / "root")
    assert {each.name: [group.name.value for group in each.groups] for each in read} == found
    assert [each.name for each in read] == list(found), "in the order of their names"


def test_a_package_named_by_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path / "pack", "g.yaml")
    monkeypatch.chdir(tmp_path / "pack")
    assert [each.name for each in packages(Path())] == ["pack"]


def test_the_eager_file_is_taken_as_it_is(tmp_path: Path) -> None:
    lay(tmp_path, "pack/g.yaml")
    assert packages(tmp_path)[0].eager is None
    (tmp_path / "pack" / "eager.py").write_text("# größer\n", encoding="utf-8")
    assert packages(tmp_path)[0].eager == "# größer\n"


def group(tmp_path: Path, text: str) -> GroupSpec:
    """The spec in a file that is right."""
    (tmp_path / "g.yaml").write_text(text, encoding="utf-8")
    report = Report()
    found = read_group(tmp_path / "g.yaml", "g.yaml", report)
    assert found is not None, report.render()
    return found


def test_short_forms_and_defaults(tmp_path: Path) -> None:
    spec = group(tmp_path, SPEC.replace("NAME", "g"))
    x, y = spec.tensors
    assert (x.type.value, x.mode, x.layout, x.values, x.distinct, x.doc) == (
        "i64[N]",
        "in",
        "rows",
        None,
        None,
        "",
    )
    assert (y.mode, y.values and y.values.value, y.doc) == ("out", "0 ..", "half of it is x")
    assert spec.summary == "Twice each number."
    assert (spec.stores[0].target.value, spec.stores[0].value.value, spec.stores[0].when) == (
        "y[n]",
        "2 * x[n]",
        None,
    )
    long = SPEC.replace("x: i64[N]", "x: {type: 'i64[N]'}").replace(
        "y[n]: 2 * x[n]", "y[n]: {value: '2 * x[n]'}"
    )
    same = group(tmp_path, long.replace("NAME", "g"))
    assert (same.tensors[0].type.value, same.stores[0].value.value) == ("i64[N]", "2 * x[n]")


def test_the_hash_is_of_the_file(tmp_path: Path) -> None:
    one, other = (group(tmp_path, text).sha256 for text in (SPEC, SPEC + "# more\n"))
    assert one != other


def test_mistakes_of_shape_are_told_all_at_once(tmp_path: Path) -> None:
    text = "group: g\nsumary: S.\nsizes: [N]\ntensors: {x: {mode: outt, layot: any}}\nstore: {}\n"
    (tmp_path / "g.yaml").write_text(text)
    report = Report()
    assert read_group(tmp_path / "g.yaml", "g.yaml", report) is None
    assert [(each.code, each.span.line) for each in report.ordered()] == [
        ("missing-key", 1),
        ("unknown-key", 2),
        ("wrong-shape", 3),
        ("missing-key", 4),
        ("bad-choice", 4),
        ("unknown-key", 4),
    ]
