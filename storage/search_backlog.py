"""Counts what is committed but cannot be found by search in full yet: rows missing from the index, and rows without a
vector.

The index has a row without a vector by its words only, and a search by meaning does not find it. So no answer may be
called complete while there is such a row.
"""

import json
from dataclasses import dataclass

from storage import jobs, watermarks
from storage.backfill import of_known_type
from storage.database import Row, Space, Tx
from storage.leftovers import without
from storage.passages import SLICE
from storage.records import Task

MAX_COUNTED = 10_000
"""Most rows of a kind that a search counts; if there are more, it reports this number."""
WITHOUT_EMBEDDER = ""
"""The known types of a server that makes no vectors: it waits for none."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of one space. `messages`: archived, and without a passage in the index; `lag`: how long the oldest of
    them has waited, in microseconds; `passages` and `memories`: those whose vectors are not in the index yet."""

    messages: int
    lag: int
    passages: int = 0
    memories: int = 0

    @property
    def lacks_vectors(self) -> bool:
        return bool(self.passages or self.memories)


@dataclass(frozen=True, slots=True)
class TaskBacklog:
    """What one commit archived and wrote: its messages and memories that cannot be found in full yet."""

    passages: int
    memories: int


# For an archive that is indexed in slices, the remaining messages.
_LEFT = (
    f"CASE WHEN a.last_sequence - a.first_sequence < {SLICE} THEN a.last_sequence - a.first_sequence + 1"
    " ELSE a.last_sequence - COALESCE((SELECT p.sequence FROM passages p WHERE p.account = a.account"
    " AND p.user_id = a.user_id AND p.session_id = a.session_id AND p.sequence >= a.first_sequence"
    " AND p.sequence <= a.last_sequence AND p.task_id = a.task_id ORDER BY p.sequence DESC LIMIT 1),"
    " a.first_sequence - 1) END"
)


def _counted(select: str) -> str:
    return f"(SELECT COUNT(*) FROM (SELECT 1 FROM {select} LIMIT {MAX_COUNTED}) counted)"


_UNSENT = "outbox WHERE account = $1 AND user_id = $2 AND takes = 0 AND due_at = 0 AND revision = 0"
_UNSENT_PASSAGES, _UNSENT_MEMORIES = f"{_UNSENT} AND op = 'passage'", f"{_UNSENT} AND op = 'upsert'"
"""Points that must be written once more. Points of a revision are behind the watermark, so that counts them."""
_MEMORIES_WITHOUT = (
    "memories WHERE account = $1 AND user_id = $2 AND dense IS NULL AND deleted = 0 AND rev_to = 0" + of_known_type(3)
)
_PASSAGES_WITHOUT = "passages WHERE account = $1 AND user_id = $2 AND dense IS NULL AND $3 <> ''" + without("passages")
BACKLOG = (
    "SELECT w.messages, w.oldest, w.imported_at,"
    f" {_counted(_PASSAGES_WITHOUT)} + {_counted(_UNSENT_PASSAGES)} AS undense_passages,"
    f" {_counted(_MEMORIES_WITHOUT)} + {_counted(_UNSENT_MEMORIES)} AS undense_memories"
    f" FROM (SELECT COALESCE(SUM({_LEFT}), 0) AS messages, MIN(a.created_at) AS oldest,"
    "  COALESCE((SELECT imported_at FROM spaces WHERE account = $1 AND user_id = $2), 0) AS imported_at"
    "  FROM archives a WHERE a.account = $1 AND a.user_id = $2 AND a.passages_indexed = 0) w"
)
"""Reads one row with the columns that `of_row` takes, for account, user and known types."""


def of_row(row: Row, now: int) -> Backlog:
    lag = 0
    if row["oldest"] is not None:
        # Imported messages were archived long ago, but have waited only since the import.
        lag = max(now - max(row["oldest"], row["imported_at"]), 0)
    # PostgreSQL's SUM is a decimal.
    return Backlog(int(row["messages"]), lag, row["undense_passages"], row["undense_memories"])


async def of_space(tx: Tx, space: Space, known_types: str = WITHOUT_EMBEDDER) -> Backlog:
    """Returns what of the space cannot be searched yet. `known_types`: see `backfill.known_types`."""
    row = await tx.fetchrow(BACKLOG, space.account, space.user, known_types)
    assert row is not None, "a sum is there whatever it is of"
    return of_row(row, tx.now())


async def of_task(tx: Tx, space: Space, task: Task, known_types: str = WITHOUT_EMBEDDER) -> TaskBacklog:
    """Returns what of a commit cannot be found in full yet; nothing for a task of another kind. `known_types`: see
    `backfill.known_types`."""
    if task.kind != jobs.COMMIT:
        return TaskBacklog(0, 0)
    standing = await watermarks.standing(tx, space, await watermarks.index_of_store(tx))
    return TaskBacklog(
        await _passages_of(tx, space, task, known_types, is_in_index=standing.indexed >= 0),
        await _memories_of(tx, space, task, known_types, standing.indexed),
    )


async def _passages_of(tx: Tx, space: Space, task: Task, known_types: str, *, is_in_index: bool) -> int:
    archive = await tx.fetchrow(
        f"SELECT a.first_sequence, a.last_sequence, CASE WHEN a.passages_indexed = 1 THEN 0 ELSE {_LEFT} END AS unmade"
        " FROM archives a WHERE a.account = $1 AND a.user_id = $2 AND a.session_id = $3 AND a.archive_index = $4"
        " AND a.task_id = $5",
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
        rows = await tx.fetchrow(_PASSAGES_OF_TASK, *of_archive, known_types)
    else:
        rows = await tx.fetchrow(_ROWS_OF_TASK, *of_archive)
    assert rows is not None, "a count is there whatever it is of"
    return int(archive["unmade"] + rows["waiting"])


_ROWS_OF_TASK = (
    "SELECT COUNT(*) AS waiting FROM passages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND sequence >= $4 AND sequence <= $5"
)
_PASSAGES_OF_TASK = (
    "SELECT (SELECT COUNT(*) FROM passages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND sequence >= $4 AND sequence <= $5 AND dense IS NULL AND $6 <> '')"
    f" + (SELECT COUNT(*) FROM {_UNSENT_PASSAGES} AND uri = $3 AND version >= $4 AND version <= $5) AS waiting"
)


async def _memories_of(tx: Tx, space: Space, task: Task, known_types: str, indexed: int) -> int:
    """Counts versions that the commit wrote and that are still the newest."""
    revision = json.loads(task.result).get("revision", 0) if task.result else 0
    if not revision:
        return 0
    written = "FROM memories m WHERE account = $1 AND user_id = $2 AND rev_to = 0 AND rev_from = $3 AND deleted = 0"
    if revision > indexed:
        row = await tx.fetchrow(f"SELECT COUNT(*) AS waiting {written}", space.account, space.user, revision)
    else:
        row = await tx.fetchrow(
            f"SELECT COUNT(*) AS waiting {written} AND ((dense IS NULL{of_known_type(4)})"
            f" OR EXISTS (SELECT 1 FROM {_UNSENT_MEMORIES} AND uri = m.uri AND version = m.version))",
            space.account,
            space.user,
            revision,
            known_types,
        )
    return int(row["waiting"]) if row else 0
