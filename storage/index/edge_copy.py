"""A shard written anew from its live points, for what is deleted to be gone from the disk.

Edge keeps deleted points in segments and in its log of writes until it optimises them away, and gives no word when that
is. So what is left is copied, in slices, beside the shard that serves meanwhile and gets all writes first.
"""

from pathlib import Path
from typing import Any
from uuid import UUID

import qdrant_edge as edge

SLICE = 100
"""Points that are copied at once; searches wait behind them."""
FLUSHED = 200
"""Slices that are brought to disk at once, so that the last flush has little to do."""


class ShardCopy:
    """`target` is an empty shard at `path`, made for the same vectors as `source`."""

    def __init__(self, source: Any, target: Any, path: Path) -> None:
        self._source = source
        self.target = target
        self.path = path
        self._next: UUID | None = None
        self._slices = 0

    def step(self) -> bool:
        """Copies the next points; whether there are more. A point that was written meanwhile is copied once more, as
        it is by now."""
        records, following = self._source.scroll(
            edge.ScrollRequest(offset=self._next, limit=SLICE, with_payload=True, with_vector=True)
        )
        points = [edge.Point(record.id, record.vector, record.payload) for record in records]
        if points:
            self.target.update(edge.UpdateOperation.upsert_points(points))
        self._slices += 1
        if self._slices % FLUSHED == 0:
            self.target.flush()
        self._next = following
        return following is not None
