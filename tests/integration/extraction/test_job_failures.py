"""How attempts end without a result: failures, releases, cancels, leases that are none."""

import asyncio
from uuid import uuid4

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import status_pb2

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import session_service_pb2, task_service_pb2
from tests.support.callers import Caller, failure
from tests.support.worker import Worker, delete, write

SERVER_SETTINGS = {"RUNEKEEP_MAX_ATTEMPTS": "2", "RUNEKEEP_MAX_CONFLICTS": "2"}

OUTAGES = (
    pb.FAILURE_CLASS_RATE_LIMITED,
    pb.FAILURE_CLASS_MODEL_UNAVAILABLE,
    pb.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE,
)
NOTE = write("preferences", topic="Tea", content="Likes green tea.")


def seconds(value: int) -> Duration:
    return Duration(seconds=value)


async def test_an_outage_is_not_counted(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        for attempt in range(1, 8):
            job = await worker.take()
            assert job.attempt == attempt
            failed_class = OUTAGES[attempt % len(OUTAGES)]
            status = status_pb2.Status(code=8, message=f"attempt {attempt}")
            verdict = await worker.fail(job.lease, failed_class, status=status)
            assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED
        task = await caller.task(committed.task_id)
        assert task.state == task_service_pb2.TASK_STATE_PENDING and task.error.message.endswith("attempt 7")
        job = await worker.take()
        assert [one.status.message for one in job.previous_failures] == ["attempt 5", "attempt 6", "attempt 7"]
        assert job.previous_failures[-1].failure_class == OUTAGES[7 % len(OUTAGES)]
        assert (await worker.deliver(job.lease, NOTE)).outcome == pb.JOB_OUTCOME_APPLIED


async def test_bad_output_is_counted_and_ends_as_a_dead_letter_that_can_be_woken(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    session = await caller.session()
    committed, following = await caller.committed(session=session), await caller.committed(session=session)
    async with Worker(channel) as worker:
        outcomes = []
        for _ in range(2):
            lease = (await worker.take()).lease
            outcomes.append((await worker.fail(lease, pb.FAILURE_CLASS_INVALID_OUTPUT)).outcome)
        assert outcomes == [pb.JOB_OUTCOME_REQUEUED, pb.JOB_OUTCOME_FAILED]
        task = await caller.task(committed.task_id)
        assert task.state == task_service_pb2.TASK_STATE_FAILED and task.error.message.startswith("invalid_output")
        archives = session_service_pb2.ListArchivesRequest(session=session)
        states = [archive.state for archive in (await caller.sessions.ListArchives(archives)).archives]
        assert states == [session_service_pb2.ARCHIVE_STATE_PENDING, session_service_pb2.ARCHIVE_STATE_FAILED]
        # The space goes on without it.
        job = await worker.take()
        assert job.task_id == following.task_id
        retried = (await caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=committed.task_id))).task
        assert (retried.state, retried.attempt) == (task_service_pb2.TASK_STATE_PENDING, 0)
        again = await failure(caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=committed.task_id)))
        assert again.seen == ("FAILED_PRECONDITION", "TASK_STATE")
        await worker.deliver(job.lease)
        job = await worker.take()
        assert (job.task_id, job.attempt) == (committed.task_id, 1)
        assert (await worker.deliver(job.lease, NOTE)).revision == 2
    assert not (await caller.task(committed.task_id)).HasField("error")


@pytest.mark.parametrize(
    ("failure_class", "retryable"),
    [
        (pb.FAILURE_CLASS_MODEL_REFUSED, True),
        (pb.FAILURE_CLASS_INPUT_TOO_LARGE, True),
        (pb.FAILURE_CLASS_INPUT_INVALID, True),
        (pb.FAILURE_CLASS_INTERNAL, False),
    ],
)
async def test_what_no_attempt_can_help_is_final(
    caller: Caller, channel: grpc.aio.Channel, failure_class: int, retryable: bool
) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        verdict = await worker.fail(lease, failure_class, retryable=retryable)
        assert verdict.outcome == pb.JOB_OUTCOME_FAILED
    assert (await caller.task(committed.task_id)).state == task_service_pb2.TASK_STATE_FAILED


