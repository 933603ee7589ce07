"""The engine with a model: shows it the conversation and the existing memories, and makes operations of its answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import structlog

from runekeep.v1 import common_pb2, extractor_service_pb2, task_service_pb2
from runekeep_common.telemetry import tracing
from runekeep_extractor.answers.answer import SummaryAnswer, read_text
from runekeep_extractor.answers.dedup_answer import RULES as DEDUP_RULES
from runekeep_extractor.answers.dedup_answer import dedup_schema
from runekeep_extractor.answers.operations import Converter
from runekeep_extractor.answers.parse import Unreadable
from runekeep_extractor.engine.interface import EngineOutput, Job, JobFailed
from runekeep_extractor.engine.turn_records import fingerprint_to_wire
from runekeep_extractor.pipeline import answering
from runekeep_extractor.pipeline.compose import Composer
from runekeep_extractor.pipeline.conversation_prompt import Earlier, job_message
from runekeep_extractor.pipeline.dedup import Deduped, dedup
from runekeep_extractor.pipeline.dialogue import Dialogue, Stage
from runekeep_extractor.pipeline.existing_memories import ListedMemories
from runekeep_extractor.pipeline.images import Describer
from runekeep_extractor.pipeline.prefetch import Existing, prefetch
from runekeep_extractor.pipeline.repairs import Repair
from runekeep_extractor.pipeline.summary import render_summary
from runekeep_extractor.pipeline.targets import Targets
from runekeep_extractor.prompts.reads import Reader
from runekeep_extractor.prompts.records import Known
from runekeep_extractor.prompts.split import MAX_TOKENS, MIN_TOKENS, Piece, size, split, tokens
from runekeep_extractor.prompts.static_prompt import system_prompt
from runekeep_extractor.providers.client import ModelClient
from runekeep_extractor.providers.errors import OUTAGES, unusable
from runekeep_extractor.providers.interface import UserTurn
from runekeep_extractor.providers.opening import open_provider
from runekeep_extractor.providers.usage import ANSWER, BUCKETS, DEDUP, FINGERPRINT, OPERATIONS, REPAIR
from runekeep_extractor.settings import ModelSettings
from runekeep_extractor.turns import jobs as turns
from runekeep_extractor.turns.turn_answer import operations_schema, read_noted
from runekeep_extractor.turns.turn_evidence import ShownTurns, TurnEvidence

VERSION: Final = "6"
"""Incremented when a change of the prompt or of the answer parser changes the output."""

PATIENCE: Final = 300.0
"""Seconds. After that the job is given back, so that a worker that reaches its model can take it."""

# Bytes for memories in a prompt: for a short conversation, more for each of its tokens, and at most.
_MIN_ROOM: Final = 9_000
_ROOM_A_TOKEN: Final = 3
_MAX_ROOM: Final = 15_000

_OF_NO_USE: Final = (
    extractor_service_pb2.FAILURE_CLASS_INVALID_OUTPUT,
    extractor_service_pb2.FAILURE_CLASS_REJECTED_OUTPUT,
)
"""Failure classes of attempts whose answer the worker or the server could not use."""

_MAX_SLOW_ATTEMPTS: Final = 2
"""After this many attempts that ran out of time, pieces are halved."""

_OUTAGE_CLASSES: Final = (*OUTAGES, extractor_service_pb2.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE)
"""Failure classes of an outage of the model or of a part of the server."""

# Percent of the work done when a phase begins; the server's part comes after them.
_BEGIN: Final = 5
_TOLD: Final = 70
_DEDUP: Final = 76
_REPAIR: Final = 90
_TURNS: Final = 10
_ANSWER: Final = 10
_ASK_STEP: Final = 20

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class ModelEngine:
    """Implements `runekeep_extractor.engine.interface.Engine`. Imports its provider's SDK when constructed, which takes
    more than a second.

    Raises NotConfigured if the settings lack what a call needs.

    `max_retries`: retries by the SDK, for rate limits, overload and broken connections. `beat_interval`: seconds
    between two progress reports during a model call. `patience`: seconds that an attempt waits out an outage, at most
    half of its time. `most_tokens`: maximum tokens of conversation in one call.
    """

    answers_questions = True

    def __init__(
        self,
        settings: ModelSettings,
        *,
        max_retries: int = 2,
        beat_interval: float = 10.0,
        patience: float = PATIENCE,
        most_tokens: int = MAX_TOKENS,
    ) -> None:
        provider = open_provider(settings, max_retries)
        self.info = common_pb2.ExtractorInfo(engine=provider.name, model=settings.model, version=VERSION)
        self._client = ModelClient(settings, provider)
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
        """Prefetches, then usually makes one model call for memories of all types and the summary.

        A long conversation takes one call per piece, and new memories with similar ones take one more. The same calls
        note the turns that have no notes yet.
        """
        patience = self._patience_with(job)
        with tracing.span("describe images"):
            described = await self._describer.describe(job, patience)
        told = await self._in_fitting_pieces(
            job, lambda: size(job.messages), lambda most: self._told(job, patience, most)
        )
        with tracing.span("dedup"):
            deduped = await self._deduped(job, told, patience)
        return EngineOutput(
            operations=deduped.operations,
            summary=render_summary(told.summary) if job.assignment.plan.summarize else None,
            image_descriptions=described,
            turn_memories=told.turns,
            dropped_items=told.dropped + deduped.dropped,
            duplicates=deduped.duplicates,
        )

    async def fingerprint(self, job: Job) -> EngineOutput:
        """Makes one call, about the turn alone. Of a turn that is too long for the model, it shows the beginning and
        the end.
        """
        stage = Stage(task_service_pb2.TASK_PHASE_FINGERPRINT, _TURNS)
        await job.progress(stage.phase, stage.percent, f"{len(job.messages)} messages to note")
        ask = self._asking(job, FINGERPRINT, stage, self._patience_with(job))
        return await self._in_fitting_pieces(
            job, lambda: turns.fingerprint_size(job), lambda most: turns.fingerprint(job, most, ask)
        )

    async def reconcile(self, job: Job) -> EngineOutput:
        """Makes one call, or none if no turn has content. Turns that do not fit are left for the next job."""
        stage = Stage(task_service_pb2.TASK_PHASE_BUCKETS, _TURNS)
        await job.progress(stage.phase, stage.percent, f"{len(job.turns)} turns for {len(job.buckets)} buckets")
        ask = self._asking(job, BUCKETS, stage, self._patience_with(job))
        return await self._in_fitting_pieces(
            job, lambda: turns.reconcile_size(job, self._most_tokens), lambda most: turns.reconcile(job, most, ask)
        )

    async def answer(self, job: Job) -> EngineOutput:
        """Shows the model the question and what a recall finds for it, and lets it read a few times."""
        stage = Stage(task_service_pb2.TASK_PHASE_ANSWER, _ANSWER, step=_ASK_STEP)
        await job.progress(stage.phase, stage.percent, f"{len(job.question.recalled)} recalled statements")
        dialogue = self._dialogue(
            job, answering.question_system(), answering.answer_schema(), ANSWER, stage, self._patience_with(job)
        )
        opening = UserTurn([answering.question_message(job)])
        text = await dialogue.answer(opening, Reader(job, {}, answering.source_line))
        try:
            # Repairing a broken answer may take a second, in which heartbeats are due.
            read = await asyncio.to_thread(answering.read_answer, text)
        except Unreadable as error:
            raise unusable(str(error)) from error
        return EngineOutput(answer=read.answer, dropped_items=read.dropped)

    async def repair(self, job: Job, output: EngineOutput, refused: Sequence[task_service_pb2.LeftOut]) -> EngineOutput:
        """Shows the model the refused operations and the reasons, and replaces them with its answer.

        Everything else stays as it was, including the summary. Of a long conversation only the messages behind the
        refused operations are shown. Duplicates are not searched for again. If the model gives no usable answer, the
        refused operations are left out, even if only the summary is left. An outage gives the job back.
        """
        repair = Repair(job, output.operations, refused)
        if not repair.shown:
            return output
        try:
            given = await self._in_fitting_pieces(
                job, lambda: size(job.messages), lambda most: self._mended(job, repair, most)
            )
        except JobFailed as failed:
            if failed.failure_class in _OUTAGE_CLASSES:
                raise
            _log.warning("not_repaired", refused=len(refused), reason=failed.message)
            return replace(output, operations=repair.without_refused())
        return replace(
            output,
            operations=repair.mended(given.operations),
            dropped_items=output.dropped_items + given.dropped,
        )

    async def close(self) -> None:
        """Closes the connections to the model server."""
        await self._client.close()

    def _patience_with(self, job: Job) -> float:
        """Returns the seconds for which this attempt waits out an outage."""
        budget = job.assignment.time_budget.ToNanoseconds() / 1e9
        # The other half is for the work after the outage: running out of time would count as a failure.
        return min(self._patience, budget / 2) if budget else self._patience

    async def _in_fitting_pieces(self, job: Job, whole: Callable[[], int], work: Callable[[int], Awaitable[T]]) -> T:
        """Returns the result of `work` for a maximum piece size in tokens. Halves the size until the model accepts the
        pieces, for this job only, and once for each attempt from the second on that ran out of time. `whole`: estimates
        the total tokens; called only if a piece is too large, or was too slow.
        """
        most = self._most_tokens
        slow = sum(
            one.failure_class == extractor_service_pb2.FAILURE_CLASS_TIME_BUDGET
            for one in job.assignment.previous_failures
        )
        if slow >= _MAX_SLOW_ATTEMPTS:
            most = max(min(most, whole()) >> (slow - _MAX_SLOW_ATTEMPTS + 1), MIN_TOKENS)
            _log.warning("smaller_pieces", tokens=most, reason=f"{slow} attempts ran out of time")
        while True:
            try:
                return await work(most)
            except JobFailed as failed:
                smaller = min(most, whole()) // 2
                if failed.failure_class != extractor_service_pb2.FAILURE_CLASS_INPUT_TOO_LARGE or smaller < MIN_TOKENS:
                    raise
                _log.warning("smaller_pieces", tokens=smaller, reason=failed.message)
                most = smaller

    async def _mended(self, job: Job, repair: Repair, most: int) -> "_ModelResults":
        piece = _piece_for_repair(job, repair.shown, most)
        await job.progress(task_service_pb2.TASK_PHASE_REPAIR, _REPAIR, f"{len(repair.shown)} operations to mend")
        existing = await prefetch(job, piece.messages, _room(piece, most), _silent)
        shown = TurnEvidence(job, [piece]).of(piece, ask=False)
        opening = UserTurn([job_message(job, existing, piece, shown), repair.request()])
        stage = Stage(task_service_pb2.TASK_PHASE_REPAIR, _REPAIR, step=1)
        # The time left in the attempt is unknown here, so the repair does not wait.
        text = await self._talk(job, existing.known, shown, REPAIR, stage, opening, patience=0.0)
        return await asyncio.to_thread(_read, job, existing.known, shown, text)

    async def _told(self, job: Job, patience: float, most: int) -> "_ModelResults":
        """Returns the model's answer about all pieces, as operations that touch each memory once."""
        known: Known = {}
        listed = ListedMemories()
        composer = Composer(Targets(job), known)
        summary: SummaryAnswer | None = None
        noted: list[extractor_service_pb2.TurnMemory] = []
        dropped = 0
        pieces = split(job.messages, most)
        evidence = TurnEvidence(job, pieces)
        # After an unusable answer, do not ask for turn notes again: the answer may have been too long, and a commit
        # must not fail because of notes. Nor must it fail because of unreadable operations, or of an answer that is cut
        # off again: after a second unusable answer what can be read of it is kept.
        tried = any(one.failure_class in _OF_NO_USE for one in job.assignment.previous_failures)
        for piece in pieces:
            existing = await _existing(job, piece, _room(piece, most))
            known |= existing.known
            listed = existing.listed
            earlier = Earlier(composer.operations, summary) if piece.number > 1 else None
            shown = evidence.of(piece, ask=not tried)
            if shown.left:
                _log.info("turns_left_without_notes", turns=shown.left)
            stage = Stage(task_service_pb2.TASK_PHASE_REASONING, _percent(piece, 0.25), step=_step(piece))
            opening = UserTurn([job_message(job, existing, piece, shown, earlier)])
            text = await self._talk(job, known, shown, OPERATIONS, stage, opening, patience, takes_cut=tried)
            # Repairing a broken answer may take a second, in which heartbeats are due.
            said = await asyncio.to_thread(_read, job, known, shown, text)
            if said.dropped and not said.operations and not tried:
                raise unusable(f"none of its operations could be read, {said.dropped} items dropped")
            if job.assignment.plan.summarize and render_summary(said.summary) is None:
                raise unusable("the summary is missing")
            composer.add(said.operations)
            summary = said.summary
            noted += said.turns
            dropped += said.dropped
        await _report(job, composer.operations, known, dropped)
        return _ModelResults(composer.operations, summary, noted, dropped, known, listed)

    async def _deduped(self, job: Job, told: "_ModelResults", patience: float) -> Deduped:
        stage = Stage(task_service_pb2.TASK_PHASE_DEDUP, _DEDUP)
        if any(operation.HasField("write") for operation in told.operations):
            await job.progress(stage.phase, stage.percent, "comparing new memories with those that are there")
        ask = self._asking(job, DEDUP, stage, patience)
        return await dedup(
            job, told.operations, told.known, told.listed, lambda text: ask([DEDUP_RULES], dedup_schema(), text)
        )

    async def _talk(
        self,
        job: Job,
        known: Known,
        shown: ShownTurns,
        phase: str,
        stage: Stage,
        opening: UserTurn,
        patience: float,
        *,
        takes_cut: bool = False,
    ) -> str:
        schema = operations_schema(job.memory_types, turns=bool(shown.asked))
        dialogue = self._dialogue(job, system_prompt(job), schema, phase, stage, patience, takes_cut=takes_cut)
        # A summary alone needs no reads.
        return await dialogue.answer(opening, Reader(job, known) if job.memory_types else None)

    def _asking(self, job: Job, phase: str, stage: Stage, patience: float) -> turns.Ask:
        """Returns a function that asks the model without reads."""

        async def ask(system: Sequence[str], schema: Mapping[str, Any], text: str) -> str:
            dialogue = self._dialogue(job, system, schema, phase, stage, patience)
            return await dialogue.answer(UserTurn([text]), None)

        return ask

    def _dialogue(
        self,
        job: Job,
        system: Sequence[str],
        schema: Mapping[str, Any],
        phase: str,
        stage: Stage,
        patience: float,
        *,
        takes_cut: bool = False,
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
            takes_cut=takes_cut,
        )


