"""Messages of a thread of Zep, as its API answers them, saved as JSON. Zep has no file of an export.

The form is public in the reference of the API (help.getzep.com): `messages` of a thread (v3) or of a session (v2, with
the role in `role_type`), `items` of a page (v4), and `episodes`. Facts, nodes and summaries of the graph are left out:
Zep made them from the messages.
"""

from collections.abc import Mapping
from typing import Any, Final

from runekeep.client.sessions.messages import RoleName
from runekeep.transcripts.batches import Batch, TranscriptError, id_or_hash, safe_id, text_message
from runekeep.transcripts.values import find_first_text, find_items, parse_time

_KEYS: Final = ("messages", "items", "episodes")
_ROLES: Final[Mapping[str, RoleName]] = {"user": "user", "norole": "user", "assistant": "assistant"}


def is_zep(document: Any) -> bool:
    """Returns whether a parsed JSON file has the shape of the answer."""
    return any(
        isinstance(one, dict) and "uuid" in one and "content" in one and ("role" in one or "role_type" in one)
        for one in find_items(document, _KEYS)
    )


def read_zep(document: Any, name: str) -> list[Batch]:
    """Returns a batch for each thread, in the order of time. `name`: that of the thread, if its messages do not name
    it. What a system or a tool said is left out.

    Raises TranscriptError if it holds no list of messages.
    """
    if not (items := find_items(document, _KEYS)):
        raise TranscriptError("it holds no list of messages")
    user = find_first_text(document, "user_id")
    batches: dict[str, Batch] = {}
    for place, said in enumerate(items):
        thread = find_first_text(said, "thread_uuid", "thread_id", "session_id") or name
        session_id = id_or_hash(safe_id(thread), prefix="zep_")
        batch = batches.setdefault(session_id, Batch(session_id, user=user and safe_id(user)))
        text, role = find_first_text(said, "content").strip(), _ROLES.get(find_first_text(said, "role_type", "role"))
        if not text or role is None:
            batch.left_out += 1
            continue
        id = id_or_hash(said.get("uuid"), session_id, place, text)
        time = parse_time(said.get("reference_time")) or parse_time(said.get("created_at"))
        # In v2 the role is a name, beside its type.
        speaker = find_first_text(said, "name") or (find_first_text(said, "role") if "role_type" in said else "")
        batch.messages.append(text_message(role, text, id, time, speaker=speaker))
    for batch in batches.values():
        if all(message.created_at for message in batch.messages):
            # Pages may have the newest message first.
            batch.messages.sort(key=lambda message: message.created_at.timestamp() if message.created_at else 0.0)
    return list(batches.values())
