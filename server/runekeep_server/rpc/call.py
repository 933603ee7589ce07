"""The steps of a call: identity, limits, validation, audit log, deadline, handler, error mapping and a log line."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from time import perf_counter
from types import TracebackType
from typing import Any

import grpc
import structlog
from google.protobuf.message import Message
from grpc_status import rpc_status

from runekeep.v1 import common_pb2
from runekeep_server.identity import Caller, Principal, enter_principal, sent_metadata, trace_of
from runekeep_server.protocol.api_error import ApiError, to_status
from runekeep_server.protocol.error_mapping import as_api_error
from runekeep_server.protocol.errors import deadline_exceeded, internal
from runekeep_server.protocol.validation import Undecodable, unreadable, validate_message
from runekeep_server.rpc.audit import Entry
from runekeep_server.rpc.methods import Method
from runekeep_server.rpc.parts import CallParts
from runekeep_server.rpc.request_bodies import size_of
from runekeep_server.telemetry import calls
from runekeep_server.telemetry.logs import begin_call
from runekeep_storage import deadline
from runekeep_storage.drivers.common import fair_turns

# Message types differ from method to method.
Context = grpc.aio.ServicerContext[Any, Any]
Behaviour = Callable[[Any, Context], Awaitable[Any]]
Reading = Callable[[Context], AbstractAsyncContextManager[Any]]

_log = structlog.get_logger()


async def run_call(
    method: Method, parts: CallParts, read: Reading | None, behaviour: Behaviour, stream: Any, context: Context
) -> Any:
    """Serves one call with `behaviour`, which returns the answer or writes a stream of answers to `context`. `read`
    reads the request of a method with a single request; if None, `stream` is the stream of requests.

    Only cancellation and aborts leave it as exceptions; every other exception becomes a status.
    """
    with calls.observe(method.name, stream=method.streams) as observed:
        started = perf_counter()
        code, failure, fault = "OK", None, None
        entry: Entry | None = None
        try:
            async with _TimeLimit(method, context):
                principal = await _identify(observed, method, parts, context)
                account = principal.account if isinstance(principal, Caller) else None
                fair_turns.begin(account or principal.actor)
                if account is not None:
                    fair_turns.note_call()
                with parts.limits.admit(account, method.name):
                    async with nullcontext(stream) if read is None else read(context) as request:
                        # The handler checks a stream of requests, message by message.
                        if isinstance(request, Message):
                            validate_message(request, size_of(request))
                        elif isinstance(request, Undecodable):
                            raise unreadable()
                        if method.audit is not None:
                            entry = await _begin_entry(method, parts, principal, request, context)
                            if entry is not None:
                                observed.audited()
                        if method.streams:
                            return await _while_allowed(method, parts, principal, behaviour, request, context)
                        return await behaviour(request, context)
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
            if context.cancelled() or isinstance(error, grpc.aio.InternalError):
                # A write to a caller that has gone fails in its own way, sometimes before the cancellation arrives.
                code = _why_cancelled(context)
                raise asyncio.CancelledError from error
            failure, fault = as_api_error(error) or internal(), error
            code = failure.code.name
        finally:
            try:
                if entry is not None and parts.audit is not None:
                    await parts.audit.end(entry, code)
            finally:
                observed.ended(code, _reason(failure))
                _log_end(code, failure, fault, started, context)
        status = rpc_status.to_status(to_status(failure))
        await context.abort(status.code, status.details, (*status.trailing_metadata, *_pushback(failure)))


async def _identify(observed: calls.Call, method: Method, parts: CallParts, context: Context) -> Principal:
    known = begin_call(method.name)
    metadata = sent_metadata()
    trace = observed.continues(trace_of(metadata))
    known["trace"] = trace.trace_id
    principal = await parts.authenticator.authenticate(metadata, context, method.audience, trace)
    enter_principal(principal)
    known["actor"] = principal.actor
    if isinstance(principal, Caller):
        observed.made_for(principal.account)
        known["account"] = principal.account
        known["user"] = principal.user
    return principal


async def _begin_entry(
    method: Method, parts: CallParts, principal: Principal, request: Any, context: Context
) -> Entry | None:
    if parts.audit is None:
        raise RuntimeError(f"{method.name} is to be logged, and there is no audit log")
    return await parts.audit.begin(method, principal, request, context.peer())


async def _while_allowed(
    method: Method, parts: CallParts, principal: Principal, behaviour: Behaviour, request: Any, context: Context
) -> Any:
    """Serves a stream, and ends it as soon as the credentials that opened it are refused or cannot be checked."""
    refused: Exception | None = None

    async def watch() -> None:
        nonlocal refused
        metadata = sent_metadata()
        try:
            refused = await parts.authenticator.until_refused(metadata, context, method.audience, principal.trace)
        except Exception as error:
            refused = error
        limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with asyncio.timeout(None) as limit:
            watching = asyncio.create_task(watch())
            try:
                await _send_headers(context)
                return await behaviour(request, context)
            finally:
                watching.cancel()
    except TimeoutError:
        if refused is not None and limit.expired():
            raise refused from None
        raise


async def _send_headers(context: Context) -> None:
    """Sends the headers before the handler runs. Otherwise gRPC sends them together with the first answer of a stream.
    If the deadline then cancels that answer, gRPC cannot end the call, and the caller waits forever."""
    sending = asyncio.ensure_future(context.send_initial_metadata(()))
    try:
        await asyncio.shield(sending)
    except asyncio.CancelledError:
        # If the caller has gone, sending fails. That error must not replace the cancellation.
        with suppress(Exception):
            await sending
        raise


class _TimeLimit:
    """Ends the enclosed block at the call's deadline: the caller's, or the method's default if the caller sets none."""

    __slots__ = ("_limit", "_seconds")

    def __init__(self, method: Method, context: Context) -> None:
        # Without a deadline, time_remaining returns None, although its type does not say so.
        remaining: float | None = context.time_remaining()
        self._seconds = method.default_seconds if remaining is None else remaining
        # Work that a method without a limit started, such as the verdict on a job, may have to outlive the call.
        deadline.begin(None if method.default_seconds is None else self._seconds)
        # gRPC itself enforces a deadline that the caller set.
        is_ours = remaining is None and self._seconds is not None
        self._limit = asyncio.timeout(self._seconds) if is_ours else None

    async def __aenter__(self) -> None:
        if self._limit is not None:
            await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._limit is None:
            return
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            assert self._seconds is not None
            raise deadline_exceeded(self._seconds) from None


