"""Runs the studio: one process, beside any server."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlencode

from runekeep.studio.app import create_app
from runekeep.studio.settings import StudioSettings
from runekeep.web.exposure import ServerUnreachableError, refuse_open_server
from runekeep.web.listening import open_listener
from runekeep.web.serving import serve


def run(settings: StudioSettings, announce: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `announce` gets the link once the port is taken. Raises ListenError."""
    settings.check()
    with open_listener(settings.host, settings.port) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        asyncio.run(_serve(settings, listener, announce))


async def _serve(settings: StudioSettings, listener: socket.socket, announce: Callable[[str], None]) -> None:
    # The login page asks an unreachable server again, and refuses too.
    with contextlib.suppress(ServerUnreachableError):
        await refuse_open_server(settings, settings.server)
    token = secrets.token_urlsafe(32)
    app = create_app(settings, token)
    announce(f"{settings.url}login?{urlencode({'token': token})}" if settings.own_credentials else settings.url)
    await serve(app, settings, listener)
