"""The life of the server: start, health, reflection, drain, close, and the process around it."""

import asyncio
import json
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from runekeep.v1 import session_service_pb2, session_service_pb2_grpc
from runekeep_server.app import App, Lifecycle, Service, StartError
from runekeep_server.settings import Settings

ROOT = Path(__file__).parents[3]
NAME = "runekeep.v1.SessionService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Sessions(session_service_pb2_grpc.SessionServiceServicer):
    """GetSession answers once it is let go."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()

    async def GetSession(self, request: Any, context: Any) -> session_service_pb2.GetSessionResponse:
        self.reached.set()
        await self.let_go.wait()
        return session_service_pb2.GetSessionResponse(created=True)


def settings(**values: Any) -> Settings:
    return Settings(**({"address": "127.0.0.1:0", "drain_seconds": 30} | values))


def plugged(servicer: Sessions) -> list[Service]:
    return [Service(session_service_pb2_grpc.add_SessionServiceServicer_to_server, servicer, NAME)]


async def health(channel: grpc.aio.Channel, service: str = "") -> int:
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


def get(channel: grpc.aio.Channel) -> Any:
    request = session_service_pb2.GetSessionRequest(session="s-1")
    return session_service_pb2_grpc.SessionServiceStub(channel).GetSession(request, timeout=60)


async def test_order_of_a_whole_life() -> None:
    order: list[str] = []
    servicer = Sessions()
    app: App

    async def factory(_settings: Settings, lifecycle: Lifecycle) -> list[Service]:
        async def start() -> None:
            async with grpc.aio.insecure_channel(app.address) as channel:
                assert await health(channel) == NOT_SERVING
                assert await health(channel, NAME) == NOT_SERVING
            order.append("start")

        async def drain() -> None:
            async with grpc.aio.insecure_channel(app.address) as channel:
                assert await health(channel) == NOT_SERVING
                assert await health(channel, NAME) == NOT_SERVING
            order.append("drain")
            servicer.let_go.set()

        async def close_first() -> None:
            order.append("close what was opened first")

        async def close_last() -> None:
            order.append("close what was opened last")

        lifecycle.on_close(close_first)
        lifecycle.on_close(close_last)
        lifecycle.on_start(start)
        lifecycle.on_drain(drain)
        return plugged(servicer)

    app = App(settings(), factory)
    await app.start()
    order.append("serving")
    async with grpc.aio.insecure_channel(app.address) as channel:
        assert await health(channel) == SERVING
        assert await health(channel, NAME) == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await health(channel, "runekeep.v1.Nothing")
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        # Somebody watches health for ever; a call is open when the end is asked for.
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        call = get(channel)
        call.add_done_callback(lambda _: order.append("call answered"))
        await servicer.reached.wait()
        await app.stop()
        assert (await call).created is True
        assert (await watch.read()).status == NOT_SERVING
    # The callback of the call runs when this task waits, so its place among the closing hooks is not fixed.
    order.remove("call answered")
    assert order == ["start", "serving", "drain", "close what was opened last", "close what was opened first"]


async def test_a_method_that_nobody_calls_costs_the_others_nothing() -> None:
    """Where each has a task that waits for its calls, every call of any method waits for all of them anew."""

    async def tasks(services: list[Service]) -> int:
        async def factory(_settings: Settings, _lifecycle: Lifecycle) -> list[Service]:
            return services

        app = App(settings(reflection=True), factory)
        before = asyncio.all_tasks()
        await app.start()
        try:
            return len(asyncio.all_tasks() - before)
        finally:
            await app.stop()

    assert await tasks(plugged(Sessions())) == await tasks([])


async def test_streams_of_reflection_hold_no_threads() -> None:
    async def factory(_settings: Settings, _lifecycle: Lifecycle) -> list[Service]:
        return plugged(Sessions())

    app = App(settings(reflection=True), factory)
    await app.start()
    try:
        async with grpc.aio.insecure_channel(app.address) as channel, asyncio.timeout(60):
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            # More than the threads that all calls of a process share.
            streams = [stub.ServerReflectionInfo() for _ in range(40)]
            for stream in streams:
                await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            answers = [await stream.read() for stream in streams]
            assert all(answer.list_services_response.service for answer in answers)
    finally:
        await app.stop()


async def test_calls_that_outlast_the_drain_are_cancelled_before_closing() -> None:
    servicer = Sessions()
    open_at_close: list[bool] = []

    async def factory(_settings: Settings, lifecycle: Lifecycle) -> list[Service]:
        async def hang() -> None:
            await asyncio.Event().wait()

        async def close() -> None:
            open_at_close.append(not call.done())

        lifecycle.on_drain(hang)
        lifecycle.on_close(close)
        return plugged(servicer)

    app = App(settings(drain_seconds=0.05), factory)
    await app.start()
    async with grpc.aio.insecure_channel(app.address) as channel:
        call = get(channel)
        await servicer.reached.wait()
        await app.stop()
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await call
    assert len(open_at_close) == 1


async def test_failing_hooks_do_not_keep_the_others_from_running() -> None:
    ran: list[str] = []

    async def factory(_settings: Settings, lifecycle: Lifecycle) -> list[Service]:
        async def fail() -> None:
            ran.append("failed")
            raise OSError(28, "disk full")

        async def work() -> None:
            ran.append("worked")

        for hook in (work, fail):
            lifecycle.on_drain(hook)
            lifecycle.on_close(hook)
        return plugged(Sessions())

    app = App(settings(), factory)
    await app.start()
    await app.stop()
    assert sorted(ran) == ["failed", "failed", "worked", "worked"]


@pytest.mark.parametrize("where", ["factory", "start hook"])
async def test_failed_start_closes_what_was_opened(where: str) -> None:
    closed: list[str] = []

    async def factory(_settings: Settings, lifecycle: Lifecycle) -> list[Service]:
        async def close() -> None:
            closed.append("store")

        async def fail() -> None:
            raise StartError("memory type bad.yaml line 3")

        lifecycle.on_close(close)
        lifecycle.on_start(fail)
        if where == "factory":
            await fail()
        return plugged(Sessions())

    app = App(settings(), factory)
    with pytest.raises(StartError, match="line 3"):
        await app.start()
    assert closed == ["store"]


async def test_taken_address_is_refused_before_anything_is_opened() -> None:
    async def factory(_settings: Settings, _lifecycle: Lifecycle) -> list[Service]:
        raise AssertionError("opened the store of a running server")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartError, match=rf"RUNEKEEP_ADDRESS\): cannot listen on {address}"):
            await App(settings(address=address), factory).start()


async def listed(address: str) -> set[str]:
    async with grpc.aio.insecure_channel(address) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=NAME))
        assert (await call.read()).file_descriptor_response.file_descriptor_proto
        await call.done_writing()
        return {service.name for service in answer.list_services_response.service}


async def test_reflection_shows_services_and_health() -> None:
    async def factory(_settings: Settings, _lifecycle: Lifecycle) -> list[Service]:
        return plugged(Sessions())

    app = App(settings(), factory)
    await app.start()
    assert await listed(app.address) == {NAME, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    await app.stop()
    closed = App(settings(reflection=False), factory)
    await closed.start()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await listed(closed.address)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    await closed.stop()


# A server in a process of its own, as `python -m runekeep_server` runs it, with one small service.
PROCESS = """
import asyncio, sys
import structlog, uvloop
from runekeep.v1 import session_service_pb2, session_service_pb2_grpc
from runekeep_server.telemetry import logs
from runekeep_server.app import Service, serve
from runekeep_server.settings import load_settings

