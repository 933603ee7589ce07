"""The embedded index lets go of removed points by itself: when it does, what it may not disturb, what may end it."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy
import pytest

from runekeep_storage.embedders.vectors import to_bytes
from runekeep_storage.index import edge_upkeep, telemetry
from runekeep_storage.index.base import IndexHits, IndexPoint, IndexUnavailable, VectorSpace
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.index.edge_child import EdgeChild
from runekeep_storage.index.edge_engine import EdgeEngine
from runekeep_storage.index.edge_upkeep import MIN_REMOVED, EdgeUpkeep, is_due
from runekeep_storage.index.sparse import encode_document
from tests.storage.index.test_index_edge import until_available
from tests.support.storage.index_points import ask, opened, point

SPACE = VectorSpace("a-hundred-numbers", 100)
_RANDOM = numpy.random.default_rng(7)
_ROUND = 2_000
_LIVING = 250
WORD = "bettongia"


def _made(number: int, text: str) -> IndexPoint:
    return replace(
        point("", number=number + 1, dense=to_bytes(_RANDOM.normal(size=100).tolist())),
        uri=f"viking://user/ann/memories/preferences/{text.split()[0]}-{number}.md",
        sparse=encode_document(text),
    )


KEPT = [_made(number, f"kept tea {number % 9} {'green' if number % 4 else 'black'}") for number in range(_LIVING)]
KEPT_IDS = [one.id for one in KEPT]
PASSING = [_made(number, f"{WORD} tea {number % 9}") for number in range(_LIVING, _LIVING + _ROUND)]
QUERY = replace(ask("green tea 5", dense=PASSING[0].dense), limit_per_leg=_LIVING)


def _round(number: int) -> list[IndexPoint]:
    return [replace(one, id=str(UUID(int=1_000_000 * (number + 1) + at))) for at, one in enumerate(PASSING)]


async def _wear(index: EdgeIndex, rounds: int) -> None:
    """Writes and removes PASSING that many times, beside what lives."""
    for number in range(rounds):
        points = _round(number)
        for start in range(0, _ROUND, 500):
            await index.upsert(points[start : start + 500])
        await index.delete([one.id for one in points])
    await index.flush()


def _disk(folder: Path) -> int:
    """Bytes that are taken on the disk; files of the index have holes."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def _told(folder: Path) -> int:
    return sum(path.read_bytes().count(WORD.encode()) for path in folder.rglob("*") if path.is_file())


