"""Questions as jobs: whom they go to, and what is left of them."""

import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.leases.failure_policy import AttemptFailure, FailurePolicy
from runekeep_server.settings import Settings
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.errors import LeaseLost, NotFound, TooManyQuestions
from runekeep_storage.jobs import asks, claiming, jobs, tasks, token_usage
from runekeep_storage.jobs.budgets import TokenLimits
from runekeep_storage.jobs.claiming import Holder
from runekeep_storage.records import Job
from runekeep_storage.spaces import spaces
from tests.contract.jobs.test_claims import enqueue
from tests.support.storage.databases import SECOND, TERMS, Clock

pytestmark = pytest.mark.postgres_long

ANN = Space("acme", "ann")
BEN = Space("other", "ben")


async def ask(tx: Tx, space: Space, max_open: int = 10) -> str:
    await spaces.ensure(tx, space)
    return await asks.queue(tx, space, "What does Ann drink?", 60 * SECOND, "", max_open)


async def claimed(tx: Tx, without_kind: str = "") -> Job | None:
    found = await claiming.claim(tx, "w1", TERMS, holder=Holder(without_kind=without_kind))
    assert found is None or isinstance(found, tuple)
    return None if found is None else found[0]


async def test_a_worker_that_answers_no_questions_gets_everything_else(database: Database) -> None:
    """Also if an account has nothing but questions, and another account's turn comes later."""

    async def queue(tx: Tx) -> None:
        await ask(tx, ANN)
        await enqueue(tx, ANN, "ann-commit")
        await ask(tx, BEN)

    await database.write_global(queue)
    for expected in ("ann-commit", None):
        job = await database.write_global(claimed, jobs.ASK)
        assert (job.job_id if job else None) == expected
    found = [await database.write_global(claimed) for _ in range(3)]
    assert sorted(job.account for job in found if job is not None) == ["acme", "other"]


async def test_questions_do_not_starve_commits(database: Database) -> None:
    async def queue(tx: Tx) -> None:
        await enqueue(tx, ANN, "ann-commit")
        for _ in range(8):
            await ask(tx, ANN)

    await database.write_global(queue)
    kinds = []
    for _ in range(claiming.MAX_AHEAD + 1):
        job = await database.write_global(claimed)
        assert job is not None
        kinds.append(job.kind)
    assert kinds == [*[jobs.ASK] * claiming.MAX_AHEAD, jobs.COMMIT]


async def test_nothing_is_left_of_a_question_whose_caller_is_gone(database: Database, clock: Clock) -> None:
    """Not of one under way, nor of one that a killed server left behind. Its lease is lost."""
    first = await database.write_global(ask, ANN)
    with pytest.raises(TooManyQuestions):
        await database.write_global(ask, ANN, 1)
    job = await database.write_global(claimed)
    assert job is not None and asks.question_of(job) == "What does Ann drink?"
    await database.write(asks.forget, ANN, first, "hung up")
    with pytest.raises(LeaseLost):
        await database.read_global(jobs.held, job.lease)
    await database.write(asks.forget, ANN, first, "hung up")
    with pytest.raises(NotFound):
        await database.read(tasks.get, ANN, first)
    second = await database.write_global(ask, ANN)
    clock.advance(60)
    assert await database.read_global(asks.stale, 30 * SECOND) == []
    clock.advance(40)
    assert await database.read_global(asks.stale, 30 * SECOND) == [(ANN, second)]
    await database.write(asks.forget, ANN, second, "stale")
    with pytest.raises(NotFound):
        await database.read(tasks.get, ANN, second)
    assert await database.write_global(claimed) is None


async def test_who_asks_and_hangs_up_reaches_the_budget_of_the_account(database: Database) -> None:
    """The worker of a cancelled question does not say what it has spent."""
    limits = TokenLimits(account_daily=500_000)

    async def claim(tx: Tx) -> object:
        return await claiming.claim(tx, "w1", TERMS, limits)

    given = []
    for _ in range(3):
        job_id = await database.write_global(ask, ANN)
        found = await database.write_global(claim)
        assert isinstance(found, tuple)
        given.append(found[0].token_budget)
        await database.write(asks.forget, ANN, job_id, "hung up")
    assert sum(given) == limits.account_daily
    assert await database.read_global(token_usage.spent_today, ANN.account) == limits.account_daily
    await database.write_global(ask, ANN)
    assert isinstance(await database.write_global(claim), claiming.OutOfBudget)


async def test_a_question_that_ran_out_of_time_is_not_asked_again(database: Database) -> None:
    """What is left of its time would not do, and would cost."""
    policy = FailurePolicy(Settings(max_attempts=3))
    await database.write_global(ask, ANN)
    job = await database.write_global(claimed)
    assert job is not None
    failure = AttemptFailure(pb.FAILURE_CLASS_TIME_BUDGET, "the time ran out")
    end = await database.write_global(policy.fail, ANN, job.lease, failure)
    assert end.given_up


async def test_a_question_creates_no_user(database: Database) -> None:
    with pytest.raises(NotFound):
        await database.write(asks.queue, ANN, "What does Ann drink?", SECOND, "", 10)
    assert not await database.read(spaces.exists, ANN)
