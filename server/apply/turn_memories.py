"""What an output says of turns, read from the wire: cut into form, without secrets, of turns that it may name."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runekeep.v1 import extractor_service_pb2 as pb
from schemas.turns.checks import bounded, bounded_summary, withheld, withheld_summary
from server.apply.result import NO_PLACE
from server.errors import ApiError
from server.wire.turns import fingerprint_from_wire, summary_from_wire
from storage.records import Message
from storage.turn_memories import TurnMemory


@dataclass(slots=True)
class Read:
    """Turn memories that can be taken. `dropped` counts what was wrong inside of them, `secrets` what was taken out;
    `refused` are entries of LeftOut for those of which nothing can be taken: nothing of them is mended by a repair."""

    memories: list[TurnMemory] = field(default_factory=list)
    dropped: int = 0
    secrets: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)


def of_batch(batch: Sequence[Message], memories: Sequence[pb.TurnMemory], *, withhold_secrets: bool) -> Read:
    """What a commit's output says of turns of its batch, each named once."""
    read = Read()
    wanted = {message.turn_id for message in batch if message.turn_id}
    for index, memory in enumerate(memories):
        if memory.turn_id not in wanted:
            read.refused.append(_left_out(index, "no_such_turn", "its turn is not of the batch, or was named before"))
            continue
        wanted.remove(memory.turn_id)
        try:
            take(read, memory, withhold_secrets=withhold_secrets)
        except ApiError as error:
            read.refused.append(_left_out(index, "field_invalid", error.message))
    return read


def take(read: Read, wire: pb.TurnMemory, *, withhold_secrets: bool) -> None:
    """Adds a turn memory; one that says nothing adds none. Raises ApiError for values that are no JSON, before it has
    counted anything."""
    fingerprint = replace(fingerprint_from_wire("fingerprint", wire.fingerprint), turn_id=wire.turn_id)
    summary = summary_from_wire(wire.summary)
    secrets = 0
    if withhold_secrets:
        # Before anything is cut: half of a secret has its form no more, and is one all the same.
        fingerprint, of_fingerprint = withheld(fingerprint)
        summary, of_summary = withheld_summary(summary)
        secrets = of_fingerprint + of_summary
    fingerprint, dropped = bounded(fingerprint)
    summary, more = bounded_summary(summary)
    read.dropped += dropped + more
    read.secrets += secrets
    said = not fingerprint.is_empty or bool(fingerprint.conversation_title)
    if said or not summary.is_empty:
        read.memories.append(TurnMemory(wire.turn_id, fingerprint if said else None, summary))


def _left_out(index: int, reason: str, message: str) -> dict[str, Any]:
    """Turn memories are no operations: the message says which one it is, from 0."""
    return {
        "reason": reason,
        "memory_type": "",
        "uri": "",
        "message": f"turn memory {index}: {message}",
        "operation_index": NO_PLACE,
    }
