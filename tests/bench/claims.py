"""Claims of jobs: how many a second, with few and with many jobs pending, on both stores.

    python -m tests.bench.claims [--pending 100 100000] [--repeats 7] [--stores sqlite postgres]

A thousand accounts of weights 1 to 4, one of which has half of all jobs. Everything is written and claimed by the
store's own functions. SQLite is a file with synchronous=FULL and claimed in one process, as by one server; PostgreSQL
runs with fsync and synchronous_commit on, and is claimed by up to two processes, as by two servers. Beside them stands
what the same driver gives for a transaction of one indexed UPDATE ... RETURNING, the floor of any claim. All stores of
a kind are filled first and then measured in turns, so that ratios between them hold on a machine that is not quiet.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import Progress

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.postgres.driver import PostgresDatabase
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.jobs import claiming, jobs, tasks
from runekeep_storage.jobs.jobs import LeaseTerms
from runekeep_storage.records import Job
from runekeep_storage.spaces import spaces
from tests.bench.figures import ratio
from tests.support.postgres import PostgresServer

ACCOUNTS = 1000
WEIGHTS = (1, 2, 3, 4)
JOBS_A_LANE = 5
FILL_BATCH = 500
CLAIMS = 100
"""Jobs claimed between two clean-ups, which are not timed: as many as the small store has."""
ROUNDS = 6
"""Of CLAIMS each in one measurement: all actions on all stores by turns, that they have the same slow seconds of the
machine."""
FLOORS = 3
"""Times CLAIMS in each round, since a floor is over that much sooner."""
FAIR_CLAIMS = 5000
SIZES = (1, 4)
"""Claimers side by side."""
TERMS = LeaseTerms(first=3_600_000_000, renewed=3_600_000_000, attempt=3_600_000_000)

Action = Callable[[Database, int], Awaitable[list[str]]]


# What is measured


async def claim(database: Database, times: int) -> list[str]:
    """Ids of the jobs that were leased; as many as asked for."""
    leased = []
    for _ in range(times):
        claimed = await database.write_global(claiming.claim, "bench", TERMS)
        assert claimed is not None, "nothing is due"
        leased.append(claimed[0].job_id)
    return leased


async def claim_and_succeed(database: Database, times: int) -> list[str]:
    ended = []
    for _ in range(times):
        claimed = await database.write_global(claiming.claim, "bench", TERMS)
        assert claimed is not None, "nothing is due"
        await database.write(succeed, jobs.space_of(claimed[0]), claimed[0])
        ended.append(claimed[0].job_id)
    return ended


async def succeed(tx: Tx, space: Space, job: Job) -> None:
    await jobs.succeed(tx, job, "out", 1, {})


async def poll(database: Database, times: int) -> list[str]:
    """What each server does every second while nothing is due."""
    for _ in range(times):
        assert await database.write_global(claiming.claim, "bench", TERMS) is None
    return []


async def floor(database: Database, times: int) -> list[str]:
    async def update(tx: Tx, number: int) -> None:
        await tx.fetchrow("UPDATE bench_floor SET n = n + 1 WHERE id = $1 RETURNING n", number)

    for _ in range(times):
        await database.write_global(update, time.monotonic_ns() % ACCOUNTS)
    return []


ACTIONS: dict[str, Action] = {
    "claim": claim,
    "claim + succeed": claim_and_succeed,
    "floor": floor,
    "poll": poll,
}


async def side_by_side(database: Database, action: str, claimers: int, times: int) -> list[str]:
    """`times` in all, shared among the claimers of this process."""
    done = await asyncio.gather(*(ACTIONS[action](database, times // claimers) for _ in range(claimers)))
    return [job_id for ids in done for job_id in ids]


# Who measures


class Team(Protocol):
    """Claimers that begin together."""

    async def run(self, action: str, times: int) -> list[str]: ...


@dataclass(frozen=True)
class OneProcess:
    database: Database
    claimers: int

    async def run(self, action: str, times: int) -> list[str]:
        return await side_by_side(self.database, action, self.claimers, times)


@dataclass(frozen=True)
class Processes:
    """The same number of claimers in each process. `connections` lead to those that run `claimer_process`."""

    connections: Sequence[Connection]
    claimers: int

    async def run(self, action: str, times: int) -> list[str]:
        for connection in self.connections:
            connection.send((action, self.claimers // len(self.connections), times // len(self.connections)))
        return [job_id for connection in self.connections for job_id in connection.recv()]


def claimer_process(url: str, connection: Connection) -> None:
    database = PostgresDatabase(url)
    with asyncio.Runner() as runner:
        runner.run(database.open())
        while (order := connection.recv()) is not None:
            runner.run(_answer(database, connection, *order))
        runner.run(database.close())


async def _answer(database: Database, connection: Connection, *order: Any) -> None:
    connection.send(await side_by_side(database, *order))


@contextmanager
def processes(url: str, count: int) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    ends = []
    for _ in range(count):
        here, there = context.Pipe()
        process = context.Process(target=claimer_process, args=(url, there), daemon=True)
        process.start()
        ends.append((process, here))
    try:
        yield [here for _, here in ends]
    finally:
        for process, here in ends:
            here.send(None)
            process.join(30)


# The stores


@dataclass
class Filled:
    """A store and what is still pending in it."""

    database: Database
    pending: int
    teams: dict[int, Team]
    made: int = 0


def account_of(number: int, jobs_in_all: int) -> str:
    """Half of all jobs are of one account; the others take turns. With few jobs each is of an account of its own."""
    if jobs_in_all > ACCOUNTS and number % 2:
        return "account-0000"
    return f"account-{number // 2 % ACCOUNTS if jobs_in_all > ACCOUNTS else number % ACCOUNTS:04}"


async def enqueue(tx: Tx, first: int, count: int, jobs_in_all: int) -> None:
    for number in range(first, first + count):
        # Lanes of a user of their own, JOBS_A_LANE in each.
        space = Space(account_of(number, jobs_in_all), f"user-{number // (2 * ACCOUNTS * JOBS_A_LANE)}-{number % 97}")
        await spaces.ensure(tx, space)
        await tasks.create(tx, space, f"job-{number}", "commit", "")
        await jobs.enqueue(
            tx, space, f"job-{number}", kind="commit", lane="commits", session_id="", archive_index=0, plan="{}",
            traceparent="",
        )  # fmt: skip


async def prepare(tx: Tx) -> None:
    """The accounts, those without jobs too, and the table of the floor."""
    for number in range(ACCOUNTS):
        await spaces.ensure(tx, Space(f"account-{number:04}", "nobody"))
        weight = WEIGHTS[number % len(WEIGHTS)]
        await tx.execute("UPDATE accounts SET weight = $2 WHERE account = $1", f"account-{number:04}", weight)
    await tx.execute("CREATE TABLE bench_floor (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)")
    for number in range(ACCOUNTS):
        await tx.execute("INSERT INTO bench_floor (id, n) VALUES ($1, 0)", number)


async def fill(store: Filled, progress: Progress) -> None:
    await store.database.write_global(prepare)
    bar = progress.add_task(f"filling, {store.pending:,} jobs", total=store.pending)
    while store.made < store.pending:
        count = min(FILL_BATCH, store.pending - store.made)
        await store.database.write_global(enqueue, store.made, count, store.pending)
        store.made += count
        progress.advance(bar, count)
    progress.remove_task(bar)


async def restore(store: Filled, action: str, ids: list[str]) -> None:
    """Makes the store as full as it was."""

    async def release(tx: Tx) -> None:
        for job_id in ids:
            await jobs.requeue(tx, await jobs.get(tx, job_id), None, delay=0, counts=None)

    if action == "claim":
        await store.database.write_global(release)
    elif action == "claim + succeed":
        await store.database.write_global(enqueue, store.made, len(ids), store.pending)
        store.made += len(ids)


# Measurements


@dataclass(frozen=True)
class Figure:
    store: str
    pending: int
    action: str
    claimers: int
    rates: list[float]
    """A second, one a repetition."""

    @property
    def median(self) -> float:
        return statistics.median(self.rates)


async def measure(stores: Sequence[Filled], size: int, actions: Sequence[str]) -> list[float]:
    """Times a second over ROUNDS, by action and then by store."""
    cases = [(action, store) for action in actions for store in stores]
    seconds = [0.0] * len(cases)
    for _ in range(ROUNDS):
        for number, (action, store) in enumerate(cases):
            began = time.perf_counter()
            ids = await store.teams[size].run(action, _times(action))
            seconds[number] += time.perf_counter() - began
            await restore(store, action, ids)
    return [ROUNDS * _times(action) / taken for (action, _), taken in zip(cases, seconds, strict=True)]


def _times(action: str) -> int:
    return CLAIMS * FLOORS if action == "floor" else CLAIMS


async def fairness(store: Filled, progress: Progress) -> float:
    """The largest unfairness seen over any run of claims, as a share of what `claiming.claim` allows; at most 1.

    Only accounts that had something ready all the while are compared, which those of the filled store have.
    """
    weights = {f"account-{number:04}": WEIGHTS[number % len(WEIGHTS)] for number in range(ACCOUNTS)}
    # Of each account's lead over account-0000, in served weights, the least and the most so far.
    served: Counter[str] = Counter()
    lead = dict.fromkeys(weights, (0.0, 0.0))
    big = "account-0000"
    bar = progress.add_task("fairness", total=FAIR_CLAIMS)
    for _ in range(FAIR_CLAIMS):
        claimed = await store.database.write_global(claiming.claim, "bench", TERMS)
        assert claimed is not None
        await store.database.write(succeed, jobs.space_of(claimed[0]), claimed[0])
        account = claimed[0].account
        served[account] += 1
        for other in weights if account == big else (account,):
            now = served[other] / weights[other] - served[big] / weights[big]
            least, most = lead[other]
            lead[other] = (min(least, now), max(most, now))
        progress.advance(bar)
    progress.remove_task(bar)
    assert len(served) == ACCOUNTS, f"{ACCOUNTS - len(served)} accounts were never served"
    return max(
        (most - least) / (1 / weights[other] + 1 / weights[big])
        for other, (least, most) in lead.items()
        if other != big
    )


async def all_wait(tx: Tx) -> None:
    """As in an outage of the model."""
    await tx.execute("UPDATE jobs SET is_ready = 0, not_before = $1 WHERE is_ready = 1", tx.now() + TERMS.attempt)
    await tx.execute("UPDATE accounts SET ready_jobs = 0")


async def bench(name: str, stores: list[Filled], repeats: int, progress: Progress) -> tuple[list[Figure], float | None]:
    for store in stores:
        await fill(store, progress)
    figures = []
    unfair = None
    for actions in (("floor", "claim", "claim + succeed"), ("poll",)):
        if actions == ("poll",):
            # With fewer of them accounts run out of jobs, and have less than their share for good reason.
            if stores[-1].pending >= 20 * ACCOUNTS:
                unfair = await fairness(stores[-1], progress)
            for store in stores:
                await store.database.write_global(all_wait)
        cases = [(store, action, size) for size in SIZES for action in actions for store in stores]
        each: list[list[float]] = []
        bar = progress.add_task(f"{name}: {', '.join(actions)}", total=(repeats + 1) * len(SIZES))
        for _ in range(repeats + 1):
            rates: list[float] = []
            for size in SIZES:
                rates += await measure(stores, size, actions)
                progress.advance(bar)
            each.append(rates)
        progress.remove_task(bar)
        # The first repetition warms up.
        for (store, action, size), found in zip(cases, zip(*each[1:], strict=True), strict=True):
            figures.append(Figure(name, store.pending, action, size, list(found)))
    return figures, unfair


async def sqlite(repeats: int, pending: list[int], progress: Progress) -> tuple[list[Figure], float | None]:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runekeep-bench-")))
        stores = []
        for count in pending:
            database = SqliteDatabase(directory / f"{count}.db")
            await database.open()
            stack.push_async_callback(database.close)
            stores.append(Filled(database, count, {size: OneProcess(database, size) for size in SIZES}))
        return await bench("SQLite", stores, repeats, progress)


async def postgres(repeats: int, pending: list[int], progress: Progress) -> tuple[list[Figure], float | None]:
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(durable_postgres)
        stack.callback(server.stop)
        stores = []
        for count in pending:
            url = server.url(server.create())
            database = PostgresDatabase(url)
            await database.open()
            stack.push_async_callback(database.close)
            connections = stack.enter_context(processes(url, 2))
            teams: dict[int, Team] = {size: Processes(connections[:size], size) for size in SIZES}
            stores.append(Filled(database, count, teams))
        return await bench("PostgreSQL", stores, repeats, progress)


def durable_postgres() -> PostgresServer:
    """The tests' own server, but with every commit forced to disk."""
    server = PostgresServer().start()
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        server.sql(f"ALTER SYSTEM SET {setting} = on")
    server.sql("SELECT pg_reload_conf()")
    return server


