"""A client of the double, and the question that tests of the client ask."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from runekeep_extractor.providers.client import ModelClient
from runekeep_extractor.providers.interface import Reply, UserTurn
from runekeep_extractor.providers.opening import open_provider
from runekeep_extractor.providers.usage import OPERATIONS
from runekeep_extractor.settings import AnthropicSettings
from tests.doubles.fixed_job import FixedJob, message
from tests.doubles.messages_api import MessagesApi

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


@asynccontextmanager
async def client_of(api: MessagesApi, **options: Any) -> AsyncIterator[ModelClient]:
    """By default with switches that make no probes."""
    values = {"api_key": "key", "base_url": api.url, "model": "some-model", "timeout": 20.0}
    switches = {"structured_output": "on", "tools": "on"}
    settings = AnthropicSettings(**(values | switches | options))
    client = ModelClient(settings, open_provider(settings, max_retries=0))
    try:
        yield client
    finally:
        await client.close()


def a_job(*, token_budget: int | None = None, task_id: str = "task-1") -> FixedJob:
    job = FixedJob([message(1, "Tea, please.")])
    job.assignment.task_id = task_id
    if token_budget is not None:
        job.assignment.token_budget = token_budget
    return job


async def ask(
    client: ModelClient,
    job: FixedJob,
    text: str = "Which word?",
    *,
    phase: str = OPERATIONS,
    max_tokens: int = 2000,
    may_read: bool | None = True,
) -> Reply:
    return await client.ask(
        ["You name words."],
        [UserTurn([text])],
        SCHEMA,
        job=job,
        phase=phase,
        max_tokens=max_tokens,
        may_read=may_read,
        give_up_at=asyncio.get_running_loop().time(),
    )
