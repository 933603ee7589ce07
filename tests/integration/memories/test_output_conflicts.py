"""Outputs on memories that a caller wrote meanwhile: merged if they still fit, else a conflict that is not a fault."""

import grpc

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import memory_service_pb2, task_service_pb2
from tests.integration.memories.test_outcomes import (
    APPLIED,
    CONFLICT,
    PARTLY_REJECTED,
    SERVER_SETTINGS,
    TEA,
    note,
    spent,
    used,
)
from tests.support.callers import Caller
from tests.support.changes import put, remove, written
from tests.support.worker import Worker, edit

__all__ = ["SERVER_SETTINGS"]


def tea(content: str, base_version: int) -> memory_service_pb2.MemoryMutation:
    return put("preferences", base_version, topic="Tea", content=content)


async def test_a_patch_that_fits_no_more_is_a_conflict_and_nobodys_fault(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    await written(caller, tea("Likes green tea.\nNo sugar.", 0))
    committed = await caller.committed()
    change = edit(caller.uri(TEA), content=[("green", "black")])
    async with Worker(channel) as worker:
        job = await worker.take()
        await written(caller, tea("Likes white tea.\nNo sugar.", 1))
        verdict = await worker.deliver(job.lease, change, note("Jam"), usage=[used("operations")])
        assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED
        waiting = await caller.task(committed.task_id)
        assert waiting.error.message.startswith("conflict: ")
        later = await worker.take()
        assert later.base_revision > job.base_revision
        again = edit(caller.uri(TEA), content=[("white", "black")])
        verdict = await worker.deliver(later.lease, again, note("Jam"), usage=[used("operations")])
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    assert (await caller.memory(caller.uri(TEA))).content == "Likes black tea.\nNo sugar."
    result = (await caller.task(committed.task_id)).result
    assert (result.outcome, list(result.rejected)) == (APPLIED, [])
    assert spent(result) == {("m", "operations"): (2, 20, 10)}


async def test_conflicts_used_up_are_an_outcome(caller: Caller, channel: grpc.aio.Channel) -> None:
    await written(caller, tea("0", 0))
    committed = await caller.committed()
    async with Worker(channel) as worker:
        for attempt in (1, 2):
            lease = (await worker.take()).lease
            change = edit(caller.uri(TEA), content=[(str(attempt - 1), "x")])
            await written(caller, tea(str(attempt), attempt))
            verdict = await worker.deliver(lease, change, usage=[used("operations")])
        assert verdict.outcome == pb.JOB_OUTCOME_FAILED
    task = await caller.task(committed.task_id)
    assert (task.state, task.result.outcome) == (task_service_pb2.TASK_STATE_FAILED, CONFLICT)
    assert caller.uri(TEA) in task.error.message
    assert spent(task.result) == {("m", "operations"): (2, 20, 10)}
    assert (await caller.memory(caller.uri(TEA))).content == "2"


async def test_a_memory_deleted_under_an_edit_is_a_conflict(caller: Caller, channel: grpc.aio.Channel) -> None:
    await written(caller, tea("Likes tea.", 0))
    await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await written(caller, remove(caller.uri(TEA), 1))
        verdict = await worker.deliver(lease, edit(caller.uri(TEA), content=[("tea", "coffee")]))
        assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED
        await caller.cancel_open()


async def test_a_patch_that_still_fits_is_merged_into_what_a_caller_wrote(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    await written(caller, tea("Likes green tea.\nNo sugar.", 0))
    await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await written(caller, tea("Likes green tea.\nTwo sugars.", 1))
        change = edit(caller.uri(TEA), content=[("green", "black")])
        assert (await worker.deliver(lease, change)).outcome == pb.JOB_OUTCOME_APPLIED
    assert (await caller.memory(caller.uri(TEA))).content == "Likes black tea.\nTwo sugars."


async def test_a_patch_that_never_fitted_stays_the_extractors_fault(caller: Caller, channel: grpc.aio.Channel) -> None:
    """Composed within the output: the second edit builds on the first, and the third is wrong at any revision."""
    await written(caller, tea("one two", 0))
    committed = await caller.committed()
    uri = caller.uri(TEA)
    operations = [
        edit(uri, content=[("one", "1")]),
        edit(uri, content=[("1 two", "1 2")]),
        edit(uri, content=[("three", "3")]),
    ]
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await written(caller, tea("one two.", 1))
        verdict = await worker.deliver(lease, *operations)
        assert verdict.outcome == pb.JOB_OUTCOME_NEEDS_REPAIR
        assert [one.operation_index for one in verdict.refused] == [2]
        assert (await worker.deliver(lease, *operations)).outcome == pb.JOB_OUTCOME_APPLIED
    assert (await caller.memory(uri)).content == "1 2."
    assert (await caller.task(committed.task_id)).result.outcome == PARTLY_REJECTED
