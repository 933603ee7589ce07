"""Points that no row asks for go, points that rows miss come back; what is only on its way is neither."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from runekeep_storage.database import Space
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.index.base import IndexUnavailable, PointKind
from runekeep_storage.indexing import outbox, passages, rows
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.points import passage_point
from runekeep_storage.jobs import jobs
from runekeep_storage.relay.reconcile import Compared, compare
from runekeep_storage.spaces import watermarks
from tests.doubles.word_embedder import WordEmbedder
from tests.support.storage.databases import ANN, BOB, Clock, commit, revise, talk
from tests.support.storage.search import CHECK_SECONDS, GRACE_SECONDS, Search, memories, said, write

pytestmark = pytest.mark.postgres_long


async def compared(search: Search, space: Space) -> Compared | None:
    index_id = await search.attachment.id()
    return await compare(search.database, search.index, index_id, space, Models(WordEmbedder.model))


async def said_and_indexed(search: Search, space: Space, session: str, *words: str) -> None:
    await talk(search.database, space, session, *words)
    task = f"{space.user}-{session}"
    await commit(search.database, space, session, task)
    await search.database.write(jobs.cancel, space, task, "")
    await search.caught_up(space)


async def orphan(search: Search, space: Space) -> str:
    """A point of the space that no row asks for."""
    some = (await search.database.read(rows.page, space, "memories", 1, rows.FIRST, 1, Models(WordEmbedder.model)))[0][
        0
    ]
    made = replace(some, id=str(uuid4()), uri=f"{some.uri}.lost")
    await search.index.upsert([made])
    return made.id


async def test_orphans_go_and_missing_points_come_back(search: Search) -> None:
    search.relay.start()
    for space in (ANN, BOB):
        await revise(search.database, space, f"{space.user}-1", write(space, "tea", 0, 1, "green tea"))
        await said_and_indexed(search, space, "s", "a copper kettle")
    await search.relay.stop()
    asked = {space: await search.named(space) for space in (ANN, BOB)}
    bobs = await orphan(search, BOB)
    for _ in range(2):
        await orphan(search, ANN)
    await search.index.delete(asked[ANN])
    assert memories(await search.find(ANN, "tea")) == []

    assert await compared(search, ANN) == Compared(points=2, orphans=2, missing=len(asked[ANN]))

    assert await search.listed(ANN) == asked[ANN]
    answer = await search.find(ANN, "green tea")
    assert memories(answer) == ["green tea"]
    assert answer.results[0].ranked.dense_rank, "its vector came back with it"
    assert said(await search.find(ANN, "copper"))[0].endswith("a copper kettle")
    assert await search.listed(BOB) == sorted([*asked[BOB], bobs])
    assert await compared(search, ANN) == Compared(points=len(asked[ANN]), orphans=0, missing=0)


async def test_more_than_a_page_of_each(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runekeep_storage.relay.reconcile.PAGE", 2)
    monkeypatch.setattr("runekeep_storage.relay.reconcile.WRITES", 2)
    search.relay.start()
    await revise(search.database, ANN, "t1", *(write(ANN, f"m{number}", 0, 1, f"tea {number}") for number in range(5)))
    await said_and_indexed(search, ANN, "s", *(f"kettle {number}" for number in range(5)))
    await search.relay.stop()
    asked = await search.named(ANN)
    await search.index.delete(asked[::2])
    for _ in range(5):
        await orphan(search, ANN)

    assert await compared(search, ANN) == Compared(len(asked) // 2 + 5, orphans=5, missing=(len(asked) + 1) // 2)
    assert await search.listed(ANN) == asked


async def test_what_is_on_its_way_is_neither_orphan_nor_missing(
    search: Search, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that is superseded and not yet taken out, one that is not yet sent, and passages between their points
    and their rows."""
    search.relay.start()
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    await revise(search.database, ANN, "t2", write(ANN, "tea", 1, 2, "black tea"))
    await search.caught_up(ANN)
    await search.relay.stop()
    await revise(search.database, ANN, "t3", write(ANN, "cup", 0, 1, "a cup"))
    await talk(search.database, ANN, "late", "a copper kettle", "yes")
    await commit(search.database, ANN, "late", "late")
    task = next(
        archive for archive in await search.database.read(passages.waiting, ANN) if archive.task_id == "late"
    ).task_id
    some = (await search.database.read(rows.page, ANN, "passages", 0, rows.FIRST, 1, Models(WordEmbedder.model)))[0][0]
    await search.index.upsert([replace(some, id=passage_point(ANN, task, sequence)) for sequence in (1, 2)])
    before = await search.listed(ANN)
    assert len(before) == len(await search.named(ANN)) + 2, "old version and late passages there, the cup not"

    assert await compared(search, ANN) == Compared(len(before), orphans=0, missing=0)
    assert await search.listed(ANN) == before

    search.relay.start()
    await search.caught_up(ANN)
    clock.advance(GRACE_SECONDS)
    await search.counts(ANN, len(await search.named(ANN)))


