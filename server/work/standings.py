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

from server.settings import Settings
from storage import worker_standings
from storage.database import Database, Tx
from storage.records import Job
from storage.worker_standings import Loser, LostJob, WorkerId, WorkerStanding

_SECOND: Final = 1_000_000
IN_DOUBT: Final = 2
"""A worker that loses this many different jobs in a row is in doubt."""
FORGET_SECONDS: Final = 7 * 86_400.0
"""A worker that was not seen for this long is forgotten."""
FORGET_STRANGERS_SECONDS: Final = 3600.0
"""The same for a worker that has neither completed nor lost a job."""


@dataclass(frozen=True, slots=True)
class Loss:
    """`counts`: the loss counts against the job; `gives_up`: it was the last one allowed; `lost_by`: which workers lost
    the job, as stored with the job; `paused`: workers that are paused because of it."""

    counts: bool
    gives_up: bool
    lost_by: str
    paused: tuple[WorkerStanding, ...] = ()


@dataclass(frozen=True, slots=True)
class JobBounds:
    """How many jobs a worker's principal may hold in all, and the worker itself; None: any number."""

    of_principal: int
    own: int | None = None


class Losses:
    """Makes and writes the decision in the given transaction. `connected`: workers of this server, each with the
    accounts whose jobs it may get; an empty tuple means all."""

    def __init__(self, settings: Settings, connected: Callable[[], Mapping[WorkerId, tuple[str, ...]]] = dict) -> None:
        self._settings = settings
        self._connected = connected

    async def note(self, tx: Tx, job: Job, *, silent: bool) -> Loss:
        """Called when the worker that holds the job sent no heartbeat in time. `silent` False: it did, but had no
        result in time, which counts among the job's attempts."""
        worker = worker_standings.worker_of(job)
        stand = await worker_standings.read(tx, (worker, worker.principal))
        counts = not any(_is_in_vain(standing, job.job_id) for standing in stand.values())
        losers = worker_standings.losers_of(job)
        if counts and silent:
            losers = _with_loser(losers, worker)
        lost_by = worker_standings.losers_json(losers)
        if silent and await self._gives_up(tx, job, losers):
            await self._forgive(tx, job, losers)
            return Loss(counts, True, lost_by)
        paused = []
        for standing in stand.values():
            after = self._after(standing, job.job_id, tx.now())
            await worker_standings.write(tx, after)
            if after.paused_until != standing.paused_until:
                paused.append(after)
        return Loss(counts, False, lost_by, tuple(paused))

    async def _gives_up(self, tx: Tx, job: Job, losers: Sequence[Loser]) -> bool:
        most = self._settings.max_lost_leases
        times = sum(one.times for one in losers)
        if tx.now() - job.created_at > self._settings.job_max_age_seconds * _SECOND and job.lost_leases + 1 >= most:
            return True
        if times < most:
            return False
        others = await self._trusted_workers(tx, job.account)
        return is_caught([one.worker for one in losers], others, most)

    async def _trusted_workers(self, tx: Tx, account: str) -> list[WorkerId]:
        """Returns the workers that are present on any server, may get the account's jobs, and are not in doubt."""
        seen = await worker_standings.seen_since(tx, tx.now() - round(self._settings.lease_seconds * _SECOND))
        here = self._connected()
        there = {standing.worker: standing for standing in seen}
        for worker, standing in (await worker_standings.read(tx, here)).items():
            # The store may spell a name in another way, such as one with a NUL.
            if worker in here:
                there[worker] = replace(standing, accounts=here[worker])
        there = {name: one for name, one in there.items() if not one.accounts or account in one.accounts}
        principals = await worker_standings.read(tx, {worker.principal for worker in there})
        return [
            worker
            for worker, standing in there.items()
            if not is_in_doubt(standing) and (standing.has_worked or not is_in_doubt(principals[worker.principal]))
        ]

    async def _forgive(self, tx: Tx, job: Job, losers: Iterable[Loser]) -> None:
        blamed = {name for one in losers for name in (one.worker, one.worker.principal)}
        for standing in (await worker_standings.read(tx, blamed)).values():
            rest = tuple(lost for lost in standing.lost if lost.job_id != job.job_id)
            if rest != standing.lost:
                forgiven = replace(standing, lost=rest)
                if not is_in_doubt(forgiven):
                    forgiven = replace(forgiven, pauses=0, paused_until=0)
                await worker_standings.write(tx, forgiven)

    def _after(self, standing: WorkerStanding, job_id: str, now: int) -> WorkerStanding:
        kept = [lost for lost in standing.lost if lost.job_id != job_id][-(worker_standings.MAX_LOST - 1) :]
        after = replace(standing, lost=(*kept, LostJob(job_id, is_latest=True)))
        in_a_row = sum(lost.is_latest for lost in after.lost)
        # Jobs lost in one silence count as one step, not as one step each.
        if in_a_row < IN_DOUBT or now < standing.paused_until:
            return after
        doubled = self._settings.backoff_first_seconds * 2 ** min(standing.pauses, 32)
        pause = min(doubled, self._settings.backoff_max_seconds)
        return replace(after, pauses=standing.pauses + 1, paused_until=now + round(pause * _SECOND))


