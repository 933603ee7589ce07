"""Counts of tool calls and skill runs, exactly as the records say.

Every count is of this batch alone; the server adds it to what is stored.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from extractor.offline.operations import write
from extractor.offline.plan import SELF, Permit
from runekeep.v1 import common_pb2, extractor_service_pb2

_TOOL_FIELDS: Final = ("tool_name", "total_calls", "success_count", "fail_count", "total_time_ms", "total_tokens")
_SKILL_FIELDS: Final = ("skill_name", "total_executions", "success_count", "fail_count")
_WAITING: Final = frozenset(
    {common_pb2.TOOL_STATUS_UNSPECIFIED, common_pb2.TOOL_STATUS_PENDING, common_pb2.TOOL_STATUS_RUNNING}
)


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call: the record of its result, or of its beginning when no result ever came."""

    owner: str | None
    sequence: int
    part: common_pb2.ToolPart

    @property
    def succeeded(self) -> bool:
        """Completed; everything else counts as a failure."""
        return self.part.status == common_pb2.TOOL_STATUS_COMPLETED


@dataclass(slots=True)
class _Tally:
    calls: int = 0
    successes: int = 0
    nanoseconds: int = 0
    tokens: int = 0
    sequences: set[int] = field(default_factory=set)

    def add(self, call: Call) -> None:
        self.calls += 1
        self.successes += call.succeeded
        self.nanoseconds += call.part.duration.ToNanoseconds()
        self.tokens += call.part.total_tokens
        self.sequences.add(call.sequence)


def calls_of(messages: Sequence[common_pb2.Message], permit: Permit) -> list[Call]:
    """The tool calls of a batch, each with whose memory it feeds; None for nobody's.

    A call that was recorded while it ran and again with its result (same tool and call id) is one call.
    """
    calls: list[Call] = []
    waiting: dict[tuple[str | None, str, str], int] = {}
    for message in messages:
        owner = permit.owner(message)
        for part in message.parts:
            if part.WhichOneof("part") != "tool":
                continue
            call = Call(owner, message.sequence, part.tool)
            key = (owner, part.tool.tool_name, part.tool.tool_id)
            begun = waiting.pop(key, None) if part.tool.tool_id else None
            place = len(calls) if begun is None else begun
            calls[place : place + 1] = [call]
            if part.tool.tool_id and part.tool.status in _WAITING:
                waiting[key] = place
    return calls


def tool_operations(calls: Iterable[Call], permit: Permit) -> list[extractor_service_pb2.MemoryOperation]:
    """One write for each tool and owner."""
    type = permit.type("tools", *_TOOL_FIELDS)
    if type is None:
        return []
    tallies: dict[tuple[str, str], _Tally] = {}
    for call in calls:
        if call.owner is not None:
            tallies.setdefault((call.owner, call.part.tool_name), _Tally()).add(call)
    return [
        write(
            type,
            {
                "tool_name": name,
                "total_calls": tally.calls,
                "success_count": tally.successes,
                "fail_count": tally.calls - tally.successes,
                "total_time_ms": tally.nanoseconds // 1_000_000,
                "total_tokens": tally.tokens,
            },
            peer_id=owner,
            sequences=tally.sequences,
            reason="counted from the tool calls of the batch",
        )
        for (owner, name), tally in tallies.items()
    ]


def skill_operations(
    calls: Iterable[Call], usage: extractor_service_pb2.UsageChunk, permit: Permit
) -> list[extractor_service_pb2.MemoryOperation]:
    """One write for each skill and owner, from calls that ran a skill and from what RecordUsage said."""
    type = permit.type("skills", *_SKILL_FIELDS)
    if type is None:
        return []
    tallies: dict[tuple[str, str], _Tally] = {}
    for call in calls:
        if call.owner is not None and call.part.skill_name:
            tallies.setdefault((call.owner, call.part.skill_name), _Tally()).add(call)
    if permit.allow_self:
        for used in usage.skills:
            name = skill_name(used.uri)
            if name:
                tally = tallies.setdefault((SELF, name), _Tally())
                tally.calls += 1
                tally.successes += used.success
    return [
        write(
            type,
            {
                "skill_name": name,
                "total_executions": tally.calls,
                "success_count": tally.successes,
                "fail_count": tally.calls - tally.successes,
            },
            peer_id=owner,
            sequences=tally.sequences,
            reason="counted from the skill runs of the batch",
        )
        for (owner, name), tally in tallies.items()
    ]


def skill_name(uri: str) -> str:
    """Name of the skill that a URI names: its last segment, without the extension of a file."""
    return uri.rstrip("/").rpartition("/")[2].removesuffix(".md")
