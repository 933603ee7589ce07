"""A server whose embedder is an endpoint: while it is away or wrong, commits go on, words are found, and vectors
follow."""

import asyncio
import math
from collections.abc import Callable

import grpc

from runekeep import AsyncClient
from runekeep.client.tasks.results import Task
from runekeep.v1 import admin_service_pb2, admin_service_pb2_grpc, task_service_pb2
from tests.doubles.embeddings_api import DIMENSION, MODEL, EmbeddingsApi, answer, failure, late
from tests.support.callers import Caller, said
from tests.support.recalls import in_session, recall
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, write

KEY = "sk-secret-of-the-endpoint"
Servers = Callable[..., ServerProcess]
WRONG = {
    "kettle": failure(503),
    "teapot": answer(lambda data: data[:-1]),
    "pan": answer(vector_of=lambda text: [math.nan] * DIMENSION),
    "cup": answer(vector_of=lambda text: [1.0] * (DIMENSION + 1)),
    "mug": late(3.0),
}
"""What the endpoint does to the memory about each thing: it fails, leaves one out, sends no numbers, too many, or is
late."""


def settings(api: EmbeddingsApi) -> dict[str, str]:
    return {
        "RUNEKEEP_EMBEDDER": "openai",
        "RUNEKEEP_EMBEDDER_API_KEY": KEY,
        "RUNEKEEP_EMBEDDING__URL": api.url,
        "RUNEKEEP_EMBEDDING__MODEL": MODEL,
        "RUNEKEEP_EMBEDDING__DIMENSION": str(DIMENSION),
        "RUNEKEEP_EMBEDDING__BATCH_SECONDS": "2",
        "RUNEKEEP_EMBEDDING__QUERY_SECONDS": "1",
        "RUNEKEEP_EMBEDDING__QUERY_FIELDS": '{"input_type": "query"}',
    }


async def commit(caller: Caller, talk: str, topic: str) -> None:
    """Commits a message, and a memory that a worker makes of it."""
    task_id = (await caller.committed(said(talk))).task_id
    async with Worker(caller.channel) as worker:
        await worker.deliver((await worker.take()).lease, write("preferences", topic=topic, content=talk), summary="-")
    assert (await caller.task(task_id)).state == task_service_pb2.TASK_STATE_COMPLETED


async def dependency(channel: grpc.aio.Channel) -> admin_service_pb2.Dependency:
    """Returns the embedder as the server's status has it."""
    admin = admin_service_pb2_grpc.AdminServiceStub(channel)
    status = await admin.GetServerStatus(admin_service_pb2.GetServerStatusRequest())  # type: ignore[misc]  # the stub is asynchronous
    (found,) = [one for one in status.dependencies if one.name == "embedder"]
    return found


async def found(caller: Caller, query: str, *, degraded: bool) -> set[str]:
    """Returns the URIs of the memories that are found, once all memories are searched: by words alone if `degraded`,
    else by meaning too."""
    async with asyncio.timeout(60):
        while True:
            answer = await caller.find(query)
            if answer.revision == answer.latest_revision and bool(answer.degraded) is degraded:
                by_meaning = [bool(one.detail.dense_rank) for one in answer.results]
                assert not any(by_meaning) if degraded else all(by_meaning)
                return {one.memory.uri for one in answer.results}
            await asyncio.sleep(0.05)


async def test_an_endpoint_that_is_away_or_wrong_loses_no_commit_and_no_vector(own_server: Servers) -> None:
    with EmbeddingsApi() as api:
        server = await asyncio.to_thread(own_server, settings(api))
        async with grpc.aio.insecure_channel(server.address) as channel:
            caller = Caller(channel, "anna")
            await commit(caller, "I drink green tea", "Tea")
            assert caller.uri("memories/preferences/Tea.md") in await found(caller, "green tea", degraded=False)
            assert {request.headers["authorization"] for request in api.requests} == {f"Bearer {KEY}"}
            kinds = {"input_type" in one.body for one in api.requests if one.texts == ["green tea"]}
            assert kinds == {True}
            assert not any("input_type" in one.body for one in api.requests if "I drink" in str(one.texts))
            session = await in_session(caller, "My password is hunter2. What tea do I drink?")
            assert (await recall(caller, "", session=session)).entries
            sent = str([one.texts for one in api.requests])
            assert "My password is [withheld: password]. What tea do I drink?" in sent and "hunter2" not in sent

            for thing, wrong in WRONG.items():
                api.otherwise = wrong
                await commit(caller, f"I bought a copper {thing}", thing)
                uri = caller.uri(f"memories/preferences/{thing}.md")
                assert uri in await found(caller, f"copper {thing}", degraded=True)
                embedder = await dependency(channel)
                assert (embedder.kind, embedder.available) == ("openai", False)
                api.otherwise = answer()
                assert uri in await found(caller, f"copper {thing}", degraded=False)
        await asyncio.to_thread(server.stop)
    assert KEY not in server.log() and "copper" not in server.log()


async def test_a_wait_for_a_session_ends_once_its_memories_are_found(own_server: Servers) -> None:
    with EmbeddingsApi() as api:
        server = await asyncio.to_thread(own_server, settings(api))
        address = server.address
        async with AsyncClient(address, user="bert") as client, grpc.aio.insecure_channel(address) as channel:

            async def waited(thing: str, timeout: float | None = None) -> Task:
                async with client.session(thing) as session:
                    await session.add_message("user", f"I bought a copper {thing}")
                async with Worker(channel) as worker:
                    bought = write("preferences", topic=thing, content=f"Bought a copper {thing}")
                    await worker.deliver((await worker.take()).lease, bought, summary="-")
                task = await session.wait(timeout)
                assert task is not None and task["status"] == "completed"
                return task

            api.otherwise = late(1.0)
            assert (await waited("kettle"))["pending_memories"] == 0
            api.otherwise = failure(503)
            assert (await waited("teapot", timeout=3.0))["pending_memories"] == 1
        await asyncio.to_thread(server.stop)
