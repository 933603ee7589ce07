"""What a search answers, from a commit through relay and embedded index, over every relational driver."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_storage.database import Space
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.index.base import IndexUnavailable, PointKind
from runekeep_storage.jobs import jobs
from runekeep_storage.records import Memory, Message, Passage
from runekeep_storage.relay.relay import BATCH
from runekeep_storage.search import searcher, snapshot
from runekeep_storage.search.requests import FindAnswer, SearchUnanswerable
from runekeep_storage.sessions import sessions
from tests.support.appending import add_messages
from tests.support.storage import databases
from tests.support.storage.databases import ANN, BOB, CAT, ON_SQLITE, SECOND, Clock, commit, revise, talk, text, uri
from tests.support.storage.search import GRACE_SECONDS, Search, memories, nothing_waits, said, wordless, write


async def test_a_memory_is_found_once_its_revision_is_in_the_index(search: Search) -> None:
    await revise(
        search.database, ANN, "t1", write(ANN, "tea", 0, 1, "likes green tea"), write(ANN, "dog", 0, 1, "has a dog")
    )
    before = await search.find(ANN, "green tea", kinds=(PointKind.MEMORY,))
    assert (before.results, before.revision, before.latest_revision, before.pending_passages) == ([], 0, 1, 1)

    search.relay.start()
    await search.caught_up(ANN)

    after = await search.find(ANN, "green tea", kinds=(PointKind.MEMORY,))
    assert memories(after)[0] == "likes green tea"
    assert (after.revision, after.latest_revision, after.pending_passages, after.degraded) == (1, 1, 0, [])
    best = after.results[0]
    assert (best.ranked.dense_rank, best.ranked.sparse_rank, best.ranked.neighbours) == (1, 1, 0.0)


async def test_a_search_never_shows_half_a_commit(search: Search) -> None:
    """Commits larger than what the relay reads at once, with searches all the while."""
    size = BATCH + 40
    answers: list[FindAnswer] = []
    for version in (1, 2):
        content = f"tea of commit {version}"
        writes = [write(ANN, f"m{number:03}", version - 1, version, content) for number in range(size)]
        await revise(search.database, ANN, f"t{version}", *writes)

    search.relay.start()
    while not answers or answers[-1].revision < 2:
        answers.append(await search.find(ANN, "tea commit", kinds=(PointKind.MEMORY,), limit=2 * size))

    for answer in answers:
        assert memories(answer) == [f"tea of commit {answer.revision}"] * (size if answer.revision else 0)


async def test_archived_talk_is_found_before_any_extraction(search: Search) -> None:
    talked = [
        text("m1", "Which kettle did you buy?", speaker="Bo", at=1_683_500_000 * SECOND),
        text("m2", "The copper one from the market", peer_id="ann", at=1_683_500_060 * SECOND),
        text("m3", "", at=1_683_500_090 * SECOND),
        Message(
            "m4",
            "user",
            ({"type": "image", "url": "x", "caption": "a copper kettle"},),
            created_at=1_683_500_100 * SECOND,
        ),
    ]
    await search.database.write(sessions.create, ANN, "s")
    await search.database.write(add_messages, ANN, "s", talked, {})
    await commit(search.database, ANN, "s", "t1")
    await talk(search.database, ANN, "s", "copper, but not archived")
    assert (await search.find(ANN, "copper")).pending_passages == 4

    search.relay.start()
    await search.caught_up(ANN)

    answer = await search.find(ANN, "the one from the market")
    assert said(answer)[0] == "ann (7 May 2023): The copper one from the market"
    assert set(said(answer)) == {
        "ann (7 May 2023): The copper one from the market",
        "Bo (7 May 2023): Which kettle did you buy?",
        "user (7 May 2023): [photo: a copper kettle]",
    }
    assert (answer.pending_passages, answer.revision) == (0, 0)
    beside = (await search.find(ANN, "kettle")).results
    assert {one.item.sequence: one.ranked.neighbours > 0 for one in beside if isinstance(one.item, Passage)} == {
        1: False,
        2: True,
        4: False,
    }
    assert said(await search.find(ANN, "copper", kinds=(PointKind.MEMORY,))) == []


async def test_while_the_embedder_is_down_words_are_found_and_vectors_follow(search: Search) -> None:
    search.embedder.down = True
    skill = replace(
        wordless(databases.write(ANN, "x", 0, 1, "brewing tea")),
        uri="viking://user/ann/skills/brewing.md",
        memory_type=SESSION_SKILLS.name,
        fields=json.dumps({"skill_name": "brewing", "description": "brewing tea"}),
    )
    unknown = replace(wordless(write(ANN, "old", 0, 1, "of a type that is gone")), memory_type="retired_type")
    many = [replace(unknown, uri=uri(ANN, f"old-{number}")) for number in range(70)]
    await revise(search.database, ANN, "t1", *many, wordless(write(ANN, "tea", 0, 1, "likes green tea")), skill)
    search.relay.start()
    await search.caught_up(ANN)

    down = await search.find(ANN, "green tea", kinds=(PointKind.MEMORY,))
    assert set(memories(down)) == {"likes green tea", "brewing tea"}
    assert down.degraded == ["dense"]
    assert all(found.ranked.dense_rank is None for found in down.results)

    search.embedder.down = False

    async def dense() -> bool:
        found = (await search.find(ANN, "green tea", limit=100)).results
        return {found.item.uri for found in found if isinstance(found.item, Memory) and found.ranked.dense_rank} == {
            uri(ANN, "tea"), skill.uri
        } and any(isinstance(one.item, Passage) and one.ranked.dense_rank for one in found)  # fmt: skip

    await search.until(dense)

    async def complete() -> bool:
        return not (await search.find(ANN, "green tea")).degraded

    await search.until(complete)
    up = await search.find(ANN, "green tea", kinds=(PointKind.MEMORY,))
    assert (up.pending_passages, up.pending_memories) == (0, 0), "memories of a type that is gone wait for nothing"
    assert memories(up)[0] == "likes green tea"
    assert (await search.find(ANN, "retired type gone", limit=200)).results


async def test_nobody_finds_what_is_another_users(search: Search) -> None:
    search.relay.start()
    for space in (ANN, BOB, CAT):
        await revise(search.database, space, f"{space.user}-1", write(space, "tea", 0, 1, f"{space.user} likes tea"))
        await talk(search.database, space, "s", f"tea said {space.user}")
        await commit(search.database, space, "s", f"{space.user}-2")
        await search.database.write(jobs.cancel, space, f"{space.user}-2", "")
    await search.caught_up(ANN, BOB, CAT)

    for space in (ANN, BOB, CAT):
        answer = await search.find(space, "tea likes said", limit=100)
        assert memories(answer) == [f"{space.user} likes tea"]
        assert [one.rsplit(": ")[-1] for one in said(answer)][:1] == [f"tea said {space.user}"]
        assert len(answer.results) == 3
    assert (await search.find(Space("acme", "nobody"), "tea")).results == []
    assert (await search.find(ANN, "tea", uri_prefix="viking://user/bob/memories")).results == []

    await search.database.write(delete_session, BOB, "s", "")
    await search.counts(BOB, 2)
    assert await search.index.count("acme", "ann") == 3


async def test_an_attempt_reads_at_its_revision_what_the_index_has_not_yet(search: Search) -> None:
    search.relay.start()
    await revise(
        search.database, ANN, "t1", write(ANN, "tea", 0, 1, "likes green tea"), write(ANN, "pot", 0, 1, "a tea pot")
    )
    await search.caught_up(ANN)
    await search.relay.stop()
    changes = [
        write(ANN, "tea", 1, 2, "likes black tea"),
        write(ANN, "pot", 1, 2, "", deleted=True),
        write(ANN, "mug", 0, 1, "mug"),
    ]
    await revise(search.database, ANN, "t2", *changes, wordless(write(ANN, "set", 0, 1, "a tea set")))

    only = {"kinds": (PointKind.MEMORY,)}
    assert sorted(memories(await search.find(ANN, "tea", **only))) == ["a tea pot", "likes green tea"]
    assert sorted(memories(await search.find(ANN, "tea", **only, at_revision=2))) == [
        "a tea set",
        "likes black tea",
        "mug",
    ]
    assert sorted(memories(await search.find(ANN, "tea", **only, at_revision=1))) == ["a tea pot", "likes green tea"]
    inside = await search.find(ANN, "tea", at_revision=2, uri_prefix=uri(ANN, "mug"))
    assert memories(inside) == ["mug"]
    assert memories(await search.find(ANN, "tea", at_revision=2, memory_types=("events",))) == []
    assert memories(await search.find(ANN, "tea", at_revision=2, kinds=(PointKind.PASSAGE,))) == []

    search.embedder.down = True
    words = await search.find(ANN, "tea", **only, at_revision=2)
    assert (sorted(memories(words)), words.degraded) == (["a tea set", "likes black tea"], ["dense"])


async def test_an_attempt_reads_at_its_revision_what_the_index_has_not_any_more(
    search: Search, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others write while a job works: what they superseded is out of the index, and still what the job works on."""
    search.relay.start()
    await revise(
        search.database, ANN, "t1", write(ANN, "tea", 0, 1, "likes green tea"), write(ANN, "pot", 0, 1, "a tea pot")
    )
    await revise(search.database, ANN, "t2", write(ANN, "cup", 0, 1, "a tea cup"))
    await search.caught_up(ANN)
    await revise(search.database, ANN, "t3", write(ANN, "tea", 1, 2, "likes black tea"))
    await revise(
        search.database, ANN, "t4", write(ANN, "pot", 1, 2, "", deleted=True), write(ANN, "mug", 0, 1, "a tea mug")
    )
    await search.caught_up(ANN)
    clock.advance(GRACE_SECONDS)
    await search.until(lambda: nothing_waits(search))
    assert await search.listed(ANN) == await search.named(ANN)

    async def at(revision: int, **options: Any) -> list[str]:
        return sorted(
            memories(await search.find(ANN, "tea", kinds=(PointKind.MEMORY,), at_revision=revision, **options))
        )

    assert await at(4) == ["a tea cup", "a tea mug", "likes black tea"]
    assert await at(3) == ["a tea cup", "a tea pot", "likes black tea"]
    assert await at(2) == ["a tea cup", "a tea pot", "likes green tea"]
    assert await at(1) == ["a tea pot", "likes green tea"]
    assert await at(0) == []
    assert await at(1, uri_prefix=uri(ANN, "pot")) == ["a tea pot"]
    assert await at(1, memory_types=("events",)) == []
    older = (await search.find(ANN, "likes green tea", kinds=(PointKind.MEMORY,), at_revision=1)).results
    assert all(found.ranked.dense_rank and found.ranked.sparse_rank for found in older)

    monkeypatch.setattr(searcher, "MAX_LAID_OVER", 1)
    assert await at(3) == ["a tea cup", "a tea pot", "likes black tea"]
    with pytest.raises(IndexUnavailable, match="More than 1 memories"):
        await at(2)


