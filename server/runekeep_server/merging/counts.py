"""Counts the uses of tools and skills that a batch records. Counters in memories come from here, never from a
worker."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from runekeep_schemas.documents.counters import (
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
from runekeep_schemas.memory_types.model import FieldValue, MemoryType
from runekeep_schemas.secrets import withhold
from runekeep_storage.database import Space, Tx
from runekeep_storage.records import Job, Message
from runekeep_storage.sessions import sessions

_PAGE = 200
_PAGE_BYTES = 4 * 1024 * 1024
"""Maximum bytes of uses in one read from the store: their inputs and outputs may be large."""


MAX_COUNTED: Final = 1000
"""Maximum of tools and skills of one batch that are counted, those with the most records first: a batch may name any
number, and each creates a memory."""


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """The tallies of one batch, by type, owner and name. `omitted`: number of names above MAX_COUNTED, which are not
    counted."""

    tallies: dict[Key, Tally] = field(default_factory=dict)
    omitted: int = 0

    @classmethod
    def of_batch(cls, batch: Sequence[Message], runs: Sequence[SkillRun], *, withhold_secrets: bool) -> Self:
        """Counts the tool calls in the messages and the recorded runs of skills. `withhold_secrets`: a name that
        contains a secret gets no memory."""
        tallies = tally_batch(join_records(_records(batch)), runs)
        omitted = max(0, len(tallies) - MAX_COUNTED)
        if omitted:
            most = sorted(tallies.items(), key=lambda item: item[1].ended + item[1].pending, reverse=True)
            tallies = dict(most[:MAX_COUNTED])
        if withhold_secrets:
            tallies = {key: tally for key, tally in tallies.items() if not withhold(key[2])[1]}
        return cls(tallies, omitted)

    def hold(self, type: MemoryType, owner: str, fields: Mapping[str, FieldValue]) -> bool:
        """Returns whether a record of the batch names the tool or skill of a memory with these fields."""
        return (type.name, owner, str(fields[NAME_FIELDS[type.name]])) in self.tallies


def counters_of(type: MemoryType) -> frozenset[str]:
    """Returns the names of a type's fields that are counted from records."""
    sums = (one.name for one in type.fields if one.merge_rule.adds)
    return counted_fields(type.name, type.filename_template, sums)


def counter_fields(type: MemoryType, key: Key, tally: Tally) -> dict[str, FieldValue]:
    """Returns the fields of a memory from a batch: its name and its counters."""
    return {**counter_values(key, tally, counters_of(type))}


def within_room(given: Mapping[str, FieldValue], fields: Mapping[str, FieldValue] | None) -> dict[str, FieldValue]:
    """Returns the fields from a batch, each counter limited such that the sum with the memory's counter stays valid."""
    return {
        name: min(value, MAX_COUNT - there) if isinstance(value, int) and isinstance(there, int) else value
        for name, value in given.items()
        for there in ((fields or {}).get(name, 0),)
    }


async def skill_runs(tx: Tx, space: Space, job: Job) -> list[SkillRun]:
    """Returns the runs of skills that callers recorded before the commit took its batch."""
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
