"""The reranker `endpoint` against a double of its endpoint: what it sends, and what it makes of every failure."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from runekeep_storage import deadline
from runekeep_storage.drivers.common import fair_turns
from runekeep_storage.endpoints import json_endpoint, outage
from runekeep_storage.rerankers import KNOWN, Reranker, RerankerUnavailable, RerankOptions, open_reranker
from tests.doubles.model_api import Behaviour, held, reset
from tests.doubles.rerank_api import FORMS, MODEL, RerankApi, raw

KEY = "sk-secret-of-the-endpoint"
QUERY = "password of the boat"
TEXTS = ("a cat", "the boat has a password", "the password of the boat is swordfish")
SCORES = [0.0, 0.75, 1.0]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(json_endpoint, "ATTEMPTS", 1)


@asynccontextmanager
async def opened(api: RerankApi, **given: Any) -> AsyncIterator[Reranker]:
    settings = {"url": api.base_url, "api_key": KEY, "model": MODEL, "seconds": 20.0, **given}
    reranker = open_reranker("endpoint", options=RerankOptions(**settings))
    assert reranker is not None
    try:
        yield reranker
    finally:
        await reranker.close()


def searches(api: RerankApi) -> int:
    """Requests with the texts of a search, which are no checks."""
    return sum("boat" in request.last_text for request in api.requests)


async def recovered(reranker: Reranker) -> list[float]:
    """Returns the scores once the reranker works again."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await reranker.rerank(QUERY, TEXTS)
            except RerankerUnavailable:
                await asyncio.sleep(0.02)


def test_only_known_rerankers_are_opened() -> None:
    assert open_reranker("none") is None and KNOWN[0] == "none"
    with pytest.raises(ValueError, match="unknown reranker 'magic'; known: none, endpoint, fastembed"):
        open_reranker("magic")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_set", [False, True])
async def test_each_form_is_spoken_and_found_out_without_a_text_of_anybody(form: str, is_set: bool) -> None:
    with RerankApi(form) as api:
        async with opened(api, form=form if is_set else "auto") as reranker:
            assert await reranker.rerank(QUERY, TEXTS) == SCORES
            await reranker.rerank(QUERY, TEXTS[:2])
    refused = [request for request in api.requests if "boat" not in request.last_text]
    assert len(refused) == (1 if is_set else 1 + FORMS.index(form))
    assert searches(api) == 2 and {one.headers["authorization"] for one in api.requests} == {f"Bearer {KEY}"}


async def test_an_endpoint_that_speaks_no_form_gets_no_text() -> None:
    with RerankApi() as api:
        api.otherwise = raw(b'{"choices": []}')
        async with opened(api) as reranker:
            with pytest.raises(RerankerUnavailable, match="speaks no known form of /rerank"):
                await reranker.rerank(QUERY, TEXTS)
    assert not searches(api)


