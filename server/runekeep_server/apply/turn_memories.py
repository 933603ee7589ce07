"""Reads turn memories in an output: removes secrets, cuts them to their limits, and checks their turns."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_schemas.turns.checks import bounded, bounded_summary, withheld, withheld_summary
from runekeep_server.apply.result import NO_PLACE
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.wire.turns import fingerprint_from_wire, summary_from_wire
from runekeep_storage.records import Message
from runekeep_storage.turns.memories import TurnMemory


@dataclass(slots=True)
class Read:
    """Valid turn memories. `dropped`: number of invalid items within them; `secrets`: number of removed secrets;
    `refused`: LeftOut entries of invalid turn memories, which a repair cannot fix."""

    memories: list[TurnMemory] = field(default_factory=list)
    dropped: int = 0
    secrets: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)


def of_batch(batch: Sequence[Message], memories: Sequence[pb.TurnMemory], *, withhold_secrets: bool) -> Read:
    """Returns the turn memories in a commit's output, at most one for each turn of the batch."""
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
    """Adds a turn memory, unless it is empty. Raises ApiError for values that are not JSON, before it counts
    anything."""
    fingerprint = replace(fingerprint_from_wire("fingerprint", wire.fingerprint), turn_id=wire.turn_id)
    summary = summary_from_wire(wire.summary)
    secrets = 0
    if withhold_secrets:
        # Before texts are cut: half of a secret is still secret, but no longer recognized.
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
    """Returns a LeftOut entry. Turn memories have no operation index; the message contains their index, from 0."""
    return {
        "reason": reason,
        "memory_type": "",
        "uri": "",
        "message": f"turn memory {index}: {message}",
        "operation_index": NO_PLACE,
    }
