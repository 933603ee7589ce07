"""Revisions as a timeline, the difference of any two, and a rollback with its preview."""

from starlette.responses import Response

from runekeep import NotFoundError
from runekeep.client.connection.connection import new_request_id
from runekeep.studio.http.visit import Visit
from runekeep.studio.pages.memories import at_revision, newest_revision
from runekeep.v1 import history_service_pb2

REVISIONS = 50
CHANGES = 20


async def history(visit: Visit) -> Response:
    request = history_service_pb2.ListRevisionsRequest(
        page_size=REVISIONS, page_token=visit.query("page"), uri=visit.query("uri")
    )
    answer = await visit.call(visit.stubs.history.ListRevisions, request)
    context = {"revisions": answer.revisions, "next": answer.next_page_token, "uri": visit.query("uri")}
    return visit.render("history.html", context)


async def revision(visit: Visit) -> Response:
    """What one revision changed."""
    number = visit.request.path_params["number"]
    return await _difference(visit, number - 1, number, await newest_revision(visit), number)


async def difference(visit: Visit) -> Response:
    """What changed between two revisions."""
    newest = await newest_revision(visit)
    return await _difference(visit, visit.number("from"), visit.number("to") or newest, newest)


async def rollback_preview(visit: Visit) -> Response:
    """What a rollback would change, with the form that does it."""
    number = visit.request.path_params["number"]
    request = history_service_pb2.RollbackRevisionRequest(revision=number, preview=True)
    answer = await visit.call(visit.stubs.history.RollbackRevision, request)
    return visit.render("rollback.html", {"number": number, "preview": answer, "request_id": new_request_id()})


async def rollback(visit: Visit) -> Response:
    """Takes a revision back, if the space is still as the preview showed it."""
    expected = visit.field("expected_revision")
    request = history_service_pb2.RollbackRevisionRequest(
        revision=visit.request.path_params["number"],
        force=visit.field("force") == "yes",
        expected_revision=int(expected) if expected.isdecimal() else 0,
        request_id=visit.field("request_id"),
    )
    answer = await visit.call(visit.stubs.history.RollbackRevision, request)
    return visit.redirect(f"/history/{answer.revision or request.revision}")


async def _difference(visit: Visit, before: int, after: int, newest: int, number: int = 0) -> Response:
    if after < 1:
        raise NotFoundError("There is no revision yet.", code="NOT_FOUND")
    request = history_service_pb2.DiffRevisionsRequest(
        to=at_revision(after), uri=visit.query("uri"), page_size=CHANGES, page_token=visit.query("page")
    )
    if before:
        # `from` is a word of Python.
        getattr(request, "from").revision = before
    answer = await visit.call(visit.stubs.history.DiffRevisions, request)
    context = {
        "answer": answer,
        "number": number,
        "before": before,
        "after": after,
        "newest": newest,
        "uri": visit.query("uri"),
    }
    return visit.render("difference.html", context)
