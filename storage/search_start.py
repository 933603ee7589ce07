"""Reads the state in which a search begins: how far the index is in its space, and what waits there."""

from dataclasses import dataclass

from storage import search_backlog, watermarks
from storage.database import Space, Tx
from storage.search_backlog import Backlog
from storage.watermarks import Standing


@dataclass(frozen=True, slots=True)
class SearchStart:
    """How far the index was when a search began, what of the space waited for it, and the store's time at that
    moment."""

    index_id: str
    at: int
    standing: Standing
    backlog: Backlog


_START = (
    "SELECT i.index_id AS of_store, s.revision, s.indexed_revision, s.index_id, b.*"
    f" FROM ({search_backlog.BACKLOG}) b LEFT JOIN search_index i ON i.slot = 0"
    " LEFT JOIN spaces s ON s.account = $1 AND s.user_id = $2"
)


async def read(tx: Tx, space: Space, index_id: str, known_types: str) -> SearchStart:
    """Reads `watermarks.standing` and `search_backlog.of_space` in one query, because on PostgreSQL the search waits
    for each query. Raises IndexUnavailable, see `watermarks.confirm`."""
    at = tx.now()
    row = await tx.fetchrow(_START, space.account, space.user, known_types)
    if row is None or row["of_store"] != index_id:
        await watermarks.confirm(tx, index_id)
    assert row is not None, "a sum is there whatever it is of"
    standing = Standing(0, 0)
    if row["revision"] is not None:
        standing = Standing(row["revision"], row["indexed_revision"] if row["index_id"] in ("", index_id) else -1)
    return SearchStart(index_id, at, standing, search_backlog.of_row(row, at))
