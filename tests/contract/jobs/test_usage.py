"""Totals of what models cost: of sessions, users and accounts, each attempt once, whatever is deleted afterwards."""

import json
from typing import Any

import pytest

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.erasure.deletion import delete_session, delete_user
from runekeep_storage.errors import LeaseLost
from runekeep_storage.jobs import jobs, tasks, token_usage
from runekeep_storage.jobs.jobs import Failure
from runekeep_storage.jobs.spending import added
from runekeep_storage.memories import apply
from runekeep_storage.records import Job
from tests.support.storage.databases import ANN, BOB, CAT, SECOND, Clock, claim, prepared, queue

pytestmark = pytest.mark.postgres_long

DAY = 86_400


def used(phase: str, tokens: int, model: str = "m") -> dict[str, Any]:
    counted = {"calls": 1, "input_tokens": tokens, "output_tokens": tokens * 2}
    return {"model": model, "phase": phase, "cache_read_tokens": 0, "cache_write_tokens": 0, **counted}


Sums = dict[tuple[str, str], tuple[int, int, int]]


async def sums(database: Database, account: str, user: str = "", session: str = "", since: int = 0) -> Sums:
    """(calls, input, output) by phase and model."""
    entries = await database.read_global(token_usage.totals, account, user, session, since)
    return {(one["phase"], one["model"]): (one["calls"], one["input_tokens"], one["output_tokens"]) for one in entries}


async def spends(database: Database, space: Space, task_id: str, token: int, *entries: dict[str, Any]) -> None:
    await database.write(tasks.spent, space, task_id, token, list(entries))


async def of_task(database: Database) -> Sums:
    """What the task t1 of ann has spent, as its row tells it."""
    kept = json.loads((await database.read(tasks.get, ANN, "t1")).usage)
    entries = added([*kept["earlier"], *kept["attempt"]])
    return {(one["phase"], one["model"]): (one["calls"], one["input_tokens"], one["output_tokens"]) for one in entries}


async def today(database: Database, account: str) -> int:
    return await database.read_global(token_usage.spent_today, account)


async def test_sums_are_of_the_session_of_the_user_and_of_the_account(database: Database) -> None:
    for space, name in ((ANN, "t1"), (ANN, "t2"), (BOB, "t3"), (CAT, "t4")):
        await queue(database, space, name)
        await spends(database, space, name, 1, used("operations", 10), used("repair", 1, model=space.user))
    one = {("operations", "m"): (1, 10, 20)}
    assert await sums(database, "acme", "ann", "s-t1") == one | {("repair", "ann"): (1, 1, 2)}
    assert await sums(database, "acme", "ann") == {("operations", "m"): (2, 20, 40), ("repair", "ann"): (2, 2, 4)}
    assert await sums(database, "acme") == {
        ("operations", "m"): (3, 30, 60), ("repair", "ann"): (2, 2, 4), ("repair", "bob"): (1, 1, 2),
    }  # fmt: skip
    assert await sums(database, "other") == one | {("repair", "cat"): (1, 1, 2)}
    assert await sums(database, "acme", "cat") == await sums(database, "nobody") == {}
    assert [await today(database, account) for account in ("acme", "other", "nobody")] == [99, 33, 0]


async def test_the_costliest_comes_first(database: Database) -> None:
    await queue(database, ANN, "t1")
    await spends(database, ANN, "t1", 1, used("a", 1), used("b", 3), used("c", 2))
    assert [phase for phase, _ in await sums(database, "acme", "ann")] == ["b", "c", "a"]


async def test_what_an_attempt_tells_again_counts_once_and_attempts_add_up(database: Database) -> None:
    await queue(database, ANN, "t1")
    await spends(database, ANN, "t1", 1, used("operations", 10))
    await spends(database, ANN, "t1", 1, used("operations", 10))
    assert await sums(database, "acme") == {("operations", "m"): (1, 10, 20)}
    await spends(database, ANN, "t1", 1, used("operations", 12), used("repair", 5))
    assert await sums(database, "acme") == {("operations", "m"): (1, 12, 24), ("repair", "m"): (1, 5, 10)}
    await spends(database, ANN, "t1", 3, used("operations", 1))
    # Of an attempt before, told late.
    await spends(database, ANN, "t1", 2, used("operations", 1))
    assert (await sums(database, "acme"))["operations", "m"] == (3, 14, 28)
    assert await of_task(database) == await sums(database, "acme", "ann", "s-t1") == await sums(database, "acme")
    # The one under way tells of itself again.
    await spends(database, ANN, "t1", 3, used("operations", 2), used("repair", 1, model="other"))
    await spends(database, ANN, "t1", 3)
    assert await of_task(database) == await sums(database, "acme")


