"""Mutations: one transaction each, answered once for a request id."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

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
    """
    key = key_of(request, session_id)
    if key is None:
        return await database.write(_unkept, space, work)
    making = Making(answer)

    async def encoded(tx: Tx) -> bytes:
        return making.encoded(await work(tx))

    return making.decoded(await database.write(once, space, key, encoded))


class Making(Generic[Answer]):
    """An answer that a transaction makes or finds, encoded."""

    def __init__(self, kind: type[Answer]) -> None:
        self._kind = kind
        self._made: tuple[Answer, bytes] | None = None

    def encoded(self, answer: Answer) -> bytes:
        self._made = answer, answer.SerializeToString()
        return self._made[1]

    def decoded(self, given: bytes) -> Answer:
        # The very bytes that were made just now need not be read again.
        return self._made[0] if self._made is not None and given is self._made[1] else self._kind.FromString(given)


async def _unkept(tx: Tx, space: Space, work: Callable[[Tx], Awaitable[Answer]]) -> Answer:
    """`space` is there for who refuses transactions of it, see `storage.shut_spaces`."""
    return await work(tx)


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
    key = key_of(request)
    encoded = await database.read(kept, space, key) if key is not None else None
    return answer.FromString(encoded) if encoded is not None else None


def key_of(request: Any, session_id: str = "") -> RequestKey | None:
    """Of a request that carries an id; its method's name is that of its message, without "Request"."""
    if not request.request_id:
        return None
    request_id = request.request_id
    # Taken out and put back: a copy of the request would cost more than all else here.
    request.ClearField("request_id")
    body = request.SerializeToString(deterministic=True)
    request.request_id = request_id
    return RequestKey(
        request.DESCRIPTOR.name.removesuffix("Request"), request_id, hashlib.sha256(body).hexdigest(), session_id
    )
