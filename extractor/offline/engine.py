"""The offline engine: phases of one job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

import structlog

from extractor.calls import EmbedderDown
from extractor.counts import calls_of
from extractor.engine import EngineOutput, Job
from extractor.offline.classify import Statement, classify
from extractor.offline.guard import RuleGuard
from extractor.offline.likeness import RULES, ByMeaning, ByWords, Likeness
from extractor.offline.memories import memory_operations
from extractor.offline.plan import Permit
from extractor.offline.sentences import Sentence, sentences_of
from extractor.offline.summary import summarize
from extractor.offline.turns.buckets import reconciled
from extractor.offline.turns.evidence import confirmed
from extractor.offline.turns.memory import turn_memory
from extractor.offline.turns.reactions import reactions_of
from extractor.offline.turns.selecting import selection_of
from runekeep.v1 import common_pb2, extractor_service_pb2, task_service_pb2
from schemas.counters import Call

if TYPE_CHECKING:
    from extractor.offline.likeness import Vector

# A job that says nothing for long counts as hung.
_TURNS_A_REPORT: Final = 32
_FIRST: Final = 1

_log = structlog.get_logger(__name__)


class OfflineEngine:
    """Deterministic: the same job gives the same output. Needs no key, no model and no network but the server."""

    def __init__(self) -> None:
        self._prototypes: dict[str, dict[str, Vector]] = {}
        # No model: it is the embedder that sorts, which each job finds at its server, or not.
        self.info = common_pb2.ExtractorInfo(engine="offline", version=_version())

    @property
    def away(self) -> str:
        """See `Engine`. It works with nothing but the job."""
        return ""

    async def extract(self, job: Job) -> EngineOutput:
        """See `Engine`."""
        permit = Permit.of(job)
        # What only computes runs in a thread: heartbeats go on, however much was said.
        guard = RuleGuard()
        calls: list[Call] = await asyncio.to_thread(guard.run, "tool_calls", lambda: calls_of(job.messages), [])
        output = EngineOutput()

        said = [(message, permit.owner(message)) for message in job.messages]
        sentences, left_out = await asyncio.to_thread(sentences_of, said, guard)
        if left_out:
            _log.warning("sentences_left_out", read=len(sentences), left_out=left_out)
        await job.progress(task_service_pb2.TASK_PHASE_PREFETCH, 10, f"{_counted(len(sentences), 'sentence')} to sort")
        likeness, statements = await self._sorted(job, sentences, guard)
        confirming = asyncio.to_thread(confirmed, statements, job.messages, job.turns, likeness)
        statements = await guard.wait("evidence_of_turns", confirming, statements)
        await job.progress(task_service_pb2.TASK_PHASE_LONG_TERM, 50, "comparing with what is known")
        # The rules have guards of their own. This one covers the code between them.
        remembering = memory_operations(job, permit, statements, likeness, guard)
        output.operations = await guard.wait("memories", remembering, [])

        if job.assignment.plan.summarize:
            await job.progress(task_service_pb2.TASK_PHASE_SUMMARY, 90, "quoting the summary")
            quoting = asyncio.to_thread(summarize, len(job.messages), statements, calls)
            output.summary = await guard.wait("summary", quoting, summarize(len(job.messages), [], []))
        output.turn_memories = await _missing(job, guard)
        output.skipped_rules = dict(guard.skipped)
        output.model = likeness.name or RULES
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
        output = EngineOutput(turn_memories=[memory], model=RULES)
        if job.assignment.extract_selection:
            if all(one.role == common_pb2.ROLE_USER for one in job.messages):
                # A summary without the answer would stay incomplete: later extractions only fill empty fields.
                memory.ClearField("summary")
            output.selection = await asyncio.to_thread(selection_of, job)
        if job.assignment.extract_feedback and job.context.candidates:
            output.feedback = await asyncio.to_thread(reactions_of, job.messages)
        return output

    async def reconcile(self, job: Job) -> EngineOutput:
        """See `Engine`."""
        await job.progress(
            task_service_pb2.TASK_PHASE_BUCKETS,
            10,
            f"{_counted(len(job.turns), 'turn')}, {_counted(len(job.buckets), 'bucket')}",
        )
        changes = await asyncio.to_thread(reconciled, job.buckets, job.turns)
        return EngineOutput(bucket_changes=changes, model=RULES)

    async def repair(self, job: Job, output: EngineOutput, refused: Sequence[task_service_pb2.LeftOut]) -> EngineOutput:
        """The same output without what was refused: rules that made a wrong operation would make it again."""
        wrong = {left.operation_index for left in refused}
        kept = [operation for index, operation in enumerate(output.operations) if index not in wrong]
        return replace(output, operations=kept)

    async def close(self) -> None:
        """Nothing is held."""

    async def _sorted(
        self, job: Job, sentences: Sequence[Sentence], guard: RuleGuard
    ) -> tuple[Likeness, list[Statement]]:
        likeness: Likeness = ByMeaning(job, self._prototypes)
        try:
            await likeness.learn([sentence.text for sentence in sentences])
        except EmbedderDown:
            _log.warning("sorted_by_rules", reason="the server's embedder is down")
            likeness = ByWords()
        sorting = asyncio.to_thread(classify, sentences, likeness, guard)
        return likeness, await guard.wait("classify", sorting, [])


async def _missing(job: Job, guard: RuleGuard) -> list[extractor_service_pb2.TurnMemory]:
    """The memories of the batch's turns that have no fingerprint."""
    said: dict[str, list[common_pb2.Message]] = {}
    for message in job.messages:
        said.setdefault(message.turn_id, []).append(message)
    turns = [one.turn for one in job.turns if one.turn.turn_id in said and not one.turn.HasField("fingerprint")]
    made = []
    for number, turn in enumerate(turns):
        if number % _TURNS_A_REPORT == 0:
            await job.progress(
                task_service_pb2.TASK_PHASE_FINGERPRINT, 95, f"{number} of {_counted(len(turns), 'turn')}"
            )
        messages = said[turn.turn_id]
        reading = asyncio.to_thread(turn_memory, turn.turn_id, messages, opens=_open_session(messages))
        if (memory := await guard.wait("fingerprint", reading, None)) is not None:
            made.append(memory)
    return made


def _open_session(messages: Sequence[common_pb2.Message]) -> bool:
    """Whether messages of a turn begin their session, whose first message has the sequence 1."""
    return any(one.sequence == _FIRST for one in messages)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _version() -> str:
    try:
        return version("runekeep")
    except PackageNotFoundError:
        # Run from a checkout that was never installed.
        return "unknown"