async def test_a_retry_goes_on_adding_up(database: Database) -> None:
    await queue(database, ANN, "t1")

    async def give_up(tx: Tx, job: Job) -> None:
        await tasks.spent(tx, ANN, job.job_id, job.token, [used("operations", 1)])
        await jobs.give_up(tx, job, Failure("model_unavailable", "try later"), {"outcome": "given_up"})

    for attempt in (1, 2):
        await database.write_global(give_up, await claim(database))
        assert await of_task(database) == {("operations", "m"): (attempt, attempt, 2 * attempt)}
        await database.write(jobs.retry, ANN, "t1")


async def test_an_output_that_is_sent_again_costs_nothing_more(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    output = prepared(job.lease)
    output.usage.append(used("operations", 10))
    assert not (await database.write(apply.apply, ANN, output)).again
    assert (await database.write(apply.apply, ANN, output)).again
    assert await sums(database, "acme") == {("operations", "m"): (1, 10, 20)}


async def test_what_does_not_come_about_costs_nothing(database: Database) -> None:
    await queue(database, ANN, "t1")

    async def dies(tx: Tx) -> None:
        await tasks.spent(tx, ANN, "t1", 1, [used("operations", 10)])
        raise LeaseLost("t1")

    with pytest.raises(LeaseLost):
        await database.write_global(dies)
    assert await sums(database, "acme") == {}
    assert await today(database, "acme") == 0


async def test_days_are_those_of_utc_and_can_be_asked_for(database: Database, clock: Clock) -> None:
    clock.now = clock.now // (DAY * SECOND) * DAY * SECOND - SECOND
    await queue(database, ANN, "t1")
    await spends(database, ANN, "t1", 1, used("operations", 10))
    assert await today(database, "acme") == 30
    clock.advance(1)
    assert await today(database, "acme") == 0
    await spends(database, ANN, "t1", 2, used("operations", 1))
    assert await today(database, "acme") == 3
    since = token_usage.day_of(clock.now)
    assert await sums(database, "acme", "ann", since=since) == {("operations", "m"): (1, 1, 2)}
    assert await sums(database, "acme", "ann", since=since - 1) == {("operations", "m"): (2, 11, 22)}
    # What is taken back of the day before does not make room for more.
    await spends(database, ANN, "t1", 2, used("operations", 0))
    clock.advance(DAY)
    await spends(database, ANN, "t1", 2, used("operations", 7))
    clock.advance(DAY)
    await spends(database, ANN, "t1", 2, used("operations", 0))
    assert await today(database, "acme") == 0


async def test_what_deleted_sessions_and_users_cost_stays_and_names_neither(database: Database) -> None:
    for space, name in ((ANN, "t1"), (ANN, "t2"), (BOB, "t3")):
        await queue(database, space, name)
        await spends(database, space, name, 1, used("operations", 10))
    await database.write(delete_session, ANN, "s-t1", "")
    assert await sums(database, "acme", "ann", "s-t1") == {}
    assert await sums(database, "acme", "ann") == {("operations", "m"): (2, 20, 40)}
    # A refused output tells what it cost after its attempt; its session is not named again.
    await spends(database, ANN, "t1", 1, used("operations", 11))
    assert await sums(database, "acme", "ann") == {("operations", "m"): (2, 21, 42)}
    assert await sums(database, "acme", "ann", "s-t1") == {}

    await database.write(delete_user, ANN, "")
    assert await sums(database, "acme", "ann") == {}
    assert await sums(database, "acme") == {("operations", "m"): (3, 31, 62)}

    async def named(tx: Tx) -> set[tuple[str, str]]:
        return {(row["user_id"], row["session_id"]) for row in await tx.fetch("SELECT * FROM usage_totals")}

    assert await database.read_global(named) == {("", ""), ("bob", ""), ("bob", "s-t3")}


async def test_a_worker_that_tells_nonsense_breaks_no_sum(database: Database) -> None:
    await queue(database, ANN, "t1")
    for token in range(1, 5):
        worst = {**used("operations", 2**63 - 1), "output_tokens": 2**63 - 1, "calls": -1}
        await spends(database, ANN, "t1", token, worst)
    assert await sums(database, "acme") == {("operations", "m"): (0, 4 * token_usage.MOST, 4 * token_usage.MOST)}
    assert await today(database, "acme") == 8 * token_usage.MOST


async def test_what_failed_attempts_cost_is_counted_in_the_transaction_that_ends_them(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)

    async def fail(tx: Tx) -> None:
        held = await jobs.held(tx, job.lease)
        await tasks.spent(tx, ANN, held.job_id, held.token, [used("operations", 10)])
        await jobs.requeue(tx, held, Failure("rate_limited", ""), delay=0, counts=None)

    await database.write_global(fail)
    with pytest.raises(LeaseLost):
        await database.write_global(fail)
    assert await sums(database, "acme") == {("operations", "m"): (1, 10, 20)}
