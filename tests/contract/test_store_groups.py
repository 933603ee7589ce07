"""Transactions that are committed together, on every driver: what each knows of those before it, and how often they
run."""

from functools import partial
from typing import Any

import pytest

from storage import sessions, shut_spaces
from storage.database import Database, Space, Tx
from storage.errors import AlreadyExists, SpaceShut
from storage.records import Session
from storage.shut_spaces import OpenSpaces
from tests.contract.grouped import again, at_once
from tests.contract.store_fixtures import ANN


async def together(database: Database, *calls: tuple[Any, ...]) -> list[Any]:
    """Outcomes of writes that share one transaction, of sessions that are made as callers make them."""
    callers = OpenSpaces(database)
    return await at_once(
        database,
        *(partial((callers if work is sessions.create else database).write, work, *given) for work, *given in calls),
    )


async def shut_and_open(tx: Tx, space: Space) -> None:
    await shut_spaces.shut(tx, space)
    await shut_spaces.open_again(tx, space)


async def open_and_shut(tx: Tx, space: Space) -> None:
    await shut_spaces.open_again(tx, space)
    await shut_spaces.shut(tx, space)


async def test_who_comes_behind_finds_the_space_as_it_is_by_then(database: Database) -> None:
    outcomes = await together(
        database,
        (sessions.create, ANN, "before"),
        (shut_spaces.shut, ANN),
        (sessions.create, ANN, "refused"),
        (shut_spaces.open_again, ANN),
        (sessions.create, ANN, "after"),
        (open_and_shut, ANN),
        (sessions.create, ANN, "refused too"),
        (shut_and_open, ANN),
        (sessions.create, ANN, "last"),
    )

    made = [type(one) for one in outcomes if one is not None]
    assert made == [Session, SpaceShut, Session, SpaceShut, Session]


async def test_a_space_that_was_shut_before_is_open_for_those_behind_its_opening(database: Database) -> None:
    await database.write(shut_spaces.shut, ANN)
    with pytest.raises(SpaceShut):
        await OpenSpaces(database).write(sessions.create, ANN, "refused")

    outcomes = await together(database, (shut_spaces.open_again, ANN), (sessions.create, ANN, "made"))

    assert [type(one) for one in outcomes] == [type(None), Session]


async def test_a_late_failure_and_nothing_else_has_a_group_run_again_and_is_counted(database: Database) -> None:
    ran: list[str] = []

    async def make(tx: Tx, name: str) -> None:
        ran.append(name)
        await sessions.create(tx, ANN, name)
        if name == "late":
            raise LookupError(name)

    before = again()
    outcomes = await together(database, (make, "first"), (make, "first"), (make, "second"))
    assert [type(one) for one in outcomes] == [type(None), AlreadyExists, type(None)]
    assert ran == ["first", "first", "second"]
    assert again() == before

    ran.clear()
    outcomes = await together(database, (make, "third"), (make, "late"), (make, "fourth"))
    assert [type(one) for one in outcomes] == [type(None), LookupError, type(None)]
    assert ran == ["third", "late", "third", "late", "fourth"]
    assert again() - before == 1

    made = await database.read(sessions.page, ANN, None, 100)
    assert sorted(session.session_id for session in made) == ["first", "fourth", "second", "third"]
