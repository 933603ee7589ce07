"""Writes that come together to the writer of a store."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from runekeep_common.telemetry import metrics
from runekeep_storage.database import Database, Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase


async def at_once(database: Database, *calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Answers and errors of writes that share one transaction, in the order in which they are asked.

    On PostgreSQL those of one account do that are asked at once; the thread of SQLite has to be kept from taking the
    first by itself.
    """
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def holds(tx: Tx) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(30)

    held = []
    if isinstance(database, SqliteDatabase):
        held.append(asyncio.create_task(database.write_global(holds)))
        await begun.wait()
    asked = asyncio.gather(*(call() for call in calls), return_exceptions=True)
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(*held)
    return await asked


def again() -> float:
    """Groups that ran twice so far."""
    return metrics.REGISTRY.get_sample_value("runekeep_store_groups_run_again_total") or 0.0
