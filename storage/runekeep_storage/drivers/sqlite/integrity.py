"""Checks SQLite's file for damage: quickly when a server starts, and in full from time to time while it serves.

A separate process reads the file, see `runekeep_storage.drivers.sqlite.integrity_process`. Findings are recorded in
`runekeep_storage.damage`.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import structlog

from runekeep_common.child_processes import child_environment
from runekeep_storage import telemetry
from runekeep_storage.damage import Damage
from runekeep_storage.drivers.sqlite.integrity_process import MAX_PAUSE_SECONDS

FIRST_CHECK_SECONDS: Final = 600.0
"""Delay after the start; less if checks are more frequent."""
MAX_SNAPSHOT_SECONDS: Final = 600.0
"""Time for the check of one table. Meanwhile the write-ahead log grows, because it cannot be truncated behind a
reader."""
_PROCESS: Final = Path(__file__).with_name("integrity_process.py")
_LOWEST_PRIORITY: Final = 19

Extent = Literal["quick", "full"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DatabaseChecked:
    """The last check that finished, at `ended_at`, in seconds since 1970."""

    extent: Extent
    ended_at: float


class IntegrityCheck:
    """One per server on SQLite. Times are in seconds; `interval` 0 means no full checks."""

    def __init__(self, database: Path, damage: Damage, *, start_seconds: float, interval: float) -> None:
        self._database = database
        self._damage = damage
        self._start_seconds = start_seconds
        self._interval = interval
        self._tasks: list[asyncio.Task[None]] = []
        self._quick: asyncio.subprocess.Process | None = None
        self.last: DatabaseChecked | None = None

    async def check_at_start(self) -> None:
        """Returns when a quick check has finished, or its time is over; then the check continues while the server
        serves."""
        if not self._database.exists():
            return
        checking = asyncio.create_task(self._check("quick"), name="database-quick-check")
        self._tasks.append(checking)
        done, _ = await asyncio.wait([checking], timeout=self._start_seconds)
        if not done:
            log.info("database_check_goes_on", seconds=self._start_seconds)
            if self._quick is not None:
                with suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, self._quick.pid, _LOWEST_PRIORITY)

    def start(self) -> None:
        """Starts the full checks."""
        if self._interval:
            self._tasks.append(asyncio.create_task(self._forever(), name="database-full-check"))

    async def stop(self) -> None:
        """Ends any running check at once."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _forever(self) -> None:
        await asyncio.sleep(min(FIRST_CHECK_SECONDS, self._interval))
        while self._damage.finding is None:
            await self._check("full")
            await asyncio.sleep(self._interval)

    async def _check(self, extent: Extent) -> None:
        began = time.monotonic()
        try:
            problems = await self._run(extent)
        except Exception as error:
            # Whatever keeps the check from reading the file also stops the store, which reports it.
            log.warning("database_not_checked", extent=extent, error=str(error) or type(error).__name__)
            return
        self.last = DatabaseChecked(extent, time.time())
        telemetry.CHECK_ENDED.labels("database").set(self.last.ended_at)
        if problems:
            self._damage.note(f"the {extent} check", "; ".join(problems))
        else:
            log.info("database_checked", extent=extent, seconds=round(time.monotonic() - began, 1))

    async def _run(self, extent: Extent) -> list[str]:
        """Returns the problems of the first part that has some. Raises OSError, TimeoutError, RuntimeError."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # Only the standard library, and nothing from the working directory.
            *("-I", "-S", str(_PROCESS), extent, str(self._database.absolute())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=child_environment(),
        )
        assert process.stdout is not None
        if extent == "quick":
            self._quick = process
        try:
            while True:
                async with asyncio.timeout(MAX_SNAPSHOT_SECONDS + MAX_PAUSE_SECONDS):
                    line = await process.stdout.readline()
                if not line:
                    break
                if problems := json.loads(line):
                    return list(map(str, problems))
            if await process.wait():
                raise RuntimeError(f"the process that checks the database ended with status {process.returncode}")
            return []
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await asyncio.shield(process.wait())
