"""Converts rows to index points: for the relay, and to write a space anew or to compare it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from runekeep_schemas.documents.uris import archive_uri
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.statement_lists import in_rows
from runekeep_storage.index.base import IndexPoint, PointKind
from runekeep_storage.index.sparse import SparseVector
from runekeep_storage.indexing import facts, statements
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.points import memory_point, passage_point
from runekeep_storage.records import Passage
from runekeep_storage.tables import BY_NAME

Table = Literal["memories", "passages"]
TABLES: tuple[Table, ...] = ("memories", "passages")
Key = tuple[str, int]
"""The key of a row in its space and table: (uri, version) or (session id, sequence)."""
FIRST: Key = ("", 0)


def vector_of(row: Row, model: str) -> bytes | None:
    """Returns the row's vector of a model, if it has one."""
    for column in ("dense", "dense_next"):
        if model and row[column] is not None and row[f"{column}_model"] == model:
            return bytes(row[column])
    return None


def _other(row: Row, models: Models) -> tuple[str, bytes] | None:
    vector = vector_of(row, models.other)
    return None if vector is None else (models.other, vector)


def memory_index_point(row: Row, models: Models) -> IndexPoint:
    space = Space(row["account"], row["user_id"])
    return IndexPoint(
        id=memory_point(space, row["uri"], row["rev_from"]),
        account=space.account,
        user=space.user,
        kind=PointKind.MEMORY,
        uri=row["uri"],
        version=row["version"],
        order=row["rev_from"],
        sparse=SparseVector.from_bytes(bytes(row["sparse"])),
        dense=vector_of(row, models.main),
        model=models.main,
        other=_other(row, models),
        memory_type=row["memory_type"],
        peer=row["peer_id"] or None,
        sources=tuple(dict.fromkeys(source["session"] for source in json.loads(row["sources"]))),
        time=(row["updated_at"] if row["happened_at"] is None else row["happened_at"]) // 1_000_000,
        tags=tuple(json.loads(row["tags"])),
        fact=facts.MEMORY,
    )


def passage_of(row: Row) -> Passage:
    return Passage(
        row["session_id"],
        row["sequence"],
        row["archive_index"],
        row["message_id"],
        row["peer_id"],
        row["content"],
        row["created_at"],
    )


def passage_index_point(row: Row, models: Models) -> IndexPoint:
    space = Space(row["account"], row["user_id"])
    dense = vector_of(row, models.main)
    point = passage_point_of(space, row["task_id"], passage_of(row), dense, bytes(row["sparse"]), models.main)
    return replace(point, other=_other(row, models))


def passage_point_of(
    space: Space, task_id: str, passage: Passage, dense: bytes | None, words: bytes, model: str
) -> IndexPoint:
    """Returns the point of a passage that the commit `task_id` archived; `words` is its packed sparse vector, `dense` a
    vector of `model`."""
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
        model=model,
        peer=passage.peer_id or None,
        session=passage.session_id,
        sequence=passage.sequence,
        sources=(passage.session_id,),
        time=passage.created_at // 1_000_000,
        fact=facts.fact_score(passage.words),
    )


async def memory_points(tx: Tx, space: Space, keys: Sequence[Key], models: Models) -> list[IndexPoint]:
    """Returns points of the versions (uri, version) that exist."""
    found = await by_keys(tx, space, "memories", statements.MEMORY_COLUMNS, keys)
    return [memory_index_point(found[key], models) for key in keys if key in found]


async def passage_points(tx: Tx, space: Space, keys: Sequence[Key], models: Models) -> list[IndexPoint]:
    """Returns points of the passages (session id, sequence) that exist."""
    found = await by_keys(tx, space, "passages", statements.PASSAGE_COLUMNS, keys)
    return [passage_index_point(found[key], models) for key in keys if key in found]


async def by_keys(tx: Tx, space: Space, table: Table, columns: str, keys: Sequence[Key]) -> dict[Key, Row]:
    """Returns the existing rows by key, without passages of deleted sessions. `columns` must include the key."""
    first, second = BY_NAME[table].key
    found: dict[Key, Row] = {}
    for some in in_rows(list(dict.fromkeys(keys))):
        rows = await tx.fetch(
            statements.rows_at(BY_NAME[table], columns, len(some)),
            space.account,
            space.user,
            *(value for key in some for value in key),
        )
        found |= {(row[first], row[second]): row for row in rows}
    return found


async def page(
    tx: Tx, space: Space, table: Table, revision: int, after: Key, limit: int, models: Models
) -> tuple[list[IndexPoint], Key | None]:
    """Returns points of the space's rows at a revision, in key order, and the key of the last row; None after the last
    page. Passages have no revision: the current ones are returned."""
    if table == "memories":
        rows = await tx.fetch(statements.MEMORIES_AT_REVISION, space.account, space.user, *after, revision, limit)
        points = [memory_index_point(row, models) for row in rows]
        return points, (rows[-1]["uri"], rows[-1]["version"]) if rows else None
    rows = await tx.fetch(statements.PASSAGES, space.account, space.user, *after, limit)
    points = [passage_index_point(row, models) for row in rows]
    return points, (rows[-1]["session_id"], rows[-1]["sequence"]) if rows else None


@dataclass(frozen=True, slots=True)
class Named:
    """A row that must have a point. `since`: the revision that made the memory, or the task that archived the
    passage."""

    key: Key
    point_id: str
    since: int | str


async def names(tx: Tx, space: Space, table: Table, after: Key, limit: int) -> list[Named]:
    """Returns rows that must have a point, in key order: current memories, or passages."""
    if table == "memories":
        rows = await tx.fetch(statements.CURRENT_MEMORY_KEYS, space.account, space.user, *after, limit)
        return [
            Named((row["uri"], row["version"]), memory_point(space, row["uri"], row["rev_from"]), row["rev_from"])
            for row in rows
        ]
    rows = await tx.fetch(statements.PASSAGE_KEYS, space.account, space.user, *after, limit)
    return [
        Named(
            (row["session_id"], row["sequence"]), passage_point(space, row["task_id"], row["sequence"]), row["task_id"]
        )
        for row in rows
    ]


async def with_other_vectors(
    tx: Tx, space: Space, table: Table, after: Key, limit: int, model: str
) -> tuple[Key | None, bool]:
    """Examines the next `limit` rows in key order, of any revision. Returns the key of the last, None after the last
    page, and whether any has a vector of another embedder."""
    first, second = BY_NAME[table].key
    rows = await tx.fetch(
        statements.with_other_vectors(BY_NAME[table]), space.account, space.user, model, *after, limit
    )
    if not rows:
        return None, False
    return (rows[-1][first], rows[-1][second]), any(row["other"] for row in rows)


async def forget_other_vectors(tx: Tx, space: Space, table: Table, after: Key, last: Key, model: str) -> int:
    """Drops vectors of other embedders after `after` and up to `last`, so that the relay makes new ones. Returns how
    many."""
    statement = statements.forget_other_vectors(BY_NAME[table])
    return await tx.execute(statement, space.account, space.user, model, *after, *last)
