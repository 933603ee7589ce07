"""Idempotent mutations: each runs in one transaction and is answered once for each request id."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from google.protobuf.message import Message

from runekeep_server.protocol.api_error import ApiError
from runekeep_storage import deadline
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.drivers.common.idempotent_requests import RequestKey, find_response, run_once
from runekeep_storage.errors import NotFound, VersionConflict

Answer = TypeVar("Answer", bound=Message)
T = TypeVar("T")

MAX_PREPARATIONS: Final = 3
"""Maximum attempts to prepare a mutation. Each one fails if another caller changes the same data first."""

log = structlog.get_logger(__name__)


async def mutate(
    database: SpaceDatabase,
    space: Space,
    request: Message,
    answer: type[Answer],
    work: Callable[[Tx], Awaitable[Answer]],
    *,
    session_id: str = "",
) -> Answer:
    """Runs `work` in a transaction and returns its answer. A repeat of the same request returns the first answer.

    `session_id`: the session of the call, if it has one. DeleteSession deletes the stored answer, and a repeat then
    raises NotFound.
    """
    made: Answer | None = None
    encoded = b""

    async def encode(tx: Tx) -> bytes:
        nonlocal made, encoded
        made = await work(tx)
        encoded = made.SerializeToString()
        return encoded

    response = await database.write(run_once, space, key_of(request, session_id), encode)
    # Skips decoding the bytes that were just encoded.
    return made if made is not None and response is encoded else answer.FromString(response)


async def prepare_and_mutate(
    database: SpaceDatabase,
    space: Space,
    request: Message,
    answer: type[Answer],
    prepare: Callable[[], Awaitable[T]],
    work: Callable[[T, Tx], Awaitable[Answer]],
    *,
    session_id: str = "",
) -> Answer:
    """Runs `prepare` outside of transactions and then `work` with its result, see `mutate`. If `work` raises
    VersionConflict, because something changed in between, it runs both again, MAX_PREPARATIONS times in all.

    A finished request may no longer be preparable. So if `prepare` raises ApiError or NotFound, a repeat still returns
    the first answer.
    """
    for attempt in range(1, MAX_PREPARATIONS + 1):
        try:
            prepared = await prepare()
        except (ApiError, NotFound):
            before = await find_answer(database, space, request, answer)
            if before is None:
                raise
            return before
        try:
            return await mutate(database, space, request, answer, partial(work, prepared), session_id=session_id)
        except VersionConflict:
            log.info("mutation_conflict", method=_method_of(request), attempt=attempt)
            if attempt == MAX_PREPARATIONS:
                raise
    raise AssertionError("unreachable")


async def run_to_completion(work: Awaitable[T]) -> T:
    """Returns the result of `work`. `work` runs to completion even if the current call ends before."""

    async def outliving() -> T:
        deadline.ignore_deadline()
        return await work

    working = asyncio.create_task(outliving())
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        working.add_done_callback(_told)
        raise


def _told(working: "asyncio.Task[Any]") -> None:
    """Logs a failure that no caller can receive any more."""
    if not working.cancelled() and (error := working.exception()) is not None:
        log.warning("mutation_failed_behind_its_call", error=type(error).__name__)


async def find_answer(database: SpaceDatabase, space: Space, request: Message, answer: type[Answer]) -> Answer | None:
    """Returns the stored answer of this request, or None if it is new or has no id.

    For mutations that are prepared outside of their transaction: a finished mutation cannot be prepared again.
    """
    key = key_of(request)
    encoded = await database.read(find_response, space, key) if key is not None else None
    return answer.FromString(encoded) if encoded is not None else None


def key_of(request: Any, session_id: str = "") -> RequestKey | None:
    """Returns the key of a request with a request id, otherwise None. The method's name is that of its message without
    "Request"."""
    if not request.request_id:
        return None
    request_id = request.request_id
    # Cleared and restored: copying the request would cost more than everything else here.
    request.ClearField("request_id")
    body = request.SerializeToString(deterministic=True)
    request.request_id = request_id
    return RequestKey(_method_of(request), request_id, hashlib.sha256(body).hexdigest(), session_id)


def _method_of(request: Message) -> str:
    return request.DESCRIPTOR.name.removesuffix("Request")
