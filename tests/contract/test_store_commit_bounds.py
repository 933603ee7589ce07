"""Appends that reach a bound of their session commit it, by a clock of the tests, on every driver."""

from typing import Any

import pytest

from schemas.auto_commit import AutoCommit
from schemas.tokens import stored_parts, tokens_of_stored
from server.commits import Made
from storage import auto_commits, jobs, sessions, tasks
from storage.auto_commits import Idle
from storage.database import Database, Space, Tx
from tests.contract.auto_committing import HOUR, idle_at, ranges, update, with_rules, words
from tests.contract.committing import Server
from tests.contract.counted import Statements
from tests.contract.measured import Cost, Measured
from tests.contract.store_fixtures import ANN, BOB, SECOND, Clock, commit, queue
from tests.support.appending import add_messages


async def test_live_tokens_are_those_of_the_live_messages(database: Database) -> None:
    said = words("one", "two is longer", "三")
    await database.write(sessions.create, ANN, "s")
    await database.write(add_messages, ANN, "s", said, {})
    each = [tokens_of_stored(stored_parts(message.parts)) for message in said]
    assert (await database.read(sessions.get, ANN, "s")).live_tokens == sum(each)

    # The same once more adds nothing.
    await database.write(add_messages, ANN, "s", [said[1], *words("four")], {})
    each.append(tokens_of_stored(stored_parts(words("four")[0].parts)))
    assert (await database.read(sessions.get, ANN, "s")).live_tokens == sum(each)

    await commit(database, ANN, "s", "t1", keep_recent=2)
    session = await database.read(sessions.get, ANN, "s")
    assert (session.live_tokens, session.live_count) == (sum(each[2:]), 2)
    await commit(database, ANN, "s", "t2")
    assert (await database.read(sessions.get, ANN, "s")).live_tokens == 0


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
            added = await add_messages(counting, space, "s", words(*said), {})
            assert added.due
            await server.commits.make_by_itself(counting, space, "s", traceparent="")
            return int(counting.number)

        return await database.write(work, ANN)

    assert await statements("a") == await statements("b") == 5


async def test_a_commit_reads_its_session_and_its_backlog_once(database: Database) -> None:
    server = Server(database)
    await with_rules(database, ANN, "s", AutoCommit(message_count=1))

    async def work(tx: Tx, space: Space) -> list[str]:
        noting: Any = Statements(tx)
        await add_messages(noting, space, "s", words("a"), {})
        noting.made.clear()
        done = await server.commits.make_by_itself(noting, space, "s", traceparent="")
        assert isinstance(done, Made) and done.live == 0
        return list(noting.made)

    made = await database.write(work, ANN)
    assert len([sql for sql in made if "FROM sessions" in sql]) == 1
    assert len([sql for sql in made if "COUNT(*)" in sql and "FROM jobs" in sql]) == 1, made


@pytest.mark.parametrize("new_store", ["sqlite"], indirect=True)
async def test_who_is_idle_is_found_by_its_index(database: Database) -> None:
    """Other sessions, however many, are not looked at."""

    async def work(tx: Tx) -> list[str]:
        cost = Cost()
        measured: Any = Measured(tx, cost)
        await auto_commits.due(measured, None, 10)
        await auto_commits.due(measured, Idle(1, ANN, "s"), 10)
        await auto_commits.next_in(measured)
        return cost.plans

    plans = await database.read(work)
    assert len(plans) == 3 and all(plan.startswith("SEARCH sessions USING") for plan in plans)
    assert all("INDEX sessions_idle (idle_at>" in plan for plan in plans), plans


