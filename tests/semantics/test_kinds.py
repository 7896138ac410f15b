"""Kinds of fault that kgen had, several members each: right answers fixed by hand, in every reading.

`specs/kinds/KIND.yaml` is a list of specs, each with calls and what they give, or with the code of the refusal that is
right. What can't be said there (calls that are refused, texts of a package, launches that are too large to run
whole) stands below. Every spec is built by itself, so that one that fails hides no other.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import in_memory
import numpy as np
import pytest
import torch
import worlds
import yaml
from interpreter_memory import watched
from point_by_point import Array, Call, Host
from spec_text import render

from kgen.lang.typed import Param

SPECS = Path(__file__).parent / "specs" / "kinds"
INTERPRETED = pytest.mark.skipif(torch.cuda.is_available(), reason="looks into the interpreter")
ODD = 3  # elements before and behind a tensor in its memory


def members(path: Path) -> list[tuple[str, Any, Any]]:
    """The specs of a kind: an id, the spec as text, and the rest."""
    file = path.read_text()
    texts, rest = yaml.load(file, yaml.BaseLoader), yaml.safe_load(file)
    return [
        (f"{path.stem}: {one['what']}", spec_of(one["spec"]), other)
        for one, other in zip(texts, rest, strict=True)
    ]


def spec_of(data: dict[str, Any]) -> str:
    """A whole spec of its parts."""
    return render({"group": "probe", "summary": "A probe.", **data})


MEMBERS = [member for path in sorted(SPECS.glob("*.yaml")) for member in members(path)]
ANSWERED = [member for member in MEMBERS if "calls" in member[2]]
REFUSED = [member for member in MEMBERS if "refused" in member[2]]


def ids(table: list[tuple[str, Any, Any]]) -> list[str]:
    """What pytest calls the members."""
    return [name.replace(" ", "-") for name, _, _ in table]


def world_of(made: in_memory.Subject, given: dict[str, Any]) -> Any:
    """A world of the numbers of a call; what is written and not given holds 77 (true)."""
    group, signature = made.group, made.case.signature
    numbers = {k: v for k, v in given.items() if k in signature.sizes or k in signature.scalars}
    for name, tensor in group.tensors.items():
        if name not in given:
            continue
        one = given[name]
        if tensor.length is not None:
            if isinstance(tensor.length, Param):
                numbers[tensor.length.name] = len(one)
            one = one[0]
        for dim in tensor.dims:
            if isinstance(dim, Param) and not group.sizes[dim.name].derived:
                numbers.setdefault(dim.name, len(one))
            one = one[0] if one else []
    host = Host(group, Call(numbers, {}))
    for name, scalar in group.scalars.items():
        if name not in numbers and scalar.default is not None:
            numbers[name] = host.of(scalar.default)
    for name, size in group.sizes.items():
        if size.derived is not None:
            numbers[name] = host.of(size.derived)
    buffers = {}
    for name, tensor in group.tensors.items():
        shape = [host.of(dim) for dim in tensor.dims]
        count = host.of(tensor.length) if tensor.length is not None else 1
        dtype = signature.tensors[name].dtype
        fill = True if dtype == torch.bool else 77
        each = given.get(name)
        held = [None] * count if each is None else each if tensor.length is not None else [each]
        buffers[name] = [buffer_of(made, one, shape, dtype, fill) for one in held]
    draw = importlib.import_module(f"{made.parent}.{in_memory.PACKAGE}._draw")
    return draw.World(
        numbers,
        {name: numbers[name] for name in group.scalars},
        buffers,
        frozenset(n for n, t in group.tensors.items() if t.length is not None),
        frozenset(n for n, t in group.tensors.items() if t.optional and n not in given),
        usual=False,
    )


def buffer_of(made: in_memory.Subject, held: Any, shape: list[int], dtype: Any, fill: int) -> Any:
    """A tensor in the midst of memory that nobody may touch."""
    count = 1
    for size in shape:
        count *= size
    base = torch.full((count + 2 * ODD,), fill, dtype=dtype)
    view = base[ODD : ODD + count].view(shape)
    if held is not None:
        view.copy_(torch.tensor(held, dtype=dtype).view(shape))
    draw = importlib.import_module(f"{made.parent}.{in_memory.PACKAGE}._draw")
    return draw.Buffer(base, view)


def held_by(made: in_memory.Subject, world: Any) -> dict[str, Any]:
    """What the written tensors of a world hold."""
    found = {}
    for name, tensor in made.group.tensors.items():
        if tensor.written:
            each = [buffer.view.tolist() for buffer in world.buffers[name]]
            found[name] = each if tensor.length is not None else each[0]
    return found


@pytest.mark.parametrize("reading", worlds.READINGS)
@pytest.mark.parametrize("_name, text, calls", ANSWERED, ids=ids(ANSWERED))
def test_answers(_name, text, calls, reading, device):
    where = torch.device("cpu") if reading == next(iter(worlds.READINGS)) else device
    with in_memory.subject(text) as made:
        for call in calls["calls"]:
            world = world_of(made, call["given"])
            after = worlds.READINGS[reading](made, world.clone(where)).world
            assert held_by(made, after) == call["gives"], call["given"]
            for name, each in after.buffers.items():
                for buffer, before in zip(each, world.buffers[name], strict=True):
                    edges = torch.cat([buffer.base[:ODD], buffer.base[-ODD:]]).cpu()
                    assert torch.equal(edges, torch.cat([before.base[:ODD], before.base[-ODD:]]))


@pytest.mark.parametrize("text", [text for name, text, _ in ANSWERED if "told_sizes" in name])
def test_wrong_calls_of_told_sizes_are_refused(text, device):
    with in_memory.subject(text) as made:
        testing = importlib.import_module(f"{made.parent}.{in_memory.PACKAGE}._testing")
        testing.check_refusals(made.case, device)
        testing.check(made.case, device)


@pytest.mark.parametrize("_name, text, rest", REFUSED, ids=ids(REFUSED))
def test_refusals(_name, text, rest):
    with pytest.raises(in_memory.Refused) as raised:
        in_memory.compiled(text)
    found = raised.value.report.ordered()
    lines = text.split("\n")
    marked = [
        (each.code, lines[each.span.line - 1][each.span.column - 1 : each.span.end_column - 1])
        for each in found
    ]
    assert marked == [(rest["refused"]["code"], rest["refused"]["marks"])], raised.value


def test_every_kind_has_members():
    for path in SPECS.glob("*.yaml"):
        assert len(members(path)) >= 6, path
        assert path.read_text().startswith("# ")


# A user's name that is one of the generated code's.

NAMES = """
k_in r_in LANES_k TILE_r x_ptr y_ptr x_value x_stride_0 r_start x_at y_new y_when sum_k each_k min_k cond chosen other
mask value values index_shape end_0 end_1 r_ x_ K_ n_ x_0 x_2 HAS_x range len int print list arange where full store
bound sizes tensors scalars launch_ call torch_ dtype shape cdiv lanes strides addresses Expr Case pytest e i
""".split()
PARAMETERS = re.compile(r"(LANES|TILE)_[rk]|[xy]_ptr|x_stride_\d|HAS_x")
ROLES = ("let", "mask", "tensor", "index", "size", "static", "scalar")


def named(name: str, role: str) -> str:
    """A spec with two roles, a let, a mask, a guarded load, a reduction, in which `name` has this role."""
    names = {
        "let": "twice",
        "mask": "up",
        "tensor": "x",
        "index": "k",
        "size": "R",
        "static": "K",
        "scalar": "n",
    }
    names[role] = name
    x, k, rows, lanes, n = (names[each] for each in ("tensor", "index", "size", "static", "scalar"))
    twice, up = names["let"], names["mask"]
    return spec_of(
        {
            "sizes": {rows: "0 .. 10", lanes: "static 1 .. 8", "M": "0 .. 9"},
            "scalars": {n: "{type: i32, values: 0 .. 9}"},
            "tensors": {
                x: {"type": f"i32[{rows}, {lanes}]", "values": "-9 .. 9"},
                "table": "i32[M]",
                "y": {"type": f"i32[{rows}, {lanes}]", "mode": "out"},
                "z": {"type": f"i64[{rows}]", "mode": "out"},
                "w": {"type": f"i64[{lanes}]", "mode": "out"},
            },
            "index": {"r": rows, k: lanes},
            "let": {twice: f"{x}[r, {k}] * 2"},
            "masks": {up: f"{x}[r, {k}] > {n}"},
            "store": {
                f"y[r, {k}]": f"table[{twice}] if {up} and {twice} < M else {twice}",
                "z[r]": f"sum[{k}]({twice} + {n}) + {rows}",
                f"w[{k}]": f"{k} + {lanes}",
            },
        }
    ).replace('"{type: i32, values: 0 .. 9}"', "{type: i32, values: 0 .. 9}")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", NAMES)
def test_names(name, role, device):
    """Each name in three of its roles, in all readings."""
    if (NAMES.index(name) + ROLES.index(role)) % len(ROLES) > 2:
        return
    if role in ("size", "static", "scalar") and PARAMETERS.fullmatch(name):
        with pytest.raises(in_memory.Refused, match="is a parameter that the kernel has for"):
            in_memory.compiled(named(name, role))
        return
    with in_memory.subject(named(name, role)) as made:
        x = name if role == "tensor" else "x"
        n = name if role == "scalar" else "n"
        world = world_of(made, {x: [[1, -2, 3], [0, 5, -6]], "table": [10, 11, 12], n: 0})
        for reading, read in worlds.READINGS.items():
            where = torch.device("cpu") if reading == "tree" else device
            assert held_by(made, read(made, world.clone(where)).world) == {
                "y": [[12, -4, 6], [0, 10, -12]],
                "z": [6, 0],
                "w": [3, 4, 5],
            }, reading


# Texts of a spec in generated files.

TEXTS = [
    'Says "x"',
    'Ends with a quote: "',
    '"""',
    "It's a path: C:\\new\\table",
    "Braces {x} and {{y}} and {% z %}",
    "A # hash and a `mark`",
    "Naïve, with an accent",
    "Ends with a backslash \\",
    "A %s and a \\N{BULLET}",
]
COPY = {
    "sizes": {"R": "0 .. 9"},
    "tensors": {"x": {"type": "i32[R]"}, "y": {"type": "i32[R]", "mode": "out"}},
    "index": {"r": "R"},
    "store": {"y[r]": {"value": "x[r]"}},
}


