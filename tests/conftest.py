"""What the tests share: `--bless`, and specs given as text taken through the front of the compiler."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kgen.diagnostics import Diagnostic, Report
from kgen.lang.check import check
from kgen.lang.typed import Group
from kgen.prove.places import check_places, check_races
from kgen.prove.ranges import check_ranges
from kgen.prove.reading import Reading
from kgen.spec.package import read_packages

Table = Mapping[str, str]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless",
        action="store_true",
        help="rewrite the expected texts in tests/specs_bad/ instead of comparing with them",
    )


def pytest_configure() -> None:
    """Tests ask what kgen makes, not what it has kept; those of the cache name a folder."""
    os.environ.setdefault("KGEN_CACHE", "off")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout that these tests belong to."""
    return Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Front:
    """The front of the compiler, on one spec at a time."""

    folder: Path

    def typed(self, text: str) -> tuple[Group | None, Report]:
        """The typed group of a spec, and what is wrong with its names and types."""
        (self.folder / "spec.yaml").write_text(text, encoding="utf-8")
        report = Report()
        (package,) = read_packages(self.folder, report)
        groups = [check(spec, package, report) for spec in package.groups]
        return (groups[0] if groups else None), report

    def read(self, text: str) -> tuple[Group | None, Report]:
        """The typed group of a spec, and what is wrong with it, indices that may leave a tensor apart."""
        group, report = self.typed(text)
        if group is not None:
            reading = Reading(group)
            check_ranges(reading, report)
            check_places(reading, report)
            check_races(reading, report)
        return group, report

    def group(self, text: str) -> Group:
        """The typed group of a spec that must have sound names and types."""
        group, report = self.typed(text)
        assert not report.diagnostics, report.render() + text
        assert group is not None
        return group

    def found(self, text: str) -> list[tuple[str, str]]:
        """What is wrong with a spec, in order: each code, and the text that is marked."""
        return self.marks(self.read(text)[1], text)

    @staticmethod
    def marks(report: Report, text: str) -> list[tuple[str, str]]:
        """The diagnostics of a spec, in order: each code, and the text that is marked."""
        return [(each.code, marked(each, text)) for each in report.ordered()]

    @staticmethod
    def spec(
        *,
        sizes: Table,
        tensors: Table,
        index: Table,
        store: Table,
        scalars: Table | None = None,
        let: Table | None = None,
    ) -> str:
        """The text of a spec: these lets and stores, and of the declarations those that they need.

        A value that starts with `{` is a YAML mapping; any other is quoted.
        """
        declared = {"sizes": sizes, "scalars": scalars or {}, "tensors": tensors, "index": index}
        given = {"let": let or {}, "store": store}
        words = _words(text for table in given.values() for each in table.items() for text in each)
        while (
            more := _words(v for t in declared.values() for k, v in t.items() if k in words) - words
        ):
            words |= more
        lines = ["group: probe", "summary: A probe."]
        for key, table in (declared | given).items():
            entries = [(k, v) for k, v in table.items() if key in given or k in words]
            lines += [f"{key}:"] if entries else []
            lines += [
                f"  {json.dumps(k)}: {v if v.startswith('{') else json.dumps(v)}"
                for k, v in entries
            ]
        return "\n".join(lines) + "\n"


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}


def marked(found: Diagnostic, text: str) -> str:
    """The characters that a diagnostic marks."""
    line = text.split("\n")[found.span.line - 1]
    return line[found.span.column - 1 : found.span.end_column - 1]


@pytest.fixture(scope="session")
def front(tmp_path_factory: pytest.TempPathFactory) -> Front:
    """The front of the compiler, on one spec at a time."""
    return Front(tmp_path_factory.mktemp("front"))
