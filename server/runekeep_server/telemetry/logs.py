"""The server's log: one event per line on stderr, as JSON or for people. It never contains user content.

`configure` is called once, at start. Modules log through `structlog.get_logger()`. The context of a call (rpc, account,
user, trace, see `begin_call`) is on each of its lines. Libraries that use the standard logging module log in the same
way, from warnings on.
"""

import json
import logging
import sqlite3
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from time import gmtime, strftime, time_ns
from types import MappingProxyType
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor

from runekeep_server.settings import Settings
from runekeep_server.telemetry.log_writer import Lines

# One variable: structlog uses one for each name, and searches all existing context variables for them.
_bound: ContextVar[Mapping[str, Any]] = ContextVar("bound", default=MappingProxyType({}))


def begin_call(rpc: str) -> dict[str, str]:
    """Returns the log context of the current call. Add to it what becomes known later; all following lines contain
    it."""
    known = {"rpc": rpc}
    _bound.set(known)
    return known


def configure(settings: Settings, stream: TextIO = sys.stderr) -> None:
    """Sends all log lines to `stream`, with the configured format and level. `runekeep_server.telemetry.log_writer`
    decides when they are written."""
    lines = Lines(stream)
    lines.flush_at_exit()
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared: list[Processor] = [
        _with_bound,
        structlog.processors.add_log_level,
        _with_time,
        structlog.processors.ExceptionRenderer(describe_exception),
    ]
    structlog.configure(
        processors=[*shared, _renderer(settings, stream)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *names: lines,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(settings, stream)],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_of_this_server)


def _is_of_this_server(record: logging.LogRecord) -> bool:
    """Returns False for errors that callers cause but gRPC logs as ours: a caller left just before its answer, or a
    header is not UTF-8. gRPC quotes that header, including any key in it, before authentication. It passes the header
    on all the same, so the call's own line shows the outcome."""
    return not str(record.msg).startswith(("ExecuteBatchError raised in core", "Invalid encoding on"))


def _with_bound(logger: Any, method: str, event: EventDict) -> EventDict:
    for name, value in _bound.get().items():
        event.setdefault(name, value)
    return event


def _with_time(logger: Any, method: str, event: EventDict) -> EventDict:
    seconds, microseconds = divmod(time_ns() // 1000, 1_000_000)
    event["timestamp"] = f"{_second(seconds)}.{microseconds:06}Z"
    return event


@lru_cache(maxsize=2)
def _second(since_1970: int) -> str:
    """Formats a second. Cached, because many lines share it."""
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(since_1970))


def _renderer(settings: Settings, stream: TextIO) -> Processor:
    if settings.log_format == "console":
        return structlog.dev.ConsoleRenderer(colors=stream.isatty())
    return _as_json


# One encoder for all lines: json.dumps would create one for each.
_JSON: Final = json.JSONEncoder(ensure_ascii=False, default=str)


def _as_json(logger: Any, method: str, event: EventDict) -> str:
    return _JSON.encode(event)


def describe_exception(exc_info: ExcInfo) -> str:
    """Returns the types of the exception and its causes with their stack frames, the first cause first.

    The texts are left out: they often quote the wrong value, which here is user content. For OSError and SQLite errors
    the part that names the fault is kept.
    """
    return "\n".join(_lines(exc_info[1], seen=set()))


def _lines(error: BaseException | None, seen: set[int]) -> Iterator[str]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    cause = error.__cause__ if error.__suppress_context__ else error.__cause__ or error.__context__
    yield from _lines(cause, seen)
    yield f"{type(error).__module__}.{type(error).__qualname__}{_fault(error)}"
    yield from "".join(traceback.format_tb(error.__traceback__)).splitlines()
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from ("  " + line for line in _lines(member, seen))


def _fault(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return f": [Errno {error.errno}] {error.strerror}"
    if isinstance(error, sqlite3.Error):
        name = getattr(error, "sqlite_errorname", None)
        return f": {name}" if name else ""
    return ""
