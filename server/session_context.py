"""What a model needs to go on with a conversation: live messages, then those that no extraction has read yet, then the
overview of what is extracted; of each as much as a budget of tokens allows, and as one answer can carry."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from runekeep.v1 import session_service_pb2 as pb
from schemas import tokens
from schemas.uris import archive_uri
from server.wire import messages as wire
from storage import image_descriptions, message_rows, session_context, sessions
from storage.database import Database, Row, Space, Tx
from storage.records import Message
from storage.session_context import Room

BUDGET = 8000
_ALL = 2**62
_IMAGE = '"type":"image"'
"""In the stored parts of a message with an image."""
_OF_EACH = 8
"""Bytes of a message in an answer, beside it."""


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of messages, oldest first, and what is known of the others. `captioned`: those with images, by sequence,
    with the captions that are known. `index`: of the archive of the overview."""

    live: Sequence[Row]
    pending: Sequence[Row]
    captioned: Mapping[int, Message]
    everything: int
    index: int
    overview: str


async def load(
    database: Database, space: Space, session_id: str, budget: int, most_bytes: int
) -> pb.GetSessionContextResponse:
    """At most `budget` tokens, 0 for BUDGET, in an answer of about `most_bytes`. Raises NotFound."""
    room = Room(budget or BUDGET, most_bytes)
    found = await database.read(read, space, session_id, room)
    # Of a large budget that is work for a while, which must not keep other callers waiting.
    return await asyncio.to_thread(_told, space, session_id, found, room)


async def read(tx: Tx, space: Space, session_id: str, room: Room) -> Found:
    """Messages that have room, and the newest overview; reads no parts of other messages. Raises NotFound."""
    session = await sessions.get(tx, space, session_id)
    first_live = session.archived_sequence + 1
    live = await session_context.fitting(tx, space, session_id, first_live, session.last_sequence, room)
    # Behind a gap nothing older is told.
    pending = await _pending(tx, space, session_id, live.left) if live.whole else []
    shown = [message_rows.message(row) for row in chain(live.rows, pending) if _IMAGE in row["parts"]]
    return Found(
        live.rows,
        pending,
        {one.sequence: one for one in await image_descriptions.captioned(tx, space, shown)},
        await session_context.belonging(tx, space, session_id, first_live),
        *await session_context.newest_overview(tx, space, session_id),
    )


async def _pending(tx: Tx, space: Space, session_id: str, room: Room) -> list[Row]:
    """The newest messages of archives that are not extracted, with no such message left out between them, oldest
    first."""
    newest_first: list[list[Row]] = []
    below, whole = _ALL, True
    while below and whole:
        archives = await session_context.unextracted(tx, space, session_id, below)
        for first, last in archives.ranges:
            some = await session_context.fitting(tx, space, session_id, first, last, room)
            newest_first.append(some.rows)
            room, whole = some.left, some.whole
            if not whole:
                break
        below = archives.below
    return list(chain.from_iterable(reversed(newest_first)))


def _told(space: Space, session_id: str, found: Found, room: Room) -> pb.GetSessionContextResponse:
    budget = room.tokens
    # Only now their size in the answer is known: numbers in the input of a tool take more there than in the store.
    shown = []
    for row in chain(reversed(found.live), reversed(found.pending)):
        captioned = found.captioned.get(row["sequence"])
        message = wire.to_wire(captioned or message_rows.message(row))
        # A caption that was laid over is not among the tokens that the row counts.
        taken = tokens.tokens_of_stored(tokens.stored_parts(captioned.parts)) if captioned else row["tokens"]
        left = Room(room.tokens - taken, room.bytes - message.ByteSize() - _OF_EACH)
        if left.overdrawn:
            break
        room = left
        shown.append(message)
    live, pending = shown[: len(found.live)], shown[len(found.live) :]
    in_tokens, in_bytes = tokens.count(found.overview), len(found.overview.encode())
    has_room = in_tokens <= room.tokens and in_bytes <= room.bytes
    return pb.GetSessionContextResponse(
        overview=found.overview if has_room else "",
        overview_uri=archive_uri(space.user, session_id, found.index) if found.overview else "",
        pending_messages=reversed(pending),
        live_messages=reversed(live),
        tokens=budget - room.tokens + (in_tokens if has_room else 0),
        omitted_messages=found.everything - len(shown),
        overview_omitted=not has_room,
    )
