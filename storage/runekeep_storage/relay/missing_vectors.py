"""Finds and fills rows without a dense vector: they were written while the embedder was down, or before it was
changed."""

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any, Final

import structlog

from runekeep_schemas.documents.render import index_text
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.indexing import embedder_change, outbox, space_walk, statements
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.outbox import Name
from runekeep_storage.indexing.passages import embedded_text
from runekeep_storage.indexing.rows import (
    FIRST,
    Key,
    memory_index_point,
    passage_index_point,
    passage_of,
)
from runekeep_storage.indexing.stale_points import again
from runekeep_storage.indexing.statements import DENSE, NEXT_OF_OLD

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Missing:
    """A row without a vector, and the text to embed."""

    table: str
    row: dict[str, Any]
    text: str

    @property
    def space(self) -> Space:
        return Space(self.row["account"], self.row["user_id"])


_NEXT_SPACES = (statements.NEXT_SPACE_OF_MEMORIES, statements.NEXT_SPACE_OF_PASSAGES)
_NEXT_SPACES_OF_NEW = (statements.NEXT_SPACE_OF_NEW_MEMORIES, statements.NEXT_SPACE_OF_NEW_PASSAGES)


async def waiting_spaces(tx: Tx, after: Name, limit: int, left_out: Collection[str] = ()) -> tuple[list[Space], Name]:
    """Reads the spaces with rows without a vector, including rows of unknown types; see `space_walk.waiting_spaces`."""
    return await space_walk.waiting_spaces(tx, _NEXT_SPACES, after, limit, left_out)


async def waiting_for_next(tx: Tx, after: Name, limit: int, left_out: Collection[str] = ()) -> tuple[list[Space], Name]:
    """Reads the spaces with rows, written since the embedder is being changed, without a vector by the new one."""
    return await space_walk.waiting_spaces(tx, _NEXT_SPACES_OF_NEW, after, limit, left_out)


def known_types(registry: Registry) -> str:
    """Returns the names of the memory types that get vectors, in the form that statements take."""
    return f",{','.join(type.name for type in (*registry, SESSION_SKILLS))},"


Position = tuple[Key, Key]
"""The last memory and the last passage of a walk over the rows of a space."""
START: Final[Position] = (FIRST, FIRST)


async def missing(
    tx: Tx, space: Space, registry: Registry, limit: int, lacking: str = DENSE, after: Position = START
) -> list[Missing]:
    """Returns rows of the space without a vector, memories first; none while an import fills the space. Rows of types
    that are no longer known stay without one. `lacking`: DENSE, NEXT_OF_OLD or NEXT_OF_NEW; `after`: leaves out rows up
    to this position."""
    types = {type.name: type for type in (*registry, SESSION_SKILLS)}
    rows = await tx.fetch(
        statements.memories_lacking(lacking),
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
            statements.passages_lacking(lacking),
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


MAX_VECTORS: Final = 32
"""Maximum number of rows of a space that get vectors in one transaction."""


async def write_vectors(
    database: SpaceDatabase,
    filled: Iterable[tuple[Missing, bytes]],
    model: str,
    *,
    is_next: bool = False,
    fill_with: Callable[..., Awaitable[int]] | None = None,
) -> int:
    """Writes vectors with `fill`, or with `fill_with`, and returns how many rows it wrote them for. The failure of one
    space does not stop the others: its rows are read again."""
    written = 0
    for space, of_space in groupby(filled, lambda one: one[0].space):
        while some := list(islice(of_space, MAX_VECTORS)):
            try:
                if fill_with is None:
                    await database.write(fill, space, some, model, is_next=is_next)
                    written += len(some)
                else:
                    written += await database.write(fill_with, space, some, model)
            except StoreUnavailable as error:
                log.warning("backfill_waits", account=space.account, user=space.user, error=str(error))
            except Exception:
                # Whatever is wrong with the rows of one space, the others must get their vectors.
                log.exception("backfill_failed", account=space.account, user=space.user)
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
    sent_again = []
    for missing, dense in filled:
        row = missing.row
        if missing.table == "memories":
            there = await tx.fetchrow(
                statements.fill_memory(is_next),
                space.account, space.user, row["uri"], row["version"], dense, model, row["rev_from"],
            )  # fmt: skip
            point = memory_index_point(row, Models(model))
        else:
            there = await tx.fetchrow(
                statements.fill_passage(is_next),
                space.account, space.user, row["session_id"], row["sequence"], dense, model, row["task_id"],
                row["before"] or "", row["content"],
            )  # fmt: skip
            point = passage_index_point(row, Models(model))
        if there is not None and not there["gone"]:
            sent_again.append(again(point))
    if sent_again:
        await outbox.add(tx, space, 0, sent_again)
