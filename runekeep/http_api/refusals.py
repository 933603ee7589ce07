"""Builds the error responses for HTTP requests that match no RPC: an unknown path, a wrong method or a wrong content
type. Each says what to send."""

from collections.abc import Mapping, MutableMapping
from difflib import get_close_matches
from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from runekeep.contract import SERVICES
from runekeep.http_api.methods import path_of, served_methods

_GET_FORM: Final = "GET with ?encoding=json&message={...} in the URL"
_POST_FORM: Final = "POST to /runekeep.v1.SERVICE/METHOD, such as /runekeep.v1.SessionService/ListSessions"

_PACKAGE: Final = "/runekeep.v1."
_PAGES: Final = ("/healthz", "/openapi.json")


def error_response(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Returns an error in the form of the Connect protocol."""
    return JSONResponse({"code": code, "message": message}, status, headers)


class ErrorBodyMiddleware:
    """Adds a JSON body to the 404, 405 and 415 responses that a Connect application sends without one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._served = {path_of(method): method for method in served_methods()}
        self._others = {path_of(method) for service in SERVICES for method in service.methods} - self._served.keys()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused: Response | None = None

        async def explain(message: MutableMapping[str, Any]) -> None:
            nonlocal refused
            is_error = message["type"] == "http.response.start" and message["status"] in (404, 405, 415)
            # An error that an RPC returned already has a body: leave it unchanged.
            if is_error and "content-type" not in Headers(raw=list(message["headers"])):
                refused = self._error_response(scope, message["status"])
                await refused(scope, receive, send)
            if refused is None:
                await send(message)

        await self._app(scope, receive, explain)

    def _error_response(self, scope: Scope, status: int) -> Response:
        method = self._served.get(scope["path"])
        if method is None and scope["path"] in _PAGES:
            return error_response(405, "unimplemented", f"{scope['path']} takes GET", {"allow": "GET"})
        if method is None:
            return error_response(404, "unimplemented", self._unknown_path(scope["path"]))
        if status == 405 or (scope["method"] == "GET" and not _takes_get(method)):
            takes = f"POST, or {_GET_FORM}" if _takes_get(method) else "POST"
            return error_response(
                405,
                "unimplemented",
                f"{method.name} takes {takes}",
                {"allow": "GET, POST" if _takes_get(method) else "POST"},
            )
        json_type, proto_type = _content_types(method)
        message = f"send {method.name} with the header `content-type: {json_type}`, or {proto_type}"
        if _takes_get(method):
            message += f"; or {_GET_FORM}"
        return error_response(415, "invalid_argument", message, {"accept-post": f"{json_type}, {proto_type}"})

    def _unknown_path(self, path: str) -> str:
        if path in self._others:
            return f"{path[1:]} is not served over HTTP: call it over gRPC at the address of the Runekeep server"
        # Without the package, which all paths have: it would make any two look alike.
        names = [one.removeprefix(_PACKAGE) for one in self._served]
        near = get_close_matches(path.removeprefix("/").removeprefix(_PACKAGE[1:]), names, n=1, cutoff=0.75)
        meant = f" Did you mean {_PACKAGE}{near[0]}?" if near else ""
        return f"Unknown path.{meant} Send a {_POST_FORM}. `/openapi.json` describes all methods."


def _takes_get(method: MethodDescriptor) -> bool:
    return method.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS and not method.server_streaming


def _content_types(method: MethodDescriptor) -> tuple[str, str]:
    prefix = "application/connect+" if method.server_streaming else "application/"
    return f"{prefix}json", f"{prefix}proto"
