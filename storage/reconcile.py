"""The points of a space compared with its rows: what nobody answers for is taken out, what is missing is written.

Between a row and its point the relay is the way, and it is trusted; this finds what it cannot know of, such as an index
brought back from an old copy, a disk that lied, or a point of a server that died.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from storage import outbox, rows, watermarks
from storage.database import Database, Space, Tx
from storage.index.base import IndexPoint, VectorIndex
from storage.points import passage_point
from storage.recheck import corrections, put_out
from storage.rows import Key, Named, Table

PAGE = 1000
WRITES = 256
"""Points that are written or taken out at once."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Points that the index held, those among them that were taken out, and those that were written."""

    points: int
    orphans: int
    missing: int


@dataclass(frozen=True, slots=True)
class _Before:
    """What has to be in the index at the outset: memories up to a revision, passages of these tasks. And what was on
    its way out."""

    revision: int
    tasks: frozenset[str]
    removals: set[str]


async def compare(database: Database, index: VectorIndex, index_id: str, space: Space, model: str) -> Compared | None:
    """Compares a space and mends it; None when it is not in this index.

    Live commits and relays may go on. The index is listed first, and each point then held against rows that are read
    later. A point is always younger than its row or, a passage's, than its archive, and no point comes back that lost
    its row: so what has neither by then is an orphan for good. What is missing was in the store before the listing, and
    is looked at again when it is written.
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
            await _write(database, index, space, table, lost, model)
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
    found = await tx.fetch(
        "SELECT task_id FROM archives WHERE account = $1 AND user_id = $2 AND passages_indexed = 1",
        space.account,
        space.user,
    )
    tasks = frozenset(row["task_id"] for row in found)
    return _Before(standing.indexed, tasks, await outbox.removals(tx, space))


async def _listed(index: VectorIndex, space: Space) -> set[str]:
    listed: set[str] = set()
    after: str | None = None
    while page := await index.list_ids(space.account, space.user, after=after, limit=PAGE):
        listed.update(page)
        after = page[-1]
    return listed


async def _on_the_way(database: Database, space: Space) -> set[str]:
    """Points of passages whose rows come after them: of archives that the relay is still at."""
    spans = await database.read(_open_archives, space)

    def points() -> set[str]:
        return {
            passage_point(space, task_id, sequence)
            for task_id, first, last in spans
            for sequence in range(first, last + 1)
        }

    # An archive may hold any number.
    return await asyncio.to_thread(points)


async def _open_archives(tx: Tx, space: Space) -> list[tuple[str, int, int]]:
    found = await tx.fetch(
        "SELECT task_id, first_sequence, last_sequence FROM archives"
        " WHERE account = $1 AND user_id = $2 AND passages_indexed = 0",
        space.account,
        space.user,
    )
    return [(row["task_id"], row["first_sequence"], row["last_sequence"]) for row in found]


def _expected(named: Named, before: _Before) -> bool:
    if isinstance(named.since, int):
        return named.since <= before.revision
    return named.since in before.tasks


async def _write(
    database: Database, index: VectorIndex, space: Space, table: Table, keys: Sequence[Key], model: str
) -> None:
    read = rows.memory_points if table == "memories" else rows.passage_points
    for start in range(0, len(keys), WRITES):
        points: list[IndexPoint] = await database.read(read, space, keys[start : start + WRITES], model)
        await index.upsert(points)
        wrong = await database.read(corrections, space, points, model, superseded=True)
        if wrong:
            await database.write(put_out, space, wrong)
