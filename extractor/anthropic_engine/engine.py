"""The engine `anthropic`: shows a model the conversation and what is remembered, and takes its answer as operations."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from extractor.anthropic_engine.answer import SummaryAnswer, read_text, wire_schema
from extractor.anthropic_engine.client import MessagesClient
from extractor.anthropic_engine.compose import Composer
from extractor.anthropic_engine.conversation import Earlier, job_message
from extractor.anthropic_engine.dedup import Deduped, dedup
from extractor.anthropic_engine.dedup_answer import RULES as DEDUP_RULES
from extractor.anthropic_engine.dedup_answer import dedup_schema
from extractor.anthropic_engine.dialogue import Dialogue, Stage
from extractor.anthropic_engine.failures import OUTAGES, unusable
from extractor.anthropic_engine.images import Describer
from extractor.anthropic_engine.operations import Converter
from extractor.anthropic_engine.parse import Unreadable
from extractor.anthropic_engine.prefetch import Existing, prefetch
from extractor.anthropic_engine.prompt import system_prompt
from extractor.anthropic_engine.reads import Reader
from extractor.anthropic_engine.records import Known
from extractor.anthropic_engine.repairs import Repair
from extractor.anthropic_engine.split import LEAST_TOKENS, MOST_TOKENS, Piece, size, split
from extractor.anthropic_engine.summary import render_summary
from extractor.anthropic_engine.targets import Targets
from extractor.anthropic_engine.usage import DEDUP, OPERATIONS, REPAIR
from extractor.engine import EngineOutput, Job, JobFailed
from extractor.settings import AnthropicSettings
from runekeep.v1 import common_pb2, extractor_service_pb2, task_service_pb2

VERSION: Final = "2"
"""Counts up when the prompt or the reading of answers changes what comes out."""

PATIENCE: Final = 300.0
"""Seconds. After that the job is given back, so that a worker whose model is reached may have it."""

_MOST_ROOM: Final = 80_000

# Percent of the work that is done when a phase begins; the server's part comes after them.
_BEGIN: Final = 5
_TOLD: Final = 70
_DEDUP: Final = 76
_REPAIR: Final = 90

_log = structlog.get_logger(__name__)


class AnthropicEngine:
    """Implements `extractor.engine.Engine`. Imports the SDK when constructed, which takes more than a second.

    Raises NotConfigured when there are no credentials for a call.

    `max_retries`: of the SDK, for rate limits, overload and broken connections. `beat_interval`: seconds between two
    reports of progress while the model is awaited. `patience`: seconds that an attempt waits out an outage, at most
    half of its time. `most_tokens`: of conversation in one call.
    """

    def __init__(
        self,
        settings: AnthropicSettings,
        *,
        max_retries: int = 2,
        beat_interval: float = 10.0,
        patience: float = PATIENCE,
        most_tokens: int = MOST_TOKENS,
    ) -> None:
        self.info = common_pb2.ExtractorInfo(engine="anthropic", model=settings.model, version=VERSION)
        self._client = MessagesClient(settings, max_retries)
        self._describer = Describer(self._client, settings.images, beat_interval)
        self._max_tokens = settings.max_tokens
        self._beat_interval = beat_interval
        self._patience = patience
        self._most_tokens = most_tokens

    @property
    def away(self) -> str:
        """See `Engine`."""
        return self._client.outage.reason

    async def extract(self, job: Job) -> EngineOutput:
        """Prefetch, then in the usual case one model call for memories of all types and the summary.

        A long conversation takes a call for each of its pieces, and new memories that are near others one more.
        """
        budget = job.assignment.time_budget.ToNanoseconds() / 1e9
        # The other half is for what comes when the model is back: to run out of time would count as a failure.
        patience = min(self._patience, budget / 2) if budget else self._patience
        described = await self._describer.describe(job, patience)
        told = await self._in_fitting_pieces(job, lambda most: self._told(job, patience, most))
        deduped = await self._deduped(job, told, patience)
        return EngineOutput(
            operations=deduped.operations,
            summary=render_summary(told.summary) if job.assignment.plan.summarize else None,
            image_descriptions=described,
            dropped_items=told.dropped + deduped.dropped,
            duplicates=deduped.duplicates,
        )

    async def repair(self, job: Job, output: EngineOutput, refused: Sequence[task_service_pb2.LeftOut]) -> EngineOutput:
        """Shows the model the refused operations and why, and puts what it gives for them in their places.

        All else stays as it was, the summary too. Of a long conversation the messages that the refused operations rest
        on are shown. What was found to be double is not looked at again. Where nothing comes of it, the refused
        operations are left out; an outage gives the job back, and where that would leave none, another attempt is due.
        """
        repair = Repair(job, output.operations, refused)
        if not repair.shown:
            return output
        try:
            given = await self._in_fitting_pieces(job, lambda most: self._mended(job, repair, most))
        except JobFailed as failed:
            rest = repair.without_refused()
            if failed.failure_class in OUTAGES or (failed.retryable and not rest):
                raise
            _log.warning("not_repaired", refused=len(refused), reason=failed.message)
            return replace(output, operations=rest)
        return replace(
            output,
            operations=repair.mended(given.operations),
            dropped_items=output.dropped_items + given.dropped,
        )

    async def close(self) -> None:
        """Close the connections to the model server."""
        await self._client.close()

    async def _in_fitting_pieces(self, job: Job, work: Callable[[int], Awaitable["_Told"]]) -> "_Told":
        """What `work` makes of pieces of so many tokens: halved until the model takes them, for this job alone."""
        most = self._most_tokens
        while True:
            try:
                return await work(most)
            except JobFailed as failed:
                smaller = min(most, size(job.messages)) // 2
                if (
                    failed.failure_class != extractor_service_pb2.FAILURE_CLASS_INPUT_TOO_LARGE
                    or smaller < LEAST_TOKENS
                ):
                    raise
                _log.warning("smaller_pieces", tokens=smaller, reason=failed.message)
                most = smaller

    async def _mended(self, job: Job, repair: Repair, most: int) -> "_Told":
        piece = _piece_for_repair(job, repair.shown, most)
        await job.progress(task_service_pb2.TASK_PHASE_REPAIR, _REPAIR, f"{len(repair.shown)} operations to mend")
        existing = await prefetch(job, piece.messages, _room(most), _silent)
        messages = [_user(job_message(job, existing, piece), repair.request())]
        stage = Stage(task_service_pb2.TASK_PHASE_REPAIR, _REPAIR, step=1)
        # Nobody knows how much of the attempt's time is left for waiting.
        text = await self._talk(job, existing.known, REPAIR, stage, messages, patience=0.0)
        return await asyncio.to_thread(_read, job, existing.known, text)

    async def _told(self, job: Job, patience: float, most: int) -> "_Told":
        """What the model says of all pieces, as operations that touch each memory once."""
        known: Known = {}
        composer = Composer(Targets(job), known)
        summary: SummaryAnswer | None = None
        dropped = 0
        for piece in split(job.messages, most):
            existing = await _existing(job, piece, _room(most))
            known |= existing.known
            earlier = Earlier(composer.operations, summary) if piece.number > 1 else None
            stage = Stage(task_service_pb2.TASK_PHASE_REASONING, _percent(piece, 0.25), step=_step(piece))
            messages = [_user(job_message(job, existing, piece, earlier))]
            text = await self._talk(job, known, OPERATIONS, stage, messages, patience)
            # Mending a broken answer may take a second, in which heartbeats are due.
            said = await asyncio.to_thread(_read, job, known, text)
            if job.assignment.plan.summarize and render_summary(said.summary) is None:
                raise unusable("the summary is missing")
            composer.add(said.operations)
            summary = said.summary
            dropped += said.dropped
        await _report(job, composer.operations, known, dropped)
        return _Told(composer.operations, summary, dropped, known)

    async def _deduped(self, job: Job, told: "_Told", patience: float) -> Deduped:
        stage = Stage(task_service_pb2.TASK_PHASE_DEDUP, _DEDUP)
        if any(operation.HasField("write") for operation in told.operations):
            await job.progress(stage.phase, stage.percent, "comparing new memories with those that are there")

        async def ask(message: str) -> str:
            dialogue = self._dialogue(job, [DEDUP_RULES], dedup_schema(), DEDUP, stage, patience)
            return await dialogue.answer([_user(message)], None)

        return await dedup(job, told.operations, told.known, ask)

    async def _talk(
        self, job: Job, known: Known, phase: str, stage: Stage, messages: list[dict[str, Any]], patience: float
    ) -> str:
        dialogue = self._dialogue(job, system_prompt(job), wire_schema(job.memory_types), phase, stage, patience)
        return await dialogue.answer(messages, Reader(job, known))

    def _dialogue(
        self,
        job: Job,
        system: Sequence[str],
        schema: Mapping[str, Any],
        phase: str,
        stage: Stage,
        patience: float,
    ) -> Dialogue:
        return Dialogue(
            self._client,
            job,
            system,
            schema,
            phase=phase,
            stage=stage,
            max_tokens=self._max_tokens,
            beat_interval=self._beat_interval,
            patience=patience,
        )


@dataclass(frozen=True, slots=True)
class _Told:
    """What the model said. `known`: URI to type of the memories that it was shown."""

    operations: Sequence[extractor_service_pb2.MemoryOperation]
    summary: SummaryAnswer | None
    dropped: int
    known: Known


async def _existing(job: Job, piece: Piece, room: int) -> Existing:
    phase = task_service_pb2.TASK_PHASE_PREFETCH
    await job.progress(phase, _percent(piece, 0), "reading what is remembered already")

    async def report(done: int, steps: int) -> None:
        percent = _percent(piece, 0.2 * done / max(steps, 1))
        await job.progress(phase, percent, f"{done} of {steps} searches")

    return await prefetch(job, piece.messages, room, report)


def _room(most_tokens: int) -> int:
    """Characters for memories beside so many tokens of conversation."""
    return min(_MOST_ROOM, 2 * most_tokens)


async def _silent(done: int, steps: int) -> None:
    """Prefetch in a repair reads again what it read before."""


def _percent(piece: Piece, part: float) -> int:
    """Where a job stands when so much of a piece is done."""
    return _BEGIN + int((_TOLD - _BEGIN) * (piece.number - 1 + part) / piece.count)


def _step(piece: Piece) -> int:
    """Percent for a round of reads: at most three of them, within the piece's share."""
    return int((_TOLD - _BEGIN) * 0.2 / piece.count)


