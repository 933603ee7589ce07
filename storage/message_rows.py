"""A row of `messages` as the message that it is."""

import json
from collections.abc import Sequence

from schemas.recalling import Level
from schemas.uris import UriError, canonicalize
from storage.database import Row
from storage.records import Json, Message


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
    """The column `shown`: JSON of how deeply its context parts show what of the user's, by canonical URI; empty when
    they show nothing. One without an abstract shows a URI and no more."""
    levels: dict[str, int] = {}
    for part in parts:
        if part["type"] != "context":
            continue
        try:
            uri = canonicalize(part["uri"], user)
        except UriError:
            # An agent may carry what it likes as context.
            continue
        levels[uri] = max(levels.get(uri, 0), Level.ABSTRACT if part["abstract"].strip() else Level.URI)
    return json.dumps(levels, ensure_ascii=False) if levels else ""
