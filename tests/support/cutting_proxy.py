"""A TCP proxy that breaks a connection at a chosen word: what was asked arrives, the answer does not."""

import asyncio
import contextlib
from types import TracebackType
from urllib.parse import urlsplit


class CuttingProxy:
    """Stands before the server of `url`; its own is `url`."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._word: bytes | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "CuttingProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = self._parts._replace(netloc=f"{self._parts.username}@127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def cut_after(self, word: bytes) -> None:
        """The next message with this word is passed on; its answer, and everything after, is not. Once."""
        self._word = word

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        server_reader, server_writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        cut = asyncio.Event()
        answers = asyncio.create_task(_pass_on(server_reader, writer, cut))
        try:
            while data := await reader.read(65536):
                if self._word is not None and self._word in data:
                    self._word = None
                    cut.set()
                    server_writer.write(data)
                    await answers
                    break
                server_writer.write(data)
                await server_writer.drain()
        finally:
            answers.cancel()
            # Both of them before the first wait, which may be cancelled.
            for end in (writer, server_writer):
                end.close()
            await asyncio.gather(writer.wait_closed(), server_writer.wait_closed(), return_exceptions=True)
            self._open.discard(task)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: asyncio.Event) -> None:
    """Ends with the connection, or once it is cut with the first answer, which tells that the server has done it."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            if cut.is_set():
                return
            writer.write(data)
            await writer.drain()
        writer.close()
