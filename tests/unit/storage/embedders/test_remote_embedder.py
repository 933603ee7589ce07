"""The embedder `openai` against a double of its endpoint: what it sends, and what it makes of every failure."""

import asyncio
import json
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from runekeep_storage.database import Space
from runekeep_storage.embedders import (
    Embedder,
    EmbedderUnavailable,
    EmbeddingOptions,
    open_embedder,
    remote,
)
from runekeep_storage.embedders.openai_api import CHECK_TEXT
from runekeep_storage.endpoints import json_endpoint, outage
from tests.doubles.embeddings_api import (
    DIMENSION,
    MODEL,
    Answer,
    Behaviour,
    EmbeddingsApi,
    Request,
    answer,
    failure,
    late,
)
from tests.doubles.word_embedder import vector

KEY = "sk-secret-of-the-endpoint"
SECRET_TEXT = "the password is swordfish"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingsApi]:
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 0.1)
    with EmbeddingsApi() as api:
        yield api


@asynccontextmanager
async def opened(api: EmbeddingsApi, **given: Any) -> AsyncIterator[Embedder]:
    settings = {"url": api.url, "api_key": KEY, "model": MODEL, "dimension": DIMENSION, **given}
    embedder = open_embedder("openai", options=EmbeddingOptions(**settings))
    assert embedder is not None
    try:
        yield embedder
    finally:
        await embedder.close()


def sent(api: EmbeddingsApi) -> list[list[str]]:
    """The texts of each request but the checks of the endpoint."""
    return [request.texts for request in api.requests if request.texts != [CHECK_TEXT]]


def is_near(found: bytes, text: str) -> bool:
    import numpy as np

    return bool(np.allclose(np.frombuffer(found, "<f4"), np.frombuffer(vector(text), "<f4"), atol=1e-6))


async def test_texts_get_their_vectors_in_order_with_key_prefixes_and_fields(api: EmbeddingsApi) -> None:
    api.otherwise = answer(lambda data: data[::-1])
    given = {"document_prefix": "passage: ", "query_fields": {"input_type": "query", "dimensions": 8}}
    async with opened(api, **given) as embedder:
        documents = await embedder.embed(["green  tea\n", "a kettle", ""])
        (query,) = await embedder.embed(["green tea"], query=True)
    assert all(map(is_near, documents, ["passage: green tea", "passage: a kettle", "passage: "]))
    assert is_near(query, "green tea")
    assert [set(texts) for texts in sent(api)] == [
        {"passage: green tea", "passage: a kettle", "passage: "},
        {"green tea"},
    ]
    last = api.requests[-1]
    assert last.headers["authorization"] == f"Bearer {KEY}"
    assert last.body == {
        "model": MODEL,
        "input": ["green tea"],
        "input_type": "query",
        "dimensions": 8,
    }
    assert not any("input_type" in one.body for one in api.requests if "passage: a kettle" in one.texts)


async def test_batches_are_cut_by_count_and_bytes_and_several_are_under_way_at_once(api: EmbeddingsApi) -> None:
    both_there = threading.Barrier(2, timeout=30)

    def together(request: Request) -> Answer:
        if len(api.requests) > 1:
            both_there.wait()
        return answer()(request)

    api.otherwise = together
    async with opened(api, batch_texts=3, batch_bytes=1024, parallel_batches=2) as embedder:
        texts = ["a" * 600, "b" * 600, *"cdefgh"]
        vectors = await embedder.embed(texts, bulk=True)
    assert all(map(is_near, vectors, texts))
    assert sorted(map(len, sent(api))) == [1, 1, 3, 3]


async def test_a_text_is_sent_once_for_a_space_and_a_query_apart_from_it(api: EmbeddingsApi) -> None:
    async with opened(api, query_fields={"input_type": "query"}) as embedder:
        ada = Space("home", "ada")
        for query in (False, True, False, True):
            await embedder.embed(["tea"], query=query, space=ada)
    assert sent(api) == [["tea"], ["tea"]]


def first_vector(change: Callable[[list[float]], list[Any]]) -> Behaviour:
    return answer(lambda data: [{**data[0], "embedding": change(data[0]["embedding"])}, *data[1:]])


