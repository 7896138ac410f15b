"""What goes wrong at a call, by kind: each is right, or a KgenCallError before anything happens.

The kinds are those of the first compiler's faults. On a GPU the same calls launch there.
"""

from __future__ import annotations

import inspect
import random
from itertools import product
from types import ModuleType

import building
import calls
import pytest
import torch

from kgen.runtime._overlap import overlaps_itself

LISTS = """\
group: lists
summary: Copies the first elements of two lists.
sizes: {R: 0 .. 50, A: static 1 .. 4, B: static 1 .. 4}
tensors:
  ks: {type: "i64[R]", list: A}
  vs: {type: "i64[R]", list: B}
  out: {type: "i64[R]", mode: out}
index: {r: R}
store:
  out[r]: sum_of
let:
  sum_of: ks[0][r] * 100 + vs[0][r]
"""
MATRIX = """\
group: matrix
summary: Counts rows and columns.
sizes: {A: 0 .. 50, B: 0 .. 50}
tensors:
  x: {type: "i32[A, B]", layout: any, mode: inout}
index: {a: A, b: B}
store:
  x[a, b]: i32(a * 100 + b)
"""
ROWS = MATRIX.replace("group: matrix", "group: rows").replace("layout: any, ", "")
CUBE = """\
group: cube
summary: Numbers a cube.
sizes: {A: 0 .. 9, B: 0 .. 9, C: static 1 .. 8}
tensors:
  x: {type: "i64[A, B, C]", layout: any, mode: out}
index: {a: A, b: B, c: C}
store:
  x[a, b, c]: (a * 10 + b) * 10 + c
"""
LINE = """\
group: line
summary: Numbers a line.
sizes: {A: 0 .. 50}
tensors:
  x: {type: "i64[A]", layout: any, mode: out}
index: {a: A}
store:
  x[a]: a
"""
PAGES = """\
group: pages
summary: Numbers the rows of each page.
sizes: {A: 0 .. 9, L: static 1 .. 4}
tensors:
  xs: {type: "i64[A, 3]", list: L, mode: inout}
index: {l: L, a: A}
store:
  xs[l][a, 1]: l * 10 + a
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> ModuleType:
    """Every group of this file."""
    specs = (LISTS, calls.SCALED, MATRIX, ROWS, CUBE, LINE, PAGES, *map(grid, GRIDS), LANES)
    yield building.package(tmp_path_factory.mktemp("call"), "call_faults", *specs)
    building.unload("call_faults")


# The memory of calls that were right.


def ints(*values: int, device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)


def test_where_a_list_ends_is_remembered(package, device):
    a, b, c, d = (ints(n, n + 1, device=device) for n in (1, 3, 5, 7))
    out = torch.zeros_like(a)
    package.lists(ks=[a, b], vs=[c, d], out=out)
    assert out.tolist() == [105, 206]
    package.lists(ks=[a, b, c], vs=[d], out=out)
    assert out.tolist() == [107, 208]
    package.lists(ks=[a], vs=[b, c, d], out=out)
    assert out.tolist() == [103, 204]
    package.lists(ks=(a, b), vs=(c, d), out=out)
    assert out.tolist() == [105, 206]
    for wrong in (a, [a, [b]], [[a, b]], [a, None], [], {0: a}, a.tolist()):
        with pytest.raises(package.KgenCallError, match="`ks"):
            package.lists(ks=wrong, vs=[c, d], out=out)


def test_a_list_of_one_is_no_tensor(package, device):
    a, b = ints(1, device=device), ints(2, device=device)
    out = torch.zeros_like(a)
    package.lists(ks=[a], vs=[b], out=out)
    with pytest.raises(package.KgenCallError, match="`ks` must be a list"):
        package.lists(ks=a, vs=[b], out=out)
    package.line(x=out)
    with pytest.raises(package.KgenCallError, match="`x` must be a tensor"):
        package.line(x=[out])


def test_what_is_left_out_is_remembered(package, device):
    x = torch.ones(2, device=device)
    bias, out = torch.full_like(x, 5), torch.zeros_like(x)
    for _ in range(2):
        package.scaled(x=x, out=out, by=1.0, bias=bias)
        assert out.tolist() == [6, 6]
        package.scaled(x=x, out=out, by=1.0)
        assert out.tolist() == [1, 1]
        package.scaled(x=x, out=out, by=1.0, bias=None, times=None)
        assert out.tolist() == [1, 1]
        package.scaled(x=x, out=out, by=1.0, bias=bias, times=3)
        assert out.tolist() == [16, 16]


def test_scalars_that_are_equal_are_not_the_same(package, device):
    x, out = torch.ones(2, device=device), torch.zeros(2, device=device)
    package.scaled(x=x, out=out, by=0.0)
    package.scaled(x=x, out=out, by=-0.0, bias=torch.full_like(x, -0.0))
    assert torch.signbit(out).all()
    package.scaled(x=x, out=out, by=0.0, bias=torch.full_like(x, -0.0))
    assert not torch.signbit(out).any()
    package.scaled(x=x, out=out, by=1.0, times=1)
    for wrong in (True, 1.0, "1"):
        with pytest.raises(package.KgenCallError, match="`times` must be an int"):
            package.scaled(x=x, out=out, by=1.0, times=wrong)
    for wrong in (True, "1", 10**400, x[0]):
        with pytest.raises(package.KgenCallError, match="`by` must be a float"):
            package.scaled(x=x, out=out, by=wrong)


def test_a_number_that_changes_is_asked_again(package, device):
    class Count:
        value = 1

        def __index__(self) -> int:
            return self.value

    x, count = torch.ones(2, device=device), Count()
    out = torch.zeros_like(x)
    for number in (1, 4):
        count.value = number
        package.scaled(x=x, out=out, by=1.0, bias=x, times=count)
        assert out.tolist() == [1 + number] * 2


def test_the_same_memory_seen_otherwise_is_checked_again(package, device):
    memory = torch.arange(8, dtype=torch.float32, device=device)
    out = torch.zeros(4, device=device)
    package.scaled(x=memory[:4], out=out, by=1.0)
    assert out.tolist() == [0, 1, 2, 3]
    package.scaled(x=memory[::2], out=out, by=1.0)
    assert out.tolist() == [0, 2, 4, 6]
    with pytest.raises(package.KgenCallError, match=r"`x` has dtype torch\.int32"):
        package.scaled(x=memory[:4].view(torch.int32), out=out, by=1.0)
    with pytest.raises(package.KgenCallError, match="`R` is 3 in `x` and 4 in `out`"):
        package.scaled(x=memory[:3], out=out, by=1.0)
    with pytest.raises(package.KgenCallError, match="share memory"):
        package.scaled(x=memory[:4], out=memory[:4], by=1.0)


def test_a_negated_view_is_refused_by_name(package, device):
    freqs = torch.tensor([1 + 2j, 3 + 4j], device=device)
    out = torch.zeros(2, device=device)
    package.scaled(x=freqs.imag, out=out, by=1.0)
    assert out.tolist() == [2, 4]
    with pytest.raises(package.KgenCallError, match="`x` is a negated view"):
        package.scaled(x=freqs.conj().imag, out=out, by=1.0)
    package.scaled(x=freqs.conj().imag.resolve_neg(), out=out, by=1.0)
    assert out.tolist() == [-2, -4]
    with pytest.raises(package.KgenCallError, match="`x` is a negated view"):
        package.line(x=torch._neg_view(torch.zeros(2, dtype=torch.int64, device=device)))


@pytest.mark.parametrize("kind", ["parameter", "inference", "requires_grad"])
def test_autograd_makes_no_difference(package, kind, device):
    """All elements are stored, or none."""
    with torch.inference_mode(kind == "inference"):
        x, out = torch.ones(2, device=device), torch.zeros(2, device=device)
        if kind == "parameter":
            x = torch.nn.Parameter(x)
        elif kind == "requires_grad":
            out.requires_grad_()
    package.scaled(x=x, out=out, by=1.0)
    assert out.detach().tolist() == [1, 1]


def test_names_of_arguments_are_checked_each_time(package, device):
    x, out = torch.ones(2, device=device), torch.zeros(2, device=device)
    package.scaled(x=x, out=out, by=1.0)
    with pytest.raises(
        package.KgenCallError, match="there is no argument `z`; it takes x, out, by"
    ):
        package.scaled(x=x, out=out, by=1.0, z=3)
    with pytest.raises(
        package.KgenCallError, match=r"`out` is missing; it must be a tensor f32\[R\]"
    ):
        package.scaled(x=x, by=1.0)
    with pytest.raises(package.KgenCallError, match="`by` is missing"):
        package.scaled(x=x, out=out)
    with pytest.raises(TypeError):
        package.scaled(x, out=out, by=1.0)


def test_a_tensor_without_memory_is_refused_by_name(package):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(3, dtype=torch.int64)
    package.line(x=fake)  # does nothing
    freed = torch.zeros(3, dtype=torch.int64)
    freed.untyped_storage().resize_(0)
    with pytest.raises(package.KgenCallError, match="`x` has no memory of its own"):
        package.line(x=freed)
    meta = torch.empty(3, dtype=torch.float32, device="meta")
    package.scaled(x=meta, out=torch.empty_like(meta), by=1.0)  # does nothing


def test_the_signature_and_the_docstring_are_the_specs(package):
    parameters = inspect.signature(package.scaled).parameters
    assert list(parameters) == ["x", "out", "by", "bias", "times"]
    assert all(each.kind is each.KEYWORD_ONLY for each in parameters.values())
    assert parameters["bias"].annotation == torch.Tensor | None
    assert package.scaled.__doc__.startswith("Scales, and adds what is there.\n")
    assert package.scaled.__module__ == "call_faults.pk"
    assert package.ops.scaled.schema == (
        "scaled(Tensor x, Tensor(a0!) out, float by, Tensor? bias=None, SymInt? times=None) -> ()"
    )


# Outputs that overlap themselves.


def line(*strides: int, sizes: tuple[int, ...], device: torch.device) -> torch.Tensor:
    reach = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    kind = torch.int32 if len(sizes) == 2 else torch.int64
    return torch.full((max(reach, 0) + 1,), -1, dtype=kind, device=device).as_strided(
        sizes, strides
    )


@pytest.mark.parametrize(
    "group, sizes, strides",
    [
        ("rows", (4, 3), (1, 1)),  # base.unfold(0, 3, 1)
        ("rows", (4, 3), (2, 1)),
        ("matrix", (3, 3), (1, 1)),
        ("matrix", (3, 4), (1, 2)),
        ("matrix", (2, 4), (3, 1)),
        ("matrix", (5, 3), (2, 4)),
        ("matrix", (4, 4), (6, 4)),
        ("line", (3,), (0,)),
        ("cube", (2, 2, 2), (1, 1, 1)),
        ("cube", (2, 2, 4), (8, 3, 1)),
        ("cube", (3, 2, 4), (2, 100, 1)),
        ("cube", (3, 4, 5), (5, 7, 3)),
    ],
)
def test_outputs_that_overlap_themselves_are_refused(package, group, sizes, strides, device):
    x = line(*strides, sizes=sizes, device=device)
    with pytest.raises(package.KgenCallError, match=f"{group}: `x` is written, but its"):
        getattr(package, group)(x=x)
    assert (x == -1).all()


@pytest.mark.parametrize(
    "group, sizes, strides",
    [
        ("rows", (4, 3), (3, 1)),
        ("rows", (4, 3), (7, 1)),
        ("rows", (1, 3), (0, 1)),
        ("rows", (4, 1), (1, 1)),
        ("rows", (0, 3), (1, 1)),
        ("matrix", (4, 3), (1, 4)),  # transposed
        ("matrix", (2, 3), (3, 2)),  # rows that interleave
        ("matrix", (3, 2), (2, 3)),
        ("matrix", (2, 8), (1, 2)),
        ("matrix", (4, 3), (1, 9)),  # with gaps
        ("line", (5,), (3,)),
        ("line", (1,), (0,)),
        ("cube", (2, 3, 4), (4, 8, 1)),
        ("cube", (4, 2, 3), (1, 12, 4)),
        ("cube", (2, 2, 2), (3, 14, 5)),
    ],
)
def test_outputs_whose_elements_are_apart_are_taken(package, group, sizes, strides, device):
    x = line(*strides, sizes=sizes, device=device)
    getattr(package, group)(x=x)
    for at in product(*map(range, sizes)):
        want = {"line": at[0], "cube": at[0] * 100 + sum(at[1:2]) * 10 + at[-1]}
        assert x[at].item() == want.get(group, at[0] * 100 + at[-1])


def test_each_tensor_of_a_list_must_not_overlap_itself(package, device):
    good = torch.zeros(4, 3, dtype=torch.int64, device=device)
    wrong = torch.zeros(6, dtype=torch.int64, device=device).unfold(0, 3, 1)
    package.pages(xs=[good, good.clone()])
    with pytest.raises(package.KgenCallError, match=r"`xs\[1\]` is written, but its elements"):
        package.pages(xs=[good, wrong])
    with pytest.raises(package.KgenCallError, match=r"`xs\[0\]` and `xs\[1\]` share memory"):
        package.pages(xs=[good, good])


def test_an_input_may_overlap_itself(package, device):
    out = torch.zeros(3, device=device)
    package.scaled(x=torch.ones(1, device=device).expand(3), out=out, by=1.0)
    assert out.tolist() == [1, 1, 1]


def test_self_overlap_is_exact():
    chance, found = random.Random(0), 0
    for _ in range(3000):
        rank = chance.randint(1, 4)
        sizes = [chance.choice((0, 1, 2, 3, 4, 5)) for _ in range(rank)]
        strides = [chance.choice((0, 1, 2, 3, 4, 5, 6, 7, 12, 20, 25)) for _ in range(rank)]
        points = list(product(*map(range, sizes)))
        places = {sum(i * s for i, s in zip(at, strides, strict=True)) for at in points}
        tensor = torch.empty(600).as_strided(sizes, strides)
        assert overlaps_itself(tensor) == (len(places) < len(points)), (sizes, strides)
        found += len(places) < len(points)
    assert 500 < found < 2500


# More programs than a launch has, and wider blocks than a program has.

# Sizes, the shape that they are read off, the index space, the points that store.
GRIDS = {
    "flat": ("R: 1 .. 2**22, C: 1 .. 2**22", "R, C", "f: R * C", "f"),
    "rows": ("R: 1 .. 2**22, C: 1 .. 2**22", "R, C", "r: R, c: C", "r * C + c"),
    "sum": ("R: 1 .. 2**22, C: 1 .. 2**22", "R, C", "f: R * C + 64 * C", "f"),
    "cube": (
        ", ".join(f"{n}: 1 .. 2**20" for n in "RCD"),
        "R, C, D",
        "r: R, c: C, d: D",
        "(r * C + c) * D + d",
    ),
    "widest": ("R: 1 .. 2**22, C: 1 .. 2**22", "R, C", "f: 'max(R, C) * C'", "f"),
}
LANES = """\
group: lanes
summary: Sums a row that is known at compile time.
sizes: {R: 0 .. 9, K: static}
tensors:
  x: {type: "i64[R, K]", layout: any}
  y: {type: "i64[R]", mode: inout}
