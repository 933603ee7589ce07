"""Commits sessions of conversations for benchmarks, and waits until what was committed can be found."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from runekeep import AsyncClient, Message
from runekeep.client.tasks.results import Task

COMMIT_SECONDS = 24 * 3600.0
"""A person or model that answers prompts from files may take hours."""
INDEX_SECONDS = 600.0
MESSAGES_A_CALL = 50


async def commit_session(
    client: AsyncClient, name: str, messages: Sequence[Message], *, policy: dict[str, Any] | None = None
) -> str:
    """Adds the messages to the session, commits them, and returns the id of the task.

    Messages need ids: a session that a broken run has begun or committed is then continued, not doubled.
    """
    session = client.session(name)
    for start in range(0, len(messages), MESSAGES_A_CALL):
        await session.add_messages(messages[start : start + MESSAGES_A_CALL])
    committed = await session.commit(policy)
    if committed["status"] == "skipped":
        return [archive["task_id"] async for archive in session.archives()][-1]
    return committed["task_id"]


async def await_commit(client: AsyncClient, task_id: str) -> Task:
    """Returns the task once an extractor has ended it. Raises DeadlineExceededError."""
    return await client.wait_task(task_id, timeout=COMMIT_SECONDS)


async def await_index(client: AsyncClient) -> None:
    """Waits until everything committed can be found. Raises TimeoutError if the index takes up nothing for
    INDEX_SECONDS."""
    waiting = None
    while True:
        found = await client.find("anything", limit=1)
        left = found["pending_passages"], found["pending_memories"]
        if not any(left):
            return
        if left != waiting:
            waiting, end = left, time.monotonic() + INDEX_SECONDS
        elif time.monotonic() > end:
            raise TimeoutError(f"the index has taken up nothing for {INDEX_SECONDS:g} seconds")
        await asyncio.sleep(0.2)
