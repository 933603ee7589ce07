"""The offline engine: runs the phases of one job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import structlog

from runekeep.v1 import common_pb2, extractor_service_pb2, task_service_pb2
from runekeep_extractor.engine.interface import EngineOutput, Job, JobFailed
from runekeep_extractor.engine.tool_counts import calls_of
from runekeep_extractor.offline.guard import RuleGuard
from runekeep_extractor.offline.memory_changes import memory_operations
from runekeep_extractor.offline.operation_builders import Permit
from runekeep_extractor.offline.sentences import sentences_of
from runekeep_extractor.offline.statements import Statement, classify
from runekeep_extractor.offline.summary import summarize
from runekeep_extractor.offline.turn_jobs import reactions_of, reconciled, selection_of
from runekeep_extractor.offline.turns import confirmed_by_turns, turn_memory
from runekeep_schemas.documents.counters import Call

RULES: Final = "rules"
"""Value of `ExtractorInfo.model` for outputs of this engine."""
# A job without a report for too long counts as hung.
_TURNS_PER_REPORT: Final = 32
_FIRST_SEQUENCE: Final = 1

_log = structlog.get_logger(__name__)


class OfflineEngine:
    """A deterministic engine: the same job gives the same output. It needs no key, no model, and no network but the
    server.
    """

    answers_questions = False

    def __init__(self) -> None:
        self.info = common_pb2.ExtractorInfo(engine="offline", model=RULES, version=_version())

    @property
    def away(self) -> str:
        """See `Engine`. Always empty: the engine depends on nothing but the job."""
        return ""

    async def extract(self, job: Job) -> EngineOutput:
        """See `Engine`."""
        permit = Permit.of(job)
        # Computation runs in a thread, so that heartbeats continue however long the conversation is.
        guard = RuleGuard()
        calls: list[Call] = await asyncio.to_thread(guard.run, "tool_calls", lambda: calls_of(job.messages), [])
        output = EngineOutput()

        said = [(message, permit.owner(message)) for message in job.messages]
        sentences, left_out = await asyncio.to_thread(sentences_of, said, guard)
        if left_out:
            _log.warning("sentences_left_out", read=len(sentences), left_out=left_out)
        await job.progress(task_service_pb2.TASK_PHASE_PREFETCH, 10, f"{_counted(len(sentences), 'sentence')} to read")
        statements: list[Statement] = await guard.wait("classify", asyncio.to_thread(classify, sentences, guard), [])
        confirming = asyncio.to_thread(confirmed_by_turns, sentences, statements, job.messages, job.turns)
        statements = [*statements, *await guard.wait("evidence_of_turns", confirming, [])]
        statements.sort(key=lambda statement: statement.sentence.position)
        await job.progress(task_service_pb2.TASK_PHASE_LONG_TERM, 50, "comparing with what is known")
        # The rules have guards of their own. This one covers the code between them.
        output.operations = await guard.wait("memories", memory_operations(job, permit, statements, guard), [])

        if job.assignment.plan.summarize:
            await job.progress(task_service_pb2.TASK_PHASE_SUMMARY, 90, "quoting the summary")
            quoting = asyncio.to_thread(summarize, len(job.messages), sentences, statements, calls)
            output.summary = await guard.wait("summary", quoting, summarize(len(job.messages), [], [], []))
        output.turn_memories = await _missing(job, guard)
        output.skipped_rules = dict(guard.skipped)
        return output

    async def fingerprint(self, job: Job) -> EngineOutput:
        """See `Engine`. The fingerprint comes from this turn's own messages only. Earlier turns are selected by the
        words that they share with it."""
        await job.progress(
            task_service_pb2.TASK_PHASE_FINGERPRINT, 10, f"{_counted(len(job.messages), 'message')} to read"
        )
        turn_id, spec = job.assignment.turn_id, job.assignment.assistant_signal_spec
        memory = await asyncio.to_thread(
            turn_memory, turn_id, job.messages, opens=_open_session(job.messages), spec=spec
        )
        output = EngineOutput(turn_memories=[memory])
        if job.assignment.extract_selection:
            if all(one.role == common_pb2.ROLE_USER for one in job.messages):
                # A summary without the answer would stay incomplete: later extractions only fill empty fields.
                memory.ClearField("summary")
            output.selection = await asyncio.to_thread(selection_of, job)
        if job.assignment.extract_feedback and job.context.candidates:
            output.feedback = await asyncio.to_thread(reactions_of, job.messages)
        return output

    async def answer(self, job: Job) -> EngineOutput:
        """See `Engine`. Always raises JobFailed: the server answers with a recall instead."""
        reason = "the offline engine answers no questions"
        raise JobFailed(extractor_service_pb2.FAILURE_CLASS_UNSUPPORTED, reason, retryable=False)

    async def reconcile(self, job: Job) -> EngineOutput:
        """See `Engine`."""
        await job.progress(
            task_service_pb2.TASK_PHASE_BUCKETS,
            10,
            f"{_counted(len(job.turns), 'turn')}, {_counted(len(job.buckets), 'bucket')}",
        )
        changes = await asyncio.to_thread(reconciled, job.buckets, job.turns)
        return EngineOutput(bucket_changes=changes)

    async def repair(self, job: Job, output: EngineOutput, refused: Sequence[task_service_pb2.LeftOut]) -> EngineOutput:
        """Returns the same output without the refused operations: the rules would make the same mistake again."""
        wrong = {left.operation_index for left in refused}
        kept = [operation for index, operation in enumerate(output.operations) if index not in wrong]
        return replace(output, operations=kept)

    async def close(self) -> None:
        """Does nothing: the engine holds no resources."""


async def _missing(job: Job, guard: RuleGuard) -> list[extractor_service_pb2.TurnMemory]:
    """Returns the memories of the batch's turns that have no fingerprint."""
    said: dict[str, list[common_pb2.Message]] = {}
    for message in job.messages:
        said.setdefault(message.turn_id, []).append(message)
    turns = [one.turn for one in job.turns if one.turn.turn_id in said and not one.turn.HasField("fingerprint")]
    made = []
    for number, turn in enumerate(turns):
        if number % _TURNS_PER_REPORT == 0:
            await job.progress(
                task_service_pb2.TASK_PHASE_FINGERPRINT, 95, f"{number} of {_counted(len(turns), 'turn')}"
            )
        messages = said[turn.turn_id]
        reading = asyncio.to_thread(turn_memory, turn.turn_id, messages, opens=_open_session(messages))
        if (memory := await guard.wait("fingerprint", reading, None)) is not None:
            made.append(memory)
    return made


def _open_session(messages: Sequence[common_pb2.Message]) -> bool:
    """Returns whether these messages open their session, whose first message has the sequence 1."""
    return any(one.sequence == _FIRST_SEQUENCE for one in messages)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _version() -> str:
    try:
        return version("runekeep")
    except PackageNotFoundError:
        # The process runs from a checkout that was never installed.
        return "unknown"