def with_text(where: str, text: str) -> str:
    """A spec that has a text somewhere."""
    data: dict[str, Any] = {"group": "probe", "summary": "A probe.", **COPY}
    match where:
        case "summary":
            data["summary"] = text
        case "tensor":
            data["tensors"] = {**COPY["tensors"], "x": {"type": "i32[R]", "doc": text}}
        case "scalar":
            data["scalars"] = {"s": {"type": "i32", "doc": text}}
            data["store"] = {"y[r]": {"value": "max(x[r], s)"}}
        case "store":
            data["store"] = {"y[r]": {"value": "x[r]", "trusted": text}}
        case "trusted":
            data["store"] = {"y[r]": {"value": "x[r // 2 * 2 + r % 2]"}}
            data["trusted"] = {"x[r // 2 * 2 + r % 2]": text}
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)


@pytest.mark.parametrize("where", ["summary", "tensor", "scalar", "store", "trusted"])
@pytest.mark.parametrize("text", TEXTS)
def test_texts(text, where, device):
    built = in_memory.compiled(with_text(where, text))
    for name, file in built.files.items():
        if name.endswith(".py"):
            ast.parse(file, name)
    with in_memory.subject(with_text(where, text)) as made:
        given = {"x": [1, 2], **({"s": 0} if where == "scalar" else {})}
        after = worlds.kernel(made, world_of(made, given).clone(device)).world
        assert held_by(made, after) == {"y": [1, 2]}
        function = getattr(
            importlib.import_module(f"{made.parent}.{in_memory.PACKAGE}"), made.group.name
        )
        if where == "summary" and text == TEXTS[0]:
            assert text in function.__doc__


