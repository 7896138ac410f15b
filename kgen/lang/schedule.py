"""What a spec says of how its group runs: the indices that have programs, their tiles, how many warps.

In: the `schedule` of a spec, and the indices of its group. Out: a `Schedule`; or diagnostics.
"""

from __future__ import annotations

from collections.abc import Collection

from kgen.diagnostics import Report, nearest
from kgen.lang.typed import Schedule
from kgen.spec.located import Text
from kgen.spec.model import GroupSpec


def check_schedule(spec: GroupSpec, indices: Collection[str], report: Report) -> Schedule:
    """The schedule of a group, what is wrong with it left out."""

    def unknown(name: Text, more: str = "") -> bool:
        if name.value not in indices:
            message = f"there is no index `{name.value}`{more}"
            report.add("bad-schedule", name.span, message, nearest(name.value, indices))
        return name.value not in indices

    tile: dict[str, int] = {}
    for name, text in spec.tile:
        size = _power_of_two(text, 65536)
        if unknown(name, " to tile"):
            continue
        if size is None:
            report.add("bad-schedule", text.span, "a tile is a power of two, from 1 to 65536")
        else:
            tile[name.value] = size
    warps = _power_of_two(spec.warps, 16) if spec.warps is not None else None
    if spec.warps is not None and warps is None:
        report.add("bad-schedule", spec.warps.span, "warps are 1, 2, 4, 8 or 16")
    names = spec.program or ()
    for number, name in enumerate(names):
        if name.value in {each.value for each in names[:number]}:
            report.add("bad-schedule", name.span, f"`{name.value}` is here twice")
        unknown(name)
    program = tuple(name.value for name in names) if spec.program is not None else None
    spans = {f"program.{name.value}": name.span for name in names}
    spans |= {f"tile.{name.value}": name.span for name, _ in spec.tile}
    return Schedule(program, tile, warps, spans)


def _power_of_two(text: Text, most: int) -> int | None:
    value = int(text.value) if text.value.isdecimal() else 0
    return value if 0 < value <= most and value & (value - 1) == 0 else None
