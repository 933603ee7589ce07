"""A row of `messages` as the message that it is."""

import json

from storage.database import Row
from storage.records import Message


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
