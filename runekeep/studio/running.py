"""Runs the studio: one process, beside any server."""

import contextlib
import secrets
from collections.abc import Callable
from urllib.parse import urlencode

from starlette.applications import Starlette

from runekeep.studio.app import create_app
from runekeep.studio.settings import StudioSettings
from runekeep.web import serving
from runekeep.web.exposure import ServerUnreachableError, refuse_open_server


def run(settings: StudioSettings, announce: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `announce` gets the link once the port is taken. Raises ListenError."""

    async def build(settings: StudioSettings) -> Starlette:
        # The login page asks an unreachable server again, and refuses too.
        with contextlib.suppress(ServerUnreachableError):
            await refuse_open_server(settings, settings.server)
        token = secrets.token_urlsafe(32)
        app = create_app(settings, token)
        announce(f"{settings.url}login?{urlencode({'token': token})}" if settings.own_credentials else settings.url)
        return app

    serving.run(settings, build)
