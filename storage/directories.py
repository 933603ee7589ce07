"""Directories of any size: which of them hold memories, and the newest and most used memories of each, read from indexes
that are in that order (migration r0007). Tells of what is there now."""

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
    """Returns the first `limit` directories (URIs with a slash at the end) that hold memories themselves, from `after` on
    and below `before`, by URI."""
    rows = await tx.fetch(_HOLDING, space.account, space.user, after, before, limit)
    return [row["directory"] for row in rows]


async def leading(tx: Tx, space: Space, directories: Sequence[str], each: int) -> list[Listed]:
    """Returns of each of the directories (URIs with a slash at the end) the `each` newest memories in it and the `each`
    most used ones, by URI. Of the most used ones those are left out that are deleted, and no others take their place."""
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
            f" AND {_directory('m.')} = ${place} ORDER BY m.updated_at DESC, m.uri DESC LIMIT {each}) newest_{place}"
        )
        parts.append(
            f"SELECT {columns} FROM (SELECT a.account, a.user_id, a.uri FROM active_counts a WHERE a.account = $1"
            f" AND a.user_id = $2 AND {_directory('a.')} = ${place} ORDER BY a.uses DESC, a.uri DESC LIMIT {each})"
            f" used_{place} JOIN memories m ON m.account = used_{place}.account AND m.user_id = used_{place}.user_id"
            f" AND m.uri = used_{place}.uri AND m.rev_to = 0"
        )
    return " UNION ALL ".join(parts)


async def count(tx: Tx, space: Space, root: str, most: int) -> int:
    """Returns how many memories are below the directory `root`, at any depth; `most` stands for as many or more."""
    return await _counted(tx, space, "m.uri > $3 AND m.uri < $4", (f"{root}/", f"{root}0"), most)


async def count_within(tx: Tx, space: Space, root: str, most: int) -> int:
    """Returns how many memories are in the directory `root` itself; `most` stands for as many or more."""
    return await _counted(tx, space, f"{_directory('m.')} = $3 AND $4 = ''", (f"{root}/", ""), most)


async def _counted(tx: Tx, space: Space, where: str, values: tuple[str, str], most: int) -> int:
    row = await tx.fetchrow(
        "SELECT COUNT(*) AS number FROM (SELECT 1 AS one FROM memories m WHERE m.account = $1 AND m.user_id = $2"
        f" AND m.rev_to = 0 AND {where} LIMIT $5) c",
        space.account,
        space.user,
        *values,
        most,
    )
    return int(row["number"]) if row else 0
