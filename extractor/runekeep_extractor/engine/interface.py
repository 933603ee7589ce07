"""Defines what an extraction engine is: it takes a job and returns an output.

Engines know the contract (`runekeep.v1`) and the job's scoped reads. They know nothing of streams, leases or retries.
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
    """The output of an engine for one job.

    `operations` are in the order of their application. `turn_memories` belong to the turn of a TURN_FINGERPRINT, or
    to the turns of a COMMIT that lack a fingerprint. `selection` and `feedback` belong to a TURN_FINGERPRINT whose
    assignment asks for them; `bucket_changes` to a BUCKET_RECONCILE; `answer` to an ASK. `dropped_items` counts the
    unreadable parts of a model's answer to a COMMIT, except those of its turn memories: no commit fails over them.
    `duplicates` counts new memories that were dropped because an existing one says the same. `model` names the
    model if only the job reveals it; else it is empty and the engine's own `info` holds. `skipped_rules` counts, by
    name, the engine's rules that raised and were skipped.
    """

    operations: list[extractor_service_pb2.MemoryOperation] = field(default_factory=list)
    summary: common_pb2.Summary | None = None
    image_descriptions: list[extractor_service_pb2.ImageDescription] = field(default_factory=list)
    turn_memories: list[extractor_service_pb2.TurnMemory] = field(default_factory=list)
    selection: turn_memory_service_pb2.TurnSelection | None = None
    feedback: list[turn_memory_service_pb2.Feedback] = field(default_factory=list)
    bucket_changes: extractor_service_pb2.BucketChanges | None = None
    answer: extractor_service_pb2.Answer | None = None
    dropped_items: int = 0
    duplicates: int = 0
    skipped_rules: Mapping[str, int] = field(default_factory=dict)
    model: str = ""


class NotConfigured(Exception):
    """An engine cannot be opened with these settings. The message says what is missing."""


class JobFailed(Exception):
    """The attempt cannot produce an output. Carries the fields of JobFail; the text never holds user content."""

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
        """Seconds, if the provider named them."""
        self.waiting_for = waiting_for
        """The part of the server that is away, as in Task.waiting_for of the contract."""


class Job(Protocol):
    """One attempt at one job: its loaded input, and reads scoped to its lease."""

    assignment: extractor_service_pb2.JobAssignment
    memory_types: Sequence[memory_service_pb2.MemoryType]
    messages: Sequence[common_pb2.Message]
    """The archived batch in order, with whole tool outputs restored; `sequence` numbers the messages. For a
    TURN_FINGERPRINT the messages of its turn; for a BUCKET_RECONCILE none.
    """
    turns: Sequence[turn_memory_service_pb2.CandidateTurn]
    """Oldest first. For a COMMIT the turns of the batch, with their existing fingerprints; for a TURN_FINGERPRINT
    earlier turns and, last, the turn itself; for a BUCKET_RECONCILE the turns that are in no bucket yet.
    """
    buckets: Sequence[turn_memory_service_pb2.MemoryBucket]
    """For a BUCKET_RECONCILE: all buckets of the session, with their last 2 slices."""
    context: turn_memory_service_pb2.LoadTurnContextResponse
    """The sections that a reconciler sees. Empty unless a TURN_FINGERPRINT asks for a selection or for feedback."""
    question: extractor_service_pb2.QuestionChunk
    """For an ASK: the question, with what a recall finds for it."""
    usage: extractor_service_pb2.UsageChunk
    spent: list[common_pb2.TokenUsage]
    """Token usage of this attempt's model calls, one entry per phase and model. Engines update it after each call, so
    that it is reported however the attempt ends.
    """
    calls: list[common_pb2.ModelCall]
    """The calls themselves, in order; the server stores them with the task."""

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
        """Returns the name of the embedder, and one vector of length 1 per text; any number of texts."""
        ...

    async def progress(
        self, phase: task_service_pb2.TaskPhase.ValueType, percent: int, message: str, *, waiting_for: str = ""
    ) -> None:
        """Reports the job's progress. `waiting_for`: the part that is away, as in Task.waiting_for of the contract."""
        ...


class Engine(Protocol):
    """Turns jobs into outputs. One instance serves all jobs of a process concurrently."""

    info: common_pb2.ExtractorInfo
    """Name, version and model of the engine."""
    answers_questions: bool
    """Whether the engine accepts jobs of the kind ASK. If no connected engine does, the server answers questions with a
    recall."""

    @property
    def away(self) -> str:
        """Why the engine cannot work now, because its model server is away; empty while that answers."""
        ...

    async def extract(self, job: Job) -> EngineOutput:
        """Returns the output of a COMMIT: operations, summary, and the missing turn memories. Raises JobFailed if no
        output can be made.
        """
        ...

    async def fingerprint(self, job: Job) -> EngineOutput:
        """Returns the output of a TURN_FINGERPRINT: the turn memory of the assignment's turn, and the selection and the
        feedback if the assignment asks for them. Raises JobFailed."""
        ...

    async def reconcile(self, job: Job) -> EngineOutput:
        """Returns the output of a BUCKET_RECONCILE: only the bucket changes. Raises JobFailed."""
        ...

    async def answer(self, job: Job) -> EngineOutput:
        """Returns the output of an ASK: only the answer. Raises JobFailed. Called only if `answers_questions`."""
        ...

    async def repair(self, job: Job, output: EngineOutput, refused: Sequence[task_service_pb2.LeftOut]) -> EngineOutput:
        """Returns a whole new output with the refused operations repaired or omitted. Called at most once per lease,
        and only for a COMMIT.
        """
        ...

    async def close(self) -> None: ...