# What a spec calls undefined.

OWNED = {
    "a tensor of integers": ("i64[N]", "", "-1", "-1 .. N - 1", "y[at[r]]", "x[r]", "at[r] >= 0"),
    "a tensor of floats": (
        "f32[N]",
        "",
        "-1",
        "-1 .. N - 1",
        "y[at[r]]",
        "f32(x[r])",
        "at[r] >= 0",
    ),
    "a list": ("i64[N]", "2", "-1", "-1 .. N - 1", "y[1][at[r]]", "x[r]", "at[r] >= 0"),
    "two dimensions": ("i64[2, N]", "", "-1", "-1 .. N - 1", "y[1, at[r]]", "x[r]", "at[r] >= 0"),
    "a value in the midst": ("i64[N]", "", "3", "0 .. N - 1", "y[at[r]]", "x[r]", "at[r] != 3"),
    "a number past the end": ("i64[N]", "", "N", "0 .. N", "y[at[r]]", "x[r]", "at[r] < N"),
}


def owned(
    type: str, length: str, repeats: str, values: str, place: str, value: str, when: str
) -> str:
    """Rows store to the places that they own; those that own none share a number."""
    listed = {"list": length} if length else {}
    return spec_of(
        {
            "sizes": {"R": "0 .. 9", "N": "4 .. 9"},
            "tensors": {
                "at": {"type": "i64[R]", "values": values, "distinct": f"except {repeats}"},
                "x": {"type": "i32[R]"},
                "n": {"type": "i32[N]"},
                "y": {"type": type, "mode": "inout", **listed},
                "z": {"type": "i32[1]", "mode": "out"},
            },
            "index": {"r": "R"},
            "store": {
                "z[0]": "n[N - 1]",
                place: {"value": value, **({"when": when} if when else {})},
            },
        }
    )


