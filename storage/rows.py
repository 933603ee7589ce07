"""Rows as points of the index: what the relay sends, and what a rebuild reads back."""

from schemas.uris import archive_uri
from storage.database import Row, Space, Tx
from storage.index.base import IndexPoint, PointKind
from storage.points import memory_point, passage_point
from storage.records import Passage
from storage.sparse import SparseVector

MEMORY_COLUMNS = (
    "account, user_id, uri, version, memory_type, peer_id, rev_from, dense, dense_model, sparse, updated_at"
)
PASSAGE_COLUMNS = (
    "account, user_id, session_id, sequence, archive_index, task_id, message_id, peer_id, content, dense, dense_model,"
    " sparse, created_at"
)


def _dense(row: Row, model: str) -> bytes | None:
    """A vector of another embedder is as good as none."""
    return bytes(row["dense"]) if row["dense"] is not None and row["dense_model"] == model else None


def memory_index_point(row: Row, model: str) -> IndexPoint:
    space = Space(row["account"], row["user_id"])
    return IndexPoint(
        id=memory_point(space, row["uri"], row["version"]),
        account=space.account,
        user=space.user,
        kind=PointKind.MEMORY,
        uri=row["uri"],
        version=row["version"],
        order=row["rev_from"],
        sparse=SparseVector.from_bytes(bytes(row["sparse"])),
        dense=_dense(row, model),
        memory_type=row["memory_type"],
        peer=row["peer_id"] or None,
        time=row["updated_at"] // 1_000_000,
    )


def passage_index_point(row: Row, model: str) -> IndexPoint:
    passage = Passage(
        row["session_id"],
        row["sequence"],
        row["archive_index"],
        row["message_id"],
        row["peer_id"],
        row["content"],
        row["created_at"],
    )
    space = Space(row["account"], row["user_id"])
    return passage_point_of(space, row["task_id"], passage, _dense(row, model), bytes(row["sparse"]))


def passage_point_of(space: Space, task_id: str, passage: Passage, dense: bytes | None, words: bytes) -> IndexPoint:
    """The point of a passage that the commit `task_id` archived; `words` is its packed sparse vector."""
    return IndexPoint(
        id=passage_point(space, task_id, passage.sequence),
        account=space.account,
        user=space.user,
        kind=PointKind.PASSAGE,
        uri=archive_uri(space.user, passage.session_id, passage.archive_index) + "/messages.jsonl",
        version=1,
        order=passage.sequence,
        sparse=SparseVector.from_bytes(words),
        dense=dense,
        peer=passage.peer_id or None,
        session=passage.session_id,
        sequence=passage.sequence,
        time=passage.created_at // 1_000_000,
    )


async def memory_points(tx: Tx, space: Space, keys: list[tuple[str, int]], model: str) -> list[IndexPoint]:
    """Points of the versions (uri, version) that exist."""
    points = []
    for uri, version in keys:
        row = await tx.fetchrow(
            f"SELECT {MEMORY_COLUMNS} FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3 AND version = $4",
            space.account,
            space.user,
            uri,
            version,
        )
        if row is not None:
            points.append(memory_index_point(row, model))
    return points


async def page_for_rebuild(
    tx: Tx, table: str, after: tuple[str, str, str, int], limit: int, model: str
) -> tuple[list[IndexPoint], tuple[str, str, str, int] | None]:
    """Points of one table of all accounts, in key order, after (account, user, name, number)."""
    if table == "memories":
        rows = await tx.fetch(
            f"SELECT {MEMORY_COLUMNS} FROM memories WHERE (account, user_id, uri, version) > ($1, $2, $3, $4)"
            " AND deleted = 0 AND rev_to = 0 ORDER BY account, user_id, uri, version LIMIT $5",
            *after,
            limit,
        )
        points = [memory_index_point(row, model) for row in rows]
        keys = [(row["account"], row["user_id"], row["uri"], row["version"]) for row in rows]
    else:
        rows = await tx.fetch(
            f"SELECT {PASSAGE_COLUMNS} FROM passages WHERE (account, user_id, session_id, sequence) > ($1, $2, $3, $4)"
            " ORDER BY account, user_id, session_id, sequence LIMIT $5",
            *after,
            limit,
        )
        points = [passage_index_point(row, model) for row in rows]
        keys = [(row["account"], row["user_id"], row["session_id"], row["sequence"]) for row in rows]
    return points, keys[-1] if keys else None


async def forget_other_vectors(tx: Tx, model: str) -> None:
    """Drops vectors of other embedders, over all accounts, so that the relay makes them anew."""
    for table in ("memories", "passages"):
        await tx.execute(
            f"UPDATE {table} SET dense = NULL, dense_model = '' WHERE dense IS NOT NULL AND dense_model <> $1", model
        )
