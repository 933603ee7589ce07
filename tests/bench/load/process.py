"""Processes of this package as the one that measures sees them: one line is said, one is heard."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.load import inserts as bare
from tests.bench.load import streams as appends
from tests.bench.load import watchers as streams
from tests.bench.load.client import Order, Taken

ROOT = Path(__file__).parents[3]
START_SECONDS = 60.0
ORDER_SECONDS = 900.0
"""For all calls of an order together; each has a deadline of its own besides."""
END_SECONDS = 10.0
MAX_LINE = 256 * 1024 * 1024


class CallsFailed(AssertionError):
    """Calls of a measurement ended with another status than OK: what they took says nothing."""


class Spoken:
    """A process that answers lines with lines, until its stdin is closed."""

    def __init__(self, process: asyncio.subprocess.Process, module: str) -> None:
        self._process = process
        self._module = module

    @property
    def pid(self) -> int:
        return self._process.pid

    async def heard(self, seconds: float) -> str:
        """Raises TimeoutError, and RuntimeError when the process has ended; why stands in its stderr, which is ours."""
        assert self._process.stdout is not None
        async with asyncio.timeout(seconds):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._module} ended")
        return line.decode().strip()

    async def ask(self, line: str, seconds: float = ORDER_SECONDS) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        async with asyncio.timeout(seconds):
            await self._process.stdin.drain()
        return await self.heard(seconds)

    async def end(self) -> None:
        """Lets it end by itself, and kills it if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._process.wait()
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()


@contextlib.asynccontextmanager
async def spoken(module: str, *arguments: str) -> AsyncIterator[Spoken]:
    """`python -m module`, in a session of its own: Ctrl-C is for us, and it ends with its stdin."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments,
        cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        limit=MAX_LINE, start_new_session=True,
    )  # fmt: skip
    talk = Spoken(process, module)
    try:
        yield talk
    finally:
        await talk.end()


class Load:
    """The client process. Runs one order at a time."""

    def __init__(self, process: Spoken) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def run(self, order: Order) -> Taken:
        """Raises CallsFailed when any call ended otherwise than with OK."""
        taken = Taken(**json.loads(await self._process.ask(order.to_json())))
        if taken.statuses != {"OK": order.calls}:
            raise CallsFailed(f"{order.method}: {taken.statuses} of {order.calls} calls; {taken.failure}")
        return taken


class Streams:
    """A client process whose clients keep streams of appends. Runs one order at a time."""

    def __init__(self, process: Spoken) -> None:
        self._process = process

    async def run(self, order: appends.Order) -> Taken:
        """Raises CallsFailed when any append was not acknowledged."""
        taken = Taken(**json.loads(await self._process.ask(order.to_json())))
        if taken.statuses != {"OK": order.appends}:
            raise CallsFailed(f"{order.method}: {taken.statuses} of {order.appends} appends; {taken.failure}")
        return taken


class Inserts:
    """A process that writes to a store of its own."""

    def __init__(self, process: Spoken) -> None:
        self._process = process

    async def run(self, order: bare.Order) -> Taken:
        return Taken(**json.loads(await self._process.ask(order.to_json())))


class Watchers:
    """A client process whose streams wait for news: `open`, then `seen`."""

    def __init__(self, process: Spoken) -> None:
        self._process = process

    async def open(self, order: streams.Order) -> None:
        """Returns when every stream had its first message."""
        opened = int(await self._process.ask(order.to_json()))
        assert opened == order.streams, f"{opened} of {order.streams} streams"

    async def seen(self) -> streams.Seen:
        """Returns when every stream has ended."""
        return streams.Seen(**json.loads(await self._process.heard(streams.STREAM_SECONDS)))


@dataclass(frozen=True, slots=True)
class Echo:
    """A bare server; see tests.bench.load.echo for its methods."""

    address: str
    pid: int


@contextlib.asynccontextmanager
async def load() -> AsyncIterator[Load]:
    async with spoken("tests.bench.load.client") as process:
        yield Load(process)


@contextlib.asynccontextmanager
async def append_streams() -> AsyncIterator[Streams]:
    async with spoken("tests.bench.load.streams") as process:
        yield Streams(process)


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[Echo]:
    async with spoken("tests.bench.load.echo") as process:
        yield Echo(await process.heard(START_SECONDS), process.pid)


@contextlib.asynccontextmanager
async def inserts(store_url: str) -> AsyncIterator[Inserts]:
    async with spoken("tests.bench.load.inserts", store_url) as process:
        yield Inserts(process)


@contextlib.asynccontextmanager
async def watchers() -> AsyncIterator[Watchers]:
    async with spoken("tests.bench.load.watchers") as process:
        yield Watchers(process)
