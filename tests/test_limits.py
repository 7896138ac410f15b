"""Calls at the limits: memory past 2**31 elements, empty sizes, odd strides and addresses, scalars at their ends.

Large memory is a file with holes: what was not stored to takes no room on the disk, so that a store anywhere else is
seen. torch has no negative strides (`as_strided` refuses them), so that none is tried. On a GPU the same calls launch
there, and `tests/gpu/limits.py` has real memory.
"""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from types import ModuleType

import building
import in_memory
import numpy as np
import pytest
import torch

from kgen.prove.prove import Proved

FAR = """\
group: far
summary: Reads and stores at far places.
sizes: {R: 0 .. 64, A: 1 .., B: 1 .., N: 0 ..}
tensors:
  at: {type: "i64[R]", values: 0 .. A - 1}
  column: {type: "i64[R]", values: 0 .. B - 1}
  x: {type: "i32[A, B]", layout: any}
  to: {type: "i64[R]", values: 0 .. N - 1, distinct: true}
  y: {type: "i32[N]", mode: inout}
  z: {type: "i64[R]", mode: out}
index: {r: R}
store:
  y[to[r]]: x[at[r], column[r]]
  z[r]: at[r] * B + column[r]
"""
EMBED = """\
group: embed
summary: Rows of a table of tokens.
sizes: {R: 0 .. 4096, vocab: 1 .. 2**21, H: static 1 .. 8192}
tensors:
  ids: {type: "i32[R]", values: 0 .. vocab - 1}
  table: bf16[vocab, H]
  rows: {type: "bf16[R, H]", mode: out}
index: {r: R, h: H}
store:
  rows[r, h]: table[ids[r], h]
"""
PRODUCT = """\
group: product
summary: What is derived from two sizes is past 32 bits.
sizes: {R: 0 .. 64, A: 1 .. 2**31 - 1, B: 1 .. 2**31 - 1, P: A * B}
tensors:
  x: {type: "u8[A, B]", layout: any}
  at: {type: "i64[R]", values: 0 .. P - 1}
  y: {type: "i64[R]", mode: out}
  z: {type: "u8[R]", mode: out}
index: {r: R}
store:
  y[r]: P - 1 - at[r]
  z[r]: x[at[r] // B, at[r] % B]
"""
EMPTY = """\
group: empty
summary: Sums over what may be empty, and copies what may be.
sizes: {R: 0 .. 50, C: 0 .. 50, K: static 0 .. 8, N: 0 .. 50}
tensors:
  x: i64[R, C, K]
  w: i32[N]
  at: {type: "i64[R]", values: -1 .. N - 1}
  y: {type: "i64[R, K]", mode: out}
  z: {type: "i64[R, C, K]", mode: out}
  total: {type: "i64[3]", mode: out}
index: {r: R, c: C, k: K, n: N}
let:
  own: i64(w[at[r]]) if 0 <= at[r] < N else -1
store:
  y[r, k]: sum[c](x[r, c, k]) + own
  z[r, c, k]: x[r, c, k] * 2
  total[0]: count[n](w[n] > 0)
  total[1]: max[r](own)
  total[2]: first[n](w[n] == 3, N) + R * C * K
"""
STRIDED = """\
group: strided
summary: Adds two tensors of any strides.
sizes: {A: 0 .. 9, B: 0 .. 9}
tensors:
  x: {type: "i16like[A, B]", layout: any}
  y: {type: "i64[A, B]", layout: any}
  z: {type: "i64[A, B]", layout: any, mode: out}
index: {a: A, b: B}
store:
  z[a, b]: i64(x[a, b]) + y[a, b]
""".replace("i16like", "u8")
BYTES = """\
group: bytes
summary: Copies elements of each width, each by itself.
sizes: {R: 0 .. 4096}
tensors:
  a: u8[R]
  b: bf16[R]
  c: i32[R]
  d: i64[R]
  e: f16[R]
  f: bool[R]
  ya: {type: "u8[R]", mode: out}
  yb: {type: "bf16[R]", mode: out}
  yc: {type: "i32[R]", mode: out}
  yd: {type: "i64[R]", mode: out}
  ye: {type: "f16[R]", mode: out}
  yf: {type: "bool[R]", mode: out}
index: {r: R}
store:
  ya[r]: a[r]
  yb[r]: b[r]
  yc[r]: c[r]
  yd[r]: d[r]
  ye[r]: e[r]
  yf[r]: f[r]
"""
SCALARS = """\
group: numbers
summary: Stores its scalars.
sizes: {R: 1 .. 9}
scalars:
  i: i32
  j: i64
  f: f32
  k: {type: static, values: -(2**31) .. 2**62}
  near: {type: i32, values: 1 .. R}
  half: {type: f32, values: -0.5 .. 0.5, default: 0.25}
tensors:
  ys: {type: "i64[R, 4]", mode: out}
  zs: {type: "f32[R, 2]", mode: out}
index: {r: R}
store:
  ys[r, 0]: i
  ys[r, 1]: j
  ys[r, 2]: k
  ys[r, 3]: near
  zs[r, 0]: f
  zs[r, 1]: half
"""
ODD = 3  # elements before a tensor in its memory


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> ModuleType:
    """Every group of this file."""
    specs = (FAR, EMBED, PRODUCT, EMPTY, STRIDED, BYTES, SCALARS)
    yield building.package(tmp_path_factory.mktemp("limits"), "limits", *specs)
    building.unload("limits")


