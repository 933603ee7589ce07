"""What the index still has to be told, written in the transaction of the change itself."""

from collections.abc import Iterable
from dataclasses import dataclass

from schemas import failpoints
from storage import spaces
from storage.database import Space, Topic, Tx

GRACE = 10 * 1_000_000
"""A superseded point stays this long (microseconds) after the watermark passed its successor, so that a search that
began before still finds it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """op `upsert`: bring (uri, version) into the index; `delete`: take `point_id` out, not before `due_at` and not
    before the watermark has reached its revision."""

    op: str
    uri: str = ""
    version: int = 0
    point_id: str = ""
    due_at: int = 0
    revision: int = 0
    number: int = 0


async def add(tx: Tx, space: Space, revision: int, entries: Iterable[Entry]) -> None:
    """Entries of a revision; 0 for what belongs to none."""
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
    tx.notify(Topic.INDEX)


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
    """Newest revision of the space and its entries that are due, in revision order.

    A delete waits for the watermark, however late the relay is: until then searches read at the old version.
    """
    newest, indexed = await spaces.revisions(tx, space)
    rows = await tx.fetch(
        "SELECT op, uri, version, point_id, due_at, revision, number FROM outbox"
        " WHERE account = $1 AND user_id = $2 AND due_at <= $3 AND (op = 'upsert' OR revision <= $4)"
        " ORDER BY revision, number LIMIT $5",
        space.account,
        space.user,
        tx.now(),
        indexed,
        limit,
    )
    return newest, [Entry(**dict(row)) for row in rows]


async def done(tx: Tx, space: Space, entries: list[Entry], indexed_revision: int) -> None:
    """Drops entries that the index has, and moves the watermark; it never moves back.

    From here on searches read at the new revisions: the grace of the versions that these superseded begins.
    """
    for entry in entries:
        await tx.execute(
            "DELETE FROM outbox WHERE account = $1 AND user_id = $2 AND revision = $3 AND number = $4",
            space.account,
            space.user,
            entry.revision,
            entry.number,
        )
    failpoints.reached(failpoints.RELAY_BEFORE_WATERMARK)
    _, before = await spaces.revisions(tx, space)
    if indexed_revision <= before:
        return
    await tx.execute(
        "UPDATE spaces SET indexed_revision = $3 WHERE account = $1 AND user_id = $2",
        space.account,
        space.user,
        indexed_revision,
    )
    await tx.execute(
        "UPDATE outbox SET due_at = $5"
        " WHERE account = $1 AND user_id = $2 AND revision > $3 AND revision <= $4 AND op = 'delete'",
        space.account,
        space.user,
        before,
        indexed_revision,
        tx.now() + GRACE,
    )


async def fall_behind(tx: Tx) -> None:
    """Says, of all accounts, that the index is being made anew; it is not whole until `caught_up`."""
    await tx.execute("UPDATE spaces SET indexed_revision = -1")


async def is_behind(tx: Tx) -> bool:
    """Whether making the index anew was begun and not finished, for any account."""
    return await tx.fetchrow("SELECT 1 AS yes FROM spaces WHERE indexed_revision < 0 LIMIT 1") is not None


async def caught_up(tx: Tx) -> None:
    """Says, of all accounts, that the index holds what is current: it was made anew from the rows."""
    await tx.execute("DELETE FROM outbox")
    await tx.execute("UPDATE spaces SET indexed_revision = revision WHERE indexed_revision < revision")