@pytest.mark.parametrize(
    ("rules", "batches", "expected"),
    [
        (AutoCommit(message_count=3), ["a", "b", "c", "d", "e f"], [(1, 3), (4, 6)]),
        (AutoCommit(message_count=3, keep_recent_count=2), ["a", "b", "c", "d"], [(1, 1), (2, 2)]),
        (AutoCommit(message_count=4, keep_recent_count=1), ["a b", "c d e f", "g"], [(1, 5)]),
        (AutoCommit(pending_tokens=1), ["a", "b"], [(1, 1), (2, 2)]),
        (AutoCommit(pending_tokens=1, keep_recent_count=2), ["a", "b", "c"], [(1, 1)]),
        (AutoCommit(), ["a", "b", "c d e f g"], []),
    ],
)
async def test_a_bound_that_is_reached_commits_all_but_what_stays(
    database: Database, rules: AutoCommit, batches: list[str], expected: list[tuple[int, int]]
) -> None:
    server = Server(database)
    await with_rules(database, ANN, "s", rules)
    answers = [await server.append(ANN, "s", *words(*batch.split())) for batch in batches]

    assert await ranges(database, "s") == expected
    made = [done for _, done in answers if done is not None]
    assert [done.answer.archive_uri[-3:] for done in made] == [f"{number:03}" for number in range(1, len(expected) + 1)]
    for done in made:
        assert (await database.read(tasks.get, ANN, done.answer.task_id)).state == "pending"


async def test_tokens_are_counted_to_the_last_one(database: Database) -> None:
    server = Server(database)
    said = words("first", "second", "third")
    bound = sum(tokens_of_stored(stored_parts(message.parts)) for message in said)
    for session_id, pending, times in (("exact", bound, 1), ("over", bound + 1, 0)):
        await with_rules(database, ANN, session_id, AutoCommit(pending_tokens=pending))
        for message in said:
            await server.append(ANN, session_id, message)
        assert len(await ranges(database, session_id)) == times


async def test_a_message_that_is_there_already_commits_nothing(database: Database, clock: Clock) -> None:
    server = Server(database)
    await database.write(sessions.create, ANN, "s")
    await server.append(ANN, "s", *words("a", "b", "c"))
    await database.write(update, ANN, "s", AutoCommit(message_count=2, idle=HOUR * SECOND))
    due_at = await idle_at(database, "s")
    clock.advance(60)

    assert (await server.append(ANN, "s", *words("a", "b")))[1] is None
    assert await idle_at(database, "s") == due_at
    assert (await server.append(ANN, "s", *words("d")))[1] is not None


async def test_a_full_backlog_lets_the_messages_in_and_is_tried_again(database: Database) -> None:
    server = Server(database, max_open_commits_per_user=1)
    await queue(database, ANN, "open")
    await with_rules(database, ANN, "s", AutoCommit(message_count=2))
    await with_rules(database, BOB, "s", AutoCommit(message_count=2))

    assert [(await server.append(ANN, "s", *words(word)))[1] for word in "abc"] == [None] * 3
    assert (await database.read(sessions.get, ANN, "s")).live_count == 3 and await ranges(database, "s") == []
    # It is the user's own backlog.
    assert (await server.append(BOB, "s", *words("a", "b")))[1] is not None

    await database.write(jobs.cancel, ANN, "open", "")
    added, done = await server.append(ANN, "s", *words("d"))
    assert added.live == 4 and done is not None
    assert await ranges(database, "s") == [(1, 4)]


async def test_a_policy_whose_type_is_no_more_lets_the_messages_in(database: Database, clock: Clock) -> None:
    server = Server(database)
    rules = AutoCommit(message_count=1, idle=HOUR * SECOND)
    await database.write(sessions.create, ANN, "s", "", '{"memory_types":["dreams"]}', rules.to_json())
    assert (await server.append(ANN, "s", *words("a")))[1] is None
    clock.advance(HOUR)
    waits = []
    for _ in range(9):
        await server.idle.look()
        waits.append((await idle_at(database, "s") - clock.now) // SECOND)
        clock.advance(waits[-1])
    assert waits == [30, 30, 60, 120, 240, 480, 600, 600, 600] and await ranges(database, "s") == []
