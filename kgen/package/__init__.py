"""The files of a generated package. Jinja only lays them out; every decision was made before.

In: the `Made` of each group, a `StepPlan`. Out: path -> text, the same on every machine. In reading
order:

- `view.py`: `emit`, all that a package takes of a group's plan (this is what the cache keeps), and
  `View`, whose properties the templates print.
- `page.py`: what a group's page says of its declarations.
- `step.py`: a step as Python text and as a picture.
- `files.py`: the templates filled, kgen/runtime copied in, the manifest. `render` is the way in.

A file never names a date, a machine, a path or a line of a spec. What comes from a set is sorted.
Whatever is Python is parsed before anything is written (kgen/build.py), which also is the one writer of
files.
"""
