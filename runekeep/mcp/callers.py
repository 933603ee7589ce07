"""Chooses the credentials of a request. Over stdio they are those of the process; over HTTP, those in its headers."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from mcp.server.mcpserver import Context

from runekeep import AsyncClient
from runekeep.mcp.settings import McpSettings
from runekeep.web.callers import open_client

_BEARER = "bearer "

RequestContext = Context[Any, Any]


class Callers(Protocol):
    """Opens a client for the caller of a request. Raises ValueError for credentials that cannot be sent."""

    def client(self, context: RequestContext) -> AbstractAsyncContextManager[AsyncClient]: ...


class ProcessCaller:
    """Every request calls with the credentials of this process, over one connection."""

    def __init__(self, settings: McpSettings) -> None:
        self._client = AsyncClient(settings.server, account=settings.account, user=settings.user)

    @asynccontextmanager
    async def client(self, context: RequestContext) -> AsyncGenerator[AsyncClient, None]:
        yield self._client

    async def close(self) -> None:
        await self._client.close()


class HeaderCallers:
    """Each request calls with the key and names in its own headers."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings

    @asynccontextmanager
    async def client(self, context: RequestContext) -> AsyncGenerator[AsyncClient, None]:
        request = context.request_context.request
        assert request is not None, "only HTTP requests have headers"
        headers = request.headers
        credentials = headers.get("authorization", "")
        key = credentials[len(_BEARER) :] if credentials.lower().startswith(_BEARER) else ""
        async with open_client(self._settings, headers, key) as client:
            yield client
