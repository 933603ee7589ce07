"""Watchers of a server: one poll for all of them, and news of other servers by nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from runekeep_server.tasks.watchers import Watch, Watchers
from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.jobs import tasks
from runekeep_storage.spaces import spaces

ANN, BOB = Space("acme", "ann"), Space("acme", "bob")
POLL = 0.01


class CountingDatabase(SqliteDatabase):
    """Counts its reads, and can be away for a while."""

    reads = 0
    away = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked = asyncio.Event()

    async def read_global(self, work: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        self.reads += 1
        self.asked.set()
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        return await super().read_global(work, *args, **kwargs)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[CountingDatabase]:
    made = CountingDatabase(tmp_path / "runekeep.db")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def watchers(database: CountingDatabase) -> AsyncIterator[Watchers]:
    made = Watchers(database, POLL)
    await made.start()
    yield made
    await made.close()


async def make(database: SqliteDatabase, space: Space, *task_ids: str) -> None:
    async def work(tx: Tx) -> None:
        await spaces.ensure(tx, space)
        for task_id in task_ids:
            await tasks.create(tx, space, task_id, "commit", "s", archive_index=1)

    await database.write_global(work)


async def told(watch: Watch) -> None:
    async with asyncio.timeout(20):
        await watch.news.wait()


async def rounds(database: CountingDatabase, number: int) -> None:
    """Waits for so many polls to begin; of those that begin from now on all but the last are over then."""
    async with asyncio.timeout(20):
        for _ in range(number):
            database.asked.clear()
            await database.asked.wait()


async def test_an_event_of_another_server_wakes_those_who_watch_its_task(
    database: CountingDatabase, watchers: Watchers
) -> None:
    await make(database, ANN, "hers", "other")
    await make(database, BOB, "his")
    with ExitStack() as stack:
        hers, again, other, his = (
            stack.enter_context(watchers.watching(space, task_id))
            for space, task_id in ((ANN, "hers"), (ANN, "hers"), (ANN, "other"), (BOB, "his"))
        )
        for watch in (hers, again, other, his):
            watch.last = 1
        await rounds(database, 3)
        assert not any(watch.news.is_set() for watch in (hers, again, other, his)), "nothing has happened"

        await database.write(tasks.set_progress, ANN, "hers", {"percent": 1})

        await told(hers)
        await told(again)
        await rounds(database, 2)
        assert not other.news.is_set() and not his.news.is_set()


async def test_what_changes_while_a_watcher_looks_for_what_a_poll_found_is_looked_for_too(
    database: CountingDatabase, watchers: Watchers
) -> None:
    await make(database, ANN, "hers")
    with watchers.watching(ANN, "hers") as watch:
        watch.last = 1
        await database.write(tasks.set_progress, ANN, "hers", {"percent": 1})
        await told(watch)

        watch.look()
        watchers.changed("hers")
        watch.found(2)

        assert watch.news.is_set(), "the look may have been before the change"


async def test_a_thousand_watchers_cost_one_read_a_poll(database: CountingDatabase, watchers: Watchers) -> None:
    names = [f"task-{number}" for number in range(1000)]
    await make(database, ANN, *names)
    with ExitStack() as stack:
        made = [stack.enter_context(watchers.watching(ANN, name)) for name in names for _ in range(2)]
        for watch in made:
            watch.last = 1
        changed = names[::7]

        async def change(tx: Tx) -> None:
            for name in changed:
                await tasks.set_progress(tx, ANN, name, {"percent": 1})

        await database.write_global(change)
        before = database.reads
        await rounds(database, 3)

        assert sorted(watch.task_id for watch in made if watch.news.is_set()) == sorted(changed * 2)
        assert database.reads == before + 3
    before = database.reads
    await asyncio.sleep(5 * POLL)
    assert database.reads == before, "nobody watches any more"


async def test_a_task_that_is_gone_wakes_its_watcher(database: CountingDatabase, watchers: Watchers) -> None:
    with watchers.watching(ANN, "gone") as watch:
        await told(watch)


async def test_a_store_that_is_away_ends_no_watch(database: CountingDatabase, watchers: Watchers) -> None:
    await make(database, ANN, "hers")
    with watchers.watching(ANN, "hers") as watch:
        watch.last = 1
        database.away = 3
        await database.write(tasks.set_progress, ANN, "hers", {"percent": 1})
        await told(watch)
        assert database.away == 0


async def test_a_drain_wakes_everybody(database: CountingDatabase, watchers: Watchers) -> None:
    await make(database, ANN, "hers", "other")
    with watchers.watching(ANN, "hers") as one, watchers.watching(ANN, "other") as other:
        one.last = other.last = 1
        await watchers.drain()
        assert one.news.is_set() and other.news.is_set() and watchers.draining


def test_what_is_told_twice_is_looked_for_once() -> None:
    """By the server that changed the task, and by the notice, whichever comes first."""
    watch = Watch(ANN, "hers", last=1)
    watch.tell()
    watch.look()
    watch.tell(2)
    watch.found(2)
    assert not watch.news.is_set(), "the notice was of what is found"
    watch.tell(2)
    assert not watch.news.is_set(), "it comes late"

    watch.tell(3)
    watch.look()
    watch.tell()
    watch.found(3)
    assert not watch.news.is_set(), "the server tells what the notice did"


def test_what_comes_while_the_store_is_asked_is_news_unless_it_is_found() -> None:
    watch = Watch(ANN, "hers", last=1)
    for tell in (watch.tell, watch.ask, lambda: watch.tell(3)):
        watch.look()
        tell()
        watch.found(2)
        assert watch.news.is_set(), "nobody knows whether it was found"
    watch.look()
    watch.tell(4)
    watch.tell()
    watch.found(3)
    assert watch.news.is_set(), "a newer one than was found"
    watch.look()
    watch.ask()
    watch.found(4)
    assert watch.news.is_set(), "asked once more, whatever is known"


async def test_notices_name_the_event_and_those_of_the_release_before_do_not(database: CountingDatabase) -> None:
    watchers = Watchers(database, 3600)
    with watchers.watching(ANN, "hers") as watch:
        watch.last = 2
        watchers.heard("hers 2")
        watchers.heard("other 3")
        assert not watch.news.is_set()
        watchers.heard("hers 3")
        assert watch.news.is_set()
        watch.look()
        watch.found(3)
        watchers.heard("hers")
        assert watch.news.is_set()
