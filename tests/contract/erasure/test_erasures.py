"""Erasures on every store: what goes, what stays, and that it is looked for before it is called gone."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.erasure import receipts, transactions
from runekeep_storage.erasure.receipts import Erasure, Kind, Scope, State
from runekeep_storage.erasure.verification import left
from runekeep_storage.errors import AlreadyExists, LeaseLost, NotFound
from runekeep_storage.indexing import passages, rows
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.jobs import jobs, tasks
from runekeep_storage.memories import apply, memories
from runekeep_storage.records import STORED_OUTPUT, Message
from runekeep_storage.search import recalled
from runekeep_storage.sessions import archives, idle_commits, sessions
from runekeep_storage.spaces import pending_deletions
from runekeep_storage.tables import TABLES
from tests.support.storage.databases import ANN, BOB, Clock, claim, commit, prepared, uri
from tests.support.storage.deletions import OTHERS, answer, dump, live_a_little
from tests.support.storage.erasures import (
    WORD,
    Store,
    extract,
    files_with,
    propose,
    quoted,
    remember_turn,
    say,
    sources,
    tables_with,
    use,
    version,
    words,
)

PEER = "quinn"
GRACE = 3700
MESSAGES = Scope(Kind.MESSAGES, session_id="s", message_ids=("m2",))
EVERYWHERE = {table.name for table in TABLES if table.texts} - {"jobs", "outbox"}
"""Where a message may leave what it said. Jobs and the outbox hold it only while they wait."""


async def lived(store: Store, space: Space = ANN, peer: str = "") -> str:
    """A user whose message m2 says a word that went everywhere; the name of its blob."""
    database = store.database
    blob = store.blobs.put(space, WORD.encode() * 1000)
    tool = {"type": "tool", "tool_id": "call", "tool_name": "look", STORED_OUTPUT: blob, "output": WORD}
    image = {"type": "image", "url": "https://images.test/1", "detail": "auto", "caption": ""}
    shown = {"type": "context", "uri": uri(space, f"{WORD}-milk"), "abstract": WORD}
    said = Message("m2", "user", ({"type": "text", "text": f"the {WORD} sleeps"}, tool, image, shown), peer, "t1", WORD)
    await say(database, space, "s", words("m1", "green tea", turn_id="t1"), said, words("m3", "rice", turn_id="t2"))
    await remember_turn(store, space, "s", "t1", WORD)
    tea = version(space, "tea", 0, 1, "green", sources("s", "m1"))
    milk = version(space, f"{WORD}-milk", 0, 1, f"{WORD} milk", sources("s", "m2"))
    rice = version(space, "rice", 0, 1, "plain", sources("s", "m3"))
    await use(database, space, "s", f"{WORD}-milk")
    await extract(database, space, "s", f"{space.user}-1", tea, milk, rice, quoting=WORD, view=WORD)
    later = version(space, "tea", 1, 2, f"{WORD} tea", sources("s", "m1", "m2"))
    await say(database, space, "other", words("m1", "more tea"))
    await use(database, space, "other", f"{WORD}-milk")
    await extract(database, space, "other", f"{space.user}-2", later, quoting=WORD)
    carried = version(space, "tea", 2, 3, f"hot {WORD} tea", sources("other", "m1"))
    await say(database, space, "other", words("m2", "hot tea"))
    await extract(database, space, "other", f"{space.user}-3", carried, quoting=WORD)
    await answer(database, space, "WriteMemories", "r1", says=WORD.encode())
    given = {uri(space, f"{WORD}-milk"): recalled.Given(1, 2)}
    await database.write(recalled.keep, space, "s", recalled.SessionPosition(3, 0), given)
    told = {"phase": 1, "percent": 10, "message": f"reads {WORD}"}
    await database.write(tasks.add_event, space, f"{space.user}-1", "progress", told)
    # One of the session, and one of another session that was shown what came from it.
    await propose(database, space, "s", f"{space.user}-1", f"{WORD} cake")
    await propose(database, space, "other", f"{space.user}-3", f"no {WORD}")
    await store.search.caught_up(space)
    return blob


async def test_a_message_is_gone_from_everything_that_was_made_of_it(store: Store, clock: Clock) -> None:
    database = store.database
    blob = await lived(store)
    await lived(store, BOB)
    theirs = await _lasting(database, BOB)
    assert await tables_with(database, ANN, WORD) >= EVERYWHERE
    assert files_with(store.folder, WORD)
    clock.advance(1)

    erased = await store.erase(ANN, MESSAGES)

    assert await tables_with(database, ANN, WORD) == set(), "nobody reads it from here on"
    assert erased.state is State.REMOVING
    kept = await database.read(sessions.messages_between, ANN, "s", 1, 100)
    assert [one.message_id for one in kept] == ["m1", "m3"]
    assert (await database.read(sessions.get, ANN, "s")).last_sequence == 3, "numbers have no holes"
    tea = await database.read(memories.get, ANN, uri(ANN, "tea"))
    assert (tea.version, tea.content, json.loads(tea.extractor)["engine"]) == (4, "green", "erasure")
    assert (await database.read(memories.get, ANN, uri(ANN, "rice"))).version == 1
    for gone in (2, 3):
        with pytest.raises(NotFound):
            await database.read(memories.get, ANN, uri(ANN, "tea"), version=gone)
    with pytest.raises(NotFound):
        await database.read(memories.get, ANN, uri(ANN, f"{WORD}-milk"))
    told = await database.read(tasks.get, ANN, f"{ANN.user}-1")
    assert (told.state, json.loads(told.result)["rejected"]) == ("completed", [])
    diff = json.loads((await database.read(archives.get, ANN, "s", 1)).diff)
    assert [one["uri"] for one in diff["operations"]["adds"]] == [uri(ANN, "tea"), uri(ANN, "rice")]
    counted = erased.receipt
    assert (counted.messages, counted.memories, counted.memory_versions, counted.reverted) == (1, 1, 3, 1)
    assert (counted.passages, counted.blobs, counted.turn_artifacts, counted.answers) == (1, 1, 4, 1)

    with pytest.raises(AlreadyExists):
        await say(database, ANN, "s", words("m2", "it comes back"))
    waiting = await store.finish(ANN, steps=20)
    assert waiting.state is State.REMOVING, "its blob is young"
    assert store.blobs.get(ANN, blob)
    clock.advance(GRACE)
    _age(store.blobs._path(ANN, blob).parents[1])
    done = await store.finish(ANN)

    assert (done.state, done.verified_at, done.remains) == (State.VERIFIED, clock(), receipts.Remains())
    with pytest.raises(NotFound):
        store.blobs.get(ANN, blob)
    assert await store.search.listed(ANN) == await store.search.named(ANN)
    assert await _lasting(database, BOB) == theirs


async def _lasting(database: Database, space: Space) -> dict[str, list[dict[str, Any]]]:
    """The rows of a user without what the relay still works on: the outbox, and the vectors of lines."""
    tables = await dump(database, space)
    tables.pop("outbox", None)
    for memory in tables["memories"]:
        del memory["line_vectors"], memory["line_vectors_model"]
    return tables


def _age(folder: Path) -> None:
    """As if its blobs had been written long ago."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))


