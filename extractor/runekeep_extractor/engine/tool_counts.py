"""Reads the tool calls of a batch, and makes operations from its counts of tools and skills.

The server counts with the same `runekeep_schemas.documents.counters` and ignores these operations. Servers of the
previous release do not count, so the worker still sends them.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from runekeep.v1 import common_pb2, extractor_service_pb2, memory_service_pb2
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.engine.merge_rules import rule_of
from runekeep_schemas.documents.counters import (
    SELF,
    Call,
    Key,
    SkillRun,
    Tally,
    counted_fields,
    counter_values,
    join_records,
    tally_batch,
)
from runekeep_schemas.secrets import withhold

MAX_COUNTED: Final = 500
"""Maximum number of counting operations in one output. The server counts all."""
MAX_RANGES: Final = 256
"""Maximum number of message ranges of all counts in one output: the contract's bound for one operation. A server of the
previous release accepts 2,048 message ranges in all and refuses further operations, including those of an engine.
"""
_STATUSES: Final = {
    common_pb2.TOOL_STATUS_RUNNING: "running",
    common_pb2.TOOL_STATUS_COMPLETED: "completed",
    common_pb2.TOOL_STATUS_ERROR: "error",
}


def calls_of(messages: Sequence[common_pb2.Message]) -> list[Call]:
    """Returns the calls in the order of their first records, each once."""
    return join_records(
        Call(
            owner=message.peer_id,
            sequence=message.sequence,
            tool_id=part.tool.tool_id,
            tool_name=part.tool.tool_name,
            skill_name=part.tool.skill_name,
            status=_STATUSES.get(part.tool.status, "pending"),
            duration_ms=part.tool.duration.ToMilliseconds(),
            total_tokens=part.tool.total_tokens,
        )
        for message in messages
        for part in message.parts
        if part.WhichOneof("part") == "tool"
    )


def counted_by_system(kind: memory_service_pb2.MemoryType) -> frozenset[str]:
    """Returns the names of a type's fields that are counted from the records of the batch."""
    sums = (field.name for field in kind.fields if rule_of(field).adds)
    return counted_fields(kind.name, kind.filename_template, sums)


def counting_operations(job: Job) -> list[extractor_service_pb2.MemoryOperation]:
    """Returns one write for each tool and skill in the batch's records, for the types and owners that the job may
    write.
    """
    runs = [SkillRun(one.uri, one.success) for one in job.usage.skills]
    return list(_operations(job, tally_batch(calls_of(job.messages), runs)))[:MAX_COUNTED]


def _operations(job: Job, tallies: dict[Key, Tally]) -> Iterator[extractor_service_pb2.MemoryOperation]:
    plan = job.assignment.plan
    kinds = {kind.name: kind for kind in job.memory_types if kind.name in plan.long_term_types}
    owners = {*plan.allowed_peer_ids, *([SELF] if plan.allow_self else [])}
    room = MAX_RANGES
    for key, tally in tallies.items():
        type_name, owner, name = key
        if type_name not in kinds or owner not in owners or withhold(name)[1]:
            continue
        counters = counted_by_system(kinds[type_name])
        values = counter_values(key, tally, counters)
        if not any(values[counter] for counter in counters):
            continue
        ranges = _ranges(tally)
        if len(ranges) > room:
            # No range stands for the whole batch.
            ranges = []
        room -= len(ranges)
        operation = extractor_service_pb2.MemoryOperation(
            peer_id=owner, ranges=ranges, reason="counted from the records of the batch"
        )
        operation.write.memory_type = type_name
        for field, value in values.items():
            if isinstance(value, int):
                operation.write.fields[field].int64_value = value
            else:
                operation.write.fields[field].string_value = value
        yield operation


def _ranges(tally: Tally) -> list[common_pb2.MessageRange]:
    """Returns the ranges of the recording messages."""
    ranges: list[common_pb2.MessageRange] = []
    for sequence in sorted(tally.sequences):
        if ranges and ranges[-1].end_sequence == sequence - 1:
            ranges[-1].end_sequence = sequence
        else:
            ranges.append(common_pb2.MessageRange(start_sequence=sequence, end_sequence=sequence))
    return ranges
