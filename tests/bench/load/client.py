"""A client process: makes the same calls side by side, checks the status of each, and says what they took.

Reads one order a line from stdin (`Order` as JSON), answers each with one line on stdout (`Taken` as JSON). Requests
are bytes that were encoded before and answers stay bytes, so that little of the processor goes to this side.
"""

import asyncio
import base64
import itertools
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import grpc
import uvloop

from runekeep.ids import new_uuid
from tests.bench.figures import p95

DEADLINE = 60.0
"""Seconds, of each call and of each connection."""


@dataclass(frozen=True, slots=True)
class Order:
    """`calls` in all, shared by `clients` who make one call at a time; each call takes the next of `requests`, which
    are encoded messages with the metadata that they go with. `id_field`: number of the field of a request id that is
    made for every call; 0: none."""

    address: str
    method: str
    clients: int
    calls: int
    requests: list[tuple[bytes, list[tuple[str, str]]]]
    id_field: int = 0

    def to_json(self) -> str:
        requests = [(base64.b64encode(body).decode(), metadata) for body, metadata in self.requests]
        return json.dumps({**asdict(self), "requests": requests})

    @classmethod
    def from_json(cls, text: str) -> "Order":
        read = json.loads(text)
        requests = [(base64.b64decode(body), [(key, value) for key, value in some]) for body, some in read["requests"]]
        return cls(**{**read, "requests": requests})


@dataclass(frozen=True, slots=True)
class Taken:
    """Times in seconds: of all calls together by the clock, of the client's processor meanwhile, and of each call in
    the order in which they ended. `statuses`: how many calls ended with which; `failure`: what the first said that
    ended with another than OK."""

    seconds: float
    processor: float
    statuses: dict[str, int]
    each: list[float] = field(repr=False)
    failure: str = ""

    @classmethod
    def together(cls, some: Sequence["Taken"]) -> "Taken":
        """All calls of several orders, as if they had been one."""
        statuses: Counter[str] = Counter()
        for taken in some:
            statuses.update(taken.statuses)
        return cls(
            sum(taken.seconds for taken in some),
            sum(taken.processor for taken in some),
            dict(statuses),
            [seconds for taken in some for seconds in taken.each],
            next((taken.failure for taken in some if taken.failure), ""),
        )

    @property
    def rate(self) -> float:
        """Calls a second."""
        return len(self.each) / self.seconds

    @property
    def p50(self) -> float:
        """Milliseconds."""
        return statistics.median(self.each) * 1000

    @property
    def p95(self) -> float:
        """Milliseconds, of the call that as many are slower than."""
        return p95(self.each) * 1000


async def make(order: Order) -> Taken:
    statuses: Counter[str] = Counter()
    failures: list[str] = []
    each: list[float] = []
    channels = [
        # Each a connection of its own, as clients have them.
        grpc.aio.insecure_channel(order.address, options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(order.clients)
    ]
    try:
        calls: list[Any] = [channel.unary_unary(order.method) for channel in channels]
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*(channel.channel_ready() for channel in channels))
        requests = itertools.cycle(order.requests)
        left = iter(range(order.calls))

        async def client(call: Any, numbers: Iterator[int]) -> None:
            for _ in numbers:
                body, metadata = next(requests)
                began = time.perf_counter()
                try:
                    await call(body + request_id(order.id_field), metadata=metadata, timeout=DEADLINE)
                    statuses["OK"] += 1
                except grpc.aio.AioRpcError as error:
                    statuses[error.code().name] += 1
                    failures.append(error.details() or "")
                each.append(time.perf_counter() - began)

        began, spent = time.perf_counter(), time.process_time()
        await asyncio.gather(*(client(call, left) for call in calls))
        seconds, processor = time.perf_counter() - began, time.process_time() - spent
        return Taken(seconds, processor, dict(statuses), each, next(iter(failures), ""))
    finally:
        await asyncio.gather(*(channel.close() for channel in channels))


def request_id(number: int) -> bytes:
    """A field of a request, encoded; messages may be put together field by field."""
    if not number:
        return b""
    value = new_uuid().encode()
    return bytes([number << 3 | 2, len(value)]) + value


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(asdict(await make(Order.from_json(line)))), flush=True)


if __name__ == "__main__":
    uvloop.run(_serve())
