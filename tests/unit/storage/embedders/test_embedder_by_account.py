"""Endpoints of accounts, against doubles: each gets the texts of its accounts alone, and fails alone."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from runekeep_storage.database import Space
from runekeep_storage.embedders import Embedder, EmbedderUnavailable, EmbeddingOptions, open_embedder
from runekeep_storage.embedders.openai_api import CHECK_TEXT
from runekeep_storage.endpoints import outage
from tests.doubles.embeddings_api import DIMENSION, MODEL, EmbeddingsApi, answer, failure

ADA, BEN, CAT = (Space(account, "someone") for account in ("ada", "ben", "cat"))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingsApi]:
    """The endpoint of the account `ada`."""
    monkeypatch.setattr(outage, "FIRST_PAUSE_SECONDS", 0.1)
    with EmbeddingsApi() as api:
        yield api


@pytest.fixture
def default() -> Iterator[EmbeddingsApi]:
    with EmbeddingsApi() as api:
        yield api


@asynccontextmanager
async def opened(url: str, **accounts: EmbeddingsApi) -> AsyncIterator[Embedder]:
    """`url`: of the default endpoint. The key of an account is its name."""
    options = EmbeddingOptions(url=url, api_key="all", model=MODEL, dimension=DIMENSION)
    by_account = {account: replace(options, url=api.url, api_key=account) for account, api in accounts.items()}
    embedder = open_embedder("openai", options=replace(options, by_account=by_account))
    assert embedder is not None
    try:
        yield embedder
    finally:
        await embedder.close()


def sent(api: EmbeddingsApi) -> list[str]:
    """The texts of all requests but the checks of the endpoint."""
    return sorted(text for request in api.requests for text in request.texts if text != CHECK_TEXT)


async def test_each_endpoint_gets_the_texts_of_its_accounts_with_their_key(
    own: EmbeddingsApi, default: EmbeddingsApi
) -> None:
    async with opened(default.url, ada=own) as embedder:
        for kind in ({"query": True}, {"bulk": True}, {}):
            calls = (embedder.embed([f"{one.account} {kind}", "tea"], space=one, **kind) for one in (ADA, BEN, CAT))
            await asyncio.gather(*calls)
        with pytest.raises(EmbedderUnavailable, match="have no owner"):
            await embedder.embed(["tea of dan"], space=None)
    assert {text.split()[0] for text in sent(own)} == {"ada", "tea"}
    assert {text.split()[0] for text in sent(default)} == {"ben", "cat", "tea"}
    assert {one.headers["authorization"] for one in own.requests} == {"Bearer ada"}
    assert {one.headers["authorization"] for one in default.requests} == {"Bearer all"}


async def test_the_default_endpoint_says_what_the_vectors_of_the_model_are(
    own: EmbeddingsApi, default: EmbeddingsApi
) -> None:
    """An account's endpoint with another model that answers first must not get everybody else refused."""
    own.otherwise = answer(vector_of=lambda text: [1.0, *[0.0] * (DIMENSION - 1)])
    async with opened(default.url, ada=own) as embedder:
        with pytest.raises(EmbedderUnavailable, match="serves another model"):
            await embedder.embed(["tea"], space=ADA)
        await embedder.embed(["tea"], space=BEN)
    assert not sent(own)


async def test_no_other_endpoint_is_asked_before_the_default_one_has_answered(
    own: EmbeddingsApi, default: EmbeddingsApi
) -> None:
    default.otherwise = failure(503)
    async with opened(default.url, ada=own) as embedder:
        with pytest.raises(EmbedderUnavailable):
            await embedder.embed(["tea"], space=ADA)
        assert not own.requests
        default.otherwise = own.otherwise
        async with asyncio.timeout(30):
            while not sent(own):
                with suppress(EmbedderUnavailable):
                    await embedder.embed(["tea"], space=ADA)


async def test_the_model_is_known_from_before_a_restart(
    own: EmbeddingsApi, default: EmbeddingsApi, tmp_path: Path
) -> None:
    options = EmbeddingOptions(
        url=default.url, model=MODEL, dimension=DIMENSION, check_file=tmp_path / "embedder.json", batch_seconds=1.0
    )
    options = replace(options, by_account={"ada": replace(options, url=own.url)})
    for behaviour in (default.otherwise, failure(503)):
        default.otherwise = behaviour
        embedder = open_embedder("openai", options=options)
        assert embedder is not None
        await embedder.embed(["tea"], space=ADA)
        with pytest.raises(EmbedderUnavailable, match=r"account ada: .* refuses the key"):
            own.script(failure(401))
            await embedder.embed(["coffee"], space=ADA)
        await embedder.close()


async def test_texts_of_accounts_with_one_endpoint_share_batches(own: EmbeddingsApi, default: EmbeddingsApi) -> None:
    async with opened(default.url, ada=own) as embedder:
        await embedder.embed(["first"], bulk=True, space=BEN)
        await asyncio.gather(*(embedder.embed([one.account], bulk=True, space=one) for one in (BEN, CAT, ADA)))
    assert sorted(default.requests[-1].texts) == ["ben", "cat"]


async def test_an_endpoint_that_is_away_fails_its_account_alone(own: EmbeddingsApi, default: EmbeddingsApi) -> None:
    async with opened(default.url, ada=own) as embedder:
        await embedder.warm()
        own.otherwise = failure(401)
        for _ in range(2):
            with pytest.raises(EmbedderUnavailable, match="refuses the key"):
                await embedder.embed(["tea"], space=ADA)
            await embedder.embed(["tea"], space=BEN)
        with pytest.raises(EmbedderUnavailable, match="refuses the key"):
            await embedder.warm()


async def test_an_endpoint_with_another_model_is_refused(own: EmbeddingsApi, default: EmbeddingsApi) -> None:
    own.otherwise = answer(vector_of=lambda text: [1.0, *[0.0] * (DIMENSION - 1)])
    async with opened(default.url, ada=own) as embedder:
        await embedder.embed(["tea"], space=BEN)
        with pytest.raises(EmbedderUnavailable, match="serves another model than before"):
            await embedder.embed(["tea"], space=ADA)
    assert not sent(own)
