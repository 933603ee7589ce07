"""Large tool outputs of messages: cut to a preview where they stand, the whole kept as a blob beside the rows."""

from asyncio import to_thread
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from storage import blob_sweeps
from storage.database import Space
from storage.records import STORED_OUTPUT, Json, Message
from storage.store import Store
from storage.tool_calls import call_id, document_name


@dataclass(slots=True)
class Apart:
    """Messages as their rows are to hold them. `outputs`: tool ids to (blob, length in characters)."""

    messages: list[Message]
    outputs: dict[str, tuple[str, int]] = field(default_factory=dict)


def any_large(messages: Sequence[Message], limit: int) -> bool:
    """Whether any of them has an output of more than `limit` characters."""
    return any(_is_large(part, limit) for message in messages for part in message.parts)


async def put_apart(store: Store, space: Space, messages: Sequence[Message], limit: int) -> Apart:
    """Cuts outputs of more than `limit` characters. The whole of each goes to a blob before any row names it.

    The part itself names the blob: agent runtimes use a call id again, and each call keeps its own output. Should no
    row come to name a blob, as when the call is refused, a sweep takes it away. Raises StoreUnavailable.
    """
    await store.database.write(blob_sweeps.expect, space)
    apart = Apart([])
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
