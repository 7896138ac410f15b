"""The kernel of a group before it is text: one small, typed form, and what is done with it.

In: a `Plan`. Out: `Made`, the group's kernel and that of debug mode, both judged. In reading order:

- `ir.py`: the form. Free of any backend's words; a mask is a set of conditions, a load says where it
  happens.
- `lower.py`: a plan to a kernel, each value under the guards it needs, in the outermost body that can
  hold it; `bodies.py` knows which one that is, `indices.py` the variables of indices.
- `passes.py`: what puts it in order: joining, sharing, leaving early, barriers, dead code, names.
- `debug.py`: the kernel with its loads and stores checked and nothing stored. `make.py` is the way in.
- `form.py`: whether a kernel is one at all: bound before use, types and axes that agree.
- `judge.py` reads a finished kernel back (`lanes.py`, `raised.py`) and shows that each access is safe,
  and that it stores where the group says and nowhere else; if not, `UnsafeError`, a fault of kgen.
- `run.py` runs one on numpy arrays, slowly and strictly (`memory.py`, `values.py`, `faults.py`); for
  tests.

`judge.py` and `run.py` share no code with `lower.py` and `passes.py`, nor with each other beyond the
form, so that a mistake is not made twice. A pass need not be trusted to be safe: what comes out is judged
at each build. That the stored values are the right ones is for the tests, which compare every reading.
"""
