"""Spaces that are shut: users that are deleted, or of whom something is erased, and more of it than one transaction
should take away.

To delete a user with a hundred thousand versions of memories takes ten seconds, and nobody may see a half of it. So the
space is shut in the transaction that deletes the user, and callers are refused until the rows are gone, in slices. A
server that dies over it leaves the mark, and the next one goes on. What works behind the callers (relay, cleaner, jobs
by their leases) looks at rows that are there, and at their going, as at any.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, Concatenate, ParamSpec, TypeVar

from storage.damage import Damage
from storage.database import Database, Heard, Item, JointWork, Space, Tx
from storage.errors import SpaceShut

P = ParamSpec("P")
T = TypeVar("T")


async def shut(tx: Tx, space: Space, erasure_id: str = "") -> None:
    """Refuses callers from the next transaction on. `erasure_id`: of the erasure for which; empty for a deleted
    user."""
    tx.tell_shut(space)
    await tx.execute(
        "INSERT INTO shut_spaces (account, user_id, erasure_id) VALUES ($1, $2, $3)"
        " ON CONFLICT (account, user_id) DO NOTHING",
        space.account,
        space.user,
        erasure_id,
    )


async def is_deleted(tx: Tx, space: Space) -> bool:
    """Whether it is shut since its user was deleted, so that all of its rows are to go."""
    row = await tx.fetchrow(
        "SELECT 1 FROM shut_spaces WHERE account = $1 AND user_id = $2 AND erasure_id = '' AND import_id = ''",
        space.account,
        space.user,
    )
    return row is not None


async def shut_for_import(tx: Tx, space: Space, import_id: str, until: int) -> None:
    """As `shut`, while an import makes the rows of the space. It is taken to be dead at `until`, microseconds, unless
    it says that it is not (`renew`); then its rows are taken away like those of a deleted user."""
    tx.tell_shut(space)
    await tx.execute(
        "INSERT INTO shut_spaces (account, user_id, import_id, import_until) VALUES ($1, $2, $3, $4)",
        space.account,
        space.user,
        import_id,
        until,
    )


async def renew(tx: Tx, space: Space, import_id: str, until: int) -> bool:
    """Puts off the time at which the import is taken to be dead; False when it was taken so."""
    changed = await tx.execute(
        "UPDATE shut_spaces SET import_until = $4 WHERE account = $1 AND user_id = $2 AND import_id = $3",
        space.account,
        space.user,
        import_id,
        until,
    )
    return bool(changed)


async def lapse(tx: Tx, space: Space, import_id: str = "") -> None:
    """Ends an import whose time is over, or the one of that id: from here on its rows are to go.

    The revision goes up, as when a user is deleted: what comes afterwards is to be told from what there was.
    """
    changed = await tx.execute(
        "UPDATE shut_spaces SET import_id = '', import_until = 0 WHERE account = $1 AND user_id = $2"
        " AND import_id <> '' AND (import_id = $3 OR import_until <= $4)",
        space.account,
        space.user,
        import_id,
        tx.now(),
    )
    if changed:
        await tx.execute(
            "UPDATE spaces SET revision = revision + 1, losses = losses + 1 WHERE account = $1 AND user_id = $2",
            space.account,
            space.user,
        )


def without_imports(table: str) -> str:
    """A condition to append: rows of that table that no import is making. What works behind the callers leaves those
    alone: of a half of an import it would make something that is not made again when the rest is there."""
    return (
        f" AND NOT EXISTS (SELECT 1 FROM shut_spaces i WHERE i.account = {table}.account"
        f" AND i.user_id = {table}.user_id AND i.import_id <> '' LIMIT 1 OFFSET 0)"
    )


async def next_lapse(tx: Tx) -> int | None:
    """Microseconds until an import of any account is taken to be dead unless it renews; None when none is under way."""
    row = await tx.fetchrow("SELECT MIN(import_until) - $1 AS wait FROM shut_spaces WHERE import_id <> ''", tx.now())
    return None if row is None else row["wait"]


async def open_again(tx: Tx, space: Space) -> None:
    """Refuses callers no more from the next transaction on."""
    tx.tell_open(space)
    await tx.execute("DELETE FROM shut_spaces WHERE account = $1 AND user_id = $2", space.account, space.user)


async def waiting(tx: Tx) -> list[Space]:
    """The spaces of deleted users that are shut, and those of imports whose server died, of all accounts; seldom
    any."""
    rows = await tx.fetch(
        "SELECT account, user_id FROM shut_spaces WHERE erasure_id = '' AND (import_id = '' OR import_until <= $1)"
        " ORDER BY account, user_id",
        tx.now(),
    )
    return [Space(row["account"], row["user_id"]) for row in rows]


class OpenSpaces:
    """A database as callers have it: a transaction that is given a space that is shut is refused with SpaceShut.

    It must be an argument by itself, whatever its place or name: inside of another one it is not seen.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def damage(self) -> Damage:
        return self._database.damage

    async def open(self) -> None:
        await self._database.open()

    async def probe(self) -> None:
        await self._database.probe()

    async def write(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write(_of_open_spaces(work), *args, **kwargs)

    async def write_jointly(self, work: JointWork[Item, T], space: Space, item: Item) -> T:
        return await self._database.write_jointly(_each_of_open_spaces(work), space, item)

    async def read(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(_of_open_spaces(work), *args, **kwargs)

    async def listen(self, heard: Heard) -> None:
        await self._database.listen(heard)

    async def hold_index(self, *, alone: bool) -> None:
        await self._database.hold_index(alone=alone)

    async def purge(self) -> None:
        await self._database.purge()

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        return self._database.left_to_operator

    @property
    def changes(self) -> int:
        return self._database.changes

    async def close(self) -> None:
        await self._database.close()


def _of_open_spaces(work: Callable[Concatenate[Tx, P], Awaitable[T]]) -> Callable[Concatenate[Tx, P], Awaitable[T]]:
    async def checked(tx: Tx, /, *args: P.args, **kwargs: P.kwargs) -> T:
        given: tuple[Any, ...] = (*args, *kwargs.values())
        for space in given:
            if isinstance(space, Space) and tx.is_shut(space):
                raise SpaceShut(space.user)
        return await work(tx, *args, **kwargs)

    return checked


@cache
def _each_of_open_spaces(work: JointWork[Item, T]) -> JointWork[Item, T]:
    """The same for the same one, as those are to be that share a call."""

    async def checked(tx: Tx, items: Sequence[tuple[Space, Item]]) -> Sequence[T | Exception]:
        shut = {space for space in dict.fromkeys(space for space, _ in items) if tx.is_shut(space)}
        if not shut:
            return await work(tx, items)
        open_ones = [(space, item) for space, item in items if space not in shut]
        outcomes = iter(await work(tx, open_ones) if open_ones else ())
        return [SpaceShut(space.user) if space in shut else next(outcomes) for space, _ in items]

    return checked
