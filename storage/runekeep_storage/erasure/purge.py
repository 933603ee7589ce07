"""Removes the rows of a deleted user in slices.

What must follow a row happens in the transaction that removes it: the removal of its points from the index, and the
record of a session whose messages still exist. Sessions go first, so that a passage that a relay stores late, for an
archive that still exists, already belongs to a pending deletion.
"""

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common import idempotent_requests
from runekeep_storage.erasure import statements
from runekeep_storage.indexing import outbox
from runekeep_storage.indexing.outbox import Entry
from runekeep_storage.indexing.points import memory_point
from runekeep_storage.spaces import pending_deletions
from runekeep_storage.tables import TABLES, PlainDelete, Table

_MORE = {"archives": ("task_id", "first_sequence", "last_sequence"), "memories": ("rev_from", "rev_to")}
"""Columns by which the points of the rows are removed from the index."""


async def take(tx: Tx, space: Space, most: int) -> bool:
    """Removes up to `most` rows of the space, from any table, and voids as many stored responses. Returns whether there
    may be more. No job of the space may be open. Messages, passages and turn memory follow, see
    `runekeep_storage.spaces.pending_deletions`."""
    left = most
    for table in TABLES:
        if isinstance(table.user, PlainDelete):
            left -= await _take(tx, space, table, table.user, left)
        if left <= 0:
            return True
    return await idempotent_requests.void(tx, space, most=left) >= left


async def _take(tx: Tx, space: Space, table: Table, way: PlainDelete, most: int) -> int:
    order = way.order or table.key
    columns = ", ".join((*order, *_MORE.get(table.name, ())))
    rows = await tx.fetch(
        statements.first_rows(table.name, columns, way.only, ", ".join(order)), space.account, space.user, most
    )
    if not rows:
        return 0
    last = [rows[-1][column] for column in order]
    if table.name == "sessions":
        await pending_deletions.leave_up_to(tx, space, *last)
    await tx.execute(statements.delete_first_rows(table.name, way.only, order), space.account, space.user, *last)
    if table.name == "archives":
        await outbox.add(tx, space, 0, [passages_of(row) for row in rows])
    elif table.name == "memories":
        current = [memory_point(space, row["uri"], row["rev_from"]) for row in rows if row["rev_to"] == 0]
        await outbox.remove(tx, space, current)
    return len(rows)


def passages_of(archive: Row) -> Entry:
    """Returns an entry that removes the points of all messages of an archive."""
    return Entry(
        "delete_passages",
        task_id=archive["task_id"],
        first_sequence=archive["first_sequence"],
        last_sequence=archive["last_sequence"],
    )
