"""The language: expression text to typed, frozen trees, and two tables that say what there is.

In: a `GroupSpec`. Out: `typed.Group`, all names, ranks, types and free indices right; or diagnostics. In
reading order:

- `operators.py`: a row for each operator and function: what it takes, its interval, its text on each
  backend. `dtypes.py`: what the element types mean; their rows stand in kgen/runtime/_dtypes.py, which is
  vendored.
- `syntax.py`: text to an untyped tree, by Python's own parser. `rewrite.py`: `prefix` and `collide` in
  other words.
- `infer.py`: untyped to typed, an expression at a time; `operands.py`: what operators, choices and casts
  take and give; `convert.py`: compile-time numbers and conversions.
- `check.py`: a whole group; `host.py`: what is known before a launch; `stores.py`; `uses.py`: what nothing
  uses; `schedule.py`; `eager.py`.
- `typed.py`: the trees. `code.py`, `text.py`: expression text with the fewest parentheses, and trees as
  specs. `names.py`: fresh names.
- `fuse.py`: two groups as one; `substitute.py`: typed values in other terms.

A tree is finite and shared: a use of a let is a `Ref`, its own tree stands once in `Group.lets`, in the
order of use. Whoever walks through lets looks at each one once. A part that failed is None, and what
would follow from it is not reported. Nothing is known here of bounds, races or programs.
"""
