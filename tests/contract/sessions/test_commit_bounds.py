"""Appends that reach a bound of their session commit it, by a clock of the tests, on every driver."""

from typing import Any

from runekeep_schemas.auto_commit_rules import AutoCommit
from runekeep_schemas.policy import UnknownTypeError
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.errors import BacklogFull
from runekeep_storage.jobs import jobs
from runekeep_storage.sessions import commits, idle_commits, sessions
from runekeep_storage.sessions.commits import Commit
from runekeep_storage.sessions.idle_commits import Idle
from tests.support.appending import RULES, add_messages
from tests.support.storage.commits import Server
from tests.support.storage.databases import ANN, BOB, ON_SQLITE, SECOND, Clock, queue, talk
from tests.support.storage.idle_commits import HOUR, idle_at, ranges, with_rules, words
from tests.support.storage.query_costs import Cost, Measured
from tests.support.storage.statements import Statements


async def test_an_append_takes_no_more_statements_than_it_did_without_rules(database: Database) -> None:
    """One for its messages and one for the ids that they brought, two for its session, however many are live."""
    await with_rules(database, ANN, "rules", AutoCommit(10**6, 10**5, HOUR * SECOND, 5))
    await database.write(sessions.create, ANN, "none")

    async def statements(session_id: str, *said: str) -> int:
        async def work(tx: Tx, space: Space) -> int:
            counting: Any = Statements(tx)
            await add_messages(counting, space, session_id, words(*said), {})
            return int(counting.number)

        return await database.write(work, ANN)

    for session_id in ("rules", "none"):
        assert await statements(session_id, "a") == await statements(session_id, "b") == 4
        await statements(session_id, *(f"word {number}" for number in range(50)))
        assert await statements(session_id, "c", "d") == 4


async def test_a_full_backlog_costs_an_append_one_statement(database: Database) -> None:
    """However many messages are live by then."""
    server = Server(database, max_open_commits_per_user=1)
    await queue(database, ANN, "open")
    await with_rules(database, ANN, "s", AutoCommit(message_count=1))

    async def statements(*said: str) -> int:
        async def work(tx: Tx, space: Space) -> int:
            counting: Any = Statements(tx)
            added = await add_messages(counting, space, "s", words(*said), {}, server.commits.rules)
            assert isinstance(added.commit, BacklogFull)
            return int(counting.number)

        return await database.write(work, ANN)

    assert await statements("a") == await statements("b") == 5


async def test_a_commit_reads_its_session_and_its_backlog_once(database: Database) -> None:
    await talk(database, ANN, "s", "a")

    async def work(tx: Tx, space: Space) -> list[str]:
        noting: Any = Statements(tx)
        done = await commits.create_automatic(noting, space, "s", RULES, traceparent="")
        assert isinstance(done, Commit) and done.live == 0
        return list(noting.made)

    made = await database.write(work, ANN)
    assert len([sql for sql in made if "FROM sessions" in sql]) == 1
    assert len([sql for sql in made if "COUNT(*)" in sql and "FROM jobs" in sql]) == 1, made


@ON_SQLITE
async def test_who_is_idle_is_found_by_its_index(database: Database) -> None:
    """Other sessions, however many, are not looked at."""

    async def work(tx: Tx) -> list[str]:
        cost = Cost()
        measured: Any = Measured(tx, cost)
        await idle_commits.due(measured, None, 10)
        await idle_commits.due(measured, Idle(1, ANN, "s"), 10)
        await idle_commits.next_in(measured)
        return cost.plans

    plans = await database.read_global(work)
    assert len(plans) == 3 and all(plan.startswith("SEARCH sessions USING") for plan in plans)
    assert all("INDEX sessions_idle (idle_at>" in plan for plan in plans), plans


async def test_a_full_backlog_lets_the_messages_in_and_is_tried_again(database: Database) -> None:
    server = Server(database, max_open_commits_per_user=1)
    await queue(database, ANN, "open")
    await with_rules(database, ANN, "s", AutoCommit(message_count=2))
    await with_rules(database, BOB, "s", AutoCommit(message_count=2))

    refusals = [(await server.append(ANN, "s", *words(word))).commit for word in "abc"]
    assert [type(one) for one in refusals] == [type(None), BacklogFull, BacklogFull]
    assert (await database.read(sessions.get, ANN, "s")).live_count == 3 and await ranges(database, "s") == []
    # It is the user's own backlog.
    assert isinstance((await server.append(BOB, "s", *words("a", "b"))).commit, Commit)

    await database.write(jobs.cancel, ANN, "open", "")
    added = await server.append(ANN, "s", *words("d"))
    assert added.live == 0 and isinstance(added.commit, Commit)
    assert await ranges(database, "s") == [(1, 4)]


async def test_a_policy_whose_type_is_no_more_lets_the_messages_in(database: Database, clock: Clock) -> None:
    server = Server(database)
    rules = AutoCommit(message_count=1, idle=HOUR * SECOND)
    await database.write(sessions.create, ANN, "s", "", '{"memory_types":["dreams"]}', rules.to_json())
    assert isinstance((await server.append(ANN, "s", *words("a"))).commit, UnknownTypeError)
    clock.advance(HOUR)
    waits = []
    for _ in range(9):
        await server.idle.look()
        waits.append((await idle_at(database, "s") - clock.now) // SECOND)
        clock.advance(waits[-1])
    assert waits == [30, 30, 60, 120, 240, 480, 600, 600, 600] and await ranges(database, "s") == []