def _why_cancelled(context: Context) -> str:
    remaining: float | None = context.time_remaining()
    return "DEADLINE_EXCEEDED" if remaining is not None and remaining <= 0 else "CANCELLED"


def _name(code: Any) -> str:
    # grpc.aio may return the number of a code.
    return code.name if isinstance(code, grpc.StatusCode) else str(code)


def _reason(failure: ApiError | None) -> str:
    return "" if failure is None else failure.reason_name


def _pushback(failure: ApiError) -> tuple[tuple[str, str], ...]:
    """Returns the trailer that makes gRPC's own repeats wait as long as RetryInfo says, which they do not read."""
    if failure.retry_after is None:
        return ()
    return (("grpc-retry-pushback-ms", str(round(failure.retry_after * 1000))),)


def _log_end(code: str, failure: ApiError | None, fault: Exception | None, started: float, context: Context) -> None:
    event: dict[str, Any] = {"code": code, "duration_ms": round((perf_counter() - started) * 1000, 3)}
    if reason := _reason(failure):
        event["reason"] = reason
    if failure is not None and failure.reason == common_pb2.ERROR_REASON_ACCESS_DENIED:
        # The peer address is the only trace of a caller who tries keys or accesses foreign data.
        event["peer"] = context.peer()
    if code == "INTERNAL" and failure is not None:
        _log.error("call_ended", **event, incident=failure.metadata.get("incident"), exc_info=fault)
    elif code == "UNAVAILABLE":
        # The caller learns which dependency is unavailable; only the operator learns why.
        _log.warning("call_ended", **event, exc_info=fault)
    else:
        _log.info("call_ended", **event)
