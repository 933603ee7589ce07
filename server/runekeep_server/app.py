"""The server's life cycle: it reserves its address, opens what its services need, listens, serves, drains and
closes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2_grpc

from runekeep_common import process_startup
from runekeep_common.addresses import split_address
from runekeep_server.identity import DevelopmentAuthenticator
from runekeep_server.rpc import CallChain, CallParts
from runekeep_server.rpc.connections import channel_options
from runekeep_server.rpc.health import Follower, Health, Probe
from runekeep_server.rpc.limits import Limits
from runekeep_server.rpc.methods import INTERNAL_SERVICES
from runekeep_server.rpc.request_bodies import RequestBodies
from runekeep_server.settings import Settings, suspicious_variables
from runekeep_storage.drivers.common.fair_turns import FairThreads

if TYPE_CHECKING:
    # At run time this module is loaded only if TLS is configured.
    from runekeep_server.rpc.tls import Certificates

_log = structlog.get_logger()

Hook = Callable[[], Awaitable[None]]


class ServerFailed(Exception):
    """The server stopped by itself. The message says why and what to do, like that of a StartError."""


class StartError(Exception):
    """The server cannot start. The message says why and what to do; operators see it unchanged. `temporary`: the same
    start may succeed later, without a change of the settings."""

    def __init__(self, message: str, *, temporary: bool = False) -> None:
        super().__init__(message)
        self.temporary = temporary


@dataclass(frozen=True, slots=True)
class Service:
    """A gRPC service: the generated `add_...Servicer_to_server`, the servicer, and a name such as
    `runekeep.v1.SessionService`. `needs_store`: its health follows the store's."""

    add_to_server: Callable[[Any, grpc.aio.Server], None]
    servicer: object
    full_name: str
    needs_store: bool = True

    @property
    def is_internal(self) -> bool:
        """Whether only workers or operators call the service."""
        return self.full_name in INTERNAL_SERVICES


class Lifecycle:
    """Hooks around serving, which the builders of services register."""

    def __init__(self, bodies: RequestBodies) -> None:
        self.bodies = bodies
        """Bounds what all calls of this server hold of their requests."""
        self.calls: CallParts | None = None
        """The steps before the services. None means those of the mode development."""
        self.probe: Probe | None = None
        """Probes the store, which most services need. None if there is no store."""
        self.is_serving = False
        """Whether the server has started and neither drains nor failed."""
        self.failure: Exception | None = None
        """Why the server must stop serving."""
        self.failed = asyncio.Event()
        self._start: list[Hook] = []
        self._drain: list[Hook] = []
        self._close: list[Hook] = []

    def fail(self, error: Exception) -> None:
        """Stops the server without a drain: no further write may be acknowledged."""
        self.failure = error
        self.failed.set()

    def on_start(self, hook: Hook) -> None:
        """Registers a hook that runs before the server reports that it serves. Hooks run in order. An exception aborts
        the start."""
        self._start.append(hook)

    def on_drain(self, hook: Hook) -> None:
        """Registers a hook that runs when the server is asked to end, while it still accepts calls. Hooks run
        concurrently, for at most `drain_seconds`.

        They finish or give back work in progress, and end streams that have no end of their own.
        """
        self._drain.append(hook)

    def on_close(self, hook: Hook) -> None:
        """Registers a hook that runs when no call is open any more, in reverse order. Register it as soon as a resource
        is opened."""
        self._close.append(hook)

    async def start(self) -> None:
        for hook in self._start:
            await hook()

    async def drain(self, seconds: float) -> None:
        """Runs the drain hooks, and cancels those that take longer than `seconds`. Logs failures."""
        try:
            async with asyncio.timeout(seconds):
                outcomes = await asyncio.gather(*(hook() for hook in self._drain), return_exceptions=True)
        except TimeoutError:
            _log.warning("drain_timed_out", seconds=seconds)
            return
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                _log.error("drain_hook_failed", exc_info=outcome)

    async def close(self) -> None:
        """Runs each close hook once. Logs failures."""
        while self._close:
            try:
                await self._close.pop()()
            except Exception as error:
                _log.error("close_hook_failed", exc_info=error)


ServicesFactory = Callable[[Settings, Lifecycle], Awaitable[Sequence[Service]]]


