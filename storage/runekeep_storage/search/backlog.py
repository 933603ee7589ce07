"""Counts what is committed but not yet fully searchable: rows missing from the index, and rows without a vector.

The index holds a row without a vector by its words only, so a search by meaning does not find it. No answer may be
called complete while there is such a row.
"""

import json
from dataclasses import dataclass

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.jobs import jobs
from runekeep_storage.records import Task
from runekeep_storage.search import statements
from runekeep_storage.spaces import watermarks

WITHOUT_EMBEDDER = ""
"""The known types of a server without an embedder: no row waits for a vector."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of one space. `messages`: archived messages without a passage in the index; `lag`: how long the
    oldest of them has waited, in microseconds; `passages` and `memories`: those whose vectors are not in the index
    yet."""

    messages: int
    lag: int
    passages: int = 0
    memories: int = 0

    @property
    def lacks_vectors(self) -> bool:
        return bool(self.passages or self.memories)


@dataclass(frozen=True, slots=True)
class TaskBacklog:
    """The backlog of one commit: its messages and memories that are not fully searchable yet."""

    passages: int
    memories: int


def of_row(row: Row, now: int) -> Backlog:
    lag = 0
    if row["oldest"] is not None:
        # Imported messages were archived long ago, but have waited only since the import.
        lag = max(now - max(row["oldest"], row["imported_at"]), 0)
    # PostgreSQL's SUM is a decimal.
    return Backlog(int(row["messages"]), lag, row["undense_passages"], row["undense_memories"])


async def of_space(tx: Tx, space: Space, known_types: str = WITHOUT_EMBEDDER) -> Backlog:
    """Returns the backlog of the space. `known_types`: see `missing_vectors.known_types`."""
    row = await tx.fetchrow(statements.BACKLOG, space.account, space.user, known_types)
    assert row is not None, "a sum is there whatever it is of"
    return of_row(row, tx.now())


async def of_task(tx: Tx, space: Space, task: Task, known_types: str = WITHOUT_EMBEDDER) -> TaskBacklog:
    """Returns the backlog of a commit; an empty one for a task of another kind. `known_types`: see
    `missing_vectors.known_types`."""
    if task.kind != jobs.COMMIT:
        return TaskBacklog(0, 0)
    standing = await watermarks.standing(tx, space, await watermarks.index_of_store(tx))
    return TaskBacklog(
        await _passages_of(tx, space, task, known_types, is_in_index=standing.indexed >= 0),
        await _memories_of(tx, space, task, known_types, standing.indexed),
    )


async def _passages_of(tx: Tx, space: Space, task: Task, known_types: str, *, is_in_index: bool) -> int:
    archive = await tx.fetchrow(
        statements.ARCHIVE_LEFT,
        space.account,
        space.user,
        task.session_id,
        task.archive_index,
        task.task_id,
    )
    if archive is None:
        return 0
    of_archive = (space.account, space.user, task.session_id, archive["first_sequence"], archive["last_sequence"])
    if is_in_index:
        rows = await tx.fetchrow(statements.COUNT_WAITING_PASSAGES, *of_archive, known_types)
    else:
        rows = await tx.fetchrow(statements.COUNT_PASSAGES, *of_archive)
    assert rows is not None, "a count is there whatever it is of"
    return int(archive["unmade"] + rows["waiting"])


async def _memories_of(tx: Tx, space: Space, task: Task, known_types: str, indexed: int) -> int:
    """Counts versions that the commit wrote and that are still current."""
    revision = json.loads(task.result).get("revision", 0) if task.result else 0
    if not revision:
        return 0
    if revision > indexed:
        row = await tx.fetchrow(statements.COUNT_VERSIONS, space.account, space.user, revision)
    else:
        row = await tx.fetchrow(statements.COUNT_WAITING_VERSIONS, space.account, space.user, revision, known_types)
    return int(row["waiting"]) if row else 0
