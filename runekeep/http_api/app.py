"""Assembles the ASGI application: the endpoints of all methods, their description, and which web pages may call."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from connectrpc.server import ConnectASGIApplication
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from runekeep.client.connection.connection import Connection
from runekeep.http_api.codecs import JsonCodec, ProtobufCodec
from runekeep.http_api.forwarding import endpoint_of
from runekeep.http_api.methods import path_of, served_methods
from runekeep.http_api.settings import HttpSettings
from runekeep.web.exposure import called_names, is_known_host, is_known_page

MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""As servers accept by default."""
_EXPOSED_SECONDS = 600


def create_app(settings: HttpSettings) -> Starlette:
    """Returns the application. It opens its connection to the server when it starts, and calls with the credentials of
    each request."""
    calls = _Calls()
    application = _Application(
        service=calls,
        endpoints=lambda calls: calls.endpoints,
        read_max_bytes=MAX_REQUEST_BYTES,
        codecs=[JsonCodec(), ProtobufCodec()],
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        # Empty, not None: None would take the credentials of this process.
        connection = Connection(settings.server, api_key="", cert_file="", key_file="")
        calls.endpoints = {
            path_of(method): endpoint_of(method, connection.stubs.channel) for method in served_methods()
        }
        try:
            yield
        finally:
            await connection.close()

    return Starlette(
        routes=[
            Route("/openapi.json", _openapi),
            Route("/healthz", _healthz),
            Mount("/", application),
        ],
        middleware=[
            Middleware(_KnownPages, settings=settings),
            Middleware(
                CORSMiddleware,
                allow_origins=settings.origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                max_age=_EXPOSED_SECONDS,
            ),
        ],
        lifespan=lifespan,
    )


class _Calls:
    """The endpoints by path, which exist once the connection does."""

    def __init__(self) -> None:
        self.endpoints: dict[str, Any] = {}


class _Application(ConnectASGIApplication[_Calls]):
    @property
    def path(self) -> str:
        return ""


class _KnownPages:
    """Refuses requests of web pages of other sites. They can reach a loopback address, by a name of their own too."""

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        self._names = called_names(settings)
        self._origins = frozenset(settings.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_known(Headers(scope=scope)):
            refused = PlainTextResponse(
                "Unknown host name, or a request of a page of another site: see --name and --allow-origin.\n", 403
            )
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, headers: Headers) -> bool:
        return is_known_page(headers, self._names) or (
            headers.get("origin") in self._origins and is_known_host(headers, self._names)
        )


async def _openapi(_: Request) -> Response:
    return Response(files("runekeep.http_api").joinpath("openapi.json").read_bytes(), media_type="application/json")


async def _healthz(_: Request) -> Response:
    """Answers for this process alone; the health of the server is that of its own port."""
    return JSONResponse({"status": "serving"})
