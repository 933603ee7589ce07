"""Walks over spaces in turn: reads the next spaces that have rows of a kind, in the order of their names."""

from collections.abc import Collection, Sequence
from typing import Final

from runekeep_storage.database import Space, Tx
from runekeep_storage.indexing.outbox import FIRST, Name

BEHIND_USERS: Final = "~"
"""Sorts behind the ids of all users."""


def next_space(table: str, condition: str, column: str, behind_all: str) -> str:
    """Returns a statement for `waiting_spaces`: the first space after ($1, $2) with rows of the table that meet the
    condition. It needs a partial index on account, user and `column`; no value of `column` may be above
    `behind_all`."""
    # With plain parameters SQLite would search by account only. Without the column it would read all rows of the space.
    return (
        f"SELECT r.account, r.user_id, {_IS_IMPORTED} AS is_imported FROM {table} r"
        f" WHERE (r.account, r.user_id, r.{column}) > ($1 || '', $2 || '', {behind_all}) AND {condition}"
        f" ORDER BY r.account, r.user_id, r.{column} LIMIT 1"
    )


_IS_IMPORTED = (
    "EXISTS (SELECT 1 FROM shut_spaces i WHERE i.account = r.account AND i.user_id = r.user_id AND i.import_id <> '')"
)


async def waiting_spaces(
    tx: Tx, statements: Sequence[str], after: Name, limit: int, left_out: Collection[str] = ()
) -> tuple[list[Space], Name]:
    """Returns the next spaces after `after`, over all accounts, and where to go on; FIRST at the end. Leaves out spaces
    that an import fills, and the accounts `left_out`. Examines at most `limit` spaces, and one row of each, however
    many rows it has; of an account that is left out, one space."""
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
