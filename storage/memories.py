"""Memories: versions that stay, read at a revision of their space."""

from collections.abc import Iterable, Sequence

from storage.byte_limits import count_within
from storage.database import Row, Space, Tx
from storage.errors import NotFound
from storage.records import Listed, Memory
from storage.statement_lists import SIZE, filled, places

_USES = (
    # Not a join: of one, PostgreSQL may read all counts of the user for a few memories.
    "COALESCE((SELECT c.uses FROM active_counts c WHERE c.account = m.account AND c.user_id = m.user_id"
    " AND c.uri = m.uri), 0)"
)
USES = f"{_USES} AS uses"
"""Of a row `m` of memories, how often it was used."""
COLUMNS = (
    "m.uri, m.version, m.memory_type, m.peer_id, m.fields, m.content, m.abstract, m.overview, m.sources, m.extractor,"
    " m.deleted, m.rev_from, m.rev_to, m.created_at, m.updated_at,"
    f" m.happened_at, m.tags, {_USES} AS active_count"
)
"""Of a row `m` of memories, what `memory` reads."""
STORED_BYTES = (
    "octet_length(m.content) + octet_length(m.fields) + octet_length(m.abstract) + octet_length(m.overview)"
    " + octet_length(m.sources)"
)
"""Of a row `m` of memories, about how many bytes `memory` reads."""
OUTLINE_COLUMNS = COLUMNS.replace(
    "m.fields, m.content, m.abstract, m.overview", "'{}' AS fields, '' AS content, '' AS abstract, '' AS overview"
)
"""The same without texts, each of which may be megabytes long."""
_FROM = " FROM memories m WHERE m.account = $1 AND m.user_id = $2"
ALIVE_AT = " AND m.deleted = 0 AND +m.rev_from <= $3 AND (+m.rev_to = 0 OR +m.rev_to > $3)"
"""To append: of a row `m` of memories, whether it is alive at the revision $3.

With a sign before them, the revisions lead no engine to an index: half of a space was made before most of them, and
SQLite would rather read that than look for a list of URIs.
"""
LATEST = 2**62
"""As a revision: what is there now."""


def memory(row: Row) -> Memory:
    columns = dict(row)
    columns["deleted"] = bool(columns["deleted"])
    return Memory(**columns)


async def get(tx: Tx, space: Space, uri: str, *, version: int = 0, revision: int = LATEST) -> Memory:
    """A version by its number, or the one alive at `revision`. Raises NotFound."""
    if version:
        row = await tx.fetchrow(
            f"SELECT {COLUMNS}{_FROM} AND m.uri = $3 AND m.version = $4", space.account, space.user, uri, version
        )
    else:
        row = await tx.fetchrow(
            f"SELECT {COLUMNS}{_FROM}{ALIVE_AT} AND m.uri = $4", space.account, space.user, revision, uri
        )
    if row is None:
        raise NotFound("memory", f"{uri} (version {version})" if version else uri)
    return memory(row)


async def with_newest_version(tx: Tx, space: Space, uri: str, revision: int = LATEST) -> tuple[Memory | None, int]:
    """The version that is alive at `revision`, where there is one, and what `newest_version` gives."""
    row = await tx.fetchrow(
        f"SELECT n.newest, {COLUMNS} FROM (SELECT COALESCE(MAX(version), 0) AS newest FROM memories"
        " WHERE account = $1 AND user_id = $2 AND uri = $4) n LEFT JOIN memories m"
        f" ON m.account = $1 AND m.user_id = $2{ALIVE_AT} AND m.uri = $4",
        space.account,
        space.user,
        revision,
        uri,
    )
    assert row is not None
    columns = dict(row)
    newest = columns.pop("newest")
    return memory(columns) if columns["uri"] is not None else None, newest


async def newest_version(tx: Tx, space: Space, uri: str) -> int:
    """Highest version ever given to the URI, deletes included; 0 for none."""
    row = await tx.fetchrow(
        "SELECT COALESCE(MAX(version), 0) AS version FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3",
        space.account,
        space.user,
        uri,
    )
    return row["version"] if row else 0


