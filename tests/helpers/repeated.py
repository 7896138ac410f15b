"""Calls that repeat, and calls that only look so, launched by a stand-in for Triton's driver; prints JSON.

A program: `python repeated.py FOLDER [TEXT INSTEAD]`, without TRITON_INTERPRET. Builds a package of two groups into
FOLDER, and may replace a text of its `_repeat.py`. In each case a call is made until it repeats, then something of it is changed and it is made again: by the operator that
remembers the first ones, and by one that remembers nothing. Both must end alike: the same launch, or the same error.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import building
import count_variants
import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode

SPECS = (
    """\
group: rows
summary: Adds to rows.
sizes: {R: 0 .. 64, C: static 1 .. 8, S: 1 .. 1000}
scalars:
  begin: {type: i32, values: 0 .. S - R}
  most: {type: i32, values: 0 .. 64, default: R}
  by: f32
  K: {type: static, values: 1 .. 8}
tensors:
  x: {type: "i64[S]", values: 0 .. 2**40}
  bias: {type: "f32[C]", optional: true}
  scaled: {type: "f32[R, C]", layout: any, mode: inout}
  held: {type: "i64[R]", mode: inout, values: 0 .. 2**40}
index: {r: R, c: C}
store:
  held[r]: {value: "x[begin + r] + K", when: r < most}
  scaled[r, c]: by + (bias[c] if given(bias) else 0.0)
""",
    """\
group: pages
summary: Numbers the rows of each page.
sizes: {A: 0 .. 9, L: static 1 .. 4}
tensors:
  xs: {type: "i64[A, 3]", list: L, mode: inout, layout: any}
  y: {type: "i64[A]", mode: out}
index: {l: L, a: A}
store:
  xs[l][a, 1]: l * 10 + a
  y[a]: a
""",
)


class Recording(count_variants.StandIn):
    """Keeps what is launched."""

    done: ClassVar[list[Any]] = []
    device, stream = 0, 7

    class _Launcher:
        def __init__(self, _: Any, metadata: Any) -> None:
            self.pdl = metadata.launch_pdl

        def __call__(self, *given: Any) -> None:
            grid, stream, function, hooks, rest = (
                given[:3],
                given[3],
                given[4],
                given[7:9],
                given[9:],
            )
            plain = [each.data_ptr() if isinstance(each, torch.Tensor) else each for each in rest]
            for hook in hooks:
                if hook is not None:
                    hook(given[6])
            direct = not any(isinstance(each, torch.Tensor) for each in rest)
            launch = [*grid, stream, function, self.pdl, repr(plain)]
            Recording.done.append({"launch": launch, "direct": direct})

    class _Utils(count_variants.StandIn._Utils):
        def load_binary(self, name: str, kernel: bytes, *_: Any) -> tuple[int, ...]:
            return (0, hash((name, kernel, Recording.device)), 0, 0, 1024)

    def get_current_device(self) -> int:
        return Recording.device

    def get_current_stream(self, _: int) -> int:
        return Recording.stream


class Counted(TorchDispatchMode):
    """Sees every operator."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Recording.done.append({"launch": [str(func)], "direct": False})
        return None if "kgen" in str(func) else func(*args, **(kwargs or {}))


def call(rows: int = 4) -> dict[str, Any]:
    return {
        "x": torch.arange(40),
        "scaled": torch.zeros(rows, 3),
        "held": torch.arange(rows),
        "begin": 2,
        "most": 3,
        "by": 1.5,
        "K": 3,
    }


def paged() -> dict[str, Any]:
    return {"xs": [torch.zeros(4, 3, dtype=torch.int64) for _ in range(2)], "y": torch.arange(4)}


CASES: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {}


def case(group: str = "rows") -> Any:
    """What is changed of a call before it is made again; may give a context to make it in."""

    def add(change: Any) -> Any:
        CASES[change.__name__.replace("_", " ").strip()] = (group, change)
        return change

    return add


@case()
def nothing(_: Any) -> None:
    pass


@case()
def other_tensors(g: Any) -> None:
    g["other"] = g["held"]  # kept, so that the address is new
    g["held"] = torch.arange(4)
    del g["other"]


@case()
def a_scalar(g: Any) -> None:
    g["begin"] = 5


@case()
def a_float(g: Any) -> None:
    g["by"] = 0.1


@case()
def a_negative_zero(g: Any) -> None:
    g["by"] = -0.0


@case()
def a_float_that_rounds_to_infinity(g: Any) -> None:
    g["by"] = 3.5e38


@case()
def an_infinite_float(g: Any) -> None:
    g["by"] = float("inf")


@case()
def nan(g: Any) -> None:
    g["by"] = float("nan")


@case()
def an_int_for_a_float(g: Any) -> None:
    g["by"] = 2


@case()
def a_static_scalar(g: Any) -> None:
    g["K"] = 4


