"""The health service (https://github.com/grpc/grpc/blob/master/doc/health-checking.md), with a status for each service.

The service `""` reports that the process is alive. It ignores the store: a supervisor that restarts the process on
failure would not fix an unavailable store. Each other service of the package follows its dependencies.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, Final

import grpc
import structlog
from grpc_health.v1 import health, health_pb2

Probe = Callable[[], Awaitable[None]]
"""Raises if the dependency is unavailable."""

LOOK_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 3.0
"""Timeout of a probe."""
AWAY_SECONDS: Final = 4.0
"""Callers retry through shorter outages; reporting those to load balancers would cost more than the outage."""
BACK_PROBES: Final = 2
"""Successful probes in a row after which a dependency counts as available again."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING

log = structlog.get_logger(__name__)


class Health(health.aio.HealthServicer):  # type: ignore[misc]  # without types
    """The health servicer. `end_watches` ends its watches, which would otherwise outlast every drain."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = asyncio.Event()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """Watches a service. Aborts with NOT_FOUND if this server has no such service. All names are registered before
        calls are served."""
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
        """Sets the status of services. Has no effect after `enter_graceful_shutdown`."""
        for name in names:
            await self.set(name, _SERVING if serving else _NOT_SERVING)


class ServingState:
    """Debounces probe results: reports an outage, and its end, only after a delay. `now`: seconds."""

    def __init__(self, now: float) -> None:
        self.there = True
        self._good_at = now
        self._in_a_row = 0

    def probed(self, good: bool, now: float) -> bool:
        """Records a probe. Returns whether `there` changed."""
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
    """Updates the health of services by probing their dependency. Call `begin` once they serve, `end` before the
    drain."""

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
        standing = ServingState(monotonic())
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if standing.probed(await self._probed(), monotonic()):
                log.warning("health_changed", services=list(self._names), serving=standing.there)
                await self._health.tell(self._names, serving=standing.there)

    async def _probed(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._probe()
        except Exception as error:
            log.info("probe_failed", error=type(error).__name__)
            return False
        return True
