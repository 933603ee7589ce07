"""Idempotency: the first answer to a request id is kept and given again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from storage.database import Space, Tx
from storage.errors import RequestReused

KEEP_MICROSECONDS = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class RequestKey:
    """`digest` stands for the body of the request, its id left out."""

    method: str
    request_id: str
    digest: str


async def once(tx: Tx, space: Space, key: RequestKey | None, work: Callable[[Tx], Awaitable[bytes]]) -> bytes:
    """Runs `work` and keeps its encoded answer, in its transaction; for a key that was seen, gives the kept answer.

    Raises RequestReused for a known id with another body.
    """
    if key is None:
        return await work(tx)
    row = await tx.fetchrow(
        "SELECT digest, response, created_at FROM requests"
        " WHERE account = $1 AND user_id = $2 AND method = $3 AND request_id = $4",
        space.account,
        space.user,
        key.method,
        key.request_id,
    )
    now = tx.now()
    if row is not None and row["created_at"] > now - KEEP_MICROSECONDS:
        if row["digest"] != key.digest:
            raise RequestReused(key.request_id)
        return bytes(row["response"])
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
        now,
    )
    return response


async def forget_old(tx: Tx) -> int:
    """Drops answers older than a day. Runs over all accounts, as the sweep that it is; returns how many."""
    return await tx.execute("DELETE FROM requests WHERE created_at < $1", tx.now() - KEEP_MICROSECONDS)