index: {r: R, k: K}
store:
  y[r]: sum[k](x[r, k])
"""


def grid(name: str) -> str:
    """A group of many points, of which the first few store."""
    sizes, shape, index, place = GRIDS[name]
    first = ", ".join("0" for _ in shape.split(","))
    return f"""\
group: grid_{name}
summary: Numbers the first points of a large space.
sizes: {{{sizes}, N: 0 .. 50}}
tensors:
  x: {{type: "u8[{shape}]", layout: any}}
  y: {{type: "i64[N]", mode: inout}}
index: {{{index}}}
store:
  y[{place}]: {{value: "{place} + i64(x[{first}])", when: "{place} < N", trusted: points are apart}}
trusted:
  y[{place}]: the first ones
"""


@pytest.mark.parametrize("name", GRIDS)
def test_a_launch_of_too_many_programs_is_refused(package, name, device):
    group = getattr(package, f"grid_{name}")
    one = torch.zeros(1, 1, 1, dtype=torch.uint8, device=device)
    rank = 3 if name == "cube" else 2
    y = torch.full((5,), -1, dtype=torch.int64, device=device)
    small = one.view((1,) * rank).expand(*[3] * rank)
    group(x=small, y=y)
    assert y.tolist() == [0, 1, 2, 3, 4]
    y.fill_(-1)
    size = 2**20 if name == "cube" else 2**22
    large = one.view((1,) * rank).expand(*[size] * rank)
    words = rf"grid_{name}: a launch would have .* = \d+ programs, more than 2\*\*31 - 1, at .*R = {size}"
    for _ in range(2):
        with pytest.raises(package.KgenCallError, match=words):
            group(x=large, y=y)
    assert (y == -1).all()


def test_a_block_wider_than_a_program_is_refused(package, device):
    y = torch.full((2,), -1, dtype=torch.int64, device=device)
    one = torch.ones(1, 1, dtype=torch.int64, device=device)
    package.lanes(x=one.expand(2, 300), y=y)
    assert y.tolist() == [300, 300]
    words = r"lanes: a program would hold K = 1048577 values at once, more than 2\*\*20"
    with pytest.raises(package.KgenCallError, match=words):
        package.lanes(x=one.expand(2, 2**20 + 1), y=y)
    assert y.tolist() == [300, 300]
