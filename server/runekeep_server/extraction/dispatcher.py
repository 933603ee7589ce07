"""Claims jobs and assigns them to connected workers. The store is the only source of truth."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import structlog

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_common import failpoints
from runekeep_server.apply import telemetry
from runekeep_server.extraction.assignments import build_assignment
from runekeep_server.extraction.connection import Connection
from runekeep_server.extraction.connections import Connections
from runekeep_server.extraction.worker_rotation import Rotation
from runekeep_server.leases.failure_policy import claim
from runekeep_server.leases.lease_table import LeaseRecord, LeaseTable
from runekeep_server.leases.verdicts import Verdicts
from runekeep_server.leases.worker_records import JobLimits, WorkerRecords
from runekeep_server.settings import Settings
from runekeep_server.tasks.watchers import Watchers
from runekeep_storage.database import Database
from runekeep_storage.jobs import jobs
from runekeep_storage.jobs.budgets import TokenLimits
from runekeep_storage.jobs.claiming import AtLimit, Holder, OutOfBudget, Unwanted
from runekeep_storage.jobs.jobs import LeaseTerms
from runekeep_storage.jobs.lease_holders import digest_of, new_secret
from runekeep_storage.records import Job

BUCKETS_OFF = "memory buckets are switched off on this server"
"""The reason with which bucket jobs end that were queued before buckets were disabled."""

log = structlog.get_logger(__name__)


class Dispatcher:
    """One per server. Servers that share a store need not know of each other. `on_end` is called with each job that
    ended before any worker saw it."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        terms: LeaseTerms,
        connections: Connections,
        leases: LeaseTable,
        verdicts: Verdicts,
        workers: WorkerRecords,
        watchers: Watchers,
        on_end: Callable[[Job], None],
    ) -> None:
        self._database = database
        self._settings = settings
        self._terms = terms
        self._connections = connections
        self._leases = leases
        self._verdicts = verdicts
        self._workers = workers
        self._watchers = watchers
        self._on_end = on_end
        self._rotation = Rotation()
        self._limits = TokenLimits(settings.commit_token_budget, settings.account_daily_token_budget)
        self._unwanted = {} if settings.buckets_enabled else {jobs.BUCKET_RECONCILE: BUCKETS_OFF}
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()

    @contextlib.contextmanager
    def serve(self, connection: Connection) -> Iterator[None]:
        """Gives the connection assignments within the block. Raises ApiError if the server drains."""
        with self._connections.open(connection):
            self._rotation.add(connection)
            try:
                yield
            finally:
                if undelivered := self._leases.end_stream(connection.outbox):
                    log.info("assignments_not_delivered", jobs=undelivered)
                    self.wake()

    async def dispatch(self) -> None:
        """Assigns jobs until there are no more, or no worker with room. Raises StoreUnavailable."""
        await self.return_undelivered()
        # A starting server must first know the paused workers, otherwise it would serve them.
        await self._workers.ensure_loaded()
        # Connections that get no more jobs in this round.
        skipped: set[Connection] = set()
        while not self._connections.is_draining:
            connection = self._rotation.choose(one for one in self._connections if one.has_room and one not in skipped)
            if connection is None:
                return
            limits = self._job_limits(connection)
            if limits is None:
                skipped.add(connection)
                continue
            secret, worker, of_principal = new_secret(), connection.worker, limits.of_principal
            holder = Holder(
                worker.actor,
                digest_of(secret),
                worker.accounts,
                max_jobs=of_principal,
                max_own_jobs=limits.own,
                without_kind="" if connection.answers_questions else jobs.ASK,
            )
            claimed = await self._database.write_global(
                claim, connection.worker_id.name, self._terms, self._limits, self._unwanted, holder
            )
            match claimed:
                case None if not holder.accounts and not holder.without_kind:
                    return
                case None:
                    # Other connections may get jobs of other accounts, or of other kinds.
                    skipped |= {one for one in self._connections if one.takes_same_jobs(connection)}
                case AtLimit():
                    skipped |= self._at_limit(connection, claimed, limits)
                case OutOfBudget(job):
                    log.warning("job_out_of_budget", job=job.job_id, account=job.account, why=claimed.why)
                    telemetry.DEAD.labels(job.kind, "out_of_budget").inc()
                    self._on_end(job)
                case Unwanted(job):
                    # The job was queued before its kind was disabled, and would block the commits behind it; or it is
                    # a question that nobody waits for.
                    log.info("job_not_wanted", job=job.job_id, kind=job.kind)
                    self._on_end(job)
                case job, attempt:
                    failpoints.reached(failpoints.CLAIM)
                    await self._assign(connection, job, attempt, secret)

    async def _assign(self, connection: Connection, job: Job, attempt: int, secret: bytes) -> None:
        self._rotation.record_turn(connection)
        seconds = self._settings.attempt_seconds
        telemetry.claimed(job, attempt, seconds)
        self._watchers.changed(job.job_id)
        log.info("job_assigned", job=job.job_id, kind=job.kind, attempt=attempt, account=job.account)
        assignment = build_assignment(job, replace(job.lease, secret=secret), attempt, seconds)
        if self._connections.is_draining or not connection.assign(assignment, jobs.space_of(job)):
            # The stream closed during the claim. The job is given back at once, and no attempt is counted.
            self._leases.add(LeaseRecord(job.lease, jobs.space_of(job), None))
            await self.return_undelivered()

    def _job_limits(self, connection: Connection) -> JobLimits | None:
        def held_by_proven() -> int:
            actor = connection.worker.actor
            proven = {one.outbox for one in self._connections if one.is_proven and one.worker.actor == actor}
            return self._leases.count(proven)

        return self._workers.limits(connection.worker_id, proven=connection.is_proven, held_by_proven=held_by_proven)

    def _at_limit(self, connection: Connection, limit: AtLimit, limits: JobLimits) -> set[Connection]:
        """Returns the connections to skip in this round, because this connection may get no more jobs."""
        if not limit.principal or limits.of_principal < self._settings.worker_max_jobs:
            return {connection}
        log.info("workers_at_limit", actor=connection.worker.actor, jobs=limits.of_principal)
        return {one for one in self._connections if one.worker.actor == connection.worker.actor}

    async def return_undelivered(self) -> None:
        """Gives back the leases that no worker has seen. If the store is unavailable, they wait for the next call or
        for the end of their first lease."""
        for lease in self._leases.undelivered():
            try:
                if (await self._verdicts.release(lease)).outcome == pb.JOB_OUTCOME_TRY_AGAIN:
                    continue
            except Exception:
                # One lease must not block the dispatch of all jobs. It expires by itself.
                log.exception("assignment_not_returned", job=lease.job_id)
            self._leases.remove(lease)
