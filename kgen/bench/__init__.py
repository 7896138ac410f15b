"""Measuring: launches, times in a CUDA graph, what kernels are compiled to. Needs torch and triton only.

In: callables, or a folder of generated packages. Out: numbers. In reading order:

- `launches.py` counts: on CUDA the nodes of a captured graph, on the CPU the operations that each would be
  a launch. `timing.py` measures: variants captured several times back to back, replayed in turn in one run,
  medians.
- `packages.py`: the packages in a folder. `groups.py` is `kgen bench`, with `charts.py` for its page;
  `code.py` is `kgen compile`.

Nothing here is copied into packages; the examples and tests/gpu use it.
"""
