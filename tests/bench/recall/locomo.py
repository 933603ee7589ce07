"""Conversations of LoCoMo (snap-research/locomo) with the questions that are asked about them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runekeep.client.sessions.messages import message_to_wire
from runekeep.transcripts.batches import Batch, safe_id
from runekeep.transcripts.locomo import message_id, read_locomo
from runekeep.v1 import common_pb2

CATEGORIES = (1, 2, 3, 4)
"""Category 5 asks for what was never said."""
# Some are written `D8:6; D9:17` or `D:11:26`.
_TURN = re.compile(r"D:?(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Question:
    """`evidence`: ids of the messages that answer it."""

    text: str
    category: int
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One user's sessions, oldest first, and the questions that name evidence that is there. `session_of`: by message
    id."""

    user: str
    sessions: Mapping[str, list[common_pb2.Message]]
    questions: tuple[Question, ...]
    session_of: Mapping[str, str]


def read(file: Path) -> list[Conversation]:
    """Raises TranscriptError, ValueError for a file of another form."""
    document = json.loads(file.read_text(encoding="utf-8"))
    batches = read_locomo(document)
    return [_conversation(position, item, batches) for position, item in enumerate(document, 1)]


def _conversation(position: int, item: Mapping[str, Any], batches: list[Batch]) -> Conversation:
    user = safe_id(str(item.get("sample_id") or f"conversation-{position}"))
    sessions = {
        batch.session_id: [message_to_wire(message) for message in batch.messages]
        for batch in batches
        if batch.user == user
    }
    session_of = {message.id: session for session, messages in sessions.items() for message in messages}
    questions = [_question(one, session_of) for one in item["qa"] if one["category"] in CATEGORIES]
    return Conversation(user, sessions, tuple(one for one in questions if one.evidence), session_of)


def _question(one: Mapping[str, Any], there: Mapping[str, str]) -> Question:
    named = _TURN.findall(" ".join(one.get("evidence") or []))
    evidence = {message_id(f"D{int(session)}:{int(turn)}") for session, turn in named}
    return Question(one["question"], one["category"], frozenset(evidence & there.keys()))
