"""Mutations: one transaction each, answered once for a request id."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog
from google.protobuf.message import Message

from storage import deadline
from storage.database import Database, Space, Tx
from storage.requests import RequestKey, kept, once

Answer = TypeVar("Answer", bound=Message)
T = TypeVar("T")

log = structlog.get_logger(__name__)


async def mutate(
    database: Database,
    space: Space,
    request: Message,
    answer: type[Answer],
    work: Callable[[Tx], Awaitable[Answer]],
    *,
    session_id: str = "",
) -> Answer:
    """Runs `work` and gives its answer; a repeat of the same request gives the first one.

    `session_id`: of a call that is of one session, whose answer goes with it: a repeat after DeleteSession is NotFound.
    The method's name is that of its request message, without "Request".
    """
    key = _key(request, session_id)

    async def encoded(tx: Tx) -> bytes:
        return (await work(tx)).SerializeToString()

    return answer.FromString(await database.write(once, space, key, encoded))


async def to_its_end(work: Awaitable[T]) -> T:
    """The result of `work`, which goes on to its end should the call at hand end before it."""

    async def outliving() -> T:
        deadline.outlive()
        return await work

    working = asyncio.create_task(outliving())
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        working.add_done_callback(_told)
        raise


def _told(working: "asyncio.Task[Any]") -> None:
    """Nobody is left whom a failure could be told."""
    if not working.cancelled() and (error := working.exception()) is not None:
        log.warning("mutation_failed_behind_its_call", error=type(error).__name__)


async def answered(database: Database, space: Space, request: Message, answer: type[Answer]) -> Answer | None:
    """The answer that this very request was given before; None for one that is new or has no id.

    For mutations that are prepared outside of their transaction: what was done already cannot be prepared once more.
    """
    key = _key(request)
    encoded = await database.read(kept, space, key) if key is not None else None
    return answer.FromString(encoded) if encoded is not None else None


def _key(request: Any, session_id: str = "") -> RequestKey | None:
    if not request.request_id:
        return None
    body = type(request)()
    body.CopyFrom(request)
    body.ClearField("request_id")
    digest = hashlib.sha256(body.SerializeToString(deterministic=True)).hexdigest()
    return RequestKey(request.DESCRIPTOR.name.removesuffix("Request"), request.request_id, digest, session_id)
