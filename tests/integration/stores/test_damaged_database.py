"""Pages of a database were overwritten: the server on it notices, refuses writes and reports it, and serves what can
still be read."""

import asyncio
import contextlib
import os
import random
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from runekeep.v1 import admin_service_pb2, admin_service_pb2_grpc, session_service_pb2
from tests.support.callers import Caller, failure, said
from tests.support.doctor import server_checks
from tests.support.exports import exported
from tests.support.fork_server import run_module
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess

Servers = Callable[..., ServerProcess]
DAMAGED = ("DATA_LOSS", "DATA_DAMAGED")
PAGE = 4096
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
WAIT_SECONDS = 60.0


@contextlib.asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield channel


async def filled(server: ServerProcess) -> list[str]:
    """Stores twelve sessions whose messages fill hundreds of pages, and stops the server, so that they are in its
    file."""
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        sessions = [await caller.session() for _ in range(12)]
        for number, session in enumerate(sessions):
            await caller.add(session, *(said(f"tea {number:02} " * 600) for _ in range(12)))
    server.stop()
    return sessions


def overwrite(server: ServerProcess) -> None:
    """Overwrites twelve pages that hold only texts of the first four sessions."""
    content, chosen = database(server).read_bytes(), random.Random(1)
    texts = [f"tea {number:02} ".encode() for number in range(4)]
    # An overflow page of a text holds the number of the next page, and then only text.
    pages = [
        at
        for at in range(0, len(content), PAGE)
        if any(content[at + 4 : at + PAGE].count(text) > 300 for text in texts)
    ]
    pages = [at for at in pages if set(content[at + 4 : at + 100]) <= set(b"tea 0123")]
    with database(server).open("r+b") as opened:
        for at in chosen.sample(pages, 12):
            opened.seek(at)
            opened.write(chosen.randbytes(PAGE))


def database(server: ServerProcess) -> Path:
    return server.data_dir / "runekeep.db"


async def health(channel: grpc.aio.Channel, service: str) -> int:
    return int((await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))).status)


async def told_by_health(channel: grpc.aio.Channel) -> None:
    """Returns when health tells balancers to send no more calls."""
    request = health_pb2.HealthCheckRequest(service="runekeep.v1.SessionService")
    watch = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=WAIT_SECONDS)
    while (await watch.read()).status != NOT_SERVING:
        pass
    watch.cancel()
    # A restart would repair nothing, so a supervisor that restarts what does not serve must leave this server alone.
    assert await health(channel, "") == SERVING
    assert await health(channel, "runekeep.v1.AdminService") == SERVING


async def outcomes(caller: Caller, sessions: list[str]) -> list[tuple[str, str]]:
    """Returns the code and reason of a read of each session; nothing for one that was answered."""

    async def read(session: str) -> tuple[str, str]:
        request = session_service_pb2.ListMessagesRequest(session=session, page_size=200)
        try:
            answer = await caller.sessions.ListMessages(request)
        except grpc.aio.AioRpcError:
            return (await failure(caller.sessions.ListMessages(request))).seen
        assert all(message.parts[0].text.text.startswith("tea ") for message in answer.messages)
        return ("", "")

    return [await read(session) for session in sessions]


async def refused(caller: Caller, session: str) -> None:
    for write in (caller.add(session, said("more")), caller.session(), caller.commit(session)):
        assert (await failure(write)).seen == DAMAGED


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    program, *rest = arguments
    environment = {**os.environ, "RUNEKEEP_EMBEDDER": "none", **variables}
    return run_module(str(program), *rest, environment=environment, timeout=120)


def told_once(server: ServerProcess) -> None:
    """The damage is one line of the log. No other line is an error or quotes a message."""
    assert [fault["event"] for fault in server.faults()] == ["database_damaged"]
    assert "tea " not in server.log()


