"""A store becomes read-only under a running server: health and the doctor report it, reads go on, and it recovers."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from runekeep.v1 import admin_service_pb2, admin_service_pb2_grpc, session_service_pb2
from tests.support.callers import Caller, failure, said
from tests.support.doctor import server_checks
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess

Servers = Callable[..., ServerProcess]
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
AWAY = ("UNAVAILABLE", "DEPENDENCY_UNAVAILABLE")


def _ran(*command: object) -> bool:
    return subprocess.run([str(part) for part in command], capture_output=True, check=False).returncode == 0


@contextmanager
def immutable(data_dir: Path) -> Iterator[None]:
    """Makes every write to the log of the database fail, as on a file system that went read-only after an error."""
    wal = data_dir / "runekeep.db-wal"
    if not _ran("chattr", "+i", wal):
        pytest.skip("this user or this file system cannot make a file immutable")
    try:
        yield
    finally:
        assert _ran("chattr", "-i", wal)


@contextmanager
def mounted_read_only(data_dir: Path) -> Iterator[None]:
    if not _ran("mount", "--bind", data_dir, data_dir):
        pytest.skip("this user may not mount")
    try:
        assert _ran("mount", "-o", "remount,ro,bind", data_dir)
        yield
    finally:
        # A process that has just ended may still have files open.
        assert _ran("umount", data_dir) or _ran("umount", "--lazy", data_dir)


async def health_is(channel: grpc.aio.Channel, wanted: int, service: str = "runekeep.v1.SessionService") -> None:
    """Waits until the service has that health."""
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))
    async with asyncio.timeout(60):
        async for answer in watch:
            if answer.status == wanted:
                watch.cancel()
                return


async def store_as_told(channel: grpc.aio.Channel) -> Any:
    stub = admin_service_pb2_grpc.AdminServiceStub(channel)
    status = await stub.GetServerStatus(admin_service_pb2.GetServerStatusRequest())
    return next(one for one in status.dependencies if one.name == "store")


async def reads(caller: Caller, session: str) -> None:
    request = session_service_pb2.ListMessagesRequest(session=session)
    assert len((await caller.sessions.ListMessages(request)).messages) == 1


async def reported(server: ServerProcess, channel: grpc.aio.Channel) -> None:
    await health_is(channel, NOT_SERVING)
    # A supervisor that restarts a server that does not serve would help nobody here.
    await health_is(channel, SERVING, "")
    told = await store_as_told(channel)
    assert not told.available and "read-only" in told.problem
    found = await server_checks(server)
    assert found["server.health"]["state"] == found["server.store"]["state"] == "problem"
    assert "read-only" in found["server.store"]["found"]


async def recovered(caller: Caller, session: str, channel: grpc.aio.Channel) -> None:
    await health_is(channel, SERVING)
    assert (await store_as_told(channel)).available
    await caller.add(session, said("more tea"))


async def test_a_sqlite_log_that_takes_no_writes(own_server: Servers) -> None:
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        await caller.add(session, said("tea"))
        with immutable(server.data_dir):
            assert (await failure(caller.add(session, said("lost")))).seen == AWAY
            await reads(caller, session)
            await reported(server, channel)
        await recovered(caller, session, channel)
    server.terminate()


async def test_a_file_system_that_was_mounted_read_only(own_server: Servers) -> None:
    """Nobody writes meanwhile."""
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        await caller.add(session, said("tea"))
        with mounted_read_only(server.data_dir):
            await reported(server, channel)
            await reads(caller, session)
        await recovered(caller, session, channel)
    server.terminate()


@pytest.fixture
def cluster() -> Iterator[PostgresServer]:
    """A separate server, because the other tests' sessions must not become read-only."""
    server = PostgresServer().start()
    yield server
    server.stop()


async def test_a_postgres_that_takes_no_writes(cluster: PostgresServer, own_server: Servers) -> None:
    """As after a failover to a standby, or on a full disk of a managed PostgreSQL."""

    def set_read_only(value: str) -> None:
        cluster.sql(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        cluster.sql("SELECT pg_reload_conf()")

    settings = {"RUNEKEEP_STORE_URL": cluster.url(cluster.create())}
    server = own_server(settings)
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        await caller.add(session, said("tea"))
        await asyncio.to_thread(set_read_only, "on")
        await reported(server, channel)
        refused = await failure(caller.add(session, said("lost")))
        assert refused.seen == AWAY and "read-only" in refused.message
        await reads(caller, session)
        await asyncio.to_thread(set_read_only, "off")
        await recovered(caller, session, channel)
    server.terminate()