class App:
    """One server. Call `start`, then `stop`. `address` is known after `start`, as `host:port`."""

    def __init__(self, settings: Settings, services_factory: ServicesFactory) -> None:
        self._settings = settings
        self._services_factory = services_factory
        self._lifecycle = Lifecycle(RequestBodies(settings))
        self._health = Health()
        self._follower: Follower | None = None
        self._servers: list[grpc.aio.Server] = []
        self.address = ""
        self.internal_address = ""
        """Address of the services for workers and operators. Empty if `address` serves them."""

    async def start(self) -> None:
        """Starts to serve. Raises StartError, and whatever the factory raises; then everything that was opened is
        closed."""
        addresses = [address for address in (self._settings.address, self._settings.internal_address) if address]
        chains = [CallChain(self._settings, self._lifecycle.bodies) for _ in addresses]
        options = channel_options(self._settings)
        self._servers = [grpc.aio.server(interceptors=[chain], options=options) for chain in chains]
        with contextlib.ExitStack() as sockets:
            # Before anything is opened, so that an address in use or a bad certificate is reported at once.
            reserved = [sockets.enter_context(self._reserve(address)) for address in addresses]
            try:
                certificates = self._certificates()
                services = await self._services_factory(self._settings, self._lifecycle)
                parts = self._lifecycle.calls or _development(self._settings)
                for chain in chains:
                    chain.begin(parts)
                internal = [service for service in services if len(addresses) > 1 and service.is_internal]
                self._serve(self._servers[0], [service for service in services if service not in internal])
                for server in self._servers[1:]:
                    self._serve(server, internal)
                names = [service.full_name for service in services]
                await self._health.tell(("", *names), serving=False)
                # Listen only now: a listening port accepts connections that would get no answer until the server has
                # started.
                listening = [
                    self._listen(server, address, bound, certificates)
                    for server, address, bound in zip(self._servers, addresses, reserved, strict=True)
                ]
                self.address, self.internal_address = listening[0], "".join(listening[1:])
                for server in self._servers:
                    await server.start()
                await self._lifecycle.start()
                await self._health.tell(("", *names), serving=True)
                self._lifecycle.is_serving = True
                self._follow([service.full_name for service in services if service.needs_store])
            except BaseException:
                await self._stop_servers(None)
                await self._lifecycle.close()
                raise

    def _serve(self, server: grpc.aio.Server, services: Sequence[Service]) -> None:
        """Adds services, health, and reflection to a gRPC server."""
        taking: Any = _Generic(server)
        for service in services:
            service.add_to_server(service.servicer, taking)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, taking)
        if self._settings.shows_contract:
            _add_reflection(taking, [service.full_name for service in services])

    async def _stop_servers(self, grace: float | None) -> None:
        await asyncio.gather(*(server.stop(grace) for server in self._servers))

    async def until_failed(self) -> None:
        """Does not return. Raises ServerFailed, after all calls have ended, when the server must stop serving."""
        await self._lifecycle.failed.wait()
        await self._abort()
        raise ServerFailed(str(self._lifecycle.failure)) from self._lifecycle.failure

    @property
    def has_failed(self) -> bool:
        """Whether the server must stop serving; see `until_failed`."""
        return self._lifecycle.failed.is_set()

    async def _abort(self) -> None:
        if self._follower is not None:
            await self._follower.end()
        self._lifecycle.is_serving = False
        await self._health.enter_graceful_shutdown()
        self._health.end_watches()
        await self._stop_servers(None)
        await self._lifecycle.close()

    async def stop(self) -> None:
        """Drains and stops: all calls end within `drain_seconds`, then everything is closed."""
        end = monotonic() + self._settings.drain_seconds
        if self._follower is not None:
            await self._follower.end()
        self._lifecycle.is_serving = False
        await self._health.enter_graceful_shutdown()
        await self._lifecycle.drain(self._settings.drain_seconds)
        self._health.end_watches()
        await self._stop_servers(max(0.0, end - monotonic()))
        await self._lifecycle.close()

    def _reserve(self, address: str) -> socket.socket:
        """Returns a socket that is bound to the address and does not listen. Raises StartError."""
        host, port = split_address(address)
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            reserved = socket.socket(family, kind, protocol)
        except OSError as error:
            raise self._cannot_listen(address) from error
        # Connections that an earlier server closed must not block the address.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reserved.bind(where)
        except OSError as error:
            reserved.close()
            raise self._cannot_listen(address) from error
        return reserved

    def _listen(
        self, server: grpc.aio.Server, address: str, reserved: socket.socket, certificates: Certificates | None
    ) -> str:
        """Makes gRPC listen at the reserved address and returns that address, with its port. Raises StartError."""
        host, _ = split_address(address)
        port = reserved.getsockname()[1]
        listening = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if sys.platform != "linux":
            # Only Linux allows two sockets to bind to one address before one of them listens.
            reserved.close()
        try:
            if certificates is None:
                server.add_insecure_port(listening)
            else:
                server.add_secure_port(listening, certificates.credentials())
        except RuntimeError as error:
            raise self._cannot_listen(address) from error
        return listening

    def _cannot_listen(self, address: str) -> StartError:
        setting = "address" if address == self._settings.address else "internal_address"
        return StartError(
            f"{setting} (RUNEKEEP_{setting.upper()}): cannot listen on {address}. Is another server using it? Choose"
            " another port, or port 0 for a free one."
        )

    def _certificates(self) -> Certificates | None:
        """Returns None without TLS. Raises StartError."""
        if self._settings.tls.certificate is None:
            return None
        from runekeep_server.rpc.tls import Certificates, TlsError

        try:
            certificates = Certificates(self._settings.tls)
        except TlsError as error:
            raise StartError(str(error)) from error
        self._lifecycle.on_start(certificates.start)
        self._lifecycle.on_close(certificates.close)
        return certificates

    def _follow(self, names: Sequence[str]) -> None:
        if self._lifecycle.probe is not None:
            self._follower = Follower(self._health, names, self._lifecycle.probe)
            self._follower.begin()


