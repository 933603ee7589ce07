"""Runs the HTTP server."""

from collections.abc import Callable

from starlette.applications import Starlette

from runekeep.http_api.app import create_app
from runekeep.http_api.settings import HttpSettings
from runekeep.web import serving
from runekeep.web.exposure import refuse_open_server


def run(settings: HttpSettings, announce: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `announce` gets the URL once the port is taken. Raises ListenError."""

    async def build(settings: HttpSettings) -> Starlette:
        await refuse_open_server(settings, settings.server)
        announce(settings.url)
        return create_app(settings)

    serving.run(settings, build)
