"""Two servers on one PostgreSQL and one index: what one is told, the other does; what one leaves, it takes up."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import memory_service_pb2, session_service_pb2, task_service_pb2
from tests.support.callers import CALLED, Caller, lasting, said, unique, used_tool
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.worker import KINDS, Worker, write

Servers = Callable[..., ServerProcess]
NOTE = write("tools", tool_name="grep", total_calls=1)


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database, without a schema of ours."""
    name = postgres_server.create("template1")
    yield postgres_server.url(name)
    postgres_server.drop(name)


@pytest.fixture
def pair(url: str, index_url: str, own_server: Servers) -> Callable[..., tuple[ServerProcess, ServerProcess]]:
    """Makes two servers on the database and the index, each with its own data directory."""

    def start(**settings: str) -> tuple[ServerProcess, ServerProcess]:
        environment = {"RUNEKEEP_STORE_URL": url, "RUNEKEEP_INDEX_URL": index_url, **settings}
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
            committed = await here.committed(said("grep is used"), CALLED)
            watching = asyncio.create_task(here.watch(committed.task_id))
            job = await worker.assignment()
            assert job.task_id == committed.task_id
            assert (await worker.deliver(job.lease, NOTE)).outcome == pb.JOB_OUTCOME_APPLIED
            async with asyncio.timeout(30):
                updates = await watching
        assert updates[-1].ended.state == task_service_pb2.TASK_STATE_COMPLETED
        assert lasting(updates[-1].ended) == lasting(await there.task(committed.task_id))
        for caller in (here, there):
            memory = await caller.memory(caller.uri("memories/tools/grep.md"))
            assert memory.fields["total_calls"].int64_value == 1
    for server in servers:
        server.stop()


async def test_a_lease_goes_on_at_another_server_after_a_kill(pair: Pair) -> None:
    servers = pair()
    async with connected(*servers) as (first, second):
        user = unique("user")
        committed = await Caller(first, user).committed(CALLED)
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


async def test_a_worker_of_the_other_server_answers_a_question(pair: Pair) -> None:
    """The message that it cites was sent to the first server; the one after it never was."""
    servers = pair()
    async with connected(*servers) as (first, second):
        caller, worker = Caller(first, unique("user")), Worker(second)
        await worker.hello(kinds=[*KINDS, task_service_pb2.TASK_KIND_ASK])
        await worker.ready()
        session = await caller.session()
        await caller.add(session, said("I drink tea"))
        uri = caller.uri(f"sessions/{session}")
        request = memory_service_pb2.AskMemoryRequest(question="What do I drink?", model_only=True)
        asking = asyncio.create_task(_all(caller.memories.AskMemory(request)))
        job = await worker.assignment()
        assert (job.kind, job.session) == (task_service_pb2.TASK_KIND_ASK, "")
        (piece,) = [one async for one in worker.calls.GetJobInput(pb.GetJobInputRequest(lease=job.lease))]
        assert piece.question.question == "What do I drink?"
        sources = [memory_service_pb2.AnswerSource(uri=uri, sequence=number) for number in (1, 2)]
        statement = memory_service_pb2.AnswerStatement(text="You drink tea.", sources=sources)
        answer = pb.OutputItem(answer=pb.Answer(statements=[statement]))
        assert (await worker.deliver_items(job.lease, answer)).outcome == pb.JOB_OUTCOME_APPLIED
        *_, told, ended = await asking
        assert [one.sequence for one in told.statement.sources] == [1]
        assert (ended.result.statements, ended.result.sources_removed, ended.result.fallback) == (1, 1, 0)
        await worker.break_off()
    for server in servers:
        server.stop()


async def _all(call: AsyncIterator[memory_service_pb2.AskMemoryResponse]) -> list[memory_service_pb2.AskMemoryResponse]:
    return [response async for response in call]


async def test_a_session_begun_at_one_server_goes_on_at_the_other(pair: Pair, tmp_path: Path) -> None:
    """With a tool output that is kept apart, in the folder that they share."""
    servers = pair(RUNEKEEP_BLOB_DIR=str(tmp_path / "blobs"))
    output = "found it " * 5000
    async with connected(*servers) as (first, second):
        here, there = Caller(first, "ann"), Caller(second, "ann")
        session = await here.session(session_id="s")
        await here.add(session, said("one", id="m1"), used_tool("call-1", output, id="m2"))
        added = await there.add(session, said("three", id="m3"), said("one", id="m1"))
        assert [(one.id, one.sequence) for one in added.messages] == [("m3", 3), ("m1", 1)]
        for caller in (here, there):
            document = await caller.read(caller.uri(f"sessions/{session}/tools/call-1/tool.json"))
            assert output in document.text
        committed = await there.commit(session)
        assert committed.archive_uri == here.uri(f"sessions/{session}/history/archive_001")
        assert not (await here.commit(session)).archived
        listed = await here.sessions.ListMessages(
            session_service_pb2.ListMessagesRequest(session=session, scope=session_service_pb2.MESSAGE_SCOPE_ALL)
        )
        assert [message.id for message in listed.messages] == ["m1", "m2", "m3"]
    assert [path for server in servers for path in server.data_dir.glob("blobs/**/*")] == []
    for server in servers:
        server.stop()


