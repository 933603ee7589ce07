"""Finds the tool calls of a session by the names of their documents, `tools/{name}/tool.json`.

The column `calls` of a message lists the names of its calls, so that a listing need not read the messages. It is NULL
in messages of releases without the column; their parts are read instead.
"""

import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from runekeep_common import tokens
from runekeep_storage import message_rows
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.byte_limits import count_within
from runekeep_storage.records import Json, Message
from runekeep_storage.sessions import statements

_PAGE: Final = 200
"""Messages that one statement lists, without their parts."""
_FEW: Final = 4
_BYTES: Final = 4 * 1024 * 1024
"""Bytes of messages that are held at once."""
_SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


def document_name(tool_id: str) -> str:
    """Returns the folder of a call: the call id if it can be a segment of a URI, else a name with its hash."""
    if _SEGMENT.fullmatch(tool_id):
        return tool_id
    return f"tool_{hashlib.sha256(tool_id.encode()).hexdigest()[:16]}"


def call_id(message_id: str, number: int, part: Json) -> str:
    """Returns the id of the call that part `number` of a message records. If the caller gave none, derives it from the
    message's id, so that a repeated message has the same one."""
    return part["tool_id"] or f"tool_{message_id}_{number}"


def column(message: Message) -> str:
    """Returns the column `calls` of a message."""
    names = [name for name, _ in _calls_of(message)]
    return json.dumps(names) if names else ""


async def has_calls(tx: Tx, space: Space, session_id: str) -> bool:
    """Returns whether the session has any call. Costs the same for sessions with many calls or many messages."""
    async for _ in _names(tx, space, session_id, _FEW):
        return True
    return False


async def names(tx: Tx, space: Space, session_id: str) -> list[str]:
    """Returns the distinct names of all calls of a session, sorted."""
    return sorted({name async for name in _names(tx, space, session_id, _PAGE)})


async def _names(tx: Tx, space: Space, session_id: str, limit: int) -> AsyncIterator[str]:
    """Yields the names of the calls of a session, possibly repeated. Reads `limit` messages per statement."""
    after = 0
    while True:
        rows = await tx.fetch(statements.NAMES_OF_CALLS, space.account, space.user, session_id, after, limit)
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
            statements.NAMES_LIKE,
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
            row = await tx.fetchrow(statements.MESSAGE, space.account, space.user, session_id, rows[listed]["sequence"])
            if row is None:
                return None
            message = message_rows.message(row)
            found = _record(message, name)
            return (message, found) if found else None
        if len(rows) < _PAGE:
            return None
        before = rows[-1]["sequence"]


async def _unlisted(tx: Tx, space: Space, session_id: str, rows: Sequence[Row]) -> AsyncIterator[Message]:
    """Yields the messages of those rows that do not list their calls, in the order of the rows. Holds about _BYTES of
    them at a time."""
    left = [row for row in rows if row["calls"] is None]
    descending = bool(left) and left[0]["sequence"] > left[-1]["sequence"]
    while left:
        # The column counts the bytes of the stored parts.
        count = count_within([row["tokens"] * tokens.BYTES_A_TOKEN for row in left], _BYTES)
        ends = sorted((left[0]["sequence"], left[count - 1]["sequence"]))
        found = await tx.fetch(statements.unlisted_calls(descending), space.account, space.user, session_id, *ends)
        for row in found:
            yield message_rows.message(row)
        del left[:count]


def _record(message: Message, name: str) -> Json | None:
    """Returns the last record in the message of the call with that name; None if there is none."""
    return next((part for found, part in reversed(list(_calls_of(message))) if found == name), None)


def _calls_of(message: Message) -> Iterator[tuple[str, Json]]:
    for number, part in enumerate(message.parts):
        if part["type"] == "tool":
            yield document_name(call_id(message.message_id, number, part)), part