async def versions_page(
    tx: Tx, space: Space, uri: str, below: int, limit: int, most_bytes: int
) -> tuple[list[Memory], bool]:
    """Newest first, `limit` versions below `below`, or as many as take about `most_bytes`, at least one; a delete is a
    version of its own. And whether others follow. Reads no others. Raises NotFound."""
    rows = await tx.fetch(
        f"SELECT m.version, {STORED_BYTES} AS size{_FROM} AND m.uri = $3 AND m.version < $4"
        " ORDER BY m.version DESC LIMIT $5",
        space.account,
        space.user,
        uri,
        below,
        limit + 1,
    )
    if not rows and below == LATEST:
        raise NotFound("memory", uri)
    count = count_within([row["size"] for row in rows[:limit]], most_bytes)
    if not count:
        return [], False
    found = await tx.fetch(
        f"SELECT {COLUMNS}{_FROM} AND m.uri = $3 AND m.version < $4 AND m.version >= $5 ORDER BY m.version DESC",
        space.account,
        space.user,
        uri,
        below,
        rows[count - 1]["version"],
    )
    return [memory(row) for row in found], count < len(rows)


Key = tuple[str, int]
"""URI and version."""


async def alive(tx: Tx, space: Space, keys: Sequence[Key], revision: int, columns: str = COLUMNS) -> dict[Key, Memory]:
    """Those of the versions that are alive at `revision`. `columns`: all that a Memory has."""
    rows = await rows_alive(tx, space, keys, revision, columns)
    return {key: memory(row) for key, row in rows.items()}


async def content_bytes(tx: Tx, space: Space, keys: Sequence[Key], revision: int) -> dict[Key, int]:
    """How many bytes the contents of those of the versions have that are alive at `revision`."""
    rows = await rows_alive(tx, space, keys, revision, "m.uri, m.version, octet_length(m.content) AS size")
    return {key: row["size"] for key, row in rows.items()}


async def current_bytes(tx: Tx, space: Space, uris: Iterable[str]) -> int:
    """About how many bytes the memories that are there now under these URIs take together."""
    total = 0
    for some in filled(uris):
        row = await tx.fetchrow(
            f"SELECT COALESCE(SUM({STORED_BYTES}), 0) AS size{_FROM} AND m.rev_to = 0 AND m.deleted = 0"
            f" AND m.uri IN ({places(3)})",
            space.account,
            space.user,
            *some,
        )
        total += int(row["size"]) if row else 0
    return total


async def rows_alive(tx: Tx, space: Space, keys: Sequence[Key], revision: int, columns: str) -> dict[Key, Row]:
    """`columns`, the key among them, of those of the versions that are alive at `revision`."""
    found: dict[Key, Row] = {}
    for some in filled(keys):
        # Both lists apart use the key from its beginning to its end; what they find across is left out.
        rows = await tx.fetch(
            f"SELECT {columns}{_FROM}{ALIVE_AT} AND m.uri IN ({places(4)}) AND m.version IN ({places(4 + SIZE)})",
            space.account,
            space.user,
            revision,
            *(uri for uri, _ in some),
            *(version for _, version in some),
        )
        found |= {(row["uri"], row["version"]): row for row in rows if (row["uri"], row["version"]) in some}
    return found


