"""A TCP tunnel between two parts that can be cut, or closed for a while: both sides lose what is in transit."""

import asyncio
import contextlib
from collections.abc import Callable

BUFFER = 256 * 1024


class Tunnel:
    """Forwards `port`, by default a free one, to `target`, which may be away; call `start`, then `stop`."""

    def __init__(self, target: int, port: int = 0) -> None:
        self.port = port
        self.sent = 0
        """Bytes from connecting sides to the target."""
        self._target = target
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = True

    async def start(self) -> None:
        self._stopped = False
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._stopped = True
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> int:
        """Breaks all connections at once; how many there were."""
        broken = len(self._ends) // 2
        for end in self._ends:
            end.transport.abort()
        return broken

    def close(self) -> int:
        """Breaks all connections and refuses new ones until `start`. Returns how many there were."""
        self._server.close()
        return self.cut()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._stopped:
            writer.transport.abort()
            return
        # Ended by hand: start_server would log a task that it finds cancelled.
        task = asyncio.create_task(self._lead(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before its first step closes nothing itself.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = {writer}
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            ends.add(far_writer)
            self._ends |= ends
            pumps = (self._pump_counted(reader, far_writer), _pump(far_reader, writer))
            both = [asyncio.create_task(pump) for pump in pumps]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in both:
                    one.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        except OSError:
            pass  # Nobody is at home: the worker is told by the end of its connection.
        finally:
            self._ends -= ends
            for end in ends:
                end.close()
            try:
                await asyncio.gather(*(end.wait_closed() for end in ends), return_exceptions=True)
            finally:
                # `stop` does not wait for a side that reads no more.
                for end in ends:
                    end.transport.abort()

    async def _pump_counted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def count(size: int) -> None:
            self.sent += size

        await _pump(reader, writer, count)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[int], None] = lambda size: None
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(BUFFER):
            count(len(data))
            writer.write(data)
            await writer.drain()
