"""Compares the points of a space with its rows: removes points without a row, and writes missing ones.

The relay keeps both in step and is trusted; this finds what it cannot know of, such as an index restored from an old
copy, a faulty disk, or a point of a server that died.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.index.base import IndexPoint, VectorIndex
from runekeep_storage.indexing import outbox, rows, statements
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.points import passage_point
from runekeep_storage.indexing.rows import Key, Named, Table
from runekeep_storage.indexing.stale_points import delete, find_stale
from runekeep_storage.spaces import watermarks

PAGE = 1000
WRITES = 256
"""Number of points that are written or removed at once."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The number of points that the index held, of those that were removed, and of those that were written."""

    points: int
    orphans: int
    missing: int


@dataclass(frozen=True, slots=True)
class _Before:
    """What the index must hold at the start: memories up to `revision`, passages of `tasks`. `removals`: points that
    were queued for removal."""

    revision: int
    tasks: frozenset[str]
    removals: set[str]


async def compare(
    database: SpaceDatabase, index: VectorIndex, index_id: str, space: Space, models: Models
) -> Compared | None:
    """Compares a space and repairs its points. Returns None if the space is not in this index.

    Commits and relays may go on. The index is listed first, and each point is then compared with rows read later. A
    point is always younger than its row or, for a passage, than its archive, and a point that lost its row never
    returns; so a point that has neither by then is an orphan for good. A missing point was in the store before the
    listing, and is checked again when it is written.
    """
    before = await database.read(_before, space, index_id)
    if before is None:
        return None
    listed = await _listed(index, space)
    on_the_way = await _on_the_way(database, space)
    unknown = set(listed)
    missing = 0
    for table in rows.TABLES:
        after = rows.FIRST
        while page := await database.read(rows.names, space, table, after, PAGE):
            unknown.difference_update(named.point_id for named in page)
            lost = [named.key for named in page if named.point_id not in listed and _expected(named, before)]
            missing += len(lost)
            await _write(database, index, space, table, lost, models)
            after = page[-1].key
    orphans = sorted(unknown - on_the_way - before.removals - await database.read(outbox.removals, space))
    for start in range(0, len(orphans), WRITES):
        await index.delete(orphans[start : start + WRITES])
    if orphans or missing:
        await index.flush()
    return Compared(len(listed), len(orphans), missing)


async def _before(tx: Tx, space: Space, index_id: str) -> _Before | None:
    standing = await watermarks.standing(tx, space, index_id)
    if standing.indexed < 0:
        return None
    found = await tx.fetch(statements.INDEXED_ARCHIVES, space.account, space.user)
    tasks = frozenset(row["task_id"] for row in found)
    return _Before(standing.indexed, tasks, await outbox.removals(tx, space))


async def _listed(index: VectorIndex, space: Space) -> set[str]:
    listed: set[str] = set()
    after: str | None = None
    while page := await index.list_ids(space.account, space.user, after=after, limit=PAGE):
        listed.update(page)
        after = page[-1]
    return listed


async def _on_the_way(database: SpaceDatabase, space: Space) -> set[str]:
    """Returns points of passages that are written before their rows: those of archives that the relay is working on."""
    spans = await database.read(_open_archives, space)

    def points() -> set[str]:
        return {
            passage_point(space, task_id, sequence)
            for task_id, first, last in spans
            for sequence in range(first, last + 1)
        }

    # In a thread, because an archive may hold any number of messages.
    return await asyncio.to_thread(points)


async def _open_archives(tx: Tx, space: Space) -> list[tuple[str, int, int]]:
    found = await tx.fetch(statements.OPEN_ARCHIVES, space.account, space.user)
    return [(row["task_id"], row["first_sequence"], row["last_sequence"]) for row in found]


def _expected(named: Named, before: _Before) -> bool:
    if isinstance(named.since, int):
        return named.since <= before.revision
    return named.since in before.tasks


async def _write(
    database: SpaceDatabase, index: VectorIndex, space: Space, table: Table, keys: Sequence[Key], models: Models
) -> None:
    read = rows.memory_points if table == "memories" else rows.passage_points
    for start in range(0, len(keys), WRITES):
        points: list[IndexPoint] = await database.read(read, space, keys[start : start + WRITES], models)
        await index.upsert(points)
        wrong = await database.read(find_stale, space, points, models, superseded=True)
        if wrong:
            await database.write(delete, space, wrong)
