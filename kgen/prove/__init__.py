"""What is shown of a group before anything is planned: each fact beside the part that it is about.

In: a `typed.Group`. Out: `Proved`; or diagnostics with examples. `prove.py` is the way in. In reading
order:

- `atoms.py`: whole numbers as polynomials over atoms. `numbers.py`: what follows from facts. Neither knows
  specs.
- `intervals.py`: the ends of each typed value of a group. `reading.py`: the values as such polynomials and
  conditions, each read once.
- `contexts.py`: the guards that each part is evaluated under. `obligations.py`: what is to be shown.
- `ranges.py`, `places.py`: declared ranges and divisors; collisions, coverage, races.
- `prove.py`: shows each obligation, and which of its guards that takes. `solver.py`: z3, where that
  fails.
- `counterexamples/`: a small legal call that goes wrong. `refusals.py`: what the user reads.

Sound, not complete: what can't be shown is refused. Integers of any length, no floats. Each question has
a bound that is a count, not a time, so that every machine gives the same verdict. Facts are kept per
node, so that a let costs the same however often it is used. The judge of kernels (kgen/kernel/judge.py)
asks `atoms.py`, `numbers.py`, `reading.py` and `places.py` too; nothing here knows of plans or kernels.
"""