async def _alone(store: Store, scope: Scope, clock: Clock, peer: str = "") -> Erasure:
    """Erased to the end, and nothing left of the word but with users who said it too."""
    await lived(store, ANN, peer)
    clock.advance(1)
    erased = await store.erase(ANN, scope)
    assert await tables_with(store.database, ANN, WORD) <= {"messages", "passages", "extraction_records"}
    clock.advance(GRACE)
    _age(store.folder / "blobs")
    done = await store.finish(ANN)
    assert done.state is State.VERIFIED
    assert done.receipt == erased.receipt
    assert await tables_with(store.database, ANN, WORD) == set()
    assert await store.search.listed(ANN) == await store.search.named(ANN)
    if isinstance(store.database, SqliteDatabase):
        await store.search.relay.stop()
        await store.search.index.close()
        assert files_with(store.folder, WORD) == []
    return done


async def test_a_session_goes_with_the_memories_that_came_from_it(store: Store, clock: Clock) -> None:
    done = await _alone(store, Scope(Kind.SESSION, session_id="s"), clock)
    left = await dump(store.database, ANN)
    assert {row["session_id"] for row in left["sessions"]} == {"other"}
    assert {row["session_id"] for row in left["tasks"]} == {"other"}
    assert "memories" not in left, "tea was learnt in it, and what came later was made of that"
    assert (done.receipt.sessions, done.receipt.memories, done.receipt.messages) == (1, 3, 3)


