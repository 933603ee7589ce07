"""Serves an ASGI application at a place until a signal ends it."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from typing import Any, TypeVar

import uvicorn

from runekeep.web.listening import Place, open_listener

_Settings = TypeVar("_Settings", bound=Place)

GRACE_SECONDS = 3


class _Server(uvicorn.Server):
    """Ends with status 0 after a signal, where uvicorn would raise it once more."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def run(settings: _Settings, build: Callable[[_Settings], Awaitable[Any]]) -> None:
    """Takes the port and serves the application that `build` returns, until SIGINT or SIGTERM. `build` gets the
    settings with the port that was taken, and announces it. Raises ListenError."""
    settings.check()
    with open_listener(settings.host, settings.port) as listener:
        asyncio.run(_build_and_serve(replace(settings, port=listener.getsockname()[1]), build, listener))


async def _build_and_serve(
    settings: _Settings, build: Callable[[_Settings], Awaitable[Any]], listener: socket.socket
) -> None:
    await _serve(await build(settings), settings, listener)


async def _serve(app: Any, place: Place, listener: socket.socket) -> None:
    server = _Server(
        uvicorn.Config(
            app,
            # Addresses of pages hold names and queries of users, which are in no log.
            access_log=False,
            log_level="warning",
            lifespan="on",
            server_header=False,
            ssl_certfile=place.certificate,
            ssl_keyfile=place.key,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
    await server.serve(sockets=[listener])
