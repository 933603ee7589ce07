"""Finds and fills rows without a dense vector: they were written while the embedder was down, or before it was
changed."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any, Final

import structlog

from runekeep_schemas.documents.render import index_text
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.indexing import embedder_change, outbox, space_walk
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.outbox import Name
from runekeep_storage.indexing.passages import embedded_text
from runekeep_storage.indexing.rows import (
    FIRST,
    MEMORY_COLUMNS,
    PASSAGE_COLUMNS,
    Key,
    memory_index_point,
    passage_index_point,
    passage_of,
)
from runekeep_storage.indexing.stale_points import again
from runekeep_storage.spaces.statements import without, without_imports

log = structlog.get_logger(__name__)

_BEFORE = (
    "(SELECT b.content FROM passages b WHERE b.account = passages.account AND b.user_id = passages.user_id"
    " AND b.session_id = passages.session_id AND b.sequence = passages.sequence - 1)"
)


@dataclass(frozen=True, slots=True)
class Missing:
    """A row without a vector, and the text to embed."""

    table: str
    row: dict[str, Any]
    text: str

    @property
    def space(self) -> Space:
        return Space(self.row["account"], self.row["user_id"])


DENSE: Final = (
    "dense IS NULL AND (dense_next IS NULL"
    " OR NOT EXISTS (SELECT 1 FROM embedder_changes WHERE slot = 0 AND state = 'finishing'))"
)
"""Rows without a vector by the store's embedder. While a change is being finished, it moves there from `dense_next`."""
NEXT_OF_OLD: Final = "dense_next IS NULL AND dense_next_model = ''"
"""Rows, written before the change began, without a vector of the new embedder."""
NEXT_OF_NEW: Final = "dense_next IS NULL AND dense_next_model <> ''"
"""Rows, written since the change began, without a vector of the new embedder. A partial index covers them."""

_NEXT_SPACES = (
    space_walk.next_space("memories", "dense IS NULL AND deleted = 0 AND rev_to = 0", "uri", "'~'"),
    space_walk.next_space("passages", "dense IS NULL", "session_id", "'~'"),
)


async def waiting_spaces(tx: Tx, after: Name, limit: int, left_out: Collection[str] = ()) -> tuple[list[Space], Name]:
    """Reads the spaces with rows without a vector, including rows of unknown types; see `space_walk.waiting_spaces`."""
    return await space_walk.waiting_spaces(tx, _NEXT_SPACES, after, limit, left_out)


_NEXT_SPACES_OF_NEW = (
    space_walk.next_space("memories", f"{NEXT_OF_NEW} AND deleted = 0 AND rev_to = 0", "uri", "'~'"),
    space_walk.next_space("passages", NEXT_OF_NEW, "session_id", "'~'"),
)


async def waiting_for_next(tx: Tx, after: Name, limit: int, left_out: Collection[str] = ()) -> tuple[list[Space], Name]:
    """Reads the spaces with rows, written since the embedder is being changed, without a vector by the new one."""
    return await space_walk.waiting_spaces(tx, _NEXT_SPACES_OF_NEW, after, limit, left_out)


def known_types(registry: Registry) -> str:
    """Returns the names of the memory types that get vectors, in the form that `of_known_type` takes."""
    return f",{','.join(type.name for type in (*registry, SESSION_SKILLS))},"


def of_known_type(place: int) -> str:
    """Returns a condition to append: memories of one of the `known_types`, given as the parameter at `place`."""
    return f" AND ${place} LIKE '%,' || memory_type || ',%'"


Position = tuple[Key, Key]
"""The last memory and the last passage of a walk over the rows of a space."""
START: Final[Position] = (FIRST, FIRST)


