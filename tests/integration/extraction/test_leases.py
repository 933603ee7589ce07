"""Leases that run out, with times shrunk to seconds."""

import asyncio
import sqlite3
from contextlib import closing

import grpc

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import Caller
from tests.support.server_process import ServerProcess
from tests.support.waiting import until
from tests.support.worker import Worker, write

SERVER_SETTINGS = {
    # Longer than the first: whoever is heard of once has time, also on a busy machine.
    "RUNEKEEP_LEASE_SECONDS": "2",
    "RUNEKEEP_HEARTBEAT_SECONDS": "0.3",
    "RUNEKEEP_FIRST_LEASE_SECONDS": "1",
    "RUNEKEEP_ATTEMPT_SECONDS": "4",
    "RUNEKEEP_MAX_LOST_LEASES": "2",
    "RUNEKEEP_MAX_ATTEMPTS": "2",
}

NOTE = write("preferences", topic="Tea", content="Likes green tea.")


async def test_a_lease_that_runs_out_goes_to_another_worker(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    async with Worker(channel, "slow") as slow, Worker(channel, "quick") as quick:
        lease = (await slow.take()).lease
        await slow.chunk(lease, "o-1", 0, [pb.OutputItem(operation=NOTE)])
        await quick.ready()
        job = await quick.assignment()
        assert (job.task_id, job.attempt) == (committed.task_id, 2)
        assert job.lease.fencing_token > lease.fencing_token
        await quick.heartbeat(job.lease)
        assert [one.failure_class for one in job.previous_failures] == [pb.FAILURE_CLASS_LEASE_EXPIRED]
        lost = await slow.next("lease_update")
        assert [(state.lease, state.status) for state in lost.leases] == [(lease, pb.LEASE_STATUS_LOST)]
        # The first one comes late, and changes nothing.
        assert (await slow.complete(lease, "o-1", 1)).outcome == pb.JOB_OUTCOME_LEASE_LOST
        assert (await slow.deliver(lease, NOTE)).outcome == pb.JOB_OUTCOME_LEASE_LOST
        assert (await caller.listing("viking://user/memories")).entries == []
        assert (await quick.deliver(job.lease, NOTE)).revision == 1
        assert (await slow.deliver(lease, NOTE)).outcome == pb.JOB_OUTCOME_LEASE_LOST
    task = await caller.task(committed.task_id)
    assert (task.lost_leases, task.attempt, task.result.revision) == (1, 2, 1)


async def test_heartbeats_keep_a_lease_beyond_its_first_end(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    await caller.committed()
    async with Worker(channel) as worker, Worker(channel, "idle") as idle:
        lease = (await worker.take()).lease
        await idle.ready()
        waited = 0.0
        while waited < 3.0:
            update = await worker.heartbeat(lease, sequence=int(waited * 10) + 1)
            assert [state.status for state in update.leases] == [pb.LEASE_STATUS_HELD]
            # The passing of time is what is tried here.
            waited += await pause(0.2)
        assert not idle.seen("assignment")
        assert (await worker.deliver(lease, NOTE)).outcome == pb.JOB_OUTCOME_APPLIED
        # If the worker left without delivering, it would have lost a job, which would count in the following tests.
        assert (await idle.deliver((await idle.assignment()).lease)).outcome == pb.JOB_OUTCOME_APPLIED
    assert (await caller.task(committed.task_id)).lost_leases == 0


async def test_one_attempt_ends_however_often_it_is_renewed(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed = await caller.committed()
    async with Worker(channel) as worker:
        job = await worker.take()
        lease = job.lease
        assert job.time_budget.ToMilliseconds() == 3600, "a tenth is left for the delivery"
        sequence = 0
        while True:
            sequence += 1
            update = await worker.heartbeat(lease, sequence=sequence)
            if update.leases[0].status == pb.LEASE_STATUS_LOST:
                break
            await pause(0.1)
        job = await worker.take()
        assert [one.failure_class for one in job.previous_failures] == [pb.FAILURE_CLASS_TIME_BUDGET]
        await worker.deliver(job.lease)
    task = await caller.task(committed.task_id)
    assert (task.attempt, task.lost_leases) == (2, 0)


async def test_a_job_that_costs_too_many_workers_is_put_aside(caller: Caller, channel: grpc.aio.Channel) -> None:
    committed, following = await caller.committed(), await caller.committed()
    # Two names: one worker that loses the job twice is not enough while the server knows of other workers.
    for name in ("first", "second"):
        async with Worker(channel, name) as worker:
            assert (await worker.take()).task_id == committed.task_id
    async with Worker(channel, "third") as worker:
        job = await worker.take()
        assert job.task_id == following.task_id
        await worker.deliver(job.lease)
    task = await caller.task(committed.task_id)
    assert (task.state, task.lost_leases) == (task_service_pb2.TASK_STATE_FAILED, 2)
    assert task.error.message.startswith("lease_expired")


async def test_a_worker_that_leaves_while_its_output_is_applied_has_completed_the_job(
    caller: Caller, channel: grpc.aio.Channel, server: ServerProcess
) -> None:
    committed = await caller.committed()
    database = server.data_dir / "runekeep.db"
    async with Worker(channel, "leaver") as worker:
        lease = (await worker.take()).lease
        await worker.heartbeat(lease)
        await worker.chunk(lease, "o-1", 0, [pb.OutputItem(operation=NOTE)])
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            extractor = common_pb2.ExtractorInfo(engine="scripted", model="none", version="1")
            await worker.send(complete=pb.JobComplete(lease=lease, output_id="o-1", chunk_count=1, extractor=extractor))
            # The answer shows that the server has read JobComplete, which was sent before.
            assert await worker.chunk(pb.Lease(job_id="none", fencing_token=1), "o-2", 0, []) is None
            await worker.break_off()
            other.execute("ROLLBACK")

    def has_worked() -> bool:
        with closing(sqlite3.connect(database)) as looking:
            return bool(
                looking.execute("SELECT 1 FROM workers WHERE worker_id = 'leaver' AND worked_at > 0").fetchall()
            )

    await asyncio.to_thread(until, has_worked)
    task = await caller.task(committed.task_id)
    assert (task.state, task.lost_leases) == (task_service_pb2.TASK_STATE_COMPLETED, 0)


async def pause(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds
