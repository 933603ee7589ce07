"""Keeps the operations of an output that wait for review as a proposal, and merges the others."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.merging.commit_merge import CommitContext, merge_operations
from runekeep_server.merging.effects import held_operations
from runekeep_server.merging.outcome import OperationRef, Outcome
from runekeep_server.merging.proposed import propose
from runekeep_server.merging.workspace import Draft
from runekeep_storage.database import Space, Tx
from runekeep_storage.proposals import proposals
from runekeep_storage.proposals.proposals import Proposal
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
        why = "it should wait for review, and as many proposals wait as a user may have"
        for index, effects in held.items():
            place = OperationRef(index, effects[0].type.name, effects[0].uri)
            outcome.skipped.append(place.left_out("too_many_proposals", why))
        outcome.taken -= len(held)
        return Merged(drafts, outcome)
    outcome.held = [effects[0].type.name for effects in held.values()]
    return Merged(drafts, outcome, proposal)
