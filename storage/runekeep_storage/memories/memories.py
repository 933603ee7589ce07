"""Reads memories: immutable versions, seen at a revision of their space."""

from collections.abc import Iterable, Sequence

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.byte_limits import count_within
from runekeep_storage.drivers.common.statement_lists import filled, in_rows
from runekeep_storage.errors import NotFound
from runekeep_storage.indexing.rows import vector_of
from runekeep_storage.memories import statements
from runekeep_storage.records import Listed, Memory

LATEST = 2**62
"""Stands for the newest revision."""


def memory(row: Row) -> Memory:
    columns = dict(row)
    columns["deleted"] = bool(columns["deleted"])
    return Memory(**columns)


async def get(tx: Tx, space: Space, uri: str, *, version: int = 0, revision: int = LATEST) -> Memory:
    """Returns version `version` if it is not 0, else the version alive at `revision`. Raises NotFound."""
    if version:
        row = await tx.fetchrow(statements.VERSION, space.account, space.user, uri, version)
    else:
        row = await tx.fetchrow(statements.VERSION_ALIVE, space.account, space.user, revision, uri)
    if row is None:
        raise NotFound("memory", f"{uri} (version {version})" if version else uri)
    return memory(row)


async def with_newest_version(tx: Tx, space: Space, uri: str, revision: int = LATEST) -> tuple[Memory | None, int]:
    """Returns the version alive at `revision`, if any, and the result of `newest_version`."""
    row = await tx.fetchrow(statements.VERSION_ALIVE_AND_NEWEST, space.account, space.user, revision, uri)
    assert row is not None
    columns = dict(row)
    newest = columns.pop("newest")
    return memory(columns) if columns["uri"] is not None else None, newest


async def current_with_newest_versions(
    tx: Tx, space: Space, uris: Iterable[str]
) -> dict[str, tuple[Memory | None, int]]:
    """Returns for each URI what `with_newest_version` returns, by few statements."""
    versions: dict[str, Row] = {}
    for some in in_rows(list(dict.fromkeys(uris))):
        rows = await tx.fetch(statements.versions_of(len(some)), space.account, space.user, *some)
        versions |= {row["uri"]: row for row in rows}
    keys = [(uri, row["version"]) for uri, row in versions.items() if row["version"] is not None]
    current = await alive(tx, space, keys, LATEST, statements.COLUMNS)
    return {uri: (current.get((uri, row["version"])), row["newest"] or 0) for uri, row in versions.items()}


async def newest_version(tx: Tx, space: Space, uri: str) -> int:
    """Returns the highest version ever given to the URI, deletes included; 0 if there is none."""
    row = await tx.fetchrow(statements.NEWEST_VERSION, space.account, space.user, uri)
    return row["version"] if row else 0


async def versions_page(
    tx: Tx, space: Space, uri: str, below: int, limit: int, most_bytes: int
) -> tuple[list[Memory], bool]:
    """Returns versions below `below`, newest first, and whether more follow. Returns at most `limit` versions and about
    `most_bytes`, but at least one; a delete is a version too. Reads only the returned versions. Raises NotFound."""
    rows = await tx.fetch(statements.SIZES_OF_VERSIONS, space.account, space.user, uri, below, limit + 1)
    if not rows and below == LATEST:
        raise NotFound("memory", uri)
    count = count_within([row["size"] for row in rows[:limit]], most_bytes)
    if not count:
        return [], False
    found = await tx.fetch(statements.VERSIONS, space.account, space.user, uri, below, rows[count - 1]["version"])
    return [memory(row) for row in found], count < len(rows)


Key = tuple[str, int]
"""URI and version."""


async def alive(
    tx: Tx, space: Space, keys: Sequence[Key], revision: int, columns: str = statements.COLUMNS
) -> dict[Key, Memory]:
    """Returns the given versions that are alive at `revision`. `columns` must cover all fields of a Memory."""
    rows = await rows_alive(tx, space, keys, revision, columns)
    return {key: memory(row) for key, row in rows.items()}


async def content_bytes(tx: Tx, space: Space, keys: Sequence[Key], revision: int) -> dict[Key, int]:
    """Returns the size in bytes of the content of each given version that is alive at `revision`."""
    rows = await rows_alive(tx, space, keys, revision, "m.uri, m.version, octet_length(m.content) AS size")
    return {key: row["size"] for key, row in rows.items()}


async def line_vectors(tx: Tx, space: Space, keys: Sequence[Key], revision: int) -> dict[Key, Row]:
    """Returns the columns `line_vectors` and `line_vectors_model` of each given version that is alive at `revision`."""
    return await rows_alive(tx, space, keys, revision, "m.uri, m.version, m.line_vectors, m.line_vectors_model")


