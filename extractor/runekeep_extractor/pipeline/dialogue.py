"""Conducts the dialogue with the model about one job: asks, runs the reads it requests, and decides when to stop."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runekeep.v1 import task_service_pb2
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.pipeline.progress import with_beats
from runekeep_extractor.prompts.json_schema import lists_last
from runekeep_extractor.prompts.reads import MAX_ROUNDS, Reader
from runekeep_extractor.providers.client import ModelClient
from runekeep_extractor.providers.errors import refused, too_large, unusable
from runekeep_extractor.providers.interface import Reply, Stop, ToolResult, Turn, UserTurn

# Beyond this the provider requires a streamed response.
_MAX_TOKENS: Final = 21_000
_SHORTER: Final = (
    "An answer was cut off because it was too long. Give the whole JSON object again, shorter: the most important "
    "entries first, texts to the point, a sentence of reasoning."
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Progress of a dialogue within the job: `percent` when it begins, plus `step` for each round of reads."""

    phase: task_service_pb2.TaskPhase.ValueType
    percent: int
    step: int = 0


class Dialogue:
    """Produces one answer. `phase`: the usage of the answering calls is counted under it. `patience`: seconds from the
    beginning after which the dialogue stops waiting out a model outage. `takes_cut`: an answer that is cut off twice is
    returned as far as it goes.
    """

    def __init__(
        self,
        client: ModelClient,
        job: Job,
        system: Sequence[str],
        schema: Mapping[str, Any],
        *,
        phase: str,
        stage: Stage,
        max_tokens: int,
        beat_interval: float,
        patience: float,
        takes_cut: bool = False,
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
        self._takes_cut = takes_cut
        self._shorter = False

    async def answer(self, opening: UserTurn, reader: Reader | None) -> str:
        """Returns the text of the answer. Without a reader the model gets no tools. An answer that is cut off is asked
        for once more, shorter. Raises JobFailed if there is no answer.
        """
        asked = opening
        turns: list[Turn] = [asked]
        rounds = 0
        while True:
            may_read = rounds < MAX_ROUNDS and not reader.spent if reader is not None else None
            reply = await self._ask(turns, may_read, rounds)
            self._check(reply)
            if reply.stop is Stop.TRUNCATED:
                if self._shorter and self._takes_cut:
                    return reply.text
                if self._shorter:
                    raise unusable(_truncation(reply, self._max_tokens))
                self._shorter = True
                self._max_tokens = max(self._max_tokens, min(2 * self._max_tokens, _MAX_TOKENS))
                asked.parts.append(_SHORTER)
            elif reply.tool_uses:
                if reader is None or not may_read:
                    raise unusable("it asks for more reads than there are")
                rounds += 1
                asked = UserTurn([*await self._results(reply, reader)])
                turns += [reply, asked]
            else:
                return reply.text

    def _check(self, reply: Reply) -> None:
        if reply.stop is Stop.REFUSED:
            raise refused(reply.refusal_category)
        if reply.stop is Stop.CONTEXT_FULL:
            raise too_large("no room is left for an answer")

    async def _ask(self, turns: Sequence[Turn], may_read: bool | None, rounds: int) -> Reply:
        call = self._client.ask(
            self._system,
            turns,
            lists_last(self._schema) if self._shorter else self._schema,
            job=self._job,
            phase=self._phase,
            max_tokens=self._max_tokens,
            may_read=may_read,
            give_up_at=self._give_up_at,
            bounded=self._shorter,
        )
        return await with_beats(call, self._beat_interval, lambda: self._report(rounds))

    async def _results(self, reply: Reply, reader: Reader) -> list[ToolResult]:
        return [ToolResult(use.id, *await reader.run(use.name, use.input)) for use in reply.tool_uses]

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


def _truncation(reply: Reply, max_tokens: int) -> str:
    """Returns what happened to an answer that was cut off twice. `max_tokens`: how many it might have had."""
    said = reply.usage.output_tokens
    if 0 < said < max_tokens * 0.9:
        return f"it was truncated after {said} of {max_tokens} tokens, twice: is the model's context too small?"
    return f"it was truncated at {max_tokens} tokens, twice"
