"""Threads that look for secrets in what callers and workers send.

A long text takes seconds, and every thread that computes slows down the event loop. So there are two of them, and one
account may use one.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec, TypeVar

from storage.sharing import FairThreads

P = ParamSpec("P")
T = TypeVar("T")

_THREADS: Final = FairThreads(2, "secrets")


async def look_for_secrets(look: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what `look` returns."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, partial(look, *args, **kwargs))
