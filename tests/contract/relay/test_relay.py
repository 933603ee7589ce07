"""The relay: the index comes after the store, whatever dies, waits or goes away meanwhile."""

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any

import pytest

import runekeep_storage.relay.passage_relay
import runekeep_storage.relay.relay
from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Space, Tx
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.index.base import IndexUnavailable, PointKind
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.indexing import outbox, passages
from runekeep_storage.indexing.points import passage_point
from runekeep_storage.relay import missing_vectors, passage_relay
from runekeep_storage.search import backlog
from runekeep_storage.spaces import spaces
from tests.support.storage.databases import (
    ANN,
    BOB,
    CAT,
    Clock,
    commit,
    queue,
    revise,
    talk,
)
from tests.support.storage.search import (
    GRACE_SECONDS,
    Search,
    memories,
    nothing_waits,
    said,
    wordless,
    write,
)

pytestmark = pytest.mark.postgres_long


@pytest.mark.parametrize("edge_class", [EdgeIndex])
async def test_an_index_that_dies_comes_back_with_everything(search: Search) -> None:
    search.relay.start()
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "likes green tea"))
    await search.caught_up(ANN)
    for number in range(2, 4):
        assert isinstance(search.index, EdgeIndex) and search.index.child_pid is not None
        os.kill(search.index.child_pid, signal.SIGKILL)
        await revise(search.database, ANN, f"t{number}", write(ANN, f"tea{number}", 0, 1, f"likes tea number {number}"))

        async def answers() -> bool:
            with suppress(IndexUnavailable):
                answer = await search.find(ANN, "likes tea", kinds=(PointKind.MEMORY,))
                return answer.revision == answer.latest_revision
            return False

        await search.until(answers)
        answer = await search.find(ANN, "likes tea", kinds=(PointKind.MEMORY,))
        assert len(memories(answer)) == number


async def test_old_versions_leave_the_index_after_a_while(search: Search, clock: Clock) -> None:
    search.relay.start()
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"), write(ANN, "gone", 0, 1, "tea shop"))
    await revise(
        search.database, ANN, "t2", write(ANN, "tea", 1, 2, "black tea"), write(ANN, "gone", 1, 2, "", deleted=True)
    )
    await search.caught_up(ANN)
    talk_points = 2
    assert await search.index.count("acme", "ann") == talk_points + 3
    assert memories(await search.find(ANN, "tea", limit=1, kinds=(PointKind.MEMORY,))) == ["black tea"]

    clock.advance(GRACE_SECONDS)
    await search.counts(ANN, talk_points + 1)

    assert memories(await search.find(ANN, "tea", kinds=(PointKind.MEMORY,))) == ["black tea"]
    await search.until(lambda: nothing_waits(search))


