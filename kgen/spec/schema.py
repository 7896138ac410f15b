"""The keys of a spec file, as pydantic models: the border between YAML and kgen.

In: plain data. Out: validation errors, and the JSON Schema that editors use. Holds no meaning: an
expression is a string here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def _or_text(model: type[_Keys], key: str) -> Any:
    """`model`, or a bare string that stands for `{key: string}`."""

    def expand(value: object) -> object:
        return {key: value} if isinstance(value, str) else value

    return Annotated[model, BeforeValidator(expand)]


class Scalar(_Keys):
    """A number that the caller passes."""

    type: str = Field(
        description="i32 or i64, or `static`: known at compile time, one variant a value"
    )
    values: str | None = Field(
        None, description="`low .. high`, both included; checked at the call"
    )
    default: str | None = Field(None, description="its value if the caller leaves it out")
    doc: str | None = Field(None, description="what it is, and its unit, for the documentation")


class Tensor(_Keys):
    """A tensor that the caller passes."""

    type: str = Field(description="element type and sizes: i32[batch, K1]")
    mode: Literal["in", "out", "inout"] = Field(
        "in", description="inout: what it held before is read, or survives where nothing is stored"
    )
    values: str | None = Field(
        None, description="`low .. high`, both included: what its elements are"
    )
    expected: str | None = Field(
        None,
        description="`low .. high`: nothing is concluded from it, debug mode reports other values",
    )
    distinct: str | None = Field(
        None, description="`true`: no value twice; `except EXPR`: only that value may repeat"
    )
    layout: Literal["contiguous", "rows", "any"] = Field(
        "rows", description="rows: the last dimension has stride 1; any: nothing is assumed"
    )
    list: str | None = Field(
        None, description="a static size: so many tensors, each with its storage"
    )
    optional: Literal["true", "false"] = Field(
        "false", description="true: the caller may leave it out; ask with given(NAME)"
    )
    doc: str | None = Field(None, description="what it is, and its unit, for the documentation")


class Store(_Keys):
    """What is stored to a place."""

    value: str = Field(description="what is stored, an expression")
    when: str | None = Field(None, description="stored only where this holds")
    collide: str | None = Field(
        None, description="`first k` or `last k`: which of the points that store to one place wins"
    )
    trusted: str | None = Field(
        None, description="why no two points store to one place, where kgen can't show it"
    )


class Schedule(_Keys):
    """How to run the group; never changes a result."""

    program: list[str] | None = Field(None, description="the indices that programs are laid over")
    tile: dict[str, str] = Field(default_factory=dict, description="index: elements a tile")
    warps: str | None = Field(None, description="warps of a program: 1, 2, 4, 8 or 16")


class Group(_Keys):
    """One fused group: what is read, what is written, and the index math between."""

    group: str = Field(description="the name of the generated function")
    summary: str = Field(description="one sentence for its documentation")
    eager: str | None = Field(None, description="the function in eager.py that this group replaces")
    eager_ulps: str | None = Field(
        None,
        description="units in the last place that the eager chain may differ by, having other sums",
    )
    when: str | None = Field(None, description="nothing is launched or touched unless this holds")
    sizes: dict[str, str] = Field(
        default_factory=dict,
        description="`low .. high`; `static low .. high`; or an expression of other sizes",
    )
    scalars: dict[str, _or_text(Scalar, "type")] = Field(  # type: ignore[valid-type]
        default_factory=dict, description="name: type, or a mapping; numbers that the caller passes"
    )
    tensors: dict[str, _or_text(Tensor, "type")] = Field(  # type: ignore[valid-type]
        description="name: element type and sizes, or a mapping; tensors that the caller passes"
    )
    index: dict[str, str] = Field(
        default_factory=dict, description="index: how many values it takes"
    )
    let: dict[str, str] = Field(default_factory=dict, description="name: expression")
    masks: dict[str, str] = Field(default_factory=dict, description="name: condition")
    store: dict[str, _or_text(Store, "value")] = Field(  # type: ignore[valid-type]
        description="`tensor[place, ...]`: value, or a mapping; what the group writes"
    )
    trusted: dict[str, str] = Field(
        default_factory=dict,
        description="a load, place or conversion as written: why its index or number is in range",
    )
    schedule: Schedule | None = Field(
        None, description="how to run the group; left out, rules choose"
    )


class Fused(_Keys):
    """One group that does what several of the package do, one after the other."""

    group: str = Field(description="the name of the generated function")
    summary: str = Field(description="one sentence for its documentation")
    fuse: list[str] = Field(description="the groups, in the order in which they would run")
    through: list[str] = Field(
        default_factory=list,
        description="tensors that only pass between them; not in memory any more",
    )
    without: list[str] = Field(
        default_factory=list,
        description="GROUP.TENSOR: optional tensors that a group is not given, whatever the others are",
    )
    schedule: Schedule | None = Field(
        None, description="how to run the group; left out, rules choose"
    )


class Switch(_Keys):
    """A switch of the step beside `fused` and `overlap`."""

    needs: str | None = Field(None, description="a switch that must be on too")
    doc: str | None = Field(None, description="what it does, for the documentation")


class Stage(_Keys):
    """One stage: a group, a call of the engine, or a repetition of stages."""

    group: str | None = Field(None, description="the group that runs")
    call: str | None = Field(None, description="the name of the engine's function")
    repeat: dict[str, str] | None = Field(None, description="`index: size`; runs `stages` so often")
    stages: list[Stage] | None = Field(None, description="the stages of a `repeat`")
    switch: str | None = Field(
        None, description="`NAME` or `not NAME`: only where it is on, or off"
    )
    always: Literal["true", "false"] = Field(
        "false", description="true: also where the step's `when` does not hold"
    )
    doc: str | None = Field(None, description="what the engine's function does")
    reads: list[str] = Field(default_factory=list, description="what a call reads")
    writes: list[str] = Field(default_factory=list, description="what a call fills in place")
    bind: dict[str, str] = Field(
        default_factory=dict, description="argument of a group: the step's tensor or number"
    )


class Overlap(_Keys):
    """What runs on the aux stream, beside what."""

    aux: list[str] = Field(description="stages that run on the aux stream")
    beside: list[str] = Field(
        default_factory=list, description="stages that they run beside, on the main stream"
    )


class Step(_Keys):
    """The step of a package: its stages in order, and the streams that they run on."""

    step: str = Field(description="the step's name; `decode` makes the class DecodeStep")
    summary: str = Field(description="one sentence for its documentation")
    switches: dict[str, Switch] = Field(
        default_factory=dict, description="name: a switch of the step, beside `fused` and `overlap`"
    )
    varies: list[str] = Field(default_factory=list, description="sizes that a step may say anew")
    when: str | None = Field(
        None, description="where it does not hold, only `always` stages run; of sizes and scalars"
    )
    buffers: list[str] = Field(default_factory=list, description="tensors that the step makes")
    engine: list[str] = Field(
        default_factory=list,
        description="names of the engine's own, for the order that they ask for",
    )
    restore: list[str] = Field(
        default_factory=list, description="tensors put back if a stage raises"
    )
    overlap: Overlap | None = Field(
        None, description="what runs on the aux stream, and beside what"
    )
    stages: list[Stage] = Field(description="what runs, in order")


def errors(
    data: object, model: type[BaseModel] = Group
) -> list[tuple[tuple[str, ...], str, dict[str, Any]]]:
    """What is wrong with the shape of `data`: (path, kind of error, pydantic's context)."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        return [
            (tuple(str(step) for step in each["loc"]), each["type"], dict(each.get("ctx", {})))
            for each in error.errors(include_url=False, include_input=False)
        ]
    return []


