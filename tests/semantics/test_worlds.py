"""The harness of random specs sees what it is there for, and a failing spec becomes a small one."""

import pytest
import shrinking
import torch
import worlds
from in_memory import Refused, compiled

MOVED = """\
group: probe
summary: A probe.
sizes: {R: 4 .. 9}
tensors:
  x: {type: "f32[R]"}
  y: {type: "f32[R]", mode: out}
index: {r: R}
store:
  y[r]: x[r]
"""
ROWS = """\
group: probe
summary: A probe.
sizes: {R: 4 .. 9, N: 4 .. 9}
tensors:
  slot: {type: "i64[R]", values: 0 .. N - 1, distinct: except N - 1}
  y: {type: "i64[N]", mode: inout, values: 0 .. 99}
  z: {type: "i64[R]", mode: out}
index: {r: R}
store:
  y[slot[r]]: min(y[slot[r]] + 1, 99)
  z[r]: y[slot[r]] * 2
"""


def with_reading(monkeypatch, change):
    """A further reading: the reference, and then `change` of its world."""

    def reading(made, world):
        made.case.run_reference(world)
        change(made, world)
        return worlds.Result(world)

    monkeypatch.setitem(worlds.READINGS, "another", reading)


def found(text, seeds=range(8)):
    """The kinds of failure of a spec."""
    return set(worlds.tried(text, list(seeds)).failures)


def test_a_further_reading_that_agrees(monkeypatch):
    with_reading(monkeypatch, lambda _made, _world: None)
    assert found(MOVED) == found(ROWS) == set()


@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize("at", [0, 2, -1])
def test_any_element_that_differs_is_seen(monkeypatch, name, at):
    """Of an input, of an output, and of the memory before and behind them."""

    def change(made, world):
        words = made.testing.bits(world.buffers[name][0].base)
        words[at] ^= 1

    with_reading(monkeypatch, change)
    assert found(MOVED) == {"another: differs"}


def test_an_error_is_a_finding(monkeypatch):
    def change(_made, _world):
        raise ZeroDivisionError("at R = 12")

    with_reading(monkeypatch, change)
    assert found(MOVED) == {"another: ZeroDivisionError: at R = N"}


def test_a_nan_that_is_moved_keeps_its_bits(monkeypatch):
    """After arithmetic any NaN will do."""

    def change(_made, world):
        y = world.buffers["y"][0].view
        y.copy_(torch.where(y.isnan(), torch.tensor(-float("nan")), y))

    with_reading(monkeypatch, change)
    assert found(MOVED, range(24)) == {"another: differs"}
    assert found(MOVED.replace("y[r]: x[r]", "y[r]: x[r] * 1.5"), range(24)) == set()


def test_what_is_undefined_is_left_out_and_nothing_else(monkeypatch):
    """The shared slot, and what the rows that share it read there."""

    def shared(_made, world):
        slot = world.buffers["slot"][0].view
        last = world.values["N"] - 1
        rows = (slot == last).nonzero()[:, 0]
        if len(rows) > 1:
            world.buffers["y"][0].view[last] = 5
            world.buffers["z"][0].view[rows[0]] = 7

    with_reading(monkeypatch, shared)
    assert found(ROWS, range(24)) == set()

    def own(_made, world):
        slot = world.buffers["slot"][0].view
        rows = (slot != world.values["N"] - 1).nonzero()[:, 0]
        if len(rows):
            world.buffers["z"][0].view[rows[0]] += 1

    with_reading(monkeypatch, own)
    assert found(ROWS, range(24)) == {"another: differs"}


def test_what_is_refused_is_not_tried():
    with pytest.raises(Refused) as raised:
        worlds.tried(MOVED.replace("x[r]\n", "x[r + 1]\n"), [0])
    assert raised.value.codes == ("out-of-bounds",)


LARGE = """\
group: probe
summary: A probe.
when: R > 0 or s < 3
sizes: {R: 0 .. 9, TILE_m: 1 .. 65536, K: static 1 .. 8}
scalars: {s: {type: i32, values: -9 .. 9, default: 3}}
tensors:
  x: {type: "i32[R, TILE_m]", values: -9 .. 9, layout: any}
  value: {type: "i64[TILE_m, K]", layout: contiguous}
  y: {type: "i64[R, TILE_m]", mode: out}
  z: {type: "i64[K]", mode: out}
index: {r: R, c: TILE_m, k: K}
let:
  sums: sum[k](value[c, k])
  found: x[r, c] // 2 + (3 if sums > s else x[r, 0])
store:
  y[r, c]: found + i64(x[r, c]) if r > 2 else sums
  z[k]: k * 2
schedule: {tile: {c: 8}, warps: 4}
"""


def test_a_spec_becomes_small():
    def divides(text):
        try:
            compiled(text)
        except Refused:
            return False
        return "// 2" in text

    assert divides(LARGE)
    small = shrinking.shrunk(LARGE, divides)
    assert (
        small
        == """\
group: probe
summary: A probe.
sizes:
  R: 0 .. 9
tensors:
  y: {type: "i64[R]", mode: out}
index:
  c: R
store:
  y[c]: c // 2
"""
    ), small