async def beside_index(
    tx: Tx, space: Space, indexed: int, revision: int, limit: int
) -> list[tuple[Memory, bytes | None, bytes | None]]:
    """Versions alive at `revision` that an index of revision `indexed` (-1: one that holds nothing) may lack, with
    their dense and sparse vectors, and without their texts. At most `limit` of them.

    Ahead of the index these are versions made after it, of which some may be superseded by now; behind it, versions
    that were superseded up to it. Reads what was written between the two revisions and since, not the whole space.
    """
    made_after, gone_by = (indexed, LATEST) if indexed < revision else (-1, indexed)
    select = f"SELECT {OUTLINE_COLUMNS}, m.dense, m.sparse{_FROM} AND m.deleted = 0"
    rows = await tx.fetch(
        f"{select} AND m.rev_to = 0 AND m.rev_from <= $3 AND m.rev_from > $4 LIMIT $5",
        space.account,
        space.user,
        revision,
        indexed,
        limit,
    )
    rows += await tx.fetch(
        # The signs keep SQLite from the index by origin: behind the index that would be to read the whole space.
        f"{select} AND m.rev_to > $3 AND m.rev_to <= $4 AND +m.rev_from <= $3 AND +m.rev_from > $5 LIMIT $6",
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


def _alive(revision: int, place: int) -> tuple[str, tuple[int, ...]]:
    """A condition to append, on versions alive at a revision, and its argument, which stands at `place`.

    What is there now is said in the words of the index of current versions.
    """
    if revision == LATEST:
        return " AND m.rev_to = 0", ()
    return ALIVE_AT.replace("$3", f"${place}"), (revision,)


# Keys first, which an index of what is current holds: asked for more, SQLite rather reads all versions that ever were.
_KEYS = f"SELECT m.account, m.user_id, m.uri, m.version{_FROM}"


def _of_keys(keys: str) -> str:
    """Of rows `m` of memories, those that a statement names."""
    return (
        f"FROM ({keys}) k JOIN memories m ON m.account = k.account AND m.user_id = k.user_id AND m.uri = k.uri"
        " AND m.version = k.version"
    )


async def listing(
    tx: Tx, space: Space, root: str, revision: int = LATEST, *, after: str = "", limit: int = 2**31
) -> list[Listed]:
    """What a directory listing needs of the memories below `root` at a revision, by URI: the first `limit` of those
    after `after`, a text that sorts below `root`."""
    alive_then, at = _alive(revision, 6)
    keys = f"{_KEYS} AND m.uri > $3 AND m.uri < $4{alive_then} ORDER BY m.uri LIMIT $5"
    rows = await tx.fetch(
        f"SELECT m.uri, m.memory_type, m.abstract, m.version, m.updated_at, {USES} {_of_keys(keys)} ORDER BY m.uri",
        space.account,
        space.user,
        after or root + "/",
        root + "0",  # "0" is the character after "/"
        limit,
        *at,
    )
    return [Listed(**dict(row)) for row in rows]


async def files(tx: Tx, space: Space, uris: Sequence[str], revision: int = LATEST) -> dict[str, tuple[str, str, str]]:
    """(type, fields, content) of those of the memories that are alive at a revision, by URI."""
    alive_then, at = _alive(revision, 3 + SIZE)
    found: dict[str, tuple[str, str, str]] = {}
    for some in filled(uris):
        rows = await tx.fetch(
            "SELECT m.uri, m.memory_type, m.fields, m.content"
            f" {_of_keys(f'{_KEYS} AND m.uri IN ({places(3)}){alive_then}')}",
            space.account,
            space.user,
            *some,
            *at,
        )
        found |= {row["uri"]: (row["memory_type"], row["fields"], row["content"]) for row in rows}
    return found


async def last_change(tx: Tx, space: Space, root: str, revision: int = LATEST) -> int:
    """When the newest of the memories below `root` that are alive at a revision was changed; 0 for none."""
    alive_then, at = _alive(revision, 5)
    row = await tx.fetchrow(
        "SELECT COALESCE(MAX(m.updated_at), 0) AS changed FROM memories m"
        f" WHERE m.account = $1 AND m.user_id = $2 AND m.uri > $3 AND m.uri < $4{alive_then}",
        space.account,
        space.user,
        root + "/",
        root + "0",
        *at,
    )
    return int(row["changed"]) if row else 0


async def active_counts(tx: Tx, space: Space, uris: Iterable[str]) -> dict[str, int]:
    """How often each of the memories was used, for those that were."""
    counts: dict[str, int] = {}
    for some in filled(uris):
        rows = await tx.fetch(
            f"SELECT uri, uses FROM active_counts WHERE account = $1 AND user_id = $2 AND uri IN ({places(3)})",
            space.account,
            space.user,
            *some,
        )
        counts |= {row["uri"]: row["uses"] for row in rows}
    return counts
