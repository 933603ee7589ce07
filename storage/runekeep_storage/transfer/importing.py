"""Writes the rows of an import to a locked space; they all become visible at once when it is unlocked.

An import takes many transactions and applies as a whole or not at all. The space is locked before its first row is
written, for as long as the import reports that it is alive (`runekeep_storage.spaces.space_locks`). If it fails, or its
server dies, its rows are removed like those of a deleted user. Sessions go first, because the cleanup finds the rest by
them.

Revisions, point ids and task ids are never reused in a space, whatever was deleted or failed to be imported before. So
an import reserves its revisions at the beginning, after the existing ones, and in a space that existed before, its
tasks get new ids.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runekeep_storage.blobs import sweeps
from runekeep_storage.database import Space, Topic, Tx
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.errors import ImportLost, SpaceBusy, SpaceNotEmpty
from runekeep_storage.jobs import jobs, tasks
from runekeep_storage.memories import origins
from runekeep_storage.spaces import pending_deletions, space_locks, spaces, watermarks
from runekeep_storage.tables import SLICES, TABLES, Export
from runekeep_storage.transfer import statements
from runekeep_storage.transfer.exports.layout import MAX_REVISIONS

_GROUP: Final = 20
"""Number of rows that one statement writes."""
_LIVED_IN: Final = [one.name for one in TABLES if isinstance(one.exported, Export) and one.name not in SLICES]
"""Tables that are empty if a user has nothing."""

Row = Mapping[str, Any]


class NotCleared(SpaceBusy):
    """Rows of deleted data are in the way; see `runekeep_storage.spaces.pending_deletions.clear`."""


class RowsCollide(Exception):
    """Two rows of an import conflict with each other."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The start of an import. `offset`: what to add to revisions; `fresh`: the user never had anything here."""

    offset: int
    fresh: bool


async def begin(tx: Tx, space: Space, import_id: str, lease: int, revision: int) -> Begun:
    """Locks the space of a user who has nothing, and reserves as many revisions as the export has. `lease`:
    microseconds after which the import counts as dead unless it is renewed. Raises SpaceNotEmpty, NotCleared."""
    for table in _LIVED_IN:
        found = await tx.fetchrow(statements.has_rows(table), space.account, space.user)
        if found is not None:
            raise SpaceNotEmpty(space.user)
    if await pending_deletions.of_space(tx, space, ""):
        raise NotCleared("what was deleted is still being taken away")
    row = await tx.fetchrow(statements.REVISION, space.account, space.user)
    offset = row["revision"] if row else 0
    if offset > MAX_REVISIONS:
        raise SpaceNotEmpty(space.user)
    await spaces.ensure(tx, space)
    await tx.execute(statements.RESERVE_REVISIONS, space.account, space.user, offset + revision)
    await sweeps.expect(tx, space)
    await space_locks.lock_for_import(tx, space, import_id, tx.now() + lease)
    return Begun(offset, fresh=row is None)


async def go_on(tx: Tx, space: Space, import_id: str, lease: int) -> None:
    """Renews the lease of the import. Raises ImportLost if it already counts as dead."""
    if not await space_locks.renew(tx, space, import_id, tx.now() + lease):
        raise ImportLost("the import was taken to be dead, for nothing was heard of it")


async def write(tx: Tx, space: Space, import_id: str, lease: int, table: str, rows: Sequence[Row]) -> None:
    """Writes rows that all have the same columns. Raises ImportLost, RowsCollide."""
    await go_on(tx, space, import_id, lease)
    await _insert(tx, space, table, rows)


async def write_memories(
    tx: Tx, space: Space, import_id: str, lease: int, rows: Sequence[Row], named: Sequence[origins.Named]
) -> None:
    """Stores versions of memories and their source messages. All messages must be written before. Raises like
    `write`."""
    await write(tx, space, import_id, lease, "memories", rows)
    await origins.write_named(tx, space, named)


async def write_artifacts(
    tx: Tx, space: Space, import_id: str, lease: int, rows: Sequence[Row], tags: Sequence[Row]
) -> None:
    """Writes turn memory with its tags. Raises like `write`."""
    await write(tx, space, import_id, lease, "turn_artifacts", rows)
    await _insert(tx, space, "turn_tags", tags)


async def _insert(tx: Tx, space: Space, table: str, rows: Sequence[Row]) -> None:
    start = 0
    while start < len(rows):
        some = rows[start : start + (_GROUP if len(rows) - start >= _GROUP else 1)]
        columns = list(some[0])
        made = await tx.execute(
            statements.add_rows(table, columns, len(some)),
            space.account,
            space.user,
            *(row[name] for row in some for name in columns),
        )
        if made != len(some):
            raise RowsCollide(table)
        start += len(some)


async def taken(tx: Tx, ids: Collection[str]) -> set[str]:
    """Returns those of the ids that jobs of any account already have: a worker identifies a job by its id alone."""
    found: set[str] = set()
    for some in filled(ids):
        rows = await tx.fetch(statements.KNOWN_JOBS, *some)
        found |= {row["job_id"] for row in rows}
    return found


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job that was not done when the space was exported; its state is pending, failed or cancelled."""

    job_id: str
    kind: str
    lane: str
    session_id: str
    archive_index: int
    plan: str
    priority: int
    state: str


async def finish(tx: Tx, space: Space, import_id: str, work: Sequence[OpenJob]) -> int:
    """Unlocks the space with everything written, queues its work, and marks it for indexing. Returns the revision of
    the space. Raises ImportLost, SpaceBusy."""
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
    row = await tx.fetchrow(statements.END_IMPORT, space.account, space.user, watermarks.IN_NONE, tx.now())
    assert row is not None
    await space_locks.unlock(tx, space)
    tx.notify(Topic.INDEX)
    return int(row["revision"])


async def _ended(tx: Tx, space: Space, one: OpenJob) -> None:
    """Adds a job that has failed or was cancelled, so that it can be retried."""
    await tx.execute(
        statements.ADD_ENDED_JOB,
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
