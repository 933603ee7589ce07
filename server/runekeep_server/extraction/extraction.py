"""Creates and connects the parts that serve extractors, and runs their background loops."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_common.times import DAY_US
from runekeep_server.apply import telemetry
from runekeep_server.apply.applier import Applier
from runekeep_server.extraction.connection import Connection
from runekeep_server.extraction.connections import Connections
from runekeep_server.extraction.dispatcher import Dispatcher
from runekeep_server.extraction.reaper import Reaper
from runekeep_server.identity import Worker
from runekeep_server.leases.attempt_records import AttemptRecorder
from runekeep_server.leases.failure_policy import SECOND, FailurePolicy
from runekeep_server.leases.lease_table import LeaseTable, cancel_message, lost_message
from runekeep_server.leases.output_buffers import MAX_CHUNK_BYTES, MAX_OPERATIONS
from runekeep_server.leases.part_watch import PROBE_INTERVAL_SECONDS, PartWatch
from runekeep_server.leases.renewals import LeaseRenewer
from runekeep_server.leases.verdicts import Verdicts
from runekeep_server.leases.worker_records import LossPolicy, WorkerRecords
from runekeep_server.protocol.answer_sizes import AnswerSizes
from runekeep_server.settings import Settings
from runekeep_server.tasks.watchers import Watchers
from runekeep_server.wire.basics import duration
from runekeep_storage.accounts import audit
from runekeep_storage.drivers.common import idempotent_requests
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.jobs import asks, retention
from runekeep_storage.jobs.jobs import LeaseTerms
from runekeep_storage.records import Job
from runekeep_storage.store import Store

SWEEP_SECONDS = 600.0
"""How often expired responses of request ids and old ended tasks are deleted."""
STALE_ASK_SECONDS = 60.0
"""How long after its deadline a question is deleted whose server was killed, or could not delete it."""

log = structlog.get_logger(__name__)


class Extraction:
    """One per server. Call `start`, and `close` at the end."""

    def __init__(self, store: Store, settings: Settings, watchers: Watchers, server_id: str) -> None:
        self._database = store.all_spaces
        self._settings = settings
        self._watchers = watchers
        self._leases = LeaseTable()
        self.connections = Connections()
        self.workers = WorkerRecords(store.all_spaces, settings)
        self._part_watch = PartWatch(store)
        losses = LossPolicy(settings, self.connections.accounts_by_worker)
        failures = FailurePolicy(settings, self._part_watch, losses)
        self._reaper = Reaper(store.all_spaces, failures, settings)
        terms = LeaseTerms(
            first=round(settings.first_lease_seconds * SECOND),
            renewed=round(settings.lease_seconds * SECOND),
            attempt=round(settings.attempt_seconds * SECOND),
        )
        self.renewer = LeaseRenewer(store.all_spaces, terms, self._leases, watchers)
        self.verdicts = Verdicts(
            store.all_spaces,
            Applier(
                store,
                withhold_secrets=settings.withhold_secrets,
                review_superseded=settings.review_superseded,
                max_memory_bytes=AnswerSizes.of(settings.max_message_bytes).memory,
            ),
            failures,
            AttemptRecorder(store.registry, answers=settings.record_answers),
            self._leases.space_of,
            self._on_end,
        )
        self.dispatcher = Dispatcher(
            store.all_spaces,
            settings,
            terms,
            self.connections,
            self._leases,
            self.verdicts,
            self.workers,
            watchers,
            self._on_end,
        )
        self._welcome = pb.Welcome(
            server_id=server_id,
            lease_duration=duration(settings.lease_seconds),
            heartbeat_interval=duration(settings.heartbeat_seconds),
            max_chunk_bytes=MAX_CHUNK_BYTES,
            max_operations=MAX_OPERATIONS,
        )
        self._loops: list[asyncio.Task[None]] = []

    def new_connection(self, worker: Worker, hello: pb.Hello) -> Connection:
        """Returns the connection for a new stream of a worker."""
        leases, renewer, verdicts = self._leases, self.renewer, self.verdicts
        return Connection(worker, hello, self._welcome, leases, renewer, verdicts, self.workers, self.dispatcher.wake)

    async def start(self) -> None:
        poll, dispatcher = self._settings.poll_seconds, self.dispatcher
        self._loops = [
            asyncio.create_task(_repeat("dispatch", dispatcher.dispatch, poll, dispatcher.woken)),
            asyncio.create_task(_repeat("reap", self._reap, poll)),
            asyncio.create_task(_repeat("part_watch", self._part_watch.probe, PROBE_INTERVAL_SECONDS)),
            asyncio.create_task(_repeat("seen", self._record_seen, self._settings.heartbeat_seconds)),
            asyncio.create_task(_repeat("sweep", self._sweep, SWEEP_SECONDS)),
        ]

    async def drain(self) -> None:
        """Stops claiming jobs, and lets workers move to other servers."""
        await self.connections.drain(self._settings.drain_seconds)

    async def close(self) -> None:
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self.dispatcher.return_undelivered()

    def wake(self) -> None:
        """Looks for jobs at once, because some may be due."""
        self.dispatcher.wake()

    def cancel(self, job: Job, reason: str) -> None:
        """Tells the worker that its job was cancelled. The store refuses its output in any case."""
        self._leases.end(job.lease, lambda lease: cancel_message(lease, reason))
        self._on_end(job)

    def cancel_question(self, job_id: str, reason: str) -> None:
        """Tells the worker of a question, if it has one on this server, that nobody waits for the answer. The store may
        be unavailable."""
        for lease in self._leases.of_job(job_id):
            self._leases.end(lease, lambda lease: cancel_message(lease, reason))
        self.dispatcher.wake()

    def _on_end(self, job: Job) -> None:
        self._watchers.changed(job.job_id)
        self.dispatcher.wake()

    async def _record_seen(self) -> None:
        await self.workers.record_seen(self.connections.accounts_by_worker())

    async def _reap(self) -> None:
        await self.workers.record_gone(self.connections.take_departed())
        for end in await self._reaper.reap():
            job = end.job
            telemetry.lease_lost(job, self._settings.attempt_seconds, given_up=end.given_up)
            log.warning("lease_expired", job=job.job_id, worker=job.worker_id, given_up=end.given_up)
            self._leases.end(job.lease, lost_message)
            self._on_end(job)
            for record in end.paused:
                telemetry.PAUSES.inc()
                log.warning(
                    "worker_paused",
                    actor=record.worker.holder,
                    worker=record.worker.name,
                    lost_jobs=len(record.lost),
                    pauses=record.pauses,
                )
        await self.workers.refresh()
        telemetry.PAUSED.set(len(self.workers.paused_workers()))

    async def _sweep(self) -> None:
        """Deletes what has outlived its retention, in batches."""
        await self.workers.forget_old()
        while await self._database.write_global(idempotent_requests.forget_old) == idempotent_requests.BATCH:
            pass
        keep = self._settings.task_retention_days * DAY_US
        while await self._database.write_global(retention.forget_ended, keep) == retention.BATCH:
            pass
        for space, job_id in await self._database.read_global(asks.stale, round(STALE_ASK_SECONDS * SECOND)):
            await self._database.write(asks.forget, space, job_id, "its caller is gone")
            self.cancel_question(job_id, "its caller is gone")
        keep = self._settings.audit_retention_days * DAY_US
        while await self._database.write_global(audit.forget_old, keep) == audit.BATCH:
            pass


async def _repeat(
    name: str, step: Callable[[], Awaitable[None]], pause: float, woken: asyncio.Event | None = None
) -> None:
    """Runs the step forever, with a pause in seconds that `woken` ends."""
    woken = woken or asyncio.Event()
    failures = 0
    while True:
        woken.clear()
        try:
            await step()
            failures = 0
        except StoreUnavailable as error:
            failures += 1
            # Logs the first failure, and then ever more rarely: the store may be unavailable for hours.
            if failures.bit_count() == 1:
                log.warning("loop_waits", loop=name, error=str(error))
        except Exception:
            # These loops serve every job of the server: one bad row must not end them.
            log.exception("loop_failed", loop=name)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await woken.wait()
