"""Runs the studio: one process, beside any server."""

import asyncio
import secrets
import socket
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlencode

from runekeep import RunekeepError
from runekeep.studio.app import create_app
from runekeep.studio.pages.login import is_open
from runekeep.studio.settings import SettingsError, StudioSettings
from runekeep.web.listening import open_listener
from runekeep.web.serving import serve


def run(settings: StudioSettings, announce: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `announce` gets the link once the port is taken. Raises SettingsError."""
    settings.check()
    with open_listener(settings.host, settings.port) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        asyncio.run(_serve(settings, listener, announce))


async def _serve(settings: StudioSettings, listener: socket.socket, announce: Callable[[str], None]) -> None:
    if not settings.local and await _trusts_every_name(settings):
        raise SettingsError(
            "the server is in development mode and trusts every name, so the studio may only listen on a loopback "
            "address"
        )
    token = secrets.token_urlsafe(32)
    app = create_app(settings, token)
    announce(f"{settings.url}login?{urlencode({'token': token})}" if settings.own_credentials else settings.url)
    await serve(app, settings, listener)


async def _trusts_every_name(settings: StudioSettings) -> bool:
    try:
        return await is_open(settings.server)
    except RunekeepError:
        # The login page asks again, and refuses too.
        return False
