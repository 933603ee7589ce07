"""Reads the state in which a search begins: the progress of the index and the backlog in its space."""

from dataclasses import dataclass

from runekeep_storage.database import Space, Tx
from runekeep_storage.index.base import SPARSE_ONLY
from runekeep_storage.indexing import outbox
from runekeep_storage.search import backlog as search_backlog
from runekeep_storage.search import statements
from runekeep_storage.search.backlog import Backlog
from runekeep_storage.search.requests import SearchUnanswerable
from runekeep_storage.spaces import watermarks
from runekeep_storage.spaces.watermarks import IndexProgress

SNAPSHOT_TTL_US = outbox.GRACE // 2
"""Maximum time in microseconds from reading the watermark to the last answer of the index. Within it every version of
that watermark is still in the index. It is half of the grace, because the grace starts when the transaction that moves
the watermark begins, which may have been under way at the read."""


@dataclass(frozen=True, slots=True)
class SearchStart:
    """The progress of the index and the backlog of the space when a search began, and the store's time at that
    moment."""

    index_id: str
    at: int
    standing: IndexProgress
    backlog: Backlog
    model: str | None = None
    """While the embedder is being changed, the model that the space is searched by, empty for none; else None."""


async def read(tx: Tx, space: Space, index_id: str, known_types: str) -> SearchStart:
    """Reads `watermarks.standing` and `search_backlog.of_space` in one query, because on PostgreSQL the search waits
    for each query. Raises IndexUnavailable, see `watermarks.confirm`."""
    at = tx.now()
    row = await tx.fetchrow(statements.SEARCH_START, space.account, space.user, known_types)
    if row is None or row["of_store"] != index_id:
        await watermarks.confirm(tx, index_id)
    assert row is not None, "a sum is there whatever it is of"
    standing = IndexProgress(0, 0)
    if row["revision"] is not None:
        standing = IndexProgress(row["revision"], row["indexed_revision"] if row["index_id"] in ("", index_id) else -1)
    return SearchStart(index_id, at, standing, search_backlog.of_row(row, at), _model(row["model"]))


def _model(stored: str | None) -> str | None:
    return "" if stored == SPARSE_ONLY.model else stored


async def check_grace(tx: Tx, space: Space, start: SearchStart) -> None:
    """Raises SearchUnanswerable if versions of the search's watermark may have left the index."""
    if tx.now() - start.at <= SNAPSHOT_TTL_US:
        return
    if (await watermarks.standing(tx, space, start.index_id)).indexed != start.standing.indexed:
        raise SearchUnanswerable("The search took so long that the index went on meanwhile")