@case()
def a_scalar_out_of_range(g: Any) -> None:
    g["begin"] = 37


@case()
def a_scalar_that_is_true(g: Any) -> None:
    g["begin"] = True


@case()
def a_scalar_that_is_a_float(g: Any) -> None:
    g["begin"] = 2.0


@case()
def a_static_scalar_that_is_a_float(g: Any) -> None:
    g["K"] = 3.0


@case()
def a_scalar_that_is_a_tensor(g: Any) -> None:
    g["begin"] = torch.tensor(2)


@case()
def a_scalar_that_is_left_out(g: Any) -> None:
    g["begin"] = None


@case()
def a_default_that_is_not_given(g: Any) -> None:
    g["most"] = None


@case()
def an_optional_tensor(g: Any) -> None:
    g["bias"] = torch.zeros(3)


@case()
def an_optional_tensor_that_is_none(g: Any) -> None:
    g["bias"] = None


@case()
def an_unknown_argument(g: Any) -> None:
    g["more"] = 1


@case()
def an_argument_less(g: Any) -> None:
    del g["held"]


@case()
def another_order(g: Any) -> None:
    g["x"] = g.pop("x")


@case()
def another_order_of_numbers(g: Any) -> None:
    begin, most, by, static = (g.pop(name) for name in ("begin", "most", "by", "K"))
    g.update(most=most, begin=begin, by=by, K=static)


@case()
def a_name_for_another(g: Any) -> None:
    g["hold"] = g.pop("held")


@case()
def more_rows(g: Any) -> None:
    g.update(call(rows=6))


@case()
def resized_in_place(g: Any) -> None:
    g["held"].resize_(3)


@case()
def resized_in_place_all(g: Any) -> None:
    g["held"].resize_(3)
    g["scaled"].resize_(3, 3)


@case()
def a_range_that_depends_on_it(g: Any) -> None:
    g["begin"] = 36
    g["x"].resize_(39)


@case()
def other_strides_in_place(g: Any) -> None:
    g["scaled"].set_(torch.zeros(3, 4).untyped_storage(), 0, (4, 3), (1, 4))


@case()
def not_a_row_any_more(g: Any) -> None:
    g["held"].set_(torch.zeros(8, dtype=torch.int64).untyped_storage(), 0, (4,), (2,))


@case()
def expanded_in_place(g: Any) -> None:
    g["scaled"].set_(torch.zeros(9).untyped_storage(), 0, (4, 3), (0, 1))


@case()
def set_to_memory_of_another(g: Any) -> None:
    g["held"].set_(g["x"].untyped_storage(), 3, (4,), (1,))


@case()
def a_view_of_another(g: Any) -> None:
    g["held"] = g["x"][3:7]


@case()
def the_same_twice(g: Any) -> None:
    g["held"] = g["x"] = torch.arange(40)


@case()
def other_data(g: Any) -> None:
    g["held"].data = torch.arange(4) + 3


@case()
def data_of_another_type(g: Any) -> None:
    g["held"].data = torch.zeros(4)


@case()
def data_of_another_size(g: Any) -> None:
    g["held"].data = torch.arange(5)


@case()
def data_on_meta(g: Any) -> None:
    g["held"] = torch.arange(4, device="meta")


@case()
def freed_and_another_of_another_type(g: Any) -> None:
    del g["held"]
    gc.collect()
    g["held"] = torch.zeros(4, dtype=torch.float64)


@case()
def without_memory(g: Any) -> None:
    g["held"].untyped_storage().resize_(0)


@case()
def short_of_memory(g: Any) -> None:
    g["held"].untyped_storage().resize_(9)


@case()
def unaligned(g: Any) -> None:
    storage = torch.zeros(64, dtype=torch.uint8)
    g["held"] = torch.frombuffer(storage.numpy().data, dtype=torch.int64, count=4, offset=1)


@case()
def negated(g: Any) -> None:
    g["scaled"] = torch._neg_view(g["scaled"])


@case()
def not_a_tensor(g: Any) -> None:
    g["held"] = [0, 1, 2, 3]


@case()
def a_numpy_array(g: Any) -> None:
    g["held"] = g["held"].numpy()


@case()
def sparse(g: Any) -> None:
    g["scaled"] = g["scaled"].to_sparse()


@case()
def with_a_gradient(g: Any) -> None:
    g["scaled"] = torch.nn.Parameter(g["scaled"])


@case()
def in_inference_mode(_: Any) -> Any:
    return torch.inference_mode()


@case()
def without_gradients(_: Any) -> Any:
    return torch.no_grad()


@case()
def seen_by_a_mode(_: Any) -> Any:
    return Counted()