async def missing(
    tx: Tx, space: Space, registry: Registry, limit: int, lacking: str = DENSE, after: Position = START
) -> list[Missing]:
    """Returns rows of the space without a vector, memories first; none while an import fills the space. Rows of types
    that are no longer known stay without one. `lacking`: one of the conditions above; `after`: leaves out rows up to
    this position."""
    types = {type.name: type for type in (*registry, SESSION_SKILLS)}
    rows = await tx.fetch(
        f"SELECT {MEMORY_COLUMNS}, fields FROM memories WHERE account = $1 AND user_id = $2 AND {lacking}"
        f" AND deleted = 0 AND rev_to = 0{of_known_type(3)}{without_imports('memories')}{_AFTER_MEMORY[lacking]}"
        " LIMIT $4",
        space.account,
        space.user,
        known_types(registry),
        limit,
        *(after[0] if lacking == NEXT_OF_OLD else ()),
    )
    found = []
    for row in rows:
        text = index_text(types[row["memory_type"]], json.loads(row["fields"]), row["uri"])
        found.append(Missing("memories", dict(row), text))
    if len(found) < limit:
        rows = await tx.fetch(
            f"SELECT {PASSAGE_COLUMNS}, {_BEFORE} AS before FROM passages WHERE account = $1 AND user_id = $2"
            f" AND {lacking}{without('passages')}{without_imports('passages')}{_AFTER_PASSAGE[lacking]}"
            " ORDER BY session_id, sequence LIMIT $3",
            space.account,
            space.user,
            limit - len(found),
            *(after[1] if lacking == NEXT_OF_OLD else ()),
        )
        for row in rows:
            passage = passage_of(row)
            lead = replace(passage, content=row["before"] or "").words
            found.append(Missing("passages", dict(row), embedded_text(passage, lead)))
    return found


# No partial index covers NEXT_OF_OLD, so its rows are read in the order of the primary key, from `after` on.
_AFTER_MEMORY: Final = {DENSE: "", NEXT_OF_OLD: " AND (uri, version) > ($5, $6) ORDER BY uri, version", NEXT_OF_NEW: ""}
_AFTER_PASSAGE: Final = {DENSE: "", NEXT_OF_OLD: " AND (session_id, sequence) > ($4, $5)", NEXT_OF_NEW: ""}


MAX_VECTORS: Final = 32
"""Maximum number of rows of a space that get vectors in one transaction."""


async def write_vectors(
    database: SpaceDatabase, filled: Iterable[tuple[Missing, bytes]], model: str, *, is_next: bool = False
) -> int:
    """Writes vectors with `fill`, and returns how many rows it wrote them for. The failure of one space does not stop
    the others: its rows are read again."""
    written = 0
    for space, of_space in groupby(filled, lambda one: one[0].space):
        while some := list(islice(of_space, MAX_VECTORS)):
            try:
                await database.write(fill, space, some, model, is_next=is_next)
            except StoreUnavailable as error:
                log.warning("backfill_waits", account=space.account, user=space.user, error=str(error))
            except Exception:
                # Whatever is wrong with the rows of one space, the others must get their vectors.
                log.exception("backfill_failed", account=space.account, user=space.user)
            else:
                written += len(some)
    return written


async def fill(
    tx: Tx, space: Space, filled: Sequence[tuple[Missing, bytes]], model: str, *, is_next: bool = False
) -> None:
    """Writes vectors to rows of one space, and queues the points of current rows to be sent to the index again.
    `is_next`: the vectors are of the new embedder of an open change.

    Skips rows that already have a vector, for example from another server, and passages whose own text or lead has
    changed: an erased message must not be part of a vector. Writes nothing if a change of the embedder has made the
    vectors useless meanwhile.
    """
    columns = await embedder_change.columns(tx)
    if (model != columns.other) if is_next else (model in columns):
        return
    column = "dense_next" if is_next else "dense"
    sent_again = []
    for missing, dense in filled:
        row = missing.row
        if missing.table == "memories":
            there = await tx.fetchrow(
                f"UPDATE memories SET {column} = $5, {column}_model = $6"
                " WHERE account = $1 AND user_id = $2 AND uri = $3 AND version = $4 AND rev_from = $7"
                f" AND {column} IS NULL"
                " RETURNING rev_to AS gone",
                space.account, space.user, row["uri"], row["version"], dense, model, row["rev_from"],
            )  # fmt: skip
            point = memory_index_point(row, Models(model))
        else:
            there = await tx.fetchrow(
                f"UPDATE passages SET {column} = $5, {column}_model = $6"
                " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence = $4 AND task_id = $7"
                f" AND {column} IS NULL"
                f" AND COALESCE({_BEFORE}, '') = $8 AND content = $9 RETURNING 0 AS gone",
                space.account, space.user, row["session_id"], row["sequence"], dense, model, row["task_id"],
                row["before"] or "", row["content"],
            )  # fmt: skip
            point = passage_index_point(row, Models(model))
        if there is not None and not there["gone"]:
            sent_again.append(again(point))
    if sent_again:
        await outbox.add(tx, space, 0, sent_again)
