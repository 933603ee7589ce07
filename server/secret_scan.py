"""Scans what callers and workers send for secrets, in threads.

A long text takes seconds, and every busy thread slows down the event loop. So there are two threads, and one account
uses at most one of them.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec, TypeVar

from storage.sharing import FairThreads

P = ParamSpec("P")
T = TypeVar("T")

_THREADS: Final = FairThreads(2, "secrets")


async def scan_for_secrets(scan: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs `scan` in one of the threads. Returns what it returns and raises what it raises."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, partial(scan, *args, **kwargs))
