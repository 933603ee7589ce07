"""Tasks that ended long ago: what goes with them and what stays, on every driver."""

from typing import Any

import pytest

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.errors import LeaseLost, NotFound
from runekeep_storage.jobs import jobs, retention, tasks
from runekeep_storage.memories import apply, memories
from runekeep_storage.sessions import archives
from tests.support.storage.databases import ANN, BOB, CAT, SECOND, Clock, claim, prepared, queue, revise, uri, write

pytestmark = pytest.mark.postgres_long

DAY = 86_400
MONTH = 30 * DAY * SECOND


async def left(database: Database) -> dict[str, set[str]]:
    """Ids of tasks that have rows, by table."""

    async def work(tx: Tx) -> dict[str, set[str]]:
        found = {}
        for table, key in (("tasks", "task_id"), ("task_events", "task_id"), ("jobs", "job_id")):
            found[table] = {row["id"] for row in await tx.fetch(f"SELECT {key} AS id FROM {table}")}
        return found

    return await database.read_global(work)


def all_of(*names: str) -> dict[str, set[str]]:
    return {table: set(names) for table in ("tasks", "task_events", "jobs")}


async def test_a_task_goes_with_its_events_and_its_job_and_what_it_made_stays(database: Database, clock: Clock) -> None:
    await revise(database, ANN, "done", write(ANN, "tea", 0, 1, "green tea"))
    diff = (await database.read(archives.get, ANN, "s-done", 1)).diff
    clock.advance(DAY)
    await queue(database, BOB, "younger")
    await database.write(jobs.cancel, BOB, "younger", "")
    clock.advance(29 * DAY)
    assert await database.write_global(retention.forget_ended, MONTH) == 0

    clock.advance(1)
    assert await database.write_global(retention.forget_ended, MONTH) == 1

    assert await left(database) == all_of("younger")
    with pytest.raises(NotFound):
        await database.read(tasks.get, ANN, "done")
    archive = await database.read(archives.get, ANN, "s-done", 1)
    assert (archive.state, archive.diff, archive.revision, archive.task_id) == ("done", diff, 1, "done")
    assert (await database.read(memories.get, ANN, uri(ANN, "tea"))).content == "green tea"

    async def commits(tx: Tx) -> list[Any]:
        return [tuple(row) for row in await tx.fetch("SELECT revision, job_id FROM commits")]

    assert await database.read_global(commits) == [(1, "done")]


async def test_only_what_has_ended_goes_however_old_the_rest_is(database: Database, clock: Clock) -> None:
    for number, space in enumerate((ANN, ANN, BOB, CAT)):
        await queue(database, space, f"t{number}")
    for number in (0, 3):
        await database.write(jobs.cancel, (ANN, ANN, BOB, CAT)[number], f"t{number}", "")
    clock.advance(31 * DAY)
    # Taken up again, however long ago it had ended.
    await database.write(jobs.retry, CAT, "t3")

    assert await database.write_global(retention.forget_ended, MONTH) == 1

    assert await left(database) == all_of("t1", "t2", "t3")
    served = {(await claim(database)).job_id for _ in range(3)}
    assert served == {"t1", "t2", "t3"}, "lanes go on without the jobs that were before them"


async def test_what_is_asked_of_a_forgotten_task_is_answered_as_of_one_that_never_was(
    database: Database, clock: Clock
) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    output = prepared(job.lease)
    await database.write(apply.apply, ANN, output)
    clock.advance(31 * DAY)
    await database.write_global(retention.forget_ended, MONTH)

    with pytest.raises(LeaseLost):
        await database.write(apply.apply, ANN, output)
    for work in (jobs.retry, tasks.get):
        with pytest.raises(NotFound):
            await database.write(work, ANN, "t1")
    with pytest.raises(NotFound):
        await database.write(jobs.cancel, ANN, "t1", "")
    await queue(database, ANN, "t2")
    assert (await claim(database)).job_id == "t2"


async def test_a_sweep_goes_in_small_steps_oldest_first(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 3)
    names = [f"t{number}" for number in range(7)]
    for number, name in enumerate(names):
        space = Space(f"account-{number % 2}", "ann")
        await queue(database, space, name)
        clock.advance(1)
        await database.write(jobs.cancel, space, name, "")
    clock.advance(31 * DAY)

    for gone in (3, 6, 7):
        assert await database.write_global(retention.forget_ended, MONTH) == gone - (gone - 1) // 3 * 3
        assert await left(database) == all_of(*names[gone:])
