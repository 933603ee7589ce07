"""A client process that opens streams side by side and waits for all of them to end.

Reads one order a line from stdin (`Order` as JSON). Once every stream has given its first message it prints a line
with their number, and once all have ended one with `Seen` as JSON.
"""

import asyncio
import base64
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import grpc
import uvloop

OPEN_SECONDS = 120.0
STREAM_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Order:
    """`streams` of the same request, on `connections` in turns."""

    address: str
    method: str
    streams: int
    connections: int
    request: bytes
    metadata: list[tuple[str, str]]

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "request": base64.b64encode(self.request).decode()})

    @classmethod
    def from_json(cls, text: str) -> "Order":
        read = json.loads(text)
        metadata = [(key, value) for key, value in read["metadata"]]
        return cls(**{**read, "request": base64.b64decode(read["request"]), "metadata": metadata})


@dataclass(frozen=True, slots=True)
class Seen:
    """When each stream had its last message, by the clock that all processes of this machine share (`time.monotonic`,
    in seconds), and how many messages all of them had behind their first. `processor`: seconds of this process, from
    when all streams were open to their end."""

    at: list[float] = field(repr=False)
    messages: int
    processor: float


async def watch(order: Order) -> Seen:
    channels = [
        grpc.aio.insecure_channel(order.address, options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(order.connections)
    ]
    try:
        methods: list[Any] = [channel.unary_stream(order.method) for channel in channels]
        at: list[float] = []
        messages = 0

        async def follow(stream: Any) -> None:
            nonlocal messages
            await stream.read()
            opened.release()
            last = 0.0
            while (message := await stream.read()) is not grpc.aio.EOF:
                if message:
                    # One that says nothing keeps the stream alive.
                    last = time.monotonic()
                    messages += 1
            assert last, "a stream ended without news"
            at.append(last)

        opened = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            for number in range(order.streams):
                method = methods[number % order.connections]
                stream = method(order.request, metadata=order.metadata, timeout=STREAM_SECONDS)
                group.create_task(follow(stream))
            async with asyncio.timeout(OPEN_SECONDS):
                for _ in range(order.streams):
                    await opened.acquire()
            spent = time.process_time()
            print(order.streams, flush=True)
        return Seen(at, messages, time.process_time() - spent)
    finally:
        await asyncio.gather(*(channel.close() for channel in channels))


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(asdict(await watch(Order.from_json(line)))), flush=True)


if __name__ == "__main__":
    uvloop.run(_serve())
