"""Archived conversation as it is searched: one passage a message, made behind the commit."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import Any

from storage import outbox, space_walk, sparse, watermarks
from storage.database import Row, Space, Tx
from storage.image_descriptions import is_any_described
from storage.leftovers import without
from storage.outbox import Name
from storage.points import passage_point
from storage.records import Archive, Message, Passage
from storage.shut_spaces import without_imports
from storage.statement_lists import SIZE, by_keys, filled, in_rows, places, rows

MAX_CHARACTERS = 4000
"""Of a passage; what a message says beyond it is not searched."""
SLICE = 32
"""Messages of an archive that become passages at once; an archive may hold any number."""
TOOL_CHARACTERS = 300
LEAD_CHARACTERS = 300
"""Of the message before one, its end, that the vector is of too."""

Embedded = tuple[Passage, bytes | None, bytes]
"""A passage, its vector where there is one, and its packed sparse vector."""

_COLUMNS = "session_id, sequence, archive_index, message_id, peer_id, content, created_at"
_FEW = 16
"""Passages that a statement of its own is for: most searches want no more."""


_AT = {
    count: by_keys(
        f"SELECT {_COLUMNS}, task_id FROM passages WHERE account = $1 AND user_id = $2",
        ("session_id", "sequence"), count, 3, without("passages"),
    )
    for count in (_FEW, SIZE)
}  # fmt: skip
_NOWHERE = (None, None)


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


def embedded_text(passage: Passage, before: str) -> str:
    """What the vector of a passage is of: what it says after the end of `before`, what the message before it said. A
    reply seldom names what it is about. Measured on LoCoMo, that is worth a point of recall."""
    head, _, words = passage.content.partition("): ")
    return f"{head}): {before[-LEAD_CHARACTERS:]} {words}" if before else passage.content


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


async def waiting_spaces(tx: Tx, after: Name, limit: int) -> tuple[list[Space], Name]:
    """Reads the spaces with archives whose passages are not in the index yet; see `space_walk.waiting_spaces`."""
    return await space_walk.waiting_spaces(tx, _NEXT_SPACES, after, limit)


_NEXT_SPACES = (space_walk.next_space("archives", "passages_indexed = 0", "created_at", str(2**62)),)


async def waiting(tx: Tx, space: Space, limit: int = 16) -> list[Archive]:
    """Returns the archives of the space whose passages are not in the index yet, oldest first. None while an import
    fills the space, because descriptions of pictures arrive after their messages."""
    rows = await tx.fetch(
        "SELECT session_id, archive_index, first_sequence, last_sequence, task_id, created_at FROM archives"
        f" WHERE account = $1 AND user_id = $2 AND passages_indexed = 0{without_imports('archives')}"
        " ORDER BY created_at LIMIT $3",
        space.account,
        space.user,
        limit,
    )
    return [
        Archive(
            row["session_id"], row["archive_index"], row["first_sequence"], row["last_sequence"],
            "", "", "", "", row["task_id"], 0, row["created_at"], 0,
        )
        for row in rows
    ]  # fmt: skip


async def last_made(tx: Tx, space: Space, archive: Archive) -> int:
    """Returns the sequence of the last message of the archive that has a passage; if none has, the one before its first
    message. All earlier messages are done too, because slices of an archive are written in order."""
    row = await tx.fetchrow(
        f"SELECT sequence FROM passages{_OF_ARCHIVE} AND sequence >= $6 AND sequence <= $7"
        " ORDER BY sequence DESC LIMIT 1",
        *_key(space, archive),
        archive.first_sequence,
        archive.last_sequence,
    )
    return int(row["sequence"]) if row else archive.first_sequence - 1


def with_leads(found: Sequence[Passage], before: Passage | None) -> list[str]:
    """The texts that the vectors of passages in a row are of; `before`: the one before the first."""
    texts = []
    for passage in found:
        beside = before is not None and before.sequence == passage.sequence - 1
        texts.append(embedded_text(passage, before.words if before is not None and beside else ""))
        before = passage
    return texts


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
    undescribed: Sequence[str] = (),
) -> bool:
    """Writes passages of an archive, whose points are in the index of that id, with their vectors; marks the archive
    when that was the last of it (`whole`).

    Returns False, and writes nothing, when one of the images `undescribed` (digests of their URLs), of these messages
    or of those before them without passages, got its description meanwhile: they are to be made once more.

    When the session is gone its points, which were written just before, are put out for removal. The archive is known
    by its commit: a session made anew may have one of the same number. Raises IndexUnavailable when the store is
    searched by another index by now: then nothing is written.
    """
    if await is_any_described(tx, space, undescribed):
        return False
    await watermarks.join(tx, space, index_id)
    if whole:
        there = bool(await tx.execute(f"UPDATE archives SET passages_indexed = 1{_OF_ARCHIVE}", *_key(space, archive)))
    else:
        # What another server marked stays so.
        there = await _archive_row(tx, space, archive) is not None
    if not there:
        points = [passage_point(space, archive.task_id, passage.sequence) for passage, _, _ in passages]
        await outbox.add(tx, space, 0, [outbox.Entry("delete", point_id=point) for point in points])
        return True
    erased = await _erased(tx, space, archive, passages)
    # A vector may be of the end of the message before, which is not to be in any: one is made anew.
    vectors = [None if passage.sequence - 1 in erased else read_dense for passage, read_dense, _ in passages]
    wanted = [
        (
            passage.sequence,
            passage.message_id,
            passage.peer_id,
            passage.content,
            dense,
            dense_model if dense is not None else "",
            words,
            passage.created_at,
        )
        for (passage, _, words), dense in zip(passages, vectors, strict=True)
        if passage.sequence not in erased
    ]
    made: set[int] = set()
    for some in in_rows(wanted):
        new = await tx.fetch(
            _insert(len(some)),
            space.account,
            space.user,
            archive.session_id,
            archive.index,
            archive.task_id,
            *(value for row in some for value in row),
        )
        made |= {row["sequence"] for row in new}
    changed = []
    for (passage, read_dense, _), dense in zip(passages, vectors, strict=True):
        point = passage_point(space, archive.task_id, passage.sequence)
        if passage.sequence in erased:
            changed.append(outbox.Entry("delete", point_id=point))
        # Of another server; its row may have a vector that the point, written last by us, has not.
        elif passage.sequence not in made or dense is not read_dense:
            changed.append(outbox.Entry("passage", uri=passage.session_id, version=passage.sequence, point_id=point))
    if changed:
        await outbox.add(tx, space, 0, changed)
    return True


@cache
def _insert(count: int) -> str:
    return (
        "INSERT INTO passages (account, user_id, session_id, archive_index, task_id, sequence, message_id, peer_id,"
        f" content, dense, dense_model, sparse, created_at) VALUES"
        f" {rows('($1, $2, $3, $4, $5, ?, ?, ?, ?, ?, ?, ?, ?)', count, 6)}"
        " ON CONFLICT (account, user_id, session_id, sequence) DO NOTHING RETURNING sequence"
    )


async def _erased(tx: Tx, space: Space, archive: Archive, passages: Sequence[Embedded]) -> set[int]:
    """Numbers of the messages that were erased, from the one before the first passage on, which leads it."""
    if not passages:
        return set()
    rows = await tx.fetch(
        "SELECT sequence FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
        " AND sequence >= $4 AND sequence <= $5 AND erased = 1",
        space.account,
        space.user,
        archive.session_id,
        passages[0][0].sequence - 1,
        passages[-1][0].sequence,
    )
    return {row["sequence"] for row in rows}


Place = tuple[str, int]
"""Where a passage was said: (session id, sequence)."""


async def of_points(
    tx: Tx, space: Space, points: Sequence[tuple[Place, str]], archived_by: int | None = None
) -> dict[str, Passage]:
    """The passages that points of the index stand for, by the points' ids, where they are still there, whatever stands
    in the place of others now. `archived_by`: only those that were archived until then, in microseconds since 1970."""
    wanted = set(points)
    asked = list(dict.fromkeys(place for place, _ in points))
    size = SIZE if len(asked) > _FEW else _FEW
    found = {}
    for start in range(0, len(asked), size):
        some: list[Place | tuple[None, None]] = [*asked[start : start + size]]
        # NULL, which the rest asks for, is nowhere.
        some += [_NOWHERE] * (size - len(some))
        for row in await tx.fetch(_AT[size], space.account, space.user, *chain.from_iterable(some)):
            columns = dict(row)
            point = passage_point(space, columns.pop("task_id"), columns["sequence"])
            if ((columns["session_id"], columns["sequence"]), point) in wanted:
                found[point] = Passage(**columns)
    if archived_by is None:
        return found
    by_then = await _archived_by(
        tx, space, {(one.session_id, one.archive_index) for one in found.values()}, archived_by
    )
    return {point: one for point, one in found.items() if (one.session_id, one.archive_index) in by_then}


async def _archived_by(tx: Tx, space: Space, archives: set[Place], then: int) -> set[Place]:
    """Those of the archives (session id, index) that were made until then."""
    there: set[Place] = set()
    for some in filled(archives):
        rows = await tx.fetch(
            "SELECT session_id, archive_index FROM archives WHERE account = $1 AND user_id = $2 AND created_at <= $3"
            f" AND session_id IN ({places(4)}) AND archive_index IN ({places(4 + SIZE)})",
            space.account,
            space.user,
            then,
            *(session_id for session_id, _ in some),
            *(index for _, index in some),
        )
        there |= {(row["session_id"], row["archive_index"]) for row in rows}
    return there