class _Generic:
    """Presents a gRPC server to generated code such that methods are looked up by name and not registered.

    For each registered method, grpc.aio 1.85 keeps a task that waits for the next call, and with every call it waits
    for all of these tasks again (`_server_main_loop`). With some seventy methods that is a tenth of the cost of an
    append.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, service_name: str, method_handlers: object) -> None:
        """Does nothing: the generic handlers include these methods."""


def _development(settings: Settings) -> CallParts:
    if settings.identity_mode != "development":
        raise StartError(
            f"identity_mode (RUNEKEEP_IDENTITY_MODE): these services know no mode {settings.identity_mode}"
        )
    return CallParts(DevelopmentAuthenticator(), Limits(settings.limits))


def _add_reflection(server: Any, names: Sequence[str]) -> None:
    from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

    # Not with `enable_server_reflection`: it treats anything but a grpc.aio.Server as a threaded server, and every
    # reflection stream would hold one of the threads that all calls share.
    servicer = reflection.aio.ReflectionServicer((*names, health.SERVICE_NAME, reflection.SERVICE_NAME))
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)


async def serve(settings: Settings, services_factory: ServicesFactory) -> None:
    """Serves until SIGTERM or SIGINT, then drains; a second signal ends the process at once.

    Prints one line to stdout once calls are served: `{"event":"serving","address":"127.0.0.1:7433"}`. A signal during
    the start ends the start. Raises StartError, ServerFailed.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_loop_fault)
    # As many threads as Python's default. Exports, blobs, searches and answers share them.
    loop.set_default_executor(FairThreads(min(32, (os.cpu_count() or 1) + 4), "shared"))
    for variable, meant in suspicious_variables(os.environ):
        _log.warning("setting_unknown", variable=variable, meant=meant)
    asked_to_end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _first_signal, loop, number, asked_to_end)
    app = App(settings, services_factory)
    if not await _finished_before(asyncio.create_task(app.start()), asked_to_end):
        _log.info("stopped", during="start")
        return
    process_startup.begun()
    addresses = {"address": app.address}
    if app.internal_address:
        addresses["internal_address"] = app.internal_address
    print(json.dumps({"event": "serving", **addresses}, separators=(",", ":")), flush=True)
    _log.info("serving", **addresses, identity_mode=settings.identity_mode)
    failure = asyncio.create_task(app.until_failed())
    ending = asyncio.create_task(asked_to_end.wait())
    await asyncio.wait((failure, ending), return_when=asyncio.FIRST_COMPLETED)
    if app.has_failed:
        # Raise it even if a signal comes meanwhile: the exit status must say why the server failed.
        ending.cancel()
        await failure
    failure.cancel()
    _log.info("draining", seconds=settings.drain_seconds)
    await app.stop()
    _log.info("stopped")


async def _finished_before(starting: asyncio.Task[None], asked_to_end: asyncio.Event) -> bool:
    """Returns whether the start finished. A request to end the server cancels it."""
    asked = asyncio.create_task(asked_to_end.wait())
    await asyncio.wait([starting, asked], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        # The start may have finished all the same.
        return not starting.cancelled()
    asked.cancel()
    await starting
    return True


def _first_signal(loop: asyncio.AbstractEventLoop, number: int, asked_to_end: asyncio.Event) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(each)
        # The next signal ends the process. Acknowledged writes are in the store.
        signal.signal(each, signal.SIG_DFL)
    asked_to_end.set()


def _log_loop_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # asyncio's own handler would print the texts of exceptions.
    _log.error("event_loop_failed", what=context["message"], exc_info=context.get("exception"))
