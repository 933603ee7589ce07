"""Reads directories of any size as they are now: which of them hold memories, and the newest and most used memories of
each. Each list is read from an index in that order."""

from collections.abc import Sequence

from runekeep_storage.database import Space, Tx
from runekeep_storage.memories import statements
from runekeep_storage.records import Listed


async def holding(tx: Tx, space: Space, after: str, before: str, limit: int) -> list[str]:
    """Returns the first `limit` directories that directly hold memories, by URI, each with a trailing slash, from
    `after` (inclusive) to `before` (exclusive)."""
    rows = await tx.fetch(statements.DIRECTORIES, space.account, space.user, after, before, limit)
    return [row["directory"] for row in rows]


async def leading(tx: Tx, space: Space, directories: Sequence[str], each: int) -> list[Listed]:
    """Returns the `each` newest and the `each` most used memories of each directory, all by URI. The directories end in
    a slash. Deleted memories among the most used are left out without replacement."""
    found: dict[str, Listed] = {}
    for start in range(0, len(directories), statements.LEADING_DIRECTORIES):
        some = [*directories[start : start + statements.LEADING_DIRECTORIES]]
        # Padded with a value that is no directory, so that the statement is the same for any number of directories.
        some += [""] * (statements.LEADING_DIRECTORIES - len(some))
        rows = await tx.fetch(statements.leading(each), space.account, space.user, *some)
        found |= {row["uri"]: Listed(**dict(row)) for row in rows}
    return [found[uri] for uri in sorted(found)]


async def count(tx: Tx, space: Space, root: str, most: int) -> int:
    """Returns the number of memories below the directory `root`, at any depth, counted up to `most`."""
    row = await tx.fetchrow(statements.COUNT_BELOW, space.account, space.user, root, most)
    return int(row["number"]) if row else 0


async def count_within(tx: Tx, space: Space, root: str, most: int) -> int:
    """Returns the number of memories directly in the directory `root`, counted up to `most`."""
    row = await tx.fetchrow(statements.COUNT_WITHIN, space.account, space.user, root, most)
    return int(row["number"]) if row else 0
