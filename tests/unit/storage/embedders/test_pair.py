"""A pair of embedders, with the built-in model and a double of an embedding service."""

import asyncio

import pytest

from runekeep_storage.embedders import EmbedderUnavailable, EmbeddingOptions, open_embedder
from runekeep_storage.embedders.vectors import cosine
from tests.doubles.embeddings_api import DIMENSION, MODEL, EmbeddingsApi, failure

TEXTS = ["Nils waters the greenhouse", "the greenhouse of Nils", "Das Gewächshaus ist warm", "tape robot"]


async def test_likenesses_of_a_pair_are_the_means_of_its_parts() -> None:
    with EmbeddingsApi() as api:
        options = EmbeddingOptions(url=api.url, model=MODEL, dimension=DIMENSION)
        names = ("minilm", "openai", "minilm+openai")
        opened = [one for name in names if (one := open_embedder(name, options=options))]
        vectors = await asyncio.gather(*(one.embed(TEXTS) for one in opened))
        for one in opened:
            await one.close()
    first, second, pair = opened
    assert pair.model == f"{first.model}+{second.model}" and pair.dimension == first.dimension + second.dimension
    for left in range(len(TEXTS)):
        for right in range(len(TEXTS)):
            of_first, of_second, of_pair = (cosine(some[left], some[right]) for some in vectors)
            assert of_pair == pytest.approx((of_first + of_second) / 2, abs=1e-6)


async def test_a_pair_has_no_vector_without_either_part() -> None:
    with EmbeddingsApi() as api:
        api.otherwise = failure(503)
        options = EmbeddingOptions(url=api.url, model=MODEL, dimension=DIMENSION)
        pair = open_embedder("minilm+openai", options=options)
        assert pair is not None
        with pytest.raises(EmbedderUnavailable):
            await pair.embed(TEXTS)
        await pair.close()