@dataclass(frozen=True, slots=True)
class _ModelResults:
    """The model's results. `known`: URI to type of the memories shown; `listed`: what the listings revealed."""

    operations: Sequence[extractor_service_pb2.MemoryOperation]
    summary: SummaryAnswer | None
    turns: list[extractor_service_pb2.TurnMemory]
    dropped: int
    known: Known
    listed: ListedMemories = field(default_factory=ListedMemories)


async def _existing(job: Job, piece: Piece, room: int) -> Existing:
    phase = task_service_pb2.TASK_PHASE_PREFETCH
    await job.progress(phase, _percent(piece, 0), "reading what is remembered already")

    async def report(done: int, steps: int) -> None:
        percent = _percent(piece, 0.2 * done / max(steps, 1))
        await job.progress(phase, percent, f"{done} of {steps} searches")

    with tracing.span("prefetch"):
        return await prefetch(job, piece.messages, room, report)


def _room(piece: Piece, most: int) -> int:
    """Returns the bytes available for memories beside a piece of conversation. `most`: maximum tokens of a piece."""
    said = sum(map(tokens, piece.lines))
    return min(_MIN_ROOM + _ROOM_A_TOKEN * said, _MAX_ROOM, 2 * most)


async def _silent(done: int, steps: int) -> None:
    """Reports nothing: the prefetch of a repair repeats earlier reads."""


