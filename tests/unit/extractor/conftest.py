import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import grpc.aio
import pytest

from runekeep.transport.transport import transport
from runekeep.v1 import common_pb2, extractor_service_pb2, extractor_service_pb2_grpc
from runekeep_extractor.engine.interface import EngineOutput, Job
from runekeep_extractor.rpc.backoff import Backoff
from runekeep_extractor.rpc.channel import open_channel
from runekeep_extractor.settings import NAMES
from runekeep_extractor.worker.worker import Worker
from runekeep_storage.embedders import Embedder, open_embedder
from tests.doubles.messages_api import MessagesApi
from tests.unit.extractor.server_double import ServerDouble


@pytest.fixture
async def server() -> AsyncIterator[tuple[ServerDouble, str]]:
    """A running double and its address."""
    double = ServerDouble()
    grpc_server = grpc.aio.server()
    extractor_service_pb2_grpc.add_ExtractorServiceServicer_to_server(double, grpc_server)
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    await grpc_server.start()
    yield double, f"127.0.0.1:{port}"
    await grpc_server.stop(None)


@pytest.fixture
def api() -> Iterator[MessagesApi]:
    with MessagesApi() as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def without_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each client reads the system's certificates, in a tenth of a second; models are called over plain HTTP here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield


@dataclass
class StepEngine:
    """An engine whose work a test drives: it says when a job has begun and ended, and waits to be let go."""

    info: common_pb2.ExtractorInfo = field(
        default_factory=lambda: common_pb2.ExtractorInfo(engine="steps", model="none", version="1")
    )
    work: Callable[[Job], Awaitable[EngineOutput]] | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    refused: list[str] = field(default_factory=list)
    away: str = ""
    answers_questions: bool = False
    seen: list[int] = field(default_factory=list)
    asked: list[tuple[str, list[str], list[str]]] = field(default_factory=list)
    """Jobs about turns: what was asked, ids of the turns of the input, ids of its buckets."""

    async def extract(self, job: Job) -> EngineOutput:
        self.seen.append(len(job.messages))
        self.begun.set()
        try:
            if self.work is not None:
                return await self.work(job)
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return EngineOutput(operations=[operation("one"), operation("two")])

    async def fingerprint(self, job: Job) -> EngineOutput:
        self._asked("fingerprint", job)
        memory = extractor_service_pb2.TurnMemory(turn_id=job.assignment.turn_id)
        memory.fingerprint.objective = "Find a hotel."
        return EngineOutput(turn_memories=[memory])

    async def reconcile(self, job: Job) -> EngineOutput:
        self._asked("reconcile", job)
        return EngineOutput(bucket_changes=extractor_service_pb2.BucketChanges(disabled=["obj-old"]))

    async def answer(self, job: Job) -> EngineOutput:
        raise AssertionError("it answers no questions")

    def _asked(self, name: str, job: Job) -> None:
        turns, buckets = [one.turn.turn_id for one in job.turns], [one.bucket_id for one in job.buckets]
        self.asked.append((name, turns, buckets))

    async def repair(self, job: Job, output: EngineOutput, refused) -> EngineOutput:
        self.refused += [left.reason for left in refused]
        job.spent.append(common_pb2.TokenUsage(model="m", phase="repair", calls=1))
        return EngineOutput(operations=output.operations[:1])

    async def close(self) -> None:
        return


class Remembering:
    """An embedder that computes each text once: a vector is the same beside whatever other texts, and each new engine
    asks for all its prototypes."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, bytes] = {}
        self.model, self.dimension = embedder.model, embedder.dimension

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, await self._embedder.embed(new) if new else (), strict=True))
        return [self._known[text] for text in texts]


@pytest.fixture(scope="session")
def embedder() -> Iterator[Remembering]:
    """The embedder that servers run by default."""
    opened = open_embedder("minilm")
    assert opened is not None
    yield Remembering(opened)
    asyncio.run(opened.close())


def operation(name: str, size: int = 0) -> extractor_service_pb2.MemoryOperation:
    write = extractor_service_pb2.WriteOp(memory_type="entities")
    write.fields["entity_name"].string_value = name
    write.fields["content"].string_value = "x" * size
    return extractor_service_pb2.MemoryOperation(write=write)


@pytest.fixture
def engine() -> StepEngine:
    return StepEngine()


@dataclass
class Running:
    worker: Worker
    stop: asyncio.Event
    task: asyncio.Task[None]


@pytest.fixture
async def run_worker(server, engine) -> AsyncIterator[Callable[..., Awaitable[Running]]]:
    """Starts a worker against the double; it is gone at the end of the test."""
    async with AsyncExitStack() as stack:

        async def start(**options) -> Running:
            return await stack.enter_async_context(_running(server[1], engine, **options))

        yield start


@asynccontextmanager
async def _running(address: str, engine: StepEngine, **options) -> AsyncIterator[Running]:
    settings = {"worker_id": "w1", "concurrency": 2, "grace": 0.0, "stall_timeout": 300.0} | options
    stop = asyncio.Event()
    way = transport(address, NAMES)
    async with open_channel(way) as channel:
        worker = Worker(channel, engine, transport=way, reconnect=Backoff(first=0.01, most=0.05), **settings)
        task = asyncio.create_task(worker.run(stop))
        yield Running(worker, stop, task)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
