"""Runs the proxy."""

import logging
from collections.abc import Callable

from starlette.applications import Starlette

from runekeep.proxy.app import create_app
from runekeep.proxy.settings import ProxySettings
from runekeep.web import serving
from runekeep.web.exposure import ServerUnreachableError, refuse_open_server

log = logging.getLogger("runekeep.proxy")


def run(settings: ProxySettings, announce: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `announce` gets the URL once the port is taken. Raises ListenError."""

    async def build(settings: ProxySettings) -> Starlette:
        try:
            await refuse_open_server(settings, settings.server)
        except ServerUnreachableError as error:
            # The model must be reached all the same. There is no memory until Runekeep can be asked.
            log.warning("%s", error)
        announce(settings.url)
        return create_app(settings)

    serving.run(settings, build)
