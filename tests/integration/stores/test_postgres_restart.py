"""PostgreSQL goes away and comes back under load: servers, callers and workers carry on, nothing is lost or doubled."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import cycle
from typing import Any
from uuid import uuid4

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import session_service_pb2, task_service_pb2
from tests.support.callers import CALLED, Caller, Failure, said
from tests.support.postgres import EMPTY, PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.worker import StreamEnded, Worker, write

USERS = 6
ROUNDS = 8
RESTARTS = 3
NOTE = write("tools", tool_name="grep", total_calls=1)
# Jobs whose assignment was lost on its way are given out again soon, and as often as it takes.
SETTINGS = {
    "RUNEKEEP_LEASE_SECONDS": "4",
    "RUNEKEEP_HEARTBEAT_SECONDS": "1",
    "RUNEKEEP_FIRST_LEASE_SECONDS": "1",
    "RUNEKEEP_MAX_LOST_LEASES": "1000",
}
# Of a call that may be sent again.
PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@pytest.fixture
def cluster() -> Iterator[PostgresServer]:
    """Of its own: the other tests' connections must not break."""
    server = PostgresServer().start()
    yield server
    server.stop()


async def insisted(callers: list[Caller], call: Callable[[Caller], Awaitable[Any]]) -> Any:
    """The answer, from whichever server gives one."""
    for caller in cycle(callers):
        try:
            return await call(caller)
        except grpc.aio.AioRpcError as error:
            assert error.code() in PASSING, Failure(error)
            await asyncio.sleep(0.05)


async def talk(callers: list[Caller], committed: Callable[[], None]) -> list[str]:
    """A session of messages that are numbered by those who said them; the tasks of its commits."""
    session = "s"

    def create(caller: Caller) -> Any:
        return caller.sessions.CreateSession(
            session_service_pb2.CreateSessionRequest(session_id=session, request_id="create")
        )

    await insisted(callers, create)
    tasks = []
    for number in range(ROUNDS):
        add = session_service_pb2.AddMessagesRequest(
            session=session,
            messages=[*(said(f"{number}.{part}") for part in range(2)), CALLED],
            request_id=f"add-{number}",
        )
        commit = session_service_pb2.CommitSessionRequest(session=session, request_id=f"commit-{number}")
        # Bound now: the loop goes on to others.
        await insisted(callers, lambda caller, add=add: caller.sessions.AddMessages(add))  # type: ignore[misc]  # mypy cannot infer such lambdas
        answer = await insisted(
            callers,
            lambda caller, commit=commit: caller.sessions.CommitSession(commit),  # type: ignore[misc]  # mypy cannot infer such lambdas
        )
        tasks.append(answer.task_id)
        committed()
    return tasks


async def work(channels: list[grpc.aio.Channel]) -> None:
    """A worker that goes from server to server with what it holds, until it is cancelled."""
    held: pb.Lease | None = None
    output = ""
    for channel in cycle(channels):
        worker = Worker(channel, f"worker-{uuid4().hex[:4]}", resume=[held] if held else [])
        try:
            await worker.hello()
            if held is not None and worker.welcome.resumed[0].status != pb.LEASE_STATUS_HELD:
                held = None
            while True:
                if held is None:
                    held, output = (await worker.take()).lease, uuid4().hex
                verdict = await worker.deliver(held, NOTE, output_id=output)
                if verdict.outcome == pb.JOB_OUTCOME_TRY_AGAIN:
                    break
                assert verdict.outcome in (
                    pb.JOB_OUTCOME_APPLIED,
                    pb.JOB_OUTCOME_ALREADY_APPLIED,
                    pb.JOB_OUTCOME_LEASE_LOST,
                )
                held = None
        except (StreamEnded, AttributeError, TimeoutError):
            # The store or the server is away, or there was nothing to do for long. A chunk that is refused because
            # its lease is lost has no acknowledgement.
            pass
        finally:
            await worker.break_off()
        await asyncio.sleep(0.05)


async def test_nothing_is_lost_or_doubled_when_the_database_restarts_under_load(
    cluster: PostgresServer, index_url: str, own_server: Callable[..., ServerProcess]
) -> None:
    settings = {
        **SETTINGS,
        "RUNEKEEP_STORE_URL": cluster.url(cluster.create(EMPTY)),
        "RUNEKEEP_INDEX_URL": index_url,
    }
    servers = [await asyncio.to_thread(own_server, settings, name) for name in ("first", "second")]
    channels = [grpc.aio.insecure_channel(server.address) for server in servers]
    users = [[Caller(channel, f"user-{number}") for channel in channels] for number in range(USERS)]
    commits = 0
    news = asyncio.Event()

    def committed() -> None:
        nonlocal commits
        commits += 1
        news.set()

    async def restart() -> None:
        for number in range(RESTARTS):
            # Spread over the load, and always while there is some.
            while commits < (number + 1) * USERS * ROUNDS // (RESTARTS + 1):
                news.clear()
                await news.wait()
            await asyncio.to_thread(cluster.restart)

    workers = [asyncio.create_task(work(channels if number % 2 else channels[::-1])) for number in range(4)]
    restarting = asyncio.create_task(restart())
    async with asyncio.timeout(200):
        tasks = await asyncio.gather(*(talk(callers, committed) for callers in users))
        await restarting
        for callers, ids in zip(users, tasks, strict=True):
            for task_id in ids:
                ended = await insisted(callers, lambda caller, task_id=task_id: caller.watch(task_id))  # type: ignore[misc]  # mypy cannot infer such lambdas
                assert ended[-1].ended.state == task_service_pb2.TASK_STATE_COMPLETED, ended[-1]
    for worker in workers:
        worker.cancel()
    outcomes = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes), outcomes

    for number, (here, there) in enumerate(users):
        assert len(set(tasks[number])) == ROUNDS
        listed = await there.sessions.ListMessages(
            session_service_pb2.ListMessagesRequest(
                session="s", scope=session_service_pb2.MESSAGE_SCOPE_ALL, page_size=200
            )
        )
        texts = [message.parts[0].text.text for message in listed.messages if message.parts[0].HasField("text")]
        assert texts == [f"{round_}.{part}" for round_ in range(ROUNDS) for part in range(2)]
        memory = await here.memory(here.uri("memories/tools/grep.md"))
        assert (memory.version, memory.fields["total_calls"].int64_value) == (ROUNDS, ROUNDS)
        found = await there.find("grep", min_revision=ROUNDS)
        assert found.revision == ROUNDS
        assert there.uri("memories/tools/grep.md") in {one.memory.uri for one in found.results}
    await asyncio.gather(*(channel.close() for channel in channels))
    for server in servers:
        await asyncio.to_thread(server.stop)
