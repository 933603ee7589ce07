"""The offline engine: phases of one job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import structlog

from extractor.calls import EmbedderDown
from extractor.engine import EngineOutput, Job
from extractor.offline.classify import Statement, classify
from extractor.offline.likeness import RULES, ByMeaning, ByWords, Likeness
from extractor.offline.memories import memory_operations
from extractor.offline.plan import Permit
from extractor.offline.sentences import Sentence, sentences_of
from extractor.offline.summary import summarize
from extractor.offline.tools import Call, calls_of, skill_operations, tool_operations
from runekeep.v1 import common_pb2, extractor_service_pb2, task_service_pb2

if TYPE_CHECKING:
    from extractor.offline.likeness import Vector

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
        calls, counted = await asyncio.to_thread(_count, job, permit)
        output = EngineOutput(operations=counted)

        said = [(message, permit.owner(message)) for message in job.messages]
        sentences, left_out = await asyncio.to_thread(sentences_of, said)
        if left_out:
            _log.warning("sentences_left_out", read=len(sentences), left_out=left_out)
        await job.progress(task_service_pb2.TASK_PHASE_PREFETCH, 10, f"{len(sentences)} sentences to sort")
        likeness, statements = await self._sorted(job, sentences)
        await job.progress(task_service_pb2.TASK_PHASE_LONG_TERM, 50, "comparing with what is known")
        output.operations += await memory_operations(job, permit, statements, likeness)

        if job.assignment.plan.summarize:
            await job.progress(task_service_pb2.TASK_PHASE_SUMMARY, 90, "quoting the summary")
            output.summary = await asyncio.to_thread(summarize, len(job.messages), statements, calls)
        output.model = likeness.name or RULES
        return output

    async def repair(self, job: Job, output: EngineOutput, refused: Sequence[task_service_pb2.LeftOut]) -> EngineOutput:
        """The same output without what was refused: rules that made a wrong operation would make it again."""
        wrong = {left.operation_index for left in refused}
        kept = [operation for index, operation in enumerate(output.operations) if index not in wrong]
        return replace(output, operations=kept)

    async def close(self) -> None:
        """Nothing is held."""

    async def _sorted(self, job: Job, sentences: Sequence[Sentence]) -> tuple[Likeness, list[Statement]]:
        likeness: Likeness = ByMeaning(job, self._prototypes)
        try:
            await likeness.learn([sentence.text for sentence in sentences])
        except EmbedderDown:
            _log.warning("sorted_by_rules", reason="the server's embedder is down")
            likeness = ByWords()
        return likeness, await asyncio.to_thread(classify, sentences, likeness)


def _count(job: Job, permit: Permit) -> tuple[list[Call], list[extractor_service_pb2.MemoryOperation]]:
    calls = calls_of(job.messages, permit)
    return calls, [*tool_operations(calls, permit), *skill_operations(calls, job.usage, permit)]


def _version() -> str:
    try:
        return version("runekeep")
    except PackageNotFoundError:
        # Run from a checkout that was never installed.
        return "unknown"