def _percent(piece: Piece, part: float) -> int:
    """Returns the job's percent when `part` of a piece is done."""
    return _BEGIN + int((_TOLD - _BEGIN) * (piece.number - 1 + part) / piece.count)


def _step(piece: Piece) -> int:
    """Returns the percent for a round of reads: at most three rounds fit within the piece's share."""
    return int((_TOLD - _BEGIN) * 0.2 / piece.count)


async def _report(
    job: Job, operations: Sequence[extractor_service_pb2.MemoryOperation], known: Known, dropped: int
) -> None:
    """Reports the result of each phase. One answer covers all of them, so they are reported one after another."""
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


def _read(job: Job, known: Known, shown: ShownTurns, text: str) -> _ModelResults:
    """Reads an answer of the model. Raises JobFailed if it cannot be read."""
    try:
        answer = read_text(text, job.memory_types)
    except Unreadable as error:
        raise unusable(str(error)) from error
    converter = Converter(job.memory_types, known)
    operations = converter.operations(answer)
    dropped = answer.dropped + converter.dropped
    # Errors in notes are not dropped items: they must not decide about the commit.
    noted, unread = read_noted(answer.turns, shown.asked)
    if dropped or unread:
        _log.warning(
            "answer_items_dropped", dropped=dropped, of_turns=unread, operations=len(operations), turns=len(noted)
        )
    memories = [
        extractor_service_pb2.TurnMemory(turn_id=one.turn_id, fingerprint=fingerprint_to_wire(one)) for one in noted
    ]
    return _ModelResults(operations, answer.summary, memories, dropped, known)


def _piece_for_repair(job: Job, operations: Sequence[extractor_service_pb2.MemoryOperation], most: int) -> Piece:
    """Returns the whole conversation if it fits into one call; else the messages behind the operations, as far as they
    fit.
    """
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
