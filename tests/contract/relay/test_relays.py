"""Several relays on one database and one index: whatever one of them missed, nothing is lost and nothing comes back."""

import asyncio
from typing import Any

import pytest

from runekeep_server.memories.search import wait_for_revision
from runekeep_server.protocol.api_error import ApiError
from runekeep_storage.database import Tx
from runekeep_storage.drivers.postgres.driver import PostgresDatabase
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.index.base import PointKind
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.indexing import outbox, passages
from runekeep_storage.indexing.outbox import Entry
from runekeep_storage.jobs import jobs
from runekeep_storage.relay import missing_vectors
from runekeep_storage.search import backlog
from runekeep_storage.spaces import spaces
from tests.doubles.word_embedder import WordEmbedder, vector
from tests.support.storage.databases import ANN, BOB, Clock, commit, revise, talk, uri
from tests.support.storage.search import GRACE_SECONDS, Search, memories, nothing_waits, wordless, write


async def test_two_relays_at_once_lose_nothing(pair: tuple[Search, Search], clock: Clock) -> None:
    """Each relays what both write: memories in several versions, talk, late vectors, a deleted session."""
    first, second = pair
    for server in pair:
        server.relay.start()
    for round in range(1, 7):
        for server, space in ((first, ANN), (second, BOB)):
            content = write(space, f"m{round}", 0, 1, f"tea number {round}")
            again = [write(space, "tea", round - 1, round, f"tea of round {round}")]
            await revise(
                server.database, space, f"{space.user}-{round}", wordless(content) if round % 2 else content, *again
            )
            for other in pair:
                other.relay.wake()
        clock.advance(3)
    await first.database.write(delete_session, ANN, "s-ann-1", "")
    await first.caught_up(ANN, BOB)

    async def settled() -> bool:
        clock.advance(GRACE_SECONDS)
        return await nothing_waits(first) and all(
            [await first.listed(space) == await first.named(space) for space in (ANN, BOB)]
        )

    await first.until(settled)
    for space in (ANN, BOB):
        found = await second.find(space, "tea number round", limit=100, kinds=(PointKind.MEMORY,))
        assert sorted(memories(found)) == sorted([f"tea number {one}" for one in range(1, 7)] + ["tea of round 6"])
        assert found.revision == found.latest_revision == 6
        assert all(one.ranked.dense_rank for one in found.results)


