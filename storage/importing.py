"""The rows of an import, written behind a space that is shut, and all of them there at once when it is opened.

An import is many transactions, and it is whole or it is nothing. So the space is shut before its first row is written,
for as long as the import says that it is alive (`storage.shut_spaces`); when it fails, or its server dies, what it had
made is taken away like the rows of a deleted user. Sessions go first, since it is by them that the rest is found then.

Revisions, and names of points and tasks, never come twice in a space, whatever was deleted or failed to be imported
before. So the revisions that an import will have are taken at its beginning, behind those that there were, and the
tasks of a space that there was before get new names.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from schemas.exports.layout import MOST_REVISIONS
from storage import blob_sweeps, jobs, leftovers, memory_origins, shut_spaces, spaces, tasks, watermarks
from storage.database import Space, Topic, Tx
from storage.errors import ImportLost, SpaceBusy, SpaceNotEmpty
from storage.statement_lists import filled, places

_GROUP: Final = 20
"""Rows that one statement writes."""
_LIVED_IN: Final = ("sessions", "memories", "tasks", "commits", "active_counts")
"""Tables that are empty when a user has nothing."""

Row = Mapping[str, Any]


class NotCleared(SpaceBusy):
    """Rows of what was deleted are in the way; see `storage.leftovers.clear`."""


class RowsCollide(Exception):
    """Two rows of an import cannot stand beside each other."""


@dataclass(frozen=True, slots=True)
class Begun:
    """`offset`: what is to be added to revisions. `fresh`: there has never been anything of the user here."""

    offset: int
    fresh: bool


async def begin(tx: Tx, space: Space, import_id: str, lease: int, revision: int) -> Begun:
    """Shuts the space of a user who has nothing, and takes as many revisions as the export has. `lease`: microseconds
    until the import is taken to be dead unless it is heard of. Raises SpaceNotEmpty, NotCleared.
    """
    for table in _LIVED_IN:
        found = await tx.fetchrow(
            f"SELECT 1 FROM {table} WHERE account = $1 AND user_id = $2 LIMIT 1", space.account, space.user
        )
        if found is not None:
            raise SpaceNotEmpty(space.user)
    if await leftovers.of_space(tx, space, ""):
        raise NotCleared("what was deleted is still being taken away")
    row = await tx.fetchrow(
        "SELECT revision FROM spaces WHERE account = $1 AND user_id = $2", space.account, space.user
    )
    offset = row["revision"] if row else 0
    if offset > MOST_REVISIONS:
        raise SpaceNotEmpty(space.user)
    await spaces.ensure(tx, space)
    await tx.execute(
        "UPDATE spaces SET revision = $3 WHERE account = $1 AND user_id = $2",
        space.account,
        space.user,
        offset + revision,
    )
    await blob_sweeps.expect(tx, space)
    await shut_spaces.shut_for_import(tx, space, import_id, tx.now() + lease)
    return Begun(offset, fresh=row is None)


async def go_on(tx: Tx, space: Space, import_id: str, lease: int) -> None:
    """Says that the import is alive. Raises ImportLost when it was taken to be dead."""
    if not await shut_spaces.renew(tx, space, import_id, tx.now() + lease):
        raise ImportLost("the import was taken to be dead, for nothing was heard of it")


async def write(tx: Tx, space: Space, import_id: str, lease: int, table: str, rows: Sequence[Row]) -> None:
    """Writes rows that all have the same columns. Raises ImportLost, RowsCollide."""
    await go_on(tx, space, import_id, lease)
    await _insert(tx, space, table, rows)


async def write_memories(
    tx: Tx, space: Space, import_id: str, lease: int, rows: Sequence[Row], named: Sequence[memory_origins.Named]
) -> None:
    """Stores versions of memories and their source messages. All messages must be written before. Raises as `write`."""
    await write(tx, space, import_id, lease, "memories", rows)
    await memory_origins.write_named(tx, space, named)


async def write_artifacts(
    tx: Tx, space: Space, import_id: str, lease: int, rows: Sequence[Row], tags: Sequence[Row]
) -> None:
    """Turn memory with its tags. Raises as `write`."""
    await write(tx, space, import_id, lease, "turn_artifacts", rows)
    await _insert(tx, space, "turn_tags", tags)


async def _insert(tx: Tx, space: Space, table: str, rows: Sequence[Row]) -> None:
    start = 0
    while start < len(rows):
        some = rows[start : start + (_GROUP if len(rows) - start >= _GROUP else 1)]
        columns = list(some[0])
        values = ", ".join(f"($1, $2, {places(3 + len(columns) * at, len(columns))})" for at in range(len(some)))
        made = await tx.execute(
            f"INSERT INTO {table} (account, user_id, {', '.join(columns)}) VALUES {values} ON CONFLICT DO NOTHING",
            space.account,
            space.user,
            *(row[name] for row in some for name in columns),
        )
        if made != len(some):
            raise RowsCollide(table)
        start += len(some)


async def taken(tx: Tx, ids: Collection[str]) -> set[str]:
    """Those of the ids that jobs have already, of whatever account: a worker knows a job by its id alone."""
    found: set[str] = set()
    for some in filled(ids):
        rows = await tx.fetch(f"SELECT job_id FROM jobs WHERE job_id IN ({places(1)})", *some)
        found |= {row["job_id"] for row in rows}
    return found


@dataclass(frozen=True, slots=True)
class OpenJob:
    """Work that was not done when the space was exported; state pending, failed or cancelled."""

    job_id: str
    kind: str
    lane: str
    session_id: str
    archive_index: int
    plan: str
    priority: int
    state: str


async def finish(tx: Tx, space: Space, import_id: str, work: Sequence[OpenJob]) -> int:
    """Opens the space with all that was written, queues the work, and has the index written; the space's revision.

    Raises ImportLost, SpaceBusy.
    """
    await go_on(tx, space, import_id, 0)
    if await taken(tx, [one.job_id for one in work]):
        raise SpaceBusy("somebody else imported the same")
    for one in work:
        if one.state == "pending":
            await jobs.enqueue(
                tx,
                space,
                one.job_id,
                kind=one.kind,
                lane=one.lane,
                session_id=one.session_id,
                archive_index=one.archive_index,
                plan=one.plan,
                traceparent="",
                priority=one.priority,
            )
            await tasks.add_event(tx, space, one.job_id, "state", {"state": "pending"})
        else:
            await _ended(tx, space, one)
    row = await tx.fetchrow(
        "UPDATE spaces SET index_id = $3, imported_at = $4 WHERE account = $1 AND user_id = $2 RETURNING revision",
        space.account,
        space.user,
        watermarks.IN_NONE,
        tx.now(),
    )
    assert row is not None
    await shut_spaces.open_again(tx, space)
    tx.notify(Topic.INDEX)
    return int(row["revision"])


async def _ended(tx: Tx, space: Space, one: OpenJob) -> None:
    """A job that has failed or was cancelled, so that it can be queued again."""
    await tx.execute(
        "INSERT INTO jobs (account, user_id, job_id, kind, lane, session_id, archive_index, plan, priority, state,"
        " created_at, lane_sequence) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,"
        "   1 + (SELECT COALESCE(MAX(j.lane_sequence), 0) FROM jobs j"
        "     WHERE j.account = $1 AND j.user_id = $2 AND j.lane = $5))",
        space.account,
        space.user,
        one.job_id,
        one.kind,
        one.lane,
        one.session_id,
        one.archive_index,
        one.plan,
        one.priority,
        one.state,
        tx.now(),
    )
