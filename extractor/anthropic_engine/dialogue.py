"""The talk with the model about one job: asking, running the reads that it wants, and knowing when to stop."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from extractor.anthropic_engine.beats import with_beats
from extractor.anthropic_engine.client import MessagesClient
from extractor.anthropic_engine.failures import refused, too_large, unusable
from extractor.anthropic_engine.reads import MOST_ROUNDS, Reader
from extractor.anthropic_engine.reply import Reply
from extractor.engine import Job
from runekeep.v1 import task_service_pb2

# Beyond this the provider wants a streamed response.
_MOST_TOKENS: Final = 21_000
_SHORTER: Final = (
    "An answer was cut off because it was too long. Give the whole JSON object again, shorter: the most important "
    "entries first, texts to the point, a sentence of reasoning."
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a dialogue stands in the job: `percent` when it begins, and `step` more with each round of reads."""

    phase: task_service_pb2.TaskPhase.ValueType
    percent: int
    step: int = 0


class Dialogue:
    """Leads to one answer. `phase` is where the usage of the answering calls is counted; `patience`: seconds, from the
    beginning, after which an outage of the model is not waited out any more.
    """

    def __init__(
        self,
        client: MessagesClient,
        job: Job,
        system: Sequence[str],
        schema: Mapping[str, Any],
        *,
        phase: str,
        stage: Stage,
        max_tokens: int,
        beat_interval: float,
        patience: float,
    ) -> None:
        self._client = client
        self._job = job
        self._system = system
        self._schema = schema
        self._phase = phase
        self._stage = stage
        self._max_tokens = max_tokens
        self._beat_interval = beat_interval
        self._began = asyncio.get_running_loop().time()
        self._give_up_at = self._began + patience

    async def answer(self, messages: list[dict[str, Any]], reader: Reader | None) -> str:
        """The text of the answer; without a reader the model gets no tools. Raises JobFailed when there is none."""
        rounds = 0
        cut_off = False
        while True:
            may_read = rounds < MOST_ROUNDS and not reader.spent if reader is not None else None
            reply = await self._ask(messages, may_read, rounds)
            self._check(reply)
            if reply.stop_reason == "max_tokens":
                if cut_off:
                    raise unusable(f"it was truncated at {self._max_tokens} tokens, twice")
                cut_off = True
                self._max_tokens = max(self._max_tokens, min(2 * self._max_tokens, _MOST_TOKENS))
                messages[-1]["content"].append({"type": "text", "text": _SHORTER})
            elif reply.tool_uses:
                if reader is None or not may_read:
                    raise unusable("it asks for more reads than there are")
                rounds += 1
                messages.append({"role": "assistant", "content": reply.content})
                messages.append({"role": "user", "content": await self._results(reply, reader)})
            else:
                return reply.text

    def _check(self, reply: Reply) -> None:
        if reply.stop_reason == "refusal":
            raise refused(reply.refusal_category)
        if reply.stop_reason == "model_context_window_exceeded":
            raise too_large("no room is left for an answer")

    async def _ask(self, messages: list[dict[str, Any]], may_read: bool | None, rounds: int) -> Reply:
        call = self._client.ask(
            self._system,
            messages,
            self._schema,
            job=self._job,
            phase=self._phase,
            max_tokens=self._max_tokens,
            may_read=may_read,
            give_up_at=self._give_up_at,
        )
        return await with_beats(call, self._beat_interval, lambda: self._report(rounds))

    async def _results(self, reply: Reply, reader: Reader) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        for use in reply.tool_uses:
            text, failed = await reader.run(use.name, use.input)
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": use.id, "content": text}
            results.append(result | {"is_error": True} if failed else result)
        return results

    async def _report(self, rounds: int) -> None:
        after = f" after {rounds} rounds of reads" if rounds else ""
        waited = asyncio.get_running_loop().time() - self._began
        so_far = f", {waited:.0f} s so far" if waited >= self._beat_interval else ""
        reason = self._client.outage.reason
        away = f"; {reason}" if reason else ""
        percent = self._stage.percent + self._stage.step * rounds
        await self._job.progress(
            self._stage.phase,
            percent,
            f"waiting for the model{after}{so_far}{away}",
            waiting_for="model" if reason else "",
        )
