"""The JSON Schema that editors use: it takes what kgen takes, refuses what kgen refuses, and explains each key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kgen.spec.schema import json_schema, step_schema

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted((ROOT / "specs").rglob("*.yaml"))
SMALL = sorted((ROOT / "tests" / "semantics" / "specs" / "small").glob("*.yaml"))
KNOTTY = sorted((ROOT / "tests" / "semantics" / "specs" / "knotty").glob("*.yaml"))
BAD = ROOT / "tests" / "specs_bad"


def validator(path: Path) -> jsonschema.Draft202012Validator:
    schema = step_schema() if path.name.startswith("step") else json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def problems(path: Path) -> list[str]:
    """What an editor would underline in a file, read as YAML says."""
    found = validator(path).iter_errors(yaml.safe_load(path.read_text(encoding="utf-8")))
    return [f"{list(each.absolute_path)}: {each.message}" for each in found]


@pytest.mark.parametrize("path", [*SPECS, *SMALL, *KNOTTY], ids=lambda path: path.stem)
def test_an_editor_accepts_every_spec(path: Path) -> None:
    assert problems(path) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("group: g\nsummary: S.\ntensors: {x: 'i64[N]'}\nstore: {'x[0]': 1}\nstored: 1", "'stored' was unexpected"),
        ("group: g\nsummary: S.\nstore: {'x[0]': 1}", "'tensors' is a required property"),
        ("group: g\nsummary: S.\ntensors: {x: {type: 'i64[N]', mode: output}}\nstore: {}", "is not valid under any"),
        ("group: g\nsummary: S.\ntensors: {x: {type: 'i64[N]', optional: yes please}}\nstore: {}", "is not valid under any"),
        ("group: g\nsummary: S.\nfuse: a", "'a' is not of type 'array'"),
        ("group: g\nsummary: S.\nfuse: [a, b]\nlet: {c: 1}", "'let' was unexpected"),
        ("group: g\nsummary:\ntensors: {}\nstore: {}", "None is not of type"),
        ("group: g\nsummary: S.\ntensors: {}\nstore: {}\nschedule: {tile: 4}", "4 is not of type 'object'"),
    ],
)  # fmt: skip
def test_an_editor_underlines_what_kgen_refuses(text: str, said: str) -> None:
    schema = jsonschema.Draft202012Validator(json_schema())
    found = [each.message for each in schema.iter_errors(yaml.safe_load(text))]
    assert any(said in each for each in found), found


def test_numbers_and_booleans_of_yaml_are_texts_of_a_spec() -> None:
    text = """\
group: 7
summary: S.
sizes: {N: 4, M: 0 .. 9}
scalars: {s: {type: i32, default: 1}, f: {type: f32, values: 1e-6 ..}}
tensors: {x: {type: "i64[N]", mode: inout, optional: true, distinct: true}, y: {type: "i64[N]", optional: "false"}}
index: {n: 4}
store: {"x[0]": 1, "x[1]": {value: true, when: false}}
schedule: {warps: 4, tile: {n: 8}}
"""
    assert [*jsonschema.Draft202012Validator(json_schema()).iter_errors(yaml.safe_load(text))] == []


def described(schema: Any) -> Iterator[tuple[str, bool]]:
    """Each key that a mapping may have, and whether an editor can say what it is."""
    if isinstance(schema, dict):
        for key, each in schema.get("properties", {}).items():
            yield key, bool(each.get("description"))
        for each in schema.values():
            yield from described(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from described(each)


@pytest.mark.parametrize("schema", [json_schema(), step_schema()], ids=["spec", "step"])
def test_every_key_has_a_hover_text(schema: dict[str, Any]) -> None:
    found = list(described(schema))
    assert len(found) > 20
    assert [key for key, text in found if not text] == []


@pytest.mark.parametrize(("name", "schema"), [("spec", json_schema()), ("step", step_schema())])
def test_the_committed_schema_is_up_to_date(name: str, schema: dict[str, Any]) -> None:
    text = (ROOT / "schemas" / f"{name}.json").read_text(encoding="utf-8")
    assert json.loads(text) == schema, "run: make bless"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_each_spec_names_its_schema(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    mark = "# yaml-language-server: $schema="
    assert first.startswith(mark)
    named = (path.parent / first.removeprefix(mark)).resolve()
    assert named == ROOT / "schemas" / ("step.json" if path.name == "step.yaml" else "spec.json")