# Output


def table(figures: list[Figure]) -> str:
    lines = [
        "| store | claimers | pending | floor /s | claims /s | of floor | of claims with fewer pending |"
        " claim + succeed /s | polls /s, all wait |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    found = {(one.store, one.claimers, one.pending, one.action): one for one in figures}
    fewest = min(one.pending for one in figures)
    for case in sorted({key[:3] for key in found}, key=lambda case: (case[0] != "SQLite", *case[1:])):
        store, claimers, pending = case
        bare, claims, whole, polls = (found[*case, action] for action in ("floor", "claim", "claim + succeed", "poll"))
        against = ratio(claims.rates, found[store, claimers, fewest, "claim"].rates)
        lines.append(
            f"| {store} | {claimers} | {pending:,} | {bare.median:,.0f} | {claims.median:,.0f} |"
            f" {ratio(claims.rates, bare.rates):.2f} | {'' if pending == fewest else f'{against:.2f}'} |"
            f" {whole.median:,.0f} | {polls.median:,.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pending", type=int, nargs="+", default=[100, 100_000])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--stores", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"])
    options = parser.parse_args()
    figures: list[Figure] = []
    worst: dict[str, float] = {}
    loads = [os.getloadavg()[0]]
    with Progress(console=Console(stderr=True)) as progress:
        for name in options.stores:
            run = sqlite if name == "sqlite" else postgres
            made, unfair = asyncio.run(run(options.repeats, sorted(options.pending), progress))
            figures += made
            if unfair is not None:
                worst[made[0].store] = unfair
            loads.append(os.getloadavg()[0])
    print(table(figures))
    print(
        json.dumps(
            {
                "bench": "claims",
                "accounts": ACCOUNTS,
                "processors": os.cpu_count(),
                "load": [round(load, 1) for load in loads],
                "figures": [
                    {
                        "store": one.store,
                        "pending": one.pending,
                        "action": one.action,
                        "claimers": one.claimers,
                        "per_second": round(one.median, 1),
                        "all": [round(rate, 1) for rate in one.rates],
                    }
                    for one in figures
                ],
                "unfairness_of_bound": {store: round(value, 3) for store, value in worst.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
