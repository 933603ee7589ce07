"""Shared outage state of one model server for all calls of a process: when to retry, and how long to wait.

An outage is waited out within the attempt. The worker keeps its jobs and takes no others, so those stay in the queue,
neither assigned nor delayed. When one call succeeds, all continue at once. If each job were given back after each
failure, an outage would cost the queue one assignment per job every few seconds. Its end would be noticed only after
the jobs' own waits, which would have grown to minutes.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import structlog

from runekeep.v1 import extractor_service_pb2 as contract
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.telemetry import MODEL_AWAY

T = TypeVar("T")

MAX_WAIT: Final = 20.0
"""Maximum seconds that an attempt waits at a server's request. A longer wait happens in the queue."""
MAX_OUTAGES: Final = 3
"""After this many outages that began with the same call, the call itself is taken for their cause."""
MAX_UNREACHABLE_SECONDS: Final = 1.0
"""The pause between two requests while nothing answers at the address, so that a returning server is used soon."""
MAX_PAUSE: Final = 60.0
"""Maximum seconds that other jobs wait because of a server's request to one job: its limit may not be theirs."""

_OUTAGES: Final = (contract.FAILURE_CLASS_RATE_LIMITED, contract.FAILURE_CLASS_MODEL_UNAVAILABLE)

_log = structlog.get_logger(__name__)


class ServerAway(JobFailed):
    """The model server is away or limits the rate. Both are temporary: the call is worth retrying."""


class Unreachable(ServerAway):
    """Nothing answers at the server's address. Another request costs nothing."""


class Outage:
    """All calls of one server pass through here. During an outage one of them retries, and the others wait for its
    result.
    """

    def __init__(self, first: float = 1.0, max_pause: float = 15.0, silence: float = math.inf) -> None:
        """The pauses between two requests, in seconds: `first`, then doubling up to `max_pause`, or to
        MAX_UNREACHABLE_SECONDS. Each is shortened at random by up to half, so that many processes do not retry at once.
        A request that was cancelled because its attempt ran out of time counts as unanswered if it took at least
        `silence` seconds.
        """
        self._first = first
        self._max_pause = max_pause
        self._silence = silence
        self._pause = 0.0
        self._failed: JobFailed | None = None
        self._next_call = 0.0
        self._over = asyncio.Event()
        self._heard_at = -math.inf

    @property
    def reason(self) -> str:
        """Why the server seems to be away; empty while it answers."""
        return self._failed.message if self._failed is not None else ""

    def heard(self) -> None:
        """Notes that the server is giving an answer."""
        self._heard_at = asyncio.get_running_loop().time()

    async def call(self, ask: Callable[[], Awaitable[T]], give_up_at: float) -> T:
        """Returns the result of `ask`, and calls it again for as long as it raises ServerAway.

        Raises the JobFailed of the last call: at once if it is of another kind or asks for a wait above MAX_WAIT, and
        if the next call would come after `give_up_at`, on the clock of the loop.
        """
        outages = 0
        while True:
            probes = await self._turn(give_up_at)
            asked_at = asyncio.get_running_loop().time()
            try:
                answer = await ask()
            except asyncio.CancelledError:
                if asyncio.get_running_loop().time() - max(asked_at, self._heard_at) > self._silence:
                    what = "the model server did not answer in time"
                    self._lasts(ServerAway(contract.FAILURE_CLASS_MODEL_UNAVAILABLE, what), probes)
                raise
            except JobFailed as failed:
                if failed.failure_class == contract.FAILURE_CLASS_OUT_OF_BUDGET:
                    # No request was made, so this reveals nothing about the server.
                    raise
                if failed.failure_class not in _OUTAGES:
                    self._ended()
                    raise
                self._lasts(failed, probes)
                outages += not probes
                if not isinstance(failed, ServerAway) or (failed.retry_after or 0.0) > MAX_WAIT:
                    raise
                if outages == MAX_OUTAGES or self._next_call > give_up_at:
                    raise
            else:
                self._ended()
                return answer

    async def _turn(self, give_up_at: float) -> bool:
        """Waits until it is time to ask. Returns whether this call is the one that retries while others wait."""
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
        # Of the concurrent calls at the beginning of an outage, only one counts.
        if probed or self._failed is None:
            max_pause = self._max_pause
            if isinstance(failed, Unreachable):
                max_pause = min(MAX_UNREACHABLE_SECONDS, max_pause)
            self._pause = min(2 * self._pause or self._first, max_pause)
        if self._failed is None:
            MODEL_AWAY.set(1)
            _log.warning("model_away", reason=failed.message)
        self._failed = failed
        pause = max(random.uniform(self._pause / 2, self._pause), min(failed.retry_after or 0.0, MAX_PAUSE))
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