def _shards(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def _counted(result: str) -> float:
    return float(telemetry.INDEX_COMPACTIONS.labels(result)._value.get())


async def _removed(index: EdgeIndex) -> int:
    removed: int = (await index._call("occupancy"))[1]
    return removed


@pytest.fixture
def unattended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes look after themselves when a test tells them to."""
    monkeypatch.setattr(edge_upkeep, "LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(edge_upkeep, "REST", 0.0)


@pytest.fixture
async def index(tmp_path: Path, unattended: None) -> AsyncIterator[EdgeIndex]:
    """Holds KEPT."""
    async with opened(EdgeIndex(tmp_path / "index"), SPACE) as made:
        await made.upsert(KEPT)
        await made.flush()
        yield made


@pytest.fixture(scope="module")
def worn_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an index that holds KEPT and has lost three rounds: to write those takes longer than the tests of it."""
    folder = tmp_path_factory.mktemp("worn") / "index"
    engine = EdgeEngine(folder)
    engine.open(SPACE)
    engine.upsert(KEPT)
    for number in range(3):
        engine.upsert(_round(number))
        engine.delete([one.id for one in _round(number)])
    engine.close()
    return folder


@pytest.fixture
async def worn(tmp_path: Path, worn_files: Path, unattended: None) -> AsyncIterator[EdgeIndex]:
    """On a copy of `worn_files`."""
    shutil.copytree(worn_files, tmp_path / "index")
    async with opened(EdgeIndex(tmp_path / "index"), SPACE) as made:
        assert await _removed(made) == 3 * _ROUND
        yield made


Listener = Callable[[str], Awaitable[None]]


def _listen(monkeypatch: pytest.MonkeyPatch, *, before: Listener | None = None, after: Listener | None = None) -> None:
    """Tells of the calls of the process. What a listener calls itself is not told."""
    call = EdgeChild.call
    within = False

    async def told(listener: Listener | None, operation: str) -> None:
        nonlocal within
        if listener is not None and not within:
            within = True
            try:
                await listener(operation)
            finally:
                within = False

    async def listening(child: EdgeChild, operation: str, *arguments: Any, **more: Any) -> Any:
        await told(before, operation)
        answer = await call(child, operation, *arguments, **more)
        await told(after, operation)
        return answer

    monkeypatch.setattr(EdgeChild, "call", listening)


def _kill(index: EdgeIndex) -> None:
    pid = index.child_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


async def _is_as_it_was(index: EdgeIndex, folder: Path, before: IndexHits) -> None:
    assert await until_available(index.count_all) == _LIVING
    assert await index.list_ids("acme", "ann") == KEPT_IDS
    after = await index.query(QUERY)
    # Edge adds up the weights of words in the order in which it met the words first, so the last bit may differ.
    for leg, expected in ((after.dense, before.dense), (after.sparse, before.sparse)):
        assert {hit.id: hit.score for hit in leg} == pytest.approx({hit.id: hit.score for hit in expected}, rel=1e-6)
        assert {hit._replace(score=0.0) for hit in leg} == {hit._replace(score=0.0) for hit in expected}
    assert len(before.dense) == len(before.sparse) == _LIVING
    assert len(_shards(folder)) == 1


async def test_an_index_that_is_written_and_emptied_stays_as_small_as_what_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(EdgeIndex(tmp_path / "fresh"), SPACE) as fresh:
        await fresh.upsert(KEPT)
        before = await fresh.query(QUERY)
    small = _disk(tmp_path / "fresh")
    monkeypatch.setattr(edge_upkeep, "LOOK_SECONDS", 0.05)
    folder, done = tmp_path / "index", _counted("done")
    async with opened(EdgeIndex(folder), SPACE) as index:
        await index.upsert(KEPT)
        for _ in range(2):
            await _wear(index, 4)
            async with asyncio.timeout(60):
                while await _removed(index) > MIN_REMOVED:  # noqa: ASYNC110 (nothing tells of it)
                    await asyncio.sleep(0.01)
            most = (await index._call("occupancy"))[0] + MIN_REMOVED
            # The bound is of points: a fresh index has so many bytes for each of those that live.
            assert _disk(folder) < most * small / _LIVING
        assert _counted("done") - done >= 2
        await _is_as_it_was(index, folder, before)


async def test_results_are_the_same_and_nothing_of_what_was_removed_is_left(index: EdgeIndex, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    fresh = _disk(folder)
    await _wear(index, 3)
    before, worn = await index.query(QUERY), _disk(folder)
    assert await _removed(index) == 3 * _ROUND
    assert _told(folder) > 0 and worn > 3 * fresh

    await index._upkeep._look()

    assert await index._call("occupancy") == (_LIVING, 0)
    assert _told(folder) == 0
    assert _disk(folder) < 2 * fresh
    await _is_as_it_was(index, folder, before)


async def test_what_was_removed_before_a_kill_counts(index: EdgeIndex, tmp_path: Path) -> None:
    await _wear(index, 3)
    _kill(index)
    assert await until_available(lambda: _removed(index)) == 3 * _ROUND

    await index._upkeep._look()

    assert await _removed(index) == 0


async def test_it_copies_once_for_what_was_removed_once(index: EdgeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def listen(operation: str) -> None:
        asked.append(operation)

    _listen(monkeypatch, after=listen)
    for _ in range(3):
        await _wear(index, 1)
        await index._upkeep._look()
        assert asked.count("purge_start") == (1 if await _removed(index) == 0 else 0)
    for _ in range(3):
        await index._upkeep._look()

    assert asked.count("purge_start") == 1
    assert asked.count("purge_step") == -(-_LIVING // 100)


@pytest.mark.parametrize(
    ("living", "removed", "due"),
    [
        (0, 0, False),
        (0, MIN_REMOVED, False),
        (0, MIN_REMOVED + 1, True),
        (MIN_REMOVED, MIN_REMOVED + 1, True),
        (10 * MIN_REMOVED, 10 * MIN_REMOVED, False),
        (10 * MIN_REMOVED, 10 * MIN_REMOVED + 1, True),
    ],
)
def test_a_copy_is_due_where_more_is_removed_than_lives(living: int, removed: int, due: bool) -> None:
    assert is_due(living, removed) is due


async def test_a_point_that_is_overwritten_is_not_one_that_was_removed(index: EdgeIndex, tmp_path: Path) -> None:
    fresh = _disk(tmp_path / "index")
    for _ in range(30):
        await index.upsert([replace(one, order=one.order + 1) for one in KEPT])
        await index.flush()
    assert await index._call("occupancy") == (_LIVING, 0)
    written = [path for path in (tmp_path / "index").rglob("*") if "wal" not in path.parts and path.is_file()]
    assert sum(path.stat().st_blocks * 512 for path in written) < 2 * fresh


async def test_writes_that_come_during_the_copy_are_in_it(
    worn: EdgeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = iter([KEPT[0], KEPT[-1], KEPT[120]])
    new = [_made(number, "late tea") for number in range(5_000_000, 5_000_003)]
    changed = replace(KEPT[-2], sparse=encode_document("wallaby"))

    async def write(operation: str) -> None:
        if operation == "purge_step":
            await worn.delete([next(gone).id])
            await worn.upsert([new.pop(), changed])

    with monkeypatch.context() as during:
        _listen(during, before=write)
        expected = sorted({*KEPT_IDS, *(one.id for one in new)} - {KEPT[0].id, KEPT[-1].id, KEPT[120].id})
        await worn._upkeep._look()
    assert not new, "the copy took three slices, with a write before each"

    assert await worn.list_ids("acme", "ann") == expected
    assert [hit.id for hit in (await worn.query(ask("wallaby"))).sparse] == [changed.id]
    _kill(worn)
    assert await until_available(lambda: worn.list_ids("acme", "ann")) == expected
    assert [hit.id for hit in (await worn.query(ask("wallaby"))).sparse] == [changed.id]
    assert _told(tmp_path / "index") == 0


@pytest.mark.parametrize("sent", [False, True], ids=["before the call", "in the call"])
@pytest.mark.parametrize(
    ("operation", "time"), [("purge_start", 1), ("purge_step", 1), ("purge_step", 2), ("purge_step", 3)]
)
async def test_a_copy_whose_process_is_killed_costs_nothing_but_the_copy(
    worn: EdgeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, time: int, sent: bool
) -> None:
    """The third slice is the last one, after which the copy takes the place of the shard."""
    before, failed, passed = await worn.query(QUERY), _counted("failed"), 0

    async def strike(called: str) -> None:
        nonlocal passed
        passed += called == operation
        if called == operation and passed == time:
            if sent:
                asyncio.get_running_loop().call_soon(_kill, worn)
            else:
                _kill(worn)

    with monkeypatch.context() as during:
        _listen(during, before=strike)
        # In the call, it may have been done before the kill.
        with suppress(IndexUnavailable) if sent else pytest.raises(IndexUnavailable):
            await worn._upkeep._look()
    assert passed == time
    if not sent:
        assert _counted("failed") == failed + 1

    await _is_as_it_was(worn, tmp_path / "index", before)
    await worn._upkeep._look()
    assert await _removed(worn) == 0
    await _is_as_it_was(worn, tmp_path / "index", before)


async def test_the_files_as_a_kill_leaves_them_at_every_step_are_an_index(tmp_path: Path, worn_files: Path) -> None:
    """What is on disk between two calls, and after the last, each opened by a process of its own."""
    shutil.copytree(worn_files, tmp_path / "index")
    engine = EdgeEngine(tmp_path / "index")
    engine.open(SPACE)
    before = engine.query(QUERY)
    engine.purge_start()
    left = [shutil.copytree(tmp_path / "index", tmp_path / "at-0")]
    while engine.purge_step():
        left.append(shutil.copytree(tmp_path / "index", tmp_path / f"at-{len(left)}"))
    left.append(shutil.copytree(tmp_path / "index", tmp_path / "at-the-end"))
    engine.close()
    for folder in left:
        async with opened(EdgeIndex(folder), SPACE) as index:
            await _is_as_it_was(index, folder, before)
            assert await _removed(index) == (0 if folder == left[-1] else 3 * _ROUND)


async def test_an_erasure_goes_before_a_copy_that_is_under_way(
    worn: EdgeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy may hold what was removed since it began."""
    erased = replace(KEPT[0], uri=f"viking://user/ann/memories/preferences/{WORD}.md")
    await worn.upsert([erased])
    purges: list[asyncio.Task[None]] = []
    gave_way, asked = _counted("gave_way"), []

    async def erase(operation: str) -> None:
        asked.append(operation)
        if operation == "purge_step" and not purges:
            await worn.delete([erased.id])
            purges.append(asyncio.create_task(worn.purge()))
            await asyncio.sleep(0)

    _listen(monkeypatch, after=erase)
    await worn._upkeep._look()
    await purges[0]

    assert _counted("gave_way") == gave_way + 1
    assert [one for one in asked if one == "purge_start"] == ["purge_start"] * 2
    assert _told(tmp_path / "index") == 0
    assert await worn.list_ids("acme", "ann") == KEPT_IDS[1:]
    assert await worn._call("occupancy") == (_LIVING - 1, 0)


async def test_a_copy_that_ends_before_its_end_is_thrown_away(
    worn: EdgeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept, all that is written would go to it too, for as long as the process lives."""
    purges: list[asyncio.Task[None]] = []
    asked: list[str] = []

    async def cut(operation: str) -> None:
        asked.append(operation)
        if operation == "purge_step":
            purges[0].cancel()

    _listen(monkeypatch, after=cut)
    purges.append(asyncio.create_task(worn.purge()))
    with pytest.raises(asyncio.CancelledError):
        await purges[0]

    assert asked == ["purge_start", "purge_step", "purge_drop"]
    assert len([path for path in (tmp_path / "index").iterdir() if path.is_dir()]) == 1
    assert await worn.list_ids("acme", "ann") == KEPT_IDS


async def test_an_index_that_is_closed_while_it_is_opened_is_looked_after_no_more(index: EdgeIndex) -> None:
    upkeep = edge_upkeep.EdgeUpkeep(index._call)
    await upkeep.stop()
    upkeep.start()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "index-upkeep"][1:]


async def test_a_look_during_a_purge_waits_and_finds_nothing_to_do(
    worn: EdgeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, asked = await worn.query(QUERY), []
    looks: list[asyncio.Task[None]] = []

    async def look(operation: str) -> None:
        asked.append(operation)
        if operation == "purge_step" and not looks:
            looks.append(asyncio.create_task(worn._upkeep._look()))
            await asyncio.sleep(0)

    _listen(monkeypatch, after=look)
    await asyncio.gather(worn.purge(), worn.purge())
    await looks[0]

    # Both purges copy, for each of them may be for something that was removed after the other had begun.
    assert asked.count("purge_start") == 2
    await _is_as_it_was(worn, tmp_path / "index", before)


class _Clock:
    """Time that passes when a call is made, two seconds each, and what was slept in between."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self._left = calls
        monkeypatch.setattr(edge_upkeep, "perf_counter", lambda: self.now)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def call(self, operation: str, /, *, timeout: float | None = None) -> Any:
        self.now += 2.0
        if operation == "occupancy":
            return 0, MIN_REMOVED + 1
        if operation == "purge_step":
            self._left -= 1
        return self._left > 0


async def test_a_copy_that_nobody_waits_for_leaves_most_of_the_time_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch, calls=4)
    await EdgeUpkeep(clock.call)._look()
    assert clock.slept == [2.0 * edge_upkeep.REST] * 3 and edge_upkeep.REST >= 1

    clock = _Clock(monkeypatch, calls=4)
    await EdgeUpkeep(clock.call).purge()
    assert clock.slept == [], "an erasure waits for its own"


async def test_a_copy_that_fails_is_tried_again_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    enough = asyncio.Event()
    failing = 9

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 11:
            enough.set()
            await asyncio.Event().wait()

    async def call(operation: str, /, *, timeout: float | None = None) -> Any:
        if operation == "occupancy":
            return (0, MIN_REMOVED + 1) if len(slept) <= failing else (0, 0)
        if len(slept) % 2:
            raise IndexUnavailable("the disk is full")
        raise KeyError(operation)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    upkeep = EdgeUpkeep(call)
    failed = _counted("failed")
    upkeep.start()
    upkeep.start()
    await enough.wait()
    await upkeep.stop()

    look = edge_upkeep.LOOK_SECONDS
    growing = [min(look * 2**failures, edge_upkeep.MAX_LOOK_SECONDS) for failures in range(failing + 1)]
    assert slept == [*growing, look], "and after a look that found nothing it is as at first"
    assert growing[-1] == edge_upkeep.MAX_LOOK_SECONDS
    assert _counted("failed") == failed + failing


async def test_a_closed_index_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_upkeep, "LOOK_SECONDS", 0.0)
    index = EdgeIndex(tmp_path / "index")
    await index.open(SPACE)
    await index.open(SPACE)
    await index.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "index-upkeep"]
    assert index.child_pid is None