async def test_a_peer_goes_from_all_sessions(store: Store, clock: Clock) -> None:
    about = uri(ANN, "about").replace("/memories/", f"/peers/{PEER}/memories/")
    # What somebody else said of the peer, before anything else was known.
    await say(store.database, ANN, "fourth", words("f1", "a rumour"))
    await extract(store.database, ANN, "fourth", "fourth", version(ANN, "rumour", 0, 1, "heard"), quoting="it")
    await propose(store.database, ANN, "fourth", "fourth", "rumour", PEER)
    await say(store.database, ANN, "third", words("p1", f"{WORD} again", peer_id=PEER), words("p2", "kept"))
    write = version(ANN, "about", 0, 1, f"likes {WORD}")
    write = type(write)(**{**{name: getattr(write, name) for name in write.__slots__}, "uri": about, "peer_id": PEER})
    await extract(store.database, ANN, "third", "third", write, quoting=WORD)
    done = await _alone(store, Scope(Kind.PEER, peer_id=PEER), clock, PEER)
    left = await dump(store.database, ANN)
    assert PEER not in repr({**left, "tasks": [], "jobs": []})
    assert done.receipt.messages == 2
    with pytest.raises(NotFound):
        await store.erase(ANN, Scope(Kind.PEER, peer_id=PEER), "e2")
    await propose(store.database, ANN, "fourth", "fourth", "rumour", PEER)
    await store.erase(ANN, Scope(Kind.PEER, peer_id=PEER), "e3")
    assert "proposals" not in await dump(store.database, ANN)
    await say(store.database, ANN, "third", words("p3", "here again", peer_id=PEER))


async def test_a_user_is_gone_but_for_receipts(store: Store, clock: Clock) -> None:
    done = await _alone(store, Scope(Kind.USER), clock)
    left = await dump(store.database, ANN)
    assert set(left) <= {"spaces", "requests", "outbox", "erasures", "blob_sweeps"}
    assert (done.receipt.sessions, done.receipt.messages, done.receipt.memories) == (2, 5, 3)
    again = await store.erase(ANN, Scope(Kind.USER), "e2")
    assert again.receipt == receipts.Receipt()


async def test_erasing_twice_is_harmless_and_what_is_not_there_is_not_found(store: Store, clock: Clock) -> None:
    await lived(store)
    # It would write anew what the first erasure had vectors of.
    await store.search.relay.stop()
    clock.advance(1)
    await store.erase(ANN, MESSAGES)
    before = await dump(store.database, ANN)
    again = await store.erase(ANN, MESSAGES, "e2")
    assert again.receipt == receipts.Receipt()
    after = await dump(store.database, ANN)
    for table in ("messages", "memories", "archives", "passages", "tasks"):
        assert after.get(table) == before.get(table)
    for scope in (
        Scope(Kind.SESSION, session_id="none"),
        Scope(Kind.PEER, peer_id="none"),
        Scope(Kind.MESSAGES, session_id="none", message_ids=("m1",)),
        Scope(Kind.MESSAGES, session_id="s", message_ids=("m1", "none")),
    ):
        with pytest.raises(NotFound):
            await store.erase(ANN, scope, "e3")
    with pytest.raises(NotFound):
        await store.erase(BOB, MESSAGES, "e4")
    assert (await store.database.read(sessions.messages_between, ANN, "s", 1, 9))[0].message_id == "m1"
    listed = await store.database.read(receipts.page, ANN, None, 10)
    assert {one.erasure_id for one in listed} == {"e1", "e2"}
    assert await store.database.read(receipts.page, BOB, None, 10) == []


