"""Leases that ran out: those that a worker lost, and those that nobody was there to renew; by a clock of the tests."""

import json

from runekeep_server.extraction.reaper import Reaper
from runekeep_server.leases.failure_policy import AttemptEnd, FailurePolicy
from runekeep_server.settings import Settings
from runekeep_storage.database import Database, Tx
from runekeep_storage.jobs import jobs, tasks
from runekeep_storage.records import Job
from tests.support.storage.databases import ANN, BOB, ON_SQLITE, TERMS, Clock, claim, queue

pytestmark = ON_SQLITE

SETTINGS = Settings(max_lost_leases=1)
"""A lease of 60 s, the first one of 10 s, as TERMS has them; to lose one is the end of the job."""


def reaper(database: Database) -> Reaper:
    return Reaper(database, FailurePolicy(SETTINGS), SETTINGS)


async def serving(server: Reaper, clock: Clock, seconds: float) -> list[str]:
    """Jobs that a server takes back while it serves for so long."""
    taken: list[str] = []
    passed = 0.0
    while passed < seconds:
        clock.advance(SETTINGS.poll_seconds)
        passed += SETTINGS.poll_seconds
        taken += [ended.job.job_id for ended in await server.reap()]
    return taken


async def renewed(database: Database, job: Job) -> None:
    await database.write(jobs.renew, jobs.space_of(job), job.lease, TERMS)


async def test_a_server_that_starts_spares_leases_that_nobody_could_renew(database: Database, clock: Clock) -> None:
    await queue(database, ANN, "t1")
    await queue(database, BOB, "t2")
    alive, dead = await claim(database), await claim(database)
    clock.advance(300)

    server = reaper(database)
    assert await server.reap() == []
    # The one worker comes back within a lease, the other one does not.
    assert await serving(server, clock, 50) == []
    await renewed(database, alive)
    assert await serving(server, clock, 9) == []
    assert await serving(server, clock, 2) == ["t2"]
    assert (await database.read_global(jobs.get, "t1")).lost_leases == 0
    # From then on a lease is a lease.
    assert await serving(server, clock, 60) == ["t1"]
    assert dead.lost_leases == 0


async def test_what_is_claimed_after_the_start_is_taken_back_at_its_end(database: Database, clock: Clock) -> None:
    server = reaper(database)
    await server.reap()
    await queue(database, ANN, "t1")
    await claim(database)

    assert await serving(server, clock, 9) == []
    assert await serving(server, clock, 3) == ["t1"]


async def test_many_that_are_spared_hide_none_that_is_not(database: Database, clock: Clock) -> None:
    """More than a reaper looks at in one go."""
    for number in range(101):
        await queue(database, type(ANN)("acme", f"user-{number}"), f"old-{number}")
        await claim(database)
    clock.advance(100)
    server = reaper(database)
    await server.reap()
    await queue(database, ANN, "new")
    await claim(database)
    assert await serving(server, clock, 12) == ["new"]


async def test_a_server_that_serves_waits_for_no_other(database: Database, clock: Clock) -> None:
    """A worker that lost its server has the others to go to."""
    server = reaper(database)
    await server.reap()
    await queue(database, ANN, "t1")
    await claim(database)
    clock.advance(9)
    await server.reap()
    await reaper(database).reap()
    assert await serving(server, clock, 3) == ["t1"]


async def test_a_server_that_stood_still_or_had_no_store_begins_anew(database: Database, clock: Clock) -> None:
    server = reaper(database)
    await server.reap()
    await queue(database, ANN, "t1")
    job = await claim(database)
    await renewed(database, job)
    # Neither it nor another one came to the store meanwhile.
    clock.advance(100)
    assert await server.reap() == []
    await renewed(database, job)
    assert await serving(server, clock, 59) == []
    assert await serving(server, clock, 3) == ["t1"]


async def test_a_short_gap_is_none(database: Database, clock: Clock) -> None:
    """Else a server that is slow for moments, again and again, would never take anything back."""
    server = reaper(database)
    await queue(database, ANN, "t1")
    await claim(database)
    taken: list[str] = []
    for _ in range(8):
        clock.advance(SETTINGS.first_lease_seconds)
        taken += [ended.job.job_id for ended in await server.reap()]
    assert taken == ["t1"]


async def test_a_reap_that_takes_long_is_no_gap(database: Database, clock: Clock) -> None:
    """Else a server with many leases to take back would spare the next ones for having taken so long."""

    class Slow(FailurePolicy):
        async def reap(
            self, tx: Tx, claimed_since: int = 0, expired_before: int = 0, served_since: int = 0
        ) -> list[AttemptEnd]:
            ended = await super().reap(tx, claimed_since, expired_before, served_since)
            clock.advance(30 if ended else 0)
            return ended

    server = Reaper(database, Slow(SETTINGS), SETTINGS)
    await serving(server, clock, 61)
    for name, space in (("t1", ANN), ("t2", BOB)):
        await queue(database, space, name)
        await claim(database)
        assert await serving(server, clock, 3) == []
    while not (taken := await serving(server, clock, SETTINGS.poll_seconds)):
        pass
    assert taken == ["t1"]
    assert await serving(server, clock, SETTINGS.poll_seconds) == ["t2"]


async def test_a_store_that_goes_away_again_and_again_keeps_no_lease_for_ever(database: Database, clock: Clock) -> None:
    for name, space in (("gone", ANN), ("here", BOB)):
        await queue(database, space, name)
    gone, alive = await claim(database), await claim(database)
    clock.advance(1)
    server = reaper(database)
    await server.reap()
    taken: list[str] = []
    rounds = 0
    while not taken:
        rounds += 1
        assert rounds < 6, "each round serves for 40 s of the two graces of 60 s, after the lease ran out"
        await renewed(database, alive)
        taken += await serving(server, clock, 40)
        clock.advance(SETTINGS.first_lease_seconds + 2)
        await server.reap()
    assert taken == ["gone"] == [gone.job_id]
    assert rounds > 2, "what ran out is spared for two graces of serving"


async def test_a_store_that_is_there_for_moments_alone_keeps_no_lease_for_ever(
    database: Database, clock: Clock
) -> None:
    server = reaper(database)
    await queue(database, ANN, "t1")
    await claim(database)
    taken: list[str] = []
    for _ in range(200):
        clock.advance(100)
        taken += [ended.job.job_id for ended in await server.reap()]
    assert taken == ["t1"]


async def test_an_attempt_whose_time_ran_out_while_the_store_was_away_is_not_counted(
    database: Database, clock: Clock
) -> None:
    """One more counted attempt would be the last, as the second job shows, whose server had its store all the while."""
    server = Reaper(database, FailurePolicy(Settings(max_attempts=1)), SETTINGS)
    await server.reap()
    await queue(database, ANN, "t1")
    held = await claim(database)
    clock.advance(SETTINGS.attempt_seconds + 3600)
    while not await serving(server, clock, SETTINGS.poll_seconds):
        pass
    job = await database.read_global(jobs.get, "t1")
    assert (job.state, job.attempts, job.lost_leases) == ("pending", 0, 0)
    task = await database.read(tasks.get, ANN, "t1")
    assert json.loads(task.error)["class"] == "dependency_unavailable"

    clock.advance(SETTINGS.poll_seconds)
    held = await claim(database)
    for _ in range(round(SETTINGS.attempt_seconds)):
        clock.advance(SETTINGS.poll_seconds)
        if not await server.reap():
            await renewed(database, held)
    clock.advance(SETTINGS.poll_seconds)
    await server.reap()
    assert (await database.read_global(jobs.get, "t1")).state == "failed"
