"""Commits, phase 1: the live messages become an archive and a job, in one transaction, before any model call."""

from dataclasses import dataclass

from schemas import failpoints
from schemas.auto_commit import AutoCommit
from storage import jobs, sessions, tasks
from storage.database import Row, Space, Topic, Tx
from storage.errors import BacklogFull, NotFound
from storage.records import Archive, Session
from storage.watermarks import ARCHIVED

_COLUMNS = (
    "session_id, archive_index, first_sequence, last_sequence, state, abstract, overview, diff, task_id, revision,"
    " created_at, done_at"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages `first` to `last` of a session, both included, and the peers among those who said them.

    `stay`: how many newer ones stay live.
    """

    session: Session
    first: int
    last: int
    peers: list[str]
    stay: int


_WITHOUT_DIFF = _COLUMNS.replace("diff", "'' AS diff")


def _archive(row: Row) -> Archive:
    columns = dict(row)
    return Archive(index=columns.pop("archive_index"), **columns)


async def to_archive(tx: Tx, space: Space, session_id: str, keep_recent: int | None = None) -> Batch | None:
    """All live messages but the newest `keep_recent`, or but those that the session's rules of automatic commits keep;
    None when those are none, or all erased: then they wait for one that says something. Raises NotFound."""
    session = await sessions.get(tx, space, session_id)
    stay = AutoCommit.from_json(session.auto_commit).keep_recent_count if keep_recent is None else keep_recent
    first, last = session.archived_sequence + 1, session.last_sequence - stay
    if last < first or not await sessions.messages_between(tx, space, session_id, first, last, 1):
        return None
    return Batch(
        session,
        first,
        last,
        await sessions.peers_between(tx, space, session_id, first, last),
        stay=stay,
    )


async def check_backlog(tx: Tx, space: Space, max_open: int) -> None:
    """Raises BacklogFull for a user who has so many open commits."""
    open_commits = await jobs.open_jobs(tx, space, jobs.COMMIT)
    if open_commits >= max_open:
        raise BacklogFull(open_commits)


async def commit(
    tx: Tx, space: Space, batch: Batch, *, task_id: str, plan: str, traceparent: str, priority: int = 0
) -> int:
    """Archives the batch that `to_archive` gave in this same transaction, and queues its extraction.

    Gives the index of the archive. Asks no backlog: see `check_backlog`.
    """
    session_id = batch.session.session_id
    now = tx.now()
    row = await tx.fetchrow(
        "UPDATE sessions SET compression_index = compression_index + 1, archived_sequence = $4, updated_at = $5,"
        # The few that stay are counted anew, so that the sum is exact whatever happened to it.
        " live_tokens = (SELECT CAST(COALESCE(SUM(m.tokens), 0) AS BIGINT) FROM messages m"
        "   WHERE m.account = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.sequence > $4),"
        " idle_at = CASE WHEN $6 = 1 THEN idle_at ELSE 0 END"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 RETURNING compression_index",
        space.account,
        space.user,
        session_id,
        batch.last,
        now,
        # Messages that stay are committed once the session is idle.
        int(batch.stay > 0),
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
    tx.notify(Topic.INDEX, ARCHIVED)
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
    """Newest first, those with an index below `below`, without their diffs, which may be megabytes each. Raises
    NotFound for an unknown session."""
    await sessions.get(tx, space, session_id)
    rows = await tx.fetch(
        f"SELECT {_WITHOUT_DIFF} FROM archives WHERE account = $1 AND user_id = $2 AND session_id = $3"
        " AND archive_index < $4 ORDER BY archive_index DESC LIMIT $5",
        space.account,
        space.user,
        session_id,
        below,
        limit,
    )
    return [_archive(row) for row in rows]
