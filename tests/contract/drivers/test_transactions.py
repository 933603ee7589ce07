"""What every relational driver promises about transactions."""

import asyncio
from collections.abc import Awaitable

import pytest

from runekeep_storage.database import Database, Tx
from runekeep_storage.drivers.common import idempotent_requests
from runekeep_storage.drivers.common.idempotent_requests import RequestKey
from runekeep_storage.errors import AlreadyExists, NotFound, RequestReused, StoreUnavailable
from runekeep_storage.records import Session
from runekeep_storage.sessions import sessions
from tests.support.storage.databases import ANN, BOB, Clock, NewStore


class Refused(Exception):
    """What a transaction of these tests fails with."""


async def create_then_fail(tx: Tx, session_id: str) -> None:
    await sessions.create(tx, ANN, session_id)
    raise Refused(session_id)


async def titles(tx: Tx) -> list[str]:
    return sorted(session.session_id for session in await sessions.page(tx, ANN, None, 1000))


async def test_a_transaction_that_fails_leaves_nothing_and_says_why(database: Database) -> None:
    with pytest.raises(Refused, match="half"):
        await database.write_global(create_then_fail, "half")

    assert await database.read_global(titles) == []


async def test_one_that_fails_never_takes_its_neighbours(database: Database) -> None:
    def call(number: int) -> Awaitable[object]:
        name = f"s{number:03}"
        if number % 3 == 0:
            return database.write_global(create_then_fail, name)
        return database.write(sessions.create, ANN, name)

    calls = [call(number) for number in range(300)]

    outcomes = await asyncio.gather(*calls, return_exceptions=True)

    kept = [f"s{number:03}" for number in range(300) if number % 3]
    assert [type(outcome) is Refused for outcome in outcomes] == [number % 3 == 0 for number in range(300)]
    assert await database.read_global(titles) == kept


async def test_a_statement_that_the_engine_refuses_stays_with_its_request(database: Database) -> None:
    async def twice(tx: Tx) -> None:
        for _ in range(2):
            await tx.execute("INSERT INTO accounts (account, created_at) VALUES ($1, $2)", "acme", 1)

    outcomes = await asyncio.gather(
        database.write(sessions.create, ANN, "before"),
        database.write_global(twice),
        database.write(sessions.create, ANN, "after"),
        return_exceptions=True,
    )

    assert isinstance(outcomes[1], Exception)
    assert await database.read_global(titles) == ["after", "before"]


async def test_an_error_inside_a_transaction_may_be_handled_in_it(database: Database) -> None:
    async def work(tx: Tx) -> str:
        try:
            await sessions.get(tx, ANN, "new")
        except NotFound:
            await sessions.create(tx, ANN, "new")
        return "made"

    assert await database.write_global(work) == "made"
    assert await database.read_global(titles) == ["new"]


async def test_a_cancelled_call_harms_nobody(database: Database) -> None:
    calls = [asyncio.create_task(database.write(sessions.create, ANN, f"s{number:03}")) for number in range(50)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()

    outcomes = await asyncio.gather(*calls, return_exceptions=True)

    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::2])
    # A cancelled call may have been written or not, but the others were, and the store goes on.
    assert {f"s{number:03}" for number in range(1, 50, 2)} <= set(await database.read_global(titles))
    assert (await database.write(sessions.create, ANN, "next")).session_id == "next"


async def test_what_was_answered_is_there_after_a_reopen(new_store: NewStore) -> None:
    store = new_store()
    first = store.connect()
    await first.open()
    await asyncio.gather(*(first.write(sessions.create, ANN, f"s{number:03}") for number in range(40)))
    await first.close()

    second = store.connect()
    await second.open()
    try:
        assert await second.read_global(titles) == [f"s{number:03}" for number in range(40)]
    finally:
        await second.close()


async def test_a_read_sees_one_moment(database: Database) -> None:
    """Writes that end while a read is under way are all seen or none, whatever it looks at first."""
    stop = asyncio.Event()

    async def pair(tx: Tx, number: int) -> None:
        await sessions.create(tx, ANN, f"s{number}")
        await sessions.create(tx, BOB, f"s{number}")

    async def count_both(tx: Tx) -> tuple[int, int]:
        return len(await sessions.page(tx, ANN, None, 1000)), len(await sessions.page(tx, BOB, None, 1000))

    async def write_on() -> None:
        for number in range(60):
            await database.write_global(pair, number)
        stop.set()

    writing = asyncio.create_task(write_on())
    seen = []
    while not stop.is_set():
        seen.append(await database.read_global(count_both))
    await writing

    assert seen and all(ann == bob for ann, bob in seen)


async def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises(Exception, match="read"):
        await database.read(sessions.create, ANN, "sneaked")

    assert await database.read_global(titles) == []


async def test_a_closed_store_says_so(new_store: NewStore) -> None:
    database = new_store().connect()
    with pytest.raises(StoreUnavailable):
        await database.write(sessions.create, ANN, "early")
    await database.open()
    await database.close()

    with pytest.raises(StoreUnavailable):
        await database.write(sessions.create, ANN, "late")
    with pytest.raises(StoreUnavailable):
        await database.read_global(titles)
    await database.close()


async def test_a_call_during_the_close_gets_an_answer(new_store: NewStore) -> None:
    database = new_store().connect()
    await database.open()

    closing = asyncio.create_task(database.close())
    calls: list[asyncio.Task[Session]] = []
    while not closing.done():
        calls.append(asyncio.create_task(database.write(sessions.create, ANN, f"s{len(calls)}")))
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

    assert calls
    assert all(isinstance(outcome, (Session, StoreUnavailable)) for outcome in outcomes)


async def test_a_request_id_gives_its_first_answer_again(database: Database, clock: Clock) -> None:
    key = RequestKey("CreateSession", "r1", "body")
    runs: list[Session] = []

    async def work(tx: Tx) -> bytes:
        runs.append(await sessions.create(tx, ANN, f"s{len(runs)}"))
        return str(len(runs)).encode()

    first = await database.write(idempotent_requests.run_once, ANN, key, work)
    again = await database.write(idempotent_requests.run_once, ANN, key, work)
    assert (first, again, len(runs)) == (b"1", b"1", 1)

    # Of another user, of another method, without an id: another request.
    assert await database.write(idempotent_requests.run_once, BOB, key, work) == b"2"
    assert await database.write(idempotent_requests.run_once, ANN, RequestKey("Commit", "r1", "body"), work) == b"3"
    assert await database.write(idempotent_requests.run_once, ANN, None, work) == b"4"

    with pytest.raises(RequestReused):
        await database.write(idempotent_requests.run_once, ANN, RequestKey("CreateSession", "r1", "other body"), work)

    clock.advance(24 * 3600 + 1)
    assert (
        await database.write(idempotent_requests.run_once, ANN, RequestKey("CreateSession", "r1", "other body"), work)
        == b"5"
    )
    assert await database.write_global(idempotent_requests.forget_old) == 2


async def test_a_request_that_failed_may_come_again(database: Database) -> None:
    key = RequestKey("CreateSession", "r1", "body")
    await database.write(sessions.create, ANN, "taken")

    async def fails(tx: Tx) -> bytes:
        await sessions.create(tx, ANN, "taken")
        return b"made"

    async def works(tx: Tx) -> bytes:
        await sessions.create(tx, ANN, "free")
        return b"made"

    with pytest.raises(AlreadyExists):
        await database.write(idempotent_requests.run_once, ANN, key, fails)
    assert await database.write(idempotent_requests.run_once, ANN, key, works) == b"made"
