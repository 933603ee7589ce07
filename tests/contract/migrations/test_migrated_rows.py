"""Rows of releases before are what this release expects once the store is migrated."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from runekeep_schemas.auto_commit_rules import AutoCommit
from runekeep_schemas.documents.uris import MAX_URI_BYTES
from runekeep_storage.database import Tx
from runekeep_storage.history import history
from runekeep_storage.memories import directories, origins
from runekeep_storage.migrations import migrate
from runekeep_storage.migrations.migrate import (
    HEAD,
)
from tests.support.storage.databases import ANN, uri
from tests.support.storage.idle_commits import idle_at
from tests.support.storage.migrations import Place, add_spaces_as_before, say_as_before


def test_stores_with_the_longest_uris_migrate_and_take_more_of_them(place: Place) -> None:
    """Whatever they consist of: PostgreSQL compresses what repeats."""

    def use(*names: str) -> Callable[[Any], None]:
        def work(connection: Any) -> None:
            for name in names:
                text = f"{uri(ANN, 'x').rpartition('/')[0]}/{name}"
                path = _unlike(MAX_URI_BYTES - len(text.encode()), name)
                for statement in (
                    "INSERT INTO active_counts (account, user_id, uri, uses) VALUES ('{}', '{}', '{}', 1)",
                    "INSERT INTO memories (account, user_id, uri, version, rev_from) VALUES ('{}', '{}', '{}', 1, 1)",
                ):
                    connection.exec_driver_sql(statement.format(ANN.account, ANN.user, text + path))

        return work

    place.bring("r0010")
    place.look(use("a", "b"))
    place.bring(HEAD)
    place.look(use("c"))

    async def counted() -> list[str]:
        database = place.connect()
        await database.open()
        rows = await database.read(directories.holding, ANN, "", "w", 10)
        leading = await database.read(directories.leading, ANN, rows, 1)
        await database.close()
        return [one.uri for one in leading]

    found = asyncio.run(counted())
    assert len(found) == 3 and all(len(one.encode()) > MAX_URI_BYTES - 3 for one in found)


def _unlike(most_bytes: int, seed: str) -> str:
    """Segments of characters in no order."""
    letters = Random(seed)
    text = "".join("/" if number % 80 == 79 else chr(letters.randrange(0x4E00, 0x9F00)) for number in range(most_bytes))
    return text.encode()[:most_bytes].decode(errors="ignore").rstrip("/")


async def test_sessions_that_only_a_later_release_commits_as_idle_become_due(
    place: Place,
) -> None:
    rule = AutoCommit(message_count=9, idle=5_000_000, keep_recent_count=3).to_json()
    rows = {
        "kept": (rule, 2, 0, 100, 0),
        "archived": (rule, 2, 2, 100, 0),
        "due": (rule, 5, 0, 100, 77),
        "never": (AutoCommit(message_count=9).to_json(), 2, 0, 100, 0),
        "none": ("", 2, 0, 100, 0),
    }

    def say(connection: Any) -> None:
        for session_id, (rules, last, archived, said_at, due_at) in rows.items():
            connection.exec_driver_sql(
                "INSERT INTO sessions (account, user_id, session_id, auto_commit, last_sequence, archived_sequence,"
                f" said_at, idle_at) VALUES ('{ANN.account}', '{ANN.user}', '{session_id}', '{rules}', {last},"
                f" {archived}, {said_at}, {due_at})"
            )

    await asyncio.to_thread(place.bring, "r0010")
    await asyncio.to_thread(place.look, say)
    await asyncio.to_thread(place.migrate)
    database = place.connect()
    await database.open()
    assert {name: await idle_at(database, name) for name in rows} == {
        "kept": 5_000_100,
        "archived": 0,
        "due": 77,
        "never": 0,
        "none": 0,
    }
    await database.close()


async def test_messages_that_memories_came_from_become_runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a session is gone, and where a server of the release before writes rows after the migration. No run
    crosses a block."""
    end = origins.BLOCK
    add_spaces_as_before(monkeypatch)
    await asyncio.to_thread(place.bring, "r0004")
    monkeypatch.setattr(migrate, "HEAD", "r0004")
    old = place.connect()
    await old.open()
    for number in range(1, 8):
        await say_as_before(old, ANN, f"message {number}")

    async def make(tx: Tx, uri_of: str, version: int, revision: int, ended_by: int) -> None:
        # As servers of that release did: what writes memories now needs columns that are not there yet.
        await tx.execute(
            "INSERT INTO memories (account, user_id, uri, version, memory_type, rev_from, rev_to)"
            f" VALUES ('{ANN.account}', '{ANN.user}', '{uri(ANN, uri_of)}', {version}, 'preferences', {revision},"
            f" {ended_by})"
        )

    for made in (("all", 1, 1, 0), ("some", 1, 1, 2), ("gone", 1, 1, 0), ("some", 2, 2, 0)):
        await old.write_global(make, *made)

    async def name(tx: Tx, uri_of: str, version: int, session_id: str, *numbers: int) -> None:
        for number in numbers:
            await tx.execute(
                "INSERT INTO memory_sources (account, user_id, session_id, message_id, uri, version)"
                f" VALUES ('{ANN.account}', '{ANN.user}', '{session_id}', 'm{number}', '{uri(ANN, uri_of)}', {version})"
            )

    async def say_late(tx: Tx, *numbers: int) -> None:
        for number in numbers:
            await tx.execute(
                "INSERT INTO messages (account, user_id, session_id, sequence, message_id)"
                f" VALUES ('{ANN.account}', '{ANN.user}', 's', {number}, 'm{number}')"
            )

    late = range(end - 2, end + 2)
    await old.write_global(say_late, *late)
    await old.write_global(name, "all", 1, "s", *range(1, 8), *late)
    await old.write_global(name, "some", 1, "s", 2, 6)
    await old.write_global(name, "some", 2, "s", 3, 7)
    await old.write_global(name, "gone", 1, "of before", 1, 2)
    monkeypatch.setattr(migrate, "HEAD", HEAD)
    await asyncio.to_thread(place.migrate)
    await old.write_global(name, "gone", 1, "s", 5)
    await old.close()

    new = place.connect()
    await new.open()
    found = {}
    for number in (*range(1, 8), *late):
        named, _ = await new.read(history.of_message, ANN, "s", f"m{number}", "", 10, 10_000)
        found[number] = {memory.uri.rpartition("/")[2].removesuffix(".md"): memory.version for memory in named}
    assert found == {
        1: {"all": 1},
        2: {"all": 1, "some": 1},
        3: {"all": 1, "some": 2},
        4: {"all": 1},
        5: {"all": 1, "gone": 1},
        6: {"all": 1, "some": 1},
        7: {"all": 1, "some": 2},
        **{number: {"all": 1} for number in late},
    }

    async def runs(tx: Tx) -> list[tuple[Any, ...]]:
        rows = await tx.fetch(
            "SELECT session_id, message_id, uri, version, first_sequence, last_sequence FROM memory_sources"
        )
        return sorted(tuple(row) for row in rows)

    everything, some, gone = (uri(ANN, name) for name in ("all", "some", "gone"))
    assert await new.read_global(runs) == sorted(
        [
            ("of before", "m1", gone, 1, 0, 0),
            ("of before", "m2", gone, 1, 0, 0),
            ("s", "m1", everything, 1, 1, 7),
            ("s", "m2", some, 1, 2, 2),
            ("s", "m3", some, 2, 3, 3),
            ("s", f"m{end - 2}", everything, 1, end - 2, end - 1),
            ("s", f"m{end}", everything, 1, end, end + 1),
            ("s", "m5", gone, 1, 0, 0),
            ("s", "m6", some, 1, 6, 6),
            ("s", "m7", some, 2, 7, 7),
        ]
    )
    await new.close()
