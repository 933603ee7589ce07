"""Decides what follows when a worker loses a job: the worker is paused, or the job is given up.

A worker that loses different jobs in a row is in doubt. It is paused, longer each time, and then gets one job at a time
until it has completed as many as it lost. The same holds for all workers of its principal that have completed nothing
yet, so that a worker cannot escape by taking another name.

A loss also counts against the job, unless its worker lost it before, has lost others too, and has completed none since:
then the worker is at fault. A job is given up when its counted losses reach the limit and came from that many different
workers, or from all that there are. This is not held against those workers.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from runekeep_server.settings import Settings
from runekeep_storage.database import Database, Tx
from runekeep_storage.jobs import worker_records as stored
from runekeep_storage.jobs.worker_records import Loser, LostJob, WorkerId, WorkerRecord
from runekeep_storage.records import Job

_MICROSECONDS: Final = 1_000_000
LOSSES_UNTIL_DOUBT: Final = 2
"""A worker that loses this many different jobs in a row is in doubt."""
RETENTION_SECONDS: Final = 7 * 86_400.0
"""A worker that was not seen for this long is forgotten."""
STRANGER_RETENTION_SECONDS: Final = 3600.0
"""The same for a worker that has neither completed nor lost a job."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What follows a loss. `counts`: it counts against the job; `gives_up`: it was the last one allowed; `lost_by`:
    which workers lost the job, as stored with the job; `paused`: workers that are paused because of it."""

    counts: bool
    gives_up: bool
    lost_by: str
    paused: tuple[WorkerRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The maximum of jobs that the worker's principal may hold in total, and the worker itself. None means any
    number."""

    of_principal: int
    own: int | None = None


class LossPolicy:
    """Decides what follows a loss, and writes the decision in the given transaction. `connected`: workers of this
    server, each with the accounts whose jobs it may get; an empty tuple means all."""

    def __init__(self, settings: Settings, connected: Callable[[], Mapping[WorkerId, tuple[str, ...]]] = dict) -> None:
        self._settings = settings
        self._connected = connected

    async def record_loss(self, tx: Tx, job: Job, *, silent: bool) -> Loss:
        """Records that the worker lost the job. `silent`: whether it sent no heartbeat in time. If False, it sent
        heartbeats but no result in time, which counts among the job's attempts."""
        worker = stored.worker_of(job)
        records = await stored.read(tx, (worker, worker.principal))
        counts = not any(_is_repeated_loss(record, job.job_id) for record in records.values())
        losers = stored.losers_of(job)
        if counts and silent:
            losers = _with_loser(losers, worker)
        lost_by = stored.dump_losers(losers)
        if silent and await self._gives_up(tx, job, losers):
            await self._forgive(tx, job, losers)
            return Loss(counts, True, lost_by)
        paused = []
        for record in records.values():
            changed = self._add_loss(record, job.job_id, tx.now())
            await stored.write(tx, changed)
            if changed.paused_until != record.paused_until:
                paused.append(changed)
        return Loss(counts, False, lost_by, tuple(paused))

    async def _gives_up(self, tx: Tx, job: Job, losers: Sequence[Loser]) -> bool:
        max_losses = self._settings.max_lost_leases
        times = sum(one.times for one in losers)
        is_old = tx.now() - job.created_at > self._settings.job_max_age_seconds * _MICROSECONDS
        if is_old and job.lost_leases + 1 >= max_losses:
            return True
        if times < max_losses:
            return False
        others = await self._trusted_workers(tx, job.account)
        return is_job_at_fault([one.worker for one in losers], others, max_losses)

    async def _trusted_workers(self, tx: Tx, account: str) -> list[WorkerId]:
        """Returns the workers that are present on any server, may get the account's jobs, and are not in doubt."""
        seen = await stored.seen_since(tx, tx.now() - round(self._settings.lease_seconds * _MICROSECONDS))
        connected = self._connected()
        present = {record.worker: record for record in seen}
        for worker, record in (await stored.read(tx, connected)).items():
            # The store may spell a name differently, for example one with a NUL.
            if worker in connected:
                present[worker] = replace(record, accounts=connected[worker])
        present = {name: one for name, one in present.items() if not one.accounts or account in one.accounts}
        principals = await stored.read(tx, {worker.principal for worker in present})
        return [
            worker
            for worker, record in present.items()
            if not is_in_doubt(record) and (record.has_worked or not is_in_doubt(principals[worker.principal]))
        ]

    async def _forgive(self, tx: Tx, job: Job, losers: Iterable[Loser]) -> None:
        blamed = {name for one in losers for name in (one.worker, one.worker.principal)}
        for record in (await stored.read(tx, blamed)).values():
            rest = tuple(lost for lost in record.lost if lost.job_id != job.job_id)
            if rest != record.lost:
                forgiven = replace(record, lost=rest)
                if not is_in_doubt(forgiven):
                    forgiven = replace(forgiven, pauses=0, paused_until=0)
                await stored.write(tx, forgiven)

    def _add_loss(self, record: WorkerRecord, job_id: str, now: int) -> WorkerRecord:
        kept = [lost for lost in record.lost if lost.job_id != job_id][-(stored.MAX_LOST - 1) :]
        changed = replace(record, lost=(*kept, LostJob(job_id, is_latest=True)))
        in_a_row = sum(lost.is_latest for lost in changed.lost)
        # Jobs lost during one silence count as one step, not as one step each.
        if in_a_row < LOSSES_UNTIL_DOUBT or now < record.paused_until:
            return changed
        doubled = self._settings.backoff_first_seconds * 2 ** min(record.pauses, 32)
        pause = min(doubled, self._settings.backoff_max_seconds)
        return replace(changed, pauses=record.pauses + 1, paused_until=now + round(pause * _MICROSECONDS))