async def test_a_server_sees_the_watermark_that_another_one_moves(pair: tuple[Search, Search]) -> None:
    """On PostgreSQL it is told, however seldom it looks; SQLite tells nobody, so it looks."""
    first, second = pair
    if isinstance(second.database, PostgresDatabase):
        second.relay._poll = 3600.0
        await second.database.listen(lambda topic, subject: second.relay.heard(subject))
    await revise(first.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    store: Any = second
    waiting = asyncio.create_task(wait_for_revision(store, ANN, 1, seconds=60))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    first.relay.start()
    async with asyncio.timeout(30):
        await waiting
    with pytest.raises(ApiError, match="is above 1"):
        await wait_for_revision(store, ANN, 2)


async def test_a_number_is_never_given_twice(pair: tuple[Search, Search]) -> None:
    """The second relay has read an entry that the first one does; a new one comes; the second is done with the old."""
    first, second = pair
    await first.database.write(spaces.ensure, ANN)
    await first.database.write(outbox.add, ANN, 0, [Entry("delete", point_id="old")])
    _, late = await second.database.read(outbox.due, ANN, 100)
    assert await first.database.write(outbox.done, ANN, late, 0) == []
    await first.database.write(outbox.add, ANN, 0, [Entry("delete", point_id="new")])

    assert await second.database.write(outbox.done, ANN, late, 0) == late

    _, entries = await first.database.read(outbox.due, ANN, 100)
    assert [entry.point_id for entry in entries] == ["new"]


class Late:
    """An index seen by a server that is slow: what it writes waits until it may go on."""

    def __init__(self, index: EdgeIndex, monkeypatch: pytest.MonkeyPatch, server: Search) -> None:
        self._index = index
        self.there = asyncio.Event()
        self.go = asyncio.Event()
        for part in (server.relay, server.relay._passages):
            monkeypatch.setattr(part, "_index", self)

    async def upsert(self, points: Any) -> None:
        self.there.set()
        await self.go.wait()
        await self._index.upsert(points)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


async def slow(server: Search, monkeypatch: pytest.MonkeyPatch) -> Late:
    """Starts the relay of a server that hangs in its first write."""
    assert isinstance(server.index, EdgeIndex)
    late = Late(server.index, monkeypatch, server)
    server.relay.start()
    async with asyncio.timeout(30):
        await late.there.wait()
    return late


async def test_a_late_relay_brings_no_old_version_back(
    pair: tuple[Search, Search], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read version 1; the other relay sends it, sends version 2, and takes version 1 out again."""
    first, second = pair
    await revise(first.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    late = await slow(second, monkeypatch)
    first.relay.start()
    await first.caught_up(ANN)
    await revise(first.database, ANN, "t2", write(ANN, "tea", 1, 2, "black tea"))
    await first.caught_up(ANN)
    clock.advance(GRACE_SECONDS)
    await first.until(lambda: nothing_waits(first))
    assert await first.listed(ANN) == await first.named(ANN)

    late.go.set()

    async def settled() -> bool:
        # Its point is there for a while; then it is taken out once more.
        clock.advance(GRACE_SECONDS)
        return await nothing_waits(first) and await first.listed(ANN) == await first.named(ANN)

    await second.relay.moved(seconds=5)
    await first.until(settled)
    assert memories(await first.find(ANN, "tea", kinds=(PointKind.MEMORY,))) == ["black tea"]


async def test_a_late_relay_takes_no_vector_away(pair: tuple[Search, Search], monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read a row without its vector; the other relay makes the vector and sends the point again."""
    first, second = pair
    await revise(first.database, ANN, "t1", wordless(write(ANN, "tea", 0, 1, "green tea")))
    second.embedder.down = True
    late = await slow(second, monkeypatch)
    first.relay.start()
    await first.caught_up(ANN)

    async def dense() -> bool:
        (found,) = (await first.find(ANN, "tea", kinds=(PointKind.MEMORY,))).results
        return bool(found.ranked.dense_rank)

    await first.until(dense)
    await first.relay.stop()
    late.go.set()

    async def marked() -> bool:
        return not await dense() or await nothing_waits(first)

    await first.until(marked)
    await first.until(dense)
    await first.until(lambda: nothing_waits(first))
    assert await dense()


async def test_a_vector_that_comes_late_is_of_the_row_that_it_was_made_for(
    pair: tuple[Search, Search], clock: Clock
) -> None:
    """Of a version that is superseded meanwhile, and of a session that is gone, no point is sent."""
    first, _ = pair
    await revise(first.database, ANN, "t1", wordless(write(ANN, "tea", 0, 1, "green tea")))
    await talk(first.database, ANN, "s", "a copper kettle")
    await commit(first.database, ANN, "s", "t2")
    await first.database.write(jobs.cancel, ANN, "t2", "")
    first.embedder.down = True
    first.relay.start()
    await first.caught_up(ANN)
    await first.relay.stop()
    missing = await first.database.read(missing_vectors.missing, ANN, first.registry, 10)
    assert {row.table for row in missing} == {"memories", "passages"}
    await revise(first.database, ANN, "t3", write(ANN, "tea", 1, 2, "black tea"))
    await first.database.write(delete_session, ANN, "s", "")
    first.relay.start()
    await first.caught_up(ANN)
    clock.advance(GRACE_SECONDS)
    await first.until(lambda: nothing_waits(first))

    filled = [(row, vector(row.text)) for row in missing]
    await first.database.write(missing_vectors.fill, ANN, filled, WordEmbedder.model)

    first.relay.wake()
    await first.until(lambda: nothing_waits(first))
    assert await first.listed(ANN) == await first.named(ANN)

    async def kept(tx: Tx) -> bool:
        row = await tx.fetchrow("SELECT dense FROM memories WHERE uri = $1 AND version = 1", uri(ANN, "tea"))
        return row is not None and row["dense"] is not None

    assert await first.database.read_global(kept), "searches at older revisions read it from its row"


async def test_what_one_server_finished_another_does_not_begin_again(
    pair: tuple[Search, Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is at the first slice of an archive while the first makes all of it, and all others of its list."""
    monkeypatch.setattr(passages, "SLICE", 2)
    first, second = pair
    for number in range(6):
        await talk(first.database, ANN, f"s{number}", *(f"kettle {number}-{message}" for message in range(4)))
        await commit(first.database, ANN, f"s{number}", f"t{number}")
    stored = asyncio.Event()
    write_to_store = second.database.write

    async def noted(work: Any, *arguments: Any, **options: Any) -> Any:
        answer = await write_to_store(work, *arguments, **options)
        if work is passages.store:
            stored.set()
        return answer

    monkeypatch.setattr(second.database, "write", noted)
    late = await slow(second, monkeypatch)
    first.relay.start()
    await first.caught_up(ANN)
    late.go.set()
    async with asyncio.timeout(30):
        await stored.wait()

    assert (await first.database.read(backlog.of_space, ANN)).messages == 0
    await first.relay.stop()
    await talk(first.database, ANN, "more", "a tin kettle")
    await commit(first.database, ANN, "more", "more")
    await second.caught_up(ANN)
    assert len(second.embedder.texts) == 2 + 1
    await second.until(lambda: nothing_waits(second))
    assert await first.listed(ANN) == await first.named(ANN)
    assert len(await first.listed(ANN)) == 25


async def test_two_relays_take_out_a_long_archive_together(
    pair: tuple[Search, Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "REMOVALS", 3)
    first, second = pair
    for session in ("s", "stays"):
        await talk(first.database, ANN, session, *(f"kettle {number}" for number in range(20)))
        await commit(first.database, ANN, session, f"t-{session}")
    first.relay.start()
    await first.counts(ANN, 40)
    await first.database.write(delete_session, ANN, "s", "")

    second.relay.start()
    first.relay.wake()
    await first.until(lambda: nothing_waits(first))

    assert await first.listed(ANN) == await first.named(ANN)
    assert len(await first.listed(ANN)) == 20
