"""Takes back leases that ran out, and tells those that a worker lost from those that nobody could renew."""

import contextlib
from collections import deque
from dataclasses import dataclass

from server.settings import Settings
from server.work.failures import SECOND, Ended, FailurePolicy
from storage.database import Database, Tx
from storage.errors import StoreUnavailable

GRACES = 2
"""How often a server waits its grace for one lease that ran out, however often it has to begin anew."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """By the store's clock, in microseconds. `since`: from when on this server served without a gap; `served`: how long
    it has served in all, gaps left out."""

    now: int
    since: int
    served: int


class Reaper:
    """One a server; several on one store need not know of each other.

    A server that has just started, stood still, or was without its store cannot tell who is gone: the workers had
    nobody to renew their leases with. For as long as one lease lasts it takes back only what was claimed since, so that
    workers which are alive connect and go on; who has not come by then is gone. A server that served all the while
    waits for nothing, whatever becomes of others. One that stands still again and again would wait for ever: what ran
    out, and was not renewed while it served for `GRACES` times as long, is taken back all the same.
    """

    def __init__(self, database: Database, failures: FailurePolicy, settings: Settings) -> None:
        self._database = database
        self._failures = failures
        self._grace = round(settings.lease_seconds * SECOND)
        # A lease has at least this long to run when its next renewal is due: a shorter gap costs none.
        spare = min(settings.first_lease_seconds, settings.lease_seconds - settings.heartbeat_seconds)
        self._pause = round(settings.poll_seconds * SECOND)
        self._longest_gap = self._pause + round(spare * SECOND)
        # When the last reap was through: how long it took itself is no gap.
        self._through = -1
        # The first one is the newest that is GRACES graces of serving ago, as soon as there is one.
        self._moments: deque[_Moment] = deque()

    async def reap(self) -> list[Ended]:
        """To be called every `poll_seconds`. Raises StoreUnavailable."""
        ended, moment = await self._database.write(self._reap)
        self._moments.append(moment)
        while len(self._moments) > 1 and self._long_ago(self._moments[1], moment):
            self._moments.popleft()
        self._through = moment.now
        if ended:
            # Without an answer what was taken back is to be told all the same; the next reap may see a gap.
            with contextlib.suppress(StoreUnavailable):
                self._through = await self._database.read(_now)
        return ended

    async def _reap(self, tx: Tx) -> tuple[list[Ended], _Moment]:
        moment = self._moment(tx.now())
        in_doubt = moment.now < moment.since + self._grace
        oldest = self._moments[0] if self._moments else moment
        return await self._failures.reap(
            tx,
            claimed_since=moment.since if in_doubt else 0,
            expired_before=oldest.now if self._long_ago(oldest, moment) else 0,
            served_since=moment.since,
        ), moment

    def _moment(self, now: int) -> _Moment:
        if not self._moments:
            return _Moment(now, now, 0)
        last, gap = self._moments[-1], now - self._through
        if gap > self._longest_gap:
            # Whoever lives was heard for a moment at least.
            return _Moment(now, now, last.served + self._pause)
        return _Moment(now, last.since, last.served + max(gap, 0))

    def _long_ago(self, then: _Moment, now: _Moment) -> bool:
        return now.served - then.served >= GRACES * self._grace


async def _now(tx: Tx) -> int:
    return tx.now()
