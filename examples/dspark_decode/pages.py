"""Who owns which page of the draft KV pool, and which prefixes are kept.

In: token sequences and counts. Out: page numbers. Host side only; nothing here touches a tensor.
"""

from __future__ import annotations

from collections import Counter


class Pages:
    """Pages by number, shared where prompts begin alike.

    A full page of a prompt stays in the cache under the tokens up to its end, until room is needed.
    """

    def __init__(self, first: int, count: int, page_size: int) -> None:
        self.page_size = page_size
        self._free = list(range(first + count - 1, first - 1, -1))
        self._owners: Counter[int] = Counter()
        self._cache: dict[tuple[int, ...], int] = {}

    def take(self, count: int) -> list[int] | None:
        """So many pages, or none at all if there aren't as many."""
        # The latest entry first: those of one prompt come shortest first, and a longer one is of no
        # use without the shorter.
        for tokens in reversed(list(self._cache)):
            if len(self._free) >= count:
                break
            if self._owners[self._cache[tokens]] == 1:
                self.release([self._cache.pop(tokens)])
        if len(self._free) < count:
            return None
        pages = [self._free.pop() for _ in range(count)]
        self._owners.update(pages)
        return pages

    def release(self, pages: list[int]) -> None:
        """Give up one ownership of each."""
        for page in pages:
            self._owners[page] -= 1
            if not self._owners[page]:
                self._free.append(page)

    def share(self, tokens: list[int]) -> list[int]:
        """Own, beside others, the cached pages that hold how `tokens` begins, but not all of it."""
        pages: list[int] = []
        for end in range(self.page_size, len(tokens), self.page_size):
            page = self._cache.get(tuple(tokens[:end]))
            if page is None:
                break
            pages.append(page)
        self._owners.update(pages)
        return pages

    def keep(self, tokens: list[int], pages: list[int]) -> None:
        """Cache the full pages of `tokens`."""
        for number, page in enumerate(pages[: len(tokens) // self.page_size], start=1):
            key = tuple(tokens[: number * self.page_size])
            if key not in self._cache:
                self._cache[key] = page
                self._owners[page] += 1
