"""Agent files of Letta (`.af`): the agents of a file with their messages, and the blocks of their memory.

The form is public: `AgentFileSchema` in `letta/schemas/agent_file.py` (github.com/letta-ai/letta), and before that a
single agent with `core_memory` (`letta/serialize_schemas/pydantic_agent_schema.py`); examples are in
github.com/letta-ai/agent-file. Letta puts the last 50 messages of an agent into its file, and no archival memory.

Ids in a file are counted anew for each export, so messages are named by what they say and when.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from runekeep.client.sessions.messages import Message
from runekeep.transcripts.batches import Batch, TranscriptError, id_or_hash, text_message
from runekeep.transcripts.values import join_block_texts, list_objects, parse_time

_TALKS: Final = "letta_v1_agent"
"""The type of agents whose texts are what they say. Others think in their texts and speak with a tool."""
_PERSONA: Final = "persona"
"""The block that says what the agent is like, and nothing about the user."""


def is_letta(document: Any) -> bool:
    """Returns whether a parsed JSON file has the shape of an agent file."""
    if not isinstance(document, dict):
        return False
    return isinstance(document.get("agents"), list) or ("core_memory" in document and "messages" in document)


def read_letta(document: Any) -> list[Batch]:
    """Returns a batch for each agent: its messages, then the blocks of its memory as messages.

    Raises TranscriptError with the position of an agent that has no list of messages.
    """
    blocks = {block["id"]: block for block in list_objects(document.get("blocks")) if isinstance(block.get("id"), str)}
    batches = []
    for position, agent in enumerate(document.get("agents") or [document], 1):
        if not isinstance(agent, dict) or not isinstance(agent.get("messages"), list):
            raise TranscriptError(f"agent {position} has no list `messages`")
        batch = Batch(id_or_hash(agent.get("name"), position, prefix="letta_"))
        for said in agent["messages"]:
            text = _said(said, agent) if isinstance(said, dict) else ""
            if not text:
                batch.left_out += 1
                continue
            created_at = parse_time(said.get("created_at"))
            batch.messages.append(_message(batch, said["role"], text, created_at))
        named = agent.get("block_ids")
        own = [blocks[id] for id in named if isinstance(id, str) and id in blocks] if isinstance(named, list) else []
        exported_at = parse_time(document.get("created_at"))
        for label, text, changed_at in _remembered([*own, *list_objects(agent.get("core_memory"))]):
            batch.messages.append(_message(batch, "user", f"{label}: {text}", changed_at or exported_at))
        batches.append(batch)
    return batches


def _message(batch: Batch, role: Any, text: str, created_at: datetime | None) -> Message:
    id = id_or_hash(None, batch.session_id, created_at, role, text)
    return text_message("assistant" if role == "assistant" else "user", text, id, created_at)


def _remembered(blocks: list[Mapping[str, Any]]) -> Iterator[tuple[str, str, datetime | None]]:
    """Yields label, text and time of the blocks that hold memory."""
    for block in blocks:
        label, value = block.get("label"), block.get("value")
        if isinstance(label, str) and label != _PERSONA and isinstance(value, str) and value.strip():
            yield label, value.strip(), parse_time(block.get("updated_at"))


def _said(said: Mapping[str, Any], agent: Mapping[str, Any]) -> str:
    """Returns what user or assistant said, empty for prompts, thoughts, tools and events of the agent's own."""
    text = _text(said.get("content"))
    match said.get("role"):
        case "user":
            return _of_user(text)
        case "assistant":
            spoken = [_spoken(call) for call in list_objects(said.get("tool_calls"))]
            if agent.get("agent_type") == _TALKS or not spoken:
                return text
            return "\n".join(filter(None, spoken))
    return ""


def _of_user(text: str) -> str:
    """Returns the message in what older agents get: JSON with a type and a time around it, also for events such as a
    login."""
    if not text.startswith("{"):
        return text
    try:
        packed = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(packed, dict) or "type" not in packed:
        return text
    message = packed.get("message")
    return message.strip() if packed["type"] == "user_message" and isinstance(message, str) else ""


def _spoken(call: Mapping[str, Any]) -> str:
    """Returns what the tool `send_message` says; empty for other tools."""
    function = call.get("function")
    if not isinstance(function, dict) or function.get("name") != "send_message":
        return ""
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except (ValueError, TypeError, RecursionError):
        return ""
    message = arguments.get("message") if isinstance(arguments, dict) else None
    return message.strip() if isinstance(message, str) else ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    return join_block_texts(content, "text")