async def test_a_given_wait_is_kept(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    loop = asyncio.get_running_loop()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        wait = Duration(nanos=700_000_000)
        # Before it is told: the verdict may be long on its way while the wait runs.
        failed_at = loop.time()
        await worker.fail(lease, pb.FAILURE_CLASS_RATE_LIMITED, retry_after=wait)
        assert (await worker.take()).task_id == committed.task_id
        assert loop.time() - failed_at >= 0.65, "earlier than the worker asked for"


async def test_a_wait_without_measure_does_not_break_the_server(caller: Caller, channel: grpc.aio.Channel) -> None:
    await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        verdict = await worker.fail(lease, pb.FAILURE_CLASS_RATE_LIMITED, retry_after=seconds(315_576_000_000))
        assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED


async def test_a_released_job_is_there_at_once_and_not_counted(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        for _ in range(4):
            job = await worker.take()
            assert (await worker.release(job.lease)).outcome == pb.JOB_OUTCOME_REQUEUED
        stale = await worker.deliver(job.lease, NOTE)
        assert stale.outcome == pb.JOB_OUTCOME_LEASE_LOST
        lease = (await worker.take()).lease
        assert lease.fencing_token > job.lease.fencing_token
        assert (await worker.deliver(lease, NOTE)).outcome == pb.JOB_OUTCOME_APPLIED
    assert (await caller.task(committed.task_id)).lost_leases == 0


async def test_a_conflict_told_by_the_worker_is_counted_apart(caller: Caller, channel: grpc.aio.Channel) -> None:
    await caller.committed()
    async with Worker(channel) as worker:
        outcomes = []
        for _ in range(2):
            outcomes.append((await worker.fail((await worker.take()).lease, pb.FAILURE_CLASS_CONFLICT)).outcome)
        assert outcomes == [pb.JOB_OUTCOME_REQUEUED, pb.JOB_OUTCOME_FAILED]


async def test_a_cancelled_job_is_stopped_and_its_output_refused(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    request = task_service_pb2.CancelTaskRequest(task_id=committed.task_id, reason="no", request_id="r-1")
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.chunk(lease, "o-1", 0, [pb.OutputItem(operation=NOTE)])
        answer = await caller.tasks.CancelTask(request)
        assert answer.task.state == task_service_pb2.TASK_STATE_CANCELLED
        cancel = await worker.next("cancel")
        assert (cancel.lease, cancel.reason) == (lease, "no")
        assert (await worker.complete(lease, "o-1", 1)).outcome == pb.JOB_OUTCOME_CANCELLED
        assert (await worker.deliver(lease, NOTE)).outcome == pb.JOB_OUTCOME_CANCELLED
        assert (await worker.fail(lease, pb.FAILURE_CLASS_INTERNAL)).outcome == pb.JOB_OUTCOME_CANCELLED
        update = await worker.heartbeat(lease)
        assert [state.status for state in update.leases] == [pb.LEASE_STATUS_LOST]
    assert await caller.tasks.CancelTask(request) == answer
    again = task_service_pb2.CancelTaskRequest(task_id=committed.task_id)
    assert (await failure(caller.tasks.CancelTask(again))).seen == ("FAILED_PRECONDITION", "TASK_STATE")
    assert (await caller.listing("viking://user/memories")).entries == []
    # Cancelled is not gone: it can be woken, and its old lease stays worthless.
    await caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=committed.task_id))
    async with Worker(channel) as worker:
        job = await worker.take()
        assert (await worker.deliver(lease, NOTE)).outcome == pb.JOB_OUTCOME_LEASE_LOST
        assert (await worker.deliver(job.lease, delete(caller.uri("memories/profile.md")))).outcome != (
            pb.JOB_OUTCOME_LEASE_LOST
        )


async def test_a_lease_that_never_was(channel: grpc.aio.Channel) -> None:
    lease = pb.Lease(job_id=str(uuid4()), fencing_token=1)
    async with Worker(channel) as worker:
        assert (await worker.deliver(lease, NOTE)).outcome == pb.JOB_OUTCOME_LEASE_LOST
        assert (await worker.complete(lease, "o", 3)).outcome == pb.JOB_OUTCOME_LEASE_LOST
        assert (await worker.release(lease)).outcome == pb.JOB_OUTCOME_LEASE_LOST
        await worker.progress(lease, task_service_pb2.TASK_PHASE_REASONING, 10)
        lost = await worker.next("lease_update")
        assert [(state.lease, state.status) for state in lost.leases] == [(lease, pb.LEASE_STATUS_LOST)]


async def test_progress_never_goes_back_within_an_attempt(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    phase = task_service_pb2.TASK_PHASE_REASONING
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        for percent in (10, 50, 30, 60):
            await worker.progress(lease, phase, percent, "thinking")
        await worker.deliver(lease)
    told = [
        update.event.progress for update in await caller.watch(committed.task_id) if update.event.HasField("progress")
    ]
    assert [one.percent for one in told] == [10, 50, 50, 60]
    assert {(one.phase, one.message) for one in told} == {(phase, "thinking")}
