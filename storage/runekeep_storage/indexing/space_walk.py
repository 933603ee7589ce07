"""Walks over spaces in turn: reads the next spaces that have rows of a kind, in the order of their names."""

from collections.abc import Collection, Sequence
from typing import Final

from runekeep_storage.database import Space, Tx
from runekeep_storage.indexing.outbox import FIRST, Name

BEHIND_USERS: Final = "~"
"""Sorts behind the ids of all users."""


async def waiting_spaces(
    tx: Tx, statements: Sequence[str], after: Name, limit: int, left_out: Collection[str] = ()
) -> tuple[list[Space], Name]:
    """Returns the next spaces after `after`, over all accounts, and where to go on; FIRST at the end. Leaves out spaces
    that an import fills, and the accounts `left_out`. `statements`: some of `statements.NEXT_SPACE_OF_...`. Examines at
    most `limit` spaces, and one row of each, however many rows it has; of an account that is left out, one space."""
    found: list[Space] = []
    for _ in range(limit):
        rows = [row for statement in statements if (row := await tx.fetchrow(statement, *after)) is not None]
        if not rows:
            return found, FIRST
        row = min(rows, key=lambda one: (one["account"], one["user_id"]))
        if row["account"] in left_out:
            after = (row["account"], BEHIND_USERS)
            continue
        after = (row["account"], row["user_id"])
        if not row["is_imported"]:
            found.append(Space(*after))
    return found, after
