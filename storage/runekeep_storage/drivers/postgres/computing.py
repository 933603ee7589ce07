"""Runs a part of a PostgreSQL transaction in a thread, whose statements run on the event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from runekeep_storage.database import Row, Space, Topic, Tx
from runekeep_storage.drivers.common.steps import step

T = TypeVar("T")


async def compute(tx: Tx, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
    """See `Tx.compute`. A cancelled call waits until the thread ends, which is at its next statement: the connection
    must not go to another call before."""
    apart = _ThreadTx(tx, asyncio.get_running_loop())
    running = asyncio.ensure_future(asyncio.to_thread(lambda: step(work(apart))))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        apart.is_cancelled = True
        await asyncio.wait([running])
        # Retrieved, because asyncio logs exceptions that nobody retrieved.
        running.exception()
        raise


class _ThreadTx:
    """The transaction as the thread sees it."""

    def __init__(self, tx: Tx, loop: asyncio.AbstractEventLoop) -> None:
        self._tx = tx
        self._loop = loop
        self.is_cancelled = False

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        return self._result(self._tx.fetch(sql, *args))

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        return self._result(self._tx.fetchrow(sql, *args))

    async def execute(self, sql: str, *args: Any) -> int:
        return self._result(self._tx.execute(sql, *args))

    async def compute(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        return await work(self)

    async def ensure_durable(self) -> None:
        self._result(self._tx.ensure_durable())

    def now(self) -> int:
        return self._tx.now()

    def is_shut(self, space: Space) -> bool:
        return self._tx.is_shut(space)

    def tell_shut(self, space: Space) -> None:
        self._tx.tell_shut(space)

    def tell_open(self, space: Space) -> None:
        self._tx.tell_open(space)

    def notify(self, topic: Topic, subject: str = "") -> None:
        self._tx.notify(topic, subject)

    def _result(self, statement: Coroutine[Any, Any, T]) -> T:
        """Runs a statement on the event loop and waits for its result."""
        if self.is_cancelled:
            statement.close()
            raise RuntimeError("the transaction was cancelled")
        return asyncio.run_coroutine_threadsafe(statement, self._loop).result()
