"""Connections outside the pools that reconnect when they are lost: one receives notices, one holds a lock."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import structlog

from runekeep_storage.database import Heard, Topic
from runekeep_storage.drivers.postgres import statements
from runekeep_storage.drivers.postgres.transaction import BROKEN, CHANNEL, LOCKS, SETTINGS, told
from runekeep_storage.errors import IndexHeld, StoreUnavailable

PING_SECONDS = 30.0
"""Maximum time until a silently dead connection is detected."""
RECONNECT_SECONDS = 1.0
TIMEOUT_SECONDS = 10.0
LOCK_SECONDS = 5.0
"""How long a killed server may take to release the lock."""
LOCK_RETRY_SECONDS = 0.25

STALLED_SECONDS = 2.0
"""Interval of the check for servers that stall in a transaction."""

_INDEX = -1

log = structlog.get_logger(__name__)


class KeptConnection:
    """Keeps one connection open: connects, runs `prepare`, and sends `ping` every `seconds`. Reconnects when the
    connection is lost."""

    def __init__(
        self,
        purpose: str,
        url: str,
        prepare: Callable[[Any], Awaitable[None]],
        *,
        ping: str = statements.PING,
        seconds: float = PING_SECONDS,
    ) -> None:
        self._purpose = purpose
        self._url = url
        self._prepare = prepare
        self._ping = ping
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._failure = ""
        """Error that ended the latest connection."""

    async def start(self, seconds: float | None = None) -> None:
        """Returns when a connection is prepared, when the first attempt has failed, or after `seconds`."""
        self._task = asyncio.create_task(self._forever())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._tried.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _forever(self) -> None:
        while True:
            try:
                await self._keep()
            except BROKEN as error:
                self._failure = told(error)
                log.warning("connection_lost", purpose=self._purpose, error=self._failure)
            except Exception as error:
                # Any error: without this connection the server would continue to work, and nobody would know.
                self._failure = told(error)
                log.exception("connection_failed", purpose=self._purpose)
            self._tried.set()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _keep(self) -> None:
        connection = await asyncpg.connect(
            self._url, timeout=TIMEOUT_SECONDS, command_timeout=TIMEOUT_SECONDS, server_settings=SETTINGS
        )
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await self._prepare(connection)
            self._tried.set()
            while not lost.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds):
                        await lost.wait()
                await connection.execute(self._ping)
        finally:
            connection.terminate()


class Listener(KeptConnection):
    """Receives notices of other servers through NOTIFY.

    Notices only save waiting time. Listeners poll the store anyway, so lost notices do no harm. The listener also ends
    stalled transactions of other servers, to free their locks.
    """

    def __init__(self, url: str, heard: Heard) -> None:
        super().__init__("notices", url, self._listen, ping=statements.END_STALLED, seconds=STALLED_SECONDS)
        self._heard = heard

    async def _listen(self, connection: Any) -> None:
        await connection.add_listener(CHANNEL, self._notice)

    def _notice(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        topic, _, subject = payload.partition(" ")
        try:
            known = Topic(topic)
        except ValueError:
            # A newer release on the same database may send unknown topics.
            return
        self._heard(known, subject)


class IndexLock(KeptConnection):
    """Implements `runekeep_storage.database.Database.hold_index`. A server with its own index excludes every other
    server, embedded or not: when one of them relays a revision, the other's index misses it."""

    def __init__(self, url: str, *, alone: bool) -> None:
        super().__init__("index lock", url, self._lock)
        self._alone = alone
        self._held = False
        self._refused = False

    async def acquire(self) -> None:
        """Raises IndexHeld, and StoreUnavailable if the lock could not be requested."""
        await self.start(LOCK_SECONDS)
        if self._held:
            return
        await self.stop()
        if self._failure or not self._refused:
            raise StoreUnavailable(f"PostgreSQL: no connection for the index lock: {self._failure or 'no answer'}")
        raise IndexHeld(
            "another server works on this database, and either it or this one has an embedded index, in which the"
            " other's memories would be missing; give all servers one index by index_url (RUNEKEEP_INDEX_URL)"
        )

    async def _lock(self, connection: Any) -> None:
        statement = statements.try_lock(LOCKS, _INDEX, is_shared=not self._alone)
        taken = False
        while not await connection.fetchval(statement):
            self._refused = True
            if self._held and not taken:
                taken = True
                log.error("index_lock_taken", message="another server began while the connection was lost: end one")
            await asyncio.sleep(LOCK_RETRY_SECONDS)
        self._held = True
