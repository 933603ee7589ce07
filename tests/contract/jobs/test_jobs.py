"""Jobs: lanes, fairness, leases and what ends them, on every driver."""

import json

import pytest

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.errors import LeaseLost, NotFound, WrongTaskState
from runekeep_storage.jobs import claiming, jobs, tasks
from runekeep_storage.jobs.jobs import Failure
from runekeep_storage.memories import apply
from runekeep_storage.records import Job
from runekeep_storage.sessions import archives
from runekeep_storage.spaces import spaces
from tests.support.storage.databases import ANN, BOB, CAT, TERMS, Clock, claim, prepared, queue

BUSY = Failure("model_unavailable", "try later")
GIVEN_UP = {"outcome": "given_up"}


async def enqueue(database: Database, space: Space, job_id: str, lane: str = "commits", priority: int = 0) -> None:
    """A job without a session: what lanes and shares need."""

    async def work(tx: Tx) -> None:
        await spaces.ensure(tx, space)
        await tasks.create(tx, space, job_id, "commit", "")
        await jobs.enqueue(
            tx, space, job_id, kind="commit", lane=lane, session_id="", archive_index=0, plan="{}", traceparent="",
            priority=priority,
        )  # fmt: skip

    await database.write_global(work)


async def nothing_due(database: Database) -> bool:
    return await database.write_global(claiming.claim, "w1", TERMS) is None


async def succeed(database: Database, job: Job) -> None:
    await database.write_global(jobs.succeed, job, "out", 1, {})


async def states(database: Database, space: Space, task_id: str) -> list[str]:
    _, events = await database.read(tasks.events_after, space, task_id, 0)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    return [json.loads(event.body)["state"] for event in events if event.kind == "state"]


async def test_a_space_is_served_one_job_at_a_time_first_in_first_out(database: Database, clock: Clock) -> None:
    for number in range(1, 4):
        await queue(database, ANN, f"t{number}")
        clock.advance(1)
    await queue(database, BOB, "t4")

    first, other = await claim(database), await claim(database)
    assert (first.job_id, other.job_id) == ("t1", "t4")
    assert await nothing_due(database)

    await database.write(apply.apply, ANN, prepared(first.lease))
    second = await claim(database)
    assert (second.job_id, second.revision) == ("t2", 1)
    assert await nothing_due(database)
    await database.write_global(jobs.give_up, second, BUSY, GIVEN_UP)
    assert (await claim(database)).job_id == "t3"


async def test_lanes_of_one_user_run_side_by_side(database: Database) -> None:
    await enqueue(database, ANN, "c1")
    await enqueue(database, ANN, "c2")
    await enqueue(database, ANN, "turn", lane="turn-7")

    assert {(await claim(database)).job_id, (await claim(database)).job_id} == {"c1", "turn"}
    assert await nothing_due(database)


async def test_a_claim_tells_all_that_a_worker_needs(database: Database, clock: Clock) -> None:
    await queue(database, ANN, "t1")
    clock.advance(5)

    claimed = await database.write_global(claiming.claim, "worker-9", TERMS)

    assert claimed is not None
    job, attempt = claimed
    assert (job.account, job.user, job.kind, job.session_id, job.archive_index) == ("acme", "ann", "commit", "s-t1", 1)
    assert (job.state, job.attempts, job.token, job.worker_id, attempt) == ("leased", 1, 1, "worker-9", 1)
    assert (job.lease_expires, job.attempt_ends) == (clock.now + TERMS.first, clock.now + TERMS.attempt)
    assert await database.read_global(jobs.held, job.lease) == job
    task = await database.read(tasks.get, ANN, "t1")
    assert (task.state, task.attempt, task.started_at) == ("running", 1, clock.now)


async def test_a_release_is_no_failure(database: Database) -> None:
    await queue(database, ANN, "t1")
    await database.write_global(jobs.requeue, await claim(database), None, delay=0, counts=None)

    job = await database.read_global(jobs.get, "t1")
    assert (job.attempts, job.failures) == (0, "[]")
    assert (await database.read(tasks.get, ANN, "t1")).error == ""
    assert await states(database, ANN, "t1") == ["pending", "running", "pending"]


async def test_the_next_attempt_is_told_the_last_failures(database: Database) -> None:
    await queue(database, ANN, "t1")
    for number in range(5):
        failure = Failure("rejected_output", f"reason {number}")
        await database.write_global(jobs.requeue, await claim(database), failure, delay=0, counts="attempts")

    assert [one["message"] for one in json.loads((await claim(database)).failures)] == [
        "reason 2",
        "reason 3",
        "reason 4",
    ]
    task, events = await database.read(tasks.events_after, ANN, "t1", 0)
    assert json.loads(task.error)["message"] == "reason 4"
    failed = [event for event in events if event.kind == "attempt_failed"]
    assert [event.attempt for event in failed] == [1, 2, 3, 4, 5]


