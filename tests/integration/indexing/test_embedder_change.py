"""A change of the embedder while servers run: they answer the whole time, are killed, and go on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from runekeep.v1 import admin_service_pb2 as pb
from runekeep.v1 import admin_service_pb2_grpc
from runekeep_common.failpoints import REEMBED_BEFORE_SWITCH
from tests.doubles.embeddings_api import DIMENSION, MODEL, EmbeddingsApi, answer, failure
from tests.integration.indexing.test_remote_embedder import commit, found
from tests.support import waiting
from tests.support.callers import Caller, Failure
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess

Servers = Callable[..., ServerProcess]


def killed(fired: Path) -> dict[str, str]:
    """Settings of a server that kills itself during the change, and writes that file."""
    return {"RUNEKEEP_FAILPOINT": f"{REEMBED_BEFORE_SWITCH}:KILL:2", "RUNEKEEP_FAILPOINT_LOG": str(fired)}


def settings(api: EmbeddingsApi, **more: str) -> dict[str, str]:
    return {
        "RUNEKEEP_EMBEDDER": "minilm",
        "RUNEKEEP_NEXT_EMBEDDING__URL": api.url,
        "RUNEKEEP_NEXT_EMBEDDING__MODEL": MODEL,
        "RUNEKEEP_NEXT_EMBEDDING__DIMENSION": str(DIMENSION),
        **more,
    }


def changed(given: dict[str, str]) -> dict[str, str]:
    """Returns the settings with the new embedder as the one in use."""
    described = {one.replace("NEXT_EMBEDDING", "EMBEDDING"): value for one, value in given.items() if "NEXT_" in one}
    return {**given, "RUNEKEEP_EMBEDDER": "openai", **described}


class Operator:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = admin_service_pb2_grpc.AdminServiceStub(channel)

    async def ask(self, action: str, embedder: str = "") -> pb.EmbedderChange:
        request = pb.ChangeEmbedderRequest(
            action=pb.EmbedderAction.Value(f"EMBEDDER_ACTION_{action}"), embedder=embedder
        )
        return (await self._stub.ChangeEmbedder(request)).change  # type: ignore[misc]  # the stub is asynchronous

    async def refused(self, action: str, embedder: str = "") -> str:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await self.ask(action, embedder)
        assert Failure(error.value).seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
        return str(error.value.details())

    async def change(self) -> pb.EmbedderChange:
        request = pb.GetServerStatusRequest()
        return (await self._stub.GetServerStatus(request)).embedder_change  # type: ignore[misc]  # as above

    async def until(self, holds: Callable[[pb.EmbedderChange], bool]) -> pb.EmbedderChange:
        async with asyncio.timeout(100):
            while True:
                change = await self.change()
                if holds(change):
                    return change
                await asyncio.sleep(0.1)


def is_complete(change: pb.EmbedderChange) -> bool:
    return change.state == pb.EMBEDDER_CHANGE_STATE_RUNNING and not change.users_left


@asynccontextmanager
async def called(server: ServerProcess) -> AsyncIterator[tuple[Operator, Caller, Caller]]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield Operator(channel), Caller(channel, "anna"), Caller(channel, "bert")


async def test_a_server_is_killed_during_the_change_and_goes_on(own_server: Servers, tmp_path: Path) -> None:
    with EmbeddingsApi() as api:
        server = await asyncio.to_thread(own_server, settings(api, **killed(tmp_path / "fired")))
        async with called(server) as (operator, anna, bert):
            await commit(anna, "I drink green tea", "Tea")
            await commit(bert, "I bake rye bread", "Bread")
            assert "must be one of minilm" in await operator.refused("START", "word2vec")
            assert "is the one that the store has" in await operator.refused("START", "minilm")
            assert "cannot be used: fastembed" in await operator.refused("START", "fastembed")
            assert "never changed" in await operator.refused("UNDO")
            api.otherwise = failure(401)
            assert "cannot be used" in await operator.refused("START", "openai")
            api.otherwise = answer(lambda data: [{**one, "embedding": one["embedding"][:-1]} for one in data])
            assert "7 numbers" in await operator.refused("START", "openai")
            api.otherwise = answer()
            change = await operator.ask("START", "openai")
            assert (change.from_embedder, change.embedder, change.users_left) == ("minilm", "openai", 2)
            await asyncio.to_thread(waiting.until, (tmp_path / "fired").exists)
            server.kill()
        server = await asyncio.to_thread(own_server, settings(api))
        async with called(server) as (operator, anna, bert):
            await operator.until(is_complete)
            for caller, query in ((anna, "green tea"), (bert, "rye bread")):
                before = len(api.requests)
                assert await found(caller, query, degraded=False)
                assert [query] in [one.texts for one in api.requests[before:]], "searched by the new embedder"
            assert "RUNEKEEP_EMBEDDER is still minilm" in await operator.refused("FINISH")
            await operator.ask("UNDO")
            before = len(api.requests)
            assert await found(anna, "green tea", degraded=False)
            assert api.requests[before:] == [], "searched by the old embedder"
            await operator.until(lambda one: one.state == pb.EMBEDDER_CHANGE_STATE_UNDONE)

        # The operator had set the new embedder before the change was undone.
        await asyncio.to_thread(server.stop)
        server = await asyncio.to_thread(own_server, changed(settings(api)))
        async with called(server) as (operator, anna, _):
            before = len(api.requests)
            assert await found(anna, "green tea", degraded=False)
            assert api.requests[before:] == [], "searched by the old embedder"
            assert "set it back to minilm" in (await operator.change()).problem
            assert "comes too early" in await operator.refused("START", "bilingual")


async def test_settings_that_a_new_embedder_lacks_are_named(own_server: Servers) -> None:
    server = await asyncio.to_thread(own_server, {"RUNEKEEP_EMBEDDER": "minilm"})
    async with called(server) as (operator, _, _):
        for embedder, needs in (
            ("openai", ("URL", "MODEL", "DIMENSION")),
            ("minilm+openai", ("URL", "MODEL", "DIMENSION")),
            ("minilm+fastembed", ("MODEL", "DIMENSION")),
        ):
            named = ", ".join(f"RUNEKEEP_NEXT_EMBEDDING__{one}" for one in needs)
            assert f"Set {named} on all servers" in await operator.refused("START", embedder)


async def test_of_two_servers_one_goes_on_and_both_search_by_the_same(
    postgres_server: PostgresServer, index_url: str, own_server: Servers, tmp_path: Path
) -> None:
    name = postgres_server.create("template1")
    with EmbeddingsApi() as api:
        shared = settings(api, RUNEKEEP_STORE_URL=postgres_server.url(name), RUNEKEEP_INDEX_URL=index_url)
        first = await asyncio.to_thread(own_server, {**shared, **killed(tmp_path / "fired")}, "first")
        async with called(first) as (operator, anna, bert):
            await commit(anna, "I drink green tea", "Tea")
            await commit(bert, "I bake rye bread", "Bread")
            await operator.ask("START", "openai")
            await asyncio.to_thread(waiting.until, (tmp_path / "fired").exists)
            first.kill()
        second, third = [await asyncio.to_thread(own_server, shared, name) for name in ("second", "third")]
        async with called(second) as (operator, anna, _), called(third) as (_, anna_there, bert):
            await operator.ask("PAUSE")
            assert (await operator.change()).state == pb.EMBEDDER_CHANGE_STATE_PAUSED
            await operator.ask("RESUME")
            await operator.until(is_complete)
            await commit(anna, "I bought a copper kettle", "Kettle")
            for caller, query in ((anna, "copper kettle"), (anna_there, "copper kettle"), (bert, "rye bread")):
                before = len(api.requests)
                assert await found(caller, query, degraded=False)
                assert [query] in [one.texts for one in api.requests[before:]], "searched by the new embedder"
        await asyncio.to_thread(third.stop)
        await asyncio.to_thread(second.stop)

        # The settings follow, then the vectors of the old embedder are dropped.
        second = await asyncio.to_thread(own_server, changed(shared), "second")
        async with called(second) as (operator, anna, bert):
            assert await found(anna, "green tea", degraded=False)
            await operator.ask("FINISH")
            await operator.until(lambda one: one.state == pb.EMBEDDER_CHANGE_STATE_FINISHED)
            assert await found(bert, "rye bread", degraded=False)
            await commit(bert, "I bought a copper teapot", "Teapot")
            assert await found(bert, "copper teapot", degraded=False)
            assert "dropped" in await operator.refused("UNDO")
        await asyncio.to_thread(second.stop)
    postgres_server.drop(name)
