"""Idempotent mutations: each runs in one transaction and is answered once for each request id."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog
from google.protobuf.message import Message

from runekeep_storage import deadline
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.drivers.common.idempotent_requests import RequestKey, find_response, run_once

Answer = TypeVar("Answer", bound=Message)
T = TypeVar("T")

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
    return RequestKey(
        request.DESCRIPTOR.name.removesuffix("Request"), request_id, hashlib.sha256(body).hexdigest(), session_id
    )
