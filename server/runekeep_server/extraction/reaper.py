"""Takes back expired leases, and distinguishes those that a worker lost from those that no server could renew."""

import contextlib
from collections import deque
from dataclasses import dataclass

from runekeep_server.leases.failure_policy import SECOND, AttemptEnd, FailurePolicy
from runekeep_server.settings import Settings
from runekeep_storage.database import Database, Tx
from runekeep_storage.errors import StoreUnavailable

GRACE_PERIODS = 2
"""Number of grace periods that a server waits for an expired lease, however often its service is interrupted."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Microseconds of the store's clock. `since`: since when this server has served without a gap; `served`: how long
    it has served in total, without gaps."""

    now: int
    since: int
    served: int


class Reaper:
    """One per server. Servers that share a store need not know of each other.

    A server that just started, stalled or lost its store cannot tell which workers are gone: they had no server that
    could renew their leases. For the duration of one lease it takes back only leases of jobs claimed since then, so
    that living workers can reconnect and continue. A worker that has not come by then is gone. A server that served
    without a gap waits for nothing, whatever happens to others. A server that stalls repeatedly would wait forever. So
    it takes back a lease that expired and was not renewed while the server served for `GRACE_PERIODS` grace periods.
    """

    def __init__(self, database: Database, failures: FailurePolicy, settings: Settings) -> None:
        self._database = database
        self._failures = failures
        self._grace = round(settings.lease_seconds * SECOND)
        # When its next renewal is due, a lease is valid for at least this long, so a shorter gap loses no lease.
        spare = min(settings.first_lease_seconds, settings.lease_seconds - settings.heartbeat_seconds)
        self._pause = round(settings.poll_seconds * SECOND)
        self._max_gap = self._pause + round(spare * SECOND)
        # End of the last reap: its own duration is not a gap.
        self._reaped_at = -1
        # Once the server has served for GRACE_PERIODS, the first entry is the newest one that is at least so old.
        self._readings: deque[_Reading] = deque()

    async def reap(self) -> list[AttemptEnd]:
        """Takes back expired leases. Call it every `poll_seconds`. Raises StoreUnavailable."""
        ended, reading = await self._database.write_global(self._reap)
        self._readings.append(reading)
        while len(self._readings) > 1 and self._is_settled(self._readings[1], reading):
            self._readings.popleft()
        self._reaped_at = reading.now
        if ended:
            # The result must be reported even if this read fails. The next reap may then see a gap.
            with contextlib.suppress(StoreUnavailable):
                self._reaped_at = await self._database.read_global(_now)
        return ended

    async def _reap(self, tx: Tx) -> tuple[list[AttemptEnd], _Reading]:
        reading = self._read_clock(tx.now())
        in_doubt = reading.now < reading.since + self._grace
        oldest = self._readings[0] if self._readings else reading
        return await self._failures.reap(
            tx,
            claimed_since=reading.since if in_doubt else 0,
            expired_before=oldest.now if self._is_settled(oldest, reading) else 0,
            served_since=reading.since,
        ), reading

    def _read_clock(self, now: int) -> _Reading:
        if not self._readings:
            return _Reading(now, now, 0)
        last, gap = self._readings[-1], now - self._reaped_at
        if gap > self._max_gap:
            # A living worker was heard for at least a moment.
            return _Reading(now, now, last.served + self._pause)
        return _Reading(now, last.since, last.served + max(gap, 0))

    def _is_settled(self, then: _Reading, now: _Reading) -> bool:
        return now.served - then.served >= GRACE_PERIODS * self._grace


async def _now(tx: Tx) -> int:
    return tx.now()
