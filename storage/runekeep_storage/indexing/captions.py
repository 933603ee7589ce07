"""Rewrites passages whose images were described after the passages were made. The commit that brings a description also
adds it to the passage of that message."""

from collections.abc import Sequence
from dataclasses import dataclass

from runekeep_storage.database import Space, Tx
from runekeep_storage.index import sparse
from runekeep_storage.indexing import outbox, statements
from runekeep_storage.indexing.passages import text_of
from runekeep_storage.indexing.points import passage_point
from runekeep_storage.records import Message


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
    `runekeep_storage.relay.missing_vectors`.

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
    row = await tx.fetchrow(statements.MADE_UP_TO, space.account, space.user, session_id, task_id, archive_index)
    return int(row["made"]) if row else 0


async def _write(tx: Tx, space: Space, session_id: str, archive_index: int, task_id: str, one: Captioned) -> bool:
    """Returns whether the passage exists now. A message without words had none; an erased message gets none."""
    changed = await tx.execute(
        statements.REWRITE_PASSAGE,
        space.account,
        space.user,
        session_id,
        task_id,
        one.sequence,
        one.content,
        one.sparse,
    )
    if not changed:
        message = await tx.fetchrow(statements.CAPTIONED_MESSAGE, space.account, space.user, session_id, one.sequence)
        if message is None:
            return False
        await tx.execute(
            statements.ADD_CAPTIONED_PASSAGE,
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
    await tx.execute(statements.FORGET_VECTORS, space.account, space.user, session_id, one.sequence + 1)
    return True
