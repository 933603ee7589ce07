"""The server's life: it binds, opens what its services need, serves, drains and closes."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from server.interceptors import CallChain
from server.settings import Settings, split_address, suspicious_variables

_log = structlog.get_logger()

Hook = Callable[[], Awaitable[None]]


class StartError(Exception):
    """The server cannot start. The message says why and what to do; it is shown to the operator as it stands."""


@dataclass(frozen=True, slots=True)
class Service:
    """What is plugged in: the generated `add_...Servicer_to_server`, the servicer, `runekeep.v1.SessionService`."""

    add_to_server: Callable[[Any, grpc.aio.Server], None]
    servicer: object
    full_name: str


class Lifecycle:
    """What is to be done around serving, told by those who build the services."""

    def __init__(self) -> None:
        self._start: list[Hook] = []
        self._drain: list[Hook] = []
        self._close: list[Hook] = []

    def on_start(self, hook: Hook) -> None:
        """Run before the server says that it serves; in order. An exception ends the start."""
        self._start.append(hook)

    def on_drain(self, hook: Hook) -> None:
        """Run when the server is asked to end, while calls are still taken; all at once, for at most `drain_seconds`.

        Here work in hand is finished or given back and streams without an end of their own are told to go.
        """
        self._drain.append(hook)

    def on_close(self, hook: Hook) -> None:
        """Run when no call is open any more; the last one told first. Told at once when a thing is opened."""
        self._close.append(hook)

    async def start(self) -> None:
        for hook in self._start:
            await hook()

    async def drain(self, seconds: float) -> None:
        """Run the drain hooks; those that take longer are cancelled. Failures are logged."""
        try:
            async with asyncio.timeout(seconds):
                outcomes = await asyncio.gather(*(hook() for hook in self._drain), return_exceptions=True)
        except TimeoutError:
            _log.warning("drain took too long", seconds=seconds)
            return
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                _log.error("drain hook failed", exc_info=outcome)

    async def close(self) -> None:
        """Run the close hooks, each once and all of them. Failures are logged."""
        while self._close:
            try:
                await self._close.pop()()
            except Exception as error:
                _log.error("close hook failed", exc_info=error)


ServicesFactory = Callable[[Settings, Lifecycle], Awaitable[Sequence[Service]]]


class _Health(health.aio.HealthServicer):  # type: ignore[misc]  # without types
    """The health service, whose watches can be ended: by themselves they would outlast every drain."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = asyncio.Event()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
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


class App:
    """One server. `start`, then `stop`; `address` is known from `start` on, as `host:port`."""

    def __init__(self, settings: Settings, services_factory: ServicesFactory) -> None:
        self._settings = settings
        self._services_factory = services_factory
        self._lifecycle = Lifecycle()
        self._health = _Health()
        self.address = ""

    async def start(self) -> None:
        """Serve. Raises StartError, and whatever the factory raises; then everything that was opened is closed."""
        self._server = grpc.aio.server(interceptors=[CallChain(self._settings)], options=_options(self._settings))
        # Before anything is opened: an address that is taken is found out at once.
        self.address = self._bind()
        try:
            services = await self._services_factory(self._settings, self._lifecycle)
            names = [service.full_name for service in services]
            for service in services:
                service.add_to_server(service.servicer, self._server)
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
            if self._settings.reflection:
                _add_reflection(self._server, names)
            await self._set_health(names, health_pb2.HealthCheckResponse.NOT_SERVING)
            await self._server.start()
            await self._lifecycle.start()
            await self._set_health(names, health_pb2.HealthCheckResponse.SERVING)
        except BaseException:
            await self._server.stop(None)
            await self._lifecycle.close()
            raise

    async def stop(self) -> None:
        """Drain and end: no later than `drain_seconds` from now all calls are over, then all is closed."""
        end = monotonic() + self._settings.drain_seconds
        await self._health.enter_graceful_shutdown()
        await self._lifecycle.drain(self._settings.drain_seconds)
        self._health.end_watches()
        await self._server.stop(max(0.0, end - monotonic()))
        await self._lifecycle.close()

    def _bind(self) -> str:
        wanted = self._settings.address
        try:
            port = self._server.add_insecure_port(wanted)
        except RuntimeError as error:
            raise StartError(
                f"address (RUNEKEEP_ADDRESS): cannot listen on {wanted}. Is another server using it? Choose another "
                "port, or port 0 for a free one."
            ) from error
        host, _ = split_address(wanted)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _set_health(self, names: Sequence[str], status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for name in ("", *names):
            await self._health.set(name, status)


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        # Else a second server on the same address would start and take a share of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.max_concurrent_streams", 1000),
        # A peer that has gone without a word is noticed within 30 s.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # Workers and watchers ping every 20 s; half of it leaves room for a late and an early one.
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ]


def _add_reflection(server: grpc.aio.Server, names: Sequence[str]) -> None:
    from grpc_reflection.v1alpha import reflection

    reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)


async def serve(settings: Settings, services_factory: ServicesFactory) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends the process at once.

    One line goes to stdout, once calls are served: `{"event":"serving","address":"127.0.0.1:7433"}`.
    Raises StartError.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_loop_fault)
    for variable, meant in suspicious_variables(os.environ):
        _log.warning("unknown setting", variable=variable, meant=meant)
    asked_to_end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _first_signal, loop, number, asked_to_end)
    app = App(settings, services_factory)
    await app.start()
    print(json.dumps({"event": "serving", "address": app.address}, separators=(",", ":")), flush=True)
    _log.info("serving", address=app.address, identity_mode=settings.identity_mode)
    await asked_to_end.wait()
    _log.info("draining", seconds=settings.drain_seconds)
    await app.stop()
    _log.info("stopped")


def _first_signal(loop: asyncio.AbstractEventLoop, number: int, asked_to_end: asyncio.Event) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(each)
        # The system ends the process at the next one; what was acknowledged is in the store.
        signal.signal(each, signal.SIG_DFL)
    asked_to_end.set()


def _log_loop_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # asyncio's own handler would print the texts of exceptions.
    _log.error("fault outside of a call", what=context["message"], exc_info=context.get("exception"))