def keys(path: tuple[str, ...]) -> list[str]:
    """The keys that the mapping at `path` may hold, for suggestions."""
    if path:
        inner: dict[str, type[BaseModel]] = {
            "scalars": Scalar,
            "tensors": Tensor,
            "store": Store,
            "schedule": Schedule,
        }
        return list(inner.get(path[0], Group).model_fields)
    return list(Group.model_fields)


def fused_keys(path: tuple[str, ...]) -> list[str]:
    """Likewise in the file of a group that is made of others."""
    return list((Schedule if path else Fused).model_fields)


def step_keys(path: tuple[str, ...]) -> list[str]:
    """Likewise in a step's file."""
    inner: dict[str, type[BaseModel]] = {"stages": Stage, "switches": Switch, "overlap": Overlap}
    return list(inner.get(path[0], Step).model_fields if path else Step.model_fields)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec file."""
    group, fused = Group.model_json_schema(), Fused.model_json_schema()
    for key in ("scalars", "tensors", "store"):  # each entry may be a bare string
        entries = group["properties"][key]
        entries["additionalProperties"] = {
            "anyOf": [{"type": "string"}, entries["additionalProperties"]]
        }
    parts = {**group.pop("$defs", {}), **fused.pop("$defs", {}), "Group": group, "Fused": fused}
    whole = {
        "if": {"required": ["fuse"]},
        "then": {"$ref": "#/$defs/Fused"},
        "else": {"$ref": "#/$defs/Group"},
        "$defs": parts,
    }
    return {"$schema": _DRAFT, "title": "a spec of kgen", **_as_yaml(whole)}


def step_schema() -> dict[str, Any]:
    """The JSON Schema of a step.yaml."""
    return {"$schema": _DRAFT, **_as_yaml(Step.model_json_schema())}


def _as_yaml(schema: Any) -> Any:
    """A schema for editors, whose YAML knows numbers and booleans where kgen reads text, and no null."""
    if isinstance(schema, list):
        return [_as_yaml(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: {name: _as_yaml(one) for name, one in each.items()}
        if key in ("properties", "$defs")
        else _as_yaml(each)
        for key, each in schema.items()
        if key != "default"
    }
    if "enum" in found:
        flags = {"true": True, "false": False}
        found.pop("type", None)
        found["enum"] = [
            *schema["enum"],
            *(flags[each] for each in schema["enum"] if each in flags),
        ]
    elif found.get("type") == "string":
        found["type"] = ["string", "number", "boolean"]
    if "anyOf" in found:
        kinds = [each for each in found.pop("anyOf") if each != {"type": "null"}]
        found |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return found