async def test_an_output_made_of_erased_text_is_refused(store: Store, clock: Clock) -> None:
    database = store.database
    await say(database, ANN, "s", words("m1", "tea"), words("m2", WORD))
    await commit(database, ANN, "s", "one")
    job = await claim(database)
    erased = await store.erase(ANN, MESSAGES)
    assert erased.receipt.cancelled == 1
    with pytest.raises(LeaseLost):
        await database.write(apply.apply, ANN, quoted(job, [], WORD))
    again = await claim(database)
    assert (again.job_id, again.token > job.token) == ("one", True)
    read = await database.read(sessions.messages_between, ANN, "s", 1, 9)
    assert [one.message_id for one in read] == ["m1"]
    await database.write(apply.apply, ANN, prepared(again.lease))
    assert await tables_with(database, ANN, WORD) == set()


async def test_a_commit_of_which_nothing_is_left_is_cancelled(store: Store) -> None:
    database = store.database
    await say(database, ANN, "s", words("m2", WORD))
    await commit(database, ANN, "s", "one")
    await store.erase(ANN, MESSAGES)
    assert (await database.read(tasks.get, ANN, "one")).state == "cancelled"
    assert await database.read(jobs.open_of, ANN) == []


async def test_a_session_in_which_all_is_erased_has_nothing_to_commit(store: Store) -> None:
    database = store.database
    await say(database, ANN, "s", words("m1", "tea"), words("m2", WORD))
    await database.write(idle_commits.put_off, ANN, "s", 7)
    (before,) = (await dump(database, ANN))["sessions"]
    await store.erase(ANN, MESSAGES)
    (between,) = (await dump(database, ANN))["sessions"]
    assert (between["idle_at"], 0 < between["live_tokens"] < before["live_tokens"]) == (7, True)
    assert await database.read(archives.to_archive, ANN, "s", 0) is not None
    await store.erase(ANN, Scope(Kind.MESSAGES, session_id="s", message_ids=("m1",)), "e2")
    (after,) = (await dump(database, ANN))["sessions"]
    assert (after["idle_at"], after["live_tokens"]) == (0, 0)
    assert await database.read(archives.to_archive, ANN, "s", 0) is None


async def test_a_passage_that_a_relay_had_read_before_does_not_come_back(store: Store, clock: Clock) -> None:
    search, database = store.search, store.database
    await search.relay.stop()
    await say(database, ANN, "s", words("m1", "tea"), words("m2", f"{WORD} sleeps"))
    await commit(database, ANN, "s", "one")
    (archive,) = await database.read(passages.waiting, ANN)
    read = await database.read(sessions.messages_between, ANN, "s", 1, 2)
    made = passages.with_words(passages.of_messages(archive, read), [None, None])
    index_id = await search.attachment.id()
    await store.erase(ANN, MESSAGES)

    await database.write(passages.store, ANN, index_id, archive, made, "", whole=True)

    assert await tables_with(database, ANN, WORD) == set()
    assert [row["sequence"] for row in (await dump(database, ANN))["passages"]] == [1]