async def test_a_job_given_up_can_be_retried_at_the_tail(database: Database) -> None:
    for number in (1, 2):
        await queue(database, ANN, f"t{number}")
    first = await claim(database)
    await database.write_global(jobs.give_up, first, Failure("rejected_output", "no use"), GIVEN_UP, lost_lease=True)

    task = await database.read(tasks.get, ANN, "t1")
    assert (task.state, task.lost_leases, json.loads(task.error)["message"]) == ("failed", 1, "no use")
    assert json.loads(task.result) == GIVEN_UP
    assert (await database.read(archives.get, ANN, "s-t1", 1)).state == "failed"

    await database.write(jobs.retry, ANN, "t1")
    task = await database.read(tasks.get, ANN, "t1")
    assert (task.state, task.attempt, task.lost_leases, task.error, task.ended_at) == ("pending", 0, 0, "", 0)
    assert task.result == ""
    assert (await database.read(archives.get, ANN, "s-t1", 1)).state == "pending"
    second = await claim(database)
    assert second.job_id == "t2"
    await database.write(apply.apply, ANN, prepared(second.lease))
    again = await claim(database)
    assert (again.job_id, again.attempts, again.lost_leases, again.conflicts) == ("t1", 1, 0, 0)
    assert again.token > first.token
    assert await states(database, ANN, "t1") == ["pending", "running", "failed", "pending", "running"]


async def test_a_cancelled_job_is_over_at_once(database: Database, clock: Clock) -> None:
    for number in (1, 2, 3):
        await queue(database, ANN, f"t{number}")
    leased = await claim(database)
    clock.advance(1)

    cancelled = await database.write(jobs.cancel, ANN, "t1", "not wanted")
    await database.write(jobs.cancel, ANN, "t2", "")

    assert cancelled.worker_id == "w1"
    with pytest.raises(LeaseLost):
        await database.write(apply.apply, ANN, prepared(leased.lease))
    task = await database.read(tasks.get, ANN, "t1")
    assert (task.state, task.ended_at, json.loads(task.error)["message"]) == ("cancelled", clock.now, "not wanted")
    assert (await database.read(archives.get, ANN, "s-t1", 1)).state == "failed"
    assert (await claim(database)).job_id == "t3"


async def test_only_what_can_be_cancelled_or_retried_is(database: Database) -> None:
    await queue(database, ANN, "t1")
    with pytest.raises(WrongTaskState):
        await database.write(jobs.retry, ANN, "t1")
    job = await claim(database)
    with pytest.raises(WrongTaskState):
        await database.write(jobs.retry, ANN, "t1")
    await database.write(apply.apply, ANN, prepared(job.lease))
    for call in (database.write(jobs.cancel, ANN, "t1", ""), database.write(jobs.retry, ANN, "t1")):
        with pytest.raises(WrongTaskState):
            await call
    for call in (database.write(jobs.cancel, BOB, "t1", ""), database.write(jobs.retry, CAT, "t1")):
        with pytest.raises(NotFound):
            await call


async def test_pages_of_tasks_miss_and_repeat_nothing(database: Database, clock: Clock) -> None:
    for number in range(12):
        if number % 3 == 0:
            clock.advance(1)
        await queue(database, ANN, f"t{number:02}")
    await queue(database, BOB, "not-hers")
    await database.write(jobs.cancel, ANN, "t05", "")
    await database.write(apply.apply, ANN, prepared((await claim(database)).lease))

    seen = []
    after = None
    while found := await database.read(tasks.page, ANN, "", (), after, 5):
        seen += found
        after = (found[-1].created_at, found[-1].task_id)

    assert sorted(task.task_id for task in seen) == [f"t{number:02}" for number in range(12)]
    assert [task.created_at for task in seen] == sorted((task.created_at for task in seen), reverse=True)
    ended = await database.read(tasks.page, ANN, "", ("completed", "cancelled"), None, 50)
    assert {task.task_id for task in ended} == {"t00", "t05"}
    (only,) = await database.read(tasks.page, ANN, "s-t07", ("pending",), None, 50)
    assert only.task_id == "t07"
    assert await database.read(tasks.page, ANN, "s-t07", ("failed",), None, 50) == []


async def test_events_can_be_read_from_any_number_on(database: Database) -> None:
    await queue(database, ANN, "t1")
    await claim(database)
    for number in range(4):
        await database.write(tasks.set_progress, ANN, "t1", {"phase": "extract", "done": number})

    task, events = await database.read(tasks.events_after, ANN, "t1", 3)

    assert task.last_event == 6
    assert [(event.sequence, json.loads(event.body)["done"]) for event in events] == [(4, 1), (5, 2), (6, 3)]
    assert json.loads(task.progress)["done"] == 3
    assert [event.sequence for event in (await database.read(tasks.events_after, ANN, "t1", 1, 2))[1]] == [2, 3]
    with pytest.raises(NotFound):
        await database.read(tasks.events_after, BOB, "t1", 0)
