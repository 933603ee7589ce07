"""Decides about operations of proposals: accepts, edits or refuses them.

Whatever is decided is one transaction: the memories, their revision and the decision are stored together or not at all.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from runekeep.v1 import proposal_service_pb2 as pb
from runekeep_common import failpoints
from runekeep_server.merging.operations import Rules
from runekeep_server.merging.proposed import operation_json, operation_of, propose
from runekeep_server.merging.versions import versions_of
from runekeep_server.proposals import answers
from runekeep_server.proposals.planning import ProposalPlan, plan_proposal, with_values
from runekeep_server.protocol.errors import invalid, proposal_decided, revision_moved, too_large
from runekeep_server.protocol.idempotency import mutate, prepare_and_mutate
from runekeep_server.protocol.secret_scan import refuse_secrets, scan_for_secrets
from runekeep_server.wire.basics import plain_value
from runekeep_storage.database import Space, Tx
from runekeep_storage.memories import revisions
from runekeep_storage.memories.revisions import Origin
from runekeep_storage.proposals import proposals
from runekeep_storage.proposals.proposals import ACCEPTED, REFUSED, Proposal, ProposedOperation
from runekeep_storage.records import MemoryWrite
from runekeep_storage.spaces import spaces
from runekeep_storage.store import Store


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """What decisions need. `kept`: how long a task is kept after its end, in microseconds."""

    store: Store
    rules: Rules
    withhold_secrets: bool
    kept: int


async def accept(review: ReviewContext, space: Space, request: pb.AcceptProposalRequest) -> pb.AcceptProposalResponse:
    """Applies operations that are open and fit.

    Raises ApiError, NotFound, RequestReused, VersionConflict (memories kept changing), StoreUnavailable.
    """
    store = review.store

    async def prepare() -> tuple[ProposalPlan, list[MemoryWrite]]:
        plan = await store.database.read(
            plan_proposal, space, store.registry, review.rules, request.task_id, frozenset(request.numbers)
        )
        _check_numbers(plan.proposal, request.numbers, REFUSED)
        return plan, await versions_of(store, space, [draft for draft in plan.drafts if draft.changed])

    async def work(prepared: tuple[ProposalPlan, list[MemoryWrite]], tx: Tx) -> pb.AcceptProposalResponse:
        return await _accept(tx, space, review, request, *prepared)

    answer = await prepare_and_mutate(store.database, space, request, pb.AcceptProposalResponse, prepare, work)
    failpoints.reached(failpoints.PROPOSAL_AFTER_COMMIT)
    store.relay.wake()
    return answer


async def _accept(
    tx: Tx,
    space: Space,
    review: ReviewContext,
    request: pb.AcceptProposalRequest,
    plan: ProposalPlan,
    writes: Sequence[MemoryWrite],
) -> pb.AcceptProposalResponse:
    newest, _ = await spaces.revisions(tx, space)
    if request.expected_revision and request.expected_revision != newest:
        raise revision_moved(request.expected_revision, newest)
    before, revision = plan.proposal, 0
    accepted = [number for number in plan.planned if number not in plan.problems]
    if accepted and writes:
        # Without the job: it makes no revision but that of its commit.
        origin = Origin("proposal", session_id=before.session_id, archive_index=before.archive_index)
        revision = await revisions.make(tx, space, writes, before.extractor, origin)
    after = before.with_operations(
        [one.decided(ACCEPTED, revision) for one in before.operations if one.number in accepted]
    )
    # Also without a change: it fails if somebody else decided meanwhile, and the plan is out of date then.
    await proposals.update(tx, space, after)
    asked = request.numbers or plan.planned
    return pb.AcceptProposalResponse(
        revision=revision,
        accepted=[one.number for one in after.operations if one.state == ACCEPTED and one.number in asked],
        not_applied=[plan.problems[number] for number in plan.planned if number in plan.problems],
        proposal=answers.proposal(space.user, after, review.kept),
    )


async def edit(review: ReviewContext, space: Space, request: pb.EditProposalRequest) -> pb.EditProposalResponse:
    """Replaces values of an open operation. Raises as `accept`, and ApiError for values that cannot be applied."""
    if review.withhold_secrets:
        await scan_for_secrets(refuse_secrets, _texts(request))
    database = review.store.database

    async def prepare() -> Proposal:
        return await database.read(_edit_operation, space, review, request)

    async def work(after: Proposal, tx: Tx) -> pb.EditProposalResponse:
        before = await proposals.get(tx, space, request.task_id)
        if not await proposals.has_room(tx, space, 0, after.open_bytes - before.open_bytes):
            what = f"The open proposals of the user would take more than {proposals.MAX_OPEN_BYTES} bytes"
            raise too_large(what, "Decide about others first, or keep it shorter")
        await proposals.update(tx, space, after)
        return pb.EditProposalResponse(proposal=answers.proposal(space.user, after, review.kept))

    return await prepare_and_mutate(database, space, request, pb.EditProposalResponse, prepare, work)


async def _edit_operation(tx: Tx, space: Space, review: ReviewContext, request: pb.EditProposalRequest) -> Proposal:
    """Returns the proposal with the changed operation, which is merged with the memories as they are now."""
    before = await proposals.get(tx, space, request.task_id)
    one = _numbered(before, request.number)
    if not one.is_open:
        raise proposal_decided(request.task_id, request.number, one.state)
    if one.action == "delete":
        raise invalid("number", "is of a delete, which gives no values", "Refuse it, or write the memory by hand")
    given = with_values(operation_of(one), request.fields)
    newest, _ = await spaces.revisions(tx, space)
    candidate = replace(one, operation=operation_json(given), base_revision=newest)
    plan = await plan_proposal(tx, space, review.store.registry, review.rules, request.task_id, edited=candidate)
    if problem := plan.problems.get(one.number):
        raise invalid("fields", f"cannot be applied: {problem.reason}: {problem.message}", "Give other values")
    effects = plan.effects[one.number]
    if not effects:
        raise invalid("fields", "name only counters, which the server counts", "Give other fields")
    return replace(before.with_operations([propose(one.number, given, effects, newest, edited=True)]), revision=newest)


async def refuse(review: ReviewContext, space: Space, request: pb.RefuseProposalRequest) -> pb.RefuseProposalResponse:
    """Refuses open operations and deletes their text. Raises ApiError, NotFound, RequestReused, StoreUnavailable."""

    async def work(tx: Tx) -> pb.RefuseProposalResponse:
        before = await proposals.get(tx, space, request.task_id)
        _check_numbers(before, request.numbers, ACCEPTED)
        after = before.with_operations(
            [
                one.decided(REFUSED)
                for one in before.operations
                if one.is_open and (not request.numbers or one.number in request.numbers)
            ]
        )
        await proposals.update(tx, space, after)
        return pb.RefuseProposalResponse(proposal=answers.proposal(space.user, after, review.kept))

    return await mutate(review.store.database, space, request, pb.RefuseProposalResponse, work)


def _numbered(proposal: Proposal, number: int, field: str = "number") -> ProposedOperation:
    if number > len(proposal.operations):
        raise invalid(field, "is no operation of the proposal", "See GetProposal")
    return proposal.operations[number - 1]


def _check_numbers(proposal: Proposal, numbers: Collection[int], opposite: str) -> None:
    """Raises ApiError for a number that the proposal does not have, or an operation with the opposite decision."""
    for place, number in enumerate(numbers):
        one = _numbered(proposal, number, f"numbers[{place}]")
        if one.state == opposite:
            raise proposal_decided(proposal.task_id, number, one.state)


def _texts(request: pb.EditProposalRequest) -> list[tuple[str, str]]:
    """Returns the texts of the given values, with the paths of their fields."""
    return [
        (f"fields[{json.dumps(name, ensure_ascii=False)}]", str(plain_value(request.fields[name])))
        for name in sorted(request.fields)
    ]
