"""Unary calls of a job: a deadline on each, a few retries while the server is away, one error for a lost lease."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import grpc
import grpc.aio
import structlog

from runekeep.v1 import extractor_service_pb2
from runekeep_extractor.engine.interface import JobFailed
from runekeep_extractor.rpc.backoff import Backoff

if TYPE_CHECKING:
    from google.rpc import error_details_pb2

_ATTEMPTS: Final = 5
# A server that is stopping answers new calls with CANCELLED. Calls that we cancel raise asyncio.CancelledError instead.
_SERVER_GONE_CODES: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
_RETRIED: Final = _SERVER_GONE_CODES | {grpc.StatusCode.DEADLINE_EXCEEDED}
# Parts of a server. Without one of them it still serves most reads.
_INDEX, _EMBEDDER, _BLOBS = "index", "embedder", "blobs"
_PARTS: Final = (_INDEX, _EMBEDDER, _BLOBS)
_SERVER: Final = "server"
"""Names the whole server, for errors that do not say which part is away."""
MAX_WAIT_SECONDS: Final = 1.0
"""Longest pause before a call is repeated, so that a part that is back is used soon."""
_LATE_SEARCHES: Final = 2
"""A search that timed out has already waited long, and the engine may have an alternative to searching."""
_LONG_SECONDS: Final = 10.0
"""All attempts together take less than this."""
_LARGER: Final = "larger than max"
"""gRPC's own wording, on either side, for a message beyond a size limit; it carries no details."""

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class LeaseLost(Exception):
    """The server no longer knows the lease: the job is over for this worker."""


class EmbedderDown(JobFailed):
    """The server cannot embed texts. An engine that can work without embeddings goes on; otherwise the
    attempt fails.
    """


class SearchAway(JobFailed):
    """The server cannot search because its index is away. An engine that can work without search goes on; otherwise the
    job waits.
    """


class TooMuch(JobFailed):
    """The answer would exceed the size limit. An engine may ask for less; otherwise the attempt fails."""


class NotThere(LookupError):
    """No document has that URI at the job's revision."""


class NotAllowed(ValueError):
    """The server refuses the request itself, for example a URI outside the job's space."""


Waits = Callable[[str], Awaitable[None]]
"""Called with the part that a call waits for, and with an empty name when the wait is over."""


async def with_retries(name: str, call: Callable[[], Awaitable[T]], waits: Waits | None = None) -> T:
    """Makes a read. While the server or its store is away, repeats the read after short random pauses for as long as
    the caller has time: that is no fault of the job. If the server answers too late, or lacks its index or embedder,
    repeats the read a few times; if the server announces a longer outage, it does not repeat the read.

    Raises LeaseLost, NotThere, NotAllowed, TooMuch, and JobFailed (EmbedderDown for EmbedForJob, SearchAway for
    FindForJob without the index).
    """
    backoff = Backoff(first=0.2, most=MAX_WAIT_SECONDS)
    tries = waited = late = 0
    while True:
        try:
            answer = await call()
        except grpc.aio.AioRpcError as error:
            tries += not _is_away(error)
            late += _is_late_search(name, error)
            spent = tries == _ATTEMPTS or late == _LATE_SEARCHES
            if error.code() not in _RETRIED or spent or _stays_without(error):
                if waited and waits is not None:
                    await waits("")
                raise _translated(name, error) from error
            waited += 1
            # Logs the first failure, then ever fewer: an outage may last for hours.
            if waited.bit_count() == 1:
                _log.info("call_retried", method=name, code=error.code().name, times=waited)
            if waits is not None:
                await waits(_awaited(name, error))
        else:
            if waited and waits is not None:
                await waits("")
            return answer
        await asyncio.sleep(backoff.next_wait())


async def as_many_as_fit(most: int, ask: Callable[[int], Awaitable[T]]) -> T | None:
    """Returns the answer of `ask` for at most `most` items. Halves the number while the answer is too large; returns
    None if not even one fits.

    Raises what `ask` raises, except TooMuch.
    """
    while most > 0:
        try:
            return await ask(most)
        except TooMuch as error:
            _log.warning("answer_too_large", reason=error.message, asked_for=most)
            most //= 2
    return None


def part_in_words(part: str) -> str:
    """Returns the part's name for messages."""
    return "blob store" if part == _BLOBS else part


def _awaited(name: str, error: grpc.aio.AioRpcError) -> str:
    """Returns the part that a call waits for: the one that the server names, or else the part that usually delays calls
    of this name."""
    part, _ = _missing(error)
    if part:
        return part
    return _INDEX if _is_late_search(name, error) else _SERVER


def _is_late_search(name: str, error: grpc.aio.AioRpcError) -> bool:
    return name == "FindForJob" and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def _is_away(error: grpc.aio.AioRpcError) -> bool:
    """Returns whether the server or its store is away. A server that lacks a smaller part names it."""
    return error.code() in _SERVER_GONE_CODES and _missing(error)[0] not in _PARTS


def _stays_without(error: grpc.aio.AioRpcError) -> bool:
    """Returns whether the server lacks a part for longer than the retries last: it may run without that part."""
    part, wait = _missing(error)
    return part in _PARTS and wait > _LONG_SECONDS


def _missing(error: grpc.aio.AioRpcError) -> tuple[str, float]:
    """Returns the part that the server lacks and the seconds until a retry makes sense; empty and 0 if the error does
    not come from the server.
    """
    info, retry = _details(error)
    return info.metadata["dependency"], retry.retry_delay.ToNanoseconds() / 1e9


def _is_too_large(error: grpc.aio.AioRpcError) -> bool:
    """Returns whether the size of a message caused the error. Rate limits have the same code."""
    return (
        error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        and not _details(error)[0].reason
        and _LARGER in (error.details() or "")
    )


def _details(error: grpc.aio.AioRpcError) -> "tuple[error_details_pb2.ErrorInfo, error_details_pb2.RetryInfo]":
    """Returns the error's details; both are empty if the error does not come from the server."""
    from google.rpc import error_details_pb2, status_pb2

    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            for detail in status_pb2.Status.FromString(value).details:
                # Unpack ignores details of another type.
                detail.Unpack(info)
                detail.Unpack(retry)
    return info, retry


def _translated(name: str, error: grpc.aio.AioRpcError) -> Exception:
    code = error.code()
    # These calls return ABORTED only for a lease that is not held.
    if code is grpc.StatusCode.ABORTED:
        return LeaseLost()
    if code is grpc.StatusCode.NOT_FOUND:
        return NotThere("no such document")
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED):
        return NotAllowed(f"{name} was refused: {code.name}")
    if name == "EmbedForJob":
        return _outage(EmbedderDown, _EMBEDDER, name, code)
    if _is_too_large(error):
        return TooMuch(extractor_service_pb2.FAILURE_CLASS_INTERNAL, f"{name}: the answer is too large")
    if code in _RETRIED:
        part = _awaited(name, error)
        return _outage(SearchAway if part == _INDEX else JobFailed, part, name, code)
    return JobFailed(extractor_service_pb2.FAILURE_CLASS_INTERNAL, f"{name} failed: {code.name}")


def _outage(kind: type[JobFailed], part: str, name: str, code: grpc.StatusCode) -> JobFailed:
    text = f"waiting for the {part_in_words(part)}, which is away ({name}: {code.name})"
    return kind(extractor_service_pb2.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE, text, waiting_for=part)
