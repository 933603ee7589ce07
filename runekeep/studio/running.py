"""Runs the studio: one process, beside any server."""

import asyncio
import contextlib
import errno
import secrets
import signal
import socket
from collections.abc import Callable, Generator
from dataclasses import replace
from urllib.parse import urlencode

import uvicorn

from runekeep import RunekeepError
from runekeep.studio.app import create_app
from runekeep.studio.pages.login import is_open
from runekeep.studio.settings import SettingsError, StudioSettings

GRACE_SECONDS = 3


class _Server(uvicorn.Server):
    """Ends with status 0 after a signal, where uvicorn would raise it once more."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def run(settings: StudioSettings, announce: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `announce` gets the link once the port is taken. Raises SettingsError."""
    settings.check()
    with _listening(settings) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        asyncio.run(_serve(settings, listener, announce))


async def _serve(settings: StudioSettings, listener: socket.socket, announce: Callable[[str], None]) -> None:
    if not settings.local and await _trusts_every_name(settings):
        raise SettingsError(
            "the server is in development mode and trusts every name, so the studio may only listen on a loopback "
            "address"
        )
    token = secrets.token_urlsafe(32)
    server = _Server(
        uvicorn.Config(
            create_app(settings, token),
            # Addresses of pages hold names and queries of users, which are in no log.
            access_log=False,
            log_level="warning",
            lifespan="on",
            server_header=False,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    link = f"{'https' if settings.tls else 'http'}://{host}:{settings.port}/"
    announce(f"{link}login?{urlencode({'token': token})}" if settings.own_credentials else link)
    await server.serve(sockets=[listener])


async def _trusts_every_name(settings: StudioSettings) -> bool:
    try:
        return await is_open(settings.server)
    except RunekeepError:
        # The login page asks again, and refuses too.
        return False


def _listening(settings: StudioSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Of a socket without a named protocol asyncio does not switch off Nagle's algorithm, and each page waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        word = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise SettingsError(f"{settings.host}:{settings.port} {word}; choose another with --listen") from error
    return listener
