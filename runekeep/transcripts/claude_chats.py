"""Conversations of Claude's data export, `conversations.json`. Anthropic does not document the form."""

from collections.abc import Mapping
from typing import Any

from runekeep.client.sessions.messages import Message, RoleName, TextPart
from runekeep.injection.texts import MAX_TEXT_CHARS, clean_text
from runekeep.transcripts.batches import Batch, safe_id
from runekeep.transcripts.claude_code import parse_time

_ROLES: Mapping[Any, RoleName] = {"human": "user", "assistant": "assistant"}


def is_claude(document: Any) -> bool:
    """Returns whether a parsed JSON file has the shape of the export."""
    return (
        isinstance(document, list)
        and bool(document)
        and all(isinstance(one, dict) and isinstance(one.get("chat_messages"), list) for one in document)
    )


def read_claude(document: Any) -> list[Batch]:
    """Returns a batch for each conversation with a text."""
    batches = []
    for conversation in document:
        batch = Batch(safe_id(f"claude_{conversation.get('uuid') or conversation.get('created_at')}"))
        for said in conversation["chat_messages"]:
            role = _ROLES.get(said.get("sender")) if isinstance(said, dict) else None
            text = _text(said) if role is not None else ""
            if role is None or not text:
                batch.left_out += 1
                continue
            part = TextPart(clean_text(text[:MAX_TEXT_CHARS]))
            batch.messages.append(
                Message(role, [part], safe_id(str(said.get("uuid"))), parse_time(said.get("created_at")))
            )
        if batch.messages:
            batches.append(batch)
    return batches


def _text(said: Mapping[str, Any]) -> str:
    """Returns what was said, without thoughts and tools, which the old field `text` may hold too."""
    blocks = [block for block in said.get("content") or () if isinstance(block, dict)]
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    return ("\n".join(texts) if blocks else str(said.get("text") or "")).strip()