async def _report(
    job: Job, operations: Sequence[extractor_service_pb2.MemoryOperation], known: Known, dropped: int
) -> None:
    """Says what came of each phase. One answer gives all of them, so they are reported one after another."""
    plan = job.assignment.plan
    execution = {*plan.execution_types, *(["session_skills"] if plan.session_skills else [])}
    named = (one.write.memory_type or known.get(one.edit.uri or one.delete.uri, "") for one in operations)
    own = sum(name in execution for name in named)
    if plan.long_term_types:
        told = f"{len(operations) - own} operations, {dropped} items dropped"
        await job.progress(task_service_pb2.TASK_PHASE_LONG_TERM, _TOLD, told)
    if plan.execution_types:
        await job.progress(task_service_pb2.TASK_PHASE_EXECUTION, _TOLD + 2, f"{own} operations")
    if plan.summarize:
        await job.progress(task_service_pb2.TASK_PHASE_SUMMARY, _TOLD + 4, "summary made")


def _read(job: Job, known: Known, text: str) -> _Told:
    """An answer taken apart. Raises JobFailed rather than make an empty output of an unusable one."""
    try:
        answer = read_text(text, job.memory_types)
    except Unreadable as error:
        raise unusable(str(error)) from error
    converter = Converter(job.memory_types, known)
    operations = converter.operations(answer)
    dropped = answer.dropped + converter.dropped
    if dropped:
        _log.warning("answer_items_dropped", dropped=dropped, operations=len(operations))
    if dropped and not operations:
        raise unusable(f"none of its operations could be read, {dropped} items dropped")
    return _Told(operations, answer.summary, dropped, known)


def _piece_for_repair(job: Job, operations: Sequence[extractor_service_pb2.MemoryOperation], most: int) -> Piece:
    """All of the conversation where it fits into one call; else what the operations rest on, as far as it fits."""
    pieces = split(job.messages, most)
    if len(pieces) == 1:
        return pieces[0]
    ranges = [one for operation in operations for one in operation.ranges]
    named = [
        message
        for message in job.messages
        if any(one.start_sequence <= message.sequence <= one.end_sequence for one in ranges)
    ]
    return replace(split(named, most)[0], number=1, count=1)


def _user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}
