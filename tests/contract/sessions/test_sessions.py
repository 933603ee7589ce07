"""Sessions, messages, usages and archives, on every driver."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from runekeep_storage.database import Database, Row, Space, Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.errors import AlreadyExists, BacklogFull, LeaseLost, NotFound
from runekeep_storage.indexing import passages
from runekeep_storage.indexing.points import passage_point
from runekeep_storage.jobs import jobs, tasks
from runekeep_storage.memories.apply import apply
from runekeep_storage.records import Message, Passage, Session, Usage
from runekeep_storage.search import backlog
from runekeep_storage.sessions import archives, commits, sessions, tool_calls
from tests.support.appending import add_messages
from tests.support.storage.commits import Server
from tests.support.storage.databases import ANN, BOB, CAT, SECOND, Clock, claim, commit, prepared, queue, talk, text

TABLES = ("sessions", "messages", "tool_outputs", "usages", "archives", "passages")


async def said(database: Database, session_id: str, space: Space = ANN) -> list[tuple[int, str, str]]:
    found = await database.read(sessions.messages_between, space, session_id, 0, 10**9)
    return [(message.sequence, message.message_id, message.parts[0]["text"]) for message in found]


async def test_a_session_is_made_once(database: Database, clock: Clock) -> None:
    made = await database.write(sessions.create, ANN, "s", "Tea", '{"self":{"enabled":true}}')

    assert made == Session("s", "Tea", '{"self":{"enabled":true}}', 0, 0, 0, clock.now, clock.now)
    with pytest.raises(AlreadyExists):
        await database.write(sessions.create, ANN, "s")
    assert await database.write(sessions.get_or_create, ANN, "s") == (made, False)
    assert (await database.write(sessions.get_or_create, BOB, "s"))[1]


async def test_a_message_comes_back_as_it_was_said(database: Database, clock: Clock) -> None:
    parts = (
        {"type": "text", "text": "line\u2028separator, \x00 nul, \U0001f375, <!-- MEMORY_FIELDS {} -->"},
        {"type": "tool", "tool_id": "t1", "tool_name": "search", "input": {"q": [1, 2.5, None, True]}, "output": ""},
    )
    message = Message("m1", "assistant", parts, "peer-1", "turn-1", "Ann", 5 * SECOND)
    await database.write(sessions.create, ANN, "s")

    added = await database.write(add_messages, ANN, "s", [message, text("m2", "later")], {})

    assert added.live == 2
    assert added.messages[0] == replace(message, sequence=1)
    assert added.messages[1].created_at == clock.now
    assert await database.read(sessions.messages_between, ANN, "s", 1, 2) == added.messages


async def test_the_same_message_again_is_harmless(database: Database, clock: Clock) -> None:
    first = await talk(database, ANN, "s", "one", "two")
    clock.advance(60)

    again = [text("m2", "two"), text("m1", "one"), text("m3", "three"), text("m3", "three")]
    added = await database.write(add_messages, ANN, "s", again, {})

    assert added.live == 3
    assert [message.sequence for message in added.messages] == [2, 1, 3, 3]
    assert added.messages[1] == first[0]
    assert await said(database, "s") == [(1, "m1", "one"), (2, "m2", "two"), (3, "m3", "three")]


@pytest.mark.parametrize(
    "other", [text("m1", "ONE"), text("m1", "one", role="assistant"), text("m1", "one", peer_id="peer-1")]
)
async def test_another_message_of_the_same_id_stops_its_batch(database: Database, other: Message) -> None:
    await talk(database, ANN, "s", "one")

    with pytest.raises(AlreadyExists):
        await database.write(add_messages, ANN, "s", [text("m2", "two"), other], {"t1": ("blob", 7)})

    assert await said(database, "s") == [(1, "m1", "one")]
    assert await database.read(sessions.tool_ids, ANN, "s") == []
    assert (await database.read(sessions.get, ANN, "s")).last_sequence == 1


async def test_nothing_is_added_to_a_session_that_is_not_there(database: Database) -> None:
    await database.write(sessions.create, BOB, "s")
    for call in (
        database.write(add_messages, ANN, "s", [text("m1", "one")], {}),
        database.write(sessions.record_usage, ANN, "s", [Usage("context", "viking://user/ann/memories/a.md")]),
        database.write(delete_session, ANN, "s", ""),
        database.read(archives.page, ANN, "s", 100, 10),
        database.read(archives.to_archive, ANN, "s", 0),
        database.read(archives.get, BOB, "s", 1),
    ):
        with pytest.raises(NotFound):
            await call


async def test_outputs_of_tools_that_are_kept_apart(database: Database) -> None:
    await talk(database, ANN, "s", "one")
    await database.write(add_messages, ANN, "s", [text("m2", "two")], {"t2": ("b", 30_000), "t1": ("a", 20_001)})

    assert await database.read(sessions.tool_output, ANN, "s", "t2") == ("b", 30_000)
    assert await database.read(sessions.tool_ids, ANN, "s") == ["t1", "t2"]
    assert await database.read(sessions.tool_output, ANN, "s", "t3") is None
    assert await database.read(sessions.tool_output, BOB, "s", "t2") is None


async def test_pages_of_sessions_miss_and_repeat_nothing(database: Database, clock: Clock) -> None:
    for number in range(25):
        # Several sessions share a moment, so that the page ends within one.
        if number % 4 == 0:
            clock.advance(1)
        await talk(database, ANN, f"s{number:02}", "hi")
    await talk(database, BOB, "not-hers", "hi")

    seen: list[Session] = []
    after = None
    while found := await database.read(sessions.page, ANN, after, 7):
        seen += found
        after = (found[-1].updated_at, found[-1].session_id)

    assert sorted(session.session_id for session in seen) == [f"s{number:02}" for number in range(25)]
    assert [session.updated_at for session in seen] == sorted((s.updated_at for s in seen), reverse=True)

    clock.advance(1)
    await talk(database, ANN, "s07", "again")
    assert (await database.read(sessions.page, ANN, None, 1))[0].session_id == "s07"


async def test_calls_of_messages_that_a_release_before_wrote_are_found_in_their_parts(database: Database) -> None:
    def call(id: str) -> Message:
        part = {"type": "tool", "tool_id": id, "tool_name": "x", "output": "", "status": "completed"}
        return Message(f"of {id}", "assistant", (part,))

    await database.write(sessions.create, ANN, "s")
    await database.write(add_messages, ANN, "s", [call("c1"), call("c_2"), call("c1x")], {})
    for unknown in ("message_id = 'of c_2'", "1 = 1"):
        assert await database.read(tool_calls.names, ANN, "s") == ["c1", "c1x", "c_2"]
        for name in ("c1", "c_2", "c1x"):
            found = await database.read(tool_calls.newest, ANN, "s", name)
            assert found is not None and found[0].message_id == f"of {name}"
        assert await database.read(tool_calls.newest, ANN, "s", "cx2") is None
        await database.write_global(_forget, unknown)
    assert await database.read(tool_calls.names, ANN, "s") == ["c1", "c1x", "c_2"]
    assert await database.read(tool_calls.has_calls, ANN, "s")
    # A word that looks like a call.
    await talk(database, ANN, "other", *["tool"] * 9)
    await database.write_global(_forget, "1 = 1")
    assert not await database.read(tool_calls.has_calls, ANN, "other")


@pytest.mark.parametrize("known", [True, False])
async def test_no_more_than_one_of_many_large_records_of_a_call_is_read(database: Database, known: bool) -> None:
    """A page of them would be hundreds of megabytes."""
    await database.write(sessions.create, ANN, "s")
    for number in range(8):
        part = {"type": "tool", "tool_id": "c", "tool_name": "x", "output": "o" * 3_000_000, "status": "completed"}
        await database.write(add_messages, ANN, "s", [Message(f"m{number}", "assistant", (part,))], {})
    if not known:
        await database.write_global(_forget, "1 = 1")

    async def widest(tx: Tx, name: str) -> tuple[str, int]:
        most = 0

        class Counted:
            def __getattr__(self, name: str) -> Any:
                return getattr(tx, name)

            async def fetch(self, *args: Any) -> list[Row]:
                nonlocal most
                rows = await tx.fetch(*args)
                most = max(most, sum(len(str(value)) for row in rows for value in dict(row).values()))
                return rows

        found = await tool_calls.newest(cast(Tx, Counted()), ANN, "s", name)
        assert await tool_calls.names(cast(Tx, Counted()), ANN, "s") == ["c"]
        return found[0].message_id if found else "", most

    message_id, most = await database.read_global(widest, "c")
    assert message_id == "m7" and most < 4_000_000
    assert (await database.read_global(widest, "d"))[0] == ""
    assert await database.read(tool_calls.newest, ANN, "s", "%") is None


async def test_sqlite_finds_calls_without_reading_the_messages_between(tmp_path: Path) -> None:
    """By the index; tests/storage/drivers/test_postgres_plans.py shows the same on PostgreSQL."""
    database = SqliteDatabase(tmp_path / "runekeep.db")
    await database.open()

    async def plan(tx: Tx) -> str:
        found = ""

        class Explained:
            async def fetch(self, statement: str, *args: Any) -> list[Row]:
                nonlocal found
                found = str([dict(row) for row in await tx.fetch(f"EXPLAIN QUERY PLAN {statement}", *args)])
                return []

        await tool_calls.has_calls(cast(Tx, Explained()), ANN, "s")
        return found

    found = await database.read_global(plan)
    assert "messages_with_calls" in found and "B-TREE" not in found
    await database.close()


async def _forget(tx: Tx, which: str) -> None:
    await tx.execute(f"UPDATE messages SET calls = NULL WHERE user_id = $1 AND {which}", ANN.user)


async def test_a_commit_takes_all_but_the_recent_messages(database: Database) -> None:
    await talk(database, ANN, "s", *(f"word {number}" for number in range(1, 8)))

    assert await commit(database, ANN, "s", "t1", keep_recent=3) == 1

    archive = await database.read(archives.get, ANN, "s", 1)
    assert (archive.first_sequence, archive.last_sequence, archive.state, archive.task_id) == (1, 4, "pending", "t1")
    session = await database.read(sessions.get, ANN, "s")
    assert (session.compression_index, session.archived_sequence, session.live_count) == (1, 4, 3)
    assert await database.read(archives.to_archive, ANN, "s", 3) is None
    assert await database.read(archives.to_archive, ANN, "s", 10) is None
    batch = await database.read(archives.to_archive, ANN, "s", 0)
    assert batch is not None
    assert (batch.session, batch.first, batch.last, batch.peers, batch.stay) == (session, 5, 7, [], 0)

    await talk(database, ANN, "s", "word 8")
    assert await commit(database, ANN, "s", "t2") == 2
    assert [one.index for one in await database.read(archives.page, ANN, "s", 2**31, 10)] == [2, 1]
    assert [one.index for one in await database.read(archives.page, ANN, "s", 2, 10)] == [1]
    task = await database.read(tasks.get, ANN, "t2")
    assert (task.state, task.session_id, task.archive_index) == ("pending", "s", 2)


async def test_too_many_open_commits_archive_nothing(database: Database) -> None:
    await queue(database, ANN, "t1")
    await queue(database, ANN, "t2")
    await talk(database, ANN, "s", "kept")
    before = await database.read(sessions.get, ANN, "s")

    server = Server(database, max_open_commits_per_user=2)

    async def third(tx: Tx) -> None:
        await commits.create(tx, ANN, "s", server.commits.rules, keep_recent=0, traceparent="")

    with pytest.raises(BacklogFull) as refused:
        await database.write_global(third)
    assert refused.value.open_tasks == 2
    assert await database.read(sessions.get, ANN, "s") == before

    await database.write(jobs.cancel, ANN, "t1", "")
    await database.write_global(third)
    assert (await database.read(sessions.get, ANN, "s")).compression_index == 1


async def test_usages_go_with_the_next_commit(database: Database) -> None:
    await talk(database, ANN, "s", "one")
    context, skill = Usage("context", "viking://user/ann/memories/a.md"), Usage("skill", "x", {"success": False})

    assert await database.write(sessions.record_usage, ANN, "s", [context, skill]) == (1, 1)
    assert await database.write(sessions.record_usage, ANN, "s", [context]) == (2, 1)
    await commit(database, ANN, "s", "t1")

    assert (await database.read(sessions.usages_page, ANN, "s", 1, 0, 100, 2**40))[0] == [context, skill, context]
    assert (await database.read(sessions.usages_page, ANN, "s", 0, 0, 100, 2**40))[0] == []
    assert await database.write(sessions.record_usage, ANN, "s", [skill]) == (0, 1)
    assert len((await database.read(sessions.usages_page, ANN, "s", 1, 0, 100, 2**40))[0]) == 3


async def test_the_views_of_a_session_are_those_of_its_newest_finished_archive(database: Database) -> None:
    await talk(database, ANN, "s", "one")
    await commit(database, ANN, "s", "t1")
    await talk(database, ANN, "s", "two")
    await commit(database, ANN, "s", "t2")
    await talk(database, ANN, "s", "three")
    await commit(database, ANN, "s", "t3")
    assert (await database.read(sessions.get, ANN, "s")).overview == ""

    for number in (1, 2):
        job = await claim(database)
        summary = replace(prepared(job.lease), abstract=f"abstract {number}", overview=f"overview {number}")
        await database.write(apply, ANN, summary)
        session = await database.read(sessions.get, ANN, "s")
        assert (session.abstract, session.overview) == (f"abstract {number}", f"overview {number}")

    await database.write(jobs.cancel, ANN, "t3", "")
    assert (await database.read(sessions.page, ANN, None, 1))[0].overview == "overview 2"
    assert (await database.read(archives.get, ANN, "s", 3)).state == "failed"


async def rows_of(tx: Tx, session_id: str) -> dict[str, int]:
    counts = {}
    for table in TABLES:
        row = await tx.fetchrow(f"SELECT COUNT(*) AS n FROM {table} WHERE session_id = $1", session_id)
        assert row is not None
        counts[table] = row["n"]
    return counts


async def full_session(database: Database) -> None:
    """A session with a finished archive, one that is worked on, one that waits, and something live."""
    for task_id in ("t1", "t2", "t3"):
        await talk(database, ANN, "s", f"before {task_id}")
        await commit(database, ANN, "s", task_id)
    await database.write(apply, ANN, prepared((await claim(database)).lease))
    archive, *_ = await database.read(passages.waiting, ANN)
    (passage,) = passages.of_messages(archive, await database.read(sessions.messages_between, ANN, "s", 1, 1))
    await database.write(passages.store, ANN, "", archive, [(passage, None, b"")], "", whole=True)
    await database.write(add_messages, ANN, "s", [text("live", "now")], {"tool": ("blob", 1)})
    await database.write(sessions.record_usage, ANN, "s", [Usage("context", "a")])


async def test_a_deleted_session_leaves_nothing_and_its_worker_is_refused(database: Database) -> None:
    await full_session(database)
    await queue(database, ANN, "t4")
    leased = await claim(database)
    assert leased.job_id == "t2"
    assert all((await database.read_global(rows_of, "s")).values())

    await database.write(delete_session, ANN, "s", "")

    assert not any((await database.read_global(rows_of, "s")).values())
    with pytest.raises(LeaseLost):
        await database.write(apply, ANN, prepared(leased.lease))
    states = [(await database.read(tasks.get, ANN, task)).state for task in ("t1", "t2", "t3", "t4")]
    assert states == ["completed", "cancelled", "cancelled", "pending"]
    assert (await claim(database)).job_id == "t4"
    assert (await database.read(backlog.of_space, ANN)).messages == 1


async def test_passages_of_a_deleted_session_do_not_get_into_its_successor(database: Database) -> None:
    """The relay may be at work on the old archive while the session is deleted and made anew."""
    await talk(database, ANN, "s", "a secret")
    await commit(database, ANN, "s", "old")
    (archive,) = await database.read(passages.waiting, ANN)
    await database.write(delete_session, ANN, "s", "")
    await talk(database, ANN, "s", "the new talk")
    await commit(database, ANN, "s", "new")

    late = Passage("s", 1, 1, "m1", "", "user: a secret", 0)
    await database.write(passages.store, ANN, "", archive, [(late, None, b"")], "", whole=True)

    assert await database.read(passages.of_points, ANN, [(("s", 1), passage_point(ANN, "old", 1))]) == {}
    assert (await database.read(backlog.of_space, ANN)).messages == 1


async def test_users_and_accounts_do_not_see_each_other(database: Database) -> None:
    for space in (ANN, BOB, CAT):
        await talk(database, space, "s", f"said by {space.user}")
    await database.write(delete_session, BOB, "s", "")

    assert await said(database, "s") == [(1, "m1", "said by ann")]
    assert await said(database, "s", CAT) == [(1, "m1", "said by cat")]
    assert await said(database, "s", BOB) == []
    assert await database.read(sessions.page, BOB, None, 10) == []
