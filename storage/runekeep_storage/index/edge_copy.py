"""Copies the live points of a shard to a new one, so that deleted data leaves the disk.

Edge keeps deleted points in segments and in its log until its optimizer removes them, and does not report when. So the
live points are copied in slices while the old shard keeps serving; every write goes to the old shard first.
"""

from pathlib import Path
from typing import Any
from uuid import UUID

import qdrant_edge as edge

SLICE = 100
"""Number of points copied at once; searches wait during that time."""
FLUSHED = 200
"""Number of slices after which the copy is flushed, so that the last flush has little to do."""


class ShardCopy:
    """Copies `source` to `target`, an empty shard at `path` for the same vectors."""

    def __init__(self, source: Any, target: Any, path: Path) -> None:
        self._source = source
        self.target = target
        self.path = path
        self._next: UUID | None = None
        self._slices = 0

    def step(self) -> bool:
        """Copies the next points. Returns whether there are more. A point that was written meanwhile is copied again in
        its current form."""
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
