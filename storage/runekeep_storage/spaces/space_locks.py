"""Locks spaces while a deletion, an erasure or an import that is too large for one transaction is in progress.

Deleting a user with a hundred thousand memory versions takes ten seconds, and callers must not see half of it. So the
transaction that deletes the user locks the space, and calls are refused until the rows are deleted in slices. The lock
is a row: if the server dies, the next one continues. Background work (relay, cleaner, jobs by their leases) ignores the
lock and sees the rows that still exist.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Concatenate, ParamSpec, TypeVar

from runekeep_storage.database import Item, JointWork, Space, SpaceDatabase, Tx
from runekeep_storage.errors import SpaceShut
from runekeep_storage.spaces import statements

P = ParamSpec("P")
T = TypeVar("T")


async def lock(tx: Tx, space: Space, erasure_id: str = "") -> None:
    """Refuses calls from the next transaction on. `erasure_id`: the erasure that locks the space; empty for a deleted
    user."""
    tx.tell_shut(space)
    await tx.execute(statements.LOCK, space.account, space.user, erasure_id)


async def is_deleted(tx: Tx, space: Space) -> bool:
    """Returns whether the space is locked because its user was deleted, so that all of its rows will be deleted."""
    row = await tx.fetchrow(statements.IS_DELETED, space.account, space.user)
    return row is not None


async def lock_for_import(tx: Tx, space: Space, import_id: str, until: int) -> None:
    """Like `lock`, while an import writes the rows of the space. The import expires at `until`, in microseconds, unless
    it calls `renew`; then its rows are deleted like those of a deleted user."""
    tx.tell_shut(space)
    await tx.execute(statements.LOCK_FOR_IMPORT, space.account, space.user, import_id, until)


async def renew(tx: Tx, space: Space, import_id: str, until: int) -> bool:
    """Postpones the expiry of the import to `until`, in microseconds. Returns False if it has expired already."""
    changed = await tx.execute(statements.RENEW_IMPORT, space.account, space.user, import_id, until)
    return bool(changed)


async def expire(tx: Tx, space: Space, import_id: str = "") -> None:
    """Ends an import that has expired, or the one with that id: its rows will be deleted.

    Raises the revision, as the deletion of a user does, so that later data is distinguishable from the deleted data.
    """
    changed = await tx.execute(statements.EXPIRE_IMPORT, space.account, space.user, import_id, tx.now())
    if changed:
        await tx.execute(statements.COUNT_EXPIRED_IMPORT, space.account, space.user)


async def next_expiry(tx: Tx) -> int | None:
    """Returns the microseconds until an import of any account expires unless it renews; None if no import is in
    progress."""
    row = await tx.fetchrow(statements.NEXT_EXPIRY, tx.now())
    return None if row is None else row["wait"]


async def unlock(tx: Tx, space: Space) -> None:
    """Accepts calls again from the next transaction on."""
    tx.tell_open(space)
    await tx.execute(statements.UNLOCK, space.account, space.user)


async def waiting(tx: Tx) -> list[Space]:
    """Returns the locked spaces of deleted users and of expired imports, of all accounts; there are seldom any."""
    rows = await tx.fetch(statements.DELETED_SPACES, tx.now())
    return [Space(row["account"], row["user_id"]) for row in rows]


class OpenSpaces:
    """The database for callers: refuses transactions on locked spaces with SpaceShut."""

    def __init__(self, database: SpaceDatabase) -> None:
        self._database = database

    async def write(
        self,
        work: Callable[Concatenate[Tx, Space, P], Awaitable[T]],
        space: Space,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._database.write(_of_open_space(work), space, *args, **kwargs)

    async def write_jointly(self, work: JointWork[Item, T], space: Space, item: Item) -> T:
        return await self._database.write_jointly(_each_of_open_spaces(work), space, item)

    async def read(
        self,
        work: Callable[Concatenate[Tx, Space, P], Awaitable[T]],
        space: Space,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._database.read(_of_open_space(work), space, *args, **kwargs)

    async def read_global(
        self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._database.read_global(work, *args, **kwargs)


def _of_open_space(
    work: Callable[Concatenate[Tx, Space, P], Awaitable[T]],
) -> Callable[Concatenate[Tx, Space, P], Awaitable[T]]:
    async def checked(tx: Tx, space: Space, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if tx.is_shut(space):
            raise SpaceShut(space.user)
        return await work(tx, space, *args, **kwargs)

    return checked


@cache
def _each_of_open_spaces(work: JointWork[Item, T]) -> JointWork[Item, T]:
    """Cached, so that the same function object returns for the same `work`: only calls with the same function are
    batched."""

    async def checked(tx: Tx, items: Sequence[tuple[Space, Item]]) -> Sequence[T | Exception]:
        lock = {space for space in dict.fromkeys(space for space, _ in items) if tx.is_shut(space)}
        if not lock:
            return await work(tx, items)
        open_ones = [(space, item) for space, item in items if space not in lock]
        outcomes = iter(await work(tx, open_ones) if open_ones else ())
        return [SpaceShut(space.user) if space in lock else next(outcomes) for space, _ in items]

    return checked
