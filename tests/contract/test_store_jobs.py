"""Jobs: lanes, fairness, leases and what ends them, on every driver."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from storage import apply, archives, claiming, jobs, spaces, tasks
from storage.database import Database, Space, Tx
from storage.errors import LeaseLost, NotFound, WrongTaskState
from storage.jobs import Failure
from storage.records import Job, LeaseId
from tests.contract.store_fixtures import ANN, BOB, CAT, SECOND, TERMS, Clock, claim, prepared, queue

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

    await database.write(work)


async def nothing_due(database: Database) -> bool:
    return await database.write(claiming.claim, "w1", TERMS) is None


async def succeed(database: Database, job: Job) -> None:
    await database.write(jobs.succeed, job, "out", 1, {})


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

    await database.write(apply.apply, prepared(first.lease))
    second = await claim(database)
    assert (second.job_id, second.revision) == ("t2", 1)
    assert await nothing_due(database)
    await database.write(jobs.give_up, second, BUSY, GIVEN_UP)
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

    claimed = await database.write(claiming.claim, "worker-9", TERMS)

    assert claimed is not None
    job, attempt = claimed
    assert (job.account, job.user, job.kind, job.session_id, job.archive_index) == ("acme", "ann", "commit", "s-t1", 1)
    assert (job.state, job.attempts, job.token, job.worker_id, attempt) == ("leased", 1, 1, "worker-9", 1)
    assert (job.lease_expires, job.attempt_ends) == (clock.now + TERMS.first, clock.now + TERMS.attempt)
    assert await database.read(jobs.held, job.lease) == job
    task = await database.read(tasks.get, ANN, "t1")
    assert (task.state, task.attempt, task.started_at) == ("running", 1, clock.now)


async def test_accounts_take_turns_whatever_they_have_queued(database: Database) -> None:
    crowd = [Space("crowd", f"user-{number}") for number in range(20)]
    for space in crowd:
        await enqueue(database, space, f"crowd-{space.user}")
    for number in range(3):
        await enqueue(database, Space("small", f"user-{number}"), f"small-{number}")

    served = [(await claim(database)).account for _ in range(8)]

    assert served[:6].count("small") == 3
    assert served[6:] == ["crowd", "crowd"]


async def test_a_heavier_account_gets_its_share(database: Database) -> None:
    for number in range(30):
        for account in ("heavy", "light"):
            await enqueue(database, Space(account, f"user-{number}"), f"{account}-{number}")

    async def weigh(tx: Tx) -> None:
        await tx.execute("UPDATE accounts SET weight = 3 WHERE account = $1", "heavy")

    await database.write(weigh)
    served = [(await claim(database)).account for _ in range(24)]

    assert 17 <= served.count("heavy") <= 19


async def test_sleeping_is_no_credit(database: Database) -> None:
    """An account that comes back starts level with the others, and so do accounts that were never there before."""
    for number in range(30):
        await enqueue(database, Space("busy", f"user-{number}"), f"busy-{number}")
    for _ in range(10):
        await claim(database)
    for number in range(10):
        await enqueue(database, Space("back", f"user-{number}"), f"back-{number}")

    served = [(await claim(database)).account for _ in range(8)]

    # Level, by the bound of `claim` for two accounts of weight 1.
    assert abs(served.count("back") - served.count("busy")) <= 2


async def test_what_an_account_had_in_the_past_is_not_held_against_it(database: Database) -> None:
    """A long time of serving one account alone must not be made up for by another that was not there."""
    for number in range(10):
        await enqueue(database, ANN, f"past-{number}")
        await succeed(database, await claim(database))
    for number in range(10):
        await enqueue(database, Space("new", f"user-{number}"), f"new-{number}")
        await enqueue(database, Space("acme", f"user-{number}"), f"acme-{number}")

    served = [(await claim(database)).account for _ in range(8)]

    assert served.count("acme") == 4


async def test_within_an_account_priority_goes_before_age(database: Database, clock: Clock) -> None:
    for number, priority in enumerate((0, 5, 0, 9)):
        await enqueue(database, Space("acme", f"user-{number}"), f"t{number}", priority=priority)
        clock.advance(1)

    assert [(await claim(database)).job_id for _ in range(4)] == ["t3", "t1", "t0", "t2"]


async def test_a_renewal_moves_the_end_but_never_past_the_attempt(database: Database, clock: Clock) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)

    clock.advance(9)
    await database.write(jobs.renew, job.lease, TERMS)
    clock.advance(59)
    assert await database.read(jobs.expired) == []
    for _ in range(12):
        await database.write(jobs.renew, job.lease, TERMS)
        clock.advance(50)
    (late,) = await database.read(jobs.expired)
    assert (late.job_id, late.lease_expires) == ("t1", job.attempt_ends)


async def test_a_lease_that_ran_out_is_held_until_it_is_taken_back(database: Database, clock: Clock) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    clock.advance(11)

    (late,) = await database.read(jobs.expired)
    assert await database.read(jobs.held, job.lease) == late

    await database.write(jobs.requeue, late, Failure("lease_expired", "silent"), delay=0, counts="lost_leases")
    with pytest.raises(LeaseLost):
        await database.read(jobs.held, job.lease)
    assert await database.read(jobs.expired) == []


@pytest.mark.parametrize(
    ("counts", "expected"),
    [("attempts", (1, 0, 0)), ("lost_leases", (0, 1, 0)), ("conflicts", (0, 0, 1)), (None, (0, 0, 0))],
)
async def test_each_end_of_an_attempt_is_counted_where_it_belongs(
    database: Database, clock: Clock, counts: str | None, expected: tuple[int, int, int]
) -> None:
    await queue(database, ANN, "t1")
    first = await claim(database)

    await database.write(jobs.requeue, first, BUSY, delay=3 * SECOND, counts=counts)

    waiting = await database.read(jobs.get, "t1")
    assert (waiting.attempts, waiting.lost_leases, waiting.conflicts) == expected
    assert waiting.token > first.token
    assert await nothing_due(database)
    clock.advance(3)
    second = await claim(database)
    assert (second.attempts, second.lost_leases, second.conflicts) == (expected[0] + 1, *expected[1:])
    task = await database.read(tasks.get, ANN, "t1")
    assert (task.attempt, task.lost_leases) == (2, expected[1])
    assert json.loads(second.failures) == [{"class": "model_unavailable", "message": "try later"}]


async def test_a_release_is_no_failure(database: Database) -> None:
    await queue(database, ANN, "t1")
    await database.write(jobs.requeue, await claim(database), None, delay=0, counts=None)

    job = await database.read(jobs.get, "t1")
    assert (job.attempts, job.failures) == (0, "[]")
    assert (await database.read(tasks.get, ANN, "t1")).error == ""
    assert await states(database, ANN, "t1") == ["pending", "running", "pending"]


async def test_the_next_attempt_is_told_the_last_failures(database: Database) -> None:
    await queue(database, ANN, "t1")
    for number in range(5):
        failure = Failure("rejected_output", f"reason {number}")
        await database.write(jobs.requeue, await claim(database), failure, delay=0, counts="attempts")

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
    await database.write(jobs.give_up, first, Failure("rejected_output", "no use"), GIVEN_UP, lost_lease=True)

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
    await database.write(apply.apply, prepared(second.lease))
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
        await database.write(apply.apply, prepared(leased.lease))
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
    await database.write(apply.apply, prepared(job.lease))
    for call in (database.write(jobs.cancel, ANN, "t1", ""), database.write(jobs.retry, ANN, "t1")):
        with pytest.raises(WrongTaskState):
            await call
    for call in (database.write(jobs.cancel, BOB, "t1", ""), database.write(jobs.retry, CAT, "t1")):
        with pytest.raises(NotFound):
            await call


Ending = Callable[[Tx, Job], Awaitable[Any]]


async def _requeue(tx: Tx, job: Job) -> None:
    await jobs.requeue(tx, job, BUSY, delay=0, counts="attempts")


async def _give_up(tx: Tx, job: Job) -> None:
    await jobs.give_up(tx, job, BUSY, GIVEN_UP)


async def _cancel(tx: Tx, job: Job) -> None:
    await jobs.cancel(tx, jobs.space_of(job), job.job_id, "")


async def _cancel_and_retry(tx: Tx, job: Job) -> None:
    await _cancel(tx, job)
    await jobs.retry(tx, jobs.space_of(job), job.job_id)


async def _requeue_and_claim(tx: Tx, job: Job) -> None:
    await _requeue(tx, job)
    assert await claiming.claim(tx, job.worker_id, TERMS) is not None


@pytest.mark.parametrize("ending", [_requeue, _give_up, _cancel, _cancel_and_retry, _requeue_and_claim])
async def test_a_stale_token_is_refused_everywhere(database: Database, ending: Ending) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    await database.write(ending, job)

    for lease in (job.lease, LeaseId(job.job_id, job.token + 7), LeaseId("nothing", 1)):
        for call in (
            database.read(jobs.held, lease),
            database.write(jobs.renew, lease, TERMS),
            database.write(apply.apply, prepared(lease)),
        ):
            with pytest.raises(LeaseLost):
                await call
    assert await database.read(apply.applied_before, job.lease, "out") is None


async def test_pages_of_tasks_miss_and_repeat_nothing(database: Database, clock: Clock) -> None:
    for number in range(12):
        if number % 3 == 0:
            clock.advance(1)
        await queue(database, ANN, f"t{number:02}")
    await queue(database, BOB, "not-hers")
    await database.write(jobs.cancel, ANN, "t05", "")
    await database.write(apply.apply, prepared((await claim(database)).lease))

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
