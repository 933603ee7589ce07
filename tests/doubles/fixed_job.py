"""A double of a job: fixed input and a small set of memories in place of a server's lease-scoped calls.

Its search is by shared words and proves nothing about ranking. Everything that an engine asked for is recorded.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from runekeep.v1 import (
    common_pb2,
    extractor_service_pb2,
    memory_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)
from runekeep_extractor.rpc.calls import EmbedderDown, NotAllowed, NotThere, SearchAway
from runekeep_schemas.memory_types.model import Field, FieldType, MemoryType, MergeOp
from runekeep_schemas.type_files.registry import Registry

REGISTRY = Registry.load()
"""Read once: hundreds of jobs are made in a run."""
SPACE = "viking://user/default"
LONG_TERM = ("profile", "preferences", "entities", "plans", "events", "cases", "patterns", "tools", "skills")
EXECUTION = ("trajectories", "experiences")
BREWS = MemoryType(
    "brews",
    "How a tea is brewed.",
    "viking://user/{user_space}/memories/brews",
    "{tea}.md",
    content_template="{tea}: {cups} cups. {method}",
    fields=(
        Field("tea", description="Its name.", merge_op=MergeOp.IMMUTABLE),
        Field("cups", FieldType.INT64, "Cups brewed in this conversation.", MergeOp.SUM),
        Field("method", description="How."),
    ),
)
"""A type of an operator's own, with a counter that a model is asked for."""


class FixedJob:
    """Implements `runekeep_extractor.engine.interface.Job`."""

    def __init__(
        self,
        messages: Sequence[common_pb2.Message],
        memories: Iterable[memory_service_pb2.Memory] = (),
        *,
        kind: task_service_pb2.TaskKind.ValueType = task_service_pb2.TASK_KIND_COMMIT,
        turns: Sequence[turn_memory_service_pb2.CandidateTurn] = (),
        buckets: Sequence[turn_memory_service_pb2.MemoryBucket] = (),
        turn_id: str = "",
        assistant_signal_spec: str = "",
        context: turn_memory_service_pb2.LoadTurnContextResponse | None = None,
        extract_selection: bool = False,
        extract_feedback: bool = False,
        job_id: str = "job-1",
        allow_self: bool = True,
        peers: Sequence[str] = (),
        long_term: Sequence[str] = LONG_TERM,
        execution: Sequence[str] = EXECUTION,
        summarize: bool = True,
        previous_failures: Sequence[extractor_service_pb2.JobFailure] = (),
    ) -> None:
        self.memory_types = [wire_type(REGISTRY[name]) for name in (*long_term, *execution)]
        self.messages = list(messages)
        self.turns = list(turns)
        self.buckets = list(buckets)
        self.context = context or turn_memory_service_pb2.LoadTurnContextResponse()
        self.usage = extractor_service_pb2.UsageChunk()
        self.spent: list[common_pb2.TokenUsage] = []
        self.calls: list[common_pb2.ModelCall] = []
        self.memories = {memory.uri: memory for memory in memories}
        self.assignment = extractor_service_pb2.JobAssignment(
            lease=extractor_service_pb2.Lease(job_id=job_id, fencing_token=1),
            kind=kind,
            turn_id=turn_id,
            assistant_signal_spec=assistant_signal_spec,
            extract_selection=extract_selection,
            extract_feedback=extract_feedback,
            user_space=SPACE,
            plan=extractor_service_pb2.ExtractionPlan(
                allow_self=allow_self,
                allowed_peer_ids=peers,
                long_term_types=long_term,
                execution_types=execution,
                summarize=summarize,
            ),
            previous_failures=previous_failures,
        )
        self.read_uris: list[str] = []
        self.finds: list[memory_service_pb2.FindMemoriesRequest] = []
        self.reports: list[tuple[int, int, str]] = []
        self.index_is_away = False

    async def read(self, uri: str, offset: int = 0, limit: int = -1) -> extractor_service_pb2.ReadForJobResponse:
        self._confine(uri)
        self.read_uris.append(uri)
        memory = self.memories.get(uri)
        if memory is None:
            raise NotThere("no such document")
        lines = memory.content.splitlines()
        end = len(lines) if limit <= 0 else offset + limit
        document = memory_service_pb2.ReadDocumentResponse(
            uri=uri,
            text="\n".join(lines[offset:end]),
            total_lines=len(lines),
            next_offset=end if end < len(lines) else 0,
        )
        return extractor_service_pb2.ReadForJobResponse(document=document, memory=memory)

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
        root = (uri or SPACE).rstrip("/")
        self._confine(root)
        found: dict[str, memory_service_pb2.DirectoryEntry] = {}
        for memory in self.memories.values():
            if not memory.uri.startswith(f"{root}/"):
                continue
            segments = memory.uri[len(root) + 1 :].split("/")
            for level in range(1, min(len(segments), depth) + 1):
                whole = level == len(segments)
                path = "/".join((root, *segments[:level]))
                found[path] = memory_service_pb2.DirectoryEntry(
                    uri=path,
                    name=segments[level - 1],
                    directory=not whole,
                    depth=level,
                    memory_type=memory.memory_type if whole else "",
                    abstract=memory.abstract[:abstract_limit] if whole else "",
                )
        if not found:
            raise NotThere("no such directory")
        entries = [found[path] for path in sorted(found)]
        listing = memory_service_pb2.ListDirectoryResponse(
            uri=root, entries=entries[:node_limit], truncated=len(entries) > node_limit
        )
        count = Counter(entry.memory_type for entry in entries)
        most = type_limit if sum(count.values()) - count[""] > memory_limit else memory_limit
        few = [entry.uri for entry in entries if entry.memory_type and count[entry.memory_type] <= most]
        given = [] if listing.truncated else [self.memories[uri] for uri in few]
        return extractor_service_pb2.ListForJobResponse(listing=listing, memories=given)

    async def find(self, request: memory_service_pb2.FindMemoriesRequest) -> memory_service_pb2.FindMemoriesResponse:
        self.finds.append(request)
        if self.index_is_away:
            away = extractor_service_pb2.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE
            raise SearchAway(away, "the index is away", waiting_for="index")
        asked = _words(request.query)
        scored = []
        for memory in self.memories.values():
            if request.memory_types and memory.memory_type not in request.memory_types:
                continue
            shared = asked & _words(f"{memory.uri} {memory.content} {memory.abstract}")
            if shared and memory.uri.startswith(request.target_uri):
                scored.append((len(shared) / len(asked), memory))
        scored.sort(key=lambda pair: (-pair[0], pair[1].uri))
        items = [memory_service_pb2.FoundItem(memory=memory, score=score) for score, memory in scored]
        return memory_service_pb2.FindMemoriesResponse(results=items[: request.limit or 10])

    async def embed(self, texts: Sequence[str]) -> tuple[str, Sequence[Sequence[float]]]:
        raise EmbedderDown(extractor_service_pb2.FAILURE_CLASS_INTERNAL, "EmbedForJob: this double has no embedder")

    async def progress(
        self, phase: task_service_pb2.TaskPhase.ValueType, percent: int, message: str, *, waiting_for: str = ""
    ) -> None:
        self.reports.append((phase, percent, message))

    def _confine(self, uri: str) -> None:
        if uri != SPACE and not uri.startswith(f"{SPACE}/"):
            raise NotAllowed("outside the job's space")


