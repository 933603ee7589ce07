"""One job as an engine sees it: its input, and reads scoped to its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from runekeep.methods import default_seconds
from runekeep.v1 import (
    common_pb2,
    extractor_service_pb2,
    extractor_service_pb2_grpc,
    memory_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)
from runekeep_common.telemetry import tracing
from runekeep_extractor.engine.agent_work import shows_work
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.rpc.calls import part_in_words, with_retries
from runekeep_extractor.rpc.channel import Metadata
from runekeep_schemas.session_skills import SESSION_SKILLS

T = TypeVar("T")

EMBED_BATCH: Final = 64
EMBED_TEXT_BYTES: Final = 8192
EMBED_ATTEMPTS: Final = 3
"""How often texts are embedded from the first batch on, if the server's embedder is changed between two batches."""


class RemoteJob:
    """The `Job` of engines, over the lease-scoped calls of ExtractorService. Usable after `load`.

    Besides JobFailed, its reads raise `NotThere` (a LookupError) and `NotAllowed` (a ValueError) for URIs that cannot
    be read, and LeaseLost, which engines must not catch.
    """

    def __init__(
        self,
        stub: extractor_service_pb2_grpc.ExtractorServiceAsyncStub,
        metadata: Metadata,
        assignment: extractor_service_pb2.JobAssignment,
        record_activity: Callable[[], None],
        report: Callable[[task_service_pb2.TaskProgress], None],
    ) -> None:
        """`record_activity`: a job that does not call it for too long loses its lease. `report`: sends progress."""
        self.assignment = assignment
        self.memory_types: Sequence[memory_service_pb2.MemoryType] = ()
        self.messages: Sequence[common_pb2.Message] = ()
        self.turns: Sequence[turn_memory_service_pb2.CandidateTurn] = ()
        self.buckets: Sequence[turn_memory_service_pb2.MemoryBucket] = ()
        self.context = turn_memory_service_pb2.LoadTurnContextResponse()
        self.question = extractor_service_pb2.QuestionChunk()
        self.usage = extractor_service_pb2.UsageChunk()
        self.spent: list[common_pb2.TokenUsage] = []
        self.calls: list[common_pb2.ModelCall] = []
        self._stub = stub
        self._worker_metadata = metadata
        self._record_activity = record_activity
        self._report = report
        self._last_progress = task_service_pb2.TaskProgress()
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
        """Loads the input. If the stream breaks, requests it again from the beginning."""
        loaded = await self._call("GetJobInput", self._fetch_input)
        self.memory_types, self.messages, self.usage = loaded.memory_types, loaded.messages, loaded.usage
        self.turns, self.buckets, self.question = loaded.turns, loaded.buckets, loaded.question
        if loaded.context is not None:
            self.context = loaded.context
        elif self.assignment.extract_selection:
            # A server of an earlier release sent the input. Without an offer there is nothing to select from.
            self._change_assignment().extract_selection = False
        # In a thread, because it may search megabytes of text.
        if self.assignment.plan.execution_types and not await asyncio.to_thread(
            shows_work, self.messages, self.usage, self.turns
        ):
            self._leave_out_execution()

    def _change_assignment(self) -> extractor_service_pb2.JobAssignment:
        """Returns a copy to change, and makes it the job's assignment. The server's own stays as it was sent."""
        changed = extractor_service_pb2.JobAssignment()
        changed.CopyFrom(self.assignment)
        self.assignment = changed
        return changed

    def _leave_out_execution(self) -> None:
        """Removes execution types and session skills from the job, so that the engine does not extract them."""
        plan = self._change_assignment().plan
        left_out = {*plan.execution_types, SESSION_SKILLS.name}
        del plan.execution_types[:]
        plan.session_skills = False
        self.memory_types = [one for one in self.memory_types if one.name not in left_out]

    async def read(self, uri: str, offset: int = 0, limit: int = -1) -> extractor_service_pb2.ReadForJobResponse:
        """Returns lines of a document, and the memory with its fields if the URI names one."""
        request = extractor_service_pb2.ReadForJobRequest(
            lease=self.assignment.lease,
            read=memory_service_pb2.ReadDocumentRequest(uri=uri, offset=offset, limit=limit),
        )
        return await self._call(
            "ReadForJob",
            lambda: self._stub.ReadForJob(request, timeout=default_seconds(request), metadata=self._metadata),
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
        """Returns the entries below a directory, and the memories themselves if they are few. An empty URI is the root
        of the job's space. A server older than this part of the contract returns no memories.
        """
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
            lambda: self._stub.ListForJob(request, timeout=default_seconds(request), metadata=self._metadata),
        )

    async def find(self, request: memory_service_pb2.FindMemoriesRequest) -> memory_service_pb2.FindMemoriesResponse:
        """Searches within the job's space."""
        scoped = extractor_service_pb2.FindForJobRequest(lease=self.assignment.lease, find=request)
        response = await self._call(
            "FindForJob",
            lambda: self._stub.FindForJob(scoped, timeout=default_seconds(scoped), metadata=self._metadata),
        )
        return response.found

    async def embed(self, texts: Sequence[str]) -> tuple[str, Sequence[Sequence[float]]]:
        """Returns the name of the server's embedder and one unit vector per text. Each text is cut to the contract's
        bound.

        Raises EmbedderDown, a JobFailed, if the server has no embedder or it stays down.
        """
        for _ in range(EMBED_ATTEMPTS):
            model = ""
            vectors: list[Sequence[float]] = []
            for batch in _batches(texts, EMBED_BATCH):
                request = extractor_service_pb2.EmbedForJobRequest(
                    lease=self.assignment.lease, texts=[_cut(text, EMBED_TEXT_BYTES) for text in batch]
                )
                response = await self._call("EmbedForJob", partial(self._embed, request))
                if len(response.embeddings) != len(batch):
                    raise JobFailed(
                        extractor_service_pb2.FAILURE_CLASS_INTERNAL, "EmbedForJob returned a wrong number of vectors"
                    )
                if model and response.model != model:
                    # The embedder was changed between two batches; vectors of two models cannot be compared.
                    break
                model = response.model
                vectors.extend(embedding.values for embedding in response.embeddings)
            else:
                return model, vectors
        raise JobFailed(extractor_service_pb2.FAILURE_CLASS_INTERNAL, "EmbedForJob returned vectors of several models")

    async def progress(
        self, phase: task_service_pb2.TaskPhase.ValueType, percent: int, message: str, *, waiting_for: str = ""
    ) -> None:
        """Reports progress. `percent` never goes back; `message` holds no user content."""
        self._last_progress = task_service_pb2.TaskProgress(
            phase=phase,
            percent=max(self._last_progress.percent, min(percent, 100)),
            message=message[:500],
            waiting_for=waiting_for,
        )
        self._record_activity()
        self._report(self._last_progress)

    async def _note_wait(self, part: str) -> None:
        """Reports that a call waits for a part that is away; an empty name ends the wait."""
        self._record_activity()
        if part == self.waiting_for:
            return
        self._waited, self._waiting_since = self.waited, asyncio.get_running_loop().time()
        self.waiting_for = part
        progress = task_service_pb2.TaskProgress()
        progress.CopyFrom(self._last_progress)
        if part:
            progress.message, progress.waiting_for = f"waiting for the {part_in_words(part)}, which is away", part
        self._report(progress)

    @property
    def _metadata(self) -> Metadata:
        """Returns the metadata of a call made now, within the enclosing span."""
        traceparent = tracing.traceparent() or self.assignment.traceparent
        return (*self._worker_metadata, ("traceparent", traceparent)) if traceparent else self._worker_metadata

    async def _call(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        self._record_activity()
        answer = await with_retries(name, call, self._note_wait)
        self._record_activity()
        return answer

    def _embed(
        self, request: extractor_service_pb2.EmbedForJobRequest
    ) -> Awaitable[extractor_service_pb2.EmbedForJobResponse]:
        return self._stub.EmbedForJob(request, timeout=default_seconds(request), metadata=self._metadata)

    async def _fetch_input(self) -> _JobInput:
        loaded = _JobInput()
        request = extractor_service_pb2.GetJobInputRequest(lease=self.assignment.lease)
        async for response in self._stub.GetJobInput(
            request, timeout=default_seconds(request), metadata=self._metadata
        ):
            match response.WhichOneof("chunk"):
                case "memory_types":
                    loaded.memory_types.extend(response.memory_types.memory_types)
                case "messages":
                    loaded.messages.extend(response.messages.messages)
                case "usage":
                    loaded.usage.MergeFrom(response.usage)
                case "turns":
                    loaded.turns.extend(response.turns.turns)
                case "buckets":
                    loaded.buckets.extend(response.buckets.buckets)
                case "context":
                    loaded.context = response.context
                case "question":
                    loaded.question = response.question
        return loaded


@dataclass(slots=True)
class _JobInput:
    """The chunks of one answer, joined."""

    memory_types: list[memory_service_pb2.MemoryType] = field(default_factory=list)
    messages: list[common_pb2.Message] = field(default_factory=list)
    turns: list[turn_memory_service_pb2.CandidateTurn] = field(default_factory=list)
    buckets: list[turn_memory_service_pb2.MemoryBucket] = field(default_factory=list)
    context: turn_memory_service_pb2.LoadTurnContextResponse | None = None
    question: extractor_service_pb2.QuestionChunk = field(default_factory=extractor_service_pb2.QuestionChunk)
    usage: extractor_service_pb2.UsageChunk = field(default_factory=extractor_service_pb2.UsageChunk)


def _batches(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), size):
        yield texts[start : start + size]


def _cut(text: str, most_bytes: int) -> str:
    """Returns the beginning of a text that fits. The server refuses a longer one, and an embedder reads less anyway."""
    encoded = text.encode("utf-8", errors="replace")
    return text if len(encoded) <= most_bytes else encoded[:most_bytes].decode("utf-8", errors="ignore")
