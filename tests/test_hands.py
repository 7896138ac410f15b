"""Groups in torch's hands: each works to the bit, or is refused by name before anything is written.

The matrix is every group of the committed package and three small ones, in every hand of `helpers/hands.py`.
"""

from __future__ import annotations

import functools
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import building
import calls
import hands
import pytest
import torch
import torch._dynamo.testing
from vendored import run, vendor

ROOT = Path(__file__).parents[1]
DSPARK = sorted(p.stem for p in (ROOT / "specs" / "dspark").glob("*.yaml") if p.stem != "step")

STATE = """\
group: state
summary: Moves each row on, with a run-time and a static scalar.
sizes: {R: 0 .. 50, B: 0 .. 100}
scalars: {begin: {type: i32, values: 0 .. B - R}, K: {type: static, values: 1 .. 8}}
tensors:
  x: {type: "i64[B]", values: 0 .. 2**40}
  held: {type: "i64[R]", mode: inout, values: 0 .. 2**40}
  y: {type: "i64[R]", mode: out}
index: {r: R}
store:
  held[r]: held[r] + K
  y[r]: x[begin + r] + held[r]
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
SMALL = ("state", "scaled", "pages")
# Of the committed package one of each kind of parameters; the others take minutes.
SOME = ("block_write",)
EVERY = [
    name if name in (*SMALL, *SOME) else pytest.param(name, marks=pytest.mark.slow)
    for name in (*DSPARK, *SMALL)
]


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> ModuleType:
    """The small groups."""
    yield building.package(
        tmp_path_factory.mktemp("hands"), "hands_small", STATE, calls.SCALED, PAGES
    )
    building.unload("hands_small")


@functools.cache
def drawn_of(group: str, device: torch.device) -> tuple[Any, ModuleType, Any]:
    """A case, its package's `_testing`, and a small world."""
    place = ("hands_small", "pk") if group in SMALL else ("generated", "dspark")
    case, testing = building.case(*place, group), building.testing(*place)
    return case, testing, hands.world_of(case, testing, device)


@pytest.fixture(params=EVERY)
def drawn(request, package, device) -> tuple[Any, ModuleType, Any]:  # noqa: ARG001 - of the small ones
    return drawn_of(request.param, device)


@pytest.mark.parametrize("hand", hands.QUICK)
def test_it_works_to_the_bit(drawn, hand):
    assert hands.trial(*drawn, hands.QUICK[hand]) == []


@pytest.mark.parametrize("hand", hands.SLOW)
@pytest.mark.parametrize("group", EVERY)
@pytest.mark.usefixtures("package")
def test_compiled_it_works_to_the_bit(group, hand, device):
    assert hands.trial(*drawn_of(group, device), hands.SLOW[hand]) == []


@pytest.mark.parametrize("group", EVERY)
@pytest.mark.usefixtures("package")
def test_torch_checks_its_operator(group, device):
    case, _, start = drawn_of(group, device)
    arguments = start.clone().arguments()
    torch.library.opcheck(
        case.operator.op, tuple(arguments.get(n) for n in case.operator.arguments)
    )


@pytest.mark.parametrize("hand", hands.IDLE)
def test_nothing_is_done_without_memory(drawn, hand):
    assert hands.idle(*drawn, hands.IDLE[hand]) == []


@pytest.mark.parametrize("hand", hands.REFUSED)
def test_it_is_refused_by_name(drawn, hand):
    said = hands.refusal(*drawn, hands.REFUSED[hand])
    assert "torch.func" in said or "torch.jit" in said


@pytest.mark.parametrize("hand", hands.DIFFERENTIATED)
@pytest.mark.parametrize("group", EVERY)
@pytest.mark.usefixtures("package")
def test_a_gradient_is_refused_by_name(group, hand, device):
    case, testing, start = drawn_of(group, device)
    if any(each.is_floating_point() for each in hands.tensors_of(start.arguments())):
        said = hands.refusal(case, testing, start, hands.DIFFERENTIATED[hand])
        assert "torch.func" in said


