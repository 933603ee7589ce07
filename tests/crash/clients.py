"""Clients of one user that never give up: a call is made again, on whichever server, until it is answered."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import grpc

from tests.crash.history import History, Space
from tests.support.callers import OF_THE_CLIENT, Caller

CALL_SECONDS = 4.0
PATIENCE_SECONDS = 120.0
"""After this long without an answer the fleet is stuck, which is a fault of it."""
AGAIN = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
"""All errors that a crash may cause, by docs/operate/errors.md. Every other error is a fault."""
OPTIONS = [
    ("grpc.max_receive_message_length", 32 * 1024 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),
]

# Two users with the same name in two accounts are different users.
SPACES = (Space("alpha", "ann"), Space("alpha", "bob"), Space("beta", "ann"))
"""The users whose clients make the load."""
PROBE = Space("probe", "disk")
"""The users whose calls test whether a fault has really struck."""

T = TypeVar("T")


class Doors:
    """One channel to each server."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) for port in ports]

    def callers(self, space: Space) -> list[Caller]:
        return [Caller(channel, space.user, space.account) for channel in self._channels]

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


class Client:
    """The calls of one user. `history.faults` gets answers that no crash excuses. `seed` decides everything random."""

    def __init__(
        self, doors: Doors, space: Space, history: History, seed: str, patience: float = PATIENCE_SECONDS
    ) -> None:
        self.space = space
        self.history = history
        self.chance = random.Random(seed)
        self.repeated = 0
        self._patience = patience
        self._callers = doors.callers(space)

    async def insist(self, what: str, call: Callable[[Caller], Awaitable[T]]) -> T:
        """The answer, after as many attempts as it takes. `call` sends the same request each time."""
        deadline = time.monotonic() + self._patience
        number = self.chance.randrange(len(self._callers))
        while True:
            number += 1
            try:
                return await call(self._callers[number % len(self._callers)])
            except grpc.aio.AioRpcError as error:
                # As of a broken connection. The exceptions in the server's log are looked at too.
                is_of_the_client = what == "StreamMessages" and error.details() == OF_THE_CLIENT
                if error.code() not in AGAIN and not is_of_the_client:
                    self.history.faults.append(f"{what} was answered {error.code().name}: {error.details()}")
                    raise
                if time.monotonic() > deadline:
                    self.history.faults.append(f"{what} had no answer in {self._patience:g} s: {error.details()}")
                    raise
            self.repeated += 1
            await asyncio.sleep(self.chance.uniform(0.01, 0.1))

    async def once(self, service: str, method: str, request: Any) -> Any:
        """One attempt. What no crash excuses is a fault here too, but for what is not there yet."""
        try:
            return await getattr(getattr(self.chance.choice(self._callers), service), method)(
                request, timeout=CALL_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            if error.code() not in AGAIN | {grpc.StatusCode.NOT_FOUND}:
                self.history.faults.append(f"{method} was answered {error.code().name}: {error.details()}")
            raise

    async def send(self, service: str, method: str, request: Any) -> Any:
        """`insist` on a unary call, such as `send("sessions", "AddMessages", request)`."""

        async def call(caller: Caller) -> Any:
            return await getattr(getattr(caller, service), method)(request, timeout=CALL_SECONDS)

        return await self.insist(method, call)
