"""Token budgets: what attempts are given, what is reserved, and that their sum stays within the account's day."""

import asyncio
import random
from typing import Any

import pytest

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.jobs import budgets, claiming, jobs, tasks, token_usage
from runekeep_storage.jobs.budgets import ATTEMPT_TOKENS, TokenLimits
from runekeep_storage.jobs.claiming import HELD, OutOfBudget
from runekeep_storage.jobs.jobs import Failure
from runekeep_storage.records import Job
from tests.support.storage.databases import ANN, CAT, SECOND, TERMS, Clock, queue

DAY = 86_400
FAILED = Failure("invalid_output", "")
SPENT = Failure("out_of_budget", "")


async def due(database: Database, limits: TokenLimits) -> Job | OutOfBudget | None:
    claimed = await database.write_global(claiming.claim, "w", TERMS, limits)
    return claimed[0] if isinstance(claimed, tuple) else claimed


async def given(database: Database, limits: TokenLimits) -> Job:
    job = await due(database, limits)
    assert isinstance(job, Job), job
    return job


async def refused(database: Database, limits: TokenLimits) -> OutOfBudget:
    """A job that may spend nothing, given up as the server does."""

    async def work(tx: Tx) -> OutOfBudget:
        claimed = await claiming.claim(tx, "w", TERMS, limits)
        assert isinstance(claimed, OutOfBudget), claimed
        await jobs.give_up(tx, claimed.job, SPENT, {"outcome": "out_of_budget"})
        return claimed

    return await database.write_global(work)


async def ends(database: Database, job: Job, tokens: int, *, final: bool = False) -> None:
    """The attempt fails, having spent so much."""

    async def work(tx: Tx) -> None:
        held = await jobs.held(tx, job.lease)
        space = jobs.space_of(held)
        await tasks.spent(tx, space, held.job_id, held.token, [used(tokens)] if tokens else [])
        if final:
            await jobs.give_up(tx, held, FAILED, {"outcome": "unparseable"})
        else:
            await jobs.requeue(tx, held, FAILED, delay=0, counts="attempts")

    await database.write_global(work)


