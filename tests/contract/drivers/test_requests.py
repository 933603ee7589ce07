"""Kept answers of calls that are of one session: they go with it, whatever there are of them, and no others do."""

from pathlib import Path
from typing import Any

import pytest

from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.common import idempotent_requests
from runekeep_storage.drivers.common.idempotent_requests import RequestKey
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.errors import NotFound
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import pending_deletions
from runekeep_storage.tables import SLICES
from tests.contract.turns.test_turn_costs import NUMBERS
from tests.support.storage.databases import ANN, BOB, talk
from tests.support.storage.deletions import OTHERS, dump
from tests.support.storage.query_costs import Cost, Measured, assert_as_cheap

SAID = b"what the user said"


async def answer(database: Database, space: Space, session_id: str, request_id: str, *, says: bytes = SAID) -> bytes:
    async def work(tx: Tx) -> bytes:
        return says

    return await database.write(
        idempotent_requests.run_once, space, RequestKey("SubmitTurn", request_id, "body", session_id), work
    )


async def refused(database: Database, space: Space, session_id: str, request_id: str) -> bool:
    """Whether its answer is void; what it says otherwise is what it said."""
    try:
        assert await answer(database, space, session_id, request_id, says=b"done twice") == SAID
    except NotFound as error:
        assert (error.kind, error.name) == ("request", request_id)
        return True
    return False


def contents(rows: dict[str, list[Any]]) -> int:
    return sum(SAID in bytes(row["response"]) for row in rows.get("requests", []))


async def test_answers_of_a_session_are_void_when_it_is_deleted(database: Database) -> None:
    for space in (ANN, *OTHERS):
        for session_id in ("s", "t"):
            await talk(database, space, session_id, "words")
            await answer(database, space, session_id, f"of {session_id}")
        await answer(database, space, "", "of the user")

    await database.write(delete_session, ANN, "s", "")

    assert await refused(database, ANN, "s", "of s")
    assert not await refused(database, ANN, "t", "of t")
    assert not await refused(database, ANN, "", "of the user")
    assert contents(await dump(database, ANN)) == 2
    for space in OTHERS:
        assert not await refused(database, space, "s", "of s")
        assert contents(await dump(database, space)) == 3


async def test_answers_beyond_a_slice_are_void_at_once_and_follow(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(database, ANN, "s", "words")
    for number in range(7):
        await answer(database, ANN, "s", f"r{number}")
    monkeypatch.setitem(SLICES, "requests", 3)

    await database.write(delete_session, ANN, "s", "")

    assert contents(await dump(database, ANN)) == 4
    assert [await refused(database, ANN, "s", f"r{number}") for number in range(7)] == [True] * 7
    await Cleaner(database, FolderBlobs(tmp_path)).clean()
    assert contents(await dump(database, ANN)) == 0
    assert [await refused(database, ANN, "s", f"r{number}") for number in range(7)] == [True] * 7


async def test_a_session_made_anew_gives_no_answers_of_the_one_before(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(database, ANN, "s", "words")
    for number in range(7):
        await answer(database, ANN, "s", f"r{number}")
    monkeypatch.setitem(SLICES, "requests", 3)
    await database.write(delete_session, ANN, "s", "")

    await pending_deletions.retry_after_cleanup(database, ANN, lambda: database.write(sessions.create, ANN, "s"))
    assert await answer(database, ANN, "s", "new") == SAID

    assert contents(await dump(database, ANN)) == 1
    assert [await refused(database, ANN, "s", f"r{number}") for number in range(7)] == [True] * 7
    assert not await refused(database, ANN, "s", "new")
    assert not await database.write(pending_deletions.clear_some_of, ANN, "s")
    assert not await refused(database, ANN, "s", "new"), "a cleaner that comes late takes nothing of it"


async def test_a_deletion_costs_what_its_session_has_and_not_what_the_user_asked_for(database: Database) -> None:
    """Also on a PostgreSQL that knows nothing of the table yet."""
    costs = []
    for space, others in ((ANN, 20), (BOB, 2000)):

        async def work(tx: Tx, space: Space, others: int = others) -> tuple[int, Cost]:
            for session_id, count in (("other", others), ("", others), ("s", 5)):
                await tx.execute(
                    f"{NUMBERS} INSERT INTO requests"
                    " (account, user_id, method, request_id, session_id, digest, response)"
                    " SELECT $1, $2, 'SubmitTurn', $3 || CAST(i AS TEXT), $3, 'd', $5 FROM n",
                    space.account,
                    space.user,
                    session_id,
                    count,
                    SAID,
                )
            cost = Cost()
            return await idempotent_requests.void_of_session(Measured(tx, cost), space, "s", 100), cost

        emptied, cost = await database.write(work, space)
        assert emptied == 5
        costs.append(cost)
    assert_as_cheap(*costs)


async def test_an_id_that_not_every_store_can_hold_is_known_again(database: Database) -> None:
    await talk(database, ANN, "s", "words")
    assert await answer(database, ANN, "s", "one\0two") == SAID
    assert await answer(database, ANN, "s", "one\0two", says=b"done twice") == SAID
