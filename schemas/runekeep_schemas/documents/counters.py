"""Counts tool calls and skill runs from the records of a batch.

Memories of the types `tools` and `skills` have counters. The server computes them with this module and ignores the
extractors' values, so that they match the records. A type has counters if it has one of these names and its files are
named by `tool_name` or `skill_name` alone. Its counters are the fields with a name below and `merge_op: sum`.

Two records of a call, one while it ran and one with its result, count once, by the newest record. Two results are two
calls, even with one call id, because agent runtimes reuse ids. A call without a result is pending: it counts neither as
a call nor as a success or failure. The batch with its result counts it. A duration or a number of tokens of zero is
unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from runekeep_schemas.memory_types.coerce import name_text
from runekeep_schemas.memory_types.templates import placeholders

SELF: Final = ""
"""The owner id of the user; other owners are peer ids."""
MAX_COUNT: Final = 2**63 - 1
"""The maximum of a field. A larger sum stays at it: one wrong record must not keep later calls from being counted."""

_COMPLETED: Final = "completed"
_PENDING: Final = frozenset({"pending", "running"})


@dataclass(frozen=True, slots=True)
class Call:
    """A record of a tool call. `owner`: SELF or the peer whose message holds it; `sequence`: the sequence of that
    message. `status`: `pending`, `running`, `completed` or `error`. `duration_ms` and `total_tokens`: 0 if unknown.
    """

    owner: str
    sequence: int
    tool_id: str
    tool_name: str
    skill_name: str
    status: str
    duration_ms: int
    total_tokens: int

    @property
    def succeeded(self) -> bool:
        """Whether it succeeded."""
        return self.status == _COMPLETED

    @property
    def pending(self) -> bool:
        """Whether no result was recorded."""
        return self.status in _PENDING


@dataclass(frozen=True, slots=True)
class SkillRun:
    """A use of a skill, as recorded by a caller."""

    uri: str
    success: bool


@dataclass(slots=True)
class Tally:
    """Sums over the calls of one tool, or the runs of one skill. `sequences`: sequences of the messages with their
    records.
    """

    successes: int = 0
    failures: int = 0
    pending: int = 0
    time_ms: int = 0
    timed: int = 0
    tokens: int = 0
    metered: int = 0
    sequences: set[int] = field(default_factory=set)

    @property
    def ended(self) -> int:
        """Number of calls with a result."""
        return self.successes + self.failures

    def add(self, call: Call) -> None:
        self.sequences.add(call.sequence)
        if call.pending:
            self.pending += 1
            return
        self.add_end(call.succeeded)
        self.time_ms += call.duration_ms
        self.timed += call.duration_ms > 0
        self.tokens += call.total_tokens
        self.metered += call.total_tokens > 0

    def add_end(self, success: bool) -> None:
        """Counts a success or a failure."""
        if success:
            self.successes += 1
        else:
            self.failures += 1


Key = tuple[str, str, str]
"""Name of the memory type, owner, and name of the tool or skill."""

_COUNTERS: Final[Mapping[str, Mapping[str, Callable[[Tally], int]]]] = {
    "tools": {
        "total_calls": lambda tally: tally.ended,
        "success_count": lambda tally: tally.successes,
        "fail_count": lambda tally: tally.failures,
        "pending_calls": lambda tally: tally.pending,
        "total_time_ms": lambda tally: tally.time_ms,
        "untimed_calls": lambda tally: tally.ended - tally.timed,
        "total_tokens": lambda tally: tally.tokens,
        "unmetered_calls": lambda tally: tally.ended - tally.metered,
    },
    "skills": {
        "total_executions": lambda tally: tally.ended,
        "success_count": lambda tally: tally.successes,
        "fail_count": lambda tally: tally.failures,
    },
}
NAME_FIELDS: Final[Mapping[str, str]] = {"tools": "tool_name", "skills": "skill_name"}
"""The field that names a memory of a counted type, by type."""


def counted_fields(type_name: str, filename_template: str, sums: Iterable[str]) -> frozenset[str]:
    """Returns the names of the fields that are counted from records; none for a type without counters. `sums`: names of
    its fields with `merge_op: sum`.
    """
    if placeholders(filename_template) != (NAME_FIELDS.get(type_name),):
        return frozenset()
    return frozenset(_COUNTERS[type_name]).intersection(sums)


def counter_values(key: Key, tally: Tally, fields: Iterable[str]) -> dict[str, str | int]:
    """Returns the name of the tool or skill, and those of its counters that are among `fields`, by field and at most
    MAX_COUNT.
    """
    type_name, _, name = key
    counters = _COUNTERS[type_name]
    return {NAME_FIELDS[type_name]: name, **{one: min(counters[one](tally), MAX_COUNT) for one in sorted(fields)}}


def join_records(records: Iterable[Call]) -> list[Call]:
    """Returns each call once. A later record of the same call (tool and call id) replaces a pending one.

    A result ends a pending call of its own owner. If there is none, it ends one of another owner, who keeps the call:
    the result may stand in another participant's message.
    """
    calls: list[Call] = []
    pending: dict[tuple[str, str], dict[str, int]] = {}
    for record in records:
        running = pending.setdefault((record.tool_name, record.tool_id), {}) if record.tool_id else {}
        owner = record.owner
        if owner not in running and running and not record.pending:
            owner = next(iter(running))
        place = running.pop(owner, len(calls))
        calls[place : place + 1] = [replace(record, owner=owner)]
        if record.tool_id and record.pending:
            running[owner] = place
    return calls


def tally_batch(calls: Iterable[Call], runs: Iterable[SkillRun]) -> dict[Key, Tally]:
    """Returns the tally of each tool and skill, by owner. A call that ran a skill counts for both. Runs recorded by a
    caller belong to the user. Empty names are skipped.
    """
    tallies: dict[Key, Tally] = {}
    for call in calls:
        for type_name, name in (("tools", name_text(call.tool_name)), ("skills", name_text(call.skill_name))):
            if name:
                tallies.setdefault((type_name, call.owner, name), Tally()).add(call)
    for run in runs:
        if name := name_text(skill_name(run.uri)):
            tallies.setdefault(("skills", SELF, name), Tally()).add_end(run.success)
    return tallies


def skill_name(uri: str) -> str:
    """Returns the name of the skill in a URI: its last segment, without the extension of a file."""
    return uri.rstrip("/").rpartition("/")[2].removesuffix(".md")
