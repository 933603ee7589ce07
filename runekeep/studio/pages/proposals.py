"""Proposals to review: the list, and one with what each operation would change, to accept, edit or refuse."""

from starlette.responses import Response

from runekeep.client.connection.connection import new_request_id
from runekeep.studio.http.visit import Visit
from runekeep.v1 import common_pb2, proposal_service_pb2

PROPOSALS = 50
_FORM_FIELD = "field."


async def proposal_list(visit: Visit) -> Response:
    is_all = visit.query("decided") == "yes"
    request = proposal_service_pb2.ListProposalsRequest(
        include_decided=is_all, page_size=PROPOSALS, page_token=visit.query("page")
    )
    answer = await visit.call(visit.stubs.proposals.ListProposals, request)
    context = {"proposals": answer.proposals, "next": answer.next_page_token, "decided": is_all}
    return visit.render("proposals.html", context)


async def has_open(visit: Visit) -> bool:
    """Returns whether a proposal waits for review."""
    request = proposal_service_pb2.ListProposalsRequest(page_size=1)
    return bool((await visit.call(visit.stubs.proposals.ListProposals, request)).proposals)


async def proposal(visit: Visit) -> Response:
    request = proposal_service_pb2.GetProposalRequest(task_id=visit.request.path_params["task"])
    answer = await visit.call(visit.stubs.proposals.GetProposal, request)
    shown = [
        one.number
        for one in answer.operations
        if one.state == proposal_service_pb2.DECISION_STATE_OPEN and not one.texts_omitted
    ]
    return visit.render("proposal.html", {"answer": answer, "shown": shown, "new_request_id": new_request_id})


async def accept(visit: Visit) -> Response:
    """Applies one operation, or all that the page showed, if the space is still as the page showed it."""
    expected = visit.field("expected_revision")
    request = proposal_service_pb2.AcceptProposalRequest(
        task_id=visit.request.path_params["task"],
        numbers=_numbers(visit),
        expected_revision=int(expected) if expected.isdecimal() else 0,
        request_id=visit.field("request_id"),
    )
    answer = await visit.call(visit.stubs.proposals.AcceptProposal, request)
    return visit.redirect(f"/proposals/{answer.proposal.task_id}")


async def refuse(visit: Visit) -> Response:
    """Refuses one operation, or all open ones."""
    request = proposal_service_pb2.RefuseProposalRequest(
        task_id=visit.request.path_params["task"], numbers=_numbers(visit), request_id=visit.field("request_id")
    )
    answer = await visit.call(visit.stubs.proposals.RefuseProposal, request)
    return visit.redirect(f"/proposals/{answer.proposal.task_id}")


async def edit(visit: Visit) -> Response:
    """Replaces the values that are in the form; an empty one stays as it is."""
    given = {name.removeprefix(_FORM_FIELD): visit.field(name) for name in visit.form if name.startswith(_FORM_FIELD)}
    request = proposal_service_pb2.EditProposalRequest(
        task_id=visit.request.path_params["task"],
        number=next(iter(_numbers(visit)), 0),
        # The server makes numbers and flags of the texts, as the type of the field has it.
        fields={name: common_pb2.FieldValue(string_value=text) for name, text in given.items() if text},
        request_id=visit.field("request_id"),
    )
    answer = await visit.call(visit.stubs.proposals.EditProposal, request)
    return visit.redirect(f"/proposals/{answer.proposal.task_id}")


def _numbers(visit: Visit) -> list[int]:
    """Returns the operations of the form; none: all of them."""
    numbers = [number for number in visit.field("number").split(",") if number]
    if all(number.isascii() and number.isdecimal() and len(number) < 9 for number in numbers):
        return [int(number) for number in numbers]
    # No operation has this number, and an empty list would mean all.
    return [0]
