"""What a user is known to have: ids, URIs and tokens that answers told, by the name of the field that told them."""

import random
from collections import deque
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

KEPT = 60
"""Of one field; older ones make room."""
_ALIKE = {
    "session": "session_id",
    "message_ids": "message_id",
    "turn_ids": "turn_id",
    "local_memories_turn_ids": "turn_id",
    "current_turn_id": "turn_id",
    "from_turn_id": "turn_id",
    "memory_bucket_ids": "bucket_id",
    "page_token": "next_page_token",
    "uris": "uri",
    "context_uris": "uri",
    "target_uri": "uri",
    "job_id": "task_id",
    "peers": "peer_id",
    "erasure_id": "erasure_id",
    "user": "user",
    "account": "account",
}
"""Fields that take what another one tells."""
_TOLD = ("id", "uri", "token", "session", "name", "tag", "tags", "user", "account", "key")


class Names:
    """`words`: things that everybody has."""

    def __init__(self, words: dict[str, tuple[str, ...]]) -> None:
        self._kept: dict[str, deque[str]] = {name: deque(some, KEPT) for name, some in words.items()}
        self.numbers: deque[int] = deque([1, 2], KEPT)
        """Versions, revisions, sequences."""
        self.leases: deque[tuple[str, int]] = deque(maxlen=30)

    def add(self, field: str, value: str) -> None:
        if 0 < len(value) <= 1024:
            self._kept.setdefault(_ALIKE.get(field, field), deque(maxlen=KEPT)).append(value)

    def learn(self, answer: Message) -> None:
        """Keeps what an answer names. Of a long list its beginning will do."""
        for field, value in _leaves(answer, 4):
            if isinstance(value, str):
                if field.rpartition("_")[2] in _TOLD:
                    self.add(field, value)
            elif 0 < value < 2**40:
                self.numbers.append(value)

    def of(self, field: str, rng: random.Random) -> str | None:
        """Something that the field may name; seldom something that another field names."""
        if rng.random() < 0.1:
            field = rng.choice(list(self._kept))
        kept = self._kept.get(_ALIKE.get(field, field))
        return rng.choice(kept) if kept else None


def _leaves(message: Message, depth: int) -> Iterator[tuple[str, Any]]:
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        for one in list(value)[:5] if field.is_repeated else (value,):
            if isinstance(one, Message):
                if depth:
                    yield from _leaves(one, depth - 1)
            elif isinstance(one, str) or field.cpp_type == FieldDescriptor.CPPTYPE_INT64:
                yield field.name, one
