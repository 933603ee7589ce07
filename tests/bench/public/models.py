"""Asks the models that answer and judge, through the extractor's own client: its deadlines, retries and outages."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from runekeep_extractor.answers.parse import Unreadable as NoObject
from runekeep_extractor.answers.parse import find_object
from runekeep_extractor.engine.interface import JobFailed, NotConfigured
from runekeep_extractor.providers.client import ModelClient
from runekeep_extractor.providers.interface import Reply, Stop, UserTurn
from runekeep_extractor.providers.opening import open_provider
from runekeep_extractor.settings import EngineName, ExtractorSettings
from tests.bench.public.cases import Prompt, Unreadable
from tests.bench.public.state import Key, State
from tests.doubles.fixed_job import FixedJob

T = TypeVar("T")

ATTEMPTS: Final = 3
"""How often a model is asked before its answers are given up as unreadable."""
OUTAGE_SECONDS: Final = 600.0
"""An outage or a limit of the rate is waited out this long; then the run stops, to be continued."""
RETRIES: Final = 2
"""By the provider's SDK, as in the extractor."""


@dataclass(frozen=True, slots=True)
class ModelName:
    """An engine of the extractor, and the name of a model at its server."""

    engine: EngineName
    model: str

    def __str__(self) -> str:
        return f"{self.engine}:{self.model}" if self.model else self.engine


def name_of(text: str | None) -> ModelName:
    """Reads `ENGINE` or `ENGINE:MODEL`; None is what the extractor's settings say. Raises ValueError, and what
    ExtractorSettings raises."""
    engine, _, model = (text or "").partition(":")
    if engine not in ("", "anthropic", "openai", "offline"):
        raise ValueError(f"unknown engine {engine!r}: expected anthropic, openai, or either with :MODEL behind it")
    settings = ExtractorSettings(engine=cast(EngineName, engine)) if engine else ExtractorSettings()
    if settings.models is None:
        return ModelName("offline", "")
    return ModelName(settings.chosen_engine, model or settings.models.model)


class Model:
    """One model."""

    def __init__(self, name: ModelName) -> None:
        """Raises NotConfigured."""
        settings = ExtractorSettings(engine=name.engine).models
        if settings is None:
            raise NotConfigured(
                "answering and judging need a model: set ANTHROPIC_API_KEY, or name one, as in --answer openai:MODEL"
            )
        settings = settings.model_copy(update={"model": name.model})
        self.name = name
        self._client = ModelClient(settings, open_provider(settings, RETRIES))

    async def ask(self, state: State, key: Key, item: str, prompt: Prompt, read: Callable[[dict[str, Any]], T]) -> T:
        """Returns what `read` makes of the answer, which is stored and paid for once. Asks again if it raises
        Unreadable. Each attempt is stored with its cost. Raises Unreadable after the last one, and JobFailed if the
        server gives no answer."""
        if (stored := state.get(key, item)) is not None:
            return cast(T, stored)
        reason = Unreadable("")
        for _ in range(ATTEMPTS):
            job = FixedJob([])
            try:
                reply = await self._call(prompt, job)
                value = read(_object(reply, prompt))
            except JobFailed as failed:
                if job.spent:
                    state.put(key, f"{item}: failed", failed.message, job.spent)
                raise
            except Unreadable as error:
                reason = error
                state.put(key, f"{item}: unreadable", reply.text, job.spent)
            else:
                state.put(key, item, value, job.spent)
                return value
        raise reason

    async def _call(self, prompt: Prompt, job: FixedJob) -> Reply:
        return await self._client.ask(
            [prompt.system],
            [UserTurn([prompt.text])],
            prompt.schema,
            job=job,
            phase="bench",
            max_tokens=prompt.max_tokens,
            may_read=None,
            give_up_at=asyncio.get_running_loop().time() + OUTAGE_SECONDS,
        )

    async def close(self) -> None:
        await self._client.close()


def _object(reply: Reply, prompt: Prompt) -> dict[str, Any]:
    if reply.stop is not Stop.FINISHED:
        raise Unreadable(f"the model did not finish: {reply.stop.name.lower()}")
    try:
        found = find_object(reply.text, prompt.schema["required"])
    except NoObject as error:
        raise Unreadable(str(error)) from error
    if found.cut or not found.data.keys() >= set(prompt.schema["required"]):
        raise Unreadable("an answer without all of its keys")
    return found.data
