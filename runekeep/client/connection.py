"""One channel to the server: identity, deadlines, repeats, and errors as exceptions."""

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, stop_before_delay
from tenacity.wait import wait_random_exponential

from runekeep.client import tracing
from runekeep.client.errors import (
    DeadlineExceededError,
    RunekeepError,
    TlsError,
    UnavailableError,
    from_rpc_error,
)
from runekeep.ids import new_uuid
from runekeep.transport.advice import advice
from runekeep.transport.rotation import open_channel
from runekeep.transport.transport import Names, transport
from runekeep.v1 import (
    admin_service_pb2_grpc,
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

NAMES = Names(
    address="RUNEKEEP_ADDRESS",
    api_key="RUNEKEEP_API_KEY",
    ca_file="RUNEKEEP_CA_FILE",
    cert_file="RUNEKEEP_CERT_FILE",
    key_file="RUNEKEEP_KEY_FILE",
)
"""The variables that say how a server is reached. An argument of the same name goes before each."""

Request = TypeVar("Request", bound=Message, contravariant=True)
Response = TypeVar("Response", covariant=True)


class UnaryMethod(Protocol[Request, Response]):
    """A unary method of an asynchronous stub."""

    def __call__(
        self, request: Request, *, timeout: float | None = None, metadata: Any = None
    ) -> Awaitable[Response]: ...


def new_request_id() -> str:
    """An id for one mutation, kept over its repeats."""
    return new_uuid()


class Connection:
    """The channel opens with the first call, on the event loop of that call."""

    def __init__(
        self,
        address: str | None,
        *,
        account: str | None = None,
        user: str | None = None,
        api_key: str | None = None,
        ca_file: str | Path | None = None,
        cert_file: str | Path | None = None,
        key_file: str | Path | None = None,
        timeout: float | None = None,
        server_name: str = "",
    ) -> None:
        """What is None comes from the environment. `server_name`: what the server's certificate is held to in place of
        the host of its address. Raises TransportError."""
        environment = os.environ
        self.address = address or environment.get(NAMES.address) or DEFAULT_ADDRESS
        self._transport = transport(
            self.address,
            NAMES,
            api_key=environment.get(NAMES.api_key) if api_key is None else api_key,
            ca_file=environment.get(NAMES.ca_file) if ca_file is None else ca_file,
            cert_file=environment.get(NAMES.cert_file) if cert_file is None else cert_file,
            key_file=environment.get(NAMES.key_file) if key_file is None else key_file,
        )
        self._transport.check()
        account = account or environment.get("RUNEKEEP_ACCOUNT")
        user = user or environment.get("RUNEKEEP_USER")
        self._timeout = timeout
        named_so = (("grpc.ssl_target_name_override", server_name),) if server_name else ()
        self._options = (*_CHANNEL_OPTIONS, *named_so)
        named = (("x-runekeep-account", account), ("x-runekeep-user", user))
        self.metadata = (*self._transport.metadata, *((key, value) for key, value in named if value))
        self._open: _Stubs | None = None

    @property
    def stream_metadata(self) -> tracing.Metadata:
        """For a call with a stream, which is not made by `call`."""
        return (*self.metadata, *tracing.around())

    @property
    def stubs(self) -> "_Stubs":
        if self._open is None:
            self._open = _Stubs(open_channel(self._transport, self._options))
        return self._open

    async def call(self, method: UnaryMethod[Request, Response], request: Request, deadline: float) -> Response:
        """Calls a method; repeats the very same request, and so the same request_id, while the server is away.

        `deadline` in seconds is for all attempts together; the client's own `timeout` goes before it.
        """
        with tracing.outgoing(request, self.address) as traced:
            return await self._repeated(method, request, deadline, (*self.metadata, *traced))

    async def _repeated(
        self, method: UnaryMethod[Request, Response], request: Request, deadline: float, metadata: tracing.Metadata
    ) -> Response:
        deadline = self._timeout if self._timeout is not None else deadline
        clock = asyncio.get_running_loop().time
        end = clock() + deadline
        attempts = AsyncRetrying(
            retry=retry_if_exception(may_pass),
            stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(deadline),
            wait=_pause,
            reraise=True,
        )
        told: TlsError | None = None
        async for attempt in attempts:
            with attempt:
                try:
                    return await method(request, timeout=max(end - clock(), 0.001), metadata=metadata)
                except grpc.aio.AioRpcError as error:
                    failed = self.failure(error)
                    told = failed if isinstance(failed, TlsError) else told
                    if told is not None and isinstance(failed, UnavailableError) and not failed.reason:
                        # Of several addresses gRPC names the last that failed: often one where nobody listens.
                        raise told from error
                    raise failed from error
        raise DeadlineExceededError("no attempt was made", code="DEADLINE_EXCEEDED")

    def failure(self, error: grpc.aio.AioRpcError) -> RunekeepError:
        """The exception that stands for a failed call; a TlsError where TLS stood in its way."""
        failed = from_rpc_error(error)
        advised = advice(self._transport, failed.message) if isinstance(failed, UnavailableError) else None
        return failed if advised is None else TlsError(advised.text, certain=advised.certain)

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
        self.admin = admin_service_pb2_grpc.AdminServiceStub(channel)


def may_pass(error: BaseException) -> bool:
    """Whether the same call may succeed a moment later."""
    return isinstance(error, UnavailableError) and not (isinstance(error, TlsError) and error.certain)


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked_for = error.retry_after if isinstance(error, UnavailableError) else None
    return max(asked_for or 0.0, _PAUSE(state))
