"""Faults of systems of this kind that no other suite is about; docs/design/reliability.md names the test of each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import session_service_pb2, task_service_pb2
from runekeep_common import failpoints
from tests.support.callers import Caller, failure, said
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, delete, edit, write

Servers = Callable[..., ServerProcess]
TEA = "memories/preferences/Tea.md"


async def texts(caller: Caller, place: str, scope: int = session_service_pb2.MESSAGE_SCOPE_LIVE) -> list[str]:
    """What was said in a session or an archive."""
    request = session_service_pb2.ListMessagesRequest(session=place, scope=scope)  # type: ignore[arg-type]  # a word as callers send it
    return [message.parts[0].text.text for message in (await caller.sessions.ListMessages(request)).messages]


async def archives(caller: Caller, session: str) -> list[Any]:
    request = session_service_pb2.ListArchivesRequest(session=session)
    return list((await caller.sessions.ListArchives(request)).archives)


@pytest.mark.parametrize("place", [failpoints.COMMIT_BEFORE_COMMIT, failpoints.COMMIT_AFTER_COMMIT])
async def test_no_job_is_lost_between_the_archive_and_the_queue(
    place: str, own_server: Servers, tmp_path: Path
) -> None:
    """Killed while it commits, a server has done all of it or nothing; the same request then does what is missing."""
    fired = tmp_path / "fired"
    server = own_server({"RUNEKEEP_FAILPOINT": f"{place}:KILL", "RUNEKEEP_FAILPOINT_LOG": str(fired)})
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        await caller.add(session, said("I drink tea"))
        failed = await failure(caller.commit(session, request_id="r-1"))
        assert failed.code is grpc.StatusCode.UNAVAILABLE and fired.read_text().startswith(place)
        server.kill()
    again = own_server()
    async with grpc.aio.insecure_channel(again.address) as channel:
        caller = Caller(channel, "anna")
        done = await archives(caller, session)
        live = await texts(caller, session)
        tasks = (await caller.tasks.ListTasks(task_service_pb2.ListTasksRequest())).tasks
        if place == failpoints.COMMIT_BEFORE_COMMIT:
            assert (done, live, list(tasks)) == ([], ["I drink tea"], [])
        else:
            assert (len(done), live, [task.task_id for task in tasks]) == (1, [], [done[0].task_id])
        committed = await caller.commit(session, request_id="r-1")
        assert [archive.task_id for archive in await archives(caller, session)] == [committed.task_id]
        async with Worker(channel) as worker:
            job = await worker.take()
            assert job.task_id == committed.task_id
            assert (await worker.deliver(job.lease)).outcome == pb.JOB_OUTCOME_APPLIED
        assert await texts(caller, committed.archive_uri) == ["I drink tea"]
    again.stop()


async def test_an_outage_takes_no_message_out_of_reach(caller: Caller, channel: grpc.aio.Channel) -> None:
    """While a commit waits for its model, and when it is given up: what was said is read, found and extracted later."""
    session = await caller.session()
    committed = await caller.committed(said("the copper kettle stands on the shelf"), session=session)

    async def all_of_it_is_there(state: int) -> None:
        everything = session_service_pb2.MESSAGE_SCOPE_ALL
        assert await texts(caller, session, everything) == ["the copper kettle stands on the shelf"]
        (archive,) = await archives(caller, session)
        assert archive.state == state
        assert await texts(caller, archive.uri) == ["the copper kettle stands on the shelf"]
        found = await caller.find("copper kettle")
        while found.pending_passages:
            # Passages follow the archive, whatever becomes of its extraction.
            found = await caller.find("copper kettle")
        assert [result.passage.session for result in found.results] == [caller.uri(f"sessions/{session}")]

    down = status_pb2.Status(message="overloaded")
    async with Worker(channel) as worker:
        for _ in range(7):
            lease = (await worker.take()).lease
            verdict = await worker.fail(lease, pb.FAILURE_CLASS_MODEL_UNAVAILABLE, status=down)
            assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED
        await all_of_it_is_there(session_service_pb2.ARCHIVE_STATE_PENDING)
        lease = (await worker.take()).lease
        verdict = await worker.fail(lease, pb.FAILURE_CLASS_MODEL_REFUSED, retryable=False, status=down)
        assert verdict.outcome == pb.JOB_OUTCOME_FAILED
        await all_of_it_is_there(session_service_pb2.ARCHIVE_STATE_FAILED)

        await caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=committed.task_id))
        job = await worker.take()
        request = pb.GetJobInputRequest(lease=job.lease)
        said_then = [
            message.parts[0].text.text
            async for part in worker.calls.GetJobInput(request)
            for message in part.messages.messages
        ]
        assert said_then == ["the copper kettle stands on the shelf"]
        await worker.deliver(job.lease)
        await all_of_it_is_there(session_service_pb2.ARCHIVE_STATE_DONE)


def tea(content: str, **views: str) -> pb.MemoryOperation:
    return write("preferences", topic="Tea", content=content, **views)


async def applied(caller: Caller, channel: grpc.aio.Channel, *operations: pb.MemoryOperation) -> Any:
    """The result of a commit with these operations, sent once more where they are refused."""
    committed = await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        verdict = await worker.deliver(lease, *operations)
        if verdict.outcome == pb.JOB_OUTCOME_NEEDS_REPAIR:
            verdict = await worker.deliver(lease, *operations)
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    return (await caller.task(committed.task_id)).result


async def test_of_two_texts_for_one_field_none_wins_in_silence(caller: Caller, channel: grpc.aio.Channel) -> None:
    """The first stands, the other is sent back, and when it comes again it is named: nobody believes it was kept."""
    uri = caller.uri(TEA)
    result = await applied(caller, channel, tea("Green tea."), tea("Black tea."), edit(uri, content="White tea."))
    assert [(one.reason, one.uri, one.operation_index) for one in result.rejected] == [
        ("given_twice", uri, 1),
        ("given_twice", uri, 2),
    ]
    assert result.outcome == task_service_pb2.COMMIT_OUTCOME_PARTLY_REJECTED
    memory = await caller.memory(uri)
    assert (memory.content, memory.version) == ("Green tea.", 1)

    # In the next commit the same whole value is an update like any other.
    result = await applied(caller, channel, edit(uri, content=[("Green", "Oolong")]), tea("Black tea."))
    assert [(one.reason, one.operation_index) for one in result.rejected] == [("given_twice", 1)]
    assert (await caller.memory(uri)).content == "Oolong tea."
    result = await applied(caller, channel, tea("Black tea."))
    assert not result.rejected and (await caller.memory(uri)).content == "Black tea."


async def test_operations_on_one_memory_that_fit_together_make_one_version(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    uri = caller.uri(TEA)
    result = await applied(
        caller,
        channel,
        tea("Green tea.\nNo sugar."),
        edit(uri, content=[("No sugar.", "Two sugars.")]),
        # The same once more is no contradiction, and a view is of the text that it comes with.
        tea("Green tea.\nTwo sugars.", abstract="Sweet green tea."),
        edit(uri, content=[("Green", "Black")], abstract="Sweet black tea."),
    )
    assert not result.rejected and dict(result.memories_extracted) == {"preferences": 1}
    memory = await caller.memory(uri)
    assert (memory.content, memory.abstract, memory.version) == ("Black tea.\nTwo sugars.", "Sweet black tea.", 1)


async def test_a_deleted_memory_may_be_written_anew_in_the_same_output(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    uri = caller.uri(TEA)
    await applied(caller, channel, tea("Green tea."))
    result = await applied(caller, channel, delete(uri), tea("Black tea."))
    assert not result.rejected
    assert (await caller.memory(uri)).content == "Black tea."
