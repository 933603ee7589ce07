"""What an operator is told of a server and of what it depends on; by a server whose collector is away."""

import asyncio
import os
import signal
from importlib.metadata import version

import grpc

from runekeep.v1 import admin_service_pb2 as pb
from runekeep.v1 import admin_service_pb2_grpc
from runekeep_storage.migrations.migrate import HEAD
from tests.integration.conftest import Callers
from tests.support.callers import CALL_SECONDS
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker

# Nobody listens there. The fixture ends the server and looks for errors in its log.
SERVER_SETTINGS = {"RUNEKEEP_EMBEDDER": "minilm", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


async def status(channel: grpc.aio.Channel) -> pb.GetServerStatusResponse:
    stub = admin_service_pb2_grpc.AdminServiceStub(channel)
    return await stub.GetServerStatus(pb.GetServerStatusRequest(), timeout=CALL_SECONDS)


async def ready(channel: grpc.aio.Channel) -> pb.GetServerStatusResponse:
    """Once all that it depends on answers: its embedder is loaded for the first who asks, which may take a while."""
    async with asyncio.timeout(60):
        while True:
            told = await status(channel)
            if all(one.available for one in told.dependencies):
                return told


async def test_it_tells_releases_clocks_and_what_answers(channel: grpc.aio.Channel) -> None:
    told = await ready(channel)
    assert (told.version, told.store_revision, told.identity_mode) == (version("runekeep"), HEAD, "development")
    assert told.protocol_version == 1
    assert 0 < told.start_time.ToMicroseconds() <= told.server_time.ToMicroseconds()
    # One machine, and so one clock; a store that did not answer would have told none.
    assert abs(told.store_time.ToSeconds() - told.server_time.ToSeconds()) < 60
    by_name = {one.name: one for one in told.dependencies}
    assert list(by_name) == ["store", "index", "embedder", "blobs"]
    assert all(one.available and not one.problem and one.round_trip.ToNanoseconds() for one in told.dependencies)
    assert by_name["store"].kind.startswith("sqlite 3.")
    assert [by_name[name].kind for name in ("index", "embedder", "blobs")] == ["qdrant-edge", "minilm", "folder"]


async def test_it_counts_what_waits_and_who_works(channel: grpc.aio.Channel, callers: Callers) -> None:
    before = await status(channel)
    assert before.workers == 0
    assert {(one.kind, one.state) for one in before.jobs} == {
        (kind, state)
        for kind in ("commit", "turn_fingerprint", "bucket_reconcile", "ask")
        for state in ("pending", "leased")
    }
    caller = callers()
    await caller.committed()
    async with Worker(channel) as worker:
        await worker.take()
        told = await status(channel)
        # What waits is read at most every few seconds, who works is known at once.
        assert told.workers == 1
    waiting: list[pb.JobCount] = []
    while not waiting:
        waiting = [one for one in (await status(channel)).jobs if one.jobs]
    (busy,) = waiting
    assert busy.kind == "commit" and busy.jobs == 1 and busy.HasField("oldest_time")


async def test_a_part_that_does_not_answer_is_told_in_words_of_ours(
    channel: grpc.aio.Channel, server: ServerProcess
) -> None:
    await ready(channel)
    index_processes = server.children()
    assert index_processes
    for pid in index_processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        told = await status(channel)
    finally:
        for pid in index_processes:
            os.kill(pid, signal.SIGCONT)
    (index,) = [one for one in told.dependencies if one.name == "index"]
    assert not index.available
    assert index.problem == "It did not answer within 3 s."
    assert all(one.available for one in told.dependencies if one.name != "index")
