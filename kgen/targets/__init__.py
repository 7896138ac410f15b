"""Text: of a kernel for Triton, of a typed group for torch, of numbers that the host computes.

In: a `Kernel`; a `typed.Group`; a `Plan`. Out: Python text, a function each. In reading order:

- `triton.py`: a kernel as Triton text, and its parameters. Prints; what is computed was decided before.
  `helpers.py`: functions that kernels call where one expression will not do.
- `reference.py`: the torch reference, from the typed group only: the second reading of a spec. `known.py`
  says which values Python knows, `guards.py` what is computed once and where it is read.
- `host.py`: the numbers of a launch: how many programs, which block sizes.
- `layout.py`: lines, wrapped as a formatter would; the only place where a spec's words are quoted.

`reference.py` knows nothing of proofs, plans or kernels, and shares no decision with `triton.py`. An
operator's text stands in its row of kgen/lang/operators.py, not here.
"""
