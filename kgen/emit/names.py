"""Names for generated variables: the spec's own, and fresh ones that never collide with them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Names:
    """The names in use in one generated function."""

    taken: set[str]
    kept: dict[tuple[str, str], str] = field(default_factory=dict)

    def take(self, name: str) -> None:
        """Reserve a name that the spec gives."""
        self.taken.add(name)

    def fresh(self, hint: str) -> str:
        """`hint`, or `hint_2`, `hint_3`, ... if it is taken."""
        name, number = hint, 1
        while name in self.taken:
            number += 1
            name = f"{hint}_{number}"
        self.taken.add(name)
        return name

    def fixed(self, key: tuple[str, str], hint: str) -> str:
        """The same fresh name for the same key."""
        if key not in self.kept:
            self.kept[key] = self.fresh(hint)
        return self.kept[key]
