"""Callers without credentials cannot cost a server memory, descriptors or time."""

import asyncio
import contextlib
import json
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from runekeep_server.rpc.connections import HANDSHAKE_MS, PING_ANSWER_MS, PING_MS
from runekeep_server.rpc.open_calls import MAX_PEER_STREAMS, MAX_REQUEST_BYTES
from tests.acceptance.processes import environment
from tests.support.keys import KEYED
from tests.support.raw_peers import RawPeer
from tests.support.server_process import ServerProcess

HUGE = "x" * (15 * 1024 * 1024)
FLOOD = 40
MAX_GROWTH_KB = 250 * 1024
"""How much the server's memory may grow. One of the requests takes 15 MB, and gRPC keeps about 150 MB for further
ones."""
SERVICE = "runekeep.v1.SessionService"
PATIENCE = 60.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


SERVER_SETTINGS = KEYED


def resident_kb(pid: int) -> int:
    """Returns the peak memory of the process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


async def watch(channel: grpc.aio.Channel, name: str, compression: Any = None) -> grpc.StatusCode:
    call = health_pb2_grpc.HealthStub(channel).Watch(
        health_pb2.HealthCheckRequest(service=name), compression=compression
    )
    return await ended(call)


async def check(channel: grpc.aio.Channel, name: str, compression: Any = None) -> grpc.StatusCode:
    request = health_pb2.HealthCheckRequest(service=name)
    try:
        await health_pb2_grpc.HealthStub(channel).Check(request, compression=compression)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def reflect(channel: grpc.aio.Channel, name: str, compression: Any = None) -> grpc.StatusCode:
    async def asked() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(file_containing_symbol=name)

    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    return await ended(stub.ServerReflectionInfo(asked(), compression=compression))


async def ended(call: Any) -> grpc.StatusCode:
    """Returns the status code of a call, and ignores its answers."""
    try:
        async with asyncio.timeout(PATIENCE):
            async for _ in call:
                pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


ATTACKS: list[Callable[..., Any]] = [watch, check, reflect]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, None], ids=["compressed", "plain"])
async def test_a_flood_of_huge_requests_takes_no_memory(
    server: ServerProcess, channel: grpc.aio.Channel, attack: Callable[..., Any], compression: Any
) -> None:
    assert await check(channel, SERVICE) is grpc.StatusCode.OK
    before = resident_kb(server.pid)
    if compression is not None:
        codes = set(await asyncio.gather(*(attack(channel, HUGE, compression) for _ in range(FLOOD))))
    else:
        # An uncompressed request costs the attacker as much as the server while it arrives.
        codes = {await attack(channel, HUGE) for _ in range(FLOOD)}
    # gRPC's client reports INTERNAL for a stream that is refused while it is being written.
    assert grpc.StatusCode.OK not in codes
    assert resident_kb(server.pid) - before < MAX_GROWTH_KB
    assert await check(channel, SERVICE) is grpc.StatusCode.OK


async def test_requests_are_small_and_name_what_there_is(channel: grpc.aio.Channel) -> None:
    for call in (watch, check):
        assert await call(channel, "x" * MAX_REQUEST_BYTES) is grpc.StatusCode.INVALID_ARGUMENT
        assert await call(channel, "x" * (MAX_REQUEST_BYTES // 2)) is grpc.StatusCode.NOT_FOUND
    for method in ("Check", "Watch"):
        garbage = channel.unary_unary(f"/grpc.health.v1.Health/{method}")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await garbage(b"\xff\xff", timeout=PATIENCE)
        assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_call_whose_request_never_comes_is_ended(channel: grpc.aio.Channel) -> None:
    for method in ("Check", "Watch"):
        call = channel.stream_stream(f"/grpc.health.v1.Health/{method}")()
        assert await ended(call) is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_watches_of_one_address_are_bounded(channel: grpc.aio.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=SERVICE)
    watches = [stub.Watch(request) for _ in range(MAX_PEER_STREAMS)]
    for each in watches:
        assert (await each.read()).status == health_pb2.HealthCheckResponse.SERVING
    # As from a server without health checks: clients go on calling it.
    assert await watch(channel, SERVICE) is grpc.StatusCode.UNIMPLEMENTED
    assert await check(channel, SERVICE) is grpc.StatusCode.OK
    for each in watches:
        each.cancel()

    async with asyncio.timeout(PATIENCE):
        # The server notices soon, but nothing reports when.
        while not await is_taken(stub.Watch(request)):
            pass


async def is_taken(call: Any) -> bool:
    try:
        return bool((await call.read()).status)
    except grpc.aio.AioRpcError:
        return False
    finally:
        call.cancel()


async def test_the_contract_is_told_only_where_that_is_asked_for(channel: grpc.aio.Channel, tmp_path: Path) -> None:
    assert await reflect(channel, SERVICE) is grpc.StatusCode.OK
    with limited_server(tmp_path, (900, 900), RUNEKEEP_REFLECTION="") as (address, _):
        async with grpc.aio.insecure_channel(address) as closed:
            assert await reflect(closed, SERVICE) is grpc.StatusCode.UNIMPLEMENTED


@contextlib.contextmanager
def limited_server(directory: Path, descriptors: tuple[int, int], **settings: str) -> Iterator[tuple[str, int]]:
    """Starts a server with a soft and a hard limit of descriptors. Yields its address and its process."""
    variables = environment({"RUNEKEEP_EMBEDDER": "none", **KEYED, **settings})
    arguments = ["--address", "127.0.0.1:0", "--data-dir", str(directory / "data")]
    # No `preexec_fn`: it runs Python in a fork of this process, which has threads of gRPC.
    limited = f'ulimit -S -n {descriptors[0]} && ulimit -H -n {descriptors[1]} && exec "$@"'
    command = ["sh", "-c", limited, "sh", sys.executable, "-m", "runekeep_server", *arguments]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        serving = process.stdout.readline()
        assert serving, (directory / "log").read_text()
        yield json.loads(serving)["address"], process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, (directory / "log").read_text()
    finally:
        process.kill()
        process.communicate()


async def test_silent_connections_leave_descriptors_for_others(tmp_path: Path) -> None:
    """Opens four hundred connections where the process may have three hundred files. Connected clients are served, and
    new ones are served once the silent connections are closed."""
    with limited_server(tmp_path, (300, 300)) as (address, _), contextlib.ExitStack() as strangers:
        # Otherwise the two would share a connection.
        own = [("grpc.use_local_subchannel_pool", 1)]
        async with (
            grpc.aio.insecure_channel(address, options=own) as known,
            grpc.aio.insecure_channel(address, options=own) as new,
        ):
            assert await check(known, SERVICE) is grpc.StatusCode.OK
            for _ in range(400):
                strangers.enter_context(RawPeer(address))
            for _ in range(20):
                assert await check(known, SERVICE) is grpc.StatusCode.OK
            request = health_pb2.HealthCheckRequest(service=SERVICE)
            await health_pb2_grpc.HealthStub(new).Check(request, wait_for_ready=True, timeout=PATIENCE)


def test_the_limit_of_descriptors_is_raised(tmp_path: Path) -> None:
    with limited_server(tmp_path, (400, 900)) as (_, pid):
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (900, 900)


@pytest.mark.parametrize("speaks", [False, True], ids=["says nothing", "has no call"])
async def test_connections_without_calls_are_closed(tmp_path: Path, speaks: bool) -> None:
    # With pings alone, a connection that answers them would stay open.
    idle = {"RUNEKEEP_LIMITS__CONNECTION_IDLE_SECONDS": "1"}
    with limited_server(tmp_path, (900, 900), **idle) as (address, _), RawPeer(address, speaks=speaks) as peer:
        await asyncio.to_thread(peer.wait_for_close, HANDSHAKE_MS / 1000 * 1.5, answers_pings=True)


@pytest.mark.long
async def test_a_peer_that_answers_no_ping_is_dropped(tmp_path: Path) -> None:
    with limited_server(tmp_path, (900, 900)) as (address, _), RawPeer(address, speaks=True) as peer:
        # After the ping it hears nothing until the connection ends, which gRPC by default closes a minute later.
        await asyncio.to_thread(peer.wait_for_close, max(PING_MS, PING_ANSWER_MS * 2) / 1000 * 1.5)
