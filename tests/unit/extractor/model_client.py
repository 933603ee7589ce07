"""A client of the double, and the question that tests of the client ask."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from extractor.anthropic_engine.client import MessagesClient
from extractor.anthropic_engine.reply import Reply
from extractor.anthropic_engine.usage import OPERATIONS
from extractor.settings import AnthropicSettings
from tests.doubles.fixed_job import FixedJob, message
from tests.doubles.messages_api import MessagesApi

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


@asynccontextmanager
async def client_of(api: MessagesApi, **options: Any) -> AsyncIterator[MessagesClient]:
    """By default with switches that make no probes."""
    values = {"api_key": "key", "base_url": api.url, "model": "some-model", "timeout": 20.0}
    switches = {"structured_output": "on", "tools": "on"}
    client = MessagesClient(AnthropicSettings(**(values | switches | options)), max_retries=0)
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
    client: MessagesClient,
    job: FixedJob,
    text: str = "Which word?",
    *,
    phase: str = OPERATIONS,
    max_tokens: int = 2000,
    may_read: bool | None = True,
) -> Reply:
    return await client.ask(
        ["You name words."],
        [{"role": "user", "content": [{"type": "text", "text": text}]}],
        SCHEMA,
        job=job,
        phase=phase,
        max_tokens=max_tokens,
        may_read=may_read,
        give_up_at=asyncio.get_running_loop().time(),
    )
