"""What an extraction engine is: it gets a job and gives an output.

Engines know the contract (`runekeep.v1`) and the job's scoped reads, nothing of streams, leases or retries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runekeep.v1 import (
    common_pb2,
    extractor_service_pb2,
    memory_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)


@dataclass(slots=True)
class EngineOutput:
    """What an engine made of one job.

    `operations` in the order in which they are to be applied; `turn_memories` of the turn of a TURN_FINGERPRINT, or of
    turns of a COMMIT that have no fingerprint; `selection` and `feedback` of a TURN_FINGERPRINT whose assignment asks
    for them; `bucket_changes` of a BUCKET_RECONCILE; `dropped_items` counts parts of
    a model's answer that could not be read, of a COMMIT without those of its turn memories: no commit fails over them;
    `duplicates` new memories that were dropped because one that says the same is there; `model` names what made it
    where that shows only with the job, else it is empty and the engine's own `info` holds; `skipped_rules` counts the
    rules of the engine that raised and were skipped, by name.
    """

    operations: list[extractor_service_pb2.MemoryOperation] = field(default_factory=list)
    summary: common_pb2.Summary | None = None
    image_descriptions: list[extractor_service_pb2.ImageDescription] = field(default_factory=list)
    turn_memories: list[extractor_service_pb2.TurnMemory] = field(default_factory=list)
    selection: turn_memory_service_pb2.TurnSelection | None = None
    feedback: list[turn_memory_service_pb2.Feedback] = field(default_factory=list)
    bucket_changes: extractor_service_pb2.BucketChanges | None = None
    dropped_items: int = 0
    duplicates: int = 0
    skipped_rules: Mapping[str, int] = field(default_factory=dict)
    model: str = ""


class NotConfigured(Exception):
    """An engine cannot be opened with these settings. The message says what is missing, for whoever starts it."""


class JobFailed(Exception):
    """The attempt cannot give an output. Carries what JobFail says; the text never holds user content."""

    def __init__(
        self,
        failure_class: extractor_service_pb2.FailureClass.ValueType,
        message: str,
        *,
        retryable: bool = True,
        retry_after: float | None = None,
        waiting_for: str = "",
    ) -> None:
        super().__init__(message)
        self.failure_class = failure_class
        self.message = message
        self.retryable = retryable
        self.retry_after = retry_after
        """Seconds, when the provider named them."""
        self.waiting_for = waiting_for
        """The part of the server that is away, as in Task.waiting_for of the contract."""


class Job(Protocol):
    """One attempt at one job, with its input loaded and reads that are confined to its lease."""

    assignment: extractor_service_pb2.JobAssignment
    memory_types: Sequence[memory_service_pb2.MemoryType]
    messages: Sequence[common_pb2.Message]
    """The archived batch in order, whole tool outputs put back; `sequence` numbers it. Of a TURN_FINGERPRINT the
    messages of its turn; of a BUCKET_RECONCILE none."""
    turns: Sequence[turn_memory_service_pb2.CandidateTurn]
    """Oldest first. Of a COMMIT those of the batch, with the fingerprints that they have; of a TURN_FINGERPRINT earlier
    ones and the turn itself last; of a BUCKET_RECONCILE those that are in no bucket yet."""
    buckets: Sequence[turn_memory_service_pb2.MemoryBucket]
    """Of a BUCKET_RECONCILE: all of the session, with their last 2 slices."""
    context: turn_memory_service_pb2.LoadTurnContextResponse
    """The sections that a reconciler sees. Empty, unless a TURN_FINGERPRINT asks for a selection or for feedback."""
    usage: extractor_service_pb2.UsageChunk
    spent: list[common_pb2.TokenUsage]
    """What model calls of this attempt cost, one entry a phase and model. Engines keep it up call by call, so that it
    is told however the attempt ends."""
    calls: list[common_pb2.ModelCall]
    """The calls themselves, in order; the server keeps them with the task."""

    async def read(self, uri: str, offset: int = 0, limit: int = -1) -> extractor_service_pb2.ReadForJobResponse: ...

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
    ) -> extractor_service_pb2.ListForJobResponse: ...

    async def find(
        self, request: memory_service_pb2.FindMemoriesRequest
    ) -> memory_service_pb2.FindMemoriesResponse: ...

    async def embed(self, texts: Sequence[str]) -> tuple[str, Sequence[Sequence[float]]]:
        """Name of the embedder and one vector of length 1 a text; any number of texts."""
        ...

    async def progress(
        self, phase: task_service_pb2.TaskPhase.ValueType, percent: int, message: str, *, waiting_for: str = ""
    ) -> None:
        """Reports the job's progress. `waiting_for`: the part that is away, as in Task.waiting_for of the contract."""
        ...


class Engine(Protocol):
    """Turns jobs into outputs. One instance serves all jobs of a process, side by side."""

    info: common_pb2.ExtractorInfo
    """What is known of it before any job."""

    @property
    def away(self) -> str:
        """Why it cannot work at present, for what it works with is away; empty while that answers."""
        ...

    async def extract(self, job: Job) -> EngineOutput:
        """Of a COMMIT: operations, summary, and the turn memories that are missing. Raises JobFailed when no output can
        be made."""
        ...

    async def fingerprint(self, job: Job) -> EngineOutput:
        """Returns the output of a TURN_FINGERPRINT: the turn memory of the assignment's turn, and the selection and the
        feedback if the assignment asks for them. Raises JobFailed."""
        ...

    async def reconcile(self, job: Job) -> EngineOutput:
        """Of a BUCKET_RECONCILE: the changes of buckets, alone. Raises JobFailed."""
        ...

    async def repair(self, job: Job, output: EngineOutput, refused: Sequence[task_service_pb2.LeftOut]) -> EngineOutput:
        """A whole new output with the refused operations mended or left out. Asked for once a lease,
        of a COMMIT alone."""
        ...

    async def close(self) -> None: ...
