"""Gives an attack connections of any identity, and counts the results of its calls."""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import grpc

from tests.attack.identities import Credentials, Identities, User, caller
from tests.crash.tunnel import Tunnel
from tests.support.callers import Caller
from tests.support.server_process import ServerProcess

OPEN = "OPEN"
"""Counted for a stream or connection that the server accepts and keeps."""
NEWCOMER_SECONDS = 30.0


class Arena:
    """`size` scales how many calls an attack makes, and how large they are: 1 is the attack as it was found.

    Attackers connect through a tunnel that counts their bytes. `codes` counts the calls that ended, by status;
    `started` all calls. `breaches` says what was read or written that must not be.
    """

    def __init__(
        self, identities: Identities, server: ServerProcess, tunnel: Tunnel, settings: dict[str, str], size: float
    ) -> None:
        self.identities = identities
        self.server = server
        self.settings = settings
        self.size = size
        self.address = f"127.0.0.1:{tunnel.port}"
        self.random = Random(0)
        self.begin(Random(0))
        self._tunnel = tunnel
        self._open = AsyncExitStack()

    def begin(self, random: Random) -> None:
        """Resets the counters for the next attack."""
        self.random = random
        self.codes: Counter[str] = Counter()
        self.started = 0
        self.breaches: list[str] = []
        self.failures: list[str] = []
        """Calls of other users that the attack made fail."""

    @property
    def sent(self) -> int:
        """Bytes that attackers have sent."""
        return self._tunnel.sent

    def many(self, count: int) -> int:
        return max(int(count * self.size), 2)

    async def channel(self, credentials: Credentials) -> grpc.aio.Channel:
        """Open until the end of the round."""
        return await self._open.enter_async_context(credentials.channel(self.address))

    async def anonymous(self) -> grpc.aio.Channel:
        return await self._connected(self.identities.anonymous)

    async def caller(self, user: User) -> Caller:
        return caller(await self._connected(self.identities.user(user)), user)

    async def worker(self, name: str) -> grpc.aio.Channel:
        return await self._connected(self.identities.worker(name))

    async def _connected(self, credentials: Credentials) -> grpc.aio.Channel:
        """Connects at once: while this process compresses a flood, a handshake would take too long."""
        channel = await self.channel(credentials)
        try:
            async with asyncio.timeout(NEWCOMER_SECONDS):
                await channel.channel_ready()
        except TimeoutError:
            self.failures.append("the server took no connection")
        return channel

    async def close(self) -> None:
        """Closes all channels."""
        await self._open.aclose()
        self._open = AsyncExitStack()

    def count(self, code: str, calls: int = 1) -> None:
        self.started += calls
        self.codes[code] += calls

    async def call(self, call: Awaitable[Any]) -> Any:
        """Counts a call, and returns its answer, or None if it failed. `call` may also return a status code."""
        self.started += 1
        answer = None
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            code = error.code().name
        except TimeoutError:
            code = OPEN
        else:
            code = answer.name if isinstance(answer, grpc.StatusCode) else "OK"
        self.codes[code] += 1
        return answer

    async def all(self, calls: Iterable[Awaitable[Any]]) -> None:
        """Counts calls that are made at once."""
        tasks: list[asyncio.Task[Any]] = []
        try:
            for call in calls:
                tasks.append(asyncio.create_task(self.call(call)))
                # The tunnel and the connection go on while this process compresses one request after the other.
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def others_are_served(self, user: User) -> None:
        """A user who connects now is served."""
        async with self.identities.user(user).channel(self.server.address) as channel:
            try:
                async with asyncio.timeout(NEWCOMER_SECONDS):
                    await caller(channel, user).session()
            except (TimeoutError, grpc.aio.AioRpcError) as error:
                self.failures.append(f"a new connection was not served: {error!r}"[:300])


class Memory:
    """Resident memory of a server and its children, in bytes. A new one starts a new peak."""

    def __init__(self, server: ServerProcess) -> None:
        self._pids = [server.pid, *server.children()]
        for pid in self._pids:
            # Resets the peak: see proc(5).
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._before = self._total("VmRSS")

    def growth(self) -> int:
        """Returns by how much the peaks exceed what the processes had."""
        return max(self._total("VmHWM") - self._before, 0)

    def _total(self, field: str) -> int:
        return sum(self._read(pid, field) for pid in self._pids if Path(f"/proc/{pid}").exists())

    @staticmethod
    def _read(pid: int, field: str) -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition(f"{field}:")[2].split()[0]) * 1024 if field in status else 0


def yield_the_processor() -> None:
    """Lets the other processes of this machine go first: attackers have machines of their own."""
    for thread in os.listdir("/proc/self/task"):
        os.setpriority(os.PRIO_PROCESS, int(thread), 19)
