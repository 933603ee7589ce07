"""What the records of a batch say of its tools and skills. Counters in memories come from here, never from a worker."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from schemas.counters import (
    MAX_COUNT,
    NAME_FIELDS,
    Call,
    Key,
    SkillRun,
    Tally,
    counted_fields,
    counter_values,
    join_records,
    tally_batch,
)
from schemas.secrets import withhold
from schemas.types import FieldValue, MemoryType, MergeOp
from storage import sessions
from storage.database import Space, Tx
from storage.records import Job, Message

_PAGE = 200
_PAGE_BYTES = 4 * 1024 * 1024
"""Of the uses that are read from the store at once: their inputs and outputs may be large."""


MAX_COUNTED: Final = 1000
"""Tools and skills of one batch that are counted, those with the most records first: a batch may name any number, and
each makes a memory."""


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """The tallies of one batch, by type, owner and name. `omitted`: how many names are not counted, beyond
    MAX_COUNTED."""

    tallies: dict[Key, Tally] = field(default_factory=dict)
    omitted: int = 0

    @classmethod
    def of_batch(cls, batch: Sequence[Message], runs: Sequence[SkillRun], *, withhold_secrets: bool) -> Self:
        """Counts the tool calls in the messages and the recorded runs of skills. With `withhold_secrets`, a name that
        holds a secret gets no memory."""
        tallies = tally_batch(join_records(_records(batch)), runs)
        omitted = max(0, len(tallies) - MAX_COUNTED)
        if omitted:
            most = sorted(tallies.items(), key=lambda item: item[1].ended + item[1].pending, reverse=True)
            tallies = dict(most[:MAX_COUNTED])
        if withhold_secrets:
            tallies = {key: tally for key, tally in tallies.items() if not withhold(key[2])[1]}
        return cls(tallies, omitted)

    def hold(self, type: MemoryType, owner: str, fields: Mapping[str, FieldValue]) -> bool:
        """Whether a record of the batch names the tool or skill that a memory with these fields is about."""
        return (type.name, owner, str(fields[NAME_FIELDS[type.name]])) in self.tallies


def counters_of(type: MemoryType) -> frozenset[str]:
    """Names of the fields of a type that are counted from records."""
    sums = (one.name for one in type.fields if one.merge_op is MergeOp.SUM)
    return counted_fields(type.name, type.filename_template, sums)


def counter_fields(type: MemoryType, key: Key, tally: Tally) -> dict[str, FieldValue]:
    """The fields of a memory that a batch gives: its name and its counters."""
    return {**counter_values(key, tally, counters_of(type))}


def within_room(given: Mapping[str, FieldValue], fields: Mapping[str, FieldValue] | None) -> dict[str, FieldValue]:
    """The fields that a batch gives, each counter no larger than what still fits into a memory with these fields."""
    return {
        name: min(value, MAX_COUNT - there) if isinstance(value, int) and isinstance(there, int) else value
        for name, value in given.items()
        for there in ((fields or {}).get(name, 0),)
    }


async def skill_runs(tx: Tx, space: Space, job: Job) -> list[SkillRun]:
    """The runs of skills that callers recorded before the commit took its batch."""
    runs: list[SkillRun] = []
    after = 0
    while True:
        page, after = await sessions.usages_page(
            tx, space, job.session_id, job.archive_index, after, _PAGE, _PAGE_BYTES
        )
        runs += [SkillRun(one.uri, one.body["success"]) for one in page if one.kind == "skill"]
        if not after:
            return runs


def _records(batch: Sequence[Message]) -> Iterator[Call]:
    for message in batch:
        for part in message.parts:
            if part["type"] == "tool":
                yield Call(
                    owner=message.peer_id,
                    sequence=message.sequence,
                    tool_id=part["tool_id"],
                    tool_name=part["tool_name"],
                    skill_name=part["skill_name"],
                    status=part["status"],
                    duration_ms=part["duration_ms"],
                    total_tokens=part["total_tokens"],
                )
