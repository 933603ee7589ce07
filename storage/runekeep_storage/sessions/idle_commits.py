"""Automatic commits of idle sessions. The due time is stored in the session's row (`idle_at`), so that no server has to
remember it. Appends, commits and changes of the rules set it, see `runekeep_storage.sessions.sessions` and
`runekeep_storage.sessions.archives`.

`due` and `next_in` run over all accounts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runekeep_schemas.auto_commit_rules import SECOND, AutoCommit
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import BacklogFull
from runekeep_storage.sessions import commits, statements
from runekeep_storage.sessions.commits import Commit, CommitRules, Refusal

MIN_PAUSE_US, MAX_PAUSE_US = 30 * SECOND, 600 * SECOND
"""Bounds of the delay after a refused commit, for example of a user with too many open commits. Between them, the delay
is as long as the session has been due."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A session that has been due since `idle_at`, in microseconds."""

    idle_at: int
    space: Space
    session_id: str


async def due(tx: Tx, after: Idle | None, limit: int) -> Sequence[Idle]:
    """Returns sessions of all accounts that are due now and come after `after`, the longest due first."""
    rows = await tx.fetch(
        statements.IDLE_SESSIONS,
        tx.now(),
        *((after.idle_at, after.space.account, after.space.user, after.session_id) if after else (0, "", "", "")),
        limit,
    )
    return [Idle(row["idle_at"], Space(row["account"], row["user_id"]), row["session_id"]) for row in rows]


async def next_in(tx: Tx) -> int | None:
    """Returns the microseconds until the next session of any account becomes due; None if there is none."""
    row = await tx.fetchrow(statements.NEXT_IDLE_SESSION, tx.now())
    return None if row is None else row["wait"]


async def due_since(tx: Tx, space: Space, session_id: str) -> int | None:
    """Returns since when the session is due by its rules, regardless of postponements. Returns None if it is not due in
    this transaction: after `due` listed it, another server may have committed it, or a caller may have added messages.
    """
    row = await tx.fetchrow(statements.IDLE_SINCE, space.account, space.user, session_id)
    if row is None or not 0 < row["idle_at"] <= tx.now():
        return None
    return int(row["said_at"]) + AutoCommit.from_json(row["auto_commit"]).idle


async def commit_if_due(
    tx: Tx, space: Space, session_id: str, rules: CommitRules, traceparent: str
) -> Commit | Refusal | None:
    """Commits an idle session. Returns the reason of a refusal, after which the session waits for its next turn, or
    None if there is nothing to do any more."""
    since = await due_since(tx, space, session_id)
    if since is None:
        return None
    again_at = tx.now() + min(max(tx.now() - since, MIN_PAUSE_US), MAX_PAUSE_US)
    # Archives all messages: nobody may ever write here again, and live messages would never be extracted.
    done = await commits.create_automatic(tx, space, session_id, rules, traceparent=traceparent, keep_recent=0)
    if done is None:
        # Without this the session would be due forever.
        await put_off(tx, space, session_id, 0)
    elif isinstance(done, BacklogFull):
        # Delays all sessions of the user, in one statement: the backlog would refuse the others too.
        await put_off_user(tx, space, again_at)
    elif not isinstance(done, Commit):
        await put_off(tx, space, session_id, again_at)
    return done


async def put_off_long(tx: Tx, space: Space, session_id: str) -> None:
    """Delays a session whose commit failed by MAX_PAUSE_US."""
    await put_off(tx, space, session_id, tx.now() + MAX_PAUSE_US)


async def put_off_user(tx: Tx, space: Space, until: int) -> None:
    """Postpones to `until`, in microseconds, all sessions of a user that would be due earlier."""
    await tx.execute(statements.PUT_OFF_SESSIONS, space.account, space.user, until)


async def put_off(tx: Tx, space: Space, session_id: str, idle_at: int) -> None:
    """Sets when the session is due, in microseconds; 0: not before a message is added. Does nothing for an unknown
    session."""
    await tx.execute(statements.PUT_OFF_SESSION, space.account, space.user, session_id, idle_at)