@pytest.mark.parametrize("what", OWNED)
def test_nothing_is_undefined_where_the_shared_number_is_not_stored_to(what, device):
    with in_memory.subject(owned(*OWNED[what])) as made:
        page = made.built.files["docs/probe.md"]
        assert "Undefined:" not in page
        made.testing.check(watched(made.case), device)
        # The generated tests look at every element: a kernel that forgets one is seen.
        broken = dataclass_with(made.case, fused=lambda **_: None)
        with pytest.raises(AssertionError):
            made.testing.check(broken, device)


def dataclass_with(case: Any, **more: Any) -> Any:
    """A test case with other parts."""
    return type(case)(**{**vars(case), **more})


@pytest.mark.parametrize(
    "type, place, value",
    [
        ("i64[N]", "y[at[r] + 1]", "x[r]"),
        ("f32[N + 1]", "y[at[r] + 1]", "f32(x[r])"),
        ("i64[N + 2]", "y[at[r] + 2]", "x[r]"),
        ("i64[N + 1]", "y[N - 1 - at[r]]", "x[r]"),
        ("i64[2, N + 1]", "y[1, at[r] + 1]", "x[r]"),
        ("bf16[N + 1]", "y[at[r] + 1]", "bf16(x[r])"),
    ],
)
def test_what_is_undefined_is_the_place_itself(type, place, value, device):
    text = owned(type, "", "-1", "-1 .. N - 2", place, value, "")
    with in_memory.subject(text) as made:
        page = made.built.files["docs/probe.md"]
        assert f"- `{place}` where `at[r]` is `-1`: several rows may share that place" in page
        made.testing.check(watched(made.case), device)


# What is trusted, in drawn inputs.

