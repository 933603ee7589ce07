"""Stores for the workers of all servers when each was seen, which jobs it lost, and until when it is paused.

Workers are no user's data, so no statement here is confined to an account.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from storage.database import Row, Tx
from storage.records import Job
from storage.statement_lists import by_keys, in_rows, rows

MAX_LOST: Final = 16
"""Lost jobs that are stored for a worker, the latest."""
MAX_LOSERS: Final = 16
"""Workers that are stored for a job, those that lost it last."""
MAX_READ: Final = 1000
"""Workers that one statement reads, the most recently seen."""

_STANDING = "holder, worker_id, lost, pauses, paused_until, worked_at, accounts"


@dataclass(frozen=True, slots=True)
class WorkerId:
    """`holder`: the worker's principal; `name`: the name that it gives itself. An empty name means all workers of the
    principal together."""

    holder: str
    name: str

    @property
    def principal(self) -> "WorkerId":
        return WorkerId(self.holder, "")


@dataclass(frozen=True, slots=True)
class LostJob:
    """`is_latest`: the worker has completed no job since it lost this one."""

    job_id: str
    is_latest: bool


@dataclass(frozen=True, slots=True)
class WorkerStanding:
    """`lost`: jobs that the worker lost and has not made up for, oldest first; `pauses`: how many in a row;
    `paused_until` in microseconds; `has_worked`: it has completed a job before; `accounts`: those whose jobs it may
    get, empty for all.
    """

    worker: WorkerId
    lost: tuple[LostJob, ...] = ()
    pauses: int = 0
    paused_until: int = 0
    has_worked: bool = False
    accounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loser:
    """A worker that lost a job; `times`: how often that counts against the job."""

    worker: WorkerId
    times: int


def worker_of(job: Job) -> WorkerId:
    """Returns the worker that has the job's current lease."""
    return WorkerId(job.holder if job.bound_token == job.token else "", job.worker_id)


def losers_of(job: Job) -> list[Loser]:
    entries = json.loads(job.lost_by) if job.lost_by else []
    return [Loser(WorkerId(holder, name), times) for holder, name, times in entries]


def losers_json(losers: Collection[Loser]) -> str:
    return json.dumps([[one.worker.holder, one.worker.name, one.times] for one in list(losers)[-MAX_LOSERS:]])


async def read(tx: Tx, workers: Iterable[WorkerId]) -> dict[WorkerId, WorkerStanding]:
    """Returns the standing of each of these workers."""
    wanted = list(dict.fromkeys(workers))
    found = {worker: WorkerStanding(worker) for worker in wanted}
    for some in in_rows(wanted):
        values = [value for worker in some for value in (worker.holder, worker.name)]
        statement = by_keys(f"SELECT {_STANDING} FROM workers WHERE 1 = 1", ("holder", "worker_id"), len(some), 1)
        found |= {standing.worker: standing for standing in map(_standing, await tx.fetch(statement, *values))}
    return found


async def write(tx: Tx, standing: WorkerStanding) -> None:
    lost = [[one.job_id, int(one.is_latest)] for one in standing.lost[-MAX_LOST:]]
    await tx.execute(
        "INSERT INTO workers (holder, worker_id, lost, pauses, paused_until, seen_at) VALUES ($1, $2, $3, $4, $5, $6)"
        " ON CONFLICT (holder, worker_id) DO UPDATE SET lost = excluded.lost, pauses = excluded.pauses,"
        " paused_until = excluded.paused_until, seen_at = excluded.seen_at",
        standing.worker.holder,
        standing.worker.name,
        json.dumps(lost) if lost else "",
        standing.pauses,
        standing.paused_until,
        tx.now(),
    )


async def note_worked(tx: Tx, worker: WorkerId) -> None:
    """Records that the worker completed a job now."""
    await tx.execute(
        "INSERT INTO workers (holder, worker_id, seen_at, worked_at) VALUES ($1, $2, $3, $3)"
        " ON CONFLICT (holder, worker_id) DO UPDATE SET seen_at = excluded.seen_at, worked_at = excluded.worked_at",
        worker.holder,
        worker.name,
        tx.now(),
    )


async def that_lost(tx: Tx) -> tuple[int, list[WorkerStanding]]:
    """Returns the store's time, and the workers that lost jobs and have not made up for all of them."""
    found = await tx.fetch(f"SELECT {_STANDING} FROM workers WHERE lost <> '' ORDER BY seen_at DESC LIMIT $1", MAX_READ)
    return tx.now(), [_standing(row) for row in found]


async def note_seen(tx: Tx, workers: Mapping[WorkerId, tuple[str, ...]]) -> None:
    """Records that these workers are connected, each with the accounts whose jobs it may get; an empty tuple means
    all."""
    now = tx.now()
    # All servers write in the same order, so that concurrent writes do not deadlock.
    for some in in_rows(sorted(workers.items(), key=lambda one: (one[0].holder, one[0].name))):
        values = [
            value
            for worker, accounts in some
            for value in (worker.holder, worker.name, json.dumps(accounts) if accounts else "")
        ]
        await tx.execute(
            f"INSERT INTO workers (holder, worker_id, accounts, seen_at) VALUES {rows('(?, ?, ?, $1)', len(some), 2)}"
            " ON CONFLICT (holder, worker_id) DO UPDATE SET seen_at = excluded.seen_at, accounts = excluded.accounts",
            now,
            *values,
        )


async def note_gone(tx: Tx, workers: Collection[WorkerId], moment: int) -> None:
    """Records that these workers left: they were last seen at that moment."""
    for some in in_rows(sorted(set(workers), key=lambda one: (one.holder, one.name))):
        values = [value for worker in some for value in (worker.holder, worker.name)]
        await tx.execute(
            f"UPDATE workers SET seen_at = $1 FROM (VALUES {rows('(?, ?)', len(some), 2)}) AS k"
            " WHERE holder = k.column1 AND worker_id = k.column2 AND seen_at > $1",
            moment,
            *values,
        )


async def seen_since(tx: Tx, moment: int) -> list[WorkerStanding]:
    """Returns workers, not principals, that were seen at that time or later."""
    found = await tx.fetch(
        f"SELECT {_STANDING} FROM workers WHERE seen_at >= $1 AND worker_id <> '' ORDER BY seen_at DESC LIMIT $2",
        moment,
        MAX_READ,
    )
    return [_standing(row) for row in found]


async def forget(tx: Tx, not_since: int, strangers_not_since: int) -> None:
    """Forgets workers that were not seen since then. Workers that never completed or lost a job are forgotten sooner,
    because inventing names costs nothing."""
    await tx.execute(
        "DELETE FROM workers WHERE seen_at < $1 OR (seen_at < $2 AND lost = '' AND worked_at = 0)",
        not_since,
        strangers_not_since,
    )


def _standing(row: Row) -> WorkerStanding:
    entries = json.loads(row["lost"]) if row["lost"] else []
    lost = tuple(LostJob(job_id, bool(latest)) for job_id, latest in entries)
    worker = WorkerId(row["holder"], row["worker_id"])
    return WorkerStanding(
        worker,
        lost,
        row["pauses"],
        row["paused_until"],
        has_worked=row["worked_at"] > 0,
        accounts=tuple(json.loads(row["accounts"])) if row["accounts"] else (),
    )
