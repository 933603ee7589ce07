"""When the embedded index is written anew: for an erasure at once, and by itself where removed points outnumber the
others.

Edge gives the place of a removed point to no other: its vectors stay in memory and on disk. (A point that is
overwritten keeps its place, and what a flush has brought to disk is cut from the log of writes.) Edge's own optimiser
builds graphs as it goes, which takes minutes of a core and changes what is found; a copy of what is left does neither.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextvars import Context
from time import perf_counter
from typing import Any, Protocol

import structlog

from storage import telemetry
from storage.index.base import IndexUnavailable

LOOK_SECONDS = 60.0
"""Between two looks at how many places are taken by removed points; the longer, the more often in a row that failed."""
LONGEST_LOOK_SECONDS = 3600.0
LEAST_REMOVED = 5_000
"""Removed points that are not worth a copy: some 25 MB of memory (docs/sizing.md), as much as the process has when
it is empty."""
REST = 3.0
"""How many times as long as a slice took the process is left alone after it: a copy has a quarter of a core at most."""
# The last step of a copy brings the rest of it to disk and removes what it replaces.
_STEP_TIMEOUT_SECONDS = 300.0

_log = structlog.get_logger(__name__)


class _Call(Protocol):
    """Calls an operation of `EdgeEngine` in its process."""

    def __call__(self, operation: str, /, *, timeout: float | None = None) -> Awaitable[Any]: ...


def is_due(living: int, removed: int) -> bool:
    """Whether a copy is worth its cost. It copies a point at most for each that was removed since the last one, so its
    cost is a part of that of removing; and what is kept is at most twice what lives, or LEAST_REMOVED more."""
    return removed > max(living, LEAST_REMOVED)


class EdgeUpkeep:
    """Has the shard of one index process copied, never twice at a time. An erasure goes first: a copy that is under way
    may hold what was removed since it began, so it is thrown away."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._copying = asyncio.Lock()
        self._purges = 0
        """That wait or are under way."""
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        """Looks from now on whether a copy is due; does nothing when it does so already."""
        # An index may be closed while it is being opened.
        if self._task is None and not self._stopped:
            # With nothing of the call that happened to open the index: neither its deadline nor its user.
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
            await asyncio.sleep(min(LOOK_SECONDS * 2.0 ** min(failures, 16), LONGEST_LOOK_SECONDS))
            try:
                await self._look()
            except IndexUnavailable as error:
                failures += 1
                _log.warning("index_not_compacted", error=str(error))
            except Exception:
                # Whatever it was: without another look the index would grow until it is started again.
                failures += 1
                _log.exception("index_not_compacted")
            else:
                failures = 0

    async def _look(self) -> None:
        # A purge that is under way lets go of all that could be found now.
        async with self._copying:
            living, removed = await self._call("occupancy")
            if not is_due(living, removed):
                return
            began = perf_counter()
            try:
                whole = await self._copy(rest=REST, until=lambda: self._purges > 0)
            except Exception:
                # Counted, and told by who looks again.
                telemetry.INDEX_COMPACTIONS.labels("failed").inc()
                raise
            result = "done" if whole else "gave_way"
            telemetry.INDEX_COMPACTIONS.labels(result).inc()
        _log.info(
            "index_compacted", result=result, living=living, removed=removed, seconds=round(perf_counter() - began, 1)
        )

    async def _copy(self, *, rest: float, until: Callable[[], bool]) -> bool:
        """Whether the copy took the place of the shard; it did not where `until` said so first."""
        whole = False
        try:
            await self._call("purge_start", timeout=_STEP_TIMEOUT_SECONDS)
            while not (whole or until()):
                began = perf_counter()
                # A call for each slice: searches and writes come in between.
                whole = not await self._call("purge_step", timeout=_STEP_TIMEOUT_SECONDS)
                if rest and not whole:
                    await asyncio.sleep(rest * (perf_counter() - began))
        finally:
            if not whole:
                # A half of a copy would be written to for as long as the process lives; one that has gone has none.
                with contextlib.suppress(IndexUnavailable):
                    await self._call("purge_drop")
        return whole
