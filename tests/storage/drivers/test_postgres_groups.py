"""PostgreSQL: requests that share a transaction without savepoints, and what one that fails does to the others."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import asyncpg
import pytest

from runekeep_common.telemetry import metrics
from runekeep_storage.database import Space, Topic, Tx
from runekeep_storage.drivers.postgres import writer
from runekeep_storage.drivers.postgres.driver import PostgresDatabase
from runekeep_storage.errors import AlreadyExists, SpaceShut, StoreUnavailable
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import space_locks
from runekeep_storage.spaces.space_locks import OpenSpaces
from tests.support.storage.databases import ANN, BOB
from tests.support.storage.postgres_servers import Servers

Work = Callable[[Tx, Space], Awaitable[object]]


class Refused(Exception):
    """What a request of these tests fails with."""


class Watched:
    """Requests of one group: `ran` holds their numbers in the order in which they ran, `commits` what was told with
    each commit."""

    def __init__(self, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
        self._database = database
        self.ran: list[int] = []
        self.commits: list[list[str]] = []
        commit = writer.commit

        async def noted(connection: Any, notices: Iterable[str]) -> None:
            self.commits.append(list(notices))
            await commit(connection, notices)

        monkeypatch.setattr(writer, "commit", noted)

    async def run(self, *works: Work) -> list[Any]:
        """Answers or errors."""
        return await asyncio.gather(
            *(self._database.write(self._numbered(number, work), ANN) for number, work in enumerate(works)),
            return_exceptions=True,
        )

    def _numbered(self, number: int, work: Work) -> Work:
        async def numbered(tx: Tx, space: Space) -> object:
            self.ran.append(number)
            return await work(tx, space)

        return numbered


@pytest.fixture
def watched(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(servers[0], monkeypatch)


def again() -> float:
    return metrics.REGISTRY.get_sample_value("runekeep_store_groups_run_again_total") or 0.0


def create(name: str) -> Work:
    async def creates(tx: Tx, space: Space) -> str:
        tx.notify(Topic.TASK, name)
        return (await sessions.create(tx, space, name)).session_id

    return creates


async def fails_late(tx: Tx, space: Space) -> None:
    tx.notify(Topic.JOBS)
    await sessions.create(tx, space, "failed")
    raise Refused


async def names(database: PostgresDatabase) -> list[str]:
    async def work(tx: Tx) -> list[str]:
        return [row["session_id"] for row in await tx.fetch("SELECT session_id FROM sessions ORDER BY session_id")]

    return await database.read_global(work)


async def test_a_late_failure_takes_no_neighbour_along_and_doubles_nothing(watched: Watched, servers: Servers) -> None:
    async def counts(tx: Tx, space: Space) -> int:
        rows = await tx.fetch(
            "UPDATE spaces SET revision = revision + 1 WHERE account = $1 AND user_id = $2 RETURNING revision",
            space.account,
            space.user,
        )
        return int(rows[0]["revision"])

    before = again()
    outcomes = await watched.run(create("first"), counts, fails_late, counts, create("last"))

    assert outcomes[0] == "first" and outcomes[4] == "last"
    assert (outcomes[1], outcomes[3]) == (1, 2)
    assert isinstance(outcomes[2], Refused)
    # Up to the one that failed, and then all of them; told is what was written, once.
    assert watched.ran == [0, 1, 2, 0, 1, 2, 3, 4]
    assert watched.commits == [["task first", "task last"]]
    assert again() - before == 1
    assert await names(servers[1]) == ["first", "last"]


async def test_two_late_failures_have_their_group_run_twice_and_not_oftener(watched: Watched, servers: Servers) -> None:
    before = again()
    outcomes = await watched.run(fails_late, create("made"), fails_late)

    assert [type(one) for one in outcomes] == [Refused, str, Refused]
    assert watched.ran == [0, 0, 1, 2]
    assert again() - before == 1
    assert await names(servers[1]) == ["made"]


async def test_a_statement_that_postgres_refuses_stays_with_its_request(watched: Watched, servers: Servers) -> None:
    async def reads_nonsense(tx: Tx, space: Space) -> None:
        await tx.fetch("SELECT 1 / (length($1) - length($1))", space.account)

    async def clashes(tx: Tx, space: Space) -> None:
        await tx.execute("INSERT INTO accounts (account, created_at) VALUES ($1, 1)", space.account)

    outcomes = await watched.run(create("first"), reads_nonsense, clashes, create("last"))

    assert isinstance(outcomes[1], asyncpg.DivisionByZeroError)
    assert isinstance(outcomes[2], asyncpg.UniqueViolationError)
    assert outcomes[0] == "first" and outcomes[3] == "last"
    assert watched.ran == [0, 1, 0, 1, 2, 3]
    assert await names(servers[1]) == ["first", "last"]


async def test_a_statement_that_was_cut_short_stays_with_its_request(
    watched: Watched, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds enough for the others, also where the machine is busy."""
    monkeypatch.setattr(writer, "WORK_SECONDS", 3.0)

    async def lingers(tx: Tx, space: Space) -> None:
        await tx.fetch("SELECT pg_sleep(60)")

    outcomes = await watched.run(create("first"), lingers, create("last"))

    assert isinstance(outcomes[1], StoreUnavailable)
    assert outcomes[0] == "first" and outcomes[2] == "last"
    # It is not given its time once more, for which the others would wait.
    assert watched.ran == [0, 1, 0, 2]
    assert await names(servers[1]) == ["first", "last"]


