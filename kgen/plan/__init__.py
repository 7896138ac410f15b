"""How a group runs: which programs there are and what each computes; and how a step runs.

In: a `Proved`, or a `StepSpec` with its typed groups. Out: `Plan`, `StepPlan`; or diagnostics for a
schedule, or an overlap, that can't be had. In reading order:

- `plan.py`: stores with the same program axes are a role; every index of a role is a row, a tile, lanes
  or a loop. `_fitted` gives each block the widths that a call's sizes may choose from, the same for all
  roles, since a kernel has one `TILE_c`.
- `streams.py`: which stages of a step conflict, and from that the fork, the joins and the events.
- `stepnames.py`, `step.py`: the names, sizes and stages of a step.
- `words.py`: a plan in a person's words: how it runs, and what it relies on.

A plan chooses and proves nothing: over which indices programs may be laid is `Proved.laid`. A schedule
never changes a result, so that any plan of a group is right; rules pick one, nothing is tuned.
"""
