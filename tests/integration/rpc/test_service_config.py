"""The service config for clients: that it says something of every method, and that a client lives by it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import grpc

from runekeep.v1 import session_service_pb2, session_service_pb2_grpc
from runekeep_server.rpc.methods import METHODS
from tests.support.callers import Caller, failure, said, unique
from tests.support.cutting_proxy import CuttingProxy
from tests.support.server_process import ROOT, ServerProcess

TEXT = (ROOT / "deploy" / "service-config.json").read_text()
CONFIG = json.loads(TEXT)
WITH_CONFIG = [("grpc.service_config", TEXT)]
NOT_REPEATED = {
    # Streams are taken up where they broke, by those who know where that was.
    "TaskService/WatchTask",
    "SessionService/StreamMessages",
    # It costs money each time.
    "MemoryService/AskMemory",
    "SpaceService/ExportSpace",
    "SpaceService/ImportSpace",
    "ExtractorService/Work",
    "ExtractorService/GetJobInput",
    # Of a second rotation the key that is in use would not outlive the grace of the first.
    "AdminService/RotateApiKey",
    # The secret is in the first answer alone.
    "AdminService/CreateApiKey",
}
SAME_TWICE = {"AdminService/ChangeEmbedder", "AdminService/RevokeApiKey", "AdminService/UpdateAccountLimits"}
"""Mutations without a request_id that do no more when they are done again."""
READING = ("Get", "List", "Find", "Read", "Glob", "Grep", "Diff", "Load", "Embed", "Explain")


def test_every_method_is_repeated_or_said_not_to_be() -> None:
    repeated = [
        f"{name['service'].removeprefix('runekeep.v1.')}/{name['method']}"
        for config in CONFIG["methodConfig"]
        for name in config["name"]
    ]
    assert len(repeated) == len(set(repeated))
    assert set(repeated) | NOT_REPEATED == {method.name for method in METHODS.values()}
    assert not set(repeated) & NOT_REPEATED


def test_what_is_repeated_may_be_done_twice() -> None:
    for method in METHODS.values():
        if method.name in NOT_REPEATED:
            continue
        reads = method.name.partition("/")[2].startswith(READING)
        assert not method.streams and (reads or method.name in SAME_TWICE or method.takes_request_id), method.name


def test_only_what_did_not_get_through_is_repeated_and_no_deadline_is_cut() -> None:
    for config in CONFIG["methodConfig"]:
        assert config["retryPolicy"]["retryableStatusCodes"] == ["UNAVAILABLE", "CANCELLED"]
        # A timeout here would bound those too that a caller sets longer.
        assert set(config) == {"name", "retryPolicy"}


@asynccontextmanager
async def through(proxy: CuttingProxy, options: list[tuple[str, Any]]) -> AsyncIterator[Caller]:
    port = urlsplit(proxy.url).port
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        yield Caller(channel, unique("user"), unique("account"))


async def test_a_call_whose_connection_is_killed_is_made_again_and_done_once(server: ServerProcess) -> None:
    async with CuttingProxy(f"tcp://{server.address}") as proxy, through(proxy, WITH_CONFIG) as caller:
        session = await caller.session()
        request = session_service_pb2.AddMessagesRequest(
            session=session, messages=[said("hello, this is the one")], request_id="once"
        )
        proxy.cut_after(b"this is the one")
        await caller.sessions.AddMessages(request)
        listed = session_service_pb2.ListMessagesRequest(session=session)
        assert len((await caller.sessions.ListMessages(listed)).messages) == 1


async def test_without_it_the_caller_is_told(server: ServerProcess) -> None:
    async with CuttingProxy(f"tcp://{server.address}") as proxy, through(proxy, []) as caller:
        session = await caller.session()
        request = session_service_pb2.AddMessagesRequest(
            session=session, messages=[said("hello, this is the one")], request_id="once"
        )
        proxy.cut_after(b"this is the one")
        assert (await failure(caller.sessions.AddMessages(request))).code is grpc.StatusCode.UNAVAILABLE


async def test_calls_go_to_the_server_that_is_left(
    own_server: Callable[..., ServerProcess], server: ServerProcess
) -> None:
    other = own_server({})
    target = f"ipv4:{server.address},{other.address}"
    async with grpc.aio.insecure_channel(target, options=WITH_CONFIG) as channel:
        stub = session_service_pb2_grpc.SessionServiceStub(channel)
        request = session_service_pb2.ListSessionsRequest()
        await asyncio.gather(*(stub.ListSessions(request, timeout=20) for _ in range(20)))
        other.kill()
        await asyncio.gather(*(stub.ListSessions(request, timeout=20) for _ in range(20)))


def test_the_service_whose_health_is_watched_is_one() -> None:
    assert any(path.startswith(f"/{CONFIG['healthCheckConfig']['serviceName']}/") for path in METHODS)
