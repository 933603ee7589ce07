"""How this server, and what it depends on, are doing: what `GetServerStatus` answers."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from time import perf_counter
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import admin_service_pb2 as pb
from schemas.telemetry import export
from server.data_checks import data_checks
from server.settings import Settings
from server.telemetry.standing import Standings
from server.work.connection import PROTOCOL_VERSION
from server.work.dispatcher import Dispatcher
from storage.embedders import EmbedderUnavailable
from storage.errors import DataDamaged, StoreError, StoreReadOnly
from storage.index.base import IndexUnavailable
from storage.standing import About, Standing, about
from storage.store import POSTGRES_SCHEMES, Store
from storage.worker_standings import WorkerStanding

PROBE_SECONDS: Final = 3.0
"""For each part to answer; all of them are asked at once."""


class _Away(Exception):
    """A part says by itself that it cannot serve."""


class ServerStatus:
    """One a server, made when it begins to serve."""

    def __init__(self, store: Store, settings: Settings, standings: Standings, dispatcher: Dispatcher) -> None:
        self._store = store
        self._settings = settings
        self._standings = standings
        self._dispatcher = dispatcher
        self._began = _now()
        self._on_postgres = settings.store_url.startswith(POSTGRES_SCHEMES)

    async def read(self) -> pb.GetServerStatusResponse:
        """Always an answer, in little more than PROBE_SECONDS: what does not answer is told as away, and what only it
        knows is left out."""
        standing, told, *others = await asyncio.gather(
            self._standing(), self._told(), self._index(), self._embedder(), self._blobs()
        )
        about_store, store = told
        answer = pb.GetServerStatusResponse(
            version=export.release(),
            protocol_version=PROTOCOL_VERSION,
            identity_mode=self._settings.identity_mode,
            start_time=self._began,
            server_time=_now(),
            dependencies=[about_store, *filter(None, others)],
            workers=self._dispatcher.workers,
            data_checks=data_checks(self._store),
            paused_workers=map(_paused, self._dispatcher.paused_workers()),
        )
        if store is not None:
            answer.store_revision = store.revision
            answer.store_time.FromMicroseconds(store.now)
        if standing is not None:
            answer.jobs.extend(_jobs(standing))
            if standing.archives_oldest_at:
                answer.index_lag.FromMicroseconds(max(standing.now - standing.archives_oldest_at, 0))
        return answer

    async def _standing(self) -> Standing | None:
        try:
            return await self._standings.now()
        except (StoreError, TimeoutError):
            return None

    async def _told(self) -> tuple[pb.Dependency, About | None]:
        found: list[About] = []

        async def ask() -> None:
            found.append(await self._store.all_spaces.read(about, on_postgres=self._on_postgres))
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
        """None for a server without one: nothing is missing there."""
        embedder = self._store.embedder
        if embedder is None:
            return None

        async def ask() -> None:
            await embedder.embed(["ready"])

        return await _probed("embedder", self._settings.embedder, ask)

    async def _blobs(self) -> pb.Dependency:
        async def ask() -> None:
            await asyncio.to_thread(self._store.blobs.probe)

        return await _probed("blobs", "object store" if self._settings.blob_url else "folder", ask)


async def _probed(name: str, kind: str, ask: Callable[[], Awaitable[None]]) -> pb.Dependency:
    """What fails is told in words of ours: those of drivers quote addresses, and sometimes passwords."""
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
    except (StoreError, IndexUnavailable, EmbedderUnavailable, _Away, OSError):
        problem = "It does not answer; the log of this server says why."
    round_trip = Duration()
    round_trip.FromMicroseconds(round((perf_counter() - began) * 1e6))
    return pb.Dependency(name=name, kind=kind, available=not problem, round_trip=round_trip, problem=problem)


def _jobs(standing: Standing) -> list[pb.JobCount]:
    counts = []
    for queue in standing.queues:
        count = pb.JobCount(kind=queue.kind, state=queue.state, jobs=queue.jobs)
        if queue.oldest_at:
            count.oldest_time.FromMicroseconds(queue.oldest_at)
        counts.append(count)
    return counts


def _paused(found: tuple[WorkerStanding, float]) -> pb.PausedWorker:
    standing, seconds = found
    paused = pb.PausedWorker(actor=standing.worker.holder, worker_id=standing.worker.name, lost_jobs=len(standing.lost))
    paused.remaining.FromMilliseconds(round(seconds * 1000))
    return paused


def _now() -> Timestamp:
    now = Timestamp()
    now.FromDatetime(datetime.now(UTC))
    return now