@pytest.fixture(scope="module")
def both(package):
    """The kernel and the reference of a group, each a call by keyword."""
    del package  # which has to be there

    def of(group: str):
        case = building.case("limits", "pk", group)

        def reference(**arguments: object) -> None:
            declared = case.signature
            tensors = tuple(arguments.get(name) for name in declared.tensors)
            values = declared.bind(tensors, tuple(arguments.get(n) for n in declared.scalars))
            case.operator.run_reference(arguments, values)

        return case.fused, reference

    return of


class Holes:
    """A tensor of a file with holes; `pages`: how many pages of it are there."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.path = path
        with path.open("wb") as file:
            file.truncate(math.prod(shape) * dtype.itemsize)
        flat = torch.from_file(str(path), shared=True, size=math.prod(shape), dtype=dtype)
        self.tensor = flat.view(shape)

    @property
    def pages(self) -> int:
        """Of the file, those that were stored to."""
        return self.path.stat().st_blocks * 512 // mmap.PAGESIZE


@pytest.fixture
def holes(tmp_path):
    """Makes large tensors; on a GPU there is other memory."""
    if torch.cuda.is_available():
        pytest.skip("the memory is the host's")
    made = []

    def make(shape: tuple[int, ...], dtype: torch.dtype) -> Holes:
        made.append(Holes(tmp_path / f"holes_{len(made)}", shape, dtype))
        return made[-1]

    yield make
    made.clear()


# Past 2**31 elements, and 2**31 bytes.


def test_places_past_32_bits_are_read_and_stored_to(both, holes):
    rows, columns, size = 2**16 + 3, 2**15 + 1, 2**31 - 1
    x, y = holes((rows, columns), torch.int32), holes((size,), torch.int32)
    at = torch.tensor([0, 1, 2**15, 2**16 - 1, 2**16, rows - 1, rows - 1])
    column = torch.tensor([0, columns - 1, 0, columns - 1, 0, 0, columns - 1])
    to = torch.tensor([0, size - 1, 2**30, 2**30 - 1, 2**29, 2**29 - 1, 5])
    numbers = torch.arange(1, 8, dtype=torch.int32)
    x.tensor[at, column] = numbers
    held = x.pages
    for run in both("far"):
        z = torch.full((7,), -1)
        y.tensor[to] = -1
        run(at=at, column=column, x=x.tensor, to=to, y=y.tensor, z=z)
        assert y.tensor[to].tolist() == numbers.tolist()
        assert z.tolist() == [
            r * columns + c for r, c in zip(at.tolist(), column.tolist(), strict=True)
        ]
        assert z[-1] > 2**31
        assert (x.pages, y.pages) == (held, 6)


def test_a_table_of_a_million_tokens(both, holes):
    """And 4096 rows of it."""
    vocab, wide = 2**20 + 5, 4096
    table = holes((vocab, wide), torch.bfloat16)
    assert table.tensor.numel() > 2**32
    known = torch.tensor([0, 1, 2**19 - 1, 2**19, vocab - 2, vocab - 1])
    for number, row in enumerate(known.tolist()):
        table.tensor[row] = torch.arange(wide).to(torch.bfloat16) + number
    few = known[torch.arange(7) % len(known)].int()
    for run in both("embed"):
        rows = torch.full((len(few), wide), -1.0, dtype=torch.bfloat16)
        run(ids=few, table=table.tensor, rows=rows)
        assert torch.equal(rows, table.tensor[few.long()])


def test_many_rows(package, both, device):
    """As many as there may be, and one more."""
    for run in both("bytes"):
        inputs = {
            name: torch.arange(4096, device=device).to(dtype) for name, dtype in TYPES.items()
        }
        outputs = {f"y{name}": torch.zeros_like(each) for name, each in inputs.items()}
        run(**inputs, **outputs)
        for name, each in inputs.items():
            assert torch.equal(outputs[f"y{name}"], each), name
    more = {name: torch.cat([each, each[:1]]) for name, each in (inputs | outputs).items()}
    with pytest.raises(
        package.KgenCallError, match=r"size `R` is 4097, but must be in 0 \.\. 4096"
    ):
        package.bytes(**more)


@pytest.mark.parametrize(
    "rows, columns", [(2**31 - 1, 2**31 - 1), (2**31 - 1, 1), (1, 2**31 - 1), (3, 2**30)]
)
def test_a_product_of_sizes_is_exact(both, rows, columns, device):
    """Of expanded tensors, whose elements are all the same memory."""
    x = torch.full((1, 1), 7, dtype=torch.uint8, device=device).expand(rows, columns)
    most = rows * columns - 1
    at = torch.tensor([0, most, most // 2, min(most, 2**31), min(most, 2**32 + 1)], device=device)
    y = torch.full((5,), -1, device=device)
    z = torch.zeros(5, dtype=torch.uint8, device=device)
    for run in both("product"):
        y.fill_(-1)
        z.zero_()
        run(x=x, at=at, y=y, z=z)
        assert y.tolist() == [most - each for each in at.tolist()]
        assert z.tolist() == [7] * 5


WIDE = """\
group: wide
summary: Reads the last element of many.
sizes: {A: 1 .. 2**20, B: 1 .. 2**20, P: A * B}
tensors:
  x: {type: "u8[A, B]", layout: any}
  w: {type: "u8[P]", layout: any}
  y: {type: "u8[1]", mode: out}