def message(
    sequence: int,
    text: str,
    *,
    role: common_pb2.Role.ValueType = common_pb2.ROLE_USER,
    peer_id: str = "",
    speaker: str = "",
    day: int = 5,
) -> common_pb2.Message:
    """A message with one text, said on a day of March 2026."""
    made = common_pb2.Message(
        id=f"msg_{sequence}",
        sequence=sequence,
        role=role,
        parts=[common_pb2.Part(text=common_pb2.TextPart(text=text))],
        peer_id=peer_id,
        speaker=speaker,
    )
    made.create_time.FromDatetime(datetime(2026, 3, day, 9, sequence % 60, tzinfo=UTC))
    return made


def memory(path: str, memory_type: str, fields: Mapping[str, str | int], **rest: str) -> memory_service_pb2.Memory:
    """A memory of the user; `path` below `memories/`."""
    made = memory_service_pb2.Memory(
        uri=f"{SPACE}/memories/{path}", memory_type=memory_type, content=str(fields.get("content", "")), **rest
    )
    for name, value in fields.items():
        if isinstance(value, int):
            made.fields[name].int64_value = value
        else:
            made.fields[name].string_value = value
    return made


def wire_type(kind: MemoryType) -> memory_service_pb2.MemoryType:
    """A type of the registry as the contract carries it."""
    return memory_service_pb2.MemoryType(
        name=kind.name,
        description=kind.description,
        directory=kind.directory,
        filename_template=kind.filename_template,
        content_template=kind.content_template or "",
        fields=[
            memory_service_pb2.MemoryField(
                name=field.name,
                type=memory_service_pb2.FieldType.Value(f"FIELD_TYPE_{field.type.name}"),
                description=field.description,
                merge_op=memory_service_pb2.MergeOp.Value(f"MERGE_OP_{field.merge_op.name}"),
            )
            for field in kind.fields
        ],
        agent_only=kind.agent_only,
        enabled=kind.enabled,
        max_deletes=kind.max_deletes,
        operation_mode=memory_service_pb2.OperationMode.Value(f"OPERATION_MODE_{kind.operation_mode.name}"),
    )


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.lower()))
