"""Reports progress during a slow call, so that the job does not look hung."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def with_beats(call: Awaitable[T], interval: float, report: Callable[[], Awaitable[None]]) -> T:
    """Returns the result of `call`. Calls `report` at once and then every `interval` seconds until the result is there.

    The client's timeout and the patience end a model call, so the reports do not hide a dead server for longer.
    """
    task = asyncio.ensure_future(call)
    try:
        while True:
            await report()
            done, _ = await asyncio.wait({task}, timeout=interval)
            if done:
                return await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
