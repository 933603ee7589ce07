"""One channel to the server: identity, deadlines, repeats, and errors as exceptions."""

import asyncio
import os
import uuid
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

import grpc
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, stop_before_delay
from tenacity.wait import wait_random_exponential

from runekeep.client.errors import DeadlineExceededError, UnavailableError, from_rpc_error
from runekeep.v1 import (
    history_service_pb2_grpc,
    memory_service_pb2_grpc,
    session_service_pb2_grpc,
    space_service_pb2_grpc,
    task_service_pb2_grpc,
    turn_memory_service_pb2_grpc,
)

DEFAULT_ADDRESS = "127.0.0.1:7433"
ATTEMPTS = 6
_PAUSE = wait_random_exponential(multiplier=0.1, max=2)
_CHANNEL_OPTIONS = (
    # A server that comes back is to be found within the deadline of one call; the default waits up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)

Request = TypeVar("Request", contravariant=True)
Response = TypeVar("Response", covariant=True)


class UnaryMethod(Protocol[Request, Response]):
    """A unary method of an asynchronous stub."""

    def __call__(
        self, request: Request, *, timeout: float | None = None, metadata: Any = None
    ) -> Awaitable[Response]: ...


def new_request_id() -> str:
    """An id for one mutation, kept over its repeats."""
    return str(uuid.uuid4())


class Connection:
    """The channel opens with the first call, on the event loop of that call."""

    def __init__(self, address: str | None, account: str | None, user: str | None, timeout: float | None) -> None:
        self.address = address or os.environ.get("RUNEKEEP_ADDRESS") or DEFAULT_ADDRESS
        account = account or os.environ.get("RUNEKEEP_ACCOUNT")
        user = user or os.environ.get("RUNEKEEP_USER")
        self._timeout = timeout
        self.metadata = tuple(
            (key, value) for key, value in (("x-runekeep-account", account), ("x-runekeep-user", user)) if value
        )
        self._open: _Stubs | None = None

    @property
    def stubs(self) -> "_Stubs":
        if self._open is None:
            self._open = _Stubs(grpc.aio.insecure_channel(self.address, options=_CHANNEL_OPTIONS))
        return self._open

    async def call(self, method: UnaryMethod[Request, Response], request: Request, deadline: float) -> Response:
        """Calls a method; repeats the very same request, and so the same request_id, while the server is away.

        `deadline` in seconds is for all attempts together; the client's own `timeout` goes before it.
        """
        deadline = self._timeout if self._timeout is not None else deadline
        clock = asyncio.get_running_loop().time
        end = clock() + deadline
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(UnavailableError),
            stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(deadline),
            wait=_pause,
            reraise=True,
        )
        async for attempt in attempts:
            with attempt:
                try:
                    return await method(request, timeout=max(end - clock(), 0.001), metadata=self.metadata)
                except grpc.aio.AioRpcError as error:
                    raise from_rpc_error(error) from error
        raise DeadlineExceededError("no attempt was made", code="DEADLINE_EXCEEDED")

    async def close(self) -> None:
        stubs, self._open = self._open, None
        if stubs is not None:
            await stubs.channel.close()


class _Stubs:
    """A channel and what is called over it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.sessions = session_service_pb2_grpc.SessionServiceStub(channel)
        self.memories = memory_service_pb2_grpc.MemoryServiceStub(channel)
        self.history = history_service_pb2_grpc.HistoryServiceStub(channel)
        self.tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        self.spaces = space_service_pb2_grpc.SpaceServiceStub(channel)
        self.turns = turn_memory_service_pb2_grpc.TurnMemoryServiceStub(channel)


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked_for = error.retry_after if isinstance(error, UnavailableError) else None
    return max(asked_for or 0.0, _PAUSE(state))
