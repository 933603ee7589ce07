"""Recall ranks the lines of memories by their meaning once they have vectors, and answers without them."""

import asyncio
from collections.abc import Callable

import grpc

from tests.doubles.embeddings_api import DIMENSION, EmbeddingsApi, answer, failure
from tests.integration.indexing.test_remote_embedder import settings
from tests.support.callers import Caller
from tests.support.changes import put, written
from tests.support.recalls import recall
from tests.support.server_process import ServerProcess

BICYCLE, HOME, REST = ([float(number == place) for number in range(DIMENSION)] for place in range(3))


def meaning(text: str) -> list[float]:
    """A model that knows what a bicycle and a two-wheeler have in common."""
    if "bicycle" in text or "two-wheeler" in text:
        return BICYCLE
    return HOME if "lives" in text else REST


def things(owner: str, place: str) -> str:
    lines = [f"Shelf {number} holds {number + 3} books" for number in range(30)]
    lines[17] = f"The old two-wheeler of {owner} stands in {place}"
    return "\n".join(lines)


async def is_first(caller: Caller, line: str) -> None:
    """Waits until the line is the one that fits."""
    async with asyncio.timeout(60):
        while True:
            if (await first_line(caller)).endswith(line):
                return
            await asyncio.sleep(0.05)


async def first_line(caller: Caller) -> str:
    found = await recall(caller, "Is there a bicycle at home?", kinds=[1], token_budget=22)
    return found.entries[0].text.splitlines()[-1] if found.entries else ""


async def test_a_line_that_shares_no_word_with_the_question_comes_first(
    own_server: Callable[..., ServerProcess],
) -> None:
    with EmbeddingsApi() as api:
        api.otherwise = failure(503)
        server = await asyncio.to_thread(own_server, settings(api))
        async with grpc.aio.insecure_channel(server.address) as channel:
            ann, bob = Caller(channel, "ann"), Caller(channel, "bob")
            for caller, place in ((ann, "the cellar"), (bob, "the garden")):
                content = things(caller.user, place)
                memory = put("preferences", topic="Home", content=content, abstract="What is at home.")
                await written(caller, memory, put("preferences", topic="Cat", content="Likes cats."))
                # The embedder is away: by words no line is better than the abstract.
                await is_first(caller, "What is at home.")
            api.otherwise = answer(vector_of=meaning)
            for caller, place in ((ann, "the cellar"), (bob, "the garden")):
                await is_first(caller, f"The old two-wheeler of {caller.user} stands in {place}")
            api.otherwise = failure(503)
            assert (await recall(ann, "What is at home?", kinds=[1])).entries
        await asyncio.to_thread(server.stop)
