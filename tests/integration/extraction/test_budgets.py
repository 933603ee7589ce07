"""Budgets of tokens: what workers are given, and what becomes of a commit that may spend nothing."""

from collections.abc import Callable

import grpc

from runekeep.v1 import common_pb2, session_service_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import Caller, said
from tests.support.worker import Worker, write

SERVER_SETTINGS = {"RUNEKEEP_COMMIT_TOKEN_BUDGET": "100", "RUNEKEEP_ACCOUNT_DAILY_TOKEN_BUDGET": "250"}
TEA = write("preferences", topic="Tea", content="Drinks green tea.")


def used(tokens: int) -> list[common_pb2.TokenUsage]:
    return [common_pb2.TokenUsage(model="m", phase="operations", calls=1, cache_read_tokens=tokens)]


async def test_a_commit_fails_closed_once_its_attempts_have_spent_its_budget(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    session = await caller.session()
    committed = await caller.committed(said("I drink tea"), session=session)
    async with Worker(channel) as worker:
        assignment = await worker.take()
        assert assignment.token_budget == 100
        await worker.fail(assignment.lease, pb.FAILURE_CLASS_INVALID_OUTPUT, usage=used(70))
        assignment = await worker.take()
        assert assignment.token_budget == 30
        request = task_service_pb2.GetTaskRequest(task_id=committed.task_id)
        assert list((await caller.tasks.GetTask(request)).task.usage) == used(70), "said before the task ends"
        await worker.fail(assignment.lease, pb.FAILURE_CLASS_INVALID_OUTPUT, usage=used(31))
        await worker.ready()
        task = await caller.reaches(committed.task_id, task_service_pb2.TASK_STATE_FAILED)
        assert not worker.seen("assignment")
        assert task.result.outcome == task_service_pb2.COMMIT_OUTCOME_OUT_OF_BUDGET
        assert task.error.message == "out_of_budget: the commit has spent the tokens that it may"
        assert [one.cache_read_tokens for one in task.result.usage] == [101]
        # What was said is still the session's.
        listed = session_service_pb2.ListMessagesRequest(session=session, scope=session_service_pb2.MESSAGE_SCOPE_ALL)
        assert len((await caller.sessions.ListMessages(listed)).messages) == 1
        archives = await caller.sessions.ListArchives(session_service_pb2.ListArchivesRequest(session=session))
        assert [one.state for one in archives.archives] == [session_service_pb2.ARCHIVE_STATE_FAILED]

        await caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=committed.task_id))
        assignment = await worker.assignment()
        assert assignment.token_budget == 100
        await worker.deliver(assignment.lease, TEA, usage=used(1))
        assert (await caller.task(committed.task_id)).state == task_service_pb2.TASK_STATE_COMPLETED


async def test_an_account_that_has_spent_its_day_is_refused_and_others_are_not(
    caller: Caller, callers: Callable[..., Caller], channel: grpc.aio.Channel
) -> None:
    async with Worker(channel) as worker:
        for _ in range(2):
            await caller.committed()
            # More than it was given: a worker that does so is counted all the same.
            await worker.deliver((await worker.take()).lease, TEA, usage=used(150))
        last = await caller.committed()
        await worker.ready()
        task = await caller.reaches(last.task_id, task_service_pb2.TASK_STATE_FAILED)
        assert task.result.outcome == task_service_pb2.COMMIT_OUTCOME_OUT_OF_BUDGET
        assert task.error.message == "out_of_budget: the account has spent the tokens that it may in one day (UTC)"
        assert task.attempt == 0, "no worker has seen it"
        request = task_service_pb2.GetUsageRequest(scope=task_service_pb2.USAGE_SCOPE_ACCOUNT)
        usage = await caller.tasks.GetUsage(request)
        assert (usage.daily_token_budget, usage.spent_today) == (250, 300)

        other = callers()
        await other.committed()
        assert (await worker.assignment()).token_budget == 100


async def test_commits_of_an_account_wait_for_what_others_have_reserved(
    caller: Caller, callers: Callable[..., Caller], channel: grpc.aio.Channel
) -> None:
    same = [caller, *(callers(account=caller.account) for _ in range(2))]
    for one in same:
        await one.committed()
    async with Worker(channel) as worker:
        await worker.ready(3)
        first, second = await worker.assignment(), await worker.assignment()
        assert (first.token_budget, second.token_budget) == (100, 100)
        # 50 are left, and more may come back: the third one waits for it, and others do not wait behind it.
        other = callers()
        committed = await other.committed()
        await worker.ready()
        third = await worker.assignment()
        assert third.task_id == committed.task_id
        await worker.deliver(first.lease, TEA, usage=used(10))
        last = await worker.assignment()
        assert last.token_budget == 100
        for assignment in (second, third, last):
            await worker.deliver(assignment.lease, TEA, usage=used(10))


async def test_a_worker_that_says_that_it_would_cost_more_ends_the_task(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        verdict = await worker.fail((await worker.take()).lease, pb.FAILURE_CLASS_OUT_OF_BUDGET, usage=used(90))
        assert verdict.outcome == pb.JOB_OUTCOME_FAILED
    task = await caller.task(committed.task_id)
    assert task.result.outcome == task_service_pb2.COMMIT_OUTCOME_OUT_OF_BUDGET
