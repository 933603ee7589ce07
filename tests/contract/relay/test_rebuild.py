"""An index that is away, emptied, replaced or taken by another server: all that the store holds is found again."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import runekeep_storage.embedders.embedder_set
import runekeep_storage.store
from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Space
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.index.base import IndexPoint, IndexUnavailable, PointKind
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.indexing import outbox
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.jobs import jobs
from runekeep_storage.memories import memories, revisions
from runekeep_storage.relay.rebuild import write_space
from runekeep_storage.search import backlog, searcher
from runekeep_storage.search.requests import FindAnswer, FindRequest
from runekeep_storage.spaces import spaces, watermarks
from runekeep_storage.spaces.watermarks import IndexProgress
from runekeep_storage.store import Store, StoreOptions
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.word_embedder import WordEmbedder
from tests.support.storage.databases import ANN, BOB, Clock, NewStore, commit, revise, talk, uri
from tests.support.storage.search import (
    GRACE_SECONDS,
    Search,
    nothing_waits,
    said,
    wordless,
    write,
)
from tests.support.storage.search import (
    memories as contents,
)

pytestmark = pytest.mark.postgres_long

MEMORIES = (PointKind.MEMORY,)


async def filled(search: Search) -> None:
    """Two users with a memory each that has an older version, and with talk; all of it in the index."""
    for space in (ANN, BOB):
        await revise(search.database, space, f"{space.user}-1", write(space, "tea", 0, 1, "likes green tea"))
        await revise(search.database, space, f"{space.user}-2", write(space, "tea", 1, 2, "likes black tea"))
        await talk(search.database, space, "s", "a copper kettle")
        await commit(search.database, space, "s", f"{space.user}-3")
        await search.database.write(jobs.cancel, space, f"{space.user}-3", "")
    await search.caught_up(ANN, BOB)


async def emptied(search: Search) -> str:
    """The index of a relay that does not run is gone, and an empty one in its place; the id of that one."""
    await search.index.clear()
    search.attachment.doubt()
    return await search.attachment.attach()


def directory_of(index: Any) -> Path:
    assert isinstance(index, EdgeIndex)
    return index._directory


def held(index: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[asyncio.Event, asyncio.Event]:
    """Holds every call of a method of the index before it does anything: (it is held, it may go on)."""
    there, go = asyncio.Event(), asyncio.Event()
    call = getattr(index, name)

    async def hold(*arguments: Any, **options: Any) -> Any:
        there.set()
        await go.wait()
        return await call(*arguments, **options)

    monkeypatch.setattr(index, name, hold)
    return there, go


async def reached(event: asyncio.Event) -> None:
    async with asyncio.timeout(30):
        await event.wait()


async def whole(search: Search, *of: Space) -> None:
    """Waits until the index holds the points of the rows of these spaces and no others."""

    async def holds() -> bool:
        with suppress(IndexUnavailable):
            await search.attachment.id()
            return all([await search.listed(space) == await search.named(space) for space in of])
        return False

    await search.until(holds)


@pytest.mark.parametrize("edge_class", [EdgeIndex])
@pytest.mark.parametrize("killed", [True, False])
async def test_an_index_that_is_emptied_while_it_is_open_is_filled_again(
    search: Search, clock: Clock, killed: bool
) -> None:
    """Nobody is shown less than there is without being told."""
    search.relay.start()
    await filled(search)
    clock.advance(GRACE_SECONDS)
    await whole(search, ANN, BOB)
    assert isinstance(search.index, EdgeIndex) and search.index.child_pid is not None

    # At once: it may be written to meanwhile.
    directory = directory_of(search.index)
    shutil.rmtree(directory.rename(directory.with_name("gone")), ignore_errors=True)
    if killed:
        os.kill(search.index.child_pid, signal.SIGKILL)
    await revise(search.database, ANN, "ann-4", write(ANN, "cup", 0, 1, "a cup for tea"))

    answers: list[FindAnswer] = []

    async def healed() -> bool:
        with suppress(IndexUnavailable):
            for space in (ANN, BOB):
                answers.append(await search.find(space, "likes black tea", kinds=MEMORIES))
            return all(answer.revision == answer.latest_revision and not answer.degraded for answer in answers[-2:])
        return False

    await search.until(healed)
    assert all("likes black tea" in contents(answer) for answer in answers)
    await whole(search, ANN, BOB)
    assert sorted(contents(await search.find(ANN, "tea", kinds=MEMORIES))) == ["a cup for tea", "likes black tea"]
    for space in (ANN, BOB):
        assert said(await search.find(space, "copper"))[0].endswith("a copper kettle")


async def test_a_space_of_memories_alone_is_known_to_be_in_its_index(search: Search) -> None:
    """Written by hand: there is no talk whose passages would say so."""
    await search.database.write(spaces.ensure, ANN)
    await search.database.write(revisions.make, ANN, [write(ANN, "tea", 0, 1, "likes tea")], "{}", revisions.BY_HAND)
    search.relay.start()
    await search.caught_up(ANN)
    await search.relay.stop()
    await emptied(search)
    assert await search.standing(ANN) == IndexProgress(1, -1)

    search.relay.start()
    await search.caught_up(ANN)
    assert await search.listed(ANN) == await search.named(ANN)


async def test_what_is_committed_and_deleted_during_a_rebuild_is_seen(
    search: Search, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay leaves a space alone until it is in the index: a removal before that would be in vain."""
    search.relay.start()
    await filled(search)
    await search.relay.stop()
    await emptied(search)
    there, go = held(search.index, monkeypatch, "upsert")
    search.relay.start()
    await reached(there)

    await revise(search.database, ANN, "ann-4", write(ANN, "tea", 2, 3, "likes white tea"))
    await revise(search.database, ANN, "ann-5", write(ANN, "cup", 0, 1, "a cup for tea"))
    await search.database.write(delete_session, ANN, "s", "")
    clock.advance(GRACE_SECONDS)
    assert await search.standing(ANN) == IndexProgress(4, -1)
    go.set()

    await search.caught_up(ANN, BOB)
    assert await search.standing(ANN) == IndexProgress(4, 4)
    found = await search.find(ANN, "tea", kinds=MEMORIES)
    assert sorted(contents(found)) == ["a cup for tea", "likes white tea"]
    clock.advance(GRACE_SECONDS)
    await search.until(lambda: nothing_waits(search))
    await whole(search, ANN, BOB)
    assert [one for one in said(await search.find(ANN, "copper")) if "kettle" in one] == []


