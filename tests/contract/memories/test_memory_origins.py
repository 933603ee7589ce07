"""Messages that memories came from, stored as runs: each message of a run is found, and erased, by itself."""

import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Tx
from runekeep_storage.erasure import deletion
from runekeep_storage.erasure.receipts import Kind, Scope, State
from runekeep_storage.erasure.verification import left
from runekeep_storage.errors import NotFound
from runekeep_storage.history import history
from runekeep_storage.memories import memories, origins, revisions
from runekeep_storage.memories.revisions import BY_HAND
from runekeep_storage.records import MemoryWrite, MessageRun
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import pending_deletions, spaces
from runekeep_storage.transfer import exporting
from tests.support.storage.archives import Parts, exported, imported
from tests.support.storage.databases import ANN, Clock, NewStore, talk, uri, write
from tests.support.storage.erasures import Store, extract, say, words
from tests.support.storage.statements import Statements

pytestmark = pytest.mark.postgres_long

MANY_MEMORIES = 200
MANY_MESSAGES = 1000


def run(session_id: str, first: int, last: int) -> MessageRun:
    return MessageRun(session_id, f"m{first}", first, last)


def came_from(name: str, version: int, *runs: MessageRun, **columns: Any) -> MemoryWrite:
    """A version of a memory that follows the one before it."""
    return write(ANN, name, version - 1, version, f"{name} {version}", origins=runs, **columns)


async def revise(database: Database, *writes: MemoryWrite) -> None:
    await database.write(spaces.ensure, ANN)
    await database.write(revisions.make, ANN, writes, '{"engine": "test"}', BY_HAND)


async def of_message(database: Database, session_id: str, number: int) -> dict[str, int]:
    """Versions by name of the memories that came from a message."""
    found, more = await database.read(history.of_message, ANN, session_id, f"m{number}", "", 1000, 10_000_000)
    assert not more
    return {one.uri.rpartition("/")[2].removesuffix(".md"): one.version for one in found}


async def rows(database: Database) -> list[tuple[Any, ...]]:
    async def read(tx: Tx) -> list[tuple[Any, ...]]:
        found = await tx.fetch(
            "SELECT session_id, first_sequence, last_sequence, uri, version FROM memory_sources WHERE user_id = $1",
            ANN.user,
        )
        return sorted((*tuple(row)[:3], row["uri"].rpartition("/")[2], row["version"]) for row in found)

    return await database.read_global(read)


async def test_many_memories_of_many_messages_take_a_row_each(database: Database) -> None:
    await talk(database, ANN, "s", *map(str, range(MANY_MESSAGES)))
    await database.write(spaces.ensure, ANN)
    writes = [came_from(f"n{number}", 1, run("s", 1, MANY_MESSAGES)) for number in range(MANY_MEMORIES)]

    async def make(tx: Tx) -> int:
        counting: Any = Statements(tx)
        await revisions.make(counting, ANN, writes, "{}", BY_HAND)
        return counting.number

    statements = await database.write_global(make)

    assert len(await rows(database)) == MANY_MEMORIES
    assert statements < MANY_MEMORIES
    assert len(await of_message(database, "s", 1)) == len(await of_message(database, "s", 500)) == MANY_MEMORIES


async def test_a_renamed_memory_came_from_the_messages_of_both_names(database: Database) -> None:
    """Its new name had a memory before, and one of the runs is a part of another."""
    await talk(database, ANN, "s", *map(str, range(5)))
    await revise(database, came_from("old", 1, run("s", 1, 3)), came_from("new", 1, run("s", 5, 5)))
    await revise(database, came_from("old", 2), came_from("new", 2, deleted=True))
    moved = replace(came_from("new", 3, run("s", 1, 1)), base_version=0, renamed_from=uri(ANN, "old"))
    await revise(database, came_from("old", 3, deleted=True), moved)
    assert [row[1:] for row in await rows(database)] == [(1, 3, "new.md", 3), (1, 3, "old.md", 1), (5, 5, "new.md", 1)]
    assert await of_message(database, "s", 3) == {"old": 1, "new": 3}