store:
  y[0]: max(w[P - 1], x[0, 0])
"""


def test_the_judge_knows_what_a_kernel_takes(monkeypatch):
    """A size past 32 bits that is passed as i32 is any number there."""
    assert "P: tl.int64," in in_memory.compiled(WIDE.replace("max(", "min(")).files["kernels.py"]
    monkeypatch.setattr(Proved, "passed", lambda _self, _name: "i32")
    with pytest.raises(in_memory.Failure, match=r"InternalError.*w\[") as raised:
        in_memory.compiled(WIDE)
    assert raised.value.reading == "build"


@pytest.mark.parametrize("rows, columns, name", [(2**31, 1, "A"), (1, 2**31, "B"), (2**40, 2, "A")])
def test_sizes_past_their_range_are_refused_by_name(package, rows, columns, name, device):
    one = torch.ones(1, 1, dtype=torch.int32, device=device)
    z = torch.full((0,), -1, device=device)
    none = torch.zeros(0, dtype=torch.int64, device=device)
    words = rf"far: the size `{name}` is {max(rows, columns)}, but must be in 1 \.\. 2147483647"
    with pytest.raises(package.KgenCallError, match=words):
        package.far(at=none, column=none, x=one.expand(rows, columns), to=none, y=one[0], z=z)


def test_meta_tensors_of_the_largest_sizes(package):
    """Nothing is computed, and all is checked."""
    at = torch.empty(64, dtype=torch.int64, device="meta")
    x = torch.empty(2**31 - 1, 2**29, dtype=torch.int32, device="meta")
    y = torch.empty(2**31 - 1, dtype=torch.int32, device="meta")
    package.far(at=at, column=at, x=x, to=at, y=y, z=torch.empty_like(at))
    more = torch.empty(2**31, dtype=torch.int32, device="meta")
    with pytest.raises(package.KgenCallError, match="`N` is 2147483648"):
        package.far(at=at, column=at, x=x, to=at, y=more, z=torch.empty_like(at))


# Empty sizes.


@pytest.mark.parametrize("empty", ["", "R", "C", "K", "N", "RC", "RK", "CK", "RN", "CN", "RCKN"])
def test_each_size_may_be_empty(both, empty, device):
    size = {name: 0 if name in empty else at for at, name in enumerate("RCKN", 2)}
    rows, columns, lanes, n = size.values()
    x = torch.arange(rows * columns * lanes, device=device).view(rows, columns, lanes)
    w = torch.arange(n, dtype=torch.int32, device=device) + 1
    at = torch.arange(rows, device=device) - 1 if n else torch.full((rows,), -1, device=device)
    own = torch.where(at >= 0, w[at.clamp(min=0)] if n else at, -1)
    for run in both("empty"):
        y = torch.full((rows, lanes), -7, device=device)
        z, total = torch.full_like(x, -7), torch.full((3,), -7, device=device)
        run(x=x, w=w, at=at, y=y, z=z, total=total)
        assert torch.equal(y, x.sum(1) + own.view(-1, 1))
        assert torch.equal(z, x * 2)
        most = int(own.max()) if rows else -(2**63)
        first = 2 if n >= 3 else n
        assert total.tolist() == [n, most, first + rows * columns * lanes]


# Strides and addresses.


@pytest.mark.parametrize(
    "strides", [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (1, 5), (7, 3)], ids=str
)
def test_inputs_may_have_any_strides(both, strides, device):
    """Expanded ones and those that overlap themselves among them, at an odd offset of their memory."""
    memory = torch.arange(100, dtype=torch.uint8, device=device)
    x = memory.as_strided((4, 5), strides, ODD)
    y = torch.arange(200, device=device).as_strided((4, 5), strides[::-1], ODD)
    for run in both("strided"):
        base = torch.full((300,), -1, device=device)
        z = base.as_strided((4, 5), (2, 11), ODD)
        run(x=x, y=y, z=z)
        assert torch.equal(z, x + y)
        assert int((base == -1).sum()) == 300 - 20


@pytest.mark.parametrize("shape", [(1, 5), (4, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("stride", [0, 2**31, 2**40, 2**62, 2**63 - 1])
def test_a_dimension_of_one_may_have_any_stride(both, shape, stride, device):
    def strided(memory: torch.Tensor) -> torch.Tensor:
        strides = [stride if size == 1 else 1 for size in shape]
        return memory.as_strided(shape, strides, ODD)

    x = strided(torch.arange(20, dtype=torch.uint8, device=device))
    y = strided(torch.arange(20, device=device))
    for run in both("strided"):
        z = strided(torch.full((20,), -1, device=device))
        run(x=x, y=y, z=z)
        assert z.flatten().tolist() == [2 * (ODD + at) for at in range(max(shape))]


def test_torch_has_no_negative_strides():
    with pytest.raises(RuntimeError, match="Negative strides are not supported"):
        torch.arange(9).as_strided((3,), (-1,), 5)


TYPES = dict(
    zip(
        "abcdef",
        (torch.uint8, torch.bfloat16, torch.int32, torch.int64, torch.float16, torch.bool),
        strict=True,
    )
)


@pytest.mark.parametrize("offset", [1, 2, 3, 5])
def test_addresses_that_are_a_multiple_of_the_element_only(both, offset, device):
    """Calls with other alignments of the same shapes, one after the other."""
    for run in both("bytes"):
        for start in (0, offset, 0):
            inputs, outputs = {}, {}
            for name, dtype in TYPES.items():
                base = torch.arange(40, device=device).to(dtype)
                inputs[name] = base[start : start + 33]
                outputs[f"y{name}"] = torch.zeros(40, dtype=dtype, device=device)[
                    start : start + 33
                ]
            run(**inputs, **outputs)
            for name, each in inputs.items():
                assert torch.equal(outputs[f"y{name}"], each), name


@pytest.mark.parametrize("offset", [1, 3])
def test_addresses_that_are_no_multiple_of_the_element_are_refused(package, offset):
    """What another library may give: a GPU has no such loads."""
    memory = np.ones(9 * 8 + offset, dtype=np.uint8)
    whole = {name: torch.ones(9, dtype=dtype) for name, dtype in TYPES.items()}
    whole |= {f"y{name}": torch.zeros(9, dtype=dtype) for name, dtype in TYPES.items()}
    package.bytes(**whole)
    for name, each in whole.items():
        moved = torch.frombuffer(memory, dtype=each.dtype, offset=offset, count=9)
        if each.element_size() == 1:
            package.bytes(**whole | {name: moved})
            continue
        with pytest.raises(package.KgenCallError, match=f"`{name}` is at the address .*multiple"):
            package.bytes(**whole | {name: moved})


# Scalars.


def numbers(device: torch.device, **scalars: object) -> dict[str, object]:
    ys = torch.full((2, 4), -77, device=device)
    zs = torch.full((2, 2), -77.0, device=device)
    return {"ys": ys, "zs": zs, "i": 0, "j": 0, "f": 0.0, "k": 0, "near": 1} | scalars


ENDS = {
    "i": [-(2**31), 2**31 - 1, -1, np.int8(-5), np.int64(7), np.uint64(9), np.array(3)],
    "j": [-(2**63), 2**63 - 1, -(2**31) - 1, np.int64(-(2**63)), np.uint32(2**32 - 1)],
    "k": [-(2**31), 2**62, 2**31, 2**32 + 1, np.int32(3)],
    "near": [1, 2, np.uint8(2)],
}


@pytest.mark.parametrize(
    "name, value", [(n, v) for n, each in ENDS.items() for v in each], ids=repr
)
def test_integers_at_the_ends_of_their_ranges(both, name, value, device):
    for run in both("numbers"):
        call = numbers(device, **{name: value, "half": 0.25})
        run(**call)
        for row in call["ys"].tolist():
            assert row == [int(call[each]) for each in ENDS]


FLOATS = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    1e-45,
    1e-46,
    -1.4e-45,
    3.4028234663852886e38,
    0.1,
    2**24 + 1,
    2**63 - 1,
    10**38,
    np.float64(0.1),
    np.int64(2**24 + 1),
]


@pytest.mark.parametrize("value", FLOATS, ids=repr)
def test_floats_are_rounded_once(both, value, device):
    wanted = torch.tensor([float(value)], dtype=torch.float64).float()
    for run in both("numbers"):
        call = numbers(device, f=value, half=0.25)
        run(**call)
        held = call["zs"][:, 0].cpu()
        assert held.view(torch.int32).tolist() == wanted.view(torch.int32).tolist() * 2, held


WRONG = [
    ("i", 2**31, r"scalar `i` is 2147483648, but must be in -2147483648 \.\. 2147483647"),
    ("i", -(2**31) - 1, "scalar `i` is -2147483649"),
    ("j", 2**63, "scalar `j` is 9223372036854775808"),
    ("j", 10**400, r"scalar `j` is 2\*\*1328 or so, but must be in"),
    ("j", -(10**400), r"scalar `j` is -2\*\*1328 or so"),
    ("k", 10**400, r"scalar `k` is 2\*\*1328 or so"),
    ("k", 2**62 + 1, "scalar `k` is 4611686018427387905"),
    ("near", 0, r"scalar `near` is 0, but must be in 1 \.\. 2 \(1 \.\. R\)"),
    ("near", 3, "scalar `near` is 3"),
    ("i", True, "`i` must be an int .*; it is bool"),
    ("k", False, "`k` must be an int .*; it is bool"),
    ("f", True, "`f` must be a float .*; it is bool"),
    ("i", np.bool_(True), "`i` must be an int .*; it is bool"),
    ("f", np.bool_(True), "`f` must be a float .*; it is bool"),
    ("i", 1.0, "`i` must be an int .*; it is float"),
    ("i", math.nan, "`i` must be an int .*; it is float"),
    ("i", np.float64(1), "`i` must be an int .*; it is float64"),
    ("i", "1", "`i` must be an int .*; it is str"),
    ("i", None, "`i` is missing"),
    ("i", 1j, "`i` must be an int .*; it is complex"),
    ("f", 1j, "`f` must be a float .*; it is complex"),
    ("f", "1", "`f` must be a float .*; it is str"),
    ("f", 10**400, "`f` must be a float .*; it is int"),
    ("f", 1e39, r"scalar `f` is 1e\+39, which no f32 can hold"),
    ("f", -1e300, r"scalar `f` is -1e\+300, which no f32 can hold"),
    ("f", -(10**39), r"scalar `f` is -1e\+39, which no f32"),
    ("f", 3.5e38, "which no f32 can hold"),
    ("f", np.float32(0.5), "`f` must be a float .*; it is float32"),
    ("f", None, "`f` is missing"),
    ("f", torch.tensor(1.0), "`f` must be a float .*; it is Tensor"),
    ("i", torch.tensor(1), "`i` must be an int .*; it is Tensor"),
    ("k", torch.tensor([1]), "`k` must be an int .*; it is Tensor"),
    ("i", np.array([1]), "`i` must be an int .*; it is ndarray"),
    ("i", [1], "`i` must be an int .*; it is list"),
    ("half", 0.6, r"scalar `half` is 0\.6\d*, but must be in -0\.5 \.\. 0\.5"),
    ("half", math.nan, "scalar `half` is nan"),
    ("half", -math.inf, "scalar `half` is -inf"),
]


@pytest.mark.parametrize("name, value, words", WRONG, ids=[f"{n}-{v!r:.30}" for n, v, _ in WRONG])
def test_wrong_scalars_are_refused_by_name(package, name, value, words, device):
    call = numbers(device)
    package.numbers(**call)
    call = numbers(device, **{name: value})
    for _ in range(2):
        with pytest.raises(package.KgenCallError, match=f"numbers: .*{words}"):
            package.numbers(**call)
    assert (call["ys"] == -77).all()
    assert (call["zs"] == -77).all()


def test_a_tensor_without_dimensions_is_refused_by_name(package, device):
    one, none = torch.ones((), dtype=torch.int64, device=device), torch.zeros(0, device=device)
    with pytest.raises(package.KgenCallError, match=r"`at` has shape \[\], but i64\[R\] has 1 dim"):
        package.far(at=one, column=one, x=none, to=one, y=none, z=one)
