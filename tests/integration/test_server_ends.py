"""A server that drains and one that is killed: nothing is lost, nothing is done twice."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import memory_service_pb2, session_service_pb2, task_service_pb2
from tests.support.callers import Caller, Failure, said
from tests.support.server_process import ServerProcess
from tests.support.worker import StreamEnded, Worker, write

Servers = Callable[..., ServerProcess]
NOTE = write("tools", tool_name="grep", total_calls=1)


@asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield channel


async def counted(caller: Caller) -> int:
    """Calls that the tool's memory holds: each applied output adds one."""
    memory = await caller.memory(caller.uri("memories/tools/grep.md"))
    return int(memory.fields["total_calls"].int64_value)


async def test_a_drain_tells_everybody_and_applies_what_came(own_server: Servers) -> None:
    server = own_server({"RUNEKEEP_DRAIN_SECONDS": "30"})
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        done, left = await caller.committed(), await caller.committed(session=await caller.session())
        request = task_service_pb2.WatchTaskRequest(task_id=left.task_id)
        watch: Any = caller.tasks.WatchTask(request, timeout=None)
        updates = aiter(watch)
        assert (await anext(updates)).HasField("snapshot")
        async with Worker(channel) as worker, Worker(channel, "idle") as idle:
            lease = (await worker.take()).lease
            # The next job of the space is free with the verdict, and must not be given away any more.
            await idle.ready()
            await worker.chunk(lease, "o-1", 0, [pb.OutputItem(operation=NOTE)])
            await worker.send(complete=pb.JobComplete(lease=lease, output_id="o-1", chunk_count=1))
            # Echoed in order of arrival: the server has read the output's end when it answers.
            await worker.heartbeat()
            server.terminate()
            for one in (worker, idle):
                assert (await one.next("drain")).grace.seconds == 30
            verdict = await worker.verdict(lease)
            assert (verdict.outcome, verdict.revision) == (pb.JOB_OUTCOME_APPLIED, 1)
            for one in (worker, idle):
                assert await one.end() is None
                assert not one.seen("assignment")
        try:
            async for _ in updates:
                pass
        except grpc.aio.AioRpcError as error:
            assert Failure(error).seen == ("UNAVAILABLE", "DEPENDENCY_UNAVAILABLE")
        else:
            raise AssertionError("the watch of an open task ended with OK")
    loop = asyncio.get_running_loop()
    begun = loop.time()
    server.ended()
    assert loop.time() - begun < 20, "open streams held up the end of the server"
    server.start()
    async with connected(server) as channel, Worker(channel) as worker:
        caller = Caller(channel, "anna")
        assert (await caller.task(done.task_id)).state == task_service_pb2.TASK_STATE_COMPLETED
        assert (await worker.take()).task_id == left.task_id
    server.stop()


async def test_a_worker_that_comes_back_to_a_draining_server_is_sent_away(own_server: Servers) -> None:
    server = own_server()
    async with connected(server) as channel, Worker(channel) as worker:
        server.terminate()
        await worker.next("drain")
        again = Worker(channel, "again")
        with pytest.raises(StreamEnded):
            await again.hello()
    server.ended()


async def test_a_server_killed_during_a_lease(own_server: Servers) -> None:
    server = own_server()
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        committed = await caller.committed(said("remember the harbour"))
        async with Worker(channel) as worker:
            lease = (await worker.take()).lease
            await worker.chunk(lease, "o-1", 0, [pb.OutputItem(operation=NOTE)])
            server.kill()
            assert (failed := await worker.end()) is not None and failed.code is grpc.StatusCode.UNAVAILABLE
    server.start()
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        async with Worker(channel, resume=[lease]) as worker:
            assert [state.status for state in worker.welcome.resumed] == [pb.LEASE_STATUS_HELD]
            assert (await worker.complete(lease, "o-1", 1)).outcome == pb.JOB_OUTCOME_TRY_AGAIN
            assert (await worker.deliver(lease, NOTE, output_id="o-1")).revision == 1
        assert await counted(caller) == 1
        task = await caller.task(committed.task_id)
        assert (task.attempt, task.lost_leases, task.result.revision) == (1, 0, 1)
        request = memory_service_pb2.FindMemoriesRequest(query="harbour grep", min_revision=1)
        found = await caller.memories.FindMemories(request)
        assert found.results[0].memory.uri == caller.uri("memories/tools/grep.md")
    server.stop()


async def test_a_server_killed_right_after_the_output(own_server: Servers) -> None:
    """Before, at or after its transaction: what the restarted server says is what it did, and once."""
    server = own_server()
    rounds = 4
    seen = set()
    for number in range(1, rounds + 1):
        async with connected(server) as channel:
            caller = Caller(channel, "anna")
            await caller.committed()
            async with Worker(channel) as worker:
                lease = (await worker.take()).lease
                await worker.chunk(lease, "o-1", 0, [pb.OutputItem(operation=NOTE)])
                await worker.send(complete=pb.JobComplete(lease=lease, output_id="o-1", chunk_count=1))
                if number > 2:
                    # At the verdict the transaction is durable.
                    await worker.verdict(lease)
                server.kill()
        server.start()
        async with connected(server) as channel:
            caller = Caller(channel, "anna")
            async with Worker(channel, resume=[lease]) as worker:
                (state,) = worker.welcome.resumed
                seen.add(state.status)
                verdict = await worker.deliver(lease, NOTE, output_id="o-1")
                was_applied = state.status == pb.LEASE_STATUS_APPLIED
                assert was_applied or state.status == pb.LEASE_STATUS_HELD
                expected = pb.JOB_OUTCOME_ALREADY_APPLIED if was_applied else pb.JOB_OUTCOME_APPLIED
                assert (verdict.outcome, verdict.revision) == (expected, number)
            assert await counted(caller) == number
    assert pb.LEASE_STATUS_APPLIED in seen
    server.stop()


async def test_messages_that_were_acknowledged_survive_a_kill(own_server: Servers) -> None:
    server = own_server()
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        acknowledged: list[str] = []

        async def talk() -> None:
            while True:
                answer = await caller.add(session, said("x"))
                acknowledged.append(answer.messages[0].id)
                if len(acknowledged) == 20:
                    asyncio.get_running_loop().call_soon(server.kill)

        try:
            await talk()
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE
    server.start()
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        listed = await caller.sessions.ListMessages(
            session_service_pb2.ListMessagesRequest(session=session, page_size=200)
        )
        kept = [message.id for message in listed.messages]
        assert kept[: len(acknowledged)] == acknowledged and len(kept) <= len(acknowledged) + 1
        assert [message.sequence for message in listed.messages] == list(range(1, len(kept) + 1))
    server.stop()