class WorkerRecords:
    """A cache of the stored records of workers; one per server. The store is the source of truth."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._in_doubt: dict[WorkerId, WorkerRecord] = {}
        self._losers: set[WorkerId] = set()
        # The store's clock and this process's clock at the last read. 0: never read.
        self._read_at = 0, 0.0

    async def refresh(self) -> None:
        """Reads the records from the store. Raises StoreUnavailable."""
        read_at = asyncio.get_running_loop().time()
        now, found = await self._database.read_global(stored.read_losers)
        self._losers = {record.worker for record in found}
        self._in_doubt = {record.worker: record for record in found if is_in_doubt(record)}
        self._read_at = now, read_at

    async def ensure_loaded(self) -> None:
        """Reads the records unless they have been read. Raises StoreUnavailable."""
        if not self._read_at[0]:
            await self.refresh()

    async def record_seen(self, workers: Mapping[WorkerId, tuple[str, ...]]) -> None:
        """Records the workers of this server, with the accounts whose jobs they may get. Raises StoreUnavailable."""
        if workers:
            await self._database.write_global(stored.record_seen, workers)

    async def record_gone(self, workers: Collection[WorkerId]) -> None:
        """Records workers that left this server. If one moved to another server, that server records it again. Raises
        StoreUnavailable."""
        if not workers:
            return

        async def record_departure(tx: Tx) -> None:
            long_ago = tx.now() - round(self._settings.lease_seconds * _MICROSECONDS) - 1
            await stored.record_gone(tx, workers, long_ago)

        await self._database.write_global(record_departure)

    async def forget_old(self) -> None:
        async def forget(tx: Tx) -> None:
            ages = RETENTION_SECONDS, STRANGER_RETENTION_SECONDS
            await stored.forget(tx, *(tx.now() - round(age * _MICROSECONDS) for age in ages))

        await self._database.write_global(forget)

    def limits(self, worker: WorkerId, *, proven: bool, held_by_proven: Callable[[], int]) -> JobLimits | None:
        """Returns how many jobs the worker may hold, or None if it gets none for now. `proven`: it has completed a job
        on this server; `held_by_proven`: returns the jobs held by such workers of its principal."""
        max_jobs = self._settings.worker_max_jobs
        if any(self._pause_left(name) > 0 for name in self._judged_by(worker, proven)):
            return None
        if not proven and worker.principal in self._in_doubt:
            max_jobs = min(max_jobs, held_by_proven() + 1)
        return JobLimits(max_jobs, 1 if worker in self._in_doubt else None)

    async def record_completion(self, worker: WorkerId, job_id: str, *, is_first: bool) -> None:
        """Records that the worker completed a job: its pause ends, and it has made up for one lost job. `is_first`: the
        first job completed on its stream. Raises StoreUnavailable."""
        if not is_first and not self._losers & {worker, worker.principal}:
            return

        async def make_up(tx: Tx) -> None:
            await stored.record_completion(tx, worker)
            for record in (await stored.read(tx, (worker, worker.principal))).values():
                if record.lost:
                    await stored.write(tx, _make_up_for(record, job_id))

        await self._database.write_global(make_up)
        await self.refresh()

    def paused_workers(self) -> list[tuple[WorkerRecord, float]]:
        """Returns the paused workers, with the remaining seconds."""
        left = ((record, self._pause_left(worker)) for worker, record in self._in_doubt.items())
        return [(record, seconds) for record, seconds in left if seconds > 0]

    @staticmethod
    def _judged_by(worker: WorkerId, proven: bool) -> tuple[WorkerId, ...]:
        return (worker,) if proven else (worker, worker.principal)

    def _pause_left(self, worker: WorkerId) -> float:
        """Returns the remaining seconds of the pause; 0 or less without a pause."""
        record = self._in_doubt.get(worker)
        if record is None:
            return 0.0
        now, read_at = self._read_at
        return (record.paused_until - now) / _MICROSECONDS - (asyncio.get_running_loop().time() - read_at)


def is_in_doubt(record: WorkerRecord) -> bool:
    return len(record.lost) >= LOSSES_UNTIL_DOUBT


def is_job_at_fault(losers: Collection[WorkerId], others: Collection[WorkerId], max_losers: int) -> bool:
    """Returns whether the job that `losers` lost is to blame: `max_losers` different workers lost it, or all that
    exist. If there are several principals, they are counted instead of workers: a worker chooses its own name."""
    present = {*losers, *others}
    if len({worker.holder for worker in present}) > 1:
        return len({worker.holder for worker in losers}) >= min(max_losers, len({worker.holder for worker in present}))
    return len(set(losers)) >= min(max_losers, len(present))


def _is_repeated_loss(record: WorkerRecord, job_id: str) -> bool:
    """Returns whether the worker lost this job before, has lost others too, and has completed none since."""
    latest = [lost.job_id for lost in record.lost if lost.is_latest]
    return job_id in latest and len(latest) >= LOSSES_UNTIL_DOUBT


def _with_loser(losers: Sequence[Loser], worker: WorkerId) -> list[Loser]:
    times = sum(one.times for one in losers if one.worker == worker)
    return [*(one for one in losers if one.worker != worker), Loser(worker, times + 1)]


def _make_up_for(record: WorkerRecord, job_id: str) -> WorkerRecord:
    lost = [replace(one, is_latest=False) for one in record.lost]
    of_job = next((one for one in lost if one.job_id == job_id), lost[0])
    lost.remove(of_job)
    return replace(record, lost=tuple(lost), pauses=0, paused_until=0)
