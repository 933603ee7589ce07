"""A worker that does what a test tells it: it speaks ExtractorService.Work message by message."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

import grpc

from runekeep.v1 import (
    common_pb2,
    extractor_service_pb2_grpc,
    memory_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import Failure

WAIT_SECONDS = 20.0
KINDS = (
    task_service_pb2.TASK_KIND_COMMIT,
    task_service_pb2.TASK_KIND_TURN_FINGERPRINT,
    task_service_pb2.TASK_KIND_BUCKET_RECONCILE,
)


class StreamEnded(Exception):
    """The server ended the stream; `failure` is None when it did so with OK."""

    def __init__(self, failure: Failure | None) -> None:
        super().__init__(repr(failure))
        self.failure = failure


@dataclass(slots=True)
class JobInput:
    """`kinds`: of the pieces, in the order in which they came."""

    kinds: list[str] = field(default_factory=list)
    memory_types: list[memory_service_pb2.MemoryType] = field(default_factory=list)
    messages: list[common_pb2.Message] = field(default_factory=list)
    turns: list[turn_memory_service_pb2.CandidateTurn] = field(default_factory=list)
    buckets: list[turn_memory_service_pb2.MemoryBucket] = field(default_factory=list)
    context: turn_memory_service_pb2.LoadTurnContextResponse | None = None


class Worker:
    """One Work stream. Used as a context it says Hello, and in the end cancels the stream, like a process that dies."""

    def __init__(self, channel: grpc.aio.Channel, name: str = "worker", resume: Sequence[pb.Lease] = ()) -> None:
        self.calls = extractor_service_pb2_grpc.ExtractorServiceStub(channel)
        self.name = name
        self.welcome = pb.Welcome()
        self._resume = list(resume)
        self._call: Any = self.calls.Work()
        self._came: list[pb.WorkResponse] = []
        self._news = asyncio.Condition()
        self._ended: StreamEnded | None = None
        self._reader = asyncio.create_task(self._read())

    async def __aenter__(self) -> Self:
        await self.hello()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.break_off()

    async def break_off(self) -> None:
        """Ends the stream without a word; returns when it is over on this side."""
        self._call.cancel()
        await asyncio.wait([self._reader])

    async def _read(self) -> None:
        failure = None
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                async with self._news:
                    self._came.append(response)
                    self._news.notify_all()
        except grpc.aio.AioRpcError as error:
            failure = Failure(error)
        except asyncio.CancelledError:
            pass
        async with self._news:
            self._ended = StreamEnded(failure)
            self._news.notify_all()

    async def next(self, kind: str, wanted: Callable[[Any], bool] = lambda message: True) -> Any:
        """The next message of that kind that is wanted; others stay for later. Raises StreamEnded."""

        def matches(response: pb.WorkResponse) -> bool:
            return response.WhichOneof("message") == kind and wanted(getattr(response, kind))

        return getattr(await self.next_of(matches), kind)

    async def next_of(self, matches: Callable[[pb.WorkResponse], bool]) -> pb.WorkResponse:
        """The next message that matches. Raises StreamEnded."""

        def place() -> int | None:
            return next((number for number, response in enumerate(self._came) if matches(response)), None)

        async with asyncio.timeout(WAIT_SECONDS), self._news:
            await self._news.wait_for(lambda: place() is not None or self._ended is not None)
            number = place()
            if number is None:
                assert self._ended is not None
                raise self._ended
            return self._came.pop(number)

    async def end(self) -> Failure | None:
        """How the server ended the stream."""
        async with asyncio.timeout(WAIT_SECONDS), self._news:
            await self._news.wait_for(lambda: self._ended is not None)
        assert self._ended is not None
        return self._ended.failure

    def seen(self, kind: str) -> list[Any]:
        """Messages of that kind that nobody has taken."""
        return [getattr(one, kind) for one in self._came if one.WhichOneof("message") == kind]

    async def send(self, **message: Any) -> None:
        """Raises StreamEnded."""
        try:
            await self._call.write(pb.WorkRequest(**message))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            # The status of a write that meets the end of a stream is often the client's own.
            await self.end()
            assert self._ended is not None
            raise self._ended from error

    async def done_writing(self) -> None:
        await self._call.done_writing()

    async def hello(self, **fields: Any) -> pb.Welcome:
        hello = {
            "protocol_version": 1,
            "worker_id": self.name,
            "incarnation_id": uuid4().hex,
            "kinds": KINDS,
            "extractor": common_pb2.ExtractorInfo(engine="scripted"),
            "resume": self._resume,
        }
        await self.send(hello=pb.Hello(**{**hello, **fields}))
        self.welcome = await self.next("welcome")
        return self.welcome

    async def ready(self, credits: int = 1) -> None:
        await self.send(ready=pb.Ready(credits=credits))

    async def assignment(self) -> pb.JobAssignment:
        return await self.next("assignment")  # type: ignore[no-any-return]  # read by name

    async def take(self) -> pb.JobAssignment:
        """Asks for one job and waits for it."""
        await self.ready()
        return await self.assignment()

    async def input(self, lease: pb.Lease) -> JobInput:
        """The whole input of a job."""
        whole = JobInput()
        async for piece in self.calls.GetJobInput(pb.GetJobInputRequest(lease=lease)):
            kind = str(piece.WhichOneof("chunk"))
            whole.kinds.append(kind)
            if kind == "context":
                whole.context = piece.context
            elif kind != "usage":
                getattr(whole, kind).extend(getattr(getattr(piece, kind), kind))
        return whole

    async def heartbeat(self, *leases: pb.Lease, sequence: int = 1) -> pb.LeaseUpdate:
        await self.send(heartbeat=pb.Heartbeat(sequence=sequence, leases=leases))
        return await self.next("lease_update", lambda update: update.heartbeat_sequence == sequence)  # type: ignore[no-any-return]  # read by name

    async def progress(self, lease: pb.Lease, phase: int, percent: int, message: str = "") -> None:
        progress = task_service_pb2.TaskProgress(phase=phase, percent=percent, message=message)  # type: ignore[arg-type]  # a number of the enum
        await self.send(progress=pb.JobProgress(lease=lease, progress=progress))

    async def chunk(
        self, lease: pb.Lease, output_id: str, index: int, items: Sequence[pb.OutputItem]
    ) -> pb.OutputAck | None:
        """Sends a chunk and waits until the server has it; None when it says that the lease is lost."""

        def about_it(response: pb.WorkResponse) -> bool:
            lost = any(
                state.lease == lease and state.status == pb.LEASE_STATUS_LOST for state in response.lease_update.leases
            )
            return response.output_ack.output_id == output_id or lost

        await self.send(output=pb.OutputChunk(lease=lease, output_id=output_id, index=index, items=items))
        response = await self.next_of(about_it)
        return response.output_ack if response.HasField("output_ack") else None

    async def complete(self, lease: pb.Lease, output_id: str, chunks: int, **fields: Any) -> pb.JobVerdict:
        fields.setdefault("extractor", common_pb2.ExtractorInfo(engine="scripted", model="none", version="1"))
        await self.send(complete=pb.JobComplete(lease=lease, output_id=output_id, chunk_count=chunks, **fields))
        return await self.verdict(lease)

    async def verdict(self, lease: pb.Lease) -> pb.JobVerdict:
        return await self.next("verdict", lambda verdict: verdict.lease == lease)  # type: ignore[no-any-return]  # read by name

    async def deliver(
        self, lease: pb.Lease, *operations: pb.MemoryOperation, summary: str = "", output_id: str = "", **fields: Any
    ) -> pb.JobVerdict:
        """Sends a whole output in one chunk."""
        output_id = output_id or uuid4().hex
        items = [pb.OutputItem(operation=operation) for operation in operations]
        if summary:
            items.append(pb.OutputItem(summary=common_pb2.Summary(abstract=summary, overview=f"# {summary}")))
        await self.chunk(lease, output_id, 0, items)
        return await self.complete(lease, output_id, 1, **fields)

    async def deliver_items(
        self, lease: pb.Lease, *items: pb.OutputItem, output_id: str = "", **fields: Any
    ) -> pb.JobVerdict:
        """Sends a whole output of any items in one chunk; without items, one of no chunks."""
        output_id = output_id or uuid4().hex
        if items:
            await self.chunk(lease, output_id, 0, items)
        return await self.complete(lease, output_id, 1 if items else 0, **fields)

    async def fail(
        self,
        lease: pb.Lease,
        failure_class: int,
        *,
        retryable: bool = True,
        usage: Sequence[common_pb2.TokenUsage] = (),
        **fields: Any,
    ) -> pb.JobVerdict:
        failure = pb.JobFailure(failure_class=failure_class, retryable=retryable, **fields)  # type: ignore[arg-type]  # a number of the enum
        await self.send(fail=pb.JobFail(lease=lease, failure=failure, usage=usage))
        return await self.verdict(lease)

    async def release(self, lease: pb.Lease) -> pb.JobVerdict:
        await self.send(release=pb.JobRelease(lease=lease, reason="test"))
        return await self.verdict(lease)


def turn_memory(
    turn_id: str,
    fingerprint: turn_memory_service_pb2.TurnFingerprint | None = None,
    summary: turn_memory_service_pb2.TurnSummary | None = None,
) -> pb.OutputItem:
    return pb.OutputItem(turn_memory=pb.TurnMemory(turn_id=turn_id, fingerprint=fingerprint, summary=summary))


def selection(**ids: Any) -> pb.OutputItem:
    return pb.OutputItem(selection=turn_memory_service_pb2.TurnSelection(**ids))


def reaction(turn_id: str, text: str, confidence: float = 0.9, **fields: Any) -> pb.OutputItem:
    """That of a user who is not content, as a machine found it."""
    fields = {
        "reaction": turn_memory_service_pb2.REACTION_NOT_OK,
        "origin": turn_memory_service_pb2.FEEDBACK_ORIGIN_MACHINE,
    } | fields
    return pb.OutputItem(
        feedback=turn_memory_service_pb2.Feedback(turn_id=turn_id, text=text, confidence=confidence, **fields)
    )


def bucket_changes(**fields: Any) -> pb.OutputItem:
    return pb.OutputItem(bucket_changes=pb.BucketChanges(**fields))


def value(of: Any) -> common_pb2.FieldValue:
    match of:
        case bool():
            return common_pb2.FieldValue(bool_value=of)
        case int():
            return common_pb2.FieldValue(int64_value=of)
        case float():
            return common_pb2.FieldValue(float32_value=of)
    return common_pb2.FieldValue(string_value=str(of))


def write(
    memory_type: str,
    *,
    peer: str = "",
    ranges: Sequence[tuple[int, int]] = (),
    reason: str = "",
    abstract: str = "",
    overview: str = "",
    **fields: Any,
) -> pb.MemoryOperation:
    return pb.MemoryOperation(
        write=pb.WriteOp(
            memory_type=memory_type,
            fields={name: value(of) for name, of in fields.items()},
            abstract=abstract,
            overview=overview,
        ),
        peer_id=peer,
        ranges=[common_pb2.MessageRange(start_sequence=first, end_sequence=last) for first, last in ranges],
        reason=reason,
    )


def edit(
    uri: str,
    *,
    peer: str = "",
    ranges: Sequence[tuple[int, int]] = (),
    reason: str = "",
    rename: Mapping[str, str] | None = None,
    **changes: Any,
) -> pb.MemoryOperation:
    """`changes` by field: a value, or pairs (search, replace). `rename`: new values of fields that name the memory."""
    patches = [common_pb2.FieldPatch(field=name, rename=value(new)) for name, new in (rename or {}).items()]
    for name, change in changes.items():
        if isinstance(change, list):
            blocks = [common_pb2.SearchReplaceBlock(search=search, replace=replace) for search, replace in change]
            patches.append(common_pb2.FieldPatch(field=name, search_replace=common_pb2.SearchReplace(blocks=blocks)))
        else:
            patches.append(common_pb2.FieldPatch(field=name, value=value(change)))
    return pb.MemoryOperation(
        edit=pb.EditOp(uri=uri, patches=patches),
        peer_id=peer,
        ranges=[common_pb2.MessageRange(start_sequence=first, end_sequence=last) for first, last in ranges],
        reason=reason,
    )


def delete(uri: str, *, peer: str = "", ranges: Sequence[tuple[int, int]] = ((1, 1),)) -> pb.MemoryOperation:
    """By the first message of a session as evidence, unless others are named."""
    return pb.MemoryOperation(
        delete=pb.DeleteOp(uri=uri),
        peer_id=peer,
        ranges=[common_pb2.MessageRange(start_sequence=first, end_sequence=last) for first, last in ranges],
    )
