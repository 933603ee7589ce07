"""What a claim costs whatever is queued, and whose turn it is, on every driver."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.jobs import claiming, jobs, tasks
from runekeep_storage.jobs.jobs import Failure
from runekeep_storage.records import Job
from runekeep_storage.spaces import spaces
from tests.support.storage.databases import SECOND, TERMS, Clock, NewStore, claim
from tests.support.storage.query_costs import Cost, Measured, assert_as_cheap

ACCOUNTS = 1000
FEW, MANY = 100, 20_000
AWAY = Failure("model_unavailable", "the model is away")
NEXT = Space("account-0", "user-1")

# Jobs as `enqueue` makes them, each in a lane of its own; $1 of them, of up to ACCOUNTS accounts.
NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST($1 AS BIGINT))"
ACCOUNT = f"'account-' || CAST((i - 1) % {ACCOUNTS} AS TEXT), 'user-' || CAST(i AS TEXT)"


async def fill(tx: Tx, count: int, *, state: str, not_before: int) -> None:
    """`count` heads: `ready`, `leased`, or `waiting` until `not_before`, as after a failure."""
    await tx.execute(
        f"{NUMBERS} INSERT INTO accounts (account) SELECT 'account-' || CAST(i - 1 AS TEXT) FROM n",
        min(count, ACCOUNTS),
    )
    await tx.execute(f"{NUMBERS} INSERT INTO spaces (account, user_id) SELECT {ACCOUNT} FROM n", count)
    await tx.execute(
        f"{NUMBERS} INSERT INTO tasks (account, user_id, task_id, state, last_event)"
        f" SELECT {ACCOUNT}, 'job-' || CAST(i AS TEXT), 'pending', 1 FROM n",
        count,
    )
    await tx.execute(
        f"{NUMBERS} INSERT INTO jobs (account, user_id, job_id, lane, lane_sequence, state, is_head, is_ready,"
        f" not_before, lease_expires, created_at) SELECT {ACCOUNT}, 'job-' || CAST(i AS TEXT), 'commits', 1, $2, 1,"
        " CAST($3 AS BIGINT), CAST($4 AS BIGINT) + i, CAST($5 AS BIGINT), i FROM n",
        count,
        "leased" if state == "leased" else "pending",
        int(state == "ready"),
        not_before,
        tx.now() + TERMS.renewed,
    )
    await tx.execute(
        "UPDATE accounts SET ready_jobs ="
        " (SELECT COUNT(*) FROM jobs WHERE jobs.account = accounts.account AND is_ready = 1)"
    )


async def old_jobs(tx: Tx, space: Space, count: int) -> None:
    """Jobs of the lane that ended long ago."""
    await tx.execute(
        f"{NUMBERS} INSERT INTO jobs (account, user_id, job_id, lane, lane_sequence, state)"
        " SELECT $2, $3, 'old-' || CAST(i AS TEXT), 'commits', i - 100000, 'succeeded' FROM n",
        count,
        space.account,
        space.user,
    )


async def enqueue(tx: Tx, space: Space, job_id: str) -> None:
    await spaces.ensure(tx, space)
    await tasks.create(tx, space, job_id, "commit", "")
    await jobs.enqueue(
        tx, space, job_id, kind="commit", lane="commits", session_id="", archive_index=0, plan="{}", traceparent=""
    )


# What a transaction costs


async def cost_of_claim(database: Database) -> tuple[Cost, Job | None]:
    async def work(tx: Tx) -> tuple[Cost, Job | None]:
        cost = Cost()
        claimed = await claiming.claim(Measured(tx, cost), "w1", TERMS)
        return cost, claimed[0] if claimed else None

    return await database.write_global(work)


async def cost_of_end(database: Database, job: Job) -> Cost:
    async def work(tx: Tx) -> Cost:
        cost = Cost()
        await jobs.succeed(Measured(tx, cost), job, "out", 1, {})
        return cost

    return await database.write_global(work)


async def cost_of_enqueue(database: Database, space: Space, job_id: str) -> Cost:
    async def work(tx: Tx) -> Cost:
        cost = Cost()
        await enqueue(Measured(tx, cost), space, job_id)
        return cost

    return await database.write_global(work)


async def analyze(database: Database) -> None:
    """Tells the planner how large the tables have become, as both engines find out by themselves in time."""

    async def work(tx: Tx) -> None:
        for table in ("accounts", "jobs", "tasks", "spaces"):
            await tx.execute(f"ANALYZE {table}")

    await database.write_global(work)


@asynccontextmanager
async def filled(new_store: NewStore, count: int, state: str = "ready", not_before: int = 0) -> AsyncIterator[Database]:
    database = new_store().connect()
    await database.open()
    try:
        await database.write_global(lambda tx: fill(tx, count, state=state, not_before=not_before))
        await analyze(database)
        yield database
    finally:
        await database.close()


async def test_a_claim_costs_the_same_with_few_and_with_many_jobs_and_reads_by_indexes_alone(
    new_store: NewStore,
) -> None:
    costs = []
    for count in (FEW, MANY):
        async with filled(new_store, count) as database:
            # Not the first one: vacuumed tables and cold caches are no part of this.
            await claim(database)
            cost, job = await cost_of_claim(database)
            assert job is not None
            costs.append(cost)
            await database.write_global(lambda tx: tx.execute("UPDATE accounts SET ahead = $1", claiming.MAX_AHEAD))
            of_a_commit, job = await cost_of_claim(database)
            assert job is not None

    assert_as_cheap(*costs)
    read = [*costs[-1].plans, *of_a_commit.plans]
    plans = "\n".join(read)
    assert "accounts_ready" in plans and "jobs_waiting" in plans and "jobs_ready" in plans
    for line in read:
        assert "TEMP B-TREE" not in line and "Sort" not in line and "Seq Scan" not in line, plans
        # SQLite: the one index that is read from its start on holds only accounts with work, and one row is taken.
        if line.startswith(tuple(f"SCAN {table} " for table in ("accounts", "jobs", "tasks", "spaces"))):
            assert line == "SCAN accounts USING INDEX accounts_ready", plans


@pytest.mark.parametrize("state", ["waiting", "leased"])
async def test_what_is_not_ready_costs_a_claim_nothing(new_store: NewStore, clock: Clock, state: str) -> None:
    """As in an outage of the model, when every worker asks each second and all there is waits; and with accounts that
    have no work."""
    costs = []
    for count in (FEW, MANY):
        async with filled(new_store, count, state, clock.now + 300 * SECOND if state == "waiting" else 0) as database:
            if state == "leased":
                await database.write(enqueue, Space("late", "user"), "late")
            cost, job = await cost_of_claim(database)
            assert (job.job_id if job else "") == ("late" if state == "leased" else "")
            costs.append(cost)

    assert_as_cheap(*costs)


async def test_to_queue_and_to_end_a_job_cost_the_same_after_many_others(new_store: NewStore) -> None:
    costs: list[list[Cost]] = []
    for count in (FEW, MANY):
        async with filled(new_store, count) as database:
            await database.write_global(lambda tx, count=count: old_jobs(tx, NEXT, count))
            await analyze(database)
            await database.write(enqueue, NEXT, "next")
            first = await claim(database)
            while first.user != NEXT.user:
                first = await claim(database)
            costs.append([await cost_of_enqueue(database, NEXT, "last"), await cost_of_end(database, first)])
            assert (await database.read_global(jobs.get, "next")).state == "pending"

    for few, many in zip(*costs, strict=True):
        assert_as_cheap(few, many)


# Heads whose wait is over


async def test_heads_wake_when_their_wait_is_over_however_many_there_are(new_store: NewStore, clock: Clock) -> None:
    waiting = 2 * claiming.WOKEN + 50

    async def ready_jobs(tx: Tx) -> tuple[int, int]:
        rows = await tx.fetchrow("SELECT COUNT(*) AS n FROM jobs WHERE is_ready = 1")
        counted = await tx.fetchrow("SELECT SUM(ready_jobs) AS n FROM accounts")
        assert rows is not None and counted is not None
        return rows["n"], counted["n"]

    async with filled(new_store, waiting, "waiting", clock.now) as database:
        assert await database.write_global(claiming.claim, "w1", TERMS) is None
        clock.advance(1)
        assert (await claim(database)).job_id == "job-1", "those that are due longest wake first"
        assert await database.read_global(ready_jobs) == (claiming.WOKEN - 1, claiming.WOKEN - 1)
        served = {(await claim(database)).job_id for _ in range(waiting - 1)}
        assert len(served) == waiting - 1
        assert await database.read_global(ready_jobs) == (0, 0)
        assert await database.write_global(claiming.claim, "w1", TERMS) is None


async def requeue_later(tx: Tx, space: Space, job: Job) -> None:
    await jobs.requeue(tx, job, AWAY, delay=60 * SECOND, counts=None)


# Shares


@dataclass(frozen=True)
class Turn:
    """One claim: who was served, and who had something ready."""

    served: str
    ready: frozenset[str]


WEIGHTS = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 1}
USERS = 4
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), st.sampled_from(sorted(WEIGHTS)), st.integers(1, 12)),
        st.tuples(st.just("claim"), st.integers(1, 15)),
        st.tuples(st.just("claim and wait"), st.integers(1, 4)),
        st.tuples(st.just("time"), st.sampled_from([1, 20, 400])),
    ),
    min_size=8,
    max_size=30,
)


async def play(database: Database, clock: Clock, steps: list[tuple[Any, ...]]) -> list[Turn]:
    """Claimed jobs succeed at once, or wait for a minute as after an outage."""
    turns: list[Turn] = []
    queued = Counter[str]()

    async def weigh(tx: Tx) -> None:
        for account, weight in WEIGHTS.items():
            await spaces.ensure(tx, Space(account, "user-0"))
            await tx.execute("UPDATE accounts SET weight = $2 WHERE account = $1", account, weight)

    async def ready(tx: Tx) -> frozenset[str]:
        rows = await tx.fetch(
            "SELECT DISTINCT account FROM jobs WHERE is_head = 1 AND state = 'pending' AND not_before <= $1", tx.now()
        )
        return frozenset(row["account"] for row in rows)

    await database.write_global(weigh)
    for step, *arguments in steps:
        if step == "enqueue":
            account, count = arguments
            for _ in range(count):
                queued[account] += 1
                space = Space(account, f"user-{queued[account] % USERS}")
                await database.write(enqueue, space, f"{account}-{queued[account]}")
        elif step == "time":
            clock.advance(arguments[0])
        else:
            for _ in range(arguments[0]):
                before = await database.read_global(ready)
                claimed = await database.write_global(claiming.claim, "w1", TERMS)
                assert (claimed is None) == (not before)
                if claimed is None:
                    break
                job = claimed[0]
                turns.append(Turn(job.account, before))
                if step == "claim":
                    await database.write_global(lambda tx, job=job: jobs.succeed(tx, job, "out", 1, {}))
                else:
                    await database.write(requeue_later, jobs.space_of(job), job)
    return turns


def assert_fair(turns: list[Turn]) -> None:
    """The bounds that the docstring of `claim` gives."""
    for one, other in combinations(WEIGHTS, 2):
        bound = 1 / WEIGHTS[one] + 1 / WEIGHTS[other]
        # Runs of claims at all of which both were ready; within one, the range of the lead bounds every window.
        lead, least, most = 0.0, 0.0, 0.0
        for turn in turns:
            if not {one, other} <= turn.ready:
                lead, least, most = 0.0, 0.0, 0.0
                continue
            lead += (turn.served == one) / WEIGHTS[one] - (turn.served == other) / WEIGHTS[other]
            least, most = min(least, lead), max(most, lead)
            assert most - least <= bound + 1e-9, f"{one} and {other}: {most - least} > {bound}"
    for account, weight in WEIGHTS.items():
        passed: defaultdict[str, int] = defaultdict(int)
        for turn in turns:
            if account not in turn.ready or turn.served == account:
                passed.clear()
                continue
            passed[turn.served] += 1
            assert passed[turn.served] <= 1 + WEIGHTS[turn.served] / weight, f"{account} waits for {turn.served}"


def test_no_account_is_starved_and_none_has_more_than_its_share(new_store: NewStore, clock: Clock) -> None:
    on_sqlite = isinstance(new_store().connect(), SqliteDatabase)
    longest: list[int] = [0]

    @settings(max_examples=60 if on_sqlite else 12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps=STEPS)
    def plays(steps: list[tuple[Any, ...]]) -> None:
        async def run() -> list[Turn]:
            stored = new_store()
            database = stored.connect()
            await database.open()
            try:
                return await play(database, clock, steps)
            finally:
                await database.close()
                stored.discard()

        turns = asyncio.run(run())
        longest[0] = max(longest[0], len(turns))
        assert_fair(turns)

    plays()
    assert longest[0] > 20, "too few claims to say anything"
