"""What the embedded index keeps of removed points, and that a purge leaves none of it, whatever comes in between."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runekeep_storage.index.base import SPARSE_ONLY, IndexPoint, IndexUnavailable, VectorSpace
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.index.edge_child import EdgeChild
from runekeep_storage.index.edge_engine import EdgeEngine
from tests.support.storage.index_points import EAST, NORTH, SOUTH, SPACE, ask, opened, point

WORD = "bettongia"


def _told(word: str, number: int) -> IndexPoint:
    made = point(f"tea {number} {'green' if number % 7 else 'black'}", number=number + 1)
    return replace(
        made,
        uri=f"viking://user/ann/memories/preferences/{word}-{number}.md",
        dense=(NORTH, EAST, SOUTH)[number % 3],
        tags=("a", "b") if number % 2 else (),
        time=number,
    )


POINTS = [_told(WORD if number % 3 == 0 else "kept", number) for number in range(450)]
ERASED = [one.id for one in POINTS if WORD in one.uri]
KEPT = sorted(one.id for one in POINTS if WORD not in one.uri)


def _bytes(folder: Path) -> int:
    return sum(path.read_bytes().count(WORD.encode()) for path in folder.rglob("*") if path.is_file())


def _shards(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


async def test_removed_points_stay_on_disk_until_a_purge_and_the_others_are_as_they_were(tmp_path: Path) -> None:
    async with opened(EdgeIndex(tmp_path)) as index:
        await index.upsert(POINTS)
        await index.delete(ERASED)
        await index.flush()
        assert _bytes(tmp_path) > 0
        asked = replace(ask("green tea", dense=NORTH), since=100, until=400, tags=("a",), limit_per_leg=300)
        before, id = await index.query(asked), await index.open(SPACE)

        await index.purge()

        assert _bytes(tmp_path) == 0
        assert await index.list_ids("acme", "ann") == KEPT
        assert await index.query(asked) == before
        assert len(before.dense) > 50 and len(before.sparse) > 50
        assert await index.open(SPACE) == id, "it is the same index still"
    assert len(_shards(tmp_path)) == 1
    async with opened(EdgeIndex(tmp_path)) as again:
        assert await again.list_ids("acme", "ann") == KEPT
        assert await again.query(asked) == before
        await again.purge()
        assert await again.list_ids("acme", "ann") == KEPT


async def test_what_is_written_meanwhile_is_in_the_new_one(tmp_path: Path) -> None:
    """The calls go to the child between slices, in the order in which they are made."""
    engine = EdgeEngine(tmp_path)
    engine.open(SPACE)
    engine.upsert(POINTS)
    engine.delete(ERASED)
    engine.purge_start()
    assert engine.purge_step()
    early, late, new = KEPT[0], KEPT[-1], point("new", number=1000)
    engine.delete([early, late])
    engine.upsert([new, replace(POINTS[-2], sparse=point("changed").sparse)])
    engine.upsert([point("other", user="bob", number=2000)])
    engine.delete_space("acme", "bob")
    steps = 1
    while engine.purge_step():
        steps += 1
    assert steps > 1
    expected = sorted({*KEPT, new.id} - {early, late})
    assert engine.list_ids("acme", "ann", None, 1000) == expected
    assert engine.count("acme", "bob") == 0
    assert [hit.id for hit in engine.query(ask("changed")).sparse] == [POINTS[-2].id]
    engine.close()
    engine.open(SPACE)
    assert engine.list_ids("acme", "ann", None, 1000) == expected
    assert _bytes(tmp_path) == 0
    engine.close()


async def test_searches_are_answered_while_it_is_purged(tmp_path: Path) -> None:
    async with opened(EdgeIndex(tmp_path)) as index:
        await index.upsert(POINTS)
        purging = asyncio.create_task(index.purge())
        answered = 0
        while not purging.done():
            assert (await index.query(ask("tea"))).sparse
            answered += 1
        await purging
        assert answered > 1


async def test_an_unfinished_copy_is_thrown_away(tmp_path: Path) -> None:
    engine = EdgeEngine(tmp_path)
    engine.open(SPACE)
    engine.upsert(POINTS)
    engine.flush()
    engine.purge_start()
    assert engine.purge_step()
    assert len(_shards(tmp_path)) == 2
    # As after a kill: nothing is closed.
    next_one = EdgeEngine(_copied(tmp_path, tmp_path.parent / "after"))
    next_one.open(SPACE)
    assert next_one.count_all() == len(POINTS)
    assert len(_shards(tmp_path.parent / "after")) == 1
    with pytest.raises(IndexUnavailable):
        next_one.purge_step()
    next_one.close()
    engine.purge_start()
    assert len(_shards(tmp_path)) == 2, "the copy before went"
    engine.clear()
    assert _shards(tmp_path) == []
    engine.close()


async def test_a_shard_that_was_replaced_goes_at_the_latest_when_it_is_opened(tmp_path: Path) -> None:
    """A kill between the change of `space.json` and the removal of the old directory."""
    engine = EdgeEngine(tmp_path)
    engine.open(SPACE)
    engine.upsert(POINTS)
    engine.delete(ERASED)
    engine.flush()
    before = _copied(tmp_path, tmp_path.parent / "before")
    engine.purge_start()
    while engine.purge_step():
        pass
    engine.close()
    (named,) = _shards(tmp_path)
    _copied(before / "shard", tmp_path / "shard")
    assert _bytes(tmp_path) > 0
    engine.open(SPACE)
    assert _shards(tmp_path) == [named]
    assert _bytes(tmp_path) == 0
    assert engine.list_ids("acme", "ann", None, 1000) == KEPT
    engine.close()


async def test_an_index_from_before_there_were_copies_is_opened(tmp_path: Path) -> None:
    engine = EdgeEngine(tmp_path)
    id = engine.open(SPACE)
    engine.upsert(POINTS)
    engine.close()
    told = json.loads((tmp_path / "space.json").read_text())
    del told["directory"]
    (tmp_path / "space.json").write_text(json.dumps(told))
    assert engine.open(SPACE) == id
    assert engine.count_all() == len(POINTS)
    engine.purge_start()
    while engine.purge_step():
        pass
    assert engine.count_all() == len(POINTS)
    engine.close()


class _Full:
    """A shard on a disk that is full from some write on."""

    def __init__(self, shard: Any, failing: str) -> None:
        self._shard = shard
        self._failing = failing

    def __getattr__(self, name: str) -> Any:
        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        return full if name == self._failing else getattr(self._shard, name)


@pytest.mark.parametrize("failing", ["update", "flush"])
async def test_a_copy_that_cannot_be_made_is_given_up_and_the_index_goes_on(tmp_path: Path, failing: str) -> None:
    engine = EdgeEngine(tmp_path)
    engine.open(SPACE)
    engine.upsert(POINTS)
    engine.purge_start()
    assert engine.purge_step()
    assert engine._copy is not None
    engine._copy.target = _Full(engine._copy.target, failing)
    with pytest.raises(OSError, match="No space left"):
        while engine.purge_step():
            pass
    await _goes_on(engine, tmp_path)


async def test_a_write_that_a_copy_cannot_take_is_a_write_still(tmp_path: Path) -> None:
    engine = EdgeEngine(tmp_path)
    engine.open(SPACE)
    engine.upsert(POINTS)
    engine.purge_start()
    assert engine._copy is not None
    engine._copy.target = _Full(engine._copy.target, "update")
    engine.delete(KEPT[:1])
    engine.upsert([one for one in POINTS if one.id == KEPT[0]])
    with pytest.raises(IndexUnavailable):
        engine.purge_step()
    await _goes_on(engine, tmp_path)


async def _goes_on(engine: EdgeEngine, folder: Path) -> None:
    assert _shards(folder) == ["shard"]
    engine.delete(ERASED)
    assert engine.list_ids("acme", "ann", None, 1000) == KEPT
    engine.purge_start()
    while engine.purge_step():
        pass
    assert engine.list_ids("acme", "ann", None, 1000) == KEPT
    assert _bytes(folder) == 0
    engine.close()


async def test_a_purge_has_longer_than_other_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last step brings all to disk."""
    index = EdgeIndex(tmp_path, timeout=30.0)
    async with opened(index):
        await index.upsert(POINTS)
        asked: dict[str, float] = {}
        call = EdgeChild.call

        async def listening(child: EdgeChild, operation: str, *arguments: Any, timeout: float, **more: Any) -> Any:
            asked[operation] = timeout
            return await call(child, operation, *arguments, timeout=timeout, **more)

        monkeypatch.setattr(EdgeChild, "call", listening)
        await index.purge()
        await index.count_all()
        assert asked["count_all"] == 30.0
        assert min(asked["purge_start"], asked["purge_step"]) > 30.0


@pytest.mark.parametrize("space", [SPARSE_ONLY, VectorSpace("four-numbers", 4)])
async def test_points_without_dense_vectors_are_copied_too(tmp_path: Path, space: VectorSpace) -> None:
    async with opened(EdgeIndex(tmp_path), space) as index:
        await index.purge()
        assert await index.count_all() == 0
        await index.upsert([point("tea", dense=None, number=number + 1) for number in range(10)])
        before = await index.query(ask("tea"))
        await index.purge()
        assert await index.query(ask("tea")) == before
        assert len(before.sparse) == 10


def _copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to