async def test_a_rebuild_is_on_disk_before_the_store_says_so(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    await revise(search.database, ANN, "ann-1", write(ANN, "tea", 0, 1, "tea"))
    search.relay.start()
    await search.caught_up(ANN)
    await search.relay.stop()
    await emptied(search)
    there, go = held(search.index, monkeypatch, "flush")
    search.relay.start()
    await reached(there)

    assert await search.standing(ANN) == IndexProgress(1, -1)
    assert await search.index.count("acme", "ann") > 0
    go.set()
    await search.caught_up(ANN)


async def test_a_search_beside_a_rebuild_reads_the_rows(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    search.relay.start()
    await filled(search)
    await search.relay.stop()
    await emptied(search)

    answer = await search.find(ANN, "likes tea")
    assert (contents(answer), said(answer)) == (["likes black tea"], [])
    assert (answer.revision, answer.latest_revision, answer.degraded) == (2, 2, ["rebuilding"])
    assert contents(await search.find(ANN, "likes tea", at_revision=1)) == ["likes green tea"]
    assert contents(await search.find(ANN, "likes tea", kinds=(PointKind.PASSAGE,))) == []

    # More rows than a search may read: no memory at all rather than a part of a revision, and a job waits.
    monkeypatch.setattr(searcher, "MAX_LAID_OVER", 0)
    answer = await search.find(ANN, "likes tea")
    assert (answer.results, answer.revision, answer.latest_revision) == ([], 0, 2)
    assert answer.degraded == ["rebuilding"]
    with pytest.raises(IndexUnavailable, match="More than 0 memories"):
        await search.find(ANN, "likes tea", at_revision=2)


async def test_a_space_that_is_searched_is_written_first(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    search.relay.start()
    names = [Space("acme", f"user-{number:02}") for number in range(12)]
    for space in names:
        await revise(search.database, space, space.user, write(space, "tea", 0, 1, "tea"))
    await search.caught_up(*names)
    await search.relay.stop()
    await emptied(search)
    written: list[Space] = []

    async def noted(*arguments: Any) -> None:
        written.append(arguments[3])
        await write_space(*arguments)

    monkeypatch.setattr("runekeep_storage.relay.relay.write_space", noted)
    for space in names[3:6]:
        await search.find(space, "tea")
    search.relay.start()
    await search.caught_up(*names)
    assert written[:3] == names[3:6]
    assert len(written) == len(names)


async def test_what_was_sent_to_an_index_that_is_gone_counts_for_nothing(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between what a relay sends and its mark another server found the index empty and made it anew."""
    search.relay.start()
    await filled(search)
    await search.relay.stop()
    points = await search.index.count("acme", "ann")
    _, go = held(search.index, monkeypatch, "flush")
    await revise(search.database, ANN, "ann-4", write(ANN, "cup", 0, 1, "a cup for tea"))
    search.relay.start()
    # The memory and the passage.
    await search.counts(ANN, points + 2)
    await search.database.write_global(watermarks.adopt, "feed")
    go.set()

    async def doubted() -> bool:
        with suppress(IndexUnavailable):
            await search.attachment.id()
            return False
        return True

    await search.until(doubted)
    _, entries = await search.database.read(outbox.due, ANN, 100)
    assert [entry.uri for entry in entries if entry.op == "upsert"] == [uri(ANN, "cup")]
    assert (await search.database.read(backlog.of_space, ANN)).messages == 1
    assert await search.database.read(watermarks.standing, ANN, "feed") == IndexProgress(3, -1)
    # The relay does not take the store back: two servers with an index each would do nothing else.
    with pytest.raises(IndexUnavailable, match="give all one index_url"):
        await search.attachment.attach()
    with pytest.raises(IndexUnavailable, match="give all one index_url"):
        await search.find(ANN, "tea")
    # Started anew it does, and writes everything.
    await search.relay.stop()
    monkeypatch.undo()
    again = Search.of(search.database, search.index, search.registry)
    await again.attachment.attach()
    again.relay.start()
    try:
        await again.caught_up(ANN, BOB)
        assert sorted(contents(await again.find(ANN, "tea", kinds=MEMORIES))) == ["a cup for tea", "likes black tea"]
    finally:
        await again.relay.stop()


@pytest.mark.parametrize("kind", [PointKind.MEMORY, PointKind.PASSAGE])
async def test_of_two_who_write_a_space_the_late_one_brings_nothing_back(
    search: Search, clock: Clock, monkeypatch: pytest.MonkeyPatch, kind: PointKind
) -> None:
    """It has read a page of the kind, then the other one finishes, the memory is superseded and the session deleted,
    and their points are taken out; only then it writes its page."""
    search.relay.start()
    await filled(search)
    await search.relay.stop()
    index_id = await emptied(search)
    page: list[Sequence[IndexPoint]] = []
    there, go = asyncio.Event(), asyncio.Event()
    upsert = search.index.upsert

    class Late:
        """The index of a server that is slow."""

        async def upsert(self, points: Sequence[IndexPoint]) -> None:
            if points[0].kind is kind:
                page.append(points)
                there.set()
                await go.wait()
            await upsert(points)

        async def flush(self) -> None: ...

    slow: Any = Late()
    late = asyncio.create_task(
        write_space(search.database, slow, index_id, ANN, Models(WordEmbedder.model), lambda table, count: None)
    )
    await reached(there)
    search.relay.start()
    await search.caught_up(ANN)
    await revise(search.database, ANN, "ann-4", write(ANN, "tea", 2, 3, "likes white tea"))
    await search.database.write(delete_session, ANN, "s", "")
    await search.caught_up(ANN)
    clock.advance(GRACE_SECONDS)
    await whole(search, ANN)

    go.set()
    async with asyncio.timeout(30):
        await late
    assert page
    await search.until(lambda: nothing_waits(search))
    clock.advance(GRACE_SECONDS)
    await whole(search, ANN)
    assert contents(await search.find(ANN, "likes tea", kinds=MEMORIES)) == ["likes white tea"]


async def test_a_rebuild_forgets_vectors_of_another_embedder_only(search: Search) -> None:
    await revise(
        search.database,
        ANN,
        "ann-1",
        write(ANN, "tea", 0, 1, "green tea"),
        write(ANN, "old", 0, 1, "old tea", dense_model="another"),
        wordless(write(ANN, "set", 0, 1, "tea set")),
    )
    search.embedder.down = True
    search.relay.start()
    await search.caught_up(ANN)
    await search.relay.stop()
    await emptied(search)
    search.relay.start()
    await search.caught_up(ANN)

    async def dense() -> dict[str, str]:
        rows = await search.database.read(memories.beside_index, ANN, 0, 1, 10, WordEmbedder.model)
        return {memory.uri: "vector" for memory, vector, _ in rows if vector is not None}

    assert await dense() == {uri(ANN, "tea"): "vector"}
    search.embedder.down = False

    async def all_found() -> bool:
        found = (await search.find(ANN, "tea", kinds=MEMORIES)).results
        return len(found) == 3 and all(one.ranked.dense_rank for one in found)

    await search.until(all_found)
    assert len(await dense()) == 3


@pytest.fixture
async def away(
    double: QdrantDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_store: NewStore
) -> AsyncIterator[Store]:
    """A store that was opened while its index was away."""
    monkeypatch.setattr(
        runekeep_storage.embedders.embedder_set, "open_embedder", lambda name, **options: WordEmbedder()
    )
    connect: Callable[[], Any] = new_store().connect
    monkeypatch.setattr(runekeep_storage.store, "_database", lambda options: connect())
    options = StoreOptions(tmp_path / "data", index_url=f"grpc://127.0.0.1:{double.port}", poll_seconds=0.02)
    store = Store(options, Registry.load())
    await store.open()
    yield store
    await store.close()


async def found(store: Store, *wanted: str) -> None:
    """Waits until a search gives these memories and says that they are all."""
    async with asyncio.timeout(60):
        while True:
            with suppress(IndexUnavailable):
                answer = await store.finder.find(ANN, FindRequest("tea", kinds=MEMORIES))
                if answer.revision == answer.latest_revision and not answer.degraded:
                    assert sorted(contents(answer)) == sorted(wanted)
                    return
            await store.relay.moved()


async def test_a_store_opens_without_its_index_and_finds_it_later(away: Store, double: QdrantDouble) -> None:
    await revise(away.all_spaces, ANN, "t1", write(ANN, "tea", 0, 1, "likes tea"))
    assert (await away.database.read(memories.get, ANN, uri(ANN, "tea"))).content == "likes tea"
    with pytest.raises(IndexUnavailable):
        await away.finder.find(ANN, FindRequest("tea"))

    await double.start()
    await found(away, "likes tea")

    await double.stop()
    await revise(away.all_spaces, ANN, "t2", write(ANN, "cup", 0, 1, "a tea cup"))
    with pytest.raises(IndexUnavailable):
        await away.finder.find(ANN, FindRequest("tea"))
    await double.start()
    await found(away, "likes tea", "a tea cup")


async def test_a_collection_that_is_dropped_is_made_and_filled_again(away: Store, double: QdrantDouble) -> None:
    await double.start()
    await revise(away.all_spaces, ANN, "t1", write(ANN, "tea", 0, 1, "likes tea"))
    await found(away, "likes tea")

    await away.relay.stop()
    double.drop()
    away.relay.start()
    # Nobody writes: it is the search that notices.
    with pytest.raises(IndexUnavailable):
        await away.finder.find(ANN, FindRequest("tea"))
    await found(away, "likes tea")
