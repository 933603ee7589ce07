"""Runs turn jobs: one call notes what a turn said, one call folds turns into buckets."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import structlog

from runekeep.v1 import extractor_service_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_extractor.answers.parse import Unreadable
from runekeep_extractor.engine.interface import EngineOutput, Job, JobFailed
from runekeep_extractor.engine.turn_records import fingerprint_to_wire, summary_to_wire
from runekeep_extractor.prompts.split import size, tokens
from runekeep_extractor.providers.errors import unusable
from runekeep_extractor.turns.bucket_answer import BucketReading, buckets_schema
from runekeep_extractor.turns.bucket_prompt import buckets_message, buckets_system
from runekeep_extractor.turns.turn_answer import read_turn, turn_schema
from runekeep_extractor.turns.turn_prompt import asked_of, turn_message, turn_system

Ask = Callable[[Sequence[str], Mapping[str, Any], str], Awaitable[str]]
"""Asks the model with a system prompt, an answer schema and a message. Returns the answer's text."""

_log = structlog.get_logger(__name__)


async def fingerprint(job: Job, most: int, ask: Ask) -> EngineOutput:
    """Returns the turn memory of the job's turn, and selection and feedback if asked for. `most`: tokens of the turn to
    show; half as many are shown of its context. Raises JobFailed."""
    if not job.messages:
        reason = "the turn has no messages"
        raise JobFailed(extractor_service_pb2.FAILURE_CLASS_INPUT_INVALID, reason, retryable=False)
    asked = asked_of(job)
    text = await ask(turn_system(asked), turn_schema(asked), turn_message(job, asked, most))
    try:
        # Repairing a broken answer may take a second, in which heartbeats are due.
        read = await asyncio.to_thread(read_turn, text, asked)
    except Unreadable as error:
        raise unusable(str(error)) from error
    _report(read.dropped)
    memory = extractor_service_pb2.TurnMemory(turn_id=asked.turn_id)
    if not read.fingerprint.is_empty or read.fingerprint.conversation_title:
        memory.fingerprint.CopyFrom(fingerprint_to_wire(read.fingerprint))
    if not read.summary.is_empty:
        memory.summary.CopyFrom(summary_to_wire(read.summary))
    if asked.selection and read.selection is None:
        raise unusable("the selection is missing or cannot be read")
    about_turn = memory.HasField("fingerprint") or memory.HasField("summary")
    if about_turn or read.selection is not None or read.feedback:
        return EngineOutput(
            turn_memories=[memory] if about_turn else [],
            selection=read.selection,
            feedback=read.feedback,
            dropped_items=read.dropped,
        )
    if not read.empty:
        raise unusable(f"it says nothing of the turn, {read.dropped} items dropped")
    # A turn without content has nothing to note, and asking again would cost the same again.
    return EngineOutput()


def fingerprint_size(job: Job) -> int:
    """Returns the approximate number of tokens that `fingerprint` shows."""
    return size(job.messages) + 2 * tokens(job.context.text)


def reconcile_size(job: Job, most: int) -> int:
    """Returns the approximate number of tokens that `reconcile` shows."""
    turns = _to_be_folded(job)
    return tokens(buckets_message(job, turns, most).message) if turns else 0


async def reconcile(job: Job, most: int, ask: Ask) -> EngineOutput:
    """Returns the changes of the session's buckets. `most`: maximum tokens shown. Raises JobFailed."""
    turns = _to_be_folded(job)
    if not turns:
        return EngineOutput(bucket_changes=extractor_service_pb2.BucketChanges())
    shown = buckets_message(job, turns, most)
    text = await ask(buckets_system(), buckets_schema(), shown.message)
    reading = BucketReading(shown.bucket_ids, shown.turn_ids)
    try:
        changes = await asyncio.to_thread(reading.changes, text)
    except Unreadable as error:
        raise unusable(str(error)) from error
    if reading.lost or (reading.dropped and not changes.ByteSize()):
        # If the answer were accepted, the turns would count as covered for good.
        what = "signals" if reading.lost else "changes"
        raise unusable(f"none of its {what} could be read, {reading.dropped} items dropped")
    changes.last_covered_turn_id = shown.last
    _report(reading.dropped)
    return EngineOutput(bucket_changes=changes, dropped_items=reading.dropped)


def _to_be_folded(job: Job) -> list[pb.CandidateTurn]:
    """Returns the turns of the job that have a fingerprint."""
    return [one for one in job.turns if one.turn.HasField("fingerprint")]


def _report(dropped: int) -> None:
    if dropped:
        _log.warning("answer_items_dropped", dropped=dropped)