async def test_a_start_on_damaged_pages(own_server: Servers, tmp_path: Path) -> None:
    server = own_server()
    async with connected(server) as channel:
        bert = Caller(channel, "bert")
        await bert.add(await bert.session(), said("coffee"))
    sessions = await filled(server)
    backup = tmp_path / "backup"
    assert run("runekeep", "backup", backup, "--data-dir", server.data_dir).returncode == 0
    overwrite(server)

    server.start()
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        await refused(caller, sessions[0])
        # Damaged data is reported as such, and the rest can be rescued.
        read = await outcomes(caller, sessions)
        assert set(read[:4]) >= {DAMAGED} and set(read[4:]) == {("", "")}
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await exported(caller)
        assert error.value.code() is grpc.StatusCode.DATA_LOSS
        assert await exported(Caller(channel, "bert"))
        await told_by_health(channel)
        found = await server_checks(server)
        assert found["server.health"]["state"] == "problem"
        assert found["server.store"]["state"] == "problem" and "damaged" in found["server.store"]["found"]
        assert found["server.database_data"]["state"] == "problem"
        assert "quick check" in found["server.database_data"]["found"]
        ran = await asyncio.to_thread(run, "runekeep", "backup", tmp_path / "later", "--data-dir", server.data_dir)
        assert ran.returncode == 2 and "database is damaged" in ran.stderr and "disk is full" not in ran.stderr
        assert not (tmp_path / "later").exists()
    told_once(server)
    server.discard()

    assert run("runekeep", "restore", backup, "--data-dir", tmp_path / "restored").returncode == 0
    again = own_server(data="restored")
    async with connected(again) as channel:
        caller = Caller(channel, "anna")
        assert set(await outcomes(caller, sessions)) == {("", "")}
        await caller.add(sessions[0], said("more"))
    again.stop()


async def test_a_call_meets_pages_that_were_damaged_since(own_server: Servers) -> None:
    server = own_server({"RUNEKEEP_DATA_CHECK_SECONDS": "0"})
    sessions = await filled(server)
    server.start()
    overwrite(server)
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        assert DAMAGED in await outcomes(caller, sessions)
        await refused(caller, sessions[0])
        await told_by_health(channel)
        assert (await server_checks(server))["server.database_data"]["state"] == "problem"
    told_once(server)


async def test_the_full_check_finds_what_nobody_reads(own_server: Servers) -> None:
    server = own_server({"RUNEKEEP_DATA_CHECK_SECONDS": "1"})
    sessions = await filled(server)
    server.start()
    async with connected(server) as channel:
        overwrite(server)
        await told_by_health(channel)
        await refused(Caller(channel, "anna"), sessions[0])
        admin = admin_service_pb2_grpc.AdminServiceStub(channel)
        status = await admin.GetServerStatus(admin_service_pb2.GetServerStatusRequest())
        (check,) = (one for one in status.data_checks if one.name == "database")
        assert check.problem and check.extent == "full" and check.HasField("end_time")
    told_once(server)


async def test_a_check_that_takes_longer_than_the_start_goes_on(own_server: Servers) -> None:
    server = own_server({"RUNEKEEP_START_CHECK_SECONDS": "0", "RUNEKEEP_DATA_CHECK_SECONDS": "0"})
    await filled(server)
    overwrite(server)
    server.start()
    assert "database_check_goes_on" in server.log()
    async with connected(server) as channel:
        await told_by_health(channel)
    told_once(server)


async def test_a_database_that_cannot_be_opened_ends_the_start(own_server: Servers) -> None:
    server = own_server()
    await filled(server)
    with database(server).open("r+b") as file:
        file.write(random.Random(1).randbytes(PAGE))

    ran = run("runekeep_server", "--data-dir", server.data_dir, "--address", "127.0.0.1:0")
    assert ran.returncode == 2 and "Traceback" not in ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert str(database(server)) in last and "is damaged" in last and "Restore a backup" in last


async def test_a_whole_database_is_checked_and_left_alone(own_server: Servers) -> None:
    server = own_server({"RUNEKEEP_DATA_CHECK_SECONDS": "0.2"})
    sessions = await filled(server)
    server.start()
    async with connected(server) as channel:
        async with asyncio.timeout(WAIT_SECONDS):
            while '"full"' not in server.log():
                await Caller(channel, "anna").add(sessions[0], said("more"))
        assert (await server_checks(server))["server.database_data"]["state"] == "ok"
    server.stop()


async def test_damage_of_postgresql_is_data_loss(own_server: Servers, postgres_server: PostgresServer) -> None:
    """PostgreSQL itself reports what it finds damaged. Here a trigger reports it instead."""
    name = postgres_server.create()
    url = postgres_server.url(name)
    server = own_server({"RUNEKEEP_STORE_URL": url})
    connection = await asyncpg.connect(url)
    await connection.execute(
        "CREATE FUNCTION damaged() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'invalid page in block 7' USING ERRCODE = TG_ARGV[0]; END $$"
    )
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        for code in ("XX001", "XX002"):
            await connection.execute(
                f"CREATE TRIGGER damaged BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION damaged('{code}')"
            )
            assert (await failure(caller.add(session, said("tea")))).seen == DAMAGED
            await connection.execute("DROP TRIGGER damaged ON messages")
        await caller.add(session, said("tea"))
    await connection.close()
    assert {fault["event"] for fault in server.faults()} == {"database_damaged"}
    server.discard()
    postgres_server.drop(name)
