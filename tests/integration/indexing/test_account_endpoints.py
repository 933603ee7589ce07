"""Two accounts with two endpoints: no text of one reaches the other's, and one that is away stops nobody else."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_server.doctor.__main__ import main as examine
from tests.doubles.embeddings_api import DIMENSION, MODEL, EmbeddingsApi, answer, failure, late
from tests.doubles.rerank_api import RerankApi
from tests.integration.indexing.test_remote_embedder import commit, dependency
from tests.support.callers import Caller
from tests.support.recalls import in_session, recall
from tests.support.server_process import ServerProcess

KEY = "sk-secret-of-acme"


def settings(own: EmbeddingsApi, default: EmbeddingsApi, own_rerank: RerankApi, rerank: RerankApi, key: Path) -> Any:
    acme = {
        "embedding": {"url": own.url, "model": MODEL, "key_file": str(key)},
        "rerank": {"url": own_rerank.base_url, "key_file": str(key)},
    }
    return {
        "RUNEKEEP_EMBEDDER": "openai",
        "RUNEKEEP_EMBEDDING__URL": default.url,
        "RUNEKEEP_EMBEDDING__MODEL": MODEL,
        "RUNEKEEP_EMBEDDING__DIMENSION": str(DIMENSION),
        "RUNEKEEP_EMBEDDING__QUERY_SECONDS": "5",
        "RUNEKEEP_RERANKER": "endpoint",
        "RUNEKEEP_RERANK__URL": rerank.base_url,
        "RUNEKEEP_RERANK__SECONDS": "3",
        "RUNEKEEP_ACCOUNT_ENDPOINTS": json.dumps({"acme": acme}),
    }


async def by_meaning(caller: Caller, query: str, *uris: str) -> None:
    """Waits until the memories are found by their vectors, and the reranker has ordered them."""
    async with asyncio.timeout(90):
        while True:
            answer = await caller.find(query, explain=True)
            found = {one.memory.uri for one in answer.results if one.detail.dense_rank}
            if not answer.degraded and found >= set(uris):
                return
            await asyncio.sleep(0.1)


async def test_no_text_of_one_account_goes_to_an_endpoint_of_another(
    own_server: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    with EmbeddingsApi() as own, EmbeddingsApi() as default, RerankApi("tei") as own_rerank, RerankApi("tei") as rerank:
        server = await asyncio.to_thread(own_server, settings(own, default, own_rerank, rerank, key))
        async with grpc.aio.insecure_channel(server.address) as channel:
            anna, otto = Caller(channel, "anna", "acme"), Caller(channel, "otto", "other")
            for caller in (anna, otto):
                for thing in ("kettle", "teapot"):
                    await commit(caller, f"{caller.user} bought a copper {thing}", thing)
                await by_meaning(caller, f"copper of {caller.user}", caller.uri("memories/preferences/kettle.md"))
                session = await in_session(caller, f"What copper does {caller.user} have?")
                assert (await recall(caller, "", session=session, kinds=[pb.FOUND_KIND_MEMORY])).entries

            own.otherwise = failure(503)
            for caller in (anna, otto):
                await commit(caller, f"{caller.user} bought a copper pan", "pan")
            await by_meaning(otto, "copper pan of otto", otto.uri("memories/preferences/pan.md"))
            assert list((await anna.find("copper pan of anna")).degraded) == ["dense"]
            assert not (await dependency(channel)).available
            own.otherwise = default.otherwise
            await by_meaning(anna, "copper pan of anna", anna.uri("memories/preferences/pan.md"))
        await asyncio.to_thread(server.stop)

    for mine, others, name, stranger in ((own, default, "anna", "otto"), (own_rerank, rerank, "anna", "otto")):
        of_mine, of_others = (str([one.body for one in api.requests]) for api in (mine, others))
        assert name in of_mine and stranger not in of_mine
        assert stranger in of_others and name not in of_others
    assert {one.headers.get("authorization") for api in (own, own_rerank) for one in api.requests} == {f"Bearer {KEY}"}
    assert KEY not in str([one.headers for api in (default, rerank) for one in api.requests])
    assert KEY not in server.log() and "copper" not in server.log()


def test_a_server_does_not_start_without_a_key_that_an_entry_names(tmp_path: Path) -> None:
    with EmbeddingsApi() as api, RerankApi() as rerank:
        given = settings(api, api, rerank, rerank, tmp_path / "missing")
        said = ServerProcess(tmp_path / "data", given).refused()
    assert "account_endpoints.acme.embedding (RUNEKEEP_ACCOUNT_ENDPOINTS): key_file: " in said
    assert "cannot be read: No such file or directory" in said


def test_the_doctor_tries_each_endpoint_and_lists_where_texts_go_by_account(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)

    def checks() -> dict[str, list[tuple[str, str]]]:
        examine(["--data-dir", str(tmp_path / "data")])
        said = capsys.readouterr().out
        assert KEY not in said
        found: dict[str, list[tuple[str, str]]] = {}
        for check in json.loads(said)["checks"]:
            found.setdefault(check["check"], []).append((check["state"], check["found"]))
        return found

    with EmbeddingsApi() as own, EmbeddingsApi() as default, RerankApi("tei") as own_rerank, RerankApi("tei") as rerank:
        for name, value in settings(own, default, own_rerank, rerank, key).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("RUNEKEEP_RERANK__URL", "")
        # They load their model at the first text.
        monkeypatch.setenv("RUNEKEEP_EMBEDDING__QUERY_SECONDS", "0.5")
        for api in (own, default):
            api.script(late(1.5))
        found = checks()
        assert [state for state, _ in found["embedder.account.acme"] + found["embedder.loads"]] == ["ok", "ok"]
        assert found["reranker.account.acme"][0][0] == "ok" and "reranker.answers" not in found
        hosts = [api.url.removeprefix("http://").removesuffix("/v1") for api in (default, own, own_rerank)]
        assert [text for _, text in found["text.destination"][:3]] == [
            f"{hosts[0]}: every message, memory and query of all accounts but acme (`embedding.url`)",
            f"{hosts[1]}: every message, memory and query of account acme (`account_endpoints.acme.embedding`)",
            f"{hosts[2]}: queries, and the messages and memories that they find, of account acme"
            " (`account_endpoints.acme.rerank`)",
        ]

        default.otherwise = failure(401)
        found = checks()
        assert [state for state, _ in found["embedder.account.acme"] + found["embedder.loads"]] == ["ok", "problem"]
        assert "its model was not compared" in found["embedder.account.acme"][0][1]

        default.otherwise = answer()
        own.otherwise = answer(vector_of=lambda text: [1.0, *[0.0] * (DIMENSION - 1)])
        own_rerank.otherwise = own_rerank.failure(401)
        found = checks()
        state, text = found["embedder.account.acme"][0]
        assert state == "problem" and "serves another model" in text
        assert found["reranker.account.acme"][0][0] == "problem" and found["embedder.loads"][0][0] == "ok"