# What a compiled program is compiled for.


def graphs_of(call: Any, arguments: Any, values: Any, name: str, **options: Any) -> int:
    """How many graphs torch makes of one call with several values of an argument; each is right."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    step = torch.compile(lambda given: call(**given), fullgraph=True, backend=counter, **options)
    for value in values:
        mine, plain = arguments(), arguments()
        step(mine | {name: value})
        call(**plain | {name: value})
        for one, two in zip(hands.tensors_of(mine), hands.tensors_of(plain), strict=True):
            assert torch.equal(one, two)
    return counter.frame_count


def test_a_run_time_scalar_is_symbolic_and_a_static_one_is_not(package, device):
    def arguments(**more: Any) -> dict[str, Any]:
        filled = torch.arange(20, device=device)
        return {"x": filled, "held": filled[:3].clone(), "y": filled[3:6].clone()} | more

    def with_begin() -> dict[str, Any]:
        return arguments(begin=2)

    def with_factor() -> dict[str, Any]:
        return arguments(K=2)

    assert graphs_of(package.state, lambda: arguments(K=3), range(9), "begin", dynamic=True) == 1
    assert graphs_of(package.state, lambda: arguments(K=3), range(9), "begin") <= 2
    assert graphs_of(package.state, with_begin, range(1, 5), "K", dynamic=True) == 4


def test_nine_numbers_of_contexts_make_one_graph(device):
    case = calls.dspark("context_positions")

    def arguments() -> dict[str, Any]:
        given = {"ctx_len": [10, 20, 30], "batch_to_slot": [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]}
        return calls.arguments(case, device, G=2, K1=3, num_contexts=0, **given)

    assert graphs_of(case.fused, arguments, range(9), "num_contexts", dynamic=True) == 1


def test_a_view_that_negates_is_refused_however_it_comes(package, device):
    """torch.compile with Inductor reads the memory of an input that is one, without the sign."""
    x = torch.tensor([1 + 2j, 3 + 4j], device=device).conj().imag

    def call(group: Any, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(2, device=x.device)
        group(x=x, out=out, by=1.0)
        return out

    for group in (package.scaled, package.ops.scaled, package.ops.scaled.op):
        with pytest.raises(package.KgenCallError, match="`x` is a negated view"):
            call(group, x)
        with pytest.raises(package.KgenCallError, match="`out` is a negated view"):
            group(x=torch.ones(2, device=device), out=x, by=1.0)
    for backend in ("eager", "aot_eager", "inductor"):
        torch._dynamo.reset()
        step = torch.compile(call, fullgraph=True, backend=backend)
        with pytest.raises(Exception, match="`x` is a negated view"):
            step(package.scaled, x)
        assert step(package.scaled, x.resolve_neg()).tolist() == [-2, -4]


def test_autograd_notices_what_a_call_has_changed(package, device):
    weight = torch.ones(2, device=device, requires_grad=True)
    for group in (package.scaled, package.ops.scaled.op):
        kept = torch.ones(2, device=device)
        product = weight * kept
        group(x=torch.ones(2, device=device), out=kept, by=5.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()


def test_strides_stay_what_they_are_under_inductor(package, device):
    """An operator's own layout rules hold for what torch.compile computes on the way to it."""

    def step(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(4, device=x.device)
        package.scaled(x=(x * 2).t()[1], out=out, by=1.0)
        return out

    assert torch.Tag.pt2_compliant_tag in package.ops.scaled.op.tags
    x = torch.arange(12.0, device=device).view(4, 3)
    torch._dynamo.reset()
    with torch._functorch.config.patch(custom_op_default_layout_constraint="flexible_layout"):
        assert torch.equal(torch.compile(step, fullgraph=True)(x), step(x))


# Where no graph is: threads, forks, python -O.


def test_threads_share_the_interpreter_and_lose_nothing(package, device):
    """Triton's interpreter has one state for all threads and all packages."""
    other = calls.dspark("context_positions")
    wrong: list[object] = []

    def state(number: int) -> None:
        for _ in range(12):
            x, held = (
                torch.arange(50, device=device) + 1000 * number,
                torch.arange(40, device=device),
            )
            y = torch.zeros_like(held)
            package.state(x=x, held=held, y=y, begin=2, K=3)
            if held.tolist() != list(range(3, 43)) or (y - x[2:42]).tolist() != list(range(40)):
                wrong.append((number, y))

    def positions(number: int) -> None:
        for _ in range(12):
            given = {"ctx_len": [number, 2 * number], "batch_to_slot": [0, 1, 0]}
            own = calls.arguments(other, device, G=2, K1=2, num_contexts=1, **given)
            other.fused(**own)
            if own["ctx_positions"].tolist() != [
                [2 * number, 2 * number + 1],
                [number, number + 1],
            ]:
                wrong.append(own)

    def work(number: int) -> None:
        try:
            (positions if number % 2 else state)(number)
        except Exception as error:  # noqa: BLE001 - told below
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


class Failing:
    """A function that counts its calls and fails at one of them."""

    def __init__(self, function: Any, last: int = 0) -> None:
        self.function, self.last, self.calls = function, last, 0

    def __call__(self, *given: Any, **named: Any) -> None:
        self.calls += 1
        if self.calls == self.last:
            raise IndexError("a promise is broken")
        self.function(*given, **named)


def test_a_reference_stores_everything_or_nothing(device):
    """A promise that is broken at the last store leaves the first one undone."""
    for group in ("gen_bookkeeping", "block_fixup", "refresh_block_tables"):
        case, testing, start = drawn_of(group, device)
        module = sys.modules[case.operator.reference.__module__]
        stored = module._store
        try:
            module._store = counting = Failing(stored)
            case.run_reference(start.clone())
            module._store, world = Failing(stored, counting.calls), start.clone()
            with pytest.raises(IndexError, match="a promise"):
                case.run_reference(world)
        finally:
            module._store = stored
        assert testing._same(world, start), group


OUTSIDE = """
    import os, pickle, copy
    import dspark as package
    assert call(package) == RIGHT
    given = dict(
        ctx_len=torch.tensor([10, 20, 30]), batch_to_slot=torch.tensor([0, 1, 0]),
        ctx_positions=torch.full((2, 3), 77), num_contexts=9,
    )
    def wrong():
        try:
            package.context_positions(**given)
        except package.KgenCallError:
            return given["ctx_positions"].tolist() == [[77] * 3] * 2
    if not wrong():
        raise SystemExit("taken")
    child = os.fork()
    if not child:
        os._exit(0 if call(package) == RIGHT and wrong() else 1)
    if os.waitpid(child, 0)[1] or call(package) != RIGHT:
        raise SystemExit("the child is wrong")
"""


@pytest.mark.parametrize("interpret", [False, True])
def test_without_asserts_and_after_a_fork(tmp_path, interpret):
    vendor(tmp_path / "dspark")
    run(tmp_path, OUTSIDE, interpret=interpret, options=("-O",))


def test_a_first_launch_under_capture_is_refused_before_anything_happens(package, monkeypatch):
    """The real capture is in tests/gpu; here a device says that it captures."""
    launch = package.ops.state.launch
    runtime = sys.modules[type(launch).__module__]
    monkeypatch.setattr(runtime, "_captures", lambda _: True)
    monkeypatch.setattr(runtime, "launch", lambda *given: done.append(given))
    done: list[object] = []
    held = torch.arange(3)
    arguments = {"x": torch.arange(9), "held": held, "y": held.clone(), "begin": 0}
    values = package.ops.state.checked(arguments | {"K": 7}).values
    prepared = launch.prepare(arguments, values, torch.device("cpu"))
    words = r"state: no variant for K=7.* was launched before, and a CUDA graph's capture .* warmup"
    with pytest.raises(package.KgenCallError, match=words):
        launch.run(prepared, arguments)
    assert done == []
    prepared.launched[0] = 1
    launch.run(prepared, arguments)
    assert len(done) == 1
