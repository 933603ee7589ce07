"""Stores for all servers when each worker was seen, which jobs it lost, and until when it is paused.

Workers are not user data, so no statement is confined to an account.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from runekeep_storage.database import Row, Tx
from runekeep_storage.drivers.common.statement_lists import in_rows
from runekeep_storage.jobs import statements
from runekeep_storage.records import Job

MAX_LOST: Final = 16
"""Maximum number of lost jobs that are stored for a worker, the latest ones."""
MAX_LOSERS: Final = 16
"""Maximum number of workers that are stored for a job, those that lost it last."""
MAX_READ: Final = 1000
"""Maximum number of workers that one statement reads, the most recently seen."""


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
class WorkerRecord:
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


def dump_losers(losers: Collection[Loser]) -> str:
    return json.dumps([[one.worker.holder, one.worker.name, one.times] for one in list(losers)[-MAX_LOSERS:]])


async def read(tx: Tx, workers: Iterable[WorkerId]) -> dict[WorkerId, WorkerRecord]:
    """Returns the record of each of these workers."""
    wanted = list(dict.fromkeys(workers))
    found = {worker: WorkerRecord(worker) for worker in wanted}
    for some in in_rows(wanted):
        values = [value for worker in some for value in (worker.holder, worker.name)]
        records = map(_record, await tx.fetch(statements.workers(len(some)), *values))
        found |= {record.worker: record for record in records}
    return found


async def write(tx: Tx, record: WorkerRecord) -> None:
    lost = [[one.job_id, int(one.is_latest)] for one in record.lost[-MAX_LOST:]]
    await tx.execute(
        statements.STORE_WORKER,
        record.worker.holder,
        record.worker.name,
        json.dumps(lost) if lost else "",
        record.pauses,
        record.paused_until,
        tx.now(),
    )


async def record_completion(tx: Tx, worker: WorkerId) -> None:
    """Records that the worker completed a job now."""
    await tx.execute(statements.STORE_COMPLETION, worker.holder, worker.name, tx.now())


async def read_losers(tx: Tx) -> tuple[int, list[WorkerRecord]]:
    """Returns the store's time, and the workers that lost jobs and have not made up for all of them."""
    found = await tx.fetch(statements.LOSERS, MAX_READ)
    return tx.now(), [_record(row) for row in found]


async def record_seen(tx: Tx, workers: Mapping[WorkerId, tuple[str, ...]]) -> None:
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
        await tx.execute(statements.store_seen(len(some)), now, *values)


async def record_gone(tx: Tx, workers: Collection[WorkerId], moment: int) -> None:
    """Records that these workers left: they were last seen at that moment."""
    for some in in_rows(sorted(set(workers), key=lambda one: (one.holder, one.name))):
        values = [value for worker in some for value in (worker.holder, worker.name)]
        await tx.execute(statements.store_gone(len(some)), moment, *values)


async def seen_since(tx: Tx, moment: int) -> list[WorkerRecord]:
    """Returns workers, not principals, that were seen at that time or later."""
    found = await tx.fetch(statements.WORKERS_SEEN_SINCE, moment, MAX_READ)
    return [_record(row) for row in found]


async def forget(tx: Tx, not_since: int, strangers_not_since: int) -> None:
    """Forgets workers that were not seen since then. Workers that never completed or lost a job are forgotten sooner,
    because inventing names costs nothing."""
    await tx.execute(statements.FORGET_WORKERS, not_since, strangers_not_since)


def _record(row: Row) -> WorkerRecord:
    entries = json.loads(row["lost"]) if row["lost"] else []
    lost = tuple(LostJob(job_id, bool(latest)) for job_id, latest in entries)
    worker = WorkerId(row["holder"], row["worker_id"])
    return WorkerRecord(
        worker,
        lost,
        row["pauses"],
        row["paused_until"],
        has_worked=row["worked_at"] > 0,
        accounts=tuple(json.loads(row["accounts"])) if row["accounts"] else (),
    )
