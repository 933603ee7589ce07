"""Sessions that fell silent are committed, by a clock of the tests, on every driver."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from runekeep_schemas.auto_commit_rules import AutoCommit
from runekeep_schemas.policy import UnknownTypeError
from runekeep_server.sessions import auto_commit
from runekeep_server.sessions import commits as server_commits
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.errors import BacklogFull, NotFound
from runekeep_storage.jobs import jobs
from runekeep_storage.sessions import idle_commits, sessions
from runekeep_storage.spaces.space_locks import OpenSpaces, lock
from tests.support.appending import add_messages
from tests.support.storage.commits import POLL, Server
from tests.support.storage.databases import ANN, BOB, CAT, SECOND, Clock, NewStore, commit, queue, talk, text
from tests.support.storage.idle_commits import HOUR, IDLE, erase, idle_at, ranges, update, with_rules, words

pytestmark = pytest.mark.postgres_long


async def test_what_is_updated_is_changed_and_nothing_else(database: Database, clock: Clock) -> None:
    await talk(database, ANN, "s", "one")
    before = await database.read(sessions.get, ANN, "s")
    clock.advance(5)

    async def change(tx: Tx, space: Space) -> None:
        assert (await sessions.update(tx, space, "s", title="Tea")).title == "Tea"
        await sessions.update(tx, space, "s", policy='{"self":{"enabled":false}}')

    await database.write(change, ANN)
    after = await database.read(sessions.get, ANN, "s")
    assert (after.title, after.policy, after.updated_at) == ("Tea", '{"self":{"enabled":false}}', clock.now)
    assert (after.auto_commit, after.live_tokens, after.created_at) == ("", before.live_tokens, before.created_at)
    with pytest.raises(NotFound):
        await database.write(update, BOB, "s", IDLE)


async def test_an_idle_session_is_committed_when_its_time_has_come(database: Database, clock: Clock) -> None:
    server = Server(database)
    await with_rules(database, ANN, "s", IDLE)
    await server.append(ANN, "s", *words("a"))
    clock.advance(HOUR - 10)
    await server.append(ANN, "s", *words("b"))
    clock.advance(HOUR - 1)
    await server.idle.look()
    assert await ranges(database, "s") == [] and server.told == 0

    clock.advance(1)
    await server.idle.look()
    assert await ranges(database, "s") == [(1, 2)] and server.told == 1
    clock.advance(10 * HOUR)
    await server.idle.look()
    assert await ranges(database, "s") == [(1, 2)] and server.told == 1


async def test_a_look_waits_for_the_next_that_is_due_and_never_longer_than_a_poll(
    database: Database, clock: Clock
) -> None:
    server = Server(database)
    assert await server.idle.look() == POLL
    await with_rules(database, ANN, "s", AutoCommit(idle=SECOND))
    await server.append(ANN, "s", *words("a"))
    clock.advance(0.75)
    assert await server.idle.look() == 0.25
    clock.advance(0.25)
    assert await server.idle.look() == POLL
    await with_rules(database, ANN, "late", IDLE)
    await server.append(ANN, "late", *words("a"))
    assert await server.idle.look() == POLL


async def test_the_commit_of_an_idle_session_takes_the_messages_that_commits_before_it_kept(
    database: Database, clock: Clock
) -> None:
    server = Server(database)
    rules = AutoCommit(message_count=5, idle=HOUR * SECOND, keep_recent_count=2)
    await with_rules(database, ANN, "s", rules)
    await server.append(ANN, "s", *words("a"))
    assert await idle_at(database, "s") == clock.now + rules.idle
    await server.append(ANN, "s", *words("b", "c", "d", "e"))
    said_at = clock.now
    assert await ranges(database, "s") == [(1, 3)]
    clock.advance(60)
    await commit(database, ANN, "s", "t1", keep_recent=1)
    assert await idle_at(database, "s") == said_at + rules.idle, "no commit is a sign of life"
    clock.advance(HOUR - 60)
    await server.idle.look()
    assert await ranges(database, "s") == [(1, 3), (4, 4), (5, 5)]
    assert await idle_at(database, "s") == 0

    await server.append(ANN, "s", *words("f"))
    await commit(database, ANN, "s", "t2")
    assert await idle_at(database, "s") == 0, "nothing is live"


async def test_rules_count_from_when_something_was_said(database: Database, clock: Clock) -> None:
    """What is idle for long enough when the rules come is due at once; a change of its title changes nothing."""
    server = Server(database)
    await talk(database, ANN, "s", "one")
    said_at = clock.now
    clock.advance(2 * HOUR)
    await database.write(update, ANN, "s", AutoCommit(idle=5 * HOUR * SECOND))
    assert await idle_at(database, "s") == said_at + 5 * HOUR * SECOND

    async def renamed(tx: Tx, space: Space) -> None:
        await sessions.update(tx, space, "s", title="Tea")

    await database.write(renamed, ANN)
    await database.write(update, ANN, "s", AutoCommit(idle=3 * HOUR * SECOND))
    assert await idle_at(database, "s") == said_at + 3 * HOUR * SECOND
    await database.write(update, ANN, "s", AutoCommit(idle=3 * HOUR * SECOND, keep_recent_count=1))
    assert await idle_at(database, "s") == said_at + 3 * HOUR * SECOND
    await talk(database, ANN, "s", "two")
    await database.write(update, ANN, "s", AutoCommit())
    assert await idle_at(database, "s") == 0

    await talk(database, ANN, "t", "one")
    clock.advance(HOUR)
    await database.write(update, ANN, "t", IDLE)
    await server.idle.look()
    assert await ranges(database, "t") == [(1, 1)] and await ranges(database, "s") == []


async def test_silence_begins_with_the_last_message_and_nothing_else(database: Database, clock: Clock) -> None:
    """Not with a new title, other rules, a message that was there already, a pause, or somebody's own commit."""
    await talk(database, ANN, "s", "one", "two")
    said_at = clock.now
    clock.advance(HOUR)

    async def renamed(tx: Tx, space: Space) -> None:
        await sessions.update(tx, space, "s", title="Tea")

    await database.write(renamed, ANN)
    clock.advance(HOUR)
    await commit(database, ANN, "s", "t1", keep_recent=1)
    clock.advance(HOUR)
    await database.write(add_messages, ANN, "s", [text("m2", "two")], {})
    for rules in (IDLE, AutoCommit(idle=2 * HOUR * SECOND)):
        await database.write(update, ANN, "s", rules)
        assert await idle_at(database, "s") == said_at + rules.idle
        await database.write(idle_commits.put_off, ANN, "s", clock.now + HOUR * SECOND)


