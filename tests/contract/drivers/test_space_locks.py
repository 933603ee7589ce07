"""Locked spaces: the database for callers refuses them in every way that leads into a space, and offers no other."""

from collections.abc import Sequence

import pytest

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.errors import SpaceShut
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import space_locks
from runekeep_storage.spaces.space_locks import OpenSpaces
from tests.support.storage.databases import ANN, BOB


async def create_all(tx: Tx, items: Sequence[tuple[Space, str]]) -> list[str | Exception]:
    return [(await sessions.create(tx, space, name)).session_id for space, name in items]


WAYS_IN = {
    "write": lambda callers, space: callers.write(sessions.create, space, "new"),
    "write_jointly": lambda callers, space: callers.write_jointly(create_all, space, "new"),
    "read": lambda callers, space: callers.read(sessions.page, space, None, 10),
}


@pytest.mark.parametrize("way", WAYS_IN)
async def test_each_way_into_a_locked_space_is_refused(database: Database, way: str) -> None:
    callers = OpenSpaces(database)
    await database.write(space_locks.lock, ANN)

    with pytest.raises(SpaceShut):
        await WAYS_IN[way](callers, ANN)
    await WAYS_IN[way](callers, BOB)

    assert await database.read(sessions.page, ANN, None, 10) == []
    await database.write(space_locks.unlock, ANN)
    await WAYS_IN[way](callers, ANN)


def test_callers_have_no_way_to_write_around_the_lock() -> None:
    """A new method of OpenSpaces must either check the lock, and stand in WAYS_IN, or write nothing."""
    assert {name for name in dir(OpenSpaces) if not name.startswith("_")} == {*WAYS_IN, "read_global"}
