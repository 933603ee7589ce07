"""Removes erased memories from the context parts of messages that showed them."""

import json
from collections.abc import Collection
from typing import Any

from runekeep_common import tokens
from runekeep_schemas.documents.uris import UriError, canonicalize
from runekeep_storage import message_rows
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.erasure import statements

GONE = "erased"
"""Replaces the URI of a memory that is gone: the contract requires a value, and this is no URI."""


async def out_of_messages(tx: Tx, space: Space, cut: Collection[str], gone: Collection[str]) -> None:
    """Empties the context parts, in all sessions, that show a memory that lost versions. The URI of a memory that is
    `gone` may reveal what it was, so GONE replaces it."""
    rows = await tx.fetch(statements.SHOWN, space.account, space.user)
    for row in rows:
        if not json.loads(row["shown"]).keys().isdisjoint(cut):
            await _empty(tx, space, row, cut, gone)


async def _empty(tx: Tx, space: Space, at: Row, cut: Collection[str], gone: Collection[str]) -> None:
    key = (space.account, space.user, at["session_id"], at["sequence"])
    row = await tx.fetchrow(statements.MESSAGE_PARTS, *key)
    if row is None:
        return
    parts = [_without(part, space.user, cut, gone) for part in json.loads(row["parts"])]
    body = tokens.stored_parts(parts)
    in_tokens = tokens.tokens_of_stored(body)
    shown = message_rows.shown(parts, space.user)
    await tx.execute(statements.SET_MESSAGE_PARTS, *key, body, in_tokens, shown)
    await tx.execute(statements.SUBTRACT_TOKENS_OF_MESSAGE, *key, row["tokens"] - in_tokens)


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
