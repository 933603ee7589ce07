"""Memories: versions that stay, read at a revision of their space."""

from collections.abc import Sequence

from storage.database import Row, Space, Tx
from storage.errors import NotFound
from storage.records import Listed, Memory

_COLUMNS = (
    "m.uri, m.version, m.memory_type, m.peer_id, m.fields, m.content, m.abstract, m.overview, m.sources, m.extractor,"
    " m.deleted, m.rev_from, m.rev_to, m.created_at, m.updated_at,"
    # Not a join: of one, PostgreSQL may read all counts of the user for a few memories.
    " COALESCE((SELECT c.uses FROM active_counts c WHERE c.account = m.account AND c.user_id = m.user_id"
    " AND c.uri = m.uri), 0) AS active_count"
)
_FROM = " FROM memories m WHERE m.account = $1 AND m.user_id = $2"
_ALIVE_AT = " AND m.deleted = 0 AND m.rev_from <= $3 AND (m.rev_to = 0 OR m.rev_to > $3)"
LATEST = 2**62
"""As a revision: what is there now."""


def _memory(row: Row) -> Memory:
    columns = dict(row)
    columns["deleted"] = bool(columns["deleted"])
    return Memory(**columns)


async def get(tx: Tx, space: Space, uri: str, *, version: int = 0, revision: int = LATEST) -> Memory:
    """A version by its number, or the one alive at `revision`. Raises NotFound."""
    if version:
        row = await tx.fetchrow(
            f"SELECT {_COLUMNS}{_FROM} AND m.uri = $3 AND m.version = $4", space.account, space.user, uri, version
        )
    else:
        row = await tx.fetchrow(
            f"SELECT {_COLUMNS}{_FROM}{_ALIVE_AT} AND m.uri = $4", space.account, space.user, revision, uri
        )
    if row is None:
        raise NotFound("memory", f"{uri} (version {version})" if version else uri)
    return _memory(row)


async def newest_version(tx: Tx, space: Space, uri: str) -> int:
    """Highest version ever given to the URI, deletes included; 0 for none."""
    row = await tx.fetchrow(
        "SELECT COALESCE(MAX(version), 0) AS version FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3",
        space.account,
        space.user,
        uri,
    )
    return row["version"] if row else 0


async def versions(tx: Tx, space: Space, uri: str, below: int, limit: int) -> list[Memory]:
    """Newest first, versions below `below`; a delete is a version of its own. Raises NotFound."""
    rows = await tx.fetch(
        f"SELECT {_COLUMNS}{_FROM} AND m.uri = $3 AND m.version < $4 ORDER BY m.version DESC LIMIT $5",
        space.account,
        space.user,
        uri,
        below,
        limit,
    )
    if not rows and below == LATEST:
        raise NotFound("memory", uri)
    return [_memory(row) for row in rows]


async def alive(tx: Tx, space: Space, keys: Sequence[tuple[str, int]], revision: int) -> dict[tuple[str, int], Memory]:
    """Those of the versions (uri, version) that are alive at `revision`."""
    found = {}
    for uri, version in keys:
        row = await tx.fetchrow(
            f"SELECT {_COLUMNS}{_FROM}{_ALIVE_AT} AND m.uri = $4 AND m.version = $5",
            space.account,
            space.user,
            revision,
            uri,
            version,
        )
        if row is not None:
            found[uri, version] = _memory(row)
    return found


async def beside_index(
    tx: Tx, space: Space, indexed: int, revision: int, limit: int
) -> list[tuple[Memory, bytes | None, bytes | None]]:
    """Versions alive at `revision` that an index of revision `indexed` (-1: one that holds nothing) may lack, with
    their dense and sparse vectors. At most `limit` of them.

    Ahead of the index these are versions made after it, of which some may be superseded by now; behind it, versions
    that were superseded up to it. Reads what was written between the two revisions and since, not the whole space.
    """
    made_after, gone_by = (indexed, LATEST) if indexed < revision else (-1, indexed)
    select = f"SELECT {_COLUMNS}, m.dense, m.sparse{_FROM} AND m.deleted = 0 AND m.rev_from <= $3"
    rows = await tx.fetch(
        f"{select} AND m.rev_to = 0 AND m.rev_from > $4 LIMIT $5",
        space.account,
        space.user,
        revision,
        indexed,
        limit,
    )
    rows += await tx.fetch(
        f"{select} AND m.rev_to > $3 AND m.rev_to <= $4 AND m.rev_from > $5 LIMIT $6",
        space.account,
        space.user,
        revision,
        gone_by,
        made_after,
        limit - len(rows),
    )
    found = []
    for row in rows:
        columns = dict(row)
        dense, sparse = columns.pop("dense"), columns.pop("sparse")
        columns["deleted"] = bool(columns["deleted"])
        found.append((Memory(**columns), dense, sparse))
    return found


async def listing(tx: Tx, space: Space, root: str, revision: int = LATEST) -> list[Listed]:
    """What a directory listing needs of the memories below `root` at a revision, by URI."""
    rows = await tx.fetch(
        "SELECT m.uri, m.memory_type, m.abstract, m.version, m.updated_at FROM memories m"
        f" WHERE m.account = $1 AND m.user_id = $2{_ALIVE_AT} AND m.uri > $4 AND m.uri < $5 ORDER BY m.uri",
        space.account,
        space.user,
        revision,
        root + "/",
        root + "0",  # "0" is the character after "/"
    )
    return [Listed(**dict(row)) for row in rows]
