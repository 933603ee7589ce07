"""Runs calls concurrently and cancels them when the caller stops waiting."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def side_by_side(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Returns the results in the order given. Raises the first error and cancels the other calls, which have ended when
    it is raised. A read left running would wait for as long as the server is away.
    """
    coroutines = list(calls)
    if len(coroutines) < 2:
        return [await call for call in coroutines]
    tasks = [asyncio.create_task(call) for call in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            # Their own errors come too late to report.
            await asyncio.gather(*left, return_exceptions=True)
