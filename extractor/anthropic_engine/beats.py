"""Reports while something slow is awaited, so that it does not look hung."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def with_beats(call: Awaitable[T], interval: float, report: Callable[[], Awaitable[None]]) -> T:
    """The result of `call`. `report` is called at once and then every `interval` seconds until it is there.

    A call of the model ends by the client's timeout and by patience, so a dead server is not covered up for longer.
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
