"""Transcripts of Codex ("rollouts"): JSON lines of a time, a type and a payload.

Read is what was said, of the items with the type `response_item`. Items need not have an id, so the id of a message is
made from the session and the number of its line: a rollout only grows.
"""

import json
import uuid
from collections.abc import Iterable
from typing import Any

from runekeep.client.sessions.messages import Message, RoleName, TextPart
from runekeep.injection.texts import MAX_TEXT_CHARS, clean_text
from runekeep.transcripts.claude_code import parse_time

_IDS = uuid.UUID("0c7c6d0e-3a51-4f0b-8f0a-52d7a1d3b6aa")
# Context that Codex sends in the name of the user.
_SCAFFOLDING = ("<environment_context>", "<user_instructions>", "<permissions", "# AGENTS.md instructions")


def read_codex(lines: Iterable[str]) -> list[Message]:
    """Returns the messages of a rollout, in order."""
    messages: list[Message] = []
    session = ""
    for number, line in enumerate(lines):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            # The agent may be writing the last line.
            continue
        payload = entry.get("payload") if isinstance(entry, dict) else None
        if not isinstance(payload, dict):
            continue
        if entry.get("type") == "session_meta":
            session = session or str(payload.get("id", ""))
        elif entry.get("type") == "response_item" and payload.get("type") == "message":
            text = _text(payload.get("content"))
            role = payload.get("role")
            if text and role in ("user", "assistant") and not text.startswith(_SCAFFOLDING):
                made = uuid.uuid5(_IDS, clean_text(f"{session}\n{number}"))
                said_by: RoleName = "user" if role == "user" else "assistant"
                messages.append(Message(said_by, [TextPart(text)], f"msg_{made}", parse_time(entry.get("timestamp"))))
    return messages


def _text(content: Any) -> str:
    blocks = content if isinstance(content, list) else []
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, dict)
        and block.get("type") in ("input_text", "output_text")
        and isinstance(block.get("text"), str)
    ]
    return clean_text("\n".join(texts).strip()[:MAX_TEXT_CHARS])
