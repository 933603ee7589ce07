"""A user's data as a whole: export, import, erasures with their receipts."""

from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime

import grpc
from starlette.datastructures import UploadFile
from starlette.responses import Response, StreamingResponse

from runekeep import InvalidArgumentError
from runekeep.client.connection.connection import new_request_id
from runekeep.studio.http.visit import Visit
from runekeep.v1 import space_service_pb2

RECEIPTS = 50
CHUNK_BYTES = 512 * 1024
TRANSFER_SECONDS = 6 * 3600.0
_SCOPES = ("session", "peer", "messages", "user")


async def data(visit: Visit) -> Response:
    request = space_service_pb2.ListErasuresRequest(page_size=RECEIPTS, page_token=visit.query("page"))
    answer = await visit.call(visit.stubs.spaces.ListErasures, request)
    context = {
        "receipts": answer.erasures,
        "next": answer.next_page_token,
        "request_id": new_request_id(),
        "scope": visit.query("scope") if visit.query("scope") in _SCOPES else "session",
        "session": visit.query("session"),
        "message_ids": visit.query("messages"),
    }
    return visit.render("data.html", context)


async def export(visit: Visit) -> Response:
    """The archive as a download, passed on as it comes."""
    stream = visit.stubs.spaces.ExportSpace(
        space_service_pb2.ExportSpaceRequest(),
        metadata=visit.connection.stream_metadata,
        timeout=TRANSFER_SECONDS,
    )
    try:
        # The first piece decides whether there is an answer at all.
        first = await stream.read()
    except grpc.aio.AioRpcError as error:
        raise visit.connection.failure(error) from error

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            piece = first
            # A stream that breaks raises here: the download then lacks its end, which browsers report as failed.
            while isinstance(piece, space_service_pb2.ExportSpaceResponse):
                yield piece.data
                piece = await stream.read()
        finally:
            stream.cancel()

    name = f"runekeep-{visit.login.user}-{datetime.now(UTC):%Y-%m-%d}.tar.gz"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces(), media_type="application/gzip", headers=headers)


async def import_(visit: Visit) -> Response:
    upload = visit.form.get("archive")
    if not isinstance(upload, UploadFile) or not upload.size:
        raise InvalidArgumentError("Choose the file of an export.", code="INVALID_ARGUMENT", reason="FIELD_INVALID")
    options = space_service_pb2.ImportOptions(request_id=visit.field("request_id"))

    async def pieces() -> AsyncIterator[space_service_pb2.ImportSpaceRequest]:
        yield space_service_pb2.ImportSpaceRequest(options=options)
        while piece := await upload.read(CHUNK_BYTES):
            yield space_service_pb2.ImportSpaceRequest(data=piece)

    try:
        answer = await visit.stubs.spaces.ImportSpace(
            pieces(), metadata=visit.connection.stream_metadata, timeout=TRANSFER_SECONDS
        )
    except grpc.aio.AioRpcError as error:
        raise visit.connection.failure(error) from error
    return visit.render("imported.html", {"answer": answer})


async def erase(visit: Visit) -> Response:
    """Erases for good. The user's own name, typed once more, confirms each scope."""
    if visit.field("confirm") != visit.login.user:
        raise InvalidArgumentError(
            f"To confirm, type the name {visit.login.user}.", code="INVALID_ARGUMENT", reason="FIELD_INVALID"
        )
    request = space_service_pb2.EraseDataRequest(request_id=visit.field("request_id"))
    match visit.field("scope"):
        case "user":
            request.user = visit.login.user
        case "peer":
            request.peer_id = visit.field("peer_id").strip()
        case "session":
            request.session = visit.field("session").strip()
        case "messages":
            request.messages.session = visit.field("session").strip()
            request.messages.message_ids.extend(visit.field("message_ids").split())
    answer = await visit.call(visit.stubs.spaces.EraseData, request)
    return visit.redirect(f"/erasures/{answer.erasure.erasure_id}")


async def receipt(visit: Visit) -> Response:
    """The receipt of an erasure; the page asks again until it is verified."""
    request = space_service_pb2.GetErasureRequest(erasure_id=visit.request.path_params["erasure"])
    answer = await visit.call(visit.stubs.spaces.GetErasure, request)
    return visit.render("receipt_body.html" if visit.partial else "receipt.html", {"receipt": answer.erasure})
