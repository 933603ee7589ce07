"""The health of services, which follows what they need."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from runekeep_server.app import App, Lifecycle, Service
from runekeep_server.rpc import health
from runekeep_server.rpc.health import AWAY_SECONDS, BACK_PROBES, ServingState
from runekeep_server.settings import Settings

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def test_what_fails_for_a_short_while_counts_as_there() -> None:
    standing = ServingState(0.0)
    now = 0.0
    for _ in range(20):
        for good in (False, False, True):
            now += AWAY_SECONDS / 3
            assert not standing.probed(good, now) and standing.there


def test_what_fails_for_long_counts_as_away_until_it_answers_again_and_again() -> None:
    standing = ServingState(0.0)
    assert not standing.probed(True, 1.0)
    assert not standing.probed(False, 1.0 + AWAY_SECONDS - 0.1)
    assert standing.probed(False, 1.0 + AWAY_SECONDS) and not standing.there
    now = 100.0
    for _ in range(3):
        for _ in range(BACK_PROBES - 1):
            now += 1
            assert not standing.probed(True, now)
        now += 1
        assert not standing.probed(False, now) and not standing.there
    for _ in range(BACK_PROBES - 1):
        now += 1
        assert not standing.probed(True, now)
    assert standing.probed(True, now + 1) and standing.there
    assert not standing.probed(False, now + 2), "the wait begins anew"


class Store:
    def __init__(self) -> None:
        self.there = True
        self.held = False

    async def answers(self) -> None:
        if self.held:
            await asyncio.Event().wait()
        if not self.there:
            raise OSError


async def watched(channel: grpc.aio.Channel, service: str) -> AsyncIterator[int]:
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))
    async for answer in watch:
        yield int(answer.status)


async def check(channel: grpc.aio.Channel, service: str) -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    return int((await health_pb2_grpc.HealthStub(channel).Check(request)).status)


def plugged(name: str, *, needs_store: bool) -> Service:
    return Service(lambda servicer, server: None, object(), name, needs_store=needs_store)


@pytest.mark.parametrize("way", ["it fails", "it does not answer"])
async def test_services_follow_the_store_and_the_process_does_not(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    for name, value in (("LOOK_SECONDS", 0.005), ("PROBE_SECONDS", 0.01), ("AWAY_SECONDS", 0.02)):
        monkeypatch.setattr(health, name, value)
    store = Store()

    async def factory(settings: Settings, lifecycle: Lifecycle) -> list[Service]:
        lifecycle.probe = store.answers
        return [plugged("of.users", needs_store=True), plugged("of.operators", needs_store=False)]

    app = App(Settings(address="127.0.0.1:0", reflection=False), factory)
    await app.start()
    try:
        async with asyncio.timeout(30), grpc.aio.insecure_channel(app.address) as channel:
            statuses: Any = watched(channel, "of.users")
            assert await anext(statuses) == SERVING
            for _ in range(2):
                store.there, store.held = way == "it does not answer", way == "it does not answer"
                assert await anext(statuses) == NOT_SERVING
                assert await check(channel, "") == SERVING
                assert await check(channel, "of.operators") == SERVING
                store.there, store.held = True, False
                assert await anext(statuses) == SERVING
            store.there = False
            assert await anext(statuses) == NOT_SERVING
    finally:
        await app.stop()
    async with grpc.aio.insecure_channel(app.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await check(channel, "of.users")
