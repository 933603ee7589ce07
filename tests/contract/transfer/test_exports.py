"""Spaces read bit by bit and written bit by bit: of one moment whoever writes meanwhile, and all of it or nothing."""

import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runekeep_schemas.turns.stored import ASSISTANT_SIGNAL
from runekeep_server.protocol.api_error import ApiError
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.erasure import deletion
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.errors import ImportLost, SpaceChanged, SpaceNotEmpty, SpaceShut
from runekeep_storage.jobs import jobs
from runekeep_storage.records import Usage
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import space_locks
from runekeep_storage.spaces.space_locks import OpenSpaces
from runekeep_storage.transfer import exporting, importing
from runekeep_storage.turns import fingerprints
from tests.support.exports import entries
from tests.support.storage.archives import Parts, apply_next, exported, imported, live, preference
from tests.support.storage.databases import (
    ANN,
    BOB,
    SECOND,
    Clock,
    NewStore,
    commit,
    talk,
    uri,
)
from tests.support.storage.deletions import STAYS, dump, live_a_little
from tests.support.storage.turns import react, submit

LEASE = 60 * SECOND

SAME = (
    "sessions", "messages", "turns", "turn_artifacts", "turn_tags", "tool_outputs", "usages", "archives", "memories",
    "memory_sources", "active_counts", "commits",
)  # fmt: skip
NOT_THE_SAME = {"passages_indexed", "dense", "dense_model", "sparse"}


