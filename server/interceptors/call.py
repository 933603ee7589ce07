"""What one call passes through: identity, validation, deadline, handler, errors, one line in the log."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import grpc
import structlog
from google.protobuf.message import Message
from grpc_status import rpc_status
from structlog.contextvars import bind_contextvars

from runekeep.v1 import common_pb2
from server.errors import ApiError, deadline_exceeded, internal, to_status
from server.faults import as_api_error
from server.identity import Caller, development_caller, development_worker, enter_principal
from server.validation import validate_message

# The types of messages differ from method to method.
Context = grpc.aio.ServicerContext[Any, Any]
Behaviour = Callable[[Any, Context], Awaitable[Any]]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the contract. `name`: service and method without the package, `default_seconds` None: no limit."""

    name: str
    for_workers: bool
    default_seconds: float | None


async def run_call(method: Method, behaviour: Behaviour, request: Any, context: Context) -> Any:
    """Serve one call with `behaviour`, which returns the answer or writes a stream of them to `context`.

    Only cancellation and aborts leave it as exceptions; every other one becomes a status.
    """
    started = perf_counter()
    code, failure, fault = "OK", None, None
    try:
        _identify(method, context)
        # A stream of requests is checked by its handler, message by message.
        if isinstance(request, Message):
            validate_message(request)
        # What time_remaining is without a deadline is None, whatever its type says.
        if method.default_seconds is None or context.time_remaining() is not None:
            return await behaviour(request, context)
        return await _limited(method.default_seconds, behaviour, request, context)
    except asyncio.CancelledError:
        code = _why_cancelled(context)
        raise
    except grpc.aio.AbortError:
        code = _name(context.code())
        raise
    except ApiError as error:
        failure = error
        code = error.code.name
    except Exception as error:
        if context.cancelled():
            # A write to a caller that has gone fails in its own way, sometimes before the cancellation arrives.
            code = _why_cancelled(context)
            raise asyncio.CancelledError from error
        failure, fault = as_api_error(error) or internal(), error
        code = failure.code.name
    finally:
        _log_end(code, failure, fault, started)
    status = rpc_status.to_status(to_status(failure))
    await context.abort(status.code, status.details, status.trailing_metadata)


def _identify(method: Method, context: Context) -> None:
    bind_contextvars(rpc=method.name)
    metadata = context.invocation_metadata() or ()
    principal = development_worker(metadata) if method.for_workers else development_caller(metadata)
    enter_principal(principal)
    bind_contextvars(trace=principal.trace.trace_id)
    if isinstance(principal, Caller):
        bind_contextvars(account=principal.account, user=principal.user)


async def _limited(seconds: float, behaviour: Behaviour, request: Any, context: Context) -> Any:
    try:
        async with asyncio.timeout(seconds) as limit:
            return await behaviour(request, context)
    except TimeoutError:
        if limit.expired():
            raise deadline_exceeded(seconds) from None
        raise


def _why_cancelled(context: Context) -> str:
    remaining: float | None = context.time_remaining()
    return "DEADLINE_EXCEEDED" if remaining is not None and remaining <= 0 else "CANCELLED"


def _name(code: Any) -> str:
    # grpc.aio gives back the number of a code.
    return code.name if isinstance(code, grpc.StatusCode) else str(code)


def _log_end(code: str, failure: ApiError | None, fault: Exception | None, started: float) -> None:
    event: dict[str, Any] = {"code": code, "duration_ms": round((perf_counter() - started) * 1000, 3)}
    if failure is not None and failure.reason != common_pb2.ERROR_REASON_UNSPECIFIED:
        event["reason"] = common_pb2.ErrorReason.Name(failure.reason).removeprefix("ERROR_REASON_")
    if code == "INTERNAL" and failure is not None:
        _log.error("call", **event, incident=failure.metadata.get("incident"), exc_info=fault)
    elif code == "UNAVAILABLE":
        # The caller is told which part cannot serve; why is the operator's to know.
        _log.warning("call", **event, exc_info=fault)
    else:
        _log.info("call", **event)