TRUSTED = {
    "a load": """
sizes: {R: 0 .. 9, C: 1 .. 9}
tensors: {tok: "i32[R, C]", len: {type: "i64[R]", values: 0 .. 99}, y: {type: "i32[R]", mode: out}}
index: {r: R}
store: {"y[r]": "tok[r, len[r]]"}
trusted: {"tok[r, len[r]]": the engine keeps it so}
""",
    "a load at an offset": """
sizes: {R: 0 .. 9, N: 1 .. 9}
tensors: {x: "i32[N]", n: {type: "i64[R]", values: 0 .. N}, y: {type: "i32[R]", mode: out}}
index: {r: R}
store: {"y[r]": "x[n[r] - 1]"}
trusted: {"x[n[r] - 1]": no row is empty}
""",
    "a load of any number": """
sizes: {R: 0 .. 9, N: 1 .. 9}
tensors: {x: "i32[N]", n: "i64[R]", y: {type: "i32[R]", mode: out}}
index: {r: R}
store: {"y[r]": "x[n[r]] if r > 0 else -1"}
trusted: {"x[n[r]]": the engine keeps it so}
""",
    "a load in a reduction": """
sizes: {R: 0 .. 9, N: 1 .. 9, K: static 1 .. 4}
tensors: {x: "i32[N]", n: {type: "i64[R]", values: 0 .. N - 1}, w: "i32[K]", y: {type: "i64[R]", mode: out}}
index: {r: R, k: K}
store: {"y[r]": "sum[k](x[n[r] + k] + i64(w[k]))"}
trusted: {"x[n[r] + k]": each row has as many}
""",
    "a place": """
sizes: {R: 0 .. 9, N: 1 .. 9}
tensors: {a: "i32[R]", n: {type: "i64[R]", values: 0 .. N}, z: {type: "i32[N]", mode: inout}}
index: {r: R}
store: {"z[n[r]]": {value: "a[r]", collide: last r}}
trusted: {"z[n[r]]": the engine keeps it so}
""",
    "arithmetic": """
sizes: {R: 0 .. 9}
tensors: {a: "i32[R]", y: {type: "i32[R]", mode: out}}
index: {r: R}
store: {"y[r]": "a[r] * a[r]"}
trusted: {"a[r] * a[r]": they are small}
""",
    "a conversion that makes an index": """
sizes: {R: 0 .. 9, N: 1 .. 9}
tensors: {x: "i32[N]", n: {type: "i64[R]", values: 0 .. 2**40}, y: {type: "i32[R]", mode: out}}
index: {r: R}
store: {"y[r]": "x[i32(n[r])]"}
trusted: {"i32(n[r])": it is small, "x[i32(n[r])]": it is inside}
""",
    "two points at one place": """
sizes: {R: 0 .. 9, N: 1 .. 9}
tensors: {a: "i32[R]", at: {type: "i64[R]", values: 0 .. N - 1}, z: {type: "i32[N]", mode: inout}}
index: {r: R}
store: {"z[at[r]]": {value: "a[r]", trusted: the allocator hands each out once}}
""",
}


@pytest.mark.parametrize("what", TRUSTED)
def test_drawn_inputs_keep_what_is_trusted(what, device):
    text = spec_of(yaml.load(TRUSTED[what], yaml.BaseLoader))
    with in_memory.subject(text) as made:
        made.testing.check(watched(made.case), device)


# A size that an optional tensor has, too.

SHARED = {
    "one dimension": ({"x": "i64[S]", "b": ("i64[S]", {})}, "b[s] if given(b) else x[s]"),
    "two": ({"x": "i64[S]", "b": ("i64[2, S]", {})}, "b[1, s] if given(b) else x[s]"),
    "a list": ({"x": "i64[S]", "b": ("i64[S]", {"list": "2"})}, "b[1][s] if given(b) else x[s]"),
    "any layout": (
        {"x": "i64[S]", "b": ("i64[S, S]", {"layout": "any"})},
        "b[s, s] if given(b) else x[s]",
    ),
    "a longer one": ({"x": "i64[S]", "b": ("i64[S + 1]", {})}, "b[s + 1] if given(b) else x[s]"),
    "two of them": (
        {"x": "i64[S]", "b": ("i64[S]", {}), "c": ("i64[S]", {})},
        "b[s] if given(b) else (c[s] if given(c) else x[s])",
    ),
    "floats": ({"x": "f32[S]", "b": ("f32[S]", {})}, "b[s] if given(b) else x[s]"),
}


@pytest.mark.parametrize("what", SHARED)
def test_wrong_calls_where_an_optional_tensor_shares_a_size(what, device):
    tensors, value = SHARED[what]
    declared: dict[str, Any] = {}
    for name, each in tensors.items():
        plain = isinstance(each, str)
        declared[name] = (
            {"type": each} if plain else {"type": each[0], **each[1], "optional": "true"}
        )
    dtype = tensors["x"].split("[")[0]
    declared["y"] = {"type": f"{dtype}[4]", "mode": "inout"}
    data = {
        "sizes": {"S": "1 .. 4"},
        "tensors": declared,
        "index": {"s": "S"},
        "store": {"y[s]": value},
    }
    with in_memory.subject(spec_of(data)) as made:
        made.testing.check_refusals(made.case, device)
        made.testing.check(watched(made.case), device)


# Outputs that overlap themselves.

ROWS = {
    "sizes": {"R": "0 .. 99", "C": "0 .. 99"},
    "tensors": {"y": {"type": "i32[R, C]", "mode": "out", "layout": "any"}},
    "index": {"r": "R", "c": "C"},
    "store": {"y[r, c]": "i32(r * 10 + c)"},
}
CUBE = {
    "sizes": {"R": "0 .. 99", "C": "0 .. 99", "K": "static 1 .. 8"},
    "tensors": {"y": {"type": "i32[R, C, K]", "mode": "inout", "layout": "any"}},
    "index": {"r": "R", "c": "C", "k": "K"},
    "store": {"y[r, c, k]": "i32(r + c + k)"},
}


