"""Ends questions with their answers. One transaction checks the sources, so that none is gone when the answer is
stored."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runekeep_storage.database import Space, Tx
from runekeep_storage.jobs import jobs, tasks
from runekeep_storage.memories import memories
from runekeep_storage.memories.apply import Applied, held_or_applied
from runekeep_storage.records import LeaseId
from runekeep_storage.search import live_messages


@dataclass(frozen=True, slots=True)
class Source:
    """What a statement rests on: a memory, or a message of a session. `uri` and `sequence` as in AnswerSource of the
    contract; `session_id`: empty for a memory."""

    uri: str
    session_id: str = ""
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    sources: Sequence[Source]


@dataclass(frozen=True, slots=True)
class PreparedAnswer:
    """An answer whose sources are in the job's space, as far as their URIs say. `result`: what else the task's result
    says; its `sources_removed` counts the sources that the caller of `apply` removed."""

    lease: LeaseId
    output_id: str
    statements: Sequence[Statement]
    result: Mapping[str, Any]
    usage: list[dict[str, Any]]


async def apply(tx: Tx, space: Space, prepared: PreparedAnswer) -> Applied:
    """Stores the answer exactly once, without sources that do not exist and without statements that have no other.
    Raises LeaseLost."""
    job = await held_or_applied(tx, space, prepared.lease, prepared.output_id)
    if isinstance(job, Applied):
        return job
    known = await _existing(tx, space, (source for one in prepared.statements for source in one.sources))
    kept, removed = [], prepared.result["sources_removed"]
    for statement in prepared.statements:
        sources = [known[source] for source in dict.fromkeys(statement.sources) if source in known]
        removed += sum(source not in known for source in statement.sources)
        if sources:
            kept.append({"text": statement.text, "sources": sources})
    result = {
        **prepared.result,
        "statements": kept,
        "sources_removed": removed,
        "statements_removed": len(prepared.statements) - len(kept),
    }
    await tasks.spent(tx, space, job.job_id, job.token, prepared.usage)
    await jobs.succeed(tx, job, prepared.output_id, 0, result)
    return Applied(0, job)


async def _existing(tx: Tx, space: Space, sources: Iterable[Source]) -> dict[Source, dict[str, Any]]:
    """Returns the sources that exist, each as the result stores it."""
    named = dict.fromkeys(sources)
    found: dict[Source, dict[str, Any]] = {}
    there = await memories.existing(tx, space, list({one.uri for one in named if not one.session_id}))
    found |= {one: {"uri": one.uri} for one in named if not one.session_id and one.uri in there}
    by_session: defaultdict[str, list[Source]] = defaultdict(list)
    for one in named:
        if one.session_id:
            by_session[one.session_id].append(one)
    for session_id, some in by_session.items():
        ids = await live_messages.ids_at(tx, space, session_id, [one.sequence for one in some])
        for one in some:
            if one.sequence in ids:
                found[one] = {"uri": one.uri, "sequence": one.sequence, "message_id": ids[one.sequence]}
    return found