async def test_filters_and_thresholds(search: Search) -> None:
    search.relay.start()
    event = replace(
        write(ANN, "fair", 0, 1, "tea fair"), memory_type="events", uri="viking://user/ann/memories/events/fair.md"
    )
    await revise(
        search.database, ANN, "t1", write(ANN, "tea", 0, 1, "tea"), write(ANN, "milk", 0, 1, "milk in tea"), event
    )
    await search.caught_up(ANN)

    async def names(**options: Any) -> set[str]:
        return set(memories(await search.find(ANN, "tea", **options)))

    assert await names() == {"tea", "milk in tea", "tea fair"}
    assert await names(memory_types=("events",)) == {"tea fair"}
    assert await names(uri_prefix="viking://user/ann/memories/preferences") == {"tea", "milk in tea"}
    assert await names(fields={"topic": "milk"}) == {"milk in tea"}
    assert await names(fields={"topic": "Milk"}) == set()
    best, *others = (await search.find(ANN, "tea")).results
    assert all(found.score <= best.score for found in others)
    kept = await search.find(ANN, "tea", score_threshold=best.score)
    assert [found.item for found in kept.results if found.score < best.score] == []
    assert kept.results[0].item == best.item
    assert (await search.find(ANN, "tea", score_threshold=best.score + 1)).results == []
    assert len((await search.find(ANN, "tea", limit=2)).results) == 2