def memory(size: tuple[int, ...], stride: tuple[int, ...], start: int = 0) -> torch.Tensor:
    """A view of small integers, with gaps or overlaps as the strides say."""
    return torch.zeros(200, dtype=torch.int32).as_strided(size, stride, start)


@pytest.mark.parametrize(
    "data, size, stride",
    [
        (ROWS, (4, 3), (1, 1)),  # unfold(0, 3, 1)
        (ROWS, (4, 3), (2, 1)),
        (ROWS, (3, 3), (1, 2)),
        (ROWS, (2, 3), (4, 2)),
        (ROWS, (2, 4), (3, 1)),
        (ROWS, (3, 2), (0, 1)),
        (ROWS, (5, 3), (2, 3)),
        (CUBE, (2, 3, 4), (4, 4, 1)),
        (CUBE, (3, 3, 2), (3, 2, 1)),
        (CUBE, (2, 2, 3), (1, 3, 1)),
    ],
)
def test_an_output_that_overlaps_itself_is_refused(data, size, stride, device):
    with in_memory.subject(spec_of(data)) as made:
        package = importlib.import_module(f"{made.parent}.{in_memory.PACKAGE}")
        view = memory(size, stride).to(device) if device.type == "cpu" else memory(size, stride)
        with pytest.raises(package.KgenCallError, match="`y`"):
            package.probe(y=view)
        assert not view.any()


@pytest.mark.parametrize(
    "data, size, stride",
    [
        (ROWS, (4, 3), (3, 1)),
        (ROWS, (4, 3), (1, 4)),
        (ROWS, (2, 3), (5, 2)),
        (ROWS, (2, 3), (1, 2)),
        (ROWS, (1, 3), (0, 1)),
        (ROWS, (3, 1), (1, 0)),
        (ROWS, (0, 3), (1, 1)),
        (ROWS, (4, 3), (2, 9)),
        (CUBE, (2, 3, 4), (1, 2, 6)),
        (CUBE, (2, 2, 2), (1, 2, 5)),
    ],
)
def test_an_output_with_gaps_is_taken(data, size, stride):
    with in_memory.subject(spec_of(data)) as made:
        package = importlib.import_module(f"{made.parent}.{in_memory.PACKAGE}")
        view = memory(size, stride, 5)
        package.probe(y=view)
        places = torch.cartesian_prod(*(torch.arange(n) for n in size)).view(-1, len(size))
        weights = torch.tensor([10, 1] if len(size) == 2 else [1, 1, 1])
        want = (places * weights).sum(1).view(size)
        assert torch.equal(view, want.to(torch.int32))


@pytest.mark.parametrize("start, stride", [(1, (3, 1)), (2, (6, 2)), (8, (3, 1))])
def test_members_of_a_list_that_overlap_are_refused(start, stride):
    data = {
        "sizes": {"R": "0 .. 99", "C": "0 .. 99", "L": "static 1 .. 4"},
        "tensors": {"p": {"type": "i32[R, C]", "mode": "out", "layout": "any", "list": "L"}},
        "index": {"l": "L", "r": "R", "c": "C"},
        "store": {"p[l][r, c]": "i32(r + c + l)"},
    }
    with in_memory.subject(spec_of(data)) as made:
        package = importlib.import_module(f"{made.parent}.{in_memory.PACKAGE}")
        base = torch.zeros(99, dtype=torch.int32)
        views = [base.as_strided((3, 3), (3, 1), 0), base.as_strided((3, 3), stride, start)]
        with pytest.raises(package.KgenCallError, match="`p"):
            package.probe(p=views)
        assert not base.any()


# The memory of calls that were right.


