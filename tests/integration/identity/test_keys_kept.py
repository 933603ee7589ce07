"""Keys outlast their server, hold on every server of a store, and leave nothing of their secrets anywhere."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc

from runekeep.v1 import admin_service_pb2 as pb
from runekeep.v1 import session_service_pb2, task_service_pb2
from tests.support.bytes_on_disk import files_with
from tests.support.callers import Caller, failure, said
from tests.support.keys import ADMIN_KEY, KEYED, WORKER_KEY, Operator, sending
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess

Servers = Callable[..., ServerProcess]
LIST = session_service_pb2.ListSessionsRequest()


async def sessions_of(address: str, key: str, user: str = "ada") -> list[Any]:
    async with sending(address, key) as channel:
        return list((await Caller(channel, user, "acme").sessions.ListSessions(LIST)).sessions)


async def test_keys_outlast_their_server_and_their_secrets_are_nowhere(own_server: Servers, tmp_path: Path) -> None:
    server = own_server(KEYED)
    async with grpc.aio.insecure_channel(server.address) as channel:
        operator = Operator(channel)
        made = await operator.make(pb.SCOPE_USER, "acme", "ada", label="of ada")
        rotated = await operator.rotate(made.key.key_id, grace={"seconds": 3600})
        revoked = await operator.make(pb.SCOPE_WORKER)
        await operator.revoke(revoked.key.key_id)
        secrets = [made.secret, rotated.secret, revoked.secret]
        for secret in secrets[:2]:
            await sessions_of(server.address, secret)
        for secret in (revoked.secret, f"{made.secret[:-1]}!", ADMIN_KEY[:-1] + "x"):
            await failure(sessions_of(server.address, secret))
    server.stop()

    server = own_server(KEYED)
    for secret in secrets[:2]:
        assert await sessions_of(server.address, secret) == []
    assert (await failure(sessions_of(server.address, revoked.secret))).code is grpc.StatusCode.UNAUTHENTICATED
    async with grpc.aio.insecure_channel(server.address) as channel:
        (key,) = (await Operator(channel).keys(account="acme")).keys
    # What was noted of its use was written when the first server ended; to the hour.
    assert key.HasField("last_use_time") and key.last_use_time.seconds % 3600 == 0
    assert key.label == "of ada"
    server.stop()

    # What would be found if anything were: the ids are in the store, and in the log.
    assert files_with(tmp_path, made.key.key_id)
    for secret in (*(secret[20:] for secret in secrets), ADMIN_KEY, WORKER_KEY, ADMIN_KEY[:-1]):
        assert files_with(tmp_path, secret) == {}


async def test_without_any_key_of_an_operator_the_log_says_how_to_make_one(own_server: Servers, tmp_path: Path) -> None:
    server = own_server({"RUNEKEEP_IDENTITY_MODE": "keys"})
    server.stop()
    assert "RUNEKEEP_ADMIN_KEY" in (tmp_path / "data.log").read_text()
    server = own_server(KEYED, "other")
    async with grpc.aio.insecure_channel(server.address) as channel:
        made = await Operator(channel).make(pb.SCOPE_ADMIN)
    server.stop()
    # Bootstrapped: the key of the settings is not needed any more, and does not hold when it is gone from them.
    server = own_server({"RUNEKEEP_IDENTITY_MODE": "keys"}, "other")
    async with grpc.aio.insecure_channel(server.address) as channel:
        assert len((await Operator(channel, made.secret).keys()).keys) == 1
        assert (await failure(Operator(channel).keys())).code is grpc.StatusCode.UNAUTHENTICATED
    server.stop()
    assert "RUNEKEEP_ADMIN_KEY" not in (tmp_path / "other.log").read_text()


async def test_a_key_that_one_server_revokes_is_refused_by_the_other(
    own_server: Servers, postgres_server: PostgresServer, index_url: str
) -> None:
    database = postgres_server.create()
    shared = {
        **KEYED,
        "RUNEKEEP_STORE_URL": postgres_server.url(database),
        "RUNEKEEP_INDEX_URL": index_url,
        "RUNEKEEP_KEY_CHECK_SECONDS": "0.2",
    }
    first, second = own_server(shared, "first"), own_server(shared, "second")
    async with grpc.aio.insecure_channel(first.address) as channel:
        operator = Operator(channel)
        made = await operator.make(pb.SCOPE_USER, "acme", "ada")
        # Believed there from here on, and a stream is open with it.
        async with sending(second.address, made.secret) as there:
            caller = Caller(there, "ada", "acme")
            task_id = (await caller.committed(said("hello"))).task_id
            watch = caller.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id=task_id))
            async with aclosing(aiter(watch)) as updates:
                await anext(updates)
                await operator.revoke(made.key.key_id)
                async with asyncio.timeout(20):
                    failed = await failure(_drained(updates))
            assert failed.seen == ("UNAUTHENTICATED", "ACCESS_DENIED")
            refused = await failure(caller.session())
            assert refused.seen == ("UNAUTHENTICATED", "ACCESS_DENIED")
    first.stop()
    second.stop()
    postgres_server.drop(database)


async def _drained(updates: Any) -> None:
    async for _ in updates:
        pass
