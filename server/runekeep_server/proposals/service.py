"""ProposalService: review of the operations of commits."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from runekeep.v1 import proposal_service_pb2 as pb
from runekeep.v1 import proposal_service_pb2_grpc
from runekeep_common.times import DAY_US
from runekeep_server.identity import caller_space
from runekeep_server.merging.operations import Rules
from runekeep_server.proposals import answers, deciding
from runekeep_server.proposals.deciding import ReviewContext
from runekeep_server.proposals.planning import ProposalPlan, plan_proposal
from runekeep_server.protocol.answer_sizes import ROW_OVERHEAD_BYTES, AnswerSizes
from runekeep_server.protocol.pagination import cut_page, open_page
from runekeep_server.settings import Settings
from runekeep_server.wire.basics import session_id
from runekeep_storage.proposals import proposals
from runekeep_storage.store import Store

Context = grpc.aio.ServicerContext[Any, Any]


class ProposalService(proposal_service_pb2_grpc.ProposalServiceServicer):
    """Every call is confined to the caller's space."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._sizes = AnswerSizes.of(settings.max_message_bytes)
        self._review = ReviewContext(
            store,
            Rules(self._sizes.memory, settings.review_superseded),
            settings.withhold_secrets,
            settings.task_retention_days * DAY_US,
        )

    async def ListProposals(self, request: pb.ListProposalsRequest, context: Context) -> pb.ListProposalsResponse:
        space = caller_space()
        page = open_page(request, (int, str))
        after: Any = page.after
        session = session_id("session", request.session, space.user) if request.session else ""
        found = await self._store.database.read(
            proposals.page, space, session, after, page.size + 1, include_decided=request.include_decided
        )
        rows = [answers.proposal(space.user, one, self._review.kept) for one in found]
        keys = [(one.created_at, one.task_id) for one in found]
        shown, token = cut_page(request, rows, keys, page.size, self._sizes.page)
        return pb.ListProposalsResponse(proposals=shown, next_page_token=token)

    async def GetProposal(self, request: pb.GetProposalRequest, context: Context) -> pb.GetProposalResponse:
        space = caller_space()
        store, rules = self._store, self._review.rules
        plan = await store.database.read(plan_proposal, space, store.registry, rules, request.task_id)
        # In a thread: rendering the files of many memories would block other calls.
        operations, omitted = await asyncio.to_thread(_operations, plan, self._sizes.page)
        return pb.GetProposalResponse(
            proposal=answers.proposal(space.user, plan.proposal, self._review.kept),
            operations=operations,
            newest_revision=plan.newest,
            texts_omitted=omitted,
        )

    async def AcceptProposal(self, request: pb.AcceptProposalRequest, context: Context) -> pb.AcceptProposalResponse:
        return await deciding.accept(self._review, caller_space(), request)

    async def EditProposal(self, request: pb.EditProposalRequest, context: Context) -> pb.EditProposalResponse:
        return await deciding.edit(self._review, caller_space(), request)

    async def RefuseProposal(self, request: pb.RefuseProposalRequest, context: Context) -> pb.RefuseProposalResponse:
        return await deciding.refuse(self._review, caller_space(), request)


def _operations(plan: ProposalPlan, most_bytes: int) -> tuple[Sequence[pb.ProposedOperation], bool]:
    """Returns all operations, and whether some lack their texts because they would take more than `most_bytes`."""
    shown, omitted = [], False
    for one in plan.proposal.operations:
        whole = answers.operation(one, plan.effects.get(one.number, ()), plan.problems.get(one.number))
        most_bytes -= ROW_OVERHEAD_BYTES
        if one.is_open and whole.ByteSize() > most_bytes:
            whole, omitted = answers.without_texts(whole), True
            if whole.ByteSize() > most_bytes:
                # Even the names are too many.
                whole.ClearField("uris")
        most_bytes -= whole.ByteSize()
        shown.append(whole)
    return shown, omitted