def used(tokens: int) -> dict[str, Any]:
    """Spread over all kinds of tokens."""
    kinds = ("input_tokens", "cache_write_tokens", "cache_read_tokens", "output_tokens")
    parts = [tokens // 4] * 3
    return {"model": "m", "phase": "p", "calls": 1, **dict(zip(kinds, [*parts, tokens - sum(parts)], strict=True))}


async def spent(database: Database, account: str = "acme") -> int:
    return await database.read_global(token_usage.spent_today, account)


async def test_without_limits_any_number_may_be_spent(database: Database) -> None:
    await queue(database, ANN, "t1")
    assert (await given(database, TokenLimits())).token_budget is None


@pytest.mark.parametrize("last", [40, 50])
async def test_a_commit_spends_its_budget_over_all_its_attempts_and_anew_when_retried(
    database: Database, last: int
) -> None:
    """To the last token, or beyond: what is spent of more than was given is counted all the same."""
    limits = TokenLimits(commit=100)
    await queue(database, ANN, "t1")
    job = await given(database, limits)
    assert job.token_budget == 100
    await ends(database, job, 60)
    job = await given(database, limits)
    assert job.token_budget == 40
    await ends(database, job, last)
    out = await refused(database, limits)
    assert (out.job.job_id, out.job.started, out.why) == ("t1", 2, budgets.Due.COMMIT_SPENT.value)
    task = await database.read(tasks.get, ANN, "t1")
    assert (task.state, task.attempt) == ("failed", 2)
    assert await spent(database) == 60 + last
    assert await due(database, limits) is None

    await database.write(jobs.retry, ANN, "t1")
    assert (await given(database, limits)).token_budget == 100


async def test_what_is_given_is_reserved_until_the_attempt_ends(database: Database, clock: Clock) -> None:
    limits = TokenLimits(commit=60, account_daily=100)
    for name in ("t1", "t2", "t3"):
        await queue(database, Space("acme", name), name)
    first = await given(database, limits)
    assert first.token_budget == 60
    assert await due(database, limits) is None, "40 are left, and 60 may come back"
    # Of another account, behind one that is held.
    await queue(database, CAT, "cats")
    assert (await given(database, limits)).job_id == "cats"
    await ends(database, first, 10, final=True)
    assert await due(database, limits) is None
    clock.now += HELD
    second = await given(database, limits)
    assert (second.job_id, second.token_budget) == ("t2", 60)
    await ends(database, second, 60, final=True)
    clock.now += HELD
    third = await given(database, limits)
    assert third.token_budget == 30, "the rest of the day's, where nothing more may come back"
    await ends(database, third, 30, final=True)
    assert await spent(database) == 100


async def test_a_day_that_is_spent_refuses_what_is_due_and_the_next_day_does_not(
    database: Database, clock: Clock
) -> None:
    limits = TokenLimits(account_daily=100)
    clock.now = clock.now // (DAY * SECOND) * DAY * SECOND
    await queue(database, ANN, "t1")
    await queue(database, CAT, "cats")
    job = await given(database, limits)
    await ends(database, job, 250, final=True)
    await queue(database, ANN, "t2")
    assert (await given(database, limits)).job_id == "cats"
    out = await refused(database, limits)
    assert (out.job.job_id, out.why) == ("t2", budgets.Due.ACCOUNT_SPENT.value)
    await database.write(jobs.retry, ANN, "t2")
    assert isinstance(await due(database, limits), OutOfBudget)
    clock.advance(DAY)
    assert (await given(database, limits)).token_budget == 100


async def test_over_midnight_nothing_is_given_twice(database: Database, clock: Clock) -> None:
    limits = TokenLimits(commit=60, account_daily=100)
    clock.now = clock.now // (DAY * SECOND) * DAY * SECOND - SECOND
    for name in ("t1", "t2"):
        await queue(database, Space("acme", name), name)
    first = await given(database, limits)
    clock.advance(2)
    assert await due(database, limits) is None, "what is under way counts to the day on which it ends"
    await ends(database, first, 60, final=True)
    clock.now += HELD
    assert (await given(database, limits)).token_budget == 40
    assert await spent(database) == 60


async def test_a_claim_puts_off_so_many_accounts_and_the_next_one_goes_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming, "LOOKED_AT", 2)
    limits = TokenLimits(commit=60, account_daily=100)
    for account in ("a", "b", "c", "d"):
        await queue(database, Space(account, "one"), f"{account}-1")
    for account in ("a", "b", "c", "d"):
        job = await given(database, limits)
        assert job.account == account
        await queue(database, Space(account, "two"), f"{account}-2")
    await ends(database, job, 10, final=True)

    assert await due(database, limits) is None
    assert (await given(database, limits)).job_id == "d-2"
    assert await due(database, limits) is None


async def test_without_a_budget_of_commits_an_attempt_leaves_room_for_others(database: Database) -> None:
    daily = 100 * ATTEMPT_TOKENS
    for number in range(20):
        await queue(database, Space("acme", f"u{number}"), f"t{number}")
    shares = []
    while isinstance(job := await due(database, TokenLimits(account_daily=daily)), Job):
        shares.append(job.token_budget)
    assert shares == [daily // 16] * 16


async def test_however_many_run_at_once_they_do_not_spend_more_than_the_day(database: Database, clock: Clock) -> None:
    """Claims and ends come side by side, of many users; workers keep to what they are given."""
    limits = TokenLimits(commit=30, account_daily=200)
    random.seed(7)
    users = 12
    for number in range(users):
        for commit in range(3):
            await queue(database, Space("acme", f"u{number}"), f"t{number}-{commit}")
    running: list[Job] = []
    for _ in range(200):
        claimed = await asyncio.gather(*(due(database, limits) for _ in range(4)))
        running += [one for one in claimed if isinstance(one, Job)]
        assert await spent(database) + sum(job.token_budget or 0 for job in running) <= 200
        if any(isinstance(one, OutOfBudget) for one in claimed) and await spent(database) == 200:
            break
        ending = [job for job in running if random.random() < 0.4]
        running = [job for job in running if job not in ending]
        await asyncio.gather(
            *(ends(database, job, random.randint(1, job.token_budget or 0), final=random.random() < 0.5)
              for job in ending)
        )  # fmt: skip
        clock.now += HELD
    assert await spent(database) == 200, "all of it may be spent"
