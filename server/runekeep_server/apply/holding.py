"""Keeps the operations of an output that wait for review as a proposal, and merges the others."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.merging.commit_merge import CommitContext, merge_operations
from runekeep_server.merging.effects import Effect, held_operations
from runekeep_server.merging.outcome import OperationRef, Outcome
from runekeep_server.merging.routing import Skipped
from runekeep_server.merging.workspace import Draft
from runekeep_storage.database import Space, Tx
from runekeep_storage.proposals import proposals
from runekeep_storage.proposals.proposals import Proposal, ProposedOperation
from runekeep_storage.records import Job
from runekeep_storage.spaces import spaces


@dataclass(frozen=True, slots=True)
class Merged:
    """The memories that an output touches, with its operations applied except for those that wait for review, which are
    in `proposal`. The outcome is that of all operations."""

    drafts: list[Draft]
    outcome: Outcome
    proposal: Proposal | None = None


async def merge_output(
    tx: Tx,
    space: Space,
    context: CommitContext,
    job: Job,
    operations: Sequence[pb.MemoryOperation],
    extractor: str,
) -> Merged:
    """Merges the operations with the memories that they touch. `extractor`: JSON.

    If the user has no room for another proposal, what should wait is left out and reported: it must not be applied
    unseen, and the commit must not wait for a reviewer.
    """
    drafts, outcome = await merge_operations(tx, space, context, operations)
    held = held_operations(outcome.effects, context.plan.review)
    if not held:
        return Merged(drafts, outcome)
    newest, _ = await spaces.revisions(tx, space)
    proposal = Proposal(
        job.session_id,
        job.job_id,
        job.archive_index,
        json.dumps(context.plan.to_json()),
        extractor,
        tuple(
            propose(number, operations[index], effects, newest)
            for number, (index, effects) in enumerate(held.items(), start=1)
        ),
        revision=newest,
    )
    # Also without what was rejected or skipped. It was reported as left out, and might be valid without the others.
    without = {*held, *(entry["operation_index"] for entry in (*outcome.rejected, *outcome.skipped))}
    rest = [operation for index, operation in enumerate(operations) if index not in without]
    drafts, _ = await merge_operations(tx, space, context, rest)
    if not await proposals.has_room(tx, space, 1, proposal.open_bytes):
        full = Skipped("too_many_proposals", "it should wait for review, and as many proposals wait as a user may have")
        for index, effects in held.items():
            place = OperationRef(index, effects[0].type.name, effects[0].uri)
            outcome.skipped.append(place.left_out(full.reason, full.message))
        outcome.taken -= len(held)
        return Merged(drafts, outcome)
    outcome.held = [effects[0].type.name for effects in held.values()]
    return Merged(drafts, outcome, proposal)


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
