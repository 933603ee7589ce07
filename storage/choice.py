"""Which of what a search found its results are, while they are taken from the best one on."""

from collections.abc import Callable, Mapping
from typing import Final

from schemas.recalling import PASSAGES
from storage.index.base import Hit, PointKind
from storage.records import Memory, Passage

MOST_KNOWN: Final = 100
"""Results that the caller knows already, at most."""

Known = Callable[[Hit], bool]
_KNOWN, _OTHERS = "known ", "others "


class Choice:
    """Places of a search. Most results take one of the `limit`; what the caller knows, and what is of a type with a
    quota, or a passage where PASSAGES have one, takes one of its own, so that it crowds nobody out."""

    def __init__(self, limit: int, known: Known | None, quotas: Mapping[str, int]) -> None:
        self._known = known
        self._left = {**quotas, _OTHERS: limit, _KNOWN: MOST_KNOWN}

    @property
    def full(self) -> bool:
        """Whether nothing is looked for any more."""
        return not self._left[_OTHERS]

    def wants(self, hit: Hit) -> bool:
        """Whether there may be a place for it; asked before its row is read."""
        return bool(self._left[self._place(hit, PASSAGES if hit.kind is PointKind.PASSAGE else "")])

    def takes(self, hit: Hit, item: Memory | Passage) -> bool:
        """Whether there was a place for it."""
        place = self._place(hit, item.memory_type if isinstance(item, Memory) else PASSAGES)
        if self._left[place]:
            self._left[place] -= 1
            return True
        return False

    def _place(self, hit: Hit, type: str) -> str:
        if self._known is not None and self._known(hit):
            return _KNOWN
        return type if type in self._left else _OTHERS
