"""Measuring: kernel launches and the time of a CUDA graph's replay. Needs torch and triton only.

In: callables. Out: numbers. `launches.py` counts: on CUDA the nodes of a captured graph, on the CPU the
operations that each would be a launch. `timing.py` measures: variants captured several times back to
back, replayed in turn in one run, medians. Nothing here is copied into packages; the examples and
tests/gpu use it.
"""
