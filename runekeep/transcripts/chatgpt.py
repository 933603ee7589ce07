"""Conversations of ChatGPT's data export, `conversations.json`.

A conversation is a tree, because a question can be asked again in other words. What counts is the branch that the
person last saw: `current_node` and what lies above it. OpenAI does not document the form, so a node of an unknown kind
is passed over.
"""

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from runekeep.client.sessions.messages import Message, RoleName
from runekeep.transcripts.batches import Batch, TranscriptError, id_or_hash, text_message

_CONTENT = ("text", "multimodal_text")


def is_chatgpt(document: Any) -> bool:
    """Returns whether a parsed JSON file has the shape of the export."""
    return isinstance(document, list) and any(isinstance(one, dict) and "mapping" in one for one in document)


def read_chatgpt(document: Any) -> list[Batch]:
    """Returns a batch for each conversation. One without a text has no messages.

    Raises TranscriptError with the position of a conversation that has no nodes.
    """
    batches = []
    for position, conversation in enumerate(document, 1):
        if not isinstance(conversation, dict) or not isinstance(conversation.get("mapping"), dict):
            raise TranscriptError(f"conversation {position} has no `mapping` with its messages")
        branch = _visible_branch(conversation)
        texts = (text for said in branch if (text := _text(said)))
        name = conversation.get("conversation_id") or conversation.get("id")
        seed = (conversation.get("create_time"), conversation.get("title"), next(texts, ""))
        batch = Batch(id_or_hash(name, *seed, prefix="chatgpt_"))
        for place, said in enumerate(branch):
            message = _message(said, batch.session_id, place)
            if message is not None:
                batch.messages.append(message)
            else:
                batch.left_out += 1
        batches.append(batch)
    return batches


def _visible_branch(conversation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the messages of the branch that the person last saw, the first one first.

    Without a known `current_node`, it is the branch whose last message is the newest.
    """
    mapping, name = conversation["mapping"], conversation.get("current_node")
    if not isinstance(name, str) or name not in mapping:
        name = _newest_leaf(mapping)
    return [*_upwards(mapping, name)][::-1]


def _newest_leaf(mapping: Mapping[str, Any]) -> str | None:
    nodes = {name: node for name, node in mapping.items() if isinstance(node, dict)}
    parents = {parent for node in nodes.values() if isinstance(parent := node.get("parent"), str)}
    leaves = {name: node for name, node in nodes.items() if name not in parents} or nodes
    return max(leaves, key=lambda name: _seconds(_dict(leaves[name].get("message"))), default=None)


def _upwards(mapping: Mapping[str, Any], name: Any) -> Iterator[Mapping[str, Any]]:
    passed = set()
    while isinstance(name, str) and name in mapping and name not in passed:
        passed.add(name)
        node = _dict(mapping[name])
        if isinstance(node.get("message"), dict):
            yield node["message"]
        name = node.get("parent")


def _message(said: Mapping[str, Any], session_id: str, place: int) -> Message | None:
    """Returns None for what user and assistant did not say: prompts of the system, tools, hidden messages."""
    text = _text(said)
    if not text:
        return None
    role: RoleName = "user" if _dict(said.get("author")).get("role") == "user" else "assistant"
    return text_message(role, text, id_or_hash(said.get("id"), session_id, place, text), _created_at(said))


def _text(said: Mapping[str, Any]) -> str:
    """Returns what user or assistant said, empty for all else."""
    author, content, metadata = (_dict(said.get(field)) for field in ("author", "content", "metadata"))
    if author.get("role") not in ("user", "assistant") or content.get("content_type") not in _CONTENT:
        return ""
    if metadata.get("is_visually_hidden_from_conversation") or said.get("recipient") not in (None, "all"):
        return ""
    parts = content.get("parts")
    if isinstance(parts, str):
        return parts.strip()
    return "\n".join(part for part in parts if isinstance(part, str)).strip() if isinstance(parts, list) else ""


def _seconds(said: Mapping[str, Any]) -> float:
    """Returns the time of a message in seconds since 1970; minus infinity if it has none."""
    created = _created_at(said)
    return created.timestamp() if created else -math.inf


def _created_at(said: Mapping[str, Any]) -> datetime | None:
    at = said.get("create_time")
    if isinstance(at, bool) or not isinstance(at, int | float):
        return None
    try:
        return datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