async def test_a_late_relay_takes_nothing_away_before_what_replaces_it(
    search: Search, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between what it sends and the watermark, long after the commit: the old version is still found. What was
    sent is on disk before the store forgets that it had to be."""
    search.relay.start()
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    await search.caught_up(ANN)
    await search.counts(ANN, 2)
    flushing, go = asyncio.Event(), asyncio.Event()

    async def held() -> None:
        flushing.set()
        await go.wait()

    with monkeypatch.context() as index:
        index.setattr(search.index, "flush", held)
        await search.relay.stop()
        await revise(search.database, ANN, "t2", write(ANN, "tea", 1, 2, "black tea"))
        clock.advance(GRACE_SECONDS)
        search.relay.start()
        async with asyncio.timeout(20):
            await flushing.wait()

        assert await search.database.read(spaces.revisions, ANN) == (2, 1)
        assert memories(await search.find(ANN, "tea", kinds=(PointKind.MEMORY,))) == ["green tea"]
    go.set()

    await search.caught_up(ANN)
    assert memories(await search.find(ANN, "tea", kinds=(PointKind.MEMORY,))) == ["black tea"]
    clock.advance(GRACE_SECONDS)
    await search.until(lambda: nothing_waits(search))
    await search.counts(ANN, 3)


async def test_a_relay_that_is_woken_while_it_stops_stops(search: Search) -> None:
    """Woken and cancelled a few turns of the event loop apart, in every distance."""
    for turns in range(8):
        search.relay.start()
        async with asyncio.timeout(20):
            await search.relay.moved()
            search.relay.wake()
            for _ in range(turns):
                await asyncio.sleep(0)
            await search.relay.stop()


async def test_a_long_archive_is_indexed_in_slices(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "SLICE", 2)
    await talk(search.database, ANN, "s", *(f"kettle number {number}" for number in range(1, 6)))
    await commit(search.database, ANN, "s", "t1")

    search.relay.start()
    await search.caught_up(ANN)

    found = said(await search.find(ANN, "kettle"))
    assert sorted(one[-1] for one in found) == ["1", "2", "3", "4", "5"]
    await search.counts(ANN, 5)


async def test_versions_that_nobody_sees_take_no_place_in_an_answer(search: Search) -> None:
    search.relay.start()
    for version in range(1, 8):
        await revise(
            search.database, ANN, f"t{version}", write(ANN, "tea", version - 1, version, f"tea {'tea ' * version}")
        )
    await revise(
        search.database, ANN, "t8", write(ANN, "cup", 0, 1, "a cup for tea"), write(ANN, "tea", 7, 8, "tea or not")
    )
    await search.caught_up(ANN)

    answer = await search.find(ANN, "tea", limit=2, kinds=(PointKind.MEMORY,))

    assert sorted(memories(answer)) == ["a cup for tea", "tea or not"]


async def test_a_session_made_anew_keeps_its_talk(search: Search) -> None:
    """The removal of the old points and the new ones of the same name and place wait at the same time."""
    search.relay.start()
    await talk(search.database, ANN, "s", "the old copper kettle")
    await commit(search.database, ANN, "s", "old")
    await search.caught_up(ANN)
    await search.relay.stop()
    await search.database.write(delete_session, ANN, "s", "")
    await talk(search.database, ANN, "s", "the new copper kettle")
    await commit(search.database, ANN, "s", "new")

    search.relay.start()
    await search.caught_up(ANN)
    await search.until(lambda: nothing_waits(search))

    assert [one.endswith("the new copper kettle") for one in said(await search.find(ANN, "copper"))] == [True]
    await search.counts(ANN, 1)


async def test_a_session_deleted_while_its_talk_is_made_into_vectors_leaves_nothing(search: Search) -> None:
    await talk(search.database, ANN, "s", "a copper kettle")
    await commit(search.database, ANN, "s", "t1")
    search.embedder.go.clear()
    search.relay.start()
    async with asyncio.timeout(20):
        await search.embedder.working.wait()

    await search.database.write(delete_session, ANN, "s", "")
    await queue(search.database, ANN, "t2", "marks that the relay got past")
    search.embedder.go.set()

    await search.caught_up(ANN)
    await search.until(lambda: nothing_waits(search))
    await search.counts(ANN, 1)
    assert await search.database.read(passages.of_points, ANN, [(("s", 1), passage_point(ANN, "t1", 1))]) == {}


async def test_talk_is_found_by_words_while_the_embedder_does_not_answer(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passage_relay, "MAX_EMBED_SECONDS", 0.1)
    await talk(search.database, ANN, "s", "a copper kettle")
    await commit(search.database, ANN, "s", "t1")
    search.embedder.go.clear()
    search.relay.start()
    await search.caught_up(ANN)
    row = "SELECT dense FROM passages WHERE session_id = 's'"

    async def has_vector() -> bool:
        (found,) = await search.database.read_global(lambda tx: tx.fetch(row))
        return found["dense"] is not None

    assert not await has_vector()
    search.embedder.go.set()
    await search.until(has_vector)
    assert len(said(await search.find(ANN, "copper"))) == 1


async def test_a_bad_row_keeps_nobody_else_waiting(search: Search, capfd: pytest.CaptureFixture[str]) -> None:
    """A vector that is not one of its model cannot be indexed; only its own space waits for someone to mend it."""
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "tea", dense=b"1234"))
    await revise(search.database, BOB, "t2", write(BOB, "tea", 0, 1, "tea of bob"))

    search.relay.start()
    await search.caught_up(BOB)

    assert memories(await search.find(BOB, "tea", kinds=(PointKind.MEMORY,))) == ["tea of bob"]
    assert await search.database.read(spaces.revisions, ANN) == (1, 0)
    assert "relay_" in capfd.readouterr().out


class Refusing:
    """An index that does not take points of one user, as a cluster of which one shard is down."""

    def __init__(self, search: Search, refused: Space, monkeypatch: pytest.MonkeyPatch) -> None:
        self._index = search.index
        self._refused = refused
        self.refusals = 0
        for part in (search.relay, search.relay._passages):
            monkeypatch.setattr(part, "_index", self)

    async def upsert(self, points: Any) -> None:
        if any(point.user == self._refused.user for point in points):
            self.refusals += 1
            raise IndexUnavailable("refused by the test")
        await self._index.upsert(points)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


@pytest.mark.parametrize(
    ("refused", "error"),
    [(ANN, StoreUnavailable("too slow")), (BOB, RuntimeError("a bad row")), (CAT, StoreUnavailable("too slow"))],
)
async def test_vectors_that_the_store_refuses_of_one_space_keep_nobody_else_waiting(
    search: Search, monkeypatch: pytest.MonkeyPatch, refused: Space, error: Exception
) -> None:
    others = [space for space in (ANN, BOB, CAT) if space != refused]
    for space in (ANN, BOB, CAT):
        await revise(search.database, space, space.user, wordless(write(space, "tea", 0, 1, "tea")))
    real = missing_vectors.fill

    async def fill(tx: Tx, space: Space, *args: Any, **options: Any) -> None:
        if space == refused:
            raise error
        await real(tx, space, *args, **options)

    monkeypatch.setattr(missing_vectors, "fill", fill)
    search.relay.start()
    await search.caught_up(ANN, BOB, CAT)

    async def dense(*spaces: Space) -> bool:
        answers = [await search.find(space, "tea", kinds=(PointKind.MEMORY,)) for space in spaces]
        return all(found.ranked.dense_rank for answer in answers for found in answer.results)

    await search.until(lambda: dense(*others))
    assert not await dense(refused)
    monkeypatch.undo()
    await search.until(lambda: dense(refused))


async def test_passages_that_were_refused_do_not_wait_for_vectors_that_never_come(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Refusing(search, ANN, monkeypatch)
    await talk(search.database, ANN, "s", "a copper kettle")
    await commit(search.database, ANN, "s", "t1")
    broken = 0

    async def missing(*args: Any) -> Any:
        nonlocal broken
        broken += 1
        raise StoreUnavailable("broken by the test")

    monkeypatch.setattr(search.relay._passages._vector_turns, "_waiting_spaces", missing)
    search.relay.start()

    async def both() -> bool:
        return bool(index.refusals and broken)

    await search.until(both)
    index._refused = Space("", "")
    await search.caught_up(ANN)
    assert said(await search.find(ANN, "copper")) != []


@pytest.mark.parametrize("refused", [ANN, BOB, CAT])
async def test_a_space_that_the_index_refuses_keeps_nobody_else_waiting(
    search: Search, monkeypatch: pytest.MonkeyPatch, refused: Space
) -> None:
    """What was sent before it is marked, and those behind it get their turn, whether it is the first of them, in the
    middle or the last; so it is with passages and with vectors that come late."""
    monkeypatch.setattr(runekeep_storage.relay.relay, "SPACES", 2)
    index = Refusing(search, refused, monkeypatch)
    others = [space for space in (ANN, BOB, CAT) if space != refused]
    for space in (ANN, BOB, CAT):
        await revise(
            search.database, space, f"{space.user}-1", wordless(write(space, "tea", 0, 1, f"{space.user} tea"))
        )

    search.relay.start()
    await search.caught_up(*others)

    async def dense() -> bool:
        answers = [await search.find(space, "tea", kinds=(PointKind.MEMORY,)) for space in others]
        return all(found.ranked.dense_rank for answer in answers for found in answer.results)

    await search.until(dense)
    for space in others:
        assert memories(await search.find(space, "tea", kinds=(PointKind.MEMORY,))) == [f"{space.user} tea"]
    assert index.refusals
    assert await search.database.read(spaces.revisions, refused) == (1, 0)
    assert (await search.database.read(backlog.of_space, refused)).messages == 1

    # It is taken as soon as the index takes it.
    index._refused = Space("", "")
    await search.caught_up(refused)
    assert memories(await search.find(refused, "tea", kinds=(PointKind.MEMORY,))) == [f"{refused.user} tea"]


async def test_what_one_pass_takes_out_is_bounded(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long archive leaves the index in parts; what its user writes meanwhile does not wait for the last of them."""
    monkeypatch.setattr(outbox, "REMOVALS", 4)
    await talk(search.database, ANN, "s", *(f"kettle {number}" for number in range(30)))
    await commit(search.database, ANN, "s", "t1")
    search.relay.start()
    await search.counts(ANN, 30)
    await search.relay.stop()
    await search.database.write(delete_session, ANN, "s", "")
    await revise(search.database, ANN, "t2", write(ANN, "tea", 0, 1, "green tea"))
    taken: list[int] = []
    standings = []
    delete = search.index.delete

    async def counted(points: Any) -> None:
        taken.append(len(points))
        standings.append((await search.standing(ANN)).indexed)
        await delete(points)

    monkeypatch.setattr(search.index, "delete", counted)
    search.relay.start()
    await search.caught_up(ANN)
    await search.until(lambda: nothing_waits(search))

    assert taken == [4] * 7 + [2]
    assert standings[1:] == [1] * 7
    assert await search.listed(ANN) == await search.named(ANN)


async def test_a_relay_that_stopped_anywhere_takes_out_all_the_same(
    search: Search, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "REMOVALS", 4)
    for session in ("s", "stays"):
        await talk(search.database, ANN, session, *(f"kettle {number}" for number in range(15)))
        await commit(search.database, ANN, session, f"t-{session}")
    search.relay.start()
    # Until the store knows it too: what is in the index and not marked yet is nobody's.
    await search.caught_up(ANN)
    assert await search.index.count("acme", "ann") == 30
    await search.relay.stop()
    await search.database.write(delete_session, ANN, "s", "")

    async with asyncio.timeout(60):
        steps = 0
        while not await nothing_waits(search):
            relay = Search.of(search.database, search.index, registry, search.attachment).relay
            relay.start()
            for _ in range(steps):
                await asyncio.sleep(0)
            await relay.stop()
            steps += 1 + steps // 20

    assert await search.listed(ANN) == await search.named(ANN)
    assert await search.index.count("acme", "ann") == 15


async def test_a_relay_holds_up_no_other_account(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it writes, late vectors too, it writes for one space: PostgreSQL lets other accounts write beside it."""
    written: list[tuple[str, Any]] = []
    write_to_store = search.database.write

    async def noted(work: Any, *arguments: Any, **options: Any) -> Any:
        written.append((work.__name__, arguments[0]))
        return await write_to_store(work, *arguments, **options)

    search.embedder.down = True
    for space in (ANN, BOB, CAT):
        await revise(search.database, space, f"{space.user}-1", wordless(write(space, "tea", 0, 1, "green tea")))
    monkeypatch.setattr(search.database, "write", noted)
    search.relay.start()
    await search.caught_up(ANN, BOB, CAT)
    search.embedder.down = False

    async def filled() -> bool:
        return {space for work, space in written if work == "fill"} == {ANN, BOB, CAT}

    await search.until(filled)
    await search.until(lambda: nothing_waits(search))

    assert all(isinstance(first, Space) for _, first in written), written


async def test_archives_are_not_walked_in_the_same_order_by_all(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await talk(search.database, ANN, f"s{number}", f"kettle {number}")
        await commit(search.database, ANN, f"s{number}", f"t{number}")
    monkeypatch.setattr(runekeep_storage.relay.passage_relay.random, "shuffle", list.reverse)

    search.relay.start()
    await search.caught_up(ANN)

    assert [text[-1] for text in search.embedder.texts] == ["4", "3", "2", "1", "0"]
