"""Finds points that became stale: their row changed between reading it and writing the point.

No row can be locked while its point travels to the index, and several servers write there. So whoever wrote points
checks their rows again and queues corrections in the outbox: a point whose row is gone is removed, one whose row got
or lost a vector is sent again. Of two servers that check, the later one sees what the earlier one did. The check also
finds that the embedder has been changed since the point was made.
"""

from collections.abc import Sequence

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.index.base import IndexPoint, PointKind
from runekeep_storage.indexing import embedder_change, outbox, rows, statements
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.outbox import Entry
from runekeep_storage.indexing.points import memory_point, passage_point


async def find_stale(
    tx: Tx, space: Space, points: Sequence[IndexPoint], models: Models, *, superseded: bool
) -> list[Entry]:
    """Returns outbox entries, each with its revision, that correct these points.

    With `superseded` also for versions that are no longer the newest: needed if the removal queued by their successor
    may have come before the point. `models`: what the points were made with.
    """
    found = []
    kept = await embedder_change.models_now(tx, models) if points else models
    there = await _rows(tx, space, points)
    for point in points:
        row = there.get(point.id)
        if row is None:
            found.append(Entry("delete", point_id=point.id))
        elif row["rev_to"]:
            if superseded:
                due_at = tx.now() + outbox.GRACE
                found.append(Entry("delete", point_id=point.id, due_at=due_at, revision=row["rev_to"]))
        else:
            there_are = {row["dense_model"], row["next_model"]} - {""}
            has = set(point.vectors)
            # A vector was added to the row, or removed from it, because it also covered an erased message.
            if (there_are & set(kept)) - has or (has - there_are):
                found.append(again(point))
    return found


def again(point: IndexPoint) -> Entry:
    """Returns an entry that sends the point's row again."""
    if point.kind is PointKind.MEMORY:
        return Entry("upsert", uri=point.uri, version=point.version)
    return Entry("passage", uri=point.session or "", version=point.sequence or 0, point_id=point.id)


async def delete(tx: Tx, space: Space, entries: Sequence[Entry]) -> None:
    """Adds entries to the outbox, each at its own revision."""
    for revision in sorted({entry.revision for entry in entries}):
        await outbox.add(tx, space, revision, [entry for entry in entries if entry.revision == revision])


async def _rows(tx: Tx, space: Space, points: Sequence[IndexPoint]) -> dict[str, Row]:
    """Returns the current rows of the points, by point id."""
    found: dict[str, Row] = {}
    keys = [(point.uri, point.version) for point in points if point.kind is PointKind.MEMORY]
    of_memories = await rows.by_keys(tx, space, "memories", statements.STALE_MEMORY_COLUMNS, keys)
    for row in of_memories.values():
        found[memory_point(space, row["uri"], row["rev_from"])] = row
    keys = [(point.session or "", point.sequence or 0) for point in points if point.kind is not PointKind.MEMORY]
    of_passages = await rows.by_keys(tx, space, "passages", statements.STALE_PASSAGE_COLUMNS, keys)
    for row in of_passages.values():
        found[passage_point(space, row["task_id"], row["sequence"])] = row
    return found
