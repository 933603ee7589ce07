"""What images show: kept with the session whose extraction found it out, for every session of the user."""

from typing import Any

import pytest

from runekeep_storage.database import Database, Space
from runekeep_storage.erasure.deletion import delete_session, delete_user
from runekeep_storage.indexing import passages
from runekeep_storage.memories import apply
from runekeep_storage.memories.apply import PreparedCommit
from runekeep_storage.records import Message
from runekeep_storage.sessions import image_descriptions
from runekeep_storage.sessions.image_descriptions import Described
from tests.support.storage.databases import ANN, BOB, CAT, Clock, claim, prepared, queue, talk

pytestmark = pytest.mark.postgres_long

CAT_URL, DOG_URL = "https://pictures.example/cat.png", "data:image/png;base64," + "iVBORw0KGgo" * 1000


def image(url: str, caption: str = "") -> dict[str, Any]:
    return {"type": "image", "url": url, "detail": "auto", "caption": caption}


def shown(*parts: dict[str, Any]) -> Message:
    return Message("m", "user", parts, created_at=1, sequence=1)


async def describe(database: Database, space: Space, session_id: str, url: str, words: str) -> None:
    await talk(database, space, session_id, "look")
    await database.write(image_descriptions.keep, space, session_id, [Described(url, words)])


async def captions(database: Database, space: Space, *parts: dict[str, Any]) -> list[str]:
    (message,) = await database.read(image_descriptions.captioned, space, [shown(*parts)])
    return [part.get("caption", "-") for part in message.parts]


async def test_a_description_is_the_caption_of_the_same_image_of_that_user_alone(database: Database) -> None:
    await describe(database, ANN, "s", CAT_URL, "A cat on a stove.")
    words = {"type": "text", "text": "see"}
    assert await captions(database, ANN, words, image(CAT_URL), image(DOG_URL)) == ["-", "A cat on a stove.", ""]
    for stranger in (BOB, CAT, Space("other", "ann")):
        assert await captions(database, stranger, image(CAT_URL)) == [""]


async def test_a_caption_that_a_message_brings_stays(database: Database) -> None:
    await describe(database, ANN, "s", CAT_URL, "A cat on a stove.")
    assert await captions(database, ANN, image(CAT_URL, "Minka"), image(CAT_URL)) == ["Minka", "A cat on a stove."]


async def test_the_newest_description_holds_and_goes_with_its_session(database: Database, clock: Clock) -> None:
    await describe(database, ANN, "b", CAT_URL, "A cat.")
    clock.advance(1)
    await describe(database, ANN, "a", CAT_URL, "A cat on a stove.")
    assert await captions(database, ANN, image(CAT_URL)) == ["A cat on a stove."]
    clock.advance(1)
    await describe(database, ANN, "b", CAT_URL, "A grey cat.")
    assert await captions(database, ANN, image(CAT_URL)) == ["A grey cat."]
    await database.write(delete_session, ANN, "b", "")
    assert await captions(database, ANN, image(CAT_URL)) == ["A cat on a stove."]
    await database.write(delete_session, ANN, "a", "")
    assert await captions(database, ANN, image(CAT_URL)) == [""]


async def test_descriptions_go_with_their_user(database: Database) -> None:
    for space in (ANN, BOB):
        await describe(database, space, "s", DOG_URL, "A dog.")
    await database.write(delete_user, ANN, "")
    assert await captions(database, ANN, image(DOG_URL)) == [""]
    assert await captions(database, BOB, image(DOG_URL)) == ["A dog."]


async def test_many_images_of_one_page_are_looked_up(database: Database) -> None:
    urls = [f"https://pictures.example/{number}.png" for number in range(40)]
    await talk(database, ANN, "s", "look")
    some = [Described(url, f"Picture {url}") for url in urls[::2]]
    await database.write(image_descriptions.keep, ANN, "s", some)
    expected = [f"Picture {url}" if number % 2 == 0 else "" for number, url in enumerate(urls)]
    assert await captions(database, ANN, *map(image, urls)) == expected


async def test_they_are_kept_by_the_transaction_that_applies_the_output(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    output = prepared(job.lease)
    names = {name: getattr(output, name) for name in PreparedCommit.__dataclass_fields__}
    described = PreparedCommit(**{**names, "described": [Described(CAT_URL, "A cat.")]})
    assert await captions(database, ANN, image(CAT_URL)) == [""]
    await database.write(apply.apply, ANN, described)
    assert await captions(database, ANN, image(CAT_URL)) == ["A cat."]
    await database.write(delete_session, ANN, "s-t1", "")
    assert await captions(database, ANN, image(CAT_URL)) == [""]


async def test_a_passage_made_later_says_what_the_image_shows(database: Database) -> None:
    await describe(database, ANN, "s", CAT_URL, "A cat on a stove.")
    (message,) = await database.read(image_descriptions.captioned, ANN, [shown(image(CAT_URL))])
    assert passages.text_of(message).endswith("[photo: A cat on a stove.]")
