"""Passages: the searchable form of archived conversation, one for each message, made after the commit."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from runekeep_schemas import secrets
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.statement_lists import SIZE, filled, in_rows
from runekeep_storage.index import sparse
from runekeep_storage.indexing import embedder_change, outbox, space_walk, statements
from runekeep_storage.indexing.outbox import Name
from runekeep_storage.indexing.points import passage_point
from runekeep_storage.records import Archive, Message, Passage
from runekeep_storage.sessions.image_descriptions import is_any_described
from runekeep_storage.spaces import watermarks

MAX_CHARACTERS = 4000
"""Maximum length of a passage. The rest of a message is not searched."""
SLICE = 32
"""Number of messages of an archive that become passages at once; an archive may hold any number."""
TOOL_CHARACTERS = 300
LEAD_CHARACTERS = 300
"""Number of characters from the end of the preceding message that the vector also covers."""
MAX_SECRET_CHARACTERS = 400
"""Maximum length of the tokens and passwords that `secrets` finds."""

Embedded = tuple[Passage, bytes | None, bytes]
"""A passage, its dense vector if it has one, and its packed sparse vector."""

_FEW = 16
"""Size of the smaller statement that reads passages: most searches need no more."""
_NOWHERE = (None, None)


def text_of(message: Message, *, withhold_secrets: bool = False) -> str:
    """Returns `Speaker (date): text [photo: caption]`; empty for a message without words. `withhold_secrets`: a note
    takes the place of each secret, so that no search shows one, and none is sent to an embedder.

    Speaker and date are part of the searched text: measured on LoCoMo they are worth nine points of recall.
    """
    words = " ".join(filter(None, (_part_text(part, withhold_secrets=withhold_secrets) for part in message.parts)))
    if not words:
        return ""
    if withhold_secrets:
        words = _without_secrets(words, MAX_CHARACTERS)
    speaker = message.speaker or message.peer_id or message.role
    said = datetime.fromtimestamp(message.created_at // 1_000_000, UTC)
    return f"{speaker} ({said.day} {said:%B %Y}): {words}"[:MAX_CHARACTERS]


def embedded_text(passage: Passage, before: str) -> str:
    """Returns the text to embed for a passage: its words after the end of `before`, the words of the preceding message,
    because a reply seldom names its subject. Measured on LoCoMo, that is worth a point of recall."""
    head, _, words = passage.content.partition("): ")
    return f"{head}): {before[-LEAD_CHARACTERS:]} {words}" if before else passage.content


def _without_secrets(text: str, limit: int) -> str:
    """Returns the first `limit` characters of the text with a note in place of each secret, or fewer."""
    read = text[: 2 * limit + MAX_SECRET_CHARACTERS]
    kept, _ = secrets.withhold(read)
    if len(read) < len(text):
        # The cut may have split a secret, and the first part of a secret is not recognized.
        kept = kept[:-MAX_SECRET_CHARACTERS]
    return kept[:limit]


def _part_text(part: dict[str, Any], *, withhold_secrets: bool) -> str:
    match part["type"]:
        case "text":
            return str(part["text"]).strip()
        case "image" if part.get("caption"):
            return f"[photo: {part['caption']}]"
        case "tool":
            output = str(part.get("output", ""))
            if withhold_secrets:
                output = _without_secrets(output, TOOL_CHARACTERS)
            return f"[tool {part['tool_name']}: {output[:TOOL_CHARACTERS]}]"
    return ""


def _key(space: Space, archive: Archive) -> tuple[str, str, str, int, str]:
    return space.account, space.user, archive.session_id, archive.index, archive.task_id


async def _archive_row(tx: Tx, space: Space, archive: Archive) -> Row | None:
    return await tx.fetchrow(statements.IS_ARCHIVE_INDEXED, *_key(space, archive))


async def waits(tx: Tx, space: Space, archive: Archive) -> bool:
    """Returns whether the archive exists and its passages are not in the index yet."""
    row = await _archive_row(tx, space, archive)
    return row is not None and not row["passages_indexed"]


async def waiting_spaces(tx: Tx, after: Name, limit: int, left_out: Collection[str] = ()) -> tuple[list[Space], Name]:
    """Reads the spaces with archives whose passages are not in the index yet; see `space_walk.waiting_spaces`."""
    return await space_walk.waiting_spaces(tx, (statements.NEXT_SPACE_OF_ARCHIVES,), after, limit, left_out)


async def waiting(tx: Tx, space: Space, limit: int = 16) -> list[Archive]:
    """Returns the archives of the space whose passages are not in the index yet, oldest first. Returns none while an
    import fills the space, because image descriptions arrive after their messages."""
    rows = await tx.fetch(statements.ARCHIVES_WITHOUT_PASSAGES, space.account, space.user, limit)
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
        statements.LAST_PASSAGE, *_key(space, archive), archive.first_sequence, archive.last_sequence
    )
    return int(row["sequence"]) if row else archive.first_sequence - 1


def with_leads(found: Sequence[Passage], before: Passage | None) -> list[str]:
    """Returns the texts to embed for consecutive passages; `before`: the passage before the first."""
    texts = []
    for passage in found:
        beside = before is not None and before.sequence == passage.sequence - 1
        texts.append(embedded_text(passage, before.words if before is not None and beside else ""))
        before = passage
    return texts


def of_messages(archive: Archive, messages: Sequence[Message], *, withhold_secrets: bool = False) -> list[Passage]:
    """Returns the passages of an archive's messages; messages without words have none. Takes about 20 microseconds for
    100 characters if secrets are withheld."""
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
        if (text := text_of(message, withhold_secrets=withhold_secrets))
    ]


def with_words(passages: Sequence[Passage], vectors: Sequence[bytes | None]) -> list[Embedded]:
    """Returns each passage with its vector, if any, and its packed sparse vector. CPU-heavy, see `sparse`."""
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
    """Writes passages of an archive with their vectors, after their points were written to the index `index_id`. Marks
    the archive as done if this was the last part (`whole`).

    Returns False and writes nothing if one of the images `undescribed` (digests of their URLs), in these messages or in
    those before them without passages, was described meanwhile: the passages must be made again.

    If the session is gone, the points just written are queued for removal. The archive is identified by its commit,
    because a new session may have an archive of the same number. Raises IndexUnavailable if the store is now searched
    by another index; nothing is written then.
    """
    if await is_any_described(tx, space, undescribed):
        return False
    await watermarks.join(tx, space, index_id)
    if whole:
        there = bool(await tx.execute(statements.MARK_INDEXED, *_key(space, archive)))
    else:
        # Must not reset what another server marked.
        there = await _archive_row(tx, space, archive) is not None
    if not there:
        points = [passage_point(space, archive.task_id, passage.sequence) for passage, _, _ in passages]
        await outbox.add(tx, space, 0, [outbox.Entry("delete", point_id=point) for point in points])
        return True
    columns = await embedder_change.columns(tx)
    erased = await _erased(tx, space, archive, passages)
    # The vector may cover the end of the erased message before, which must not be in any vector: it is made again.
    vectors = [None if passage.sequence - 1 in erased else read_dense for passage, read_dense, _ in passages]
    wanted = [
        (
            passage.sequence,
            passage.message_id,
            passage.peer_id,
            passage.content,
            *columns.place(dense, dense_model),
            words,
            passage.created_at,
        )
        for (passage, _, words), dense in zip(passages, vectors, strict=True)
        if passage.sequence not in erased
    ]
    made: set[int] = set()
    for some in in_rows(wanted):
        new = await tx.fetch(
            statements.add_passages(len(some)),
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
        # Another server wrote the row. It may have a vector that our point, written last, lacks.
        # Or the embedder was changed meanwhile, and the row did not get the vector that the point has.
        elif passage.sequence not in made or dense is not read_dense or dense_model == columns.dropped != "":
            changed.append(outbox.Entry("passage", uri=passage.session_id, version=passage.sequence, point_id=point))
    if changed:
        await outbox.add(tx, space, 0, changed)
    return True


async def _erased(tx: Tx, space: Space, archive: Archive, passages: Sequence[Embedded]) -> set[int]:
    """Returns the sequences of erased messages, from the one before the first passage on, because it is the lead of
    that passage."""
    if not passages:
        return set()
    rows = await tx.fetch(
        statements.ERASED_MESSAGES,
        space.account,
        space.user,
        archive.session_id,
        passages[0][0].sequence - 1,
        passages[-1][0].sequence,
    )
    return {row["sequence"] for row in rows}


Place = tuple[str, int]
"""(session id, sequence): where a passage was said."""


async def of_points(
    tx: Tx, space: Space, points: Sequence[tuple[Place, str]], archived_by: int | None = None
) -> dict[str, Passage]:
    """Returns the passages of index points that still exist, by point id, even if another passage has taken the place
    of one. `archived_by`: only those archived until then, in microseconds since 1970."""
    wanted = set(points)
    asked = list(dict.fromkeys(place for place, _ in points))
    size = SIZE if len(asked) > _FEW else _FEW
    found = {}
    for start in range(0, len(asked), size):
        some: list[Place | tuple[None, None]] = [*asked[start : start + size]]
        # Padded with NULL, which matches no row.
        some += [_NOWHERE] * (size - len(some))
        for row in await tx.fetch(statements.passages_at(size), space.account, space.user, *chain.from_iterable(some)):
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
    """Returns those of the archives (session id, index) that were made until then."""
    there: set[Place] = set()
    for some in filled(archives):
        rows = await tx.fetch(
            statements.ARCHIVED_BY,
            space.account,
            space.user,
            then,
            *(session_id for session_id, _ in some),
            *(index for _, index in some),
        )
        there |= {(row["session_id"], row["archive_index"]) for row in rows}
    return there
