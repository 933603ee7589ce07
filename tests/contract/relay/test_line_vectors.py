"""The vectors of the lines of memories: made after a memory is written, by the embedder that its space is searched by,
and gone with the version."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest

from runekeep_schemas.recall_lines import MAX_LINES_WITH_VECTORS, embedded_line
from runekeep_storage.database import Space
from runekeep_storage.embedders import EmbedderUnavailable
from runekeep_storage.endpoints import outage
from runekeep_storage.erasure.deletion import delete_user
from runekeep_storage.indexing import embedder_change
from runekeep_storage.indexing.embedder_change import ChangeState
from runekeep_storage.memories import memories
from runekeep_storage.memories.memories import LATEST
from runekeep_storage.records import Memory
from runekeep_storage.relay.relay import EMBEDDER
from runekeep_storage.search import line_cosines
from runekeep_storage.search.line_cosines import LineCosines
from runekeep_storage.spaces import space_locks
from tests.contract.relay.test_embedder_change import (
    TARGET,
    change,
    remember,
    running,
    searched_by,
    start,
    turned,
)
from tests.contract.relay.test_endpoints_of_accounts import Endpoints
from tests.doubles.word_embedder import WordEmbedder, vector
from tests.support.storage.databases import ANN, BOB, CAT, Clock, revise, uri
from tests.support.storage.deletions import dump
from tests.support.storage.search import Search, write

HOUSE = "The cat sleeps.\nGreen tea is in the drawer.\nRent is due."


async def model_of(search: Search, space: Space, name: str = "house", version: int = 1) -> str:
    """The model of the vectors of the lines of a version; empty for none."""
    key = (uri(space, name), version)
    row = (await search.database.read(memories.line_vectors, space, [key], LATEST)).get(key)
    return "" if row is None or row["line_vectors"] is None else str(row["line_vectors_model"])


async def until_made(search: Search, *spaces: Space, model: str = WordEmbedder.model, version: int = 1) -> None:
    async def holds() -> bool:
        return all([await model_of(search, space, version=version) == model for space in spaces])

    await search.until(holds)


async def cosines(search: Search, space: Space, words: str) -> LineCosines:
    found = await line_cosines.of_answer(search.database, space, await search.find(space, words))
    assert found is not None
    return found


async def test_each_line_has_a_vector_of_its_own_and_the_subject(search: Search) -> None:
    for space in (ANN, BOB, CAT):
        await remember(search, space, "house", HOUSE if space == ANN else "Nothing of the kind.")
    search.relay.start()
    await until_made(search, ANN, BOB, CAT)
    await search.caught_up(ANN)

    text = embedded_line("house", "Green tea is in the drawer.")
    answer = await search.find(ANN, text)
    found = await cosines(search, ANN, text)
    memory = answer.results[0].item
    assert isinstance(memory, Memory)
    near = found.of(memory, [embedded_line("house", line) for line in HOUSE.splitlines()], -1.0)
    assert near[1] == pytest.approx(1.0, abs=0.002) and max(near[0], near[2]) < 0.99
    assert found.of(memory, ["a line of another release"], -0.5) == [-0.5]
    assert found.packed.keys() == {(uri(ANN, "house"), 1)}, "nobody else's"


async def test_lines_with_vectors_are_bounded_and_a_memory_without_lines_is_done(search: Search) -> None:
    many = "\n".join(f"Fact number {number}" for number in range(200))
    await revise(search.database, ANN, "a", write(ANN, "house", 0, 1, many), write(ANN, "...", 0, 1, ""))
    search.relay.start()
    await until_made(search, ANN)
    made = [text for text in search.embedder.texts if text.startswith("house: ")]
    assert len(made) == MAX_LINES_WITH_VECTORS and made[0] == "house: about house"


async def test_what_replaces_a_version_drops_its_vectors(search: Search) -> None:
    await remember(search, ANN, "house", HOUSE)
    search.relay.start()
    await until_made(search, ANN)
    await revise(search.database, ANN, "b", write(ANN, "house", 1, 2, "All is different."))
    await until_made(search, ANN, version=2)
    rows = {row["version"]: row["line_vectors"] for row in (await dump(search.database, ANN))["memories"]}
    assert rows[1] is None and rows[2]

    await revise(search.database, ANN, "c", write(ANN, "house", 2, 3, "", deleted=True))
    assert not any(row["line_vectors"] for row in (await dump(search.database, ANN))["memories"])
    await remember(search, BOB, "house", HOUSE)
    await until_made(search, BOB)
    await search.database.write(delete_user, BOB, "over")
    assert "memories" not in await dump(search.database, BOB)


async def test_an_embedder_that_is_away_for_one_account_makes_no_other_wait(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoints = Endpoints(search.embedder, monkeypatch)
    endpoints.away.add(CAT.account)
    for space in (CAT, ANN):
        await remember(search, space, "house", HOUSE)
    search.relay.start()
    await until_made(search, ANN)
    assert await model_of(search, CAT) == ""
    endpoints.away.clear()
    await until_made(search, CAT)


async def test_a_memory_whose_lines_get_no_vectors_holds_up_no_other(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 0.01)
    embed = search.embedder.embed

    async def refuse_some(texts: Sequence[str], **options: Any) -> list[bytes]:
        if any(text.startswith("bad: ") for text in texts):
            raise EmbedderUnavailable("a line that the model does not take")
        return await embed(texts, **options)

    monkeypatch.setattr(search.embedder, "embed", refuse_some)
    names = ["another", "bad", "cold", "drawer"]
    await revise(search.database, ANN, "a", *(write(ANN, name, 0, 1, "First.\nSecond.") for name in names))
    search.relay.start()

    async def others_are_made() -> bool:
        return all([await model_of(search, ANN, name) for name in names if name != "bad"])

    await search.until(others_are_made)
    assert await model_of(search, ANN, "bad") == ""
    monkeypatch.setattr(search.embedder, "embed", embed)

    async def all_are_made() -> bool:
        return bool(await model_of(search, ANN, "bad"))

    await search.until(all_are_made)


async def test_calls_for_lines_pause_for_as_long_as_they_took(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    embed, began = search.embedder.embed, list[tuple[float, float]]()

    async def take_a_while(texts: Sequence[str], **options: Any) -> list[bytes]:
        start = monotonic()
        if texts[0].startswith("n"):
            await asyncio.sleep(0.1)
            began.append((start, monotonic()))
        return await embed(texts, **options)

    monkeypatch.setattr(search.embedder, "embed", take_a_while)
    await revise(
        search.database,
        ANN,
        "a",
        *(write(ANN, f"n{number}", 0, 1, "\n".join("abcdefghij")) for number in range(4)),
    )
    search.relay.start()

    async def are_made() -> bool:
        return all([await model_of(search, ANN, f"n{number}") for number in range(4)])

    await search.until(are_made)
    assert all(start - end >= 0.1 for (_, end), (start, _) in pairwise(began)) and len(began) == 4


async def test_nothing_is_sent_of_a_space_that_is_locked(search: Search) -> None:
    for space in (ANN, BOB):
        await remember(search, space, "house", HOUSE)
    await search.database.write(space_locks.lock, ANN, "erasure")
    search.relay.start()
    await until_made(search, BOB)
    assert await model_of(search, ANN) == ""
    await search.database.write(space_locks.unlock, ANN)
    await until_made(search, ANN)


async def test_a_change_of_the_embedder_makes_them_anew(search: Search, clock: Clock) -> None:
    await remember(search, ANN, "house", HOUSE)
    async with running(search) as one:
        await until_made(search, ANN)
        await start(search)
        await searched_by(search, TARGET.model, ANN)

        # Those of the old embedder are not compared with a query of the new one.
        answer = await one.find(ANN, "green tea")
        assert answer.model == TARGET.model and answer.results
        assert await line_cosines.of_answer(search.database, ANN, answer) is None
        coffee = {"dense": turned(vector("coffee")), "dense_model": TARGET.model}
        await revise(search.database, ANN, "c", write(ANN, "coffee", 0, 1, "coffee", **coffee))

        async def has_new() -> bool:
            return await model_of(search, ANN, "coffee") == TARGET.model

        await search.until(has_new)
        await search.database.write_global(embedder_change.finish)

        async def is_finished() -> bool:
            clock.advance(1)
            one.relay.wake(EMBEDDER)
            return (await change(search)).state is ChangeState.FINISHED

        await search.until(is_finished)
        await until_made(search, ANN, model=TARGET.model)
        assert await has_new()
