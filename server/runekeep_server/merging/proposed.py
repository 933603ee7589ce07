"""The form in which a proposal holds an operation, and the way back."""

from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.merging.effects import Effect
from runekeep_storage.proposals.proposals import ProposedOperation


def propose(
    number: int, operation: pb.MemoryOperation, effects: Sequence[Effect], revision: int, *, edited: bool = False
) -> ProposedOperation:
    """Returns an operation as a proposal holds it. `effects`: what it does to the memories of `revision`."""
    action = operation.WhichOneof("operation") or ""
    stored = operation_json(operation)
    if action != "write":
        # In its canonical form: the proposal may be moved to another user.
        stored[action]["uri"] = effects[0].uri
    return ProposedOperation(
        number=number,
        action=action,
        memory_type=effects[0].type.name,
        operation=stored,
        # Also what it would supersede but for other operations, or if it existed: accepted later, it may delete that.
        targets={one.uri: _target(one) for one in effects},
        base_revision=revision,
        removes=any(one.removes for one in effects),
        edited=edited,
    )


def operation_json(operation: pb.MemoryOperation) -> dict[str, Any]:
    """Returns the stored form of an operation."""
    return json_format.MessageToDict(operation, preserving_proto_field_name=True)


def operation_of(record: ProposedOperation) -> pb.MemoryOperation:
    """Returns the operation of an open record as the extractor sent it, or as a reviewer edited it."""
    return json_format.ParseDict(record.operation, pb.MemoryOperation())


def _target(effect: Effect) -> str:
    if effect.is_move:
        return "move"
    return "delete" if effect.after is None else "write"
