"""The vector of a message is of the end of the one before it too: with that one erased, no such vector stays, however
erasing, indexing and the making of vectors come to be interleaved."""

import pytest

from runekeep_storage.database import Tx
from runekeep_storage.embedders.vectors import cosine
from runekeep_storage.erasure import messages as erased_messages
from runekeep_storage.erasure import receipts
from runekeep_storage.indexing import rows, stale_points
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.stale_points import again
from runekeep_storage.jobs import jobs
from runekeep_storage.relay import missing_vectors
from runekeep_storage.sessions import sessions
from tests.doubles.word_embedder import WordEmbedder, vector
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, commit, text
from tests.support.storage.search import Search, nothing_waits

pytestmark = pytest.mark.postgres_long

SECRET = "leukemia diagnosis"
REPLY = "so sorry about it"


async def talk(search: Search, *, apart: bool = False) -> None:
    """`apart`: the reply is of a commit of its own."""
    await search.database.write(sessions.create, ANN, "s")
    said = [text("m1", f"my {SECRET}"), text("m2", REPLY), text("m3", "what now")]
    for number, messages in enumerate([said[:1], said[1:]] if apart else [said]):
        await search.database.write(add_messages, ANN, "s", messages, {})
        await commit(search.database, ANN, "s", f"t{number}")
        await search.database.write(jobs.cancel, ANN, f"t{number}", "")


async def erase(search: Search) -> None:
    async def work(tx: Tx) -> None:
        named = await erased_messages.named(tx, ANN, "s", ["m1"], 10)
        await erased_messages.erase(tx, ANN, named, receipts.Remains())

    await search.database.write_global(work)


async def vectors(search: Search) -> dict[int, bytes | None]:
    async def read(tx: Tx) -> dict[int, bytes | None]:
        found = await tx.fetch(
            "SELECT sequence, dense FROM passages WHERE account = $1 AND user_id = $2", ANN.account, ANN.user
        )
        return {row["sequence"]: row["dense"] for row in found}

    return await search.database.read_global(read)


async def clean(search: Search) -> bytes:
    """The vector of the reply, of nothing but itself."""
    missing = await search.database.read(rows.passage_points, ANN, [("s", 2)], Models(""))
    assert len(missing) == 1
    found = await search.find(ANN, REPLY)
    (content,) = (one.item.content for one in found.results if REPLY in one.item.content)
    return vector(content)


async def near(search: Search) -> dict[int | None, float | None]:
    """How near each point of the index is to what was erased, by its message."""
    found = await search.find(ANN, SECRET)
    return {one.ranked.hit.sequence: one.ranked.dense_score for one in found.results}


@pytest.mark.parametrize("apart", [False, True], ids=["in one commit", "in two"])
async def test_the_index_loses_it_without_an_embedder_and_gets_another(search: Search, apart: bool) -> None:
    await talk(search, apart=apart)
    search.relay.start()
    await search.caught_up(ANN)
    before = await vectors(search)
    search.embedder.down = True

    await erase(search)

    assert await vectors(search) == {2: None, 3: before[3]}, "at once, and only of what it led"
    await search.until(lambda: nothing_waits(search))
    search.embedder.down = False
    # So that nobody makes a vector before the index was looked at.
    await search.relay.stop()
    assert (await near(search)).get(2) is None, "the index has no vector of it either"

    search.relay.start()

    async def made() -> bool:
        return None not in (await vectors(search)).values() and await nothing_waits(search)

    await search.until(made)
    new = (await vectors(search))[2]
    assert new is not None and new == await clean(search) != before[2]
    assert (await near(search))[2] == pytest.approx(cosine(new, vector(SECRET)), abs=1e-5)


async def test_a_relay_that_read_the_message_before_leaves_no_vector_of_it(search: Search) -> None:
    search.embedder.go.clear()
    await talk(search)
    search.relay.start()
    await search.embedder.working.wait()

    await erase(search)

    # It gives what it was asked for, and nothing after that.
    search.embedder.down = True
    search.embedder.go.set()
    await search.caught_up(ANN)
    await search.until(lambda: nothing_waits(search))
    await search.relay.stop()
    search.embedder.down = False
    assert (await near(search)).get(2) is None
    search.relay.start()

    async def made() -> bool:
        found = await vectors(search)
        return 2 in found and None not in found.values() and await nothing_waits(search)

    await search.until(made)
    assert (await vectors(search))[2] == await clean(search)
    assert (await near(search))[2] == pytest.approx(cosine(await clean(search), vector(SECRET)), abs=1e-5)


async def test_a_vector_that_was_being_made_with_it_is_not_kept(search: Search) -> None:
    search.embedder.down = True
    await talk(search)
    search.relay.start()
    await search.caught_up(ANN)
    await search.relay.stop()
    missing = await search.database.read(missing_vectors.missing, ANN, search.registry, 10)
    assert [SECRET in one.text for one in missing] == [True, True, False]
    late = [(one, vector(one.text)) for one in missing]

    await erase(search)
    await search.database.write(missing_vectors.fill, ANN, late, WordEmbedder.model)

    found = await vectors(search)
    assert (found[2], found[3]) == (None, late[2][1])


async def test_a_point_that_was_sent_with_it_is_sent_once_more(search: Search) -> None:
    """By a relay that had read the row before, and wrote it after another had sent it without."""
    await talk(search)
    search.relay.start()
    await search.caught_up(ANN)
    await search.relay.stop()
    (stale,) = await search.database.read(rows.passage_points, ANN, [("s", 2)], Models(WordEmbedder.model))

    await erase(search)

    async def look(tx: Tx) -> list[stale_points.Entry]:
        return await stale_points.find_stale(tx, ANN, [stale], Models(WordEmbedder.model), superseded=False)

    assert await search.database.read_global(look) == [again(stale)]
