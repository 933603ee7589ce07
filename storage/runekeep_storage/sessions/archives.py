"""Commits, phase 1: moves the live messages to an archive and queues a job, in one transaction and before any model
call."""

from dataclasses import dataclass

from runekeep_common import failpoints
from runekeep_schemas.auto_commit_rules import AutoCommit
from runekeep_storage.database import Row, Space, Topic, Tx
from runekeep_storage.errors import BacklogFull, NotFound
from runekeep_storage.jobs import jobs, tasks
from runekeep_storage.records import Archive, Session
from runekeep_storage.sessions import sessions, statements
from runekeep_storage.spaces.watermarks import ARCHIVED


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages `first` to `last` of a session, both included, and the peers who sent them.

    `stay`: how many newer messages stay live.
    """

    session: Session
    first: int
    last: int
    peers: list[str]
    stay: int


def _archive(row: Row) -> Archive:
    columns = dict(row)
    return Archive(index=columns.pop("archive_index"), **columns)


async def to_archive(tx: Tx, space: Space, session_id: str, keep_recent: int | None = None) -> Batch | None:
    """Returns all live messages except the newest `keep_recent`; None: as many as the session's rules of automatic
    commits keep. Returns None if there are none or all are erased: those wait for a message that has content. Raises
    NotFound."""
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
    """Raises BacklogFull if the user has `max_open` open commits or more."""
    open_commits = await jobs.open_jobs(tx, space, jobs.COMMIT)
    if open_commits >= max_open:
        raise BacklogFull(open_commits)


async def commit(
    tx: Tx, space: Space, batch: Batch, *, task_id: str, plan: str, traceparent: str, priority: int = 0
) -> int:
    """Archives the batch that `to_archive` returned in the same transaction, and queues its extraction.

    Returns the index of the archive. Does not check the backlog: see `check_backlog`.
    """
    session_id = batch.session.session_id
    now = tx.now()
    row = await tx.fetchrow(
        statements.ARCHIVE_MESSAGES,
        space.account,
        space.user,
        session_id,
        batch.last,
        now,
        # The remaining messages are committed when the session becomes idle.
        int(batch.stay > 0),
    )
    if row is None:
        raise NotFound("session", session_id)
    index = int(row["compression_index"])
    await tx.execute(
        statements.ADD_ARCHIVE,
        space.account,
        space.user,
        session_id,
        index,
        batch.first,
        batch.last,
        task_id,
        now,
    )
    await tx.execute(statements.ARCHIVE_USAGES, space.account, space.user, session_id, index)
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
    """Returns an archive. Raises NotFound."""
    row = await tx.fetchrow(statements.ARCHIVE, space.account, space.user, session_id, index)
    if row is None:
        raise NotFound("archive", f"{session_id}/history/archive_{index:03d}")
    return _archive(row)


async def page(tx: Tx, space: Space, session_id: str, below: int, limit: int) -> list[Archive]:
    """Returns archives with an index below `below`, newest first, without their diffs, which may be megabytes each.
    Raises NotFound for an unknown session."""
    await sessions.get(tx, space, session_id)
    rows = await tx.fetch(statements.ARCHIVES, space.account, space.user, session_id, below, limit)
    return [_archive(row) for row in rows]
