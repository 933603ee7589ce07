"""Converts memories, types, directory entries and search results."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration

from runekeep.v1 import memory_service_pb2
from runekeep_schemas.documents.uris import archive_uri, session_uri
from runekeep_schemas.memory_types.event_time import MAX_TAG_CHARACTERS
from runekeep_schemas.memory_types.model import FieldType, MemoryType, MergeOp, OperationMode
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.wire.basics import REVIEWS, extractor_info, field_values, timestamp
from runekeep_storage.records import Memory, Passage
from runekeep_storage.search.found_texts import MAX_ABSTRACT_CHARACTERS, Depth
from runekeep_storage.search.requests import FindAnswer, Found

_MERGE_OPS = {op: memory_service_pb2.MergeOp.Value(f"MERGE_OP_{op.name}") for op in MergeOp}
_FIELD_TYPES = {
    FieldType.STRING: memory_service_pb2.FIELD_TYPE_STRING,
    FieldType.INT64: memory_service_pb2.FIELD_TYPE_INT64,
    FieldType.FLOAT32: memory_service_pb2.FIELD_TYPE_FLOAT32,
    FieldType.BOOL: memory_service_pb2.FIELD_TYPE_BOOL,
}
_MODES = {
    OperationMode.UPSERT: memory_service_pb2.OPERATION_MODE_UPSERT,
    OperationMode.ADD_ONLY: memory_service_pb2.OPERATION_MODE_ADD_ONLY,
}


def memory(user: str, record: Memory, registry: Registry, view: int) -> memory_service_pb2.Memory:
    wire = memory_service_pb2.Memory(
        uri=record.uri,
        memory_type=record.memory_type,
        abstract=record.abstract,
        version=record.version,
        revision=record.rev_from,
        superseded_revision=record.rev_to,
        active_count=record.active_count,
        peer_id=record.peer_id,
        extractor=extractor_info(record.extractor),
        create_time=timestamp(record.created_at),
        update_time=timestamp(record.updated_at),
        deleted=record.deleted,
        # Earlier versions stored longer tags.
        tags=[tag[:MAX_TAG_CHARACTERS] for tag in json.loads(record.tags)],
    )
    if record.happened_at is not None:
        wire.event_time.FromMicroseconds(record.happened_at)
    if view != memory_service_pb2.MEMORY_VIEW_ABSTRACT:
        wire.overview = record.overview
    if view == memory_service_pb2.MEMORY_VIEW_FULL:
        wire.content = record.content
        for name, value in field_values(record.fields, registry.get(record.memory_type)).items():
            wire.fields[name].CopyFrom(value)
        sources = json.loads(record.sources)
        # Hundreds of messages may belong to a few sessions.
        sessions = {name: session_uri(user, name) for name in {source["session"] for source in sources}}
        for source in sources:
            wire.sources.add(
                session=sessions[source["session"]],
                message_id=source["message_id"],
                sequence=source["sequence"],
            )
    return wire


def memory_type(type: MemoryType) -> memory_service_pb2.MemoryType:
    return memory_service_pb2.MemoryType(
        name=type.name,
        description=type.description,
        directory=type.directory,
        filename_template=type.filename_template,
        content_template=type.content_template or "",
        fields=[
            memory_service_pb2.MemoryField(
                name=field.name,
                type=_FIELD_TYPES[field.type],
                description=field.description,
                merge_op=_MERGE_OPS[field.merge_op],
            )
            for field in type.fields
        ],
        agent_only=type.agent_only,
        enabled=type.enabled,
        operation_mode=_MODES[type.operation_mode],
        max_deletes=type.max_deletes,
        review=REVIEWS[type.review],
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a directory. `updated_at` in microseconds."""

    uri: str
    name: str
    directory: bool
    depth: int
    memory_type: str = ""
    abstract: str = ""
    version: int = 0
    updated_at: int = 0


def entry(record: Entry, abstract_limit: int) -> memory_service_pb2.DirectoryEntry:
    return memory_service_pb2.DirectoryEntry(
        uri=record.uri,
        name=record.name,
        directory=record.directory,
        depth=record.depth,
        memory_type=record.memory_type,
        abstract=record.abstract[:abstract_limit],
        version=record.version,
        update_time=timestamp(record.updated_at),
    )


def found(
    user: str,
    answer: FindAnswer,
    registry: Registry,
    *,
    explain: bool,
    relevance: Callable[[float], float] | None = None,
) -> memory_service_pb2.FindMemoriesResponse:
    """`relevance`: returns the relevance of a score."""
    return memory_service_pb2.FindMemoriesResponse(
        results=[found_item(user, result, registry, explain=explain, relevance=relevance) for result in answer.results],
        revision=answer.revision,
        latest_revision=answer.latest_revision,
        pending_passages=answer.pending_passages,
        degraded=answer.degraded,
        passage_lag=_lag(answer.lag),
        pending_memories=answer.pending_memories,
    )


def _lag(microseconds: int) -> Duration | None:
    """Returns None for 0, which means that nothing waits."""
    if not microseconds:
        return None
    lag = Duration()
    lag.FromMicroseconds(microseconds)
    return lag


def found_item(
    user: str,
    result: Found,
    registry: Registry,
    *,
    explain: bool,
    relevance: Callable[[float], float] | None = None,
) -> memory_service_pb2.FoundItem:
    """`explain`: with the parts of the score; `relevance`: returns the relevance of a score."""
    ranked = result.ranked
    relevant = None if relevance is None else relevance(result.score)
    detail = memory_service_pb2.ScoreDetail(
        dense_rank=ranked.dense_rank or 0,
        dense_score=ranked.dense_score or 0.0,
        sparse_rank=ranked.sparse_rank or 0,
        sparse_score=ranked.sparse_score or 0.0,
        neighbours=ranked.neighbours,
    )
    if explain:
        for part in ranked.parts:
            detail.parts.add(name=part.name, value=part.value, added=part.added)
    if isinstance(result.item, Passage):
        passage = result.item
        wire = memory_service_pb2.Passage(
            uri=archive_uri(user, passage.session_id, passage.archive_index) + "/messages.jsonl",
            session=session_uri(user, passage.session_id),
            message_id=passage.message_id,
            sequence=passage.sequence,
            text=passage.content,
            create_time=timestamp(passage.created_at),
            speaker=passage.speaker,
            peer_id=passage.peer_id,
        )
        return memory_service_pb2.FoundItem(passage=wire, score=result.score, detail=detail, relevance=relevant)
    item = memory(user, result.item, registry, result.depth)
    if result.depth is Depth.ABSTRACT and len(item.abstract) > MAX_ABSTRACT_CHARACTERS:
        item.abstract = item.abstract[:MAX_ABSTRACT_CHARACTERS]
        item.shortened = True
    return memory_service_pb2.FoundItem(
        memory=item,
        score=result.score,
        detail=detail,
        view=memory_service_pb2.MemoryView.ValueType(result.depth),
        relevance=relevant,
    )
