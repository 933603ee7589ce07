"""The engine `anthropic`: shows a model the conversation and what is remembered, and takes its answer as operations."""

import json
from collections.abc import Sequence
from typing import Any, Final

import structlog

from extractor.anthropic_engine.answer import read_answer, wire_schema
from extractor.anthropic_engine.client import MessagesClient
from extractor.anthropic_engine.conversation import job_message
from extractor.anthropic_engine.dialogue import Dialogue
from extractor.anthropic_engine.failures import unusable
from extractor.anthropic_engine.operations import Converter, as_answer
from extractor.anthropic_engine.parse import Unreadable, find_answer
from extractor.anthropic_engine.prefetch import Existing, prefetch
from extractor.anthropic_engine.prompt import system_prompt
from extractor.anthropic_engine.reads import Reader
from extractor.anthropic_engine.records import line
from extractor.anthropic_engine.summary import render_summary
from extractor.anthropic_engine.usage import OPERATIONS, REPAIR, Ledger
from extractor.engine import EngineOutput, Job
from extractor.settings import AnthropicSettings
from runekeep.v1 import common_pb2, task_service_pb2

VERSION: Final = "1"
"""Counts up when the prompt or the reading of answers changes what comes out."""

PATIENCE: Final = 300.0
"""Seconds. After that the job is given back, so that a worker whose model is reached may have it."""

_log = structlog.get_logger(__name__)


class AnthropicEngine:
    """Implements `extractor.engine.Engine`. Imports the SDK when constructed, which takes more than a second.

    Raises NotConfigured when there are no credentials for a call.

    `max_retries`: of the SDK, for rate limits, overload and broken connections. `beat_interval`: seconds between two
    reports of progress while the model is awaited. `patience`: seconds that an attempt waits out an outage, at most
    half of its time.
    """

    def __init__(
        self,
        settings: AnthropicSettings,
        *,
        max_retries: int = 2,
        beat_interval: float = 10.0,
        patience: float = PATIENCE,
    ) -> None:
        self.info = common_pb2.ExtractorInfo(engine="anthropic", model=settings.model, version=VERSION)
        self._client = MessagesClient(settings, max_retries)
        self._max_tokens = settings.max_tokens
        self._beat_interval = beat_interval
        self._patience = patience

    async def extract(self, job: Job) -> EngineOutput:
        """Prefetch, then in the usual case one model call for memories of all types and the summary."""
        existing = await self._prefetch(job)
        budget = job.assignment.time_budget.ToNanoseconds() / 1e9
        # The other half is for what comes when the model is back: to run out of time would count as a failure.
        patience = min(self._patience, budget / 2) if budget else self._patience
        text = await self._talk(job, existing, OPERATIONS, [_user(job_message(job, existing))], patience)
        output = await _read_output(job, existing, text)
        if job.assignment.plan.summarize and output.summary is None:
            raise unusable("the summary is missing")
        return output

    async def repair(self, job: Job, output: EngineOutput, refused: Sequence[task_service_pb2.LeftOut]) -> EngineOutput:
        """Shows the model its operations and what is wrong with them, and takes a whole new set.

        Dropped items are those of the whole attempt. A summary that is not given again stays as it was.
        """
        existing = await self._prefetch(job)
        messages = [
            _user(job_message(job, existing)),
            {"role": "assistant", "content": [{"type": "text", "text": _given(output)}]},
            _user(_objections(output, refused)),
        ]
        # Nobody knows how much of the attempt's time is left for waiting.
        text = await self._talk(job, existing, REPAIR, messages, patience=0.0)
        mended = await _read_output(job, existing, text)
        mended.dropped_items += output.dropped_items
        if mended.summary is None:
            mended.summary = output.summary
        return mended

    async def close(self) -> None:
        """Close the connections to the model server."""
        await self._client.close()

    async def _prefetch(self, job: Job) -> Existing:
        await job.progress(task_service_pb2.TASK_PHASE_PREFETCH, 5, "reading what is remembered already")
        return await prefetch(job)

    async def _talk(
        self, job: Job, existing: Existing, phase: str, messages: list[dict[str, Any]], patience: float
    ) -> str:
        dialogue = Dialogue(
            self._client,
            job,
            system_prompt(job),
            wire_schema(job.memory_types),
            ledger=Ledger(job.spent),
            phase=phase,
            max_tokens=self._max_tokens,
            beat_interval=self._beat_interval,
            patience=patience,
        )
        return await dialogue.answer(messages, Reader(job, existing.known))


async def _read_output(job: Job, existing: Existing, text: str) -> EngineOutput:
    """Operations and summary of an answer. Raises JobFailed rather than make an empty output of an unusable answer."""
    try:
        answer = read_answer(find_answer(text))
    except Unreadable as error:
        raise unusable(str(error)) from error
    converter = Converter(job.memory_types, existing.known)
    operations = converter.operations(answer)
    dropped = answer.dropped + converter.dropped
    if dropped:
        _log.warning("answer_items_dropped", dropped=dropped, operations=len(operations))
    if dropped and not operations:
        raise unusable(f"none of its operations could be read, {dropped} items dropped")
    plan = job.assignment.plan
    phase = task_service_pb2.TASK_PHASE_LONG_TERM if plan.long_term_types else task_service_pb2.TASK_PHASE_EXECUTION
    await job.progress(phase, 70, f"{len(operations)} operations, {dropped} items dropped")
    summary = render_summary(answer.summary) if plan.summarize else None
    return EngineOutput(operations=operations, summary=summary, dropped_items=dropped)


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def _given(output: EngineOutput) -> str:
    """The operations that were sent, in the words of an answer."""
    by_kind: dict[str, list[dict[str, Any]]] = {"write": [], "edit": [], "delete": []}
    for operation in output.operations:
        by_kind[operation.WhichOneof("operation") or "delete"].append(as_answer(operation))
    answer = {f"{kind}_operations": operations for kind, operations in by_kind.items()}
    return json.dumps({"reasoning": "", **answer}, ensure_ascii=False)


def _objections(output: EngineOutput, refused: Sequence[task_service_pb2.LeftOut]) -> str:
    lines = []
    for one in refused:
        record: dict[str, Any] = {"reason": one.reason, "message": one.message, "uri": one.uri}
        if 0 <= one.operation_index < len(output.operations):
            record["operation"] = as_answer(output.operations[one.operation_index])
        lines.append(line(record))
    return (
        "The server refuses these operations:\n\n"
        + "\n".join(lines)
        + "\n\nGive the whole answer again: every other operation as it was, and these mended or, where they cannot "
        "be mended, left out. A SEARCH text must stand in the field exactly. The summary's texts may be left empty."
    )