async def current_bytes(tx: Tx, space: Space, uris: Iterable[str]) -> int:
    """Returns the approximate total size in bytes of the current memories at these URIs."""
    total = 0
    for some in filled(uris):
        row = await tx.fetchrow(statements.BYTES_OF_CURRENT, space.account, space.user, *some)
        total += int(row["size"]) if row else 0
    return total


async def rows_alive(tx: Tx, space: Space, keys: Sequence[Key], revision: int, columns: str) -> dict[Key, Row]:
    """Returns the given versions that are alive at `revision`. `columns` must include the key."""
    found: dict[Key, Row] = {}
    for some in filled(keys):
        # Two separate lists let the engine use the whole key. Combinations that were not asked for are filtered out
        # below.
        rows = await tx.fetch(
            statements.versions_alive(columns),
            space.account,
            space.user,
            revision,
            *(uri for uri, _ in some),
            *(version for _, version in some),
        )
        found |= {(row["uri"], row["version"]): row for row in rows if (row["uri"], row["version"]) in some}
    return found


async def beside_index(
    tx: Tx, space: Space, indexed: int, revision: int, limit: int, model: str
) -> list[tuple[Memory, bytes | None, bytes | None]]:
    """Returns up to `limit` versions alive at `revision` that an index at revision `indexed` (-1: an empty index) may
    lack, each with its dense vector of `model`, if it has one, and its sparse vector, but without its texts.

    If `revision` is ahead of the index, these are versions made after `indexed`, some of which may be superseded by
    now. If it is behind, these are versions superseded up to `indexed`. Reads what was written between the two
    revisions and later, not the whole space.
    """
    made_after, gone_by = (indexed, LATEST) if indexed < revision else (-1, indexed)
    rows = await tx.fetch(statements.CURRENT_BESIDE_INDEX, space.account, space.user, revision, indexed, limit)
    rows += await tx.fetch(
        statements.ENDED_BESIDE_INDEX,
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
        for name in ("dense", "dense_model", "dense_next", "dense_next_model"):
            del columns[name]
        dense, sparse = vector_of(row, model), columns.pop("sparse")
        columns["deleted"] = bool(columns["deleted"])
        found.append((Memory(**columns), dense, sparse))
    return found


def _at(revision: int) -> tuple[int, ...]:
    """Returns the parameter for a revision; none for the newest."""
    return () if revision == LATEST else (revision,)


async def listing(
    tx: Tx, space: Space, root: str, revision: int = LATEST, *, after: str = "", limit: int = 2**31
) -> list[Listed]:
    """Returns directory entries for the memories below `root` at a revision, by URI: the first `limit` after `after`,
    which must sort below `root`."""
    rows = await tx.fetch(
        statements.listing(revision == LATEST),
        space.account,
        space.user,
        after or root + "/",
        root + "0",  # "0" is the character after "/"
        limit,
        *_at(revision),
    )
    return [Listed(**dict(row)) for row in rows]


async def files(tx: Tx, space: Space, uris: Sequence[str], revision: int = LATEST) -> dict[str, tuple[str, str, str]]:
    """Returns (type, fields, content) of the given memories that are alive at a revision, by URI."""
    found: dict[str, tuple[str, str, str]] = {}
    for some in filled(uris):
        rows = await tx.fetch(statements.files(revision == LATEST), space.account, space.user, *some, *_at(revision))
        found |= {row["uri"]: (row["memory_type"], row["fields"], row["content"]) for row in rows}
    return found


async def existing(tx: Tx, space: Space, uris: Sequence[str]) -> set[str]:
    """Returns which of the memories exist now."""
    found: set[str] = set()
    for some in filled(uris):
        found.update(row["uri"] for row in await tx.fetch(statements.EXISTING, space.account, space.user, *some))
    return found


async def last_change(tx: Tx, space: Space, root: str, revision: int = LATEST) -> int:
    """Returns when a memory below `root` was last changed, among those alive at a revision, in microseconds since 1970;
    0 if there is none."""
    row = await tx.fetchrow(
        statements.last_change(revision == LATEST),
        space.account,
        space.user,
        root + "/",
        root + "0",
        *_at(revision),
    )
    return int(row["changed"]) if row else 0


async def active_counts(tx: Tx, space: Space, uris: Iterable[str]) -> dict[str, int]:
    """Returns the use count of each memory by URI; unused memories are left out."""
    counts: dict[str, int] = {}
    for some in filled(uris):
        rows = await tx.fetch(statements.ACTIVE_COUNTS, space.account, space.user, *some)
        counts |= {row["uri"]: row["uses"] for row in rows}
    return counts
