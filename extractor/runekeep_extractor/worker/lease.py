"""Decides how long a worker may treat a lease as its own, and when it stops renewing one.

Only durations are compared, on this process's monotonic clock. The server counts a lease from the moment it has stored
the renewal, which is after the heartbeat was sent. So a worker that counts from sending, and stops early, is never
later than the server.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from runekeep.v1 import extractor_service_pb2

# Share of the lease's duration, counted from when the last acknowledged heartbeat was sent.
HELD_SHARE: Final = 0.8

LeaseKey = tuple[str, int]


def key_of(lease: extractor_service_pb2.Lease) -> LeaseKey:
    """Returns the key that identifies a lease."""
    return lease.job_id, lease.fencing_token


class LeaseTimer:
    """Calls `on_expired` once the lease counts as lost. Needs a running event loop."""

    def __init__(self, on_expired: Callable[[], None]) -> None:
        self._on_expired = on_expired
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def restart(self, sent_at: float, duration: float) -> None:
        """Restarts the timer when a heartbeat sent at `sent_at` (loop time) is acknowledged; `duration` in seconds."""
        self.stop()
        self._handle = self._loop.call_at(sent_at + HELD_SHARE * duration, self._on_expired)

    def stop(self) -> None:
        """Stops the timer: the lease no longer matters."""
        if self._handle is not None:
            self._handle.cancel()


class Watchdog:
    """Distinguishes a slow job from one that hangs."""

    def __init__(self, stall_timeout: float) -> None:
        self._stall_timeout = stall_timeout
        self._loop = asyncio.get_running_loop()
        self._last_activity: float | None = None

    def record_activity(self) -> None:
        """Records activity."""
        self._last_activity = self._loop.time()

    def pause(self) -> None:
        """Pauses the watchdog while the job waits for others, for example the server, until the next activity."""
        self._last_activity = None

    @property
    def is_stalled(self) -> bool:
        """Returns whether there was no activity for longer than the stall timeout (seconds)."""
        return self._last_activity is not None and self._loop.time() - self._last_activity > self._stall_timeout
