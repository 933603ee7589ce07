"""A channel that is made anew when its certificates are renewed, while the program goes on."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from runekeep.transport.transport import Options, Transport, TransportError

RETIRED_SECONDS = 86_400.0
"""How long calls that began with the certificates of before may go on."""

_Stamp = tuple[tuple[int, int, int], ...]


def open_channel(transport: Transport, options: Options) -> grpc.aio.Channel:
    """A channel as the transport says. It connects at the first call. Raises TransportError."""
    return RotatingChannel(transport, options) if transport.files else transport.open(options)


class RotatingChannel(grpc.aio.Channel):
    """Looks at the files with each call: what they hold then is what a new connection is made with.

    gRPC itself would go on with what a channel was made with, and after the first break of the connection show a
    certificate that has ended. Calls that have begun go on as they are. Files that cannot be used, such as a
    certificate whose key is still to come, change nothing.
    """

    def __init__(self, transport: Transport, options: Options) -> None:
        self._transport = transport
        self._options = options
        self._stamp = _stamp(transport.files)
        self._channel = transport.open(options)
        self._generation = 0
        self._retiring: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    def current(self) -> tuple[int, grpc.aio.Channel]:
        """The channel for a call that begins now, and which in the row of them it is."""
        stamp = _stamp(self._transport.files)
        if stamp != self._stamp:
            try:
                channel = self._transport.open(self._options)
            except TransportError:
                # Looked at again with the next call; that the one in force ends, the server will say.
                return self._generation, self._channel
            # Files that were replaced in between are found with the next call.
            before, self._channel, self._stamp = self._channel, channel, stamp
            self._generation += 1
            retiring = asyncio.create_task(before.close(RETIRED_SECONDS))
            self._retiring[retiring] = before
            retiring.add_done_callback(self._retiring.pop)
        return self._generation, self._channel

    async def close(self, grace: float | None = None) -> None:
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        for channel in (*retiring.values(), self._channel):
            await channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        return _Method(self, lambda channel: channel.unary_unary(*arguments, **options))

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        return _Method(self, lambda channel: channel.unary_stream(*arguments, **options))

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        return _Method(self, lambda channel: channel.stream_unary(*arguments, **options))

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        return _Method(self, lambda channel: channel.stream_stream(*arguments, **options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Method:
    """A method of a stub: each call goes over the channel that is current then."""

    def __init__(self, channel: RotatingChannel, make: Callable[[grpc.aio.Channel], Any]) -> None:
        self._channel = channel
        self._make = make
        self._made: tuple[int, Any] | None = None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        generation, channel = self._channel.current()
        if self._made is None or self._made[0] != generation:
            self._made = generation, self._make(channel)
        return self._made[1](*arguments, **options)


def _stamp(files: tuple[Path, ...]) -> _Stamp:
    """What changes when one of the files is written or replaced; zeros for one that is not there."""
    stamps = []
    for file in files:
        try:
            status = file.stat()
            stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            stamps.append((0, 0, 0))
    return tuple(stamps)
