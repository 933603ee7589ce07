"""Rows whose dense vector is missing, because the embedder was down when they were written."""

import json
from dataclasses import dataclass
from typing import Any

from schemas.registry import Registry
from schemas.render import index_text
from schemas.session_skills import SESSION_SKILLS
from storage import outbox
from storage.database import Space, Tx
from storage.index.base import IndexPoint
from storage.rows import MEMORY_COLUMNS, PASSAGE_COLUMNS, memory_index_point, passage_index_point


@dataclass(frozen=True, slots=True)
class Missing:
    """A row that waits for its vector, and the text that the vector is of."""

    table: str
    row: dict[str, Any]
    text: str


async def missing(tx: Tx, registry: Registry, limit: int) -> list[Missing]:
    """Rows without a vector, memories first, over all accounts. Those of types that are not known any more stay so."""
    types = {type.name: type for type in (*registry, SESSION_SKILLS)}
    rows = await tx.fetch(
        f"SELECT {MEMORY_COLUMNS}, fields FROM memories WHERE dense IS NULL AND deleted = 0 AND rev_to = 0"
        " AND $2 LIKE '%,' || memory_type || ',%' LIMIT $1",
        limit,
        f",{','.join(types)},",
    )
    found = []
    for row in rows:
        text = index_text(types[row["memory_type"]], json.loads(row["fields"]), row["uri"])
        found.append(Missing("memories", dict(row), text))
    if len(found) < limit:
        rows = await tx.fetch(
            f"SELECT {PASSAGE_COLUMNS} FROM passages WHERE dense IS NULL LIMIT $1", limit - len(found)
        )
        found += [Missing("passages", dict(row), row["content"]) for row in rows]
    return found


def point(missing: Missing, dense: bytes, model: str) -> IndexPoint:
    """The row's point, now with its vector; it goes to the index before the row says that it has one."""
    row = {**missing.row, "dense": dense, "dense_model": model}
    return memory_index_point(row, model) if missing.table == "memories" else passage_index_point(row, model)


async def fill(tx: Tx, filled: list[tuple[Missing, bytes]], model: str) -> None:
    """Writes vectors to their rows. The point of a row that went meanwhile may have come back; it is put out again."""
    for missing, dense in filled:
        row = missing.row
        if missing.table == "memories":
            there = await tx.fetchrow(
                "UPDATE memories SET dense = $5, dense_model = $6"
                " WHERE account = $1 AND user_id = $2 AND uri = $3 AND version = $4 RETURNING rev_to AS gone",
                row["account"], row["user_id"], row["uri"], row["version"], dense, model,
            )  # fmt: skip
        else:
            there = await tx.fetchrow(
                "UPDATE passages SET dense = $5, dense_model = $6"
                " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence = $4 AND task_id = $7"
                " RETURNING 0 AS gone",
                row["account"], row["user_id"], row["session_id"], row["sequence"], dense, model, row["task_id"],
            )  # fmt: skip
        if there is None or there["gone"]:
            space = Space(row["account"], row["user_id"])
            gone = point(missing, dense, model).id
            # After the grace, and not before the watermark has passed what superseded it.
            due_at = tx.now() + outbox.GRACE
            revision = there["gone"] if there is not None else 0
            await outbox.add(tx, space, revision, [outbox.Entry("delete", point_id=gone, due_at=due_at)])
