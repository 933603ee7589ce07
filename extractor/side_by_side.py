"""Several calls at the same time, none of which outlives the one who waits for them."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def side_by_side(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What they return, in the order given. Raises what the first of them raises that fails; the others are cancelled
    then, and have ended when it is raised. A read that was left alone would go on for as long as the server is away.
    """
    coroutines = list(calls)
    if len(coroutines) < 2:
        # There is nothing beside it.
        return [await call for call in coroutines]
    tasks = [asyncio.create_task(call) for call in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            # Their own errors come too late to tell anybody.
            await asyncio.gather(*left, return_exceptions=True)
