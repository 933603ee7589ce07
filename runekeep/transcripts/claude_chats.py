"""Conversations of Claude's data export, `conversations.json`. Anthropic does not document the form."""

from collections.abc import Mapping
from typing import Any

from runekeep.client.sessions.messages import RoleName
from runekeep.transcripts.batches import Batch, TranscriptError, id_or_hash, text_message
from runekeep.transcripts.values import join_block_texts, list_objects, parse_time

_ROLES: Mapping[str, RoleName] = {"human": "user", "assistant": "assistant"}


def is_claude(document: Any) -> bool:
    """Returns whether a parsed JSON file has the shape of the export."""
    return isinstance(document, list) and any(isinstance(one, dict) and "chat_messages" in one for one in document)


def read_claude(document: Any) -> list[Batch]:
    """Returns a batch for each conversation. One without a text has no messages.

    Raises TranscriptError with the position of a conversation that has no list of messages.
    """
    batches = []
    for position, conversation in enumerate(document, 1):
        if not isinstance(conversation, dict) or not isinstance(conversation.get("chat_messages"), list):
            raise TranscriptError(f"conversation {position} has no list `chat_messages`")
        messages = [said if isinstance(said, dict) else {} for said in conversation["chat_messages"]]
        seed = (conversation.get("created_at"), conversation.get("name"), next(filter(None, map(_text, messages)), ""))
        batch = Batch(id_or_hash(conversation.get("uuid"), *seed, prefix="claude_"))
        for place, said in enumerate(messages):
            text = _text(said)
            if not text:
                batch.left_out += 1
                continue
            name = id_or_hash(said.get("uuid"), batch.session_id, place, text)
            batch.messages.append(text_message(_ROLES[said["sender"]], text, name, parse_time(said.get("created_at"))))
        batches.append(batch)
    return batches


def _text(said: Mapping[str, Any]) -> str:
    """Returns what user or assistant said, without thoughts and tools, which the old field `text` may hold too."""
    if not isinstance(said.get("sender"), str) or said["sender"] not in _ROLES:
        return ""
    content, old = said.get("content"), said.get("text")
    if not list_objects(content):
        return old.strip() if isinstance(old, str) else ""
    return join_block_texts(content, "text")
