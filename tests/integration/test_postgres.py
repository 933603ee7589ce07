"""Two servers on one PostgreSQL: what one is told, the other does; what one leaves, the other takes up.

Sessions, jobs and tasks only: search across servers needs an index that both reach.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import session_service_pb2, task_service_pb2
from tests.support.callers import Caller, said, unique
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, write

Servers = Callable[..., ServerProcess]
NOTE = write("tools", tool_name="grep", total_calls=1)


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database, without a schema of ours."""
    name = postgres_server.create("template1")
    yield postgres_server.url(name)
    postgres_server.drop(name)


@pytest.fixture
def pair(url: str, own_server: Servers) -> Callable[..., tuple[ServerProcess, ServerProcess]]:
    """Makes two servers on the database, each with its own data directory."""

    def start(**settings: str) -> tuple[ServerProcess, ServerProcess]:
        environment = {"RUNEKEEP_STORE_URL": url, **settings}
        return own_server(environment, "first"), own_server(environment, "second")

    return start


@asynccontextmanager
async def connected(*servers: ServerProcess) -> AsyncIterator[list[grpc.aio.Channel]]:
    channels = [grpc.aio.insecure_channel(server.address) for server in servers]
    try:
        yield channels
    finally:
        await asyncio.gather(*(channel.close() for channel in channels))


Pair = Callable[..., tuple[ServerProcess, ServerProcess]]


async def test_news_go_from_server_to_server_without_polling(pair: Pair) -> None:
    """Polling is set to longer than this test may take: what is heard in time was told."""
    servers = pair(RUNEKEEP_POLL_SECONDS="3600")
    async with connected(*servers) as (first, second):
        user = unique("user")
        here, there = Caller(first, user), Caller(second, user)
        async with Worker(second) as worker:
            # Idle at the second server before there is anything to do.
            await worker.ready()
            await worker.heartbeat()
            committed = await here.committed(said("grep is used"))
            watching = asyncio.create_task(here.watch(committed.task_id))
            job = await worker.assignment()
            assert job.task_id == committed.task_id
            assert (await worker.deliver(job.lease, NOTE)).outcome == pb.JOB_OUTCOME_APPLIED
            async with asyncio.timeout(30):
                updates = await watching
        assert updates[-1].ended.state == task_service_pb2.TASK_STATE_COMPLETED
        assert updates[-1].ended == await there.task(committed.task_id)
        for caller in (here, there):
            memory = await caller.memory(caller.uri("memories/tools/grep.md"))
            assert memory.fields["total_calls"].int64_value == 1
    for server in servers:
        server.stop()


async def test_a_lease_goes_on_at_another_server_after_a_kill(pair: Pair) -> None:
    servers = pair()
    async with connected(*servers) as (first, second):
        user = unique("user")
        committed = await Caller(first, user).committed()
        left = Worker(first)
        await left.hello()
        lease = (await left.take()).lease
        await left.chunk(lease, "o-1", 0, [pb.OutputItem(operation=NOTE)])
        servers[0].kill()
        await left.end()

        caller = Caller(second, user)
        async with Worker(second, resume=[lease]) as worker:
            assert [state.status for state in worker.welcome.resumed] == [pb.LEASE_STATUS_HELD]
            verdict = await worker.deliver(lease, NOTE, output_id="o-1")
            assert (verdict.outcome, verdict.revision) == (pb.JOB_OUTCOME_APPLIED, 1)
            # The verdict may have been lost: sent again, the same output changes nothing.
            again = await worker.deliver(lease, NOTE, output_id="o-1")
            assert (again.outcome, again.revision) == (pb.JOB_OUTCOME_ALREADY_APPLIED, 1)
        task = await caller.task(committed.task_id)
        assert (task.state, task.attempt, task.lost_leases) == (task_service_pb2.TASK_STATE_COMPLETED, 1, 0)
        memory = await caller.memory(caller.uri("memories/tools/grep.md"))
        assert memory.fields["total_calls"].int64_value == 1
    servers[1].stop()


async def test_a_request_that_was_answered_by_one_server_is_known_to_the_other(pair: Pair) -> None:
    servers = pair()
    async with connected(*servers) as (first, second):
        user = unique("user")
        request = session_service_pb2.CreateSessionRequest(request_id=unique("request"))
        answers = await asyncio.gather(
            *(Caller(channel, user).sessions.CreateSession(request) for channel in (first, second) * 3)
        )
        assert all(answer == answers[0] for answer in answers)
    for server in servers:
        server.stop()


async def test_two_servers_share_the_work_of_many_users(pair: Pair) -> None:
    """Every commit is applied once, whichever server its worker is at."""
    servers = pair()
    async with connected(*servers) as channels:
        callers = [Caller(channels[number % 2], f"user-{number}") for number in range(6)]
        committed = await asyncio.gather(*(caller.committed() for caller in callers for _ in range(4)))
        left = len(committed)

        async def work(channel: grpc.aio.Channel) -> None:
            nonlocal left
            async with Worker(channel) as worker:
                await worker.ready(left)
                while left:
                    try:
                        async with asyncio.timeout(0.5):
                            job = await worker.assignment()
                    except TimeoutError:
                        continue
                    verdict = await worker.deliver(job.lease, NOTE)
                    assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
                    left -= 1

        async with asyncio.timeout(60):
            await asyncio.gather(*(work(channel) for channel in channels * 2))
        for caller in callers:
            memory = await caller.memory(caller.uri("memories/tools/grep.md"))
            assert (memory.version, memory.fields["total_calls"].int64_value) == (4, 4)
    for server in servers:
        server.stop()


def test_the_store_url_must_be_of_a_store_that_is_there(own_server: Servers, postgres_server: PostgresServer) -> None:
    for wrong, said_of_it in (
        ("mysql://keeper:hush-hush@localhost/x", "there is no store for mysql URLs"),
        (
            postgres_server.url("not_there").replace("postgres@", "postgres:hush-hush@"),
            "store_url (RUNEKEEP_STORE_URL)",
        ),
    ):
        with pytest.raises(AssertionError) as refused:
            own_server({"RUNEKEEP_STORE_URL": wrong})
        assert said_of_it in str(refused.value) and "hush-hush" not in str(refused.value)
