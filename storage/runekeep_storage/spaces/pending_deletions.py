"""Deletes the remaining rows of deleted sessions in slices: messages, passages, turn memory and stored responses.

Deleting a hundred thousand messages with their vectors takes seconds, and SQLite has only one writer. So a deletion
removes the rows that identify the session, which hides everything at once, because messages and turns are read through
their session and archives. The table `leftovers` lists sessions with remaining rows; the few statements that reach such
rows directly exclude them (`statements.without`). A new session of the same name must start empty, so it waits until
all of them are deleted, see `retry_after_cleanup`.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.drivers.common import idempotent_requests
from runekeep_storage.errors import SpaceBusy
from runekeep_storage.spaces import statements
from runekeep_storage.tables import SLICE, SLICES

T = TypeVar("T")

PAGE = 4
"""Messages whose sizes are read at once. SQLite reads the whole message for that, a millisecond per megabyte, and three
messages of a megabyte fill a slice: reading the sizes of 20 took longer than deleting those three."""
MESSAGE_TOKENS = 2_000
"""A message counts as one more for each of so many tokens, because a long one takes as long to delete as several."""
BEFORE_ALL = Space("", "")
"""Start of a walk over all spaces."""


class BlockedByDeletion(SpaceBusy):
    """The transaction that creates a session cannot delete all remaining rows of a deleted session with the same
    name."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"what a deleted session named {session_id} left is still being taken away")
        self.session_id = session_id


async def leave(tx: Tx, space: Space, session_id: str) -> None:
    """Marks the session for cleanup. The same transaction deletes its row."""
    await tx.execute(statements.LEAVE_SESSION, space.account, space.user, session_id)


async def leave_up_to(tx: Tx, space: Space, session_id: str) -> None:
    """Marks the sessions up to this one, by name, for cleanup. The same transaction deletes their rows, which still
    exist."""
    await tx.execute(statements.LEAVE_SESSIONS, space.account, space.user, session_id)


async def waiting(tx: Tx, after: Space = BEFORE_ALL) -> Space | None:
    """Returns the next space with leftovers, by name. Skips locked spaces, whose archives may still get passages."""
    row = await tx.fetchrow(statements.NEXT_WITH_LEFTOVERS, after.account, after.user)
    return Space(row["account"], row["user_id"]) if row else None


async def of_space(tx: Tx, space: Space, session_id: str) -> bool:
    """Returns whether rows of the deleted session remain; with an empty id, of any deleted session of the space."""
    row = await tx.fetchrow(statements.HAS_LEFTOVERS, space.account, space.user, session_id)
    return row is not None


async def clear(tx: Tx, space: Space) -> bool:
    """Deletes up to a slice of leftovers of each kind in the space; returns whether more remain."""
    left = dict(SLICES)
    rows = await tx.fetch(statements.LEFT_SESSIONS, space.account, space.user, SLICE + 1)
    for row in rows:
        for table in left:
            left[table] -= await _take(tx, space, table, row["session_id"], left[table])
        if min(left.values()) <= 0:
            return True
        await _forget(tx, space, row["session_id"])
    return len(rows) > SLICE


async def clear_session(tx: Tx, space: Space, session_id: str) -> None:
    """Deletes all leftovers of a session of this name; most of the time there are none. Raises BlockedByDeletion if
    more than a slice remains, because a new session of that name would show them."""
    if await clear_some_of(tx, space, session_id):
        raise BlockedByDeletion(session_id)


async def clear_some_of(tx: Tx, space: Space, session_id: str) -> bool:
    """Deletes up to a slice of leftovers of each kind of the session; returns whether more remain."""
    # Another server may have deleted them already, and a caller may have recreated the session since.
    if not await _is_named(tx, space, session_id):
        return False
    full = [await _take(tx, space, table, session_id, most) >= most for table, most in SLICES.items()]
    if any(full):
        return True
    await _forget(tx, space, session_id)
    return False


async def retry_after_cleanup(database: SpaceDatabase, space: Space, make: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of `make`, which creates a session. Deletes blocking leftovers first, one slice per
    transaction."""
    while True:
        try:
            return await make()
        except BlockedByDeletion as error:
            while await database.write(clear_some_of, space, error.session_id):
                pass


async def _take(tx: Tx, space: Space, table: str, session_id: str, most: int) -> int:
    """Returns how many rows were deleted, with long messages counted as several; fewer than `most` means that none
    remain."""
    if table == "requests":
        # The requests stay known, with voided responses.
        return await idempotent_requests.void_of_session(tx, space, session_id, most)
    if table == "messages":
        return await _take_messages(tx, space, session_id, most)
    return await tx.execute(statements.delete_slice(table), space.account, space.user, session_id, most)


async def _take_messages(tx: Tx, space: Space, session_id: str, most: int) -> int:
    of_session = (space.account, space.user, session_id)
    taken = last = 0
    is_end = False
    while taken < most and not is_end:
        rows = await tx.fetch(statements.SIZES_OF_LEFT_MESSAGES, *of_session, last, PAGE)
        is_end = len(rows) < PAGE
        for row in rows:
            if taken >= most:
                break
            taken += 1 + row["tokens"] // MESSAGE_TOKENS
            last = row["sequence"]
    if last:
        await tx.execute(statements.DELETE_MESSAGES, *of_session, last)
    return taken


async def _is_named(tx: Tx, space: Space, session_id: str) -> bool:
    row = await tx.fetchrow(statements.IS_LEFT, space.account, space.user, session_id)
    return row is not None


async def _forget(tx: Tx, space: Space, session_id: str) -> None:
    await tx.execute(statements.FORGET_SESSION, space.account, space.user, session_id)
