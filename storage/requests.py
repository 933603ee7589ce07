"""Idempotency: the first answer to a request id is kept and given again."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache

from storage.database import Row, Space, Tx
from storage.errors import NotFound, RequestReused
from storage.statement_lists import by_keys, in_rows, rows

KEEP_MICROSECONDS = 24 * 3600 * 1_000_000
BATCH = 1000
"""Old answers that one transaction drops."""
_VOID = ""
"""As a digest: the answer is void."""
DELETE_USER, ERASE_DATA = "DeleteUser", "EraseData"
OUTLIVE = (DELETE_USER, ERASE_DATA)
"""Methods whose answers outlive what they took away: a repeat must not take away what was written afterwards. They name
nothing of it."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """`digest` stands for the body of the request, its id left out. `session_id`: the session with which the answer
    is to go; empty for one that outlives every session. The id is kept as every store can give it back."""

    method: str
    request_id: str
    digest: str
    session_id: str = ""

    def __post_init__(self) -> None:
        # As `storage.postgres_tx` writes it: answers are found again by the id that their row has.
        if "\0" in self.request_id:
            object.__setattr__(self, "request_id", self.request_id.replace("\0", "\N{REPLACEMENT CHARACTER}"))


async def kept(tx: Tx, space: Space, key: RequestKey) -> bytes | None:
    """The encoded answer that the key was given before.

    Raises RequestReused for a known id with another body, NotFound for one whose answer is void.
    """
    answer = (await kept_of_each(tx, space.account, [(space.user, key)])).get((space.user, key))
    if isinstance(answer, Exception):
        raise answer
    return answer


async def kept_of_each(
    tx: Tx, account: str, keys: Sequence[tuple[str, RequestKey]]
) -> dict[tuple[str, RequestKey], bytes | Exception]:
    """What `kept` gives or raises for the keys of users of one account, as far as they were answered before."""
    found: dict[tuple[str, str, str], Row] = {}
    for some in in_rows(keys):
        asked = [name for user, key in some for name in (user, key.method, key.request_id)]
        for row in await tx.fetch(_kept(len(some)), account, *asked):
            found[row["user_id"], row["method"], row["request_id"]] = row
    if not found:
        return {}
    oldest = tx.now() - KEEP_MICROSECONDS
    answers: dict[tuple[str, RequestKey], bytes | Exception] = {}
    for user, key in keys:
        row = found.get((user, key.method, key.request_id))
        if row is None or row["created_at"] <= oldest:
            continue
        if row["digest"] == _VOID or row["is_left"]:
            answers[user, key] = NotFound("request", key.request_id)
        elif row["digest"] != key.digest:
            answers[user, key] = RequestReused(key.request_id)
        else:
            answers[user, key] = bytes(row["response"])
    return answers


@cache
def _kept(count: int) -> str:
    select = (
        "SELECT user_id, method, request_id, digest, response, created_at,"
        " EXISTS (SELECT 1 FROM leftovers l WHERE l.account = requests.account AND l.user_id = requests.user_id"
        "   AND l.session_id = requests.session_id) AS is_left FROM requests WHERE account = $1"
    )
    return by_keys(select, ("user_id", "method", "request_id"), count, 2)


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
    await remember(tx, space.account, [(space.user, key, response)])
    return response


async def remember(tx: Tx, account: str, answers: Sequence[tuple[str, RequestKey, bytes]]) -> None:
    """Keeps encoded answers to users of one account, each for a key of its own."""
    now = tx.now()
    for some in in_rows(answers):
        values = [
            value
            for user, key, response in some
            for value in (user, key.method, key.request_id, key.digest, response, key.session_id)
        ]
        await tx.execute(_remember(len(some)), account, now, *values)


@cache
def _remember(count: int) -> str:
    return (
        "INSERT INTO requests (account, created_at, user_id, method, request_id, digest, response, session_id)"
        f" VALUES {rows('($1, $2, ?, ?, ?, ?, ?, ?)', count, 3)} ON CONFLICT (account, user_id, method, request_id)"
        " DO UPDATE SET digest = excluded.digest, response = excluded.response, created_at = excluded.created_at,"
        " session_id = excluded.session_id"
    )


async def void(tx: Tx, space: Space, *, most: int) -> int:
    """Empties up to `most` answers of a space that is deleted, but for those of OUTLIVE; how many.

    That they were given stays known. A call that is repeated because its first answer was lost must not say that what
    was deleted is there, and must not do its work a second time, which would bring it back.
    """
    return await tx.execute(
        "UPDATE requests SET digest = $5, response = $6, session_id = '' WHERE account = $1 AND user_id = $2"
        " AND (method, request_id) IN (SELECT method, request_id FROM requests"
        "   WHERE account = $1 AND user_id = $2 AND method <> $3 AND method <> $4 AND digest <> $5 LIMIT $7)",
        space.account,
        space.user,
        *OUTLIVE,
        _VOID,
        b"",
        most,
    )


async def void_of_session(tx: Tx, space: Space, session_id: str, most: int) -> int:
    """Empties up to `most` answers that go with a session that is deleted; how many. See `void`."""
    # As the index `requests_of_session` has them, also for a PostgreSQL that knows nothing of the table yet.
    of_session = "account = $1 AND user_id = $2 AND session_id = $3 AND session_id <> ''"
    rows = await tx.fetch(
        f"SELECT method, request_id FROM requests WHERE {of_session} ORDER BY method, request_id LIMIT $4",
        space.account,
        space.user,
        session_id,
        most,
    )
    if not rows:
        return 0
    return await tx.execute(
        f"UPDATE requests SET digest = $6, response = $7, session_id = '' WHERE {of_session}"
        " AND (method, request_id) <= ($4, $5)",
        space.account,
        space.user,
        session_id,
        rows[-1]["method"],
        rows[-1]["request_id"],
        _VOID,
        b"",
    )


async def forget_old(tx: Tx) -> int:
    """Drops up to BATCH answers older than a day. Runs over all accounts, as the sweep that it is; returns how many."""
    return await tx.execute(
        "DELETE FROM requests WHERE (account, user_id, method, request_id) IN"
        " (SELECT account, user_id, method, request_id FROM requests WHERE created_at < $1 LIMIT $2)",
        tx.now() - KEEP_MICROSECONDS,
        BATCH,
    )