async def test_a_search_sees_what_the_other_server_applied(pair: Pair) -> None:
    servers = pair()
    async with connected(*servers) as channels:
        for number in range(6):
            # Each time the other one applies, and the one that did not is asked.
            here, there = channels[number % 2], channels[1 - number % 2]
            caller = Caller(here, "ann")
            tool = f"tool{number}"
            await caller.committed(said(f"{tool} is used"), used_tool("call-1", "found", name=tool))
            async with Worker(there) as worker:
                lease = (await worker.take()).lease
                verdict = await worker.deliver(lease, write("tools", tool_name=tool))
            found = await caller.find(f"tool{number}", min_revision=verdict.revision)
            assert found.revision == verdict.revision == number + 1
            assert caller.uri(f"memories/tools/tool{number}.md") in {one.memory.uri for one in found.results}
    for server in servers:
        server.stop()


async def test_a_watch_that_a_dead_server_broke_goes_on_at_the_other(pair: Pair) -> None:
    """Events in between are told too; none twice, none left out."""
    servers = pair()
    async with connected(*servers) as (first, second):
        here, there = Caller(first, "ann"), Caller(second, "ann")
        task_id = (await here.committed(CALLED)).task_id
        watch = here.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id=task_id), timeout=None)
        seen: list[task_service_pb2.TaskEvent] = []
        async with Worker(second) as worker:
            lease = (await worker.take()).lease
            for percent in range(10, 60, 10):
                await worker.progress(lease, task_service_pb2.TASK_PHASE_SUMMARY, percent)
            with pytest.raises(grpc.aio.AioRpcError):
                async for update in watch:
                    if update.WhichOneof("update") == "event":
                        seen.append(update.event)
                    if len(seen) == 4:
                        servers[0].kill()
            await worker.progress(lease, task_service_pb2.TASK_PHASE_SUMMARY, 90)
            resumed = asyncio.create_task(there.watch(task_id, seen[-1].sequence))
            await worker.deliver(lease, NOTE)
            updates = await resumed
        seen += [update.event for update in updates if update.WhichOneof("update") == "event"]
        assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
        assert [event.progress.percent for event in seen if event.HasField("progress")] == [10, 20, 30, 40, 50, 90]
        assert lasting(updates[-1].ended) == lasting(await there.task(task_id))
        whole = await there.watch(task_id)
        assert [update.event for update in whole if update.WhichOneof("update") == "event"] == seen
    servers[1].stop()


async def test_a_request_that_was_answered_by_one_server_is_known_to_the_other(pair: Pair) -> None:
    """Sent to both of them at once, and again later."""
    servers = pair()
    async with connected(*servers) as channels:
        callers = [Caller(channel, "ann") for channel in channels]
        session = "s"
        requests = (
            ("CreateSession", session_service_pb2.CreateSessionRequest(session_id=session)),
            ("AddMessages", session_service_pb2.AddMessagesRequest(session=session, messages=[said("hello")])),
            ("CommitSession", session_service_pb2.CommitSessionRequest(session=session)),
        )
        for method, request in requests:
            request.request_id = unique("request")
            answers = await asyncio.gather(*(getattr(caller.sessions, method)(request) for caller in callers * 3))
            answers += [await getattr(caller.sessions, method)(request) for caller in callers]
            assert all(answer == answers[0] for answer in answers)
        tasks = await callers[0].tasks.ListTasks(task_service_pb2.ListTasksRequest())
        assert len(tasks.tasks) == 1
    for server in servers:
        server.stop()


def test_a_server_with_an_index_of_its_own_is_alone_on_its_store(own_server: Servers, url: str, index_url: str) -> None:
    first = own_server({"RUNEKEEP_STORE_URL": url}, "first")
    with pytest.raises(AssertionError, match="RUNEKEEP_INDEX_URL"):
        own_server({"RUNEKEEP_STORE_URL": url, "RUNEKEEP_INDEX_URL": index_url}, "second")
    # One that was killed is no hindrance.
    first.kill()
    own_server({"RUNEKEEP_STORE_URL": url}, "third").stop()


async def test_two_servers_share_the_work_of_many_users(pair: Pair) -> None:
    """Every commit is applied once, whichever server its worker is at."""
    servers = pair()
    async with connected(*servers) as channels:
        callers = [Caller(channels[number % 2], f"user-{number}") for number in range(6)]
        committed = await asyncio.gather(*(caller.committed(CALLED) for caller in callers for _ in range(4)))
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
