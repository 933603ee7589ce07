"""No user's passages and vectors wait for everything that another user archived, and a large archive can be found by
its words before the embedder has finished."""

import asyncio

import pytest

from runekeep_storage.database import Space
from runekeep_storage.endpoints import outage
from runekeep_storage.indexing.passages import SLICE
from runekeep_storage.relay import missing_vectors, passage_relay
from runekeep_storage.search import backlog as search_backlog
from runekeep_storage.sessions import sessions
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, BOB, CAT, ON_SQLITE, commit, revise, talk, text
from tests.support.storage.search import Search, nothing_waits, said, wordless, write

LARGE = passage_relay.LARGE_ARCHIVE + 250
TURN = missing_vectors.MAX_VECTORS + SLICE
"""Most texts of one user that are embedded in one turn."""


def embedded_before(texts: list[str], waiting: str, late: str, count: int = 0) -> int:
    """Returns how many texts of one user were embedded before the first `count` of another user; 0: before its
    last."""
    last = [number for number, one in enumerate(texts) if late in one][count - 1]
    return sum(waiting in one for one in texts[:last])


async def archived(search: Search, space: Space, session: str, count: int) -> None:
    await talk(search.database, space, session, *(f"{space.user} kettle {number}" for number in range(count)))
    await commit(search.database, space, session, f"{space.user}-{session}")


async def complete(search: Search, space: Space) -> bool:
    answer = await search.find(space, "kettle")
    return not answer.pending_passages and not answer.degraded


@ON_SQLITE
async def test_a_small_commit_does_not_wait_for_a_large_one(search: Search) -> None:
    """Many small archives do not delay it either."""
    await archived(search, ANN, "large", LARGE)
    for number in range(30):
        await archived(search, CAT, f"s{number}", 10)
    search.relay.start()
    async with asyncio.timeout(30):
        await search.embedder.working.wait()
    await archived(search, BOB, "small", 3)
    search.relay.wake()

    await search.until(lambda: complete(search, BOB))

    # What was being embedded when the commit arrived, and a turn or two more.
    for waiting in ("ann", "cat"):
        assert embedded_before(search.embedder.texts, waiting, "bob") <= 4 * TURN
    assert len(said(await search.find(BOB, "kettle"))) == 3
    await search.until(lambda: complete(search, ANN))
    await search.until(lambda: complete(search, CAT))


@ON_SQLITE
async def test_late_vectors_of_one_do_not_wait_for_those_of_another(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each account pauses by itself after the outage, and the double embeds everything of another one within a pause.
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(outage, "MAX_PAUSE_SECONDS", 0.001)
    search.embedder.down = True
    await revise(search.database, CAT, "cat", wordless(write(CAT, "tea", 0, 1, "cat kettle")))
    for space, count in ((ANN, 12 * SLICE), (BOB, 3)):
        await archived(search, space, "s", count)
    search.relay.start()
    await search.caught_up(ANN, BOB, CAT)
    assert not search.embedder.texts
    search.embedder.down = False

    await search.until(lambda: complete(search, BOB))
    await search.until(lambda: complete(search, CAT))

    # Lines of the memory get their vectors later still.
    for late, count in (("bob", 3), ("cat", 1)):
        assert embedded_before(search.embedder.texts, "ann", late, count) <= 2 * TURN
    await search.until(lambda: complete(search, ANN))


async def test_with_several_servers_too(pair: tuple[Search, Search]) -> None:  # the fixture
    first, second = pair
    await archived(first, ANN, "large", LARGE)
    for server in pair:
        server.relay.start()
    async with asyncio.timeout(30):
        await first.embedder.working.wait()
    await archived(second, BOB, "small", 3)
    for server in pair:
        server.relay.wake()

    await first.until(lambda: complete(first, BOB))

    counts = [embedded_before(one.embedder.texts, "ann", "bob") for one in pair if "bob" in str(one.embedder.texts)]
    assert min(counts) <= 4 * TURN
    await first.until(lambda: complete(first, ANN))
    await first.until(lambda: nothing_waits(first))
    assert await first.listed(ANN) == await first.named(ANN)
    assert len(await first.listed(ANN)) == LARGE


@ON_SQLITE
async def test_a_large_archive_is_found_by_its_words_before_its_vectors(search: Search) -> None:
    search.embedder.go.clear()
    await archived(search, ANN, "large", LARGE)
    search.relay.start()
    by_words = asyncio.create_task(search.until(lambda: has_words(search)))
    async with asyncio.timeout(30):
        # The text of a query waits for the embedder as well, so this reads the rows.
        while not by_words.done():
            search.embedder.go.set()
            await asyncio.sleep(0)
            search.embedder.go.clear()
            await asyncio.sleep(0.01)
    await by_words
    search.embedder.go.set()
    answer = await search.find(ANN, f"kettle {LARGE - 1}", limit=1)
    assert said(answer)[0].endswith(f"kettle {LARGE - 1}")
    await search.until(lambda: complete(search, ANN))


async def has_words(search: Search) -> bool:
    backlog = await search.database.read(search_backlog.of_space, ANN, ",")
    return backlog.messages == 0 and backlog.passages > LARGE // 2


@ON_SQLITE
async def test_messages_without_words_do_not_stop_an_archive(search: Search) -> None:
    """More archives in a row than are read at once."""
    silent = [text(f"m{number}", "") for number in range(3 * SLICE)]
    messages = [text("first", "a kettle"), *silent, text("last", "another kettle")]
    await search.database.write(sessions.create, ANN, "s")
    await search.database.write(add_messages, ANN, "s", messages, {})
    await commit(search.database, ANN, "s", "t1")
    assert (await search.find(ANN, "kettle")).pending_passages == len(messages)

    search.relay.start()
    await search.until(lambda: complete(search, ANN))

    assert len(said(await search.find(ANN, "kettle"))) == 2
    assert len(search.embedder.texts) - search.embedder.texts.count("kettle") == 2


@ON_SQLITE
async def test_a_server_goes_on_where_another_one_stopped(search: Search) -> None:
    """The relay stops in the middle of an archive. What it has made is not made again."""
    await archived(search, ANN, "s", 5 * SLICE)
    index_id = await search.attachment.id()
    await search.relay._passages.step(index_id)
    made = len(search.embedder.texts)
    assert made == SLICE
    assert (await search.find(ANN, "kettle")).pending_passages == 4 * SLICE

    other = Search.of(search.database, search.index, search.registry, search.attachment)
    other.relay.start()
    await other.until(lambda: complete(other, ANN))
    await other.relay.stop()

    assert sum("ann" in one for one in other.embedder.texts) == 4 * SLICE
