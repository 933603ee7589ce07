"""What a search asks of the store and of the index, and in which order."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runekeep_storage.database import Tx
from runekeep_storage.index.base import IndexQuery, IndexUnavailable, PointKind
from runekeep_storage.indexing import passages
from runekeep_storage.indexing.points import passage_point
from runekeep_storage.search import backlog as search_backlog
from runekeep_storage.search.ranking import Ranking
from runekeep_storage.search.searcher import Searcher
from runekeep_storage.spaces import watermarks
from tests.support.storage.databases import ANN, BOB, CAT, ON_SQLITE, SECOND, Clock, commit, revise, talk
from tests.support.storage.search import Search, said, write
from tests.support.storage.statements import Noted

TALKS = 40
"""Sessions of two messages each, of which one is found: more than one statement reads."""


@pytest.fixture
async def talked(search: Search) -> Search:
    """Every session says the same in its second message, but for its number."""
    for number in range(TALKS):
        await talk(search.database, ANN, f"s{number:02}", "nothing of it", f"copper pipe {number:02}")
        await commit(search.database, ANN, f"s{number:02}", f"t{number:02}")
    search.relay.start()
    await search.caught_up(ANN)
    return search


async def test_a_search_reads_twice_and_as_little_as_can_be(talked: Search) -> None:
    database = Noted(talked.database)
    finder = Searcher(database, talked.attachment, talked.embedders, Ranking(), lambda space: None)
    asked = replace(talked, finder=finder)

    ten = await asked.find(ANN, "copper pipe", limit=10, kinds=(PointKind.PASSAGE,))
    assert len(ten.results) == 10
    assert [one.number for one in database.reads] == [1, 1], "before the index and behind it"

    database.reads.clear()
    everything = await asked.find(ANN, "copper pipe", limit=TALKS, kinds=(PointKind.PASSAGE,))
    assert sorted(said(everything)) == [
        f"{one.item.content.partition('): ')[0]}): copper pipe {number:02}"
        for number, one in zip(range(TALKS), everything.results, strict=True)
    ]
    assert [one.number for one in database.reads] == [1, 2]


async def test_passages_are_read_by_the_keys_of_their_points_and_no_others(talked: Search) -> None:
    """The numbers of messages are the same in all sessions, and what is asked for is not in order. As many keys as a
    statement takes, more, and fewer."""
    for count in (1, 15, 16, 17, 32, 33, TALKS):
        keys = [((f"s{number:02}", 2 - number % 2), f"t{number:02}") for number in reversed(range(count))]
        asked = [((name, sequence), passage_point(ANN, task, sequence)) for (name, sequence), task in keys]

        found = await talked.database.read(passages.of_points, ANN, [*asked, *asked])

        assert {point: (one.session_id, one.sequence) for point, one in found.items()} == {
            point: place for place, point in asked
        }
        other_commit = [(place, passage_point(ANN, "t-other", place[1])) for place, _ in asked]
        assert await talked.database.read(passages.of_points, ANN, other_commit) == {}
        assert await talked.database.read(passages.of_points, BOB, asked) == {}
        nowhere = [((name, 7), point) for (name, _), point in asked]
        assert await talked.database.read(passages.of_points, ANN, nowhere) == {}


async def test_a_search_begins_with_what_watermark_and_backlog_say(search: Search, clock: Clock) -> None:
    """Of spaces that nobody knows, that wait for the index, that are in it, and that are in another one."""
    for space in (ANN, BOB):
        await revise(search.database, space, f"{space.user}-t1", write(space, "tea", 0, 1, "green tea"))
    for space in (ANN, BOB):
        await talk(search.database, space, "s", "copper", "pipe")
        await commit(search.database, space, "s", f"{space.user}-t2")
    clock.advance(5)

    async def begins(space: Any, kept: tuple[int, int, int]) -> None:
        standing = await search.standing(space)
        backlog = await search.database.read(search_backlog.of_space, space)
        answer = await search.find(space, "copper")
        assert (standing.revision, standing.indexed, backlog.messages) == kept
        assert (answer.latest_revision, answer.pending_passages) == (standing.revision, backlog.messages)
        assert answer.lag == backlog.lag == (5 * SECOND if backlog.messages else 0)
        assert answer.degraded == (["rebuilding"] if standing.indexed < 0 else [])

    await begins(CAT, (0, 0, 0))
    before = await search.standing(ANN)
    await begins(ANN, (before.revision, 0, 3))
    assert before.revision == 1

    search.relay.start()
    await search.caught_up(ANN, BOB)
    await search.relay.stop()
    await begins(ANN, (before.revision, before.revision, 0))

    async def elsewhere(tx: Tx) -> None:
        await tx.execute("UPDATE spaces SET index_id = 'beef' WHERE account = $1 AND user_id = $2", *_key(BOB))

    await search.database.write_global(elsewhere)
    await begins(BOB, (before.revision, -1, 0))
    await begins(ANN, (before.revision, before.revision, 0))

    await search.database.write_global(watermarks.adopt, "beef")
    with pytest.raises(IndexUnavailable, match="another index by now"):
        await search.find(ANN, "copper")


def _key(space: Any) -> tuple[str, str]:
    return space.account, space.user


@ON_SQLITE
async def test_the_leg_of_vectors_does_not_wait_for_the_leg_of_words(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    search.relay.start()
    await search.caught_up(ANN)
    query, near = search.index.query, asyncio.Event()

    async def words_last(asked: IndexQuery) -> Any:
        if asked.dense is not None:
            near.set()
        else:
            await near.wait()
        return await query(asked)

    monkeypatch.setattr(search.index, "query", words_last)
    async with asyncio.timeout(30):
        answer = await search.find(ANN, "tea", kinds=(PointKind.MEMORY,))

    (best,) = answer.results
    assert (best.ranked.dense_rank, best.ranked.sparse_rank) == (1, 1)


@ON_SQLITE
async def test_when_one_leg_fails_nobody_waits_for_the_other(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    search.relay.start()
    await search.caught_up(ANN)
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def words_never(asked: IndexQuery) -> Any:
        if asked.dense is not None:
            await waiting.wait()
            raise IndexUnavailable("failed by the test")
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(search.index, "query", words_never)
    async with asyncio.timeout(20):
        with pytest.raises(IndexUnavailable, match="failed by the test"):
            await search.find(ANN, "tea")
        await ended.wait()
