"""Directories of any size, as they are now: which of them hold memories, and the newest and the most used memories of
each, read from indexes in that order."""

from collections.abc import Sequence
from functools import cache

from storage.database import Space, Tx
from storage.memories import USES
from storage.records import Listed

_TOGETHER = 8
"""Directories that one statement reads."""


def _directory(row: str) -> str:
    """The directory of the URI of a row, with its slash, word for word as the indexes have it."""
    return f"rtrim({row}uri, replace({row}uri, '/', ''))"


def _name(row: str) -> str:
    """The name of a URI in its directory, word for word as the indexes have it."""
    return f"substr({row}uri, length({_directory(row)}) + 1)"


_FIRST = (
    f"SELECT {_directory('m.')} FROM memories m WHERE m.account = $1 AND m.user_id = $2 AND m.rev_to = 0"
    f" AND {_directory('m.')} {{}} AND {_directory('m.')} < $4 ORDER BY {_directory('m.')} LIMIT 1"
)
# From one directory to the next by the index, whatever number of memories is between them.
_HOLDING = (
    f"WITH RECURSIVE walk (step, directory) AS (SELECT 1, ({_FIRST.format('>= $3')})"
    f" UNION ALL SELECT w.step + 1, ({_FIRST.format('> w.directory')}) FROM walk w"
    " WHERE w.directory IS NOT NULL AND w.step < $5)"
    " SELECT directory FROM walk WHERE directory IS NOT NULL ORDER BY step"
)


async def holding(tx: Tx, space: Space, after: str, before: str, limit: int) -> list[str]:
    """Returns the first `limit` directories that hold memories themselves, by URI, each with a slash at the end: those
    from `after` on and below `before`."""
    rows = await tx.fetch(_HOLDING, space.account, space.user, after, before, limit)
    return [row["directory"] for row in rows]


async def leading(tx: Tx, space: Space, directories: Sequence[str], each: int) -> list[Listed]:
    """Returns of each of the directories, which end in a slash, the `each` newest memories in it and the `each` most
    used ones, all by URI. Those of the most used ones that are deleted are left out, and no others take their place."""
    found: dict[str, Listed] = {}
    for start in range(0, len(directories), _TOGETHER):
        some = [*directories[start : start + _TOGETHER]]
        # Filled up with what no directory is, so that the statement is the same for any number of directories.
        some += [""] * (_TOGETHER - len(some))
        rows = await tx.fetch(_leading(each), space.account, space.user, *some)
        found |= {row["uri"]: Listed(**dict(row)) for row in rows}
    return [found[uri] for uri in sorted(found)]


@cache
def _leading(each: int) -> str:
    columns = f"m.uri, m.memory_type, m.abstract, m.version, m.updated_at, {USES}"
    parts = []
    for place in range(3, 3 + _TOGETHER):
        parts.append(
            f"SELECT * FROM (SELECT {columns} FROM memories m WHERE m.account = $1 AND m.user_id = $2 AND m.rev_to = 0"
            f" AND {_directory('m.')} = ${place} ORDER BY m.updated_at DESC, {_name('m.')}"
            f" LIMIT {each}) newest_{place}"
        )
        parts.append(
            f"SELECT {columns} FROM (SELECT a.account, a.user_id, a.uri FROM active_counts a WHERE a.account = $1"
            f" AND a.user_id = $2 AND {_directory('a.')} = ${place} ORDER BY a.uses DESC, {_name('a.')} LIMIT {each})"
            f" used_{place} JOIN memories m ON m.account = used_{place}.account AND m.user_id = used_{place}.user_id"
            f" AND m.uri = used_{place}.uri AND m.rev_to = 0"
        )
    return " UNION ALL ".join(parts)


_COUNT = (
    "SELECT COUNT(*) AS number FROM (SELECT 1 AS one FROM memories m WHERE m.account = $1 AND m.user_id = $2"
    " AND m.rev_to = 0 AND {} LIMIT $4) c"
)
_COUNT_BELOW = _COUNT.format("m.uri > $3 || '/' AND m.uri < $3 || '0'")
# In the order of the index: without it SQLite reads another one, of all memories of the user.
_COUNT_WITHIN = _COUNT.format(f"{_directory('m.')} = $3 || '/' ORDER BY m.updated_at DESC, {_name('m.')}")


async def count(tx: Tx, space: Space, root: str, most: int) -> int:
    """Returns how many memories are below the directory `root`, at any depth; `most` stands for as many or more."""
    row = await tx.fetchrow(_COUNT_BELOW, space.account, space.user, root, most)
    return int(row["number"]) if row else 0


async def count_within(tx: Tx, space: Space, root: str, most: int) -> int:
    """Returns how many memories are in the directory `root` itself; `most` stands for as many or more."""
    row = await tx.fetchrow(_COUNT_WITHIN, space.account, space.user, root, most)
    return int(row["number"]) if row else 0
