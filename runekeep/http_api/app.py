"""Assembles the ASGI application: the endpoints of all methods, their description, and which web pages may call."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files

from connectrpc.server import ConnectASGIApplication
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from runekeep.client.connection.connection import Connection
from runekeep.http_api.codecs import JsonCodec, ProtobufCodec
from runekeep.http_api.forwarding import endpoint_of
from runekeep.http_api.methods import left_out_methods, path_of, served_methods
from runekeep.http_api.refusals import ErrorBodyMiddleware, error_response
from runekeep.http_api.settings import HttpSettings
from runekeep.web.exposure import called_names, is_known_host, is_known_page

MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""As servers accept by default."""
_PREFLIGHT_SECONDS = 600
"""How long browsers may reuse the answer to a preflight request."""


def create_app(settings: HttpSettings, connection: Connection) -> Starlette:
    """Returns the application, which closes the connection when it ends. Each call carries the credentials of its
    request; the connection must have none."""
    channel = connection.stubs.channel

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await connection.close()

    calls = _Calls(
        service=None,
        endpoints=lambda _: {path_of(method): endpoint_of(method, channel) for method in served_methods()},
        read_max_bytes=MAX_REQUEST_BYTES,
        # A compressed request of 4 KB could take as long to read as one of 4 MB.
        compressions=(),
        codecs=[JsonCodec(), ProtobufCodec()],
    )
    return Starlette(
        routes=[Route("/openapi.json", _openapi), Route("/healthz", _healthz), Mount("/", ErrorBodyMiddleware(calls))],
        middleware=[
            Middleware(_Guard, settings=settings),
            Middleware(
                CORSMiddleware,
                allow_origins=settings.origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                max_age=_PREFLIGHT_SECONDS,
            ),
        ],
        lifespan=lifespan,
    )


class _Calls(ConnectASGIApplication[None]):
    @property
    def path(self) -> str:
        return ""


class _Guard:
    """Refuses what must not or cannot be forwarded: requests of web pages of other sites, which can reach a loopback
    address, also by a name of their own; headers that are not ASCII; gRPC, which needs HTTP/2; and methods that take a
    stream of requests, which HTTP/1.1 cannot carry while it is answered."""

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        self._names = called_names(settings)
        self._origins = frozenset(settings.origins)
        self._left_out = frozenset(path_of(method) for method in left_out_methods())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._error_response(scope) if scope["type"] == "http" else None
        await (refused or self._app)(scope, receive, send)

    def _error_response(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._is_known(headers):
            what = "host name or origin not allowed: allow a host with `--name`, an origin with `--allow-origin`"
            return error_response(403, "permission_denied", what)
        if not all(value.isascii() for _, value in headers.raw):
            return error_response(400, "invalid_argument", "a header has characters beyond ASCII")
        if headers.get("content-type", "").startswith("application/grpc"):
            what = "gRPC is not served here: use the address of the Runekeep server"
            return error_response(415, "invalid_argument", what)
        if scope["path"] in self._left_out:
            name = scope["path"][1:]
            what = f"{name} takes a stream of requests: call it over gRPC at the address of the Runekeep server"
            return error_response(501, "unimplemented", what)
        return None

    def _is_known(self, headers: Headers) -> bool:
        return is_known_page(headers, self._names) or (
            headers.get("origin") in self._origins and is_known_host(headers, self._names)
        )


async def _openapi(_: Request) -> Response:
    return Response(files("runekeep.http_api").joinpath("openapi.json").read_bytes(), media_type="application/json")


async def _healthz(_: Request) -> Response:
    """Answers for this process alone; the health of the server is that of its own port."""
    return JSONResponse({"status": "serving"})
