"""How many kernels a callable launches.

In: a callable. Out: a number. On CUDA the callable is captured in a graph, whose nodes are counted,
so the answer is exact. On the CPU nothing is launched: there it counts the operations that each
would be a launch on a GPU, which comes close but knows nothing of operations that take two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# CUgraphNodeType of the nodes that do work on the device.
_NODE_KINDS = {0: "kernel", 1: "memcpy", 2: "memset"}
# Operations that only allocate.
_ALLOCATE = ("empty", "new_empty", "resize_")


def launches(run: Callable[[], object], device: torch.device) -> int:
    """Kernels, copies and fills that one call of `run` puts on the device."""
    if device.type == "cuda":
        return sum(graph_nodes(run).values())
    counter = _Counter()
    with counter, _interpreted_kernels(counter):
        run()
    return counter.count


def graph_nodes(run: Callable[[], object]) -> dict[str, int]:
    """The device work of one call of `run` in a CUDA graph, by kind: kernel, memcpy, memset."""
    run()  # compiles and loads modules, which a capture may not
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        run()
    return _nodes(graph.raw_cuda_graph())


def _nodes(handle: int) -> dict[str, int]:
    driver = ctypes.CDLL("libcuda.so.1")
    graph, count = ctypes.c_void_p(handle), ctypes.c_size_t()
    _checked(driver.cuGraphGetNodes(graph, None, ctypes.byref(count)))
    nodes = (ctypes.c_void_p * count.value)()
    if count.value:
        _checked(driver.cuGraphGetNodes(graph, nodes, ctypes.byref(count)))
    found = dict.fromkeys(_NODE_KINDS.values(), 0)
    for node in nodes:
        kind = ctypes.c_int()
        _checked(driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
        if kind.value in _NODE_KINDS:
            found[_NODE_KINDS[kind.value]] += 1
    return found


def _checked(status: int) -> None:
    if status:
        raise RuntimeError(f"the CUDA driver refused to list a graph's nodes: error {status}")


class _Counter(TorchDispatchMode):  # type: ignore[misc]
    """Counts the aten operations under it that would launch a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.paused = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        if not self.paused and _would_launch(func, result):
            self.count += 1
        return result


def _would_launch(func: Any, result: object) -> bool:
    name = func._schema.name  # noqa: SLF001 - the only way to an operation's name
    if not name.startswith("aten::") or name.removeprefix("aten::").startswith(_ALLOCATE):
        return False
    returns = func._schema.returns  # noqa: SLF001
    if any(each.alias_info and not each.alias_info.is_write for each in returns):
        return False  # a view
    results = result if isinstance(result, tuple | list) else (result,)
    tensors = [each for each in results if isinstance(each, torch.Tensor)]
    return not tensors or any(each.numel() for each in tensors)


@contextmanager
def _interpreted_kernels(counter: _Counter) -> Iterator[None]:
    """Count a kernel that Triton interprets as one launch, and nothing of what the interpreter does."""
    from triton.runtime import interpreter  # noqa: PLC0415 - it needs numpy, and no GPU machine needs it

    run = interpreter.GridExecutor.__call__

    def counted(self: Any, *args: Any, **kwargs: Any) -> object:
        counter.count += 1
        counter.paused = True
        try:
            return run(self, *args, **kwargs)
        finally:
            counter.paused = False

    interpreter.GridExecutor.__call__ = counted
    try:
        yield
    finally:
        interpreter.GridExecutor.__call__ = run
