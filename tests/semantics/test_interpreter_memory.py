"""The watch on the interpreter's memory sees each fault that it is there for.

Kernels written wrong by hand, one for each fault; without the watch all of them pass in silence.
"""

import os

import pytest
import torch
import triton
import triton.language as tl
from interpreter_memory import MemoryFault, Watch, watching

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="there is no interpreter to watch"
)


@triton.jit
def advance(x_ptr, BARRIER: tl.constexpr):
    value = tl.load(x_ptr + tl.program_id(0))
    if BARRIER:
        tl.debug_barrier()
    tl.store(x_ptr + tl.program_id(0), value + 1)


@triton.jit
def copy_row(x_ptr, y_ptr, n, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    tl.store(y_ptr + lane, tl.load(x_ptr + lane, mask=lane < n, other=0), mask=lane < n)


@triton.jit
def shift(x_ptr):
    r = tl.program_id(0)
    value = tl.load(x_ptr + r)
    tl.debug_barrier()
    tl.store(x_ptr + r + 1, value)


@triton.jit
def all_to_one(y_ptr, LANES: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, LANES) // 2, tl.program_id(0))


def run(kernel, grid, watch, *args, **options):
    with watching(watch):
        kernel[(grid,)](*args, **options)


def test_a_right_kernel_passes():
    x, y = torch.arange(4), torch.zeros(4, dtype=torch.int64)
    run(advance, 4, Watch([(x, True)]), x, BARRIER=True)
    run(copy_row, 1, Watch([(x, False), (y, True)]), x, y, 4, LANES=4)
    assert y.tolist() == [1, 2, 3, 4]


def test_no_barrier_between_load_and_store():
    x = torch.arange(4)
    with pytest.raises(MemoryFault, match="no barrier"):
        run(advance, 4, Watch([(x, True)]), x, BARRIER=False)


@pytest.mark.parametrize("n", [5, 8])
def test_a_load_past_the_end(n):
    """Also into the padding behind a row, which is memory of the same tensor."""
    base, y = torch.arange(16), torch.zeros(8, dtype=torch.int64)
    with pytest.raises(MemoryFault, match="load outside"):
        run(copy_row, 1, Watch([(base[:4], False), (y, True)]), base[:4], y, n, LANES=8)


def test_a_store_past_the_end_or_to_an_input():
    x, base = torch.arange(8), torch.zeros(16, dtype=torch.int64)
    with pytest.raises(MemoryFault, match="store outside"):
        run(copy_row, 1, Watch([(x, False), (base[:4], True)]), x, base[:4], 5, LANES=8)
    assert base[4:].tolist() == [0] * 12
    with pytest.raises(MemoryFault, match="only read"):
        run(copy_row, 1, Watch([(x, False), (base, False)]), x, base, 4, LANES=8)


def test_what_is_no_argument_reads_as_zero():
    x, y = torch.arange(4), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(MemoryFault, match="load outside"):
        run(copy_row, 1, Watch([(y, True)]), x, y, 4, LANES=4)
    assert y.tolist() == [0] * 4


def test_races_between_programs():
    x = torch.arange(5)
    with pytest.raises(MemoryFault, match="has stored"):
        run(shift, 4, Watch([(x, True)]), x)


def test_two_stores_to_one_place():
    y = torch.zeros(4, dtype=torch.int64)
    with pytest.raises(MemoryFault, match="several lanes"):
        run(all_to_one, 1, Watch([(y, True)]), y, LANES=8)
    with pytest.raises(MemoryFault, match="stored to twice"):
        run(all_to_one, 2, Watch([(y, True)]), y, LANES=1)


def test_undefined_places_are_left_out():
    x = torch.arange(4)
    run(advance, 4, Watch([(x, True)], undefined=[x[1:]]), x, BARRIER=True)
    with pytest.raises(MemoryFault, match="1 faults"):
        run(advance, 4, Watch([(x, True)], undefined=[x[1:]]), x, BARRIER=False)
