"""Outages of the model as the store and the failure policy see them, by a clock that the tests move, on every driver.

The workers here know no patience: they give a job back at each failure, as a worker of another make may do.
"""

import json
from collections import Counter, defaultdict

import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.leases.failure_policy import AttemptEnd, AttemptFailure, FailurePolicy
from runekeep_server.settings import Settings
from runekeep_storage.database import Database, Space
from runekeep_storage.jobs import claiming, jobs, tasks
from runekeep_storage.memories import apply
from runekeep_storage.records import Job, Task
from runekeep_storage.sessions import archives, sessions
from tests.support.storage.databases import ANN, SECOND, TERMS, Clock, claim, commit, prepared, queue, talk

pytestmark = pytest.mark.postgres_long

# One attempt that counts would be the last one.
SETTINGS = Settings(max_attempts=1, max_lost_leases=1, max_conflicts=1)
POLICY = FailurePolicy(SETTINGS)
WAITED_OUT = (pb.FAILURE_CLASS_MODEL_UNAVAILABLE, pb.FAILURE_CLASS_RATE_LIMITED)
SPACES = [Space(f"account-{number % 4}", f"user-{number}") for number in range(24)]
COMMITS = 3
WORKERS = 8
TICK = 5
"""Seconds; each worker takes one job a tick."""
OUTAGE = 600
HOUR, DAY = 3600, 86_400


async def fail(database: Database, job: Job, failure_class: int, retry_after: float = 0.0) -> AttemptEnd:
    return await database.write(
        POLICY.fail, jobs.space_of(job), job.lease, AttemptFailure(failure_class, "it is away", retry_after=retry_after)
    )


async def task(database: Database, space: Space, task_id: str) -> Task:
    return await database.read(tasks.get, space, task_id)


async def due(database: Database) -> list[Job]:
    """What the workers take in one tick."""
    taken = []
    while len(taken) < WORKERS and (claimed := await database.write_global(claiming.claim, "w1", TERMS)) is not None:
        taken.append(claimed[0])
    return taken


