"""Converts rows of `messages` to `Message` records."""

import json
from collections.abc import Sequence

from runekeep_schemas.documents.uris import UriError, canonicalize
from runekeep_schemas.recall_budget import Level
from runekeep_storage.database import Row
from runekeep_storage.records import Json, Message


def message(row: Row) -> Message:
    return Message(
        message_id=row["message_id"],
        role=row["role"],
        parts=tuple(json.loads(row["parts"])),
        peer_id=row["peer_id"],
        turn_id=row["turn_id"],
        speaker=row["speaker"],
        created_at=row["created_at"],
        sequence=row["sequence"],
    )


def shown(parts: Sequence[Json], user: str) -> str:
    """Returns the column `shown`: JSON that maps the canonical URIs of the user's context parts to the level of detail
    they show; empty if there are none. A part without an abstract shows only its URI."""
    levels: dict[str, int] = {}
    for part in parts:
        if part["type"] != "context":
            continue
        try:
            uri = canonicalize(part["uri"], user)
        except UriError:
            # An agent may send any string as a context URI.
            continue
        levels[uri] = max(levels.get(uri, 0), Level.ABSTRACT if part["abstract"].strip() else Level.URI)
    return json.dumps(levels, ensure_ascii=False) if levels else ""