async def test_who_fails_before_it_has_changed_anything_costs_no_second_run(watched: Watched, servers: Servers) -> None:
    async def at_once(tx: Tx, space: Space) -> None:
        raise Refused

    async def after_a_look(tx: Tx, space: Space) -> None:
        await sessions.get(tx, space, "first")
        raise Refused

    async def after_changes_of_no_row(tx: Tx, space: Space) -> None:
        ours = "WHERE account = $1 AND user_id = $2 AND session_id = 'nobody'"
        assert await tx.execute(f"DELETE FROM sessions {ours}", space.account, space.user) == 0
        for ask in (tx.fetch, tx.fetchrow):
            await ask(f"UPDATE sessions SET title = '' {ours} RETURNING title", space.account, space.user)
        await sessions.create(tx, space, "taken")

    before = again()
    outcomes = await watched.run(create("first"), create("taken"), at_once, after_a_look, create("taken"), create("x"))
    assert [type(one) for one in outcomes] == [str, str, Refused, Refused, AlreadyExists, str]
    assert watched.ran == [0, 1, 2, 3, 4, 5]

    watched.ran.clear()
    outcomes = await watched.run(create("second"), after_changes_of_no_row, create("third"))
    assert [type(one) for one in outcomes] == [str, AlreadyExists, str]
    assert watched.ran == [0, 1, 2]

    assert again() == before
    # What failed tells nothing either.
    assert watched.commits == [["task first", "task taken", "task x"], ["task second", "task third"]]
    assert await names(servers[1]) == ["first", "second", "taken", "third", "x"]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE spaces SET revision = 7 WHERE account = $1 RETURNING revision",
        "UPDATE spaces SET revision = 7 WHERE account = $1",
    ],
    ids=["returning", "silent"],
)
@pytest.mark.parametrize("by", ["fetch", "fetchrow", "execute"])
async def test_whatever_way_it_was_changed_a_late_failure_changes_it_back(
    watched: Watched, servers: Servers, by: str, sql: str
) -> None:
    async def changes(tx: Tx, space: Space) -> None:
        await getattr(tx, by)(sql, space.account)
        raise Refused

    async def revision(tx: Tx) -> int:
        row = await tx.fetchrow("SELECT revision FROM spaces")
        return int(row["revision"]) if row else -1

    outcomes = await watched.run(create("first"), changes)

    assert isinstance(outcomes[1], Refused)
    assert await servers[1].read_global(revision) == 0


async def swallows(tx: Tx, space: Space) -> None:
    await sessions.create(tx, space, "swallowed")
    with pytest.raises(asyncpg.PostgresError):
        await tx.fetch("SELECT nothing FROM nowhere")