@pytest.mark.parametrize("number", [1, 3, 4, 6, 10])
async def test_a_message_of_a_run_is_erased_with_all_that_came_from_it(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """At its ends, within it, and on both sides of the borders of blocks. What came from other messages stays."""
    monkeypatch.setattr(origins, "BLOCK", 4)
    database = store.database
    await say(database, ANN, "s", *(words(f"m{at}", f"message {at}") for at in range(1, 11)))
    cut = [run("s", first, last) for first, last in origins.cut(1, 10)]
    assert [(one.first_sequence, one.last_sequence) for one in cut] == [(1, 3), (4, 7), (8, 10)]
    others = [run("s", at, at) for at in range(1, 11) if at != number]
    writes = [came_from("all", 1, *cut), came_from("own", 1, run("s", number, number)), came_from("others", 1, *others)]
    await extract(database, ANN, "s", "a1", *writes, quoting="")
    assert await of_message(database, "s", number) == {"all": 1, "own": 1}
    clock.advance(1)

    erased = await store.erase(ANN, Scope(Kind.MESSAGES, session_id="s", message_ids=(f"m{number}",)))

    for name in ("all", "own"):
        with pytest.raises(NotFound):
            await database.read(memories.get, ANN, uri(ANN, name))
    assert (await database.read(memories.get, ANN, uri(ANN, "others"))).content == "others 1"
    assert {row[3] for row in await rows(database)} == {"others.md"}
    assert await database.read(left, ANN, erased) == {}
    for at in {*range(1, 11)} - {number}:
        assert await of_message(database, "s", at) == {"others": 1}


async def test_a_memory_goes_back_to_before_the_first_run_that_held_the_message(store: Store, clock: Clock) -> None:
    database = store.database
    await say(database, ANN, "s", *(words(f"m{at}", f"message {at}") for at in range(1, 7)))
    await extract(database, ANN, "s", "a1", came_from("tea", 1, run("s", 1, 3)), quoting="")
    await say(database, ANN, "s", *(words(f"m{at}", f"message {at}") for at in range(7, 10)))
    await extract(database, ANN, "s", "a2", came_from("tea", 2, run("s", 7, 9)), quoting="")
    assert (await of_message(database, "s", 2), await of_message(database, "s", 8)) == ({"tea": 1}, {"tea": 2})
    clock.advance(1)

    await store.erase(ANN, Scope(Kind.MESSAGES, session_id="s", message_ids=("m8",)))

    tea = await database.read(memories.get, ANN, uri(ANN, "tea"))
    assert (tea.version, tea.content) == (3, "tea 1")
    assert await rows(database) == [("s", 1, 3, "tea.md", 1)]
    assert (await store.finish(ANN, steps=60)).state is State.VERIFIED


@pytest.mark.parametrize("ends", ["first_sequence = 1", "last_sequence = 3", "first_sequence = 1, last_sequence = 3"])
async def test_a_run_that_still_holds_an_erased_message_is_found(store: Store, clock: Clock, ends: str) -> None:
    database = store.database
    await say(database, ANN, "s", *(words(f"m{at}", f"message {at}") for at in range(1, 4)))
    both = [came_from("one", 1, run("s", 1, 1)), came_from("three", 1, run("s", 3, 3))]
    await extract(database, ANN, "s", "a1", *both, quoting="")
    clock.advance(1)
    erased = await store.erase(ANN, Scope(Kind.MESSAGES, session_id="s", message_ids=("m2",)))
    assert await database.read(left, ANN, erased) == {}
    name = "three" if ends.startswith("first_sequence = 1") else "one"

    async def plant(tx: Tx) -> None:
        await tx.execute(f"UPDATE memory_sources SET {ends} WHERE uri = $1", uri(ANN, name))

    await database.write_global(plant)

    assert await database.read(left, ANN, erased) == {"memory_sources": 1}


async def test_a_run_across_messages_that_were_erased_before_is_no_leftover(store: Store, clock: Clock) -> None:
    """Nor exported as if the memory came from them. A message of it that is erased later is missed."""
    database = store.database
    await say(database, ANN, "s", *(words(f"m{at}", f"message {at}") for at in range(1, 7)))
    clock.advance(1)
    first = await store.erase(ANN, Scope(Kind.MESSAGES, session_id="s", message_ids=("m2", "m4")))
    across = MessageRun("s", "m1", 1, 5, erased=2)
    await extract(database, ANN, "s", "a1", came_from("tea", 1, across), quoting="")
    assert await rows(database) == [("s", 1, 5, "tea.md", 1)]
    assert await database.read(left, ANN, first) == {}
    named = await database.read(origins.messages_of, ANN, (uri(ANN, "tea"), 1), (uri(ANN, "tea"), 1))
    assert [row["message_id"] for row in named] == ["m1", "m3", "m5"]

    async def forgotten(tx: Tx) -> None:
        await tx.execute("UPDATE messages SET erased = 1, parts = '[]' WHERE message_id = 'm3'")

    await database.write_global(forgotten)
    assert (await database.read(left, ANN, first))["memory_sources"] == 1
    clock.advance(1)
    erased = await store.erase(ANN, Scope(Kind.MESSAGES, session_id="s", message_ids=("m5",)), "e2")
    assert erased.receipt.memories == 1 and await rows(database) == []


async def test_named_messages_of_many_memories_and_sessions_are_stored_at_once(database: Database) -> None:
    """As an import names them: the step takes as many statements as it has rows by the dozen, whatever is there. Those
    that an earlier version came from, in this step or before, are passed over."""
    many, sessions_of = 300, 50
    await talk(database, ANN, "s", *map(str, range(many)))
    for number in range(sessions_of):
        await talk(database, ANN, f"t{number}", "one")

    async def store_named(tx: Tx, named: list[origins.Named]) -> int:
        counting: Any = Statements(tx)
        await origins.write_named(counting, ANN, named)
        return counting.number

    def of(name: str, version: int, numbers: range) -> list[origins.Named]:
        return [(uri(ANN, name), version, "s", f"m{number}") for number in numbers]

    first = [*of("all", 1, range(1, 100)), *of("all", 2, range(50, 151))]
    first += [one for number in range(many) for one in of(f"n{number:03}", 1, range(number + 1, number + 2))]
    first += [
        (uri(ANN, "wide"), 1, name, "m1") for number in range(sessions_of) for name in (f"t{number}", f"u{number}")
    ]
    assert await database.write_global(store_named, first) < len(first) / 4
    again = [*of("all", 3, range(1, 152)), (uri(ANN, "all"), 3, "s", "m of nobody"), (uri(ANN, "wide"), 2, "t1", "m1")]
    await database.write_global(store_named, again)

    found = await rows(database)
    of_all = [row for row in found if row[3] == "all.md"]
    assert of_all == [
        ("s", 0, 0, "all.md", 3), ("s", 1, 99, "all.md", 1), ("s", 100, 150, "all.md", 2), ("s", 151, 151, "all.md", 3)
    ]  # fmt: skip
    wide = {row[0]: row[1:3] for row in found if row[3] == "wide.md" and row[4] == 1}
    assert wide == {f"t{at}": (1, 1) for at in range(sessions_of)} | {f"u{at}": (0, 0) for at in range(sessions_of)}
    assert [row[1] for row in found if row[3].startswith("n")] == list(range(1, many + 1))


async def test_versions_of_very_many_messages_are_exported_a_few_at_a_time(database: Database) -> None:
    await talk(database, ANN, "s", *map(str, range(500)))
    writes = [came_from(f"n{number:02}", 1, run("s", 1, 500)) for number in range(60)]
    await revise(database, *writes, came_from("p", 1, run("s", 1, 1)), came_from("q", 1, run("s", 1, 1)))
    moment = await database.read(exporting.begin, ANN, exporting.Spool(BytesIO()))

    some = await database.read(exporting.memories, ANN, moment, ("", 0), 60)

    assert 10 < len(some) < 40 and all(len(row["origins"]) == 500 for row in some)
    assert exporting.next_limit(60, some) <= len(some) + 1
    current = await database.read(exporting.memories, ANN, moment, ("", 0), 60, current=True)
    assert len(current) == 60
    last = await database.read(exporting.memories, ANN, moment, (uri(ANN, "n59"), 1), 60)
    assert [len(row["origins"]) for row in last] == [1, 1]


async def test_messages_of_a_session_that_is_made_anew_are_not_those_of_the_one_before(
    store: Store, clock: Clock
) -> None:
    database = store.database
    await say(database, ANN, "s", *(words(f"m{at}", f"message {at}") for at in range(1, 4)))
    await extract(database, ANN, "s", "a1", came_from("tea", 1, run("s", 1, 3)), quoting="")
    await database.write(deletion.delete_session, ANN, "s", "")
    while await database.write(pending_deletions.clear, ANN):
        pass
    clock.advance(1)
    await say(database, ANN, "s", *(words(f"m{at}", f"message {at}") for at in range(4, 8)))
    await extract(database, ANN, "s", "a2", came_from("rice", 1, MessageRun("s", "m4", 1, 2)), quoting="")
    assert [await of_message(database, "s", at) for at in range(4, 8)] == [{"rice": 1}, {"rice": 1}, {}, {}]
    clock.advance(1)

    await store.erase(ANN, Scope(Kind.MESSAGES, session_id="s", message_ids=("m5",)))

    assert [row[3] for row in await rows(database)] == ["tea.md"]
    erased = await store.erase(ANN, Scope(Kind.SESSION, session_id="s"), "e2")
    assert erased.receipt.memories == 1
    assert await rows(database) == []


async def test_a_session_of_the_same_messages_keeps_both_runs_of_a_memory(store: Store, clock: Clock) -> None:
    """Callers may give a new session the message ids of the one before. Of such a message the older version counts."""
    database = store.database
    await say(database, ANN, "s", *(words(f"m{at}", f"message {at}") for at in range(1, 4)))
    await extract(database, ANN, "s", "a1", came_from("tea", 1, run("s", 1, 1)), quoting="")
    await database.write(deletion.delete_session, ANN, "s", "")
    while await database.write(pending_deletions.clear, ANN):
        pass
    clock.advance(1)
    await say(database, ANN, "s", *(words(f"m{at}", f"message {at}") for at in range(1, 4)))
    await extract(database, ANN, "s", "a2", came_from("tea", 2, run("s", 1, 3)), quoting="")
    clock.advance(1)

    await store.erase(ANN, Scope(Kind.MESSAGES, session_id="s", message_ids=("m3",)))

    with pytest.raises(NotFound):
        await database.read(memories.get, ANN, uri(ANN, "tea"))


async def test_runs_are_exported_by_message_and_imported_as_runs(new_store: NewStore, tmp_path: Path) -> None:
    """Of a session that is gone one message of each run is known, by which an erasure of the session finds it."""
    first, second = new_store().connect(), new_store().connect()
    await first.open()
    await second.open()
    await talk(first, ANN, "s", *map(str, range(20)))
    await talk(first, ANN, "gone", *map(str, range(5)))
    named = json.dumps([{"session": "s", "message_id": f"m{at}", "sequence": at} for at in range(8, 11)])
    fields = json.dumps({"topic": "tea", "content": "x"})
    await revise(first, came_from("tea", 1, run("s", 2, 10), run("gone", 1, 4), fields=fields))
    await revise(first, came_from("tea", 2, run("s", 12, 12), run("s", 15, 20), fields=fields))

    async def name(tx: Tx) -> None:
        await tx.execute("UPDATE memories SET sources = $1", named)

    await first.write_global(name)
    await first.write(deletion.delete_session, ANN, "gone", "")
    while await first.write(pending_deletions.clear, ANN):
        pass
    kept = [("s", 2, 10, "tea.md", 1), ("s", 12, 12, "tea.md", 2), ("s", 15, 20, "tea.md", 2)]
    assert await rows(first) == [("gone", 1, 4, "tea.md", 1), *kept]

    parts = Parts(first, FolderBlobs(tmp_path / "a")), Parts(second, FolderBlobs(tmp_path / "b"))
    await imported(parts[1], await exported(parts[0]))

    assert await rows(second) == [("gone", 0, 0, "tea.md", 1), *kept]
    for at in range(1, 21):
        assert bool(await of_message(second, "s", at)) == (2 <= at <= 10 or at == 12 or at >= 15)
    assert (await second.read(sessions.get, ANN, "s")).last_sequence == 20
    # And once more, from a store that imported it.
    third = new_store().connect()
    await third.open()
    await imported(Parts(third, FolderBlobs(tmp_path / "c")), await exported(parts[1]))
    assert await rows(third) == await rows(second)
    for database in (first, second, third):
        await database.close()
