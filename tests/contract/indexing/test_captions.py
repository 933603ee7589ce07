"""A description of an image reaches the passage of the very message that showed it, whatever the relay did so far."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from runekeep_storage.database import Row, Tx
from runekeep_storage.indexing import captions, passages
from runekeep_storage.memories.apply import Applied, apply
from runekeep_storage.records import Message
from runekeep_storage.sessions import image_descriptions, sessions
from runekeep_storage.sessions.image_descriptions import Described
from tests.doubles.word_embedder import vector
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, BOB, claim, commit, prepared, text
from tests.support.storage.idle_commits import erase
from tests.support.storage.search import Search, said

pytestmark = pytest.mark.postgres_long

URL = "https://pictures.example/sky.png"
CAPTION = "A zeppelin over the lake."
SHOWN: dict[str, Any] = {"type": "image", "url": URL, "detail": "auto", "caption": ""}


async def archived(search: Search) -> list[Message]:
    """A conversation of four messages, two of which show the image, one without a word; it is archived by `t1`."""
    talked = [
        replace(text("m1", "what I saw"), parts=({"type": "text", "text": "what I saw"}, SHOWN)),
        text("m2", "a lovely one"),
        replace(text("m3", ""), parts=(SHOWN,)),
        text("m4", "twice"),
    ]
    await search.database.write(sessions.create, ANN, "s")
    stored = (await search.database.write(add_messages, ANN, "s", talked, {})).messages
    await commit(search.database, ANN, "s", "t1")
    return [message for message in stored if SHOWN in message.parts]


async def describe(search: Search, shown: list[Message]) -> Applied:
    """Applies the commit with the description, as the server prepares it."""
    captioned = [image_descriptions.with_captions(message, {URL: CAPTION}) for message in shown]
    output = prepared((await claim(search.database)).lease)
    described = replace(output, described=[Described(URL, CAPTION)], captioned=captions.passages_of(captioned))
    return await search.database.write(apply, ANN, described)


async def rows(search: Search) -> list[Row]:
    async def work(tx: Tx) -> list[Row]:
        return await tx.fetch(
            "SELECT sequence, content, dense FROM passages WHERE account = $1 AND user_id = $2 ORDER BY sequence",
            ANN.account,
            ANN.user,
        )

    return await search.database.read_global(work)


def spoken(row: Row) -> tuple[int, str]:
    return row["sequence"], row["content"].partition("): ")[2]


EVERYTHING = [
    (1, f"what I saw [photo: {CAPTION}]"),
    (2, "a lovely one"),
    (3, f"[photo: {CAPTION}]"),
    (4, "twice"),
]


async def test_passages_that_were_made_before_say_it_and_get_new_vectors(search: Search) -> None:
    shown = await archived(search)
    search.relay.start()
    await search.caught_up(ANN)
    assert [spoken(row) for row in await rows(search)] == [(1, "what I saw"), (2, "a lovely one"), (4, "twice")]
    assert said(await search.find(ANN, "zeppelin")) != EVERYTHING

    search.embedder.down = True
    applied = await describe(search, shown)
    search.relay.wake()
    await search.until(lambda: is_indexed(search, applied.revision))
    found = said(await search.find(ANN, "zeppelin"))
    assert [one.partition("): ")[2] for one in found[:2]] in ([EVERYTHING[0][1], EVERYTHING[2][1]],
                                                             [EVERYTHING[2][1], EVERYTHING[0][1]])  # fmt: skip
    search.embedder.down = False
    search.relay.wake()
    await search.until(lambda: has_vectors(search))
    assert [spoken(row) for row in await rows(search)] == EVERYTHING
    head = (await rows(search))[1]["content"].partition("): ")[0]
    lead = f"{head}): {EVERYTHING[0][1]} a lovely one"
    assert (await rows(search))[1]["dense"] == vector(lead), "the vector of the next message is of this one too"
    assert said(await search.find(BOB, "zeppelin")) == []


async def is_indexed(search: Search, revision: int) -> bool:
    return (await search.standing(ANN)).indexed >= revision


async def has_vectors(search: Search) -> bool:
    return all(row["dense"] is not None for row in await rows(search))


async def test_passages_that_are_being_made_are_made_once_more(search: Search) -> None:
    """The relay has read the messages, and its vectors are on their way."""
    shown = await archived(search)
    search.embedder.go.clear()
    search.relay.start()
    async with asyncio.timeout(20):
        await search.embedder.working.wait()
    await describe(search, shown)
    assert await rows(search) == []
    search.embedder.go.set()
    await search.caught_up(ANN)
    assert [spoken(row) for row in await rows(search)] == EVERYTHING


async def test_images_of_an_earlier_slice_without_words_are_made_too(search: Search) -> None:
    """The relay has read them before their description arrives, and nothing that is stored shows it."""
    other = {**SHOWN, "url": "https://pictures.example/other.png"}
    talked = [replace(text("m1", ""), parts=(SHOWN,))]
    talked += [replace(text(f"m{number}", ""), parts=(other,)) for number in range(2, passages.SLICE + 1)]
    talked.append(text("last", "a lovely one"))
    await search.database.write(sessions.create, ANN, "s")
    stored = (await search.database.write(add_messages, ANN, "s", talked, {})).messages
    await commit(search.database, ANN, "s", "t1")
    search.embedder.go.clear()
    search.relay.start()
    async with asyncio.timeout(20):
        await search.embedder.working.wait()
    await describe(search, stored[:1])
    assert await rows(search) == []
    search.embedder.go.set()
    await search.caught_up(ANN)
    assert [spoken(row) for row in await rows(search)] == [
        (1, f"[photo: {CAPTION}]"),
        (passages.SLICE + 1, "a lovely one"),
    ]


async def test_a_page_of_messages_counts_the_captions_that_it_adds(search: Search) -> None:
    shown = await archived(search)
    await describe(search, shown)

    async def page(most_bytes: int) -> tuple[list[int], bool, bool]:
        read = image_descriptions.messages_page
        found, more, added = await search.database.read(read, ANN, "s", 1, 4, 10, most_bytes)
        assert all(CAPTION in str(one.parts) for one in found if one.sequence in (1, 3))
        return [one.sequence for one in found], more, added

    assert await page(100_000) == ([1, 2, 3, 4], False, True)
    stored = sum(len(json.dumps(one.parts)) for one in shown)
    long = CAPTION * stored

    async def lengthen(tx: Tx) -> None:
        await image_descriptions.keep(tx, ANN, "s", [Described(URL, long)])

    await search.database.write_global(lengthen)
    assert await page(len(long) + 10) == ([1, 2], True, True)
    found, more, added = await search.database.read(image_descriptions.messages_page, ANN, "s", 2, 2, 10, 100)
    assert len(found) == 1 and not more and not added


async def test_no_passage_comes_back_of_a_message_that_was_erased_meanwhile(search: Search) -> None:
    shown = await archived(search)
    search.relay.start()
    await search.caught_up(ANN)
    captioned = [image_descriptions.with_captions(message, {URL: CAPTION}) for message in shown]
    await erase(search.database, "s", 3)

    async def work(tx: Tx) -> None:
        await captions.rewrite(tx, ANN, "s", 1, "t1", 0, captions.passages_of(captioned))

    await search.database.write_global(work)
    assert [number for number, _ in map(spoken, await rows(search))] == [1, 2, 4]
