"""Returns the context that a model needs to continue a conversation: live messages, then messages that are not
extracted yet, then the overview of what is extracted, within a token budget and the size of one answer."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from runekeep.v1 import session_service_pb2 as pb
from runekeep_common import tokens
from runekeep_schemas.documents.uris import archive_uri
from runekeep_server.wire import messages as wire
from runekeep_storage import message_rows
from runekeep_storage.database import Row, Space, SpaceDatabase, Tx
from runekeep_storage.records import Message
from runekeep_storage.sessions import context, image_descriptions, sessions
from runekeep_storage.sessions.context import Room

BUDGET = 8000
_ALL = 2**62
_IMAGE = '"type":"image"'
"""Occurs in the stored parts of a message with an image."""
_OF_EACH = 8
"""Bytes that a message adds to an answer besides itself."""


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of messages, oldest first, and figures about the rest. `captioned`: messages with images, by sequence,
    with the known captions. `everything`: number of all messages that belong to the context. `index`: archive index of
    the overview."""

    live: Sequence[Row]
    pending: Sequence[Row]
    captioned: Mapping[int, Message]
    everything: int
    index: int
    overview: str


async def load(
    database: SpaceDatabase, space: Space, session_id: str, budget: int, most_bytes: int
) -> pb.GetSessionContextResponse:
    """Returns at most `budget` tokens (0 means BUDGET) in an answer of about `most_bytes`. Raises NotFound."""
    room = Room(budget or BUDGET, most_bytes)
    found = await database.read(read, space, session_id, room)
    # In a thread, because a large budget takes time and would block other calls.
    return await asyncio.to_thread(_told, space, session_id, found, room)


async def read(tx: Tx, space: Space, session_id: str, room: Room) -> Found:
    """Reads the messages that fit, and the newest overview. Does not read the parts of other messages. Raises
    NotFound."""
    session = await sessions.get(tx, space, session_id)
    first_live = session.archived_sequence + 1
    live = await context.fitting(tx, space, session_id, first_live, session.last_sequence, room)
    # After a gap, older messages are left out.
    pending = await _pending(tx, space, session_id, live.left) if live.whole else []
    shown = [message_rows.message(row) for row in chain(live.rows, pending) if _IMAGE in row["parts"]]
    return Found(
        live.rows,
        pending,
        {one.sequence: one for one in await image_descriptions.captioned(tx, space, shown)},
        await context.belonging(tx, space, session_id, first_live),
        *await context.newest_overview(tx, space, session_id),
    )


async def _pending(tx: Tx, space: Space, session_id: str, room: Room) -> list[Row]:
    """Returns the newest messages of archives that are not extracted, without a gap between them, oldest first."""
    newest_first: list[list[Row]] = []
    below, whole = _ALL, True
    while below and whole:
        archives = await context.unextracted(tx, space, session_id, below)
        for first, last in archives.ranges:
            some = await context.fitting(tx, space, session_id, first, last, room)
            newest_first.append(some.rows)
            room, whole = some.left, some.whole
            if not whole:
                break
        below = archives.below
    return list(chain.from_iterable(reversed(newest_first)))


def _told(space: Space, session_id: str, found: Found, room: Room) -> pb.GetSessionContextResponse:
    budget = room.tokens
    # Measured again: the size in the answer is known only now, and numbers in the input of a tool take more bytes than
    # in the store.
    shown = []
    for row in chain(reversed(found.live), reversed(found.pending)):
        captioned = found.captioned.get(row["sequence"])
        message = wire.to_wire(captioned or message_rows.message(row))
        # The row's token count does not include a caption that was added later.
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