class Standings:
    """The standings as last read; one per server. The store holds the truth."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._in_doubt: dict[WorkerId, WorkerStanding] = {}
        self._that_lost: set[WorkerId] = set()
        # The store's clock and this process's clock at the last read; 0: never read.
        self._read_at = 0, 0.0

    async def refresh(self) -> None:
        """Refreshes the standings if they are due; call it often. Raises StoreUnavailable."""
        here = asyncio.get_running_loop().time()
        now, found = await self._database.read(worker_standings.that_lost)
        self._that_lost = {standing.worker for standing in found}
        self._in_doubt = {standing.worker: standing for standing in found if is_in_doubt(standing)}
        self._read_at = now, here

    async def known(self) -> None:
        """Returns once the standings have been read. Raises StoreUnavailable."""
        if not self._read_at[0]:
            await self.refresh()

    async def note_seen(self, workers: Mapping[WorkerId, tuple[str, ...]]) -> None:
        """Records the workers of this server, with the accounts whose jobs they may get. Raises StoreUnavailable."""
        if workers:
            await self._database.write(worker_standings.note_seen, workers)

    async def note_gone(self, workers: Collection[WorkerId]) -> None:
        """Records workers that have left this server. One that moved to another server is seen there again. Raises
        StoreUnavailable."""
        if not workers:
            return

        async def note(tx: Tx) -> None:
            long_ago = tx.now() - round(self._settings.lease_seconds * _SECOND) - 1
            await worker_standings.note_gone(tx, workers, long_ago)

        await self._database.write(note)

    async def forget_old(self) -> None:
        async def forget(tx: Tx) -> None:
            now = tx.now()
            await worker_standings.forget(
                tx, now - round(FORGET_SECONDS * _SECOND), now - round(FORGET_STRANGERS_SECONDS * _SECOND)
            )

        await self._database.write(forget)

    def bounds(self, worker: WorkerId, *, proven: bool, held_by_proven: int) -> JobBounds | None:
        """Returns how many jobs the worker may hold; None: it gets none for now. `proven`: it has completed a job on
        this server; `held_by_proven`: jobs held by such workers of its principal."""
        most = self._settings.worker_max_jobs
        if any(self._pause_left(name) > 0 for name in self._judged_by(worker, proven)):
            return None
        if not proven and worker.principal in self._in_doubt:
            most = min(most, held_by_proven + 1)
        return JobBounds(most, 1 if worker in self._in_doubt else None)

    async def completed(self, worker: WorkerId, job_id: str, *, is_first: bool) -> None:
        """Records that the worker completed a job: its pause ends, and it has made up for one lost job. `is_first`: the
        first job completed on its stream. Raises StoreUnavailable."""
        if not is_first and not self._that_lost & {worker, worker.principal}:
            return

        async def make_up(tx: Tx) -> None:
            await worker_standings.note_worked(tx, worker)
            for standing in (await worker_standings.read(tx, (worker, worker.principal))).values():
                if standing.lost:
                    await worker_standings.write(tx, _made_up(standing, job_id))

        await self._database.write(make_up)
        await self.refresh()

    def paused(self) -> list[tuple[WorkerStanding, float]]:
        """Returns the paused workers, with the seconds that are left."""
        left = ((standing, self._pause_left(worker)) for worker, standing in self._in_doubt.items())
        return [(standing, seconds) for standing, seconds in left if seconds > 0]

    @staticmethod
    def _judged_by(worker: WorkerId, proven: bool) -> tuple[WorkerId, ...]:
        return (worker,) if proven else (worker, worker.principal)

    def _pause_left(self, worker: WorkerId) -> float:
        """Seconds."""
        standing = self._in_doubt.get(worker)
        if standing is None:
            return 0.0
        now, here = self._read_at
        return (standing.paused_until - now) / _SECOND - (asyncio.get_running_loop().time() - here)


def is_in_doubt(standing: WorkerStanding) -> bool:
    return len(standing.lost) >= IN_DOUBT


def is_caught(losers: Collection[WorkerId], others: Collection[WorkerId], most: int) -> bool:
    """Whether the job that `losers` lost is to blame: `most` different workers lost it, or all that there are. If there
    are several principals, workers count by principal, because a worker chooses its own name."""
    there = {*losers, *others}
    if len({worker.holder for worker in there}) > 1:
        return len({worker.holder for worker in losers}) >= min(most, len({worker.holder for worker in there}))
    return len(set(losers)) >= min(most, len(there))


def _is_in_vain(standing: WorkerStanding, job_id: str) -> bool:
    """Whether the worker has lost this job before, has lost others too, and has completed none since."""
    latest = [lost.job_id for lost in standing.lost if lost.is_latest]
    return job_id in latest and len(latest) >= IN_DOUBT


def _with_loser(losers: Sequence[Loser], worker: WorkerId) -> list[Loser]:
    times = sum(one.times for one in losers if one.worker == worker)
    return [*(one for one in losers if one.worker != worker), Loser(worker, times + 1)]


def _made_up(standing: WorkerStanding, job_id: str) -> WorkerStanding:
    lost = [replace(one, is_latest=False) for one in standing.lost]
    of_job = next((one for one in lost if one.job_id == job_id), lost[0])
    lost.remove(of_job)
    return replace(standing, lost=tuple(lost), pauses=0, paused_until=0)
