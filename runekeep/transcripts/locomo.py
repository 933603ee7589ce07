"""Files of the LoCoMo data set (snap-research/locomo): a list of very long conversations between two people.

Each conversation has `session_1`, `session_2`, ... with turns `{speaker, dia_id, text, blip_caption?}`, said at
`session_1_date_time`, and so on. Each of these sessions becomes a session of ours, `conv-26_s1`, with one commit.
"""

import re
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from runekeep.client.sessions.messages import Message, Part, TextPart
from runekeep.transcripts.batches import Batch, TranscriptError, safe_id

_SESSION = re.compile(r"session_(\d+)")
_TIME_FORMAT = "%I:%M %p on %d %B, %Y"


class _Turn(BaseModel):
    model_config = ConfigDict(extra="ignore")
    speaker: str
    dia_id: str
    text: str
    blip_caption: str = ""


def is_locomo(document: Any) -> bool:
    """Whether a parsed JSON file has the shape of the data set."""
    return (
        isinstance(document, list)
        and bool(document)
        and all(isinstance(item, dict) and isinstance(item.get("conversation"), dict) for item in document)
    )


def message_id(dia_id: str) -> str:
    """`D1:3` as the id of its message, `D1-3`."""
    return safe_id(dia_id)


def session_id(sample_id: str, number: int) -> str:
    """Session of ours that holds a session of the data set."""
    return f"{safe_id(sample_id)}_s{number}"


def read_locomo(document: Any) -> list[Batch]:
    """One batch a session, in order. Raises TranscriptError that names the conversation and session."""
    batches: list[Batch] = []
    for position, item in enumerate(document):
        sample = str(item.get("sample_id") or f"conversation-{position + 1}")
        conversation = item["conversation"]
        numbers = sorted(int(match[1]) for name in conversation if (match := _SESSION.fullmatch(name)))
        for number in numbers:
            try:
                batches.append(_batch(sample, number, conversation))
            except (KeyError, ValueError, ValidationError) as error:
                raise TranscriptError(f"{sample}, session_{number} cannot be read: {type(error).__name__}") from error
    return batches


def _batch(sample: str, number: int, conversation: dict[str, Any]) -> Batch:
    # The data set names no zone and one time for the whole session; the order of turns is in the sequence.
    said_at = datetime.strptime(conversation[f"session_{number}_date_time"], _TIME_FORMAT).replace(tzinfo=UTC)
    messages = [_message(_Turn.model_validate(turn), said_at) for turn in conversation[f"session_{number}"]]
    return Batch(session_id(sample, number), messages, user=safe_id(sample))


def _message(turn: _Turn, said_at: datetime) -> Message:
    parts: list[Part] = [TextPart(turn.text)]
    if turn.blip_caption:
        parts.append(TextPart(f"[photo: {turn.blip_caption}]"))
    return Message("user", parts, id=message_id(turn.dia_id), created_at=said_at, speaker=turn.speaker)
