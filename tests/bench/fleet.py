"""A server with extractor processes whose model answers at once: the whole main job, and nothing slow beside it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from runekeep.v1 import admin_service_pb2, admin_service_pb2_grpc
from tests.bench.load.process import START_SECONDS, spoken
from tests.bench.resources import Meter
from tests.bench.setting import Running, Setting

MODEL = "tests.bench.load.instant_model"
EXTRACTORS = 2
CONCURRENCY = 4
"""Jobs of one extractor side by side."""
CALL_SECONDS = 20.0
READY_SECONDS = 60.0
LOOK_SECONDS = 0.1
METADATA = (("x-runekeep-account", "bench"), ("x-runekeep-user", "operator"))


@dataclass(frozen=True, slots=True)
class Fleet:
    running: Running
    model_pids: Sequence[int]
    _admin: Any

    @property
    def processes(self) -> dict[str, list[int]]:
        """Ids, by what they do."""
        return {
            "server": [self.running.server.pid],
            "index": self.running.server.children(),
            "extractors": list(self.running.extractor_pids),
            "model double": list(self.model_pids),
        }

    def meter(self, client_pid: int) -> Meter:
        """Of all of them, and of the process that makes the calls."""
        return Meter({**self.processes, "the client": [client_pid]})

    async def status(self) -> admin_service_pb2.GetServerStatusResponse:
        """How the server says that it is doing; of its queue, what it last read, at most five seconds ago."""
        request = admin_service_pb2.GetServerStatusRequest()
        answer: admin_service_pb2.GetServerStatusResponse = await self._admin.GetServerStatus(
            request, metadata=METADATA, timeout=CALL_SECONDS
        )
        return answer


@contextlib.asynccontextmanager
async def fleet(
    setting: Setting, store: str, embedder: str = "minilm", settings: Mapping[str, str] | None = None
) -> AsyncIterator[Fleet]:
    """EXTRACTORS of them, who have all said hello. `settings`: more of the server's."""
    async with spoken(MODEL) as model:
        url = await model.heard(START_SECONDS)
        async with (
            setting.server(
                store,
                embedder,
                EXTRACTORS,
                settings={"RUNEKEEP_MAX_OPEN_COMMITS_PER_USER": "10000", **(settings or {})},
                extractor_arguments=("--engine", "anthropic", "--concurrency", str(CONCURRENCY)),
                extractor_settings={"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "any"},
            ) as running,
            watched(running, model.pid) as started,
        ):
            yield started


@contextlib.asynccontextmanager
async def watched(running: Running, *model_pids: int) -> AsyncIterator[Fleet]:
    """Of a server whose extractors run already, once all of them have said hello. Raises TimeoutError."""
    async with grpc.aio.insecure_channel(running.address) as channel:
        started = Fleet(running, model_pids, admin_service_pb2_grpc.AdminServiceStub(channel))
        async with asyncio.timeout(READY_SECONDS):
            while (await started.status()).workers < len(running.extractor_pids):  # noqa: ASYNC110  # told to nobody
                await asyncio.sleep(LOOK_SECONDS)
        yield started
