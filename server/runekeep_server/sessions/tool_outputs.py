"""Stores large tool outputs of messages as blobs, and leaves a preview in the message."""

from asyncio import to_thread
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from runekeep_storage.blobs import sweeps
from runekeep_storage.database import Space
from runekeep_storage.records import STORED_OUTPUT, Json, Message
from runekeep_storage.sessions.tool_calls import call_id, document_name
from runekeep_storage.store import Store


@dataclass(slots=True)
class ExternalizedMessages:
    """Messages in the form of their rows. `outputs`: by document name of the tool id, the blob and its length in
    characters."""

    messages: list[Message]
    outputs: dict[str, tuple[str, int]] = field(default_factory=dict)


def has_large_output(messages: Sequence[Message], limit: int) -> bool:
    """Returns whether any message has a tool output of more than `limit` characters."""
    return any(_is_large(part, limit) for message in messages for part in message.parts)


async def externalize_tool_outputs(
    store: Store, space: Space, messages: Sequence[Message], limit: int
) -> ExternalizedMessages:
    """Cuts outputs of more than `limit` characters, after it has stored each whole output as a blob.

    The part itself names the blob: agent runtimes reuse call ids, and each call keeps its own output. If no row comes
    to name a blob, for example because the call is refused, a sweep deletes it. Raises StoreUnavailable.
    """
    await store.database.write(sweeps.expect, space)
    apart = ExternalizedMessages([])
    for message in messages:
        apart.messages.append(await _cut(store, space, message, limit, apart.outputs))
    return apart


async def _cut(
    store: Store, space: Space, message: Message, limit: int, outputs: dict[str, tuple[str, int]]
) -> Message:
    parts: list[Json] = []
    for number, part in enumerate(message.parts):
        if _is_large(part, limit):
            tool_id = call_id(message.message_id, number, part)
            blob = await to_thread(store.blobs.put, space, part["output"].encode())
            outputs[document_name(tool_id)] = (blob, len(part["output"]))
            part = {
                **part,
                "tool_id": tool_id,
                "output": part["output"][:limit],
                "stored_output_length": len(part["output"]),
                STORED_OUTPUT: blob,
            }
        parts.append(part)
    return replace(message, parts=tuple(parts))


def _is_large(part: Json, limit: int) -> bool:
    return part["type"] == "tool" and len(part["output"]) > limit
