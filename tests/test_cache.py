"""What is kept of a group: found again by its content, of no harm where it can't be read or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgen import build, cache
from kgen.build import compile_specs

SPEC = """\
group: NAME
summary: A number.
sizes: {R: 0 .. 64}
tensors:
  y: {type: "i64[R]", mode: out}
index: {r: R}
store:
  y[r]: VALUE
"""


def spec(folder: Path, group: str, value: str) -> None:
    """A package of one group, in a file of the same name in every package."""
    folder.mkdir(parents=True, exist_ok=True)
    text = SPEC.replace("NAME", group).replace("VALUE", value)
    (folder / "spec.yaml").write_text(text, encoding="utf-8")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The groups that are compiled, in order; the cache is a folder of its own."""
    monkeypatch.setenv("KGEN_CACHE", str(tmp_path / "cache"))
    names: list[str] = []
    own = build.compile_group

    def compile_group(group, report):
        names.append(group.name)
        return own(group, report)

    monkeypatch.setattr(build, "compile_group", compile_group)
    return names


def kernels(root: Path) -> list[str]:
    return [built.files["kernels.py"] for built in compile_specs(root)]


def test_an_unchanged_group_is_compiled_once(made: list[str], tmp_path: Path) -> None:
    specs = tmp_path / "specs"
    spec(specs / "one", "ones", "1")
    spec(specs / "two", "twos", "2")
    before = kernels(specs)
    assert kernels(specs) == before
    assert made == ["ones", "twos"]
    spec(specs / "two", "twos", "3")
    assert kernels(specs)[0] == before[0]
    assert made == ["ones", "twos", "twos"]


def test_packages_may_have_files_of_one_name(tmp_path: Path) -> None:
    spec(tmp_path / "one", "ones", "1")
    spec(tmp_path / "two", "twos", "2")
    one, two = kernels(tmp_path)
    assert "def ones_kernel" in one
    assert "def twos_kernel" in two


def test_off_keeps_nothing(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGEN_CACHE", "off")
    spec(tmp_path / "specs", "ones", "1")
    assert kernels(tmp_path / "specs") == kernels(tmp_path / "specs")
    assert made == ["ones", "ones"]
    assert not (tmp_path / "cache").exists()


def test_a_damaged_entry_is_made_again(made: list[str], tmp_path: Path) -> None:
    spec(tmp_path / "specs", "ones", "1")
    before = kernels(tmp_path / "specs")
    (entry,) = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    entry.write_bytes(b"not what was kept")
    assert kernels(tmp_path / "specs") == before
    assert made == ["ones", "ones"]


def test_a_folder_that_cannot_be_made_is_no_cache(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("KGEN_CACHE", str(tmp_path / "file" / "cache"))
    spec(tmp_path / "specs", "ones", "1")
    assert kernels(tmp_path / "specs") == kernels(tmp_path / "specs")
    assert made == ["ones", "ones"]


def test_other_sources_of_kgen_have_other_entries(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec(tmp_path / "specs", "ones", "1")
    kernels(tmp_path / "specs")
    for version in ("b", "c", "d", "e", "f"):
        monkeypatch.setattr(cache, "_version", lambda own=version: own)
        kernels(tmp_path / "specs")
    assert len(made) == 6
    assert len(list((tmp_path / "cache").iterdir())) == 4, "the oldest versions are forgotten"