async def test_ten_minutes_without_a_model_fail_no_commit(database: Database, clock: Clock) -> None:
    names: defaultdict[Space, list[str]] = defaultdict(list)
    for number in range(COMMITS):
        for space in SPACES:
            name = f"{space.user}-{number}"
            await talk(database, space, "chat", f"said {number}")
            await commit(database, space, "chat", name)
            names[space].append(name)
    attempts = Counter[str]()

    for tick in range(OUTAGE // TICK):
        for job in await due(database):
            attempts[job.job_id] += 1
            ended = await fail(database, job, WAITED_OUT[(tick + attempts[job.job_id]) % 2])
            assert not ended.given_up
        clock.advance(TICK)

    # Every lane was tried, less and less often; only heads of lanes are.
    assert set(attempts) == {ours[0] for ours in names.values()}
    assert all(2 <= count <= 20 for count in attempts.values()), attempts
    for space in SPACES:
        first, *others = [await task(database, space, name) for name in names[space]]
        assert first.state == "pending" and json.loads(first.error)["message"] == "it is away"
        assert {other.state for other in others} == {"pending"}
        session = await database.read(sessions.get, space, "chat")
        kept = await database.read(sessions.messages_between, space, "chat", 1, session.last_sequence, 100)
        assert [message.parts[0]["text"] for message in kept] == [f"said {number}" for number in range(COMMITS)]

    applied: defaultdict[Space, list[str]] = defaultdict(list)
    ticks = 0
    while sum(map(len, applied.values())) < len(SPACES) * COMMITS:
        for job in await due(database):
            await database.write(apply.apply, jobs.space_of(job), prepared(job.lease, output_id=job.job_id))
            applied[jobs.space_of(job)].append(job.job_id)
        clock.advance(TICK)
        ticks += 1
        # Then the longest wait of a head is over, and the workers had a tick for each job.
        assert ticks <= (SETTINGS.backoff_max_seconds // TICK) + len(SPACES) * COMMITS

    assert applied == names, "each commit once, and in the order of its lane"
    for space in SPACES:
        for revision, name in enumerate(names[space], 1):
            done = await task(database, space, name)
            assert (done.state, done.error) == ("completed", "")
            assert (await database.read_global(jobs.get, name)).revision == revision
            assert (await database.read(archives.get, space, "chat", revision)).state == "done"


@pytest.mark.parametrize("failure_class", WAITED_OUT)
async def test_an_outage_of_more_than_a_day_is_a_failure_that_says_so(
    database: Database, clock: Clock, failure_class: int
) -> None:
    for name in ("t1", "t2"):
        await queue(database, ANN, name)
        clock.advance(1)
    for _ in range(30):
        clock.advance(SETTINGS.backoff_max_seconds)
        assert not (await fail(database, await claim(database), failure_class)).given_up
    clock.advance(DAY)

    ended = await fail(database, await claim(database), failure_class)

    assert ended.given_up
    failed = await task(database, ANN, "t1")
    assert (failed.state, json.loads(failed.result)["outcome"]) == ("failed", "given_up")
    error = json.loads(failed.error)
    assert error["class"] == pb.FailureClass.Name(failure_class).removeprefix("FAILURE_CLASS_").lower()  # type: ignore[arg-type]  # a number of the enum
    assert (await database.read(archives.get, ANN, "s-t1", 1)).state == "failed"
    # The next of its lane has its turn, and whoever has waited for the model in vain may have it tried again.
    following = await claim(database)
    assert following.job_id == "t2"
    await database.write(apply.apply, jobs.space_of(following), prepared(following.lease))
    await database.write(jobs.retry, ANN, "t1")
    again = await claim(database)
    assert not (await fail(database, again, failure_class)).given_up, "its age counts from the retry"
    clock.advance(SETTINGS.backoff_max_seconds)
    await database.write(apply.apply, ANN, prepared((await claim(database)).lease))
    assert (await task(database, ANN, "t1")).state == "completed"


@pytest.mark.parametrize("seconds", [30.0, HOUR])
async def test_a_wait_that_the_provider_names_is_kept_to_the_second(
    database: Database, clock: Clock, seconds: float
) -> None:
    await queue(database, ANN, "t1")
    for _ in range(3):
        failed_at = clock.now
        await fail(database, await claim(database), pb.FAILURE_CLASS_RATE_LIMITED, seconds)
        clock.now = failed_at + round(seconds * SECOND) - 1
        assert await due(database) == []
        clock.now += 1
    job = await claim(database)
    assert job.attempts == 1, "none of them counted"


async def test_the_end_of_an_outage_makes_those_jobs_due_that_waited_for_that_part(
    database: Database, clock: Clock
) -> None:
    """Wakes jobs whatever their delay. A message that looks like the end of a failure does not wake its job."""
    fake = 'x", "waiting_for": "index"}]'
    waits = {
        "index": (pb.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE, "it is away", "index"),
        "index too": (pb.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE, fake, "index"),
        "blobs": (pb.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE, fake, "blobs"),
        "model": (pb.FAILURE_CLASS_MODEL_UNAVAILABLE, fake, ""),
    }
    for number, name in enumerate(waits):
        await queue(database, SPACES[number], name)
    for job in await due(database):
        failure_class, message, part = waits[job.job_id]
        failure = AttemptFailure(failure_class, message, retry_after=2.0 * HOUR, waiting_for=part)
        await database.write(POLICY.fail, jobs.space_of(job), job.lease, failure)
    clock.advance(HOUR)
    assert await due(database) == []

    assert await database.write_global(jobs.end_wait, "index", 1) == 1
    assert await database.write_global(jobs.end_wait, "index", 1) == 1
    assert await database.write_global(jobs.end_wait, "index", 1) == 0

    assert {job.job_id for job in await due(database)} == {"index", "index too"}
    assert await database.write_global(jobs.end_wait, "blobs") == 1
    assert [job.job_id for job in await due(database)] == ["blobs"]
    clock.advance(HOUR)
    assert [job.job_id for job in await due(database)] == ["model"]
