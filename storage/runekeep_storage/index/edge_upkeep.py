"""Decides when the embedded index is compacted: at once for an erasure, and by itself when removed points outnumber the
others.

Edge never reuses the slot of a removed point: its vectors stay in memory and on disk. (A point that is overwritten
keeps its slot, and flushed writes are cut from the log.) Edge's own optimizer also builds graphs, which takes minutes
of a core and changes search results; copying the live points does neither.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextvars import Context
from time import perf_counter
from typing import Any, Protocol

import structlog

from runekeep_storage.index import telemetry
from runekeep_storage.index.base import IndexUnavailable

LOOK_SECONDS = 60.0
"""Seconds between two checks for removed points; longer the more often in a row a check failed."""
MAX_LOOK_SECONDS = 3600.0
MIN_REMOVED = 5_000
"""Number of removed points below which a copy is not worth it: some 25 MB of memory (docs/operate/sizing.md), as much
as an empty process uses."""
REST = 3.0
"""Pause after a slice, as a multiple of its duration: a copy uses at most a quarter of a core."""
# The last step of a copy flushes the rest of it and removes what it replaces.
_STEP_TIMEOUT_SECONDS = 300.0

_log = structlog.get_logger(__name__)


class _Call(Protocol):
    """Calls an operation of `EdgeEngine` in its process."""

    def __call__(self, operation: str, /, *, timeout: float | None = None) -> Awaitable[Any]: ...


def is_due(living: int, removed: int) -> bool:
    """Whether a copy is worth its cost. It copies at most one point for each removed since the last copy, so its cost
    is a fraction of the cost of removing; and the index holds at most twice the live points, or MIN_REMOVED more."""
    return removed > max(living, MIN_REMOVED)


class EdgeUpkeep:
    """Runs copies of the shard of one index process, one at a time. An erasure takes precedence: a copy that is under
    way may hold points removed since it began, so it is discarded."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._copying = asyncio.Lock()
        self._purges = 0
        """Number of purges that wait or run."""
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        """Starts to check regularly whether a copy is due; does nothing if already started."""
        # An index may be closed while it is being opened.
        if self._task is None and not self._stopped:
            # An empty context: the task must not inherit the deadline or the user of the call that happened to open the
            # index.
            self._task = asyncio.create_task(self._forever(), name="index-upkeep", context=Context())

    async def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def purge(self) -> None:
        """See `VectorIndex.purge`."""
        self._purges += 1
        try:
            async with self._copying:
                await self._copy(rest=0.0, until=lambda: False)
        finally:
            self._purges -= 1

    async def _forever(self) -> None:
        failures = 0
        while True:
            await asyncio.sleep(min(LOOK_SECONDS * 2.0 ** min(failures, 16), MAX_LOOK_SECONDS))
            try:
                await self._look()
            except IndexUnavailable as error:
                failures += 1
                _log.warning("index_not_compacted", error=str(error))
            except Exception:
                # Whatever failed: without further checks the index would grow until a restart.
                failures += 1
                _log.exception("index_not_compacted")
            else:
                failures = 0

    async def _look(self) -> None:
        # A purge that is under way removes everything that a check could find now.
        async with self._copying:
            living, removed = await self._call("occupancy")
            if not is_due(living, removed):
                return
            began = perf_counter()
            try:
                whole = await self._copy(rest=REST, until=lambda: self._purges > 0)
            except Exception:
                # Counted here; the caller logs the error.
                telemetry.INDEX_COMPACTIONS.labels("failed").inc()
                raise
            result = "done" if whole else "gave_way"
            telemetry.INDEX_COMPACTIONS.labels(result).inc()
        _log.info(
            "index_compacted", result=result, living=living, removed=removed, seconds=round(perf_counter() - began, 1)
        )

    async def _copy(self, *, rest: float, until: Callable[[], bool]) -> bool:
        """Returns whether the copy replaced the shard. It does not if `until` returned true first."""
        whole = False
        try:
            await self._call("purge_start", timeout=_STEP_TIMEOUT_SECONDS)
            while not (whole or until()):
                began = perf_counter()
                # One call for each slice, so that searches and writes run in between.
                whole = not await self._call("purge_step", timeout=_STEP_TIMEOUT_SECONDS)
                if rest and not whole:
                    await asyncio.sleep(rest * (perf_counter() - began))
        finally:
            if not whole:
                # An unfinished copy would receive writes for as long as the process lives. A process that is gone has
                # no copy.
                with contextlib.suppress(IndexUnavailable):
                    await self._call("purge_drop")
        return whole
