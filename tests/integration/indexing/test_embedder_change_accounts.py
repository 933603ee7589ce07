"""A change of the embedder while the endpoint of one account is away or slow: it starts, all others switch, and the
status names the account."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from threading import Event

import asyncpg
import grpc

from tests.doubles.embeddings_api import MODEL, Answer, Behaviour, EmbeddingsApi, Request, answer, failure
from tests.integration.indexing.test_embedder_change import Operator, is_complete, settings
from tests.integration.indexing.test_remote_embedder import commit, found
from tests.support.callers import Caller
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess

Servers = Callable[..., ServerProcess]


def of_two(own: EmbeddingsApi, default: EmbeddingsApi, **more: str) -> dict[str, str]:
    """Settings of a server whose account `acme` has an endpoint of its own for the new embedder."""
    acme = {"next_embedding": {"url": own.url, "model": MODEL}}
    return settings(default, RUNEKEEP_ACCOUNT_ENDPOINTS=json.dumps({"acme": acme}), **more)


def held(go: Event) -> Behaviour:
    """A right answer, at once to the check of the endpoint, and else only when told to go on."""

    def behave(request: Request) -> Answer:
        if "anna" in str(request.texts):
            go.wait()
        return answer()(request)

    return behave


async def test_a_change_starts_while_the_endpoint_of_an_account_is_away(own_server: Servers) -> None:
    with EmbeddingsApi() as own, EmbeddingsApi() as default:
        server = await asyncio.to_thread(own_server, of_two(own, default))
        async with grpc.aio.insecure_channel(server.address) as channel:
            operator = Operator(channel)
            anna, otto = Caller(channel, "anna", "acme"), Caller(channel, "otto", "other")
            for caller in (anna, otto):
                await commit(caller, f"{caller.user} bought a copper kettle", "kettle")
            own.otherwise = failure(503)
            await operator.ask("START", "openai")
            change = await operator.until(lambda one: one.users_left == 1 and bool(one.problem))
            assert change.problem.startswith("account acme: 127.0.0.1 answered with status 503")
            for caller, api in ((otto, default), (anna, None)):
                query = f"kettle of {caller.user}"
                assert await found(caller, query, degraded=False)
                asked = [one for one in (own, default) if any(query in request.texts for request in one.requests)]
                assert asked == ([api] if api else []), "who waits is searched by the old embedder"

            own.otherwise = answer()
            await operator.ask("RESUME")
            assert not (await operator.until(is_complete)).users_left
            assert await found(anna, "copper of anna", degraded=False)
            assert ["copper of anna"] in [one.texts for one in own.requests]
        assert "anna" not in str([one.texts for one in default.requests])
        await asyncio.to_thread(server.stop)


async def test_of_two_servers_one_waits_for_an_endpoint_that_takes_longer_than_the_lease(
    postgres_server: PostgresServer, index_url: str, own_server: Servers
) -> None:
    name = postgres_server.create("template1")
    url = postgres_server.url(name)
    go = Event()
    with EmbeddingsApi() as own, EmbeddingsApi() as default:
        own.otherwise = held(go)
        patient = {"RUNEKEEP_NEXT_EMBEDDING__BATCH_SECONDS": "50"}
        shared = of_two(own, default, RUNEKEEP_STORE_URL=url, RUNEKEEP_INDEX_URL=index_url, **patient)
        first, second = [await asyncio.to_thread(own_server, shared, name) for name in ("first", "second")]
        async with grpc.aio.insecure_channel(first.address) as channel:
            operator = Operator(channel)
            anna, otto = Caller(channel, "anna", "acme"), Caller(channel, "otto", "other")
            for caller in (anna, otto):
                await commit(caller, f"{caller.user} bought a copper kettle", "kettle")
            await operator.ask("START", "openai")
            # The endpoint of acme has its texts by now, or gets them next.
            await operator.until(lambda one: one.users_left == 1)
            connection = await asyncpg.connect(url)
            try:
                row = "SELECT held_until FROM embedder_changes"
                taken = await connection.fetchval(row)
                async with asyncio.timeout(60):
                    # The lease of before would be over, and a few seconds more.
                    while await connection.fetchval(row) < taken + 25_000_000:  # noqa: ASYNC110  # told to nobody
                        await asyncio.sleep(0.1)
            finally:
                await connection.close()
            go.set()
            await operator.until(is_complete)
            sent = Counter(text for request in own.requests for text in request.texts if "anna" in text)
            assert sent and set(sent.values()) == {1}, "no text was sent twice"
            assert await found(anna, "copper of anna", degraded=False)
        for server in (second, first):
            await asyncio.to_thread(server.stop)
    postgres_server.drop(name)
