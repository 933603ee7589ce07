"""Finds the tool calls of a session by the names of their documents, `tools/{name}/tool.json`.

The column `calls` of a message lists the names of its calls, so that a listing need not read the messages. It is NULL
in messages of releases without the column; their parts are read instead.
"""

import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from schemas import tokens
from storage import message_rows
from storage.byte_limits import count_within
from storage.database import Row, Space, Tx
from storage.records import Json, Message

_PAGE: Final = 200
"""Messages that one statement lists, without their parts."""
_FEW: Final = 4
_BYTES: Final = 4 * 1024 * 1024
"""Bytes of messages that are held at once."""
_OF_SESSION: Final = "account = $1 AND user_id = $2 AND session_id = $3 AND erased = 0"
_MAY_HOLD_CALLS: Final = "calls IS NULL AND parts LIKE '%\"tool\"%'"
_HOLDS_CALLS: Final = f"calls <> '' OR {_MAY_HOLD_CALLS}"
"""As the index `messages_with_calls` has it, which is used only for this exact condition and for `sequence + 0`."""
_SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


def document_name(tool_id: str) -> str:
    """Returns the folder of a call: the call id if it can be a segment of a URI, else a name with its hash."""
    if _SEGMENT.fullmatch(tool_id):
        return tool_id
    return f"tool_{hashlib.sha256(tool_id.encode()).hexdigest()[:16]}"


def call_id(message_id: str, number: int, part: Json) -> str:
    """Returns the id of the call that part `number` of a message records. If the caller gave none, it is made from the
    message's id, so that a message that is sent again has the same one."""
    return part["tool_id"] or f"tool_{message_id}_{number}"


def column(message: Message) -> str:
    """The column `calls` of a message."""
    names = [name for name, _ in _calls_of(message)]
    return json.dumps(names) if names else ""


async def has_calls(tx: Tx, space: Space, session_id: str) -> bool:
    """Whether the session has any call. Reads no more messages when it has many, or many without calls."""
    async for _ in _names(tx, space, session_id, _FEW):
        return True
    return False


async def names(tx: Tx, space: Space, session_id: str) -> list[str]:
    """Names of all calls of a session, each once, sorted."""
    return sorted({name async for name in _names(tx, space, session_id, _PAGE)})


async def _names(tx: Tx, space: Space, session_id: str, limit: int) -> AsyncIterator[str]:
    """Names of the calls of a session, `limit` messages a statement; some more than once."""
    after = 0
    while True:
        rows = await tx.fetch(
            f"SELECT sequence, calls, tokens FROM messages WHERE {_OF_SESSION} AND sequence + 0 > $4"
            f" AND ({_HOLDS_CALLS}) ORDER BY sequence + 0 LIMIT $5",
            space.account,
            space.user,
            session_id,
            after,
            limit,
        )
        for row in rows:
            for name in json.loads(row["calls"] or "[]"):
                yield name
        async for message in _unlisted(tx, space, session_id, rows):
            for name, _ in _calls_of(message):
                yield name
        if len(rows) < limit:
            return
        after = rows[-1]["sequence"]


async def newest(tx: Tx, space: Space, session_id: str, name: str) -> tuple[Message, Json] | None:
    """Returns the newest record of a call and its message; None if no call has this name."""
    if not _SEGMENT.fullmatch(name):
        return None
    before = 2**62
    while True:
        rows = await tx.fetch(
            f"SELECT sequence, calls, tokens FROM messages WHERE {_OF_SESSION} AND sequence < $4"
            f" AND (calls LIKE $5 OR {_MAY_HOLD_CALLS}) ORDER BY sequence DESC LIMIT $6",
            space.account,
            space.user,
            session_id,
            before,
            # LIKE may match other names too (`_` matches any character), so the names are compared below.
            f'%"{name}"%',
            _PAGE,
        )
        listed = next((at for at, row in enumerate(rows) if name in json.loads(row["calls"] or "[]")), len(rows))
        async for message in _unlisted(tx, space, session_id, rows[:listed]):
            if found := _record(message, name):
                return message, found
        if listed < len(rows):
            row = await tx.fetchrow(
                f"SELECT * FROM messages WHERE {_OF_SESSION} AND sequence = $4",
                space.account,
                space.user,
                session_id,
                rows[listed]["sequence"],
            )
            if row is None:
                return None
            message = message_rows.message(row)
            found = _record(message, name)
            return (message, found) if found else None
        if len(rows) < _PAGE:
            return None
        before = rows[-1]["sequence"]


async def _unlisted(tx: Tx, space: Space, session_id: str, rows: Sequence[Row]) -> AsyncIterator[Message]:
    """The messages of those rows that do not list their calls, in the order of the rows, about _BYTES of them at a
    time."""
    left = [row for row in rows if row["calls"] is None]
    descending = bool(left) and left[0]["sequence"] > left[-1]["sequence"]
    while left:
        # The column counts the bytes of the stored parts.
        count = count_within([row["tokens"] * tokens.BYTES_A_TOKEN for row in left], _BYTES)
        ends = sorted((left[0]["sequence"], left[count - 1]["sequence"]))
        found = await tx.fetch(
            f"SELECT * FROM messages WHERE {_OF_SESSION} AND sequence >= $4 AND sequence <= $5 AND {_MAY_HOLD_CALLS}"
            f" ORDER BY sequence {'DESC' if descending else ''}",
            space.account,
            space.user,
            session_id,
            *ends,
        )
        for row in found:
            yield message_rows.message(row)
        del left[:count]


def _record(message: Message, name: str) -> Json | None:
    """The last record of the call of that name in the message."""
    return next((part for found, part in reversed(list(_calls_of(message))) if found == name), None)


def _calls_of(message: Message) -> Iterator[tuple[str, Json]]:
    for number, part in enumerate(message.parts):
        if part["type"] == "tool":
            yield document_name(call_id(message.message_id, number, part)), part