async def test_an_error_that_is_swallowed_behind_the_others_takes_none_of_them(
    watched: Watched, servers: Servers
) -> None:
    """Nobody asks PostgreSQL anything afterwards but the commit."""
    outcomes = await watched.run(create("first"), swallows)

    assert outcomes[0] == "first"
    assert isinstance(outcomes[1], RuntimeError) and "swallowed an error" in str(outcomes[1])
    assert await names(servers[1]) == ["first"]


async def test_one_that_is_alone_runs_once_whatever_becomes_of_it(watched: Watched, servers: Servers) -> None:
    before = again()
    outcomes = [*await watched.run(fails_late), *await watched.run(swallows), *await watched.run(create("made"))]

    assert isinstance(outcomes[0], Refused)
    assert isinstance(outcomes[1], RuntimeError) and "swallowed an error" in str(outcomes[1])
    assert outcomes[2] == "made"
    assert watched.ran == [0, 0, 0]
    assert again() == before
    assert await names(servers[1]) == ["made"]


async def test_an_error_that_never_reached_postgres_may_be_handled(watched: Watched, servers: Servers) -> None:
    async def careless(tx: Tx, space: Space) -> str:
        await sessions.create(tx, space, "careless")
        with pytest.raises(asyncpg.DataError):
            await tx.fetch("SELECT CAST($1 AS BIGINT)", "no number")
        return "fine"

    assert await watched.run(create("first"), careless, create("last")) == ["first", "fine", "last"]
    assert watched.ran == [0, 1, 2]
    assert await names(servers[1]) == ["careless", "first", "last"]


async def under_way(watched: Watched) -> tuple[asyncio.Task[list[Any]], asyncio.Event]:
    """A group that waits in the middle of a request until it is told to go on."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def lingers(tx: Tx, space: Space) -> None:
        begun.set()
        await go_on.wait()

    lingering = asyncio.create_task(watched.run(lingers))
    async with asyncio.timeout(30):
        await begun.wait()
    return lingering, go_on


async def test_what_comes_while_a_group_runs_joins_it(watched: Watched, servers: Servers) -> None:
    lingering, go_on = await under_way(watched)
    joining = asyncio.create_task(watched.run(create("joins"), create("joins too")))
    # Both ask at the first step of their own tasks.
    for _ in range(3):
        await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(lingering, joining)

    assert len(watched.commits) == 1
    assert await names(servers[1]) == ["joins", "joins too"]


async def test_a_group_is_joined_up_to_its_limit(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first of it would have no answer for as long as others come."""
    monkeypatch.setattr(writer, "GROUP_LIMIT", 2)
    lingering, go_on = await under_way(watched)
    coming = asyncio.create_task(watched.run(*(create(name) for name in ("first", "second", "third"))))
    for _ in range(3):
        await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(lingering, coming)

    assert watched.commits[0] == ["task first"]


async def test_what_comes_while_the_store_is_held_waits_for_a_lane_of_its_own(
    watched: Watched, servers: Servers
) -> None:
    """Else accounts that could write side by side would write one after the other."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def lingers(tx: Tx) -> None:
        begun.set()
        await go_on.wait()

    lingering = asyncio.create_task(servers[0].write_global(lingers))
    async with asyncio.timeout(30):
        await begun.wait()
    creating = []
    for name in ("behind", "later"):
        creating.append(asyncio.create_task(watched.run(create(name))))
        for _ in range(3):
            await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(lingering, *creating)

    assert watched.commits == [[], ["task behind", "task later"]]


async def test_a_group_that_runs_again_tells_of_shut_spaces_what_came_to_be(servers: Servers) -> None:
    """Of the first run nothing counts, nor of requests that fail."""
    here = servers[0]
    callers = OpenSpaces(here)

    async def shuts_and_fails(tx: Tx, space: Space) -> None:
        await space_locks.lock(tx, space)
        raise Refused

    outcomes = await asyncio.gather(
        here.write(shuts_and_fails, BOB),
        callers.write(sessions.create, BOB, "stays open"),
        here.write(space_locks.lock, ANN),
        callers.write(sessions.create, ANN, "refused"),
        return_exceptions=True,
    )

    assert [type(one).__name__ for one in outcomes] == ["Refused", "Session", "NoneType", SpaceShut.__name__]
    assert await names(servers[1]) == ["stays open"]