class Sessions(session_service_pb2_grpc.SessionServiceServicer):
    async def GetSession(self, request, context):
        raise ValueError("the user said: my secret")

async def build(settings, lifecycle):
    async def drain():
        structlog.get_logger().info("drain hook")
        if sys.argv[1] == "hang":
            await asyncio.Event().wait()
    async def close():
        structlog.get_logger().info("close hook")
    lifecycle.on_drain(drain)
    lifecycle.on_close(close)
    add = session_service_pb2_grpc.add_SessionServiceServicer_to_server
    return [Service(add, Sessions(), "runekeep.v1.SessionService")]

settings = load_settings(overrides={"address": "127.0.0.1:0"})
logs.configure(settings)
uvloop.run(serve(settings, build))
"""


async def run(mode: str) -> tuple[asyncio.subprocess.Process, dict[str, Any]]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, mode, cwd=ROOT, stdout=pipe, stderr=pipe, env={"PYTHONPATH": str(ROOT)}
    )
    assert process.stdout
    return process, json.loads(await process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_drains_the_process(number: signal.Signals) -> None:
    process, said = await run("end")
    assert set(said) == {"event", "address"}
    assert said["event"] == "serving"
    async with grpc.aio.insecure_channel(said["address"]) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await session_service_pb2_grpc.SessionServiceStub(channel).GetSession(
                session_service_pb2.GetSessionRequest(session="s-1"), metadata=(("x-runekeep-user", "ada"),)
            )
    process.send_signal(number)
    out, err = await process.communicate()
    assert (process.returncode, out) == (0, b"")
    lines = [json.loads(line) for line in err.decode().splitlines()]
    events = [line["event"] for line in lines]
    assert events == ["serving", "call_ended", "draining", "drain hook", "close hook", "stopped"]
    call = lines[1]
    assert call["rpc"] == "SessionService/GetSession"
    assert (call["account"], call["user"], call["code"], call["reason"]) == ("default", "ada", "INTERNAL", "INTERNAL")
    assert call["incident"] in (failed.value.details() or "")
    assert "in GetSession" in call["exception"]
    assert "secret" not in call["exception"].replace('raise ValueError("the user said: my secret")', "")
    assert len(call["trace"]) == 32
    assert call["duration_ms"] >= 0


async def test_second_signal_ends_the_process_at_once() -> None:
    process, _ = await run("hang")
    assert process.stderr
    process.send_signal(signal.SIGTERM)
    while json.loads(await process.stderr.readline())["event"] != "drain hook":
        pass
    process.send_signal(signal.SIGTERM)
    rest = await process.stderr.read()
    assert await process.wait() == -signal.SIGTERM
    assert rest == b""


async def command(*arguments: str) -> tuple[int | None, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "runekeep_server", *arguments, cwd=ROOT, stdout=pipe, stderr=pipe, env={}
    )
    out, err = await process.communicate()
    assert out == b""
    return process.returncode, err.decode()


async def test_command_names_a_wrong_setting_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("max_attempt: 3\n", encoding="utf-8")
    code, said = await command("--config", str(file))
    assert code == 2
    assert "max_attempt: there is no such setting; did you mean max_attempts?" in said
