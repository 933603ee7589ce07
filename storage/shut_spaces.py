"""Spaces that are shut: users that are deleted, and have more rows than one transaction should take away.

To delete a user with a hundred thousand versions of memories takes ten seconds, and nobody may see a half of it. So the
space is shut in the transaction that deletes the user, and callers are refused until the rows are gone, in slices. A
server that dies over it leaves the mark, and the next one goes on. What works behind the callers (relay, cleaner, jobs
by their leases) looks at rows that are there, and at their going, as at any.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from storage.database import Database, Heard, Space, Tx
from storage.errors import SpaceShut

P = ParamSpec("P")
T = TypeVar("T")


async def shut(tx: Tx, space: Space) -> None:
    """Refuses callers from the next transaction on."""
    tx.tell_shut(space)
    await tx.execute(
        "INSERT INTO shut_spaces (account, user_id) VALUES ($1, $2) ON CONFLICT (account, user_id) DO NOTHING",
        space.account,
        space.user,
    )


async def open_again(tx: Tx, space: Space) -> None:
    await tx.execute("DELETE FROM shut_spaces WHERE account = $1 AND user_id = $2", space.account, space.user)


async def waiting(tx: Tx) -> list[Space]:
    """The spaces that are shut, of all accounts; seldom any."""
    rows = await tx.fetch("SELECT account, user_id FROM shut_spaces ORDER BY account, user_id")
    return [Space(row["account"], row["user_id"]) for row in rows]


class OpenSpaces:
    """A database as callers have it: a transaction that is given a space that is shut is refused with SpaceShut.

    It must be an argument by itself, whatever its place or name: inside of another one it is not seen.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self) -> None:
        await self._database.open()

    async def write(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write(_of_open_spaces(work), *args, **kwargs)

    async def read(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(_of_open_spaces(work), *args, **kwargs)

    async def listen(self, heard: Heard) -> None:
        await self._database.listen(heard)

    async def hold_index(self, *, alone: bool) -> None:
        await self._database.hold_index(alone=alone)

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
