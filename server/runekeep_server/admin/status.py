"""The status of this server and its dependencies, for `GetServerStatus`."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from time import perf_counter
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import admin_service_pb2 as pb
from runekeep_common.telemetry import export
from runekeep_server.admin.data_checks import data_checks
from runekeep_server.admin.embedder_changes import EmbedderChanges
from runekeep_server.extraction.connection import PROTOCOL_VERSION
from runekeep_server.extraction.extraction import Extraction
from runekeep_server.settings import Settings
from runekeep_server.telemetry.standing import BacklogCache
from runekeep_storage.embedders import EmbedderUnavailable
from runekeep_storage.errors import DataDamaged, StoreError, StoreReadOnly
from runekeep_storage.index.base import IndexUnavailable
from runekeep_storage.jobs.backlog import About, BacklogStats, about
from runekeep_storage.jobs.worker_records import WorkerRecord
from runekeep_storage.rerankers import RerankerUnavailable
from runekeep_storage.store import POSTGRES_SCHEMES, Store

PROBE_SECONDS: Final = 3.0
"""Timeout of each dependency; all are probed concurrently."""


class _Away(Exception):
    """A dependency reports that it cannot serve."""


class ServerStatus:
    """The status of one server. Create it when the server begins to serve."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        standings: BacklogCache,
        extraction: Extraction,
        embedder_changes: EmbedderChanges,
    ) -> None:
        self._store = store
        self._embedder_changes = embedder_changes
        self._settings = settings
        self._standings = standings
        self._extraction = extraction
        self._began = _now()
        self._on_postgres = settings.store_url.startswith(POSTGRES_SCHEMES)

    async def read(self) -> pb.GetServerStatusResponse:
        """Always returns an answer, in little more than PROBE_SECONDS. A dependency that does not answer is reported as
        unavailable, and what only it knows is left out."""
        (standing, change, told), others = await asyncio.gather(
            asyncio.gather(self._standing(), self._change(), self._told()),
            asyncio.gather(self._index(), self._embedder(), self._reranker(), self._blobs()),
        )
        about_store, store = told
        answer = pb.GetServerStatusResponse(
            version=export.release(),
            protocol_version=PROTOCOL_VERSION,
            identity_mode=self._settings.identity_mode,
            start_time=self._began,
            server_time=_now(),
            dependencies=[about_store, *filter(None, others)],
            workers=len(self._extraction.connections),
            data_checks=data_checks(self._store),
            paused_workers=map(_paused, self._extraction.workers.paused_workers()),
            embedder_change=change,
        )
        if store is not None:
            answer.store_revision = store.revision
            answer.store_time.FromMicroseconds(store.now)
        if standing is not None:
            answer.jobs.extend(_jobs(standing))
            if standing.index.archives_oldest_at:
                answer.index_lag.FromMicroseconds(max(standing.now - standing.index.archives_oldest_at, 0))
        return answer

    async def _standing(self) -> BacklogStats | None:
        try:
            return await self._standings.now()
        except (StoreError, TimeoutError):
            return None

    async def _change(self) -> pb.EmbedderChange | None:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                return await self._embedder_changes.read()
        except (StoreError, TimeoutError):
            return None

    async def _told(self) -> tuple[pb.Dependency, About | None]:
        found: list[About] = []

        async def ask() -> None:
            found.append(await self._store.all_spaces.read_global(about, on_postgres=self._on_postgres))
            await self._store.probe()

        told = await _probed("store", "postgresql" if self._on_postgres else "sqlite", ask)
        if not found:
            return told, None
        told.kind = f"{told.kind} {found[0].version}"
        return told, found[0]

    async def _index(self) -> pb.Dependency:
        async def ask() -> None:
            if not await self._store.index.healthy():
                raise _Away

        return await _probed("index", "qdrant" if self._settings.index_url else "qdrant-edge", ask)

    async def _embedder(self) -> pb.Dependency | None:
        """Returns None for a server without an embedder: nothing is missing there."""
        embedder = self._store.embedder
        if embedder is None:
            return None
        return await _probed("embedder", self._settings.embedder, embedder.warm)

    async def _reranker(self) -> pb.Dependency | None:
        """Returns None for a server without a reranker. Sends it nothing if it answered the last search."""
        rerankers = self._store.rerankers
        if not rerankers:
            return None
        return await _probed("reranker", self._settings.reranker, rerankers.warm)

    async def _blobs(self) -> pb.Dependency:
        async def ask() -> None:
            await asyncio.to_thread(self._store.blobs.probe)

        return await _probed("blobs", "object store" if self._settings.blob_url else "folder", ask)


async def _probed(name: str, kind: str, ask: Callable[[], Awaitable[None]]) -> pb.Dependency:
    """Probes a dependency. The text of a failure is ours: drivers quote addresses, and sometimes passwords."""
    began = perf_counter()
    problem = ""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await ask()
    except TimeoutError:
        problem = f"It did not answer within {PROBE_SECONDS:g} s."
    except DataDamaged:
        problem = "It is damaged, and takes no writes."
    except StoreReadOnly:
        problem = "It is read-only: it answers reads and takes no writes."
    except (StoreError, IndexUnavailable, EmbedderUnavailable, RerankerUnavailable, _Away, OSError):
        problem = "It does not answer; the log of this server says why."
    round_trip = Duration()
    round_trip.FromMicroseconds(round((perf_counter() - began) * 1e6))
    return pb.Dependency(name=name, kind=kind, available=not problem, round_trip=round_trip, problem=problem)


def _jobs(standing: BacklogStats) -> list[pb.JobCount]:
    counts = []
    for queue in standing.queues:
        count = pb.JobCount(kind=queue.kind, state=queue.state, jobs=queue.jobs)
        if queue.oldest_at:
            count.oldest_time.FromMicroseconds(queue.oldest_at)
        counts.append(count)
    return counts


def _paused(found: tuple[WorkerRecord, float]) -> pb.PausedWorker:
    record, seconds = found
    paused = pb.PausedWorker(actor=record.worker.holder, worker_id=record.worker.name, lost_jobs=len(record.lost))
    paused.remaining.FromMilliseconds(round(seconds * 1000))
    return paused


def _now() -> Timestamp:
    now = Timestamp()
    now.FromDatetime(datetime.now(UTC))
    return now
