"""Serves an ASGI application until a signal ends it."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Generator
from typing import Any

import uvicorn

from runekeep.web.listening import Place

GRACE_SECONDS = 3


class _Server(uvicorn.Server):
    """Ends with status 0 after a signal, where uvicorn would raise it once more."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


async def serve(app: Any, place: Place, listener: socket.socket) -> None:
    """Serves until SIGINT or SIGTERM."""
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