@pytest.mark.parametrize("when", ["list_ids", "upsert"])
async def test_what_changes_during_the_comparison(
    search: Search, clock: Clock, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """At the listing, or between reading rows that miss a point and writing it: the relay takes the old version out,
    its session is deleted, new ones come."""
    search.relay.start()
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    await said_and_indexed(search, ANN, "s", "a copper kettle")
    await search.index.delete(await search.named(ANN))
    changed = asyncio.Event()

    async def change() -> None:
        await revise(search.database, ANN, "t2", write(ANN, "tea", 1, 2, "black tea"))
        await search.database.write(delete_session, ANN, "s", "")
        await said_and_indexed(search, ANN, "new", "a tin kettle")
        clock.advance(GRACE_SECONDS)
        await search.until(lambda: nothing_to_remove(search))
        changed.set()

    with monkeypatch.context() as index:
        index.setattr(search.index, when, after_once(getattr(search.index, when), change, changed))
        await compared(search, ANN)
    assert changed.is_set()

    clock.advance(GRACE_SECONDS)
    await search.until(lambda: nothing_to_remove(search))
    # What was missing and came with the change alone is the relay's; the rest is there already.
    await compared(search, ANN)
    assert await search.listed(ANN) == await search.named(ANN)
    assert memories(await search.find(ANN, "tea", kinds=(PointKind.MEMORY,))) == ["black tea"]
    assert [one.endswith("tin kettle") for one in said(await search.find(ANN, "kettle")) if "kettle" in one] == [True]


def after_once(call: Any, change: Callable[[], Awaitable[None]], changed: asyncio.Event) -> Any:
    """The call, with the change coming before it, once; calls of the relay meanwhile go straight through."""
    begun = False

    async def wrapped(*arguments: Any, **options: Any) -> Any:
        nonlocal begun
        if not begun:
            begun = True
            await change()
        return await call(*arguments, **options)

    return wrapped


async def nothing_to_remove(search: Search) -> bool:
    return not await search.database.read(outbox.removals, ANN)


async def test_a_comparison_that_is_due_is_made_by_one_relay(
    search: Search, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    search.relay.start()
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    await search.caught_up(ANN)
    lost = (await search.named(ANN))[0]
    await search.index.delete([lost])
    await orphan(search, ANN)
    clock.advance(CHECK_SECONDS / 2)
    before = await search.database.read_global(watermarks.due_for_check, await search.attachment.id(), 0)
    clock.advance(CHECK_SECONDS / 2 + 1)

    async def mended() -> bool:
        return await search.listed(ANN) == await search.named(ANN)

    output = ""

    async def told() -> bool:
        nonlocal output
        output += capfd.readouterr().out
        return "index_compared" in output

    await search.until(mended)
    await search.until(told)
    assert output.count("index_compared") == 1
    assert "orphans=1" in output and "missing=1" in output
    assert before is not None and before[0] == ANN
    assert not await search.database.write(watermarks.claim_check, ANN, before[1]), "another server has done it"


async def test_a_comparison_that_the_index_interrupts_is_made_again(
    search: Search, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    search.relay.start()
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    await search.caught_up(ANN)
    await search.index.delete(await search.named(ANN))
    failed = asyncio.Event()

    async def fails(*arguments: Any, **options: Any) -> None:
        failed.set()
        raise IndexUnavailable("taken down by the test")

    with monkeypatch.context() as index:
        index.setattr(search.index, "list_ids", fails)
        clock.advance(CHECK_SECONDS + 1)
        async with asyncio.timeout(30):
            await failed.wait()

    async def mended() -> bool:
        return await search.listed(ANN) == await search.named(ANN)

    await search.until(mended)


async def test_a_space_that_is_not_in_the_index_is_not_compared(search: Search) -> None:
    search.relay.start()
    await revise(search.database, ANN, "t1", write(ANN, "tea", 0, 1, "green tea"))
    await search.caught_up(ANN)
    await search.relay.stop()
    await search.index.clear()
    search.attachment.doubt()
    await search.attachment.attach()

    assert await compared(search, ANN) is None
    assert await search.listed(ANN) == []
