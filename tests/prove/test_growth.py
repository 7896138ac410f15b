"""What proving costs: counts, not times, so that the same holds on every machine."""

from __future__ import annotations

import growth
import pytest

from kgen.build import compile_group
from kgen.prove import prove
from kgen.prove.numbers import Numbers


def steps_of(monkeypatch, group, report) -> int:
    """How many steps the questions of a group's compilation took; none of them may ask the solver."""
    taken = 0
    show = Numbers._show

    def counted(self, *args):
        nonlocal taken
        taken += 1
        return show(self, *args)

    def solver(*_args, **_named):
        raise AssertionError("the solver is asked")

    monkeypatch.setattr(Numbers, "_show", counted)
    monkeypatch.setattr(prove, "Question", solver)
    assert compile_group(group, report) is not None
    return taken


def test_a_binary_search_asks_no_solver(front, monkeypatch) -> None:
    group, report = front.read(growth.searched())
    assert steps_of(monkeypatch, group, report) < 12_000


@pytest.mark.parametrize("form", growth.CHAINS)
def test_steps_grow_with_the_number_of_lets(front, monkeypatch, form: str) -> None:
    short, long = (front.read(growth.chain(form, count)) for count in (8, 32))
    few, many = steps_of(monkeypatch, *short), steps_of(monkeypatch, *long)
    assert many <= 6 * max(few, 50)


def test_a_long_chain_is_compiled(front) -> None:
    group, report = front.read(growth.chain(growth.CHAINS[-1], 130))
    assert compile_group(group, report) is not None
