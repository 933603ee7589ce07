"""A change of the datatype of the index: the server names the rebuild, and finds the same afterwards."""

import asyncio
from collections.abc import Callable

from tests.integration.indexing.test_remote_embedder import commit
from tests.integration.search.test_search_completeness import MINILM, channel_to, rebuild
from tests.support.callers import Caller
from tests.support.server_process import ServerProcess

TALKS = {
    "Tea": "I drink green tea in the morning",
    "Bread": "I bake rye bread on Sundays",
    "Trains": "I travel by night train to Lisbon",
    "Chess": "I play chess with my sister",
}
QUESTIONS = ("hot drinks for breakfast", "baking at the weekend", "going abroad by rail", "board games")


async def found(server: ServerProcess) -> list[list[str]]:
    """Returns the memories and messages that each question finds, best first, all of them by meaning too."""
    async with channel_to(server) as channel:
        caller = Caller(channel, "ann")
        answers = []
        for question in QUESTIONS:
            async with asyncio.timeout(60):
                while True:
                    answer = await caller.find(question, limit=20)
                    if not answer.degraded and not answer.pending_passages and len(answer.results) == 2 * len(TALKS):
                        break
                    await asyncio.sleep(0.05)
            assert all(one.detail.dense_rank for one in answer.results)
            answers.append([one.memory.uri or one.passage.message_id for one in answer.results])
        return answers


async def test_a_change_needs_a_rebuild_and_finds_the_same(own_server: Callable[..., ServerProcess]) -> None:
    server = await asyncio.to_thread(own_server, MINILM)
    async with channel_to(server) as channel:
        for topic, talk in TALKS.items():
            await commit(Caller(channel, "ann"), talk, topic)
    before = await found(server)
    for stored, datatype in (("float32", "int8"), ("int8", "float16")):
        await asyncio.to_thread(server.stop)
        wanted = {"RUNEKEEP_INDEX_DATATYPE": datatype}
        server._environment |= wanted
        refusal = await asyncio.to_thread(server.refused)
        assert "index_datatype (RUNEKEEP_INDEX_DATATYPE)" in refusal and "runekeep index rebuild" in refusal
        assert f"holds its vectors as {stored}, but the server is set to {datatype}" in refusal
        await asyncio.to_thread(rebuild(server, wanted))
        await asyncio.to_thread(server.start)
        assert await found(server) == before