@case()
def fake(g: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    g.update({n: mode.from_tensor(t) for n, t in g.items() if isinstance(t, torch.Tensor)})
    return mode


@case()
def on_another_stream(_: Any) -> None:
    Recording.stream = 8


@case()
def on_another_device(_: Any) -> None:
    Recording.device = 1


@case()
def with_a_hook(_: Any) -> None:
    triton.knobs.runtime.launch_enter_hook.add(hook)


@case()
def with_a_hook_at_the_end(_: Any) -> None:
    triton.knobs.runtime.launch_exit_hook.add(hook)


@case()
def with_a_hook_of_the_kernel(_: Any) -> None:
    Recording.operator.launch.function.add_pre_run_hook(hook)


@case()
def to_be_debugged(_: Any) -> None:
    triton.knobs.runtime.debug = True


@case()
def without_new_variants(_: Any) -> None:
    Recording.package.no_jit()


@case("pages")
def a_list(_: Any) -> None:
    pass


@case("pages")
def a_tuple(g: Any) -> None:
    g["xs"] = tuple(g["xs"])


@case("pages")
def a_longer_list(g: Any) -> None:
    g["xs"].append(torch.zeros(4, 3, dtype=torch.int64))


@case("pages")
def another_in_the_list(g: Any) -> None:
    g["xs"][1] = torch.zeros(4, 3, dtype=torch.int64)


@case("pages")
def other_strides_in_the_list(g: Any) -> None:
    g["xs"][1] = torch.zeros(3, 4, dtype=torch.int64).t()


@case("pages")
def the_same_in_the_list(g: Any) -> None:
    g["xs"][1] = g["xs"][0]


@case("pages")
def rows_between_those_of_another(g: Any) -> None:
    both = torch.zeros(4, 6, dtype=torch.int64)
    g["xs"] = [both[:, :3], both[:, 3:]]


@case("pages")
def no_tensor_in_the_list(g: Any) -> None:
    g["xs"][1] = None


@case("pages")
def no_list(g: Any) -> None:
    g["xs"] = g["xs"][0]


def hook(*_: Any, **__: Any) -> None:
    Recording.done.append({"launch": ["hook"], "direct": False})


def made(function: Callable[..., Any], given: dict[str, Any], context: Any) -> Any:
    """What a call does: its launches, or its error; and whether versions of what is written rise."""
    Recording.done = []
    written = [each for each in (given.get("held"), given.get("y")) if type(each) is torch.Tensor]
    before = [0 if each.is_inference() else each._version for each in written]
    try:
        if context is None:
            function(**given)
        else:
            with context:
                function(**given)
    except Exception as error:  # noqa: BLE001 - compared
        return {"error": f"{type(error).__name__}: {error}"}
    rose = [each._version - at for each, at in zip(written, before, strict=True)]
    return {"done": [each["launch"] for each in Recording.done], "rose": rose}


def package_of(folder: Path, text: str, instead: str) -> Any:
    """The package of the specs, with a change to its `_repeat.py`."""
    (folder / "pk").mkdir(parents=True)
    for number, spec in enumerate(SPECS):
        (folder / "pk" / f"spec_{number}.yaml").write_text(spec)
    building.build(folder / "pk", folder / "out")
    path = folder / "out" / "pk" / "_repeat.py"
    found = path.read_text()
    if text not in found:
        raise SystemExit(f"{text} is not in {path}")
    path.write_text(found.replace(text, instead))
    building.load(folder / "out", "repeated")
    return importlib.import_module("repeated.pk")


def main(folder: str, text: str = "", instead: str = "") -> None:
    """Print what became of each case; `text` of `_repeat.py` is replaced."""
    triton.runtime.driver.set_active(Recording())
    package = package_of(Path(folder), text, instead)
    sys.modules[f"{package.__name__}._operator"].runs_kernels = lambda _: True
    repeat = importlib.import_module(f"{package.__name__}._repeat")
    Recording.package, found = package, {}
    for name, (group, change) in CASES.items():
        operator = package.ops.GROUPS[group]
        Recording.operator, function = operator, getattr(package, group)
        given = paged() if group == "pages" else call()

        def forget(operator: Any = operator) -> None:
            operator._known.clear()
            operator._repeats = repeat.Repeats(operator.launch)

        forget()
        for _ in range(3):
            function(**given)
        repeats = Recording.done[-1]["direct"]
        context = change(given)
        ended = made(function, given, context)
        direct = bool(Recording.done) and Recording.done[-1]["direct"]
        forget()
        first = made(function, given, context)
        found[name] = {"repeats": repeats, "direct": direct, "ended": ended, "first": first}
        Recording.stream, Recording.device = 7, 0
        triton.knobs.runtime.launch_enter_hook.calls.clear()
        triton.knobs.runtime.launch_exit_hook.calls.clear()
        operator.launch.function.pre_run_hooks.clear()
        vars(triton.knobs.runtime).pop("debug", None)
        package.no_jit(False)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
