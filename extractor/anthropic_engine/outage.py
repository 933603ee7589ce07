"""What all calls of a process know together of a model server that is away: when to ask it again, and how long to stay.

An outage is waited out within the attempt. The worker keeps its jobs and has no room for others, so those stay in the
queue untouched, neither assigned nor put off; and once one call succeeds, all go on at once. Were each job given back
after each failure, an outage would cost the queue an assignment a job every few seconds, and its end would be noticed
only when the jobs' own waits, grown meanwhile to minutes, are over.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import structlog

from extractor.engine import JobFailed
from extractor.telemetry import MODEL_AWAY
from runekeep.v1 import extractor_service_pb2 as contract

T = TypeVar("T")

LONGEST_WAIT: Final = 20.0
"""Seconds that an attempt waits because a server asks for it. More than that is waited out in the queue."""
MOST_OUTAGES: Final = 3
"""After so many outages that began with it, a call is no victim of them but what the server fails on."""
MAX_UNREACHABLE_SECONDS: Final = 1.0
"""The pause between two requests while nothing answers at the address, so that a server that is back is used soon."""
LONGEST_PAUSE: Final = 60.0
"""Seconds that other jobs wait because of what a server asked of one: its limit may not be theirs."""

_OUTAGES: Final = (contract.FAILURE_CLASS_RATE_LIMITED, contract.FAILURE_CLASS_MODEL_UNAVAILABLE)

_log = structlog.get_logger(__name__)


class ServerAway(JobFailed):
    """The model server is away or limits the rate, which passes by itself: it is worth asking again."""


class Unreachable(ServerAway):
    """Nothing answers at the server's address. Another request costs nothing."""


class Outage:
    """Calls of one server pass through here. While it is away one of them asks, and the others wait for what comes."""

    def __init__(self, first: float = 1.0, most: float = 15.0, silence: float = math.inf) -> None:
        """The pauses between two requests, in seconds: `first`, then doubling up to `most`, or to
        MAX_UNREACHABLE_SECONDS. Each is shortened at random by up to half, so that many processes do not retry at once.
        A request that was cancelled because its attempt ran out of time counts as unanswered if it took at least
        `silence` seconds.
        """
        self._first = first
        self._most = most
        self._silence = silence
        self._pause = 0.0
        self._failed: JobFailed | None = None
        self._next_call = 0.0
        self._over = asyncio.Event()

    @property
    def reason(self) -> str:
        """Why the server is thought to be away; empty while it answers."""
        return self._failed.message if self._failed is not None else ""

    async def call(self, ask: Callable[[], Awaitable[T]], give_up_at: float) -> T:
        """The answer of `ask`, which is asked again for as long as it raises ServerAway.

        Raises the JobFailed of the last question: at once when it is of another kind or asks for more than
        LONGEST_WAIT, and when the next question would come after `give_up_at`, on the clock of the loop.
        """
        outages = 0
        while True:
            probes = await self._turn(give_up_at)
            asked_at = asyncio.get_running_loop().time()
            try:
                answer = await ask()
            except asyncio.CancelledError:
                if asyncio.get_running_loop().time() - asked_at > self._silence:
                    what = "the model server did not answer in time"
                    self._lasts(ServerAway(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, what), probes)
                raise
            except JobFailed as failed:
                if failed.failure_class == contract.FAILURE_CLASS_OUT_OF_BUDGET:
                    # Nothing was asked, which tells nothing of the server.
                    raise
                if failed.failure_class not in _OUTAGES:
                    self._ended()
                    raise
                self._lasts(failed, probes)
                outages += not probes
                if not isinstance(failed, ServerAway) or (failed.retry_after or 0.0) > LONGEST_WAIT:
                    raise
                if outages == MOST_OUTAGES or self._next_call > give_up_at:
                    raise
            else:
                self._ended()
                return answer

    async def _turn(self, give_up_at: float) -> bool:
        """Returns when it is time to ask: whether it is the one that asks while others wait."""
        clock = asyncio.get_running_loop().time
        while self._failed is not None:
            wait = self._next_call - clock()
            if wait <= 0:
                self._next_call = clock() + self._pause
                return True
            if self._next_call > give_up_at:
                raise JobFailed(self._failed.failure_class, self._failed.message, retry_after=wait)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._over.wait()
        return False

    def _lasts(self, failed: JobFailed, probed: bool) -> None:
        # Of calls that were under way side by side when it began, one counts.
        if probed or self._failed is None:
            most = min(MAX_UNREACHABLE_SECONDS, self._most) if isinstance(failed, Unreachable) else self._most
            self._pause = min(2 * self._pause or self._first, most)
        if self._failed is None:
            MODEL_AWAY.set(1)
            _log.warning("model_away", reason=failed.message)
        self._failed = failed
        pause = max(random.uniform(self._pause / 2, self._pause), min(failed.retry_after or 0.0, LONGEST_PAUSE))
        self._next_call = asyncio.get_running_loop().time() + pause

    def _ended(self) -> None:
        if self._failed is None:
            return
        MODEL_AWAY.set(0)
        _log.info("model_back")
        self._failed = None
        self._pause = 0.0
        self._over.set()
        self._over = asyncio.Event()