async def test_more_than_one_transaction_takes_shuts_the_space_meanwhile(store: Store, clock: Clock) -> None:
    database = store.database
    count = 450
    said = [words(f"m{number}", f"{WORD} {number}", peer_id=PEER) for number in range(1, count + 1)]
    await say(database, ANN, "s", *said)
    await say(database, ANN, "t", words("m1", "kept"))
    scope = Scope(Kind.MESSAGES, session_id="s", message_ids=tuple(one.message_id for one in said))
    await database.write(transactions.begin, ANN, "e1", scope)

    async def shut(tx: Tx) -> bool:
        return tx.is_shut(ANN)

    assert await database.read_global(shut)
    await store.cleaner.clean()
    assert (await database.read(sessions.messages_between, ANN, "t", 1, 9))[0].message_id == "m1", "not a deletion"
    done = await store.finish(ANN)
    assert not await database.read_global(shut)
    assert (done.state, done.receipt.messages) == (State.VERIFIED, count)
    assert await tables_with(database, ANN, WORD) == set()


PLANTED = {
    "messages": "UPDATE messages SET parts = '[1]' WHERE user_id = 'ann' AND message_id = 'm2' AND session_id = 's'",
    "messages ": "UPDATE messages SET speaker = 'q' WHERE user_id = 'ann' AND message_id = 'm2' AND session_id = 's'",
    "messages   ": "UPDATE messages SET shown = '{}' WHERE user_id = 'ann' AND message_id = 'm2' AND session_id = 's'",
    "messages  ": "UPDATE messages SET erased = 0 WHERE user_id = 'ann' AND message_id = 'm2' AND session_id = 's'",
    "messages    ": "UPDATE messages SET calls = 'q' WHERE user_id = 'ann' AND message_id = 'm2' AND session_id = 's'",
    "archives": 'UPDATE archives SET diff = \'{"operations": {"adds": [{"uri": "q", "version": 1}]}}\''
    " WHERE user_id = 'ann' AND session_id = 's'",
    "archives ": "UPDATE archives SET overview = 'q' WHERE user_id = 'ann' AND session_id = 's'",
    "passages": "INSERT INTO passages (account, user_id, session_id, sequence, content)"
    " VALUES ('acme', 'ann', 's', 2, 'q')",
    "requests": "UPDATE requests SET digest = 'd' WHERE user_id = 'ann'",
    "memories": 'UPDATE memories SET sources = \'[{"session": "s", "message_id": "m2", "sequence": 2}]\''
    " WHERE user_id = 'ann' AND version = 1",
    "image_descriptions": "UPDATE image_descriptions SET user_id = 'ann', created_at = 1 WHERE user_id = 'bob'",
    "turn_artifacts": "UPDATE turn_artifacts SET user_id = 'ann', updated_at = 1 WHERE user_id = 'bob'",
    "extraction_records": "UPDATE extraction_records SET user_id = 'ann', task_id = 'ann-1', ended_at = 1"
    " WHERE user_id = 'bob' AND task_id = 'bob-1'",
    "memory_sources": "UPDATE memory_sources SET user_id = 'ann' WHERE user_id = 'bob' AND message_id = 'm2'"
    " AND session_id = 's'",
    "outbox": "INSERT INTO outbox (account, user_id, revision, number, op, uri, version)"
    " VALUES ('acme', 'ann', 0, 999, 'upsert', 'q', 1)",
    "usages": "INSERT INTO usages (account, user_id, session_id, number, uri) VALUES ('acme', 'ann', 'none', 1, 'q')",
    "active_counts": "UPDATE active_counts SET user_id = 'ann', uri = REPLACE(uri, 'bob', 'ann')"
    " WHERE user_id = 'bob' AND uri LIKE '%milk%'",
    "jobs": "INSERT INTO jobs (account, user_id, job_id) VALUES ('acme', 'ann', 'q')",
    "proposals": "UPDATE proposals SET user_id = 'ann', task_id = 'ann-1', created_at = 1"
    " WHERE user_id = 'bob' AND task_id = 'bob-1'",
    "task_events": "INSERT INTO task_events (account, user_id, task_id, sequence) VALUES ('acme', 'ann', 'q', 1)",
    "turns": "INSERT INTO turns (account, user_id, session_id, turn_id) VALUES ('acme', 'ann', 'none', 'q')",
    "turn_tags": "INSERT INTO turn_tags (account, user_id, session_id, kind, name, tag, said_at)"
    " VALUES ('acme', 'ann', 'none', 'q', 'q', 'q', 1)",
    "tool_outputs": "INSERT INTO tool_outputs (account, user_id, session_id, tool_id)"
    " VALUES ('acme', 'ann', 'none', 'q')",
    "recalled": "INSERT INTO recalled (account, user_id, session_id, name) VALUES ('acme', 'ann', 'none', 'q')",
}
"""By the table in which it is to be found: what another part of the server might have left."""
WITH_WHOLE_SESSIONS = {"sessions", "tasks", "commits", "shut_spaces"}
"""Tables in which only the erasure of a session or a user can leave something."""


