"""Gives jobs to connected workers and takes back what ran out. The truth is in the store alone."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import structlog

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import task_service_pb2
from schemas import failpoints
from server.answer_sizes import AnswerSizes
from server.apply.applier import Applier
from server.errors import unavailable
from server.settings import Settings
from server.telemetry import work as telemetry
from server.watchers import Watchers
from server.work.assignments import assignment
from server.work.connection import Connection, holds, seconds, wire_lease
from server.work.failures import SECOND, FailurePolicy, claim
from server.work.part_watch import LOOK_SECONDS, PartWatch
from server.work.reaper import Reaper
from server.work.recording import Recorder
from server.work.verdicts import Verdicts
from storage import apply as storage_apply
from storage import audit, jobs, requests, retention, tasks
from storage.budgets import TokenLimits
from storage.claiming import OutOfBudget, Unwanted
from storage.database import Space, Tx
from storage.errors import LeaseLost, StoreUnavailable
from storage.jobs import LeaseTerms
from storage.records import Job, LeaseId
from storage.store import Store

SWEEP_SECONDS = 600.0
"""How often answers to old request ids, and tasks that ended long ago, are dropped."""

BUCKETS_OFF = "memory buckets are switched off on this server"
"""Why a job about them ends that was queued before that."""

log = structlog.get_logger(__name__)


class Dispatcher:
    """One a server. Several servers on one store need not know of each other."""

    def __init__(self, store: Store, settings: Settings, watchers: Watchers, server_id: str) -> None:
        self.settings = settings
        self.server_id = server_id
        self._store = store
        self._database = store.all_spaces
        self._watchers = watchers
        self._part_watch = PartWatch(store)
        failures = FailurePolicy(settings, self._part_watch)
        self._reaper = Reaper(store.all_spaces, failures, settings)
        recorder = Recorder(store.registry, answers=settings.record_answers)
        self.verdicts = Verdicts(
            store.all_spaces,
            Applier(
                store,
                withhold_secrets=settings.withhold_secrets,
                max_memory_bytes=AnswerSizes.of(settings.max_message_bytes).memory,
            ),
            failures,
            recorder,
            self._space_of,
            self._over,
        )
        self._limits = TokenLimits(settings.commit_token_budget, settings.account_daily_token_budget)
        self._unwanted = {} if settings.buckets_enabled else {jobs.BUCKET_RECONCILE: BUCKETS_OFF}
        self._terms = LeaseTerms(
            first=round(settings.first_lease_seconds * SECOND),
            renewed=round(settings.lease_seconds * SECOND),
            attempt=round(settings.attempt_seconds * SECOND),
        )
        self._connections: set[Connection] = set()
        self._undelivered: dict[LeaseId, Space] = {}
        self._woken = asyncio.Event()
        self._draining = False
        self._loops: list[asyncio.Task[None]] = []

    # Life

    def start(self) -> None:
        poll = self.settings.poll_seconds
        self._loops = [
            asyncio.create_task(self._forever("dispatch", self._dispatch, poll, self._woken)),
            asyncio.create_task(self._forever("reap", self._reap, poll)),
            asyncio.create_task(self._forever("part_watch", self._part_watch.look, LOOK_SECONDS)),
            asyncio.create_task(self._forever("sweep", self._sweep, SWEEP_SECONDS)),
        ]

    def wake(self) -> None:
        self._woken.set()

    async def drain(self) -> None:
        """No more claims; workers are told to move; what has come is applied; then the streams end."""
        self._draining = True
        for connection in self._connections:
            connection.send(pb.WorkResponse(drain=pb.Drain(grace=seconds(self.settings.drain_seconds))))
        await asyncio.gather(*(connection.settle() for connection in self._connections))
        for connection in self._connections:
            connection.close()

    async def close(self) -> None:
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._return_undelivered()

    @property
    def workers(self) -> int:
        """Workers with an open stream to this server."""
        return len(self._connections)

    @contextlib.contextmanager
    def connected(self, connection: Connection) -> Iterator[None]:
        """Within it the connection gets assignments. Raises ApiError once the server drains."""
        if self._draining:
            raise unavailable("server", "This server is going down")
        self._connections.add(connection)
        telemetry.WORKERS.inc()
        log.info("worker_connected", worker=connection.worker_id)
        try:
            yield
        finally:
            self._connections.discard(connection)
            telemetry.WORKERS.dec()
            log.info("worker_disconnected", worker=connection.worker_id, leases=len(connection.leases))

    # What workers say

    async def renew(self, leases: Sequence[LeaseId]) -> list[tuple[pb.LeaseState, Space | None]]:
        """The state of each lease, those that are held renewed, and the spaces of those."""
        by_account: dict[str | None, list[LeaseId]] = {}
        spaces = {lease: self._space_of(lease) for lease in leases}
        for lease, space in spaces.items():
            by_account.setdefault(space.account if space else None, []).append(lease)
        # Of each account by itself, so that the store need not make all the others wait.
        renewed = await asyncio.gather(
            *(
                self._database.write(self._renew_all, spaces[ours[0]], [(lease, spaces[lease]) for lease in ours])
                for ours in by_account.values()
            )
        )
        found = {lease: state for part in renewed for lease, state in part.items()}
        return [found[lease] for lease in leases]

    async def _renew_all(
        self, tx: Tx, lane: Space | None, leases: Sequence[tuple[LeaseId, Space | None]]
    ) -> dict[LeaseId, tuple[pb.LeaseState, Space | None]]:
        """`lane`: a space of the account that all of them are of; None where that is not known."""
        renewed: dict[LeaseId, Job] = {}
        if lane is not None:
            known = [(space.user, lease) for lease, space in leases if space is not None]
            renewed = await jobs.renew_all(tx, lane.account, known, self._terms)
        found: dict[LeaseId, tuple[pb.LeaseState, Space | None]] = {}
        for lease, space in leases:
            status: pb.LeaseStatus.ValueType = pb.LEASE_STATUS_HELD
            if space is None:
                with contextlib.suppress(LeaseLost):
                    renewed[lease] = await jobs.renew(tx, lease, self._terms)
            if lease in renewed:
                space = jobs.space_of(renewed[lease])
            else:
                applied = await storage_apply.was_applied(tx, lease)
                status = pb.LEASE_STATUS_APPLIED if applied else pb.LEASE_STATUS_LOST
            found[lease] = pb.LeaseState(lease=wire_lease(lease), status=status), space
        return found

    async def hold(self, lease: LeaseId) -> Job:
        """The job of a lease, renewed: to hear from a worker is a sign of life. Raises LeaseLost."""
        return await self._database.write(self._hold, self._space_of(lease), lease)

    async def _hold(self, tx: Tx, space: Space | None, lease: LeaseId) -> Job:
        return await jobs.renew(tx, lease, self._terms, space)

    async def progress(self, lease: LeaseId, progress: task_service_pb2.TaskProgress) -> None:
        """Raises LeaseLost."""
        body: dict[str, Any] = {"phase": int(progress.phase), "message": progress.message}
        if progress.waiting_for:
            body[jobs.WAITING_FOR] = progress.waiting_for

        async def write(tx: Tx, known: Space | None) -> None:
            job = await jobs.renew(tx, lease, self._terms, known)
            space = jobs.space_of(job)
            before = (await tasks.get(tx, space, job.job_id)).progress
            # A claim clears the progress, so this holds within one attempt, as the contract says.
            reached = json.loads(before)["percent"] if before else 0
            percent = max(progress.percent, reached)
            await tasks.set_progress(tx, space, job.job_id, {**body, "percent": percent})

        await self._database.write(write, self._space_of(lease))
        self._watchers.changed(lease.job_id)

    def undelivered(self, leases: Mapping[LeaseId, Space]) -> None:
        """Takes back what no worker has seen: its job goes to another one at once, and nothing is counted."""
        if leases:
            log.info("assignments_not_delivered", jobs=len(leases))
            self._undelivered |= leases
            self.wake()

    def _space_of(self, lease: LeaseId) -> Space | None:
        """The space of a lease that a worker of this server holds, or was to hold."""
        if lease in self._undelivered:
            return self._undelivered[lease]
        return next((space for one in self._connections if (space := one.space_of(lease)) is not None), None)

    def cancelled(self, job: Job, reason: str) -> None:
        """Tells the worker of a job that was cancelled; the store refuses its output in any case."""
        for connection in self._connections:
            if holds(connection, job):
                connection.cancel(job.lease, reason)
        self._over(job)

    def _over(self, job: Job) -> None:
        self._watchers.changed(job.job_id)
        self.wake()

    # Loops

    async def _dispatch(self) -> None:
        await self._return_undelivered()
        while not self._draining:
            connection = max(self._connections, key=_room, default=None)
            if connection is None or _room(connection) <= 0:
                return
            claimed = await self._database.write(claim, connection.worker_id, self._terms, self._limits, self._unwanted)
            if claimed is None:
                return
            if isinstance(claimed, OutOfBudget):
                log.warning("job_out_of_budget", job=claimed.job.job_id, account=claimed.job.account, why=claimed.why)
                telemetry.DEAD.labels(claimed.job.kind, "out_of_budget").inc()
                self._over(claimed.job)
                continue
            if isinstance(claimed, Unwanted):
                # Queued before that was switched off: to let it wait would hold up the commits behind it.
                log.info("job_unwanted", job=claimed.job.job_id, kind=claimed.job.kind)
                self._over(claimed.job)
                continue
            failpoints.reached(failpoints.CLAIM)
            job, attempt = claimed
            telemetry.claimed(job, attempt, self.settings.attempt_seconds)
            self._watchers.changed(job.job_id)
            log.info("job_assigned", job=job.job_id, kind=job.kind, attempt=attempt, account=job.account)
            told = assignment(job, attempt, self.settings.attempt_seconds)
            if self._draining or not connection.assign(told, jobs.space_of(job)):
                # Claimed for a stream that closed meanwhile: back at once, and not counted.
                self._undelivered[job.lease] = jobs.space_of(job)
                await self._return_undelivered()

    async def _return_undelivered(self) -> None:
        """What the store cannot take now waits for the next time, or for the end of its first lease."""
        for lease in list(self._undelivered):
            try:
                if (await self.verdicts.release(lease)).outcome == pb.JOB_OUTCOME_TRY_AGAIN:
                    continue
            except Exception:
                # One lease must not keep all jobs from being given away; it ends by itself.
                log.exception("assignment_not_returned", job=lease.job_id)
            self._undelivered.pop(lease, None)

    async def _reap(self) -> None:
        for ended in await self._reaper.reap():
            telemetry.lease_lost(ended.job, self.settings.attempt_seconds, given_up=ended.given_up)
            log.warning("lease_expired", job=ended.job.job_id, worker=ended.job.worker_id, given_up=ended.given_up)
            for connection in self._connections:
                if holds(connection, ended.job):
                    connection.lost(ended.job.lease)
            self._over(ended.job)

    async def _sweep(self) -> None:
        while await self._database.write(requests.forget_old) == requests.BATCH:
            pass
        keep = self.settings.task_retention_days * 86_400 * SECOND
        while await self._database.write(retention.forget_ended, keep) == retention.BATCH:
            pass
        keep = self.settings.audit_retention_days * 86_400 * SECOND
        while await self._database.write(audit.forget_old, keep) == audit.BATCH:
            pass

    async def _forever(
        self, name: str, step: Callable[[], Awaitable[None]], pause: float, woken: asyncio.Event | None = None
    ) -> None:
        never = asyncio.Event()
        waits = 0
        while True:
            if woken is not None:
                woken.clear()
            try:
                await step()
                waits = 0
            except StoreUnavailable as error:
                waits += 1
                # The first one, and then ever more rarely: a store that is away may be so for hours.
                if waits.bit_count() == 1:
                    log.warning("loop_waits", loop=name, error=str(error))
            except Exception:
                # These loops carry every job of the server: one bad row must not end them.
                log.exception("loop_failed", loop=name)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await (woken or never).wait()


def _room(connection: Connection) -> int:
    return 0 if connection.closed else connection.credits
