"""Imports that ask for more than they may, or that contradict themselves; and what goes on beside an import."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from runekeep.v1 import common_pb2
from runekeep.v1 import space_service_pb2 as pb
from schemas.exports.archive import ArchiveError
from schemas.exports.layout import REST
from schemas.exports.rows import decode, longest
from schemas.exports.work_rows import JobRow, check_job
from server import import_intake
from server.errors import ApiError
from server.settings import LimitSettings
from server.space_import import Imports
from storage import backfill, exporting, importing, passages
from storage.blobs import FolderBlobs
from storage.database import Database, Space
from storage.errors import ImportLost
from storage.exporting import Spool
from storage.outbox import FIRST
from tests.contract.deletion_fixtures import STAYS, dump
from tests.contract.store_fixtures import ANN, BOB
from tests.contract.test_store_exports import LEASE, REGISTRY, Parts, exported, imported, live
from tests.support.exports import entries, sealed

Files = dict[str, bytes]
LEFT = {"leftovers", "messages", "turns", "turn_artifacts", "turn_tags"}
"""Of sessions that are gone, what is taken away behind them."""


@pytest.fixture
async def files(database: Database, tmp_path: Path) -> Files:
    blobs = FolderBlobs(tmp_path)
    await live(database, blobs)
    return entries(await exported(Parts(database, blobs)))


def changed(files: Files, name: str, change: Callable[[dict[str, Any]], object], at: int = 0) -> Files:
    lines = files[name].splitlines(keepends=True)
    row = json.loads(lines[at])
    change(row)
    lines[at] = json.dumps(row).encode() + b"\n"
    return {**files, name: b"".join(lines)}


async def refused(database: Database, folder: Path, files: Files, why: str) -> None:
    with pytest.raises(ApiError, match=why) as error:
        await imported(Parts(database, FolderBlobs(folder / "others")), sealed(files.items()), BOB)
    assert error.value.reason == common_pb2.ERROR_REASON_EXPORT_INVALID
    assert set(await dump(database, BOB)) - LEFT <= STAYS


def _of(session: str, row: dict[str, Any]) -> None:
    row["session_id"] = session


def _numbered(index: int, row: dict[str, Any]) -> None:
    row["archive_index"] = index


async def test_what_the_changes_here_begin_with_is_taken(database: Database, tmp_path: Path, files: Files) -> None:
    same = changed(files, "data/jobs.jsonl", lambda row: None)
    await imported(Parts(database, FolderBlobs(tmp_path / "others")), sealed(same.items()), BOB)


@pytest.mark.parametrize("priority", [-101, 101, 1000, 2**31 - 1])
async def test_a_commit_has_no_higher_priority_than_a_caller_may_give(
    database: Database, tmp_path: Path, files: Files, priority: int
) -> None:
    more = changed(files, "data/jobs.jsonl", lambda row: row.update(priority=priority))
    await refused(database, tmp_path, more, "jobs is not of its form")


@pytest.mark.parametrize(
    ("query", "is_taken"),
    [
        (["", "tea", ""], True),
        (["assistant_artifact", "t" * 256, "r" * 256], True),
        (["nowhere", "tea", ""], False),
        (["user", "", ""], False),
        (["user", "t" * 257, ""], False),
        (["user", "tea", "r" * 257], False),
        (["user", "tea"], False),
    ],
)
async def test_queries_of_a_turn_that_waits_are_within_the_bounds_of_the_contract(
    database: Database, tmp_path: Path, files: Files, query: list[str], is_taken: bool
) -> None:
    """Whoever runs the job relies on it."""

    def of_turn(row: dict[str, Any]) -> None:
        plan = {"turn_id": "t1", "assistant_signal_spec": "", "ctx_retrieval_queries": [query]}
        lane = f"turn:{row['session_id']}:t1"
        row.update(kind="turn_fingerprint", plan=plan, lane=lane, archive_index=0, priority=1000)

    more = changed(files, "data/jobs.jsonl", of_turn)
    if is_taken:
        JobRow.model_validate(json.loads(more["data/jobs.jsonl"]))
        check_job(json.loads(more["data/jobs.jsonl"]))
    else:
        await refused(database, tmp_path, more, "jobs is not of its form")


async def test_work_is_about_a_session_that_is_there(database: Database, tmp_path: Path, files: Files) -> None:
    ghost = changed(files, "data/jobs.jsonl", lambda row: _of("ghost", row))
    waits = next(at for at, line in enumerate(files["data/tasks.jsonl"].splitlines()) if b'"waits"' in line)
    ghost = changed(ghost, "data/tasks.jsonl", lambda row: _of("ghost", row), waits)
    await refused(database, tmp_path, ghost, "a session that it does not have")


async def test_a_commit_is_of_an_archive_that_waits_for_it(database: Database, tmp_path: Path, files: Files) -> None:
    other = changed(files, "data/jobs.jsonl", lambda row: _numbered(7, row))
    await refused(database, tmp_path, other, "wait for commits, and not for those")


async def test_an_archive_does_not_wait_for_nothing(database: Database, tmp_path: Path, files: Files) -> None:
    tasks = [line for line in files["data/tasks.jsonl"].splitlines(keepends=True) if b'"waits"' not in line]
    manifest = json.loads(files["manifest.json"])
    manifest["counts"]["tasks"] -= 1
    alone = {
        **files,
        "manifest.json": json.dumps(manifest).encode(),
        "data/jobs.jsonl": b"",
        "data/tasks.jsonl": b"".join(tasks),
    }
    await refused(database, tmp_path, alone, "more work than it has")


async def test_an_erased_message_says_nothing(database: Database, tmp_path: Path, files: Files) -> None:
    told = changed(files, "sessions/other/messages.jsonl", lambda row: row.update(erased=1))
    await refused(database, tmp_path, told, "messages is not of its form")


@pytest.mark.parametrize("moment", [2**61, -(2**61), 253_402_300_800_000_000, -62_135_596_800_000_001])
async def test_what_happened_has_a_time_that_can_be_told(
    database: Database, tmp_path: Path, files: Files, moment: int
) -> None:
    beyond = changed(files, "data/memories.jsonl", lambda row: row.update(happened_at=moment))
    await refused(database, tmp_path, beyond, "happened_at")


@pytest.mark.parametrize(("bound", "value"), [("MOST_JOBS", 0), ("MOST_SESSIONS", 1)])
async def test_what_is_kept_until_the_end_has_a_bound(
    database: Database, tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    monkeypatch.setattr(import_intake, bound, value)
    await refused(database, tmp_path, files, "more than")


async def test_a_line_is_no_longer_than_its_table_needs(database: Database, tmp_path: Path, files: Files) -> None:
    most = longest("commits")
    assert most < longest("sessions") < longest("messages")
    long = {**files, "data/commits.jsonl": b" " * most + files["data/commits.jsonl"]}
    await refused(database, tmp_path, long, "too long")


def test_a_line_of_very_many_values_is_refused_before_it_is_parsed() -> None:
    line = b'{"parts":[' + b"{}," * (18 * 2**16) + b"{}]}"
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError):
            decode("messages", line)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(line)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("inside", [b",{[" * 2**22, b'\\"{,' * 2**22])
def test_what_stands_in_a_text_is_no_value(inside: bytes) -> None:
    row = {"uri": "viking://user/ann/memories/x.md", "uses": 1}
    with pytest.raises(ArchiveError, match="more: extra_forbidden"):
        decode("active_counts", json.dumps(row).encode()[:-1] + b',"more":"' + inside + b'"}')


# Beside an import


async def test_what_an_import_makes_is_not_searched_before_it_is_there(database: Database) -> None:
    """Descriptions of its pictures may come behind its archives, and passages are made once."""
    await database.write(importing.begin, ANN, "import-1", LEASE, 7)
    lease = (ANN, "import-1", LEASE)
    session = {"session_id": "s", "last_sequence": 1, "archived_sequence": 1}
    archive = {"session_id": "s", "archive_index": 1, "first_sequence": 1, "last_sequence": 1, "task_id": "t"}
    memory = {"uri": "viking://user/ann/memories/preferences/x.md", "version": 1, "memory_type": "preferences",
              "fields": '{"topic":"x","content":"y"}', "rev_from": 1}  # fmt: skip
    passage = {"session_id": "s", "sequence": 1, "archive_index": 1, "task_id": "t", "content": "Ann: tea"}
    for table, row in (("sessions", session), ("archives", archive), ("memories", memory), ("passages", passage)):
        await database.write(importing.write, *lease, table, [row])

    assert await database.read(passages.waiting_spaces, FIRST, 10) == ([], FIRST)
    assert await database.read(passages.waiting, ANN) == []
    assert await database.read(backfill.waiting_spaces, FIRST, 10) == ([], FIRST)
    assert await database.read(backfill.missing, ANN, REGISTRY, 10) == []

    await database.write(importing.finish, ANN, "import-1", [])
    assert await database.read(passages.waiting_spaces, FIRST, 10) == ([ANN], FIRST)
    assert len(await database.read(passages.waiting, ANN)) == 1
    assert await database.read(backfill.waiting_spaces, FIRST, 10) == ([ANN], FIRST)
    assert {one.table for one in await database.read(backfill.missing, ANN, REGISTRY, 10)} == {"memories", "passages"}


def test_pictures_are_described_before_their_archives_come() -> None:
    assert REST.index("image_descriptions") < REST.index("archives")


class Held:
    """An import whose caller has sent the half of it, and waits."""

    def __init__(self, imports: Imports, space: Space, archive: bytes) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self._archive = archive
        self.task = asyncio.create_task(imports.take(space, self._requests()))

    async def _requests(self) -> AsyncIterator[pb.ImportSpaceRequest]:
        yield pb.ImportSpaceRequest(options=pb.ImportOptions())
        half = len(self._archive) // 2
        self.asked.set()
        yield pb.ImportSpaceRequest(data=self._archive[:half])
        await self.go_on.wait()
        yield pb.ImportSpaceRequest(data=self._archive[half:])


async def test_few_imports_go_on_at_once(database: Database, tmp_path: Path, files: Files) -> None:
    parts: Any = Parts(database, FolderBlobs(tmp_path / "others"))
    imports = Imports(parts, most_bytes=2**30, limits=LimitSettings(), lease_seconds=60.0, queued=lambda: None)
    held = [Held(imports, Space(ANN.account, f"user-{n}"), sealed(files.items())) for n in range(3)]
    first, second, third = held
    async with asyncio.timeout(60):
        await first.asked.wait()
        await second.asked.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not third.asked.is_set()
        first.go_on.set()
        await first.task
        await third.asked.wait()
        second.go_on.set()
        third.go_on.set()
        answers = [await one.task for one in held]
    assert len({answer.contents.messages for answer in answers}) == 1


async def test_a_caller_who_sends_nothing_does_not_hold_up_others_for_good(
    database: Database, tmp_path: Path, files: Files
) -> None:
    parts: Any = Parts(database, FolderBlobs(tmp_path / "others"))
    limits = LimitSettings(import_idle_seconds=0.05)
    imports = Imports(parts, most_bytes=2**30, limits=limits, lease_seconds=60.0, queued=lambda: None)
    held = Held(imports, BOB, sealed(files.items()))
    with pytest.raises(ImportLost):
        async with asyncio.timeout(60):
            await held.task
    assert set(await dump(database, BOB)) - LEFT <= STAYS


# Exports


def test_slices_of_what_was_read_at_the_moment_are_cut_by_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "SLICE_BYTES", 1000)
    with (tmp_path / "spool").open("w+b") as file:
        spool = Spool(file)
        spool.begin("tasks")
        spool.add("tasks", [{"number": number, "text": "x" * 400} for number in range(10)])
        spool.begin("turns")
        spool.add("turns", [{"other": True}])
        seen: list[int] = []
        some, place = spool.some("tasks", None, 500)
        while some:
            assert len(some) <= 3
            seen += [row["number"] for row in some]
            some, place = spool.some("tasks", place, 500)
        assert seen == list(range(10))
        assert len(spool.some("tasks", None, 2)[0]) == 2
    assert exporting.next_limit(20, [{"text": "x" * 100, "number": 1}] * 20) == 10
    assert exporting.next_limit(20, [{"text": "x" * 5000}] * 20) == 1
    assert exporting.next_limit(20, []) == 20


async def test_an_export_in_small_slices_is_the_same(
    database: Database, tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "SLICE_BYTES", 300)
    small = entries(await exported(Parts(database, FolderBlobs(tmp_path))))
    for one in (small, files):
        manifest = json.loads(one.pop("manifest.json"))
        del manifest["export_time"], one["checksums.json"]
        assert manifest["counts"]["turns"] == 20
    assert small == files
