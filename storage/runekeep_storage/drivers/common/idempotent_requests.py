"""Idempotency: stores the first response to a request id and returns it for repeats."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from runekeep_common.times import DAY_US
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common import statements
from runekeep_storage.drivers.common.statement_lists import in_rows
from runekeep_storage.errors import NotFound, RequestReused

KEEP_MICROSECONDS = DAY_US
BATCH = 1000
"""Maximum number of old responses that one transaction deletes."""
_VOID = ""
"""Digest of a voided response."""
DELETE_USER, ERASE_DATA = "DeleteUser", "EraseData"
OUTLIVE = (DELETE_USER, ERASE_DATA)
"""Methods whose responses survive the data that they deleted: a repeat must not delete what was written afterwards.
Their responses name none of the deleted data."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Idempotency key. `digest`: hash of the request body without its id. `session_id`: the session with which the
    response is deleted; empty for a response that survives every session. NUL characters of the id are replaced,
    because PostgreSQL cannot store them."""

    method: str
    request_id: str
    digest: str
    session_id: str = ""

    def __post_init__(self) -> None:
        # Same replacement as in `runekeep_storage.drivers.postgres.transaction`: without it, the lookup would miss the
        # id in the row.
        if "\0" in self.request_id:
            object.__setattr__(self, "request_id", self.request_id.replace("\0", "\N{REPLACEMENT CHARACTER}"))


async def find_response(tx: Tx, space: Space, key: RequestKey) -> bytes | None:
    """Returns the stored encoded response for the key; None if there is none.

    Raises RequestReused for a known id with another body, NotFound for a voided response.
    """
    answer = (await find_responses(tx, space.account, [(space.user, key)])).get((space.user, key))
    if isinstance(answer, Exception):
        raise answer
    return answer


async def find_responses(
    tx: Tx, account: str, keys: Sequence[tuple[str, RequestKey]]
) -> dict[tuple[str, RequestKey], bytes | Exception]:
    """Returns what `find_response` returns or raises, for each key of one account that has a stored response."""
    found: dict[tuple[str, str, str], Row] = {}
    for some in in_rows(keys):
        asked = [name for user, key in some for name in (user, key.method, key.request_id)]
        for row in await tx.fetch(statements.responses(len(some)), account, *asked):
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


async def run_once(tx: Tx, space: Space, key: RequestKey | None, work: Callable[[Tx], Awaitable[bytes]]) -> bytes:
    """Runs `work` and stores its encoded response in the same transaction. For a known key, returns the stored
    response.

    Raises RequestReused for a known id with another body, NotFound for a voided response.
    """
    if key is None:
        return await work(tx)
    before = await find_response(tx, space, key)
    if before is not None:
        return before
    response = await work(tx)
    await store_responses(tx, space.account, [(space.user, key, response)])
    return response


async def store_responses(tx: Tx, account: str, answers: Sequence[tuple[str, RequestKey, bytes]]) -> None:
    """Stores encoded responses to users of one account, each with its own key."""
    now = tx.now()
    for some in in_rows(answers):
        values = [
            value
            for user, key, response in some
            for value in (user, key.method, key.request_id, key.digest, response, key.session_id)
        ]
        await tx.execute(statements.store_responses(len(some)), account, now, *values)


async def void(tx: Tx, space: Space, *, most: int) -> int:
    """Voids up to `most` responses of a deleted space, except those of OUTLIVE; returns how many.

    The keys stay known. A repeated call, whose first response was lost, must not claim that deleted data exists, and
    must not do its work a second time, which would recreate the data.
    """
    return await tx.execute(
        statements.VOID_RESPONSES,
        space.account,
        space.user,
        *OUTLIVE,
        _VOID,
        b"",
        most,
    )


async def void_of_session(tx: Tx, space: Space, session_id: str, most: int) -> int:
    """Voids up to `most` responses that belong to a deleted session; returns how many. See `void`."""
    rows = await tx.fetch(statements.RESPONSES_OF_SESSION, space.account, space.user, session_id, most)
    if not rows:
        return 0
    return await tx.execute(
        statements.VOID_RESPONSES_OF_SESSION,
        space.account,
        space.user,
        session_id,
        rows[-1]["method"],
        rows[-1]["request_id"],
        _VOID,
        b"",
    )


async def forget_old(tx: Tx) -> int:
    """Deletes up to BATCH responses older than a day, over all accounts; returns how many."""
    return await tx.execute(statements.DELETE_OLD_RESPONSES, tx.now() - KEEP_MICROSECONDS, BATCH)
