"""What generated code calls; every module but this one is copied into every generated package.

In: a call. Out: checked arguments, a launch, or an error that names the argument. Needs torch and triton
only, never kgen. In reading order:

- `_dtypes.py`: the table of element types, which kgen itself reads as well. `_runtime.py`: a signature,
  and a call checked against it. `_overlap.py`: whether tensors share memory.
- `_launch.py`: kernels, launches and what of them is kept. `_repeat.py`: calls that repeat.
  `_operator.py`: a group as a function and as an operator of torch's. `_warmup.py`: every variant built
  before it is needed.
- `_reference.py`: the torch operations that references are made of.
- `_debug.py`, `_trace.py`: debug mode. `_step.py`: what a step is made of, copied where there is one.
- `_testing.py`, `_draw.py`, `_trust.py`, `_shared.py`: the generated tests: random worlds, compared to
  the bit.

Nothing here waits for a device, debug mode and tests excepted. A call like one before costs a look-up.
"""
