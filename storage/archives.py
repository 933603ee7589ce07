"""Commits, phase 1: the live messages become an archive and a job, in one transaction, before any model call."""

from dataclasses import dataclass

from schemas import failpoints
from storage import jobs, sessions, tasks
from storage.database import Row, Space, Topic, Tx
from storage.errors import BacklogFull, NotFound
from storage.records import Archive

_COLUMNS = (
    "session_id, archive_index, first_sequence, last_sequence, state, abstract, overview, diff, task_id, revision,"
    " created_at, done_at"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages `first` to `last` of a session, both included, and the peers among those who said them."""

    first: int
    last: int
    peers: list[str]


def _archive(row: Row) -> Archive:
    columns = dict(row)
    return Archive(index=columns.pop("archive_index"), **columns)


async def to_archive(tx: Tx, space: Space, session_id: str, keep_recent: int) -> Batch | None:
    """Live messages that a commit would take now; None for none. Raises NotFound."""
    session = await sessions.get(tx, space, session_id)
    first, last = session.archived_sequence + 1, session.last_sequence - keep_recent
    if last < first:
        return None
    return Batch(first, last, await sessions.peers_between(tx, space, session_id, first, last))


async def commit(
    tx: Tx,
    space: Space,
    session_id: str,
    batch: Batch,
    *,
    task_id: str,
    plan: str,
    traceparent: str,
    max_open: int,
    priority: int = 0,
) -> int:
    """Archives the batch that `to_archive` gave in this same transaction, and queues its extraction.

    Gives the index of the archive. Raises BacklogFull before anything is archived.
    """
    open_commits = await jobs.open_jobs(tx, space, jobs.COMMIT)
    if open_commits >= max_open:
        raise BacklogFull(open_commits)
    now = tx.now()
    row = await tx.fetchrow(
        "UPDATE sessions SET compression_index = compression_index + 1, archived_sequence = $4, updated_at = $5"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 RETURNING compression_index",
        space.account,
        space.user,
        session_id,
        batch.last,
        now,
    )
    if row is None:
        raise NotFound("session", session_id)
    index = int(row["compression_index"])
    await tx.execute(
        "INSERT INTO archives (account, user_id, session_id, archive_index, first_sequence, last_sequence, task_id,"
        " created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        space.account,
        space.user,
        session_id,
        index,
        batch.first,
        batch.last,
        task_id,
        now,
    )
    await tx.execute(
        "UPDATE usages SET archive_index = $4"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = 0",
        space.account,
        space.user,
        session_id,
        index,
    )
    await tasks.create(tx, space, task_id, jobs.COMMIT, session_id, archive_index=index)
    await jobs.enqueue(
        tx,
        space,
        task_id,
        kind=jobs.COMMIT,
        lane=jobs.COMMITS,
        session_id=session_id,
        archive_index=index,
        plan=plan,
        traceparent=traceparent,
        priority=priority,
    )
    tx.notify(Topic.INDEX)
    failpoints.reached(failpoints.COMMIT_BEFORE_COMMIT)
    return index


async def get(tx: Tx, space: Space, session_id: str, index: int) -> Archive:
    """Raises NotFound."""
    row = await tx.fetchrow(
        f"SELECT {_COLUMNS} FROM archives"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4",
        space.account,
        space.user,
        session_id,
        index,
    )
    if row is None:
        raise NotFound("archive", f"{session_id}/history/archive_{index:03d}")
    return _archive(row)


async def page(tx: Tx, space: Space, session_id: str, below: int, limit: int) -> list[Archive]:
    """Newest first, those with an index below `below`. Raises NotFound for an unknown session."""
    await sessions.get(tx, space, session_id)
    rows = await tx.fetch(
        f"SELECT {_COLUMNS} FROM archives WHERE account = $1 AND user_id = $2 AND session_id = $3"
        " AND archive_index < $4 ORDER BY archive_index DESC LIMIT $5",
        space.account,
        space.user,
        session_id,
        below,
        limit,
    )
    return [_archive(row) for row in rows]
