"""Writes of one kind that are one call of their function where they wait together, on every driver."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from runekeep_storage import deadline
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.common import write_queue
from runekeep_storage.errors import DeadlinePassed, NotFound, SpaceShut
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import space_locks
from runekeep_storage.spaces.space_locks import OpenSpaces
from tests.support.storage.databases import ANN, BOB, CAT
from tests.support.storage.write_groups import again, at_once

Items = Sequence[tuple[Space, str]]


class Kind:
    """A kind of write that makes a session for each item; `calls`: what it was given. An item with `!` has an error
    given for it; one with `?` ends the call that it is in, and with `??` before anything is changed."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    async def work(self, tx: Tx, items: Items) -> list[str | Exception]:
        self.calls.append([name for _, name in items])
        outcomes: list[str | Exception] = []
        if any("??" in name for _, name in items):
            raise LookupError
        for space, name in items:
            if "!" in name:
                outcomes.append(NotFound("item", name))
                continue
            made = await sessions.create(tx, space, name)
            outcomes.append(made.session_id)
            if "?" in name:
                raise LookupError(name)
        return outcomes


async def made(database: Database, space: Space) -> list[str]:
    return sorted(session.session_id for session in await database.read(sessions.page, space, None, 100))


@pytest.fixture
def kind() -> Kind:
    return Kind()


async def test_those_that_wait_together_are_one_call_and_each_has_its_own_outcome(
    database: Database, kind: Kind
) -> None:
    work = kind.work
    outcomes = await at_once(
        database, *(partial(database.write_jointly, work, space, name)
                    for space, name in ((ANN, "a"), (BOB, "b"), (ANN, "!"), (ANN, "c")))
    )  # fmt: skip

    assert [str(one) for one in outcomes] == ["a", "b", "no item named !", "c"]
    assert await made(database, ANN) == ["a", "c"] and await made(database, BOB) == ["b"]
    # The first of all may have been taken before the others came.
    assert kind.calls in ([["a", "b", "!", "c"]], [["a"], ["b", "!", "c"]])


@pytest.mark.parametrize("new_store", ["postgres"], indirect=True)
async def test_callers_who_come_back_one_by_one_are_one_call(
    database: Database, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "PAUSE_SECONDS", 20.0)
    monkeypatch.setattr(write_queue, "MAX_SECONDS", 60.0)
    work = kind.work

    async def caller(number: int) -> None:
        for turn in range(4):
            await database.write_jointly(work, ANN, f"{turn}-{number}")
            # Longer than a transaction takes to begin, during which those who come are taken along anyway.
            await asyncio.sleep(0.05 * number)

    await asyncio.gather(*(caller(number) for number in range(6)))

    assert [len(call) for call in kind.calls] == [6, 6, 6, 6]


async def test_a_call_that_fails_is_made_anew_for_each_item_by_itself(database: Database, kind: Kind) -> None:
    before, work = again(), kind.work
    outcomes = await at_once(
        database, *(partial(database.write_jointly, work, ANN, name) for name in ("a", "b", "c?", "d", "!"))
    )

    assert [str(one) for one in outcomes] == ["a", "b", "c?", "d", "no item named !"]
    assert await made(database, ANN) == ["a", "b", "d"]
    assert kind.calls[-5:] == [["a"], ["b"], ["c?"], ["d"], ["!"]]
    assert again() - before == 1


async def test_a_call_that_fails_before_it_changed_anything_leaves_nobody_waiting(
    database: Database, kind: Kind
) -> None:
    work = kind.work
    async with asyncio.timeout(30):
        outcomes = await at_once(
            database, *(partial(database.write_jointly, work, ANN, name) for name in ("a", "b", "??", "c"))
        )

    assert [type(one) for one in outcomes] == [str, str, LookupError, str]
    assert await made(database, ANN) == ["a", "b", "c"]


async def test_neither_another_kind_nor_another_account_nor_what_comes_between_shares_a_call(
    database: Database, kind: Kind
) -> None:
    work, other = kind.work, Kind()
    jointly = database.write_jointly
    outcomes = await at_once(
        database,
        partial(jointly, work, ANN, "a"),
        partial(jointly, work, ANN, "b"),
        partial(jointly, other.work, ANN, "c"),
        partial(jointly, work, ANN, "d"),
        partial(database.write, sessions.create, ANN, "between"),
        partial(jointly, work, ANN, "e"),
        partial(jointly, work, CAT, "f"),
        partial(jointly, work, CAT, "g"),
    )

    assert not [one for one in outcomes if isinstance(one, Exception)]
    assert await made(database, ANN) == ["a", "b", "between", "c", "d", "e"] and await made(database, CAT) == ["f", "g"]
    together = {tuple(names) for names in kind.calls}
    assert together <= {("a", "b"), ("a",), ("b",), ("d",), ("e",), ("f", "g"), ("f",), ("g",)}
    assert other.calls == [["c"]]


async def test_what_nobody_waits_for_any_more_is_left_out(database: Database, kind: Kind) -> None:
    work = kind.work

    async def late() -> str:
        deadline.begin(0)
        return await database.write_jointly(work, ANN, "late")

    async def cancelled() -> None:
        call = asyncio.create_task(database.write_jointly(work, ANN, "cancelled"))
        await asyncio.sleep(0)
        call.cancel()

    outcomes = await at_once(
        database,
        partial(database.write_jointly, work, ANN, "a"),
        cancelled,
        late,
        partial(database.write_jointly, work, ANN, "b"),
    )

    assert [outcomes[0], outcomes[3]] == ["a", "b"] and isinstance(outcomes[2], DeadlinePassed)
    assert "late" not in await made(database, ANN)
    assert not [names for names in kind.calls if "late" in names]


async def test_callers_of_a_space_that_is_shut_are_refused_and_no_others(database: Database, kind: Kind) -> None:
    await database.write(space_locks.lock, BOB)
    callers, work = OpenSpaces(database), kind.work
    asked: list[Any] = [
        partial(callers.write_jointly, work, space, name)
        for space, name in ((ANN, "a"), (BOB, "b"), (ANN, "c"), (BOB, "d"))
    ]

    outcomes = await at_once(database, *asked)

    assert [type(one) for one in outcomes] == [str, SpaceShut, str, SpaceShut]
    assert await made(database, ANN) == ["a", "c"] and await made(database, BOB) == []
    assert not [names for names in kind.calls if {"b", "d"} & set(names)]


async def test_a_kind_that_gives_too_few_outcomes_has_all_of_them_fail(database: Database) -> None:
    async def forgets(tx: Tx, items: Items) -> list[str | Exception]:
        return [(await sessions.create(tx, *item)).session_id for item in items][1:]

    outcomes = await at_once(
        database, *(partial(database.write_jointly, forgets, ANN, name) for name in ("a", "b", "c"))
    )

    assert all(isinstance(one, Exception) for one in outcomes)
    assert await made(database, ANN) == []
