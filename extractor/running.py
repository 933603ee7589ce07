"""An extractor process from its settings to its end."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from typing import Any

import structlog
from pydantic import ValidationError

from extractor.channel import open_channel, server_transport
from extractor.engine import NotConfigured
from extractor.engines import open_engine, stall_limit
from extractor.logs import configure_logging
from extractor.settings import ExtractorSettings
from extractor.worker import Refused, Worker
from runekeep.transport.transport import TransportError
from schemas import light_process
from schemas.addresses import split_address
from schemas.secret_files import SecretFileError
from schemas.telemetry import export, metrics
from schemas.telemetry.endpoint import MetricsEndpoint

_log = structlog.get_logger("extractor")


def run(options: Mapping[str, Any]) -> int:
    """Work until SIGTERM or SIGINT, with those settings before the environment's. Gives the exit status: 0 stopped, 1
    refused by the server, 2 wrong settings."""
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
                way=way,
                worker_id=settings.worker_id,
                concurrency=settings.concurrency,
                grace=settings.grace,
                stall_timeout=stall_limit(settings),
            )
            light_process.begun()
            await worker.run(stop)
    except Refused as error:
        _log.error("refused", status=str(error))
        return 1
    finally:
        await engine.close()
        await traces.close()
    _log.info("stopped")
    return 0


class _CannotListen(Exception):
    """The address of the metrics is none, or taken."""


def _serve_metrics(settings: ExtractorSettings) -> None:
    """Until the process ends. Raises _CannotListen."""
    metrics.tell_build("extractor", export.release())
    if not settings.metrics_address:
        return
    try:
        address = MetricsEndpoint(*split_address(settings.metrics_address), metrics.REGISTRY).start()
    except (OSError, ValueError) as error:
        raise _CannotListen(f"RUNEKEEP_EXTRACTOR_METRICS_ADDRESS ({settings.metrics_address}): {error}") from error
    _log.info("metrics_served", address=address)
