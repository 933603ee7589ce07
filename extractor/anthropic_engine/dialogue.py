"""The talk with the model about one job: asking, running the reads that it wants, and knowing when to stop."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar

from extractor.anthropic_engine.client import MessagesClient, Reply
from extractor.anthropic_engine.failures import refused, too_large, unusable
from extractor.anthropic_engine.reads import MOST_ROUNDS, Reader
from extractor.anthropic_engine.usage import REASONING, Ledger
from extractor.engine import Job
from runekeep.v1 import task_service_pb2

T = TypeVar("T")

# Beyond this the provider wants a streamed response.
_MOST_TOKENS: Final = 21_000
_SHORTER: Final = (
    "An answer was cut off because it was too long. Give the whole JSON object again, shorter: the most important "
    "operations first, texts to the point, a sentence of reasoning."
)


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
        ledger: Ledger,
        phase: str,
        max_tokens: int,
        beat_interval: float,
        patience: float,
    ) -> None:
        self._client = client
        self._job = job
        self._system = system
        self._schema = schema
        self._ledger = ledger
        self._phase = phase
        self._max_tokens = max_tokens
        self._beat_interval = beat_interval
        self._waited = 0.0
        self._give_up_at = asyncio.get_running_loop().time() + patience

    async def answer(self, messages: list[dict[str, Any]], reader: Reader) -> str:
        """The text of the answer. Raises JobFailed when there is none."""
        rounds = 0
        cut_off = False
        while True:
            may_read = rounds < MOST_ROUNDS and not reader.spent
            reply = await self._ask(messages, may_read, rounds)
            self._check(reply)
            if reply.stop_reason == "max_tokens":
                self._ledger.add(REASONING, reply.model, reply.usage)
                if cut_off:
                    raise unusable(f"it was truncated at {self._max_tokens} tokens, twice")
                cut_off = True
                self._max_tokens = max(self._max_tokens, min(2 * self._max_tokens, _MOST_TOKENS))
                messages[-1]["content"].append({"type": "text", "text": _SHORTER})
            elif reply.tool_uses:
                self._ledger.add(REASONING, reply.model, reply.usage)
                if not may_read:
                    raise unusable("it asks for more reads than there are")
                rounds += 1
                messages.append({"role": "assistant", "content": reply.content})
                messages.append({"role": "user", "content": await self._results(reply, reader)})
            else:
                self._ledger.add(self._phase, reply.model, reply.usage)
                return reply.text

    def _check(self, reply: Reply) -> None:
        if reply.stop_reason == "refusal":
            self._ledger.add(self._phase, reply.model, reply.usage)
            raise refused(reply.refusal_category)
        if reply.stop_reason == "model_context_window_exceeded":
            self._ledger.add(self._phase, reply.model, reply.usage)
            raise too_large("no room is left for an answer")

    async def _ask(self, messages: list[dict[str, Any]], may_read: bool, rounds: int) -> Reply:
        call = self._client.ask(
            self._system,
            messages,
            self._schema,
            max_tokens=self._max_tokens,
            may_read=may_read,
            give_up_at=self._give_up_at,
        )
        return await self._with_beats(call, rounds)

    async def _results(self, reply: Reply, reader: Reader) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        for use in reply.tool_uses:
            text, failed = await reader.run(use.name, use.input)
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": use.id, "content": text}
            results.append(result | {"is_error": True} if failed else result)
        return results

    async def _with_beats(self, call: Awaitable[T], rounds: int) -> T:
        """Await a model call and report at intervals meanwhile, so that it does not look hung. The call ends by the
        client's timeout and by patience, so a dead server is not covered up for longer than that.
        """
        task = asyncio.ensure_future(call)
        try:
            while True:
                await self._report(rounds)
                done, _ = await asyncio.wait({task}, timeout=self._beat_interval)
                if done:
                    return await task
                self._waited += self._beat_interval
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _report(self, rounds: int) -> None:
        after = f" after {rounds} rounds of reads" if rounds else ""
        waited = f", {self._waited:.0f} s so far" if self._waited else ""
        away = f"; {self._client.outage.reason}" if self._client.outage.reason else ""
        await self._job.progress(
            task_service_pb2.TASK_PHASE_REASONING, 20 + 10 * rounds, f"waiting for the model{after}{waited}{away}"
        )