WRONG: dict[str, tuple[Callable[[RerankApi], Behaviour], str]] = {
    "count": (lambda api: api.answer(lambda results: results[:-1]), "2 scores for 3 texts"),
    "twice": (lambda api: api.answer(lambda results: [results[0], *results[:-1]]), "3 scores for 3 texts"),
    "not a number": (
        lambda api: api.answer(lambda results: [{**results[0], "relevance_score": math.nan}, *results[1:]]),
        "a score that is no number",
    ),
    "text": (lambda api: api.answer(lambda _: ["swordfish"]), "no answer of the form jina"),
    "no json": (lambda _: raw(b"<html>a page that wants a login</html>"), "no answer of the form jina"),
    "key": (lambda api: api.failure(401), "status 401: it refuses the key"),
    "overloaded": (lambda api: api.failure(429), "status 429"),
    "failing": (lambda api: api.failure(500), "status 500"),
    "cut": (lambda _: reset(), "cannot be reached"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_reranker_that_fails_is_left_alone_and_used_again_once_it_works(
    wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 1.0)
    behaviour, message = WRONG[wrong]
    with RerankApi() as api:
        async with opened(api) as reranker:
            await reranker.warm()
            api.script(behaviour(api))
            with pytest.raises(RerankerUnavailable, match=message) as raised:
                await reranker.rerank(QUERY, TEXTS)
            with pytest.raises(RerankerUnavailable, match=message) as paused:
                await reranker.rerank(QUERY, TEXTS)
            assert (raised.value.failure, paused.value.failure, searches(api)) == ("failed", "paused", 1)
            assert await recovered(reranker) == SCORES
    said = str(raised.value) + repr(raised.value.__cause__) + "".join(capsys.readouterr())
    assert KEY not in said and "swordfish" not in said and "boat" not in said


async def test_no_search_waits_for_a_reranker_that_was_late() -> None:
    with RerankApi() as api:
        async with opened(api, seconds=0.5) as reranker:
            await reranker.warm()
            api.hangs = api.gate()
            with pytest.raises(RerankerUnavailable, match=r"did not answer within 0\.5 s") as late:
                await reranker.rerank(QUERY, TEXTS)
            asked = searches(api)
            async with asyncio.timeout(30):
                # From the end of the pause on it is checked, while searches go on without it.
                while len(api.requests) < asked + 2:
                    with pytest.raises(RerankerUnavailable) as paused:
                        await reranker.rerank(QUERY, TEXTS)
                    assert paused.value.failure == "paused"
                    await asyncio.sleep(0.02)
            assert (late.value.failure, asked, searches(api)) == ("late", 1, 1)
            api.hangs.release.set()
            assert await recovered(reranker) == SCORES


async def test_a_caller_in_a_hurry_or_with_refused_texts_takes_the_reranker_from_nobody() -> None:
    async def hurry(reranker: Reranker) -> None:
        deadline.begin(0.2)
        await reranker.rerank(QUERY, TEXTS)

    with RerankApi() as api:
        async with opened(api) as reranker:
            await reranker.warm()
            gate = api.gate()
            api.script(held(gate, api.answer()), api.failure(413))
            for call, failure in ((hurry(reranker), "late"), (reranker.rerank(QUERY, TEXTS), "failed")):
                with pytest.raises(RerankerUnavailable) as raised:
                    await asyncio.create_task(call)
                assert raised.value.failure == failure
            assert await reranker.rerank(QUERY, TEXTS) == SCORES


async def test_an_account_leaves_a_request_to_the_others() -> None:
    async def ask(reranker: Reranker, account: str) -> list[float]:
        fair_turns.begin(account)
        return await reranker.rerank(QUERY, TEXTS)

    with RerankApi() as api:
        async with opened(api, parallel_requests=3) as reranker:
            await reranker.warm()
            gates = (api.gate(), api.gate())
            api.script(*(held(gate, api.answer()) for gate in gates))
            greedy = [asyncio.create_task(ask(reranker, "greedy")) for _ in range(6)]
            for gate in gates:
                await asyncio.to_thread(gate.entered.wait)
            assert await ask(reranker, "other") == SCORES
            assert searches(api) == 3
            for gate in gates:
                gate.release.set()
            assert await asyncio.gather(*greedy) == [SCORES] * 6


async def test_a_fault_in_the_code_of_a_model_fails_no_search(capsys: pytest.CaptureFixture[str]) -> None:
    class Faulty:
        name = "faulty"

        async def prepare(self, query: str, texts: Sequence[str]) -> list[float]:
            return [1.0 for _ in texts]

        async def score(self, query: str, texts: Sequence[str]) -> list[float]:
            raise IndexError(texts[0])

        async def close(self) -> None:
            pass

    reranker = Reranker(Faulty(), RerankOptions(), parallel=1)
    with pytest.raises(RerankerUnavailable, match="faulty failed: IndexError"):
        await reranker.rerank(QUERY, TEXTS)
    await reranker.close()
    assert TEXTS[0] not in "".join(capsys.readouterr())


async def test_own_fields_are_sent() -> None:
    with RerankApi("cohere") as api:
        async with opened(api, form="cohere", fields={"max_tokens_per_doc": 100}) as reranker:
            await reranker.warm()
    (request,) = api.requests
    assert request.body["max_tokens_per_doc"] == 100 and "swordfish" not in json.dumps(request.body)
