"""What the index still has to be told, written in the transaction of the change itself."""

from collections.abc import Iterable
from dataclasses import dataclass

from storage.database import Space, Tx

GRACE = 10 * 1_000_000
"""A superseded point stays this long (microseconds), so that a search that began before still finds it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """op `upsert`: bring (uri, version) into the index; `delete`: take `point_id` out, not before `due_at`."""

    op: str
    uri: str = ""
    version: int = 0
    point_id: str = ""
    due_at: int = 0
    revision: int = 0
    number: int = 0


async def add(tx: Tx, space: Space, revision: int, entries: Iterable[Entry]) -> None:
    row = await tx.fetchrow(
        "SELECT COALESCE(MAX(number), 0) AS number FROM outbox WHERE account = $1 AND user_id = $2 AND revision = $3",
        space.account,
        space.user,
        revision,
    )
    number = row["number"] if row else 0
    for offset, entry in enumerate(entries, 1):
        await tx.execute(
            "INSERT INTO outbox (account, user_id, revision, number, op, uri, version, point_id, due_at)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            space.account,
            space.user,
            revision,
            number + offset,
            entry.op,
            entry.uri,
            entry.version,
            entry.point_id,
            entry.due_at,
        )


async def waiting_spaces(tx: Tx, limit: int = 100) -> list[Space]:
    """Spaces with something to do now, over all accounts: entries that are due, or revisions not yet marked."""
    rows = await tx.fetch(
        "SELECT DISTINCT account, user_id FROM outbox WHERE due_at <= $1"
        " UNION SELECT account, user_id FROM spaces WHERE indexed_revision < revision LIMIT $2",
        tx.now(),
        limit,
    )
    return [Space(row["account"], row["user_id"]) for row in rows]


async def due(tx: Tx, space: Space, limit: int) -> tuple[int, list[Entry]]:
    """Newest revision of the space and its entries that are due, in revision order."""
    row = await tx.fetchrow(
        "SELECT revision FROM spaces WHERE account = $1 AND user_id = $2", space.account, space.user
    )
    rows = await tx.fetch(
        "SELECT op, uri, version, point_id, due_at, revision, number FROM outbox"
        " WHERE account = $1 AND user_id = $2 AND due_at <= $3 ORDER BY revision, number LIMIT $4",
        space.account,
        space.user,
        tx.now(),
        limit,
    )
    return (row["revision"] if row else 0), [Entry(**dict(r)) for r in rows]


async def done(tx: Tx, space: Space, entries: list[Entry], indexed_revision: int) -> None:
    """Drops entries that the index has, and moves the watermark; it never moves back."""
    for entry in entries:
        await tx.execute(
            "DELETE FROM outbox WHERE account = $1 AND user_id = $2 AND revision = $3 AND number = $4",
            space.account,
            space.user,
            entry.revision,
            entry.number,
        )
    await tx.execute(
        "UPDATE spaces SET indexed_revision = $3 WHERE account = $1 AND user_id = $2 AND indexed_revision < $3",
        space.account,
        space.user,
        indexed_revision,
    )


async def caught_up(tx: Tx) -> None:
    """Says, of all accounts, that the index holds what is current: it was made anew from the rows."""
    await tx.execute("DELETE FROM outbox")
    await tx.execute("UPDATE spaces SET indexed_revision = revision WHERE indexed_revision < revision")
