"""What one read of the tree may take: rows, steps, threads and time."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_server.memories.tree import grep, listing
from runekeep_server.protocol.api_error import ApiError
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.memories import apply, memories
from runekeep_storage.memories.memories import LATEST
from tests.support.changes import put
from tests.support.storage.databases import ANN, ON_SQLITE, Clock, claim, commit, prepared, talk
from tests.support.storage.search import Search
from tests.support.storage.trees import Tree, at_revision

pytestmark = ON_SQLITE

ROOT = "viking://user/ann"


@pytest.fixture
def tree(search: Search, tmp_path: Path) -> Tree:
    return Tree(search.database, search.registry, search.relay, FolderBlobs(tmp_path / "blobs"), ANN)


async def test_the_newest_revision_is_read_as_what_is_there_now(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in ("a", "b"):
        await tree.write(put("preferences", topic=topic, content="x"))
    asked: list[int] = []
    whole, changed = memories.listing, memories.last_change

    async def listed(tx: Any, space: Any, root: str, revision: int = LATEST, **options: Any) -> Any:
        asked.append(revision)
        return await whole(tx, space, root, revision, **options)

    async def last_change(*arguments: Any) -> int:
        asked.extend(arguments[3:])
        return await changed(*arguments)

    monkeypatch.setattr(memories, "listing", listed)
    monkeypatch.setattr(memories, "last_change", last_change)
    for depth in (1, 3):
        await tree.listing(depth=depth, as_of=at_revision(2))
    await tree.read(f"{ROOT}/.overview.md", as_of=at_revision(2))
    assert asked and set(asked) == {LATEST}


async def test_neither_a_summary_nor_the_past_asks_for_the_newest_change(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("a", "b"):
        await tree.write(put("preferences", topic=topic, content="x"))

    async def never(*arguments: Any) -> int:
        raise AssertionError("it reads everything below")

    monkeypatch.setattr(memories, "last_change", never)
    assert "memories/: 2 memories: " in await tree.read(f"{ROOT}/.overview.md")
    past = {one.name: one for one in (await tree.listing(depth=1, as_of=at_revision(1))).entries}
    assert past["memories"].abstract and not past["memories"].HasField("update_time")


async def test_sessions_that_are_passed_by_are_steps(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(23):
        await talk(tree.database, ANN, f"s{number:02}", "a needle")
    monkeypatch.setattr(listing, "SLICE", 5)
    monkeypatch.setattr(grep, "SLICE_STEPS", 5)
    monkeypatch.setattr(grep, "MAX_STEPS", 10)
    slices = 0
    read = tree.database.read

    async def counted(*arguments: Any) -> Any:
        nonlocal slices
        slices += 1
        return await read(*arguments)

    monkeypatch.setattr(tree.database, "read", counted)
    assert not (await tree.glob("sessions/zzz*")).entries
    assert slices >= 5
    pages = [page async for page in tree.pages("needle", glob="sessions/zzz*/*")]
    assert len(pages) >= 3 and not any(page.matches for page in pages)
    (found,) = [one async for page in tree.pages("needle", glob="sessions/s22/*") for one in page.matches]
    assert found.uri == f"{ROOT}/sessions/s22/messages.jsonl"


async def test_time_wears_a_call_out_and_every_call_gets_on(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "MAX_SECONDS", 1e-9)
    monkeypatch.setattr("runekeep_server.memories.tree.lines.PIECE", 20)
    for topic in "abc":
        await tree.write(put("preferences", topic=topic, content="a needle in hay\n" * 6))
    await talk(tree.database, ANN, "s", *["a needle"] * 3)
    pages = [page async for page in tree.pages("needle", show_hidden=False)]
    found = [(one.uri.rpartition("/")[2], one.line) for page in pages for one in page.matches]
    expected = [(f"{topic}.md", line) for topic in "abc" for line in range(6)]
    assert found == expected + [("messages.jsonl", line) for line in range(3)]
    assert len(pages) >= len(found)


async def test_expressions_are_compiled_and_looked_for_in_threads_of_their_own(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tree.write(put("preferences", topic="a", content="a needle"))
    threads: list[str] = []
    made, looked = grep.pattern_of, grep.search

    def pattern_of(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return made(*arguments, **options)

    def search(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return looked(*arguments, **options)

    monkeypatch.setattr(grep, "pattern_of", pattern_of)
    monkeypatch.setattr(grep, "search", search)
    assert await tree.grep("needle", regex=True)
    assert len(threads) >= 2 and all(name.startswith("grep") for name in threads)
    assert len(set(threads)) <= 2


async def test_a_search_that_nobody_waits_for_ends(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in "abc":
        await tree.write(put("preferences", topic=topic, content="a needle"))
    begun, go_on, ended = asyncio.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    looked, read, timed = grep.text_of, [], grep._Pages._look_through

    def text_of(source: Any, *others: Any) -> str:
        read.append(source)
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        return looked(source, *others)

    def look_through(*arguments: Any) -> Any:
        try:
            return timed(*arguments)
        finally:
            loop.call_soon_threadsafe(ended.set)

    monkeypatch.setattr(grep, "text_of", text_of)
    monkeypatch.setattr(grep._Pages, "_look_through", look_through)
    task = asyncio.create_task(tree.grep("needle", uri=f"{ROOT}/memories", show_hidden=False))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await ended.wait()
    assert len(read) == 1


async def test_an_expression_that_is_too_large_is_refused(tree: Tree) -> None:
    with pytest.raises(ApiError) as refused:
        await tree.grep("a{0,1000}" * 40 + "b", regex=True)
    assert refused.value.code.name == "INVALID_ARGUMENT"
    assert "repeat less" in str(refused.value.field_violations[0].description)


async def test_parts_of_a_session_tell_when_they_were_changed(tree: Tree, clock: Clock) -> None:
    times = []
    for number in range(2):
        await talk(tree.database, ANN, "s", f"word {number}")
        clock.advance(10)
        times.append(clock.now)
        await commit(tree.database, ANN, "s", f"task-{number}")
        if number == 0:
            job = await claim(tree.database)
            clock.advance(10)
            times[0] = clock.now
            await tree.database.write(apply.apply, ANN, prepared(job.lease, [], "out"))
    listed: dict[str, pb.DirectoryEntry] = {one.name: one for one in (await tree.listing(f"{ROOT}/sessions/s")).entries}
    assert listed["archive_001"].update_time.ToMicroseconds() == times[0]
    assert listed["archive_002"].update_time.ToMicroseconds() == times[1]
    assert listed["history"].update_time.ToMicroseconds() == times[1]