class _Undone(Exception):
    """Takes a transaction back, with what was found in it."""


async def test_what_was_left_is_found(store: Store, clock: Clock) -> None:
    await lived(store)
    await lived(store, BOB)
    clock.advance(1)
    erased = await store.erase(ANN, MESSAGES)

    assert await _found(store, erased, PLANTED) == {table: {table.strip()} for table in PLANTED}
    assert {table.strip() for table in PLANTED} | WITH_WHOLE_SESSIONS == {one.name for one in TABLES if one.checks}


async def _found(store: Store, erased: Erasure, planted: dict[str, str]) -> dict[str, set[str]]:
    """Where something is found left by each of the statements, which are taken back."""

    async def plant(tx: Tx, statement: str) -> None:
        await _run(tx, statement)
        raise _Undone(set(await left(tx, ANN, erased)))

    assert await store.database.read(left, ANN, erased) == {}
    found = {}
    # Each by itself: to let the two live takes longer than all the rest.
    for table, statement in planted.items():
        with pytest.raises(_Undone) as undone:
            await store.database.write_global(plant, statement)
        found[table] = undone.value.args[0]
    assert await store.database.read(left, ANN, erased) == {}
    return found


OF_SCOPES = {
    Kind.PEER: {
        "messages": f"UPDATE messages SET erased = 0, peer_id = '{PEER}' WHERE user_id = 'ann' AND message_id = 'm2'"
        " AND session_id = 's'",
    },
    Kind.SESSION: {
        "sessions": "INSERT INTO sessions (account, user_id, session_id, created_at) VALUES ('acme', 'ann', 's', 1)",
        "tasks": "INSERT INTO tasks (account, user_id, task_id, session_id) VALUES ('acme', 'ann', 'q', 's')",
    },
    Kind.USER: {
        "sessions": "INSERT INTO sessions (account, user_id, session_id, created_at) VALUES ('acme', 'ann', 'q', 1)",
        "tasks": "INSERT INTO tasks (account, user_id, task_id) VALUES ('acme', 'ann', 'q')",
        "commits": "INSERT INTO commits (account, user_id, revision) VALUES ('acme', 'ann', 1)",
    },
}


@pytest.mark.parametrize("kind", OF_SCOPES)
async def test_what_was_left_of_the_scope_is_found(store: Store, clock: Clock, kind: Kind) -> None:
    await lived(store, peer=PEER)
    clock.advance(1)
    erased = await store.erase(ANN, next(scope for scope in SCOPES if scope.kind is kind))
    while await store.database.write(pending_deletions.clear, ANN):
        pass

    assert await _found(store, erased, OF_SCOPES[kind]) == {table: {table} for table in OF_SCOPES[kind]}


async def _run(tx: Tx, statement: str) -> None:
    assert await tx.execute(statement) > 0


