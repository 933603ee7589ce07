"""Accounts and spaces."""

from storage.database import Space, Tx


async def ensure(tx: Tx, space: Space) -> None:
    """Makes the rows of an account and a space when they are not there."""
    now = tx.now()
    await tx.execute(
        "INSERT INTO accounts (account, created_at) VALUES ($1, $2) ON CONFLICT (account) DO NOTHING",
        space.account,
        now,
    )
    await tx.execute(
        "INSERT INTO spaces (account, user_id, created_at, checked_at) VALUES ($1, $2, $3, $3)"
        " ON CONFLICT (account, user_id) DO NOTHING",
        space.account,
        space.user,
        now,
    )


async def revisions(tx: Tx, space: Space) -> tuple[int, int]:
    """Newest revision of the space and the newest one that is wholly in the index; 0, 0 for an unknown space."""
    row = await tx.fetchrow(
        "SELECT revision, indexed_revision FROM spaces WHERE account = $1 AND user_id = $2",
        space.account,
        space.user,
    )
    return (row["revision"], row["indexed_revision"]) if row else (0, 0)


async def revision_at(tx: Tx, space: Space, time: int) -> int:
    """The newest revision made until `time`, microseconds; 0 for none."""
    # Not the last one by time: a clock may have been put back between two of them.
    row = await tx.fetchrow(
        "SELECT COALESCE(MAX(revision), 0) AS revision FROM commits"
        " WHERE account = $1 AND user_id = $2 AND created_at <= $3",
        space.account,
        space.user,
        time,
    )
    return int(row["revision"]) if row else 0


async def lost(tx: Tx, space: Space) -> None:
    """Says that this transaction takes data away, so that no export that is under way passes for whole."""
    await tx.execute(
        "UPDATE spaces SET losses = losses + 1 WHERE account = $1 AND user_id = $2", space.account, space.user
    )
