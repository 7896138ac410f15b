"""Names for generated variables: the spec's own, and fresh ones that never collide with them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Names:
    """The names in use in one generated function."""

    taken: set[str]

    def fresh(self, hint: str) -> str:
        """`hint`, or `hint_2`, `hint_3`, ... if it is taken."""
        name, number = hint, 1
        while name in self.taken:
            number += 1
            name = f"{hint}_{number}"
        self.taken.add(name)
        return name
