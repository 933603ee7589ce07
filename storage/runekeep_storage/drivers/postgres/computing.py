"""Runs the CPU-heavy part of a PostgreSQL transaction in a thread. Its statements still run on the event loop, because
asyncpg connections belong to it."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar, cast

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.fair_turns import FairThreads
from runekeep_storage.drivers.common.without_event_loop import run_without_event_loop

T = TypeVar("T")

_THREADS = FairThreads(4, "compute")
"""Each computation holds a connection of those that read."""


async def compute(tx: Tx, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
    """See `Tx.compute`. If the call is cancelled, `work` fails at its next statement, or ends normally if it has none.
    The call waits for that, so that no other call gets the connection while the thread may use it."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    thread_tx = _ThreadTx(tx, loop)
    running = _THREADS.submit(copy_context().run, lambda: run_without_event_loop(work(cast(Tx, thread_tx))))
    running.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
    try:
        # If this is cancelled before the thread began, it never begins.
        return await asyncio.wrap_future(running)
    except asyncio.CancelledError:
        thread_tx.is_cancelled = True
        while not running.done():
            with suppress(asyncio.CancelledError):
                await ended.wait()
        raise


class _ThreadTx:
    """The reading part of a `Tx`, for use in a thread: runs each statement on the event loop."""

    def __init__(self, tx: Tx, loop: asyncio.AbstractEventLoop) -> None:
        self._tx = tx
        self._loop = loop
        self.is_cancelled = False

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        return self._run_on_loop(self._tx.fetch(sql, *args))

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        return self._run_on_loop(self._tx.fetchrow(sql, *args))

    async def compute(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        return await work(cast(Tx, self))

    def now(self) -> int:
        return self._tx.now()

    def is_shut(self, space: Space) -> bool:
        return self._tx.is_shut(space)

    def _run_on_loop(self, statement: Coroutine[Any, Any, T]) -> T:
        """Runs a statement on the event loop and returns its result. Raises RuntimeError if the call was cancelled."""
        if self.is_cancelled:
            statement.close()
            raise RuntimeError("the transaction was cancelled")
        return asyncio.run_coroutine_threadsafe(statement, self._loop).result()
