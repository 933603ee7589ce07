"""What attempts were made of: kept with the attempt that ends, gone with its session, its user and its task."""

import json

import pytest

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.erasure.deletion import delete_session, delete_user
from runekeep_storage.errors import LeaseLost, NotFound
from runekeep_storage.jobs import extraction_records, jobs, retention
from runekeep_storage.jobs.extraction_records import KEPT, AttemptRecord, Record, pack, unpack
from runekeep_storage.jobs.jobs import Failure
from runekeep_storage.memories import apply
from runekeep_storage.records import Job
from runekeep_storage.spaces import pending_deletions
from runekeep_storage.tables import RECORDS
from tests.support.storage.databases import ANN, BOB, CAT, SECOND, Clock, claim, commit, prepared, queue, talk

pytestmark = pytest.mark.postgres_long

BUSY = Failure("model_unavailable", "try later")
SECRET = "the bassoon is behind the stove"


def made(answer: str, extractor: str = '{"engine": "anthropic"}') -> AttemptRecord:
    call = {"phase": "operations", "model": "m", "prompt_digest": "d", "answer": answer, "stop_reason": "end_turn"}
    return AttemptRecord(extractor, pack([call]), {"preferences": "one", "events": "not of the plan"})


async def applies(database: Database, job: Job, answer: str = SECRET) -> None:
    output = prepared(job.lease, output_id=f"out-{job.job_id}")
    await database.write(
        apply.apply, jobs.space_of(job), apply.PreparedCommit(**{**fields(output), "made": made(answer)})
    )


def fields(output: apply.PreparedCommit) -> dict[str, object]:
    return {name: getattr(output, name) for name in output.__dataclass_fields__}


async def fails(database: Database, job: Job, answer: str, *, final: bool = False) -> None:
    async def work(tx: Tx) -> None:
        held = await jobs.held(tx, job.lease)
        await extraction_records.keep(tx, held, made(answer), BUSY)
        if final:
            await jobs.give_up(tx, held, BUSY, {"outcome": "given_up"})
        else:
            await jobs.requeue(tx, held, BUSY, delay=0, counts="attempts")

    await database.write_global(work)


async def record(database: Database, space: Space, task_id: str) -> list[Record]:
    return await database.read(extraction_records.of_task, space, task_id)


def answers(records: list[Record]) -> list[tuple[int, str]]:
    return [(one.number, unpack(one.calls)[0]["answer"]) for one in records]


async def rows(database: Database) -> int:
    async def work(tx: Tx) -> int:
        return len(await tx.fetch("SELECT number FROM extraction_records"))

    return await database.read_global(work)


async def test_each_attempt_that_ends_is_recorded_with_what_it_was_made_of(database: Database, clock: Clock) -> None:
    await queue(database, ANN, "t1")
    await fails(database, await claim(database), "no JSON")
    clock.advance(5)
    job = await claim(database)
    await applies(database, job)

    failed, applied = await record(database, ANN, "t1")
    assert answers([failed, applied]) == [(1, "no JSON"), (2, SECRET)]
    assert json.loads(failed.failure) == BUSY.as_json() and applied.failure == ""
    assert (applied.ended_at, failed.ended_at) == (clock.now, clock.now - 5 * SECOND)
    assert json.loads(applied.type_digests) == {"preferences": "one"}, "of types that it could write alone"
    assert (applied.base_revision, applied.extractor) == (0, '{"engine": "anthropic"}')


async def test_what_an_attempt_tells_again_takes_the_place_of_what_it_told(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)

    async def asked(tx: Tx) -> None:
        await extraction_records.keep(tx, await jobs.held(tx, job.lease), made("refused"), BUSY)

    await database.write_global(asked)
    assert answers(await record(database, ANN, "t1")) == [(1, "refused")]
    await applies(database, job)
    await applies(database, job, "sent again")
    assert [(one.number, one.failure) for one in await record(database, ANN, "t1")] == [(1, "")]
    assert answers(await record(database, ANN, "t1")) == [(1, SECRET)]


