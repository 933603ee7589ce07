"""PostgreSQL: the lanes in which writes run, what holds them up, and the lock of those who fill an index."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from runekeep_storage.database import Database, Space, Topic, Tx
from runekeep_storage.drivers.postgres import driver, kept_connections, writer
from runekeep_storage.drivers.postgres.driver import PostgresDatabase
from runekeep_storage.drivers.postgres.transaction import LOCKS, SETTINGS, unreachable
from runekeep_storage.errors import AlreadyExists, IndexHeld, StoreUnavailable
from runekeep_storage.jobs import claiming
from runekeep_storage.sessions import sessions
from tests.support.cutting_proxy import CuttingProxy
from tests.support.postgres import PostgresServer
from tests.support.storage.databases import ANN, BOB, CAT, TERMS
from tests.support.storage.postgres_servers import Servers


async def names(database: Database) -> list[str]:
    """Sessions of all users."""

    async def work(tx: Tx) -> list[str]:
        return [row["session_id"] for row in await tx.fetch("SELECT session_id FROM sessions ORDER BY session_id")]

    return await database.read_global(work)


class Held:
    """A transaction that is open until it is told to go on."""

    def __init__(self, write: Callable[..., Awaitable[object]], *space: Space) -> None:
        self._begun = asyncio.Event()
        self._go_on = asyncio.Event()
        self.task = asyncio.ensure_future(write(self._work, *space))

    async def _work(self, tx: Tx, *space: Space) -> None:
        for one in space:
            await sessions.create(tx, one, "held")
        self._begun.set()
        await self._go_on.wait()

    async def __aenter__(self) -> "Held":
        async with asyncio.timeout(30):
            await self._begun.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._go_on.set()
        await self.task


async def waiting(database: Database, count: int) -> None:
    """Returns when that many transactions wait for a lock."""

    async def work(tx: Tx) -> int:
        rows = await tx.fetch(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return len(rows)

    async with asyncio.timeout(30):
        while True:
            if await database.read_global(work) == count:
                return
            await asyncio.sleep(0.01)


async def test_accounts_write_side_by_side_and_claims_wait_for_them(servers: Servers) -> None:
    here, there = servers
    async with Held(here.write, ANN):
        await there.write(sessions.create, CAT, "cat")
        bob = asyncio.create_task(there.write(sessions.create, BOB, "bob"))
        await waiting(here, 1)
        claim = asyncio.create_task(there.write_global(claiming.claim, "w", TERMS))
        await waiting(here, 2)
        # Another account again, which now waits behind the claim: a claim is not passed by for ever.
        behind = asyncio.create_task(here.write(sessions.create, CAT, "behind"))
        await waiting(here, 3)
        assert await names(there) == ["cat"]
    assert (await bob).session_id == "bob"
    assert await claim is None
    await behind
    assert await names(here) == ["behind", "bob", "cat", "held"]


async def test_what_waits_together_is_committed_together(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = 0
    commit = writer.commit

    async def counted(*args: Any) -> None:
        nonlocal commits
        commits += 1
        await commit(*args)

    here, there = servers
    async with Held(there.write_global):
        claim = asyncio.create_task(here.write_global(claiming.claim, "w", TERMS))
        first = [asyncio.create_task(here.write(sessions.create, ANN, f"s{number}")) for number in range(20)]
        await waiting(there, 2)
        later = [asyncio.create_task(here.write(sessions.create, BOB, f"s{number}")) for number in range(20)]
        await asyncio.sleep(0)
        monkeypatch.setattr(writer, "commit", counted)
    await asyncio.gather(claim, *first, *later)

    # The one that was held, the claim, and the account's first: those that came later joined one of the two.
    assert commits == 3
    assert len(await names(there)) == 40


async def test_an_error_in_a_group_stays_with_its_request(servers: Servers) -> None:
    async def swallows(tx: Tx, space: Space) -> str:
        await sessions.create(tx, space, "swallowed")
        try:
            await tx.execute("INSERT INTO nothing_of_that_name (account) VALUES ($1)", space.account)
        except asyncpg.PostgresError:
            return "fine"
        raise AssertionError

    async def notifies_and_fails(tx: Tx, space: Space) -> None:
        tx.notify(Topic.JOBS)
        await sessions.create(tx, space, "failed")
        raise AlreadyExists("session", "failed")

    outcomes = await asyncio.gather(
        servers[0].write(sessions.create, ANN, "first"),
        servers[0].write(swallows, ANN),
        servers[0].write(notifies_and_fails, ANN),
        servers[0].write(sessions.create, ANN, "last"),
        return_exceptions=True,
    )

    assert isinstance(outcomes[1], RuntimeError) and "not written" in str(outcomes[1])
    assert isinstance(outcomes[2], AlreadyExists)
    assert await names(servers[1]) == ["first", "last"]


async def test_a_transaction_of_one_account_changes_no_other(servers: Servers) -> None:
    async def strays(tx: Tx, space: Space) -> None:
        await sessions.create(tx, Space("elsewhere", space.user), "stray")

    with pytest.raises(RuntimeError, match="rows of another"):
        await servers[0].write(strays, ANN)

    assert await names(servers[0]) == []


async def test_a_group_that_is_refused_runs_anew_and_each_request_counts_once(servers: Servers) -> None:
    runs = 0

    async def deadlocked_once(tx: Tx, space: Space) -> None:
        nonlocal runs
        runs += 1
        await sessions.create(tx, space, f"run{runs}")
        if runs == 1:
            raise asyncpg.DeadlockDetectedError("deadlock detected")

    await asyncio.gather(
        servers[0].write(sessions.create, ANN, "before"),
        servers[0].write(deadlocked_once, ANN),
        servers[0].write(sessions.create, ANN, "after"),
    )

    assert runs == 2
    assert await names(servers[0]) == ["after", "before", "run2"]


async def test_a_group_that_is_refused_for_ever_is_given_up(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.05)

    async def deadlocked(tx: Tx, space: Space) -> None:
        raise asyncpg.DeadlockDetectedError("deadlock detected")

    with pytest.raises(StoreUnavailable, match="refused the transaction"):
        await servers[0].write(deadlocked, ANN)

    await servers[0].write(sessions.create, ANN, "next")


async def test_a_connection_that_breaks_tells_everybody_in_the_group(url: str) -> None:
    async with CuttingProxy(url) as proxy:
        database = PostgresDatabase(proxy.url)
        await database.open()
        proxy.cut_after(b"INSERT INTO sessions")

        calls = (database.write(sessions.create, ANN, f"s{number}") for number in range(5))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
        assert await names(database) == []
        await database.write(sessions.create, ANN, "s")
        await database.close()


async def test_a_connection_of_unknown_state_is_given_up(url: str) -> None:
    """PostgreSQL may say farewell between two statements; asyncpg then trips over its own state."""
    connection = await asyncpg.connect(url)
    with pytest.raises(StoreUnavailable), unreachable("a statement failed", connection):
        raise asyncpg.InternalClientError("cannot switch to state 12")
    with pytest.raises((asyncpg.InterfaceError, asyncpg.PostgresConnectionError)):
        await connection.execute("SELECT 1")


async def test_a_server_that_hangs_in_a_transaction_holds_the_others_up_for_seconds(servers: Servers, url: str) -> None:
    hanging = await asyncpg.connect(url, server_settings=SETTINGS)
    await hanging.execute(f"BEGIN;SELECT pg_advisory_xact_lock({LOCKS}, 0)")

    # Less than a statement may take, or this would fail.
    await servers[0].write(sessions.create, ANN, "s")

    assert hanging.is_closed()


async def test_a_wait_for_the_locks_ends(servers: Servers, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "COMMAND_SECONDS", 0.2)
    impatient = PostgresDatabase(url)
    await impatient.open()
    async with Held(servers[0].write_global):
        with pytest.raises(StoreUnavailable, match="no transaction"):
            await impatient.write(sessions.create, ANN, "late")

    monkeypatch.undo()
    # Given up is given up: nothing of it comes later.
    await servers[0].write(sessions.create, ANN, "next")
    assert await names(servers[0]) == ["next"]
    await impatient.close()


async def test_a_transaction_that_waits_for_something_else_is_given_up(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Enough for the other one, also where the machine is busy.
    monkeypatch.setattr(writer, "WORK_SECONDS", 1.5)

    async def waits(tx: Tx, space: Space) -> None:
        await sessions.create(tx, space, "waiting")
        await asyncio.Event().wait()

    outcomes = await asyncio.gather(
        servers[0].write(waits, ANN), servers[0].write(sessions.create, ANN, "s"), return_exceptions=True
    )

    assert isinstance(outcomes[0], StoreUnavailable)
    assert await names(servers[0]) == ["s"]


async def test_reads_wait_for_a_connection_but_not_for_ever(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = PostgresDatabase(url, readers=3)
    await database.open()
    begun: list[int] = []
    full = asyncio.Event()
    go_on = asyncio.Event()

    async def lingers(tx: Tx, number: int) -> int:
        begun.append(number)
        if len(begun) == 2:
            full.set()
        await go_on.wait()
        return number

    calls = [asyncio.create_task(database.read_global(lingers, number)) for number in range(6)]
    # Writes have connections of their own.
    await database.write(sessions.create, ANN, "s")
    async with asyncio.timeout(30):
        await full.wait()
    monkeypatch.setattr(driver, "COMMAND_SECONDS", 0.05)
    with pytest.raises(StoreUnavailable, match="no connection"):
        await names(database)
    monkeypatch.undo()
    go_on.set()
    assert await asyncio.gather(*calls) == list(range(6))
    assert await names(database) == ["s"]
    await database.close()


async def test_a_cancelled_call_is_not_begun_or_done_to_its_end(servers: Servers) -> None:
    async with Held(servers[0].write, ANN) as held:
        waiting = asyncio.create_task(servers[0].write(sessions.create, ANN, "waiting"))
        await asyncio.sleep(0)
        waiting.cancel()
        held.task.cancel()
        await asyncio.wait([waiting, held.task])
        held.task = asyncio.ensure_future(asyncio.sleep(0))
    # Waits for what still runs.
    await servers[0].close()

    assert await names(servers[1]) == ["held"]


async def test_servers_of_one_index_share_and_one_with_its_own_is_alone(
    servers: Servers, url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_shut_out(server: PostgresDatabase, *, alone: bool) -> None:
        with monkeypatch.context() as short, pytest.raises(IndexHeld, match="RUNEKEEP_INDEX_URL"):
            short.setattr(kept_connections, "LOCK_SECONDS", 1.5)
            await server.hold_index(alone=alone)

    await servers[0].hold_index(alone=False)
    await servers[1].hold_index(alone=False)
    third = PostgresDatabase(url)
    await third.open()
    await is_shut_out(third, alone=True)

    for server in servers:
        await server.close()
    await third.hold_index(alone=True)
    fourth = PostgresDatabase(url)
    await fourth.open()
    for alone in (True, False):
        await is_shut_out(fourth, alone=alone)

    # A lock whose connection is lost is taken again.
    holders = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND objid = 4294967295"
    name = url.rpartition("/")[2]
    before = postgres_server.sql(holders, name)
    assert before.isdigit()
    postgres_server.sql(f"SELECT pg_terminate_backend({before})", name)
    async with asyncio.timeout(30):
        while True:
            if postgres_server.sql(holders, name) not in ("", before):
                break
            await asyncio.sleep(0.05)
    await is_shut_out(fourth, alone=True)
    await third.close()
    await fourth.hold_index(alone=True)
    await fourth.close()
