"""Runs the MCP server over stdio, for one client that starts it, or over streamable HTTP, for many."""

import asyncio
from collections.abc import Callable
from typing import Any

from mcp.server.transport_security import TransportSecuritySettings

from runekeep.mcp.callers import HeaderCallers, ProcessCaller
from runekeep.mcp.server import create_server
from runekeep.mcp.settings import McpSettings
from runekeep.web import serving
from runekeep.web.exposure import called_names, refuse_open_server

_PATH = "mcp"


def run_stdio(settings: McpSettings) -> None:
    """Serves until stdin ends. Raises ValueError for credentials of the environment that cannot be used."""
    asyncio.run(_serve_stdio(settings))


async def _serve_stdio(settings: McpSettings) -> None:
    caller = ProcessCaller(settings)
    try:
        await create_server(settings, caller).run_stdio_async()
    finally:
        await caller.close()


def run_http(settings: McpSettings, announce: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `announce` gets the URL once the port is taken. Raises ListenError."""

    async def build(settings: McpSettings) -> Any:
        await refuse_open_server(settings, settings.server)
        app = create_server(settings, HeaderCallers(settings)).streamable_http_app(
            streamable_http_path=f"/{_PATH}",
            # Every request has its own credentials, so nothing may be kept from one to the next.
            stateless_http=True,
            json_response=True,
            transport_security=_allowed_hosts(settings),
        )
        announce(f"{settings.url}{_PATH}")
        return app

    serving.run(settings, build)


def _allowed_hosts(settings: McpSettings) -> TransportSecuritySettings:
    """Keeps pages of other sites out, which could reach a loopback address by a name of their own."""
    names = [f"[{name}]" if ":" in name else name for name in called_names(settings)]
    hosts = [form for name in names for form in (name, f"{name}:*")]
    return TransportSecuritySettings(
        allowed_hosts=hosts, allowed_origins=[f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    )
