"""A change of the embedder, of servers that share a store and an index: two vectors for each row, space by space."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.embedders import Embedder
from runekeep_storage.embedders.vectors import from_bytes, to_bytes
from runekeep_storage.index.base import SPARSE_ONLY, VectorSpace
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.indexing import embedder_change
from runekeep_storage.indexing.attachment import Attachment
from runekeep_storage.indexing.embedder_change import Change, ChangeRefused, ChangeState
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.relay import missing_vectors, reembedding
from runekeep_storage.relay.missing_vectors import known_types
from runekeep_storage.relay.rebuild import write_all
from runekeep_storage.relay.reembedding import Reembedder
from runekeep_storage.relay.relay import EMBEDDER, MEMORIES, Relay
from runekeep_storage.search.ranking import Ranking
from runekeep_storage.search.searcher import FindAnswer, FindRequest, Searcher
from tests.doubles.word_embedder import DIMENSION, WordEmbedder, vector
from tests.support.storage.databases import ANN, BOB, CAT, Clock, revise
from tests.support.storage.search import CHECK_SECONDS, POLL, VECTORS, Search, wordless, write

pytestmark = pytest.mark.postgres_long

TARGET = VectorSpace("hashed-words-8-turned", DIMENSION)


THIRD = VectorSpace("hashed-words-8-shifted", DIMENSION)


class ShiftedEmbedder(WordEmbedder):
    """A third embedder of the same dimension."""

    model = THIRD.model

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, bulk: bool = False, space: Space | None = None
    ) -> list[bytes]:
        made = await super().embed(texts, query=query, bulk=bulk, space=space)
        return [to_bytes((*numbers[1:], numbers[0])) for numbers in map(from_bytes, made)]


class TurnedEmbedder(WordEmbedder):
    """Another embedder of the same dimension: its vectors point away from those of the first."""

    model = TARGET.model

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, bulk: bool = False, space: Space | None = None
    ) -> list[bytes]:
        made = await super().embed(texts, query=query, bulk=bulk, space=space)
        return [turned(one) for one in made]


def turned(vector: bytes) -> bytes:
    return to_bytes([-number for number in from_bytes(vector)])


@dataclass
class Server:
    """One of several servers on the store of `search`."""

    search: Search
    target: TurnedEmbedder
    attachment: Attachment
    embedders: SpaceEmbedders
    relay: Relay
    finder: Searcher
    reembedder: Reembedder

    async def find(self, space: Space, words: str) -> FindAnswer:
        return await self.finder.find(space, FindRequest(words))


def server(search: Search, own: WordEmbedder | None = None, *, words_only: bool = False) -> Server:
    """Returns a server whose settings name the embedder `own`, or `none`."""
    target = TurnedEmbedder()
    own = None if words_only else own or search.embedder
    third = ShiftedEmbedder()

    def find(name: str, model: str) -> Embedder | None:
        return {TARGET.model: target, THIRD.model: third, WordEmbedder.model: search.embedder}.get(model)

    database, registry = search.database, search.registry
    attachment = Attachment(database, search.index, VectorSpace(own.model, own.dimension) if own else SPARSE_ONLY)
    embedders = SpaceEmbedders(database, attachment, own, find)
    reembedder = Reembedder(database, attachment, embedders, registry)
    relay = Relay(
        database,
        attachment,
        embedders,
        registry,
        poll_seconds=POLL,
        check_seconds=CHECK_SECONDS,
        reembedder=reembedder,
    )
    finder = Searcher(database, attachment, embedders, Ranking(candidates=20), relay.hurry, known_types(registry))
    return Server(search, target, attachment, embedders, relay, finder, reembedder)


@asynccontextmanager
async def running(
    search: Search, own: WordEmbedder | None = None, *, words_only: bool = False
) -> AsyncIterator[Server]:
    made = server(search, own, words_only=words_only)
    await made.attachment.attach()
    made.relay.start()
    try:
        yield made
    finally:
        made.target.go.set()
        await made.relay.stop()


async def start(search: Search, rows_per_second: int = 0) -> Change:
    return await search.database.write_global(
        embedder_change.start, "words", VECTORS, "turned", TARGET, rows_per_second
    )


async def change(search: Search) -> Change:
    found = await search.database.read_global(embedder_change.current)
    assert found is not None
    return found


async def models(search: Search, *spaces: Space) -> list[str | None]:
    return [await search.database.read(embedder_change.find_searched_model, space) for space in spaces]


async def searched_by(search: Search, model: str, *spaces: Space) -> None:
    async def holds() -> bool:
        return set(await models(search, *spaces)) == {model}

    await search.until(holds)


async def complete(one: Server, space: Space, words: str) -> FindAnswer:
    """Waits until everything of the space is found by its meaning, and returns a search."""

    async def holds() -> bool:
        answer = await one.find(space, words)
        return answer.revision == answer.latest_revision and not answer.degraded

    await one.search.until(holds)
    return await one.find(space, words)


async def caught_up(one: Server, space: Space) -> None:
    """Waits until the index has everything of the space, be it without vectors."""

    async def holds() -> bool:
        answer = await one.find(space, "anything")
        return answer.revision == answer.latest_revision

    await one.search.until(holds)


def nearest(answer: FindAnswer) -> float:
    """The best cosine of an answer. Of the vectors of one embedder that of equal words is near 1; of those of two
    embedders it would be near -1."""
    return max(found.ranked.dense_score or -1.0 for found in answer.results)


async def vectors(search: Search, space: Space) -> set[tuple[str, str]]:
    """The models of the vectors in current memories."""

    async def work(tx: Tx, space: Space) -> set[tuple[str, str]]:
        rows = await tx.fetch(
            "SELECT dense, dense_model, dense_next, dense_next_model FROM memories WHERE account = $1 AND user_id = $2"
            " AND rev_to = 0 AND deleted = 0",
            space.account,
            space.user,
        )
        return {
            (row["dense_model"] if row["dense"] else "", row["dense_next_model"] if row["dense_next"] else "")
            for row in rows
        }

    return await search.database.read(work, space)


async def remember(search: Search, space: Space, name: str, content: str) -> None:
    await revise(search.database, space, f"{space.user}-{name}", write(space, name, 0, 1, content))


async def test_spaces_switch_one_by_one_and_what_is_written_meanwhile_gets_both_vectors(search: Search) -> None:
    for space in (ANN, BOB):
        await remember(search, space, "tea", "likes green tea")
    async with running(search) as one:
        await complete(one, ANN, "likes green tea")
        one.target.go.clear()
        await start(search)
        await one.target.working.wait()

        # The new embedder does not answer: searches and writes go on by the old embedder.
        assert await models(search, ANN, BOB) == [WordEmbedder.model] * 2
        await remember(search, ANN, "bread", "bakes rye bread")
        assert nearest(await complete(one, ANN, "bakes rye bread")) > 0.9
        assert (await change(search)).state is ChangeState.RUNNING
        with pytest.raises(ChangeRefused, match="users are still searched by words"):
            await search.database.write_global(embedder_change.finish)

        one.target.go.set()
        await searched_by(search, TARGET.model, ANN, BOB)
        for space, words in ((ANN, "likes green tea"), (ANN, "bakes rye bread"), (BOB, "likes green tea")):
            answer = await one.find(space, words)
            assert answer.model == TARGET.model and not answer.degraded
            assert nearest(answer) > 0.9, "the query and the points are of one embedder"
        assert await vectors(search, ANN) == {(WordEmbedder.model, TARGET.model)}

        # A write after the switch has the vector that searches use, and the other one follows.
        of_target = {"dense": turned(vector("brews black coffee")), "dense_model": TARGET.model}
        await revise(search.database, ANN, "c", write(ANN, "coffee", 0, 1, "brews black coffee", **of_target))
        assert nearest(await complete(one, ANN, "brews black coffee")) > 0.9

        async def both() -> bool:
            return await vectors(search, ANN) == {(WordEmbedder.model, TARGET.model)}

        await search.until(both)
        # A new user is searched by the new embedder at once, and does not hold up the end.
        await remember(search, CAT, "tea", "likes green tea")
        assert await models(search, CAT) == [TARGET.model]
        assert nearest(await complete(one, CAT, "likes green tea")) > 0.9
        await search.database.write_global(embedder_change.finish)


async def test_a_user_without_anything_stored_is_searched_by_the_new_embedder(search: Search) -> None:
    await remember(search, ANN, "tea", "likes green tea")
    async with running(search) as one:
        await start(search)
        await searched_by(search, TARGET.model, ANN)
        assert await models(search, CAT) == [TARGET.model]
        answer = await one.find(CAT, "likes green tea")
        assert (answer.model, answer.degraded, answer.results) == (TARGET.model, [], [])


async def test_a_store_without_an_embedder_gets_one(
    search: Search, tmp_path: Path, edge_class: type[EdgeIndex]
) -> None:
    plain = replace(search, index=edge_class(tmp_path / "plain"))
    await revise(search.database, ANN, "tea", wordless(write(ANN, "tea", 0, 1, "likes green tea")))
    async with running(plain, words_only=True) as one:
        await caught_up(one, ANN)
        assert (await one.find(ANN, "green tea")).pending_memories == 0, "none waits for a vector"
        one.target.go.clear()
        await search.database.write_global(embedder_change.start, "none", SPARSE_ONLY, "turned", TARGET, 0)
        await one.target.working.wait()
        answer = await one.find(ANN, "green tea")
        assert (answer.model, answer.degraded, answer.pending_memories) == ("", [], 0)
        one.target.go.set()
        await searched_by(search, TARGET.model, ANN)

        # Vectors of what is written now are missing for a while, although the settings still name no embedder.
        one.target.down = True
        await revise(search.database, ANN, "bread", wordless(write(ANN, "bread", 0, 1, "bakes rye bread")))
        await caught_up(one, ANN)
        answer = await one.find(ANN, "bakes rye bread")
        assert (answer.model, answer.pending_memories) == (TARGET.model, 1)
        one.target.down = False
        assert nearest(await complete(one, ANN, "bakes rye bread")) > 0.9
    await plain.index.close()


async def test_a_change_is_undone_at_once_and_finished_for_good(search: Search, clock: Clock) -> None:
    await remember(search, ANN, "tea", "likes green tea")
    async with running(search) as one:
        await start(search)
        await searched_by(search, TARGET.model, ANN)
        await search.database.write_global(embedder_change.undo)
        answer = await one.find(ANN, "likes green tea")
        assert (answer.model, answer.degraded) == (WordEmbedder.model, [])
        assert nearest(answer) > 0.9
        with pytest.raises(ChangeRefused, match="undoing"):
            await start(search)

        async def is_in(state: ChangeState) -> bool:
            # What is dropped stays for a while, for searches that began before.
            clock.advance(1)
            one.relay.wake(EMBEDDER)
            return (await change(search)).state is state

        await search.until(lambda: is_in(ChangeState.UNDONE))
        assert await vectors(search, ANN) == {(WordEmbedder.model, "")}

        await start(search)
        await searched_by(search, TARGET.model, ANN)
        await search.database.write_global(embedder_change.finish)
        with pytest.raises(ChangeRefused, match="dropped"):
            await search.database.write_global(embedder_change.undo)
        assert nearest(await complete(one, ANN, "likes green tea")) > 0.9
        await search.until(lambda: is_in(ChangeState.FINISHED))
        assert await vectors(search, ANN) == {(TARGET.model, "")}

        async def by_target() -> bool:
            found = await one.find(ANN, "likes green tea")
            return found.model == TARGET.model and nearest(found) > 0.9

        # Its settings still name the old embedder: it goes on with the new one.
        await search.until(by_target)
        await remember(search, ANN, "bread", "bakes rye bread")
        assert nearest(await complete(one, ANN, "bakes rye bread")) > 0.9


async def test_the_new_embedder_is_away_and_the_change_is_paused(search: Search) -> None:
    await remember(search, ANN, "tea", "likes green tea")
    async with running(search) as one:
        one.target.down = True
        await start(search)

        async def has_problem() -> bool:
            one.relay.wake(EMBEDDER)
            return (await change(search)).problem == "taken down by the test"

        await search.until(has_problem)
        assert nearest(await complete(one, ANN, "likes green tea")) > 0.9
        await search.database.write_global(embedder_change.pause)
        await remember(search, ANN, "bread", "bakes rye bread")
        one.target.down = False

        async def new_row_is_done() -> bool:
            one.relay.wake(EMBEDDER)
            return await vectors(search, ANN) == {(WordEmbedder.model, ""), (WordEmbedder.model, TARGET.model)}

        await search.until(new_row_is_done)
        assert await models(search, ANN) == [WordEmbedder.model]
        assert (await change(search)).state is ChangeState.PAUSED
        await search.database.write_global(embedder_change.resume)
        await searched_by(search, TARGET.model, ANN)

        async def counted() -> bool:
            one.relay.wake(EMBEDDER)
            now = await change(search)
            # Two memories and the two messages that they came from.
            return (now.total_rows, now.done_rows, now.problem) == (4, 4, "")

        await search.until(counted)


async def test_a_server_that_does_not_know_of_the_change_yet_does_no_harm(search: Search) -> None:
    """It writes a point with one vector after another server gave the row two: the point is sent again."""
    await remember(search, ANN, "tea", "likes green tea")
    late = server(search)
    await late.attachment.attach()
    async with running(search) as one:
        await start(search)
        await searched_by(search, TARGET.model, ANN)
        await one.relay.stop()
        await remember(search, ANN, "bread", "bakes rye bread")
        assert late.attachment.models.other == ""
        await late.relay._relay_memories(await late.attachment.id())
        # It has a vector of the old embedder for the query, and searches by words alone.
        answer = await late.find(ANN, "likes green tea")
        assert (answer.model, answer.degraded) == (WordEmbedder.model, ["dense"]) and answer.results
        one.relay.start()
        one.relay.wake(MEMORIES)
        assert nearest(await complete(one, ANN, "bakes rye bread")) > 0.9


async def test_one_server_makes_the_vectors_and_another_goes_on_when_it_is_gone(
    search: Search, database: Database, registry: Registry
) -> None:
    for number in range(40):
        await remember(search, ANN, f"m{number}", f"likes tea {number}")
    first = server(search)
    index_id = await first.attachment.attach()
    await start(search)
    await first.attachment.attach()
    second = server(search)
    await second.attachment.attach()
    while not first.target.texts:
        await first.reembedder.step(index_id)
    for _ in range(3):
        assert await second.reembedder.step(index_id) == (False, 0.0), "the other server holds the change"
    assert 0 < len(first.target.texts) < 40

    # It was killed: its lease ends.
    async def expire(tx: Tx) -> None:
        await tx.execute("UPDATE embedder_changes SET held_until = 0 WHERE slot = 0")

    await database.write_global(expire)
    async with running(search) as third:
        await searched_by(search, TARGET.model, ANN)
        assert not set(first.target.texts) & set(third.target.texts), "nothing is made twice"
        assert nearest(await complete(third, ANN, "likes tea 7")) > 0.9


async def test_rows_without_the_old_vector_keep_the_new_one_and_are_changed_again(search: Search, clock: Clock) -> None:
    await remember(search, ANN, "tea", "likes green tea")

    async def is_in(one: Server, state: ChangeState) -> bool:
        clock.advance(1)
        one.relay.wake()
        return (await change(search)).state is state

    async def have(space: Space, *models: tuple[str, str]) -> bool:
        return await vectors(search, space) == set(models)

    async with running(search) as one:
        await start(search)
        await searched_by(search, TARGET.model, ANN)
        search.embedder.down = True
        for name, text in (("coffee", "brews black coffee"), ("bread", "bakes rye bread")):
            of_target = {"dense": turned(vector(text)), "dense_model": TARGET.model}
            await revise(search.database, ANN, name, write(ANN, name, 0, 1, text, **of_target))
        assert await have(ANN, (WordEmbedder.model, TARGET.model), ("", TARGET.model))
        await search.database.write_global(embedder_change.finish)
        await search.until(lambda: is_in(one, ChangeState.FINISHED))
        assert await have(ANN, (TARGET.model, ""))
    search.embedder.down = False

    async with running(search, TurnedEmbedder()) as one:
        await search.database.write_global(embedder_change.start, "turned", TARGET, "shifted", THIRD, 0)
        await searched_by(search, THIRD.model, ANN)
        await search.database.write_global(embedder_change.finish)
        await search.until(lambda: is_in(one, ChangeState.FINISHED))
        assert await have(ANN, (THIRD.model, ""))
        for words in ("likes green tea", "brews black coffee", "bakes rye bread"):
            answer = await complete(one, ANN, words)
            assert answer.model == THIRD.model and nearest(answer) > 0.9


async def test_the_index_is_rebuilt_during_a_change(search: Search) -> None:
    await remember(search, ANN, "tea", "likes green tea")
    async with running(search):
        await start(search)
        await searched_by(search, TARGET.model, ANN)
    await search.database.write_global(embedder_change.forget)
    await search.index.clear()
    await write_all(search.database, server(search).attachment, lambda table, count: None)
    assert (await change(search)).state is ChangeState.RUNNING
    async with running(search) as one:
        answer = await complete(one, ANN, "likes green tea")
        assert answer.model == TARGET.model and nearest(answer) > 0.9


async def test_a_space_whose_rows_cannot_be_written_holds_up_no_other(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = missing_vectors.fill

    async def fill(tx: Tx, space: Space, *args: Any, **options: Any) -> None:
        if space == ANN:
            raise ValueError("refused by the test")
        await real(tx, space, *args, **options)

    for space in (ANN, BOB):
        await remember(search, space, "tea", "likes green tea")
    async with running(search) as one:
        await complete(one, BOB, "likes green tea")
        monkeypatch.setattr(missing_vectors, "fill", fill)
        await start(search)
        await searched_by(search, TARGET.model, BOB)
        assert await models(search, ANN) == [WordEmbedder.model]
        monkeypatch.setattr(missing_vectors, "fill", real)
        await searched_by(search, TARGET.model, ANN)


async def test_a_space_that_is_written_all_the_time_switches(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reembedding, "PATIENCE_SECONDS", 0.0)
    await remember(search, ANN, "tea", "likes green tea")
    one = server(search)
    index_id = await one.attachment.attach()
    async with running(search) as relaying:
        await complete(relaying, ANN, "likes green tea")
    await start(search)
    await one.attachment.attach()
    # No relay runs: the index always lacks the points of the last vectors.
    for number in range(20):
        await remember(search, ANN, f"m{number}", "bakes rye bread")
        await one.reembedder.step(index_id)
        if await models(search, ANN) == [TARGET.model]:
            break
    assert await models(search, ANN) == [TARGET.model]
    assert "likes green tea" in " ".join(one.target.texts), "old rows get their turn"