WRONG: dict[str, tuple[Behaviour, str]] = {
    "dimension": (first_vector(lambda numbers: numbers[1:]), "cannot be read|of 7 numbers"),
    "not a number": (first_vector(lambda numbers: [math.nan, *numbers[1:]]), "holds no numbers"),
    "zero": (first_vector(lambda numbers: [0.0] * DIMENSION), "zero"),
    "text": (first_vector(lambda numbers: ["x"] * DIMENSION), "cannot be read"),
    "count": (answer(lambda data: data[:-1]), "vectors for"),
    "index": (answer(lambda data: [{**one, "index": 0} for one in data] * 2), "vectors for"),
    "no json": (lambda _: Answer(200, b"<html>a page that wants a login</html>"), "no answer of the embeddings API"),
    "another api": (lambda _: Answer(200, b'{"choices": []}'), "no answer of the embeddings API"),
    "key": (failure(401), "status 401: it refuses the key"),
    "address": (failure(404), "does not know the address or the model"),
    "redirect": (lambda _: Answer(307, b"", {"location": "https://elsewhere.example"}), "status 307"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_answer_is_no_vector_and_the_endpoint_is_used_again_once_it_is_right(
    api: EmbeddingsApi, wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviour, message = WRONG[wrong]
    async with opened(api) as embedder:
        await embedder.warm()
        monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 1.0)
        api.script(behaviour)
        with pytest.raises(EmbedderUnavailable, match=message) as raised:
            await embedder.embed([SECRET_TEXT, "tea"])
        asked = len(api.requests)
        with pytest.raises(EmbedderUnavailable, match=message):
            await embedder.embed(["at once"], query=True)
        assert len(api.requests) == asked, "an endpoint that has just failed is left alone"
        assert is_near(await recovered(embedder, "tea"), "tea")
    said = str(raised.value) + repr(raised.value.__cause__) + "".join(capsys.readouterr())
    assert KEY not in said and "swordfish" not in said


async def recovered(embedder: Embedder, text: str) -> bytes:
    """Returns the vector of the text once the embedder works again."""
    async with asyncio.timeout(30):
        while True:
            try:
                return (await embedder.embed([text]))[0]
            except EmbedderUnavailable:
                await asyncio.sleep(0.05)


async def test_a_wrong_dimension_is_found_before_any_text_is_sent(api: EmbeddingsApi) -> None:
    async with opened(api, dimension=384) as embedder:
        with pytest.raises(EmbedderUnavailable, match=r"8 numbers, and embedding\.dimension is 384"):
            await embedder.embed([SECRET_TEXT])
    assert "swordfish" not in json.dumps([request.texts for request in api.requests])


@pytest.mark.parametrize("status", [0, 429, 500, 503])
async def test_what_may_pass_is_tried_again_within_the_deadline(api: EmbeddingsApi, status: int) -> None:
    async with opened(api) as embedder:
        await embedder.warm()
        began = monotonic()
        api.script(failure(status), failure(status, retry_after=1))
        (found,) = await embedder.embed(["tea"])
        assert monotonic() - began >= (1 if status else 0)
    assert is_near(found, "tea") and sent(api) == [["tea"]] * 3


async def test_an_endpoint_that_asks_for_a_long_pause_gets_it(api: EmbeddingsApi) -> None:
    async with opened(api, batch_seconds=5.0) as embedder:
        await embedder.warm()
        api.script(failure(429, retry_after=60))
        for _ in range(2):
            with pytest.raises(EmbedderUnavailable, match="status 429"):
                await embedder.embed(["tea"])
    assert sent(api) == [["tea"]]


@pytest.mark.parametrize("status", [413, 500])
async def test_texts_that_are_too_many_or_too_long_are_sent_smaller(
    api: EmbeddingsApi, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited(request: Request) -> Answer:
        if len(request.texts) > 2 or max(map(len, request.texts)) > 250:
            return failure(status)(request)
        return answer()(request)

    monkeypatch.setattr(json_endpoint, "ATTEMPTS", 1)
    api.otherwise = limited
    async with opened(api) as embedder:
        texts = ["tea", "a kettle", "a cup", "word " * 100]
        vectors = await embedder.embed(texts)
    assert all(map(is_near, vectors[:3], texts)) and is_near(vectors[3], "word")


@pytest.mark.parametrize("wrong", ["late", "failing"])
async def test_no_text_is_shortened_to_nothing_for_an_endpoint_that_is_late_or_fails(
    api: EmbeddingsApi, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers the check alone."""
    behaviour, message = {
        "late": (late(5.0), "did not answer within"),
        "failing": (failure(500), "status 500"),
    }[wrong]
    monkeypatch.setattr(json_endpoint, "ATTEMPTS", 1)
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 10.0)
    api.otherwise = lambda request: (answer() if request.texts == [CHECK_TEXT] else behaviour)(request)
    async with opened(api, batch_seconds=1.5, parallel_batches=1) as embedder:
        with pytest.raises(EmbedderUnavailable, match=message):
            await embedder.embed([f"{number} " + "word " * 100 for number in range(16)], bulk=True)
        assert len(sent(api)) <= (2 if wrong == "late" else 7)
        assert min(len(text) for texts in sent(api) for text in texts) >= remote.MIN_FAILED_CHARACTERS
        if wrong == "late":
            asked = len(api.requests)
            with pytest.raises(EmbedderUnavailable, match=message):
                await embedder.embed(["a cup"])
            assert len(api.requests) == asked


async def test_a_search_does_not_wait_for_a_slow_endpoint(api: EmbeddingsApi) -> None:
    async with opened(api, query_seconds=0.2) as embedder:
        await embedder.warm()
        api.script(late(1.0))
        with pytest.raises(EmbedderUnavailable, match="did not answer within"):
            await embedder.embed(["tea"], query=True)
        assert is_near((await embedder.embed(["tea"]))[0], "tea")


async def test_fields_of_queries_that_are_refused_are_found_by_the_check(
    api: EmbeddingsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(api, query_fields={"input_type": "query"}) as embedder:
        await embedder.warm()
        monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 10.0)
        api.otherwise = lambda request: (failure(400) if "input_type" in request.body else answer())(request)
        for query in ("where is the kettle", "a cup"):
            with pytest.raises(EmbedderUnavailable, match=r"status 400 to a query: check embedding\.query_fields"):
                await embedder.embed([query], query=True)
    assert sent(api) == [["where is the kettle"]]


async def test_another_model_behind_the_same_name_is_never_mixed_in(api: EmbeddingsApi) -> None:
    """Another name for the same model is none."""
    async with opened(api) as embedder:
        await embedder.warm()
        api.otherwise = answer(model="the-same-model-renamed")
        assert is_near(await recovered(embedder, "tea"), "tea")
        api.otherwise = answer(vector_of=lambda text: [1.0, *[0.0] * (DIMENSION - 1)], model="another")
        for message in ("names another model than before", "serves another model than before"):
            with pytest.raises(EmbedderUnavailable, match=message):
                await embedder.embed(["tea"])
            await asyncio.sleep(0.25)
        api.otherwise = answer()
        assert is_near(await recovered(embedder, "tea"), "tea")


async def test_another_model_is_noticed_after_a_restart_too(api: EmbeddingsApi, tmp_path: Path) -> None:
    file = tmp_path / "embedder.json"
    async with opened(api, check_file=file) as embedder:
        await embedder.warm()
    assert file.stat().st_mode & 0o077 == 0
    api.otherwise = answer(vector_of=lambda text: [1.0, *[0.0] * (DIMENSION - 1)])
    async with opened(api, check_file=file) as embedder:
        with pytest.raises(EmbedderUnavailable, match="another model than before"):
            await embedder.embed(["tea"])
    async with opened(api, check_file=file, model="its-own-name") as embedder:
        await embedder.embed(["tea"])
    kept = json.loads(file.read_text())
    for damaged in ("damaged", json.dumps({**kept, "vector": kept["vector"][:16]})):
        file.write_text(damaged)
        async with opened(api, check_file=file, model="its-own-name") as embedder:
            await embedder.embed(["tea"])


async def test_another_dimension_is_another_model(api: EmbeddingsApi, tmp_path: Path) -> None:
    names = []
    shorter = first_vector(lambda numbers: numbers[:-2])
    for dimension, api.otherwise in ((DIMENSION, answer()), (DIMENSION - 2, shorter)):
        async with opened(api, dimension=dimension, check_file=tmp_path / "embedder.json") as embedder:
            await embedder.embed(["tea"])
            names.append(embedder.model)
    assert names[0] != names[1]


async def test_closing_fails_what_waits_and_what_comes(api: EmbeddingsApi) -> None:
    api.otherwise = late(30)
    async with opened(api) as embedder:
        waiting = [asyncio.create_task(embedder.embed(["tea"], query=query)) for query in (False, True)]
        await asyncio.sleep(0.1)
        await embedder.close()
        for one in waiting:
            with pytest.raises(EmbedderUnavailable, match="closed"):
                await one
        with pytest.raises(EmbedderUnavailable, match="closed"):
            await embedder.embed(["tea"])
