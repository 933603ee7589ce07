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
