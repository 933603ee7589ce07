"""Runs an extractor process from its settings to its end."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from typing import Any

import structlog
from pydantic import ValidationError

from runekeep.transport.transport import TransportError
from runekeep_common import process_startup
from runekeep_common.addresses import split_address
from runekeep_common.secret_files import SecretFileError
from runekeep_common.telemetry import export, metrics
from runekeep_common.telemetry.endpoint import MetricsEndpoint
from runekeep_extractor.engine.interface import NotConfigured
from runekeep_extractor.engines import open_engine, stall_limit
from runekeep_extractor.logs import configure_logging
from runekeep_extractor.rpc.channel import open_channel, server_transport
from runekeep_extractor.settings import ExtractorSettings
from runekeep_extractor.worker.worker import Worker, WorkerRefused

_log = structlog.get_logger("extractor")


def run(options: Mapping[str, Any]) -> int:
    """Runs until SIGTERM or SIGINT. `options` override the environment's settings. Returns the exit status: 0 stopped,
    1 refused by the server, 2 invalid settings.
    """
    try:
        settings = ExtractorSettings(**options)
    except ValidationError as error:
        # Without the values: one of them may be a key.
        for problem in error.errors(include_input=False, include_url=False):
            print(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}", file=sys.stderr)
        return 2
    except SecretFileError as error:
        print(error, file=sys.stderr)
        return 2
    configure_logging(settings.log_level)
    if sys.platform == "win32":
        return asyncio.run(_work(settings))
    import uvloop

    return uvloop.run(_work(settings))


async def _work(settings: ExtractorSettings) -> int:
    stop = asyncio.Event()
    if sys.platform != "win32":
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        way = server_transport(settings)
        _serve_metrics(settings)
        engine = open_engine(settings)
    except (NotConfigured, TransportError, _CannotListen) as error:
        print(f"The extractor cannot start: {error}", file=sys.stderr)
        return 2
    info = engine.info
    _log.info(
        "starting", server=settings.server, worker_id=settings.worker_id, engine=info.engine, model=info.model or None
    )
    traces = export.switch_on("runekeep-extractor", settings.worker_id)
    try:
        async with open_channel(way) as channel:
            worker = Worker(
                channel,
                engine,
                transport=way,
                worker_id=settings.worker_id,
                concurrency=settings.concurrency,
                grace=settings.grace,
                stall_timeout=stall_limit(settings),
            )
            process_startup.begun()
            await worker.run(stop)
    except WorkerRefused as error:
        _log.error("refused", status=str(error))
        return 1
    finally:
        await engine.close()
        await traces.close()
    _log.info("stopped")
    return 0


class _CannotListen(Exception):
    """The metrics address is invalid or in use."""


def _serve_metrics(settings: ExtractorSettings) -> None:
    """Serves metrics until the process ends. Raises _CannotListen."""
    metrics.tell_build("extractor", export.release())
    if not settings.metrics_address:
        return
    try:
        address = MetricsEndpoint(*split_address(settings.metrics_address), metrics.REGISTRY).start()
    except (OSError, ValueError) as error:
        raise _CannotListen(f"RUNEKEEP_EXTRACTOR_METRICS_ADDRESS ({settings.metrics_address}): {error}") from error
    _log.info("metrics_served", address=address)