async def test_a_transaction_that_does_not_come_about_records_nothing(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    await fails(database, job, "first")
    with pytest.raises(LeaseLost):
        await applies(database, job)
    assert answers(await record(database, ANN, "t1")) == [(1, "first")]


async def test_a_retried_task_counts_on_and_keeps_its_newest_attempts(database: Database) -> None:
    await queue(database, ANN, "t1")
    for number in range(KEPT + 1):
        await fails(database, await claim(database), f"a{number}", final=number == 3)
        if number == 3:
            await database.write(jobs.retry, ANN, "t1")
    kept = [(number + 1, f"a{number}") for number in range(1, KEPT + 1)]
    assert answers(await record(database, ANN, "t1")) == kept


async def test_what_is_told_late_of_an_attempt_completes_its_record_and_makes_none(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    await fails(database, job, "")
    await database.write(extraction_records.complete, ANN, job.lease, made("told late"))
    assert answers(await record(database, ANN, "t1")) == [(1, "told late")]
    later = await claim(database)
    await database.write(extraction_records.complete, ANN, later.lease, made("of nothing"))
    await database.write(extraction_records.complete, BOB, job.lease, made("of another"))
    assert answers(await record(database, ANN, "t1")) == [(1, "told late")]


async def test_records_of_tasks_that_are_forgotten_go_a_few_at_once(database: Database, clock: Clock) -> None:
    tasks_of_ann = RECORDS // KEPT + 1
    for number in range(tasks_of_ann):
        await queue(database, ANN, f"t{number}")
        for attempt in range(1, KEPT + 1):
            await fails(database, await claim(database), "no", final=attempt == KEPT)
    clock.advance(10)
    before = await rows(database)
    assert before == tasks_of_ann * KEPT

    gone = 0
    while before:
        gone += await database.write_global(retention.forget_ended, SECOND)
        assert before > await rows(database) >= before - RECORDS
        before = await rows(database)
    assert gone == tasks_of_ann


async def test_nobody_else_reads_a_record(database: Database) -> None:
    await queue(database, ANN, "t1")
    await applies(database, await claim(database))
    for stranger in (BOB, CAT, Space("other", "ann")):
        with pytest.raises(NotFound):
            await record(database, stranger, "t1")


@pytest.mark.parametrize("whole", ["session", "user"])
async def test_a_record_is_unreadable_with_the_deletion_and_its_rows_follow(database: Database, whole: str) -> None:
    more = RECORDS + 3
    for number in range(more):
        await talk(database, ANN, "s", f"words {number}")
        await commit(database, ANN, "s", f"t{number}")
        await applies(database, await claim(database))
    await queue(database, BOB, "bobs")
    await applies(database, await claim(database))

    if whole == "session":
        await database.write(delete_session, ANN, "s", "")
    else:
        await database.write(delete_user, ANN, "")

    assert await rows(database) == 3 + 1, "some rows stand yet"
    for number in range(more):
        with pytest.raises(NotFound):
            await record(database, ANN, f"t{number}")
    while await database.write(pending_deletions.clear, ANN):
        pass
    assert await rows(database) == 1
    assert answers(await record(database, BOB, "bobs")) == [(1, SECRET)]


async def test_a_session_of_the_same_name_shows_nothing_of_the_one_before(database: Database) -> None:
    await talk(database, ANN, "s", "hello")
    await commit(database, ANN, "s", "old")
    await applies(database, await claim(database))
    await database.write(delete_session, ANN, "s", "")
    await talk(database, ANN, "s", "hello again")
    await commit(database, ANN, "s", "new")
    await applies(database, await claim(database), "new")

    with pytest.raises(NotFound):
        await record(database, ANN, "old")
    assert answers(await record(database, ANN, "new")) == [(1, "new")]


async def test_a_record_is_kept_no_longer_than_its_task(database: Database, clock: Clock) -> None:
    for name in ("old", "young"):
        await queue(database, ANN, name)
        await applies(database, await claim(database))
        clock.advance(86_400)
    assert await database.write_global(retention.forget_ended, 86_400 * SECOND) == 1
    with pytest.raises(NotFound):
        await record(database, ANN, "old")
    assert await rows(database) == 1 == len(await record(database, ANN, "young"))
