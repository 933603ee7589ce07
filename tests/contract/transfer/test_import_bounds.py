"""Imports that ask for more than they may, or that contradict themselves; and what goes on beside an import."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runekeep.v1 import common_pb2
from runekeep.v1 import space_service_pb2 as pb
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.settings import LimitSettings
from runekeep_server.spaces import import_intake
from runekeep_server.spaces.importing import Imports
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Space
from runekeep_storage.errors import ImportLost
from runekeep_storage.indexing import passages
from runekeep_storage.indexing.outbox import FIRST
from runekeep_storage.relay import missing_vectors
from runekeep_storage.transfer import exporting, importing
from runekeep_storage.transfer.exporting import Spool
from runekeep_storage.transfer.exports.archive import ArchiveError
from runekeep_storage.transfer.exports.layout import REST
from runekeep_storage.transfer.exports.rows import FORMS, decode
from runekeep_storage.transfer.exports.work_rows import JobRow, check_job
from tests.contract.transfer.test_exports import LEASE
from tests.support.exports import entries, sealed
from tests.support.storage.archives import REGISTRY, Parts, exported, imported, live
from tests.support.storage.databases import ANN, BOB
from tests.support.storage.deletions import STAYS, dump

pytestmark = pytest.mark.postgres_long

Files = Mapping[str, bytes]
Row = dict[str, Any]
LEFT = {"leftovers", "messages", "turns", "turn_artifacts", "turn_tags"}
"""Of sessions that are gone, what is taken away behind them."""


def changed(files: Files, name: str, change: Callable[[Row], object], at: int = 0) -> Files:
    lines = files[name].splitlines(keepends=True)
    row = json.loads(lines[at])
    change(row)
    lines[at] = json.dumps(row).encode() + b"\n"
    return {**files, name: b"".join(lines)}


def job(change: Callable[[Row], object]) -> Callable[[Files], Files]:
    """Changes the one job, a commit that waits."""
    return lambda files: changed(files, "data/jobs.jsonl", change)


def of_turn(query: list[str]) -> Callable[[Row], None]:
    """Makes the job one about a turn, with that query."""

    def change(row: Row) -> None:
        plan = {"turn_id": "t1", "assistant_signal_spec": "", "ctx_retrieval_queries": [query]}
        lane = f"turn:{row['session_id']}:t1"
        row.update(kind="turn_fingerprint", plan=plan, lane=lane, archive_index=0, priority=1000)

    return change


def happened(moment: int) -> Callable[[Files], Files]:
    return lambda files: changed(files, "data/memories.jsonl", lambda row: row.update(happened_at=moment))


def of_no_session(files: Files) -> Files:
    waits = next(at for at, line in enumerate(files["data/tasks.jsonl"].splitlines()) if b'"waits"' in line)
    ghost = job(lambda row: row.update(session_id="ghost"))(files)
    return changed(ghost, "data/tasks.jsonl", lambda row: row.update(session_id="ghost"), waits)


def without_its_job(files: Files) -> Files:
    """The archive that waits, alone."""
    tasks = [line for line in files["data/tasks.jsonl"].splitlines(keepends=True) if b'"waits"' not in line]
    manifest = json.loads(files["manifest.json"])
    manifest["counts"]["tasks"] -= 1
    told = json.dumps(manifest).encode()
    return {**files, "manifest.json": told, "data/jobs.jsonl": b"", "data/tasks.jsonl": b"".join(tasks)}


def of_an_erased_message(files: Files) -> Files:
    return changed(files, "sessions/other/messages.jsonl", lambda row: row.update(erased=1))


def longer_than_its_table_needs(files: Files) -> Files:
    most = FORMS["commits"].max_line_bytes
    assert most < FORMS["sessions"].max_line_bytes < FORMS["messages"].max_line_bytes
    return {**files, "data/commits.jsonl": b" " * most + files["data/commits.jsonl"]}


OF_ITS_FORM = "is not of its form"
REFUSED: dict[str, tuple[Callable[[Files], Files], str]] = {
    **{f"priority {most}": (job(lambda row, most=most: row.update(priority=most)), OF_ITS_FORM)
       for most in (-101, 101, 2**31 - 1)},
    **{f"query {number}": (job(of_turn(query)), OF_ITS_FORM) for number, query in enumerate((
        ["nowhere", "tea", ""], ["user", "", ""], ["user", "t" * 257, ""], ["user", "tea", "r" * 257], ["user", "tea"],
    ))},
    "a job of no session": (of_no_session, "a session that it does not have"),
    "a commit of another archive": (job(lambda row: row.update(archive_index=7)), "and not for those"),
    "an archive that waits for nothing": (without_its_job, "more work than it has"),
    "an erased message that speaks": (of_an_erased_message, OF_ITS_FORM),
    **{f"a time {number}": (happened(moment), "happened_at") for number, moment in enumerate((
        2**61, -(2**61), 253_402_300_800_000_000, -62_135_596_800_000_001,
    ))},
    "a long line": (longer_than_its_table_needs, "too long"),
}  # fmt: skip


async def refused(database: Database, folder: Path, files: Files, why: str) -> None:
    with pytest.raises(ApiError, match=why) as error:
        await imported(Parts(database, FolderBlobs(folder / "others")), sealed(files.items()), BOB)
    assert error.value.reason == common_pb2.ERROR_REASON_EXPORT_INVALID
    assert set(await dump(database, BOB)) - LEFT <= STAYS


async def test_what_contradicts_itself_or_the_contract_is_refused_and_leaves_nothing(
    database: Database, tmp_path: Path, archive_files: Files
) -> None:
    for name, (change, why) in REFUSED.items():
        try:
            await refused(database, tmp_path, change(archive_files), why)
        except BaseException as error:
            error.add_note(name)
            raise
    same = job(lambda row: None)(archive_files)
    await imported(Parts(database, FolderBlobs(tmp_path / "others")), sealed(same.items()), BOB)


@pytest.mark.parametrize("query", [["", "tea", ""], ["assistant_artifact", "t" * 256, "r" * 256]])
def test_queries_of_a_turn_that_a_caller_may_send_are_taken(archive_files: Files, query: list[str]) -> None:
    """Whoever runs the job relies on their bounds."""
    row = json.loads(job(of_turn(query))(archive_files)["data/jobs.jsonl"])
    JobRow.model_validate(row)
    check_job(row)


@pytest.mark.parametrize(("bound", "value"), [("MAX_JOBS", 0), ("MAX_SESSIONS", 1)])
async def test_what_is_kept_until_the_end_has_a_bound(
    database: Database, tmp_path: Path, archive_files: Files, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    monkeypatch.setattr(import_intake, bound, value)
    await refused(database, tmp_path, archive_files, "more than")


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

    assert await database.read_global(passages.waiting_spaces, FIRST, 10) == ([], FIRST)
    assert await database.read(passages.waiting, ANN) == []
    assert await database.read_global(missing_vectors.waiting_spaces, FIRST, 10) == ([], FIRST)
    assert await database.read(missing_vectors.missing, ANN, REGISTRY, 10) == []

    await database.write(importing.finish, ANN, "import-1", [])
    assert await database.read_global(passages.waiting_spaces, FIRST, 10) == ([ANN], FIRST)
    assert len(await database.read(passages.waiting, ANN)) == 1
    assert await database.read_global(missing_vectors.waiting_spaces, FIRST, 10) == ([ANN], FIRST)
    assert {one.table for one in await database.read(missing_vectors.missing, ANN, REGISTRY, 10)} == {
        "memories",
        "passages",
    }


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


async def test_few_imports_go_on_at_once(database: Database, tmp_path: Path, archive_files: Files) -> None:
    parts: Any = Parts(database, FolderBlobs(tmp_path / "others"))
    imports = Imports(parts, most_bytes=2**30, limits=LimitSettings(), lease_seconds=60.0, queued=lambda: None)
    # Its ids are taken from then on, so that each of the others makes its own.
    await imported(parts, sealed(archive_files.items()))
    held = [Held(imports, Space(ANN.account, f"user-{n}"), sealed(archive_files.items())) for n in range(3)]
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
    database: Database, tmp_path: Path, archive_files: Files
) -> None:
    parts: Any = Parts(database, FolderBlobs(tmp_path / "others"))
    limits = LimitSettings(import_idle_seconds=0.05)
    imports = Imports(parts, most_bytes=2**30, limits=limits, lease_seconds=60.0, queued=lambda: None)
    held = Held(imports, BOB, sealed(archive_files.items()))
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
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(database, FolderBlobs(tmp_path))
    await live(database, parts.blobs)
    whole = entries(await exported(parts))
    monkeypatch.setattr(exporting, "SLICE_BYTES", 300)
    small = entries(await exported(parts))
    for one in (small, whole):
        manifest = json.loads(one.pop("manifest.json"))
        del manifest["export_time"], one["checksums.json"]
        assert manifest["counts"]["turns"] == 20
    assert small == whole
