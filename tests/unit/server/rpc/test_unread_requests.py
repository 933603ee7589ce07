"""Nobody without a good key makes the server read a request."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import grpc
import pytest

from runekeep.v1 import session_service_pb2 as pb
from runekeep_server.app import App, Lifecycle, Service
from runekeep_server.identity.key_states import KeyStates
from runekeep_server.identity.key_uses import KeyUses
from runekeep_server.identity.keys import KeyAuthenticator
from runekeep_server.rpc import CallParts
from runekeep_server.rpc.limits import Limits
from runekeep_server.settings import Settings
from tests.support.keys import WORKER_KEY, bearer
from tests.unit.server.identity.test_key_states import Store, made

PATH = "/runekeep.v1.SessionService/GetSession"
LARGE = pb.GetSessionRequest(session="s" * 4_000_000).SerializeToString()


class Sessions:
    """GetSession, and how many bytes of requests it was given to read."""

    def __init__(self) -> None:
        self.read = 0

    def parsed(self, data: bytes) -> pb.GetSessionRequest:
        self.read += len(data)
        return pb.GetSessionRequest.FromString(data)

    async def answer(self, request: Any, context: Any) -> pb.GetSessionResponse:
        return pb.GetSessionResponse()

    def add_to(self, servicer: object, server: grpc.aio.Server) -> None:
        method: Any = grpc.unary_unary_rpc_method_handler(
            cast(Any, self.answer), self.parsed, pb.GetSessionResponse.SerializeToString
        )
        handler = grpc.method_handlers_generic_handler("runekeep.v1.SessionService", {"GetSession": method})
        server.add_generic_rpc_handlers((handler,))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
async def channel(store: Store, sessions: Sessions) -> AsyncIterator[grpc.aio.Channel]:
    async def factory(settings: Settings, lifecycle: Lifecycle) -> Sequence[Service]:
        states = KeyStates(cast(Any, store), 5.0, store.clock)
        authenticator = KeyAuthenticator(settings, states, KeyUses(cast(Any, store)))
        lifecycle.calls = CallParts(authenticator, Limits(settings.limits))
        return [Service(sessions.add_to, sessions, "runekeep.v1.SessionService")]

    settings = Settings(identity_mode="keys", worker_key=cast(Any, WORKER_KEY), address="127.0.0.1:0", drain_seconds=0)
    app = App(settings, factory)
    await app.start()
    async with grpc.aio.insecure_channel(app.address) as channel:
        yield channel
    await app.stop()


async def code(channel: grpc.aio.Channel, key: str | None) -> str:
    metadata = () if key is None else bearer(key)
    try:
        await channel.unary_unary(PATH)(LARGE, metadata=metadata, timeout=20)
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


async def test_a_request_is_read_for_a_good_key_alone(
    store: Store, sessions: Sessions, channel: grpc.aio.Channel
) -> None:
    _, good = made(store)
    _, revoked = made(store, revoked_at=1)
    for key in (None, "", "x", good[:-1], revoked):
        assert await code(channel, key) == "UNAUTHENTICATED"
    assert sessions.read == 0
    # A good key that may not call this is nobody here.
    assert await code(channel, WORKER_KEY) == "PERMISSION_DENIED"
    assert sessions.read == 0
    assert await code(channel, good) == "INVALID_ARGUMENT"
    assert sessions.read == len(LARGE)


async def test_while_the_store_is_away_a_key_is_neither_good_nor_bad(
    store: Store, sessions: Sessions, channel: grpc.aio.Channel
) -> None:
    _, good = made(store)
    store.away = True
    assert await code(channel, good) == "UNAVAILABLE"
    store.away = False
    assert await code(channel, good) == "INVALID_ARGUMENT"


async def test_a_fault_in_looking_at_a_key_is_told_as_any_other(store: Store, channel: grpc.aio.Channel) -> None:
    _, good = made(store)
    store.fault = ValueError("the path of the store")
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await channel.unary_unary(PATH)(b"", metadata=bearer(good), timeout=20)
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert "path of the store" not in str(failed.value)
