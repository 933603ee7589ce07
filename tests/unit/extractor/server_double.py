"""A double of the server's ExtractorService: it does what a test says, over real gRPC.

It keeps no jobs and applies nothing; it stands for the server only as far as the order of messages goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from runekeep.v1 import (
    common_pb2,
    extractor_service_pb2,
    extractor_service_pb2_grpc,
    memory_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)

_END = object()


class Conversation:
    """One Work stream, seen from the server."""

    def __init__(self, metadata: dict[str, str]) -> None:
        self.metadata = metadata
        self._inbound: asyncio.Queue[object] = asyncio.Queue()
        self._outbound: asyncio.Queue[object] = asyncio.Queue()

    async def expect(self, kind: str, *, skip: tuple[str, ...] = ("heartbeat", "progress", "ready")):
        """The next message of that kind; others than those of `skip` must not come before it."""
        while True:
            message = await self._inbound.get()
            assert message is not _END, f"the stream ended while {kind} was awaited"
            found = message.WhichOneof("message")
            if found == kind:
                return getattr(message, kind)
            assert found in skip, f"{found} came while {kind} was awaited"

    async def expect_end(self) -> None:
        """The worker half-closed, after whatever else it had to say."""
        while await self._inbound.get() is not _END:
            pass

    def say(self, **message) -> None:
        self._outbound.put_nowait(extractor_service_pb2.WorkResponse(**message))

    def end(self) -> None:
        self._outbound.put_nowait(_END)

    def fail(self, code: grpc.StatusCode) -> None:
        self._outbound.put_nowait(code)

    async def welcome(self, *, lease: float = 60.0, heartbeat: float = 15.0, resumed=(), max_chunk_bytes=262144):
        """Take the Hello and answer it; durations in seconds. Gives the Hello."""
        hello = await self.expect("hello")
        welcome = extractor_service_pb2.Welcome(
            server_id="double", max_chunk_bytes=max_chunk_bytes, max_operations=1000, resumed=resumed
        )
        welcome.lease_duration.FromMilliseconds(int(lease * 1000))
        welcome.heartbeat_interval.FromMilliseconds(int(heartbeat * 1000))
        self.say(welcome=welcome)
        return hello

    async def output(self) -> tuple[list[extractor_service_pb2.OutputChunk], extractor_service_pb2.JobComplete]:
        """All chunks of an output and its JobComplete."""
        chunks = []
        while True:
            message = await self._inbound.get()
            assert message is not _END
            if message.WhichOneof("message") == "output":
                chunks.append(message.output)
            elif message.WhichOneof("message") == "complete":
                return chunks, message.complete


@dataclass
class ServerDouble(extractor_service_pb2_grpc.ExtractorServiceServicer):
    conversations: asyncio.Queue[Conversation] = field(default_factory=asyncio.Queue)
    messages: list[common_pb2.Message] = field(default_factory=list)
    memory_types: list[memory_service_pb2.MemoryType] = field(default_factory=list)
    turns: list[turn_memory_service_pb2.CandidateTurn] = field(default_factory=list)
    buckets: list[turn_memory_service_pb2.MemoryBucket] = field(default_factory=list)
    context: turn_memory_service_pb2.LoadTurnContextResponse | None = None
    failures: list[grpc.StatusCode | str] = field(default_factory=list)
    """What the next lease-scoped calls fail with: a code, as when no server answers, or the name of something that the
    server says it cannot serve without."""
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)
    """Number of texts of each EmbedForJob."""
    models: list[str] = field(default_factory=list)
    """Models of the first answers to EmbedForJob; those of the others are `double`."""
    held: dict[str, asyncio.Event] = field(default_factory=dict)

    def hold(self, name: str) -> asyncio.Event:
        """Calls of that name are never answered; the event says that one has come."""
        return self.held.setdefault(name, asyncio.Event())

    async def conversation(self) -> Conversation:
        """The next stream that a worker opens."""
        return await self.conversations.get()

    async def Work(self, request_iterator, context) -> AsyncIterator[extractor_service_pb2.WorkResponse]:
        talk = Conversation(dict(context.invocation_metadata()))
        self.conversations.put_nowait(talk)
        reader = asyncio.create_task(_listen(request_iterator, talk))
        try:
            while (message := await talk._outbound.get()) is not _END:
                if isinstance(message, grpc.StatusCode):
                    await context.abort(message, "as the test says")
                yield message
        finally:
            reader.cancel()

    async def GetJobInput(self, request, context):
        await self._noted("GetJobInput", context)
        if self.memory_types:
            chunk = extractor_service_pb2.MemoryTypeChunk(memory_types=self.memory_types)
            yield extractor_service_pb2.GetJobInputResponse(memory_types=chunk)
        for message in self.messages:
            yield extractor_service_pb2.GetJobInputResponse(
                messages=extractor_service_pb2.MessageChunk(messages=[message])
            )
        for bucket in self.buckets:
            yield extractor_service_pb2.GetJobInputResponse(buckets=extractor_service_pb2.BucketChunk(buckets=[bucket]))
        for turn in self.turns:
            yield extractor_service_pb2.GetJobInputResponse(turns=extractor_service_pb2.TurnChunk(turns=[turn]))
        if self.context is not None:
            yield extractor_service_pb2.GetJobInputResponse(context=self.context)

    async def EmbedForJob(self, request, context):
        await self._noted("EmbedForJob", context)
        self.texts.append(len(request.texts))
        model = self.models.pop(0) if self.models else "double"
        vectors = [extractor_service_pb2.Embedding(values=[1.0, 0.0]) for _ in request.texts]
        return extractor_service_pb2.EmbedForJobResponse(model=model, embeddings=vectors)

    async def FindForJob(self, request, context):
        await self._noted("FindForJob", context)
        return extractor_service_pb2.FindForJobResponse()

    async def ReadForJob(self, request, context):
        await self._noted("ReadForJob", context)
        return extractor_service_pb2.ReadForJobResponse()

    async def _noted(self, name, context) -> None:
        self.calls.append((name, dict(context.invocation_metadata())))
        if name in self.held:
            self.held[name].set()
            await asyncio.get_running_loop().create_future()
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, str):
                context.set_trailing_metadata((("grpc-status-details-bin", missing(failure)),))
                failure = grpc.StatusCode.UNAVAILABLE
            await context.abort(failure, "as the test says")


def missing(dependency: str, wait: int = 1) -> bytes:
    """Details of an error by which a server says what it cannot serve without, and for how many seconds."""
    info, status = error_details_pb2.ErrorInfo(metadata={"dependency": dependency}), status_pb2.Status()
    status.details.add().Pack(info)
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.seconds = wait
    status.details.add().Pack(retry)
    return status.SerializeToString()


async def _listen(request_iterator, talk: Conversation) -> None:
    try:
        async for request in request_iterator:
            talk._inbound.put_nowait(request)
    finally:
        talk._inbound.put_nowait(_END)


def lease(number: int = 1, job: str = "job-1") -> extractor_service_pb2.Lease:
    return extractor_service_pb2.Lease(job_id=job, fencing_token=number)


def assignment(
    of: extractor_service_pb2.Lease | None = None, *, kind: int = task_service_pb2.TASK_KIND_COMMIT, **fields
) -> extractor_service_pb2.JobAssignment:
    given = extractor_service_pb2.JobAssignment(
        lease=of or lease(),
        kind=kind,
        task_id="task-1",
        attempt=1,
        user_space="viking://user/default",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        **fields,
    )
    given.time_budget.seconds = given.time_budget.seconds or 600
    return given


def verdict(outcome: int, of: extractor_service_pb2.Lease | None = None, **fields) -> extractor_service_pb2.JobVerdict:
    return extractor_service_pb2.JobVerdict(lease=of or lease(), outcome=outcome, **fields)
