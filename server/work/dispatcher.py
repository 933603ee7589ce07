"""Gives jobs to connected workers, takes back what ran out, and ends attempts. The truth is in the store alone."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import structlog
from google.rpc import code_pb2, status_pb2

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from schemas import failpoints
from schemas.policy import Plan
from schemas.uris import archive_uri, session_uri, space_root
from server.apply.applier import Applier, Output, Unusable
from server.apply.repair import NeedsRepair
from server.errors import unavailable
from server.settings import Settings
from server.watchers import Watchers
from server.wire.tasks import left_out, usage_json
from server.work.buffers import Arriving
from server.work.connection import Connection, holds, seconds, wire_lease
from server.work.failures import SECOND, Ended, FailurePolicy, class_name
from storage import apply as storage_apply
from storage import jobs, requests, retention, tasks
from storage.database import Tx
from storage.errors import LeaseLost, NotFound, StoreUnavailable, VersionConflict
from storage.jobs import LeaseTerms
from storage.records import Job, LeaseId
from storage.store import Store

SWEEP_SECONDS = 600.0
"""How often answers to old request ids, and tasks that ended long ago, are dropped."""

LONGEST_WAIT = 86_400
"""Seconds that a worker may ask its job to wait."""

log = structlog.get_logger(__name__)

_FAILURES = {class_name(number): number for number in pb.FailureClass.values()}


class Dispatcher:
    """One a server. Several servers on one store need not know of each other."""

    def __init__(self, store: Store, settings: Settings, watchers: Watchers) -> None:
        self.settings = settings
        self.server_id = f"server-{uuid4().hex[:8]}"
        self._store = store
        self._database = store.database
        self._watchers = watchers
        self._applier = Applier(store)
        self._failures = FailurePolicy(settings)
        self._terms = LeaseTerms(
            first=round(settings.first_lease_seconds * SECOND),
            renewed=round(settings.lease_seconds * SECOND),
            attempt=round(settings.attempt_seconds * SECOND),
        )
        self._connections: set[Connection] = set()
        self._woken = asyncio.Event()
        self._draining = False
        self._loops: list[asyncio.Task[None]] = []

    # Life

    def start(self) -> None:
        poll = self.settings.poll_seconds
        self._loops = [
            asyncio.create_task(self._forever("dispatch", self._dispatch, poll, self._woken)),
            asyncio.create_task(self._forever("reap", self._reap, poll)),
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

    @contextlib.contextmanager
    def connected(self, connection: Connection) -> Iterator[None]:
        """Within it the connection gets assignments. Raises ApiError once the server drains."""
        if self._draining:
            raise unavailable("server", "This server is going down")
        self._connections.add(connection)
        log.info("worker_connected", worker=connection.worker_id)
        try:
            yield
        finally:
            self._connections.discard(connection)
            log.info("worker_disconnected", worker=connection.worker_id, leases=len(connection.leases))

    # What workers say

    async def renew(self, leases: list[LeaseId]) -> list[pb.LeaseState]:
        """The state of each lease, those that are held renewed."""
        if not leases:
            return []
        statuses = await self._database.write(self._renew_all, leases)
        return [
            pb.LeaseState(lease=wire_lease(lease), status=status)
            for lease, status in zip(leases, statuses, strict=True)
        ]

    async def _renew_all(self, tx: Tx, leases: list[LeaseId]) -> list[pb.LeaseStatus.ValueType]:
        statuses: list[pb.LeaseStatus.ValueType] = []
        for lease in leases:
            try:
                await jobs.renew(tx, lease, self._terms)
                statuses.append(pb.LEASE_STATUS_HELD)
            except LeaseLost:
                applied = await _was_applied(tx, lease)
                statuses.append(pb.LEASE_STATUS_APPLIED if applied else pb.LEASE_STATUS_LOST)
        return statuses

    async def hold(self, lease: LeaseId) -> Job:
        """The job of a lease, renewed: to hear from a worker is a sign of life. Raises LeaseLost."""
        return await self._database.write(jobs.renew, lease, self._terms)

    async def progress(self, lease: LeaseId, progress: task_service_pb2.TaskProgress) -> None:
        """Raises LeaseLost."""
        body = {"phase": int(progress.phase), "message": progress.message}

        async def write(tx: Tx) -> None:
            job = await jobs.renew(tx, lease, self._terms)
            space = jobs.space_of(job)
            before = (await tasks.get(tx, space, job.job_id)).progress
            # A claim clears the progress, so this holds within one attempt, as the contract says.
            reached = json.loads(before)["percent"] if before else 0
            percent = max(progress.percent, reached)
            await tasks.set_progress(tx, space, job.job_id, {**body, "percent": percent})

        await self._database.write(write)
        self._watchers.changed(lease.job_id)

    async def complete(self, lease: LeaseId, complete: pb.JobComplete, arrived: Arriving) -> pb.JobVerdict:
        output = Output(
            lease=lease,
            output_id=complete.output_id,
            operations=arrived.operations,
            summary=arrived.summary,
            usage=_entries(complete.usage),
            extractor=complete.extractor,
            dropped_items=complete.dropped_items,
        )
        try:
            applied = await self._applier.apply(output)
        except VersionConflict as conflict:
            return await self._no_use(output, pb.FAILURE_CLASS_CONFLICT, str(conflict))
        except Exception as error:
            return await self._not_ended(lease, error, output.usage)
        if isinstance(applied, Unusable):
            return await self._no_use(output, pb.FAILURE_CLASS_REJECTED_OUTPUT, applied.why, applied.left_out)
        if isinstance(applied, NeedsRepair):
            refused = [left_out(entry) for entry in applied.refused]
            return pb.JobVerdict(lease=wire_lease(lease), outcome=pb.JOB_OUTCOME_NEEDS_REPAIR, refused=refused)
        self._over(applied.job)
        log.info("commit_applied", job=lease.job_id, revision=applied.revision, again=applied.again)
        outcome = pb.JOB_OUTCOME_ALREADY_APPLIED if applied.again else pb.JOB_OUTCOME_APPLIED
        return pb.JobVerdict(lease=wire_lease(lease), outcome=outcome, revision=applied.revision)

    async def ended(self, lease: LeaseId, output_id: str = "") -> pb.JobVerdict | None:
        """How a lease ended that is not held any more; None while it is held."""
        try:
            return await self._database.read(_ended, lease, output_id)
        except StoreUnavailable:
            return pb.JobVerdict(lease=wire_lease(lease), outcome=pb.JOB_OUTCOME_TRY_AGAIN)

    async def fail(self, lease: LeaseId, fail: pb.JobFail) -> pb.JobVerdict:
        failure = fail.failure
        log.info("attempt_failed", job=lease.job_id, failure_class=int(failure.failure_class))
        return await self._end_attempt(
            lease,
            lambda tx: self._failures.failed(
                tx,
                lease,
                failure.failure_class,
                failure.status.message[:500],
                failure.retryable,
                min(max(failure.retry_after.seconds + failure.retry_after.nanos / 1e9, 0.0), LONGEST_WAIT),
                _entries(fail.usage),
            ),
        )

    async def reject(self, lease: LeaseId, why: str) -> pb.JobVerdict:
        """Ends an attempt whose output breaks the contract; the next one is told why."""
        return await self._end_attempt(
            lease,
            lambda tx: self._failures.failed(tx, lease, pb.FAILURE_CLASS_REJECTED_OUTPUT, why[:500], True, 0.0),
        )

    async def spent(self, lease: LeaseId, usage: Sequence[common_pb2.TokenUsage]) -> None:
        """Counts what an attempt had spent that ended by `reject`: its worker says so only after the output."""

        async def write(tx: Tx) -> None:
            job = await jobs.get(tx, lease.job_id)
            await tasks.spent(tx, jobs.space_of(job), job.job_id, lease.token, _entries(usage))

        try:
            await self._database.write(write)
        except (NotFound, StoreUnavailable) as error:
            log.warning("usage_not_counted", job=lease.job_id, error=str(error))

    async def release(self, lease: LeaseId) -> pb.JobVerdict:
        async def give_back(tx: Tx) -> Ended:
            job = await jobs.held(tx, lease)
            await jobs.requeue(tx, job, None, delay=0, counts=None)
            return Ended(job, given_up=False)

        return await self._end_attempt(lease, give_back)

    async def _no_use(
        self, output: Output, failure_class: int, why: str, left_out: dict[str, Any] | None = None
    ) -> pb.JobVerdict:
        """Ends an attempt whose output came whole and is not applied."""
        return await self._end_attempt(
            output.lease,
            lambda tx: self._failures.failed(
                tx, output.lease, failure_class, why[:500], True, 0.0, output.usage, left_out
            ),
        )

    async def _end_attempt(self, lease: LeaseId, work: Callable[[Tx], Awaitable[Ended]]) -> pb.JobVerdict:
        try:
            ended = await self._database.write(work)
        except Exception as error:
            return await self._not_ended(lease, error)
        self._over(ended.job)
        outcome = pb.JOB_OUTCOME_FAILED if ended.given_up else pb.JOB_OUTCOME_REQUEUED
        return pb.JobVerdict(lease=wire_lease(lease), outcome=outcome)

    async def _not_ended(self, lease: LeaseId, error: Exception, usage: Sequence[dict[str, Any]] = ()) -> pb.JobVerdict:
        """The verdict when an output or an end could not be written."""
        wire = wire_lease(lease)
        if isinstance(error, LeaseLost):
            lost = pb.JobVerdict(lease=wire, outcome=pb.JOB_OUTCOME_LEASE_LOST)
            return await self.ended(lease) or lost
        if isinstance(error, StoreUnavailable):
            log.warning("verdict_delayed", job=lease.job_id, error=str(error))
            return pb.JobVerdict(lease=wire, outcome=pb.JOB_OUTCOME_TRY_AGAIN)
        if isinstance(error, NotFound) and (over := await self.ended(lease)) is not None:
            # Its session or its user was deleted while the output was prepared.
            return over
        log.error("verdict_failed", job=lease.job_id, exc_info=error)
        status = status_pb2.Status(code=code_pb2.INTERNAL, message="the server failed on this output")
        try:
            # Counted, so that an output that the server cannot take ends as a dead letter and not as a loop.
            ended = await self._database.write(
                self._failures.failed, lease, pb.FAILURE_CLASS_INTERNAL, status.message, True, 0.0, usage
            )
        except LeaseLost:
            return pb.JobVerdict(lease=wire, outcome=pb.JOB_OUTCOME_LEASE_LOST, status=status)
        except StoreUnavailable:
            return pb.JobVerdict(lease=wire, outcome=pb.JOB_OUTCOME_TRY_AGAIN, status=status)
        self._over(ended.job)
        outcome = pb.JOB_OUTCOME_FAILED if ended.given_up else pb.JOB_OUTCOME_REQUEUED
        return pb.JobVerdict(lease=wire, outcome=outcome, status=status)

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
        while not self._draining:
            connection = max(self._connections, key=_room, default=None)
            if connection is None or _room(connection) <= 0:
                return
            claimed = await self._database.write(jobs.claim, connection.worker_id, self._terms)
            if claimed is None:
                return
            failpoints.reached(failpoints.CLAIM)
            job, attempt = claimed
            self._watchers.changed(job.job_id)
            if self._draining or not connection.assign(self._assignment(job, attempt)):
                # Claimed for a stream that closed meanwhile: back at once, and not counted.
                await self.release(job.lease)

    def _assignment(self, job: Job, attempt: int) -> pb.JobAssignment:
        plan = Plan.from_json(json.loads(job.plan))
        log.info("job_assigned", job=job.job_id, attempt=attempt, account=job.account)
        return pb.JobAssignment(
            lease=wire_lease(job.lease),
            kind=task_service_pb2.TASK_KIND_COMMIT,
            task_id=job.job_id,
            attempt=attempt,
            time_budget=seconds(self.settings.attempt_seconds),
            session=session_uri(job.user, job.session_id),
            archive_uri=archive_uri(job.user, job.session_id, job.archive_index),
            user_space=space_root(job.user),
            base_revision=job.revision,
            plan=pb.ExtractionPlan(
                allow_self=plan.allow_self,
                allowed_peer_ids=plan.allowed_peer_ids,
                long_term_types=plan.long_term_types,
                execution_types=plan.execution_types,
                session_skills=plan.session_skills,
                summarize=plan.summarize,
            ),
            previous_failures=[_failure(entry) for entry in json.loads(job.failures)],
            traceparent=job.traceparent,
        )

    async def _reap(self) -> None:
        for ended in await self._database.write(self._failures.reap):
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

    async def _forever(
        self, name: str, step: Callable[[], Awaitable[None]], pause: float, woken: asyncio.Event | None = None
    ) -> None:
        never = asyncio.Event()
        while True:
            if woken is not None:
                woken.clear()
            try:
                await step()
            except StoreUnavailable as error:
                log.warning("loop_waits", loop=name, error=str(error))
            except Exception:
                # These loops carry every job of the server: one bad row must not end them.
                log.exception("loop_failed", loop=name)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await (woken or never).wait()


def _room(connection: Connection) -> int:
    return 0 if connection.closed else connection.credits


def _entries(usage: Sequence[common_pb2.TokenUsage]) -> list[dict[str, Any]]:
    return [usage_json(one) for one in usage]


def _failure(entry: dict[str, str]) -> pb.JobFailure:
    status = status_pb2.Status(code=code_pb2.ABORTED, message=entry["message"])
    number = _FAILURES.get(entry["class"], int(pb.FAILURE_CLASS_INTERNAL))
    return pb.JobFailure(failure_class=number, retryable=True, status=status)  # type: ignore[arg-type]


async def _ended(tx: Tx, lease: LeaseId, output_id: str) -> pb.JobVerdict | None:
    verdict = pb.JobVerdict(lease=wire_lease(lease), outcome=pb.JOB_OUTCOME_LEASE_LOST)
    try:
        job = await jobs.get(tx, lease.job_id)
    except NotFound:
        return verdict
    if job.state == "leased" and job.token == lease.token:
        return None
    applied = await storage_apply.applied_before(tx, lease, output_id)
    if applied is not None:
        verdict.outcome = pb.JOB_OUTCOME_ALREADY_APPLIED
        verdict.revision = applied.revision
    elif job.state == "cancelled" and job.token == lease.token + 1:
        verdict.outcome = pb.JOB_OUTCOME_CANCELLED
    return verdict


async def _was_applied(tx: Tx, lease: LeaseId) -> bool:
    try:
        job = await jobs.get(tx, lease.job_id)
    except NotFound:
        return False
    return await storage_apply.applied_before(tx, lease, job.output_id) is not None
