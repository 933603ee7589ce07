"""Memories that mem0 returns: the answers of `Memory.get_all` (open source) and `MemoryClient.get_all` (platform) as
JSON.

The form is public: `MemoryItem` in `mem0/configs/base.py` with the fields that `mem0/memory/main.py` adds
(github.com/mem0ai/mem0), and the page "Get memories" of docs.mem0.ai. An export of the platform
(`create_memory_export`) has the schema that its user wrote, so it cannot be read here.

mem0 keeps sentences without a type. Each becomes a message with its own time, so that its words stay as they are and
can be found, and extractors make memories of the types here from it.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

from runekeep.client.sessions.messages import Message, RoleName
from runekeep.transcripts.batches import Batch, TranscriptError, id_or_hash, safe_id, text_message
from runekeep.transcripts.values import find_first_text, find_items, parse_time

BATCH: Final = 100
"""Memories of one commit: mem0 keeps thousands for one user, and a commit reads all of its messages."""
_KEYS: Final = ("results", "memories")


def is_mem0(document: Any) -> bool:
    """Returns whether a parsed JSON file has the shape of the answer."""
    return any(isinstance(one, dict) and "memory" in one and "id" in one for one in find_items(document, _KEYS))


def read_mem0(document: Any) -> list[Batch]:
    """Returns batches for each user, agent and run of mem0, the oldest memory first. Memories without a text, and those
    that have expired, are left out.

    Raises TranscriptError if it holds no list of memories.
    """
    if not (items := find_items(document, _KEYS)):
        raise TranscriptError("it holds no list of memories")
    sessions: dict[tuple[str, str], list[Message]] = {}
    left_out = 0
    for item in items:
        message = _message(item) if isinstance(item, dict) else None
        if message is None:
            left_out += 1
            continue
        sessions.setdefault((find_first_text(item, "user_id"), _session_id(item)), []).append(message)
    batches = []
    for (user, session_id), messages in sessions.items():
        messages.sort(key=lambda message: message.created_at or datetime.min.replace(tzinfo=UTC))
        for start in range(0, len(messages), BATCH):
            batches.append(Batch(session_id, messages[start : start + BATCH], user=user and safe_id(user)))
    if left_out:
        batches = batches or [Batch("mem0")]
        batches[0].left_out = left_out
    return batches


def _session_id(item: Mapping[str, Any]) -> str:
    """Names the session by the run, else by the agent, whose memories they are."""
    name = find_first_text(item, "run_id") or find_first_text(item, "agent_id")
    return id_or_hash(name, prefix="mem0_") if name else "mem0"


def _message(item: Mapping[str, Any]) -> Message | None:
    text = find_first_text(item, "memory")
    if not text.strip() or _has_expired(item):
        return None
    role: RoleName = "assistant" if item.get("role") == "assistant" else "user"
    # What is remembered now is of its last change.
    time = parse_time(item.get("updated_at")) or parse_time(item.get("created_at"))
    return text_message(role, text, id_or_hash(item.get("id"), text), time, speaker=find_first_text(item, "actor_id"))


def _has_expired(item: Mapping[str, Any]) -> bool:
    until = item.get("expiration_date")
    try:
        return isinstance(until, str) and date.fromisoformat(until[:10]) < datetime.now(UTC).date()
    except ValueError:
        return False
