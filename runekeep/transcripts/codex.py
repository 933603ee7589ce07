"""Transcripts of Codex ("rollouts"): JSON lines of a time, a type and a payload.

Read is what was said, of the items with the type `response_item`. Items need not have an id, so the id of a message is
made from the session and the number of its line: a rollout only grows.
"""

import uuid
from collections.abc import Iterable

from runekeep.client.sessions.messages import Message, RoleName
from runekeep.injection.texts import clean_text
from runekeep.transcripts.batches import text_message
from runekeep.transcripts.values import join_block_texts, parse_time, parse_valid_lines

_IDS = uuid.UUID("0c7c6d0e-3a51-4f0b-8f0a-52d7a1d3b6aa")
# Context that Codex sends in the name of the user.
_SCAFFOLDING = ("<environment_context>", "<user_instructions>", "<permissions", "# AGENTS.md instructions")


def read_codex(lines: Iterable[str]) -> list[Message]:
    """Returns the messages of a rollout, in order."""
    messages: list[Message] = []
    session = ""
    for number, entry in parse_valid_lines(lines):
        payload = entry.get("payload")
        if not isinstance(payload, dict):
            continue
        if entry.get("type") == "session_meta":
            found = payload.get("id")
            session = session or (found if isinstance(found, str) else "")
        elif entry.get("type") == "response_item" and payload.get("type") == "message":
            text = join_block_texts(payload.get("content"), "input_text", "output_text")
            role = payload.get("role")
            if text and role in ("user", "assistant") and not text.startswith(_SCAFFOLDING):
                made = uuid.uuid5(_IDS, clean_text(f"{session}\n{number}"))
                said_by: RoleName = "user" if role == "user" else "assistant"
                messages.append(text_message(said_by, text, f"msg_{made}", parse_time(entry.get("timestamp"))))
    return messages
