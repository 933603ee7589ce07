"""How long a worker may believe that a lease is its own, and when it stops renewing one.

Only durations are compared, on this process's monotonic clock. A server counts a lease from the moment it has stored
the renewal, which is after the heartbeat was sent; so a worker that counts from sending, and stops early, is never
later than the server.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from runekeep.v1 import extractor_service_pb2

# Of the lease, counted from when the last acknowledged heartbeat was sent.
HELD_SHARE: Final = 0.8

LeaseKey = tuple[str, int]


def key_of(lease: extractor_service_pb2.Lease) -> LeaseKey:
    """What tells leases apart."""
    return lease.job_id, lease.fencing_token


class LeaseTimer:
    """Calls `lost` once the lease counts as lost. Wants a running event loop."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def renewed(self, sent_at: float, duration: float) -> None:
        """A heartbeat that was sent at `sent_at` (loop time) has been acknowledged; `duration` in seconds."""
        self.stop()
        self._handle = self._loop.call_at(sent_at + HELD_SHARE * duration, self._lost)

    def stop(self) -> None:
        """The lease matters no more."""
        if self._handle is not None:
            self._handle.cancel()


class Watchdog:
    """Tells a job that works, however slowly, from one that hangs."""

    def __init__(self, stall_timeout: float) -> None:
        self._stall_timeout = stall_timeout
        self._loop = asyncio.get_running_loop()
        self._last_moved: float | None = None

    def moved(self) -> None:
        """The job did something."""
        self._last_moved = self._loop.time()

    def rest(self) -> None:
        """It is somebody else's turn, for example the server's: silence means nothing until `moved`."""
        self._last_moved = None

    @property
    def stalled(self) -> bool:
        """Whether nothing was heard for longer than the stall timeout (seconds)."""
        return self._last_moved is not None and self._loop.time() - self._last_moved > self._stall_timeout
