"""What other servers tell through PostgreSQL's NOTIFY, heard on a connection of its own.

It saves waiting and nothing else: whoever listens asks the store in any case, so notices that are lost while the
connection is down do no harm.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import asyncpg
import structlog

from storage.database import Heard, Topic

CHANNEL = "runekeep"
"""Payload of a notice: topic, a space, subject."""

PING_SECONDS = 30.0
"""A connection that died without a word is found out after this long."""
RECONNECT_SECONDS = 1.0
TIMEOUT_SECONDS = 10.0

log = structlog.get_logger(__name__)


class Listener:
    """Calls `heard` for each notice, and connects again whenever the connection is lost."""

    def __init__(self, url: str, heard: Heard, settings: Mapping[str, str]) -> None:
        self._url = url
        self._heard = heard
        self._settings = dict(settings)
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()

    async def start(self) -> None:
        """Returns when notices are heard, or when the first try to connect has failed."""
        self._task = asyncio.create_task(self._forever())
        await self._tried.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _forever(self) -> None:
        while True:
            try:
                await self._listen()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
                self._tried.set()
                log.warning("listener_reconnects", error=str(error) or type(error).__name__)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self) -> None:
        connection = await asyncpg.connect(
            self._url, timeout=TIMEOUT_SECONDS, command_timeout=TIMEOUT_SECONDS, server_settings=self._settings
        )
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._notice)
            self._tried.set()
            while not lost.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PING_SECONDS):
                        await lost.wait()
                await connection.execute("SELECT 1")
        finally:
            connection.terminate()

    def _notice(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        topic, _, subject = payload.partition(" ")
        try:
            known = Topic(topic)
        except ValueError:
            # Of a newer release that works on the same database.
            return
        self._heard(known, subject)
