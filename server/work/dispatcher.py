"""Gives jobs to connected workers and takes back what ran out. The truth is in the store alone."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from server.work.rotation import Rotation
from server.work.standings import JobBounds, Losses, Standings
from server.work.verdicts import Verdicts
from storage import apply as storage_apply
from storage import audit, jobs, requests, retention, tasks
from storage.budgets import TokenLimits
from storage.claiming import AtLimit, Holder, OutOfBudget, Unwanted
from storage.database import Space, Tx
from storage.errors import LeaseLost, StoreUnavailable
from storage.jobs import LeaseTerms
from storage.leases import digest_of, new_secret
from storage.records import Job, LeaseId
from storage.store import Store
from storage.worker_standings import WorkerId, WorkerStanding

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
        failures = FailurePolicy(settings, self._part_watch, Losses(settings, self._connected_workers))
        self._standings = Standings(store.all_spaces, settings)
        self._rotation = Rotation()
        self._reaper = Reaper(store.all_spaces, failures, settings)
        recorder = Recorder(store.registry, answers=settings.record_answers)
        self.verdicts = Verdicts(
            store.all_spaces,
            Applier(
                store,
                withhold_secrets=settings.withhold_secrets,
                review_superseded=settings.review_superseded,
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
        # Workers that left since the last reap.
        self._gone: set[WorkerId] = set()
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
            asyncio.create_task(self._forever("seen", self._note_seen, self.settings.heartbeat_seconds)),
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

    def paused_workers(self) -> list[tuple[WorkerStanding, float]]:
        """Workers of all servers that are paused, with the seconds that are left."""
        return self._standings.paused()

    @contextlib.contextmanager
    def connected(self, connection: Connection) -> Iterator[None]:
        """Within it the connection gets assignments. Raises ApiError once the server drains."""
        if self._draining:
            raise unavailable("server", "This server is going down")
        self._connections.add(connection)
        self._rotation.joined(connection)
        telemetry.WORKERS.inc()
        log.info("worker_connected", worker=connection.worker_id)
        try:
            yield
        finally:
            self._connections.discard(connection)
            self._gone.add(connection.name)
            telemetry.WORKERS.dec()
            log.info("worker_disconnected", worker=connection.worker_id, leases=len(connection.leases))

    # What workers say

    async def renew(self, leases: Sequence[LeaseId]) -> list[tuple[pb.LeaseState, Space | None]]:
        """The state of each lease, those that are held renewed, and the spaces of those."""
        spaces = {lease: self._space_of(lease) for lease in leases}
        if unknown := [lease for lease, space in spaces.items() if space is None]:
            # Read only: whoever makes leases up makes nobody wait who writes.
            spaces |= await self._database.read(_spaces_of, unknown)
        by_account: dict[str, list[tuple[LeaseId, Space]]] = {}
        for lease, space in spaces.items():
            if space is not None:
                by_account.setdefault(space.account, []).append((lease, space))
        # Of each account by itself, so that the store need not make all the others wait.
        renewed = await asyncio.gather(
            *(self._database.write(self._renew_all, ours[0][1], ours) for ours in by_account.values())
        )
        held = {lease: space for part in renewed for lease, space in part.items()}
        if over := [lease for lease in spaces if lease not in held]:
            statuses = await self._database.read(_statuses_of, over)
        return [
            (_state(lease, pb.LEASE_STATUS_HELD if lease in held else statuses[lease]), held.get(lease))
            for lease in leases
        ]

    async def _renew_all(self, tx: Tx, lane: Space, leases: Sequence[tuple[LeaseId, Space]]) -> dict[LeaseId, Space]:
        """Those that are held. `lane`: a space of the account that all of them are of."""
        users = [(space.user, lease) for lease, space in leases]
        renewed = await jobs.renew_all(tx, lane.account, users, self._terms)
        return {lease: space for lease, space in leases if lease in renewed}

    async def completed(self, connection: Connection, job_id: str) -> None:
        """The worker has done a job, and was told so."""
        is_first, connection.proven = not connection.proven, True
        try:
            await self._standings.completed(connection.name, job_id, is_first=is_first)
        except StoreUnavailable as error:
            # It stays in doubt until its next job.
            log.warning("worker_not_cleared", worker=connection.worker_id, error=str(error))

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
        # A server that starts must not serve those whom the others let wait.
        await self._standings.known()
        # Those that get nothing more in this round.
        passed: set[Connection] = set()
        while not self._draining:
            connection = self._rotation.first(one for one in self._connections - passed if _has_room(one))
            if connection is None:
                return
            bounds = self._bounds(connection)
            if bounds is None:
                passed.add(connection)
                continue
            secret = new_secret()
            holder = Holder(
                connection.worker.actor,
                digest_of(secret),
                connection.worker.accounts,
                max_jobs=bounds.of_principal,
                max_own_jobs=bounds.own,
            )
            claimed = await self._database.write(
                claim, connection.worker_id, self._terms, self._limits, self._unwanted, holder
            )
            if claimed is None:
                if not holder.accounts:
                    return
                # Others may get jobs of other accounts.
                passed |= {one for one in self._connections if one.worker.accounts == holder.accounts}
                continue
            if isinstance(claimed, AtLimit):
                passed |= self._at_limit(connection, claimed, bounds)
                continue
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
            self._rotation.served(connection)
            job, attempt = claimed
            telemetry.claimed(job, attempt, self.settings.attempt_seconds)
            self._watchers.changed(job.job_id)
            log.info("job_assigned", job=job.job_id, kind=job.kind, attempt=attempt, account=job.account)
            told = assignment(job, replace(job.lease, secret=secret), attempt, self.settings.attempt_seconds)
            if self._draining or not connection.assign(told, jobs.space_of(job)):
                # Claimed for a stream that closed meanwhile: back at once, and not counted.
                self._undelivered[job.lease] = jobs.space_of(job)
                await self._return_undelivered()

    def _bounds(self, connection: Connection) -> JobBounds | None:
        actor = connection.worker.actor
        proven = [one for one in self._connections if one.proven and one.worker.actor == actor]
        held = sum(len(one.leases) for one in proven)
        return self._standings.bounds(connection.name, proven=connection.proven, held_by_proven=held)

    def _at_limit(self, connection: Connection, limit: AtLimit, bounds: JobBounds) -> set[Connection]:
        """Connections that need not ask in this round, since that one may get no more."""
        if not limit.principal or bounds.of_principal < self.settings.worker_max_jobs:
            return {connection}
        log.info("workers_at_limit", actor=connection.worker.actor, jobs=bounds.of_principal)
        return {one for one in self._connections if one.worker.actor == connection.worker.actor}

    def _connected_workers(self) -> dict[WorkerId, tuple[str, ...]]:
        """Each with the accounts whose jobs it may get."""
        return {connection.name: connection.worker.accounts for connection in self._connections}

    async def _note_seen(self) -> None:
        await self._standings.note_seen(self._connected_workers())

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
        gone, self._gone = self._gone - self._connected_workers().keys(), set()
        await self._standings.note_gone(gone)
        for ended in await self._reaper.reap():
            telemetry.lease_lost(ended.job, self.settings.attempt_seconds, given_up=ended.given_up)
            log.warning("lease_expired", job=ended.job.job_id, worker=ended.job.worker_id, given_up=ended.given_up)
            for connection in self._connections:
                if holds(connection, ended.job):
                    connection.lost(ended.job.lease)
            self._over(ended.job)
            for standing in ended.paused:
                telemetry.PAUSES.inc()
                log.warning(
                    "worker_paused",
                    actor=standing.worker.holder,
                    worker=standing.worker.name,
                    lost_jobs=len(standing.lost),
                    pauses=standing.pauses,
                )
        await self._standings.refresh()
        telemetry.PAUSED.set(len(self._standings.paused()))

    async def _sweep(self) -> None:
        await self._standings.forget_old()
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


def _has_room(connection: Connection) -> bool:
    return not connection.closed and connection.credits > 0


def _state(lease: LeaseId, status: pb.LeaseStatus.ValueType) -> pb.LeaseState:
    return pb.LeaseState(lease=wire_lease(lease), status=status)


async def _spaces_of(tx: Tx, leases: Sequence[LeaseId]) -> dict[LeaseId, Space | None]:
    """Returns the spaces of the leases that are held."""
    found: dict[LeaseId, Space | None] = {}
    for lease in leases:
        with contextlib.suppress(LeaseLost):
            found[lease] = jobs.space_of(await jobs.held(tx, lease))
    return found


async def _statuses_of(tx: Tx, leases: Sequence[LeaseId]) -> dict[LeaseId, pb.LeaseStatus.ValueType]:
    """Returns the statuses of the leases that are not held."""
    return {
        lease: pb.LEASE_STATUS_APPLIED if await storage_apply.was_applied(tx, lease) else pb.LEASE_STATUS_LOST
        for lease in leases
    }
