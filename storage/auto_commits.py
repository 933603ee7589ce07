"""Sessions that are idle for long enough to commit by themselves: when is in their rows (`idle_at`), so that it is for
no server to remember. Appends, commits and changes of the rules set it, see `storage.sessions` and `storage.archives`.

`due` and `next_in` run over all accounts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.auto_commit import AutoCommit
from storage.database import Space, Tx


@dataclass(frozen=True, slots=True)
class Idle:
    """A session that is due since `idle_at`, microseconds."""

    idle_at: int
    space: Space
    session_id: str


async def due(tx: Tx, after: Idle | None, limit: int) -> Sequence[Idle]:
    """Sessions of all accounts that are due now, those first that are so for longest; those behind `after`."""
    rows = await tx.fetch(
        "SELECT idle_at, account, user_id, session_id FROM sessions WHERE idle_at > 0 AND idle_at <= $1"
        " AND (idle_at, account, user_id, session_id) > ($2, $3, $4, $5)"
        " ORDER BY idle_at, account, user_id, session_id LIMIT $6",
        tx.now(),
        *((after.idle_at, after.space.account, after.space.user, after.session_id) if after else (0, "", "", "")),
        limit,
    )
    return [Idle(row["idle_at"], Space(row["account"], row["user_id"]), row["session_id"]) for row in rows]


async def next_in(tx: Tx) -> int | None:
    """Microseconds until the next session of all accounts will be due that is not so yet; None for none."""
    row = await tx.fetchrow(
        "SELECT MIN(idle_at) - $1 AS wait FROM sessions WHERE idle_at > 0 AND idle_at > $1", tx.now()
    )
    return None if row is None else row["wait"]


async def due_since(tx: Tx, space: Space, session_id: str) -> int | None:
    """Since when it is, by its rules, however often it was put off; None where it is not due in this transaction: since
    `due` said so, another server may have made its commit, or somebody have gone on with it."""
    row = await tx.fetchrow(
        "SELECT idle_at, said_at, auto_commit FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
    if row is None or not 0 < row["idle_at"] <= tx.now():
        return None
    return int(row["said_at"]) + AutoCommit.from_json(row["auto_commit"]).idle


async def put_off_user(tx: Tx, space: Space, until: int) -> None:
    """Lets all sessions of a user wait that would be due before."""
    await tx.execute(
        "UPDATE sessions SET idle_at = $3 WHERE account = $1 AND user_id = $2 AND idle_at > 0 AND idle_at < $3",
        space.account,
        space.user,
        until,
    )


async def put_off(tx: Tx, space: Space, session_id: str, idle_at: int) -> None:
    """Sets when it is due, 0 for not before something is added; nothing for a session that is gone."""
    await tx.execute(
        "UPDATE sessions SET idle_at = $4 WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
        idle_at,
    )
