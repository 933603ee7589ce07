"""Rewrites passages whose images were described after the passages were made. The commit that brings a description also
adds it to the passage of that message."""

from collections.abc import Sequence
from dataclasses import dataclass

from runekeep_storage.database import Space, Tx
from runekeep_storage.index import sparse
from runekeep_storage.indexing import outbox
from runekeep_storage.indexing.embedder_change import NEXT_MODEL
from runekeep_storage.indexing.passages import text_of
from runekeep_storage.indexing.points import passage_point
from runekeep_storage.records import Message

_MADE = "WHERE account = $1 AND user_id = $2 AND session_id = $3 AND task_id = $4"


# The name of the model for `dense_next` stays: the row waits for that vector too.
_WITHOUT_VECTORS = "dense = NULL, dense_model = '', dense_next = NULL"


@dataclass(frozen=True, slots=True)
class Captioned:
    """The new text of a message's passage, and its packed sparse vector."""

    sequence: int
    content: str
    sparse: bytes


def passages_of(messages: Sequence[Message], *, withhold_secrets: bool = False) -> list[Captioned]:
    """Returns the passages of messages whose images have captions. CPU-heavy, see `sparse`."""
    texts = [(message.sequence, text_of(message, withhold_secrets=withhold_secrets)) for message in messages]
    return [Captioned(sequence, text, sparse.encode_document(text).to_bytes()) for sequence, text in texts]


async def rewrite(
    tx: Tx, space: Space, session_id: str, archive_index: int, task_id: str, revision: int, found: Sequence[Captioned]
) -> None:
    """Rewrites passages of messages that the commit `task_id` archived, and queues their points at `revision`, so that
    a reader who waits for that revision finds them by their words. Vectors follow, see
    `runekeep_storage.indexing.backfill`.

    Skips passages that the relay has not made yet: it makes them with the captions.
    """
    made_up_to = await _made_up_to(tx, space, session_id, archive_index, task_id) if found else 0
    entries = []
    for one in found:
        if one.sequence <= made_up_to and await _write(tx, space, session_id, archive_index, task_id, one):
            point = passage_point(space, task_id, one.sequence)
            entries.append(outbox.Entry("passage", uri=session_id, version=one.sequence, point_id=point))
    if entries:
        await outbox.add(tx, space, revision, entries)


async def _made_up_to(tx: Tx, space: Space, session_id: str, archive_index: int, task_id: str) -> int:
    """Returns the sequence up to which the archive's passages are made; 0 if there are none."""
    row = await tx.fetchrow(
        "SELECT CASE WHEN a.passages_indexed = 1 THEN a.last_sequence ELSE COALESCE((SELECT MAX(p.sequence)"
        " FROM passages p WHERE p.account = $1 AND p.user_id = $2 AND p.session_id = $3"
        " AND p.sequence >= a.first_sequence AND p.sequence <= a.last_sequence), 0) END AS made"
        " FROM archives a WHERE a.account = $1 AND a.user_id = $2 AND a.session_id = $3 AND a.archive_index = $5"
        " AND a.task_id = $4",
        space.account,
        space.user,
        session_id,
        task_id,
        archive_index,
    )
    return int(row["made"]) if row else 0


async def _write(tx: Tx, space: Space, session_id: str, archive_index: int, task_id: str, one: Captioned) -> bool:
    """Returns whether the passage exists now. A message without words had none; an erased message gets none."""
    changed = await tx.execute(
        f"UPDATE passages SET content = $6, sparse = $7, {_WITHOUT_VECTORS} {_MADE} AND sequence = $5",
        space.account,
        space.user,
        session_id,
        task_id,
        one.sequence,
        one.content,
        one.sparse,
    )
    if not changed:
        message = await tx.fetchrow(
            "SELECT message_id, peer_id, created_at FROM messages"
            " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence = $4 AND erased = 0",
            space.account,
            space.user,
            session_id,
            one.sequence,
        )
        if message is None:
            return False
        await tx.execute(
            "INSERT INTO passages (account, user_id, session_id, task_id, sequence, archive_index, message_id, peer_id,"
            " content, sparse, created_at, dense_next_model)"
            f" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, {NEXT_MODEL})",
            space.account,
            space.user,
            session_id,
            task_id,
            one.sequence,
            archive_index,
            message["message_id"],
            message["peer_id"],
            one.content,
            one.sparse,
            message["created_at"],
        )
    # The vector of the next passage also covers the end of this one. The next one may be in another archive.
    await tx.execute(
        f"UPDATE passages SET {_WITHOUT_VECTORS}"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence = $4",
        space.account,
        space.user,
        session_id,
        one.sequence + 1,
    )
    return True