SCOPES = (MESSAGES, Scope(Kind.SESSION, session_id="s"), Scope(Kind.PEER, peer_id=PEER), Scope(Kind.USER))


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: str(scope.kind))
async def test_what_comes_after_an_erasure_is_no_leftover_of_it(store: Store, clock: Clock, scope: Scope) -> None:
    await lived(store, ANN, PEER)
    clock.advance(1)
    erased = await store.erase(ANN, scope)
    while await store.database.write(pending_deletions.clear, ANN):
        pass
    assert await store.database.read(left, ANN, erased) == {}
    clock.advance(1)
    await say(store.database, ANN, "s", words("m9", f"the {WORD} again", peer_id=PEER, turn_id="t1"))
    again = version(ANN, f"{WORD}-milk", 0, 1, f"{WORD} milk", sources("s", "m9"))
    await extract(store.database, ANN, "s", "again", again, quoting=WORD, view=WORD)
    await answer(store.database, ANN, "WriteMemories", "r2", says=WORD.encode())
    if scope.kind is Kind.SESSION:
        # It was made anew, or else its memories would be of the session that is gone.
        assert (await store.database.read(sessions.get, ANN, "s")).created_at > erased.created_at
    found = await store.database.read(left, ANN, erased)
    assert found == {}


async def test_what_was_made_between_two_erasures_is_no_leftover_of_the_second(store: Store, clock: Clock) -> None:
    """Of an archive that lost a message before its commit was worked on."""
    await say(store.database, ANN, "s", words("m1", "tea"), words("m2", WORD), words("m3", "cake"))
    clock.advance(1)
    await store.erase(ANN, MESSAGES)
    clock.advance(1)
    await extract(store.database, ANN, "s", "k", version(ANN, "tea", 0, 1, "tea", sources("s", "m1")), quoting="tea")
    await say(store.database, ANN, "t", words("m4", WORD, peer_id=PEER))
    clock.advance(1)
    await store.erase(ANN, Scope(Kind.PEER, peer_id=PEER), "e2")
    assert (await store.finish(ANN, "e2", steps=40)).state is State.VERIFIED


async def test_an_erasure_that_left_something_is_not_verified(store: Store, clock: Clock) -> None:
    await say(store.database, ANN, "s", words("m2", WORD))
    clock.advance(1)
    await store.erase(ANN, MESSAGES)
    await store.database.write_global(_run, "UPDATE messages SET speaker = 'quokka' WHERE user_id = 'ann'")
    seen = [(await store.finish(ANN, steps=1)).state for _ in range(6)]
    assert State.VERIFIED not in seen
    await store.database.write_global(_run, "UPDATE messages SET speaker = '' WHERE user_id = 'ann'")
    assert (await store.finish(ANN)).state is State.VERIFIED


async def test_a_point_without_a_row_is_taken_out_before_anything_is_verified(store: Store, clock: Clock) -> None:
    await say(store.database, ANN, "s", words("m1", "tea"), words("m2", WORD))
    await commit(store.database, ANN, "s", "one")
    await store.search.caught_up(ANN)
    row = await store.database.read(rows.page, ANN, "passages", 0, rows.FIRST, 10, Models(store.search.embedder.model))
    await store.erase(ANN, MESSAGES)
    await store.search.counts(ANN, 1)
    await store.search.index.upsert(row[0])
    assert await store.search.index.count(ANN.account, ANN.user) == 2
    assert (await store.finish(ANN)).state is State.VERIFIED
    assert await store.search.listed(ANN) == await store.search.named(ANN)


async def test_others_are_as_they_were(store: Store, clock: Clock) -> None:
    await lived(store)
    # It would go on with what the others wrote.
    await store.search.relay.stop()
    for space in OTHERS:
        await live_a_little(store.database, space)
    before = {space: await dump(store.database, space) for space in OTHERS}
    clock.advance(1)
    for number, scope in enumerate((MESSAGES, Scope(Kind.SESSION, session_id="s"), Scope(Kind.USER))):
        await store.erase(ANN, scope, f"e{number}")
    assert {space: await dump(store.database, space) for space in OTHERS} == before