async def test_a_look_goes_over_all_accounts_oldest_first_in_slices(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_commit, "SLICE", 2)
    server = Server(database)
    spaces: Sequence[Space] = (CAT, ANN, BOB, ANN, CAT, BOB, ANN)
    for number, space in enumerate(spaces):
        await with_rules(database, space, f"s{number}", IDLE)
        await server.append(space, f"s{number}", *words("a"))
        if number % 3:
            # Some share a moment.
            clock.advance(1)
    clock.advance(HOUR - 2)

    found = await database.read_global(idle_commits.due, None, 100)
    assert [one.idle_at for one in found] == sorted(one.idle_at for one in found)
    assert {one.session_id for one in found} == {"s0", "s1", "s2", "s3", "s4"}

    async def committed() -> list[int]:
        return [len(await ranges(database, f"s{number}", space)) for number, space in enumerate(spaces)]

    await server.idle.look()
    assert await committed() == [1, 1, 1, 1, 1, 0, 0]
    clock.advance(HOUR)
    await server.idle.look()
    assert await committed() == [1] * 7 and server.told == 7


async def test_a_full_backlog_makes_its_user_wait_and_nobody_else(database: Database, clock: Clock) -> None:
    server = Server(database, max_open_commits_per_user=1)
    await queue(database, ANN, "open")
    for space in (ANN, BOB):
        await with_rules(database, space, "s", IDLE)
        await server.append(space, "s", *words("a"))
    clock.advance(HOUR)

    await server.idle.look()
    assert (await ranges(database, "s"), await ranges(database, "s", BOB)) == ([], [(1, 1)])
    await database.write(jobs.cancel, ANN, "open", "")
    await server.idle.look()
    assert await ranges(database, "s") == [], "it is not asked for again at once"
    clock.advance(idle_commits.MIN_PAUSE_US // SECOND)
    await server.idle.look()
    assert await ranges(database, "s") == [(1, 1)]


class _Writes:
    """A store that notes the spaces of its writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.spaces: list[Space] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write(self, work: Any, space: Space, *args: Any) -> Any:
        self.spaces.append(space)
        return await self._database.write(work, space, *args)


async def test_a_full_backlog_costs_a_look_one_write_and_one_line_of_the_log(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many sessions of the user are idle; and the longer it stays, the more seldom."""
    monkeypatch.setattr(auto_commit, "SLICE", 4)
    monkeypatch.setattr(server_commits, "MIN_LOG_INTERVAL_SECONDS", 10**6)
    writes = _Writes(database)
    asked: Any = writes
    server = Server(asked, max_open_commits_per_user=1)
    await queue(database, ANN, "open")
    await with_rules(database, BOB, "b", IDLE)
    await server.append(BOB, "b", *words("a"))
    for number in range(10):
        await with_rules(database, ANN, f"s{number}", IDLE)
        await server.append(ANN, f"s{number}", *words("a"))
        clock.advance(1)
    clock.advance(HOUR - 10)

    waited, lines, first_due = [], 0, clock.now
    while clock.now < first_due + 4 * HOUR * SECOND:
        writes.spaces.clear()
        with capture_logs() as logs:
            await server.idle.look()
        lines += len([line for line in logs if line["event"] == "auto_commit_refused"])
        assert writes.spaces.count(ANN) == 1
        again_at = await idle_at(database, "s0")
        waited.append((again_at - clock.now) // SECOND)
        clock.now = again_at
        # All of them wait for the same moment.
        assert len(await database.read_global(idle_commits.due, None, 100)) == 10
    assert waited[:6] == [30, 30, 60, 120, 240, 480] and set(waited[6:]) == {600}
    assert lines == 1 and await ranges(database, "b", BOB) == [(1, 1)]

    await database.write(jobs.cancel, ANN, "open", "")
    await server.idle.look()
    assert [len(await ranges(database, f"s{number}")) for number in range(10)] == [1] + [0] * 9


async def test_a_refusal_is_told_once_a_while_for_each_user_and_kind(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_commits, "MIN_LOG_INTERVAL_SECONDS", 10**6)
    refused = Server(database).commits.log_refusal
    with capture_logs() as logs:
        for _ in range(3):
            refused(ANN, "s", BacklogFull(7))
            refused(ANN, "t", BacklogFull(8))
            refused(BOB, "s", BacklogFull(7))
            refused(ANN, "s", UnknownTypeError("dreams", ["events"]))
    told = [(line["account"], line["user"], line["session"]) for line in logs]
    assert told == [(ANN.account, "ann", "s"), (BOB.account, "bob", "s"), (ANN.account, "ann", "s")]
    monkeypatch.setattr(server_commits, "MIN_LOG_INTERVAL_SECONDS", 0)
    with capture_logs() as logs:
        refused(ANN, "s", BacklogFull(7))
    assert [line["event"] for line in logs] == ["auto_commit_refused"]


async def test_accounts_are_looked_after_side_by_side(database: Database, clock: Clock) -> None:
    """One whose store is slow to answer keeps no other one waiting."""
    for space in (ANN, CAT):
        await with_rules(database, space, "s", IDLE)
        await Server(database).append(space, "s", *words("a"))
        clock.advance(1)
    clock.advance(HOUR)
    of_cat = asyncio.Event()

    class Slow(_Writes):
        async def write(self, work: Any, space: Space, *args: Any) -> Any:
            if space == ANN:
                await of_cat.wait()
            answer = await super().write(work, space, *args)
            of_cat.set()
            return answer

    slow: Any = Slow(database)
    async with asyncio.timeout(30):
        await Server(slow).idle.look()
    assert await ranges(database, "s") == await ranges(database, "s", CAT) == [(1, 1)]


async def test_what_is_erased_is_never_committed_alone(database: Database, clock: Clock) -> None:
    """Neither by a bound nor when the session is idle; with the next message that says something it goes along."""
    server = Server(database)
    rules = AutoCommit(message_count=4, idle=HOUR * SECOND, keep_recent_count=2)
    await with_rules(database, ANN, "s", rules)
    await server.append(ANN, "s", *words("a", "b", "c"))
    await erase(database, "s", 1, 2, 3)
    clock.advance(HOUR)
    await server.idle.look()
    assert await ranges(database, "s") == [] and await idle_at(database, "s") == 0 and server.told == 0

    assert (await server.append(ANN, "s", *words("d"))).commit is None
    assert await ranges(database, "s") == []
    assert (await server.append(ANN, "s", *words("e"))).commit is None
    assert (await server.append(ANN, "s", *words("f"))).commit is not None
    assert await ranges(database, "s") == [(1, 4)]


async def test_a_session_that_cannot_be_committed_keeps_no_other_one_waiting(database: Database, clock: Clock) -> None:
    server = Server(database)
    await database.write(sessions.create, ANN, "broken", "", "no JSON", IDLE.to_json())
    await with_rules(database, ANN, "sound", IDLE)
    for session_id in ("broken", "sound"):
        await server.append(ANN, session_id, *words("a"))
    clock.advance(HOUR)

    await server.idle.look()
    assert (await ranges(database, "broken"), await ranges(database, "sound")) == ([], [(1, 1)])
    assert await idle_at(database, "broken") == clock.now + idle_commits.MAX_PAUSE_US


async def test_what_is_deleted_or_being_deleted_is_left_alone(database: Database, clock: Clock) -> None:
    server = Server(OpenSpaces(database))
    for space, session_id in ((ANN, "gone"), (BOB, "shut"), (CAT, "s")):
        await with_rules(database, space, session_id, IDLE)
        await server.append(space, session_id, *words("a"))
    await database.write(delete_session, ANN, "gone", "")
    await database.write(lock, BOB)
    clock.advance(HOUR)

    assert await server.idle.look() == POLL, "what cannot be done now is no reason to look at once"
    assert (await ranges(database, "shut", BOB), await ranges(database, "s", CAT)) == ([], [(1, 1)])


async def test_of_many_servers_one_makes_the_commit(new_store: NewStore, clock: Clock) -> None:
    store = new_store()
    first = store.connect()
    await first.open()
    # SQLite has one server alone; its tasks may overlap all the same.
    others = [store.connect() for _ in range(2)] if type(first).__name__ == "PostgresDatabase" else []
    for database in others:
        await database.open()
    servers = [Server(database) for database in (first, *others) for _ in range(3)]
    for number in range(20):
        await with_rules(first, ANN, f"s{number}", IDLE)
        await servers[0].append(ANN, f"s{number}", *words("a", "b"))
    clock.advance(HOUR)

    await asyncio.gather(*(server.idle.look() for server in servers))

    assert sum(server.told for server in servers) == 20
    for number in range(20):
        assert await ranges(first, f"s{number}") == [(1, 2)]
    for database in (first, *others):
        await database.close()


async def test_what_is_said_before_the_commit_is_made_puts_it_off(database: Database, clock: Clock) -> None:
    """The session was read as due, and goes on before its transaction."""
    server = Server(database)
    await with_rules(database, ANN, "s", IDLE)
    await server.append(ANN, "s", *words("a"))
    clock.advance(HOUR)
    (due,) = await database.read_global(idle_commits.due, None, 10)
    await server.append(ANN, "s", *words("b"))

    await server.idle._commit(due)

    assert await ranges(database, "s") == [] and server.told == 0
