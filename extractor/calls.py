"""Unary calls of a job: a deadline on each, a few retries while the server is away, one error for a lost lease."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import grpc
import grpc.aio
import structlog

from extractor.backoff import Backoff
from extractor.engine import JobFailed
from runekeep.v1 import extractor_service_pb2

_ATTEMPTS: Final = 5
_RETRIED: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
# Of a server: without them it serves all but some reads.
_PARTS: Final = ("index", "embedder")

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class LeaseLost(Exception):
    """The server does not know the lease any more: the job is over for this worker."""


class EmbedderDown(JobFailed):
    """The server cannot turn text into vectors. An engine that can do without goes on; else the attempt fails."""


class NotThere(LookupError):
    """No document has that URI at the job's revision."""


class NotAllowed(ValueError):
    """The server refuses the request itself, for example a URI outside the job's space."""


async def with_retries(name: str, call: Callable[[], Awaitable[T]]) -> T:
    """Make a read, again after a short random wait while there is no server, or none with a store, for as long as the
    caller has time: that is no fault of the job. A server that answers too late, or without its index or embedder, is
    asked a few times.

    Raises LeaseLost, NotThere, NotAllowed, and JobFailed (EmbedderDown for EmbedForJob).
    """
    backoff = Backoff(first=0.2, most=3.0)
    tries = 0
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            tries += not _is_away(error)
            if error.code() not in _RETRIED or tries == _ATTEMPTS:
                raise _translated(name, error) from error
            _log.info("call_retried", method=name, code=error.code().name)
        await asyncio.sleep(backoff.next_wait())


def _is_away(error: grpc.aio.AioRpcError) -> bool:
    """Whether there is no server, or none with a store. A server that misses something smaller says so."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and _missing(error) not in _PARTS


def _missing(error: grpc.aio.AioRpcError) -> str:
    """What the server says that it misses; empty when it is not the server that speaks."""
    from google.rpc import error_details_pb2, status_pb2

    info = error_details_pb2.ErrorInfo()
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            for detail in status_pb2.Status.FromString(value).details:
                if detail.Unpack(info):
                    return str(info.metadata["dependency"])
    return ""


def _translated(name: str, error: grpc.aio.AioRpcError) -> Exception:
    code = error.code()
    # The only ABORTED of these calls is the one for a lease that is not held.
    if code is grpc.StatusCode.ABORTED:
        return LeaseLost()
    if code is grpc.StatusCode.NOT_FOUND:
        return NotThere("no such document")
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED):
        return NotAllowed(f"{name} was refused: {code.name}")
    if name == "EmbedForJob":
        text = f"EmbedForJob: the server's embedder is down ({code.name})"
        return EmbedderDown(extractor_service_pb2.FAILURE_CLASS_INTERNAL, text)
    text = f"{name}: the server is not reachable" if code in _RETRIED else f"{name} failed: {code.name}"
    return JobFailed(extractor_service_pb2.FAILURE_CLASS_INTERNAL, text)
