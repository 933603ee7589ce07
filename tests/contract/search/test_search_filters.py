"""What a search is narrowed by, and what its order can be made to heed, from rows to the index and back."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from runekeep.v1 import common_pb2, memory_service_pb2
from runekeep_server.memories import search as memory_search
from runekeep_storage.database import Tx
from runekeep_storage.index.base import PointKind
from runekeep_storage.jobs import jobs
from runekeep_storage.records import Memory, MemoryWrite, Message
from runekeep_storage.search.ranking import Ranking
from runekeep_storage.search.requests import FindRequest
from runekeep_storage.search.searcher import Searcher
from runekeep_storage.sessions import sessions
from tests.support.appending import add_messages
from tests.support.storage import databases
from tests.support.storage.databases import ANN, ON_SQLITE, SECOND, Clock, commit, revise, text
from tests.support.storage.search import Search, said, wordless, write
from tests.support.storage.search import memories as found_memories


def day(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp())  # type: ignore[arg-type, misc]


def event(name: str, at: int | None, *tags: str, base: int = 0) -> MemoryWrite:
    made = replace(write(ANN, name, base, base + 1, f"tea {name}"), memory_type="events", tags=tags)
    return replace(
        made, uri=f"viking://user/ann/memories/events/{name}.md", happened_at=None if at is None else at * SECOND
    )


def of_session(made: MemoryWrite, *names: str) -> MemoryWrite:
    sources = [{"session": name, "message_id": "m1", "sequence": 1} for name in names]
    return replace(made, sources=json.dumps(sources))


async def archive(search: Search, session_id: str, task_id: str, *said: Message) -> None:
    """Nobody extracts."""
    await search.database.write(sessions.create, ANN, session_id)
    await search.database.write(add_messages, ANN, session_id, said, {})
    await commit(search.database, ANN, session_id, task_id)
    await search.database.write(jobs.cancel, ANN, task_id, "")


async def names(search: Search, words: str = "tea", **options: Any) -> set[str]:
    answer = await search.find(ANN, words, limit=100, **options)
    return {*found_memories(answer), *(one.partition("): ")[2] for one in said(answer))}


async def test_peers_and_the_user(search: Search) -> None:
    kim = replace(write(ANN, "kim", 0, 1, "tea of kim"), uri="viking://user/ann/peers/kim/memories/preferences/t.md")
    await revise(search.database, ANN, "t1", write(ANN, "own", 0, 1, "tea of ann"), replace(kim, peer_id="kim"))
    await archive(search, "s", "t2", text("m1", "tea said kim", peer_id="kim"), text("m2", "tea said ann"))
    search.relay.start()
    await search.caught_up(ANN)

    assert await names(search, peers=("kim",)) == {"tea of kim", "tea said kim"}
    assert await names(search, peers=(None,)) >= {"tea of ann", "tea said ann"}
    assert "tea of kim" not in await names(search, peers=(None,))
    assert await names(search, peers=(None, "kim")) >= {"tea of kim", "tea said kim", "tea of ann", "tea said ann"}
    assert await names(search, peers=("bo",)) == set()


@pytest.mark.parametrize("overlaid", [False, True], ids=["in the index", "beside it"])
async def test_times_are_of_the_event_the_message_or_the_change(search: Search, clock: Clock, overlaid: bool) -> None:
    """The same from the index and from rows that it has not got yet."""
    await archive(search, "s", "t1", text("m1", "tea in May", at=day(2023, 5, 8) * SECOND), text("m2", "tea today"))
    search.relay.start()
    await search.caught_up(ANN)
    if overlaid:
        await search.relay.stop()
    await revise(
        search.database,
        ANN,
        "t2",
        event("fair", day(2023, 5, 20)),
        event("month", day(2023, 5, 1)),
        event("year", day(2023, 1, 1)),
        event("undated", None),
        write(ANN, "own", 0, 1, "tea of ann"),
    )
    options = {"at_revision": 1} if overlaid else {}
    if not overlaid:
        await search.caught_up(ANN)

    async def between(since: int | None, until: int | None) -> set[str]:
        given = {"since": since, "until": until}
        times = {name: second * SECOND for name, second in given.items() if second is not None}
        return await names(search, **times, **options)

    assert await between(day(2023, 5, 1), day(2023, 6, 1)) == {"tea in May", "tea fair", "tea month"}
    assert await between(day(2023, 5, 8), day(2023, 5, 20)) == {"tea in May"}, "from the first on, before the second"
    assert await between(None, day(2023, 2, 1)) == {"tea year"}
    written = clock.now // SECOND
    assert await between(written, written + 1) >= {"tea of ann", "tea undated", "tea today"}
    assert not await between(written + 1, None) & {"tea of ann", "tea undated", "tea today"}


async def test_times_are_cut_where_they_are_given_not_at_the_second(search: Search) -> None:
    said_at = day(2023, 5, 8) * SECOND + 500_000
    await archive(search, "s", "t1", text("m1", "tea", at=said_at))
    search.relay.start()
    await search.caught_up(ANN)

    async def between(since: int, until: int) -> set[str]:
        return await names(search, since=said_at + since, until=said_at + until)

    assert await between(0, 1) == await between(-100_000, 100_000) == {"tea"}
    assert await between(1, SECOND) == await between(-SECOND, 0) == set()


async def test_the_past_has_what_was_archived_up_to_the_revision_kept_before_it(search: Search, clock: Clock) -> None:
    """Of some nothing is kept but their number, as of a user who was deleted."""

    async def by(revision: int) -> set[str]:
        as_of = common_pb2.AsOf(revision=revision)
        request = memory_service_pb2.FindMemoriesRequest(query="tea", limit=100, as_of=as_of)
        parts = SimpleNamespace(database=search.database, finder=search.finder, registry=search.registry, embedder=None)
        return {one.partition("): ")[2] for one in said(await memory_search.search(parts, ANN, request))}  # type: ignore[arg-type]

    async def unkept(tx: Tx) -> None:
        await tx.execute(
            "UPDATE spaces SET revision = revision + 1 WHERE account = $1 AND user_id = $2", ANN.account, ANN.user
        )

    await archive(search, "s1", "a1", text("m1", "tea first"))
    await search.database.write_global(unkept)
    clock.advance(1)
    await archive(search, "s2", "a2", text("m1", "tea second"))
    await revise(search.database, ANN, "t1", write(ANN, "own", 0, 1, "green"))
    clock.advance(1)
    await search.database.write_global(unkept)
    await archive(search, "s3", "a3", text("m1", "tea third"))
    search.relay.start()
    await search.caught_up(ANN)

    first, second, third = [await by(revision) for revision in (1, 2, 3)]
    assert first == set(), "nobody knows when that was"
    assert "tea second" in second and "tea third" not in second
    assert third == second


async def test_sessions_that_it_was_said_in_or_came_from(search: Search) -> None:
    for number in (1, 2):
        await archive(search, f"s{number}", f"a{number}", text("m1", f"tea said in s{number}"))
    await revise(
        search.database,
        ANN,
        "t1",
        of_session(write(ANN, "both", 0, 1, "tea of both"), "s1", "s2"),
        of_session(write(ANN, "first", 0, 1, "tea of the first"), "s1"),
        write(ANN, "none", 0, 1, "tea by hand"),
    )
    search.relay.start()
    await search.caught_up(ANN)

    assert await names(search, sessions=("s1",)) == {"tea said in s1", "tea of both", "tea of the first"}
    assert await names(search, sessions=("s2", "s3")) == {"tea said in s2", "tea of both"}
    assert await names(search, sessions=("s",)) == set()


async def test_filters_hold_together(search: Search) -> None:
    await revise(
        search.database,
        ANN,
        "t1",
        of_session(event("fair", day(2023, 5, 20), "outdoors"), "s1"),
        of_session(event("walk", day(2023, 5, 21), "outdoors"), "s2"),
        event("old", day(2020, 5, 21), "outdoors"),
    )
    search.relay.start()
    await search.caught_up(ANN)

    narrow = {"tags": ("outdoors",), "since": day(2023, 1, 1), "memory_types": ("events",), "sessions": ("s1",)}
    assert await names(search, **narrow, kinds=(PointKind.MEMORY,)) == {"tea fair"}
    assert await names(search, **narrow, uri_prefix="viking://user/ann/memories/preferences") == set()


async def test_what_was_archived_later_is_left_out(search: Search, clock: Clock) -> None:
    await archive(search, "s1", "a1", text("m1", "tea said before"))
    then = clock.now
    clock.advance(10)
    await archive(search, "s2", "a2", text("m1", "tea said after"))
    search.relay.start()
    await search.caught_up(ANN)

    assert await names(search, archived_by=then) == {"tea said before"}
    assert await names(search, archived_by=then + 10 * SECOND) == {"tea said before", "tea said after"}
    assert await names(search, archived_by=then - 1) == set()


async def test_waiting_messages_and_how_long_the_first_has_waited(search: Search, clock: Clock) -> None:
    await archive(search, "s1", "a1", text("m1", "tea"), text("m2", "more tea"))
    clock.advance(7)
    await archive(search, "s2", "a2", text("m1", "tea"))

    waiting = await search.find(ANN, "tea")
    assert (waiting.pending_passages, waiting.lag) == (3, 7 * SECOND)

    search.relay.start()
    await search.caught_up(ANN)
    done = await search.find(ANN, "tea")
    assert (done.pending_passages, done.lag) == (0, 0)


@ON_SQLITE
@pytest.mark.parametrize("words", [False, True], ids=["with vectors", "by words alone"])
@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ("我昨天在上海买了一辆自行车", "自行车在哪里买的"),
        ("昨日、大阪で新しい自転車を買いました", "自転車はどこで買った"),
        ("เมื่อวานฉันซื้อจักรยานใหม่ที่เชียงใหม่", "ซื้อจักรยานที่ไหน"),
        ("어제 부산에서 새 자전거를 샀어요", "자전거를 어디서"),
    ],
    ids=["Chinese", "Japanese", "Thai", "Korean"],
)
async def test_scripts_without_spaces_are_found(search: Search, told: str, asked: str, words: bool) -> None:
    others = ("tea with milk", "คุณสบายดีไหม", "你好吗", "お元気ですか", "안녕하세요")
    await archive(search, "s", "a", *(text(f"m{at}", one) for at, one in enumerate((*others, told))))
    search.embedder.down = words
    search.relay.start()
    await search.caught_up(ANN)

    answer = await search.find(ANN, asked)

    best = max(answer.results, key=lambda one: one.ranked.sparse_score or 0)
    assert best.item.content.endswith(told)
    if words:
        assert said(answer)[0].endswith(told)


async def test_a_corrected_memory_comes_before_what_was_said_first(search: Search) -> None:
    """By words: the vectors of this suite say nothing of meaning."""
    search.embedder.down = True
    outdated = text("m1", "Yesterday I heard that our kiln arrives on 16 March", speaker="Mara")
    await archive(search, "s", "a", text("m0", "When does the kiln arrive?"), outdated, text("m2", "Good to know"))
    corrected = "Mara heard that our kiln arrives on 20 March"
    await revise(search.database, ANN, "t", of_session(wordless(write(ANN, "kiln", 0, 1, corrected)), "s"))
    search.relay.start()
    await search.caught_up(ANN)

    for asked in ("When does the kiln arrive?", "kiln March", "when will our kiln be there"):
        best = (await search.find(ANN, asked)).results[0]
        assert isinstance(best.item, Memory) and best.item.content == corrected


async def test_use_and_age_count_only_where_they_are_switched_on(search: Search, clock: Clock) -> None:
    await revise(search.database, ANN, "t1", write(ANN, "used", 0, 1, "likes tea"))
    clock.advance(90 * 86_400)
    await revise(search.database, ANN, "t2", write(ANN, "new", 0, 1, "likes tea"))
    search.relay.start()
    await search.caught_up(ANN)
    await search.database.write_global(_used, databases.uri(ANN, "used"))

    async def scores(weights: Ranking) -> dict[str, float]:
        finder = Searcher(search.database, search.attachment, search.embedders, weights, search.relay.hurry)
        answer = await finder.find(ANN, FindRequest("tea", kinds=(PointKind.MEMORY,)))
        return {
            one.item.uri.rpartition("/")[2].removesuffix(".md"): one.score
            for one in answer.results
            if isinstance(one.item, Memory)
        }

    plain = await scores(Ranking())
    assert plain["used"] == plain["new"]
    by_use, by_age = await scores(Ranking(usage_weight=1.0)), await scores(Ranking(recency_weight=1.0))
    assert by_use["used"] > plain["used"] and by_use["new"] == plain["new"]
    assert by_age["new"] - plain["new"] == pytest.approx(1.0)
    assert by_age["used"] - plain["used"] == pytest.approx(0.5**3)


async def _used(tx: Tx, uri: str) -> None:
    await tx.execute(
        "INSERT INTO active_counts (account, user_id, uri, uses) VALUES ($1, $2, $3, 9)", ANN.account, ANN.user, uri
    )
