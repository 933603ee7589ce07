"""The health service (https://github.com/grpc/grpc/blob/master/doc/health-checking.md), a status for each service.

`""` says that the process serves at all: whoever asks it to find out whether to start the server anew must not be told
that its store is away, which no new start would mend. Each service of the package follows what it cannot do without.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, Final

import grpc
import structlog
from grpc_health.v1 import health, health_pb2

Probe = Callable[[], Awaitable[None]]
"""Raises when what it asks cannot serve."""

LOOK_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 3.0
"""After which a probe without an answer has failed."""
AWAY_SECONDS: Final = 4.0
"""What fails for a shorter time is waited out by callers, who repeat: telling balancers would cost more than it."""
BACK_PROBES: Final = 2
"""In a row, before what was away counts as back."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING

log = structlog.get_logger(__name__)


class Health(health.aio.HealthServicer):  # type: ignore[misc]  # without types
    """The servicer. Its watches can be ended: by themselves they would outlast every drain."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = asyncio.Event()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """Ends with NOT_FOUND for a name that is no service of this server. All names are registered before calls are
        served."""
        if request.service not in self._server_status:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service")
        watch = asyncio.ensure_future(super().Watch(request, context))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((watch, ended), return_when=asyncio.FIRST_COMPLETED)
            if watch.done():
                await watch
        finally:
            watch.cancel()
            ended.cancel()

    def end_watches(self) -> None:
        self._ended.set()

    async def tell(self, names: Sequence[str], *, serving: bool) -> None:
        """After `enter_graceful_shutdown` nothing is told any more."""
        for name in names:
            await self.set(name, _SERVING if serving else _NOT_SERVING)


class Standing:
    """Whether something counts as there, by its probes: slow to say that it is gone, and slow to say that it is back.
    `now`: seconds."""

    def __init__(self, now: float) -> None:
        self.there = True
        self._good_at = now
        self._in_a_row = 0

    def probed(self, good: bool, now: float) -> bool:
        """Whether `there` changed."""
        self._in_a_row = self._in_a_row + 1 if good else 0
        if self.there:
            if good:
                self._good_at = now
            elif now - self._good_at >= AWAY_SECONDS:
                self.there = False
                return True
        elif self._in_a_row >= BACK_PROBES:
            self.there, self._good_at = True, now
            return True
        return False


class Follower:
    """Tells the health of services by a probe of what they need. `begin` once they serve, `end` before the drain."""

    def __init__(self, health: Health, names: Sequence[str], probe: Probe) -> None:
        self._health = health
        self._names = names
        self._probe = probe
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._forever())

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _forever(self) -> None:
        standing = Standing(monotonic())
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if standing.probed(await self._probed(), monotonic()):
                log.warning("health", services=list(self._names), serving=standing.there)
                await self._health.tell(self._names, serving=standing.there)

    async def _probed(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._probe()
        except Exception as error:
            log.info("probe_failed", error=type(error).__name__)
            return False
        return True
