"""The channel to a server: identity, deadlines, repeats, and errors as exceptions."""

import asyncio
import os
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, stop_before_delay
from tenacity.wait import wait_random_exponential

from runekeep.client.connection.errors import (
    DeadlineExceededError,
    RunekeepError,
    TlsError,
    UnavailableError,
    from_rpc_error,
)
from runekeep.client.connection.pages import Pages
from runekeep.client.connection.tracing import Metadata, stream_headers, trace_call
from runekeep.ids import new_uuid
from runekeep.methods import default_seconds, is_repeatable, method_of
from runekeep.transport.advice import advice
from runekeep.transport.rotation import open_channel
from runekeep.transport.transport import Names, transport
from runekeep.v1 import (
    admin_service_pb2_grpc,
    history_service_pb2_grpc,
    memory_service_pb2_grpc,
    proposal_service_pb2_grpc,
    session_service_pb2_grpc,
    space_service_pb2_grpc,
    task_service_pb2_grpc,
    turn_memory_service_pb2_grpc,
)

DEFAULT_ADDRESS = "127.0.0.1:7433"
USER_KEY = "x-runekeep-user"
"""Metadata key that names the user."""
ATTEMPTS = 6
_PAUSE = wait_random_exponential(multiplier=0.1, max=2)
_CHANNEL_OPTIONS = (
    # A call must find a restarted server within its deadline; gRPC by default waits up to two minutes.
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
"""Environment variables that say how to reach a server. Arguments of the same names take precedence."""

Request = TypeVar("Request", bound=Message, contravariant=True)
Response = TypeVar("Response", covariant=True)


class UnaryMethod(Protocol[Request, Response]):
    """A unary method of an asynchronous stub."""

    def __call__(
        self, request: Request, *, timeout: float | None = None, metadata: Any = None
    ) -> Awaitable[Response]: ...


def new_request_id() -> str:
    """Returns an id for one mutation; its repeats use the same id."""
    return new_uuid()


class Connection:
    """A connection to a server. The first call opens the channel, on its event loop."""

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
        """Takes what is None from the environment. `server_name`: the name that the server's certificate must have, if
        it is not the host of the address. Raises TransportError."""
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
        self.timeout = timeout
        server_name_option = (("grpc.ssl_target_name_override", server_name),) if server_name else ()
        self._options = (*_CHANNEL_OPTIONS, *server_name_option)
        named = (("x-runekeep-account", account), (USER_KEY, user))
        self.metadata = (*self._transport.metadata, *((key, value) for key, value in named if value))
        self._open: _Stubs | None = None

    @property
    def stream_metadata(self) -> Metadata:
        """Metadata for calls with a stream, which `call` does not make."""
        return (*self.metadata, *stream_headers())

    @property
    def stubs(self) -> "_Stubs":
        if self._open is None:
            self._open = _Stubs(open_channel(self._transport, self._options))
        return self._open

    async def call(self, method: UnaryMethod[Request, Response], request: Request, *, user: str = "") -> Response:
        """Calls a method; with `user` for that user of the account. While the server is away, repeats the same request,
        with the same request_id, unless the contract says that the method must not be repeated.

        All attempts share one deadline: the client's `timeout` if it is set, otherwise that of the contract.
        """
        own = self.metadata
        if user:
            own = (*((key, value) for key, value in own if key != USER_KEY), (USER_KEY, user))
        with trace_call(request, self.address) as traced:
            return await self._repeated(method, request, (*own, *traced))

    def pages(self, method: UnaryMethod[Request, Any], request: Request) -> Pages:
        """Returns the responses of a method that lists something, page by page."""
        return Pages(partial(self.call, method), request)

    async def _repeated(self, method: UnaryMethod[Request, Response], request: Request, metadata: Metadata) -> Response:
        deadline = self.timeout if self.timeout is not None else default_seconds(request)
        clock = asyncio.get_running_loop().time
        end = clock() + deadline
        max_attempts = ATTEMPTS if is_repeatable(method_of(request.DESCRIPTOR)) else 1
        attempts = AsyncRetrying(
            retry=retry_if_exception(is_transient),
            stop=stop_after_attempt(max_attempts) | stop_before_delay(deadline),
            wait=_pause,
            reraise=True,
        )
        tls_error: TlsError | None = None
        async for attempt in attempts:
            with attempt:
                try:
                    return await method(request, timeout=max(end - clock(), 0.001), metadata=metadata)
                except grpc.aio.AioRpcError as error:
                    failed = self.failure(error)
                    tls_error = failed if isinstance(failed, TlsError) else tls_error
                    if tls_error is not None and isinstance(failed, UnavailableError) and not failed.reason:
                        # Of several addresses gRPC reports the last failure, often of one where nobody listens.
                        raise tls_error from error
                    raise failed from error
        raise DeadlineExceededError("no attempt was made", code="DEADLINE_EXCEEDED")

    def failure(self, error: grpc.aio.AioRpcError) -> RunekeepError:
        """Returns the exception for a failed call; a TlsError if TLS is the cause."""
        failed = from_rpc_error(error)
        advised = advice(self._transport, failed.message) if isinstance(failed, UnavailableError) else None
        return failed if advised is None else TlsError(advised.text, certain=advised.certain)

    async def close(self) -> None:
        stubs, self._open = self._open, None
        if stubs is not None:
            await stubs.channel.close()


class _Stubs:
    """A channel and its stubs."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.sessions = session_service_pb2_grpc.SessionServiceStub(channel)
        self.memories = memory_service_pb2_grpc.MemoryServiceStub(channel)
        self.history = history_service_pb2_grpc.HistoryServiceStub(channel)
        self.proposals = proposal_service_pb2_grpc.ProposalServiceStub(channel)
        self.tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        self.spaces = space_service_pb2_grpc.SpaceServiceStub(channel)
        self.turns = turn_memory_service_pb2_grpc.TurnMemoryServiceStub(channel)
        self.admin = admin_service_pb2_grpc.AdminServiceStub(channel)


def is_transient(error: BaseException) -> bool:
    """Returns whether the same call may succeed a moment later."""
    return isinstance(error, UnavailableError) and not (isinstance(error, TlsError) and error.certain)


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked_for = error.retry_after if isinstance(error, UnavailableError) else None
    return max(asked_for or 0.0, _PAUSE(state))
