"""Conversations of ChatGPT's data export, `conversations.json`.

A conversation is a tree, because a question can be asked again in other words. What counts is the branch that the
person last saw: `current_node` and what lies above it. OpenAI does not document the form, so a node of an unknown kind
is passed over.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from runekeep.client.sessions.messages import Message, RoleName, TextPart
from runekeep.injection.texts import MAX_TEXT_CHARS, clean_text
from runekeep.transcripts.batches import Batch, safe_id

_CONTENT = ("text", "multimodal_text")


def is_chatgpt(document: Any) -> bool:
    """Returns whether a parsed JSON file has the shape of the export."""
    return (
        isinstance(document, list)
        and bool(document)
        and all(isinstance(one, dict) and isinstance(one.get("mapping"), dict) for one in document)
    )


def read_chatgpt(document: Any) -> list[Batch]:
    """Returns a batch for each conversation with a text."""
    batches = []
    for conversation in document:
        name = str(conversation.get("conversation_id") or conversation.get("id") or conversation.get("create_time"))
        batch = Batch(safe_id(f"chatgpt_{name}"))
        for node in _seen(conversation):
            message = _message(node)
            if message is not None:
                batch.messages.append(message)
            else:
                batch.left_out += 1
        if batch.messages:
            batches.append(batch)
    return batches


def _seen(conversation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the messages of the branch that was last seen, the first one first."""
    mapping = conversation["mapping"]
    return [*_upwards(mapping, conversation.get("current_node"))][::-1]


def _upwards(mapping: Mapping[str, Any], name: Any) -> Iterator[Mapping[str, Any]]:
    passed = set()
    while name in mapping and name not in passed:
        passed.add(name)
        node = mapping[name]
        if isinstance(node, dict) and isinstance(node.get("message"), dict):
            yield node["message"]
        name = node.get("parent") if isinstance(node, dict) else None


def _message(said: Mapping[str, Any]) -> Message | None:
    """Returns None for what user and assistant did not say: prompts of the system, tools, hidden messages."""
    author, content, metadata = (said.get(field) or {} for field in ("author", "content", "metadata"))
    role = author.get("role")
    if role not in ("user", "assistant") or content.get("content_type") not in _CONTENT:
        return None
    if metadata.get("is_visually_hidden_from_conversation") or said.get("recipient", "all") != "all":
        return None
    text = "\n".join(part for part in content.get("parts") or () if isinstance(part, str)).strip()
    if not text:
        return None
    said_by: RoleName = "user" if role == "user" else "assistant"
    at = said.get("create_time")
    created = datetime.fromtimestamp(at, UTC) if isinstance(at, int | float) else None
    return Message(said_by, [TextPart(clean_text(text[:MAX_TEXT_CHARS]))], safe_id(str(said.get("id"))), created)
