"""Transactions that are committed together, on every driver: what each knows of those before it, and how often they
run."""

from functools import partial
from typing import Any

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.errors import AlreadyExists, SpaceShut
from runekeep_storage.records import Session
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import space_locks
from runekeep_storage.spaces.space_locks import OpenSpaces
from tests.support.storage.databases import ANN
from tests.support.storage.write_groups import again, at_once


async def together(database: Database, *calls: tuple[Any, ...]) -> list[Any]:
    """Outcomes of writes that share one transaction, of sessions that are made as callers make them."""
    callers = OpenSpaces(database)
    return await at_once(
        database,
        *(partial((callers if work is sessions.create else database).write, work, *given) for work, *given in calls),
    )


async def shut_and_open(tx: Tx, space: Space) -> None:
    await space_locks.lock(tx, space)
    await space_locks.unlock(tx, space)


async def open_and_shut(tx: Tx, space: Space) -> None:
    await space_locks.unlock(tx, space)
    await space_locks.lock(tx, space)


async def test_who_comes_behind_finds_the_space_as_it_is_by_then(database: Database) -> None:
    outcomes = await together(
        database,
        (sessions.create, ANN, "before"),
        (space_locks.lock, ANN),
        (sessions.create, ANN, "refused"),
        (space_locks.unlock, ANN),
        (sessions.create, ANN, "after"),
        (open_and_shut, ANN),
        (sessions.create, ANN, "refused too"),
        (shut_and_open, ANN),
        (sessions.create, ANN, "last"),
    )

    made = [type(one) for one in outcomes if one is not None]
    assert made == [Session, SpaceShut, Session, SpaceShut, Session]


async def test_a_late_failure_and_nothing_else_has_a_group_run_again_and_is_counted(database: Database) -> None:
    ran: list[str] = []

    async def make(tx: Tx, space: Space, name: str) -> None:
        ran.append(name)
        await sessions.create(tx, space, name)
        if name == "late":
            raise LookupError(name)

    before = again()
    outcomes = await together(database, (make, ANN, "first"), (make, ANN, "first"), (make, ANN, "second"))
    assert [type(one) for one in outcomes] == [type(None), AlreadyExists, type(None)]
    assert ran == ["first", "first", "second"]
    assert again() == before

    ran.clear()
    outcomes = await together(database, (make, ANN, "third"), (make, ANN, "late"), (make, ANN, "fourth"))
    assert [type(one) for one in outcomes] == [type(None), LookupError, type(None)]
    assert ran == ["third", "late", "third", "late", "fourth"]
    assert again() - before == 1

    made = await database.read(sessions.page, ANN, None, 100)
    assert sorted(session.session_id for session in made) == ["first", "fourth", "second", "third"]
