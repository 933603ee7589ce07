"""Rows of accounts and spaces."""

from dataclasses import dataclass

from runekeep_storage.database import Space, Tx
from runekeep_storage.spaces import statements


@dataclass(frozen=True, slots=True)
class User:
    """A user of an account. `created_at`: when something was first stored, in microseconds."""

    name: str
    created_at: int


async def users(tx: Tx, account: str, prefix: str, after: str, limit: int) -> list[User]:
    """Returns up to `limit` users of the account who have sessions or memories, by name: those after `after` whose
    names begin with `prefix`."""
    rows = await tx.fetch(statements.USERS, account, after, prefix, f"{prefix}\U0010ffff", limit)
    return [User(row["user_id"], row["created_at"]) for row in rows]


async def ensure(tx: Tx, space: Space) -> None:
    """Creates the rows of an account and a space if they do not exist."""
    now = tx.now()
    await tx.execute(statements.ADD_ACCOUNT, space.account, now)
    await tx.execute(statements.ADD_SPACE, space.account, space.user, now)


async def exists(tx: Tx, space: Space) -> bool:
    """Returns whether anything was ever stored for the user, or is being stored."""
    return await tx.fetchrow(statements.HAS_SPACE, space.account, space.user) is not None


async def revisions(tx: Tx, space: Space) -> tuple[int, int]:
    """Returns the newest revision of the space and the newest one that is completely in the index; (0, 0) for an
    unknown space."""
    row = await tx.fetchrow(statements.REVISIONS, space.account, space.user)
    return (row["revision"], row["indexed_revision"]) if row else (0, 0)


async def revision_at(tx: Tx, space: Space, time: int) -> int:
    """Returns the newest revision created at or before `time`, in microseconds; 0 if there is none."""
    # Not the last one by time: the clock may have been set back between two revisions.
    row = await tx.fetchrow(statements.REVISION_AT, space.account, space.user, time)
    return int(row["revision"]) if row else 0


async def lost(tx: Tx, space: Space) -> None:
    """Records that this transaction deletes data, so that an export in progress does not count as complete."""
    await tx.execute(statements.COUNT_LOSS, space.account, space.user)
