"""YAML text to frozen data in which every part knows its place; expressions are still text.

In: the files of a folder of specs. Out: `Package` values, each with its `GroupSpec`s, the text of its
eager.py and its `StepSpec`; or diagnostics, all of them. In reading order:

- `located.py`: YAML to a tree in which every key and value has a line and a column; a scalar stays text,
  so that `yes` and `010` mean what the reader of their key says. `mistakes.py` explains what is not YAML.
- `schema.py`: which keys there are, as pydantic models; also the JSON Schema for editors. No meanings.
- `model.py`: a group's file as `GroupSpec`. `step.py`: step.yaml as `StepSpec`.
- `package.py`: the files of a folder together; `read_packages` is the way in.

A fault of shape is reported here and nowhere else: later phases never meet a missing key. Names are
checked for being names, not for what they mean.
"""
