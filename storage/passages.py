"""Archived conversation as it is searched: one passage a message, made behind the commit."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from storage import outbox, sparse, watermarks
from storage.database import Row, Space, Tx
from storage.leftovers import without
from storage.points import passage_point
from storage.records import Archive, Message, Passage

MAX_CHARACTERS = 4000
"""Of a passage; what a message says beyond it is not searched."""
TOOL_CHARACTERS = 300

Embedded = tuple[Passage, bytes | None, bytes]
"""A passage, its vector where there is one, and its packed sparse vector."""

_COLUMNS = "session_id, sequence, archive_index, message_id, peer_id, content, created_at"


def text_of(message: Message) -> str:
    """`Speaker (date): text [photo: caption]`; empty for a message without words.

    Speaker and date belong to what is searched: measured on LoCoMo they are worth nine points of recall.
    """
    words = " ".join(filter(None, (_part_text(part) for part in message.parts)))
    if not words:
        return ""
    speaker = message.speaker or message.peer_id or message.role
    said = datetime.fromtimestamp(message.created_at // 1_000_000, UTC)
    return f"{speaker} ({said.day} {said:%B %Y}): {words}"[:MAX_CHARACTERS]


def _part_text(part: dict[str, Any]) -> str:
    match part["type"]:
        case "text":
            return str(part["text"]).strip()
        case "image" if part.get("caption"):
            return f"[photo: {part['caption']}]"
        case "tool":
            return f"[tool {part['tool_name']}: {str(part.get('output', ''))[:TOOL_CHARACTERS]}]"
    return ""


_OF_ARCHIVE = " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4 AND task_id = $5"


def _key(space: Space, archive: Archive) -> tuple[str, str, str, int, str]:
    return space.account, space.user, archive.session_id, archive.index, archive.task_id


async def _archive_row(tx: Tx, space: Space, archive: Archive) -> Row | None:
    return await tx.fetchrow(f"SELECT passages_indexed FROM archives{_OF_ARCHIVE}", *_key(space, archive))


async def waits(tx: Tx, space: Space, archive: Archive) -> bool:
    """Whether the archive is still there and its passages are not in the index yet."""
    row = await _archive_row(tx, space, archive)
    return row is not None and not row["passages_indexed"]


async def waiting(tx: Tx, limit: int = 16) -> list[tuple[Space, Archive]]:
    """Archives whose passages are not in the index yet, oldest first, over all accounts."""
    rows = await tx.fetch(
        "SELECT account, user_id, session_id, archive_index, first_sequence, last_sequence, task_id, created_at"
        " FROM archives WHERE passages_indexed = 0 ORDER BY created_at LIMIT $1",
        limit,
    )
    return [
        (
            Space(row["account"], row["user_id"]),
            Archive(
                row["session_id"], row["archive_index"], row["first_sequence"], row["last_sequence"],
                "", "", "", "", row["task_id"], 0, row["created_at"], 0,
            ),
        )
        for row in rows
    ]  # fmt: skip


def of_messages(archive: Archive, messages: Sequence[Message]) -> list[Passage]:
    """Passages of messages of an archive; those without words have none."""
    return [
        Passage(
            archive.session_id,
            message.sequence,
            archive.index,
            message.message_id,
            message.peer_id,
            text,
            message.created_at,
        )
        for message in messages
        if (text := text_of(message))
    ]


def with_words(passages: Sequence[Passage], vectors: Sequence[bytes | None]) -> list[Embedded]:
    """Each passage with its vector, where it has one, and its packed sparse vector. Takes time; see `sparse`."""
    return [
        (passage, dense, sparse.encode_document(passage.content).to_bytes())
        for passage, dense in zip(passages, vectors, strict=True)
    ]


async def store(
    tx: Tx,
    space: Space,
    index_id: str,
    archive: Archive,
    passages: Sequence[Embedded],
    dense_model: str,
    *,
    whole: bool,
) -> None:
    """Writes passages of an archive, whose points are in the index of that id, with their vectors; marks the archive
    when that was the last of it (`whole`).

    When the session is gone its points, which were written just before, are put out for removal. The archive is known
    by its commit: a session made anew may have one of the same number. Raises IndexUnavailable when the store is
    searched by another index by now: then nothing is written.
    """
    await watermarks.join(tx, space, index_id)
    if whole:
        there = bool(await tx.execute(f"UPDATE archives SET passages_indexed = 1{_OF_ARCHIVE}", *_key(space, archive)))
    else:
        # What another server marked stays so.
        there = await _archive_row(tx, space, archive) is not None
    if not there:
        points = [passage_point(space, archive.task_id, passage.sequence) for passage, _, _ in passages]
        await outbox.add(tx, space, 0, [outbox.Entry("delete", point_id=point) for point in points])
        return
    twice = []
    for passage, dense, words in passages:
        made = await tx.execute(
            "INSERT INTO passages (account, user_id, session_id, sequence, archive_index, task_id, message_id, peer_id,"
            " content, dense, dense_model, sparse, created_at)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
            " ON CONFLICT (account, user_id, session_id, sequence) DO NOTHING",
            space.account,
            space.user,
            passage.session_id,
            passage.sequence,
            passage.archive_index,
            archive.task_id,
            passage.message_id,
            passage.peer_id,
            passage.content,
            dense,
            dense_model if dense is not None else "",
            words,
            passage.created_at,
        )
        if not made:
            # Of another server; its row may have a vector that the point, written last by us, has not.
            point = passage_point(space, archive.task_id, passage.sequence)
            twice.append(outbox.Entry("passage", uri=passage.session_id, version=passage.sequence, point_id=point))
    if twice:
        await outbox.add(tx, space, 0, twice)


async def of_point(tx: Tx, space: Space, session_id: str, sequence: int, point: str) -> Passage | None:
    """The passage that a point of the index stands for; None when it is gone, whatever stands in its place now."""
    row = await tx.fetchrow(
        f"SELECT {_COLUMNS}, task_id FROM passages"
        f" WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence = $4{without('passages')}",
        space.account,
        space.user,
        session_id,
        sequence,
    )
    if row is None or passage_point(space, row["task_id"], sequence) != point:
        return None
    columns = dict(row)
    del columns["task_id"]
    return Passage(**columns)


async def pending_count(tx: Tx, space: Space) -> int:
    """Archived messages that cannot be searched yet."""
    row = await tx.fetchrow(
        "SELECT COALESCE(SUM(last_sequence - first_sequence + 1), 0) AS n FROM archives"
        " WHERE account = $1 AND user_id = $2 AND passages_indexed = 0",
        space.account,
        space.user,
    )
    return int(row["n"]) if row else 0
