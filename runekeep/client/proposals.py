"""Review of what commits would change: proposals, and decisions about their operations."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from runekeep.client.blocking import blocking, blocking_iter
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.history import ChangedMemory, change_values
from runekeep.client.memories.requests import field_value
from runekeep.client.wire.proto_json import to_json
from runekeep.client.wire.result import Result
from runekeep.client.wire.values import Extractor, MessageRange, Scalar
from runekeep.v1 import proposal_service_pb2 as wire

_PAGE = 200


class Proposal(Result):
    """Operations of one commit that wait for review, or waited. `task_id`, the task of the commit, names it.
    `expire_time`: it is deleted then, decided or not."""

    task_id: str
    session: str
    archive_uri: str
    open_operations: int
    total_operations: int
    create_time: datetime | None
    expire_time: datetime | None
    extractor: Extractor | None


class ProposalProblem(Result):
    """Why an operation cannot be applied. `reason`: `changed_since`, or a reason as in the result of a task."""

    number: int
    reason: str
    message: str


class ProposedOperation(Result):
    """One operation. A decided one has only the keys up to `revision`, the others are empty.

    `revision`: of an accepted one, the revision that it is in; 0: all of it was there already. `changes`: what it would
    change now, after the open operations before it. `given`: its values and patches by field, as the contract has them.
    `ranges`: messages that it is based on. `removes`: it deletes a memory or takes text out of one. `problem`: why it
    cannot be applied now; None: it can. `uris`: memories that it is about. `texts_omitted`: `changes`, `given`,
    `reason` and `ranges` were too long for the answer; decide about the other operations, then get the proposal again.
    """

    number: int
    state: Literal["open", "accepted", "refused"]
    action: Literal["write", "edit", "delete"]
    memory_type: str
    revision: int
    changes: list[ChangedMemory]
    given: list[dict[str, Any]]
    reason: str
    ranges: list[MessageRange]
    removes: bool
    edited: bool
    problem: ProposalProblem | None
    uris: list[str]
    texts_omitted: bool


class ProposalDetails(Result):
    """A proposal with its operations. `newest_revision`: of the user's memories, for `expected_revision`.
    `texts_omitted`: some operations have `texts_omitted`."""

    proposal: Proposal
    operations: list[ProposedOperation]
    newest_revision: int
    texts_omitted: bool


class AcceptResult(Result):
    """`revision` 0: nothing was changed. `accepted`: operations that are accepted now, of those that were asked for.
    `not_applied`: operations that stay open, and why."""

    revision: int
    accepted: list[int]
    not_applied: list[ProposalProblem]
    proposal: Proposal


class UserProposals:
    """Review of a user's proposals; every AsyncClient is this too."""

    _connection: Connection

    async def proposals(self, session: str = "", *, include_decided: bool = False) -> AsyncGenerator[Proposal, None]:
        """Lists proposals with open operations, newest first; with `session` only those of that session.

        ```python
        for proposal in client.proposals():
            print(proposal.task_id, proposal.open_operations)
        ```
        """
        request = wire.ListProposalsRequest(session=session, include_decided=include_decided, page_size=_PAGE)
        async for page in self._connection.pages(self._connection.stubs.proposals.ListProposals, request):
            for proposal in page.proposals:
                yield Proposal(to_json(proposal))

    async def get_proposal(self, task_id: str) -> ProposalDetails:
        """Returns a proposal, and what each open operation would change now. Raises NotFoundError.

        ```python
        for proposal in client.proposals():
            for operation in client.get_proposal(proposal.task_id).operations:
                print(operation.number, operation.action, operation.uris)
        ```
        """
        request = wire.GetProposalRequest(task_id=task_id)
        response = await self._connection.call(self._connection.stubs.proposals.GetProposal, request)
        answer = to_json(response)
        for shown, operation in zip(answer["operations"], response.operations, strict=True):
            shown["changes"] = [change_values(change) for change in operation.changes]
        return ProposalDetails(answer)

    async def accept_proposal(
        self,
        task_id: str,
        numbers: Sequence[int] = (),
        *,
        expected_revision: int = 0,
        request_id: str | None = None,
    ) -> AcceptResult:
        """Applies operations as one revision; without `numbers` all open ones, also those with `texts_omitted`.

        An operation that no longer fits the memories stays open. Raises FailedPreconditionError (`PROPOSAL_DECIDED`)
        for a refused one, and AbortedError (`VERSION_MISMATCH`) if there is a newer revision than `expected_revision`.

        ```python
        for proposal in client.proposals():
            print(client.accept_proposal(proposal.task_id).revision)
        ```
        """
        request = wire.AcceptProposalRequest(
            task_id=task_id,
            numbers=numbers,
            expected_revision=expected_revision,
            request_id=request_id or new_request_id(),
        )
        answer = await self._connection.call(self._connection.stubs.proposals.AcceptProposal, request)
        return AcceptResult(to_json(answer))

    async def edit_proposal(
        self, task_id: str, number: int, fields: Mapping[str, Scalar], *, request_id: str | None = None
    ) -> Proposal:
        """Replaces values of an open write or edit, by field; it still has to be accepted.

        Raises InvalidArgumentError for values that cannot be applied, and FailedPreconditionError (`PROPOSAL_DECIDED`).

        ```python
        for proposal in client.proposals():
            client.edit_proposal(proposal.task_id, 1, {"content": "Green tea."})
        ```
        """
        request = wire.EditProposalRequest(
            task_id=task_id,
            number=number,
            fields={name: field_value(value) for name, value in fields.items()},
            request_id=request_id or new_request_id(),
        )
        answer = await self._connection.call(self._connection.stubs.proposals.EditProposal, request)
        return Proposal(to_json(answer.proposal))

    async def refuse_proposal(
        self, task_id: str, numbers: Sequence[int] = (), *, request_id: str | None = None
    ) -> Proposal:
        """Refuses operations and deletes their text; without `numbers` all open ones.

        Raises FailedPreconditionError (`PROPOSAL_DECIDED`) for an accepted one.

        ```python
        for proposal in client.proposals():
            client.refuse_proposal(proposal.task_id, [2])
        ```
        """
        request = wire.RefuseProposalRequest(
            task_id=task_id, numbers=numbers, request_id=request_id or new_request_id()
        )
        answer = await self._connection.call(self._connection.stubs.proposals.RefuseProposal, request)
        return Proposal(to_json(answer.proposal))


class BlockingUserProposals:
    """Blocking versions of the methods of UserProposals; a base of Client."""

    proposals = blocking_iter(UserProposals.proposals)
    get_proposal = blocking(UserProposals.get_proposal)
    accept_proposal = blocking(UserProposals.accept_proposal)
    edit_proposal = blocking(UserProposals.edit_proposal)
    refuse_proposal = blocking(UserProposals.refuse_proposal)
