"""Runs the proxy."""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import replace

from runekeep.proxy.app import create_app
from runekeep.proxy.settings import ProxySettings
from runekeep.web.exposure import ServerUnreachableError, refuse_open_server
from runekeep.web.listening import open_listener
from runekeep.web.serving import serve

log = logging.getLogger("runekeep.proxy")


def run(settings: ProxySettings, announce: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `announce` gets the URL once the port is taken. Raises ListenError."""
    settings.check()
    with open_listener(settings.host, settings.port) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        asyncio.run(_serve(settings, listener, announce))


async def _serve(settings: ProxySettings, listener: socket.socket, announce: Callable[[str], None]) -> None:
    checked = True
    try:
        await refuse_open_server(settings, settings.server)
    except ServerUnreachableError as error:
        # The model must be reached all the same. There is no memory until Runekeep can be asked.
        log.warning("%s", error)
        checked = False
    announce(settings.url)
    await serve(create_app(settings, checked=checked), settings, listener)
