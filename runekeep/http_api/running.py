"""Runs the HTTP server."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace

from runekeep.http_api.app import create_app
from runekeep.http_api.settings import HttpSettings
from runekeep.web.exposure import refuse_open_server
from runekeep.web.listening import open_listener
from runekeep.web.serving import serve


def run(settings: HttpSettings, announce: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `announce` gets the URL once the port is taken. Raises ListenError."""
    settings.check()
    with open_listener(settings.host, settings.port) as listener:
        asyncio.run(_serve(replace(settings, port=listener.getsockname()[1]), listener, announce))


async def _serve(settings: HttpSettings, listener: socket.socket, announce: Callable[[str], None]) -> None:
    await refuse_open_server(settings, settings.server)
    announce(settings.url)
    await serve(create_app(settings), settings, listener)
