"""Names for what kgen makes itself: those that a spec gives, and others that never collide with them."""

from __future__ import annotations


def fresh(hint: str, taken: set[str], mark: str = "_") -> str:
    """`hint`, or `hint_2`, `hint_3`, ... if it is taken; it is taken from now on."""
    name, number = hint, 1
    while name in taken:
        number += 1
        name = f"{hint}{mark}{number}"
    taken.add(name)
    return name
