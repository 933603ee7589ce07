"""Idempotency: the first answer to a request id is kept and given again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from storage.database import Space, Tx
from storage.errors import NotFound, RequestReused

KEEP_MICROSECONDS = 24 * 3600 * 1_000_000
BATCH = 1000
"""Old answers that one transaction drops."""
_VOID = ""
"""As a digest: the answer is void."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """`digest` stands for the body of the request, its id left out."""

    method: str
    request_id: str
    digest: str


async def kept(tx: Tx, space: Space, key: RequestKey) -> bytes | None:
    """The encoded answer that the key was given before.

    Raises RequestReused for a known id with another body, NotFound for one whose answer is void.
    """
    row = await tx.fetchrow(
        "SELECT digest, response, created_at FROM requests"
        " WHERE account = $1 AND user_id = $2 AND method = $3 AND request_id = $4",
        space.account,
        space.user,
        key.method,
        key.request_id,
    )
    if row is None or row["created_at"] <= tx.now() - KEEP_MICROSECONDS:
        return None
    if row["digest"] == _VOID:
        raise NotFound("request", key.request_id)
    if row["digest"] != key.digest:
        raise RequestReused(key.request_id)
    return bytes(row["response"])


async def once(tx: Tx, space: Space, key: RequestKey | None, work: Callable[[Tx], Awaitable[bytes]]) -> bytes:
    """Runs `work` and keeps its encoded answer, in its transaction; for a key that was seen, gives the kept answer.

    Raises RequestReused for a known id with another body, NotFound for one whose answer is void.
    """
    if key is None:
        return await work(tx)
    before = await kept(tx, space, key)
    if before is not None:
        return before
    response = await work(tx)
    await tx.execute(
        "INSERT INTO requests (account, user_id, method, request_id, digest, response, created_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (account, user_id, method, request_id)"
        " DO UPDATE SET digest = excluded.digest, response = excluded.response, created_at = excluded.created_at",
        space.account,
        space.user,
        key.method,
        key.request_id,
        key.digest,
        response,
        tx.now(),
    )
    return response


async def void(tx: Tx, space: Space, *, but: str, most: int) -> int:
    """Empties up to `most` answers of a space that is deleted, but for those of the method `but`; how many.

    That they were given stays known. A call that is repeated because its first answer was lost must not say that what
    was deleted is there, and must not do its work a second time, which would bring it back.
    """
    return await tx.execute(
        "UPDATE requests SET digest = $4, response = $5 WHERE account = $1 AND user_id = $2"
        " AND (method, request_id) IN (SELECT method, request_id FROM requests"
        "   WHERE account = $1 AND user_id = $2 AND method <> $3 AND digest <> $4 LIMIT $6)",
        space.account,
        space.user,
        but,
        _VOID,
        b"",
        most,
    )


async def forget_old(tx: Tx) -> int:
    """Drops up to BATCH answers older than a day. Runs over all accounts, as the sweep that it is; returns how many."""
    return await tx.execute(
        "DELETE FROM requests WHERE (account, user_id, method, request_id) IN"
        " (SELECT account, user_id, method, request_id FROM requests WHERE created_at < $1 LIMIT $2)",
        tx.now() - KEEP_MICROSECONDS,
        BATCH,
    )
