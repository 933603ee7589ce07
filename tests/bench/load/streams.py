"""A client process whose clients each keep one stream of appends.

Reads one order a line from stdin (`Order` as JSON), answers each with one line on stdout (`Taken` as JSON). Appends are
bytes that were encoded before. Whatever may be sent at the same moment shares a request, except to an echo, which gets
a request for each append and gives each back.
"""

import asyncio
import base64
import itertools
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import grpc
import uvloop

from runekeep.v1 import session_service_pb2 as pb
from tests.bench.load.client import DEADLINE, Taken, request_id


@dataclass(frozen=True, slots=True)
class Order:
    """`appends` in all, shared by `clients`, each of whom has up to `under_way` of them sent and not acknowledged; each
    append takes the next of `requests`, which are encoded requests of AddMessages without an id, and a client takes the
    metadata of one of them. `is_echo`: the server gives back what it gets."""

    address: str
    method: str
    clients: int
    appends: int
    under_way: int
    requests: list[tuple[bytes, list[tuple[str, str]]]]
    id_field: int
    is_echo: bool = False

    def to_json(self) -> str:
        requests = [(base64.b64encode(body).decode(), metadata) for body, metadata in self.requests]
        return json.dumps({**asdict(self), "requests": requests})

    @classmethod
    def from_json(cls, text: str) -> "Order":
        read = json.loads(text)
        requests = [(base64.b64decode(body), [(key, value) for key, value in some]) for body, some in read["requests"]]
        return cls(**{**read, "requests": requests})


class _Client:
    def __init__(self, order: Order, channel: grpc.aio.Channel, number: int, left: Any) -> None:
        self._order = order
        self._body, metadata = order.requests[number % len(order.requests)]
        self._left = left
        self._call: Any = channel.stream_stream(order.method)(metadata=metadata, timeout=DEADLINE)
        self._began: dict[int, float] = {}
        self._sent = self._told = 0
        self.each: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.failure = ""

    async def open(self) -> None:
        if not self._order.is_echo:
            await self._call.read()

    async def run(self) -> None:
        try:
            while True:
                await self._send()
                if not self._began:
                    break
                self._take(await self._call.read())
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, RuntimeError) as error:
            self.statuses[error.code().name if isinstance(error, grpc.aio.AioRpcError) else "ENDED"] += 1
            self.failure = str(error)
            self._call.cancel()

    async def _send(self) -> None:
        """As many as there is room for."""
        bodies = []
        now = time.perf_counter()
        while len(self._began) < self._order.under_way and next(self._left, None) is not None:
            self._sent += 1
            self._began[self._sent] = now
            bodies.append(_as_item(self._body + request_id(self._order.id_field)))
        for body in bodies if self._order.is_echo else filter(None, [b"".join(bodies)]):
            await self._call.write(body)

    def _take(self, response: Any) -> None:
        if response is grpc.aio.EOF:
            raise RuntimeError("the server ended the stream")
        now = time.perf_counter()
        if self._order.is_echo:
            self._told += 1
            self._note(self._told, now, "OK")
            return
        for one in pb.StreamMessagesResponse.FromString(response).acknowledgements:
            self._note(one.number, now, "OK" if one.HasField("added") else "REFUSED")

    def _note(self, number: int, now: float, status: str) -> None:
        self.each.append(now - self._began.pop(number))
        self.statuses[status] += 1


async def make(order: Order) -> Taken:
    channels = [
        # Each a connection of its own, as clients have them.
        grpc.aio.insecure_channel(order.address, options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(order.clients)
    ]
    try:
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*(channel.channel_ready() for channel in channels))
        left = itertools.repeat(True, order.appends)
        clients = [_Client(order, channel, number, left) for number, channel in enumerate(channels)]
        await asyncio.gather(*(client.open() for client in clients))
        began, spent = time.perf_counter(), time.process_time()
        await asyncio.gather(*(client.run() for client in clients))
        seconds, processor = time.perf_counter() - began, time.process_time() - spent
        statuses = sum((client.statuses for client in clients), Counter[str]())
        each = [seconds for client in clients for seconds in client.each]
        failure = next((client.failure for client in clients if client.failure), "")
        return Taken(seconds, processor, dict(statuses), each, failure)
    finally:
        await asyncio.gather(*(channel.close() for channel in channels))


def _as_item(body: bytes) -> bytes:
    """An append as an item of the list in StreamMessagesRequest, encoded."""
    size, length = len(body), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return b"\x0a" + length + bytes([size]) + body


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(asdict(await make(Order.from_json(line)))), flush=True)


if __name__ == "__main__":
    uvloop.run(_serve())
