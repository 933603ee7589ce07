"""What a scrape shows of store and index: neither keeps the other's numbers back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from runekeep_server.telemetry import standing
from runekeep_server.telemetry.standing import BacklogCache, BacklogCollector, Points
from runekeep_storage.database import Database
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.index.base import IndexUnavailable


class Counting:
    """An index that counts for as long as it is held, and then gives `points`, or fails with None."""

    def __init__(self) -> None:
        self.points: int | None = 7
        self.began = 0
        self.released = asyncio.Event()
        self.released.set()

    async def count_all(self) -> int:
        self.began += 1
        await self.released.wait()
        if self.points is None:
            raise IndexUnavailable("away")
        return self.points


class Away:
    """A store that does not answer: at once, or never."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent

    async def read_global(self, work: Any) -> Any:
        if self._silent:
            await asyncio.Event().wait()
        raise StoreUnavailable("away")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = SqliteDatabase(tmp_path / "runekeep.db")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "COUNT_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(standing, "POINTS_SECONDS", 0.0)


async def shown(database: Any, points: Points) -> dict[str, float]:
    """What has no labels, by name."""
    collector = BacklogCollector(BacklogCache(database), points, asyncio.get_running_loop())
    families = await asyncio.to_thread(lambda: list(collector.collect()))
    return {one.name: one.value for family in families for one in family.samples if not one.labels}


async def test_an_index_that_counts_slowly_keeps_back_no_number_of_the_store(database: Database) -> None:
    index = Counting()
    points = Points(index)  # type: ignore[arg-type]  # it only counts
    index.released.clear()
    told = await shown(database, points)
    assert told["runekeep_backlog_known"] == 1
    assert told["runekeep_relay_revisions"] == 0
    assert "runekeep_index_points" not in told

    await shown(database, points)
    assert index.began == 1, "one count at a time"
    index.released.set()
    await asyncio.sleep(0)
    assert (await shown(database, points))["runekeep_index_points"] == 7

    index.released.clear()
    index.points = 8
    assert (await shown(database, points))["runekeep_index_points"] == 7, "while the next count is under way"
    index.released.set()
    await asyncio.sleep(0)
    assert (await shown(database, points))["runekeep_index_points"] == 8


async def test_an_index_that_is_away_has_no_number(database: Database) -> None:
    index = Counting()
    points = Points(index)  # type: ignore[arg-type]  # it only counts
    assert (await shown(database, points))["runekeep_index_points"] == 7
    index.points = None
    told = await shown(database, points)
    assert told["runekeep_backlog_known"] == 1
    assert "runekeep_index_points" not in told


@pytest.mark.parametrize("silent", [False, True])
async def test_a_store_that_is_away_keeps_back_its_own_numbers_alone(
    silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "WAIT_SECONDS", 1.0)
    points = Points(Counting())  # type: ignore[arg-type]  # it only counts
    told = await shown(Away(silent=silent), points)
    assert told == {"runekeep_backlog_known": 0, "runekeep_index_points": 7}


async def test_a_count_under_way_ends_with_the_server(database: Database) -> None:
    index = Counting()
    points = Points(index)  # type: ignore[arg-type]  # it only counts
    index.released.clear()
    await shown(database, points)
    await points.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "index-points"]
    await shown(database, points)
    assert index.began == 1, "and none begins after it"
