"""Selects the results of a search from its ranked candidates, within the limit and the quotas."""

from collections.abc import Callable, Mapping
from typing import Final

from runekeep_schemas.recall_budget import PASSAGES
from runekeep_storage.index.base import Hit, PointKind
from runekeep_storage.records import Memory, Passage

MAX_KNOWN: Final = 100
"""Maximum number of results that the caller already knows."""

Known = Callable[[Hit], bool]
_KNOWN, _OTHERS = "known ", "others "


class ResultSelector:
    """Counts the places of a search. Most results take one of the `limit` places. What the caller already knows, and
    what has a quota (a memory type, or PASSAGES), has places of its own, so that it displaces no others."""

    def __init__(self, limit: int, known: Known | None, quotas: Mapping[str, int]) -> None:
        self._known = known
        self._left = {**quotas, _OTHERS: limit, _KNOWN: MAX_KNOWN}

    @property
    def full(self) -> bool:
        """Whether all `limit` places are taken."""
        return not self._left[_OTHERS]

    def wants(self, hit: Hit) -> bool:
        """Whether there may be a place for the hit; asked before its row is read."""
        return bool(self._left[self._place(hit, PASSAGES if hit.kind is PointKind.PASSAGE else "")])

    def takes(self, hit: Hit, item: Memory | Passage) -> bool:
        """Takes a place for the item. Returns whether there was one."""
        place = self._place(hit, item.memory_type if isinstance(item, Memory) else PASSAGES)
        if self._left[place]:
            self._left[place] -= 1
            return True
        return False

    def _place(self, hit: Hit, type: str) -> str:
        if self._known is not None and self._known(hit):
            return _KNOWN
        return type if type in self._left else _OTHERS
