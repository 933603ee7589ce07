"""A server with a reranker behind an endpoint: searches and Recall follow it, say when they could not, and stay as
relevant as they were."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from runekeep.v1 import admin_service_pb2, admin_service_pb2_grpc
from runekeep.v1 import memory_service_pb2 as pb
from tests.doubles.rerank_api import MODEL, RerankApi
from tests.support.callers import Caller, said
from tests.support.changes import put, written
from tests.support.recalls import recall
from tests.support.server_process import ServerProcess

KEY = "sk-secret-of-the-endpoint"
SAID = ("I bought a copper kettle", "The kettle is for tea", "My kettle whistles", "A kettle for the boat, of iron")
QUERY = "which kettle"


def settings(api: RerankApi) -> dict[str, str]:
    return {
        "RUNEKEEP_EMBEDDER": "minilm",
        "RUNEKEEP_RERANKER": "endpoint",
        "RUNEKEEP_RERANKER_API_KEY": KEY,
        "RUNEKEEP_RERANK__URL": api.base_url,
        "RUNEKEEP_RERANK__MODEL": MODEL,
        "RUNEKEEP_RERANK__SECONDS": "3",
    }


async def answered(call: Callable[[], Any], *, degraded: list[str]) -> Any:
    """Returns the answer once it is degraded like that."""
    async with asyncio.timeout(60):
        while True:
            answer = await call()
            if list(answer.degraded) == degraded:
                return answer
            await asyncio.sleep(0.1)


def texts(answer: pb.FindMemoriesResponse) -> list[str]:
    return [one.passage.text or one.memory.content for one in answer.results]


async def is_reranker_available(channel: grpc.aio.Channel) -> bool:
    admin = admin_service_pb2_grpc.AdminServiceStub(channel)
    status = await admin.GetServerStatus(admin_service_pb2.GetServerStatusRequest())  # type: ignore[misc]  # the stub is asynchronous
    (found,) = [one for one in status.dependencies if one.name == "reranker"]
    assert found.kind == "endpoint"
    return bool(found.available)


async def test_searches_follow_the_reranker_and_do_without_it_when_it_is_away(
    own_server: Callable[..., ServerProcess],
) -> None:
    with RerankApi("tei") as api:
        # The longest text first, which no part of the ranking looks for.
        api.score = lambda query, text: len(text)
        api.down()
        server = await asyncio.to_thread(own_server, settings(api))
        async with grpc.aio.insecure_channel(server.address) as channel:
            caller = Caller(channel, "anna")
            await caller.committed(*map(said, SAID))
            await written(caller, put("preferences", topic="Kettle", content="Likes a kettle that whistles. " * 5))

            async def find(**fields: Any) -> Any:
                return await caller.find(QUERY, explain=True, view=pb.MEMORY_VIEW_FULL, **fields)

            async def ask() -> Any:
                return await recall(caller, QUERY, kinds=[pb.FOUND_KIND_PASSAGE])

            await caller.searchable()
            plain = await find()
            assert list(plain.degraded) == ["reranker"] and not await is_reranker_available(channel)
            plain_recall = await answered(ask, degraded=["reranker"])

            api.up()
            found = await answered(find, degraded=[])
            assert await is_reranker_available(channel)
            by_length = sorted(texts(plain), key=len, reverse=True)
            assert texts(found) == by_length != texts(plain)
            for name in ("score", "relevance"):
                at_places, before = ([getattr(one, name) for one in answer.results] for answer in (found, plain))
                assert at_places == pytest.approx(before, abs=1e-5), "the reranker decides who stands where"
            for one in found.results:
                parts = {part.name: part for part in one.detail.parts}
                assert sum(part.added for part in parts.values()) == pytest.approx(one.score, abs=1e-4)
                assert parts["rerank"].value == len(one.passage.text or f"Kettle\n{one.memory.content}")
            assert "rerank" not in {part.name for one in plain.results for part in one.detail.parts}
            least = sorted(one.relevance for one in plain.results)[2]
            assert texts(await find(min_relevance=least - 1e-4)) == by_length[:3]
            assert texts(await find(limit=1)) == by_length[:1]

            told = await answered(ask, degraded=[])
            assert {one.text for one in told.entries} == {one.text for one in plain_recall.entries}
            assert "copper" in plain_recall.entries[0].text != told.entries[0].text

            api.otherwise = api.answer(lambda results: results[1:])
            wrong = await find()
            assert (list(wrong.degraded), texts(wrong)) == (["reranker"], texts(plain))
        await asyncio.to_thread(server.stop)
    assert KEY not in server.log() and "kettle" not in server.log().lower()
