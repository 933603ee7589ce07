"""A server that drains and one that is killed: nothing is lost, nothing is done twice."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from runekeep.transport.transport import transport
from runekeep.v1 import common_pb2, memory_service_pb2, session_service_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_extractor.engine.interface import EngineOutput, Job
from runekeep_extractor.rpc.backoff import Backoff
from runekeep_extractor.rpc.channel import open_channel
from runekeep_extractor.settings import NAMES
from runekeep_extractor.worker.worker import Worker as ExtractorWorker
from tests.support.callers import CALLED, Caller, Failure, said
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
        done, left = await caller.committed(CALLED), await caller.committed(CALLED, session=await caller.session())
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
        committed = await caller.committed(said("remember the harbour"), CALLED)
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


SHORT_LEASE = {
    "RUNEKEEP_LEASE_SECONDS": "3",
    "RUNEKEEP_HEARTBEAT_SECONDS": "1",
    "RUNEKEEP_FIRST_LEASE_SECONDS": "3",
    # One that was lost would be the end of the job.
    "RUNEKEEP_MAX_LOST_LEASES": "1",
}
AWAY = 4.0
"""Seconds; longer than such a lease. That they pass is what is tried."""


async def not_lost(caller: Caller, task_id: str) -> None:
    task = await caller.reaches(task_id, task_service_pb2.TASK_STATE_COMPLETED)
    assert (task.attempt, task.lost_leases, task.result.revision) == (1, 0, 1)
    assert await counted(caller) == 1


async def test_a_server_that_is_away_for_longer_than_a_lease_costs_none(own_server: Servers) -> None:
    server = own_server(SHORT_LEASE)
    async with connected(server) as channel:
        committed = await Caller(channel, "anna").committed(CALLED)
        async with Worker(channel) as worker:
            lease = (await worker.take()).lease
            server.kill()
    await asyncio.sleep(AWAY)
    server.start()
    async with connected(server) as channel, Worker(channel, resume=[lease]) as worker:
        assert [state.status for state in worker.welcome.resumed] == [pb.LEASE_STATUS_HELD]
        assert (await worker.deliver(lease, NOTE)).outcome == pb.JOB_OUTCOME_APPLIED
        await not_lost(Caller(channel, "anna"), committed.task_id)
    server.stop()


async def test_a_server_that_stands_still_for_longer_than_a_lease_costs_none(own_server: Servers) -> None:
    server = own_server(SHORT_LEASE)
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        committed = await caller.committed(CALLED)
        async with Worker(channel) as worker:
            lease = (await worker.take()).lease
            server.pause()
            await asyncio.sleep(AWAY)
            server.go_on()
            update = await worker.heartbeat(lease)
            assert [state.status for state in update.leases] == [pb.LEASE_STATUS_HELD]
            assert (await worker.deliver(lease, NOTE)).outcome == pb.JOB_OUTCOME_APPLIED
        await not_lost(caller, committed.task_id)
    server.stop()


async def test_who_does_not_come_back_after_the_server_has_lost_the_lease(own_server: Servers) -> None:
    server = own_server({**SHORT_LEASE, "RUNEKEEP_LEASE_SECONDS": "2.5", "RUNEKEEP_FIRST_LEASE_SECONDS": "2"})
    async with connected(server) as channel:
        committed = await Caller(channel, "anna").committed(CALLED)
        async with Worker(channel) as worker:
            await worker.take()
            server.kill()
    server.start()
    async with connected(server) as channel:
        caller = Caller(channel, "anna")
        assert (await caller.reaches(committed.task_id, task_service_pb2.TASK_STATE_FAILED)).lost_leases == 1
    server.stop()


class ReadsWhileAway:
    """An engine that reads and answers only once it is let go on, when its server is away."""

    info = common_pb2.ExtractorInfo(engine="steps")
    away = ""
    answers_questions = False

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.attempts = 0

    async def extract(self, job: Job) -> EngineOutput:
        self.attempts += 1
        self.begun.set()
        await self.go_on.wait()
        await job.list("viking://user/memories")
        return EngineOutput(operations=[NOTE])

    async def fingerprint(self, job: Job) -> EngineOutput:
        raise AssertionError("no turn was submitted")

    async def answer(self, job: Job) -> EngineOutput:
        raise AssertionError("it answers no questions")

    async def reconcile(self, job: Job) -> EngineOutput:
        raise AssertionError("nobody asked for buckets")

    async def repair(self, job: Job, output: EngineOutput, refused: Any) -> EngineOutput:
        raise AssertionError("nothing is wrong with the output")

    async def close(self) -> None:
        return


async def test_an_extractor_goes_on_when_its_server_is_back_after_its_lease(own_server: Servers) -> None:
    """The extractor's own worker: it keeps what it has, waits with its reads, and resumes."""
    server = own_server(SHORT_LEASE)
    engine, stop = ReadsWhileAway(), asyncio.Event()
    way = transport(server.address, NAMES)
    async with open_channel(way) as channel:
        worker = ExtractorWorker(
            channel,
            engine,
            transport=way,
            worker_id="w",
            concurrency=1,
            grace=0.0,
            stall_timeout=300.0,
            reconnect=Backoff(first=0.05, most=0.2),
        )
        running = asyncio.create_task(worker.run(stop))
        async with connected(server) as calls:
            committed = await Caller(calls, "anna").committed(CALLED)
            await engine.begun.wait()
        # In threads: meanwhile the worker must see on this loop that its connection is gone, before its lease is over.
        await asyncio.to_thread(server.kill)
        engine.go_on.set()
        await asyncio.sleep(AWAY)
        await asyncio.to_thread(server.start, server.address)
        async with connected(server) as calls:
            await not_lost(Caller(calls, "anna"), committed.task_id)
        assert engine.attempts == 1
        stop.set()
        await running
    server.stop()


async def test_a_server_killed_right_after_the_output(own_server: Servers) -> None:
    """Before, at or after its transaction: what the restarted server says is what it did, and once."""
    server = own_server()
    rounds = 4
    seen = set()
    for number in range(1, rounds + 1):
        async with connected(server) as channel:
            caller = Caller(channel, "anna")
            await caller.committed(CALLED)
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