class Within:
    """The interpreter's memory, where only what lies in some tensor is touched."""

    def __init__(self, memory: Any, tensors: list[torch.Tensor]) -> None:
        self.memory, self.outside = memory, 0
        self.ends = [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    def inside(self, pointers: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The mask without the lanes that are nowhere, which are counted."""
        at = np.asarray(pointers).astype(np.int64)
        found = np.zeros(at.shape, dtype=bool)
        for low, high in self.ends:
            found |= (low <= at) & (at < high)
        active = np.broadcast_to(np.asarray(mask, dtype=bool), at.shape)
        self.outside += int((active & ~found).sum())
        return active & found

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        """A load."""
        return self.memory.load(pointers, self.inside(pointers, mask), other, dtype)

    def store(self, pointers: Any, value: Any, mask: Any) -> Any:
        """A store."""
        return self.memory.store(pointers, value, self.inside(pointers, mask))


@contextlib.contextmanager
def protected(tensors: list[torch.Tensor]) -> Iterator[None]:
    """Let kernels in the interpreter touch these tensors alone; fails if one touches anything else."""
    from triton.runtime import interpreter

    real = interpreter._interpreter
    memory = interpreter._interpreter = Within(real, tensors)
    try:
        yield
    finally:
        interpreter._interpreter = real
    assert not memory.outside, "lanes outside every tensor"


LISTS = {
    "sizes": {"R": "0 .. 9", "L": "static 1 .. 4", "M": "static 1 .. 4", "N": "static 1 .. 4"},
    "scalars": {"s": {"type": "i32", "values": "-9 .. 9"}, "f": {"type": "f32"}},
    "tensors": {
        "ks": {"type": "f32[R]", "list": "L"},
        "vs": {"type": "f32[R]", "list": "M"},
        "ws": {"type": "f32[R]", "list": "N", "optional": "true"},
        "one": {"type": "f32[R]", "optional": "true"},
        "n": {"type": "i32[N]"},
        "y": {"type": "f32[R]", "mode": "out"},
    },
    "index": {"r": "R"},
    "store": {
        "y[r]": "ks[L - 1][r] + vs[M - 1][r] + f32(s) + f + f32(n[0]) "
        "+ (ws[0][r] if given(ws) else f32(0)) + (one[r] if given(one) else f32(0))"
    },
}


@INTERPRETED
@pytest.mark.parametrize(
    "what",
    [
        "a list ends elsewhere",
        "a list of one list's tensors",
        "a bool that equals the number",
        "a float that equals the number",
        "a tensor of another type at the same place",
        "a tensor for a list",
        "a list for a tensor",
        "a shorter list",
    ],
)
def test_a_call_is_not_taken_for_one_before(what):
    with in_memory.subject(spec_of(LISTS)) as made, contextlib.ExitStack() as stack:
        package = importlib.import_module(f"{made.parent}.{in_memory.PACKAGE}")
        a, b, c, d = (torch.full((3,), float(n)) for n in range(4))
        n, y = torch.zeros(2, dtype=torch.int32), torch.full((3,), 77.0)
        w = [torch.zeros(3), torch.zeros(3)]
        usual = {"ks": [a, b], "vs": [c, d], "ws": w, "n": n, "y": y, "s": 1, "f": 0.5}
        stack.enter_context(protected([a, b, c, d, *w, n, y]))
        package.probe(**usual)
        assert y.tolist() == [5.5] * 3
        y.fill_(77.0)
        if what == "a list ends elsewhere":  # right by itself, and another variant
            package.probe(**{**usual, "ks": [a, b, c], "vs": [d]})
            assert y.tolist() == [6.5] * 3
            return
        changed = {
            "a list of one list's tensors": {"ks": [a, b, c, d], "vs": []},
            "a bool that equals the number": {"s": True},
            "a float that equals the number": {"s": 1.0},
            "a tensor of another type at the same place": {"ks": [a, b.view(torch.int32)]},
            "a tensor for a list": {"ks": a},
            "a list for a tensor": {"one": [a]},
            "a shorter list": {"ws": w[:1]},
        }[what]
        with pytest.raises(package.KgenCallError):
            package.probe(**{**usual, **changed})
        assert y.tolist() == [77.0] * 3


@INTERPRETED
def test_lists_of_one_length_are_not_taken_for_one_before():
    data = {
        "sizes": {"R": "0 .. 9", "L": "static 1 .. 4"},
        "tensors": {
            "ks": {"type": "f32[R]", "list": "L"},
            "vs": {"type": "f32[R]", "list": "L"},
            "y": {"type": "f32[R]", "mode": "out"},
        },
        "index": {"r": "R"},
        "store": {"y[r]": "ks[L - 1][r] + vs[L - 1][r]"},
    }
    a, b, c, d = (torch.full((3,), float(n)) for n in range(4))
    y = torch.full((3,), 77.0)
    with in_memory.subject(spec_of(data)) as made, protected([a, b, c, d, y]):
        package = importlib.import_module(f"{made.parent}.{in_memory.PACKAGE}")
        package.probe(ks=[a, b], vs=[c, d], y=y)
        assert y.tolist() == [4.0] * 3
        with pytest.raises(package.KgenCallError, match=r"`[kv]s"):
            package.probe(ks=[a, b, c], vs=[d], y=y)
    assert y.tolist() == [4.0] * 3


# Products and counters past 32 bits, a few programs of a launch that is too large to run whole.


@contextlib.contextmanager
def a_program(made: in_memory.Subject, number: int) -> Iterator[list[int]]:
    """Launch one program alone, whatever the launch asks for; yields what it asked for."""
    from triton.runtime import interpreter

    launching = importlib.import_module(f"{made.parent}.{in_memory.PACKAGE}._launch")
    builder, real, asked = interpreter.interpreter_builder, launching.launch, []

    def launch(kernel: Any, programs: int, where: Any, *args: Any, **options: Any) -> None:
        asked.append(programs)
        real(kernel, 1, where, *args, **options)

    def set_grid_idx(*_: int) -> None:
        builder.grid_idx = (number, 0, 0)

    launching.launch, builder.set_grid_idx = launch, set_grid_idx
    try:
        yield asked
    finally:
        launching.launch = real
        del builder.set_grid_idx


def large(extent: str, sizes: dict[str, str], tile: str = "1024") -> str:
    """Bytes that hold the low byte of their place, by one index; the sizes stand in other shapes."""
    tensors = {f"t_{n}": {"type": f"u8[{n}]"} for n in sizes}
    value = " + ".join(["wrap_u8(f)", *(f"wrap_u8(i64(t_{n}[0]) * 0)" for n in sizes)])
    return spec_of(
        {
            "sizes": sizes,
            "tensors": {**tensors, "y": {"type": f"u8[{extent}]", "mode": "out"}},
            "index": {"f": extent},
            "store": {"y[f]": f"wrap_u8({value})"},
            "schedule": {"tile": {"f": tile}},
        }
    )


LARGE = [
    ("R * C", {"R": 65536, "C": 65536}, 0),
    ("R * C", {"R": 65536, "C": 65537}, 2**22 + 63),
    ("R * C", {"R": 3, "C": 2**30}, 3 * 2**20 - 1),
    ("R * C + 1", {"R": 65536, "C": 32768}, 2**21),
    ("A * B * C", {"A": 2048, "B": 2048, "C": 1024}, 2**22 - 1),
    ("R", {"R": 2**31 - 1}, 2**21 - 1),
    ("2 * R", {"R": 2**31 - 1}, 2**22 - 1),
    ("max(R * C, 5)", {"R": 65536, "C": 65536}, 2**22 - 1),
]


@INTERPRETED
@pytest.mark.parametrize("extent, sizes, program", LARGE)
def test_launches_past_32_bits(extent, sizes, program):
    most = 2**31 - 1 if len(sizes) < 3 else 4096
    text = large(extent, dict.fromkeys(sizes, f"1 .. {most}"))
    count = eval(extent, {"max": max}, sizes)
    y = torch.empty(count, dtype=torch.uint8)  # only the pages that are touched exist
    first, last = program * 1024, min(program * 1024 + 1024, count)
    y[first:last] = 77
    given = {f"t_{n}": torch.empty(size, dtype=torch.uint8) for n, size in sizes.items()}
    for each in given.values():
        each[0] = 0
    touched = protected([y, *given.values()])
    with in_memory.subject(text) as made, a_program(made, program) as asked, touched:
        package = importlib.import_module(f"{made.parent}.{in_memory.PACKAGE}")
        package.probe(**given, y=y)
        assert asked == [-(-count // 1024)]
        want = torch.arange(first, last) % 256
        assert torch.equal(y[first:last].long(), want)


def test_the_array_of_a_call_is_flat():
    """What the first reading is given."""
    with in_memory.subject(spec_of(COPY)) as made:
        call = worlds.call_of(made, world_of(made, {"x": [4, 5]}))
        assert call.tensors["x"] == [Array((2,), [4, 5])]
