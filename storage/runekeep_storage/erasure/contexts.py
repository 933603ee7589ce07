"""Removes erased memories from the context parts of messages that showed them."""

import json
from collections.abc import Collection
from typing import Any

from runekeep_common import tokens
from runekeep_schemas.documents.uris import UriError, canonicalize
from runekeep_storage import message_rows
from runekeep_storage.database import Row, Space, Tx

GONE = "erased"
"""Replaces the URI of a memory that is gone: the contract requires a value, and this is no URI."""

_OF_USER = "account = $1 AND user_id = $2"


async def out_of_messages(tx: Tx, space: Space, cut: Collection[str], gone: Collection[str]) -> None:
    """Empties the context parts, in all sessions, that show a memory that lost versions. The URI of a memory that is
    `gone` may reveal what it was, so GONE replaces it."""
    rows = await tx.fetch(
        f"SELECT session_id, sequence, shown FROM messages WHERE {_OF_USER} AND shown <> ''", space.account, space.user
    )
    for row in rows:
        if not json.loads(row["shown"]).keys().isdisjoint(cut):
            await _empty(tx, space, row, cut, gone)


async def _empty(tx: Tx, space: Space, at: Row, cut: Collection[str], gone: Collection[str]) -> None:
    key = (space.account, space.user, at["session_id"], at["sequence"])
    of_message = f"{_OF_USER} AND session_id = $3 AND sequence = $4"
    row = await tx.fetchrow(f"SELECT parts, tokens FROM messages WHERE {of_message}", *key)
    if row is None:
        return
    parts = [_without(part, space.user, cut, gone) for part in json.loads(row["parts"])]
    body = tokens.stored_parts(parts)
    in_tokens = tokens.tokens_of_stored(body)
    await tx.execute(
        f"UPDATE messages SET parts = $5, tokens = $6, shown = $7 WHERE {of_message}",
        *key,
        body,
        in_tokens,
        message_rows.shown(parts, space.user),
    )
    await tx.execute(
        f"UPDATE sessions SET live_tokens = live_tokens - $5 WHERE {_OF_USER} AND session_id = $3"
        " AND archived_sequence < $4",
        *key,
        row["tokens"] - in_tokens,
    )


def _without(part: dict[str, Any], user: str, cut: Collection[str], gone: Collection[str]) -> dict[str, Any]:
    if part["type"] != "context":
        return part
    try:
        uri = canonicalize(part["uri"], user)
    except UriError:
        return part
    if uri not in cut:
        return part
    return {**part, "uri": GONE if uri in gone else part["uri"], "abstract": ""}