def told(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """What an import is to bring back to the letter; JSON as JSON."""

    def value(one: Any) -> Any:
        try:
            return json.loads(one) if isinstance(one, str) and one[:1] in ("{", "[") else one
        except ValueError:
            return one

    return {
        table: [{name: value(one) for name, one in row.items() if name not in NOT_THE_SAME} for row in rows[table]]
        for table in SAME
    }


async def test_an_import_brings_back_every_row(new_store: NewStore, tmp_path: Path) -> None:
    first, second = new_store().connect(), new_store().connect()
    await first.open()
    await second.open()
    blobs, others = FolderBlobs(tmp_path / "a"), FolderBlobs(tmp_path / "b")
    await live(first, blobs)
    before = await dump(first, ANN)

    await imported(Parts(second, others), await exported(Parts(first, blobs)))

    after = await dump(second, ANN)
    assert told(after) == told(before)
    assert {row["version"] for row in after["memory_sources"] if row["message_id"] == "m3"} == {2}
    promoted = [row["promoted"] for row in after["turn_tags"] if row["tag"] == ASSISTANT_SIGNAL]
    assert len(promoted) == 20 and all(promoted)
    assert await _signals(second) == await _signals(first) != []
    assert [row["shown"] for row in after["messages"] if row["shown"]] != []
    assert [row["sparse"] for row in after["memories"] if row["rev_to"] == 0] != []
    assert after["jobs"][0]["job_id"] == "waits" and len(after["jobs"]) == 1
    assert "shut_spaces" not in after
    ((_, named),) = [others.names(ANN)]
    assert named == blobs.names(ANN)[1]
    await first.close()
    await second.close()


async def _signals(database: Database) -> list[Any]:
    return await database.read(fingerprints.signals, ANN, limit=100)


class Disturbed:
    """A database in which something happens between any two reads."""

    def __init__(self, database: Database, disturb: Callable[[int], Awaitable[None]]) -> None:
        self._database = database
        self._disturb = disturb
        self.reads = 0

    async def read(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        answer = await self._database.read(work, *args, **kwargs)
        self.reads += 1
        await self._disturb(self.reads)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


async def test_an_export_is_of_one_moment_whoever_writes_meanwhile(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "SLICE", 3)
    monkeypatch.setattr(exporting, "FIRST_SLICE", 2)
    blobs = FolderBlobs(tmp_path)
    await live(database, blobs)
    quiet = entries(await exported(Parts(database, blobs)))

    async def disturb(number: int) -> None:
        """Everything that may change, changes."""
        step = number % 6
        if step == 0:
            await talk(database, ANN, "s", f"disturbing {number}")
            await talk(database, ANN, f"new-{number}", "hello")
            await database.write(sessions.update, ANN, "s", title=f"title {number}")
        elif step == 1:
            await submit(database, f"t{1 + number % 20}", topics=(f"topic {number}",), objective="another")
            await react(database, "t3", f"changed {number}")
        elif step == 2:
            await database.write(sessions.record_usage, ANN, "s", [Usage("context", uri(ANN, "n1"))])
            await commit(database, ANN, "s", f"more-{number}") if await _live(database) else None
        elif step == 3 and await _claimable(database):
            name = f"n{number % 4}"
            version = await database.read_global(_newest, name)
            await apply_next(database, preference(name, version, version + 1, f"late {number}"))

    disturbed = Disturbed(database, disturb)
    busy = entries(await exported(Parts(disturbed, blobs)))

    assert disturbed.reads > 40
    assert list(busy) == list(quiet)
    assert [
        name for name in quiet if name not in ("manifest.json", "checksums.json") and busy[name] != quiet[name]
    ] == []
    counts = [json.loads(of["manifest.json"])["counts"] for of in (quiet, busy)]
    assert counts[0] == counts[1]
    # It did change.
    after = entries(await exported(Parts(database, blobs)))
    assert sum(after.get(name) != content for name, content in quiet.items()) > 8


async def _live(database: Database) -> bool:
    return (await database.read(sessions.get, ANN, "s")).live_count > 0


async def _claimable(database: Database) -> bool:
    return await database.read(jobs.open_jobs, ANN, jobs.COMMIT) > 0


async def _newest(tx: Tx, name: str) -> int:
    row = await tx.fetchrow(
        "SELECT MAX(version) AS v FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3",
        ANN.account, ANN.user, uri(ANN, name),
    )  # fmt: skip
    assert row is not None
    return int(row["v"])


@pytest.mark.parametrize(("what", "at"), [("user", 1), ("session", 2), ("user", 9), ("session", 30)])
async def test_what_is_deleted_meanwhile_ends_the_export(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, what: str
) -> None:
    monkeypatch.setattr(exporting, "SLICE", 3)
    monkeypatch.setattr(exporting, "FIRST_SLICE", 2)
    blobs = FolderBlobs(tmp_path)
    await live(database, blobs)

    async def disturb(number: int) -> None:
        if number == at and what == "user":
            await database.write(deletion.delete_user, ANN, "")
            # Who begins again under the same names is not taken for who was there.
            await talk(OpenSpaces(database), ANN, "s", *(["again"] * 70)) if not await _shut(database) else None
        elif number == at:
            await database.write(deletion.delete_session, ANN, "other", "")

    disturbed = Disturbed(database, disturb)
    with pytest.raises(SpaceChanged):
        await exported(Parts(disturbed, blobs))
    assert disturbed.reads >= at


async def _shut(database: Database) -> bool:
    return bool(await database.read_global(space_locks.waiting))


async def test_a_space_that_is_shut_is_not_exported(database: Database, tmp_path: Path) -> None:
    await live_a_little(database, ANN)
    await database.write(space_locks.lock, ANN)
    with pytest.raises(SpaceChanged):
        await exported(Parts(database, FolderBlobs(tmp_path)))


# Imports


@dataclass(frozen=True)
class Begun:
    database: Database
    id: str = "import-1"

    async def write(self, table: str, *rows: dict[str, Any]) -> None:
        await self.database.write(importing.write, ANN, self.id, LEASE, table, rows)


@pytest.fixture
async def begun(database: Database) -> Begun:
    await database.write(importing.begin, ANN, "import-1", LEASE, 7)
    one = Begun(database)
    await one.write("sessions", {"session_id": "s", "last_sequence": 1})
    await one.write("messages", {"session_id": "s", "sequence": 1, "message_id": "m1", "parts": "[]"})
    return one


async def test_nobody_sees_an_import_before_it_is_finished(begun: Begun, database: Database) -> None:
    callers = OpenSpaces(database)
    for call in (
        lambda: callers.read(sessions.page, ANN, None, 10),
        lambda: callers.write(sessions.create, ANN, "mine"),
        lambda: callers.write(importing.begin, ANN, "another", LEASE, 1),
        lambda: callers.write(deletion.delete_user, ANN, ""),
    ):
        with pytest.raises(SpaceShut):
            await call()
    assert await callers.read(sessions.page, BOB, None, 10) == []

    assert await database.write(importing.finish, ANN, begun.id, []) == 7

    (session,) = await callers.read(sessions.page, ANN, None, 10)
    assert session.session_id == "s"


async def test_a_live_import_is_not_taken_for_dead(
    begun: Begun, database: Database, clock: Clock, tmp_path: Path
) -> None:
    cleaner = Cleaner(database, FolderBlobs(tmp_path))
    for _ in range(5):
        clock.advance(50)
        await database.write(importing.go_on, ANN, begun.id, LEASE)
        await cleaner.clean()
    assert await database.write(importing.finish, ANN, begun.id, []) == 7
    await cleaner.clean()
    assert len(await database.read(sessions.page, ANN, None, 10)) == 1


async def test_blobs_of_an_import_are_kept_until_rows_name_them(
    begun: Begun, database: Database, clock: Clock, tmp_path: Path
) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    name = blobs.put(ANN, b"a long output")
    (path,) = (path for path in (tmp_path / "blobs").rglob("*") if path.is_file())
    os.utime(path, (0, 0))
    for _ in range(200):
        clock.advance(50)
        await database.write(importing.go_on, ANN, begun.id, LEASE)
    await Cleaner(database, blobs).clean()
    assert blobs.get(ANN, name) == b"a long output"
    await database.write(importing.finish, ANN, begun.id, [])
    # Nobody came to name it.
    await Cleaner(database, blobs).clean()
    assert not path.exists()


async def test_of_a_dead_import_nothing_stays(begun: Begun, database: Database, clock: Clock, tmp_path: Path) -> None:
    assert 0 < (await database.read_global(space_locks.next_expiry) or 0) <= LEASE
    clock.advance(61)
    await Cleaner(database, FolderBlobs(tmp_path)).clean()

    assert set(await dump(database, ANN)) <= STAYS
    assert await database.read_global(space_locks.next_expiry) is None
    for late in (
        lambda: begun.write("messages", {"session_id": "s", "sequence": 2, "message_id": "m2", "parts": "[]"}),
        lambda: database.write(importing.finish, ANN, begun.id, []),
        lambda: database.write(importing.go_on, ANN, begun.id, LEASE),
    ):
        with pytest.raises(ImportLost):
            await late()
    again = await database.write(importing.begin, ANN, "import-2", LEASE, 3)
    # Behind all revisions that the dead one may have named points by.
    assert (again.offset, again.fresh) == (8, False)
    with pytest.raises(ImportLost):
        await begun.write("messages", {"session_id": "s", "sequence": 2, "message_id": "m2", "parts": "[]"})
    await database.write(importing.finish, ANN, "import-2", [])
    assert set(await dump(database, ANN)) <= STAYS


async def test_an_import_that_is_being_taken_away_does_not_come_back(
    begun: Begun, database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server stood still, and goes on when the first slice is gone."""
    monkeypatch.setattr(deletion, "SLICE", 1)
    clock.advance(61)
    assert await database.write(deletion.empty, ANN)
    with pytest.raises(ImportLost):
        await begun.write("messages", {"session_id": "s", "sequence": 2, "message_id": "m2", "parts": "[]"})
    with pytest.raises(ImportLost):
        await database.write(importing.finish, ANN, begun.id, [])


@pytest.mark.parametrize("kind", ["session", "memory", "task"])
async def test_who_has_anything_cannot_import(database: Database, kind: str) -> None:
    if kind == "session":
        await talk(database, ANN, "s")
    else:
        await live_a_little(database, ANN)
        await database.write(deletion.delete_session, ANN, "s", "")
    if kind == "task":
        await database.write(_forget_memories, ANN)
    with pytest.raises(SpaceNotEmpty):
        await database.write(importing.begin, ANN, "import-1", LEASE, 7)


async def _forget_memories(tx: Tx, space: Space) -> None:
    for table in ("memories", "commits", "active_counts"):
        await tx.execute(f"DELETE FROM {table} WHERE account = $1 AND user_id = $2", space.account, space.user)


async def test_rows_that_cannot_stand_beside_each_other_are_refused(begun: Begun) -> None:
    for row in (
        {"session_id": "s", "sequence": 1, "message_id": "m2", "parts": "[]"},
        {"session_id": "s", "sequence": 2, "message_id": "m1", "parts": "[]"},
    ):
        with pytest.raises(importing.RowsCollide):
            await begun.write("messages", row)


async def test_a_damaged_archive_leaves_the_user_with_nothing(new_store: NewStore, tmp_path: Path) -> None:
    first, second = new_store().connect(), new_store().connect()
    await first.open()
    await second.open()
    blobs = FolderBlobs(tmp_path / "a")
    await live(first, blobs)
    archive = await exported(Parts(first, blobs))
    parts = Parts(second, FolderBlobs(tmp_path / "b"))
    with pytest.raises(ApiError, match=r"ends too early|not whole"):
        await imported(parts, archive[: len(archive) * 9 // 10])
    assert set(await dump(second, ANN)) - {"leftovers", "messages", "turns", "turn_artifacts", "turn_tags"} <= STAYS
    assert (await imported(parts, archive)).revision_offset > 0
    await first.close()
    await second.close()
