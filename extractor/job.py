"""One job as an engine sees it: its input, and reads that are confined to its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

from extractor.calls import part_in_words, with_retries
from extractor.channel import Metadata
from extractor.engine import JobFailed
from extractor.work_shown import shows_work
from runekeep.v1 import (
    common_pb2,
    extractor_service_pb2,
    extractor_service_pb2_grpc,
    memory_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)
from schemas.session_skills import SESSION_SKILLS
from schemas.telemetry import tracing

T = TypeVar("T")

EMBED_BATCH: Final = 64
EMBED_TEXT_BYTES: Final = 8192

_INPUT_DEADLINE: Final = 60.0
_READ_DEADLINE: Final = 5.0
_FIND_DEADLINE: Final = 10.0
_EMBED_DEADLINE: Final = 30.0


class Watched(Protocol):
    """What a job tells the worker that runs it."""

    def moved(self) -> None:
        """The job did something; a job that does nothing for long loses its lease."""
        ...

    async def report(self, progress: task_service_pb2.TaskProgress) -> None:
        """Pass progress on to those who watch the task."""
        ...


class RemoteJob:
    """The `Job` of engines, over the lease-scoped calls of ExtractorService. Usable after `load`.

    Besides JobFailed its reads raise `NotThere` (a LookupError) and `NotAllowed` (a ValueError) for URIs that cannot
    be read, and LeaseLost, which engines let pass.
    """

    def __init__(
        self,
        stub: extractor_service_pb2_grpc.ExtractorServiceAsyncStub,
        metadata: Metadata,
        assignment: extractor_service_pb2.JobAssignment,
        watched: Watched,
    ) -> None:
        self.assignment = assignment
        self.memory_types: Sequence[memory_service_pb2.MemoryType] = ()
        self.messages: Sequence[common_pb2.Message] = ()
        self.turns: Sequence[turn_memory_service_pb2.CandidateTurn] = ()
        self.buckets: Sequence[turn_memory_service_pb2.MemoryBucket] = ()
        self.context = turn_memory_service_pb2.LoadTurnContextResponse()
        self.usage = extractor_service_pb2.UsageChunk()
        self.spent: list[common_pb2.TokenUsage] = []
        self.calls: list[common_pb2.ModelCall] = []
        self._stub = stub
        self._of_worker = metadata
        self._watched = watched
        self._last = task_service_pb2.TaskProgress()
        self._waiting_since = 0.0
        self._waited = 0.0
        self.waiting_for = ""
        """The part of the server that a call waits for now, as in Task.waiting_for; empty if none is away."""

    @property
    def waited(self) -> float:
        """Seconds that the job's calls waited for parts that were away."""
        so_far = asyncio.get_running_loop().time() - self._waiting_since if self.waiting_for else 0.0
        return self._waited + so_far

    async def load(self) -> None:
        """Fetch the input. A stream that breaks is asked for again from its beginning."""
        given = await self._call("GetJobInput", self._fetch_input)
        self.memory_types, self.messages, self.usage = given.memory_types, given.messages, given.usage
        self.turns, self.buckets = given.turns, given.buckets
        if given.context is not None:
            self.context = given.context
        elif self.assignment.extract_selection:
            # A server of an earlier release gave the input. Without an offer there is nothing to select from.
            self._leave_out_selection()
        # In a thread, because it may search megabytes of text.
        if self.assignment.plan.execution_types and not await asyncio.to_thread(
            shows_work, self.messages, self.usage, self.turns
        ):
            self._leave_out_execution()

    def _leave_out_selection(self) -> None:
        """Removes the selection from the job, so that the engine does not make one."""
        asked = extractor_service_pb2.JobAssignment()
        asked.CopyFrom(self.assignment)
        asked.extract_selection = False
        self.assignment = asked

    def _leave_out_execution(self) -> None:
        """Removes execution types and session skills from the job, so that the engine does not extract them."""
        asked = extractor_service_pb2.JobAssignment()
        asked.CopyFrom(self.assignment)
        left_out = {*asked.plan.execution_types, SESSION_SKILLS.name}
        del asked.plan.execution_types[:]
        asked.plan.session_skills = False
        self.assignment = asked
        self.memory_types = [one for one in self.memory_types if one.name not in left_out]

    async def read(self, uri: str, offset: int = 0, limit: int = -1) -> extractor_service_pb2.ReadForJobResponse:
        """Lines of a document, and the memory with its fields where the URI names one."""
        request = extractor_service_pb2.ReadForJobRequest(
            lease=self.assignment.lease,
            read=memory_service_pb2.ReadDocumentRequest(uri=uri, offset=offset, limit=limit),
        )
        return await self._call(
            "ReadForJob",
            lambda: self._stub.ReadForJob(request, timeout=_READ_DEADLINE, metadata=self._metadata),
        )

    async def list(
        self,
        uri: str = "",
        *,
        depth: int = 1,
        abstract_limit: int = 256,
        node_limit: int = 1000,
        show_hidden: bool = False,
        memory_limit: int = 0,
        type_limit: int = 0,
    ) -> extractor_service_pb2.ListForJobResponse:
        """What is under a directory, an empty URI being the root of the job's space, and the memories themselves where
        they are few. A server of before that was in the contract gives none of them."""
        request = extractor_service_pb2.ListForJobRequest(
            lease=self.assignment.lease,
            list=memory_service_pb2.ListDirectoryRequest(
                uri=uri,
                depth=depth,
                abstract_limit=abstract_limit,
                node_limit=node_limit,
                show_hidden=show_hidden,
            ),
            memory_limit=memory_limit,
            type_limit=type_limit,
        )
        return await self._call(
            "ListForJob",
            lambda: self._stub.ListForJob(request, timeout=_READ_DEADLINE, metadata=self._metadata),
        )

    async def find(self, request: memory_service_pb2.FindMemoriesRequest) -> memory_service_pb2.FindMemoriesResponse:
        """Search within the job's space."""
        scoped = extractor_service_pb2.FindForJobRequest(lease=self.assignment.lease, find=request)
        response = await self._call(
            "FindForJob",
            lambda: self._stub.FindForJob(scoped, timeout=_FIND_DEADLINE, metadata=self._metadata),
        )
        return response.found

    async def embed(self, texts: Sequence[str]) -> tuple[str, Sequence[Sequence[float]]]:
        """Name of the server's embedder and one unit vector a text. A text is cut to what the contract takes.

        Raises EmbedderDown, a JobFailed, when the server has no embedder or it stays down.
        """
        model = ""
        vectors: list[Sequence[float]] = []
        for batch in _batches(texts, EMBED_BATCH):
            request = extractor_service_pb2.EmbedForJobRequest(
                lease=self.assignment.lease, texts=[_cut(text, EMBED_TEXT_BYTES) for text in batch]
            )
            response = await self._call("EmbedForJob", partial(self._embed, request))
            if len(response.embeddings) != len(batch):
                raise JobFailed(
                    extractor_service_pb2.FAILURE_CLASS_INTERNAL, "EmbedForJob answered with another number of vectors"
                )
            model = response.model
            vectors.extend(embedding.values for embedding in response.embeddings)
        return model, vectors

    async def progress(
        self, phase: task_service_pb2.TaskPhase.ValueType, percent: int, message: str, *, waiting_for: str = ""
    ) -> None:
        """Tell where the job stands. `percent` never goes back; `message` holds no user content."""
        self._last = task_service_pb2.TaskProgress(
            phase=phase,
            percent=max(self._last.percent, min(percent, 100)),
            message=message[:500],
            waiting_for=waiting_for,
        )
        self._watched.moved()
        await self._watched.report(self._last)

    async def _waits(self, part: str) -> None:
        """Reports that a call waits for a part that is away; an empty name ends the wait."""
        self._watched.moved()
        if part == self.waiting_for:
            return
        self._waited, self._waiting_since = self.waited, asyncio.get_running_loop().time()
        self.waiting_for = part
        told = task_service_pb2.TaskProgress()
        told.CopyFrom(self._last)
        if part:
            told.message, told.waiting_for = f"waiting for the {part_in_words(part)}, which is away", part
        await self._watched.report(told)

    @property
    def _metadata(self) -> Metadata:
        """Of a call that is made now, within the span around it."""
        traceparent = tracing.traceparent() or self.assignment.traceparent
        return (*self._of_worker, ("traceparent", traceparent)) if traceparent else self._of_worker

    async def _call(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        self._watched.moved()
        answer = await with_retries(name, call, self._waits)
        self._watched.moved()
        return answer

    def _embed(
        self, request: extractor_service_pb2.EmbedForJobRequest
    ) -> Awaitable[extractor_service_pb2.EmbedForJobResponse]:
        return self._stub.EmbedForJob(request, timeout=_EMBED_DEADLINE, metadata=self._metadata)

    async def _fetch_input(self) -> _Input:
        given = _Input()
        request = extractor_service_pb2.GetJobInputRequest(lease=self.assignment.lease)
        async for response in self._stub.GetJobInput(request, timeout=_INPUT_DEADLINE, metadata=self._metadata):
            match response.WhichOneof("chunk"):
                case "memory_types":
                    given.memory_types.extend(response.memory_types.memory_types)
                case "messages":
                    given.messages.extend(response.messages.messages)
                case "usage":
                    given.usage.MergeFrom(response.usage)
                case "turns":
                    given.turns.extend(response.turns.turns)
                case "buckets":
                    given.buckets.extend(response.buckets.buckets)
                case "context":
                    given.context = response.context
        return given


@dataclass(slots=True)
class _Input:
    """The chunks of one answer, put together."""

    memory_types: list[memory_service_pb2.MemoryType] = field(default_factory=list)
    messages: list[common_pb2.Message] = field(default_factory=list)
    turns: list[turn_memory_service_pb2.CandidateTurn] = field(default_factory=list)
    buckets: list[turn_memory_service_pb2.MemoryBucket] = field(default_factory=list)
    context: turn_memory_service_pb2.LoadTurnContextResponse | None = None
    usage: extractor_service_pb2.UsageChunk = field(default_factory=extractor_service_pb2.UsageChunk)


def _batches(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), size):
        yield texts[start : start + size]


def _cut(text: str, most_bytes: int) -> str:
    """The beginning of a text that fits; the server refuses a longer one, and an embedder reads less anyway."""
    encoded = text.encode("utf-8", errors="replace")
    return text if len(encoded) <= most_bytes else encoded[:most_bytes].decode("utf-8", errors="ignore")