async def test_a_search_that_outlasts_the_grace_does_not_miss_what_left_meanwhile(
    search: Search, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began at revision 1. Until its index answers, that revision's memories are superseded, and taken out."""
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    search.relay.start()
    await search.caught_up(ANN)
    meanwhile: list[Callable[[], Awaitable[None]]] = []
    query = search.index.query

    async def held(asked: Any) -> Any:
        while meanwhile:
            await meanwhile.pop()()
        return await query(asked)

    monkeypatch.setattr(search.index, "query", held)

    async def found() -> list[str]:
        return memories(await search.find(ANN, "tea", kinds=(PointKind.MEMORY,)))

    async def long() -> None:
        clock.advance(GRACE_SECONDS)

    async def supersede() -> None:
        await revise(search.database, ANN, "t2", write(ANN, "tea", 1, 2, "black tea"))
        await search.caught_up(ANN)

    async def gone() -> None:
        await supersede()
        await long()
        await search.until(lambda: nothing_waits(search))

    meanwhile.append(long)
    assert await found() == ["green tea"], "nothing changed meanwhile"
    meanwhile.append(gone)
    opened: list[Any] = []
    monkeypatch.setattr(search.index, "open", opened.append)
    with pytest.raises(SearchUnanswerable, match="went on meanwhile"):
        await found()
    await search.attachment.attach()
    assert opened == [], "the index is well"
    assert await found() == ["black tea"]


@pytest.mark.parametrize("leg", ["sparse", "dense"])
async def test_a_search_within_the_grace_finds_what_was_superseded_meanwhile(
    search: Search, clock: Clock, monkeypatch: pytest.MonkeyPatch, leg: str
) -> None:
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    search.relay.start()
    await search.caught_up(ANN)
    query = search.index.query

    async def held(asked: Any) -> Any:
        if getattr(asked, leg) is not None:
            await revise(search.database, ANN, "t2", write(ANN, "tea", 1, 2, "black tea"))
            await search.caught_up(ANN)
            clock.advance(snapshot.SNAPSHOT_TTL_US / SECOND)
            search.relay.wake()
            await search.relay.moved(seconds=0.2)
        return await query(asked)

    with monkeypatch.context() as index:
        index.setattr(search.index, "query", held)
        answer = await search.find(ANN, "tea", kinds=(PointKind.MEMORY,))

    assert (memories(answer), answer.revision) == (["green tea"], 1)


@ON_SQLITE
async def test_the_leg_of_words_runs_beside_the_embedder(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    search.relay.start()
    await search.caught_up(ANN)
    query = search.index.query

    async def answered(asked: Any) -> Any:
        hits = await query(asked)
        search.embedder.go.set()
        return hits

    monkeypatch.setattr(search.index, "query", answered)
    search.embedder.go.clear()
    async with asyncio.timeout(30):
        answer = await search.find(ANN, "tea", kinds=(PointKind.MEMORY,))

    (best,) = answer.results
    assert (best.ranked.dense_rank, best.ranked.sparse_rank) == (1, 1)


@ON_SQLITE
async def test_when_the_leg_of_words_fails_nobody_waits_for_the_embedder(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    search.relay.start()
    await search.caught_up(ANN)
    embed, ended = search.embedder.embed, asyncio.Event()

    async def seen(texts: Sequence[str], **options: Any) -> list[bytes]:
        try:
            return await embed(texts, **options)
        finally:
            ended.set()

    async def failing(asked: Any) -> Any:
        await search.embedder.working.wait()
        raise IndexUnavailable("failed by the test")

    monkeypatch.setattr(search.embedder, "embed", seen)
    monkeypatch.setattr(search.index, "query", failing)
    search.embedder.working.clear()
    search.embedder.go.clear()
    with pytest.raises(IndexUnavailable):
        await search.find(ANN, "tea")
    async with asyncio.timeout(20):
        await ended.wait()


@pytest.mark.parametrize("seconds", [-1.0, 3600.0], ids=["stale", "fresh"])
async def test_a_look_at_the_watermark_that_grew_old_while_the_embedder_worked_is_made_again(
    search: Search, clock: Clock, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """While it works, what the leg of words found is superseded, and taken out."""
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    search.relay.start()
    await search.caught_up(ANN)
    monkeypatch.setattr(searcher, "STALE_SECONDS", seconds)
    query, looked = search.index.query, asyncio.Event()
    embed, go = search.embedder.embed, asyncio.Event()

    async def seen(asked: Any) -> Any:
        hits = await query(asked)
        looked.set()
        return hits

    async def held(texts: Sequence[str], *, bulk: bool = False, **options: Any) -> list[bytes]:
        if not bulk:
            await go.wait()
        return await embed(texts, bulk=bulk, **options)

    monkeypatch.setattr(search.index, "query", seen)
    monkeypatch.setattr(search.embedder, "embed", held)
    searching = asyncio.create_task(search.find(ANN, "tea", kinds=(PointKind.MEMORY,)))
    await looked.wait()
    await revise(search.database, ANN, "t2", write(ANN, "tea", 1, 2, "black tea"))
    await search.caught_up(ANN)
    clock.advance(GRACE_SECONDS)
    await search.until(lambda: nothing_waits(search))
    go.set()

    if seconds < 0:
        answer = await searching
        assert (memories(answer), answer.revision) == (["black tea"], 2)
    else:
        with pytest.raises(SearchUnanswerable, match="went on meanwhile"):
            await searching
