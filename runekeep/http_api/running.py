"""Runs the HTTP server."""

from collections.abc import Callable

from starlette.applications import Starlette

from runekeep.client.connection.connection import Connection
from runekeep.http_api.app import create_app
from runekeep.http_api.settings import HttpSettings
from runekeep.web import serving
from runekeep.web.exposure import refuse_open_server


def run(settings: HttpSettings, announce: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `announce` gets the URL once the port is taken. Raises ListenError, and
    TransportError for an address or certificates that cannot be used."""

    async def build(settings: HttpSettings) -> Starlette:
        await refuse_open_server(settings, settings.server)
        # Empty, not None: None would take the credentials of this process.
        connection = Connection(settings.server, api_key="", cert_file="", key_file="")
        app = create_app(settings, connection)
        announce(settings.url)
        return app

    serving.run(settings, build)
